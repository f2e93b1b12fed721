//! Another level: what takes the array over where its data are, and what is left for a reshape.

use std::path::PathBuf;

use stripewise_engine::assembly::{Assembly, SlotState};
use stripewise_format::create::Area;
use stripewise_format::grow::{
    Changed, LevelError, ReshapeError, Takeover, Target, check_one_zone, level_layout, take_over,
};
use stripewise_format::level::Level;
use stripewise_format::superblock_1::{Role, Superblock1};

use super::super::super::create::Candidate;
use super::super::{Assembled, GrowProblem};
use super::{Asked, bitmap_head, changed, stripes};

/// Bytes of a superblock that is cleared, those that tell of the devices included.
const SUPERBLOCK_BYTES: usize = 4096;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// What another level takes the array over as.
    pub(super) takeover: Option<Takeover>,
    /// What the array is to be in the end.
    pub(super) target: Target,
    /// Whether data move.
    pub(super) moves: bool,
}

impl Wanted {
    /// A member as it is taken over, if it is. A RAID-0 is made of those that are there.
    pub(super) fn taken(&self, assembled: &Assembled, member: &Superblock1) -> Superblock1 {
        let Some(takeover) = self.takeover else { return member.clone() };
        if takeover.level != Level::Raid0 {
            return member.taken_over(takeover);
        }
        let mut there = member.clone();
        for (number, role) in there.dev_roles.iter_mut().enumerate() {
            if matches!(role, Role::Slot(slot) if !is_there(assembled, *slot, number)) {
                *role = Role::Spare;
            }
        }
        there.taken_over(takeover)
    }

    /// Whether the array is so already.
    pub(super) const fn is_nothing(&self) -> bool {
        self.takeover.is_none() && !self.moves
    }
}

/// What is asked for of an array.
///
/// # Errors
/// It cannot be had.
pub(super) fn settle(array: &Superblock1, asked: &Asked) -> Result<Wanted, GrowProblem> {
    if stripes::is_meant(array, asked) {
        return stripes::settle(array, asked);
    }
    if !asked.add.is_empty() {
        return Err(GrowProblem::refused(
            "--add takes devices into a raid0 array with --raid-devices; others get spares first, by `stripewise add-spare`",
        ));
    }
    let other = asked.level.filter(|level| *level != array.level);
    let takeover = other.map(|level| take_over(array, level)).transpose().map_err(GrowProblem::Level)?;
    let taken = takeover.unwrap_or_else(|| array.as_it_is());
    let layout = level_layout(taken, takeover.is_some(), asked.layout.as_deref());
    let target = Target {
        raid_disks: asked.raid_disks.unwrap_or(taken.raid_disks),
        chunk_sectors: asked.chunk_sectors.unwrap_or(taken.chunk_sectors),
        layout: layout.map_err(GrowProblem::Refused)?,
    };
    let is_taken = (target.raid_disks, target.chunk_sectors, target.layout)
        == (taken.raid_disks, taken.chunk_sectors, taken.layout);
    if takeover.is_some() && !is_taken {
        require_reshapeable(array.level, taken, target).map_err(GrowProblem::Level)?;
    }
    Ok(Wanted { takeover, target, moves: !is_taken })
}

/// Refuses what would take a reshape before the level, or is asked for beside one that has none.
fn require_reshapeable(now: Level, taken: Takeover, target: Target) -> Result<(), LevelError> {
    let level = taken.level;
    let reshapes = match now {
        Level::Raid0 => matches!(level, Level::Raid4 | Level::Raid5) && target.raid_disks <= taken.raid_disks,
        Level::Raid1 | Level::Raid4 => level == Level::Raid5,
        _ => (now, level) == (Level::Raid5, Level::Raid6),
    };
    if !reshapes {
        return Err(LevelError::Alone { level });
    }
    if target.raid_disks < taken.raid_disks {
        return Err(LevelError::Fewer { level, least: taken.raid_disks, asked: target.raid_disks });
    }
    Ok(())
}

/// Whether the slot's member is there, whole, and the device of that number.
fn is_there(assembled: &Assembled, slot: u16, number: usize) -> bool {
    let state = assembled.assembly.slots.get(usize::from(slot)).filter(|state| state.is_in_sync());
    let index = state.and_then(|state| state.candidate());
    index.is_some_and(|index| assembled.found.candidates[index].superblock.dev_number() as usize == number)
}

