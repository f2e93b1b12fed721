//! The write journal of an array (raid5-cache): data and parity of a row are in the log before they go to the members.
//!
//! | an operation | until |
//! |---|---|
//! | sums its blocks, one after another | the meta block can list them |
//! | waits | no unit is being written, and the log has room |
//! | is in a unit that is written | its blocks and meta blocks are durable |
//! | writes to the members | it has ended, as all of its unit |
//!
//! # Contract
//! *Ordering.* One unit is written at a time, so the log never has one without those before it. An operation's data and parity are
//! written after its unit is durable. The log's tail moves past a unit when all that it and those before it say was written, and
//! flushed: the keeper does that with its next round, which is asked for when a quarter of the log is in use. The last such unit
//! stays: at the tail there must be a meta block, as in Linux (`next_checkpoint`). Before the array is said to be clean a unit of an
//! empty block ends the log, so that nothing is left in it to be applied. *Shape.* Every row has its parity in the log,
//! that of a slot without a member, too: whatever is lost when the log is followed, the row can be had. *Limits.* A unit has
//! [`UNIT_BLOCKS_MAX`] blocks at most, and no more than a quarter of the log. *Failure.* Without its journal the array takes no
//! more writes, as in Linux; the superblocks go on naming it, so that the next start asks for it.

use std::collections::VecDeque;

use stripewise_format::create::{JOURNAL_ROWS_MIN, JOURNAL_SLOTS_MAX};
use stripewise_format::journal::{BLOCK_BYTES, BLOCK_SECTORS, BlockSums, MetaBlock, Payload, Seed};
use stripewise_format::uuid::Uuid;

use super::Parity;
use super::op::{Step, StripeOp};
use super::plan::parity_slots;
use crate::array::core::{Core, Owner};
use crate::array::slots::SlotSet;
use crate::io::{ActionQueue, IoError, IoResult, Kernel, Op, Operand, OperandList, Seg, Verdict};
use crate::journal::{Head, JournalPlace, JournalStart, array_sector};
use crate::metadata::StateChange;
use crate::units::{MemberIndex, PAGE_BYTES, PAGE_SECTORS, SECTOR_BYTES, SectorRange, Slot};

/// Blocks of data and parity that are written to the log together.
const UNIT_BLOCKS_MAX: u64 = 256;
/// Part of the log from which on its tail is moved (`RECLAIM_MAX_FREE_SPACE`: Linux keeps a quarter, or 10 GiB).
const RECLAIM_FROM: u64 = 4;
const RECLAIM_SECTORS_MAX: u64 = 10 << 21;

/// What the log's machine and the keeper of superblocks tell each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalTail {
    pub(crate) member: MemberIndex,
    /// Where the log may begin once everything is flushed.
    pub(crate) next_sectors: u64,
    /// Where it begins, as the superblocks say.
    pub(crate) recorded_sectors: u64,
    /// They were written since the machine looked.
    pub(crate) is_recorded_anew: bool,
    /// The journal did not take something.
    pub(crate) has_failed: bool,
    pub(crate) end: LogEnd,
}

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogEnd {
    /// With what was written.
    Open,
    /// An empty block is to be the last of it.
    Asked,
    /// The block is being written.
    Writing,
    /// With an empty block. What is before it has ended.
    Empty,
}

impl JournalTail {
    /// The superblocks say that the log begins here.
    pub(crate) const fn record(&mut self, tail_sectors: u64) {
        self.recorded_sectors = tail_sectors;
        self.is_recorded_anew = true;
    }

    pub(crate) const fn new(start: &JournalStart) -> Self {
        let JournalPlace { member, tail_sectors, .. } = start.place;
        Self {
            member,
            next_sectors: tail_sectors,
            recorded_sectors: tail_sectors,
            is_recorded_anew: false,
            has_failed: false,
            end: LogEnd::Empty,
        }
    }
}

/// What has been written to the log together.
#[derive(Debug)]
struct Unit {
    position_sectors: u64,
    sectors: u64,
    /// Operations that are not ended.
    open: u32,
}

