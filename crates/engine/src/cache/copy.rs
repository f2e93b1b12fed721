//! Buffered reads and writes: page after page from the request's cursor, each run of pages one copy.

use super::frames::Holds;
use super::readahead::{Readahead, Window};
use super::{Below, Cache, Copying, ErrorReport, RequestKey, State, Step, Stream, TAG_BIT, WriteMode};
use crate::io::{
    Action, ActionQueue, Buf, Compute, Flags, IoError, IoResult, Kernel, Op, Operand, OperandList, Request,
    Role, Seg, SegList, Tag,
};
use crate::units::{PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES, SectorRange};

/// Most pages of one copy, so that a long request neither holds the CPU nor pins much.
const COPY_PAGES_MAX: u32 = 256;

impl Cache {
    /// The state of an open file, from its first request on.
    pub(super) fn stream(&mut self, number: u16) -> &mut Stream {
        let index = usize::from(number);
        if self.streams.len() <= index {
            // An error nobody was told of is told to newcomers too.
            let error_seen = self.errors.seen_by_newcomer();
            self.streams.resize(index + 1, Stream { readahead: Readahead::default(), error_seen });
        }
        &mut self.streams[index]
    }

    /// A file is opened under a number that another may have had before.
    pub fn open_stream(&mut self, number: u16) {
        let error_seen = self.errors.seen_by_newcomer();
        *self.stream(number) = Stream { readahead: Readahead::default(), error_seen };
    }

    /// Copies from pages as long as they are there; reads those that are not.
    pub(super) fn read(&mut self, key: RequestKey, state: State, out: &mut ActionQueue) {
        let end = state.end_page();
        let mut first = state.cursor;
        let mut page = first;
        while page < end {
            if self.is_barred(page) {
                self.barrier_waiters.push_back(key);
                break;
            }
            let Some(frame) = self.index.get(page) else {
                self.misses(key, page);
                if self.read_missing(page, end - page, &state) {
                    continue;
                }
                self.frame_waiters.push_back(key);
                break;
            };
            if self.frames.get(frame).is_marked {
                // It stays while others are given up for what is read ahead.
                self.frames.change(frame, |f| (f.is_marked, f.readers) = (false, f.readers + 1));
                self.read_marked(page, end - page, &state);
                self.frames.change(frame, |f| f.readers -= 1);
            }
            if !self.frames.get(frame).is_readable() {
                self.misses(key, page);
                self.wait_for_page(frame, key);
                break;
            }
            self.stats.hits += u64::from(self.state(key).missed != Some(page));
            self.touch_once(frame, page, &state.request);
            self.frames.change(frame, |f| f.readers += 1);
            page += 1;
            if page - first == u64::from(COPY_PAGES_MAX) {
                self.copy(key, first, page, out);
                first = page;
            }
        }
        self.copied_up_to(key, first, page, out);
    }

    /// Counts a page that a reader does not find, once.
    fn misses(&mut self, key: RequestKey, page: u64) {
        let is_new = self.state(key).missed.replace(page) != Some(page);
        self.stats.misses += u64::from(is_new);
    }

    /// Copies to pages as long as they can be written to and may become dirty.
    pub(super) fn write(&mut self, key: RequestKey, state: State, out: &mut ActionQueue) {
        let end = state.end_page();
        let mut first = state.cursor;
        let mut page = first;
        while page < end {
            if self.is_throttled() {
                self.stats.throttled += 1;
                self.dirty_waiters.push_back(key);
                break;
            }
            if self.is_barred(page) {
                self.barrier_waiters.push_back(key);
                break;
            }
            let frame = match self.index.get(page) {
                Some(frame) if !self.frames.get(frame).is_writable() => {
                    self.wait_for_page(frame, key);
                    break;
                }
                Some(frame) => frame,
                None if self.covers(page, state.request.range) => {
                    let Some(frame) = self.place(page, Holds::Dirty { fresh: true }) else {
                        self.frame_waiters.push_back(key);
                        break;
                    };
                    frame
                }
                // The rest of the page is read first.
                None if self.start_reads(Window { start: page, count: 1, marked: None }) => continue,
                None => {
                    self.frame_waiters.push_back(key);
                    break;
                }
            };
            self.touch_once(frame, page, &state.request);
            self.dirties(page, frame);
            page += 1;
            if page - first == u64::from(COPY_PAGES_MAX) {
                self.copy(key, first, page, out);
                first = page;
            }
        }
        self.copied_up_to(key, first, page, out);
    }

    /// Whether a range covers a page as far as the volume has it.
    fn covers(&self, page: u64, range: SectorRange) -> bool {
        let page = self.sectors(page, 1);
        range.start <= page.start && page.end() <= range.end()
    }

    /// An access, unless it goes on in the page where the stream's last ended.
    pub(super) fn touch_once(&mut self, frame: u32, page: u64, request: &Request) {
        let goes_on = page * PAGE_SECTORS < request.range.start
            && self.stream(request.flags.stream).readahead.ended_in(page);
        if !goes_on {
            self.frames.touch(frame);
        }
    }

