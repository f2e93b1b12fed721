//! What must hold of a superblock's fields, alone and on its device.

use super::{Features, Minor, PplArea, Role, Superblock1, Superblock1Error};
use crate::bitmap;
use crate::error::{FieldError, require};
use crate::level::{Layout, Level, Raid10Layout};

/// The kernel refuses members of fewer data sectors.
pub(crate) const DATA_SECTORS_MIN: u64 = 10;
/// The kernel reads a bad-block log of one page at most.
const BBLOG_SECTORS_MAX: u16 = 8;
/// A header and a page of partial parity, without which nothing can be logged.
const PPL_SECTORS_MIN: u16 = 16;
/// Chunks are kept as a signed number of bytes by the kernel's older interfaces.
const CHUNK_SECTORS_MAX: u32 = (1 << 31) / 512 - 1;

impl Superblock1 {
    pub(super) fn check(&self, at_sector: u64) -> Result<(), Superblock1Error> {
        require(self.super_offset_sectors == at_sector, "super_offset", self.super_offset_sectors, || {
            format!("this superblock was found at sector {at_sector}")
        })?;
        self.check_features()?;
        self.check_geometry()?;
        self.check_sizes()?;
        self.check_places()?;
        self.check_role()?;
        Ok(())
    }

    /// Checks that what the superblock names lies within a device of so many sectors.
    pub fn check_on_device(&self, device_sectors: u64) -> Result<(), Superblock1Error> {
        let end = self.data_offset_sectors.saturating_add(self.data_size_sectors);
        // mdadm 4.2 counts the data offset of 1.0 into `data_size`, and the kernel takes it; `check_places` has made
        // sure that what is used of it ends before the superblock.
        let is_counted_twice =
            self.minor() == Minor::End && self.data_size_sectors <= self.super_offset_sectors;
        require(end <= device_sectors || is_counted_twice, "data_offset + data_size", end, || {
            format!("the device ends at sector {device_sectors}")
        })?;
        let superblock_end = self.super_offset_sectors.saturating_add(self.to_bytes().len() as u64 / 512);
        require(superblock_end <= device_sectors, "super_offset", self.super_offset_sectors, || {
            format!("the device ends at sector {device_sectors}")
        })?;
        if let Some(recovered) = self.recovered_sectors() {
            require(recovered <= self.data_size_sectors, "recovery_offset", recovered, || {
                format!("this member has {} data sectors", self.data_size_sectors)
            })?;
        }
        for (field, sector, length) in self.side_areas() {
            require(sector + length <= i128::from(device_sectors), field, sector, || {
                format!("its {length} sectors end within the device's {device_sectors}")
            })?;
        }
        Ok(())
    }

    fn check_features(&self) -> Result<(), Superblock1Error> {
        let logs = Features::BITMAP_OFFSET | Features::PPL | Features::MULTIPLE_PPLS | Features::JOURNAL;
        let found = self.features.common(logs);
        if found.number().count_ones() > 1 {
            return Err(Superblock1Error::ContradictoryFeatures { names: found.to_string() });
        }
        let ppl = self.features.intersects(Features::PPL | Features::MULTIPLE_PPLS);
        require(!ppl || self.level == Level::Raid5, "level", self.level, || {
            "only RAID-5 has a PPL".to_owned()
        })?;
        let has_raid0_layout = self.features.contains(Features::RAID0_LAYOUT);
        require(!has_raid0_layout || self.level == Level::Raid0, "level", self.level, || {
            "only RAID-0 has the feature RAID-0 layout".to_owned()
        })?;
        let may_have_journal = matches!(self.level, Level::Raid4 | Level::Raid5 | Level::Raid6);
        require(may_have_journal || !self.has_journal(), "level", self.level, || {
            "only RAID-4, 5 and 6 have a write journal".to_owned()
        })?;
        Ok(())
    }

