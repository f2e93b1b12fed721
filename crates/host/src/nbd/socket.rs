//! Sockets: listening, accepting, moving bytes without waiting.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::error::{HostError, ListenProblem};

/// Runs of bytes in one send.
pub(crate) const RUNS_MAX: usize = 64;

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// So many bytes, at least one.
    Bytes(usize),
    /// None for now.
    Later,
    /// The other side is gone, or sends no more.
    Ended,
}

/// A listening socket; a unix socket's file is removed with it.
#[derive(Debug)]
pub(crate) struct Listener {
    fd: OwnedFd,
    _file: Option<SocketFile>,
    is_tcp: bool,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: a file of that name which another program has made since is left alone.
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.id) {
            let _at_exit = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Listens at a path. The socket of a server that is gone is replaced.
    pub(crate) fn unix(path: &Path) -> Result<Self, HostError> {
        let failed = |e: io::Error| ListenProblem::from_io(&e).at(path.display());
        match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(ListenProblem::NotASocket.at(path.display()));
            }
            Ok(_) => match knock(path) {
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(failed)?;
                }
                Ok(()) => return Err(ListenProblem::InUse.at(path.display())),
                Err(e) => return Err(failed(e)),
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(e)),
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        let file = SocketFile { path: path.to_owned(), id: (metadata.dev(), metadata.ino()) };
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self { fd: listener.into(), _file: Some(file), is_tcp: false })
    }

    /// Listens at an address; answers the one it got, too.
    pub(crate) fn tcp(address: SocketAddr) -> Result<(Self, SocketAddr), HostError> {
        let failed = |e: io::Error| ListenProblem::from_io(&e).at(address);
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok((Self { fd: listener.into(), _file: None, is_tcp: true }, address))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// A connection waits for which there is no descriptor.
    pub(crate) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        loop {
            // SAFETY: null pointers mean that the other side's address is not asked for.
            let fd = unsafe { libc::accept4(self.fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) };
            if fd >= 0 {
                if self.is_tcp {
                    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
                    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
                }
                // SAFETY: the descriptor was just opened and is owned by nothing else.
                return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR | libc::ECONNABORTED) => {}
                Some(libc::EAGAIN) => return Ok(None),
                _ => return Err(error),
            }
        }
    }
}

/// Whether a server has a socket. One whose queue is full has it too, and is not waited for.
fn knock(path: &Path) -> io::Result<()> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sets an option that only makes things faster or tidier.
fn set_option(fd: RawFd, level: i32, name: i32, value: i32) {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer is to a local of that length.
    unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), length) };
}

/// Whether the other side is on this machine.
pub(crate) fn is_unix(fd: RawFd) -> bool {
    let mut domain: i32 = 0;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: both pointers are to locals, the first of the length that the second says.
    let failed = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &raw mut length)
    };
    failed == 0 && domain == libc::AF_UNIX
}

/// What was sent to the other side of a unix socket and not received there, as the system counts it: in bytes of its
/// memory, each send until all of it is received.
pub(crate) fn unread(fd: RawFd) -> u32 {
    let mut bytes: i32 = 0;
    // SAFETY: the pointer is to a local, which the call fills.
    let failed = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    if failed == 0 { bytes.max(0) as u32 } else { 0 }
}

/// Receives up to `bytes` at `base`.
///
/// # Safety
/// The run is writable and nothing else uses it.
pub(crate) unsafe fn receive(fd: RawFd, base: *mut u8, bytes: usize) -> Moved {
    // SAFETY: upheld by the caller.
    moved(&[], || unsafe { libc::recv(fd, base.cast(), bytes, libc::MSG_DONTWAIT) })
}

/// Sends runs of bytes, in order; the last may be sent in part.
///
/// # Safety
/// The runs are readable and nothing writes to them. There are at most [`RUNS_MAX`].
pub(crate) unsafe fn send(fd: RawFd, runs: &mut [libc::iovec]) -> Moved {
    // SAFETY: all-zero is a valid message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = runs.as_mut_ptr();
    message.msg_iovlen = runs.len() as _;
    // SAFETY: upheld by the caller; the message is a local.
    moved(&[], || unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// Makes a call that moves bytes, again after those errors and when a signal came.
pub(crate) fn moved(again: &[i32], call: impl Fn() -> isize) -> Moved {
    loop {
        match call() {
            0 => return Moved::Ended,
            count if count > 0 => return Moved::Bytes(count as usize),
            _ => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return Moved::Later,
                Some(errno) if again.contains(&errno) => {}
                _ => return Moved::Ended,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_socket_is_refused_a_dead_one_replaced_and_ours_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd.sock");
        let first = Listener::unix(&path).unwrap();
        let refused = Listener::unix(&path).unwrap_err();
        assert!(matches!(refused, HostError::Listen { problem: ListenProblem::InUse, .. }), "{refused}");
        drop(first);
        assert!(!path.exists());
        // A server that was killed leaves its socket.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::unix(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"kept").unwrap();
        let refused = Listener::unix(&path).unwrap_err();
        assert!(matches!(refused, HostError::Listen { problem: ListenProblem::NotASocket, .. }));
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        let missing = Listener::unix(&folder.path().join("none/nbd.sock")).unwrap_err();
        assert!(missing.to_string().contains("no such folder"), "{missing}");
    }

    #[test]
    fn a_server_whose_queue_is_full_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd.sock");
        let first = Listener::unix(&path).unwrap();
        rustix::net::listen(&first.fd, 0).unwrap();
        // A queue of none takes one.
        let _waits = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let refused = Listener::unix(&path).unwrap_err();
        assert!(matches!(refused, HostError::Listen { problem: ListenProblem::InUse, .. }));
    }

    #[test]
    fn another_programs_new_socket_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd.sock");
        let first = Listener::unix(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _second = UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
