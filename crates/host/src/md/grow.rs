//! Gives an idle array a write-intent bitmap, or takes it away (`mdadm --grow --bitmap`): on all members or on none.
//!
//! # Contract
//! *Ownership.* All members are locked before anything is written, and must be as they were when they were found.
//! *Ordering.* Bitmaps are on all members before the first superblock names one. *Failure.* After an error every member is put
//! back. Cut off between two superblocks, the change leaves members that are one event apart and differ in the bitmap alone:
//! Linux assembles them, and the same change or the opposite one done again makes them alike ([`grow_bitmap`] sees to that).

use std::fmt;
use std::path::PathBuf;

use stripewise_engine::assembly::{Assembly, Candidate as Offered, Consistency, Options, SlotState};
use stripewise_format::create::Area;
use stripewise_format::grow::{GrowError, Update, place_bitmap, with_bitmap, without_bitmap};
use stripewise_format::placement::BitmapPlace;
use stripewise_format::time::Timestamp;

use super::assemble::{AssembleError, Assembled, Found};
use super::create::{Candidate, MemberWrite, WriteError, write};
use crate::error::HostError;

/// What is to become of the bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitmapChange {
    /// An internal one, of the chunk given or mdadm's choice.
    Internal {
        /// Bytes that a bit stands for.
        chunk_bytes: Option<u32>,
    },
    /// None.
    None,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Grown {
    /// The array as it was.
    pub assembled: Assembled,
    /// The new bitmap, if it has one.
    pub place: Option<BitmapPlace>,
    /// Members and spares that say so.
    pub members: usize,
}

/// Why an array is left as it is.
#[derive(Debug)]
pub enum GrowProblem {
    /// Its members cannot be used, or do not make an array.
    Assemble(AssembleError),
    /// It cannot be changed as it is; what it would need to be.
    Refused(&'static str),
    /// It can have no such bitmap.
    Bitmap(GrowError),
    /// A member can have no such bitmap.
    Member(PathBuf, GrowError),
    /// Writing failed.
    Write(WriteError),
}

impl fmt::Display for GrowProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Assemble(error) => error.fmt(f),
            Self::Refused(why) => f.write_str(why),
            Self::Bitmap(error) => error.fmt(f),
            Self::Member(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GrowProblem {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Assemble(error) => Some(error),
            Self::Write(error) => Some(error),
            Self::Refused(_) | Self::Bitmap(_) | Self::Member(..) => None,
        }
    }
}

impl From<AssembleError> for GrowProblem {
    fn from(error: AssembleError) -> Self {
        Self::Assemble(error)
    }
}

impl From<HostError> for GrowProblem {
    fn from(error: HostError) -> Self {
        Self::Assemble(error.into())
    }
}

/// Changes the bitmap of an array that nobody uses, at a time.
///
/// # Errors
/// Why it is left as it is; nothing was written then, or all was put back.
pub fn grow_bitmap(
    mut found: Found,
    options: Options,
    change: BitmapChange,
    utime: Timestamp,
    destroy: &[PathBuf],
) -> Result<Grown, GrowProblem> {
    let on_members = found.candidates.clone();
    let was_cut_off = even_out(&mut found.candidates);
    let assembled = found.assemble(options)?;
    let has_bitmap = check(&assembled)?;
    let place = match change {
        BitmapChange::Internal { .. } if has_bitmap && !was_cut_off => {
            return Err(GrowProblem::Refused(
                "the array has a bitmap; take it away first, with --bitmap none",
            ));
        }
        BitmapChange::None if !has_bitmap && !was_cut_off => {
            return Err(GrowProblem::Refused("the array has no bitmap"));
        }
        BitmapChange::Internal { chunk_bytes } => {
            let array = &assembled.found.candidates[assembled.assembly.freshest].superblock;
            Some(place_bitmap(array, chunk_bytes).map_err(GrowProblem::Bitmap)?)
        }
        BitmapChange::None => None,
    };
    let members = members(&assembled.assembly);
    let paths: Vec<PathBuf> = members.iter().map(|index| assembled.found.paths[*index].clone()).collect();
    let opened = Candidate::open_all(&paths, destroy)?;
    let update = Update { events: assembled.assembly.events + 1, utime };
    let mut changes = Vec::new();
    for (index, opened) in members.iter().zip(&opened) {
        require_same(opened, &on_members[*index])?;
        changes.push(changed(&assembled, *index, place.as_ref(), update)?);
    }
    let writes: Vec<MemberWrite> = opened
        .iter()
        .zip(&changes)
        .map(|(candidate, (logs, superblock))| MemberWrite { candidate, clears: false, logs, superblock })
        .collect();
    write(&writes).map_err(GrowProblem::Write)?;
    Ok(Grown { members: members.len(), assembled, place })
}

/// What a change that was cut off left an event behind is taken as what it would have become. Answers whether there was any.
fn even_out(candidates: &mut [Offered]) -> bool {
    let Some(freshest) = candidates.iter().max_by_key(|one| one.superblock.events()).cloned() else {
        return false;
    };
    let bitmap = freshest.superblock.bitmap_offset_sectors();
    let mut any = false;
    for one in candidates {
        let is_behind = one.superblock.events() + 1 == freshest.superblock.events();
        if is_behind && one.superblock.bitmap_offset_sectors().is_some() != bitmap.is_some() {
            one.superblock.set_bitmap(bitmap);
            one.bitmap.clone_from(&freshest.bitmap);
            any = true;
        }
    }
    any
}

/// Refuses an array in the midst of something, and answers whether it has a bitmap.
fn check(assembled: &Assembled) -> Result<bool, GrowProblem> {
    let assembly = &assembled.assembly;
    let is_recovering = assembly.slots.iter().any(|slot| matches!(slot, SlotState::Recovering { .. }))
        || !assembly.replacements.is_empty()
        || (assembly.is_degraded() && !assembly.spares.is_empty());
    let has_redundancy = assembly.consistency != Consistency::None;
    if has_redundancy && (!assembly.is_clean || assembly.resync_offset_sectors != u64::MAX || is_recovering) {
        return Err(GrowProblem::Refused(
            "a resync or recovery is due, during which the bitmap stays as it is; let `stripewise assemble` end it first",
        ));
    }
    if assembly.consistency == Consistency::Ppl {
        return Err(GrowProblem::Refused(
            "the array has a partial parity log, beside which there is no bitmap",
        ));
    }
    Ok(assembly.consistency == Consistency::Bitmap)
}

/// The candidates that the array is of, spares included.
fn members(assembly: &Assembly) -> Vec<usize> {
    assembly.slots.iter().filter_map(|slot| slot.candidate()).chain(assembly.spares.iter().copied()).collect()
}

fn require_same(opened: &Candidate, offered: &Offered) -> Result<(), AssembleError> {
    let now = opened.probe.found.first().and_then(|found| found.superblock.as_ref().ok());
    if now == Some(&offered.superblock) {
        Ok(())
    } else {
        Err(AssembleError::Changed(opened.probe.path.clone()))
    }
}

/// What is written to a member.
fn changed(
    assembled: &Assembled,
    index: usize,
    place: Option<&BitmapPlace>,
    update: Update,
) -> Result<(Vec<Area>, Area), GrowProblem> {
    let member = &assembled.found.candidates[index];
    let changed = match place {
        Some(place) => with_bitmap(&member.superblock, member.at_sector, place, update)
            .map_err(|error| GrowProblem::Member(assembled.found.paths[index].clone(), error))?,
        None => without_bitmap(&member.superblock, member.at_sector, update),
    };
    Ok((changed.bitmap.into_iter().collect(), changed.superblock))
}
