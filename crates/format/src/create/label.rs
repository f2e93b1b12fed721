//! The bytes of each member of a new array.

use super::{
    Area, CreateError, JOURNAL_ROWS_MIN, JournalError, Label, Numbered, Numbering, Request, Sizes, Start,
};
use crate::bitmap::BitmapSuperblock;
use crate::device_flags::DeviceFlags;
use crate::journal::{BLOCK_SECTORS, MetaBlock, Seed};
use crate::level::Level;
use crate::placement::{Metadata, Placement, PlacementError};
use crate::ppl;
use crate::superblock::Superblock;
use crate::superblock_0::{Disk, Superblock0};
use crate::superblock_1::{DATA_SECTORS_MIN, Features, MAX_SECTOR, Role, Superblock1};

/// What the superblock and the logs around it take of a device at most.
const HEAD_SECTORS: u64 = 64;
/// 0.90's word for a RAID-0 of the kernel's making, whose layout it does not record.
const RAID0_LAYOUT_V0: u32 = u32::MAX;

/// Makes the labels of all members.
pub(super) fn labels(
    request: &Request,
    sizes: &Sizes,
    numbering: &Numbering,
    places: &[Placement],
) -> Vec<Label> {
    let array = Array { request, sizes, numbering, places };
    match sizes.plan.metadata {
        Metadata::V0 => {
            let common = array.superblock_0();
            array.each(|device, _| {
                let mut own = common.clone();
                own.this_disk = common.disks[device.number as usize];
                Superblock::V0(Box::new(own))
            })
        }
        Metadata::V1(_) => {
            let common = array.superblock_1();
            array.each(|device, place| Superblock::V1(Box::new(array.own(&common, device, place))))
        }
    }
}

/// Places everything on each device.
pub(super) fn places(
    request: &Request,
    sizes: &Sizes,
    numbering: &Numbering,
) -> Result<Vec<Placement>, CreateError> {
    let place = |device: &Numbered| {
        let member = device.member;
        let sectors = request.device(member).map_or(0, |new| new.device_sectors);
        let is_journal = member == request.members.len();
        // A journal may be shorter than a member. mdadm places it by the members' data offset, too.
        let size_sectors = if is_journal { 0 } else { sizes.size_sectors };
        let place = sizes.plan.place(sectors, sizes.data_offset_sectors, size_sectors);
        let least_sectors = (u64::from(sizes.plan.raid_disks) + 1) * JOURNAL_ROWS_MIN * BLOCK_SECTORS;
        if is_journal && place.as_ref().map_or(0, |place| place.data_size_sectors) < least_sectors {
            let least_sectors = least_sectors + sizes.data_offset_sectors.max(HEAD_SECTORS);
            return Err(CreateError::Journal(JournalError::Short { device_sectors: sectors, least_sectors }));
        }
        let place = place.map_err(|error| CreateError::Member { member, error })?;
        if sizes.plan.metadata != Metadata::V0 && place.data_size_sectors < DATA_SECTORS_MIN {
            let error = PlacementError::DeviceTooSmall { device_sectors: sectors };
            return Err(CreateError::Member { member, error });
        }
        Ok(place)
    };
    numbering.devices.iter().map(place).collect()
}

struct Array<'a> {
    request: &'a Request,
    sizes: &'a Sizes,
    numbering: &'a Numbering,
    /// One for each device, in the same order.
    places: &'a [Placement],
}

