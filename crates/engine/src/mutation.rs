//! Deliberately broken variants of the engine, to find out whether the checker notices.
//!
//! Without the feature `mutations` none can be chosen and every question is answered no at compile time.

/// A way in which the engine is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The bitmap's pages are not written before the writes they stand for.
    SkipBitmapSet,
    /// A flush is acknowledged without asking the members.
    AcknowledgeBeforeFlush,
    /// The blocks of two data chunks change places in the computation of Q.
    WrongQCoefficient,
    /// Overlapping writes go on side by side.
    DropOverlapLock,
    /// Rows of a stripe are worked on by several operations at once.
    DropRowOwnership,
    /// Pages whose read failed count as read.
    RecoverPastFailedRead,
    /// A member's failure is not recorded.
    SkipSuperblockOnFailure,
    /// Writes are acknowledged before a member's failure is recorded.
    AcknowledgeBeforeFailureRecorded,
    /// The array is said to be clean, and bits are cleared, without a flush of the members.
    MarkCleanWithoutFlush,
    /// Writes start before the members say that the array is active.
    WriteBeforeActive,
    /// Parity is computed and not written.
    SkipParityWrite,
    /// Forced unit access is not passed on to the members.
    ForgetForcedUnitAccess,
    /// A lost block is written as if it had been read, without being rebuilt.
    SkipRecover,
    /// Pages of the stripe cache stay valid when members get other bytes.
    KeepStalePages,
    /// A recovery passes over a row behind each job.
    SkipRowInRecovery,
    /// Sectors count as recovered once their jobs have begun.
    RecoveredWhenBegun,
    /// A replacement takes the slot when its filling is interrupted.
    SwapReplacementEarly,
    /// A member that comes back misses nothing.
    ReAddWithoutBitmap,
    /// Two data blocks change places where lost ones are rebuilt.
    WrongCoefficientInRecovery,
    /// Writes do not go to the member that is being filled to replace the slot's.
    ForgetReplacementWrite,
    /// Bits are cleared although a member misses what they stand for.
    ClearBitsWhileDegraded,
    /// Progress of recoveries and resyncs is recorded without a flush of the members.
    RecordWithoutFlush,
    /// Copies are made to agree with the last one, though the first is read.
    SyncFromLastCopy,
    /// A check counts what disagrees under the next stripe.
    CheckWithoutPlace,
    /// A located repair rewrites the parities over the wrong block.
    RepairLocatedAsRepair,
    /// An array that lost too much goes on taking writes.
    TakeWritesWhenFailed,
    /// The last of the lost ranges is not named.
    ForgetLostRange,
    /// Writes are acknowledged before it is recorded that a replacement has the slot.
    AcknowledgeBeforeReplacementRecorded,
    /// A recovery goes past rows that cannot be had as if it had filled them.
    PassLostRows,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 29] = [
        Self::SkipBitmapSet,
        Self::AcknowledgeBeforeFlush,
        Self::WrongQCoefficient,
        Self::DropOverlapLock,
        Self::DropRowOwnership,
        Self::RecoverPastFailedRead,
        Self::SkipSuperblockOnFailure,
        Self::AcknowledgeBeforeFailureRecorded,
        Self::MarkCleanWithoutFlush,
        Self::WriteBeforeActive,
        Self::SkipParityWrite,
        Self::ForgetForcedUnitAccess,
        Self::SkipRecover,
        Self::KeepStalePages,
        Self::SkipRowInRecovery,
        Self::RecoveredWhenBegun,
        Self::SwapReplacementEarly,
        Self::ReAddWithoutBitmap,
        Self::WrongCoefficientInRecovery,
        Self::ForgetReplacementWrite,
        Self::ClearBitsWhileDegraded,
        Self::RecordWithoutFlush,
        Self::SyncFromLastCopy,
        Self::CheckWithoutPlace,
        Self::RepairLocatedAsRepair,
        Self::TakeWritesWhenFailed,
        Self::ForgetLostRange,
        Self::AcknowledgeBeforeReplacementRecorded,
        Self::PassLostRows,
    ];
}

#[cfg(feature = "mutations")]
mod chosen {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static CHOSEN: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Breaks the engines of this thread in this way, or mends them.
    pub fn choose(mutation: Option<Mutation>) {
        CHOSEN.set(mutation);
    }

    pub(crate) fn is(mutation: Mutation) -> bool {
        CHOSEN.get() == Some(mutation)
    }
}

#[cfg(feature = "mutations")]
pub use chosen::choose;
#[cfg(feature = "mutations")]
pub(crate) use chosen::is;

/// Whether the engine is broken in this way.
#[cfg(not(feature = "mutations"))]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}
