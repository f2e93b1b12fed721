//! What a run can end in.

use stripewise_engine::array::sync::Mismatch;
use stripewise_engine::io::{IoError, Request, SyncAction};
use stripewise_engine::units::{MemberIndex, Slot};

use super::oracle::Wrong;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A read returned what it must not.
    Read(Request, Wrong),
    /// After a power cut a member's copy of a sector is neither durable nor newer.
    Survived(Slot, Wrong),
    /// After recovery a copy, or parity, disagrees with the rest of its stripe.
    NotRedundant {
        /// Whose.
        slot: Slot,
        /// The member's sector.
        sector: u64,
    },
    /// After a power cut stripes disagree that nothing says may disagree.
    NotMarked {
        /// Whose.
        slot: Slot,
        /// The member's sector.
        sector: u64,
    },
    /// A request failed although enough members work.
    Refused(Request, IoError),
    /// The bytes of a member's write changed while it was under way.
    BytesChanged {
        /// Which member.
        member: MemberIndex,
        /// The first sector of the write.
        sector: u64,
    },
    /// An I/O beyond the member's end, or without bytes for all of its sectors.
    BadIo {
        /// Which member.
        member: MemberIndex,
        /// The first sector.
        sector: u64,
        /// How many.
        count: u64,
    },
    /// Requests, or a resync, wait for what never comes.
    Stuck(String),
    /// A member was taken out of use that nothing was wrong with.
    FailedWithoutCause(Slot),
    /// The array's own work ended early though nothing was in its way.
    GaveUp(SyncAction),
    /// A slot still lacks content though nothing was in the way.
    NotRecovered(Slot),
    /// A member is listed not to hold a sector that nobody refused.
    ListedWithoutCause {
        /// The slot of the member.
        slot: Slot,
        /// The member's sector.
        sector: u64,
    },
    /// A check counted sectors although all agree.
    FalseMismatch(u64),
    /// A check did not find the bit that was flipped, or found it elsewhere.
    WrongPlace {
        /// The slot of the bit.
        slot: Slot,
        /// The member's sector.
        sector: u64,
        /// What the check found.
        found: Vec<Mismatch>,
    },
    /// A repair did not bring back the bytes that redundancy can tell.
    NotMended {
        /// The slot of the bit.
        slot: Slot,
        /// The member's sector.
        sector: u64,
    },
    /// An array that lost too much takes writes.
    TakesWrites,
    /// An array that lost too much says of a flush that it was done.
    TakesFlush,
    /// An array that lost too much names what can be had, or does not name what cannot.
    LostRanges {
        /// The array's sector.
        sector: u64,
        /// Whether it is named.
        named: bool,
    },
    /// What survived cannot be started.
    NotStarted(String),
    /// The engine contradicted itself.
    Panicked(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(request, wrong) => write!(
                f,
                "read of {} sectors from {}: sector {} holds {}, allowed {:?}",
                request.range.count, request.range.start, wrong.sector, wrong.found, wrong.allowed
            ),
            Self::Survived(slot, wrong) => write!(
                f,
                "after the power cut slot {slot} holds {} in array sector {}, allowed {:?}",
                wrong.found, wrong.sector, wrong.allowed
            ),
            Self::NotRedundant { slot, sector } => {
                write!(f, "sector {sector} of slot {slot} disagrees with the rest of its stripe")
            }
            Self::NotMarked { slot, sector } => write!(
                f,
                "sector {sector} of slot {slot} disagrees with the rest of its stripe, and neither superblock nor \
                 bitmap say that it may"
            ),
            Self::Refused(request, error) => write!(
                f,
                "{:?} of {} sectors from {} failed though enough members work: {error}",
                request.op, request.range.count, request.range.start
            ),
            Self::BytesChanged { member, sector } => {
                write!(f, "bytes changed under a write to member {member}, sector {sector}")
            }
            Self::BadIo { member, sector, count } => {
                write!(f, "I/O of {count} sectors from {sector} does not fit member {member} or its bytes")
            }
            Self::Stuck(what) => write!(f, "nothing goes on: {what}"),
            Self::FailedWithoutCause(slot) => {
                write!(f, "the member of slot {slot} was failed though nothing was wrong with it")
            }
            Self::GaveUp(action) => write!(f, "{action:?} ended early though nothing was in its way"),
            Self::NotRecovered(slot) => write!(f, "slot {slot} lacks content though nothing was in the way"),
            Self::ListedWithoutCause { slot, sector } => {
                write!(f, "sector {sector} of slot {slot} is listed as a bad block, and nobody refused it")
            }
            Self::FalseMismatch(sectors) => write!(f, "a check counted {sectors} sectors although all agree"),
            Self::WrongPlace { slot, sector, found } => {
                write!(f, "a bit of sector {sector} of slot {slot} was flipped; the check found {found:?}")
            }
            Self::NotMended { slot, sector } => {
                write!(
                    f,
                    "sector {sector} of slot {slot} was not repaired though redundancy tells its content"
                )
            }
            Self::TakesFlush => f.write_str("an array that lost too much said of a flush that it was done"),
            Self::TakesWrites => f.write_str("an array that lost too much took a write"),
            Self::LostRanges { sector, named } => {
                let (can, is) = if *named { ("can", "is") } else { ("cannot", "is not") };
                write!(f, "sector {sector} {can} be had and {is} named among the lost")
            }
            Self::NotStarted(why) => write!(f, "the array does not start from what survived: {why}"),
            Self::Panicked(message) => write!(f, "panic: {message}"),
        }
    }
}
