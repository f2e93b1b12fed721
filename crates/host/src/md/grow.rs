//! Changes an idle array by its superblocks and logs alone (`mdadm --grow`): on all members or on none.
//!
//! # Contract
//! *Ownership.* All members are locked before anything is written, and must be as they were when they were found.
//! *Ordering.* Bitmaps and logs are on all members before the first superblock names one. *Failure.* After an error every member
//! is put back. Cut off between two superblocks, the change leaves members that are one event apart: those that it did not reach
//! say what the array was. Whoever comes next ([`grow`] with whatever change) first brings them to what the others say, which is
//! all there is to do if that is what was asked for. At no point are two members more than an event apart.

mod bitmap;
mod cut_off;
mod journal;
mod name;
mod policy;
mod problem;
mod reshape;
mod size;
mod slots;

use std::path::PathBuf;

use stripewise_engine::assembly::{Assembly, Consistency, Options, SlotState};
use stripewise_engine::metadata::BitmapConfig;
use stripewise_format::bitmap::BitmapSuperblock;
use stripewise_format::create::Area;
use stripewise_format::grow::{Changed, Update, without_recovery_by_bitmap};
use stripewise_format::placement::BitmapPlace;
use stripewise_format::time::Timestamp;

use super::assemble::{AssembleError, Assembled, Found};
use super::create::{Candidate, MemberWrite, write};
pub use name::rename;
pub use problem::GrowProblem;
pub use reshape::{Asked, ReshapeChange, Reshaped, Watch, reshape, resume};

/// What is to become of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its write-intent bitmap.
    Bitmap(BitmapChange),
    /// The part of each member that it uses.
    Size {
        /// Sectors; all that every member has if not said.
        asked_sectors: Option<u64>,
        /// The new part is taken as in sync.
        assume_clean: bool,
    },
    /// The slots of a RAID-1.
    RaidDevices {
        /// How many.
        asked: u32,
        /// One alone, or more than there are members for.
        force: bool,
    },
    /// What makes it whole after a crash.
    Policy(Policy),
}

impl Change {
    /// Whether what its bitmap says matters no more.
    fn forgets_bitmap(self) -> bool {
        matches!(self, Self::Bitmap(BitmapChange::None))
    }
}

/// What makes a RAID-5 without a bitmap whole after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A resync.
    Resync,
    /// Partial parity logs.
    Ppl,
}

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
    /// The array as it was, or would have been had the change before not been cut off.
    pub assembled: Assembled,
    /// What was made of it.
    pub outcome: Outcome,
    /// Members and spares that say so.
    pub members: usize,
}

/// What an array has after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The same change was cut off, and now all members have it.
    Finished,
    /// This bitmap, or none.
    Bitmap(Option<BitmapPlace>),
    /// So much of each member.
    Size {
        /// Sectors used before.
        before_sectors: u64,
        /// Sectors used now.
        now_sectors: u64,
        /// Whether what is new is to be resynced.
        is_resync_due: bool,
        /// Bytes that a bit of its bitmap stands for, where they are more than before.
        bitmap_chunk_bytes: Option<u32>,
    },
    /// So many slots.
    RaidDevices {
        /// Slots before.
        before: u32,
        /// Slots now.
        now: u32,
        /// Slots that spares are to be recovered for.
        filled: u32,
        /// Slots that nobody is there for.
        empty: u32,
    },
    /// This.
    Policy(Policy),
}

/// A change that was decided upon, and not yet made.
struct Decided {
    outcome: Outcome,
    /// For each of [`members`].
    changes: Vec<Changed>,
}

/// What a change comes to.
enum Decision {
    /// The array is so already.
    Already,
    Change(Decided),
}

