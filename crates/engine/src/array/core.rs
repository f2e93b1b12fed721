//! What every level's machine shares: requests and I/Os in flight, the range lock, which members work.

use std::collections::VecDeque;

use super::members::{Members, Twin};
use super::parity::JournalTail;
use super::plain_read::PlainReads;
use super::range_lock::RangeLock;
use super::slab::Slab;
use super::slots::SlotSet;
use super::sync::{Found, Job};
use super::write_mostly::WriteMostly;
use crate::geometry::Geometry;
use crate::io::{
    Action, ActionQueue, Area, Buf, Flags, IoError, IoResult, MemberIo, Op, Request, RequestId, Seg, SegList,
    Tag,
};
use crate::metadata::{BadBlocks, StateChange, WriteIntent};
use crate::mutation::{self, Mutation};
use crate::policy::Policy;
use crate::units::{Instant, MemberIndex, SectorRange, Slot};

/// Key of a request in [`Core::requests`].
pub(crate) type RequestKey = u64;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub(crate) request: Request,
    /// Byte offset of this request's range in the buffer (not zero for a part of another request).
    pub(crate) buffer_offset: u64,
    /// The request this one is a part of.
    pub(crate) parent: Option<RequestKey>,
    /// Parts under way, plus one while parts are still being made.
    pub(crate) parts: u32,
    pub(crate) result: IoResult,
    pub(crate) locked: bool,
    /// Sectors of the range already handed to the level's machine.
    pub(crate) admitted: u64,
    /// Reads must go through the stripe cache.
    pub(crate) through_cache: bool,
    /// It is the array's own work, told to nobody above.
    pub(crate) job: Option<Job>,
    /// Rows held in [`Core::rows`].
    pub(crate) rows: Option<SectorRange>,
}

impl RequestState {
    /// A request of which no part is made yet.
    pub(crate) const fn new(request: Request) -> Self {
        Self {
            request,
            buffer_offset: 0,
            parent: None,
            parts: 1,
            result: Ok(()),
            locked: false,
            admitted: 0,
            through_cache: false,
            job: None,
            rows: None,
        }
    }
}

/// Whom a member's answer concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A part of a request, from this sector of the array.
    Part { request: RequestKey, sector: u64 },
    /// A read of one copy of a part; those tried before are kept under a key, or there are none (0).
    CopyRead { request: RequestKey, sector: u64, tried: u64 },
    /// A flush.
    Flush { request: RequestKey },
    /// An operation on rows of a stripe.
    Stripe { op: u64 },
    /// The keeper of superblocks and bitmap.
    Metadata { member: MemberIndex },
    /// The partial parity log of a slot.
    Log { slot: Slot },
    /// The write journal.
    Journal,
    /// A job on copies.
    CopyJob { job: u64 },
    /// A write to a slot's member and its replacement.
    Twin { twin: u64 },
}

impl Owner {
    /// Whether the I/O is not of the members' data.
    pub(crate) const fn is_beside_data(self) -> bool {
        matches!(self, Self::Metadata { .. } | Self::Log { .. } | Self::Journal)
    }
}

/// An I/O in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoRecord {
    pub(crate) slot: Slot,
    /// The slot's member when the I/O began, or its replacement.
    pub(crate) member: MemberIndex,
    pub(crate) op: Op,
    /// It asks again for a part of what was refused, and counted as an error.
    pub(crate) is_again: bool,
    pub(crate) range: SectorRange,
    pub(crate) owner: Owner,
}

/// Answers to writes and flushes that wait until the superblocks say that a member failed: a crash before that would
/// bring back the member, which misses what was acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) is_holding: bool,
    pub(crate) answers: Vec<(RequestId, IoResult)>,
    /// The array failed before that: no superblock will ever say so, and nothing is said to be done any more.
    pub(crate) is_cut_short: bool,
}

/// What is said of a write or flush that ended so.
#[inline]
fn told(is_cut_short: bool, result: IoResult) -> IoResult {
    if is_cut_short { result.and(Err(IoError::ReadOnly)) } else { result }
}

