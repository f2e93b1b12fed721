//! Whether a path of a command leads to the array that is told to open it.
//!
//! A server that opens the file it has mounted, or what lies over it, waits for itself, and nothing ends that wait. So the
//! path is looked at before, on a thread of its own, which may hang in the server's place: step by step, and no step is taken
//! into the mount or into a file system on it. What cannot be seen that way (a network block device of the server itself)
//! does not answer while the server waits for the thread; that wait is bounded. A thread left behind ends when the server
//! serves on.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

use super::{Manage, ManageError};
use crate::buffers::{Mapping, PAGE};
use crate::md::paths::is_storage;

/// How long a path may take to answer: a drive that wakes up takes longer, and is awake when it is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Where the system tells of block devices.
const SYSTEM: &str = "/sys/dev/block";
/// Links in a path; as many as the kernel follows.
const LINKS_MAX: u32 = 40;

/// The number of a mounted file system's device; nothing if it does not say. Whoever serves it is not asked.
pub(crate) fn device_of(folder: &Path) -> Option<u64> {
    status(folder).map(|found| found.device)
}

/// Looks at the paths of a command to a server whose mount, if it has one, has this device number. Paths that are known as
/// members' are not looked at: a member that hangs is to be failed and removed at once.
///
/// # Errors
/// One leads to the array, or does not answer.
pub(crate) fn look_beneath(
    command: &Manage,
    own: Option<u64>,
    is_known: impl Fn(&Path) -> bool,
) -> Result<(), ManageError> {
    // Of members it is only asked which they are: one that fails need not answer.
    let (named, new) = match command {
        Manage::Fail(path) | Manage::Remove(path) | Manage::SetFlags { member: path, .. } => {
            (vec![path], None)
        }
        Manage::Add { member, .. } => (Vec::new(), Some(member)),
        Manage::Replace { member, with } => (std::iter::once(member).chain(with).collect(), None),
        Manage::Sync(_) | Manage::SetSpeed { .. } => return Ok(()),
    };
    let all = named.into_iter().map(|path| (path, false)).chain(new.map(|path| (path, true)));
    for (path, is_opened) in all {
        if !is_opened && is_known(path) {
            continue;
        }
        let wanted = path.clone();
        let is_own = within(ANSWER_MAX, move || {
            let mut look = Look::new(own, Path::new(SYSTEM));
            let is_own = look.leads_to_own(&wanted);
            if is_opened && !is_own {
                look.read_starts(&wanted);
            }
            is_own
        });
        match is_own {
            Ok(false) => {}
            Ok(true) => return Err(ManageError::Itself(path.clone())),
            Err(()) => return Err(ManageError::Silent(path.clone(), ANSWER_MAX.as_secs())),
        }
    }
    Ok(())
}

/// What a thread of its own finds out in this time; the error is that it does not.
fn within<T: Send + 'static>(limit: Duration, find: impl FnOnce() -> T + Send + 'static) -> Result<T, ()> {
    let (tell, told) = mpsc::sync_channel(1);
    // Nobody may be there to be told any more.
    let spawned = std::thread::Builder::new().spawn(move || tell.send(find()).unwrap_or(()));
    spawned.map_err(|_| ())?;
    told.recv_timeout(limit).map_err(drop)
}

/// What is at a path.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// The device number of its file system.
    device: u64,
    kind: FileType,
    /// If it is a device, its own number.
    names: u64,
}

/// What is at a path, a link not followed. Answered by what the kernel knows, where it does.
fn status(path: &Path) -> Option<Found> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let status = statx(CWD, path, flags, StatxFlags::TYPE).ok()?;
    Some(Found {
        device: libc::makedev(status.stx_dev_major, status.stx_dev_minor),
        kind: FileType::from_raw_mode(status.stx_mode.into()),
        names: libc::makedev(status.stx_rdev_major, status.stx_rdev_minor),
    })
}

/// One look at what is beneath a path.
struct Look<'a> {
    own: Option<u64>,
    system: &'a Path,
    /// Devices looked at.
    seen: BTreeSet<u64>,
    /// Those that lie over no other.
    lowest: Vec<PathBuf>,
}

impl<'a> Look<'a> {
    fn new(own: Option<u64>, system: &'a Path) -> Self {
        Self { own, system, seen: BTreeSet::new(), lowest: Vec::new() }
    }

    /// Whether a path leads into the own mount, or to what lies over it. What cannot be found is the command's to explain.
    fn leads_to_own(&mut self, path: &Path) -> bool {
        let Ok(path) = std::path::absolute(path) else { return false };
        let mut left = parts(&path);
        let (mut at, mut links, mut last) = (PathBuf::from("/"), 0, None);
        while let Some(part) = left.pop() {
            match Path::new(&part).components().next() {
                Some(Component::RootDir) => at = PathBuf::from("/"),
                Some(Component::ParentDir) => drop(at.pop()),
                Some(Component::Normal(name)) => {
                    let next = at.join(name);
                    let Some(found) = status(&next) else { return false };
                    if found.kind == FileType::Symlink {
                        links += 1;
                        let Ok(target) = fs::read_link(&next) else { return false };
                        if links > LINKS_MAX {
                            return false;
                        }
                        left.extend(parts(&target));
                    } else if self.is_over_own(found.device) {
                        return true;
                    } else {
                        (at, last) = (next, Some(found));
                    }
                }
                _ => {}
            }
        }
        // A device is no folder that a way could lead through: if it was found, it was found last.
        last.is_some_and(|found| found.kind == FileType::BlockDevice && self.is_over_own(found.names))
    }

