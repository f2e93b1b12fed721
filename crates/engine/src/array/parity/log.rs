//! The partial parity logs of a RAID-5 array: what a write leaves alone is recorded before it begins.
//!
//! | a member's log is | until |
//! |---|---|
//! | Idle | an operation waits |
//! | Writing | the header and the partial parities of those that wait are durable; then they go on |
//! | Open | the last of them has ended |
//! | Spent | another operation waits |
//! | Flushing | what was logged is durable on every member, so that the log may be written anew |
//!
//! # Contract
//! *Ordering.* An operation's data and parity are written after its entry is durable, and the entry stays until they
//! are. *Shape.* An entry speaks of neighbouring data chunks; what one write leaves alone between two others is
//! written in two operations, one after the other, as md does. A page written in part is written by itself, which md
//! does not do: its other sectors survive the loss of its member. *Limits.* One log at a time on each member, of as many
//! entries as its header and its area hold; what does not fit waits for the next. No operation has more partial parity than
//! the smallest area takes. *Resync.* Entries say, as in Linux, that parity is right but for what they name. So there are
//! none while a resync is to be done (the next start then does it from its beginning), until the superblocks say that it was and
//! what was written till then is durable.

use std::collections::VecDeque;

use stripewise_format::ppl::{ENTRIES_MAX, HEADER_BYTES, PplEntry, PplHeader};

use super::Parity;
use super::actions::remaining_parity;
use super::op::{Kind, Step, StripeOp};
use super::plan::WriteMethod;
use super::window::Piece;
use crate::array::core::{Core, Owner};
use crate::array::slots::SlotSet;
use crate::io::{
    ActionQueue, Buf, IoError, IoResult, Kernel, Op, Operand, OperandList, Seg, SegList, Verdict,
};
use crate::metadata::LogArea;
use crate::units::{MemberIndex, PAGE_SECTORS, SECTOR_BYTES, SectorRange, Slot};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Writing,
    Open,
    Spent,
    Flushing,
}

/// The log on one slot's member.
#[derive(Debug, Default)]
struct Log {
    state: State,
    /// Operations that wait for an entry.
    queue: VecDeque<u64>,
    /// Operations of the log that is written or open.
    unit: Vec<u64>,
    /// Flushes, or writes of the log, awaited.
    awaited: u32,
    generation: u64,
}

/// What the members' superblocks say of their logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogPlaces {
    /// Which array the logs are of.
    pub(crate) signature: u32,
    /// By member.
    pub(crate) areas: Vec<Option<LogArea>>,
}

/// The logs of an array.
#[derive(Debug)]
pub(super) struct Logs {
    places: LogPlaces,
    by_slot: Vec<Log>,
    /// Rows whose partial parity fits the area of every member.
    rows_max: u32,
    /// Operations under way without an entry, that no entry may be written beside.
    beside: u32,
    /// Operations that write once it is recorded which members failed.
    parked: Vec<u64>,
    /// Logs wait for that, too.
    are_held: bool,
}

/// What an operation's log entry is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Logged {
    /// It has, or waits for, an entry in this slot's log.
    slot: Option<Slot>,
    checksum: u32,
    /// It is written without an entry, for a resync is to come.
    is_beside: bool,
}

impl Logged {
    pub(super) const fn is_logged(self) -> bool {
        self.slot.is_some()
    }
}

impl Logs {
    pub(super) fn new(places: LogPlaces, slots: u16) -> Self {
        let rows_max = rows_max(&places);
        Self {
            places,
            by_slot: (0..slots).map(|_| Log::default()).collect(),
            rows_max,
            beside: 0,
            parked: Vec::new(),
            are_held: false,
        }
    }

    /// Rows that an operation of a log may have.
    pub(super) const fn rows_max(&self) -> u32 {
        self.rows_max
    }

    fn area(&self, member: MemberIndex) -> Option<LogArea> {
        self.places.areas.get(member.index()).copied().flatten()
    }

