//! Where mdadm puts things on a member: superblock, bitmap, bad-block log, PPL and data, and how much of the member
//! the array uses. The rules are those of mdadm 4.2 (`validate_geometry1`, `write_init_super1`,
//! `add_internal_bitmap1` and their 0.90 counterparts); `placement.json` among the fixtures holds what it did.
//!
//! An array is placed in three steps, because mdadm takes some from the first member and some from the smallest:
//! [`Plan::data_offset_sectors`] of the first member, [`Plan::usable_sectors`] of each, [`Plan::place`] with the
//! size the array settles on.

mod bitmap;
mod plan;

use std::fmt;

use crate::level::Level;
use crate::superblock_1::{Minor, PplArea};

pub use bitmap::BitmapPlace;
pub use plan::Plan;
pub(crate) use plan::V0_SIZE_SECTORS_MAX;

/// The version of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metadata {
    /// 0.90.
    V0,
    /// 1.0, 1.1 or 1.2.
    V1(Minor),
}

impl Metadata {
    /// Every version.
    pub const ALL: [Self; 4] =
        [Self::V0, Self::V1(Minor::End), Self::V1(Minor::Start), Self::V1(Minor::Start4K)];

    /// What mdadm takes when none is named.
    pub const DEFAULT: Self = Self::V1(Minor::Start4K);

    /// mdadm's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V0 => "0.90",
            Self::V1(Minor::End) => "1.0",
            Self::V1(Minor::Start) => "1.1",
            Self::V1(Minor::Start4K) => "1.2",
        }
    }

    /// The version of mdadm's name; `1` and `default` are [`Metadata::DEFAULT`].
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "0" => Some(Self::V0),
            "1" | "default" => Some(Self::DEFAULT),
            _ => Self::ALL.into_iter().find(|metadata| metadata.name() == name),
        }
    }
}

impl fmt::Display for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What makes an array whole again after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// A resync of everything, or nothing at all for levels without redundancy.
    Resync,
    /// An internal write-intent bitmap, of the chunk given or mdadm's choice.
    Bitmap {
        /// Bytes that a bit stands for.
        chunk_bytes: Option<u32>,
    },
    /// A partial parity log.
    Ppl,
}

/// Where a member's things are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// `super_offset`; for 0.90 the superblock's sector.
    pub super_offset_sectors: u64,
    /// `data_offset`; 0 for 0.90.
    pub data_offset_sectors: u64,
    /// `data_size`; for 0.90 all before the superblock, of which 4 TiB are used but by RAID-0.
    pub data_size_sectors: u64,
    /// `bblog_offset` and `bblog_size`.
    pub bad_block_log: Option<(i32, u16)>,
    /// The internal bitmap.
    pub bitmap: Option<BitmapPlace>,
    /// The partial parity log.
    pub ppl: Option<PplArea>,
}

/// Why things do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// The device cannot hold the metadata and a chunk of data.
    DeviceTooSmall {
        /// The device's length.
        device_sectors: u64,
    },
    /// 0.90 counts in 32 bits and is kept below 4 TiB a member.
    TooLargeForV0 {
        /// Sectors of a member.
        size_sectors: u64,
    },
    /// 0.90 has no data offset.
    NoDataOffsetInV0,
    /// 0.90 has no PPL.
    NoPplInV0,
    /// Only RAID-5 has a PPL.
    NoPplAtLevel(Level),
    /// Linux does not run an array of so many members with a PPL (`ppl_init_log`).
    TooManyForPpl {
        /// The array's slots.
        raid_disks: u32,
        /// The most there can be.
        most: u32,
    },
    /// Levels without redundancy have no bitmap.
    NoBitmapAtLevel(Level),
    /// The data would begin before the end of superblock, bitmap or PPL.
    DataOffsetTooSmall {
        /// The offset asked for.
        data_offset_sectors: u64,
        /// The least there can be.
        least_sectors: u64,
    },
    /// A bitmap chunk that cannot be.
    BitmapChunk {
        /// The chunk asked for.
        chunk_bytes: u32,
    },
    /// The bitmap would not fit its room.
    BitmapChunkTooSmall {
        /// The chunk asked for.
        chunk_bytes: u32,
        /// The least that fits.
        least_bytes: u64,
    },
    /// There is no room for a bitmap.
    NoRoomForBitmap,
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeviceTooSmall { device_sectors } => {
                write!(f, "a device of {device_sectors} sectors is too small for metadata and data")
            }
            Self::TooLargeForV0 { size_sectors } => {
                write!(f, "metadata 0.90 holds less than 4 TiB a member, not {size_sectors} sectors; use 1.x")
            }
            Self::NoDataOffsetInV0 => f.write_str("metadata 0.90 has no data offset; use 1.x"),
            Self::NoPplInV0 => f.write_str("metadata 0.90 has no PPL; use 1.x"),
            Self::NoPplAtLevel(level) => write!(f, "a {level} array has no PPL; only raid5 has one"),
            Self::TooManyForPpl { raid_disks, most } => {
                write!(
                    f,
                    "an array of {raid_disks} members cannot have a PPL; Linux keeps one for {most} members at most"
                )
            }
            Self::NoBitmapAtLevel(level) => {
                write!(f, "a {level} array cannot have a bitmap, as it has no redundancy")
            }
            Self::DataOffsetTooSmall { data_offset_sectors, least_sectors } => {
                write!(
                    f,
                    "a data offset of {data_offset_sectors} sectors is too small; the metadata need {least_sectors}"
                )
            }
            Self::BitmapChunkTooSmall { chunk_bytes, least_bytes } => {
                write!(
                    f,
                    "a bitmap chunk of {chunk_bytes} bytes is too small; {least_bytes} is the least that fits"
                )
            }
            Self::BitmapChunk { chunk_bytes } => {
                write!(
                    f,
                    "a bitmap chunk of {chunk_bytes} bytes is not possible; it is a power of two from 4K"
                )
            }
            Self::NoRoomForBitmap => f.write_str("there is no room for a bitmap"),
        }
    }
}

impl std::error::Error for PlacementError {}
