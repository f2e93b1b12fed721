//! Current members must describe one and the same array.

use std::fmt::Display;

use super::AssemblyError;
use super::candidate::Candidate;
use super::choose::Chosen;
use stripewise_format::superblock::Superblock;
use stripewise_format::time::Timestamp;

/// Compares every current member with the freshest.
pub(super) fn check_alike(candidates: &[Candidate], chosen: &Chosen) -> Result<(), AssemblyError> {
    let freshest = &candidates[chosen.freshest];
    for index in chosen.current() {
        check_pair(freshest, &candidates[index])?;
    }
    if let Some(journal) = chosen.journal {
        check_journal(freshest, &candidates[journal])?;
    }
    for index in &chosen.spares {
        check_metadata(freshest, &candidates[*index])?;
    }
    Ok(())
}

/// Compares what a journal's superblock says of the array with the freshest, and the journal with its device.
fn check_journal(freshest: &Candidate, journal: &Candidate) -> Result<(), AssemblyError> {
    named(freshest, journal, difference(&freshest.superblock, &journal.superblock))?;
    let sectors = journal.superblock.data_size_sectors(journal.at_sector);
    check_on_device(journal, sectors)
}

/// What a member says otherwise of its array than the array's own superblock does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What, in words.
    pub field: &'static str,
    /// What the member says.
    pub found: String,
    /// What the array's superblock says.
    pub right: String,
}

/// The first thing that two superblocks of one array say differently of it; a member that says so is none of the array as it is.
pub fn difference(array: &Superblock, member: &Superblock) -> Option<Difference> {
    metadata_version(array, member)
        .or_else(|| differs(array, member, "level", Superblock::level))
        .or_else(|| differs(array, member, "raid_disks", Superblock::raid_disks))
        .or_else(|| differs(array, member, "layout", layout_number))
        .or_else(|| differs(array, member, "chunk size in sectors", Superblock::chunk_sectors))
        .or_else(|| differs(array, member, "size in sectors", Superblock::size_sectors))
        .or_else(|| differs(array, member, "ctime", |superblock| created(superblock).seconds()))
        .or_else(|| differs(array, member, "consistency features", logs))
}

fn metadata_version(array: &Superblock, member: &Superblock) -> Option<Difference> {
    differs(array, member, "metadata version", Superblock::metadata)
}

fn differs<T: PartialEq + Display>(
    array: &Superblock,
    member: &Superblock,
    field: &'static str,
    value: impl Fn(&Superblock) -> T,
) -> Option<Difference> {
    let (right, found) = (value(array), value(member));
    (right != found).then(|| Difference { field, found: found.to_string(), right: right.to_string() })
}

fn check_metadata(freshest: &Candidate, member: &Candidate) -> Result<(), AssemblyError> {
    named(freshest, member, metadata_version(&freshest.superblock, &member.superblock))
}

/// Compares what two members say of their array, field by field, and the member with its device.
pub(super) fn check_pair(freshest: &Candidate, member: &Candidate) -> Result<(), AssemblyError> {
    named(freshest, member, difference(&freshest.superblock, &member.superblock))?;
    check_on_device(member, member.used_sectors())
}

fn named(
    freshest: &Candidate,
    member: &Candidate,
    difference: Option<Difference>,
) -> Result<(), AssemblyError> {
    let Some(Difference { field, found, right }) = difference else { return Ok(()) };
    let (label, other) = (member.label.clone(), freshest.label.clone());
    Err(AssemblyError::Differs { field, label, found, other, right })
}

fn layout_number(superblock: &Superblock) -> u32 {
    match superblock {
        Superblock::V0(superblock) => superblock.layout,
        Superblock::V1(superblock) => superblock.layout,
    }
}

/// When the array was created.
pub(super) fn created(superblock: &Superblock) -> Timestamp {
    match superblock {
        Superblock::V0(superblock) => Timestamp::from_seconds(superblock.ctime_seconds.into()),
        Superblock::V1(superblock) => superblock.ctime,
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
fn check_on_device(member: &Candidate, used_sectors: u64) -> Result<(), AssemblyError> {
    let label = || member.label.clone();
    member
        .superblock
        .check_on_device(member.device_sectors)
        .map_err(|error| AssemblyError::OnDevice { label: label(), error })?;
    let offset = member.superblock.data_offset_sectors();
    let end = offset.checked_add(used_sectors);
    if end.is_none_or(|end| end > member.device_sectors) {
        return Err(AssemblyError::DataBeyondDevice {
            label: label(),
            data_offset_sectors: offset,
            size_sectors: used_sectors,
            device_sectors: member.device_sectors,
        });
    }
    Ok(())
}
