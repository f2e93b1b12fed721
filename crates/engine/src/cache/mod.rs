//! A page cache above an array: pages of 4 KiB, readahead, write-back, as Linux's.
//!
//! # Contract
//! *Ownership.* The cache holds no bytes. A page's bytes are named [`Buf::CachePage`]; the loop keeps them, one
//! page for each frame, or none at all. Between the caller's buffer and a frame they are copied by
//! [`Kernel::Copy`].
//! *Ordering.* A page's bytes do not change while it is written back (the array computes parity from them). What
//! two requests in flight at the same time do to the same sectors has no order, as in Linux.
//! *Coherence.* Requests that are not buffered go past the cache: a read after the dirty pages of its range are
//! on the array; a write, discard or write-zeroes also drops the pages of its range, and buffered requests for
//! them wait until it has ended.
//! *Durability.* A flush is answered when every page of its range that was dirty when it came is on the array
//! and the array was flushed. A write-back that fails leaves its pages clean; flushes report it, by policy.
//! *Limits.* Memory, dirty pages, write-backs and reads ahead in flight. A request that meets a limit waits; it
//! holds nothing meanwhile.
//!
//! Dirty pages age together, as those of one inode in Linux: what counts is when the first of them became dirty.
//! Refault distances (Linux 3.15) are not modelled.

mod config;
mod copy;
mod direct;
mod frames;
mod hit;
mod index;
mod policy;
mod readahead;
#[cfg(test)]
mod tests;
mod writeback;

use std::collections::{BTreeMap, VecDeque};

use crate::array::slab::Slab;
use crate::geometry::Geometry;
#[cfg(doc)]
use crate::io::Kernel;
use crate::io::{Action, ActionQueue, Buf, Flags, IoError, IoResult, Op, Request, RequestId, Seg, Tag};
use crate::units::{Instant, PAGE_BYTES, PAGE_SECTORS, SectorRange};
use config::Limits;
use frames::{Frames, Holds};
use hit::Hit;
use index::Index;
use readahead::Readahead;
use writeback::{Errors, Sync, Writeback};

pub use config::{
    CacheConfig, CacheError, DirtyLimit, MEMORY_BYTES_MAX, MEMORY_BYTES_MIN, READAHEAD_SECTORS_FLOOR,
    WriteMode, readahead_default,
};
pub use policy::{CachePolicy, ErrorReport, InactiveLow, ThrottleAt};

/// Tells the cache's computations from the array's.
const TAG_BIT: u64 = Tag::OF_CACHE;

/// What a cache did, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Pages found by those who read them.
    pub hits: u64,
    /// Pages that a reader had to wait for, or that were not there; not counted among the hits when they have come.
    pub misses: u64,
    /// Pages read from the array.
    pub pages_read: u64,
    /// Pages written back.
    pub pages_written: u64,
    /// Times a writer waited for dirty pages to become fewer.
    pub throttled: u64,
}

impl CacheStats {
    /// What share of the pages that were read was found, if any were read.
    pub fn hit_share(&self) -> Option<f64> {
        let read = self.hits + self.misses;
        (read > 0).then(|| self.hits as f64 / read as f64)
    }
}

/// Key of a request in [`Cache::requests`].
type RequestKey = u64;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Buffered: copies go on from `cursor`.
    Copy,
    /// Waits for dirty pages to be written back.
    Sync(Sync),
    /// Drops the pages of its range from `cursor` on, before it goes past the cache.
    Invalidate,
    /// The array has it.
    Below,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct State {
    request: Request,
    step: Step,
    /// The next page.
    cursor: u64,
    /// Copies under way.
    copies: u32,
    result: IoResult,
    /// This page is read by itself: a longer read that held it failed.
    alone: Option<u64>,
    /// The last page that a reader did not find.
    missed: Option<u64>,
    /// A write of zeroes, not of the caller's bytes.
    is_zeroes: bool,
}

