//! What can be refused before any byte is made.

use super::{CreateError, JOURNAL_SLOTS_MAX, JournalError, Request, SLOTS_MAX_V0, SLOTS_MAX_V1, Sizes};
use crate::level::{Layout, Level, Raid0Layout};
use crate::placement::{Consistency, Metadata};

const CHUNK_SECTORS_MIN: u32 = 8;
const CHUNK_SECTORS_MAX: u32 = 2 << 20;

/// Refuses what no sizes can make right.
pub(super) fn shape(request: &Request) -> Result<(), CreateError> {
    let plan = &request.plan;
    plan.check().map_err(CreateError::Plan)?;
    if !plan.layout.is_of(plan.level) {
        return Err(CreateError::Layout { level: plan.level, layout: plan.layout });
    }
    slots(request)?;
    chunks(request)?;
    missing(request)?;
    journal(request)?;
    if request.size_sectors.is_some() && is_unsized(plan.level) {
        return Err(CreateError::SizeAtLevel(plan.level));
    }
    if plan.metadata == Metadata::V0 && plan.layout == Layout::Raid0(Raid0Layout::Alternate) {
        return Err(CreateError::Raid0LayoutInV0);
    }
    Ok(())
}

fn slots(request: &Request) -> Result<(), CreateError> {
    let plan = &request.plan;
    let (level, raid_disks) = (plan.level, plan.raid_disks);
    let least = u32::from(level.members_min());
    if raid_disks < least {
        return Err(CreateError::TooFewSlots { level, least, raid_disks });
    }
    if raid_disks == 1 && !request.force {
        return Err(CreateError::OneSlot);
    }
    let (given, spares) = (request.members.len(), request.spares);
    if given as u64 != u64::from(raid_disks) + u64::from(spares) {
        return Err(CreateError::Count { given, raid_disks, spares });
    }
    // A member that is moved behind the last takes a number of its own.
    let most = if plan.metadata == Metadata::V0 { SLOTS_MAX_V0 } else { SLOTS_MAX_V1 };
    let needed =
        u32::try_from(given).unwrap_or(u32::MAX).saturating_add(u32::from(request.moved().is_some()));
    let needed = needed.saturating_add(u32::from(request.journal.is_some()));
    if needed > most {
        return Err(CreateError::TooManySlots { most, needed });
    }
    if let Layout::Raid10(layout) = plan.layout {
        let copies = u32::from(layout.near) * u32::from(layout.far);
        if copies < 2 {
            return Err(CreateError::OneCopy);
        }
        if copies > raid_disks {
            return Err(CreateError::Copies { copies, raid_disks });
        }
    }
    Ok(())
}

fn journal(request: &Request) -> Result<(), CreateError> {
    let plan = &request.plan;
    if request.journal.is_none() {
        return Ok(());
    }
    if plan.level.parity_count() == 0 {
        return Err(CreateError::Journal(JournalError::Level(plan.level)));
    }
    if plan.metadata == Metadata::V0 {
        return Err(CreateError::Journal(JournalError::InV0));
    }
    if plan.consistency != Consistency::Resync || request.auto_bitmap {
        return Err(CreateError::Journal(JournalError::Beside));
    }
    if plan.raid_disks > JOURNAL_SLOTS_MAX {
        return Err(CreateError::Journal(JournalError::Slots(plan.raid_disks)));
    }
    Ok(())
}

fn chunks(request: &Request) -> Result<(), CreateError> {
    let plan = &request.plan;
    let (level, chunk) = (plan.level, plan.chunk_sectors);
    let is_possible = match level {
        Level::Raid1 if chunk != 0 => return Err(CreateError::ChunkAtLevel(level)),
        Level::Raid1 => true,
        Level::Linear if chunk == 0 => true,
        Level::Raid0 | Level::Linear => chunk >= CHUNK_SECTORS_MIN && chunk.is_multiple_of(CHUNK_SECTORS_MIN),
        _ => chunk >= CHUNK_SECTORS_MIN && chunk.is_power_of_two(),
    };
    if !is_possible || chunk > CHUNK_SECTORS_MAX {
        return Err(CreateError::Chunk { chunk_bytes: u64::from(chunk) * 512, level });
    }
    Ok(())
}

