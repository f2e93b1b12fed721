//! The version-1 superblock (`struct mdp_superblock_1`): 256 bytes and two for each device, all little-endian.
//!
//! [`Superblock1`] mirrors the bytes, one field each; methods say what they mean. Parsing refuses what the kernel's
//! `super_1_load` refuses and what no array of that level can be; [`Superblock1::check_on_device`] adds what depends
//! on the device's length. Writing computes the checksum, so a parsed superblock comes out byte for byte.

mod bytes;
mod check;
mod features;
mod meaning;
mod numbers;

use crate::error::structure_error;
use crate::level::Level;
use crate::time::Timestamp;
use crate::uuid::Uuid;

pub(crate) use check::DATA_SECTORS_MIN;
pub(crate) use check::{check_chunk, check_layout};
pub use features::Features;
pub use meaning::{PplArea, Reshape, Unsupported, name_of};
pub use numbers::number_anew;

/// `MD_SB_MAGIC`: what every superblock of either version begins with.
pub const MAGIC: u32 = 0xa92b_4efc;
/// The superblock and its roles lie within this many bytes.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes before `dev_roles`.
pub const HEAD_BYTES: usize = 256;
/// The most roles that fit: `(4096 - 256) / 2`.
pub const ROLES_MAX: usize = (BLOCK_BYTES - HEAD_BYTES) / 2;
/// `MaxSector`: in `resync_offset` the array is in sync; in `reshape_position` there is no reshape.
pub const MAX_SECTOR: u64 = u64::MAX;

structure_error! {
    /// Why a version-1 superblock is refused.
    Superblock1Error, "version-1 superblock",
    /// `sb_csum` is not the sum of the bytes.
    Checksum { found: u32, right: u32 } => "sb_csum is {found:08x}; the bytes sum to {right:08x}",
    /// Bits of `feature_map` that have no meaning here. An array that uses them may not be touched.
    UnknownFeatures { bits: u32 } => "feature_map has unknown bits {bits:#x}; an array that uses them cannot be read here",
    /// Features that exclude each other.
    ContradictoryFeatures { names: String } => "feature_map has {names}, of which an array has one at most"
}

/// Where a version-1 superblock lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Minor {
    /// 1.0: between 8 and 12 KiB before the end.
    End = 0,
    /// 1.1: at the start.
    Start = 1,
    /// 1.2: 4 KiB after the start.
    Start4K = 2,
}

impl Minor {
    /// Every minor version, in the order in which they are looked for.
    pub const ALL: [Self; 3] = [Self::End, Self::Start, Self::Start4K];

    /// The sector of the superblock on a device of so many sectors, as `super_1_load` computes it. A device of
    /// fewer than 24 sectors has none.
    pub const fn sector(self, device_sectors: u64) -> Option<u64> {
        match self {
            _ if device_sectors < 24 => None,
            Self::End => Some((device_sectors - 16) & !7),
            Self::Start => Some(0),
            Self::Start4K => Some(8),
        }
    }

    /// The minor version of a superblock found at a sector.
    pub const fn at_sector(sector: u64) -> Self {
        match sector {
            0 => Self::Start,
            8 => Self::Start4K,
            _ => Self::End,
        }
    }
}

/// What a device is to the array (`mdp_superblock_1.dev_roles[]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Raid disk of this number (at most `MD_DISK_ROLE_MAX`, 0xff00).
    Slot(u16),
    /// `MD_DISK_ROLE_SPARE`, 0xffff.
    Spare,
    /// `MD_DISK_ROLE_FAULTY`, 0xfffe.
    Faulty,
    /// `MD_DISK_ROLE_JOURNAL`, 0xfffd.
    Journal,
}

impl Role {
    const SLOT_MAX: u16 = 0xff00;

    /// The role of the number on disk; numbers between the slots and the names mean nothing.
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            0xffff => Some(Self::Spare),
            0xfffe => Some(Self::Faulty),
            0xfffd => Some(Self::Journal),
            0..=Self::SLOT_MAX => Some(Self::Slot(number)),
            _ => None,
        }
    }

    /// The number on disk.
    pub const fn number(self) -> u16 {
        match self {
            Self::Slot(slot) => slot,
            Self::Spare => 0xffff,
            Self::Faulty => 0xfffe,
            Self::Journal => 0xfffd,
        }
    }
}

