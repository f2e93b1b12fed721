//! What happens to a served array, in words for who looks after it.

use std::fmt;
use std::path::PathBuf;

use stripewise_engine::io::{ArrayEvent, SyncAction};

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
        /// Slots whose members hold all of their content.
        working: usize,
        /// Slots of the array.
        slots: usize,
        /// More is lost than the level survives.
        is_lost: bool,
        /// Of a check or repair that is done, the sectors that disagreed (md's `mismatch_cnt`); else 0.
        mismatch_sectors: u64,
    },
    /// The server unmounted its folder though it was in use.
    MountInUse {
        /// The folder.
        folder: PathBuf,
    },
}

impl fmt::Display for ServeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (event, member, working, slots, is_lost, mismatch_sectors) = match self {
            Self::Array { event, member, working, slots, is_lost, mismatch_sectors } => {
                (event, member, working, slots, is_lost, *mismatch_sectors)
            }
            Self::MountInUse { folder } => {
                return write!(
                    f,
                    "{} was in use when the server ended: programs that use it get errors from now on",
                    folder.display()
                );
            }
        };
        let who = |f: &mut fmt::Formatter<'_>, slot| match member {
            Some(path) => path.display().fmt(f),
            None => write!(f, "the member of slot {slot}"),
        };
        match event {
            ArrayEvent::MemberFailed { slot } => {
                who(f, *slot)?;
                let array = if *is_lost { "has failed" } else { "is degraded" };
                write!(f, " failed and is out of use: the array {array} ({working} of {slots} members)")
            }
            ArrayEvent::ArrayFailed => {
                f.write_str("more members are lost than the array survives: writes are refused from now on")
            }
            ArrayEvent::JournalFailed => f.write_str(
                "the write journal failed: writes are refused until it answers again, or `stripewise assemble --force` gives it up",
            ),
            ArrayEvent::LastCopyKept { slot } => {
                who(f, *slot)?;
                f.write_str(" failed but is still read: it has data that no other member has")
            }
            ArrayEvent::MemberInSync { slot } => {
                who(f, *slot)?;
                write!(f, " holds all of its content and is in use ({working} of {slots} members)")
            }
            ArrayEvent::ReplacementFailed { slot } => {
                write!(f, "the replacement of the member of slot {slot} failed and is out of use")
            }
            ArrayEvent::ReadErrorCorrected { slot, range } => {
                who(f, *slot)?;
                let (start, count) = (range.start, range.count);
                write!(f, ": {count} sectors from {start} on could not be read and were rewritten")
            }
            ArrayEvent::SyncStarted(action) => write!(f, "{} begins", name(*action)),
            ArrayEvent::SyncDone(action) if mismatch_sectors > 0 => {
                write!(f, "{} is done: {mismatch_sectors} sectors disagreed", name(*action))
            }
            ArrayEvent::SyncDone(action) => write!(f, "{} is done", name(*action)),
            ArrayEvent::SyncInterrupted(action) => write!(f, "{} is interrupted", name(*action)),
            ArrayEvent::SyncFailed { action, range } => {
                let (start, count) = (range.start, range.count);
                write!(f, "{} stopped: {count} sectors from {start} on cannot be recovered", name(*action))
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
