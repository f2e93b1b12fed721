//! A page written alone: the most common write of a loaded array, kept as short as it can be. By RMW or, where few data lie
//! beside it in the stripe and that reads less, by RCW.
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
use crate::array::core::{Core, IoRecord, Owner, RequestKey};
use crate::array::slots::SlotSet;
use crate::geometry::StripeMap;
use crate::io::{
    Action, ActionQueue, Area, Buf, Compute, Flags, IoResult, Kernel, MemberIo, Op, Operand, OperandList,
    RequestId, Role, Seg, SegList, Tag,
};
use crate::units::{MemberIndex, PAGE_BYTES, PAGE_SECTORS, SectorRange, Slot};

/// Tells the tags of its computation and its I/Os from those of operations.
const TAG: u64 = Tag::OF_SINGLE;
/// Where an I/O's tag says which of its blocks it is of: that of [`Single::asked`].
const BLOCK_SHIFT: u32 = Tag::OF_SINGLE_BLOCK;
const BLOCKS: u64 = 3 << BLOCK_SHIFT;

/// Of as many other data chunks in the stripe is parity computed anew here.
const OTHERS_MAX: usize = 3;

/// What it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Reading,
    Computing,
    Writing,
}

/// A page on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    window: u32,
    entry: u32,
    /// The page's slot, P's and, if there is one, Q's.
    slots: [Slot; 3],
    has_q: bool,
    /// The other data's slots and their parts in the parity, if that is computed from them, which is RCW; so many.
    others: [(Slot, Role); OTHERS_MAX],
    others_count: u8,
    /// The member of each that was [asked](Self::asked).
    members: [MemberIndex; 3],
    /// Which of them are read.
    read: [bool; 3],
    phase: Phase,
    /// Answers awaited.
    pending: u8,
    flags: Flags,
    /// First sector, from the start of the window.
    start: u32,
    /// The data chunk in the stripe.
    data: u16,
    /// Its part in the parity.
    role: Role,
    /// The first member sector of the row.
    row_sector: u64,
    /// The array's sector.
    sector: u64,
    /// The new content.
    new: Buf,
    of: Of,
    /// The operation it has become; 0 if none, as no operation has this key.
    became: u64,
}

/// Whose a page is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    /// A part of a request.
    Request(RequestKey),
    /// The whole of a request of which nothing else is known; it holds its range.
    Caller(RequestId),
}

impl Single {
    const fn rows(&self) -> Rows {
        let row = self.start / PAGE_SECTORS as u32;
        (row, row + 1)
    }

    const fn range(&self) -> SectorRange {
        SectorRange::new(self.row_sector, PAGE_SECTORS)
    }

    const fn owned(&self) -> Owned {
        Owned { rows: self.rows(), shared: None }
    }

    pub(super) fn is_prereading(&self) -> bool {
        self.phase != Phase::Writing && self.must_read() && self.is_itself()
    }

    fn must_read(&self) -> bool {
        self.read != [false; 3]
    }

    const fn is_rcw(&self) -> bool {
        self.others_count > 0
    }

    pub(super) const fn is_itself(&self) -> bool {
        self.became == 0
    }

    /// Answers of members awaited.
    pub(super) fn ios(&self) -> usize {
        if self.phase == Phase::Computing { 0 } else { usize::from(self.pending) }
    }

    const fn blocks(&self) -> usize {
        if self.has_q { 3 } else { 2 }
    }

    /// The slot of a block: of one that is read for RCW, or of one that is written, or read for RMW.
    const fn asked(&self, block: usize) -> Slot {
        if self.is_rcw() && !matches!(self.phase, Phase::Writing) {
            self.others[block].0
        } else {
            self.slots[block]
        }
    }

    /// How it goes on as an operation.
    fn plan(&self) -> WritePlan {
        let (slots, method) = if self.is_rcw() {
            (self.others.map(|(slot, _)| slot), WriteMethod::Rcw)
        } else {
            (self.slots, WriteMethod::Rmw)
        };
        let read = slots.into_iter().zip(self.read).filter_map(|(slot, is_read)| is_read.then_some(slot));
        WritePlan { read: read.collect(), recover: SlotSet::EMPTY, method }
    }

    /// The record of an I/O of a block, as an operation's.
    const fn record(&self, block: usize, owner: Owner) -> IoRecord {
        let op = if matches!(self.phase, Phase::Writing) { Op::Write } else { Op::Read };
        let (slot, member, range) = (self.asked(block), self.members[block], self.range());
        IoRecord { slot, member, op, is_again: false, range, owner }
    }
}

