//! One client: its bytes in, requests out; replies in, bytes out.
//!
//! *Bounds.* [`REQUESTS_MAX`] requests and [`BYTES_MAX`] bytes are under way at once, from the request's
//! arrival until its reply is sent; until then nothing more is read from the client. What all connections of a thread hold
//! is bounded as well, see [`Buffers`]. *Malformed input* ends
//! the connection after the replies that are due. *Copies.* What the client writes goes from the socket to
//! the request's buffer (through [`INPUT_BYTES`] only where it came along with requests), what it reads goes
//! from the request's buffer to the socket.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use stripewise_engine::io::{IoResult, Op};
use stripewise_engine::units::Nanos;

use super::buffers::{Buffer, Buffers};
use super::export::Export;
use super::handshake::{Agreed, BASE_ALLOCATION_ID, Handshake, OPTION_BYTES_MAX, Step};
use super::poller::News;
use super::socket::{self, Moved, RUNS_MAX};
use super::status;
use super::task::{Task, errno_of, judge};
use super::wire::{Errno, Head, REQUEST_BYTES, RawRequest, command};

/// A client that has not chosen an export by then makes room for another.
pub(crate) const MAKES_ROOM_AFTER: Nanos = Nanos::from_millis(1_000);
/// Requests of a connection under way.
pub(crate) const REQUESTS_MAX: u32 = 128;
/// Their bytes; a single request may be as long as requests get.
pub(crate) const BYTES_MAX: u64 = 64 << 20;
/// Bytes received ahead of being understood.
const INPUT_BYTES: usize = 64 << 10;
const _: () = assert!(INPUT_BYTES > OPTION_BYTES_MAX + 16);
/// A client that asks for no more than this at a time may be looked at, see [`Connection::may_be_near`]: more is
/// better received while the client still sends it.
const NEAR_BYTES_MAX: u32 = 16 << 10;

/// A request whose bytes are there.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) task: Task,
    pub(crate) buffer: Option<Buffer>,
    /// What is read may be left in [`crate::loans`].
    pub(crate) takes_loans: bool,
}

/// Something to send.
#[derive(Debug)]
enum Outgoing {
    /// The handshake's, not counted as a request's.
    Bytes(Vec<u8>),
    /// A reply of a request that held `held` bytes.
    Reply { head: Head, tail: Vec<u8>, body: Option<(Buffer, usize)>, held: u64 },
}

#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    Transmission(Agreed),
}

/// What the next bytes are.
#[derive(Debug)]
enum Incoming {
    Request,
    Payload { accepted: Accepted, filled: usize },
    Skip { left: usize, cookie: u64, error: Errno },
}

/// How a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Requests are taken.
    Open,
    /// What is under way is answered; nothing more is taken.
    Draining,
    /// Nobody is there to be answered.
    Dead,
}

/// See the module's description.
#[expect(clippy::struct_excessive_bools, reason = "each is a thing of its own that is known of the socket")]
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    phase: Phase,
    life: Life,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    incoming: Incoming,
    out: VecDeque<Outgoing>,
    /// Bytes of the first in `out` that are sent.
    sent: usize,
    readable: bool,
    writable: bool,
    /// The other side sends no more than what is in the socket, which will not become readable again.
    has_ended: bool,
    /// Nobody takes what is sent.
    is_gone: bool,
    requests: u32,
    held_bytes: u64,
    /// Bytes sent and payload received, ever.
    moved_bytes: u64,
    /// The client is on this machine, so that the system knows what it has not received.
    is_local: bool,
    /// How much the last request asked for.
    last_bytes: u32,
}

/// Receives of unread input before a close: a client that sends without end is cut off all the same.
const DISCARD_ROUNDS: u32 = 256;

impl Drop for Connection {
    /// A socket closed with input unread resets the connection, which can cost the client the last replies:
    /// what it sent after them is read and thrown away first.
    fn drop(&mut self) {
        let room = self.input.len();
        for _ in 0..DISCARD_ROUNDS {
            // SAFETY: the buffer is this connection's own, and nothing reads it any more.
            match unsafe { socket::receive(self.socket.as_raw_fd(), self.input.as_mut_ptr(), room) } {
                Moved::Bytes(_) => {}
                Moved::Later | Moved::Ended => return,
            }
        }
    }
}

