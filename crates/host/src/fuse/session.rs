//! One mount as a client: requests in from `/dev/fuse`, answers out.
//!
//! *Bounds.* Those of a connection: requests beyond them wait in the kernel. *Copies.* What is written goes from the kernel
//! to the request's buffer, what is read from there to the kernel, or from where it was [lent](crate::loans); only short
//! writes are moved once more, out of a buffer that has room for long ones. *Order.* Each request is read alone, and answered
//! alone as it ends: long reads by a [second thread](sender) if several are under way.

mod patch;
mod sender;

use std::cell::OnceCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use stripewise_engine::io::{IoError, IoResult, Op};
use stripewise_engine::units::SECTOR_BYTES;

use super::abi::{
    Body, FILE, IN_HEADER_BYTES, InHeader, NOTIFY_INVAL_INODE, WRITE_IN_BYTES, opcode, out_header,
};
use super::mount::Mount;
use super::request::{Owner, TRANSFER_BYTES_MAX, Verdict, judge};
use crate::loans::Loans;
use crate::nbd::{Accepted, BYTES_MAX, Buffer, Buffers, Export, Moved, News, REQUESTS_MAX, Task, moved};
use patch::{Patch, Unaligned};
use sender::{Read, Sender};

/// What a write's payload follows; other requests go on behind it.
const HEAD_BYTES: usize = IN_HEADER_BYTES + WRITE_IN_BYTES;
/// Bytes of a request that is no write: the longest has a name of 255.
const ARGUMENTS_BYTES_MAX: usize = 512;
/// Payloads up to this length are moved to a buffer of their own length. The room they came in is used again while it is in
/// the CPU's caches.
const MOVED_BYTES_MAX: usize = 64 << 10;

/// Answers from this length on may be sent by a second thread: it is woken while this one copies.
const LONG_BYTES_MIN: usize = 128 << 10;

/// How a mount stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Requests are taken.
    Open,
    /// What the kernel has already asked for is answered.
    Draining,
    /// Nothing more is taken.
    Drained,
    /// Nobody is there to be answered.
    Dead,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Session {
    /// Sends long answers, if there is a thread for it; dropped before the device.
    sender: OnceCell<Option<Sender>>,
    device: Arc<OwnedFd>,
    /// Dropped after the device, so that unmounting waits for no answer of this thread's; none when it is gone.
    mount: Option<Mount>,
    owner: Owner,
    life: Life,
    readable: bool,
    /// Requests read since there was none last: from the second on, somebody has several under way.
    in_a_row: u32,
    head: [u8; HEAD_BYTES],
    /// Where the next request's payload goes.
    room: Option<Buffer>,
    /// A write that needs the bytes around it.
    patch: Patch,
    /// How often the file is open.
    opens: u32,
    requests: u32,
    held_bytes: u64,
}

impl Session {
    /// The client of a device that does not block; it unmounts when it is dropped.
    pub(super) fn new(device: OwnedFd, mount: Option<Mount>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        // SAFETY: the calls take no pointers and cannot fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        Self {
            sender: OnceCell::new(),
            device: Arc::new(device),
            mount,
            owner: Owner { uid, gid, since },
            life: Life::Open,
            readable: true,
            in_a_row: 0,
            head: [0; HEAD_BYTES],
            room: None,
            opens: 0,
            requests: 0,
            held_bytes: 0,
            patch: Patch::default(),
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.device.as_raw_fd()
    }

    /// Whether the file is open, by a program or a loop device.
    pub(crate) fn is_in_use(&self) -> bool {
        self.opens > 0
    }

    /// Unmounts; answers the folder if it was in use. The device is closed before, so that no answer of this thread's is
    /// waited for.
    pub(crate) fn end(self) -> Option<PathBuf> {
        let Self { sender, device, mount, .. } = self;
        drop(sender);
        drop(device);
        mount.and_then(Mount::end)
    }

    /// The device number that its files bear; none if the system does not say, or when it was unmounted.
    pub(crate) fn device_number(&self) -> Option<u64> {
        self.mount.as_ref().and_then(Mount::device_number)
    }

    /// Takes note of what the system says of the device.
    pub(crate) fn tell(&mut self, news: News) {
        self.readable |= news.readable;
    }

