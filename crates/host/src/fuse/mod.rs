//! An open array as a file: the kernel's FUSE protocol, for one folder with the file [`FILE_NAME`], which a loop device makes
//! a disk.
//!
//! A mount is a client of the server beside its network connections, with the same contract (see [`crate::nbd`]): requests
//! are carried out on the thread that read them, and only long answers leave by another. It is written for that: libraries for
//! FUSE have threads and waits of their own. *Durability.* `fsync`, and writes to a file opened with `O_DSYNC`, are answered
//! when durable. *Caching.* The kernel keeps no pages of the file (`FOPEN_DIRECT_IO`), so that all clients see the same bytes;
//! it cannot be mapped shared. *End.* A mount that is unmounted ends as a client that disconnects. A server that ends answers
//! what the kernel has asked for by then, and unmounts.
//!
//! | file | concern |
//! |---|---|
//! | `abi` | the protocol's bytes |
//! | `request` | requests judged, sans-IO |
//! | `session` | the mount as a client |
//! | `mount` | mounting and unmounting |
//! | `error` | why it cannot be mounted |

mod abi;
mod error;
mod mount;
mod request;
mod session;
#[cfg(test)]
mod session_tests;

use std::path::Path;

use crate::error::HostError;
use mount::{Mount, look_at};

pub use error::MountProblem;
pub(crate) use request::FILE_NAME;
pub(crate) use session::Session;

/// Looks whether a folder can be mounted, before anything is made; `files` are those that the server is to make.
///
/// # Errors
/// It is no empty folder, or one of the files would be in it; the message says what would be right.
pub fn check_mount(folder: &Path, files: &[&Path]) -> Result<(), HostError> {
    look_at(folder, files).map(drop)
}

/// Mounts a folder. Whoever looks into it waits until the session is served.
///
/// # Errors
/// The folder will not do, or the user may not; the message says what would be right.
pub(crate) fn mount_at(folder: &Path, read_only: bool) -> Result<Session, HostError> {
    let (device, mount) = Mount::new(folder, read_only)?;
    Ok(Session::new(device, Some(mount)))
}