    /// Whether no log is being written or flushed.
    pub(super) fn is_idle(&self) -> bool {
        self.by_slot.iter().all(|log| matches!(log.state, State::Idle | State::Spent))
    }
}

/// Rows of a page of partial parity each that fit the smallest area, behind its header; areas have room for one at least.
fn rows_max(places: &LogPlaces) -> u32 {
    let smallest = places.areas.iter().flatten().map(|area| area.sectors).min().unwrap_or(u64::MAX);
    let bytes = smallest.saturating_mul(SECTOR_BYTES).saturating_sub(HEADER_BYTES as u64);
    u32::try_from(bytes / (PAGE_SECTORS * SECTOR_BYTES)).unwrap_or(u32::MAX).max(1)
}

/// The data chunks an operation writes: the first, and one past the last.
fn chunks(pieces: &[Piece]) -> (u16, u16) {
    let first = pieces.first().map_or(0, |p| p.data);
    (first, pieces.last().map_or(first, |p| p.data) + 1)
}

impl Parity {
    /// Leaves an operation those of its pieces that are in neighbouring data chunks, or in one chunk if a page is
    /// written in part: where two chunks are written and one's member is lost, that one's pages are lost as a whole.
    /// The other pieces wait in the window for its rows.
    pub(super) fn keep_neighbours(&mut self, op: &mut StripeOp) {
        if self.logs.is_none() {
            return;
        }
        let step_max = u16::from(op.partial.is_empty());
        let gap = op.pieces.windows(2).position(|pair| pair[1].data > pair[0].data + step_max);
        let Some(gap) = gap else { return };
        let window = self.windows.get(op.window);
        window.queue.extend(op.pieces.drain(gap + 1..));
        let kept: SlotSet = op.pieces.iter().map(|p| op.map.data_slot(p.data)).collect();
        op.covered = op.covered.and(kept);
        op.partial = op.partial.and(kept);
    }

    /// Takes note of where a member that is about to come in keeps its log.
    pub(crate) fn introduce(&mut self, member: MemberIndex, area: Option<LogArea>) {
        let Some(logs) = &mut self.logs else { return };
        let areas = &mut logs.places.areas;
        areas.resize(areas.len().max(member.index() + 1), None);
        areas[member.index()] = area;
        logs.rows_max = rows_max(&logs.places);
    }

    /// Whether an operation goes by the log: must be logged before it writes. One that is written beside it, for a resync is to come, is
    /// counted until it ends.
    pub(super) fn goes_by_log(&mut self, core: &Core, op: &mut StripeOp) -> bool {
        let Some(logs) = &mut self.logs else { return false };
        let member = core.member_of[op.map.p.index()];
        let has_log = op.plan.method != WriteMethod::NoParity
            && op.parity.contains(op.map.p)
            && !core.failed.contains(op.map.p)
            && logs.area(member).is_some();
        if has_log && !core.is_sync_recorded && !op.logged.is_beside {
            op.logged.is_beside = true;
            logs.beside += 1;
            // Entries say that parity is right but for what they name: what has none is durable before there are any.
            logs.by_slot.iter_mut().for_each(|log| log.state = State::Spent);
        }
        has_log && !op.logged.is_beside
    }

    /// Whether a repair goes by the log: it writes parity that disagrees with the data, which an entry of a write that ended may speak
    /// of. That one's partial parity is the xor of what members held, or parity said, before.
    pub(super) fn repair_goes_by_log(&self, core: &Core, op: &StripeOp) -> bool {
        let p = op.map.p;
        let area = || self.logs.as_ref().and_then(|logs| logs.area(core.member_of[p.index()]));
        op.job.rewrites(p) && !op.split && !core.read_only && core.is_sync_recorded && area().is_some()
    }

    fn written(op: &StripeOp) -> SlotSet {
        op.covered.union(op.partial)
    }

