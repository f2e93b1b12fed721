//! Files of which the kernel has made a block device: it may be mounted, or be a member of an array that Linux runs, and nothing
//! says so of the file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The loop device of a file, if it has one: its name below `/dev`.
pub(crate) fn loop_device(path: &Path) -> Option<String> {
    let identity = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    let own = identity(path)?;
    let is_its = |device: &fs::DirEntry| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| identity(Path::new(backing.trim_end_matches('\n'))) == Some(own))
    };
    let device = fs::read_dir("/sys/block").ok()?.flatten().find(is_its)?;
    device.file_name().into_string().ok()
}