impl Array<'_> {
    fn slots(&self) -> u32 {
        self.sizes.plan.raid_disks
    }

    fn slot_of(&self, device: Numbered) -> Option<u16> {
        (device.number < self.slots()).then_some(device.number as u16)
    }

    const fn is_journal(&self, device: Numbered) -> bool {
        device.member == self.request.members.len()
    }

    /// Devices that hold a slot.
    fn active(&self) -> u32 {
        self.numbering.devices.iter().filter(|device| self.slot_of(**device).is_some()).count() as u32
    }

    fn each(&self, superblock: impl Fn(Numbered, &Placement) -> Superblock) -> Vec<Label> {
        let label = |(device, place): (&Numbered, &Placement)| {
            let superblock = superblock(*device, place);
            let mut logs = self.logs(&superblock, place);
            if self.is_journal(*device) {
                logs.push(self.empty_journal(place));
            }
            let superblock_area =
                Area { at_sector: place.super_offset_sectors, bytes: superblock.to_bytes() };
            Label { member: device.member, slot: self.slot_of(*device), superblock, logs, superblock_area }
        };
        self.numbering.devices.iter().zip(self.places).map(label).collect()
    }

    fn superblock_0(&self) -> Superblock0 {
        let Self { request, sizes, numbering, .. } = self;
        let plan = &sizes.plan;
        let mut array = Superblock0::new(plan.level, plan.raid_disks, request.set_uuid);
        array.ctime_seconds = request.created.seconds() as u32;
        array.utime_seconds = array.ctime_seconds;
        array.size_kib = (sizes.size_sectors / 2) as u32;
        array.layout = match plan.level {
            Level::Raid0 => RAID0_LAYOUT_V0,
            level => plan.layout.recorded_number(level) as u32,
        };
        array.chunk_bytes = plan.chunk_sectors * 512;
        array.events = 1;
        if numbering.start != Start::Resync {
            array.state |= Superblock0::CLEAN;
        }
        if self.places.iter().any(|place| place.bitmap.is_some()) {
            array.state |= Superblock0::BITMAP_PRESENT;
        }
        array.active_disks = self.active();
        array.working_disks = numbering.devices.len() as u32;
        array.failed_disks = plan.raid_disks - array.active_disks;
        array.spare_disks = array.working_disks - array.active_disks;
        array.nr_disks = array.working_disks + array.failed_disks;
        for device in &numbering.devices {
            let new = request.device(device.member);
            let (major, minor) = new.map_or((0, 0), |new| new.device_number);
            let state = if self.slot_of(*device).is_some() { Disk::ACTIVE | Disk::SYNC } else { 0 };
            let mut row = Disk { number: device.number, major, minor, raid_disk: device.number, state };
            row.set_device_flags(new.map_or_else(DeviceFlags::default, |new| new.flags));
            array.disks[device.number as usize] = row;
        }
        array
    }

    /// What all members of a version-1 array have in common.
    fn superblock_1(&self) -> Superblock1 {
        let Self { request, sizes, numbering, .. } = self;
        let plan = &sizes.plan;
        let spares = numbering.devices.len() as u32 - self.active();
        let mut array = Superblock1::new(plan.level, plan.raid_disks, spares, request.set_uuid);
        array.set_name(request.homehost.as_deref(), &request.name);
        array.ctime = request.created;
        array.utime = request.created;
        array.layout = plan.layout.recorded_number(plan.level) as u32;
        array.chunk_sectors = plan.chunk_sectors;
        array.size_sectors = sizes.size_sectors;
        array.resync_offset_sectors = if numbering.start == Start::Resync { 0 } else { MAX_SECTOR };
        for device in &numbering.devices {
            if let Some(slot) = self.slot_of(*device) {
                array.dev_roles[usize::from(slot)] = Role::Slot(slot);
            } else if self.is_journal(*device) {
                array.features |= Features::JOURNAL;
                array.dev_roles.resize(array.dev_roles.len().max(device.number as usize + 1), Role::Spare);
                array.dev_roles[device.number as usize] = Role::Journal;
            }
        }
        // mdadm vouches for a RAID-0's layout only where it matters: among members of unequal size.
        if plan.level == Level::Raid0 && self.has_unequal_chunks() {
            array.features |= Features::RAID0_LAYOUT;
        }
        array
    }

    fn has_unequal_chunks(&self) -> bool {
        let chunk = u64::from(self.sizes.plan.chunk_sectors).max(1);
        let mut chunks = self.places.iter().map(|place| place.data_size_sectors / chunk);
        let first = chunks.next();
        chunks.any(|other| Some(other) != first)
    }

    /// What one member adds.
    fn own(&self, common: &Superblock1, device: Numbered, place: &Placement) -> Superblock1 {
        let mut own = common.clone();
        own.dev_number = device.number;
        if let Some(new) = self.request.device(device.member) {
            own.device_uuid = new.device_uuid;
            own.set_device_flags(new.flags);
        }
        own.data_offset_sectors = place.data_offset_sectors;
        own.data_size_sectors = place.data_size_sectors;
        own.super_offset_sectors = place.super_offset_sectors;
        (own.bblog_offset_sectors, own.bblog_size_sectors) = place.bad_block_log.unwrap_or_default();
        if let Some(bitmap) = place.bitmap {
            own.set_bitmap(bitmap.offset_sectors);
        }
        if let Some(area) = place.ppl {
            own.set_ppl(area);
        }
        own
    }

    /// The log of a journal: a block that lists nothing (mdadm's `write_empty_r5l_meta_block`). What an older log left behind it must not
    /// be taken for its continuation, so it is of a number of its own.
    fn empty_journal(&self, place: &Placement) -> Area {
        let uuid = self.request.set_uuid;
        let sequence = u32::from_le_bytes([uuid.0[0], uuid.0[5], uuid.0[10], uuid.0[15]]).into();
        let empty = MetaBlock { sequence, position_sectors: 0, payloads: Vec::new() };
        Area { at_sector: place.data_offset_sectors, bytes: empty.to_bytes(Seed::of(&uuid)) }
    }

    /// Bitmap, bad-block log and PPL of a member.
    fn logs(&self, superblock: &Superblock, place: &Placement) -> Vec<Area> {
        let at = |offset: i64| place.super_offset_sectors.checked_add_signed(offset);
        let mut logs = Vec::new();
        let bitmap_sector = superblock.bitmap_sector(place.super_offset_sectors);
        if let (Some(bitmap), Some(at_sector)) = (place.bitmap, bitmap_sector) {
            let uuid = superblock.bitmap_uuid();
            let head = BitmapSuperblock::new(uuid, bitmap.sync_size_sectors, bitmap.chunk_bytes);
            logs.push(Area { at_sector, bytes: bitmap.to_bytes(&head, self.sizes.plan.metadata) });
        }
        if let Some((offset, sectors)) = place.bad_block_log {
            // mdadm leaves the empty log as it is; the bytes of an empty log keep every reader from old ones.
            let bytes = vec![0xff; usize::from(sectors) * 512];
            logs.extend(at(offset.into()).map(|at_sector| Area { at_sector, bytes }));
        }
        if let Some(area) = place.ppl {
            let bytes = ppl::empty_log(&self.request.set_uuid, area);
            logs.extend(at(area.offset_sectors.into()).map(|at_sector| Area { at_sector, bytes }));
        }
        logs
    }
}
