//! One shard's `io_uring`: I/O of file members, with retries and fallbacks.
//!
//! *Ordering.* I/Os are carried out in any order. *Completion.* Each is answered once, when all its bytes
//! have moved or it has failed for good. *Limits.* [`IN_FLIGHT_MAX`] in the kernel, the rest waits here;
//! [`op::RETRIES_MAX`] attempts at an I/O the system asks to repeat. *Cancellation.* Dropping the ring waits for
//! what is in flight, since the kernel still writes to its buffers.

mod op;

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::thread::ThreadId;

use io_uring::{IoUring, opcode, squeue, types};
use stripewise_engine::io::{Area, IoError, IoResult, MemberIo, Op, Tag};
use stripewise_engine::units::{Instant, MemberIndex, Nanos, SECTOR_BYTES};

use crate::buffers::Mapping;
use crate::clock::Clock;
use crate::error::HostError;
use crate::flushes::{Flushes, Turn};
use crate::members::{FileMember, Member, Route};
use crate::report::MemberError;
use op::{Region, RingOp, Step};

/// Submissions gathered before the kernel is called.
const QUEUE_ENTRIES: u32 = 256;
/// I/Os in the kernel at once; completions have as many places, so that none overflows.
const IN_FLIGHT_MAX: u32 = 4096;
/// Descriptors of a member that a shard uses: direct, buffered, and for flushes.
const FILES_PER_MEMBER: i32 = 3;
/// How long a completion of members in memory is looked for before sleeping: the time it takes to be woken (45 µs between
/// virtual CPUs) is that of copying 200 KiB, so that a request's next part is there before.
const LOOK_MAX: Nanos = Nanos::from_micros(50);
/// The completion of the poll on the wake-up descriptor.
const WAKE: u64 = u64::MAX;

/// How an I/O ended.
type Ended = Result<(), MemberError>;

/// The ring of one shard, used by one thread.
pub(crate) struct Ring {
    uring: IoUring,
    owner: ThreadId,
    ops: Vec<RingOp>,
    free: Vec<u32>,
    backlog: VecDeque<u32>,
    in_kernel: u32,
    /// Members with places in the table of registered descriptors: those that were there when the ring was made, unless
    /// the system refused.
    registered_members: usize,
    /// Those of them, the first ones, whose places hold their descriptors and are used.
    fixed_members: usize,
    regions: Vec<Region>,
    wake_fd: Option<RawFd>,
    wake_armed: bool,
    zeroes: usize,
    /// Whether all members are in memory.
    is_in_memory: bool,
    /// The shard, which has a descriptor for flushes of each member.
    shard: usize,
    /// By member.
    flushes: Vec<Flushes>,
    /// I/Os that are not answered, by member.
    in_flight: Vec<u32>,
    /// Completions are taken in batches, of which this is the last's number,
    batch: u64,
    /// and these the last ones after which a member's file was seen to be whole.
    whole_at: Vec<u64>,
    /// Flushes answered without a call of their own, and their results.
    answered: Vec<(u32, IoResult)>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_kernel", &self.in_kernel).finish_non_exhaustive()
    }
}

impl Ring {
    /// A ring for the calling thread. `mappings` are pinned if the system allows as much locked memory;
    /// `wake_fd` ends a wait when it becomes readable.
    pub(crate) fn new(
        shard: usize,
        members: &[Arc<Member>],
        mappings: &[&Mapping],
        zeroes: *mut u8,
        wake_fd: Option<RawFd>,
    ) -> Result<Self, HostError> {
        let uring =
            build().map_err(|e| HostError::IoUring { errno: e.raw_os_error().unwrap_or(libc::ENOSYS) })?;
        let registered_members = if register_files(&uring, shard, members) { members.len() } else { 0 };
        let regions = register_mappings(&uring, mappings);
        Ok(Self {
            uring,
            owner: std::thread::current().id(),
            ops: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            in_kernel: 0,
            registered_members,
            fixed_members: registered_members,
            regions,
            wake_fd,
            wake_armed: false,
            zeroes: zeroes as usize,
            is_in_memory: members.iter().all(|m| m.file().is_none_or(FileMember::is_in_memory)),
            shard,
            flushes: members.iter().map(|_| Flushes::default()).collect(),
            in_flight: vec![0; members.len()],
            batch: 0,
            whole_at: vec![0; members.len()],
            answered: Vec::new(),
        })
    }

