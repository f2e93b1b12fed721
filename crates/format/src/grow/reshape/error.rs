//! Why an array is not reshaped.

use std::fmt;

use super::Room;
use crate::level::Level;

/// Where room would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the data.
    Before,
    /// Behind them.
    Behind,
    /// Before or behind them.
    Either,
}

/// Why an array is not reshaped so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReshapeError {
    /// Not at this level.
    Level(Level),
    /// Not with metadata 0.90, which has no place for another data offset, at this level.
    Metadata(Level),
    /// Beside a partial parity log Linux reshapes nothing.
    Ppl,
    /// The array is so already.
    Same,
    /// Slots would go, and nobody said how much of the array is to be kept.
    Fewer {
        /// Slots now.
        now: u32,
        /// Slots asked for.
        asked: u32,
        /// Sectors of the array now.
        now_sectors: u64,
        /// Sectors of it that can be kept.
        most_sectors: u64,
    },
    /// Slots of a RAID-0 would go.
    FewerStripes {
        /// Slots now.
        now: u32,
        /// Slots asked for.
        asked: u32,
    },
    /// Fewer slots than the level has at least.
    TooFew {
        /// The level.
        level: Level,
        /// Slots that it has at least.
        least: u32,
        /// Slots asked for.
        asked: u32,
    },
    /// It is said how much of the array is to be kept, and no slots go.
    NotFewer {
        /// Slots now.
        now: u32,
        /// Slots asked for.
        asked: u32,
    },
    /// More is to be kept of the array than it holds with the slots asked for.
    ArraySize {
        /// Slots asked for.
        asked: u32,
        /// Sectors that are to be kept.
        asked_sectors: u64,
        /// Sectors that can be.
        most_sectors: u64,
    },
    /// More is to be kept of the array than lets the data move: without room behind them a part of each member has to be left unused.
    ArraySizeRoom {
        /// Sectors that are to be kept.
        asked_sectors: u64,
        /// Sectors that can be.
        most_sectors: u64,
    },
    /// Fewer spares than slots that are added.
    Spares {
        /// Slots that are added.
        added: u32,
        /// Spares.
        spares: u32,
    },
    /// More slots than the level or the superblock has.
    TooMany {
        /// The most.
        most: u32,
        /// Slots asked for.
        asked: u32,
    },
    /// The chunk is no power of two, or smaller than a page.
    Chunk {
        /// Sectors asked for.
        chunk_sectors: u32,
    },
    /// What is used of each member is not whole chunks.
    ChunkDoesNotDivide {
        /// The chunk, now or asked for.
        chunk_sectors: u32,
        /// Sectors used of each member.
        size_sectors: u64,
        /// Whether Linux can use less of each: not of a RAID-0, which uses all.
        can_use_less: bool,
    },
    /// Copies far away, before or after.
    FarCopies,
    /// Another number of copies.
    Copies {
        /// Copies of each block now.
        now: u16,
        /// Copies asked for.
        asked: u16,
    },
    /// Other devices than slots are added to a RAID-0.
    Devices {
        /// Slots that are added.
        added: u32,
        /// Devices that are named.
        named: u32,
    },
    /// Rows of the new kind do not hold what the array holds.
    HoldsLess {
        /// Sectors of the array now.
        now_sectors: u64,
        /// Sectors of it then, with as many slots as now.
        then_sectors: u64,
    },
    /// A member has no room to move its data by.
    Room {
        /// Which, in the order given.
        member: usize,
        /// Sectors that it takes.
        needed_sectors: u64,
        /// What it has.
        room: Room,
        /// Where it would do.
        place: Place,
        /// Whether Linux can do without, by help of a backup.
        has_backup: bool,
    },
}