    /// Ends a round of copying: the last run, and the request if it was the last.
    fn copied_up_to(&mut self, key: RequestKey, first: u64, page: u64, out: &mut ActionQueue) {
        if first < page {
            self.copy(key, first, page, out);
        }
        let state = self.state(key);
        state.cursor = page;
        if page == state.end_page() && state.copies == 0 {
            self.copied(key, out);
        }
    }

    /// Copies the request's part of a run of pages.
    fn copy(&mut self, key: RequestKey, first: u64, end: u64, out: &mut ActionQueue) {
        let state = self.state(key);
        state.copies += 1;
        let State { request, is_zeroes, .. } = *state;
        let range = request.range;
        let start = range.start.max(first * PAGE_SECTORS);
        let bytes = (range.end().min(end * PAGE_SECTORS) - start) * SECTOR_BYTES;
        let offset = (start - range.start) * SECTOR_BYTES;
        let buf = if is_zeroes { Buf::Zero } else { Buf::Request { id: request.id, offset } };
        let caller = out.add_seg(Seg { buf, bytes: bytes as u32 });
        let from = out.segs.len();
        self.name_pages(start * SECTOR_BYTES, bytes, &mut out.segs);
        let pages = SegList { first: from as u32, count: (out.segs.len() - from) as u32 };
        let (source, target) = if request.op == Op::Write { (caller, pages) } else { (pages, caller) };
        let count = (end - first) as u32;
        self.ask_copy(Copying::Pages { request: key, first, count }, source, target, bytes, out);
    }

    /// Asks for a copy of bytes, of which that is kept until it has ended.
    pub(super) fn ask_copy(
        &mut self,
        copying: Copying,
        source: SegList,
        target: SegList,
        bytes: u64,
        out: &mut ActionQueue,
    ) {
        let mut operand = |segs| {
            out.operands.push(Operand { role: Role::Data(0), segs });
            OperandList { first: out.operands.len() as u32 - 1, count: 1 }
        };
        let (sources, targets) = (operand(source), operand(target));
        let tag = Tag(self.copies.insert(copying) | TAG_BIT);
        out.push(Action::Compute(Compute { tag, kernel: Kernel::Copy, bytes, sources, targets }));
    }

    /// A copy has ended. Answers whether [`settle`](Self::settle) has anything to do for that.
    pub(crate) fn computed(&mut self, tag: Tag, out: &mut ActionQueue) -> bool {
        match self.copies.remove(tag.0 & !TAG_BIT) {
            None => false,
            Some(Copying::Hit(hit)) => self.hit_ended(&hit, out),
            Some(Copying::Pages { request, first, count }) => {
                self.pages_copied(request, first, count, out);
                true
            }
        }
    }

    /// A copy of a run of pages has ended.
    fn pages_copied(&mut self, request: RequestKey, first: u64, count: u32, out: &mut ActionQueue) {
        let is_write = self.state(request).request.op == Op::Write;
        for page in first..first + u64::from(count) {
            let frame = self.index.get(page).expect("pages in use stay where they are");
            let is_wanted = self.frames.change(frame, |f| {
                if is_write {
                    f.writers -= 1;
                    f.holds = Holds::Dirty { fresh: false };
                } else {
                    f.readers -= 1;
                }
                f.is_wanted && f.writers == 0
            });
            self.writeback.is_sync_ready |= is_wanted;
            self.wake_page(frame);
        }
        let state = self.state(request);
        state.copies -= 1;
        if state.copies == 0 && state.cursor == state.end_page() {
            self.copied(request, out);
        }
    }

    /// The last byte of a buffered request was copied, or none more will be.
    fn copied(&mut self, key: RequestKey, out: &mut ActionQueue) {
        let State { request, result, .. } = *self.state(key);
        let last = (request.range.end() - 1) / PAGE_SECTORS;
        if request.op == Op::Read {
            self.stream(request.flags.stream).readahead.read(last);
        }
        let is_through = request.flags.fua || self.mode == WriteMode::Through;
        if request.op == Op::Write && is_through && result.is_ok() {
            let first = request.range.start / PAGE_SECTORS;
            self.state(key).step = Step::Sync(super::Sync::new(first, last + 1));
            return self.sync_begins(key);
        }
        self.complete(key, result, out);
    }

    /// Gives up a buffered request; it ends with its last copy.
    fn fail(&mut self, key: RequestKey, error: IoError) {
        let state = self.state(key);
        state.result = Err(error);
        state.cursor = state.end_page();
        if state.copies == 0 {
            self.runnable.push_back(key);
        }
    }

    /// Puts a page that is not cached into a frame, giving up another if need be.
    fn place(&mut self, page: u64, holds: Holds) -> Option<u32> {
        let (frame, evicted) = self.frames.take(page, holds)?;
        if let Some(evicted) = evicted {
            self.index.remove(evicted);
        }
        self.index.insert(page, frame);
        Some(frame)
    }

