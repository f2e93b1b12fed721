//! What a superblock's fields say together.

use std::fmt;

use super::{Features, MAX_SECTOR, Minor, Role, Superblock1};
use crate::level::{Layout, Level};

/// A member's partial parity log area (`mdp_superblock_1.ppl`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplArea {
    /// From the superblock to the area.
    pub offset_sectors: i16,
    /// The area's length.
    pub size_sectors: u16,
    /// Whether several logs follow each other in the area.
    pub multiple: bool,
}

/// A reshape that has begun and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// The array's sector up to which (or, backwards, down to which) it has come.
    pub position_sectors: u64,
    /// Slots added.
    pub delta_disks: i32,
    /// The level's number afterwards.
    pub new_level: i32,
    /// The layout's number afterwards.
    pub new_layout: u32,
    /// The chunk afterwards.
    pub new_chunk_sectors: u32,
    /// What is added to this member's data offset.
    pub new_offset_sectors: i32,
    /// From the end to the start.
    pub backwards: bool,
}

/// Why an array whose superblock reads well is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The bitmap is kept for several nodes of a cluster.
    ClusteredBitmap,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusteredBitmap => "the array's bitmap is kept for a cluster, which is not supported",
        })
    }
}

impl std::error::Error for Unsupported {}

impl Superblock1 {
    /// The minor version: where this superblock lies.
    pub const fn minor(&self) -> Minor {
        Minor::at_sector(self.super_offset_sectors)
    }

    /// The array's name without the zeros that fill it; bytes that are no UTF-8 are replaced.
    pub fn name(&self) -> String {
        let length = self.set_name.iter().position(|b| *b == 0).unwrap_or(self.set_name.len());
        String::from_utf8_lossy(&self.set_name[..length]).into_owned()
    }

    /// Sets the array's name as mdadm does: `host:name` where there is a host, `name` has no colon and both fit;
    /// otherwise the name, cut off after 31 bytes.
    pub fn set_name(&mut self, homehost: Option<&str>, name: &str) {
        self.set_name = name_of(homehost, name);
    }

    /// What this device is to the array. A number without a role is a spare, as the kernel takes it.
    pub fn role(&self) -> Role {
        self.dev_roles.get(self.dev_number as usize).copied().unwrap_or(Role::Spare)
    }

    /// The layout; none for a RAID-0 whose superblock does not vouch for its layout.
    pub fn layout(&self) -> Option<Layout> {
        if self.level == Level::Raid0 && !self.features.contains(Features::RAID0_LAYOUT) {
            return None;
        }
        Layout::from_number(self.level, self.layout as i32)
    }

    /// From the superblock to the internal bitmap.
    pub fn bitmap_offset_sectors(&self) -> Option<i32> {
        self.features.contains(Features::BITMAP_OFFSET).then_some(self.bitmap_or_ppl as i32)
    }

    /// The sector of the member where the internal bitmap begins.
    pub fn bitmap_sector(&self) -> Option<u64> {
        self.super_offset_sectors.checked_add_signed(self.bitmap_offset_sectors()?.into())
    }

    /// The partial parity log's area.
    pub fn ppl(&self) -> Option<PplArea> {
        self.features.intersects(Features::PPL | Features::MULTIPLE_PPLS).then_some(PplArea {
            offset_sectors: self.bitmap_or_ppl as u16 as i16,
            size_sectors: (self.bitmap_or_ppl >> 16) as u16,
            multiple: self.features.contains(Features::MULTIPLE_PPLS),
        })
    }

    /// Gives the array an internal bitmap at an offset, and no PPL.
    pub fn set_bitmap(&mut self, offset_sectors: i32) {
        self.clear_bitmap_and_ppl();
        self.features |= Features::BITMAP_OFFSET;
        self.bitmap_or_ppl = offset_sectors as u32;
    }

