//! Members that a change of the array did not reach, because it was cut off between two superblocks. What assembly finds wrong with
//! such an array is none of their fault, and neither a start without them nor one by force is the way out.

use stripewise_format::grow::{follow, follow_reshape, is_dropped, is_left_behind};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Role, Superblock1};

use super::candidate::Candidate;
use super::{Assembly, AssemblyError, StaleReason};

/// The error of an array that cannot be put together: that a change was cut off, if that is why.
pub(super) fn explain(candidates: &[Candidate], error: AssemblyError) -> AssemblyError {
    let is_told_by_members = matches!(
        error,
        AssemblyError::Differs { .. }
            | AssemblyError::NeedsRun { .. }
            | AssemblyError::NotEnough { .. }
            | AssemblyError::DirtyDegraded { .. }
            | AssemblyError::RoleBeyondSlots { .. }
            | AssemblyError::Bitmap { .. }
            | AssemblyError::Reshape { .. }
    );
    if !is_told_by_members {
        return error;
    }
    let named = |indexes: Vec<usize>| indexes.iter().map(|index| candidates[*index].label.clone()).collect();
    // A spare is in nobody's way.
    let has_slot = |index: &usize| matches!(candidates[*index].superblock.role(), Role::Slot(_));
    let untold = untold_of_end(candidates);
    if untold.iter().any(has_slot) {
        return AssemblyError::ReshapeEnded { untold: named(untold) };
    }
    let Some(Candidate { superblock: freshest, .. }) = freshest(candidates) else { return error };
    let behind = left_behind(candidates, freshest);
    match behind.iter().find(|index| has_slot(index)) {
        Some(first) => {
            let finish = change(&candidates[*first].superblock, freshest);
            AssemblyError::CutOff { behind: named(behind), finish }
        }
        None => error,
    }
}

/// Says so of those that an array started without for no other reason.
pub(super) fn name_untold(candidates: &[Candidate], assembly: &mut Assembly) {
    if assembly.stale.is_empty() {
        return;
    }
    let untold = untold_of_end(candidates);
    for stale in assembly.stale.iter_mut().filter(|stale| untold.contains(&stale.candidate)) {
        (stale.why, stale.re_addable) = (StaleReason::ReshapeEnded, None);
    }
}

/// Those that a reshape's last superblocks did not reach.
fn untold_of_end(candidates: &[Candidate]) -> Vec<usize> {
    let of_version_1 = |candidate: &Candidate| match &candidate.superblock {
        Superblock::V1(superblock) => Some((**superblock).clone()),
        Superblock::V0(_) => None,
    };
    let superblocks: Option<Vec<Superblock1>> = candidates.iter().map(of_version_1).collect();
    let mut superblocks = superblocks.unwrap_or_default();
    let freshest = superblocks.iter().max_by_key(|one| one.events);
    if freshest.is_none_or(|array| array.reshape().is_some()) {
        return Vec::new();
    }
    follow_reshape(&mut superblocks)
}

/// Whom the others are to follow. Of a spare with as many events nobody knows whether it has heard of the change.
pub fn freshest(candidates: &[Candidate]) -> Option<&Candidate> {
    let has_slot = |one: &Superblock| matches!(one.role(), Role::Slot(_));
    candidates.iter().max_by_key(|one| (one.superblock.events(), has_slot(&one.superblock)))
}

/// Those that a change by superblocks alone did not reach.
fn left_behind(candidates: &[Candidate], freshest: &Superblock) -> Vec<usize> {
    let is_behind = |one: &Candidate| {
        is_left_behind(&one.superblock, freshest)
            && (is_dropped(&one.superblock, freshest)
                || follow(&one.superblock, one.at_sector, one.device_sectors, freshest).is_some())
    };
    (0..candidates.len()).filter(|index| is_behind(&candidates[*index])).collect()
}

/// What to ask of `grow` for what a member is behind the others with.
fn change(member: &Superblock, freshest: &Superblock) -> String {
    if member.level() != freshest.level() {
        format!("--level {}", freshest.level())
    } else if member.size_sectors() != freshest.size_sectors() {
        format!("--size {}K", freshest.size_sectors() / 2)
    } else if member.raid_disks() != freshest.raid_disks() {
        format!("--raid-devices {}", freshest.raid_disks())
    } else if member.ppl().is_some() != freshest.ppl().is_some() {
        let policy = if freshest.ppl().is_some() { "ppl" } else { "resync" };
        format!("--consistency-policy {policy}")
    } else {
        let bitmap = if freshest.bitmap_offset_sectors().is_some() { "internal" } else { "none" };
        format!("--bitmap {bitmap}")
    }
}
