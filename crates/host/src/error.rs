//! What can go wrong outside the engine, and the one map from errno to the engine's errors.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use stripewise_engine::geometry::GeometryError;
use stripewise_engine::io::IoError;
use stripewise_engine::stack::StackError;
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_engine::volume::VolumeError;

use crate::fuse::MountProblem;
use crate::md::overlay::OverlayProblem;

/// Why an array could not be opened or run.
#[derive(Debug)]
pub enum HostError {
    /// The members cannot form the array.
    Geometry(GeometryError),
    /// The engine refuses the configuration.
    Volume(VolumeError),
    /// There are fewer members than the array has.
    MemberCount {
        /// Members given.
        given: usize,
        /// Members of the array, with its spares, replacements and write journal.
        needed: usize,
    },
    /// A member cannot be used.
    Member {
        /// Its path.
        path: PathBuf,
        /// Why, and what would be right.
        problem: MemberProblem,
    },
    /// A served array was closed to be changed, and could not be flushed or opened again.
    Reopen {
        /// Why.
        why: String,
    },
    /// `io_uring` cannot be set up.
    IoUring {
        /// The system's error.
        errno: i32,
    },
    /// Memory for buffers or memory members is not to be had.
    NoMemory {
        /// What it was for.
        purpose: &'static str,
        /// How much.
        bytes: u64,
    },
    /// The number of shards is zero or above the limit.
    Shards {
        /// Shards asked for.
        given: u32,
        /// The most there may be.
        most: u32,
    },
    /// An array that keeps superblocks is asked to run on several shards.
    ShardsWithMetadata {
        /// Shards asked for.
        given: u32,
    },
    /// An array whose members change, or that works by itself, is asked to run on several shards.
    ShardsWithOwnWork {
        /// Shards asked for.
        given: u32,
    },
    /// A layer above the array is not possible.
    Stack(StackError),
    /// There are layers above the array already.
    Raised,
    /// A page cache is asked for above several shards.
    ShardsWithCache {
        /// Shards of the array.
        given: u32,
    },
    /// A LUKS container is to be served by several shards, whose parts of the array would end within its encrypted sectors.
    ShardsWithCrypt {
        /// Shards of the array.
        given: u32,
        /// The array's sector that the encrypted sectors begin at.
        start_sector: u64,
        /// Sectors of the array in an encrypted one.
        unit_sectors: u64,
    },
    /// More workloads than shards.
    Workloads {
        /// Workloads given.
        given: usize,
        /// Shards of the array.
        shards: usize,
    },
    /// A buffer's length is not a multiple of a sector.
    Unaligned {
        /// The length.
        bytes: usize,
    },
    /// A file descriptor for waking a shard is not to be had.
    Wake {
        /// The system's error.
        errno: i32,
    },
    /// The array answered a request with an error.
    Io(IoError),
    /// A caller's code panicked while the array was in the middle of its work, so that it can only be dropped.
    Panicked,
    /// An overlay cannot be used.
    Overlay {
        /// Its path.
        path: PathBuf,
        /// Why, and what would be right.
        problem: OverlayProblem,
    },
    /// An array cannot be mounted.
    Mount {
        /// The folder.
        at: PathBuf,
        /// Why, and what would be right.
        problem: MountProblem,
    },
    /// A server cannot listen.
    Listen {
        /// The path or address.
        at: String,
        /// Why, and what would be right.
        problem: ListenProblem,
    },
}

/// Why a server cannot listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenProblem {
    /// Neither a path nor an address is given.
    Nowhere,
    /// Another server answers there.
    InUse,
    /// The path is of something other than a socket.
    NotASocket,
    /// The socket's folder does not exist.
    NoFolder,
    /// Permission is denied.
    NoPermission,
    /// The address is not one of this machine's.
    NotHere,
    /// The path is longer than a socket's may be.
    LongPath,
    /// A name or description is longer than the protocol allows.
    LongName {
        /// Its length.
        bytes: usize,
        /// The longest possible.
        most: usize,
    },
    /// Anything else the system says.
    System {
        /// Its error number.
        errno: i32,
    },
}

impl ListenProblem {
    /// What an error of listening means.
    pub(crate) fn from_io(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EADDRINUSE) => Self::InUse,
            Some(libc::EADDRNOTAVAIL) => Self::NotHere,
            Some(libc::ENOENT | libc::ENOTDIR) => Self::NoFolder,
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => Self::NoPermission,
            Some(errno) => Self::System { errno },
            // The standard library refuses such paths before the system sees them.
            None => Self::LongPath,
        }
    }

    pub(crate) fn at(self, at: impl fmt::Display) -> HostError {
        HostError::Listen { at: at.to_string(), problem: self }
    }
}

