//! Why an array cannot be mounted.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::HostError;

/// Why a folder cannot be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountProblem {
    /// It does not exist.
    NoFolder,
    /// It is something else than a folder.
    NotAFolder,
    /// There are files in it.
    NotEmpty,
    /// A file that the server is to have lies in it.
    Hides {
        /// The file.
        file: PathBuf,
    },
    /// It is mounted, by a server that is gone.
    Stale,
    /// The user may not look into it.
    NoPermission,
    /// This system has no FUSE.
    NoDevice,
    /// The user may not open the device.
    DevicePermission,
    /// The user may not mount.
    NotPermitted,
    /// The user may not mount, and the program that does it for them is not there.
    NoHelper,
    /// The program that mounts for users did not.
    Helper {
        /// What it said.
        said: String,
    },
    /// Anything else the system says.
    System {
        /// Its error number.
        errno: i32,
    },
}

impl MountProblem {
    /// What an error of looking at the folder means.
    pub(super) fn from_folder(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT) => Self::NoFolder,
            Some(libc::ENOTDIR) => Self::NotAFolder,
            Some(libc::ENOTCONN | libc::ECONNABORTED) => Self::Stale,
            Some(libc::EACCES | libc::EPERM) => Self::NoPermission,
            errno => Self::System { errno: errno.unwrap_or(libc::EINVAL) },
        }
    }

    /// What an error of opening the device means.
    pub(super) fn from_device(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Self::NoDevice,
            Some(libc::EACCES | libc::EPERM) => Self::DevicePermission,
            errno => Self::System { errno: errno.unwrap_or(libc::EIO) },
        }
    }

    /// What an error of mounting means.
    pub(super) fn from_mount(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted,
            Some(libc::ENODEV) => Self::NoDevice,
            errno => Self::System { errno: errno.unwrap_or(libc::EIO) },
        }
    }

    pub(super) fn at(self, folder: &Path) -> HostError {
        HostError::Mount { at: folder.to_owned(), problem: self }
    }
}

impl fmt::Display for MountProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFolder => f.write_str("no such folder; create it first, or correct the path"),
            Self::NotAFolder => f.write_str("is not a folder; --mount takes an empty folder"),
            Self::NotEmpty => {
                f.write_str("is not empty, and a mount would hide its files; choose an empty folder")
            }
            Self::Hides { file } => {
                write!(f, "the mount would hide {}, which is to be in this folder; choose another place", file.display())
            }
            Self::Stale => {
                f.write_str("is still mounted by a server that is gone; unmount it first (umount, fusermount3 -u)")
            }
            Self::NoPermission => f.write_str("permission denied; choose a folder of your own"),
            Self::NoDevice => f.write_str(
                "cannot be mounted: this system has no FUSE; load the module (modprobe fuse) or give the container \
                 /dev/fuse, or serve at a --socket",
            ),
            Self::DevicePermission => {
                f.write_str("cannot be mounted: this user may not open /dev/fuse; run as root, or serve at a --socket")
            }
            Self::NotPermitted => f.write_str("cannot be mounted by this user; run as root, or serve at a --socket"),
            Self::NoHelper => f.write_str(
                "cannot be mounted by this user without fusermount3; install fuse3, run as root, or serve at a --socket",
            ),
            Self::Helper { said } if said.is_empty() => {
                f.write_str("cannot be mounted by this user: fusermount3 failed; run as root, or serve at a --socket")
            }
            Self::Helper { said } => {
                write!(f, "cannot be mounted by this user ({said}); run as root, or serve at a --socket")
            }
            Self::System { errno } => {
                write!(f, "cannot be mounted: {}", io::Error::from_raw_os_error(*errno))
            }
        }
    }
}
