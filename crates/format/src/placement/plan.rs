//! An array's plan and the places that follow from it.

use super::{BitmapPlace, Consistency, Metadata, Placement, PlacementError, bitmap};
use crate::level::{Layout, Level};
use crate::ppl::AREA_SECTORS;
use crate::superblock_0;
use crate::superblock_1::{Minor, PplArea};

const MIB_SECTORS: u64 = 2048;
/// Superblock, bad-block log and 4 KiB before the data of 1.1 and 1.2, besides the bitmap.
const HEAD_SECTORS: u64 = 24;
/// The most that is left before the data for reshapes.
const HEADROOM_SECTORS_MAX: u64 = 128 * MIB_SECTORS;
const BBLOG_SECTORS: u16 = 8;
/// RAID-1's size is rounded so that it could become a RAID-5.
const RAID1_ROUND_SECTORS: u64 = 128;
/// Arrays that use more of each member get a bitmap unasked.
const AUTO_BITMAP_SECTORS: u64 = 100 << 21;
/// The kernel keeps a bit for each member that a log waits for (`ppl_log.disk_flush_bitmap`).
const PPL_MEMBERS_MAX: u32 = 64;
pub(crate) const V0_SIZE_SECTORS_MAX: u64 = 4 << 31;

/// What is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The level.
    pub level: Level,
    /// The layout.
    pub layout: Layout,
    /// Slots.
    pub raid_disks: u32,
    /// The chunk; 0 for levels without.
    pub chunk_sectors: u32,
    /// The superblock's version.
    pub metadata: Metadata,
    /// `--bitmap` or `--consistency-policy`; [`Plan::with_auto_bitmap`] gives mdadm's choice.
    pub consistency: Consistency,
    /// `--data-offset`.
    pub data_offset_sectors: Option<u64>,
}

impl Plan {
    /// Whether mdadm gives an array that uses so much of each member a bitmap when none is named.
    pub const fn has_auto_bitmap(level: Level, size_sectors: u64) -> bool {
        !matches!(level, Level::Linear | Level::Raid0) && size_sectors > AUTO_BITMAP_SECTORS
    }

    /// This plan with a bitmap if mdadm would give one unasked.
    #[must_use]
    pub const fn with_auto_bitmap(mut self, size_sectors: u64) -> Self {
        if Self::has_auto_bitmap(self.level, size_sectors) && matches!(self.consistency, Consistency::Resync)
        {
            self.consistency = Consistency::Bitmap { chunk_bytes: None };
        }
        self
    }

    /// Refuses what no device can make right.
    pub fn check(&self) -> Result<(), PlacementError> {
        match (self.metadata, self.consistency) {
            (Metadata::V0, Consistency::Ppl) => Err(PlacementError::NoPplInV0),
            (_, Consistency::Ppl) if self.level != Level::Raid5 => {
                Err(PlacementError::NoPplAtLevel(self.level))
            }
            (_, Consistency::Ppl) if self.raid_disks > PPL_MEMBERS_MAX => {
                Err(PlacementError::TooManyForPpl { raid_disks: self.raid_disks, most: PPL_MEMBERS_MAX })
            }
            (_, Consistency::Bitmap { .. }) if matches!(self.level, Level::Linear | Level::Raid0) => {
                Err(PlacementError::NoBitmapAtLevel(self.level))
            }
            (_, Consistency::Bitmap { chunk_bytes: Some(chunk_bytes) })
                if chunk_bytes < bitmap::CHUNK_BYTES_MIN || !chunk_bytes.is_power_of_two() =>
            {
                Err(PlacementError::BitmapChunk { chunk_bytes })
            }
            (Metadata::V0, _) if self.data_offset_sectors.is_some() => Err(PlacementError::NoDataOffsetInV0),
            _ => Ok(()),
        }
    }