    fn check_geometry(&self) -> Result<(), FieldError> {
        let Self { level, raid_disks, chunk_sectors, layout, .. } = *self;
        let (slots_min, slots_max) = (u32::from(level.members_min()), super::ROLES_MAX as u32);
        require((slots_min..=slots_max).contains(&raid_disks), "raid_disks", raid_disks, || {
            format!("a {level} array has {slots_min} to {slots_max} slots")
        })?;
        check_chunk("chunksize", level, chunk_sectors)?;
        if level != Level::Raid0 || self.features.contains(Features::RAID0_LAYOUT) {
            check_layout("layout", level, layout, raid_disks)?;
        }
        if let Some(reshape) = self.reshape() {
            let before = i64::from(raid_disks) - i64::from(self.delta_disks);
            require((1..=i64::from(slots_max)).contains(&before), "delta_disks", self.delta_disks, || {
                format!("the array has {raid_disks} slots with them and 1 to {slots_max} without")
            })?;
            let new_level = Level::from_number(reshape.new_level).ok_or_else(|| {
                FieldError::new("new_level", reshape.new_level, "it is -1, 0, 1, 4, 5, 6 or 10")
            })?;
            check_chunk("new_chunk", new_level, reshape.new_chunk_sectors)?;
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), FieldError> {
        let data = self.data_size_sectors;
        require(data >= DATA_SECTORS_MIN, "data_size", data, || {
            format!("a member has {DATA_SECTORS_MIN} data sectors or more")
        })?;
        let end = self.data_offset_sectors.checked_add(data);
        require(end.is_some(), "data_offset", self.data_offset_sectors, || {
            format!("with data_size {data} it ends past the last sector there can be")
        })?;
        let size = self.size_sectors;
        let sized = !matches!(self.level, Level::Linear | Level::Raid0);
        require(!sized || size > 0, "size", size, || {
            format!("a {} array uses some sectors of each member", self.level)
        })?;
        let holds_data = self.role() != Role::Journal;
        require(size <= data || !holds_data, "size", size, || {
            format!("this member has {data} data sectors")
        })?;
        let chunk = u64::from(self.chunk_sectors);
        require(!sized || !self.level.has_chunks() || size >= chunk, "size", size, || {
            format!("each member holds a chunk of {chunk} sectors or more")
        })
    }

    /// Superblock, data, bitmap or PPL, and bad-block log keep clear of each other.
    fn check_places(&self) -> Result<(), FieldError> {
        let data = i128::from(self.data_offset_sectors);
        let data_end = data + i128::from(self.used_sectors());
        let superblock = i128::from(self.super_offset_sectors);
        let superblock_end = superblock + self.to_bytes().len() as i128 / 512;
        require(superblock_end <= data || superblock >= data_end, "data_offset", data, || {
            format!("data of {} sectors there cover the superblock at sector {superblock}", data_end - data)
        })?;
        require(
            self.bblog_size_sectors <= BBLOG_SECTORS_MAX || !self.has_bad_block_log(),
            "bblog_size",
            self.bblog_size_sectors,
            || format!("it is at most {BBLOG_SECTORS_MAX} sectors"),
        )?;
        require(self.bblog_shift < 54, "bblog_shift", self.bblog_shift, || {
            "it is below 54, the bits of a sector".to_owned()
        })?;
        if let Some(PplArea { size_sectors, .. }) = self.ppl() {
            require(size_sectors >= PPL_SECTORS_MIN, "ppl.size", size_sectors, || {
                format!("it is at least {PPL_SECTORS_MIN} sectors, a header and a page")
            })?;
        }
        let has_log = self.has_bad_block_log();
        require(
            has_log || !self.features.contains(Features::BAD_BLOCKS),
            "bblog_offset",
            self.bblog_offset_sectors,
            || "the features say that there are bad blocks, whose log has a place and a size".to_owned(),
        )?;
        for (field, sector, length) in self.side_areas() {
            let end = sector + length;
            let clear = |start, other_end| end <= start || sector >= other_end;
            require(sector >= 0, field, sector, || "it lies on the device".to_owned())?;
            require(clear(superblock, superblock_end), field, sector, || {
                format!("it keeps clear of the superblock, sectors {superblock} to {superblock_end}")
            })?;
            require(clear(data, data_end), field, sector, || {
                format!("it keeps clear of the data, sectors {data} to {data_end}")
            })?;
            for (other, other_sector, other_length) in self.side_areas().filter(|other| other.0 != field) {
                require(clear(other_sector, other_sector + other_length), field, sector, || {
                    format!("it keeps clear of {other}'s area, {other_length} sectors from {other_sector} on")
                })?;
            }
        }
        Ok(())
    }

    /// Sectors of this member that hold data of the array.
    fn used_sectors(&self) -> u64 {
        match (self.level, self.role()) {
            (Level::Linear | Level::Raid0, _) | (_, Role::Journal) => self.data_size_sectors,
            _ => self.size_sectors,
        }
    }

    fn check_role(&self) -> Result<(), FieldError> {
        let slots = i64::from(self.raid_disks)
            + i64::from(self.delta_disks.min(0)).abs() * i64::from(self.reshape().is_some());
        match self.role() {
            Role::Slot(slot) => require(i64::from(slot) < slots, "dev_roles[dev_number]", slot, || {
                format!("the array has {slots} slots")
            }),
            Role::Spare | Role::Faulty | Role::Journal => Ok(()),
        }
    }

    /// The member's areas besides superblock and data: the field that places them, first sector, sectors (at least).
    fn side_areas(&self) -> impl Iterator<Item = (&'static str, i128, i128)> {
        let superblock = i128::from(self.super_offset_sectors);
        let bitmap = self.bitmap_offset_sectors().map(|offset| {
            let least = bitmap::SUPERBLOCK_BYTES.div_ceil(512) as i128;
            ("bitmap_offset", superblock + i128::from(offset), least)
        });
        let ppl = self.ppl().map(|area| {
            ("ppl.offset", superblock + i128::from(area.offset_sectors), i128::from(area.size_sectors))
        });
        // Levels that never list anything may have one for nothing: mdadm leaves it within the data of a linear array that grew.
        let is_kept = !matches!(self.level, Level::Linear | Level::Raid0);
        let is_read = self.features.contains(Features::BAD_BLOCKS);
        let bad_blocks = (self.has_bad_block_log() && (is_kept || is_read)).then(|| {
            let sector = superblock + i128::from(self.bblog_offset_sectors);
            ("bblog_offset", sector, i128::from(self.bblog_size_sectors))
        });
        [bitmap, ppl, bad_blocks].into_iter().flatten()
    }
}

/// Checks a chunk of so many sectors for a level.
pub(crate) fn check_chunk(field: &'static str, level: Level, sectors: u32) -> Result<(), FieldError> {
    require(sectors <= CHUNK_SECTORS_MAX, field, sectors, || {
        format!("it is at most {CHUNK_SECTORS_MAX} sectors")
    })?;
    match level {
        Level::Linear | Level::Raid1 => Ok(()),
        Level::Raid0 => require(sectors > 0, field, sectors, || {
            format!("a {level} array has a chunk of at least 1 sector")
        }),
        Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
            require(sectors >= 8 && sectors.is_power_of_two(), field, sectors, || {
                format!("a {level} array has a chunk of at least 8 sectors, a power of two")
            })
        }
    }
}

/// Checks a layout's number for a level, where the superblock vouches for it.
pub(crate) fn check_layout(
    field: &'static str,
    level: Level,
    number: u32,
    raid_disks: u32,
) -> Result<(), FieldError> {
    if level == Level::Raid0 {
        return require(number <= 2, field, number, || {
            "a raid0 array has layout 0 (either), 1 (original) or 2 (alternate)".to_owned()
        });
    }
    let layout = Layout::from_number(level, number as i32);
    require(layout.is_some(), field, number, || format!("no layout of {level} has this number"))?;
    if let Some(Layout::Raid10(layout)) = layout {
        let copies = copies(layout);
        require(copies <= raid_disks, field, number, || {
            format!("its {copies} copies need as many slots; the array has {raid_disks}")
        })?;
    }
    Ok(())
}

/// All copies of a block, where the layout's two factors are not yet known to be small.
fn copies(layout: Raid10Layout) -> u32 {
    u32::from(layout.near) * u32::from(layout.far)
}