    /// Gives the array a partial parity log, and no bitmap.
    pub fn set_ppl(&mut self, area: PplArea) {
        self.clear_bitmap_and_ppl();
        self.features |= if area.multiple { Features::MULTIPLE_PPLS } else { Features::PPL };
        self.bitmap_or_ppl = u32::from(area.offset_sectors as u16) | u32::from(area.size_sectors) << 16;
    }

    /// Whether the array has a write journal (`MD_FEATURE_JOURNAL`), on a device of its own.
    pub const fn has_journal(&self) -> bool {
        self.features.contains(Features::JOURNAL)
    }

    /// Leaves the array without bitmap and PPL.
    pub fn clear_bitmap_and_ppl(&mut self) {
        let logs =
            Features::BITMAP_OFFSET | Features::BITMAP_VERSIONED | Features::PPL | Features::MULTIPLE_PPLS;
        self.features = self.features.without(logs);
        self.bitmap_or_ppl = 0;
    }

    /// A recovery that went by the bitmap begins anew.
    pub fn forget_recovery_by_bitmap(&mut self) {
        if self.features.contains(Features::RECOVERY_BITMAP) {
            self.features = self.features.without(Features::RECOVERY_BITMAP);
            self.recovery_offset_sectors = 0;
        }
    }

    /// Whether sectors are kept for a bad-block log.
    pub const fn has_bad_block_log(&self) -> bool {
        self.bblog_size_sectors != 0 && self.bblog_offset_sectors != 0
    }

    /// Where the bad-block log lies on the device, if there is one.
    pub fn bad_block_log_sector(&self) -> Option<u64> {
        let offset = self.has_bad_block_log().then_some(self.bblog_offset_sectors)?;
        self.super_offset_sectors.checked_add_signed(offset.into())
    }

    /// The sectors of this member that a recovery has written, if one has not ended. When one has, Linux writes the last sector
    /// there can be (`MaxSector`) before it calls the member in sync.
    pub fn recovered_sectors(&self) -> Option<u64> {
        let is_said = self.features.contains(Features::RECOVERY_OFFSET);
        (is_said && self.recovery_offset_sectors != MAX_SECTOR).then_some(self.recovery_offset_sectors)
    }

    /// Whether every write that was begun has ended and nothing is left to resync.
    pub const fn is_clean(&self) -> bool {
        self.resync_offset_sectors == MAX_SECTOR
    }

    /// The reshape that is under way.
    pub fn reshape(&self) -> Option<Reshape> {
        self.features.contains(Features::RESHAPE_ACTIVE).then_some(Reshape {
            position_sectors: self.reshape_position_sectors,
            delta_disks: self.delta_disks,
            new_level: self.new_level,
            new_layout: self.new_layout,
            new_chunk_sectors: self.new_chunk_sectors,
            new_offset_sectors: if self.features.contains(Features::NEW_OFFSET) {
                self.new_offset_sectors
            } else {
                0
            },
            backwards: self.delta_disks < 0 || self.features.contains(Features::RESHAPE_BACKWARDS),
        })
    }

    /// Where the log of a write journal device begins, in sectors from the start of its data (`journal_tail`, which the device has in
    /// place of `recovery_offset`); none for other devices.
    pub fn journal_tail_sectors(&self) -> Option<u64> {
        (self.role() == Role::Journal).then_some(self.recovery_offset_sectors)
    }

    /// Why this array is not taken, if there is a reason.
    pub fn unsupported(&self) -> Option<Unsupported> {
        self.features.contains(Features::BITMAP_VERSIONED).then_some(Unsupported::ClusteredBitmap)
    }
}

/// A name as superblocks have it, put together as [`Superblock1::set_name`] does.
pub fn name_of(homehost: Option<&str>, name: &str) -> [u8; 32] {
    let joined = homehost.filter(|host| !name.contains(':') && host.len() + 1 + name.len() < 32);
    let name = joined.map_or_else(|| name.to_owned(), |host| format!("{host}:{name}"));
    let length = name.len().min(31);
    let mut bytes = [0; 32];
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}
