//! Another level: what takes the array over where its data are, and what is left for a reshape.

use stripewise_engine::assembly::{Assembly, SlotState};
use stripewise_format::create::Area;
use stripewise_format::grow::{Changed, LevelError, ReshapeError, Takeover, Target, level_layout, take_over};
use stripewise_format::level::Level;
use stripewise_format::superblock_1::Superblock1;

use super::super::{Assembled, GrowProblem};
use super::{Asked, bitmap_head, changed};

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
    /// A member as it is taken over, if it is.
    pub(super) fn taken(&self, member: &Superblock1) -> Superblock1 {
        self.takeover.map_or_else(|| member.clone(), |takeover| member.taken_over(takeover))
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
    if !matches!((now, level), (Level::Raid1 | Level::Raid4, Level::Raid5) | (Level::Raid5, Level::Raid6)) {
        return Err(LevelError::Alone { level });
    }
    if target.raid_disks < taken.raid_disks {
        return Err(LevelError::Fewer { level, least: taken.raid_disks, asked: target.raid_disks });
    }
    Ok(())
}

/// Refuses a change of the level of an array that has not the members it takes: all there are, but Q of one that loses it; and a spare
/// for every slot that is added.
pub(super) fn require_members(
    assembly: &Assembly,
    array: &Superblock1,
    wanted: &Wanted,
) -> Result<(), GrowProblem> {
    let kept = wanted.takeover.map_or(array.raid_disks, |takeover| takeover.raid_disks) as usize;
    let are_there = assembly
        .slots
        .iter()
        .enumerate()
        .all(|(slot, state)| state.is_in_sync() || (slot >= kept && *state == SlotState::Missing));
    if !are_there {
        return Err(GrowProblem::refused(
            "the array lacks a member, and gets another level when it has all; let `stripewise assemble` recover it, or `stripewise add` \
             one first",
        ));
    }
    let added = wanted.target.raid_disks.saturating_sub(array.raid_disks);
    let spares = assembly.spares.len() as u32;
    if added > spares {
        return Err(GrowProblem::Reshape(ReshapeError::Spares { added, spares }));
    }
    Ok(())
}

/// The members as the level takes them over. The bitmap goes along, and counts the same events.
pub(super) fn take(
    assembled: &Assembled,
    members: &[usize],
    superblocks: &[Superblock1],
) -> Result<Vec<Changed>, GrowProblem> {
    let each = members.iter().zip(superblocks).map(|(index, superblock)| {
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