impl State {
    /// One past its last page.
    const fn end_page(&self) -> u64 {
        self.request.range.end().div_ceil(PAGE_SECTORS)
    }
}

/// A copy in flight.
#[derive(Clone, Copy, Debug)]
enum Copying {
    /// Of a run of a request's pages.
    Pages { request: RequestKey, first: u64, count: u32 },
    /// Of the page that a request is all within.
    Hit(Hit),
}

/// A request to the array in flight.
#[derive(Clone, Copy, Debug)]
enum Below {
    Read { first: u64, count: u32 },
    WriteBack { sequence: u64, first: u64, count: u32 },
    Past { request: RequestKey, id: RequestId },
    Flush { request: RequestKey },
}

/// What is kept for each open file.
#[derive(Clone, Copy, Debug)]
struct Stream {
    readahead: Readahead,
    error_seen: u64,
}

/// A page cache.
#[derive(Debug)]
pub struct Cache {
    policy: CachePolicy,
    limits: Limits,
    mode: WriteMode,
    end_sector: u64,
    /// Sectors of which the layer below takes no part.
    unit_sectors: u64,
    now: Instant,
    frames: Frames,
    index: Index,
    requests: Slab<State>,
    copies: Slab<Copying>,
    /// Requests to the array by their number.
    below: Vec<Option<Below>>,
    below_free: Vec<u32>,
    /// Requests for the array, oldest first.
    outbox: VecDeque<Request>,
    reads_in_flight: u32,
    streams: Vec<Stream>,
    runnable: VecDeque<RequestKey>,
    frame_waiters: VecDeque<RequestKey>,
    dirty_waiters: VecDeque<RequestKey>,
    barrier_waiters: VecDeque<RequestKey>,
    /// By frame.
    page_waiters: BTreeMap<u32, Vec<RequestKey>>,
    /// Pages, first and end, that writes past the cache have taken.
    barriers: Vec<(u64, u64)>,
    writeback: Writeback,
    errors: Errors,
    stats: CacheStats,
}

impl Cache {
    /// Makes an empty cache above an array of that geometry.
    ///
    /// # Errors
    /// What cannot work about the configuration.
    pub fn new(config: &CacheConfig, geometry: &Geometry) -> Result<Self, CacheError> {
        Self::of_part(config, geometry, geometry.array_sectors())
    }

    /// As [`new`](Self::new), above a layer that has so many sectors of the array.
    ///
    /// # Errors
    /// What cannot work about the configuration.
    pub fn of_part(config: &CacheConfig, geometry: &Geometry, sectors: u64) -> Result<Self, CacheError> {
        config.check()?;
        let limits = config.limits(geometry);
        Ok(Self {
            policy: config.policy.clone(),
            limits,
            mode: config.mode,
            end_sector: sectors,
            unit_sectors: 1,
            now: Instant::ZERO,
            frames: Frames::new(limits.memory, config.policy.inactive_low),
            index: Index::default(),
            requests: Slab::new(),
            copies: Slab::new(),
            below: Vec::new(),
            below_free: Vec::new(),
            outbox: VecDeque::new(),
            reads_in_flight: 0,
            streams: Vec::new(),
            runnable: VecDeque::new(),
            frame_waiters: VecDeque::new(),
            dirty_waiters: VecDeque::new(),
            barrier_waiters: VecDeque::new(),
            page_waiters: BTreeMap::new(),
            barriers: Vec::new(),
            writeback: Writeback::default(),
            errors: Errors::default(),
            stats: CacheStats::default(),
        })
    }

    /// Above a layer that takes whole units alone, of at most a page: zeroes that are written to parts of them become pages to be
    /// written back, and discards leave those out.
    #[must_use]
    pub fn above_units(self, unit_sectors: u64) -> Self {
        assert!(unit_sectors.is_power_of_two() && unit_sectors <= PAGE_SECTORS, "a unit lies within a page");
        Self { unit_sectors, ..self }
    }

