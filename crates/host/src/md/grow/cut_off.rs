//! A change that was cut off is brought to its end.

use std::path::PathBuf;

use stripewise_engine::assembly::{Candidate as Offered, freshest};
use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::grow::{Changed, bitmap_area, follow, is_dropped, is_left_behind};

use super::super::assemble::{Found, look};
use super::super::probe;
use super::{Area, Assembled, GrowProblem};

/// Takes what a change that was cut off left an event behind as what it would have become. Answers which those are.
pub(super) fn follow_all(candidates: &mut [Offered]) -> Vec<usize> {
    let Some(freshest) = freshest(candidates).cloned() else {
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

/// Takes out what a change of the level that was cut off left no place: their superblocks are still to be cleared. Answers their paths,
/// and what they offered.
pub(super) fn take_out_dropped(found: &mut Found) -> Vec<(PathBuf, Offered)> {
    let Some(freshest) = freshest(&found.candidates).cloned() else {
        return Vec::new();
    };
    let mut dropped = Vec::new();
    for index in (0..found.candidates.len()).rev() {
        if is_dropped(&found.candidates[index].superblock, &freshest.superblock) {
            dropped.push(found.remove(index));
        }
    }
    dropped
}

/// What members that were left behind lack: for each its place among `members`. They have the bitmap of the others, whatever is in its
/// place, unless it is about to go; the place of a partial parity log was written before, and the log of a clean array says nothing.
pub(super) fn finish(
    assembled: &Assembled,
    members: &[usize],
    left_behind: &[usize],
    keeps_bitmap: bool,
) -> Result<Vec<(usize, Changed)>, GrowProblem> {
    let places = members.iter().enumerate().filter(|(_, index)| left_behind.contains(index));
    let places: Vec<(usize, usize)> = places.map(|(place, index)| (place, *index)).collect();
    let reached = members.iter().find(|index| !left_behind.contains(index));
    let bitmap = match reached {
        Some(index) if keeps_bitmap && !places.is_empty() => bitmap_of(assembled, *index)?,
        _ => None,
    };
    let finished = places.into_iter().map(|(place, index)| {
        let member = &assembled.found.candidates[index];
        let bitmap = bitmap
            .as_ref()
            .and_then(|bitmap| bitmap_area(&member.superblock, member.at_sector, &bitmap.0, &bitmap.1));
        let superblock = Area { at_sector: member.at_sector, bytes: member.superblock.to_bytes() };
        (place, Changed { logs: bitmap.into_iter().collect(), superblock })
    });
    Ok(finished.collect())
}

/// The bitmap of a member, which others are to have too.
fn bitmap_of(assembled: &Assembled, index: usize) -> Result<Option<(BitmapSuperblock, Bits)>, GrowProblem> {
    let (found, member) = (&assembled.found, &assembled.found.candidates[index]);
    let (_, source) = look(&found.paths[index], None)?;
    probe::read_bitmap(&*source, member.device_sectors, &member.superblock, member.at_sector).map_err(
        |error| {
            GrowProblem::Refused(format!("{}: {error}; --bitmap none takes the bitmap away", member.label))
        },
    )
}
