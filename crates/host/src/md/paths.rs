//! Which paths lead to the same file or device.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{HostError, MemberProblem};

/// What makes two paths the same storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Identity {
    File { device: u64, inode: u64 },
    Device { number: u64 },
}

impl Identity {
    /// What a path leads to.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        Some(Self::of(&std::fs::metadata(path).ok()?))
    }

    /// An open file or device.
    pub(crate) fn of_file(file: &File) -> Option<Self> {
        Some(Self::of(&file.metadata().ok()?))
    }

    fn of(metadata: &Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            Self::Device { number: metadata.rdev() }
        } else {
            Self::File { device: metadata.dev(), inode: metadata.ino() }
        }
    }
}

/// Whether it can hold what an array or a container is made of: a regular file or a block device.
pub fn is_storage(metadata: &Metadata) -> bool {
    metadata.is_file() || metadata.file_type().is_block_device()
}

/// Whether an open file or device is the one that a path leads to.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    Identity::of_file(file).is_some_and(|own| Identity::at(path) == Some(own))
}

/// Whether two paths lead to the same file or device, under whatever names.
pub fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || matches!((Identity::at(one), Identity::at(other)), (Some(one), Some(other)) if one == other)
}

/// Refuses paths of one file, under whatever names: a second lock of a file waits for the first.
pub(super) fn refuse_twice(paths: &[PathBuf]) -> Result<(), HostError> {
    let mut seen = BTreeMap::new();
    for path in paths {
        let Some(identity) = Identity::at(path) else { continue };
        if seen.insert(identity, path).is_some() {
            return Err(MemberProblem::Twice.at(path));
        }
    }
    Ok(())
}
