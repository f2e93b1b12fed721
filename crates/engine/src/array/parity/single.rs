//! A page written alone, by read-modify-write: the most common write of a loaded array, kept as short as it can be.
//!
//! It is the [operation](super::op) of one row, one piece and no trouble, in a few words instead of sets of slots. Where
//! anything is not plain (a member missing, a read refused, a write not taken) it becomes the operation it stands for
//! and goes on as that.
//!
//! # Contract
//! *Ordering.* Reads, then the computation, then the writes; it owns its row from the first to the last, as every operation.

use super::Parity;
use super::op::{Kind, Step};
use super::plan::{WriteMethod, WritePlan};
use super::window::{Owned, Piece, Rows};
use crate::array::core::{Core, IoRecord, Owner};
use crate::array::slots::SlotSet;
use crate::geometry::StripeMap;
use crate::io::{
    Action, ActionQueue, Buf, Compute, IoResult, Kernel, Op, Operand, OperandList, Role, Seg, SegList, Tag,
};
use crate::units::{PAGE_BYTES, PAGE_SECTORS, SectorRange, Slot};

/// Tells the tag of its computation from those of operations.
const TAG: u64 = Tag::OF_SINGLE;

/// A page on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    window: u32,
    entry: u32,
    piece: Piece,
    map: StripeMap,
    slot: Slot,
    /// The member sectors of the row.
    range: SectorRange,
    /// Which of the page's slot, P's and Q's are read.
    read: [bool; 3],
    /// Answers awaited.
    pending: u32,
    is_writing: bool,
    /// The operation it has become.
    became: Option<u64>,
}

impl Single {
    const fn rows(&self) -> Rows {
        self.piece.rows()
    }

    const fn owned(&self) -> Owned {
        Owned { rows: self.rows(), shared: SlotSet::EMPTY }
    }

    pub(super) const fn is_prereading(&self) -> bool {
        !self.is_writing && self.became.is_none()
    }

    pub(super) const fn is_itself(&self) -> bool {
        self.became.is_none()
    }

    fn parity(&self) -> impl Iterator<Item = Slot> + use<> {
        [Some(self.map.p), self.map.q].into_iter().flatten()
    }

    /// Slots that are read.
    fn read(&self) -> impl Iterator<Item = Slot> + use<> {
        let slots = [Some(self.slot), Some(self.map.p), self.map.q];
        slots.into_iter().zip(self.read).filter_map(|(slot, is_read)| slot.filter(|_| is_read))
    }
}

/// Whether nothing stands in the way of a row up to a member's sector.
#[inline]
fn is_plain(core: &Core, end: u64) -> bool {
    core.failed.is_empty()
        && core.members.recovering.is_empty()
        && core.members.replacing.is_empty()
        && !core.has_bad_blocks()
        && !core.read_only
        && core.is_redundant(end)
}

impl Parity {
    /// Starts the write of a piece that is alone in its window, if it is a page written by read-modify-write and
    /// nothing stands in the way. Answers whether it did; the piece counts as a part of its request until it ends.
    pub(super) fn start_single(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        index: u32,
        map: StripeMap,
        piece: Piece,
    ) -> bool {
        let row = piece.rows().0;
        let sector = (self.windows.number(index) * self.windows.rows + u64::from(row)) * PAGE_SECTORS;
        let range = SectorRange::new(sector, PAGE_SECTORS);
        let is_page = u64::from(piece.count) == PAGE_SECTORS;
        if !is_page || self.logs.is_some() || core.policy.writes_fill_cache || !is_plain(core, range.end()) {
            return false;
        }
        let slot = map.data_slot(piece.data);
        let entry = self.windows.get(index).entries[row as usize];
        let uptodate = *self.cache.uptodate(entry);
        let lacks = |slot: Slot| !uptodate.contains(slot);
        let read = [lacks(slot), lacks(map.p), map.q.is_some_and(lacks)];
        let reads = read.iter().filter(|is_read| **is_read).count();
        let mut others = usize::from(self.shape.data_disks()) - 1;
        if !uptodate.is_empty() {
            let own = [Some(slot), Some(map.p), map.q].into_iter().flatten().collect();
            others -= uptodate.minus(own).len();
        }
        let level = core.policy.rmw_level_of(core.geometry.level());
        if reads == 0 || !level.prefers_rmw(reads, others) {
            return false;
        }
        let pending = reads as u32;
        let single = Single {
            window: index,
            entry,
            piece,
            map,
            slot,
            range,
            read,
            pending,
            is_writing: false,
            became: None,
        };
        let key = self.singles.insert(single);
        self.windows.get(index).active.push(single.owned());
        self.preread_active += 1;
        for slot in single.read() {
            let segs = page(out, entry, slot);
            let record = core.record(slot, Op::Read, range, Owner::Single { key });
            core.send(out, record, false, segs);
        }
        true
    }

    fn single(&mut self, key: u64) -> &mut Single {
        self.singles.get_mut(key).expect("it lives until its last answer")
    }