    /// Takes no more requests than the kernel has at hand.
    pub(crate) fn drain(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Draining;
        }
    }

    /// Gives the mount up.
    pub(crate) fn kill(&mut self) {
        self.life = Life::Dead;
    }

    /// Whether nobody is there to be answered.
    pub(crate) fn is_dead(&self) -> bool {
        self.life == Life::Dead
    }

    /// Whether nothing more is to be done. Requests under way are answered to nobody.
    pub(crate) fn is_over(&self) -> bool {
        match self.life {
            Life::Open | Life::Draining => false,
            Life::Drained => self.requests == 0,
            Life::Dead => true,
        }
    }

    /// Requests under way.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// The next request for the array. Its answer is owed to [`answer`](Self::answer).
    pub(crate) fn next(&mut self, export: &Export, buffers: &mut Buffers) -> Option<Accepted> {
        while matches!(self.life, Life::Open | Life::Draining) {
            if !matches!(self.patch, Patch::None) {
                return self.patch(buffers);
            }
            let is_full = self.held_bytes + u64::from(TRANSFER_BYTES_MAX) > BYTES_MAX;
            if self.requests >= REQUESTS_MAX || self.requests > 0 && is_full {
                return None;
            }
            let Some(bytes) = self.receive(buffers)? else { continue };
            if let Some(accepted) = self.take(bytes, export, buffers) {
                return Some(accepted);
            }
        }
        None
    }

    /// Reads a request; answers its length. Outer nothing: none for now. Inner nothing: look at `life` again.
    #[expect(clippy::option_option, reason = "waiting differs from the end")]
    fn receive(&mut self, buffers: &mut Buffers) -> Option<Option<usize>> {
        if !self.readable {
            if self.life == Life::Draining {
                self.life = Life::Drained;
            }
            return None;
        }
        let room = match self.room.take() {
            Some(room) => room,
            None => buffers.take(TRANSFER_BYTES_MAX as usize)?,
        };
        let runs = [
            libc::iovec { iov_base: self.head.as_mut_ptr().cast(), iov_len: HEAD_BYTES },
            libc::iovec { iov_base: room.base().cast(), iov_len: room.bytes() },
        ];
        self.room = Some(room);
        // SAFETY: the runs are this session's own.
        let received = moved(&[libc::ENOENT], || unsafe { libc::readv(self.fd(), runs.as_ptr(), 2) });
        match received {
            Moved::Bytes(bytes) => {
                self.in_a_row = self.in_a_row.saturating_add(1);
                return Some(Some(bytes));
            }
            Moved::Later => (self.readable, self.in_a_row) = (false, 0),
            Moved::Ended => {
                self.life = Life::Dead;
                if let Some(mount) = self.mount.take() {
                    mount.forget();
                }
            }
        }
        Some(None)
    }

    /// Answers a request of so many bytes, or hands it on.
    fn take(&mut self, bytes: usize, export: &Export, buffers: &mut Buffers) -> Option<Accepted> {
        let header = InHeader::parse(self.head.first_chunk()?);
        if bytes < IN_HEADER_BYTES || header.bytes as usize != bytes {
            self.send(header.unique, libc::EIO, &[]);
            return None;
        }
        let here = &self.head[IN_HEADER_BYTES..bytes.min(HEAD_BYTES)];
        let verdict = if matches!(header.opcode, opcode::READ | opcode::WRITE) {
            judge(header, here, export, self.owner)
        } else {
            let rest = bytes.saturating_sub(HEAD_BYTES).min(ARGUMENTS_BYTES_MAX);
            let room = self.room.as_ref()?;
            // SAFETY: the room is longer, and only this session's.
            let rest = unsafe { std::slice::from_raw_parts(room.base(), rest) };
            judge(header, &[here, rest].concat(), export, self.owner)
        };
        let (task, offset, asked) = match verdict {
            Verdict::Carry { task, offset, bytes } => (task, offset, bytes),
            Verdict::Answer(body) => {
                self.count_opens(header);
                self.send(header.unique, 0, &body);
                return None;
            }
            Verdict::Refuse(errno) => {
                self.send(header.unique, errno, &[]);
                return None;
            }
            Verdict::Ignore => return None,
        };
        if let Task::Array { op: Op::Write, range, fua } = task
            && range.count * SECTOR_BYTES != u64::from(asked)
        {
            let unique = header.unique;
            self.patch = Patch::Waiting(Unaligned { unique, blocks: range, fua, offset, bytes: asked });
            return None;
        }
        let Ok(buffer) = self.buffer(task, buffers) else {
            self.send(header.unique, libc::ENOMEM, &[]);
            return None;
        };
        self.requests += 1;
        self.held_bytes += u64::from(asked);
        // Of bytes between blocks, all that is read is more than what is sent.
        let takes_loans = matches!(task, Task::Array { op: Op::Read, range, .. }
            if range.count * SECTOR_BYTES == u64::from(asked));
        Some(Accepted { cookie: header.unique, offset, bytes: asked, task, buffer, takes_loans })
    }

    /// Takes note of an answer: the kernel releases what it has opened, whoever dies.
    fn count_opens(&mut self, header: InHeader) {
        match header.opcode {
            opcode::OPEN => self.opens += 1,
            opcode::RELEASE => self.opens = self.opens.saturating_sub(1),
            _ => {}
        }
    }

    /// The buffer of a task, with the payload in it. The error is that there is no memory.
    fn buffer(&mut self, task: Task, buffers: &mut Buffers) -> Result<Option<Buffer>, ()> {
        let Task::Array { op: op @ (Op::Read | Op::Write), range, .. } = task else { return Ok(None) };
        let bytes = (range.count * SECTOR_BYTES) as usize;
        if op == Op::Write && bytes > MOVED_BYTES_MAX {
            return self.room.take().ok_or(()).map(Some);
        }
        let buffer = buffers.take(bytes).ok_or(())?;
        if let (Op::Write, Some(room)) = (op, &self.room) {
            // SAFETY: the room holds the payload, the buffer is as long, and both are only this session's.
            unsafe { buffer.base().copy_from_nonoverlapping(room.base(), bytes) };
        }
        Ok(Some(buffer))
    }

    /// Answers a request that was handed on.
    pub(crate) fn answer(
        &mut self,
        accepted: Accepted,
        result: IoResult,
        loans: &mut Loans,
        buffers: &mut Buffers,
    ) {
        let Some(accepted) = self.blocks_read(accepted, result, buffers) else { return };
        let Accepted { cookie, offset, bytes, task, buffer, .. } = accepted;
        self.requests -= 1;
        self.held_bytes -= u64::from(bytes);
        match (result, task, buffer) {
            (Ok(()), Task::Array { op: Op::Read, range, .. }, Some(buffer)) => {
                let skip = (offset - range.start * SECTOR_BYTES) as usize;
                let read = Read { unique: cookie, buffer, skip, bytes: bytes as usize };
                self.answer_read(read, loans, buffers);
            }
            (result, task, buffer) => {
                match (result, task) {
                    (Err(error), _) => self.send(cookie, errno_of(error), &[]),
                    (Ok(()), Task::Array { op: Op::Write, .. }) => {
                        // `struct fuse_write_out`.
                        let [a, b, c, d] = bytes.to_ne_bytes();
                        self.send(cookie, 0, &[a, b, c, d, 0, 0, 0, 0]);
                    }
                    (Ok(()), _) => self.send(cookie, 0, &[]),
                }
                if let Some(buffer) = buffer {
                    buffers.give(buffer);
                }
            }
        }
    }

    /// Sends what was read, or has it sent while this thread goes on with other requests.
    fn answer_read(&mut self, read: Read, loans: &mut Loans, buffers: &mut Buffers) {
        if read.bytes >= LONG_BYTES_MIN && self.in_a_row > 1 {
            let sender = self.sender.get_or_init(|| Sender::new(&self.device));
            if let Some(sender) = sender.as_ref().filter(|sender| sender.has_room()) {
                let mut own = Loans::default();
                if let Some((sent, loans)) = sender.sent() {
                    buffers.give(sent.buffer);
                    own = loans;
                }
                loans.pass(&read.place(), &mut own);
                return sender.take(read, own);
            }
        }
        read.send(&self.device, loans);
        buffers.give(read.buffer);
    }

    /// Has the kernel ask again for what it knows of the file, which is its size.
    pub(crate) fn look_again(&self) {
        // `struct fuse_notify_inval_inode_out`; of an offset below zero, attributes alone. A notice is an answer to nothing, with
        // its code where errors are.
        let body = Body::default().u64s(&[FILE, u64::MAX, 0]).0;
        self.send(0, -NOTIFY_INVAL_INODE, &body);
    }

    /// Sends an answer. The device never makes one wait; of a request that nobody waits for any more it takes none.
    fn send(&self, unique: u64, errno: i32, body: &[u8]) {
        let header = out_header(unique, errno, body.len());
        let runs = [&header, body]
            .map(|run| libc::iovec { iov_base: run.as_ptr().cast_mut().cast(), iov_len: run.len() });
        // SAFETY: the runs are readable for the time of the call.
        let _nobody_waits = moved(&[], || unsafe { libc::writev(self.fd(), runs.as_ptr(), 2) });
    }
}

/// What the kernel is told of the engine's error. The file is as large as it is, so that there is never no space. Of one that is mounted
/// read-only no write comes this far: an array that takes no more writes has an error.
fn errno_of(error: IoError) -> i32 {
    match error {
        IoError::Media | IoError::Gone | IoError::Lost | IoError::NoSpace | IoError::ReadOnly => libc::EIO,
        IoError::Range => libc::EINVAL,
    }
}
