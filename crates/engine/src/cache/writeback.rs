//! Dirty pages: how many there may be, when they are written back, and waiting until they are.

use std::collections::BTreeMap;

use super::frames::Holds;
use super::{Below, Cache, RequestKey, Step};
use crate::io::{ActionQueue, Flags, IoError, IoResult, Op};
use crate::units::Instant;

/// What is dirty, and what is being done about it.
#[derive(Debug, Default)]
pub(super) struct Writeback {
    /// Dirty pages.
    pub(super) dirty: u64,
    /// Pages being written back.
    pub(super) writing: u64,
    /// Write-backs in flight by number: first page and end.
    in_flight: BTreeMap<u64, (u64, u64)>,
    next_sequence: u64,
    /// Where the background writer goes on.
    cursor: u64,
    /// Where a pass over everything goes on, begun because pages were too old.
    expiring: Option<u64>,
    /// Since when something is dirty.
    dirty_since: Instant,
    /// When ages are looked at next.
    pub(super) tick: Option<Instant>,
    /// Requests that wait for write-back, oldest first.
    syncs: Vec<RequestKey>,
    /// One of them may be able to go on.
    pub(super) is_sync_ready: bool,
}

/// The progress of a request that waits for the dirty pages of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sync {
    first: u64,
    end: u64,
    /// The next page to look at.
    cursor: u64,
    /// All are on their way: the write-backs numbered below this are waited for.
    before: Option<u64>,
    result: IoResult,
}

impl Sync {
    pub(super) const fn new(first: u64, end: u64) -> Self {
        Self { first, end, cursor: first, before: None, result: Ok(()) }
    }
}

/// Write-backs that failed, by number (`errseq_t`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errors {
    count: u64,
    last: Option<IoError>,
    /// The last was told to somebody.
    is_seen: bool,
}

impl Errors {
    fn record(&mut self, error: IoError) {
        self.count += 1;
        self.last = Some(error);
        self.is_seen = false;
    }

    /// What one who has seen `seen` errors is told.
    pub(super) const fn after(&self, seen: u64) -> IoResult {
        match self.last {
            Some(error) if seen != self.count => Err(error),
            _ => Ok(()),
        }
    }

    /// What the first to ask is told.
    pub(super) const fn unseen(&self) -> IoResult {
        match self.last {
            Some(error) if !self.is_seen => Err(error),
            _ => Ok(()),
        }
    }

    /// Errors seen by one who was told now.
    pub(super) const fn mark_seen(&mut self) -> u64 {
        self.is_seen = true;
        self.count
    }

    /// Errors that count as seen by one who comes now.
    pub(super) const fn seen_by_newcomer(&self) -> u64 {
        if self.is_seen { self.count } else { 0 }
    }
}

impl Cache {
    /// Whether a writer must wait.
    pub(super) const fn is_throttled(&self) -> bool {
        self.dirty_pages() >= self.limits.throttle
    }

    /// A copy to a page begins.
    pub(super) fn dirties(&mut self, page: u64, frame: u32) {
        let was_counted = self.frames.change(frame, |f| {
            f.writers += 1;
            if let Holds::Dirty { fresh } = f.holds {
                return !fresh;
            }
            f.holds = Holds::Dirty { fresh: false };
            false
        });
        if was_counted {
            return;
        }
        let writeback = &mut self.writeback;
        if writeback.dirty == 0 {
            writeback.dirty_since = self.now;
        }
        writeback.dirty += 1;
        if writeback.tick.is_none() {
            writeback.tick = Some(self.now + self.policy.dirty_writeback);
        }
        self.index.set_dirty(page, true);
    }

    /// The deadline has come: old pages are written back.
    pub(crate) fn timer(&mut self, now: Instant) {
        self.now = now;
        let writeback = &mut self.writeback;
        if writeback.tick.is_none_or(|tick| tick > now) {
            return;
        }
        writeback.tick = (writeback.dirty > 0).then(|| now + self.policy.dirty_writeback);
        if writeback.dirty > 0 && now.since(writeback.dirty_since) >= self.policy.dirty_expire {
            writeback.expiring = writeback.expiring.or(Some(0));
            writeback.dirty_since = now;
        }
    }

    /// Writes back what is too much, too old, or in the way of those who wait for memory.
    pub(super) fn write_back(&mut self) {
        let mut has_wrapped = false;
        if self.writeback.dirty == 0 {
            self.writeback.expiring = None;
        }
        while self.may_write_back() {
            let in_the_way = !self.dirty_waiters.is_empty() || !self.frame_waiters.is_empty();
            let is_pass = self.writeback.expiring.is_some();
            if !is_pass && !in_the_way && self.writeback.dirty <= self.limits.background {
                return;
            }
            let from = self.writeback.expiring.unwrap_or(self.writeback.cursor);
            let first = self.index.next_dirty(from, u64::MAX);
            let next = first.map(|page| self.write_back_run(page, u64::MAX, false).unwrap_or(page + 1));
            if is_pass {
                self.writeback.expiring = next;
            } else if let Some(next) = next {
                self.writeback.cursor = next;
            } else if has_wrapped {
                return;
            } else {
                has_wrapped = true;
                self.writeback.cursor = 0;
            }
        }
    }

