//! RAID-4, 5 and 6.
//!
//! # The life of a write
//! admitted (cut into pieces, rows of the stripe cache taken) → gathered in windows while the array is
//! plugged → cut into runs of rows that are alike → planned (RMW, RCW) → delayed while other partial
//! stripes read → read → computed → written → acknowledged.
//!
//! # Contract
//! *Ordering.* An operation owns its rows from its first read to its last write; what comes for the same rows
//! waits. Only reads of different slots share rows, as long as none of them must be rebuilt. Requests whose bytes overlap are ordered before they come here.
//! *Limits.* A request waits, cut in the middle if need be, when every stripe-cache entry is active, and goes
//! on when active entries have fallen to the policy's share; first come, first served.

mod actions;
mod admit;
mod cache;
#[cfg(test)]
mod driven;
mod job;
mod journal;
mod log;
mod op;
pub mod plan;
mod runs;
mod single;
mod window;

use std::collections::VecDeque;

use stripewise_format::uuid::Uuid;

use super::core::{Core, IoRecord, Owner, RequestKey, RequestState};
use super::slab::Slab;
use crate::geometry::ParityShape;
use crate::io::{ActionQueue, Flags, IoError, IoResult, Op, Request, SegList};
use crate::journal::JournalStart;
use crate::policy::{DegradedReads, Policy};
use crate::units::{Instant, PAGE_SECTORS, SectorRange};
use cache::StripeCache;
use journal::Journal;
pub(crate) use journal::{JournalTail, LogEnd, is_long_enough};
pub(crate) use log::LogPlaces;
use log::Logs;
use op::StripeOp;
use single::Single;
use window::{Piece, Windows};

/// The machine of these levels.
#[derive(Debug)]
pub(crate) struct Parity {
    shape: ParityShape,
    cache: StripeCache,
    windows: Windows,
    /// Empty while it is being worked on.
    ops: Slab<Option<Box<StripeOp>>>,
    /// Pages written alone.
    singles: Slab<Single>,
    /// Requests that wait for stripe-cache entries.
    waiting: VecDeque<RequestKey>,
    /// Where rows are taken in turn: the row the first of `waiting` goes on from.
    next_row: u64,
    /// Windows to look at when the plug is pulled.
    gathering: Vec<u32>,
    /// Windows with partial stripes that wait until others have read.
    delayed: Vec<u32>,
    /// Partial-stripe writes that are reading.
    preread_active: u32,
    /// When the plug is pulled at the latest, and requests gathered behind it.
    plug: Option<(Instant, u32)>,
    /// Memory to use again.
    spare: Vec<Vec<Piece>>,
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again")]
    spare_ops: Vec<Box<StripeOp>>,
    cuts: Vec<u32>,
    runs: Vec<runs::Run>,
    /// Partial parity logs, where the array has them.
    logs: Option<Logs>,
    /// The write journal, where the array has one.
    journal: Option<Journal>,
}

impl Parity {
    pub(crate) fn new(
        shape: ParityShape,
        chunk_sectors: u64,
        entries: u32,
        policy: &Policy,
        logs: Option<LogPlaces>,
    ) -> Self {
        let slots = shape.data_disks() + shape.parity_disks();
        Self {
            shape,
            cache: StripeCache::new(entries, slots, !policy.whole_stripes_fill_cache),
            windows: Windows::new(chunk_sectors),
            ops: Slab::new(),
            singles: Slab::new(),
            waiting: VecDeque::new(),
            next_row: 0,
            gathering: Vec::new(),
            delayed: Vec::new(),
            preread_active: 0,
            plug: None,
            spare: Vec::new(),
            spare_ops: Vec::new(),
            cuts: Vec::new(),
            runs: Vec::new(),
            logs: logs.map(|places| Logs::new(places, slots)),
            journal: None,
        }
    }

    /// Has writes go through a write journal.
    pub(crate) fn journal(&mut self, start: &JournalStart, set_uuid: &Uuid) {
        self.journal = Some(Journal::new(start, set_uuid));
    }

    /// Whether anything is logged before it is written.
    fn is_logged(&self) -> bool {
        self.logs.is_some() || self.journal.is_some()
    }

