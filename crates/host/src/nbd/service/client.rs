//! A client, however it is connected.

use std::os::fd::RawFd;
use std::path::PathBuf;

use stripewise_engine::io::IoResult;
use stripewise_engine::units::Instant;

use super::super::buffers::{Buffers, SHARE_BYTES};
use super::super::connection::{Accepted, Connection};
use super::super::export::Export;
use super::super::poller::News;
use super::OWES_MAX;
use super::near::Ease;
use crate::fuse::Session;
use crate::loans::Loans;

/// A client and how many of its requests the engine has.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) link: Link,
    /// Clients that came before it, on any shard.
    pub(super) number: u32,
    pub(super) in_engine: u32,
    pub(super) came_at: Instant,
    /// It has asked for something since clients were looked at last.
    pub(super) has_asked: bool,
    /// It is looked at, and the poller hears nothing of it; see [`near`](super::near).
    pub(super) is_near: bool,
    pub(super) ease: Ease,
    /// Since when it has moved nothing though it is its turn, and what it had moved: while others wait for its memory.
    pub(super) owes_since: Option<(u64, Instant)>,
}

impl Client {
    /// Whether it has moved nothing for [`OWES_MAX`], though it is its turn, while others wait for memory of which it holds more
    /// than its share.
    pub(super) fn is_idle_for_too_long(&mut self, is_short: bool, now: Instant) -> bool {
        let is_large = self.link.held_bytes() > SHARE_BYTES;
        let Some(moved) = self.link.owes().filter(|_| is_short && is_large) else {
            self.owes_since = None;
            return false;
        };
        match self.owes_since {
            Some((before, since)) if before == moved => now.since(since) > OWES_MAX,
            _ => {
                self.owes_since = Some((moved, now));
                false
            }
        }
    }
}

/// How a client is connected. Requests come in by [`next`](Self::next), each is answered by [`answer`](Self::answer), and
/// answers leave by [`send`](Self::send) at the latest.
#[derive(Debug)]
pub(super) enum Link {
    Nbd(Box<Connection>),
    Fuse(Box<Session>),
}

impl Link {
    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Nbd(connection) => connection.fd(),
            Self::Fuse(session) => session.fd(),
        }
    }

    /// Takes note of what the system says of the descriptor.
    pub(super) fn tell(&mut self, news: News) {
        match self {
            Self::Nbd(connection) => connection.tell(news),
            Self::Fuse(session) => session.tell(news),
        }
    }

    /// Takes no new requests; what is under way is answered.
    pub(super) fn drain(&mut self) {
        match self {
            Self::Nbd(connection) => connection.drain(),
            Self::Fuse(session) => session.drain(),
        }
    }

    /// Gives the client up.
    pub(super) fn kill(&mut self) {
        match self {
            Self::Nbd(connection) => connection.kill(),
            Self::Fuse(session) => session.kill(),
        }
    }

    /// Whether nothing more is to be done for the client.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Nbd(connection) => connection.is_over(),
            Self::Fuse(session) => session.is_over(),
        }
    }

    /// Whether nobody is there to be answered.
    pub(super) fn is_dead(&self) -> bool {
        match self {
            Self::Nbd(connection) => connection.is_dead(),
            Self::Fuse(session) => session.is_dead(),
        }
    }

    /// Whether the client has not chosen an export yet.
    pub(super) fn is_in_handshake(&self) -> bool {
        matches!(self, Self::Nbd(connection) if connection.is_in_handshake())
    }

    pub(super) fn is_mount(&self) -> bool {
        matches!(self, Self::Fuse(_))
    }

    /// Ends the connection; answers the folder of a mount that was in use.
    pub(super) fn end(self) -> Option<PathBuf> {
        match self {
            Self::Nbd(_) => None,
            Self::Fuse(session) => session.end(),
        }
    }

    /// Whether it is a mount whose file is open.
    pub(super) fn is_mount_in_use(&self) -> bool {
        matches!(self, Self::Fuse(session) if session.is_in_use())
    }

    /// The device number of a mount's files; see [`Session::device_number`].
    pub(super) fn mount_number(&self) -> Option<u64> {
        match self {
            Self::Nbd(_) => None,
            Self::Fuse(session) => session.device_number(),
        }
    }

    /// What was said of the size holds no more.
    pub(super) fn look_again(&self) {
        if let Self::Fuse(session) = self {
            session.look_again();
        }
    }

    /// What the requests under way hold.
    pub(super) fn held_bytes(&self) -> u64 {
        match self {
            Self::Nbd(connection) => connection.held_bytes(),
            // The kernel takes its answers.
            Self::Fuse(_) => 0,
        }
    }

    /// See [`Connection::owes`].
    pub(super) fn owes(&self) -> Option<u64> {
        match self {
            Self::Nbd(connection) => connection.owes(),
            Self::Fuse(_) => None,
        }
    }

    /// Requests under way.
    pub(super) fn requests(&self) -> u32 {
        match self {
            Self::Nbd(connection) => connection.requests(),
            Self::Fuse(session) => session.requests(),
        }
    }

    /// The next request that can be started now.
    pub(super) fn next(&mut self, export: &Export, buffers: &mut Buffers) -> Option<Accepted> {
        match self {
            Self::Nbd(connection) => connection.next(export, buffers),
            Self::Fuse(session) => session.next(export, buffers),
        }
    }

    /// Answers a request that was carried out.
    pub(super) fn answer(
        &mut self,
        accepted: Accepted,
        result: IoResult,
        loans: &mut Loans,
        buffers: &mut Buffers,
    ) {
        match self {
            Self::Nbd(connection) => connection.answer(accepted, result, buffers),
            Self::Fuse(session) => session.answer(accepted, result, loans, buffers),
        }
    }

    /// Sends answers; says whether something moved, so that there may be more to do.
    pub(super) fn send(&mut self, buffers: &mut Buffers) -> bool {
        match self {
            Self::Nbd(connection) => connection.send(buffers),
            Self::Fuse(session) => session.is_patch_due(),
        }
    }
}