impl fmt::Display for ListenProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => {
                f.write_str("has no socket and no mount; give a path or an address to listen at, or a folder")
            }
            Self::InUse => f.write_str("another server answers here; stop it, or choose another place"),
            Self::NotASocket => f.write_str("exists and is not a socket; choose another path"),
            Self::NoFolder => f.write_str("no such folder; create it, or choose another path"),
            Self::NoPermission => f.write_str("permission denied; choose a folder or port that you may use"),
            Self::NotHere => f.write_str("is not an address of this machine; use one of its own"),
            Self::LongPath => f.write_str("the path is too long for a socket, or has a zero byte"),
            Self::LongName { bytes, most } => {
                write!(f, "a name or description has {bytes} bytes; NBD allows {most}")
            }
            Self::System { errno } => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

/// Why a member cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberProblem {
    /// There is no such file.
    NotFound,
    /// Permission is denied.
    NoPermission,
    /// The file or its file system is read-only.
    ReadOnly,
    /// The file system has no room.
    NoRoom {
        /// Bytes needed.
        bytes: u64,
    },
    /// The file is too small.
    TooSmall {
        /// Its size in bytes.
        have: u64,
        /// The size needed in bytes.
        need: u64,
    },
    /// The size is not a multiple of a sector.
    NotSectors {
        /// Its size in bytes.
        bytes: u64,
    },
    /// Neither a regular file nor a block device.
    WrongKind,
    /// A block device is not written to unless the caller says so.
    NeedsDestroy,
    /// The block device is mounted or held by another user.
    Busy,
    /// The kernel has made a block device of the file.
    BehindLoopDevice {
        /// Its name below `/dev`.
        device: String,
    },
    /// Another stripewise has the file in use.
    Locked,
    /// The file holds something that would be overwritten.
    Holds {
        /// What.
        what: String,
    },
    /// The same file is given twice.
    Twice,
    /// A file of that name exists.
    Exists,
    /// Its partial parity log cannot be read or emptied.
    Log(IoError),
    /// It cannot be read or written while a write journal is followed.
    Journal(IoError),
    /// Anything else the system says.
    System {
        /// Its error number.
        errno: i32,
    },
}

impl MemberProblem {
    /// What an error of opening or sizing a file of `bytes` means.
    pub(crate) fn from_io(error: &io::Error, bytes: u64) -> Self {
        match error.raw_os_error().unwrap_or(libc::EIO) {
            libc::ENOENT | libc::ENOTDIR => Self::NotFound,
            libc::EACCES | libc::EPERM => Self::NoPermission,
            libc::EROFS => Self::ReadOnly,
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Self::NoRoom { bytes },
            libc::EISDIR => Self::WrongKind,
            libc::EBUSY => Self::Busy,
            libc::EEXIST => Self::Exists,
            errno => Self::System { errno },
        }
    }

    pub(crate) fn at(self, path: &Path) -> HostError {
        HostError::Member { path: path.to_owned(), problem: self }
    }
}