    /// Bytes of partial parity: none when the whole stripe is written, or parity made anew.
    fn partial_bytes(&mut self, core: &Core, op: &StripeOp) -> u64 {
        if op.kind == Kind::Job {
            return 0;
        }
        let left_alone = self.view(core, op).data.minus(Self::written(op));
        if left_alone.is_empty() { 0 } else { op.bytes() }
    }

    /// Computes what the write leaves alone into the pages of P.
    pub(super) fn log_parity(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        op.step = Step::LoggingParity;
        if self.partial_bytes(core, op) == 0 {
            return;
        }
        let written = Self::written(op);
        let (kernel, sources) = if op.plan.method == WriteMethod::Rmw {
            (
                Kernel::Update,
                self.changes(out, op, written, |parity, out, op, slot| {
                    (parity.page_segs(out, op, slot, op.sectors()), zeroes(out, op.bytes()))
                }),
            )
        } else {
            let left_alone = self.view(core, op).data.minus(written);
            (Kernel::Generate, self.page_operands(out, op, left_alone, op.sectors()))
        };
        let targets = self.page_operands(out, op, SlotSet::one(op.map.p), op.sectors());
        // From here on the pages of P are not what the member holds.
        self.mark(op, op.map.p, false);
        let bytes = op.bytes();
        Self::compute(out, key, op, kernel, bytes, sources, targets);
    }

    /// Pairs of operands, old bytes then new bytes.
    fn changes(
        &mut self,
        out: &mut ActionQueue,
        op: &StripeOp,
        slots: SlotSet,
        mut pair: impl FnMut(&mut Self, &mut ActionQueue, &StripeOp, Slot) -> (SegList, SegList),
    ) -> OperandList {
        let pairs: Vec<(Slot, SegList, SegList)> = slots
            .iter()
            .map(|slot| {
                let (old, new) = pair(self, out, op, slot);
                (slot, old, new)
            })
            .collect();
        let first = out.operands.len() as u32;
        for (slot, old, new) in pairs {
            let role = op.map.operand_role(slot);
            out.operands.extend([Operand { role, segs: old }, Operand { role, segs: new }]);
        }
        OperandList { first, count: out.operands.len() as u32 - first }
    }

    /// Asks for the checksum of the partial parity.
    pub(super) fn log_sum(&mut self, core: &Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        op.step = Step::LoggingSum;
        if self.partial_bytes(core, op) == 0 {
            return;
        }
        let sources = self.page_operands(out, op, SlotSet::one(op.map.p), op.sectors());
        let bytes = op.bytes();
        Self::compute(out, key, op, Kernel::Checksum, bytes, sources, OperandList::default());
    }

    /// Has the operation wait for its entry.
    pub(super) fn log_wait(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        mut op: Box<StripeOp>,
    ) {
        op.step = Step::Logging;
        if let Verdict::Checksum(sum) = op.job.verdict {
            op.logged.checksum = sum;
        }
        op.pending += 1;
        let slot = op.map.p;
        op.logged.slot = Some(slot);
        self.log(slot).queue.push_back(key);
        self.put(key, op);
        self.log_on(core, out, slot);
    }

    /// Adds the new data to the partial parity, which makes it the new parity.
    pub(super) fn add_to_log(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        op.step = Step::Adding;
        if remaining_parity(core, op).is_empty() {
            return;
        }
        let written = Self::written(op);
        let sources = self.changes(out, op, written, |parity, out, op, slot| {
            (zeroes(out, op.bytes()), parity.new_content(core, out, op, slot))
        });
        let targets = self.page_operands(out, op, op.parity, op.sectors());
        let bytes = op.bytes();
        Self::compute(out, key, op, Kernel::Update, bytes, sources, targets);
    }

    /// Whether a write is to wait until it is recorded which members failed, or were replaced: a crash before that brings them back,
    /// and their logs with them, which may lack its entry. Linux's md has such writes wait, too (`Blocked`).
    #[inline]
    pub(super) fn must_park(&self, core: &Core, op: &StripeOp) -> bool {
        self.logs.is_some() && (core.held.is_holding || core.read_only) && op.kind == Kind::Write
    }