impl Connection {
    /// Greets the client.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        let mut greeting = Vec::new();
        let handshake = Handshake::new(&mut greeting);
        Self {
            is_local: socket::is_unix(socket.as_raw_fd()),
            last_bytes: 0,
            socket,
            phase: Phase::Handshake(handshake),
            life: Life::Open,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            incoming: Incoming::Request,
            out: VecDeque::from([Outgoing::Bytes(greeting)]),
            sent: 0,
            readable: true,
            writable: true,
            has_ended: false,
            is_gone: false,
            requests: 0,
            held_bytes: 0,
            moved_bytes: 0,
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Takes note of what the system says of the socket.
    pub(crate) fn tell(&mut self, news: News) {
        self.readable |= news.readable;
        self.writable |= news.writable;
        self.has_ended |= news.ended;
        self.is_gone |= news.gone;
    }

    /// Takes no more requests; a request that has not arrived in full is dropped.
    pub(crate) fn drain(&mut self) {
        if self.life != Life::Open {
            return;
        }
        self.life = Life::Draining;
        match std::mem::replace(&mut self.incoming, Incoming::Request) {
            Incoming::Request => {}
            Incoming::Payload { accepted, .. } => {
                self.requests -= 1;
                self.held_bytes -= u64::from(accepted.bytes);
            }
            Incoming::Skip { .. } => self.requests -= 1,
        }
    }

    /// Gives the client up.
    pub(crate) fn kill(&mut self) {
        self.life = Life::Dead;
        self.out.clear();
        self.incoming = Incoming::Request;
    }

    /// Whether nobody is there to be answered.
    pub(crate) fn is_dead(&self) -> bool {
        self.life == Life::Dead || self.is_gone
    }

    /// Whether nothing more is to be done for the client. Requests under way are answered to nobody.
    pub(crate) fn is_over(&self) -> bool {
        match self.life {
            Life::Open => false,
            Life::Draining => self.requests == 0 && self.out.is_empty(),
            Life::Dead => true,
        }
    }

    /// Whether the client has not chosen an export yet.
    pub(crate) fn is_in_handshake(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    /// Whether replies are structured.
    pub(crate) fn agreed(&self) -> Agreed {
        match self.phase {
            Phase::Handshake(_) => Agreed::default(),
            Phase::Transmission(agreed) => agreed,
        }
    }

    /// Requests under way, answered but not sent ones among them.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// What the requests under way hold.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// How much has moved so far, if it is the client's turn to move something: to take replies, or to send what it writes.
    pub(crate) fn owes(&self) -> Option<u64> {
        let is_its_turn = !self.out.is_empty() || matches!(self.incoming, Incoming::Payload { .. });
        is_its_turn.then_some(self.moved_bytes)
    }

    /// Whether the client may be heard by [`look`](Self::look) alone: what it asks for is short, and nothing waits
    /// until the socket takes more.
    pub(crate) fn may_be_near(&self) -> bool {
        let is_free = self.life == Life::Open && self.out.is_empty();
        is_free && self.is_local && self.last_bytes <= NEAR_BYTES_MAX && !self.is_in_handshake()
    }

    /// Whether the client has answers that it has not received yet, so that it does not wait for others.
    pub(crate) fn has_unread(&self) -> bool {
        socket::unread(self.fd()) > 0
    }

    /// Receives without being told that there is something; answers whether [`next`](Self::next) is to be asked.
    pub(crate) fn look(&mut self) -> bool {
        (self.readable, self.writable) = (true, true);
        let has_come = match self.incoming {
            Incoming::Payload { .. } => self.payload(),
            _ => self.end - self.start < REQUEST_BYTES && self.fill(),
        };
        has_come || self.life != Life::Open
    }

    /// The next request that can be started now. Its reply is owed to [`reply`](Self::reply).
    pub(crate) fn next(&mut self, export: &Export, buffers: &mut Buffers) -> Option<Accepted> {
        while self.life == Life::Open {
            if let Phase::Handshake(handshake) = &mut self.phase {
                let mut out = Vec::new();
                let (taken, step) = handshake.advance(export, &self.input[self.start..self.end], &mut out);
                self.start += taken;
                if !out.is_empty() {
                    self.out.push_back(Outgoing::Bytes(out));
                }
                match step {
                    Step::Transmission(agreed) => self.phase = Phase::Transmission(agreed),
                    Step::Close => self.drain(),
                    Step::More if self.fill() => {}
                    Step::More => return None,
                }
                continue;
            }
            match self.incoming {
                Incoming::Request => {
                    if self.end - self.start < REQUEST_BYTES {
                        if !self.fill() {
                            return None;
                        }
                    } else if let Some(accepted) = self.request(export, buffers)? {
                        return Some(accepted);
                    }
                }
                Incoming::Payload { .. } => {
                    if !self.payload() {
                        return None;
                    }
                    let Incoming::Payload { accepted, .. } =
                        std::mem::replace(&mut self.incoming, Incoming::Request)
                    else {
                        unreachable!("just matched")
                    };
                    return Some(accepted);
                }
                Incoming::Skip { left: 0, cookie, error } => {
                    self.incoming = Incoming::Request;
                    self.refuse(cookie, command::WRITE, error);
                }
                Incoming::Skip { left, cookie, error } => {
                    let here = left.min(self.end - self.start);
                    self.start += here;
                    self.incoming = Incoming::Skip { left: left - here, cookie, error };
                    if left > here && !self.fill() {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Understands the request at the front. Outer nothing: it has to wait for others to be answered. Inner
    /// nothing: go on with what `incoming` or `life` has become.
    #[expect(clippy::option_option, reason = "waiting differs from having nothing to start")]
    fn request(&mut self, export: &Export, buffers: &mut Buffers) -> Option<Option<Accepted>> {
        let header = self.input[self.start..self.end].first_chunk::<REQUEST_BYTES>()?;
        let Some(raw) = RawRequest::parse(header) else {
            self.drain();
            return Some(None);
        };
        let RawRequest { cookie, offset, length, command, .. } = raw;
        let judged = judge(&raw, export, self.agreed());
        let moves = matches!(judged, Ok(Task::Array { op: Op::Read | Op::Write, .. }));
        let held = if moves { u64::from(length) } else { 0 };
        let is_full = self.requests > 0 && self.held_bytes + held > BYTES_MAX;
        if self.requests >= REQUESTS_MAX || is_full || !buffers.has_room(self.held_bytes, held) {
            return None;
        }
        self.start += REQUEST_BYTES;
        self.last_bytes = length;
        let judged = match judged {
            Ok(Task::Disconnect) => {
                self.drain();
                return Some(None);
            }
            Ok(task) if moves => {
                buffers.take(length as usize).map(|b| (task, Some(b))).ok_or(Errno::NoMemory)
            }
            Ok(task) => Ok((task, None)),
            Err(error) => Err(error),
        };
        self.requests += 1;
        self.held_bytes += if judged.is_ok() { held } else { 0 };
        match judged {
            Ok((task, buffer)) => {
                let accepted = Accepted { cookie, offset, bytes: length, task, buffer, takes_loans: false };
                if command != command::WRITE {
                    return Some(Some(accepted));
                }
                self.incoming = Incoming::Payload { accepted, filled: 0 };
            }
            Err(error) if command == command::WRITE => {
                self.incoming = Incoming::Skip { left: length as usize, cookie, error };
            }
            Err(error) => self.refuse(cookie, command, error),
        }
        Some(None)
    }

    fn refuse(&mut self, cookie: u64, command: u16, error: Errno) {
        let structured = self.agreed().structured && matches!(command, command::READ | command::BLOCK_STATUS);
        let head = if structured { Head::error(cookie, error) } else { Head::simple(cookie, Some(error)) };
        self.reply(head, Vec::new(), None, 0);
    }

    /// Moves a write's bytes to its buffer; answers whether all are there.
    fn payload(&mut self) -> bool {
        let Incoming::Payload { accepted, filled } = &mut self.incoming else { return false };
        let Some(buffer) = &accepted.buffer else { return true };
        let bytes = accepted.bytes as usize;
        let here = (bytes - *filled).min(self.end - self.start);
        // SAFETY: the buffer is `bytes` long and only this connection's; the input is another memory.
        unsafe {
            let to = buffer.base().add(*filled);
            to.copy_from_nonoverlapping(self.input[self.start..].as_ptr(), here);
        }
        self.start += here;
        *filled += here;
        while *filled < bytes {
            if !self.readable {
                return false;
            }
            let left = bytes - *filled;
            // SAFETY: the rest of the buffer, which is only this connection's.
            match unsafe { socket::receive(self.socket.as_raw_fd(), buffer.base().add(*filled), left) } {
                Moved::Bytes(count) => {
                    *filled += count;
                    self.moved_bytes += count as u64;
                }
                Moved::Later => self.readable = false,
                Moved::Ended => {
                    self.drain();
                    return false;
                }
            }
        }
        true
    }

    /// Receives more; answers whether something came.
    fn fill(&mut self) -> bool {
        if !self.readable || self.life != Life::Open {
            return false;
        }
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let room = self.input.len() - self.end;
        // SAFETY: the room at the end of the input.
        match unsafe { socket::receive(self.fd(), self.input[self.end..].as_mut_ptr(), room) } {
            Moved::Bytes(count) => {
                // Less than there was room for: the socket is empty, and says so when that changes.
                self.readable = count == room || self.has_ended;
                self.end += count;
                true
            }
            Moved::Later => {
                self.readable = false;
                false
            }
            Moved::Ended => {
                self.drain();
                false
            }
        }
    }

    /// Answers a request that was carried out.
    pub(crate) fn answer(&mut self, accepted: Accepted, result: IoResult, buffers: &mut Buffers) {
        let Accepted { cookie, offset, bytes, task, buffer, .. } = accepted;
        let is_read = matches!(task, Task::Array { op: Op::Read, .. });
        let held = if buffer.is_some() { u64::from(bytes) } else { 0 };
        let structured = is_read && self.agreed().structured;
        let head = match result {
            Ok(()) if structured => Head::offset_data(cookie, offset, bytes),
            Ok(()) => Head::simple(cookie, None),
            Err(error) if structured => Head::error(cookie, errno_of(error)),
            Err(error) => Head::simple(cookie, Some(errno_of(error))),
        };
        let body = match buffer {
            Some(buffer) if is_read && result.is_ok() => Some((buffer, bytes as usize)),
            Some(buffer) => {
                buffers.give(buffer);
                None
            }
            None => None,
        };
        self.reply(head, Vec::new(), body, held);
    }

    /// Tells what a range of so many bytes holds.
    pub(crate) fn answer_status(&mut self, cookie: u64, bytes: u32) {
        let extents = status::extents(bytes);
        let head = Head::block_status(cookie, BASE_ALLOCATION_ID, extents.len() / 8);
        self.reply(head, extents, None, 0);
    }

    /// Queues the reply of a request that held so many bytes: its head, a few bytes, or its buffer's.
    pub(crate) fn reply(&mut self, head: Head, tail: Vec<u8>, body: Option<(Buffer, usize)>, held: u64) {
        self.out.push_back(Outgoing::Reply { head, tail, body, held });
    }

    /// Sends what is queued as far as the socket takes it; answers whether something moved.
    pub(crate) fn send(&mut self, buffers: &mut Buffers) -> bool {
        let mut moved = false;
        while self.writable && !self.out.is_empty() && self.life != Life::Dead {
            let mut runs = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; RUNS_MAX];
            let count = self.lay_out(&mut runs);
            let asked: usize = runs[..count].iter().map(|r| r.iov_len).sum();
            // SAFETY: the runs are of messages in the queue, which nothing writes to.
            match unsafe { socket::send(self.fd(), &mut runs[..count]) } {
                Moved::Bytes(bytes) => {
                    moved = true;
                    self.moved_bytes += bytes as u64;
                    self.writable = bytes == asked;
                    self.was_sent(bytes, buffers);
                }
                Moved::Later => self.writable = false,
                Moved::Ended => self.kill(),
            }
        }
        moved
    }

    fn lay_out(&self, runs: &mut [libc::iovec; RUNS_MAX]) -> usize {
        let mut count = 0;
        let mut skip = self.sent;
        for message in &self.out {
            for (base, bytes) in message.runs() {
                if count == RUNS_MAX {
                    return count;
                }
                if skip >= bytes {
                    skip -= bytes;
                    continue;
                }
                let base = base.wrapping_add(skip).cast_mut().cast();
                runs[count] = libc::iovec { iov_base: base, iov_len: bytes - skip };
                skip = 0;
                count += 1;
            }
        }
        count
    }

    fn was_sent(&mut self, bytes: usize, buffers: &mut Buffers) {
        self.sent += bytes;
        while let Some(message) = self.out.front() {
            let length: usize = message.runs().iter().map(|r| r.1).sum();
            if self.sent < length {
                return;
            }
            self.sent -= length;
            if let Some(Outgoing::Reply { body, held, .. }) = self.out.pop_front() {
                self.requests -= 1;
                self.held_bytes -= held;
                if let Some((buffer, _)) = body {
                    buffers.give(buffer);
                }
            }
        }
    }
}

impl Outgoing {
    fn runs(&self) -> [(*const u8, usize); 3] {
        let run = |bytes: &[u8]| (bytes.as_ptr(), bytes.len());
        match self {
            Self::Bytes(bytes) => [run(bytes), run(&[]), run(&[])],
            Self::Reply { head, tail, body, .. } => {
                let body = body.as_ref().map_or(run(&[]), |(b, bytes)| (b.base().cast_const(), *bytes));
                [run(head.as_bytes()), run(tail), body]
            }
        }
    }
}
