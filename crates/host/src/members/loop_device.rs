//! Files of which the kernel has made a block device: it may be mounted, or be a member of an array that Linux runs, and nothing
//! says so of the file.

use std::fs;
use std::path::Path;

/// The loop device of a file, if it has one: its name below `/dev`. Compared by path alone: who asks after the file of another's loop
/// device waits for the server that has it, which may be this one.
pub fn loop_device(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let is_its = |device: &fs::DirEntry| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == path)
    };
    let device = fs::read_dir("/sys/block").ok()?.flatten().find(is_its)?;
    device.file_name().into_string().ok()
}
