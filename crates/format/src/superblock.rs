//! A superblock of either version, in the terms both have.

use std::fmt;

use crate::level::{Layout, Level};
use crate::placement::Metadata;
use crate::superblock_0::{self, Disk, Superblock0, Superblock0Error};
use crate::superblock_1::{MAX_SECTOR, Minor, PplArea, Role, Superblock1, Superblock1Error, Unsupported};
use crate::time::Timestamp;
use crate::uuid::Uuid;

/// KiB counted in 32 bits, in sectors.
const SECTORS_MAX_0: u64 = (u32::MAX as u64) * 2;

/// A superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Superblock {
    /// Version 0.90.
    V0(Box<Superblock0>),
    /// Version 1.0, 1.1 or 1.2.
    V1(Box<Superblock1>),
}

/// Why a superblock is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// Of version 0.90.
    V0(Superblock0Error),
    /// Of version 1.
    V1(Superblock1Error),
}

impl SuperblockError {
    /// Whether there is no superblock here at all, rather than one that is refused.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::V0(Superblock0Error::Magic { .. }) | Self::V1(Superblock1Error::Magic { .. }))
    }
}

impl fmt::Display for SuperblockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V0(error) => error.fmt(f),
            Self::V1(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SuperblockError {}

/// Where superblocks may lie on a device of so many sectors. Each is 4 KiB long, or to the device's end.
pub fn places(device_sectors: u64) -> impl Iterator<Item = (Metadata, u64)> {
    Metadata::ALL.into_iter().filter_map(move |metadata| Some((metadata, metadata.sector(device_sectors)?)))
}

impl Metadata {
    /// The sector of this version's superblock.
    pub const fn sector(self, device_sectors: u64) -> Option<u64> {
        match self {
            Self::V0 => superblock_0::sector(device_sectors),
            Self::V1(minor) => minor.sector(device_sectors),
        }
    }
}

impl Superblock {
    /// Reads the superblock of a version that lies at a sector of its device.
    pub fn parse(metadata: Metadata, block: &[u8], at_sector: u64) -> Result<Self, SuperblockError> {
        match metadata {
            Metadata::V0 => {
                Superblock0::parse(block).map(Box::new).map(Self::V0).map_err(SuperblockError::V0)
            }
            Metadata::V1(_) => {
                Superblock1::parse(block, at_sector).map(Box::new).map(Self::V1).map_err(SuperblockError::V1)
            }
        }
    }

    /// The bytes to write where it lies.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::V0(superblock) => superblock.to_bytes(),
            Self::V1(superblock) => superblock.to_bytes(),
        }
    }

    /// Checks that what it names lies within a device of so many sectors.
    pub fn check_on_device(&self, device_sectors: u64) -> Result<(), SuperblockError> {
        match self {
            Self::V0(superblock) => superblock.check_on_device(device_sectors).map_err(SuperblockError::V0),
            Self::V1(superblock) => superblock.check_on_device(device_sectors).map_err(SuperblockError::V1),
        }
    }

    /// The version.
    pub const fn metadata(&self) -> Metadata {
        match self {
            Self::V0(_) => Metadata::V0,
            Self::V1(superblock) => Metadata::V1(Minor::at_sector(superblock.super_offset_sectors)),
        }
    }

    /// The array's UUID.
    pub const fn set_uuid(&self) -> Uuid {
        match self {
            Self::V0(superblock) => superblock.set_uuid,
            Self::V1(superblock) => superblock.set_uuid,
        }
    }

    /// The array's UUID as its bitmap bears it.
    pub fn bitmap_uuid(&self) -> Uuid {
        match self {
            Self::V0(superblock) => superblock.set_uuid.with_words_reversed(),
            Self::V1(superblock) => superblock.set_uuid,
        }
    }

    /// The level.
    pub const fn level(&self) -> Level {
        match self {
            Self::V0(superblock) => superblock.level,
            Self::V1(superblock) => superblock.level,
        }
    }

    /// The layout; none for a RAID-0 whose superblock does not vouch for it.
    pub fn layout(&self) -> Option<Layout> {
        match self {
            Self::V0(superblock) => superblock.layout(),
            Self::V1(superblock) => superblock.layout(),
        }
    }

    /// Whether the array has a write journal.
    pub const fn has_journal(&self) -> bool {
        match self {
            Self::V0(_) => false,
            Self::V1(superblock) => superblock.has_journal(),
        }
    }

    /// Whether a reshape is under way.
    pub fn is_reshaped(&self) -> bool {
        match self {
            Self::V0(superblock) => superblock.reshape.is_some(),
            Self::V1(superblock) => superblock.reshape().is_some(),
        }
    }

    /// What of it is not served here.
    pub fn unsupported(&self) -> Option<Unsupported> {
        match self {
            Self::V0(_) => None,
            Self::V1(superblock) => superblock.unsupported(),
        }
    }

    /// The chunk; 0 for levels without.
    pub const fn chunk_sectors(&self) -> u32 {
        match self {
            Self::V0(superblock) => superblock.chunk_sectors(),
            Self::V1(superblock) => superblock.chunk_sectors,
        }
    }

    /// Slots of the array.
    pub const fn raid_disks(&self) -> u32 {
        match self {
            Self::V0(superblock) => superblock.raid_disks,
            Self::V1(superblock) => superblock.raid_disks,
        }
    }

    /// Sectors used of each member; 0 for linear and RAID-0.
    pub const fn size_sectors(&self) -> u64 {
        match self {
            Self::V0(superblock) => superblock.size_kib as u64 * 2,
            Self::V1(superblock) => superblock.size_sectors,
        }
    }

    /// Where the member's data begin.
    pub const fn data_offset_sectors(&self) -> u64 {
        match self {
            Self::V0(_) => 0,
            Self::V1(superblock) => superblock.data_offset_sectors,
        }
    }

    /// Sectors of the member that can hold data; for 0.90 all before the superblock at `at_sector`, but of those no more than
    /// it can count, save for RAID-0 (the kernel's `super_90_load`, which takes the level for an unsigned number).
    pub const fn data_size_sectors(&self, at_sector: u64) -> u64 {
        match self {
            Self::V0(superblock)
                if !matches!(superblock.level, Level::Raid0) && at_sector > SECTORS_MAX_0 =>
            {
                SECTORS_MAX_0
            }
            Self::V0(_) => at_sector,
            Self::V1(superblock) => superblock.data_size_sectors,
        }
    }

    /// The sector of the internal bitmap of a superblock at `at_sector`.
    pub fn bitmap_sector(&self, at_sector: u64) -> Option<u64> {
        at_sector.checked_add_signed(self.bitmap_offset_sectors()?.into())
    }

    /// From the superblock to the internal bitmap, in sectors.
    pub fn bitmap_offset_sectors(&self) -> Option<i32> {
        match self {
            Self::V0(superblock) => superblock.has_bitmap().then_some(8),
            Self::V1(superblock) => superblock.bitmap_offset_sectors(),
        }
    }

    /// Gives the array an internal bitmap at an offset, and no PPL, or leaves it without either: what was recovered by a bitmap
    /// is then recovered anew. 0.90 records no offset.
    pub fn set_bitmap(&mut self, offset_sectors: Option<i32>) {
        match (self, offset_sectors) {
            (Self::V0(superblock), Some(_)) => superblock.state |= Superblock0::BITMAP_PRESENT,
            (Self::V0(superblock), None) => superblock.state &= !Superblock0::BITMAP_PRESENT,
            (Self::V1(superblock), Some(offset)) => superblock.set_bitmap(offset),
            (Self::V1(superblock), None) => {
                superblock.clear_bitmap_and_ppl();
                superblock.forget_recovery_by_bitmap();
            }
        }
    }

    /// Where the bad-block log lies on the device, if there is one.
    pub fn bad_block_log_sector(&self) -> Option<u64> {
        match self {
            Self::V0(_) => None,
            Self::V1(superblock) => superblock.bad_block_log_sector(),
        }
    }

    /// The count of changes; members with fewer are stale.
    pub const fn events(&self) -> u64 {
        match self {
            Self::V0(superblock) => superblock.events,
            Self::V1(superblock) => superblock.events,
        }
    }

    /// Sectors before it are in sync; [`crate::superblock_1::MAX_SECTOR`] when all are.
    pub fn resync_offset_sectors(&self) -> u64 {
        match self {
            Self::V0(superblock) => superblock.resync_offset_sectors(),
            Self::V1(superblock) => superblock.resync_offset_sectors,
        }
    }

    /// Makes the array use so many sectors of each member, of which this one has `room_sectors` at least.
    pub fn set_size_sectors(&mut self, size_sectors: u64, room_sectors: u64) {
        match self {
            Self::V0(superblock) => superblock.size_kib = (size_sectors / 2) as u32,
            Self::V1(superblock) => {
                superblock.size_sectors = size_sectors;
                superblock.data_size_sectors = superblock.data_size_sectors.max(room_sectors);
            }
        }
    }

    /// Says that the sectors before one are in sync; [`crate::superblock_1::MAX_SECTOR`] when all are. 0.90 has room for 32 bits:
    /// beyond them nothing is taken as in sync. To be called when the events are set, of which 0.90 keeps a copy.
    pub fn set_resync_offset_sectors(&mut self, sectors: u64) {
        match self {
            Self::V0(superblock) if sectors == MAX_SECTOR => {
                superblock.state |= Superblock0::CLEAN;
                superblock.recovery_checkpoint_sectors = 0;
            }
            Self::V0(superblock) => {
                superblock.state &= !Superblock0::CLEAN;
                superblock.checkpoint_events = superblock.events;
                superblock.recovery_checkpoint_sectors = u32::try_from(sectors).unwrap_or(0);
            }
            Self::V1(superblock) => superblock.resync_offset_sectors = sectors,
        }
    }

    /// Counts a change, and says when it was.
    pub fn set_events(&mut self, events: u64, utime: Timestamp) {
        match self {
            Self::V0(superblock) => {
                superblock.events = events;
                superblock.utime_seconds = utime.seconds() as u32;
            }
            Self::V1(superblock) => {
                superblock.events = events;
                superblock.utime = utime;
            }
        }
    }

    /// The partial parity log's area; 0.90 has none.
    pub fn ppl(&self) -> Option<PplArea> {
        match self {
            Self::V0(_) => None,
            Self::V1(superblock) => superblock.ppl(),
        }
    }

    /// The device's number among the array's, which is not its slot.
    pub const fn dev_number(&self) -> u32 {
        match self {
            Self::V0(superblock) => superblock.this_disk.number,
            Self::V1(superblock) => superblock.dev_number,
        }
    }

    /// How many devices it has room for; each has a [role](Self::role_of).
    pub const fn device_rows(&self) -> u32 {
        match self {
            Self::V0(superblock) => superblock.disks.len() as u32,
            Self::V1(superblock) => superblock.dev_roles.len() as u32,
        }
    }

    /// What the device of a number is to the array, as this superblock has it.
    pub fn role_of(&self, dev_number: u32) -> Role {
        match self {
            Self::V0(superblock) => superblock.disks.get(dev_number as usize).map_or(Role::Spare, disk_role),
            Self::V1(superblock) => {
                superblock.dev_roles.get(dev_number as usize).copied().unwrap_or(Role::Spare)
            }
        }
    }

    /// What this device is to the array.
    pub fn role(&self) -> Role {
        self.role_of(self.dev_number())
    }
}

/// The role of a row of 0.90's table, as the kernel's `super_90_validate` takes it.
fn disk_role(disk: &Disk) -> Role {
    if disk.state & Disk::FAULTY != 0 {
        return Role::Faulty;
    }
    match u16::try_from(disk.raid_disk) {
        Ok(slot) if disk.is_in_sync() => Role::Slot(slot),
        _ => Role::Spare,
    }
}
