//! The superblock and logs of a device that is added to an array that exists, as `mdadm --add` (4.2) makes them.
//!
//! Everything lies where the other members have it, counted from the superblock; the device gets a number of its own
//! and no slot. The array's table of devices is not written here: who keeps the superblocks renders it.

use std::fmt;

use crate::bitmap::{BitmapSuperblock, written_bytes};
use crate::create::{Area, SLOTS_MAX_V0, SLOTS_MAX_V1};
use crate::level::Level;
use crate::ppl;
use crate::superblock::Superblock;
use crate::superblock_0::{Disk, Superblock0};
use crate::superblock_1::{Features, Minor, Role, Superblock1};

pub use crate::create::NewMember;

/// Why a device cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// The level has no redundancy and so no spares.
    NoSpares(Level),
    /// The device is too small.
    TooSmall {
        /// Its length.
        device_sectors: u64,
        /// The least.
        needed_sectors: u64,
    },
    /// The superblocks have no number left.
    NoNumber {
        /// Devices that they list at most.
        most: u32,
    },
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpares(level) => write!(f, "a {level} array has no redundancy and so no spares"),
            Self::TooSmall { device_sectors, needed_sectors } => write!(
                f,
                "has {}K; the array needs {}K of each member, superblock and logs included",
                device_sectors / 2,
                needed_sectors.div_ceil(2)
            ),
            Self::NoNumber { most } => {
                write!(f, "the array's superblocks list {most} devices at most; remove failed ones first")
            }
        }
    }
}

impl std::error::Error for AddError {}

/// A device that is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// Its superblock.
    pub superblock: Superblock,
    /// Where that lies.
    pub at_sector: u64,
    /// Bitmap and logs, to be written before the superblock.
    pub logs: Vec<Area>,
}

/// Makes the superblock of a device that is added to the array of `member`, one of its members, whose devices have
/// the numbers `taken`. The bitmap is the array's, if it has one.
///
/// # Errors
/// The device cannot be a member.
pub fn add(
    member: &Superblock,
    taken: &[u32],
    new: &NewMember,
    bitmap: Option<&BitmapSuperblock>,
) -> Result<Addition, AddError> {
    if matches!(member.level(), Level::Linear | Level::Raid0) {
        return Err(AddError::NoSpares(member.level()));
    }
    let too_small =
        AddError::TooSmall { device_sectors: new.device_sectors, needed_sectors: needed_sectors(member) };
    if new.device_sectors < needed_sectors(member) {
        return Err(too_small);
    }
    let at_sector = member.metadata().sector(new.device_sectors).ok_or(too_small)?;
    let superblock = match member {
        Superblock::V0(array) => Superblock::V0(Box::new(add_0(array, free_number(member, taken)?, new))),
        Superblock::V1(array) => {
            Superblock::V1(Box::new(add_1(array, free_number(member, taken)?, new, at_sector)))
        }
    };
    let logs = logs(&superblock, at_sector, bitmap);
    Ok(Addition { superblock, at_sector, logs })
}

/// Sectors that a device must have for what the array keeps on it; `u64::MAX` where no device has as many.
pub fn needed_sectors(member: &Superblock) -> u64 {
    match member {
        // The superblock lies in the last whole 64 KiB, behind the data.
        Superblock::V0(array) => (u64::from(array.size_kib) * 2).next_multiple_of(128) + 128,
        Superblock::V1(array) => {
            let data_end = array.data_offset_sectors.saturating_add(array.size_sectors);
            match array.minor() {
                Minor::Start | Minor::Start4K => data_end,
                // The superblock's place is rounded down by up to seven sectors.
                Minor::End => {
                    let end = data_end.saturating_add(kept_before(array)).checked_next_multiple_of(8);
                    end.map_or(u64::MAX, |end| end.saturating_add(16))
                }
            }
        }
    }
}

/// Sectors between the data and a superblock of 1.0.
fn kept_before(array: &Superblock1) -> u64 {
    let bitmap = array.bitmap_offset_sectors();
    let ppl = array.ppl().map(|area| i32::from(area.offset_sectors));
    let log = array.has_bad_block_log().then_some(array.bblog_offset_sectors);
    let offsets = [bitmap, ppl, log].into_iter().flatten();
    offsets.map(|offset| u64::from(offset.min(0).unsigned_abs())).max().unwrap_or(0)
}

/// The least number that no device has and that is no slot's.
fn free_number(member: &Superblock, taken: &[u32]) -> Result<u32, AddError> {
    let most = match member {
        Superblock::V0(_) => SLOTS_MAX_V0,
        Superblock::V1(_) => SLOTS_MAX_V1.max(member.raid_disks()),
    };
    (member.raid_disks()..most).find(|number| !taken.contains(number)).ok_or(AddError::NoNumber { most })
}

fn add_0(array: &Superblock0, number: u32, new: &NewMember) -> Superblock0 {
    let mut own = array.clone();
    let (major, minor) = new.device_number;
    own.this_disk = Disk { number, major, minor, raid_disk: number, state: 0 };
    own.disks[number as usize] = own.this_disk;
    own.set_device_flags(new.flags);
    own
}

fn add_1(array: &Superblock1, number: u32, new: &NewMember, at_sector: u64) -> Superblock1 {
    let mut own = array.clone();
    own.features = own.features.without(
        Features::RECOVERY_OFFSET
            | Features::RECOVERY_BITMAP
            | Features::REPLACEMENT
            | Features::BAD_BLOCKS
            | Features::NEW_OFFSET,
    );
    own.recovery_offset_sectors = 0;
    own.dev_number = number;
    own.device_uuid = new.device_uuid;
    own.devflags = 0;
    own.set_device_flags(new.flags);
    own.corrected_reads = 0;
    own.super_offset_sectors = at_sector;
    own.data_size_sectors = match array.minor() {
        Minor::Start | Minor::Start4K => new.device_sectors - array.data_offset_sectors,
        Minor::End => {
            let kept = array.super_offset_sectors.saturating_sub(array.data_size_sectors);
            at_sector.saturating_sub(kept).max(array.size_sectors)
        }
    };
    if own.dev_roles.len() <= number as usize {
        own.dev_roles.resize(number as usize + 1, Role::Spare);
    }
    own.dev_roles[number as usize] = Role::Spare;
    own
}

/// Bitmap, bad-block log and PPL of the device.
fn logs(superblock: &Superblock, at_sector: u64, bitmap: Option<&BitmapSuperblock>) -> Vec<Area> {
    let mut logs = Vec::new();
    if let (Some(head), Some(at_sector)) = (bitmap, superblock.bitmap_sector(at_sector)) {
        // Every bit is set until the array's own bits come with the slot.
        let mut bytes = head.to_bytes();
        bytes.resize(written_bytes(head.bits()) as usize, 0xff);
        logs.push(Area { at_sector, bytes });
    }
    let Superblock::V1(superblock) = superblock else { return logs };
    let mut log = |offset: i64, bytes: Vec<u8>| {
        logs.extend(at_sector.checked_add_signed(offset).map(|at_sector| Area { at_sector, bytes }));
    };
    if superblock.has_bad_block_log() {
        let bytes = vec![0xff; usize::from(superblock.bblog_size_sectors) * 512];
        log(superblock.bblog_offset_sectors.into(), bytes);
    }
    if let Some(area) = superblock.ppl() {
        log(area.offset_sectors.into(), ppl::empty_log(&superblock.set_uuid, area));
    }
    logs
}
