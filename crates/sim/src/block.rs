//! The block layer's queue above one member: merging, the one-way elevator, limits, and which I/Os of the
//! array a command answers.
//!
//! # Contract
//! An I/O is cut into pieces no larger than a command; a piece joins a queued request it continues, at
//! either end. At most `nr_requests` reads and as many writes are queued or outstanding; further reads, and further writes, wait in
//! the order they came. Requests go to the drive in order of sectors, one way, then from the start again; one that has been
//! queued for longer than its kind may goes next, the oldest first, and the order goes on from there for as many requests as the
//! scheduler serves in a batch before it looks again. With time slices ([`Slices`]) that is the order of what may go now. A
//! flush goes alone: when nothing is outstanding, and with nothing following until it completes. Before it go the requests that the
//! drive had room for when it came. A write behind a flush (`REQ_PREFLUSH`) is sent when that has completed, before all that is queued;
//! those that wait when it is sent share it. Where the kernel does not use a drive's FUA, a forced write is a write that passes what is
//! queued, and a flush after it, shared in the same way. A drive without a volatile write cache is sent no flushes, nor forced writes:
//! its flushes are answered at once.
//!
//! Source of the order: `blk_insert_flush` and `blk_mq_sched_insert_request` of Linux 6.1, which put the requests of a flush's sequence
//! before the scheduler's; real md's commands on drives of a known latency show the same.

mod fanout;
#[cfg(test)]
mod tests;

use crate::drive::CommandOp;
use crate::slices::{NOBODY, Process, Slices, Turn};
pub(crate) use fanout::Fanout;
use fanout::{NONE, Piece};
use std::collections::VecDeque;
use stripewise_engine::io::Tag;

/// A request: one command's worth of one or more I/Os.
#[derive(Clone, Copy, Debug)]
struct Request {
    start: u64,
    end: u64,
    op: CommandOp,
    chain: u32,
    /// When it has been queued for as long as it may.
    expires_ns: u64,
    /// Who sent it, with time slices.
    process: Process,
}

/// An I/O that found the queue full.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    op: CommandOp,
    start: u64,
    end: u64,
    of: Piece,
    process: Process,
}

/// A flush that was asked for.
#[derive(Clone, Copy, Debug)]
enum Flush {
    /// By itself.
    Alone(Tag),
    /// Before a write.
    Before(Behind),
    /// After a forced write.
    After(Tag),
}

/// A write that a flush goes before or after.
#[derive(Clone, Copy, Debug)]
struct Behind {
    op: CommandOp,
    start: u64,
    sectors: u64,
    io: Tag,
}

/// Counts of what went through a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberStats {
    /// I/Os of the array that read.
    pub reads: u64,
    /// I/Os of the array that wrote.
    pub writes: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Pieces that joined a queued request.
    pub merges: u64,
    /// Commands sent to the drive.
    pub commands: u64,
    /// Flushes.
    pub flushes: u64,
}

/// Reads are kept apart from writes.
const fn kind(op: CommandOp) -> usize {
    !matches!(op, CommandOp::Read) as usize
}

/// What a queue is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    /// Sectors of the largest request.
    pub(crate) request_sectors_max: u64,
    /// Reads, and writes, queued or outstanding.
    pub(crate) nr_requests: u32,
    /// How long a read may be queued behind others, and a write.
    pub(crate) expire_ns: [u64; 2],
    /// Requests served in order from one that was queued too long on, it among them.
    pub(crate) batch: u32,
    /// The drive has a volatile write cache (`queue/write_cache` is "write back").
    pub(crate) write_back: bool,
    /// A forced write is one command (`queue/fua`); if not, a write and a flush.
    pub(crate) fua: bool,
}

/// The most commands outstanding to a drive that tags tell apart.
pub(crate) const TAGS_MAX: u32 = 256;

/// Tags not in use; the lowest is taken first.
#[derive(Debug)]
struct Tags {
    free: [u64; TAGS_MAX as usize / 64],
    left: u32,
    all: u32,
}

impl Tags {
    fn new(all: u32) -> Self {
        let mut tags = Self { free: [0; TAGS_MAX as usize / 64], left: 0, all };
        (0..all).for_each(|tag| tags.put(tag as u8));
        tags
    }

    const fn none_left(&self) -> bool {
        self.left == 0
    }