/// Changes an array that nobody uses, at a time.
///
/// # Errors
/// Why it is left as it is; nothing was written then, or all was put back.
pub fn grow(
    mut found: Found,
    options: Options,
    change: Change,
    utime: Timestamp,
    destroy: &[PathBuf],
) -> Result<Grown, GrowProblem> {
    let on_members = found.candidates.clone();
    let left_behind = cut_off::follow_all(&mut found.candidates);
    let forgets_bitmap = change.forgets_bitmap();
    let assembled = found.assemble(Options { forgets_bitmap, ..options })?;
    if leaves_journal(&assembled, change)? {
        return journal::leave(assembled, destroy);
    }
    let in_two = forgets_bitmap && may_lack_what_it_names(&assembled);
    let update = Update { events: assembled.assembly.events + if in_two { 2 } else { 1 }, utime };
    let decision = decide(&assembled, change, update)?;
    if let (Decision::Already, true) = (&decision, left_behind.is_empty()) {
        return Err(already(change, &assembled));
    }
    let members = members(&assembled.assembly);
    let paths: Vec<PathBuf> = members.iter().map(|index| assembled.found.paths[*index].clone()).collect();
    let opened = Candidate::open_all(&paths, destroy)?;
    for (index, opened) in members.iter().zip(&opened) {
        require_same(opened, &on_members[*index].superblock)?;
    }
    let keeps_bitmap = assembled.assembly.bitmap_damage.is_none();
    let finishing = cut_off::finish(&assembled, &members, &left_behind, keeps_bitmap)?;
    write_all(finishing.iter().map(|(place, changed)| (&opened[*place], changed)))?;
    let outcome = match decision {
        Decision::Already => Outcome::Finished,
        Decision::Change(decided) => {
            if in_two {
                let update = Update { events: update.events - 1, utime };
                let anew = |index: &usize| {
                    let member = &assembled.found.candidates[*index];
                    without_recovery_by_bitmap(&member.superblock, member.at_sector, update)
                };
                let anew: Vec<Changed> = members.iter().map(anew).collect();
                write_all(opened.iter().zip(&anew))?;
            }
            write_all(opened.iter().zip(&decided.changes))?;
            decided.outcome
        }
    };
    Ok(Grown { members: members.len(), assembled, outcome })
}

/// Whether an array that is open, and of which nothing is due, may be changed so. What was found says that it is in use, and is taken
/// as closed.
///
/// # Errors
/// Why it would be left as it is.
pub fn check(found: Found, options: Options, change: Change, utime: Timestamp) -> Result<(), GrowProblem> {
    let forgets_bitmap = change.forgets_bitmap();
    let mut assembled = found.assemble(Options { forgets_bitmap, force: true, ..options })?;
    if leaves_journal(&assembled, change)? {
        return Ok(());
    }
    let assembly = &mut assembled.assembly;
    (assembly.is_clean, assembly.resync_offset_sectors) = (true, u64::MAX);
    let update = Update { events: assembly.events + 1, utime };
    match decide(&assembled, change, update)? {
        Decision::Already => Err(already(change, &assembled)),
        Decision::Change(_) => Ok(()),
    }
}

fn decide(assembled: &Assembled, change: Change, update: Update) -> Result<Decision, GrowProblem> {
    match change {
        Change::Bitmap(change) => bitmap::decide(assembled, change, update),
        Change::Size { asked_sectors, assume_clean } => {
            size::decide(assembled, asked_sectors, assume_clean, update)
        }
        Change::Policy(policy) => policy::decide(assembled, policy, update),
        Change::RaidDevices { asked, force } => slots::decide(assembled, asked, force, update),
    }
}

/// Whether a member has not all that the bitmap names: it is recovered by it, or is not there and may have been. Linux takes one whose
/// superblock is an event behind, finds no bitmap, and recovers nothing. So it has to be two behind, or to know that all of it is due,
/// before the first superblock has no bitmap.
fn may_lack_what_it_names(assembled: &Assembled) -> bool {
    assembled.assembly.slots.iter().any(|slot| match slot.candidate() {
        Some(index) => assembled.found.candidates[index].recovers_by_bitmap(),
        None => true,
    })
}