/// Refuses a change of the level of an array that has not the members it takes: all there are, but parity or Q of one that loses it and
/// copies of one that has no more; and a spare for every slot that is added, but to a RAID-0, which has no spares.
pub(super) fn require_members(
    assembly: &Assembly,
    array: &Superblock1,
    wanted: &Wanted,
) -> Result<(), GrowProblem> {
    let level = wanted.takeover.map_or(array.level, |takeover| takeover.level);
    let kept = wanted.takeover.map_or(array.raid_disks, |takeover| takeover.raid_disks) as usize;
    let has_copies = matches!((array.level, level), (Level::Raid1 | Level::Raid10, Level::Raid0));
    let may_lack = |slot: usize| has_copies || slot >= kept;
    let are_there = assembly
        .slots
        .iter()
        .enumerate()
        .all(|(slot, state)| state.is_in_sync() || (may_lack(slot) && *state == SlotState::Missing));
    if !are_there {
        return Err(GrowProblem::refused(
            "the array lacks a member, and gets another level when it has all; let `stripewise assemble` recover it, or `stripewise add` \
             one first",
        ));
    }
    let added = wanted.target.raid_disks.saturating_sub(array.raid_disks);
    let spares = assembly.spares.len() as u32;
    if added > spares && array.level != Level::Raid0 {
        return Err(GrowProblem::Reshape(ReshapeError::Spares { added, spares }));
    }
    Ok(())
}

/// Refuses what the level cannot be on these members, as they would be.
pub(super) fn check_taken(
    assembled: &Assembled,
    members: &[usize],
    now: &[&Superblock1],
    superblocks: &[Superblock1],
) -> Result<(), GrowProblem> {
    if let (Some(Superblock1 { level: Level::Raid0, .. }), Some(taken)) = (now.first(), superblocks.first()) {
        check_one_zone(now, taken.level).map_err(GrowProblem::Level)?;
    }
    for (index, superblock) in members.iter().zip(superblocks) {
        if let Err(error) = Superblock1::parse(&superblock.to_bytes(), superblock.super_offset_sectors) {
            let label = &assembled.found.candidates[*index].label;
            return Err(GrowProblem::Refused(format!("{label}: as {}: {error}", superblock.level)));
        }
    }
    Ok(())
}

/// What makes of a device that the array has no place for one without a superblock: with the old one Linux and stripewise would refuse
/// the array beside it.
pub(super) fn cleared(at_sector: u64) -> Changed {
    Changed { logs: Vec::new(), superblock: Area { at_sector, bytes: vec![0; SUPERBLOCK_BYTES] } }
}

/// The changes in the order in which they are made: what the array has no place for is cleared when all others say that it has not.
pub(super) fn in_order<'a>(
    opened: &'a [Candidate],
    superblocks: &[Superblock1],
    changes: &'a [Changed],
) -> Vec<(&'a Candidate, &'a Changed)> {
    let all = || opened.iter().zip(changes).zip(superblocks);
    let of =
        |is_dropped: bool| all().filter(move |(_, one)| one.is_dropped() == is_dropped).map(|(pair, _)| pair);
    of(false).chain(of(true)).collect()
}

/// Those of an array that its other level has no place for.
pub(super) fn dropped(assembled: &Assembled, members: &[usize], superblocks: &[Superblock1]) -> Vec<PathBuf> {
    let pairs = members.iter().zip(superblocks).filter(|(_, one)| one.is_dropped());
    pairs.map(|(index, _)| assembled.found.paths[*index].clone()).collect()
}

/// The members as the level takes them over. The bitmap goes along, and counts the same events.
pub(super) fn take(
    assembled: &Assembled,
    members: &[usize],
    superblocks: &[Superblock1],
) -> Result<Vec<Changed>, GrowProblem> {
    let each = members.iter().zip(superblocks).map(|(index, superblock)| {
        if superblock.is_dropped() {
            return Ok(cleared(superblock.super_offset_sectors));
        }
        let bitmap_sector = superblock.bitmap_sector();
        let head = if bitmap_sector.is_some() { bitmap_head(assembled, *index)? } else { None };
        let logs = bitmap_sector.zip(head).map(|(at_sector, mut head)| {
            head.events = superblock.events;
            Area { at_sector, bytes: head.to_bytes() }
        });
        Ok(Changed { logs: logs.into_iter().collect(), ..changed(superblock) })
    });
    each.collect()
}