    const fn all_left(&self) -> bool {
        self.left == self.all
    }

    fn take(&mut self) -> u8 {
        let word = self.free.iter().position(|&w| w != 0).expect("a tag is left");
        let bit = self.free[word].trailing_zeros();
        self.free[word] &= !(1 << bit);
        self.left -= 1;
        (word as u32 * 64 + bit) as u8
    }

    fn put(&mut self, tag: u8) {
        let (word, bit) = (usize::from(tag) / 64, 1 << (tag % 64));
        assert!(self.free[word] & bit == 0, "command {tag} completed twice");
        self.free[word] |= bit;
        self.left += 1;
    }
}

#[derive(Debug)]
pub(crate) struct BlockQueue {
    limits: QueueLimits,
    /// By start sector.
    queued: Vec<Request>,
    /// No queued request expires before.
    none_expires_ns: u64,
    /// Requests that are served in order before expiry is looked at.
    batch_left: u32,
    /// Where the last request was added or joined, likely to be continued.
    hint: usize,
    /// Reads and writes that found no room.
    waiting: [VecDeque<Waiting>; 2],
    flushes: VecDeque<Flush>,
    /// Writes that the flush under way is for.
    behind: Vec<Behind>,
    /// Requests for writes that a flush goes before or after: they go before what is queued.
    passing: VecDeque<Request>,
    /// Writes that a flush follows.
    forced: Vec<Tag>,
    /// I/Os that ended without going to the drive.
    answered: Vec<Tag>,
    flushing: bool,
    /// Queued requests that go before the first of `flushes`: there was room for them in the drive when it came.
    ahead: u32,
    /// Reads and writes queued or outstanding.
    held: [u32; 2],
    outstanding: Vec<Request>,
    tags: Tags,
    position: u64,
    slices: Option<Slices>,
    /// When the queue must be looked at again though nothing happens, if nobody has been told yet, and the last such time told.
    wake_ns: Option<u64>,
    told_ns: u64,
    pub(crate) stats: MemberStats,
}

impl BlockQueue {
    pub(crate) fn new(limits: QueueLimits, slices: Option<Slices>, queue_depth: u32) -> Self {
        let none =
            Request { start: 0, end: 0, op: CommandOp::Flush, chain: NONE, expires_ns: 0, process: NOBODY };
        Self {
            limits,
            queued: Vec::with_capacity(2 * limits.nr_requests as usize),
            none_expires_ns: u64::MAX,
            batch_left: 0,
            hint: 0,
            waiting: [VecDeque::new(), VecDeque::new()],
            flushes: VecDeque::new(),
            behind: Vec::new(),
            passing: VecDeque::new(),
            forced: Vec::new(),
            answered: Vec::new(),
            flushing: false,
            ahead: 0,
            held: [0; 2],
            outstanding: vec![none; queue_depth as usize],
            tags: Tags::new(queue_depth),
            position: 0,
            slices,
            wake_ns: None,
            told_ns: 0,
            stats: MemberStats::default(),
        }
    }

    /// Takes an I/O of a process, or of [`NOBODY`] who is told apart; of whom, if that is not known, follows from where it is.
    pub(crate) fn add(
        &mut self,
        now_ns: u64,
        op: CommandOp,
        (start, sectors): (u64, u64),
        io: Tag,
        process: Option<Process>,
        fanout: &mut Fanout,
    ) {
        if op == CommandOp::WriteFua && self.limits.write_back && !self.limits.fua {
            return self.pass(Behind { op, start, sectors, io }, fanout);
        }
        let op = if op == CommandOp::WriteFua && !self.limits.write_back { CommandOp::Write } else { op };
        match op {
            CommandOp::Flush if !self.limits.write_back => return self.answered.push(io),
            CommandOp::Flush => {
                self.stats.flushes += 1;
                return self.await_flush(Flush::Alone(io), false);
            }
            CommandOp::Read => {
                self.stats.reads += 1;
                self.stats.sectors_read += sectors;
            }
            CommandOp::Write | CommandOp::WriteFua | CommandOp::Discard => {
                self.stats.writes += 1;
                self.stats.sectors_written += sectors;
            }
        }
        let (mut at, end) = (start, start + sectors);
        let mut sender = NOBODY;
        if let Some(slices) = &mut self.slices
            && op == CommandOp::Read
        {
            sender = process.unwrap_or_else(|| slices.whose(start));
            if sender != NOBODY {
                slices.asked(now_ns, sender, start, end);
            }
        }
        let most = self.limits.request_sectors_max;
        let pieces = if sectors <= most { 1 } else { sectors.div_ceil(most) as u32 };
        let of = fanout.begin(io, pieces);
        while at < end {
            let piece = Waiting { op, start: at, end: end.min(at + most), of, process: sender };
            at = piece.end;
            if !self.waiting[kind(op)].is_empty() || !self.place(now_ns, piece, fanout) {
                self.waiting[kind(op)].push_back(piece);
            }
        }
    }