    /// Whether the calling thread is the one the ring was made for.
    pub(crate) fn is_own(&self) -> bool {
        self.owner == std::thread::current().id()
    }

    /// Makes room for a member that comes in, whose descriptors are used as they are.
    pub(crate) fn admit(&mut self, member: MemberIndex) {
        let members = self.in_flight.len().max(member.index() + 1);
        self.in_flight.resize(members, 0);
        self.whole_at.resize(members, 0);
        self.whole_at[member.index()] = 0;
        self.flushes.resize_with(members, Flushes::default);
        self.flushes[member.index()] = Flushes::default();
        self.fixed_members = self.fixed_members.min(member.index());
    }

    /// Lets go of a member's registered descriptors, which would keep its file open. It has no I/O in flight.
    pub(crate) fn forget(&mut self, member: MemberIndex) {
        if member.index() < self.registered_members {
            let first = member.index() as u32 * FILES_PER_MEMBER as u32;
            // A table that cannot be changed only keeps the file open for as long as the ring.
            let _ = self.uring.submitter().register_files_update(first, &[-1; FILES_PER_MEMBER as usize]);
        }
    }

    /// Whether an I/O of a member has not been answered.
    pub(crate) fn has_in_flight(&self, member: MemberIndex) -> bool {
        self.in_flight.get(member.index()).is_some_and(|count| *count > 0)
    }

