//! A change that was cut off is brought to its end.

use stripewise_engine::assembly::Candidate as Offered;
use stripewise_format::grow::{Changed, bitmap_area, follow, is_left_behind, ppl_log};

use super::{Area, Assembled, GrowProblem};

/// Takes what a change that was cut off left an event behind as what it would have become. Answers which those are.
pub(super) fn follow_all(candidates: &mut [Offered]) -> Vec<usize> {
    let Some(freshest) = candidates.iter().max_by_key(|one| one.superblock.events()).cloned() else {
        return Vec::new();
    };
    let mut followed = Vec::new();
    for (index, one) in candidates.iter_mut().enumerate() {
        if !is_left_behind(&one.superblock, &freshest.superblock) {
            continue;
        }
        let new = follow(&one.superblock, one.at_sector, one.device_sectors, &freshest.superblock);
        if let Some(new) = new {
            one.superblock = new;
            one.bitmap.clone_from(&freshest.bitmap);
            followed.push(index);
        }
    }
    followed
}

/// What members that were left behind lack: for each its place among `members`.
pub(super) fn finish(
    assembled: &Assembled,
    members: &[usize],
    left_behind: &[usize],
) -> Result<Vec<(usize, Changed)>, GrowProblem> {
    let places = members.iter().enumerate().filter(|(_, index)| left_behind.contains(index));
    let places: Vec<(usize, usize)> = places.map(|(place, index)| (place, *index)).collect();
    let bitmap = if places.is_empty() { None } else { assembled.bitmap()? };
    let finished = places.into_iter().map(|(place, index)| {
        let member = &assembled.found.candidates[index];
        let bitmap = bitmap.as_ref().and_then(|bitmap| {
            bitmap_area(&member.superblock, member.at_sector, &bitmap.superblock, &bitmap.bits)
        });
        let log = ppl_log(&member.superblock, member.at_sector);
        let superblock = Area { at_sector: member.at_sector, bytes: member.superblock.to_bytes() };
        (place, Changed { logs: bitmap.into_iter().chain(log).collect(), superblock })
    });
    Ok(finished.collect())
}
