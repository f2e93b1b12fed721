//! Gives a RAID-1 more slots, or fewer.

use stripewise_engine::assembly::SlotState;
use stripewise_format::grow::{Update, bitmap_area, check_slots, occupied, with_slots};
use stripewise_format::level::Level;

use super::{Assembled, Decided, Decision, GrowProblem, Outcome, kept_bitmap, members, require_quiet};

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
    let mut bitmap = kept_bitmap(assembled)?;
    if let Some(bitmap) = &mut bitmap {
        bitmap.superblock.events = update.events;
    }
    let changed = |index: &usize| {
        let member = &candidates[*index];
        let mut changed = with_slots(&member.superblock, member.at_sector, asked, update);
        let bitmap = bitmap
            .as_ref()
            .and_then(|kept| bitmap_area(&member.superblock, member.at_sector, &kept.superblock, &kept.bits));
        changed.logs.extend(bitmap);
        changed
    };
    Ok(Decision::Change(Decided { outcome, changes: members.iter().map(changed).collect() }))
}