/// Whether nothing stands in the way of a row up to a member's sector.
#[inline]
fn is_plain(core: &Core, end: u64) -> bool {
    core.failed.is_empty()
        && core.members.recovering.is_empty()
        && core.members.replacing.is_empty()
        && !core.has_bad_among(SectorRange::new(end - PAGE_SECTORS, PAGE_SECTORS))
        && !core.read_only
        && core.is_redundant(end)
}

impl Parity {
    /// Starts the write of a page of new content, if few blocks are read for it and nothing stands in the way. Answers whether
    /// it did.
    #[inline]
    pub(super) fn start_page(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        index: u32,
        map: &StripeMap,
        piece: &Piece,
        (new, of): (Buf, Of),
    ) -> bool {
        let row = piece.rows().0;
        let window = self.windows.get(index);
        let entry = window.entries[row as usize];
        let row_sector = (window.number * self.windows.rows + u64::from(row)) * PAGE_SECTORS;
        if self.is_logged() || !is_plain(core, row_sector + PAGE_SECTORS) {
            return false;
        }
        let slots = [map.data_slot(piece.data), map.p, map.q.unwrap_or(map.p)];
        let has_q = map.q.is_some();
        let cache = &self.cache;
        let is_empty = cache.is_empty(entry);
        let lacks = |slot: Slot| is_empty || !cache.contains(entry, slot);
        let mut read = [lacks(slots[0]), lacks(slots[1]), has_q && lacks(slots[2])];
        let all_others = usize::from(self.shape.data_disks()) - 1;
        let mut lacking = all_others;
        if !is_empty {
            let own = slots.into_iter().collect();
            lacking -= cache.uptodate(entry).minus(own).len();
        }
        let level = core.policy.rmw_level_of(core.geometry.level());
        let is_rmw = level.prefers_rmw(count(read), lacking);
        let mut others = [(slots[0], Role::P); OTHERS_MAX];
        if !is_rmw {
            if all_others == 0 || all_others > OTHERS_MAX {
                return false;
            }
            others_of(map, piece.data, &mut others[..all_others]);
            read = std::array::from_fn(|block| block < all_others && lacks(others[block].0));
        }
        let reads = count(read);
        let asked = if is_rmw { slots } else { others.map(|(slot, _)| slot) };
        let members = members_of(core, asked);
        let &Piece { start, data, sector, fua, sync, .. } = piece;
        let key = self.singles.insert(Single {
            window: index,
            entry,
            slots,
            has_q,
            others,
            others_count: if is_rmw { 0 } else { all_others as u8 },
            members,
            read,
            phase: Phase::Reading,
            pending: reads as u8,
            flags: Flags { fua, sync, ..Flags::default() },
            start,
            data,
            role: map.operand_role(slots[0]),
            row_sector,
            sector,
            new,
            of,
            became: 0,
        });
        self.windows.get(index).active.push(Owned { rows: (row, row + 1), shared: None });
        if reads == 0 {
            self.update_single(out, key);
            return true;
        }
        self.preread_active += 1;
        for block in 0..asked.len() {
            if read[block] {
                let segs = page(out, entry, asked[block]);
                let place = (asked[block], members[block]);
                ask(core, out, tag_of(key, block), place, (Op::Read, row_sector, false), segs);
            }
        }
        true
    }

    /// A member answered. Answers whether anything else may go on for it.
    pub(crate) fn single_answered(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        tag: Tag,
        result: IoResult,
    ) -> bool {
        let key = tag.0 & !(TAG | BLOCKS);
        let block = ((tag.0 & BLOCKS) >> BLOCK_SHIFT) as usize;
        let Some(single) = self.singles.get_mut(key) else { return false };
        let slot = single.asked(block);
        core.in_flight[slot.index()] -= 1;
        if result.is_err() || !single.is_itself() || core.has_bad_blocks() {
            self.single_answered_otherwise(core, out, key, block, result);
            return true;
        }
        single.pending -= 1;
        let is_last = single.pending == 0;
        if single.phase == Phase::Writing {
            if is_last {
                self.end_single(core, out, key);
            }
            return is_last;
        }
        let entry = single.entry;
        self.cache.insert(entry, slot);
        if is_last {
            self.update_single(out, key);
        }
        false
    }

    /// An answer that is not plain: an error, or one that concerns the operation it has become.
    #[cold]
    fn single_answered_otherwise(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        block: usize,
        result: IoResult,
    ) {
        let single = *self.single(key);
        let step = if single.phase == Phase::Writing { Step::Writing } else { Step::Reading };
        let op = if single.is_itself() {
            self.become_operation(core, out, key, step)
        } else {
            let left = self.single(key);
            left.pending -= 1;
            if left.pending == 0 {
                self.singles.discard(key);
            }
            single.became
        };
        let record = single.record(block, Owner::Stripe { op });
        if record.op == Op::Write && result.is_ok() {
            core.written(&record);
        }
        self.op_io_ended(core, out, op, &record, result);
    }