/// The log of an array.
#[derive(Debug)]
pub(super) struct Journal {
    place: JournalPlace,
    sectors: u64,
    seed: Seed,
    sums: BlockSums,
    head: Head,
    /// From the tail on, oldest first. The first is there for its meta block.
    units: VecDeque<Unit>,
    /// Sectors of all of them.
    used: u64,
    /// How many have left at the front.
    left: u64,
    /// How many at the front are ended.
    ended: usize,
    /// Operations that wait.
    queue: VecDeque<u64>,
    /// Operations of the unit that is written, and the answers awaited.
    writing: Vec<u64>,
    pending: u8,
    /// The tail is to be moved, and the keeper was told.
    is_asked: bool,
}

/// What an operation has in the log.
#[derive(Debug, Default)]
pub(super) struct Journaled {
    /// Checksums of its blocks, row by row: data by their slots, then P and Q.
    sums: Vec<u32>,
    /// Its unit, counted from the start.
    unit: Option<u64>,
}

impl Journaled {
    pub(super) fn reset(&mut self) {
        self.sums.clear();
        self.unit = None;
    }
}

/// Whether an array with rows of so many blocks can have a log so long.
pub(crate) fn is_long_enough(sectors: u64, slots: u16) -> bool {
    sectors / BLOCK_SECTORS >= JOURNAL_ROWS_MIN * (u64::from(slots) + 1)
        && u32::from(slots) <= JOURNAL_SLOTS_MAX
}

impl Journal {
    pub(super) fn new(start: &JournalStart, set_uuid: &Uuid) -> Self {
        let JournalStart { place, next } = *start;
        let seed = Seed::of(set_uuid);
        let sectors = place.ring_sectors();
        let position_sectors = place.tail_sectors;
        let first = (next.position_sectors + sectors - position_sectors) % sectors;
        Self {
            place,
            sectors,
            seed,
            sums: BlockSums::of(seed),
            head: next,
            units: VecDeque::from([Unit { position_sectors, sectors: first, open: 0 }]),
            used: first,
            left: 0,
            ended: 1,
            queue: VecDeque::new(),
            writing: Vec::new(),
            pending: 0,
            is_asked: false,
        }
    }

    /// Blocks that a unit of several operations may have.
    fn unit_blocks_max(&self) -> u64 {
        UNIT_BLOCKS_MAX.min(self.sectors / BLOCK_SECTORS / 4)
    }

    /// Rows that an operation may have.
    pub(super) fn rows_max(&self, slots: u16) -> u32 {
        (self.unit_blocks_max() / (u64::from(slots) + 1)).max(1) as u32
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending == 0 && self.queue.is_empty()
    }

    /// Lets go of what lies before the tail that the superblocks name.
    fn leave(&mut self, tail: u64) {
        while self.ended > 1 && self.units[0].position_sectors != tail {
            self.used -= self.units.pop_front().map_or(0, |unit| unit.sectors);
            self.left += 1;
            self.ended -= 1;
        }
    }

    fn note_ended(&mut self) {
        while self.units.get(self.ended).is_some_and(|unit| unit.open == 0) {
            self.ended += 1;
        }
    }

    /// Where the log may begin once everything is flushed.
    fn next_tail(&self) -> u64 {
        self.units[self.ended - 1].position_sectors
    }
}

/// Slots whose data an operation writes to the log.
fn logged_data(op: &StripeOp) -> SlotSet {
    op.covered.union(op.partial)
}

/// The slot of a row's block by its number: data, then P, then Q.
fn logged_slot(op: &StripeOp, number: usize) -> Slot {
    let parity = [Some(op.map.p), op.map.q].into_iter().flatten();
    logged_data(op).iter().chain(parity).nth(number).expect("a row has so many blocks")
}