    /// What it did so far.
    pub const fn stats(&self) -> CacheStats {
        self.stats
    }

    /// Pages that differ from the array or are being written to it.
    pub const fn dirty_pages(&self) -> u64 {
        self.writeback.dirty + self.writeback.writing
    }

    /// Pages it may hold; frames are numbered below it.
    pub const fn frames_max(&self) -> u32 {
        self.limits.memory
    }

    /// Pages there are, dirty or not.
    pub const fn pages(&self) -> u32 {
        self.frames.pages()
    }

    /// Whether a computation is one of the cache's.
    pub const fn owns(tag: Tag) -> bool {
        tag.0 & TAG_BIT != 0
    }

    /// Whether no request is in flight. Pages may still be dirty.
    pub fn is_idle(&self) -> bool {
        self.requests.len() == 0 && self.copies.len() == 0 && self.below.len() == self.below_free.len()
    }

    /// Takes a request from above. Answers whether [`settle`](Self::settle) has anything to do for that.
    pub(crate) fn request(&mut self, now: Instant, request: Request, out: &mut ActionQueue) -> bool {
        if self.hit(&request, out) {
            return false;
        }
        self.now = now;
        if let Some(error) = self.refuses(&request) {
            out.push(Action::Complete { id: request.id, result: Err(error) });
            return false;
        }
        let mut request = request;
        if request.op == Op::Discard && self.cuts_units(request.range) {
            request.range = self.whole_units(request.range);
            if request.range.count == 0 {
                out.push(Action::Complete { id: request.id, result: Ok(()) });
                return false;
            }
        }
        self.begin(request);
        true
    }

    /// Whether the layer below takes no request of that range, because it begins or ends within a unit.
    const fn cuts_units(&self, range: SectorRange) -> bool {
        !range.has_whole(self.unit_sectors)
    }

    /// The units that a range covers.
    fn whole_units(&self, range: SectorRange) -> SectorRange {
        let unit = self.unit_sectors;
        let (start, end) = (range.start.next_multiple_of(unit), range.end() / unit * unit);
        SectorRange::new(start, end.saturating_sub(start))
    }

    fn begin(&mut self, mut request: Request) {
        let is_zeroes = request.op == Op::WriteZeroes && self.cuts_units(request.range);
        if is_zeroes {
            (request.op, request.flags.buffered) = (Op::Write, true);
        }
        let is_flush = request.op == Op::Flush;
        let is_copied = request.flags.buffered && matches!(request.op, Op::Read | Op::Write);
        let first = request.range.start / PAGE_SECTORS;
        let mut state = State {
            request,
            step: Step::Copy,
            cursor: first,
            copies: 0,
            result: Ok(()),
            alone: None,
            missed: None,
            is_zeroes,
        };
        if is_copied {
            let key = self.requests.insert(state);
            return self.runnable.push_back(key);
        }
        let whole = is_flush && request.range.count == 0;
        let (start, end) = if whole { (0, u64::MAX) } else { (first, state.end_page()) };
        state.step = Step::Sync(Sync::new(start, end));
        let key = self.requests.insert(state);
        if request.op.is_write() {
            self.barriers.push((start, end));
        }
        self.sync_begins(key);
    }

    fn refuses(&self, request: &Request) -> Option<IoError> {
        let range = request.range;
        let end = range.start.checked_add(range.count);
        if end.is_none_or(|end| end > self.end_sector) {
            return Some(IoError::Range);
        }
        let is_bad = match request.op {
            Op::Flush => false,
            // Buffers are named by 32-bit lengths.
            Op::Read | Op::Write => range.count == 0 || range.count > u64::from(u32::MAX) / 512,
            Op::Discard | Op::WriteZeroes => range.count == 0,
        };
        is_bad.then_some(IoError::Range)
    }

