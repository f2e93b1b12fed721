//! A RAID-0 gets more members or another chunk: a RAID-4 without parity takes it over and is reshaped, and becomes a RAID-0 again.
//!
//! # Contract
//! *Ordering.* The first superblocks make it a RAID-4 and begin the reshape at once, on the new devices first: whoever finds the reshape
//! on a member finds what it needs on them. The last make it a RAID-0 when the reshape has ended on all. *Failure.* Cut off meanwhile
//! it is a RAID-4 which [`resume`](super::resume) brings to its end, and which then gets level 0 by itself.

use std::path::{Path, PathBuf};

use stripewise_engine::assembly::{Candidate as Offered, Options, Wanted as WantedArray};
use stripewise_format::add::{NewMember, add};
use stripewise_format::create::Area;
use stripewise_format::device_flags::DeviceFlags;
use stripewise_format::grow::{ReshapeError, Target, level_layout, take_over};
use stripewise_format::level::Level;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::Superblock1;

use super::super::super::assemble::{Selection, find};
use super::super::super::create::Candidate;
use super::super::{Assembled, GrowProblem};
use super::level::Wanted;
use super::{Asked, ReshapeChange, Reshaped, Watch, reshape};
use crate::error::MemberProblem;
use crate::manage::random_uuid;

/// Whether that is what is asked for.
pub(super) fn is_meant(array: &Superblock1, asked: &Asked) -> bool {
    let stays = asked.level.is_none_or(|level| level == Level::Raid0);
    let is_shape = asked.raid_disks.is_some() || asked.chunk_sectors.is_some() || !asked.add.is_empty();
    array.level == Level::Raid0 && stays && is_shape
}

/// What it comes to.
pub(super) fn settle(array: &Superblock1, asked: &Asked) -> Result<Wanted, GrowProblem> {
    let now = array.raid_disks;
    let raid_disks = asked.raid_disks.unwrap_or(now);
    let chunk_sectors = asked.chunk_sectors.unwrap_or(array.chunk_sectors);
    if asked.layout.is_some() {
        level_layout(array.as_it_is(), false, asked.layout.as_deref()).map_err(GrowProblem::Refused)?;
    }
    if raid_disks < now {
        return Err(GrowProblem::Reshape(ReshapeError::FewerStripes { now, asked: raid_disks }));
    }
    let (added, named) = (raid_disks - now, asked.add.len() as u32);
    if added != named {
        return Err(GrowProblem::Reshape(ReshapeError::Devices { added, named }));
    }
    if (raid_disks, chunk_sectors) == (now, array.chunk_sectors) {
        let target = Target { raid_disks, chunk_sectors, layout: array.layout };
        return Ok(Wanted { takeover: None, target, moves: false });
    }
    let takeover = take_over(array, Level::Raid4).map_err(GrowProblem::Level)?;
    let target = Target { raid_disks: raid_disks.saturating_add(1), chunk_sectors, layout: takeover.layout };
    Ok(Wanted { takeover: Some(takeover), target, moves: true })
}

/// Why it cannot be, in words that are right for the array's level: the RAID-4 that takes a RAID-0 over could use less of its members.
pub(super) fn refusal(level: Level, mut error: ReshapeError) -> GrowProblem {
    if let ReshapeError::ChunkDoesNotDivide { can_use_less, .. } = &mut error {
        *can_use_less = level != Level::Raid0;
    }
    GrowProblem::Reshape(error)
}

/// Has the array what is to be added, as if these had been spares of it. Answers the logs of each.
pub(super) fn offer(
    assembled: &mut Assembled,
    array: &Superblock1,
    asked: &Asked,
    destroy: &[PathBuf],
) -> Result<Vec<Vec<Area>>, GrowProblem> {
    if asked.add.is_empty() {
        return Ok(Vec::new());
    }
    let taken = array.taken_over(take_over(array, Level::Raid4).map_err(GrowProblem::Level)?);
    let taken = Superblock::V1(Box::new(taken));
    let mut numbers: Vec<u32> =
        assembled.found.candidates.iter().map(|one| one.superblock.dev_number()).collect();
    let mut logs = Vec::new();
    for (path, opened) in asked.add.iter().zip(Candidate::open_all(&asked.add, destroy)?) {
        require_free(path, &opened, array, asked)?;
        let device_sectors = opened.probe.device_sectors;
        let new = NewMember {
            device_sectors,
            device_uuid: random_uuid().map_err(|error| MemberProblem::from_io(&error, 0).at(path))?,
            device_number: opened.device_number,
            flags: DeviceFlags::default(),
        };
        let addition = add(&taken, &numbers, &new, None)
            .map_err(|error| GrowProblem::Refused(format!("{}: {error}", path.display())))?;
        let Superblock::V1(own) = addition.superblock else { unreachable!("of the version of the others") };
        numbers.push(own.dev_number);
        let Superblock1 { level, layout, chunk_sectors, raid_disks, size_sectors, .. } = *array;
        let data_size_sectors = array.data_size_sectors.min(own.data_size_sectors);
        let own =
            Superblock1 { level, layout, chunk_sectors, raid_disks, size_sectors, data_size_sectors, ..*own };
        assembled.assembly.spares.push(assembled.found.candidates.len());
        assembled.found.push(
            path.clone(),
            Offered {
                label: path.display().to_string(),
                device_sectors,
                at_sector: addition.at_sector,
                superblock: Superblock::V1(Box::new(own)),
                bitmap: None,
            },
        );
        logs.push(addition.logs);
    }
    Ok(logs)
}

/// Refuses a device that holds something else, and a member of the array.
pub(super) fn require_free(
    path: &Path,
    opened: &Candidate,
    array: &Superblock1,
    asked: &Asked,
) -> Result<(), GrowProblem> {
    let found = opened.probe.found.first().and_then(|found| found.superblock.as_ref().ok());
    match found.filter(|own| own.set_uuid() == array.set_uuid) {
        // All members are still a RAID-0: the change was cut off before it reached them.
        Some(own) if own.level() == Level::Raid4 => {}
        Some(_) => {
            return Err(GrowProblem::Refused(format!(
                "{}: it has a superblock of this array already; name a device that is no member of it",
                path.display()
            )));
        }
        None if asked.force => {}
        None => opened.require_blank()?,
    }
    Ok(())
}

/// Makes it a RAID-0 again.
pub(super) fn back(
    reshaped: Reshaped,
    paths: Vec<PathBuf>,
    options: Options,
    destroy: &[PathBuf],
    watch: Watch<'_>,
) -> Result<Reshaped, GrowProblem> {
    let selection =
        Selection { members: paths, scan: None, wanted: WantedArray::Only, options, overlay: None };
    let asked = Asked { level: Some(Level::Raid0), ..Asked::default() };
    let back = reshape(find(&selection)?, options, &asked, destroy, watch)?;
    let change = ReshapeChange {
        level: (Level::Raid0, Level::Raid0),
        raid_disks: (reshaped.change.raid_disks.0, back.change.raid_disks.1),
        layout: (0, 0),
        ..reshaped.change
    };
    Ok(Reshaped { assembled: back.assembled, change, empty_slots: 0, ..reshaped })
}
