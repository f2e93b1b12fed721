//! The version-0.90 superblock (`mdp_super_t`): 1024 words in the byte order of the machine that wrote them, in the
//! last whole 64 KiB of the device.
//!
//! Both byte orders are read; writing is always little-endian. Words that have no meaning are kept as they are, so
//! that a little-endian superblock comes out byte for byte.

mod words;

use crate::error::{FieldError, require, structure_error};
use crate::level::{Layout, Level};
use crate::superblock_1::{MAGIC, MAX_SECTOR, check_chunk, check_layout};
use crate::uuid::Uuid;
pub use words::ByteOrder;

/// `MD_SB_BYTES`.
pub const BLOCK_BYTES: usize = 4096;
/// `MD_SB_WORDS`.
pub const WORDS: usize = BLOCK_BYTES / 4;
/// `MD_SB_DISKS`: rows of the table of disks.
pub const DISKS: usize = 27;
/// `MD_RESERVED_SECTORS`: the superblock lies at the start of the last such block.
pub const RESERVED_SECTORS: u64 = 128;

structure_error! {
    /// Why a version-0.90 superblock is refused.
    Superblock0Error, "version-0.90 superblock",
    /// `sb_csum` is not the sum of the words.
    Checksum { found: u32, right: u32 } => "sb_csum is {found:08x}; the words sum to {right:08x}"
}

/// The sector of the superblock on a device of so many sectors (`MD_NEW_SIZE_SECTORS`), which is also the number of
/// sectors before it. A device of less than 64 KiB has none.
pub const fn sector(device_sectors: u64) -> Option<u64> {
    if device_sectors < RESERVED_SECTORS {
        None
    } else {
        Some((device_sectors & !(RESERVED_SECTORS - 1)) - RESERVED_SECTORS)
    }
}

/// A row of the table of disks (`mdp_disk_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// `number`: the row's own number.
    pub number: u32,
    /// `major` of the device when it was last written.
    pub major: u32,
    /// `minor` of the device when it was last written.
    pub minor: u32,
    /// `raid_disk`: the slot.
    pub raid_disk: u32,
    /// `state`: bits of `MD_DISK_*`, among them [`Disk::DEVICE_FLAGS`].
    pub state: u32,
}

impl Disk {
    /// Bit `MD_DISK_FAULTY`.
    pub const FAULTY: u32 = 1;
    /// Bit `MD_DISK_ACTIVE`.
    pub const ACTIVE: u32 = 1 << 1;
    /// Bit `MD_DISK_SYNC`.
    pub const SYNC: u32 = 1 << 2;
    /// Bit `MD_DISK_REMOVED`.
    pub const REMOVED: u32 = 1 << 3;

    /// Whether the row's device holds the data of its slot.
    pub const fn is_in_sync(&self) -> bool {
        self.state & (Self::SYNC | Self::FAULTY) == Self::SYNC
    }
}

/// The fields that hold while an array is being reshaped (`minor_version` 91).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// `reshape_position`: the array's sector up to which it has come.
    pub position_sectors: u64,
    /// `new_level`.
    pub new_level: i32,
    /// `delta_disks`: slots added.
    pub delta_disks: i32,
    /// `new_layout`.
    pub new_layout: u32,
    /// `new_chunk`.
    pub new_chunk_bytes: u32,
}

/// A version-0.90 superblock. Numbers in brackets are words from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock0 {
    /// The byte order in which it was read.
    pub byte_order: ByteOrder,
    /// `patch_version` \[3\].
    pub patch_version: u32,
    /// `set_uuid0` \[5\], `set_uuid1` to `set_uuid3` \[13 to 15\].
    pub set_uuid: Uuid,
    /// `ctime` \[6\]: seconds since 1970.
    pub ctime_seconds: u32,
    /// `level` \[7\].
    pub level: Level,
    /// `size` \[8\]: KiB used of each member; zero for linear and RAID-0.
    pub size_kib: u32,
    /// `nr_disks` \[9\]: devices of the array.
    pub nr_disks: u32,
    /// `raid_disks` \[10\]: slots of the array.
    pub raid_disks: u32,
    /// `md_minor` \[11\]: the array's preferred number.
    pub md_minor: u32,
    /// `not_persistent` \[12\].
    pub not_persistent: u32,
    /// `utime` \[32\]: seconds since 1970.
    pub utime_seconds: u32,
    /// `state` \[33\]: bits of `MD_SB_*`.
    pub state: u32,
    /// `active_disks` \[34\].
    pub active_disks: u32,
    /// `working_disks` \[35\].
    pub working_disks: u32,
    /// `failed_disks` \[36\].
    pub failed_disks: u32,
    /// `spare_disks` \[37\].
    pub spare_disks: u32,
    /// `events_lo`, `events_hi` [39, 40].
    pub events: u64,
    /// `cp_events_lo`, `cp_events_hi` [41, 42]: `events` when `recovery_cp` was written.
    pub checkpoint_events: u64,
    /// `recovery_cp` \[43\]: the sector up to which a resync has come; holds if `cp_events` equals `events`.
    pub recovery_checkpoint_sectors: u32,
    /// `minor_version` \[1\] is 91 and these hold \[44 to 49\], or it is 90.
    pub reshape: Option<Reshape>,
    /// `layout` \[64\]: its number; of no meaning for RAID-0, where the kernel writes -1.
    pub layout: u32,
    /// `chunk_size` \[65\].
    pub chunk_bytes: u32,
    /// `disks` \[128\].
    pub disks: [Disk; DISKS],
    /// `this_disk` \[992\]: the row of the device that holds this superblock.
    pub this_disk: Disk,
    /// Every word as it was read; those without a field are written back.
    words: Box<[u32; WORDS]>,
}