/// State that all levels share.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(crate) struct Core {
    /// The time of the input that is handled.
    pub(crate) now: Instant,
    pub(crate) geometry: Geometry,
    pub(crate) policy: Policy,
    /// Members take discards and write-zeroes, and read as zeroes afterwards.
    pub(crate) discard: bool,
    /// Slots without a member.
    pub(crate) failed: SlotSet,
    pub(crate) members: Members,
    /// Something about the members changed that the array's own jobs must look at.
    pub(crate) standing_changed: bool,
    /// Sync sectors from which on redundancy may not be right; `u64::MAX` if all is.
    pub(crate) resync_from: u64,
    /// The superblocks ask for no resync but that of writes under way.
    pub(crate) is_sync_recorded: bool,
    /// Jobs that ended, with their results.
    pub(crate) jobs_ended: VecDeque<(RequestKey, IoResult)>,
    /// What checks found.
    pub(crate) found: Vec<Found>,
    pub(crate) twins: Slab<Twin>,
    /// More is lost than the level survives, or a flush failed: no more writes.
    pub(crate) read_only: bool,
    /// That happened while it ran: no flush is said to be done any more.
    pub(crate) has_failed: bool,
    /// The last copy of something had an error of a write or flush, and is kept to be read.
    pub(crate) has_kept_last_copy: bool,
    pub(crate) requests: Slab<RequestState>,
    pub(crate) ios: Slab<IoRecord>,
    /// Reads that take a member's bytes as they are.
    pub(crate) plain_reads: PlainReads,
    /// The member of each slot.
    pub(crate) member_of: Vec<MemberIndex>,
    /// I/Os under way on each slot's member.
    pub(crate) in_flight: Vec<u32>,
    /// Sectors that requests asked of each slot's member, for the idle test of the array's own jobs.
    pub(crate) foreground_sectors: Vec<u64>,
    /// Sectors of each slot's member that the array's own jobs have under way.
    pub(crate) own_sectors: Vec<u64>,
    /// The array's own work keeps requests out,
    pub(crate) is_barred: bool,
    /// which wait for their turn.
    pub(crate) barred: VecDeque<Request>,
    pub(crate) ranges: RangeLock,
    /// Rows (in members' sectors) of jobs, and of whole stripes that members zero or discard.
    pub(crate) rows: RangeLock,
    /// Requests that may go on: their range was granted.
    pub(crate) granted: VecDeque<RequestKey>,
    /// What the superblocks do not say yet. Grows only where a keeper takes them.
    pub(crate) changes: VecDeque<StateChange>,
    /// The write-intent bitmap.
    pub(crate) intent: Option<WriteIntent>,
    /// A keeper records the array's state on its members.
    pub(crate) is_kept: bool,
    /// Ranges of writes that ended, for the keeper.
    pub(crate) writes_ended: Vec<SectorRange>,
    /// Answers that wait for a member's failure to be recorded.
    pub(crate) held: Held,
    /// I/Os beside the data under way.
    pub(crate) metadata_ios: u32,
    /// What members are known not to hold, by member; empty where nothing was ever listed.
    pub(crate) bad_blocks: Vec<Option<BadBlocks>>,
    /// One of them lists something.
    pub(crate) has_bad_blocks: bool,
    pub(crate) write_mostly: WriteMostly,
    /// Of arrays that are written through a write journal.
    pub(crate) journal: Option<JournalTail>,
}

impl Core {
    pub(crate) fn new(geometry: Geometry, policy: Policy, discard: bool, spares: u16) -> Self {
        let members = usize::from(geometry.raid_disks());
        Self {
            now: Instant::ZERO,
            members: Members::new(geometry.raid_disks(), spares),
            standing_changed: false,
            resync_from: u64::MAX,
            is_sync_recorded: true,
            jobs_ended: VecDeque::new(),
            found: Vec::new(),
            twins: Slab::new(),
            foreground_sectors: vec![0; members],
            own_sectors: vec![0; members],
            is_barred: false,
            barred: VecDeque::new(),
            rows: RangeLock::default(),
            geometry,
            policy,
            discard,
            failed: SlotSet::EMPTY,
            read_only: false,
            has_failed: false,
            has_kept_last_copy: false,
            requests: Slab::new(),
            ios: Slab::new(),
            plain_reads: PlainReads::new(),
            member_of: (0..members).map(|m| MemberIndex(m as u16)).collect(),
            in_flight: vec![0; members],
            ranges: RangeLock::default(),
            granted: VecDeque::new(),
            changes: VecDeque::new(),
            intent: None,
            is_kept: false,
            writes_ended: Vec::new(),
            held: Held::default(),
            metadata_ios: 0,
            bad_blocks: Vec::new(),
            has_bad_blocks: false,
            write_mostly: WriteMostly::default(),
            journal: None,
        }
    }

    /// Tells the keeper, if there is one, of a change.
    pub(crate) fn changed(&mut self, change: StateChange) {
        if self.is_kept {
            self.changes.push_back(change);
        }
    }