    /// Has a write that a flush goes before or after pass what is queued. Without FUA a forced one is a write that a flush follows.
    fn pass(&mut self, write: Behind, fanout: &mut Fanout) {
        let Behind { mut op, start, sectors, io } = write;
        self.stats.writes += 1;
        self.stats.sectors_written += sectors;
        if op == CommandOp::WriteFua && !self.limits.fua {
            self.forced.push(io);
            op = CommandOp::Write;
        }
        let most = self.limits.request_sectors_max;
        let pieces = sectors.div_ceil(most) as u32;
        let of = fanout.begin(io, pieces);
        self.held[kind(op)] += pieces;
        for piece in 0..u64::from(pieces) {
            let (at, end) = (start + piece * most, start + sectors.min((piece + 1) * most));
            let chain = fanout.link(of, NONE);
            let request = Request { start: at, end, op, chain, expires_ns: 0, process: NOBODY };
            self.passing.push_back(request);
        }
    }

    /// Takes a write that is to be sent behind a flush, where the drive needs one; whether the flush passes what is queued, too.
    pub(crate) fn add_behind_flush(
        &mut self,
        now_ns: u64,
        op: CommandOp,
        (start, sectors): (u64, u64),
        io: Tag,
        passes: bool,
        fanout: &mut Fanout,
    ) {
        if !self.limits.write_back {
            return self.add(now_ns, op, (start, sectors), io, None, fanout);
        }
        self.await_flush(Flush::Before(Behind { op, start, sectors, io }), passes);
    }

    /// Takes a flush. Unless it passes what is queued, that goes before it as far as the drive has room: the kernel sends requests as
    /// they come.
    fn await_flush(&mut self, flush: Flush, passes: bool) {
        if self.flushes.is_empty() && !self.flushing {
            self.ahead = if passes { 0 } else { self.tags.left.min(self.queued.len() as u32) };
        }
        self.flushes.push_back(flush);
    }

    /// Joins a piece to a queued request or makes it one; false if the queue is full.
    fn place(&mut self, now_ns: u64, piece: Waiting, fanout: &mut Fanout) -> bool {
        let Waiting { op, start, end, of, process } = piece;
        let most = self.limits.request_sectors_max;
        let fits = |r: &Request| r.op == op && r.process == process && r.end - r.start + end - start <= most;
        let continues = |r: &Request| r.end == start && fits(r);
        if op != CommandOp::Discard && !self.queued.is_empty() {
            let mut back = self.hint;
            if !self.queued.get(back).is_some_and(continues) {
                back = self.queued.partition_point(|r| r.start <= start).wrapping_sub(1);
            }
            if self.queued.get(back).is_some_and(continues) {
                self.queued[back].end = end;
                self.queued[back].chain = fanout.link(of, self.queued[back].chain);
                self.stats.merges += 1;
                self.hint = back;
                return true;
            }
            let front = back.wrapping_add(1);
            if self.queued.get(front).is_some_and(|r| r.start == end && fits(r)) {
                self.queued[front].start = start;
                self.queued[front].chain = fanout.link(of, self.queued[front].chain);
                self.stats.merges += 1;
                self.hint = front;
                return true;
            }
        }
        let held = &mut self.held[kind(op)];
        if *held >= self.limits.nr_requests {
            return false;
        }
        *held += 1;
        let expires_ns = now_ns.saturating_add(self.limits.expire_ns[kind(op)]);
        self.none_expires_ns = self.none_expires_ns.min(expires_ns);
        let index = self.queued.partition_point(|r| r.start <= start);
        let chain = fanout.link(of, NONE);
        self.queued.insert(index, Request { start, end, op, chain, expires_ns, process });
        if process != NOBODY
            && let Some(slices) = &mut self.slices
        {
            slices.queued(process);
        }
        self.hint = index;
        true
    }