impl fmt::Display for MemberProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("no such file; create it first, or correct the path"),
            Self::Log(error) => {
                write!(f, "its partial parity log cannot be read or emptied: {error}; leave the member out")
            }
            Self::Journal(error) => {
                write!(
                    f,
                    "the write journal cannot be brought to the members: {error}; the journal is as it was"
                )
            }
            Self::NoPermission => {
                f.write_str("permission denied; you need read and write access to the file and its folder")
            }
            Self::ReadOnly => {
                f.write_str("the file system is read-only; choose another, or only read (--readonly), or keep writes elsewhere (--overlay)")
            }
            Self::NoRoom { bytes } => {
                write!(f, "no room for {bytes} bytes; free space on the file system or use smaller members")
            }
            Self::TooSmall { have, need } => {
                write!(f, "the file has {have} bytes, the array needs {need}; enlarge it or use less of it")
            }
            Self::NotSectors { bytes } => {
                let right = bytes / SECTOR_BYTES * SECTOR_BYTES;
                write!(
                    f,
                    "its size of {bytes} bytes is not a multiple of {SECTOR_BYTES}; {right} bytes would be"
                )
            }
            Self::WrongKind => f.write_str("a member must be a regular file or a block device"),
            Self::NeedsDestroy => {
                f.write_str("is a block device; its contents are only overwritten when --destroy names it")
            }
            Self::Busy => {
                f.write_str("is in use: mounted, or held by another stripewise, md, dm or another program")
            }
            Self::BehindLoopDevice { device } => write!(
                f,
                "is behind /dev/{device}, which Linux may have mounted or in an array; \
                 detach it (`losetup -d /dev/{device}`), or name it with --destroy instead of the file"
            ),
            Self::Locked => f.write_str("is in use by another stripewise; stop that one first"),
            Self::Holds { what } => write!(f, "holds {what}; --force overwrites it"),
            Self::Twice => f.write_str("is given twice; each member needs a file of its own"),
            Self::Exists => f.write_str("exists already; remove it or choose another folder"),
            Self::System { errno } => write!(f, "{}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

const PANICKED: &str = "a workload, an observer or what else the array called has panicked in the middle of its work; drop the array, and open \
it again";

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Geometry(e) => e.fmt(f),
            Self::Volume(e) => e.fmt(f),
            Self::MemberCount { given, needed } => {
                write!(
                    f,
                    "{given} members are given; the array has {needed}, with its spares, replacements and journal"
                )
            }
            Self::Member { path, problem } => write!(f, "{}: {problem}", path.display()),
            Self::Reopen { why } => {
                write!(f, "the array was closed to be changed, and cannot be served on: {why}")
            }
            Self::IoUring { errno } if matches!(*errno, libc::ENOSYS | libc::EPERM | libc::EACCES) => write!(
                f,
                "this environment does not permit io_uring ({}); allow it (kernel.io_uring_disabled=0, \
                 a seccomp profile with io_uring_setup) or use memory members",
                io::Error::from_raw_os_error(*errno)
            ),
            Self::IoUring { errno } => {
                write!(f, "io_uring cannot be set up: {}", io::Error::from_raw_os_error(*errno))
            }
            Self::NoMemory { purpose, bytes } => {
                write!(
                    f,
                    "no memory for {purpose} ({bytes} bytes); use smaller members, fewer requests in flight or a smaller stripe cache or page cache"
                )
            }
            Self::Shards { given, most } => {
                write!(f, "{given} shards are asked for; 1 to {most} are possible")
            }
            Self::ShardsWithMetadata { given } => {
                write!(f, "{given} shards are asked for; an array that keeps superblocks runs on 1")
            }
            Self::ShardsWithOwnWork { given } => write!(
                f,
                "{given} shards are asked for; an array that has spares or replacements, recovers or resyncs, or is managed, \
                 runs on 1"
            ),
            Self::Stack(e) => e.fmt(f),
            Self::Raised => f.write_str(
                "a page cache or a cipher is above the array already; open the array again to put others above it",
            ),
            Self::ShardsWithCache { given } => {
                write!(f, "{given} shards are asked for; an array with a page cache runs on 1")
            }
            Self::ShardsWithCrypt { given, start_sector, unit_sectors } => {
                write!(
                    f,
                    "{given} shards are asked for; a LUKS container whose encrypted sectors of {} bytes begin at byte {}, which is no \
                     multiple of that, runs on 1",
                    unit_sectors * 512,
                    start_sector * 512
                )
            }
            Self::Workloads { given, shards } => {
                write!(f, "{given} workloads are given to {shards} shards; each shard runs at most one")
            }
            Self::Unaligned { bytes } => {
                write!(f, "a buffer of {bytes} bytes is not a whole number of {SECTOR_BYTES}-byte sectors")
            }
            Self::Wake { errno } => {
                write!(f, "no file descriptor for a shard: {}", io::Error::from_raw_os_error(*errno))
            }
            Self::Io(e) => e.fmt(f),
            Self::Panicked => f.write_str(PANICKED),
            Self::Overlay { path, problem } => write!(f, "{}: {problem}", path.display()),
            Self::Mount { at, problem } => write!(f, "{}: {problem}", at.display()),
            Self::Listen { at, problem } => write!(f, "{at}: {problem}"),
        }
    }
}

impl std::error::Error for HostError {}

impl From<GeometryError> for HostError {
    fn from(e: GeometryError) -> Self {
        Self::Geometry(e)
    }
}

impl From<StackError> for HostError {
    fn from(e: StackError) -> Self {
        Self::Stack(e)
    }
}

impl From<VolumeError> for HostError {
    fn from(e: VolumeError) -> Self {
        Self::Volume(e)
    }
}

/// Whether a file could not be made or opened because of the path that was named, not because of the storage or the machine.
#[must_use]
pub fn is_of_path(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
    )
}

/// The engine's name of a system error of a member's I/O. Unknown errors count as the medium's: the member
/// answered, and what it answered is no data.
pub fn io_error_from_errno(errno: i32) -> IoError {
    match errno {
        libc::ENODEV
        | libc::ENXIO
        | libc::ETIMEDOUT
        | libc::ESHUTDOWN
        | libc::EBADF
        | libc::ESTALE
        | libc::ENOLINK
        | libc::ECONNRESET
        | libc::ENOTCONN
        | libc::EPIPE => IoError::Gone,
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => IoError::NoSpace,
        libc::EINVAL => IoError::Range,
        libc::EROFS | libc::EPERM | libc::EACCES => IoError::ReadOnly,
        _ => IoError::Media,
    }
}
