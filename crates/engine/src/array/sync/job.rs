//! The units of the array's own work, and what it finds.

use crate::geometry::{Geometry, Shape};
use crate::io::Verdict;
use crate::policy::{Barrier, Policy};
use crate::units::{SectorRange, Slot};

/// Most jobs at once, whatever [room](super::room) there is.
pub(super) const JOBS_MAX: usize = 512;
/// Most sectors of a member that one job works on.
pub(crate) const JOB_SECTORS_MAX: u64 = 256;
/// The same where requests and the array's own work take turns (md's `RESYNC_BLOCK_SIZE`).
pub(crate) const TURN_SECTORS: u64 = 128;
/// Whether requests and the array's own work take turns.
pub(crate) fn takes_turns(geometry: &Geometry, policy: &Policy) -> bool {
    match geometry.shape() {
        Shape::Parity(_) => false,
        Shape::Raid10(_) => policy.sync.barrier != Barrier::None,
        _ => policy.sync.barrier == Barrier::All,
    }
}

/// Located mismatches that are kept.
pub const MISMATCHES_KEPT: usize = 64;

/// What a job does with its rows, or with its range of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// Writes what recovering members and replacements lack.
    Fill,
    /// Compares and counts.
    Check,
    /// Compares, and rewrites parity, or the copies that differ from the first.
    Repair,
    /// Compares, and rewrites the block that is located.
    RepairLocated,
    /// Rewrites what a member could not read, and reads it back.
    Rewrite,
}

/// A job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    /// Only this slot is written to.
    pub(crate) slot: Option<Slot>,
}

/// A place where redundancy disagrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) mismatch: Mismatch,
    pub(crate) sectors: u64,
}

/// Where redundancy disagrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Sectors of the array: of the located block, else of all the data that parity stands for.
    pub array: SectorRange,
    /// Sectors of the members.
    pub member: SectorRange,
    /// The slot that P and Q show to be wrong.
    pub slot: Option<Slot>,
    /// What disagrees.
    pub verdict: Verdict,
    /// Too few members give it to compare, or to make it right.
    pub is_unread: bool,
}
