//! What an operation asks the loop for: its I/Os and computations, with the bytes they name.

use super::Parity;
use super::op::{Kind, Step, StripeOp};
use super::plan::WriteMethod;
use super::window::Piece;
use crate::array::core::{Core, IoRecord, Owner};
use crate::array::slots::SlotSet;
use crate::io::{
    Action, ActionQueue, Buf, Compute, IoError, Kernel, Op, Operand, OperandList, Role, Seg, SegList, Tag,
};
use crate::mutation::{self, Mutation};
use crate::units::{PAGE_BYTES, PAGE_SECTORS, SectorRange, Slot};

impl Parity {
    /// The pages of a slot between two sectors of the window.
    #[inline]
    pub(super) fn page_segs(
        &mut self,
        out: &mut ActionQueue,
        op: &StripeOp,
        slot: Slot,
        sectors: (u32, u32),
    ) -> SegList {
        if out.is_phantom {
            return SegList::default();
        }
        let page = PAGE_SECTORS as u32;
        let first = out.segs.len();
        let entries = &self.windows.get(op.window).entries;
        let mut sector = sectors.0;
        let mut next = None;
        while sector < sectors.1 {
            let entry = entries[(sector / page) as usize];
            let end = ((sector / page + 1) * page).min(sectors.1);
            let bytes = (end - sector) * 512;
            if next == Some(entry) {
                out.segs.last_mut().expect("a segment to go on with").bytes += bytes;
            } else {
                let offset = sector % page * 512;
                out.segs.push(Seg { buf: Buf::Page { entry, slot, offset }, bytes });
            }
            next = Some(entry + 1);
            sector = end;
        }
        SegList { first: first as u32, count: (out.segs.len() - first) as u32 }
    }

    /// The new content of a slot: the pieces' own bytes, or its pages.
    pub(super) fn new_content(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        op: &StripeOp,
        slot: Slot,
    ) -> SegList {
        if out.is_phantom {
            return SegList::default();
        }
        if !op.covered.contains(slot) || op.drained(core).contains(slot) {
            return self.page_segs(out, op, slot, op.sectors());
        }
        request_segs(core, out, op, SlotSet::one(slot))
    }

    /// Names the bytes of one row of that content.
    pub(super) fn add_block(
        &mut self,
        core: &mut Core,
        op: &StripeOp,
        slot: Slot,
        row: u32,
        block: &mut Vec<Seg>,
    ) {
        if !op.covered.contains(slot) || op.drained(core).contains(slot) {
            let entry = self.windows.get(op.window).entries[row as usize];
            return block.push(Seg { buf: Buf::Page { entry, slot, offset: 0 }, bytes: PAGE_BYTES as u32 });
        }
        let of_slot = op.pieces.iter().filter(|p| op.map.data_slot(p.data) == slot);
        for piece in of_slot.filter_map(|p| p.clip((row, row + 1))) {
            block.push(core.request_seg(piece.request, piece.sector, u64::from(piece.count)));
        }
    }

    #[inline]
    pub(super) fn member_io(
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        op: &mut StripeOp,
        slot: Slot,
        (what, fua): (Op, bool),
        segs: SegList,
    ) {
        op.pending += 1;
        let record = core.record(slot, what, op.range, Owner::Stripe { op: key });
        core.io(out, record, fua, segs);
        if op.kind == Kind::Job {
            core.own_begins(slot, op.range.count, op.range.count);
        }
    }

    pub(super) fn compute(
        out: &mut ActionQueue,
        key: u64,
        op: &mut StripeOp,
        kernel: Kernel,
        bytes: u64,
        sources: OperandList,
        targets: OperandList,
    ) {
        op.pending += 1;
        out.push(Action::Compute(Compute { tag: Tag(key), kernel, bytes, sources, targets }));
    }

    /// Names the pages of slots as operands.
    pub(super) fn page_operands(
        &mut self,
        out: &mut ActionQueue,
        op: &StripeOp,
        slots: SlotSet,
        sectors: (u32, u32),
    ) -> OperandList {
        let first = out.operands.len() as u32;
        for slot in slots.iter() {
            let segs = self.page_segs(out, op, slot, sectors);
            out.operands.push(Operand { role: op.map.operand_role(slot), segs });
        }
        OperandList { first, count: out.operands.len() as u32 - first }
    }