fn missing(request: &Request) -> Result<(), CreateError> {
    let (level, slots) = (request.plan.level, request.plan.raid_disks as usize);
    let (raid_devices, spares) = request.members.split_at(slots);
    if spares.iter().any(Option::is_none) {
        return Err(CreateError::MissingSpare);
    }
    if is_unsized(level) && !spares.is_empty() {
        return Err(CreateError::SparesAtLevel(level));
    }
    let missing = raid_devices.iter().filter(|member| member.is_none()).count();
    if is_unsized(level) && missing > 0 {
        return Err(CreateError::MissingAtLevel(level));
    }
    let is_lost = match request.plan.layout {
        Layout::Raid10(layout) => {
            // A block's copies lie in as many slots, one after the other, starting at a multiple of the near copies.
            let copies = usize::from(layout.copies());
            (0..slots).any(|n| {
                let start = n * usize::from(layout.near);
                (start..start + copies).all(|slot| raid_devices[slot % slots].is_none())
            })
        }
        _ if level == Level::Raid1 => missing == slots,
        _ => missing > usize::from(level.parity_count()),
    };
    if is_lost { Err(CreateError::NoData { level, missing }) } else { Ok(()) }
}

/// Settles the sizes, as mdadm does: the data offset by the first device, what is used by the smallest.
pub(super) fn sizes(request: &Request) -> Result<Sizes, CreateError> {
    let plan = request.plan;
    let devices: Vec<_> =
        request.members.iter().enumerate().filter_map(|(n, member)| Some((n, (*member)?))).collect();
    let first =
        devices.first().ok_or(CreateError::NoData { level: plan.level, missing: request.members.len() })?;
    let data_offset_sectors = plan.data_offset_sectors(first.1.device_sectors);
    let mut usable = Vec::new();
    for (member, device) in &devices {
        let sectors = plan
            .usable_sectors(device.device_sectors, data_offset_sectors)
            .map_err(|error| CreateError::Member { member: *member, error })?;
        usable.push((*member, sectors));
    }
    let least = usable.iter().map(|(_, sectors)| *sectors).min().unwrap_or(0);
    let size_sectors = plan.size_sectors(least, request.size_sectors);
    if let Some(asked) = request.size_sectors {
        let too_small = usable.iter().find(|(_, sectors)| *sectors < asked);
        if let Some((member, usable_sectors)) = too_small {
            let (member, usable_sectors) = (*member, *usable_sectors);
            return Err(CreateError::SizeTooLarge { member, usable_sectors, size_sectors: asked });
        }
    }
    let least_sectors = u64::from(plan.chunk_sectors).max(u64::from(CHUNK_SECTORS_MIN) * 2);
    if !is_unsized(plan.level) && size_sectors < least_sectors {
        let size_sectors = request.size_sectors.unwrap_or(size_sectors);
        return Err(CreateError::SizeTooSmall { size_sectors, least_sectors });
    }
    let chunk = u64::from(plan.chunk_sectors).max(1);
    let is_unequal = usable.iter().any(|(_, sectors)| sectors / chunk != least / chunk);
    if plan.metadata == Metadata::V0 && plan.level == Level::Raid0 && is_unequal {
        return Err(CreateError::UnequalRaid0InV0);
    }
    let largest = usable.iter().max_by_key(|(_, sectors)| *sectors).copied();
    let largest_unused = largest.filter(|(_, sectors)| {
        !is_unsized(plan.level)
            && u128::from(sectors.saturating_sub(size_sectors)) * 100 > u128::from(*sectors)
    });
    let plan = if request.auto_bitmap { plan.with_auto_bitmap(size_sectors) } else { plan };
    Ok(Sizes { plan, data_offset_sectors, size_sectors, largest_unused })
}

pub(super) const fn is_unsized(level: Level) -> bool {
    matches!(level, Level::Linear | Level::Raid0)
}