    /// Where the data begin on every member, chosen by the first member's length: the metadata, then room for a
    /// reshape, about a thousandth of the device and at least two chunks, rounded up to 1 MiB.
    pub fn data_offset_sectors(&self, first_device_sectors: u64) -> u64 {
        if let Some(offset) = self.data_offset_sectors {
            return offset;
        }
        match self.metadata {
            Metadata::V0 | Metadata::V1(Minor::End) => 0,
            Metadata::V1(Minor::Start | Minor::Start4K) => {
                // mdadm doubles a chunk in sectors here twice over; levels without a chunk have no floor.
                let floor = u64::from(self.chunk_sectors) * 2;
                let mut headroom = HEADROOM_SECTORS_MAX;
                while headroom << 10 > first_device_sectors && (floor == 0 || headroom / 2 >= floor) {
                    headroom /= 2;
                }
                (HEAD_SECTORS + self.log_sectors(first_device_sectors) + headroom)
                    .next_multiple_of(MIB_SECTORS)
            }
        }
    }

    /// Sectors of a device that the array can use at most, rounded to chunks.
    pub fn usable_sectors(
        &self,
        device_sectors: u64,
        data_offset_sectors: u64,
    ) -> Result<u64, PlacementError> {
        let too_small = PlacementError::DeviceTooSmall { device_sectors };
        let free = match self.metadata {
            Metadata::V0 => superblock_0::sector(device_sectors),
            // mdadm 4.2 forgets the data offset here, and data then run over the superblock.
            Metadata::V1(Minor::End) => {
                let kept = HEAD_SECTORS + self.log_sectors(device_sectors);
                (device_sectors & !7).checked_sub(kept.saturating_add(data_offset_sectors))
            }
            Metadata::V1(Minor::Start | Minor::Start4K) => device_sectors.checked_sub(data_offset_sectors),
        };
        // mdadm counts in KiB here, so that an odd sector goes.
        let free = free.ok_or(too_small)? & !1;
        let chunk = u64::from(self.chunk_sectors);
        let usable = if chunk > 0 { free - free % chunk } else { free };
        if usable == 0 {
            return Err(too_small);
        }
        if self.metadata == Metadata::V0 && self.is_sized() && usable >= V0_SIZE_SECTORS_MAX {
            return Err(PlacementError::TooLargeForV0 { size_sectors: usable });
        }
        Ok(usable)
    }

    /// The size recorded for an array (`size`): what every member can give, or the size asked for, or none where
    /// members need not be alike.
    pub fn size_sectors(&self, least_usable_sectors: u64, asked_sectors: Option<u64>) -> u64 {
        let chunk = u64::from(self.chunk_sectors).max(2);
        match (self.level, asked_sectors) {
            (Level::Linear | Level::Raid0, _) => 0,
            (_, Some(asked)) => asked - asked % chunk,
            (Level::Raid1, None) => least_usable_sectors - least_usable_sectors % RAID1_ROUND_SECTORS,
            (_, None) => least_usable_sectors,
        }
    }

    /// Where things lie on a device, for an array that uses `size_sectors` of each (0 where they need not be alike).
    pub fn place(
        &self,
        device_sectors: u64,
        data_offset_sectors: u64,
        size_sectors: u64,
    ) -> Result<Placement, PlacementError> {
        self.check()?;
        let bitmap = match self.consistency {
            Consistency::Bitmap { chunk_bytes } => Some(self.place_bitmap(size_sectors, chunk_bytes)?),
            Consistency::Resync | Consistency::Ppl => None,
        };
        let too_small = PlacementError::DeviceTooSmall { device_sectors };
        let Metadata::V1(minor) = self.metadata else {
            let sector = superblock_0::sector(device_sectors).ok_or(too_small)?;
            return Ok(Placement {
                super_offset_sectors: sector,
                data_offset_sectors: 0,
                data_size_sectors: sector,
                bad_block_log: None,
                bitmap,
                ppl: None,
            });
        };
        let super_offset_sectors = minor.sector(device_sectors).ok_or(too_small)?;
        let ppl = (self.consistency == Consistency::Ppl).then_some(PplArea {
            offset_sectors: if minor == Minor::End { -(AREA_SECTORS as i16) - 8 } else { 8 },
            size_sectors: AREA_SECTORS,
            multiple: false,
        });
        let log_sectors = match (&bitmap, &ppl) {
            (Some(bitmap), _) => bitmap.area_sectors(),
            (None, Some(area)) => u64::from(area.size_sectors),
            (None, None) => bitmap::kept_sectors(size_sectors),
        };
        let place = Placement {
            super_offset_sectors,
            data_offset_sectors,
            data_size_sectors: 0,
            bad_block_log: None,
            bitmap,
            ppl,
        };
        match minor {
            Minor::End => place.before_superblock(size_sectors, log_sectors).ok_or(too_small),
            Minor::Start | Minor::Start4K => place.after_superblock(device_sectors, log_sectors),
        }
    }