impl Superblock0 {
    /// Bit `MD_SB_CLEAN` of `state`.
    pub const CLEAN: u32 = 1;
    /// Bit `MD_SB_ERRORS` of `state`.
    pub const ERRORS: u32 = 1 << 1;
    /// Bit `MD_SB_BITMAP_PRESENT` of `state`: the bitmap follows the superblock.
    pub const BITMAP_PRESENT: u32 = 1 << 8;

    /// Reads the superblock at the start of `block`.
    pub fn parse(block: &[u8]) -> Result<Self, Superblock0Error> {
        let superblock = words::parse(block)?;
        superblock.check()?;
        Ok(superblock)
    }

    /// The chunk in sectors.
    pub const fn chunk_sectors(&self) -> u32 {
        self.chunk_bytes / 512
    }

    /// The layout; RAID-0 has none here.
    pub fn layout(&self) -> Option<Layout> {
        if self.level == Level::Raid0 { None } else { Layout::from_number(self.level, self.layout as i32) }
    }

    /// Whether every write that was begun has ended and nothing is left to resync.
    pub const fn is_clean(&self) -> bool {
        self.state & Self::CLEAN != 0
    }

    /// The first sector that may be out of sync, as the kernel's `super_90_validate` takes it: none when clean, the
    /// checkpoint when it is of these events, else the first.
    pub fn resync_offset_sectors(&self) -> u64 {
        if self.is_clean() {
            MAX_SECTOR
        } else if self.events == self.checkpoint_events {
            u64::from(self.recovery_checkpoint_sectors)
        } else {
            0
        }
    }

    /// Whether an internal bitmap follows, eight sectors after the superblock.
    pub const fn has_bitmap(&self) -> bool {
        self.state & Self::BITMAP_PRESENT != 0
    }

    fn check(&self) -> Result<(), FieldError> {
        let Self { level, raid_disks, .. } = *self;
        require(self.not_persistent == 0, "not_persistent", self.not_persistent, || {
            "it is 0 on a device".to_owned()
        })?;
        let slots_min = u32::from(level.members_min());
        require((slots_min..=DISKS as u32).contains(&raid_disks), "raid_disks", raid_disks, || {
            format!("a {level} array of this version has {slots_min} to {DISKS} slots")
        })?;
        check_chunk_bytes("chunk_size", level, self.chunk_bytes)?;
        if level != Level::Raid0 {
            check_layout("layout", level, self.layout, raid_disks)?;
        }
        let sized = !matches!(level, Level::Linear | Level::Raid0);
        require(!sized || self.size_kib > 0, "size", self.size_kib, || {
            format!("a {level} array uses some KiB of each member")
        })?;
        let number = self.this_disk.number;
        require((number as usize) < DISKS, "this_disk.number", number, || {
            format!("the table has {DISKS} rows")
        })?;
        if let Some(reshape) = &self.reshape {
            let before = i64::from(raid_disks) - i64::from(reshape.delta_disks);
            require((1..=DISKS as i64).contains(&before), "delta_disks", reshape.delta_disks, || {
                format!("the array has {raid_disks} slots with them and 1 to {DISKS} without")
            })?;
            let new_level = Level::from_number(reshape.new_level).ok_or_else(|| {
                FieldError::new("new_level", reshape.new_level, "it is -1, 0, 1, 4, 5, 6 or 10")
            })?;
            check_chunk_bytes("new_chunk", new_level, reshape.new_chunk_bytes)?;
        }
        Ok(())
    }

    /// Checks that what the superblock names lies within a device of so many sectors.
    pub fn check_on_device(&self, device_sectors: u64) -> Result<(), Superblock0Error> {
        let room = sector(device_sectors).unwrap_or(0);
        let size = u64::from(self.size_kib) * 2;
        require(size <= room, "size", self.size_kib, || {
            format!("there are {} KiB before the superblock", room / 2)
        })?;
        Ok(())
    }
}

fn check_chunk_bytes(field: &'static str, level: Level, bytes: u32) -> Result<(), FieldError> {
    require(bytes.is_multiple_of(512), field, bytes, || "it is whole sectors of 512 bytes".to_owned())?;
    check_chunk(field, level, bytes / 512)
}