    fn may_write_back(&self) -> bool {
        self.writeback.dirty > 0 && self.writeback.in_flight.len() < self.policy.in_flight_max as usize
    }

    /// Writes back a run of pages that begins with this dirty one; answers the page behind it, or nothing if a
    /// copy to the first is under way.
    fn write_back_run(&mut self, first: u64, end: u64, is_sync: bool) -> Option<u64> {
        let most = end.min(first + u64::from(self.policy.request_pages_max));
        let mut page = first;
        while page < most && self.index.next_dirty(page, page + 1).is_some() {
            let frame = self.index.get(page).expect("dirty pages are there");
            if self.frames.get(frame).writers > 0 {
                break;
            }
            self.frames.change(frame, |f| {
                f.holds = Holds::WritingBack;
                f.is_wanted = false;
            });
            self.index.set_dirty(page, false);
            page += 1;
        }
        if page == first {
            return None;
        }
        let count = (page - first) as u32;
        let writeback = &mut self.writeback;
        let sequence = writeback.next_sequence;
        writeback.next_sequence += 1;
        writeback.in_flight.insert(sequence, (first, page));
        writeback.dirty -= u64::from(count);
        writeback.writing += u64::from(count);
        self.stats.pages_written += u64::from(count);
        let range = self.sectors(first, count);
        let flags = Flags { sync: is_sync, ..Flags::default() };
        self.ask(Below::WriteBack { sequence, first, count }, Op::Write, range, flags);
        Some(page)
    }

    /// The array answered a write-back.
    pub(super) fn written_back(&mut self, sequence: u64, first: u64, count: u32, result: IoResult) {
        let end = first + u64::from(count);
        self.writeback.in_flight.remove(&sequence).expect("it was in flight");
        self.writeback.writing -= u64::from(count);
        self.writeback.is_sync_ready = true;
        for page in first..end {
            let frame = self.index.get(page).expect("pages in use stay where they are");
            self.frames.change(frame, |f| f.holds = Holds::Clean);
            self.wake_page(frame);
        }
        let Err(error) = result else { return };
        self.errors.record(error);
        for place in 0..self.writeback.syncs.len() {
            let key = self.writeback.syncs[place];
            let Step::Sync(sync) = &mut self.state(key).step else { unreachable!("it waits for write-back") };
            if first < sync.end && sync.first < end && sync.before.is_none_or(|before| sequence < before) {
                sync.result = Err(error);
            }
        }
    }

    /// A request begins to wait for the dirty pages of its range.
    pub(super) fn sync_begins(&mut self, key: RequestKey) {
        self.writeback.syncs.push(key);
        self.writeback.is_sync_ready = true;
    }

    /// Lets those go on that wait for write-back.
    pub(super) fn syncs(&mut self, out: &mut ActionQueue) {
        while std::mem::take(&mut self.writeback.is_sync_ready) {
            let mut place = 0;
            while place < self.writeback.syncs.len() {
                let key = self.writeback.syncs[place];
                let Step::Sync(mut sync) = self.state(key).step else {
                    unreachable!("it waits for write-back")
                };
                let is_done = self.sync(&mut sync);
                self.state(key).step = Step::Sync(sync);
                if is_done {
                    self.writeback.syncs.remove(place);
                    self.synced(key, sync.result, out);
                } else {
                    place += 1;
                }
            }
        }
    }

    /// Writes back what is dirty in the range; answers whether all of it has been.
    fn sync(&mut self, sync: &mut Sync) -> bool {
        while sync.before.is_none() {
            let Some(page) = self.index.next_dirty(sync.cursor, sync.end) else {
                sync.before = Some(self.writeback.next_sequence);
                break;
            };
            sync.cursor = page;
            if !self.may_write_back() {
                return false;
            }
            let Some(next) = self.write_back_run(page, sync.end, true) else {
                let frame = self.index.get(page).expect("dirty pages are there");
                self.frames.change(frame, |f| f.is_wanted = true);
                return false;
            };
            sync.cursor = next;
        }
        let before = sync.before.unwrap_or(0);
        let mut waited_for = self.writeback.in_flight.range(..before);
        !waited_for.any(|(_, &(first, end))| first < sync.end && sync.first < end)
    }
}