    fn single(&mut self, key: u64) -> &mut Single {
        self.singles.get_mut(key).expect("it lives until its last answer")
    }

    /// What is computed from is there. What has happened to members meanwhile is looked at when the new parity is.
    #[inline(never)]
    fn update_single(&mut self, out: &mut ActionQueue, key: u64) {
        let single = self.single(key);
        (single.phase, single.pending) = (Phase::Computing, 1);
        if single.is_rcw() {
            return self.sum_single(out, key);
        }
        let &mut Single { entry, slots, has_q, role, new, .. } = single;
        let old = page(out, entry, slots[0]);
        let new = one(out, new);
        let p = page(out, entry, slots[1]);
        let first = out.operands.len() as u32;
        out.operands.extend([
            Operand { role, segs: old },
            Operand { role, segs: new },
            Operand { role: Role::P, segs: p },
        ]);
        if has_q {
            let segs = page(out, entry, slots[2]);
            out.operands.push(Operand { role: Role::Q, segs });
        }
        compute(out, key, Kernel::Update, (first, 2), 1 + u32::from(has_q));
    }

    /// As [`update_single`](Self::update_single), from all data.
    fn sum_single(&mut self, out: &mut ActionQueue, key: u64) {
        let &mut Single { entry, slots, has_q, role, new, others, others_count, .. } = self.single(key);
        let first = out.operands.len() as u32;
        let segs = one(out, new);
        out.operands.push(Operand { role, segs });
        let parities = [(slots[1], Role::P), (slots[2], Role::Q)];
        let parities = &parities[..=usize::from(has_q)];
        for &(slot, role) in others[..usize::from(others_count)].iter().chain(parities) {
            let segs = page(out, entry, slot);
            out.operands.push(Operand { role, segs });
        }
        compute(out, key, Kernel::Generate, (first, 1 + u32::from(others_count)), 1 + u32::from(has_q));
    }

    /// Its computation ended. Answers whether anything else may go on for it.
    pub(crate) fn single_computed(&mut self, core: &mut Core, out: &mut ActionQueue, tag: Tag) -> bool {
        let key = tag.0 & !TAG;
        let Some(single) = self.singles.get_mut(key) else { return false };
        single.pending = 0;
        if !is_plain(core, single.range().end()) {
            let step = if single.is_rcw() { Step::Generating } else { Step::Updating(0) };
            let key = self.become_operation(core, out, key, step);
            let op = self.take(key);
            self.go_on(core, out, key, op);
            return true;
        }
        let has_read = single.must_read();
        let blocks = single.blocks();
        (single.phase, single.pending) = (Phase::Writing, blocks as u8);
        single.members = members_of(core, single.slots);
        let &mut Single { entry, slots, members, flags, row_sector, new, .. } = single;
        let mut segs = one(out, new);
        for block in 0..blocks {
            if block > 0 {
                segs = page(out, entry, slots[block]);
            }
            let place = (slots[block], members[block]);
            ask(core, out, tag_of(key, block), place, (Op::Write, row_sector, flags.fua), segs);
        }
        // One fewer reads: those that wait for it may.
        self.preread_active -= u32::from(has_read);
        has_read && !self.delayed.is_empty()
    }

    /// Everything is written.
    #[inline(never)]
    fn end_single(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64) {
        let single = self.single(key);
        let blocks = single.blocks();
        let &mut Single { window, entry, slots, sector, of, .. } = single;
        let owned = single.owned();
        self.singles.discard(key);
        // The old data are in its page, and the new parity in the parities'.
        self.cache.remove(entry, slots[0]);
        slots[1..blocks].iter().for_each(|slot| self.cache.insert(entry, *slot));
        self.leave_rows(window, owned);
        match of {
            Of::Request(request) => core.part_ends(out, request, Ok(())),
            Of::Caller(id) => core.page_ends(out, id, SectorRange::new(sector, PAGE_SECTORS)),
        }
    }