    /// Asks a member for an I/O beside its data, for the keeper or a log; what it writes is durable when it is
    /// answered.
    pub(crate) fn device_io(
        &mut self,
        out: &mut ActionQueue,
        member: MemberIndex,
        owner: Owner,
        op: Op,
        range: SectorRange,
        segs: SegList,
    ) {
        self.metadata_ios += 1;
        // No slot is busier for it: the members' load steers reads of data.
        let slot = Slot(u16::MAX);
        let tag = Tag(self.ios.insert(IoRecord { slot, member, op, is_again: false, range, owner }));
        let (area, fua) = (Area::Device, op == Op::Write);
        out.push(Action::Io(MemberIo { tag, member, area, op, range, fua, segs }));
    }

    /// Asks a member for an I/O.
    #[inline]
    pub(crate) fn io(&mut self, out: &mut ActionQueue, record: IoRecord, fua: bool, segs: SegList) {
        if record.op != Op::Read
            && self.members.replacing.contains(record.slot)
            && !mutation::is(Mutation::ForgetReplacementWrite)
        {
            return self.twin_io(out, record, fua, segs);
        }
        self.send(out, record, fua, segs);
    }

    /// The record of an I/O to a slot: to its member, but for reads of what its replacement holds.
    #[inline]
    pub(crate) fn record(&self, slot: Slot, op: Op, range: SectorRange, owner: Owner) -> IoRecord {
        let member = if op == Op::Read { self.source(slot, range) } else { self.member_of[slot.index()] };
        IoRecord { slot, member, op, is_again: false, range, owner }
    }

    /// Asks one member for an I/O, whether or not its slot is being replaced.
    #[inline]
    pub(crate) fn send(&mut self, out: &mut ActionQueue, record: IoRecord, fua: bool, segs: SegList) {
        let IoRecord { slot, member, op, range, .. } = record;
        let tag = Tag(self.ios.insert(record));
        self.ask(out, slot, MemberIo { tag, member, area: Area::Data, op, range, fua, segs });
    }

    /// Asks a slot's member for an I/O that is known by its tag, and counts it.
    #[inline]
    pub(crate) fn ask(&mut self, out: &mut ActionQueue, slot: Slot, mut io: MemberIo) {
        self.in_flight[slot.index()] += 1;
        self.foreground_sectors[slot.index()] += io.range.count;
        io.fua &= !mutation::is(Mutation::ForgetForcedUnitAccess);
        out.push(Action::Io(io));
    }

    /// An I/O that was just asked for is the array's own: of so many sectors, and counted until it ends as of so many.
    pub(crate) fn own_begins(&mut self, slot: Slot, asked: u64, counted: u64) {
        self.foreground_sectors[slot.index()] -= asked;
        self.own_sectors[slot.index()] += counted;
    }

    /// An I/O of the array's own ended.
    pub(crate) fn own_ends(&mut self, slot: Slot, counted: u64) {
        self.own_sectors[slot.index()] -= counted;
    }

    /// Whether any request is in flight, or any job.
    pub(crate) fn has_requests(&self) -> bool {
        self.requests.len() + self.plain_reads.len() > 0
    }

