//! What a run does: an array, and steps. Plain data, that can be cut down.

use stripewise_engine::io::{Flags, Op, SyncAction};
use stripewise_engine::units::{SectorRange, Slot};

use super::array::ArrayPlan;
use crate::faults::Fault;

/// A step of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for a request, then answer so many actions.
    Request {
        /// What.
        op: Op,
        /// Which sectors, cut to the array's.
        range: SectorRange,
        /// What else.
        flags: Flags,
        /// Answers afterwards.
        answers: u16,
    },
    /// Something goes wrong.
    Fault(Fault),
    /// An administrator fails the slot's member, if the array survives it.
    Fail(Slot),
    /// The slot's member dies, though it may be one too many; the power stays on.
    Kill(Slot),
    /// A spare is to replace the slot's member.
    Replace(Slot),
    /// A device that left the array, by number among them, comes back: with what it held where that will do, else as
    /// a spare.
    BringBack(u16),
    /// The array is told to check, to repair, to rest, to go on.
    Sync(SyncAction),
    /// Bounds of the speed of the array's own work.
    Speed {
        /// Not slowed below this.
        min_kib: u32,
        /// Never faster.
        max_kib: u32,
    },
    /// A bit flips at rest, where nothing else is wrong, and is checked for and repaired.
    Flip {
        /// Of which slot.
        slot: Slot,
        /// In which sector of the member's data.
        sector: u64,
        /// Which bit of the sector.
        bit: u64,
        /// How it is repaired.
        repair: SyncAction,
    },
    /// The array is stopped, loses power and all that is not durable, and starts again.
    Stop,
    /// Answer so many actions.
    Answers(u16),
    /// Answer until the array's own work is at its end.
    Settle,
    /// Answer until nothing is under way.
    Drain,
    /// Let time pass without requests, up to so many deadlines.
    Idle(u8),
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Of the order of answers and of all that is left to chance.
    pub seed: u64,
    /// The array.
    pub array: ArrayPlan,
    /// What happens, in this order. After a power cut the array starts anew.
    pub steps: Vec<Step>,
}