    /// Reads a missing page, and what readahead says. Answers whether a frame was found for it.
    fn read_missing(&mut self, page: u64, count: u64, state: &State) -> bool {
        let single = Window { start: page, count: 1, marked: None };
        if state.alone == Some(page) {
            return self.start_reads(single);
        }
        let mut max = self.limits.readahead;
        if self.policy.large_reads_whole {
            max = max.max(count.min(u64::from(self.policy.request_pages_max)));
        }
        let before = self.stream(state.request.flags.stream).readahead;
        let mut readahead = before;
        let has_context = self.policy.context_readahead;
        let window = readahead.missing(page, count, max, || {
            let is_cached = |p: &u64| self.index.get(*p).is_some();
            if has_context {
                (page.saturating_sub(max)..page).rev().take_while(is_cached).count() as u64
            } else {
                0
            }
        });
        // A window may begin behind the page, if that was given up after it had been read ahead. It must not take the frames
        // that the page needs, or readers that give up each other's pages never come to theirs.
        let is_there = if window.start == page {
            self.start_reads(window)
        } else {
            let is_there = self.start_reads(single);
            if is_there {
                self.start_reads(window);
            }
            is_there
        };
        self.stream(state.request.flags.stream).readahead = if is_there { readahead } else { before };
        is_there
    }

    /// Reads the next window early, unless too many reads are under way already.
    fn read_marked(&mut self, page: u64, count: u64, state: &State) {
        if self.reads_in_flight >= self.policy.in_flight_max {
            return;
        }
        let max = self.limits.readahead;
        let mut readahead = self.stream(state.request.flags.stream).readahead;
        let window = readahead
            .marked(page, count, max, || (page + 1..=page + max).find(|p| self.index.get(*p).is_none()));
        self.stream(state.request.flags.stream).readahead = readahead;
        if let Some(window) = window {
            self.start_reads(window);
        }
    }

    /// Reads the pages of a window that are not there, as far as there are frames. Answers whether there was
    /// one for the first.
    fn start_reads(&mut self, window: Window) -> bool {
        let end = (window.start + window.count).min(self.end_sector.div_ceil(PAGE_SECTORS));
        let mut first = window.start;
        let mut page = first;
        let mut is_short = false;
        while page < end && !is_short {
            // A write past the cache is changing what it has taken; the demanded page is never one of these.
            let is_passed = self.index.get(page).is_some() || self.is_barred(page);
            if !is_passed {
                match self.place(page, Holds::Reading) {
                    Some(frame) => self.frames.change(frame, |f| f.is_marked = window.marked == Some(page)),
                    None => is_short = true,
                }
            }
            let is_full = page - first == u64::from(self.policy.request_pages_max);
            if is_passed || is_short || is_full {
                self.read_pages(first, page);
                first = if is_passed { page + 1 } else { page };
            }
            page += u64::from(!is_short);
        }
        if !is_short {
            self.read_pages(first, page);
        }
        page > window.start
    }

    fn read_pages(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let count = (end - first) as u32;
        self.reads_in_flight += 1;
        self.stats.pages_read += u64::from(count);
        let range = self.sectors(first, count);
        self.ask(Below::Read { first, count }, Op::Read, range, Flags { sync: true, ..Flags::default() });
    }

    /// The array answered a read of pages. A page of a longer read that failed is read again by itself for
    /// those that wait for it.
    pub(super) fn read_ended(&mut self, first: u64, count: u32, result: IoResult) {
        self.reads_in_flight -= 1;
        for page in first..first + u64::from(count) {
            let frame = self.index.get(page).expect("pages in use stay where they are");
            let Err(error) = result else {
                self.frames.change(frame, |f| f.holds = Holds::Clean);
                self.wake_page(frame);
                continue;
            };
            self.index.remove(page);
            self.frames.release(frame);
            for key in self.page_waiters.remove(&frame).unwrap_or_default() {
                let state = self.state(key);
                if count == 1 && state.step == Step::Copy {
                    self.fail(key, error);
                } else {
                    state.alone = Some(page);
                    self.runnable.push_back(key);
                }
            }
        }
    }

    /// Who is told of write-back errors, for a flush of that stream.
    pub(super) fn error_for(&mut self, stream: u16) -> IoResult {
        let report = self.policy.error_report;
        let seen = self.stream(stream).error_seen;
        let result = match report {
            ErrorReport::EachStream => self.errors.after(seen),
            ErrorReport::FirstFlush => self.errors.unseen(),
        };
        self.stream(stream).error_seen = self.errors.mark_seen();
        result
    }
}

/// Bytes in a page fit the copy's 32-bit lengths.
const _: () = assert!(COPY_PAGES_MAX as u64 * PAGE_BYTES < u32::MAX as u64);