    /// Whether a device is the own mount or lies over it: a loop device by its file, others by the devices they are made of.
    fn is_over_own(&mut self, device: u64) -> bool {
        if Some(device) == self.own {
            return true;
        }
        let node = self.system.join(format!("{}:{}", libc::major(device), libc::minor(device)));
        if !self.seen.insert(device) || !node.exists() {
            return false;
        }
        let mut is_lowest = true;
        // What a partition is made of is said of the whole, the folder above.
        for whole in [node.clone(), node.join("..")] {
            if let Ok(mut file) = fs::read(whole.join("loop/backing_file")) {
                is_lowest = false;
                file.truncate(file.trim_ascii_end().len());
                if self.leads_to_own(&PathBuf::from(OsString::from_vec(file))) {
                    return true;
                }
            }
            for entry in fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten() {
                let Some(beneath) = number(&entry.path().join("dev")) else { continue };
                is_lowest = false;
                if self.is_over_own(beneath) {
                    return true;
                }
            }
        }
        if is_lowest && let Some(name) = device_name(&node) {
            self.lowest.push(Path::new("/dev").join(name));
        }
        false
    }

    /// Reads the start of what is to be opened, and of the devices under its file system, which may answer for it out of
    /// memory. What they say does not matter, only that they do.
    fn read_starts(&self, path: &Path) {
        let may_be_read = |path: &Path| fs::metadata(path).is_ok_and(|found| is_storage(&found));
        for path in self.lowest.iter().map(PathBuf::as_path).chain([path]) {
            if may_be_read(path) {
                let _any_answer = read_start(path);
            }
        }
    }
}

/// A path's components, last first.
fn parts(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// A device number as the system writes it.
fn number(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// What a block device is called in `/dev`.
fn device_name(node: &Path) -> Option<String> {
    let text = fs::read_to_string(node.join("uevent")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(ToOwned::to_owned)
}

/// Reads the first page, past the page cache where that is possible.
fn read_start(path: &Path) -> io::Result<usize> {
    let open = |flags: i32| -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | flags).open(path)
    };
    let file = open(libc::O_DIRECT).or_else(|_| open(0))?;
    let page = Mapping::new(PAGE, "a look at a device").map_err(io::Error::other)?;
    // SAFETY: the mapping is a page long and lent for the read alone.
    file.read_at(unsafe { std::slice::from_raw_parts_mut(page.base(), PAGE) }, 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Whether a path leads to what stands for the mount: the file system of `/proc`.
    fn leads(path: &Path, system: &Path) -> bool {
        Look::new(device_of(Path::new("/proc")), system).leads_to_own(path)
    }

    #[test]
    fn a_path_into_the_mount_is_seen_through_links_without_entering_it() {
        let work = tempfile::tempdir().unwrap();
        let at = |name: &str| work.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        fs::write(at("file"), b"").unwrap();
        symlink("/proc", at("link")).unwrap();
        symlink("../link/self/status", at("folder/second")).unwrap();
        symlink("round", at("round")).unwrap();
        // What is below the mount need not be there: it is not asked for.
        for own in ["/proc", "/proc/none/disk", "//proc/../proc/1"] {
            assert!(leads(Path::new(own), &at("none")), "{own}");
        }
        assert!(leads(&at("link/any"), &at("none")) && leads(&at("folder/second"), &at("none")));
        for other in ["file", "none", "round", "folder/../file"] {
            assert!(!leads(&at(other), &at("none")), "{other}");
        }
        assert!(!Look::new(None, &at("none")).leads_to_own(Path::new("/proc/self/status")));
    }

    #[test]
    fn a_device_is_what_its_file_and_the_devices_under_it_are() {
        let work = tempfile::tempdir().unwrap();
        let make = |file: &str, text: &str| {
            let path = work.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        make("7:0/loop/backing_file", "/proc/disk\n");
        make("7:1/loop/backing_file", "/dev/null\n");
        // A partition of the first, a mapping of the partition, and a mapping of that and of itself.
        make("7:0/part/partition", "1\n");
        std::os::unix::fs::symlink("7:0/part", work.path().join("259:0")).unwrap();
        make("253:0/slaves/part/dev", "259:0\n");
        make("253:1/slaves/one/dev", "253:1\n");
        make("253:1/slaves/two/dev", "253:0\n");
        make("8:0/uevent", "MAJOR=8\nDEVNAME=sda\n");
        let look = |major, minor| {
            let mut look = Look::new(device_of(Path::new("/proc")), work.path());
            (look.is_over_own(libc::makedev(major, minor)), look.lowest)
        };
        for (major, minor) in [(7, 0), (259, 0), (253, 0), (253, 1)] {
            assert!(look(major, minor).0, "{major}:{minor}");
        }
        assert_eq!(look(7, 1), (false, Vec::new()));
        assert_eq!(look(8, 0), (false, vec![PathBuf::from("/dev/sda")]));
        assert_eq!(look(8, 1), (false, Vec::new()), "there is none");
    }

    #[test]
    fn of_a_member_that_is_known_nobody_is_asked() {
        let (path, own) = (PathBuf::from("/proc/self/status"), device_of(Path::new("/proc")));
        let fail = Manage::Fail(path.clone());
        assert!(look_beneath(&fail, own, |known| known == path).is_ok());
        assert!(matches!(look_beneath(&fail, own, |_| false), Err(ManageError::Itself(_))));
    }

    #[test]
    fn what_does_not_answer_is_waited_for_no_longer_than_said() {
        let (answer, wait) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(20), move || wait.recv()), Err(()));
        drop(answer);
        assert_eq!(within(ANSWER_MAX, || 7), Ok(7));
    }
}