    /// Lets everything go on that can. Afterwards [`next_below`](Self::next_below) has what the array is asked.
    pub(crate) fn settle(&mut self, now: Instant, out: &mut ActionQueue) {
        self.now = now;
        loop {
            while let Some(key) = self.runnable.pop_front() {
                self.run(key, out);
            }
            self.syncs(out);
            self.write_back();
            if self.frames.is_available()
                && let Some(key) = self.frame_waiters.pop_front()
            {
                self.runnable.push_back(key);
            }
            if !self.is_throttled()
                && let Some(key) = self.dirty_waiters.pop_front()
            {
                self.runnable.push_back(key);
            }
            if self.runnable.is_empty() {
                return;
            }
        }
    }

    /// What a request that begins at this sector will look at first, and, once that is at hand, second: places in memory
    /// for a loop to fetch ahead.
    pub fn first_look(&self, sector: u64) -> Option<*const u8> {
        self.index.address(sector / PAGE_SECTORS)
    }

    /// See [`first_look`](Self::first_look).
    pub fn second_look(&self, sector: u64) -> Option<*const u8> {
        self.index.get(sector / PAGE_SECTORS).and_then(|frame| self.frames.address(frame))
    }

    fn run(&mut self, key: RequestKey, out: &mut ActionQueue) {
        let state = *self.state(key);
        match (state.step, state.request.op) {
            (Step::Copy, Op::Read) => self.read(key, state, out),
            (Step::Copy, _) => self.write(key, state, out),
            (Step::Invalidate, _) => self.invalidate(key),
            (Step::Sync(_) | Step::Below, _) => unreachable!("such requests wait in no queue"),
        }
    }

    fn state(&mut self, key: RequestKey) -> &mut State {
        self.requests.get_mut(key).expect("a request lives until it is answered")
    }

    /// Ends a request.
    fn complete(&mut self, key: RequestKey, result: IoResult, out: &mut ActionQueue) {
        let state = self.requests.remove(key).expect("a request is answered once");
        assert_eq!(state.copies, 0, "no copy outlives its request");
        out.push(Action::Complete { id: state.request.id, result });
    }

    /// The next request for the array, if there is one. More follow at once if its flags say so.
    pub(crate) fn next_below(&mut self) -> Option<Request> {
        let mut request = self.outbox.pop_front()?;
        request.flags.more |= !self.outbox.is_empty();
        Some(request)
    }

    /// Asks the array for something.
    fn ask(&mut self, below: Below, op: Op, range: SectorRange, flags: Flags) {
        let number = self.below_free.pop().unwrap_or_else(|| {
            self.below.push(None);
            (self.below.len() - 1) as u32
        });
        self.below[number as usize] = Some(below);
        let flags = Flags { buffered: false, ..flags };
        self.outbox.push_back(Request { id: RequestId(number), op, range, flags });
    }

    /// The array answered a request.
    pub(crate) fn below_ended(&mut self, id: RequestId, result: IoResult, out: &mut ActionQueue) {
        let below = self.below[id.0 as usize].take().expect("the array answers a request once");
        self.below_free.push(id.0);
        match below {
            Below::Read { first, count } => self.read_ended(first, count, result),
            Below::WriteBack { sequence, first, count } => {
                self.written_back(sequence, first, count, result);
            }
            Below::Past { request, .. } => self.past_ended(request, result, out),
            Below::Flush { request } => self.flush_ended(request, result, out),
        }
    }

    /// Adds the names of a part of a request's bytes, as the loop knows them.
    pub(crate) fn name(&self, id: RequestId, offset: u64, bytes: u32, segs: &mut Vec<Seg>) {
        let first = match self.below[id.0 as usize].expect("the array names requests in flight") {
            Below::Past { id, .. } => return segs.push(Seg { buf: Buf::Request { id, offset }, bytes }),
            Below::Flush { .. } => unreachable!("a flush has no bytes"),
            Below::Read { first, .. } | Below::WriteBack { first, .. } => first,
        };
        self.name_pages(first * PAGE_BYTES + offset, u64::from(bytes), segs);
    }