impl Parity {
    /// Asks for the checksum of an operation's next block, or has the operation wait for its unit.
    pub(super) fn sum_next(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        if op.step == Step::Summing {
            let sum = if let Verdict::Checksum(sum) = op.job.verdict { sum } else { 0 };
            op.journaled.sums.push(sum);
        }
        op.step = Step::Summing;
        let slots = logged_data(op).union(parity_slots(op.map.p, op.map.q));
        let number = op.journaled.sums.len();
        let row = op.rows.0 + (number / slots.len()) as u32;
        if row == op.rows.1 {
            op.step = Step::Journaling;
            op.pending += 1;
            let journal = self.journal.as_mut().expect("only journaled arrays come here");
            return journal.queue.push_back(key);
        }
        let slot = logged_slot(op, number % slots.len());
        let mut block = Vec::new();
        self.add_block(core, op, slot, row, &mut block);
        let segs = out.add_segs(block);
        let first = out.operands.len() as u32;
        out.operands.push(Operand { role: op.map.operand_role(slot), segs });
        let sources = OperandList { first, count: 1 };
        Self::compute(out, key, op, Kernel::Checksum, PAGE_BYTES, sources, OperandList::default());
    }

    /// Writes a unit of what waits, if none is being written and there is room; or asks for some.
    pub(super) fn journal_on(&mut self, core: &mut Core, out: &mut ActionQueue) {
        let Some(journal) = &mut self.journal else { return };
        let Some(state) = &mut core.journal else { return };
        if std::mem::take(&mut state.is_recorded_anew) {
            journal.is_asked = false;
            journal.leave(state.recorded_sectors);
        }
        state.next_sectors = journal.next_tail();
        let has_ended = state.next_sectors != state.recorded_sectors;
        let most = (journal.sectors / RECLAIM_FROM).min(RECLAIM_SECTORS_MAX);
        if has_ended && !journal.is_asked && journal.used > most {
            journal.is_asked = true;
            core.changed(StateChange::JournalTail);
        }
        if core.read_only {
            return self.journal_is_lost(core, out);
        }
        while self.journal.as_ref().is_some_and(|j| j.pending == 0 && !j.queue.is_empty())
            && self.write_unit(core, out)
        {}
        self.empty_log(core, out);
    }

    /// Ends the log with an empty block, if that was asked for and all of it is ended.
    fn empty_log(&mut self, core: &mut Core, out: &mut ActionQueue) {
        let (Some(journal), Some(state)) = (&mut self.journal, &mut core.journal) else { return };
        let is_ended =
            journal.pending == 0 && journal.queue.is_empty() && journal.ended == journal.units.len();
        if state.end != LogEnd::Asked || !is_ended {
            return;
        }
        state.end = LogEnd::Writing;
        let mut unit = Writer::new(journal.head, journal.sectors);
        unit.begin();
        let (blocks, head) = unit.end(journal.seed);
        self.write_blocks(core, out, blocks, head, 0);
    }

    /// Answers what waits for a log that takes nothing any more.
    fn journal_is_lost(&mut self, core: &mut Core, out: &mut ActionQueue) {
        while let Some(key) = self.journal.as_mut().and_then(|journal| journal.queue.pop_front()) {
            let mut op = self.take(key);
            op.pending -= 1;
            op.result = Err(IoError::ReadOnly);
            self.go_on(core, out, key, op);
        }
    }