    /// Makes an operation of it, at a step, with the answers it awaits.
    fn become_operation(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, step: Step) -> u64 {
        let single = *self.single(key);
        let Single { window, slots, pending, flags, data, start, sector, .. } = single;
        let request = match single.of {
            Of::Request(request) => request,
            Of::Caller(id) => core.page_goes_on(id, flags, SectorRange::new(sector, PAGE_SECTORS)),
        };
        let Flags { fua, sync, .. } = flags;
        let count = PAGE_SECTORS as u32;
        let piece = Piece { request, read: false, job: false, sync, fua, data, start, count, sector };
        let map = self.stripe_map(window);
        let mut op = self.op(core, window, single.rows(), Kind::Write, map, std::iter::once(piece));
        op.covered = SlotSet::one(slots[0]);
        op.plan = single.plan();
        op.parity = slots[1..single.blocks()].iter().copied().collect();
        op.step = step;
        op.pending = u32::from(pending);
        // It is among those that read already.
        op.take_up_prereading(single.is_prereading());
        let op = self.ops.insert(Some(op));
        if pending > 1 {
            let single = self.single(key);
            single.pending -= 1;
            single.became = op;
        } else {
            self.singles.discard(key);
        }
        // The piece is a part of its request as the operation's now.
        core.part_ends(out, piece.request, Ok(()));
        op
    }
}

/// Lists the slots of the other data of a stripe, and their parts in the parity.
fn others_of(map: &StripeMap, data: u16, others: &mut [(Slot, Role)]) {
    let of_others = (0..).filter(|other| *other != data).map(|other| map.data_slot(other));
    for (place, slot) in others.iter_mut().zip(of_others) {
        *place = (slot, map.operand_role(slot));
    }
}

fn count(read: [bool; 3]) -> usize {
    read.into_iter().map(usize::from).sum()
}

/// The tag of an I/O of a block.
const fn tag_of(key: u64, block: usize) -> Tag {
    Tag(key | TAG | (block as u64) << BLOCK_SHIFT)
}

#[inline]
fn members_of(core: &Core, [slot, p, q]: [Slot; 3]) -> [MemberIndex; 3] {
    let member = |slot: Slot| core.member_of[slot.index()];
    [member(slot), member(p), member(q)]
}

/// Asks a slot's member for an I/O of its page.
#[expect(clippy::inline_always, reason = "its many arguments cost more than its work")]
#[inline(always)]
fn ask(
    core: &mut Core,
    out: &mut ActionQueue,
    tag: Tag,
    (slot, member): (Slot, MemberIndex),
    (op, sector, fua): (Op, u64, bool),
    segs: SegList,
) {
    let range = SectorRange::new(sector, PAGE_SECTORS);
    core.ask(out, slot, MemberIo { tag, member, area: Area::Data, op, range, fua, segs });
}

/// Asks for a computation from so many operands from the first on to those that follow them.
#[inline]
fn compute(out: &mut ActionQueue, key: u64, kernel: Kernel, (first, sources): (u32, u32), targets: u32) {
    let tag = Tag(key | TAG);
    let targets = OperandList { first: first + sources, count: targets };
    let sources = OperandList { first, count: sources };
    out.push(Action::Compute(Compute { tag, kernel, bytes: PAGE_BYTES, sources, targets }));
}

#[inline]
fn page(out: &mut ActionQueue, entry: u32, slot: Slot) -> SegList {
    one(out, Buf::Page { entry, slot, offset: 0 })
}

/// A page of bytes.
#[inline]
fn one(out: &mut ActionQueue, buf: Buf) -> SegList {
    out.add_seg(Seg { buf, bytes: PAGE_BYTES as u32 })
}

#[cfg(test)]
mod tests {
    use super::super::driven::{drive, write};
    use super::*;
    use crate::io::{AdminCommand, Input, IoError};

    #[test]
    fn a_page_beside_one_other_is_written_by_rcw() {
        let driven = drive(3, vec![write(8)], |_| Ok(()));
        assert_eq!(driven.result, Ok(()));
        assert_eq!(driven.computed, [Kernel::Generate]);
        assert_eq!(driven.written, [MemberIndex(0), MemberIndex(2)], "the page and P");
    }

    #[test]
    fn where_the_other_page_is_refused_it_goes_on_by_rmw() {
        let driven = drive(3, vec![write(8)], |io| match (io.op, io.member) {
            (Op::Read, MemberIndex(1)) => Err(IoError::Media),
            _ => Ok(()),
        });
        assert_eq!(driven.result, Ok(()));
        assert_eq!(driven.computed, [Kernel::Update]);
    }

    #[test]
    fn parity_whose_member_fails_while_the_page_is_read_is_not_written() {
        let command = AdminCommand::Fail(Slot(2));
        let driven = drive(3, vec![write(8), Input::Admin { id: 0, command }], |_| Ok(()));
        assert_eq!(driven.result, Ok(()));
        assert_eq!(driven.written, [MemberIndex(0)]);
    }
}
