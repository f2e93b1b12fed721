//! Gives a RAID-1 more slots, or fewer.

use stripewise_engine::assembly::{Consistency, SlotState};
use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::grow::{Update, bitmap_area, check_slots, occupied, with_slots};
use stripewise_format::level::Level;

use super::cut_off::bitmap_of;
use super::{Assembled, Decided, Decision, GrowProblem, Outcome, members, require_quiet};

pub(super) fn decide(
    assembled: &Assembled,
    asked: u32,
    force: bool,
    update: Update,
) -> Result<Decision, GrowProblem> {
    let (assembly, candidates) = (&assembled.assembly, &assembled.found.candidates);
    let array = &candidates[assembly.freshest].superblock;
    let (before, spares) = (array.raid_disks(), assembly.spares.len() as u32);
    if asked == before {
        return Ok(Decision::Already);
    }
    let members = members(assembly);
    let is_here =
        |number: &u32| members.iter().any(|index| candidates[*index].superblock.dev_number() == *number);
    if array.level() == Level::Raid1 && !occupied(array).iter().all(is_here) {
        return Err(GrowProblem::refused(
            "a member is missing that the array last had, so that nobody can say which slots are free; write to the array without \
             it first (`stripewise write --run`), or name it",
        ));
    }
    check_slots(array, asked, spares, force).map_err(GrowProblem::Slots)?;
    require_quiet(assembly, "the number of raid devices")?;
    let used = assembly.slots.iter().filter(|slot| **slot != SlotState::Missing).count() as u32;
    let free = asked - used;
    let outcome = Outcome::RaidDevices {
        before,
        now: asked,
        filled: free.min(spares),
        empty: free.saturating_sub(spares),
    };
    // One that counts fewer events than the superblocks is out of date.
    let mut bitmap = good_bitmap(assembled)?;
    if let Some((head, _)) = &mut bitmap {
        head.events = update.events;
    }
    let changed = |index: &usize| {
        let member = &candidates[*index];
        let mut changed = with_slots(&member.superblock, member.at_sector, asked, update);
        let bitmap = bitmap
            .as_ref()
            .and_then(|(head, bits)| bitmap_area(&member.superblock, member.at_sector, head, bits));
        changed.logs.extend(bitmap);
        changed
    };
    Ok(Decision::Change(Decided { outcome, changes: members.iter().map(changed).collect() }))
}

/// The bitmap of an array that has one: the freshest member's, or that of the first whose bitmap is the array's.
fn good_bitmap(assembled: &Assembled) -> Result<Option<(BitmapSuperblock, Bits)>, GrowProblem> {
    let assembly = &assembled.assembly;
    let is_good = |index: &usize| {
        let candidate = &assembled.found.candidates[*index];
        matches!(&candidate.bitmap, Some(Ok(head)) if head.uuid == candidate.superblock.bitmap_uuid())
    };
    let in_slots = assembly.slots.iter().filter_map(|slot| slot.candidate());
    let found = std::iter::once(assembly.freshest).chain(in_slots).find(is_good);
    match found.filter(|_| assembly.consistency == Consistency::Bitmap) {
        Some(index) => bitmap_of(assembled, index),
        None => Ok(None),
    }
}