    /// Whether an I/O has not been answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_kernel > 0 || !self.backlog.is_empty() || !self.answered.is_empty()
    }

    /// Starts an I/O on a file member.
    ///
    /// # Safety
    /// The buffers are as long as the range together (none for operations that move no bytes), live until
    /// the I/O is answered, and are used by nothing else but, for a write, other readers.
    pub(crate) unsafe fn start(
        &mut self,
        members: &[Arc<Member>],
        io: &MemberIo,
        buffers: impl Iterator<Item = (*mut u8, usize)>,
    ) {
        let Some(file) = members[io.member.index()].file() else { unreachable!("only files use the ring") };
        self.in_flight[io.member.index()] += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.ops.push(RingOp::idle());
            self.ops.len() as u32 - 1
        });
        let op = &mut self.ops[index as usize];
        op.tag = io.tag;
        op.member = io.member;
        op.fua = io.fua;
        op.step = match io.op {
            Op::Read => Step::Read,
            Op::Write => Step::Write,
            Op::Flush => Step::Flush,
            Op::Discard => Step::Allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
            Op::WriteZeroes => Step::Allocate(libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE),
        };
        let before = if io.area == Area::Data { file.data_offset_bytes() } else { 0 };
        op.offset = before + io.range.start * SECTOR_BYTES;
        op.left = if io.op == Op::Flush { 0 } else { io.range.count * SECTOR_BYTES };
        op.route = file.route(op.offset, op.left);
        op.retries = 0;
        op.next = 0;
        op.iovecs.clear();
        op.iovecs.extend(buffers.map(|(base, bytes)| libc::iovec { iov_base: base.cast(), iov_len: bytes }));
        if io.op.is_write() {
            if file.is_cut() {
                return self.answered.push((index, Err(IoError::Gone)));
            }
            file.begin_write();
        }
        if io.area == Area::Device && io.op == Op::Write {
            // The bytes are the action queue's, which is about to be cleared.
            // SAFETY: the runs are readable now, by the caller's promise.
            unsafe { op.keep_own_copy() };
        }
        if io.op == Op::Flush {
            match self.flushes[io.member.index()].came(index) {
                Turn::Call => {}
                Turn::Wait => return,
                Turn::Fail(error) => return self.answered.push((index, Err(error))),
            }
        }
        self.push(index, members);
    }

    /// Queues an I/O's next submission, or keeps it here while there is no place.
    fn push(&mut self, index: u32, members: &[Arc<Member>]) {
        if self.in_kernel >= IN_FLIGHT_MAX {
            self.backlog.push_back(index);
            return;
        }
        let entry = self.entry(index, members);
        if self.uring.submission().is_full() {
            self.submit();
        }
        // SAFETY: the entry's buffers outlive the I/O, and its segment list is not touched until then.
        if unsafe { self.uring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(index);
            return;
        }
        self.in_kernel += 1;
    }

    fn entry(&mut self, index: u32, members: &[Arc<Member>]) -> squeue::Entry {
        let op = &mut self.ops[index as usize];
        let Some(file) = members[op.member.index()].file() else { unreachable!("only files use the ring") };
        if op.step == Step::Zeroes && op.next == op.iovecs.len() {
            op.lay_out_zeroes(self.zeroes);
        }
        let entry = if op.member.index() < self.fixed_members {
            let position = op.member.index() as i32 * FILES_PER_MEMBER
                + if op.step == Step::Flush { 2 } else { i32::from(op.route == Route::Buffered) };
            op.entry(types::Fd(position), &self.regions).flags(squeue::Flags::FIXED_FILE)
        } else {
            let fd = if op.step == Step::Flush { file.flush_fd(self.shard) } else { file.fd(op.route) };
            op.entry(types::Fd(fd), &self.regions)
        };
        entry.user_data(u64::from(index))
    }

    /// Gives the kernel what is queued, and lets it post completions.
    pub(crate) fn submit(&mut self) {
        self.enter(0, Some(Nanos(0)));
    }

    /// Gives the kernel what is queued and sleeps until a completion, a wake-up or the end of the time.
    pub(crate) fn wait(&mut self, timeout: Option<Nanos>) {
        if let (Some(fd), false) = (self.wake_fd, self.wake_armed) {
            let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build().user_data(WAKE);
            // SAFETY: a poll names no memory.
            self.wake_armed = unsafe { self.uring.submission().push(&poll) }.is_ok();
        }
        if self.is_in_memory && self.in_kernel > 0 && self.answered.is_empty() {
            self.look(timeout.unwrap_or(LOOK_MAX).min(LOOK_MAX));
        }
        // A flush that is answered already needs no completion.
        self.enter(usize::from(self.answered.is_empty()), timeout);
    }

    /// Looks for a completion or a wake-up for a while, and lets other threads run.
    fn look(&mut self, most: Nanos) {
        self.submit();
        let clock = Clock::start();
        while !self.uring.submission().taskrun()
            && self.uring.completion().is_empty()
            && clock.now().since(Instant::ZERO) < most
        {
            std::thread::yield_now();
        }
    }

    fn enter(&mut self, want: usize, timeout: Option<Nanos>) {
        let time = timeout
            .map(|t| types::Timespec::new().sec(t.0 / 1_000_000_000).nsec((t.0 % 1_000_000_000) as u32));
        let mut arguments = types::SubmitArgs::new();
        if let Some(time) = &time {
            arguments = arguments.timespec(time);
        }
        match self.uring.submitter().submit_with_args(want, &arguments) {
            Ok(_) => {}
            // The time is over, a signal came, or completions must be taken first: the caller's next round
            // does that.
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) => {}
            Err(e) => panic!("io_uring_enter failed on a ring in use: {e}"),
        }
    }

    /// Takes completions; tells `done` of each I/O that ended.
    pub(crate) fn reap(&mut self, members: &[Arc<Member>], mut done: impl FnMut(MemberIndex, Tag, Ended)) {
        let mut batch_left = 0;
        while let Some(completion) = {
            let mut queue = self.uring.completion();
            if batch_left == 0 {
                batch_left = queue.len();
                self.batch += 1;
            }
            queue.next()
        } {
            batch_left -= 1;
            if completion.user_data() == WAKE {
                self.wake_armed = false;
                continue;
            }
            self.in_kernel -= 1;
            let index = completion.user_data() as u32;
            let op = &mut self.ops[index as usize];
            let Some(file) = members[op.member.index()].file() else {
                unreachable!("only files use the ring")
            };
            match op.advance(completion.result(), file) {
                Some(result) => {
                    let (member, is_flush) = (op.member, op.step == Step::Flush);
                    let whole_at = &mut self.whole_at[member.index()];
                    let result = if *whole_at == self.batch || result.is_err() {
                        result
                    } else if file.is_cut() {
                        // Cut meanwhile: what was written may have lengthened it, and what was read may be the hole of
                        // such a write.
                        Err(IoError::Gone)
                    } else {
                        *whole_at = self.batch;
                        result
                    };
                    if !matches!(op.step, Step::Read | Step::Flush) {
                        file.end_write();
                    }
                    self.in_flight[member.index()] -= 1;
                    done(member, op.tag, result.map_err(|error| op.error(error)));
                    self.free.push(index);
                    if is_flush {
                        self.flush_called(member, result, members);
                    }
                }
                None => self.push(index, members),
            }
        }
        for (index, result) in self.answered.drain(..) {
            let op = &self.ops[index as usize];
            self.in_flight[op.member.index()] -= 1;
            done(op.member, op.tag, result.map_err(|error| op.error(error)));
            self.free.push(index);
        }
        while self.in_kernel < IN_FLIGHT_MAX {
            let Some(index) = self.backlog.pop_front() else { break };
            self.push(index, members);
        }
    }
}