    /// Adds the names of bytes of cached pages, counted from the start of the volume.
    fn name_pages(&self, start: u64, bytes: u64, segs: &mut Vec<Seg>) {
        let (mut at, end) = (start, start + bytes);
        let mut next_frame = None;
        while at < end {
            let page = at / PAGE_BYTES;
            let offset = (at % PAGE_BYTES) as u32;
            let count = (PAGE_BYTES - u64::from(offset)).min(end - at) as u32;
            let frame = self.index.get(page).expect("pages in use stay where they are");
            if next_frame == Some(frame) {
                segs.last_mut().expect("a run has begun").bytes += count;
            } else {
                segs.push(Seg { buf: Buf::CachePage { frame, offset }, bytes: count });
            }
            next_frame = Some(frame + 1);
            at += u64::from(count);
        }
    }

    /// The sectors of a run of pages; the volume may end within the last.
    fn sectors(&self, first: u64, count: u32) -> SectorRange {
        let start = first * PAGE_SECTORS;
        let end = ((first + u64::from(count)) * PAGE_SECTORS).min(self.end_sector);
        SectorRange::new(start, end - start)
    }

    /// Lets those go on that wait for a page.
    fn wake_page(&mut self, frame: u32) {
        if !self.page_waiters.is_empty()
            && let Some(waiters) = self.page_waiters.remove(&frame)
        {
            self.runnable.extend(waiters);
        }
    }

    fn wait_for_page(&mut self, frame: u32, key: RequestKey) {
        self.page_waiters.entry(frame).or_default().push(key);
    }

    /// When [`timer`](Self::timer) is due, if ever.
    pub(crate) const fn next_deadline(&self) -> Option<Instant> {
        self.writeback.tick
    }

    /// Panics if the cache contradicts itself. Costs time in proportion to its pages.
    pub fn check_invariants(&self) {
        self.frames.check_invariants();
        let (mut pages, mut dirty, mut writing, mut reading) = (0, 0, 0, 0);
        for (page, frame, is_dirty) in self.index.iter() {
            let at = self.frames.get(frame);
            assert_eq!(at.page, page, "index and frame agree");
            assert_eq!(is_dirty, matches!(at.holds, Holds::Dirty { .. }), "dirty pages are indexed as dirty");
            pages += 1;
            dirty += u64::from(is_dirty);
            writing += u64::from(at.holds == Holds::WritingBack);
            reading += u64::from(at.holds == Holds::Reading);
        }
        assert_eq!(self.frames.pages(), pages, "every page is indexed");
        assert_eq!(
            (self.writeback.dirty, self.writeback.writing),
            (dirty, writing),
            "dirty pages are counted"
        );
        let below = |of: fn(&Below) -> u64| self.below.iter().flatten().map(of).sum::<u64>();
        let read = below(|b| if let Below::Read { count, .. } = b { u64::from(*count) } else { 0 });
        assert_eq!(read, reading, "pages are read by a request to the array");
        let written = below(|b| if let Below::WriteBack { count, .. } = b { u64::from(*count) } else { 0 });
        assert_eq!(written, writing, "pages are written back by a request to the array");
        let is_queued = |s: &&State| {
            matches!(s.step, Step::Copy | Step::Invalidate) && (s.copies == 0 || s.cursor < s.end_page())
        };
        let queued = self.runnable.len()
            + self.frame_waiters.len()
            + self.dirty_waiters.len()
            + self.barrier_waiters.len()
            + self.page_waiters.values().map(Vec::len).sum::<usize>();
        assert_eq!(
            self.requests.iter().filter(is_queued).count(),
            queued,
            "every request waits in one queue"
        );
        if self.requests.len() == 0 {
            assert!(self.barriers.is_empty(), "without requests no page is held back");
            assert!(self.index.iter().all(|(_, f, _)| !self.frames.get(f).is_wanted), "nor wanted");
        }
    }
}