    /// A member answered.
    pub(super) fn single_io_ended(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        record: &IoRecord,
        result: IoResult,
    ) {
        let single = self.single(key);
        if let Some(op) = single.became {
            single.pending -= 1;
            if single.pending == 0 {
                self.singles.remove(key);
            }
            return self.op_io_ended(core, out, op, record, result);
        }
        if result.is_err() {
            let step = if single.is_writing { Step::Writing } else { Step::Reading };
            let op = self.become_operation(core, out, key, step);
            return self.op_io_ended(core, out, op, record, result);
        }
        single.pending -= 1;
        let (pending, entry, is_writing) = (single.pending, single.entry, single.is_writing);
        if !is_writing {
            self.cache.uptodate(entry).insert(record.slot);
        }
        match (pending, is_writing) {
            (0, false) => self.update_single(core, out, key),
            (0, true) => self.end_single(core, out, key),
            _ => {}
        }
    }

    /// Old data and parity are there.
    fn update_single(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64) {
        let single = *self.single(key);
        if !is_plain(core, single.range.end()) {
            return self.go_on_as_operation(core, out, key, Step::Reading);
        }
        let Single { entry, slot, map, piece, .. } = single;
        let role = map.operand_role(slot);
        let old = page(out, entry, slot);
        let new = core.request_seg(piece.request, piece.sector, PAGE_SECTORS);
        let new = out.add_segs([new]);
        let first = out.operands.len() as u32;
        out.operands.extend([Operand { role, segs: old }, Operand { role, segs: new }]);
        let p = page(out, entry, map.p);
        out.operands.push(Operand { role: Role::P, segs: p });
        if let Some(q) = map.q {
            let segs = page(out, entry, q);
            out.operands.push(Operand { role: Role::Q, segs });
        }
        let sources = OperandList { first, count: 2 };
        let targets = OperandList { first: first + 2, count: 1 + u32::from(map.q.is_some()) };
        self.single(key).pending = 1;
        let tag = Tag(key | TAG);
        out.push(Action::Compute(Compute {
            tag,
            kernel: Kernel::Update,
            bytes: PAGE_BYTES,
            sources,
            targets,
        }));
    }

    /// Whether a computation's tag is one of these; it goes on if so.
    pub(super) fn single_computed(&mut self, core: &mut Core, out: &mut ActionQueue, tag: Tag) -> bool {
        if tag.0 & TAG == 0 {
            return false;
        }
        let key = tag.0 & !TAG;
        let single = self.single(key);
        single.pending = 0;
        let single = *single;
        if !is_plain(core, single.range.end()) {
            self.go_on_as_operation(core, out, key, Step::Updating(0));
            return true;
        }
        self.preread_active -= 1;
        let Single { entry, slot, map, piece, range, .. } = single;
        let owned = self.single(key);
        owned.is_writing = true;
        owned.pending = 2 + u32::from(map.q.is_some());
        let new = core.request_seg(piece.request, piece.sector, PAGE_SECTORS);
        let new = out.add_segs([new]);
        let record = core.record(slot, Op::Write, range, Owner::Single { key });
        core.io(out, record, piece.fua, new);
        for slot in single.parity() {
            let segs = page(out, entry, slot);
            let record = core.record(slot, Op::Write, range, Owner::Single { key });
            core.io(out, record, piece.fua, segs);
        }
        true
    }

    /// Everything is written.
    fn end_single(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64) {
        let single = self.singles.remove(key).expect("it lives until its last answer");
        let uptodate = self.cache.uptodate(single.entry);
        // The old data are in its page, and the new parity in the parities'.
        uptodate.remove(single.slot);
        single.parity().for_each(|slot| uptodate.insert(slot));
        self.leave_rows(single.window, single.owned());
        core.part_ends(out, single.piece.request, Ok(()));
    }

    /// Makes an operation of it, at a step, with the answers it awaits.
    fn become_operation(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, step: Step) -> u64 {
        let single = *self.single(key);
        let Single { window, map, piece, slot, pending, is_writing, .. } = single;
        let mut op = self.op(core, window, single.rows(), Kind::Write, map, std::iter::once(piece));
        op.covered = SlotSet::one(slot);
        op.plan =
            WritePlan { read: single.read().collect(), recover: SlotSet::EMPTY, method: WriteMethod::Rmw };
        op.parity = single.parity().collect();
        op.step = step;
        op.pending = pending;
        // It is among those that read already.
        op.take_up_prereading(!is_writing);
        let op = self.ops.insert(Some(op));
        if pending > 1 {
            let single = self.single(key);
            single.pending -= 1;
            single.became = Some(op);
        } else {
            self.singles.remove(key);
        }
        // The piece is a part of its request as the operation's now.
        core.part_ends(out, piece.request, Ok(()));
        op
    }

    fn go_on_as_operation(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, step: Step) {
        let key = self.become_operation(core, out, key, step);
        let op = self.take(key);
        self.go_on(core, out, key, op);
    }
}

fn page(out: &mut ActionQueue, entry: u32, slot: Slot) -> SegList {
    out.add_segs([Seg { buf: Buf::Page { entry, slot, offset: 0 }, bytes: PAGE_BYTES as u32 }])
}