    /// Has it wait; of an array that takes no more writes nothing is ever recorded.
    pub(super) fn park(&mut self, core: &Core, key: u64, op: &mut StripeOp) {
        if core.read_only {
            op.result = Err(IoError::ReadOnly);
            return;
        }
        op.pending += 1;
        self.logs.as_mut().expect("only logged arrays come here").parked.push(key);
    }

    /// Lets go on what waited for that.
    pub(super) fn unpark(&mut self, core: &mut Core, out: &mut ActionQueue) {
        let Some(logs) = self.logs.as_mut().filter(|_| !core.held.is_holding) else { return };
        let are_held = std::mem::take(&mut logs.are_held);
        for key in std::mem::take(&mut logs.parked) {
            let mut op = self.take(key);
            op.pending -= 1;
            self.go_on(core, out, key, op);
        }
        if are_held {
            (0..core.geometry.raid_disks()).for_each(|slot| self.log_on(core, out, Slot(slot)));
        }
    }

    /// Lets a slot's log go on as far as it can.
    pub(super) fn log_on(&mut self, core: &mut Core, out: &mut ActionQueue, slot: Slot) {
        let Some(logs) = &mut self.logs else { return };
        let log = &mut logs.by_slot[slot.index()];
        if log.queue.is_empty() {
            return;
        }
        match log.state {
            State::Idle | State::Spent if logs.beside > 0 => {}
            // What is logged may be on a member that failed and comes back after a crash, and on no other.
            State::Idle | State::Spent if core.held.is_holding => logs.are_held = true,
            // Nobody is to be written to any more.
            State::Idle | State::Spent if core.read_only => self.log_is_lost(core, out, slot),
            State::Idle => self.write_log(core, out, slot),
            State::Spent => {
                log.state = State::Flushing;
                let owner = Owner::Log { slot };
                for working in core.working() {
                    let replacement = core.members.replacement(working).map(|replacement| replacement.member);
                    for member in std::iter::once(core.member_of[working.index()]).chain(replacement) {
                        logs.by_slot[slot.index()].awaited += 1;
                        let none = SectorRange::new(0, 0);
                        core.device_io(out, member, owner, Op::Flush, none, SegList::default());
                    }
                }
            }
            State::Writing | State::Open | State::Flushing => {}
        }
    }

    /// Writes a log of what waits.
    fn write_log(&mut self, core: &mut Core, out: &mut ActionQueue, slot: Slot) {
        let member = core.member_of[slot.index()];
        let logs = self.logs.as_ref().expect("only logged arrays come here");
        let (Some(area), false) = (logs.area(member), core.failed.contains(slot)) else {
            return self.log_is_lost(core, out, slot);
        };
        // What is to replace the member may have the slot before what is logged has ended.
        let twin = core.members.replacement(slot).map(|replacement| replacement.member);
        let twin = twin.and_then(|twin| Some((twin, logs.area(twin)?)));
        let room = twin.map_or(area.sectors, |(_, other)| area.sectors.min(other.sectors)) * SECTOR_BYTES;
        let (mut entries, mut segs, mut unit) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = HEADER_BYTES as u64;
        while let Some(key) = self.next_in_log(slot) {
            let op = self.take(key);
            let partial = self.partial_bytes(core, &op);
            let has_room = bytes + partial <= room;
            if entries.len() == ENTRIES_MAX || !has_room {
                self.put(key, op);
                if entries.is_empty() {
                    // It was cut for larger areas than that of a member that came in since.
                    core.fail_member(out, twin.map_or(member, |(twin, _)| twin));
                    return self.log_on(core, out, slot);
                }
                break;
            }
            bytes += partial;
            entries.push(self.entry(core, &op, partial));
            if partial > 0 {
                let list = self.page_segs(out, &op, slot, op.sectors());
                segs.extend_from_slice(out.segs(list));
            }
            unit.push(key);
            self.put(key, op);
            self.log(slot).queue.pop_front();
        }
        let signature = self.logs.as_ref().map_or(0, |logs| logs.places.signature);
        let log = self.log(slot);
        log.generation += 1;
        log.state = State::Writing;
        log.unit = unit;
        let header = PplHeader { signature, generation: log.generation, entries };
        let header = out.add_metadata(&header.to_bytes());
        let header = out.segs(header)[0];
        let segs = out.add_segs(std::iter::once(header).chain(segs));
        for (member, area) in std::iter::once((member, area)).chain(twin) {
            self.log(slot).awaited += 1;
            let range = SectorRange::new(area.sector, bytes / SECTOR_BYTES);
            core.device_io(out, member, Owner::Log { slot }, Op::Write, range, segs);
        }
    }