    pub(super) fn recover(&mut self, core: &Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        let missing = op.plan.recover;
        if missing.is_empty() || mutation::is(Mutation::SkipRecover) {
            return;
        }
        let view = self.view(core, op);
        let known = view.uptodate;
        let parity: SlotSet = [Some(op.map.p), op.map.q]
            .into_iter()
            .flatten()
            .filter(|s| known.contains(*s))
            .take(missing.len())
            .collect();
        let sources = known.and(view.data).minus(missing).union(parity);
        let sources = self.page_operands(out, op, sources, op.sectors());
        let targets = self.page_operands(out, op, missing, op.sectors());
        if mutation::is(Mutation::WrongCoefficientInRecovery) {
            for operand in &mut out.operands[sources.first as usize..] {
                if let Role::Data(index @ 0..2) = operand.role {
                    operand.role = Role::Data(1 - index);
                }
            }
        }
        let bytes = op.bytes();
        Self::compute(out, key, op, Kernel::Recover, bytes, sources, targets);
    }

    /// Brings parity up to date from old and new data: all pieces at once where each fills its pages, else
    /// only the sectors of one piece.
    pub(super) fn update(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        op: &mut StripeOp,
        index: usize,
    ) {
        let parity = computed_parity(core, op);
        if parity.is_empty() {
            return;
        }
        if op.partial.is_empty() {
            let first = out.operands.len() as u32;
            for slot in op.covered.iter() {
                let role = op.map.operand_role(slot);
                let old = self.page_segs(out, op, slot, op.sectors());
                out.operands.push(Operand { role, segs: old });
                let new = request_segs(core, out, op, SlotSet::one(slot));
                out.operands.push(Operand { role, segs: new });
            }
            let sources = OperandList { first, count: out.operands.len() as u32 - first };
            let targets = self.page_operands(out, op, parity, op.sectors());
            let bytes = op.bytes();
            return Self::compute(out, key, op, Kernel::Update, bytes, sources, targets);
        }
        let piece = op.pieces[index];
        let slot = op.map.data_slot(piece.data);
        let sectors = (piece.start, piece.end());
        let sources = self.page_operands(out, op, SlotSet::one(slot), sectors);
        let new = core.request_seg(piece.request, piece.sector, u64::from(piece.count));
        let segs = out.add_seg(new);
        out.operands.push(Operand { role: op.map.operand_role(slot), segs });
        let sources = OperandList { count: sources.count + 1, ..sources };
        let targets = self.page_operands(out, op, parity, sectors);
        let bytes = u64::from(piece.count) * 512;
        Self::compute(out, key, op, Kernel::Update, bytes, sources, targets);
    }

    pub(super) fn drain(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        op.step = Step::Draining;
        if core.policy.writes_fill_cache || !op.partial.is_empty() {
            let slots = op.drained(core);
            self.copy_pieces(core, out, key, op, slots);
        }
    }

    /// Copies pieces between their requests' buffers and the pages of these slots: in for writes, out for reads.
    pub(super) fn copy_pieces(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        op: &mut StripeOp,
        slots: SlotSet,
    ) {
        let is_copied = |p: &Piece| slots.contains(op.map.data_slot(p.data));
        let bytes: u64 = op.pieces.iter().filter(|p| is_copied(p)).map(|p| u64::from(p.count) * 512).sum();
        if bytes == 0 {
            return;
        }
        let buffers = request_segs(core, out, op, slots);
        let first = out.segs.len() as u32;
        if !out.is_phantom {
            for piece in op.pieces.iter().filter(|p| is_copied(p)) {
                self.page_segs(out, op, op.map.data_slot(piece.data), (piece.start, piece.end()));
            }
        }
        let pages = SegList { first, count: out.segs.len() as u32 - first };
        let (from, to) = if op.kind == Kind::Read { (pages, buffers) } else { (buffers, pages) };
        let role = Role::Data(0);
        let first = out.operands.len() as u32;
        out.operands.extend([Operand { role, segs: from }, Operand { role, segs: to }]);
        let (sources, targets) =
            (OperandList { first, count: 1 }, OperandList { first: first + 1, count: 1 });
        Self::compute(out, key, op, Kernel::Copy, bytes, sources, targets);
    }