impl fmt::Display for ReshapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => write!(
                f,
                "raid0, raid4, raid5, raid6 and raid10 arrays are reshaped here; a {level} array is Linux's work (`mdadm --grow`)"
            ),
            Self::Metadata(Level::Raid10) => f.write_str(
                "metadata 0.90 has no place for another data offset, without which neither Linux nor stripewise reshapes a raid10 array",
            ),
            Self::Metadata(_) => f.write_str(
                "metadata 0.90 has no place for another data offset, so that a reshape needs a backup, which is Linux's work \
                 (`mdadm --grow --backup-file`)",
            ),
            Self::Ppl => f.write_str(
                "beside a partial parity log md reshapes nothing; take it away first, with --consistency-policy resync",
            ),
            Self::Same => f.write_str("the array is so already"),
            Self::Fewer { .. }
            | Self::FewerStripes { .. }
            | Self::TooFew { .. }
            | Self::NotFewer { .. }
            | Self::ArraySize { .. }
            | Self::ArraySizeRoom { .. } => self.of_fewer(f),
            Self::Spares { added, spares } => write!(
                f,
                "{added} more raid devices need as many spares, and there are {spares}; `stripewise add-spare` them first and \
                 name them"
            ),
            Self::Devices { added, named } => write!(
                f,
                "{added} more raid devices take as many new devices, and {named} are named with --add; a raid0 array has no spares"
            ),
            Self::TooMany { most, asked } => {
                write!(f, "{asked} raid devices are too many; this array can have {most} at most")
            }
            Self::Chunk { chunk_sectors } => write!(
                f,
                "a chunk of {} bytes cannot be; it is a power of two, 4K or more",
                u64::from(*chunk_sectors) * 512
            ),
            Self::ChunkDoesNotDivide { chunk_sectors, size_sectors, can_use_less } => {
                undivided(f, u64::from(*chunk_sectors).max(1), *size_sectors, *can_use_less)
            }
            Self::FarCopies | Self::Copies { .. } | Self::HoldsLess { .. } => self.of_copies(f),
            Self::Room { needed_sectors, room: Room { before_sectors, after_sectors }, place, has_backup, .. } => {
                let (place, free) = match place {
                    Place::Before => ("before", format!("{before_sectors} are free before")),
                    Place::Behind => ("behind", format!("{after_sectors} are free behind")),
                    Place::Either => (
                        "before or behind",
                        format!("{before_sectors} are free before and {after_sectors} behind"),
                    ),
                };
                write!(f, "to move its data safely {needed_sectors} sectors must be free {place} them; {free}")?;
                f.write_str(if *has_backup {
                    "; without that room it takes a backup, which is Linux's work (`mdadm --grow --backup-file`)"
                } else {
                    "; Linux has no other way with a raid10 array either"
                })
            }
        }
    }
}

impl std::error::Error for ReshapeError {}

impl ReshapeError {
    /// What is said where slots go.
    fn of_fewer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fewer { now, asked, now_sectors, most_sectors } => write!(
                f,
                "the array holds {}K on {now} raid devices, and with {asked} all beyond {}K would be lost; make the file system on it \
                 smaller than that first, then say how much of the array is to be kept: --array-size SIZE, {}K or less",
                now_sectors / 2,
                most_sectors / 2,
                most_sectors / 2
            ),
            Self::FewerStripes { now, asked } => write!(
                f,
                "the array has {now} raid devices, and {asked} would hold less; all of each member of a raid0 array is in use, so that it \
                 takes a backup, which is Linux's work (`mdadm --grow --array-size` and then `--raid-devices` with `--backup-file`)"
            ),
            Self::TooFew { level, least, asked } => {
                write!(f, "a {level} array has {least} raid devices or more; {asked} are too few")
            }
            Self::NotFewer { now, asked } => write!(
                f,
                "--array-size says how much of an array is kept with fewer raid devices; this one has {now}, and {asked} hold all of it"
            ),
            Self::ArraySize { asked, asked_sectors, most_sectors } => write!(
                f,
                "{}K are to be kept, and {asked} raid devices hold {}K; make the file system smaller than that first, then take \
                 --array-size {}K or less",
                asked_sectors / 2,
                most_sectors / 2,
                most_sectors / 2
            ),
            Self::ArraySizeRoom { asked_sectors, most_sectors } => write!(
                f,
                "{}K are to be kept, and there is too little room behind the members' data to move them; with --array-size {}K or less \
                 a part of each member is left unused, which is room enough. Otherwise it takes a backup, which is Linux's work \
                 (`mdadm --grow --backup-file`)",
                asked_sectors / 2,
                most_sectors / 2
            ),
            _ => Ok(()),
        }
    }

    /// What is a RAID-10's own.
    fn of_copies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FarCopies => f.write_str(
                "copies that lie far away (fN) are not moved, by md neither; near and offset layouts (nN, oN) become each other",
            ),
            Self::Copies { now, asked } => write!(
                f,
                "each block has {now} copies, and {asked} are asked for; md moves copies, and makes no more or fewer: n{now} and o{now} \
                 are what this array can have"
            ),
            Self::HoldsLess { now_sectors, then_sectors } => write!(
                f,
                "the array holds {}K, and in whole rows of that chunk and layout its members hold {}K; take another chunk, or use more \
                 of each member first (`stripewise grow --size`)",
                now_sectors / 2,
                then_sectors / 2
            ),
            _ => Ok(()),
        }
    }
}

fn undivided(f: &mut fmt::Formatter<'_>, chunk: u64, size_sectors: u64, can_use_less: bool) -> fmt::Result {
    if chunk > size_sectors {
        return write!(
            f,
            "{}K are used of each member, less than a chunk of {}K; take a smaller one",
            size_sectors / 2,
            chunk / 2
        );
    }
    write!(
        f,
        "{}K are used of each member, which is no multiple of the chunk of {}K; ",
        size_sectors / 2,
        chunk / 2
    )?;
    if !can_use_less {
        return f.write_str("take a chunk that divides it, as a raid0 array uses all of its members");
    }
    write!(
        f,
        "another chunk divides it, or Linux makes the array smaller (`mdadm --grow --size {}`), after the file system on it",
        size_sectors / chunk * chunk / 2
    )
}