    fn log(&mut self, slot: Slot) -> &mut Log {
        &mut self.logs.as_mut().expect("only logged arrays come here").by_slot[slot.index()]
    }

    fn next_in_log(&mut self, slot: Slot) -> Option<u64> {
        self.log(slot).queue.front().copied()
    }

    fn entry(&self, core: &Core, op: &StripeOp, partial_bytes: u64) -> PplEntry {
        let (chunk, range) = (core.geometry.chunk_sectors(), op.range);
        let all = self.shape.data_disks();
        let data_disks = u64::from(all);
        let (first, end) = if op.kind == Kind::Job { (0, all) } else { chunks(&op.pieces) };
        let data_sector = (range.start / chunk * data_disks + u64::from(first)) * chunk + range.start % chunk;
        PplEntry {
            data_sector,
            partial_parity_bytes: partial_bytes as u32,
            data_bytes: (op.bytes() * u64::from(end - first)) as u32,
            parity_disk: op.map.p.0.into(),
            checksum: if partial_bytes > 0 { op.logged.checksum } else { 0 },
        }
    }

    /// The log's member is gone: what waits goes on without, as parity goes nowhere.
    fn log_is_lost(&mut self, core: &mut Core, out: &mut ActionQueue, slot: Slot) {
        let log = self.log(slot);
        log.unit = log.queue.drain(..).collect();
        log.state = State::Open;
        self.unit_goes_on(core, out, slot);
    }

    fn unit_goes_on(&mut self, core: &mut Core, out: &mut ActionQueue, slot: Slot) {
        // An operation may end at once, and leave the unit then.
        for key in self.log(slot).unit.clone() {
            let mut op = self.take(key);
            op.pending -= 1;
            self.go_on(core, out, key, op);
        }
    }

    /// A log's member, or one that is flushed for it, answered.
    pub(super) fn log_ended(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        slot: Slot,
        (member, result): (MemberIndex, IoResult),
    ) {
        if result.is_err() {
            core.fail_member(out, member);
        }
        let log = self.log(slot);
        log.awaited -= 1;
        if log.awaited > 0 {
            return;
        }
        if log.state == State::Writing {
            log.state = State::Open;
            return self.unit_goes_on(core, out, slot);
        }
        log.state = State::Idle;
        self.log_on(core, out, slot);
    }

    /// An operation has ended.
    pub(super) fn log_is_done(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, logged: Logged) {
        if logged.is_beside
            && let Some(logs) = &mut self.logs
        {
            logs.beside -= 1;
            if logs.beside == 0 {
                (0..core.geometry.raid_disks()).for_each(|slot| self.log_on(core, out, Slot(slot)));
            }
        }
        let Some(slot) = logged.slot else { return };
        let log = self.log(slot);
        // One that failed before its turn came.
        log.queue.retain(|waiting| *waiting != key);
        let before = log.unit.len();
        log.unit.retain(|open| *open != key);
        if log.unit.len() < before && log.unit.is_empty() && log.state == State::Open {
            log.state = State::Spent;
            self.log_on(core, out, slot);
        }
    }
}

fn zeroes(out: &mut ActionQueue, bytes: u64) -> SegList {
    out.add_seg(Seg { buf: Buf::Zero, bytes: bytes as u32 })
}
