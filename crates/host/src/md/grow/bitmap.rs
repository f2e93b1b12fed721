//! Gives an array a write-intent bitmap, or takes it away.

use stripewise_engine::assembly::Consistency;
use stripewise_format::grow::{Changed, Update, place_bitmap, with_bitmap, without_bitmap};
use stripewise_format::placement::BitmapPlace;

use super::{Assembled, BitmapChange, Decided, Decision, GrowProblem, Outcome, members, require_quiet};

pub(super) fn decide(
    assembled: &Assembled,
    change: BitmapChange,
    update: Update,
) -> Result<Decision, GrowProblem> {
    let assembly = &assembled.assembly;
    let has_bitmap = assembly.consistency == Consistency::Bitmap;
    let place = match change {
        BitmapChange::Internal { .. } if has_bitmap => return Ok(Decision::Already),
        BitmapChange::None if !has_bitmap && assembly.consistency != Consistency::Ppl => {
            return Ok(Decision::Already);
        }
        BitmapChange::Internal { chunk_bytes } => {
            let array = &assembled.found.candidates[assembly.freshest].superblock;
            Some(place_bitmap(array, chunk_bytes).map_err(GrowProblem::Bitmap)?)
        }
        BitmapChange::None => None,
    };
    // Nothing makes anything of one that does not read: without it, a resync that is due is of all, and so is a recovery.
    if assembly.bitmap_damage.is_none() {
        require_quiet(assembly, "the bitmap")?;
    } else if !assembly.replacements.is_empty() {
        return Err(GrowProblem::refused(
            "a member was being replaced; leave its replacement out, which can be added as a spare afterwards",
        ));
    }
    if assembly.consistency == Consistency::Ppl {
        return Err(GrowProblem::refused(
            "the array has a partial parity log, beside which there is no bitmap; take it away first, with \
             --consistency-policy resync",
        ));
    }
    let changed = |index| changed(assembled, index, place.as_ref(), update);
    let changes = members(assembly).into_iter().map(changed).collect::<Result<_, _>>()?;
    Ok(Decision::Change(Decided { outcome: Outcome::Bitmap(place), changes }))
}

/// What is written to a member.
fn changed(
    assembled: &Assembled,
    index: usize,
    place: Option<&BitmapPlace>,
    update: Update,
) -> Result<Changed, GrowProblem> {
    let member = &assembled.found.candidates[index];
    match place {
        Some(place) => with_bitmap(&member.superblock, member.at_sector, place, update)
            .map_err(|error| GrowProblem::Member(assembled.found.paths[index].clone(), error)),
        None => Ok(without_bitmap(&member.superblock, member.at_sector, update)),
    }
}