/// The bitmap that a change keeps: one that was out of date already says so, for it will count as many events as the superblocks.
fn kept_bitmap(assembled: &Assembled) -> Result<Option<BitmapConfig>, AssembleError> {
    let mut bitmap = assembled.bitmap()?;
    if let Some(BitmapConfig { superblock, .. }) = &mut bitmap
        && superblock.events < assembled.assembly.events
    {
        superblock.state |= BitmapSuperblock::STATE_STALE;
    }
    Ok(bitmap)
}

fn already(change: Change, assembled: &Assembled) -> GrowProblem {
    match change {
        Change::Bitmap(BitmapChange::Internal { .. }) => {
            GrowProblem::refused("the array has a bitmap; take it away first, with --bitmap none")
        }
        Change::Bitmap(BitmapChange::None) => GrowProblem::refused("the array has no bitmap"),
        Change::Size { .. } => {
            let size = assembled.found.candidates[assembled.assembly.freshest].superblock.size_sectors();
            GrowProblem::Refused(format!("{}K of each member are used already", size / 2))
        }
        Change::Policy(Policy::Resync) => GrowProblem::refused("the consistency policy is resync already"),
        Change::Policy(Policy::Ppl) => GrowProblem::refused("the consistency policy is ppl already"),
        Change::RaidDevices { asked, .. } => {
            GrowProblem::Refused(format!("the array has {asked} raid devices already"))
        }
    }
}

fn write_all<'a>(changes: impl Iterator<Item = (&'a Candidate, &'a Changed)>) -> Result<(), GrowProblem> {
    let changes: Vec<(&Candidate, Vec<Area>, &Area)> =
        changes.map(|(candidate, changed)| (candidate, changed.logs.clone(), &changed.superblock)).collect();
    let writes: Vec<MemberWrite> = changes
        .iter()
        .map(|(candidate, logs, superblock)| MemberWrite { candidate, clears: false, logs, superblock })
        .collect();
    write(&writes).map_err(GrowProblem::Write)
}

/// The candidates that the array is of, spares included.
fn members(assembly: &Assembly) -> Vec<usize> {
    assembly.slots.iter().filter_map(|slot| slot.candidate()).chain(assembly.spares.iter().copied()).collect()
}

fn require_same(
    opened: &Candidate,
    offered: &stripewise_format::superblock::Superblock,
) -> Result<(), AssembleError> {
    let now = opened.probe.found.first().and_then(|found| found.superblock.as_ref().ok());
    if now == Some(offered) { Ok(()) } else { Err(AssembleError::Changed(opened.probe.path.clone())) }
}

/// Whether the array has a write journal, and the change takes that away. No other can be made beside one.
fn leaves_journal(assembled: &Assembled, change: Change) -> Result<bool, GrowProblem> {
    if assembled.assembly.consistency != Consistency::Journal {
        return Ok(false);
    }
    if change == Change::Policy(Policy::Resync) {
        return Ok(true);
    }
    Err(has_journal())
}

fn has_journal() -> GrowProblem {
    GrowProblem::refused(
        "the array has a write journal, which may hold its last writes; --consistency-policy resync brings them to the members and \
         leaves the array without it",
    )
}

/// Whether a member is being filled, or would be as soon as the array is opened.
fn is_recovering(assembly: &Assembly) -> bool {
    assembly.slots.iter().any(|slot| matches!(slot, SlotState::Recovering { .. }))
        || !assembly.replacements.is_empty()
        || (assembly.is_degraded() && !assembly.spares.is_empty())
}

/// Refuses an array in the midst of something.
fn require_quiet(assembly: &Assembly, what: &str) -> Result<(), GrowProblem> {
    let has_redundancy = assembly.consistency != Consistency::None;
    let is_due = !assembly.is_clean || assembly.resync_offset_sectors != u64::MAX;
    if has_redundancy && (is_due || is_recovering(assembly)) {
        return Err(GrowProblem::Refused(format!(
            "a resync or recovery is due, during which {what} stays as it is; let `stripewise assemble` end it first"
        )));
    }
    Ok(())
}
