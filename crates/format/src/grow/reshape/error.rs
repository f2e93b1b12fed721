//! Why an array is not reshaped.

use std::fmt;

use crate::level::Level;

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
    /// Slots would go.
    Fewer {
        /// Slots now.
        now: u32,
        /// Slots asked for.
        asked: u32,
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
        /// Sectors that are free before its data.
        before_sectors: u64,
        /// Sectors that are free behind its data.
        after_sectors: u64,
        /// Whether room behind the data would do as well.
        either: bool,
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
            Self::Fewer { now, asked } => write!(
                f,
                "the array has {now} raid devices, and {asked} would hold less; Linux makes arrays smaller, with `mdadm --grow \
                 --array-size` and then `--raid-devices`"
            ),
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
            Self::ChunkDoesNotDivide { chunk_sectors, size_sectors } => {
                undivided(f, u64::from(*chunk_sectors).max(1), *size_sectors)
            }
            Self::FarCopies | Self::Copies { .. } | Self::HoldsLess { .. } => self.of_copies(f),
            Self::Room { needed_sectors, before_sectors, after_sectors, either, has_backup, .. } => {
                let place = if *either { "before or behind" } else { "before" };
                write!(
                    f,
                    "to move its data safely {needed_sectors} sectors must be free {place} them; {before_sectors} are free before"
                )?;
                if *either {
                    write!(f, " and {after_sectors} behind")?;
                }
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

fn undivided(f: &mut fmt::Formatter<'_>, chunk: u64, size_sectors: u64) -> fmt::Result {
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
        "{}K are used of each member, which is no multiple of the chunk of {}K; another chunk divides it, or Linux makes \
         the array smaller (`mdadm --grow --size {}`), after the file system on it",
        size_sectors / 2,
        chunk / 2,
        size_sectors / chunk * chunk / 2
    )
}