    /// Whether no request is in flight, and no I/O.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.len() + self.ios.len() + self.plain_reads.len() + self.barred.len() == 0
    }

    /// Lets go of the record of an I/O of this slot's data, which is there.
    #[inline]
    pub(crate) fn data_io_ends(&mut self, tag: Tag, slot: Slot) {
        self.ios.discard(tag.0);
        self.in_flight[slot.index()] -= 1;
    }

    /// Takes the record of an I/O that ended.
    pub(crate) fn io_ended(&mut self, tag: Tag) -> Option<IoRecord> {
        let record = self.ios.remove(tag.0)?;
        if record.owner.is_beside_data() {
            self.metadata_ios -= 1;
        } else {
            self.in_flight[record.slot.index()] -= 1;
        }
        Some(record)
    }

    /// The request of a key.
    #[inline]
    pub(crate) fn request(&mut self, key: RequestKey) -> &mut RequestState {
        self.requests.get_mut(key).expect("a request lives until its last part ended")
    }

    /// The bytes of a request from an array sector on.
    pub(crate) fn request_seg(&mut self, key: RequestKey, sector: u64, sectors: u64) -> Seg {
        let state = self.request(key);
        let bytes = (sectors * 512) as u32;
        if state.request.op == Op::WriteZeroes {
            return Seg { buf: Buf::Zero, bytes };
        }
        let offset = state.buffer_offset + (sector - state.request.range.start) * 512;
        Seg { buf: Buf::Request { id: state.request.id, offset }, bytes }
    }

    /// Notes that one more part of a request is under way.
    #[inline]
    pub(crate) fn part_begins(&mut self, key: RequestKey) {
        self.request(key).parts += 1;
    }

    /// Notes that a part ended; the last one ends the request.
    #[inline]
    pub(crate) fn part_ends(&mut self, out: &mut ActionQueue, key: RequestKey, result: IoResult) {
        let state = self.request(key);
        if state.result.is_ok() {
            state.result = result;
        }
        state.parts -= 1;
        if state.parts == 0 {
            self.request_ends(out, key);
        }
    }

    /// Answers a request that was one page and of which nothing else was kept.
    #[inline]
    pub(crate) fn page_ends(&mut self, out: &mut ActionQueue, id: RequestId, range: SectorRange) {
        self.ranges.unlock(range, &mut self.granted);
        self.answer(out, &Request { id, op: Op::Write, range, flags: Flags::default() }, Ok(()));
    }

    /// Gives such a request a state, with the page as its part.
    pub(crate) fn page_goes_on(&mut self, id: RequestId, flags: Flags, range: SectorRange) -> RequestKey {
        let request = Request { id, op: Op::Write, range, flags };
        self.requests.insert(RequestState {
            admitted: range.count,
            locked: true,
            ..RequestState::new(request)
        })
    }

    #[inline(never)]
    fn request_ends(&mut self, out: &mut ActionQueue, key: RequestKey) {
        let &mut RequestState { request, parent, result, locked, rows, ref job, .. } = self.request(key);
        let is_job = job.is_some();
        self.requests.discard(key);
        if locked {
            self.ranges.unlock(request.range, &mut self.granted);
        }
        if let Some(rows) = rows {
            self.rows.unlock(rows, &mut self.granted);
        }
        match parent {
            Some(parent) => self.part_ends(out, parent, result),
            None if is_job => self.jobs_ended.push_back((key, result)),
            None => self.answer(out, &request, result),
        }
    }

    #[inline]
    fn answer(&mut self, out: &mut ActionQueue, request: &Request, result: IoResult) {
        let Request { id, op, range, .. } = *request;
        // The members that work were flushed; what was acknowledged may be on the others.
        let result = if op == Op::Flush && self.has_failed { result.and(Err(IoError::Lost)) } else { result };
        if self.is_kept && op.is_write() {
            self.writes_ended.push(range);
        }
        if op == Op::Read {
            out.push(Action::Complete { id, result });
        } else if self.held.is_holding {
            self.held.answers.push((id, result));
        } else {
            out.push(Action::Complete { id, result: told(self.held.is_cut_short, result) });
        }
    }

    /// Gives the answers that waited.
    pub(crate) fn release_answers(&mut self, out: &mut ActionQueue) {
        let Held { is_holding, answers, is_cut_short } = &mut self.held;
        *is_cut_short |= std::mem::take(is_holding) && self.read_only;
        let complete = |(id, result)| Action::Complete { id, result: told(*is_cut_short, result) };
        out.actions.extend(answers.drain(..).map(complete));
    }

    /// Slots with a member in use.
    pub(crate) fn working(&self) -> impl Iterator<Item = Slot> + use<> {
        SlotSet::first(self.geometry.raid_disks()).minus(self.failed).iter()
    }

    /// Sends a flush to every working member.
    pub(crate) fn flush(&mut self, out: &mut ActionQueue, key: RequestKey) {
        for slot in self.working().filter(|_| !mutation::is(Mutation::AcknowledgeBeforeFlush)) {
            self.part_begins(key);
            let range = SectorRange::new(0, 0);
            let record = self.record(slot, Op::Flush, range, Owner::Flush { request: key });
            self.io(out, record, false, SegList::default());
        }
    }

    /// A member answered a flush. After a failed one its cache is not to be trusted: the member fails, and
    /// an array without redundancy takes no more writes.
    pub(crate) fn flushed(&mut self, out: &mut ActionQueue, record: &IoRecord, result: IoResult) {
        let Owner::Flush { request } = record.owner else { unreachable!("only flushes come here") };
        let result = match result {
            // What it lost before it does not tell again.
            Ok(()) if self.has_kept_last_copy => Err(IoError::ReadOnly),
            Ok(()) => Ok(()),
            Err(error) => {
                self.fail_member_of(out, record);
                if self.read_only { Err(error) } else { Ok(()) }
            }
        };
        self.part_ends(out, request, result);
    }

    /// Why a write cannot be taken, if it cannot.
    #[inline]
    pub(crate) fn refuses(&self, request: &Request) -> Option<IoError> {
        let range = request.range;
        if request.op == Op::Flush {
            return None;
        }
        let end = range.start.checked_add(range.count);
        if range.count == 0 || end.is_none_or(|end| end > self.geometry.array_sectors()) {
            return Some(IoError::Range);
        }
        // Buffers are named by 32-bit lengths.
        if matches!(request.op, Op::Read | Op::Write) && range.count > u64::from(u32::MAX) / 512 {
            return Some(IoError::Range);
        }
        (request.op.is_write() && self.read_only).then_some(IoError::ReadOnly)
    }
}
