//! Why a command is refused.

use std::fmt;
use std::path::PathBuf;

use stripewise_engine::assembly::Difference;
use stripewise_engine::io::AdminReply;
use stripewise_engine::units::Slot;
use stripewise_format::add::AddError;
use stripewise_format::superblock_1::Unsupported;

use crate::error::HostError;

/// Why a command is refused. Nothing has changed then.
#[derive(Debug)]
pub enum ManageError {
    /// The array refuses it.
    Array(AdminReply),
    /// The array refuses it for a member's sake.
    Member(PathBuf, AdminReply),
    /// The array does not survive without the member.
    Last(PathBuf),
    /// A spare cannot fail; it can be removed.
    Spare(PathBuf),
    /// The write journal is not a member that others can do without.
    Journal(PathBuf),
    /// A member in use is removed after it is failed.
    NotFailed(PathBuf),
    /// What is to replace a member is no spare of the array.
    NoSuchSpare(PathBuf),
    /// What is to be replaced has no slot.
    NotInSlot(PathBuf),
    /// What is to replace a member has a slot itself, or is becoming one's.
    NotSpare(PathBuf),
    /// What is to be added is a member already.
    IsMember(PathBuf),
    /// The array's superblocks are not kept, so that nothing can come in or change.
    NoMetadata,
    /// An array under an overlay takes no new member.
    UnderOverlay,
    /// The device cannot be a member.
    Add(PathBuf, AddError),
    /// A former member cannot take its slot again.
    ReAdd(PathBuf, NotReAddable),
    /// What the path leads to is the array itself, or lies over it.
    Itself(PathBuf),
    /// Nothing answers at the path within so many seconds.
    Silent(PathBuf, u64),
    /// The file or device cannot be used.
    Host(HostError),
}

/// Why a device cannot take the slot again that it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReAddable {
    /// It has no superblock of this array.
    Stranger,
    /// Its superblock says otherwise what the array is.
    Differs(Difference),
    /// It left in the midst of a reshape.
    Reshaped,
    /// Its superblock has a feature that is not served.
    Unsupported(Unsupported),
    /// Another device of the array has its number.
    NumberTaken(u32),
    /// It held no slot when it left.
    NoSlot,
    /// Its slot has a member.
    Taken(Slot),
    /// Its bad-block log does not read.
    BadBlocks,
    /// The array has no bitmap that would say what it missed.
    NoBitmap,
    /// The bitmap does not reach back to when it left.
    TooOld {
        /// Its events.
        events: u64,
        /// The bitmap knows every change since these.
        cleared: u64,
    },
    /// Its own bitmap names places that the array's does not, so it was written to without the array; or does not read.
    WentItsWay,
}

impl fmt::Display for NotReAddable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger => f.write_str("it has no superblock of this array"),
            Self::Differs(Difference { field, found, right }) => {
                write!(f, "its superblock says that {field} is {found}; the array's says {right}")
            }
            Self::Reshaped => f.write_str("it left during a reshape"),
            Self::Unsupported(reason) => reason.fmt(f),
            Self::NumberTaken(number) => write!(f, "another device of the array has its number {number}"),
            Self::NoSlot => f.write_str("it held no slot when it left the array"),
            Self::Taken(slot) => write!(f, "its slot {slot} has another member"),
            Self::BadBlocks => f.write_str("its bad-block log cannot be read"),
            Self::NoBitmap => f.write_str("the array has no bitmap that would say what changed since"),
            Self::WentItsWay => f.write_str(
                "its own bitmap names places that the array's does not, so it was written to without the array",
            ),
            Self::TooOld { events, cleared } => {
                write!(f, "it left at event {events}, but the bitmap reaches back only to event {cleared}")
            }
        }
    }
}

impl fmt::Display for ManageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(reply) => reply.fmt(f),
            Self::Member(path, reply) => write!(f, "{}: {reply}", path.display()),
            Self::Last(path) => {
                write!(f, "{}: the array does not survive without it; add a spare first", path.display())
            }
            Self::Spare(path) => write!(f, "{}: is a spare; use remove", path.display()),
            Self::Journal(path) => write!(
                f,
                "{}: is the array's write journal; `stripewise grow --consistency-policy resync` removes it from an array that is not \
                 served",
                path.display()
            ),
            Self::NotFailed(path) => {
                write!(f, "{}: is in use; fail it first, or replace it", path.display())
            }
            Self::NoSuchSpare(path) => {
                write!(f, "{}: is not a spare of the array; add it with add-spare first", path.display())
            }
            Self::NotInSlot(path) => {
                write!(f, "{}: is a spare or a replacement; name the member to be replaced", path.display())
            }
            Self::NotSpare(path) => {
                write!(f, "{}: is in use; --with takes a spare of the array", path.display())
            }
            Self::IsMember(path) => {
                write!(f, "{}: is a member of the array; remove it first if it has failed", path.display())
            }
            Self::NoMetadata => {
                f.write_str("the array keeps no superblocks, so no member can be added or marked")
            }
            Self::UnderOverlay => {
                f.write_str("an array under an overlay takes no new member; manage the array itself")
            }
            Self::Add(path, error) => write!(f, "{}: {error}", path.display()),
            Self::ReAdd(path, why) => {
                write!(f, "{}: cannot be re-added: {why}; use add to make it a new member", path.display())
            }
            Self::Itself(path) => {
                write!(
                    f,
                    "{}: is this array itself, or lies on top of it; name another device",
                    path.display()
                )
            }
            Self::Silent(path, seconds) => write!(
                f,
                "{}: does not answer within {seconds} seconds; it may be this array itself, or lie on top of it (a drive \
                 that was asleep answers the next time)",
                path.display()
            ),
            Self::Host(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ManageError {}

impl From<HostError> for ManageError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}
