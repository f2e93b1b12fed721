//! Whether there are members enough, and whether the array may start with them.

use super::candidate::{Candidate, slot_of};
use super::choose::Chosen;
use super::{AssemblyError, Consistency, Options, Replacement, SlotState};
use crate::array::slots::SlotSet;
use crate::array::survives;
use crate::geometry::{Geometry, GeometrySpec};
use crate::level::{Layout, Level};
use crate::units::Slot;

/// The command that starts what cannot be started otherwise.
const BY_FORCE: &str = "stripewise assemble --force";

/// What is in each slot. A replacement without the member it replaces is the slot's member.
pub(super) fn slot_states(candidates: &[Candidate], chosen: &Chosen) -> (Vec<SlotState>, Vec<Replacement>) {
    let mut replacements = Vec::new();
    let is_whole = |candidate: usize| candidates[candidate].recovered_sectors().is_none();
    let state = |candidate: usize| match candidates[candidate].recovered_sectors() {
        None => SlotState::InSync { candidate },
        Some(offset_sectors) => SlotState::Recovering { candidate, offset_sectors },
    };
    let states = (0..).map(Slot).zip(&chosen.slots).map(|(slot, pair)| match *pair {
        (None, None) => SlotState::Missing,
        (Some(member), None) | (None, Some(member)) => state(member),
        // What replaces a member that lacks content itself has nothing to go by: the fuller of the two is taken.
        (Some(member), Some(candidate)) if !is_whole(member) => {
            if is_whole(candidate) {
                state(candidate)
            } else {
                state(member)
            }
        }
        (Some(member), Some(candidate)) => {
            let offset_sectors = candidates[candidate].recovered_sectors().unwrap_or(u64::MAX);
            replacements.push(Replacement { slot, candidate, offset_sectors });
            state(member)
        }
    });
    let states = states.collect();
    (states, replacements)
}

/// Whether every block can be had from the members in sync.
pub(super) fn has_enough(candidates: &[Candidate], chosen: &Chosen) -> Result<bool, AssemblyError> {
    let (states, _) = slot_states(candidates, chosen);
    let superblock = &candidates[chosen.freshest].superblock;
    let missing: SlotSet =
        (0..).map(Slot).zip(&states).filter(|(_, state)| !state.is_in_sync()).map(|(slot, _)| slot).collect();
    if matches!(superblock.level(), Level::Linear | Level::Raid0) {
        return Ok(missing.is_empty());
    }
    let layout = superblock
        .layout()
        .ok_or_else(|| AssemblyError::NoLayout { label: candidates[chosen.freshest].label.clone() })?;
    let spec = sized_spec(&candidates[chosen.freshest], layout);
    Ok(survives(&Geometry::new(&spec)?, missing))
}

/// The geometry of a level whose members are alike.
pub(super) fn sized_spec(freshest: &Candidate, layout: Layout) -> GeometrySpec {
    let superblock = &freshest.superblock;
    GeometrySpec {
        level: superblock.level(),
        layout,
        chunk_sectors: superblock.chunk_sectors().into(),
        member_sectors: vec![superblock.size_sectors(); superblock.raid_disks() as usize],
    }
}

/// Decides whether the array may start; answers whether it is taken as clean though it is not.
pub(super) fn decide(
    candidates: &[Candidate],
    chosen: &Chosen,
    states: &[SlotState],
    consistency: Consistency,
    options: Options,
) -> Result<bool, AssemblyError> {
    let slots = || (0..).map(Slot).zip(states);
    let missing: Vec<Slot> = slots().filter(|(_, s)| s.candidate().is_none()).map(|(slot, _)| slot).collect();
    let recovering: Vec<Slot> =
        slots().filter(|(_, s)| matches!(s, SlotState::Recovering { .. })).map(|(slot, _)| slot).collect();
    let superblock = &candidates[chosen.freshest].superblock;
    let level = superblock.level();
    if !has_enough(candidates, chosen)? {
        let stale: Vec<String> =
            chosen.stale.iter().map(|stale| candidates[stale.candidate].label.clone()).collect();
        let by_force = BY_FORCE;
        return Err(AssemblyError::NotEnough {
            level,
            slots: states.len(),
            missing,
            recovering,
            stale,
            by_force,
        });
    }
    // As mdadm, which starts with what there is where it is forced.
    if !options.run && !options.force {
        check_all_here(candidates, chosen, states)?;
    }
    let is_degraded = !missing.is_empty() || !recovering.is_empty();
    let is_dirty = chosen.resync_offset_sectors(candidates) != u64::MAX;
    let may_be_wrong = level.parity_count() > 0 && is_dirty && is_degraded && consistency != Consistency::Ppl;
    // Who takes the bitmap away starts nothing.
    if !may_be_wrong || options.readonly || options.forgets_bitmap {
        return Ok(false);
    }
    if options.force {
        Ok(true)
    } else {
        Err(AssemblyError::DirtyDegraded { missing, recovering, by_force: BY_FORCE })
    }
}

/// Whether each slot that the freshest superblock has a member for has one. A replacement that is copied in part is none as long
/// as that superblock has the member it replaces in the slot as well: that one may be there still, with all its data. Where it
/// failed, the superblock says so, and the copy goes on as a recovery.
fn check_all_here(
    candidates: &[Candidate],
    chosen: &Chosen,
    states: &[SlotState],
) -> Result<(), AssemblyError> {
    let freshest = &candidates[chosen.freshest];
    let expected = expected_slots(freshest);
    let is_expected = |(slot, state): (Slot, &SlotState)| match *state {
        SlotState::Missing => expected.contains(slot),
        SlotState::Recovering { candidate, .. } => has_another(freshest, slot, &candidates[candidate]),
        SlotState::InSync { .. } => false,
    };
    let slots = || (0..).map(Slot).zip(states);
    let absent: Vec<Slot> = slots().filter(|pair| is_expected(*pair)).map(|(slot, _)| slot).collect();
    if absent.is_empty() {
        return Ok(());
    }
    let is_vacant = |slot: &Slot| states[slot.index()] == SlotState::Missing;
    let replaced: Vec<Slot> = absent.iter().copied().filter(|slot| !is_vacant(slot)).collect();
    let vacant = slots().filter(|(slot, _)| is_vacant(slot)).count();
    let present = states.len() - vacant - replaced.len();
    let stale = chosen.stale.iter().map(|stale| {
        let Candidate { label, superblock, .. } = &candidates[stale.candidate];
        format!("{label} ({} of {} events)", superblock.events(), chosen.events)
    });
    Err(AssemblyError::NeedsRun { absent, replaced, stale: stale.collect(), slots: states.len(), present })
}

/// Whether a superblock has another member than this replacement in the slot.
fn has_another(freshest: &Candidate, slot: Slot, replacement: &Candidate) -> bool {
    let superblock = &freshest.superblock;
    let others = (0..superblock.device_rows()).filter(|row| *row != replacement.superblock.dev_number());
    let mut roles = others.map(|row| superblock.role_of(row));
    replacement.is_replacement() && roles.any(|role| slot_of(role).map(Slot) == Some(slot))
}

/// The slots that the freshest superblock has members for.
fn expected_slots(freshest: &Candidate) -> SlotSet {
    let slots = freshest.superblock.raid_disks();
    (0..freshest.superblock.device_rows())
        .filter_map(|row| slot_of(freshest.superblock.role_of(row)))
        .filter(|slot| u32::from(*slot) < slots)
        .map(Slot)
        .collect()
}
