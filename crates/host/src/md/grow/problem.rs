//! Why an array is left as it is.

use std::fmt;
use std::path::PathBuf;

use stripewise_format::grow::{GrowError, LevelError, ReshapeError, SizeError, SlotsError};

use super::super::assemble::AssembleError;
use super::super::create::WriteError;
use crate::error::HostError;

/// Why an array is left as it is.
#[derive(Debug)]
pub enum GrowProblem {
    /// Its members cannot be used, or do not make an array.
    Assemble(AssembleError),
    /// It cannot be changed as it is; what it would need to be.
    Refused(String),
    /// It can have no such bitmap, or no partial parity log.
    Bitmap(GrowError),
    /// A member can have none.
    Member(PathBuf, GrowError),
    /// It cannot use so much of its members.
    Size(SizeError),
    /// A member has not so much.
    MemberSize(PathBuf, SizeError),
    /// It cannot have so many slots.
    Slots(SlotsError),
    /// It cannot have that level.
    Level(LevelError),
    /// It cannot be reshaped so.
    Reshape(ReshapeError),
    /// A member has no room for that.
    MemberReshape(PathBuf, ReshapeError),
    /// A reshape that is under way came no further, for this member if it is named.
    Reshaping(Option<PathBuf>, String),
    /// Writing failed.
    Write(WriteError),
}

impl GrowProblem {
    pub(super) fn refused(why: &str) -> Self {
        Self::Refused(why.to_owned())
    }
}

impl fmt::Display for GrowProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Assemble(error) => error.fmt(f),
            Self::Refused(why) => f.write_str(why),
            Self::Bitmap(error) => error.fmt(f),
            Self::Member(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Size(error) => error.fmt(f),
            Self::MemberSize(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Slots(error) => error.fmt(f),
            Self::Level(error) => error.fmt(f),
            Self::Reshape(error) => error.fmt(f),
            Self::MemberReshape(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Reshaping(path, why) => {
                if let Some(path) = path {
                    write!(f, "{}: ", path.display())?;
                }
                write!(
                    f,
                    "{why}; the array is being reshaped, and what was moved is recorded: `stripewise grow --continue` goes on (with --run \
                     without a member)"
                )
            }
            Self::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GrowProblem {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Assemble(error) => Some(error),
            Self::Write(error) => Some(error),
            Self::Refused(_)
            | Self::Bitmap(_)
            | Self::Member(..)
            | Self::Size(_)
            | Self::MemberSize(..)
            | Self::Slots(_)
            | Self::Level(_)
            | Self::Reshape(_)
            | Self::MemberReshape(..)
            | Self::Reshaping(..) => None,
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