    /// Writes what waits, as much as a unit takes. Answers whether it did.
    fn write_unit(&mut self, core: &mut Core, out: &mut ActionQueue) -> bool {
        let journal = self.journal.as_ref().expect("only journaled arrays come here");
        // Two blocks are left: for the one that ends the log here, and the one that a start writes behind it.
        let room = journal.sectors.saturating_sub(journal.used + 2 * BLOCK_SECTORS);
        let (head, sectors, unit_blocks_max) = (journal.head, journal.sectors, journal.unit_blocks_max());
        let mut unit = Writer::new(head, sectors);
        unit.begin();
        let mut keys = Vec::new();
        while let Some(&key) = self.journal.as_ref().and_then(|journal| journal.queue.front()) {
            let op = self.take(key);
            let rows = u64::from(op.rows.1 - op.rows.0);
            // As if each row had a meta block of its own.
            let most = (op.journaled.sums.len() as u64 + rows) * BLOCK_SECTORS;
            let is_full = unit.used_blocks() + op.journaled.sums.len() as u64 > unit_blocks_max;
            if unit.used + most + BLOCK_SECTORS > room || is_full && !keys.is_empty() {
                self.put(key, op);
                break;
            }
            self.add_rows(core, &op, &mut unit);
            self.put(key, op);
            keys.push(key);
            self.journal.as_mut().map(|journal| journal.queue.pop_front());
        }
        if keys.is_empty() {
            // The keeper's next round frees what has ended, and every unit ends.
            let journal = self.journal.as_mut().expect("only journaled arrays come here");
            let is_freeable = core.journal.as_ref().is_some_and(|s| s.next_sectors != s.recorded_sectors);
            if is_freeable && !std::mem::replace(&mut journal.is_asked, true) {
                core.changed(StateChange::JournalTail);
            }
            return false;
        }
        let journal = self.journal.as_mut().expect("only journaled arrays come here");
        let number = journal.left + journal.units.len() as u64;
        journal.writing.clone_from(&keys);
        let (blocks, head) = unit.end(journal.seed);
        let open = keys.len() as u32;
        for key in keys {
            let mut op = self.take(key);
            op.journaled.unit = Some(number);
            self.put(key, op);
        }
        if let Some(state) = &mut core.journal {
            state.end = LogEnd::Open;
        }
        self.write_blocks(core, out, blocks, head, open);
        true
    }

    /// Writes the blocks of a unit of so many operations, behind which the next meta block comes at `next`.
    fn write_blocks(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        blocks: Vec<Block>,
        next: Head,
        open: u32,
    ) {
        let Some(journal) = &mut self.journal else { return };
        let position_sectors = journal.head.position_sectors;
        let sectors = blocks.iter().map(Block::sectors).sum();
        journal.used += sectors;
        journal.units.push_back(Unit { position_sectors, sectors, open });
        journal.head = next;
        let first = sectors.min(journal.sectors - position_sectors);
        journal.pending = if first < sectors { 2 } else { 1 };
        let place = journal.place;
        let mut segs: Vec<Seg> = Vec::new();
        for block in blocks {
            match block {
                Block::Meta(bytes) => {
                    let list = out.add_metadata(&bytes);
                    segs.extend_from_slice(out.segs(list));
                }
                Block::Rows(rows) => segs.extend(rows),
            }
        }
        let (before, behind) = segs.split_at(split_at(&segs, first * SECTOR_BYTES));
        for (position, count, segs) in [(position_sectors, first, before), (0, sectors - first, behind)] {
            if count > 0 {
                let list = out.add_segs(segs.iter().copied());
                let range = SectorRange::new(place.data_offset_sectors + position, count);
                core.device_io(out, place.member, Owner::Journal, Op::Write, range, list);
            }
        }
    }

    /// Adds an operation's rows to a unit.
    fn add_rows(&mut self, core: &mut Core, op: &StripeOp, unit: &mut Writer) {
        let sums = self.journal.as_ref().expect("only journaled arrays come here").sums;
        let data = logged_data(op);
        let parity = parity_slots(op.map.p, op.map.q);
        let per_row = data.len() + parity.len();
        for (row, of_row) in (op.rows.0..op.rows.1).zip(op.journaled.sums.chunks(per_row)) {
            let sector = op.range.start + u64::from(row - op.rows.0) * PAGE_SECTORS;
            let checksums: Vec<u32> = of_row.iter().map(|sum| sums.checksum(*sum)).collect();
            let mut payloads: Vec<Payload> = data
                .iter()
                .zip(&checksums)
                .map(|(slot, sum)| Payload::Data {
                    array_sector: array_sector(&core.geometry, slot, sector),
                    checksums: vec![*sum],
                })
                .collect();
            payloads
                .push(Payload::Parity { row_sector: sector, checksums: checksums[data.len()..].to_vec() });
            let mut blocks = Vec::new();
            for number in 0..per_row {
                let slot = logged_slot(op, number);
                self.add_block(core, op, slot, row, &mut blocks);
            }
            unit.add(payloads, blocks, per_row as u64);
        }
    }