impl Ring {
    /// Answers the flushes that shared a call, and makes the next one.
    fn flush_called(&mut self, member: MemberIndex, result: IoResult, members: &[Arc<Member>]) {
        let mut shared = Vec::new();
        let next = self.flushes[member.index()].called(result, &mut shared);
        self.answered.extend(shared.into_iter().map(|index| (index, result)));
        if let Some(index) = next {
            self.push(index, members);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.in_kernel > 0 {
            self.enter(1, None);
            for completion in self.uring.completion() {
                self.in_kernel -= u32::from(completion.user_data() != WAKE);
            }
        }
        // The kernel takes a ring down later, and its table would keep the files open until then.
        let _ = self.uring.submitter().unregister_files();
    }
}

/// Prefers a ring whose completions are posted when its thread asks for them (Linux 6.1); a plain one else.
fn build() -> std::io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(IN_FLIGHT_MAX * 2).setup_clamp();
    let mut modern = builder.clone();
    modern.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    match modern.build(QUEUE_ENTRIES) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => builder.build(QUEUE_ENTRIES),
        other => other,
    }
}

/// Registers the descriptors of each member, so that an I/O takes no reference on them. It is only a
/// saving: without it descriptors are used as they are.
fn register_files(uring: &IoUring, shard: usize, members: &[Arc<Member>]) -> bool {
    let fds: Vec<RawFd> = members
        .iter()
        .flat_map(|m| {
            let fds = |f: &FileMember| [f.fd(Route::Direct), f.fd(Route::Buffered), f.flush_fd(shard)];
            m.file().map_or([-1; FILES_PER_MEMBER as usize], fds)
        })
        .collect();
    uring.submitter().register_files(&fds).is_ok()
}

