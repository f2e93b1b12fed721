//! Whether a member has heads that move, as the kernel says of the drive that it is or lies on.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::Member;

/// Whether all members have heads; those that are missing are not asked.
pub(crate) fn are_rotational(members: &[Member]) -> bool {
    let mut present = members.iter().filter(|member| !matches!(member, Member::Missing)).peekable();
    present.peek().is_some() && present.all(|member| member.path().is_some_and(is_rotational))
}

/// Whether the drive is one with heads; not, where nobody knows.
fn is_rotational(path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    let device = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    let node = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    // A partition's are its drive's.
    let queues = [PathBuf::from(&node).join("queue"), PathBuf::from(&node).join("../queue")];
    let said = queues.iter().find_map(|queue| fs::read_to_string(queue.join("rotational")).ok());
    said.is_some_and(|said| said.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_its_drives_is_said_of_them_and_their_partitions() {
        assert!(!is_rotational(Path::new("/proc/self/status")), "no drive");
        assert!(!is_rotational(Path::new("/nowhere")));
        let drives = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        for drive in drives.filter(|drive| drive.path().join("queue/rotational").exists()) {
            let said = fs::read_to_string(drive.path().join("queue/rotational")).unwrap();
            let nodes = fs::read_dir(drive.path()).unwrap().flatten().map(|part| part.file_name());
            let names: Vec<_> = std::iter::once(drive.file_name()).chain(nodes).collect();
            for name in names {
                let path = Path::new("/dev").join(&name);
                if fs::metadata(&path).is_ok_and(|found| found.file_type().is_block_device()) {
                    assert_eq!(is_rotational(&path), said.trim() == "1", "{}", path.display());
                }
            }
        }
    }
}