    /// Where the bitmap of an array that uses `size_sectors` of each device lies, with the chunk given or mdadm's choice.
    pub(crate) fn place_bitmap(
        &self,
        size_sectors: u64,
        chunk_bytes: Option<u32>,
    ) -> Result<BitmapPlace, PlacementError> {
        self.check()?;
        bitmap::place(self.metadata, size_sectors, self.sync_size(size_sectors), chunk_bytes)
    }

    /// Sectors that bits stand for: RAID-10's sync range is the array, others' the member.
    fn sync_size(&self, size_sectors: u64) -> u64 {
        let Layout::Raid10(layout) = self.layout else { return size_sectors };
        let kib =
            u128::from(size_sectors / 2) * u128::from(self.raid_disks) / u128::from(layout.copies().max(1));
        u64::try_from(kib * 2).unwrap_or(u64::MAX)
    }

    /// Sectors kept for bitmap or PPL on a device of so many.
    fn log_sectors(&self, device_sectors: u64) -> u64 {
        match self.consistency {
            Consistency::Ppl => u64::from(AREA_SECTORS),
            Consistency::Resync | Consistency::Bitmap { .. } => bitmap::kept_sectors(device_sectors),
        }
    }

    fn is_sized(&self) -> bool {
        !matches!(self.level, Level::Linear | Level::Raid0)
    }
}

impl Placement {
    /// 1.0: data, then bitmap or PPL, then the bad-block log, then the superblock.
    fn before_superblock(mut self, size_sectors: u64, log_sectors: u64) -> Option<Self> {
        let room = self.super_offset_sectors.checked_sub(self.data_offset_sectors)?;
        let space = room.checked_sub(size_sectors)?.min(log_sectors + u64::from(BBLOG_SECTORS));
        self.data_size_sectors = room - space;
        self.bad_block_log = (space >= 8).then_some((-i32::from(BBLOG_SECTORS), BBLOG_SECTORS));
        Some(self)
    }

    /// 1.1 and 1.2: superblock, then bitmap or PPL, then the bad-block log, then data.
    fn after_superblock(mut self, device_sectors: u64, log_sectors: u64) -> Result<Self, PlacementError> {
        let data_offset_sectors = self.data_offset_sectors;
        let log_end = 8 + log_sectors;
        let least_sectors =
            self.super_offset_sectors + if self.bitmap.is_some() || self.ppl.is_some() { log_end } else { 8 };
        if data_offset_sectors < least_sectors {
            return Err(PlacementError::DataOffsetTooSmall { data_offset_sectors, least_sectors });
        }
        let too_small = PlacementError::DeviceTooSmall { device_sectors };
        self.data_size_sectors = device_sectors.checked_sub(data_offset_sectors).ok_or(too_small)?;
        let room = data_offset_sectors - self.super_offset_sectors;
        let offset = if room >= log_end + 8 {
            Some(log_end)
        } else if room >= 16 && self.bitmap.is_none() && self.ppl.is_none() {
            Some(room - 8)
        } else {
            None
        };
        self.bad_block_log = offset.and_then(|offset| Some((i32::try_from(offset).ok()?, BBLOG_SECTORS)));
        Ok(self)
    }
}