/// A version-1 superblock. Offsets in brackets are bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock1 {
    /// `feature_map` \[8\].
    pub features: Features,
    /// `set_uuid` \[16\]: the array's name to programs.
    pub set_uuid: Uuid,
    /// `set_name` \[32\]: the array's name to people, `host:name`, zero-filled.
    pub set_name: [u8; 32],
    /// `ctime` \[64\]: when the array was created.
    pub ctime: Timestamp,
    /// `level` \[72\].
    pub level: Level,
    /// `layout` \[76\]: its number; [`Superblock1::layout`] says what it means for the level.
    pub layout: u32,
    /// `size` \[80\]: sectors used of each member; zero for linear and RAID-0, which use all.
    pub size_sectors: u64,
    /// `chunksize` \[88\].
    pub chunk_sectors: u32,
    /// `raid_disks` \[92\]: slots of the array.
    pub raid_disks: u32,
    /// `bitmap_offset`, or `ppl.offset` and `ppl.size` \[96\]: one word, read by
    /// [`Superblock1::bitmap_offset_sectors`] or [`Superblock1::ppl`] as the features say.
    pub bitmap_or_ppl: u32,
    /// `new_level` \[100\].
    pub new_level: i32,
    /// `reshape_position` \[104\]: the array's sector up to which a reshape has come.
    pub reshape_position_sectors: u64,
    /// `delta_disks` \[112\]: slots that a reshape adds.
    pub delta_disks: i32,
    /// `new_layout` \[116\].
    pub new_layout: u32,
    /// `new_chunk` \[120\].
    pub new_chunk_sectors: u32,
    /// `new_offset` \[124\]: what a reshape adds to `data_offset`.
    pub new_offset_sectors: i32,
    /// `data_offset` \[128\]: where this member's data begin.
    pub data_offset_sectors: u64,
    /// `data_size` \[136\]: sectors of this member that can hold data.
    pub data_size_sectors: u64,
    /// `super_offset` \[144\]: where this superblock lies.
    pub super_offset_sectors: u64,
    /// `recovery_offset`, or a journal device's `journal_tail` \[152\]: sectors of the member that are recovered.
    pub recovery_offset_sectors: u64,
    /// `dev_number` \[160\]: this member's place in `dev_roles`.
    pub dev_number: u32,
    /// `cnt_corrected_read` \[164\]: read errors mended by rewriting.
    pub corrected_reads: u32,
    /// `device_uuid` \[168\]: this member's name.
    pub device_uuid: Uuid,
    /// `devflags` \[184\]: see [`Superblock1::device_flags`].
    pub devflags: u8,
    /// `bblog_shift` \[185\]: log2 of the bad-block log's block in sectors.
    pub bblog_shift: u8,
    /// `bblog_size` \[186\]: sectors kept for the bad-block log.
    pub bblog_size_sectors: u16,
    /// `bblog_offset` \[188\]: from the superblock to the bad-block log.
    pub bblog_offset_sectors: i32,
    /// `utime` \[192\]: when this superblock was written.
    pub utime: Timestamp,
    /// `events` \[200\]: grows with every change; members with fewer are stale.
    pub events: u64,
    /// `resync_offset` \[208\]: sectors before it are in sync; [`MAX_SECTOR`] when all are.
    pub resync_offset_sectors: u64,
    /// `dev_roles` \[256\]; its length is `max_dev` \[220\], at most [`ROLES_MAX`].
    pub dev_roles: Vec<Role>,
}

impl Superblock1 {
    /// A clean superblock of an array that uses all of a member of no size, for a new array; `dev_roles` are all
    /// spare and as many as fill `head + roles` up to whole sectors, as mdadm makes them.
    pub fn new(level: Level, raid_disks: u32, spares: u32, set_uuid: Uuid) -> Self {
        let roles = (raid_disks as usize).saturating_add(spares as usize).min(ROLES_MAX);
        let max_dev = ((HEAD_BYTES + 2 * roles).next_multiple_of(512) - HEAD_BYTES) / 2;
        Self {
            features: Features::default(),
            set_uuid,
            set_name: [0; 32],
            ctime: Timestamp::default(),
            level,
            layout: 0,
            size_sectors: 0,
            chunk_sectors: 0,
            raid_disks,
            bitmap_or_ppl: 0,
            new_level: 0,
            reshape_position_sectors: 0,
            delta_disks: 0,
            new_layout: 0,
            new_chunk_sectors: 0,
            new_offset_sectors: 0,
            data_offset_sectors: 0,
            data_size_sectors: 0,
            super_offset_sectors: 0,
            recovery_offset_sectors: 0,
            dev_number: 0,
            corrected_reads: 0,
            device_uuid: Uuid::default(),
            devflags: 0,
            bblog_shift: 0,
            bblog_size_sectors: 0,
            bblog_offset_sectors: 0,
            utime: Timestamp::default(),
            events: 0,
            resync_offset_sectors: MAX_SECTOR,
            dev_roles: vec![Role::Spare; max_dev],
        }
    }
}