    /// The next command for the drive with its tag, if it may have one.
    #[inline]
    pub(crate) fn next(&mut self, now_ns: u64, fanout: &mut Fanout) -> Option<(u8, CommandOp, u64, u64)> {
        let has_any = !self.queued.is_empty() || !self.flushes.is_empty() || !self.passing.is_empty();
        if !has_any || self.tags.none_left() || self.flushing {
            return None;
        }
        self.take_next(now_ns, fanout)
    }

    fn take_next(&mut self, now_ns: u64, fanout: &mut Fanout) -> Option<(u8, CommandOp, u64, u64)> {
        if let Some(request) = self.passing.pop_front() {
            self.position = request.end;
            return Some(self.send(request));
        }
        if let Some(&first) = self.flushes.front().filter(|_| self.ahead == 0) {
            if !self.tags.all_left() {
                return None;
            }
            self.flushing = true;
            let chain = match first {
                Flush::Alone(io) => {
                    self.flushes.pop_front();
                    let of = fanout.begin(io, 1);
                    fanout.link(of, NONE)
                }
                Flush::Before(_) | Flush::After(_) => self.shared_flush(fanout),
            };
            let op = CommandOp::Flush;
            return Some(self.send(Request { start: 0, end: 0, op, chain, expires_ns: 0, process: NOBODY }));
        }
        if self.queued.is_empty() {
            return None;
        }
        // Nobody's turn and no reader that waits for one: the order is the queue's own.
        let index = match &self.slices {
            Some(slices) if slices.turn() != Turn::Free || slices.waiting() > 0 => match self.in_turn(now_ns)
            {
                Some(index) => index,
                // The drive is kept for another: nothing goes before the flush.
                None if self.ahead > 0 => {
                    self.ahead = 0;
                    return self.take_next(now_ns, fanout);
                }
                None => return None,
            },
            _ => self.in_order(now_ns),
        };
        let request = self.queued.remove(index);
        self.ahead = self.ahead.saturating_sub(1);
        self.position = request.end;
        if request.process != NOBODY
            && let Some(slices) = &mut self.slices
        {
            slices.sent(request.process);
        }
        Some(self.send(request))
    }

    /// Takes the writes that wait for a flush, and those that wait for one after them; the chain of the latter.
    fn shared_flush(&mut self, fanout: &mut Fanout) -> u32 {
        self.stats.flushes += 1;
        let mut chain = NONE;
        while let Some(&first) = self.flushes.front() {
            match first {
                Flush::Alone(_) => break,
                Flush::Before(behind) => self.behind.push(behind),
                Flush::After(io) => {
                    let of = fanout.begin(io, 1);
                    chain = fanout.link(of, chain);
                }
            }
            self.flushes.pop_front();
        }
        chain
    }

    /// The queued request that goes next.
    fn in_order(&mut self, now_ns: u64) -> usize {
        let expired = if now_ns < self.none_expires_ns { None } else { self.expired(now_ns) };
        expired.unwrap_or_else(|| {
            let index = self.queued.partition_point(|r| r.start < self.position);
            if index == self.queued.len() { 0 } else { index }
        })
    }

    /// The queued request that goes next by whose turn it is; none while the drive is kept for one that has none queued.
    fn in_turn(&mut self, now_ns: u64) -> Option<usize> {
        let mut slices = self.slices.take()?;
        let index = self.whose_turn(now_ns, &mut slices);
        self.slices = Some(slices);
        index
    }