    pub(super) fn generate(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        let parity = computed_parity(core, op);
        if parity.is_empty() {
            return;
        }
        let first = out.operands.len() as u32;
        for slot in op.data.iter() {
            let segs = self.new_content(core, out, op, slot);
            let mut role = op.map.operand_role(slot);
            if mutation::is(Mutation::WrongQCoefficient)
                && let Role::Data(index @ 0..2) = role
            {
                role = Role::Data(1 - index);
            }
            out.operands.push(Operand { role, segs });
        }
        let sources = OperandList { first, count: out.operands.len() as u32 - first };
        let targets = self.page_operands(out, op, parity, op.sectors());
        let bytes = op.bytes();
        Self::compute(out, key, op, Kernel::Generate, bytes, sources, targets);
    }

    pub(super) fn write(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        self.set_prereading(op, false);
        let parity = op.parity.minus(core.failed);
        let fua = op.pieces.iter().any(|p| p.fua);
        for slot in op.written_data().minus(core.failed).iter() {
            let segs = self.new_content(core, out, op, slot);
            Self::member_io(core, out, key, op, slot, (Op::Write, fua), segs);
        }
        if op.plan.method != WriteMethod::NoParity && !mutation::is(Mutation::SkipParityWrite) {
            for slot in parity.iter() {
                let segs = self.page_segs(out, op, slot, op.sectors());
                Self::member_io(core, out, key, op, slot, (Op::Write, fua), segs);
            }
        }
        if op.pending == 0 {
            op.result = Err(IoError::Lost);
        }
    }

    /// Writes again, row by row, what a member did not take as a whole.
    pub(super) fn write_rows(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        op: &mut StripeOp,
        whole: &IoRecord,
    ) {
        let slot = whole.slot;
        let fua = op.pieces.iter().any(|p| p.fua);
        for row in op.rows.0..op.rows.1 {
            let mut block = Vec::new();
            self.add_block(core, op, slot, row, &mut block);
            let segs = out.add_segs(block);
            let start = op.range.start + u64::from(row - op.rows.0) * PAGE_SECTORS;
            op.pending += 1;
            let range = SectorRange::new(start, PAGE_SECTORS);
            let owner = Owner::Stripe { op: key };
            core.send(out, IoRecord { is_again: true, range, owner, ..*whole }, fua, segs);
            if op.kind == Kind::Job {
                core.own_begins(slot, PAGE_SECTORS, op.range.count);
            }
        }
    }
}

/// The parity slots of an operation whose members have not failed since it was planned. What is left out once is not up to
/// date, whoever takes its slot.
pub(super) fn remaining_parity(core: &Core, op: &mut StripeOp) -> SlotSet {
    op.parity = op.parity.minus(core.failed);
    op.parity
}

/// The parity slots that are computed: those, and what a write journal is to have.
fn computed_parity(core: &Core, op: &mut StripeOp) -> SlotSet {
    remaining_parity(core, op).union(op.for_journal)
}

/// The requests' own bytes of an operation's pieces in these slots.
fn request_segs(core: &mut Core, out: &mut ActionQueue, op: &StripeOp, slots: SlotSet) -> SegList {
    let pieces = op.pieces.iter().filter(|p| slots.contains(op.map.data_slot(p.data)));
    out.add_segs(pieces.map(|p| core.request_seg(p.request, p.sector, u64::from(p.count))))
}

#[cfg(test)]
mod tests {
    use super::super::driven::{drive, write};
    use crate::io::{AdminCommand, Input, Kernel};
    use crate::units::{MemberIndex, Slot};

    #[test]
    fn without_a_member_for_it_no_parity_is_computed() {
        for (members, sectors, by) in
            [(3, 16, "RCW"), (3, 13, "RCW in part"), (6, 16, "RMW"), (6, 13, "RMW in part")]
        {
            // P is lost while the write reads.
            let command = AdminCommand::Fail(Slot(members as u16 - 1));
            let inputs = vec![write(sectors), Input::Admin { id: 0, command }];
            let driven = drive(members, inputs, |_| Ok(()));
            assert_eq!(driven.result, Ok(()), "{by}");
            let (computed, written) = (driven.computed, driven.written);
            assert!(computed.iter().all(|kernel| *kernel == Kernel::Copy), "{by}: {computed:?}");
            assert!(
                !written.is_empty() && written.iter().all(|member| *member == MemberIndex(0)),
                "{by}: {written:?}"
            );
        }
    }
}
