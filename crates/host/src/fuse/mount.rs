//! Mounting and unmounting a folder: by the system call where the process may, else by `fusermount3`.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::error::MountProblem;
use crate::error::HostError;
use crate::manage::device_of;
use crate::members::real_path;

/// What the mount is called in the system's tables.
const SOURCE: &str = "stripewise";
const KIND: &str = "fuse.stripewise";
/// Programs that mount for a user: of libfuse 3 and 2.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// A mounted folder; unmounted when it is dropped.
#[derive(Debug)]
pub(super) struct Mount {
    folder: PathBuf,
    /// The number of its file system; none if the system does not say.
    device_number: Option<u64>,
    /// The program that mounted it; none for the system call.
    helper: Option<&'static str>,
}

impl Mount {
    /// Mounts at a folder; answers the device, too, which does not block.
    pub(super) fn new(folder: &Path, read_only: bool) -> Result<(OwnedFd, Self), HostError> {
        let absolute = look_at(folder, &[])?;
        Self::by_call(&absolute, read_only)
            .or_else(|problem| match problem {
                MountProblem::NotPermitted => Self::by_helper(&absolute, read_only),
                problem => Err(problem),
            })
            .map_err(|problem| problem.at(folder))
    }

    fn by_call(folder: &Path, read_only: bool) -> Result<(OwnedFd, Self), MountProblem> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let device =
            open("/dev/fuse", flags, Mode::empty()).map_err(|e| MountProblem::from_device(&e.into()))?;
        // SAFETY: the calls take no pointers and cannot fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let options = format!(
            "fd={},rootmode=40000,user_id={uid},group_id={gid},allow_other,default_permissions\0",
            device.as_raw_fd()
        );
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).ok();
        let flags = MountFlags::NOSUID | MountFlags::NODEV | read_only_flag(read_only);
        mount(SOURCE, folder, KIND, flags, options).map_err(|e| MountProblem::from_mount(&e.into()))?;
        Ok((device, Self::mounted(folder, None)))
    }

    /// The program mounts, and passes the device over a socket, which is its standard input.
    fn by_helper(folder: &Path, read_only: bool) -> Result<(OwnedFd, Self), MountProblem> {
        let mode = if read_only { "ro" } else { "rw" };
        let options = format!("{mode},nosuid,nodev,fsname={SOURCE},subtype={SOURCE},default_permissions");
        for helper in HELPERS {
            let (own, theirs) = UnixStream::pair().map_err(|e| MountProblem::from_mount(&e))?;
            let child = Command::new(helper)
                .args(["-o", &options, "--"])
                .arg(folder)
                .env("_FUSE_COMMFD", "0")
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn();
            let child = match child {
                Ok(child) => child,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(MountProblem::from_mount(&e)),
            };
            let device = receive_file(&own);
            let said = child.wait_with_output().map(|output| output.stderr).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            let device = device.ok().ok_or(MountProblem::Helper { said })?;
            let flags = fcntl_getfl(&device).map_err(|e| MountProblem::from_mount(&e.into()))?;
            fcntl_setfl(device.as_fd(), flags | OFlags::NONBLOCK)
                .map_err(|e| MountProblem::from_mount(&e.into()))?;
            return Ok((device, Self::mounted(folder, Some(helper))));
        }
        Err(MountProblem::NoHelper)
    }

    fn mounted(folder: &Path, helper: Option<&'static str>) -> Self {
        Self { folder: folder.to_owned(), device_number: device_of(folder), helper }
    }

    /// The device number that its files bear; none if the system does not say.
    pub(super) fn device_number(&self) -> Option<u64> {
        self.device_number
    }

    /// Unmounts; answers the folder if it was in use.
    pub(super) fn end(self) -> Option<PathBuf> {
        let in_use = self.unmount().then(|| self.folder.clone());
        self.forget();
        in_use
    }

    /// Unmounts; answers whether the folder was in use. Such a one is taken out of sight at once, and goes with its last
    /// user. Where neither is possible, the mount stays, and says to whoever comes that nobody is there.
    fn unmount(&self) -> bool {
        !self.unmount_as(false) && self.unmount_as(true)
    }

    /// Unmounts, in use or not; answers whether it did.
    fn unmount_as(&self, in_use: bool) -> bool {
        match self.helper {
            None => {
                let detach = if in_use { UnmountFlags::DETACH } else { UnmountFlags::empty() };
                unmount(&self.folder, detach | UnmountFlags::NOFOLLOW).is_ok()
            }
            Some(helper) => Command::new(helper)
                .args(["-u", "-q"])
                .args(in_use.then_some("-z"))
                .arg("--")
                .arg(&self.folder)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success()),
        }
    }

    /// Takes note that it was unmounted already: what is mounted there now is another's.
    pub(super) fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Takes a descriptor from a socket; without one, the other side is gone.
fn receive_file(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    files.flatten().next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn read_only_flag(read_only: bool) -> MountFlags {
    if read_only { MountFlags::RDONLY } else { MountFlags::empty() }
}

/// The absolute path of a folder that can be mounted over without hiding anything, these files least of all.
pub(super) fn look_at(folder: &Path, files: &[&Path]) -> Result<PathBuf, HostError> {
    let failed = |e: &io::Error| MountProblem::from_folder(e).at(folder);
    let absolute = folder.canonicalize().map_err(|e| failed(&e))?;
    if let Some(file) = files.iter().find(|file| real_path(file).starts_with(&absolute)) {
        return Err(MountProblem::Hides { file: file.to_path_buf() }.at(folder));
    }
    let mut entries = std::fs::read_dir(&absolute).map_err(|e| failed(&e))?;
    if entries.next().is_some() { Err(MountProblem::NotEmpty.at(folder)) } else { Ok(absolute) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_will_not_do_is_said_to_be_so() {
        let work = tempfile::tempdir().unwrap();
        let (file, full) = (work.path().join("file"), work.path().join("full"));
        std::fs::write(&file, b"").unwrap();
        std::fs::create_dir_all(full.join("inner")).unwrap();
        for (path, right) in [
            (work.path().join("none"), MountProblem::NoFolder),
            (file, MountProblem::NotAFolder),
            (full, MountProblem::NotEmpty),
        ] {
            match Mount::new(&path, false) {
                Err(HostError::Mount { at, problem }) => assert_eq!((at, problem), (path, right)),
                other => panic!("{}: {other:?}", path.display()),
            }
        }
    }
}
