//! What happens to a served array, in words for who looks after it.

use std::fmt;
use std::path::{Path, PathBuf};

use stripewise_engine::io::{ArrayEvent, SyncAction};
use stripewise_engine::units::Slot;

use crate::report::MemberError;

/// Told of what happens to the array, on the thread that serves: it is to come back soon.
pub type Teller = dyn Fn(&ServeEvent) + Send + Sync;

/// Something that happened while an array was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServeEvent {
    /// The array has changed, or works by itself.
    Array {
        /// What happened.
        event: ArrayEvent,
        /// Where the member is that it happened to; none for memory, and where it concerns none.
        member: Option<PathBuf>,
        /// Slots whose members hold all of their content, when it is told: it may have happened to several at once.
        working: usize,
        /// Slots of the array.
        slots: usize,
        /// More is lost than the level survives.
        is_lost: bool,
        /// The error for which it happened to the member; none where it was a command.
        cause: Option<MemberError>,
        /// Of a check or repair that is done, the sectors that disagreed (md's `mismatch_cnt`); else 0.
        mismatch_sectors: u64,
    },
    /// A member of an array without redundancy had its first error. It stays in use, and is not told of again.
    MemberError {
        /// Its slot.
        slot: Slot,
        /// Where it is; none for memory.
        member: Option<PathBuf>,
        /// What it did not do.
        error: MemberError,
    },
    /// The server unmounted its folder though it was in use.
    MountInUse {
        /// The folder.
        folder: PathBuf,
    },
}

impl fmt::Display for ServeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array { event, cause, member, working, slots, is_lost, mismatch_sectors } => {
                let told = Told {
                    cause: Cause(*cause),
                    member: member.as_deref(),
                    working: *working,
                    slots: *slots,
                    is_lost: *is_lost,
                    mismatch_sectors: *mismatch_sectors,
                };
                told.say(*event, f)
            }
            Self::MemberError { slot, member, error } => {
                who(f, *slot, member.as_deref())?;
                write!(
                    f,
                    " had an error and stays in use ({error}): what meets it fails; its further errors are not told of"
                )
            }
            Self::MountInUse { folder } => {
                write!(
                    f,
                    "{} was in use when the server ended: programs that use it get errors from now on",
                    folder.display()
                )
            }
        }
    }
}

/// A member by its path, or else by its slot.
fn who(f: &mut fmt::Formatter<'_>, slot: Slot, member: Option<&Path>) -> fmt::Result {
    match member {
        Some(path) => write!(f, "{}", path.display()),
        None => write!(f, "the member of slot {slot}"),
    }
}

/// Why, in brackets; nothing where it was no error.
struct Cause(Option<MemberError>);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |error| write!(f, " ({error})"))
    }
}

/// What belongs to an event of the array.
struct Told<'a> {
    cause: Cause,
    member: Option<&'a Path>,
    working: usize,
    slots: usize,
    is_lost: bool,
    mismatch_sectors: u64,
}

impl Told<'_> {
    fn say(&self, event: ArrayEvent, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, member, working, slots, is_lost, mismatch_sectors } = self;
        let who = |f: &mut fmt::Formatter<'_>, slot| who(f, slot, *member);
        match event {
            ArrayEvent::MemberFailed { slot } => {
                who(f, slot)?;
                let array = if *is_lost { "has failed" } else { "is degraded" };
                write!(
                    f,
                    " failed and is out of use{cause}: the array {array} ({working} of {slots} members)"
                )
            }
            ArrayEvent::ArrayFailed => {
                f.write_str("more members are lost than the array survives: writes are refused from now on")
            }
            ArrayEvent::JournalFailed => write!(
                f,
                "the write journal failed{cause}: writes are refused until it answers again, or `stripewise assemble --force` gives it up",
            ),
            ArrayEvent::LastCopyKept { slot } => {
                who(f, slot)?;
                write!(f, " failed{cause} but is still read: it has data that no other member has")
            }
            ArrayEvent::MemberInSync { slot } => {
                who(f, slot)?;
                write!(f, " holds all of its content and is in use ({working} of {slots} members)")
            }
            ArrayEvent::ReplacementFailed { slot } => {
                write!(f, "the replacement of the member of slot {slot} failed and is out of use{cause}")
            }
            ArrayEvent::ReadErrorCorrected { slot, range } => {
                who(f, slot)?;
                let (start, count) = (range.start, range.count);
                write!(f, ": {count} sectors from {start} on could not be read and were rewritten")
            }
            ArrayEvent::SyncStarted(action) => write!(f, "{} begins", name(action)),
            ArrayEvent::SyncDone(action) if *mismatch_sectors > 0 => {
                write!(f, "{} is done: {mismatch_sectors} sectors disagreed", name(action))
            }
            ArrayEvent::SyncDone(action) => write!(f, "{} is done", name(action)),
            ArrayEvent::SyncInterrupted(action) => write!(f, "{} is interrupted", name(action)),
            ArrayEvent::SyncFailed { action, range } => {
                let (start, count) = (range.start, range.count);
                write!(f, "{} stopped: {count} sectors from {start} on cannot be recovered", name(action))
            }
        }
    }
}

/// The work as a noun.
fn name(action: SyncAction) -> &'static str {
    match action {
        SyncAction::Idle | SyncAction::Frozen => "rest",
        SyncAction::Resync => "a resync",
        SyncAction::Recover => "a recovery",
        SyncAction::Check => "a check",
        SyncAction::Repair | SyncAction::RepairLocated => "a repair",
    }
}