    pub(crate) fn cache_entries(&self) -> u32 {
        self.cache.entries()
    }

    /// Takes a request. It holds its range if it writes or reads through the cache.
    pub(crate) fn admit(&mut self, core: &mut Core, out: &mut ActionQueue, now: Instant, key: RequestKey) {
        let state = core.request(key);
        let (request, through_cache) = (state.request, state.through_cache);
        if state.rows.is_some() {
            return self.admit_rows(core, out, key);
        }
        match request.op {
            Op::Flush => unreachable!("flushes are sent to the members, not to the stripes"),
            Op::Read if !through_cache => self.read_past_cache(core, out, key),
            Op::Discard => {
                if let Some(stripes) = self.whole_stripes(core, request.range) {
                    self.whole(core, key, stripes);
                }
                core.request(key).admitted = request.range.count;
            }
            Op::Read | Op::Write | Op::WriteZeroes => {
                core.part_begins(key);
                self.plug(core, now, request.flags);
                if self.waiting.is_empty() && self.take_rows(core, key) {
                    core.part_ends(out, key, Ok(()));
                } else {
                    self.waiting.push_back(key);
                    self.plug = None;
                }
                if request.op == Op::Read {
                    self.plug = None;
                }
            }
        }
    }

    /// Whether [`Self::settle`] would do nothing.
    #[inline]
    pub(crate) fn is_settled(&self, core: &Core) -> bool {
        !self.may_unplug() && !self.may_release(core) && (self.waiting.is_empty() || !self.may_wake(core))
    }

    /// Whether nothing has come that a write could overtake.
    #[inline]
    fn has_none_waiting(&self) -> bool {
        self.gathering.is_empty() && self.delayed.is_empty() && self.waiting.is_empty()
    }

    /// Whether what was gathered may start.
    #[inline]
    fn may_unplug(&self) -> bool {
        self.plug.is_none() && !self.gathering.is_empty()
    }

    /// Whether more partial stripes may read.
    #[inline]
    fn may_release(&self, core: &Core) -> bool {
        !self.delayed.is_empty() && self.preread_active < core.policy.preread_active_max
    }

    /// Whether active entries are few enough for requests that wait for some.
    #[inline]
    fn may_wake(&self, core: &Core) -> bool {
        let quarters = u64::from(core.policy.cache_wake_quarters);
        u64::from(self.cache.active_count()) * 4 < u64::from(self.cache.entries()) * quarters
    }

    /// Starts whatever may start now. To be called after every input.
    pub(crate) fn settle(&mut self, core: &mut Core, out: &mut ActionQueue) {
        self.journal_on(core, out);
        self.unpark(core, out);
        loop {
            if self.may_unplug() {
                self.unplug(core, out);
            } else if self.may_release(core) {
                self.release_delayed(core, out);
            } else if !self.wake(core, out) {
                return;
            }
        }
    }

