//! Why an array does not get another level.

use std::fmt;

use crate::level::Level;

/// Why an array does not get another level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelError {
    /// Linux does it, or nobody.
    Pair {
        /// The level now.
        now: Level,
        /// The level asked for.
        asked: Level,
    },
    /// Not with metadata 0.90.
    Metadata,
    /// Not beside a partial parity log.
    Ppl,
    /// Not with so many slots.
    Slots {
        /// The level now.
        now: Level,
        /// The level asked for.
        asked: Level,
        /// Slots now.
        raid_disks: u32,
    },
    /// The layout is to be another first.
    Layout {
        /// The level asked for.
        asked: Level,
        /// Its name.
        layout: &'static str,
    },
    /// A chunk that the level has not.
    Chunk {
        /// The level asked for.
        asked: Level,
        /// Sectors of the chunk now.
        chunk_sectors: u32,
    },
    /// More slots than a superblock lists.
    TooMany {
        /// The level asked for.
        asked: Level,
        /// The most.
        most: u32,
        /// Those needed.
        needed: u32,
    },
    /// Not beside a bitmap.
    Bitmap,
    /// The members of a RAID-0 have unequal sizes.
    Zones {
        /// The level asked for.
        asked: Level,
        /// Sectors of the smallest, in whole chunks.
        least_sectors: u64,
        /// Sectors of the largest.
        most_sectors: u64,
    },
    /// No chunk divides what is used of each member.
    NoChunk {
        /// Sectors used of each member.
        size_sectors: u64,
    },
    /// So many slots would hold less.
    Fewer {
        /// The level asked for.
        level: Level,
        /// Slots that it takes.
        least: u32,
        /// Slots asked for.
        asked: u32,
    },
    /// Chunk, layout and slots stay as they are with this change.
    Alone {
        /// The level asked for.
        level: Level,
    },
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair { now, asked } => write!(
                f,
                "raid4 and a raid1 of two become raid5 here, raid5 becomes raid4, raid6 or a raid1 of two, raid6 becomes raid5, raid0 \
                 becomes raid4, raid5 or raid10, and raid1, raid4, raid5 and raid10 become raid0; from {now} to {asked} is Linux's \
                 work, if it can be (`mdadm --grow --level`)"
            ),
            Self::Metadata => f.write_str(
                "an array with metadata 0.90 gets another level by Linux alone (`mdadm --grow --level`)",
            ),
            Self::Ppl => f.write_str(
                "the array has partial parity logs, which raid5 alone has; take them away first, with --consistency-policy resync",
            ),
            Self::Slots { now, asked, raid_disks } => {
                let which = match asked {
                    Level::Raid6 => "3 to 253",
                    Level::Raid0 => "an even number of",
                    _ => "2",
                };
                write!(f, "a {now} array of {which} raid devices can become {asked}; this one has {raid_disks}")
            }
            Self::Layout { asked, layout: layout @ "n2" } => write!(
                f,
                "as {asked} takes the array over, its layout has to be {layout}; `stripewise grow --layout {layout}` makes it of an o2, far \
                 copies and other numbers of copies stay as they are"
            ),
            Self::Layout { asked, layout } => write!(
                f,
                "as {asked} takes the array over, its layout has to be {layout}; `stripewise grow --layout {layout}` it first"
            ),
            Self::Chunk { asked, chunk_sectors } => write!(
                f,
                "{asked} takes the array over with its chunk, which has to be a power of two, 4K or more; this one is {} bytes long",
                u64::from(*chunk_sectors) * 512
            ),
            Self::TooMany { asked, most, needed } => write!(
                f,
                "as {asked} the array takes {needed} raid devices; this metadata lists {most} at most"
            ),
            Self::Bitmap => f.write_str("raid0 has no bitmap; take it away first, with --bitmap none"),
            Self::Zones { asked, least_sectors, most_sectors } => write!(
                f,
                "{asked} takes over a raid0 array whose members all have the same number of chunks; the smallest has {}K for data and \
                 the largest {}K",
                least_sectors / 2,
                most_sectors / 2
            ),
            Self::NoChunk { size_sectors } => write!(
                f,
                "{}K are used of each member, which is no multiple of a chunk of 4K",
                size_sectors / 2
            ),
            Self::Fewer { level, least, asked } => {
                write!(f, "as {level} the array takes {least} raid devices; {asked} would hold less")
            }
            Self::Alone { level } => write!(
                f,
                "another chunk, layout or number of raid devices is had after it has become {level}; change the level alone first"
            ),
        }
    }
}

impl std::error::Error for LevelError {}
