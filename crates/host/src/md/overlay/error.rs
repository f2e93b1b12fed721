//! What can be wrong with an overlay.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{HostError, is_of_path};

/// Why an overlay cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverlayProblem {
    /// Another program uses it.
    Busy,
    /// It is something else.
    NotAnOverlay,
    /// It was made by a later program.
    Version {
        /// Its version.
        found: u32,
        /// The version known here.
        known: u32,
    },
    /// A record is not what was written.
    Damaged {
        /// Which record.
        record: String,
        /// What is wrong with it.
        why: String,
    },
    /// A member has not the size it had.
    SizeChanged {
        /// The member.
        member: PathBuf,
        /// Its size when it was added.
        was_bytes: u64,
        /// Its size now.
        is_bytes: u64,
    },
    /// A member was written to without the overlay.
    MemberWritten {
        /// The member.
        member: PathBuf,
    },
    /// No more members fit the table.
    Full {
        /// How many there may be.
        most: usize,
    },
    /// A member's path is too long for the table.
    LongPath {
        /// Its length.
        bytes: usize,
        /// The longest possible.
        most: usize,
    },
    /// It holds data of an array, and another is to be created in it.
    HasData,
    /// It cannot be made or opened at this path.
    Path {
        /// The system's error number.
        errno: i32,
    },
    /// Anything else the system says.
    System {
        /// Its error number.
        errno: i32,
    },
}

impl OverlayProblem {
    pub(super) fn from_io(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EBUSY) => Self::Busy,
            Some(errno) if is_of_path(error) => Self::Path { errno },
            Some(errno) => Self::System { errno },
            None => Self::Damaged { record: "a region".to_owned(), why: error.to_string() },
        }
    }

    pub(super) fn at(self, path: &Path) -> HostError {
        HostError::Overlay { path: path.to_owned(), problem: self }
    }
}

impl fmt::Display for OverlayProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the overlay is in use by another program; wait for its end, or name another file"),
            Self::NotAnOverlay => f.write_str("exists and is not an overlay; name a new file or an overlay"),
            Self::Version { found, known } => {
                write!(f, "the overlay is of version {found}, this program knows version {known}; use the program that made it")
            }
            Self::Damaged { record, why } => {
                write!(
                    f,
                    "the overlay is damaged: {record}: {why}; remove it to start from the members again"
                )
            }
            Self::SizeChanged { member, was_bytes, is_bytes } => write!(
                f,
                "{} had {was_bytes} bytes when it was added to this overlay and has {is_bytes} now; name a new overlay",
                member.display()
            ),
            Self::MemberWritten { member } => write!(
                f,
                "{} was written to after it was added to this overlay, so that the overlay no longer fits it; name a new overlay",
                member.display()
            ),
            Self::Full { most } => write!(f, "the overlay has {most} members, the most it can have"),
            Self::LongPath { bytes, most } => {
                write!(f, "a member's path of {bytes} bytes is too long; at most {most} fit")
            }
            Self::HasData => f.write_str(
                "the overlay holds data that were written to its array; name a new file, or discard them with --force",
            ),
            Self::Path { errno: libc::ENOENT } => f.write_str(
                "there is no such overlay; `stripewise assemble --overlay` or `serve --overlay` makes one, in a folder that exists",
            ),
            Self::Path { errno } => {
                write!(f, "{}; name a file in a folder that you may write to", io::Error::from_raw_os_error(*errno))
            }
            Self::System { errno } => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
        }
    }
}