    /// Notes a request behind the plug, or pulls it.
    fn plug(&mut self, core: &Core, now: Instant, flags: Flags) {
        let (deadline, requests) = self.plug.unwrap_or((now + core.policy.unplug_delay, 0));
        let gathers = flags.more && requests + 1 < core.policy.unplug_requests;
        self.plug = gathers.then_some((deadline, requests + 1));
    }

    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.plug.map(|(deadline, _)| deadline)
    }

    pub(crate) fn timer(&mut self, now: Instant) {
        if self.plug.is_some_and(|(deadline, _)| deadline <= now) {
            self.plug = None;
        }
    }

    /// Starts what was gathered.
    fn unplug(&mut self, core: &mut Core, out: &mut ActionQueue) {
        let gate_open = self.preread_active < core.policy.preread_active_max;
        let mut list = std::mem::take(&mut self.gathering);
        for index in list.drain(..) {
            self.windows.get(index).gathering = false;
            self.start_runs(core, out, index, gate_open);
        }
        // What ended at once may have left rows to others.
        if self.gathering.is_empty() {
            self.gathering = list;
        }
    }

    /// Starts partial stripes that waited for others to read.
    fn release_delayed(&mut self, core: &mut Core, out: &mut ActionQueue) {
        let list = std::mem::take(&mut self.delayed);
        for &index in &list {
            self.windows.get(index).delayed = false;
        }
        for index in list {
            self.start_runs(core, out, index, true);
        }
    }

    /// Sends a read that one member can answer, without a state of its own. Answers whether it is one.
    #[inline]
    pub(crate) fn read_whole(&self, core: &mut Core, out: &mut ActionQueue, request: &Request) -> bool {
        let range = request.range;
        let (place, contiguous) = self.shape.locate(range.start);
        let policy = &core.policy;
        let is_plain = range.count <= contiguous
            && policy.aligned_reads_bypass_cache
            && (policy.degraded_reads != DegradedReads::ThroughCache || core.incomplete().is_empty())
            && core.can_read_at(place, range.count);
        if is_plain {
            core.read_whole(out, request, place);
        }
        is_plain
    }

    /// Whether a read passes the stripe cache as a whole.
    #[inline]
    pub(crate) fn reads_through_cache(&self, core: &Core, range: SectorRange) -> bool {
        if !core.policy.aligned_reads_bypass_cache {
            return true;
        }
        if core.incomplete().is_empty() {
            return false;
        }
        match core.policy.degraded_reads {
            DegradedReads::ThroughCache => true,
            DegradedReads::PerChunk => false,
            DegradedReads::Merged => self.wants_more_than_what_is_lost(core, range),
        }
    }

    /// Whether a read is of several chunks, one of which no member gives.
    #[cold]
    fn wants_more_than_what_is_lost(&self, core: &Core, range: SectorRange) -> bool {
        let mut sector = range.start;
        while sector < range.end() {
            let (place, contiguous) = self.shape.locate(sector);
            let count = contiguous.min(range.end() - sector);
            if count == range.count {
                return false;
            }
            if !core.can_read_at(place, count) {
                return true;
            }
            sector += count;
        }
        false
    }

    /// Reads straight into the request's buffer; parts whose member is gone go through the cache.
    fn read_past_cache(&self, core: &mut Core, out: &mut ActionQueue, key: RequestKey) {
        let range = core.request(key).request.range;
        let mut sector = range.start;
        while sector < range.end() {
            let (place, contiguous) = self.shape.locate(sector);
            let part = SectorRange::new(sector, contiguous.min(range.end() - sector));
            if core.can_read_at(place, part.count) {
                core.read_part(out, key, part, place);
            } else {
                Self::read_through_cache(core, key, part);
            }
            sector = part.end();
        }
        core.request(key).admitted = range.count;
    }

    /// Makes a request of its own of a part that must be rebuilt from the other members.
    fn read_through_cache(core: &mut Core, parent: RequestKey, part: SectorRange) {
        core.part_begins(parent);
        let state = core.request(parent);
        let buffer_offset = state.buffer_offset + (part.start - state.request.range.start) * 512;
        let request = Request { range: part, ..state.request };
        let child = core.requests.insert(RequestState {
            buffer_offset,
            parent: Some(parent),
            locked: true,
            through_cache: true,
            ..RequestState::new(request)
        });
        if core.ranges.lock(part, child) {
            core.granted.push_back(child);
        }
    }

    /// Cuts a request into pieces as far as stripe-cache entries go. Answers whether it is all taken.
    fn take_rows(&mut self, core: &mut Core, key: RequestKey) -> bool {
        let state = core.request(key);
        let (request, mut admitted) = (state.request, state.admitted);
        if state.job.is_some() {
            return self.take_job_rows(core, key, request.range);
        }
        if let Some(most) = core.policy.rows_in_turn.filter(|_| request.op != Op::WriteZeroes) {
            return self.take_rows_in_turn(core, key, request, most);
        }
        let whole =
            if request.op == Op::WriteZeroes { self.whole_stripes(core, request.range) } else { None };
        while admitted < request.range.count {
            let sector = request.range.start + admitted;
            if let Some(whole) = whole.filter(|w| w.start == sector) {
                self.whole(core, key, whole);
                admitted += whole.count;
                continue;
            }
            let end = whole.filter(|w| w.start > sector).map_or(request.range.end(), |w| w.start);
            let (taken, complete) =
                self.take_piece(core, key, &request, SectorRange::new(sector, end - sector));
            admitted += taken;
            core.request(key).admitted = admitted;
            if !complete {
                return false;
            }
        }
        core.request(key).admitted = admitted;
        true
    }

    /// Queues the first piece of a range in its window. Answers how many sectors were taken and whether that
    /// was the whole piece.
    fn take_piece(
        &mut self,
        core: &mut Core,
        key: RequestKey,
        request: &Request,
        range: SectorRange,
    ) -> (u64, bool) {
        let (number, piece) = self.first_piece(key, request, range);
        let taken = self.queue_piece(core, number, piece);
        (taken, taken == u64::from(piece.count))
    }

    /// The first piece of a range, and the number of its window.
    #[inline]
    fn first_piece(&self, key: RequestKey, request: &Request, range: SectorRange) -> (u64, Piece) {
        let (stripe, data, offset) = self.shape.split(range.start);
        let (number, start) = self.windows.split(self.shape.member_sector(stripe, offset));
        // No window goes on into another chunk.
        let count = (self.windows.sectors() - start).min(range.count);
        let piece = Piece {
            request: key,
            read: request.op == Op::Read,
            job: false,
            sync: request.flags.sync,
            fua: request.flags.fua,
            data,
            start: start as u32,
            count: count as u32,
            sector: range.start,
        };
        (number, piece)
    }

    /// Queues a piece in the window of a number, as far as stripe-cache entries go. Answers how many sectors that was.
    fn queue_piece(&mut self, core: &mut Core, number: u64, mut piece: Piece) -> u64 {
        let window_rows = self.windows.rows;
        let index = self.windows.open(number);
        let window = self.windows.get(index);
        let rows = piece.rows();
        for row in rows.0..rows.1 {
            let entry = &mut window.entries[row as usize];
            if *entry != window::NO_ENTRY {
                continue;
            }
            let Some(acquired) = self.cache.acquire(number * window_rows + u64::from(row)) else {
                piece.count = (row * PAGE_SECTORS as u32).saturating_sub(piece.start);
                break;
            };
            *entry = acquired;
        }
        if piece.count == 0 {
            self.windows.close_if_free(index);
            return 0;
        }
        window.queue.push(piece);
        self.gather(index);
        core.part_begins(piece.request);
        u64::from(piece.count)
    }

    /// Has a window looked at when the plug is pulled.
    fn gather(&mut self, index: u32) {
        let window = self.windows.get(index);
        if !std::mem::replace(&mut window.gathering, true) {
            self.gathering.push(index);
        }
    }

    /// Lets the request that has waited longest for entries go on, if active ones are few enough. Answers
    /// whether it did.
    fn wake(&mut self, core: &mut Core, out: &mut ActionQueue) -> bool {
        let Some(&key) = self.waiting.front().filter(|_| self.may_wake(core)) else { return false };
        if self.take_rows(core, key) {
            self.waiting.pop_front();
            core.part_ends(out, key, Ok(()));
        }
        self.plug = None;
        true
    }

    /// The whole stripes in a range, if members can be told to zero or discard them at once.
    fn whole_stripes(&self, core: &Core, range: SectorRange) -> Option<SectorRange> {
        let stripe = self.shape.stripe_sectors();
        let start = range.start.next_multiple_of(stripe);
        let end = range.end() / stripe * stripe;
        // Zeroing members at once would go past the logs.
        (core.discard && !self.is_logged() && start < end).then(|| SectorRange::new(start, end - start))
    }

    /// Zeroes or discards whole stripes on every member; the parity of zeroes is zero.
    /// Makes a request of its own of it, which waits for jobs on these rows.
    fn whole(&self, core: &mut Core, parent: RequestKey, stripes: SectorRange) {
        let data_disks = u64::from(self.shape.data_disks());
        let rows = SectorRange::new(stripes.start / data_disks, stripes.count / data_disks);
        core.part_begins(parent);
        let request = Request { range: stripes, ..core.request(parent).request };
        let child = core.requests.insert(RequestState {
            parent: Some(parent),
            rows: Some(rows),
            ..RequestState::new(request)
        });
        if core.rows.lock(rows, child) {
            core.granted.push_back(child);
        }
    }

    /// Goes on with what holds its rows now: a job, or whole stripes that members zero or discard.
    fn admit_rows(&mut self, core: &mut Core, out: &mut ActionQueue, key: RequestKey) {
        let state = core.request(key);
        if state.job.is_some() {
            core.part_begins(key);
            if self.waiting.is_empty() && self.take_rows(core, key) {
                core.part_ends(out, key, Ok(()));
            } else {
                self.waiting.push_back(key);
            }
            return;
        }
        let Some(range) = state.rows else { unreachable!("whole stripes hold their rows") };
        let Request { op, flags, range: stripes, .. } = state.request;
        state.admitted = stripes.count;
        self.cache.forget(range.start / PAGE_SECTORS, range.count / PAGE_SECTORS);
        for slot in core.working() {
            core.part_begins(key);
            let record = core.record(slot, op, range, Owner::Part { request: key, sector: stripes.start });
            core.io(out, record, flags.fua, SegList::default());
        }
    }

    /// A member answered.
    pub(crate) fn ended(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        record: &IoRecord,
        result: IoResult,
    ) {
        match record.owner {
            Owner::Part { request, sector } => {
                let result = match (record.op, result) {
                    (_, Ok(())) => Ok(()),
                    (Op::Read, Err(error)) => {
                        if error == IoError::Gone {
                            core.fail_member_of(out, record);
                        }
                        core.drop_replacement(out, record.slot, record.member);
                        // Read again, rebuilding what this member does not give.
                        Self::read_through_cache(core, request, SectorRange::new(sector, record.range.count));
                        Ok(())
                    }
                    (_, Err(error)) => {
                        core.fail_member_of(out, record);
                        if core.read_only { Err(error) } else { Ok(()) }
                    }
                };
                core.part_ends(out, request, result);
            }
            Owner::Stripe { op } => self.op_io_ended(core, out, op, record, result),
            Owner::Journal => self.journal_ended(core, out, result),
            Owner::Log { slot } => self.log_ended(core, out, slot, (record.member, result)),
            _ => unreachable!("not of these levels' machine"),
        }
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let logs_idle = self.logs.as_ref().is_none_or(Logs::is_idle)
            && self.journal.as_ref().is_none_or(Journal::is_idle);
        let ops_idle = self.ops.len() == 0 && self.singles.len() == 0;
        logs_idle && ops_idle && self.waiting.is_empty() && self.windows.len() == 0
    }

    /// Pages that are written alone.
    pub(crate) fn singles(&self) -> usize {
        self.singles.len()
    }

    /// I/Os in flight that have no record in [`Core::ios`].
    pub(crate) fn ios_of_singles(&self) -> usize {
        self.singles.iter().map(Single::ios).sum()
    }

    /// Panics if the machine contradicts itself.
    pub(crate) fn check_invariants(&self) {
        self.cache.check();
        let held: usize =
            self.windows.iter().flat_map(|w| &w.entries).filter(|e| **e != window::NO_ENTRY).count();
        assert_eq!(held as u32, self.cache.active_count(), "active entries are those that windows hold");
        let working: usize = self.windows.iter().map(|w| w.active.len()).sum();
        let singles = self.singles.iter().filter(|s| s.is_itself()).count();
        assert_eq!(working, self.ops.len() + singles, "every operation owns its rows");
        let reading = self.ops.iter().flatten().filter(|op| op.is_prereading()).count();
        let reading = reading + self.singles.iter().filter(|s| s.is_prereading()).count();
        assert_eq!(reading as u32, self.preread_active, "prereading operations are counted");
        for window in self.windows.iter() {
            for (i, a) in window.active.iter().enumerate() {
                assert!(window.active[i + 1..].iter().all(|b| !a.excludes(b)), "rows have one owner");
            }
        }
        if self.plug.is_none() {
            assert!(self.gathering.is_empty(), "nothing gathers without a plug");
        }
        assert!(
            self.delayed.is_empty() || self.preread_active > 0,
            "delayed stripes wait only while others read"
        );
    }
}
