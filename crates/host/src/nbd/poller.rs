//! Waiting for sockets.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use stripewise_engine::units::Nanos;

/// Events taken at once; the rest waits for the next call.
const EVENTS_MAX: usize = 64;

/// A socket's news: it may be read from, or written to. A connection that ended is both.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a bit of what the system says")]
pub(crate) struct News {
    /// What the descriptor was registered as.
    pub(crate) token: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Nothing more will arrive than what has.
    pub(crate) ended: bool,
    /// Nor does anybody take what is sent.
    pub(crate) gone: bool,
}

/// An edge-triggered epoll instance: news come once, and are true until the socket says otherwise.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened and is owned by nothing else.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX] })
    }

    /// Becomes readable when there are news.
    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Registers a descriptor until it is closed or [removed](Self::remove). What it has already is news, too.
    pub(crate) fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: interest as u32, u64: token };
        // SAFETY: both descriptors are open and the event is a local.
        let result = unsafe { libc::epoll_ctl(self.fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Hears no more of a descriptor.
    pub(crate) fn remove(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: both descriptors are open; the event is not looked at.
        let result = unsafe { libc::epoll_ctl(self.fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Takes news, waiting for the first at most that long.
    pub(crate) fn wait(&mut self, timeout: Nanos, mut tell: impl FnMut(News)) {
        let timeout_ms = timeout.0.div_ceil(1_000_000).min(i32::MAX as u64) as i32;
        // SAFETY: the buffer has room for as many events as are asked for.
        let count =
            unsafe { libc::epoll_wait(self.fd(), self.events.as_mut_ptr(), EVENTS_MAX as i32, timeout_ms) };
        // Interrupted: the caller looks around anew in any case.
        for event in self.events.iter().take(count.max(0) as usize) {
            let (events, token) = (event.events as i32, event.u64);
            let broken = libc::EPOLLERR | libc::EPOLLHUP;
            let ended = broken | libc::EPOLLRDHUP;
            tell(News {
                token,
                readable: events & (libc::EPOLLIN | ended) != 0,
                writable: events & (libc::EPOLLOUT | broken) != 0,
                ended: events & ended != 0,
                gone: events & broken != 0,
            });
        }
    }
}