    /// The journal answered.
    pub(super) fn journal_ended(&mut self, core: &mut Core, out: &mut ActionQueue, result: IoResult) {
        if result.is_err() {
            core.fail_journal(out);
        }
        let Some(journal) = &mut self.journal else { return };
        journal.pending -= 1;
        if journal.pending > 0 {
            return;
        }
        let has_failed = core.journal.as_ref().is_some_and(|state| state.has_failed);
        if journal.writing.is_empty()
            && let Some(state) = &mut core.journal
        {
            state.end = if has_failed { LogEnd::Open } else { LogEnd::Empty };
        }
        journal.note_ended();
        for key in std::mem::take(&mut journal.writing) {
            let mut op = self.take(key);
            op.pending -= 1;
            if has_failed {
                // What it says may be torn, and must not be on the members alone.
                op.result = Err(IoError::ReadOnly);
            }
            self.go_on(core, out, key, op);
        }
        self.journal_on(core, out);
    }

    /// An operation has ended.
    pub(super) fn journal_is_done(&mut self, op: &StripeOp) {
        let (Some(journal), Some(number)) = (&mut self.journal, op.journaled.unit) else { return };
        if let Some(unit) = number.checked_sub(journal.left).and_then(|n| journal.units.get_mut(n as usize)) {
            unit.open -= 1;
        }
        journal.note_ended();
    }
}

/// How many segments make up so many bytes; they are cut at blocks.
fn split_at(segs: &[Seg], bytes: u64) -> usize {
    let mut sum = 0;
    segs.iter()
        .take_while(|seg| {
            let is_before = sum < bytes;
            sum += u64::from(seg.bytes);
            is_before
        })
        .count()
}

/// A part of a unit.
enum Block {
    Meta(Vec<u8>),
    /// What a meta block lists.
    Rows(Vec<Seg>),
}

impl Block {
    fn sectors(&self) -> u64 {
        match self {
            Self::Meta(_) => BLOCK_SECTORS,
            Self::Rows(segs) => segs.iter().map(|seg| u64::from(seg.bytes) / SECTOR_BYTES).sum(),
        }
    }
}

/// Makes meta blocks of rows.
struct Writer {
    /// Where the meta block that is filled will be.
    head: Head,
    sectors: u64,
    block: MetaBlock,
    segs: Vec<Seg>,
    done: Vec<(MetaBlock, Vec<Seg>)>,
    /// Sectors of what is done, and of what is filled.
    used: u64,
}

impl Writer {
    fn new(head: Head, sectors: u64) -> Self {
        Self { head, sectors, block: MetaBlock::default(), segs: Vec::new(), done: Vec::new(), used: 0 }
    }

    fn begin(&mut self) {
        let Head { position_sectors, sequence } = self.head;
        self.block = MetaBlock { sequence, position_sectors, payloads: Vec::new() };
        self.used += BLOCK_SECTORS;
    }

    fn used_blocks(&self) -> u64 {
        self.used / BLOCK_SECTORS
    }

    /// Adds a row, which is in one meta block as a whole.
    fn add(&mut self, payloads: Vec<Payload>, segs: Vec<Seg>, blocks: u64) {
        let bytes: usize = payloads.iter().map(Payload::bytes).sum();
        if self.block.size() + bytes > BLOCK_BYTES {
            self.close();
            self.begin();
        }
        self.block.payloads.extend(payloads);
        self.segs.extend(segs);
        self.used += blocks * BLOCK_SECTORS;
    }

    fn close(&mut self) {
        let block = std::mem::take(&mut self.block);
        self.head = Head {
            position_sectors: (self.head.position_sectors + block.log_sectors()) % self.sectors,
            sequence: self.head.sequence.wrapping_add(1),
        };
        self.done.push((block, std::mem::take(&mut self.segs)));
    }

    /// The blocks in order, and where the next meta block comes.
    fn end(mut self, seed: Seed) -> (Vec<Block>, Head) {
        self.close();
        let blocks = self
            .done
            .into_iter()
            .flat_map(|(meta, segs)| [Block::Meta(meta.to_bytes(seed)), Block::Rows(segs)]);
        (blocks.collect(), self.head)
    }
}
