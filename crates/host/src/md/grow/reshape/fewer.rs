//! What is a reshape's own that takes slots away: the members whose slots go are read to the end, and spares then.

use std::path::PathBuf;

use stripewise_engine::assembly::Options;
use stripewise_format::bitmap::BitmapSuperblock;
use stripewise_format::grow::{Room, Target, check_kept, shrunk_size_sectors};
use stripewise_format::level::Level;
use stripewise_format::superblock_1::{Role, Superblock1};

use super::super::GrowProblem;

/// Settles how much of each member is used from now on. It is said how much of the array is kept where it gets smaller, and only there.
pub(super) fn settle_kept(
    array: &Superblock1,
    target: Target,
    asked_sectors: Option<u64>,
    rooms: &[Room],
    superblocks: &mut [Superblock1],
) -> Result<(), GrowProblem> {
    let size_sectors = shrunk_size_sectors(array, target, rooms);
    check_kept(array, target, size_sectors, asked_sectors).map_err(GrowProblem::Reshape)?;
    if size_sectors < array.size_sectors {
        for one in superblocks {
            one.size_sectors = size_sectors;
        }
    }
    Ok(())
}

/// A bitmap's head on a member of which less may be used than before, or of an array that holds less. What it stands for beyond that
/// is not set: nothing is due.
pub(super) fn bitmap_of(member: &Superblock1, mut head: BitmapSuperblock) -> BitmapSuperblock {
    let is_fewer = member.reshape().is_some_and(|reshape| reshape.delta_disks < 0);
    if is_fewer {
        // A RAID-10's counts the array's sectors.
        let is_copies = member.level == Level::Raid10;
        let sync_sectors = if is_copies { member.reshape_sectors() } else { member.size_sectors };
        head.sync_size_sectors = head.sync_size_sectors.min(sync_sectors);
    }
    head
}

/// The members whose slots go, by their places.
pub(super) fn freed(
    array: &Superblock1,
    read: &[Option<usize>],
    path: impl Fn(usize) -> PathBuf,
) -> Vec<PathBuf> {
    read.iter().skip(array.raid_disks as usize).flatten().map(|place| path(*place)).collect()
}

/// Whether a slot that stays lacks its member when others that went, or were spares, could take it.
pub(super) fn is_recovery_due(array: &Superblock1, read: &[Option<usize>], members: usize) -> bool {
    let stays = array.raid_disks as usize;
    let is_fewer = array.slots_before_reshape() > array.raid_disks;
    let there = read.iter().take(stays).flatten().count();
    is_fewer && there < stays && members > there
}

/// The members whose slots go, from `stays` on, of those that are there: what was read and written is read to the end.
pub(super) fn going(
    array: &Superblock1,
    stays: usize,
    before: &[Superblock1],
    members: &[usize],
) -> Vec<Option<usize>> {
    let of_slot =
        |slot: usize| members.iter().position(|index| before[*index].role() == Role::Slot(slot as u16));
    (stays..array.slots_before_reshape() as usize).map(of_slot).collect()
}

/// Refuses to go on without those that the rows of before need, and without one that is not there unless that is said.
pub(super) fn require_going(
    array: &Superblock1,
    read: &[Option<usize>],
    options: Options,
) -> Result<(), GrowProblem> {
    let stays = array.raid_disks as usize;
    let before = array.slots_before_reshape() as usize;
    if before <= stays {
        return Ok(());
    }
    let missing = read[..before].iter().filter(|member| member.is_none()).count();
    // Which copies are needed is asked slot by slot.
    if array.level != Level::Raid10 && missing > usize::from(array.level.parity_count()) {
        return Err(GrowProblem::Refused(format!(
            "{missing} of the {before} members that the reshape began with are missing or out of date, and what has not moved yet needs all \
             but {}; name them, or have Linux take those that are out of date (`mdadm --assemble --force`)",
            array.level.parity_count()
        )));
    }
    let is_expected = |slot: usize| array.dev_roles.contains(&Role::Slot(slot as u16));
    match (stays..before).find(|slot| read[*slot].is_none() && is_expected(*slot)) {
        Some(slot) if !options.run && !options.force => Err(GrowProblem::Refused(format!(
            "slot {slot} goes, and its member is missing; name it, or go on without it by --run"
        ))),
        _ => Ok(()),
    }
}