    fn whose_turn(&mut self, now_ns: u64, slices: &mut Slices) -> Option<usize> {
        loop {
            match slices.turn() {
                Turn::Of(process, end_ns) if now_ns < end_ns => {
                    if slices.has_queued(process) {
                        return self.first_of(|request| request.process == process);
                    }
                    let is_close = |r: &&Request| slices.is_close(r.process, self.position.abs_diff(r.start));
                    if let Some(close) = self.queued.iter().find(is_close) {
                        slices.begin(now_ns, close.process);
                        continue;
                    }
                    if let Some(until_ns) = slices.idles_until(process).filter(|&until_ns| until_ns > now_ns)
                    {
                        self.look_again(now_ns, until_ns.min(end_ns));
                        return None;
                    }
                }
                Turn::Others(end_ns) if now_ns < end_ns => {
                    let index = self.first_of(|request| !slices.has_turns(request.process));
                    if index.is_some() {
                        return index;
                    }
                }
                Turn::Free if slices.waiting() == 0 => return Some(self.in_order(now_ns)),
                Turn::Free => {
                    let had_turn = |request: &Request| slices.had_turn(request.process);
                    let next = self.queued.iter().min_by_key(|r| (had_turn(r), r.expires_ns))?.process;
                    slices.begin(now_ns, next);
                    continue;
                }
                Turn::Of(..) | Turn::Others(_) => {}
            }
            slices.end();
        }
    }

    /// The first queued request of a kind, in order of sectors from where the last one ended.
    fn first_of(&self, is_wanted: impl Fn(&Request) -> bool) -> Option<usize> {
        let from = self.queued.partition_point(|request| request.start < self.position);
        (from..self.queued.len()).chain(0..from).find(|&index| is_wanted(&self.queued[index]))
    }

    fn look_again(&mut self, now_ns: u64, at_ns: u64) {
        if self.told_ns <= now_ns || at_ns < self.told_ns {
            self.told_ns = at_ns;
            self.wake_ns = Some(at_ns);
        }
    }

    /// When the queue must be looked at again though nothing happens; told once.
    pub(crate) const fn take_wake(&mut self) -> Option<u64> {
        self.wake_ns.take()
    }

    /// The queued request that has waited too long for longest.
    #[cold]
    fn expired(&mut self, now_ns: u64) -> Option<usize> {
        if self.batch_left > 0 {
            self.batch_left -= 1;
            return None;
        }
        let (index, first) = self.queued.iter().enumerate().min_by_key(|(_, request)| request.expires_ns)?;
        self.none_expires_ns = first.expires_ns;
        let is_due = first.expires_ns <= now_ns;
        self.batch_left = if is_due { self.limits.batch - 1 } else { 0 };
        is_due.then_some(index)
    }

    fn send(&mut self, request: Request) -> (u8, CommandOp, u64, u64) {
        let tag = self.tags.take();
        self.outstanding[tag as usize] = request;
        self.stats.commands += 1;
        (tag, request.op, request.start, request.end - request.start)
    }

    /// A command has completed; the I/Os thereby complete are added to `done`.
    pub(crate) fn complete(&mut self, now_ns: u64, tag: u8, fanout: &mut Fanout, done: &mut Vec<Tag>) {
        let request = self.outstanding[tag as usize];
        self.tags.put(tag);
        let before = done.len();
        fanout.complete(request.chain, done);
        if request.op == CommandOp::Flush {
            self.flushing = false;
            let mut behind = std::mem::take(&mut self.behind);
            for write in behind.drain(..) {
                self.pass(write, fanout);
            }
            self.behind = behind;
            return;
        }
        if !self.forced.is_empty() {
            self.flush_after(before, done);
        }
        if request.process != NOBODY
            && let Some(slices) = &mut self.slices
        {
            slices.ended(now_ns, request.process);
        }
        let kind = kind(request.op);
        self.held[kind] -= 1;
        while let Some(&piece) = self.waiting[kind].front() {
            if !self.place(now_ns, piece, fanout) {
                return;
            }
            self.waiting[kind].pop_front();
        }
    }

    /// Has a flush follow the forced writes among what is done from `before` on, which then are not.
    fn flush_after(&mut self, before: usize, done: &mut Vec<Tag>) {
        let written = done.split_off(before);
        for io in written {
            match self.forced.iter().position(|&forced| forced == io) {
                Some(at) => {
                    self.forced.swap_remove(at);
                    self.await_flush(Flush::After(io), true);
                }
                None => done.push(io),
            }
        }
    }

    /// The I/Os that ended without going to the drive, to be told of.
    pub(crate) const fn answered(&mut self) -> &mut Vec<Tag> {
        &mut self.answered
    }

    /// Whether nothing is queued, waiting or outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.tags.all_left()
            && self.answered.is_empty()
            && self.queued.is_empty()
            && self.passing.is_empty()
            && self.waiting.iter().all(VecDeque::is_empty)
            && self.flushes.is_empty()
    }
}
