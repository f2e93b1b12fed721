//! Which paths lead to the same file or device.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{HostError, MemberProblem};

/// What makes two paths the same storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    File { device: u64, inode: u64 },
    Device { number: u64 },
}

/// Whether two paths lead to the same file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Refuses paths of one file, under whatever names: a second lock of a file waits for the first.
pub(super) fn refuse_twice(paths: &[PathBuf]) -> Result<(), HostError> {
    let mut seen = BTreeMap::new();
    for path in paths {
        let Ok(metadata) = std::fs::metadata(path) else { continue };
        let identity = if metadata.file_type().is_block_device() {
            Identity::Device { number: metadata.rdev() }
        } else {
            Identity::File { device: metadata.dev(), inode: metadata.ino() }
        };
        if seen.insert(identity, path).is_some() {
            return Err(MemberProblem::Twice.at(path));
        }
    }
    Ok(())
}