/// Pins the mappings, so that an I/O need not. Where the limit on locked memory forbids it, or a mapping is
/// too long for the kernel's limit of 1 GiB, none is pinned.
fn register_mappings(uring: &IoUring, mappings: &[&Mapping]) -> Vec<Region> {
    let iovecs: Vec<libc::iovec> =
        mappings.iter().map(|m| libc::iovec { iov_base: m.base().cast(), iov_len: m.bytes() }).collect();
    // SAFETY: the mappings outlive the ring, which the array drops first.
    match unsafe { uring.submitter().register_buffers(&iovecs) } {
        Ok(()) => mappings
            .iter()
            .map(|m| Region { start: m.base() as usize, end: m.base() as usize + m.bytes() })
            .collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::op::RETRIES_MAX;
    use super::*;
    use crate::members::FileSpec;

    fn op(step: Step, lengths: &[usize]) -> RingOp {
        let iovecs = lengths.iter().map(|l| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: *l });
        let left = lengths.iter().sum::<usize>() as u64;
        RingOp { step, route: Route::Direct, left, iovecs: iovecs.collect(), ..RingOp::idle() }
    }

    fn member() -> (tempfile::NamedTempFile, FileMember) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let member = FileMember::open(&FileSpec::new(file.path()), 0, 1).unwrap();
        (file, member)
    }

    #[test]
    fn a_short_transfer_goes_on_where_it_ended() {
        let (_file, member) = member();
        let mut op = op(Step::Read, &[4096, 512, 8192]);
        assert_eq!(op.advance(4096 + 512 + 1024, &member), None);
        assert_eq!((op.next, op.offset, op.left), (2, 5632, 7168));
        assert_eq!(op.iovecs[2].iov_len, 7168);
        assert_eq!(op.iovecs[2].iov_base as usize, 1024);
        assert_eq!(op.advance(7168, &member), Some(Ok(())));
    }

    #[test]
    fn an_error_is_of_the_sector_that_a_transfer_had_come_to() {
        let (_file, member) = member();
        let mut write = op(Step::Write, &[4096, 4096]);
        assert_eq!(write.advance(4096, &member), None);
        assert_eq!(write.advance(-libc::ENOSPC, &member), Some(Err(IoError::NoSpace)));
        let said = |op: &RingOp, error| op.error(error).to_string();
        assert_eq!(
            said(&write, IoError::NoSpace),
            "write at sector 8: no space left on the member's storage"
        );
        let of = |mode| said(&op(Step::Allocate(mode), &[]), IoError::Media);
        assert_eq!(
            of(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
            "discard at sector 0: input/output error"
        );
        assert_eq!(of(libc::FALLOC_FL_ZERO_RANGE), "write of zeroes at sector 0: input/output error");
        assert_eq!(said(&op(Step::Flush, &[]), IoError::Media), "flush: input/output error");
    }

    #[test]
    fn an_interrupted_transfer_is_repeated_and_the_end_of_the_file_is_an_error() {
        let (_file, member) = member();
        let mut op = op(Step::Read, &[4096]);
        assert_eq!(op.advance(-libc::EINTR, &member), None);
        assert_eq!(op.advance(-libc::EAGAIN, &member), None);
        assert_eq!(op.left, 4096);
        assert_eq!(op.advance(0, &member), Some(Err(IoError::Gone)));
        assert_eq!(op.advance(-libc::EIO, &member), Some(Err(IoError::Media)));
        op.retries = RETRIES_MAX;
        assert_eq!(op.advance(-libc::EAGAIN, &member), Some(Err(IoError::Media)));
    }

    #[test]
    fn a_refused_direct_transfer_takes_the_page_cache_from_then_on() {
        let (_file, member) = member();
        let mut op = op(Step::Write, &[4096]);
        assert_eq!(op.advance(-libc::EINVAL, &member), None);
        assert_eq!(op.route, Route::Buffered);
        assert_eq!(member.route(0, 4096), Route::Buffered);
        assert!(member.note().is_some());
        assert_eq!(op.advance(-libc::EINVAL, &member), Some(Err(IoError::Range)));
    }

    #[test]
    fn a_refused_allocation_becomes_written_zeroes() {
        let (_file, member) = member();
        let mut op = op(Step::Allocate(0), &[]);
        op.left = 100 << 20;
        assert_eq!(op.advance(-libc::EOPNOTSUPP, &member), None);
        assert_eq!(op.step, Step::Zeroes);
        let mut rounds = 0;
        loop {
            if op.next == op.iovecs.len() {
                op.lay_out_zeroes(4096);
                rounds += 1;
            }
            let bytes: usize = op.iovecs[op.next..].iter().map(|v| v.iov_len).sum();
            if op.advance(bytes as i32, &member).is_some() {
                break;
            }
        }
        assert_eq!((rounds, op.left), (2, 0));
    }
}
