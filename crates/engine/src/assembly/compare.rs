//! Current members must describe one and the same array.

use std::fmt::Display;

use super::AssemblyError;
use super::candidate::Candidate;
use super::choose::Chosen;
use stripewise_format::superblock::Superblock;

/// Compares every current member with the freshest.
pub(super) fn check_alike(candidates: &[Candidate], chosen: &Chosen) -> Result<(), AssemblyError> {
    let freshest = &candidates[chosen.freshest];
    for index in chosen.current() {
        check_pair(freshest, &candidates[index])?;
    }
    for index in &chosen.spares {
        check_metadata(freshest, &candidates[*index])?;
    }
    Ok(())
}

fn check_metadata(freshest: &Candidate, member: &Candidate) -> Result<(), AssemblyError> {
    same(freshest, member, "metadata version", |c| c.superblock.metadata())
}

/// Compares what two members say of their array, field by field, and the member with its device.
pub(super) fn check_pair(freshest: &Candidate, member: &Candidate) -> Result<(), AssemblyError> {
    check_metadata(freshest, member)?;
    same(freshest, member, "level", |c| c.superblock.level())?;
    same(freshest, member, "raid_disks", |c| c.superblock.raid_disks())?;
    same(freshest, member, "layout", |c| layout_number(&c.superblock))?;
    same(freshest, member, "chunk size", |c| c.superblock.chunk_sectors())?;
    same(freshest, member, "size", |c| c.superblock.size_sectors())?;
    same(freshest, member, "ctime", |c| created(&c.superblock))?;
    same(freshest, member, "consistency features", |c| logs(&c.superblock))?;
    check_on_device(member)
}

fn same<T: PartialEq + Display>(
    freshest: &Candidate,
    member: &Candidate,
    field: &'static str,
    value: impl Fn(&Candidate) -> T,
) -> Result<(), AssemblyError> {
    let (right, found) = (value(freshest), value(member));
    if right == found {
        return Ok(());
    }
    Err(AssemblyError::Differs {
        field,
        label: member.label.clone(),
        found: found.to_string(),
        other: freshest.label.clone(),
        right: right.to_string(),
    })
}

fn layout_number(superblock: &Superblock) -> u32 {
    match superblock {
        Superblock::V0(superblock) => superblock.layout,
        Superblock::V1(superblock) => superblock.layout,
    }
}

fn created(superblock: &Superblock) -> u64 {
    match superblock {
        Superblock::V0(superblock) => u64::from(superblock.ctime_seconds),
        Superblock::V1(superblock) => superblock.ctime.seconds(),
    }
}

/// The logs that all members have or none: bitmap, PPL, RAID-0's recorded layout.
fn logs(superblock: &Superblock) -> String {
    use stripewise_format::superblock_1::Features;
    match superblock {
        Superblock::V0(superblock) if superblock.has_bitmap() => Features::BITMAP_OFFSET.to_string(),
        Superblock::V0(_) => "none".to_owned(),
        Superblock::V1(superblock) => {
            let logs =
                Features::BITMAP_OFFSET | Features::PPL | Features::MULTIPLE_PPLS | Features::RAID0_LAYOUT;
            let found = superblock.features.common(logs);
            if found.number() == 0 { "none".to_owned() } else { found.to_string() }
        }
    }
}

/// Everything the array uses of the member lies on it.
fn check_on_device(member: &Candidate) -> Result<(), AssemblyError> {
    let label = || member.label.clone();
    member
        .superblock
        .check_on_device(member.device_sectors)
        .map_err(|error| AssemblyError::OnDevice { label: label(), error })?;
    let offset = member.superblock.data_offset_sectors();
    let end = offset.checked_add(member.used_sectors());
    if end.is_none_or(|end| end > member.device_sectors) {
        return Err(AssemblyError::DataBeyondDevice {
            label: label(),
            data_offset_sectors: offset,
            size_sectors: member.used_sectors(),
            device_sectors: member.device_sectors,
        });
    }
    Ok(())
}
