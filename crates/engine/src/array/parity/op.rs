//! An operation on a run of rows: read what is missing, rebuild what is lost, compute parity, write.
//!
//! | step | asks for | then |
//! |---|---|---|
//! | Reading | missing pages | Recovering, or Reading again if a member did not answer |
//! | Recovering | lost pages from the others | copying out (reads), updating (RMW), draining (RCW) |
//! | Updating | parity from old and new data | Draining |
//! | `LoggingParity`, `LoggingSum`, Logging | a log entry, where there are logs | Draining, then Generating or Adding |
//! | Draining | new data into the cache | Generating (RCW), Writing (RMW) |
//! | Generating | parity from all data | Writing |
//! | Summing, Journaling | all that is written in the log, where there is a write journal | Writing |
//! | Writing | data and parity to the members | the end |
//! | `CopyingOut` | pages to the request's buffer | the end |
//!
//! A step without work is passed over.

use super::Parity;
use super::job::JobState;
use super::journal::Journaled;
use super::log::Logged;
use super::plan::{
    StripeView, TooMuchLost, WriteMethod, WritePlan, parity_slots, plan_anew, plan_past_lost_parity,
    plan_write,
};
use super::window::{Owned, Piece, Rows};
use crate::array::core::{Core, IoRecord};
use crate::array::slots::SlotSet;
use crate::geometry::StripeMap;
use crate::io::{ActionQueue, IoError, IoResult, Op, Tag, Verdict};
use crate::mutation::{self, Mutation};
use crate::policy::{DegradedRows, RmwLevel};
use crate::units::{PAGE_BYTES, PAGE_SECTORS, SectorRange, Slot};

/// What the operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Pieces are read.
    Read,
    /// Pieces are written.
    Write,
    /// The array's own work.
    Job,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Reading,
    Recovering,
    /// From this piece on, if the pieces are updated one by one.
    Updating(usize),
    Draining,
    Generating,
    Writing,
    CopyingOut,
    /// Pages that could not be read are written back, for reads.
    Rewriting,
    /// They are read again.
    Verifying,
    /// All rows are compared.
    Checking,
    /// One row is compared.
    CheckingRow(u32),
    /// The block that is wrong is rebuilt.
    Relocating,
    /// What the write leaves alone is computed, for the log.
    LoggingParity,
    /// It is summed.
    LoggingSum,
    /// Its entry is on its way.
    Logging,
    /// The new data are added to what was logged.
    Adding,
    /// A block is summed, for the write journal.
    Summing,
    /// It is on its way to the write journal.
    Journaling,
}

/// An operation.
#[derive(Debug)]
pub(super) struct StripeOp {
    pub(super) window: u32,
    pub(super) rows: Rows,
    /// The slot that it reads beside others that read the same rows.
    pub(super) shared: Option<Slot>,
    pub(super) kind: Kind,
    pub(super) map: StripeMap,
    /// Slots of data.
    pub(super) data: SlotSet,
    /// Sectors of every member in these rows.
    pub(super) range: SectorRange,
    /// Sorted by data chunk and place.
    pub(super) pieces: Vec<Piece>,
    pub(super) covered: SlotSet,
    pub(super) partial: SlotSet,
    /// Slots that did not give these rows although their member works.
    pub(super) unreadable: SlotSet,
    /// Those of them that another member is there to be asked for: the slot's own after its replacement, or the one that was to
    /// replace it after the slot's own.
    pub(super) to_ask_again: SlotSet,
    /// Slots whose member did not take these rows and is kept: they are listed as bad.
    pub(super) unwritten: SlotSet,
    pub(super) plan: WritePlan,
    /// Parity slots that could be written when it was planned.
    pub(super) parity: SlotSet,
    /// Parity slots that are computed whether they can be written or not: all of them, for a write journal.
    pub(super) for_journal: SlotSet,
    pub(super) job: JobState,
    pub(super) logged: Logged,
    pub(super) journaled: Journaled,
    /// It must be done again row by row.
    pub(super) split: bool,
    pub(super) step: Step,
    /// Answers awaited.
    pub(super) pending: u32,
    /// It counts among the partial stripes that are reading.
    pub(super) prereading: bool,
    pub(super) result: IoResult,
}

impl StripeOp {
    /// An operation on nothing, to be set up.
    pub(super) fn empty() -> Self {
        Self {
            window: 0,
            rows: (0, 0),
            shared: None,
            kind: Kind::Read,
            map: StripeMap::EMPTY,
            data: SlotSet::EMPTY,
            range: SectorRange::new(0, 0),
            pieces: Vec::new(),
            covered: SlotSet::EMPTY,
            partial: SlotSet::EMPTY,
            unreadable: SlotSet::EMPTY,
            to_ask_again: SlotSet::EMPTY,
            unwritten: SlotSet::EMPTY,
            plan: WritePlan::NOTHING,
            parity: SlotSet::EMPTY,
            for_journal: SlotSet::EMPTY,
            job: JobState::default(),
            logged: Logged::default(),
            journaled: Journaled::default(),
            split: false,
            step: Step::Reading,
            pending: 0,
            prereading: false,
            result: Ok(()),
        }
    }

    const fn owned(&self) -> Owned {
        Owned { rows: self.rows, shared: self.shared }
    }

    /// Makes another operation of one that has ended, in its memory. Its pieces, data slots and range are the caller's
    /// part.
    pub(super) fn set_up(&mut self, window: u32, rows: Rows, kind: Kind, map: StripeMap) {
        (self.window, self.rows, self.kind, self.map) = (window, rows, kind, map);
        self.shared = None;
        self.pieces.clear();
        self.covered = SlotSet::EMPTY;
        self.partial = SlotSet::EMPTY;
        self.unreadable = SlotSet::EMPTY;
        self.to_ask_again = SlotSet::EMPTY;
        self.unwritten = SlotSet::EMPTY;
        self.parity = SlotSet::EMPTY;
        self.for_journal = SlotSet::EMPTY;
        self.journaled.reset();
        self.plan = WritePlan::NOTHING;
        self.job = JobState::default();
        self.logged = Logged::default();
        (self.split, self.prereading) = (false, false);
        self.step = Step::Reading;
        self.pending = 0;
        self.result = Ok(());
    }

    /// Puts its pieces in order. They come so, most often.
    pub(super) fn sort_pieces(&mut self) {
        let place = |p: &Piece| (p.data, p.start);
        if !self.pieces.is_sorted_by_key(place) {
            self.pieces.sort_unstable_by_key(place);
        }
    }

    /// Takes the place of one that is counted already.
    pub(super) fn take_up_prereading(&mut self, is_prereading: bool) {
        self.prereading = is_prereading;
    }

    pub(super) fn is_prereading(&self) -> bool {
        self.prereading
    }

    pub(super) fn sectors(&self) -> (u32, u32) {
        (self.rows.0 * PAGE_SECTORS as u32, self.rows.1 * PAGE_SECTORS as u32)
    }

    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.rows.1 - self.rows.0) * PAGE_BYTES
    }

    /// Slots that could not be read and were written again.
    pub(super) fn rewritten(&self, core: &Core) -> SlotSet {
        if core.read_only {
            return SlotSet::EMPTY;
        }
        match self.kind {
            Kind::Read => self.plan.recover,
            Kind::Write => self.covered.union(self.partial).union(self.plan.recover).union(self.parity),
            Kind::Job => self.job.writes,
        }
    }

    /// Slots of data that it writes. What could not be read was rebuilt: written, it can be read again.
    pub(super) fn written_data(&self) -> SlotSet {
        self.covered.union(self.partial).union(self.plan.recover.and(self.unreadable))
    }

    /// Slots that do not have these rows once everything that it writes is answered, as far as is known: one that could not be
    /// read is written anew.
    fn lacking(&self, core: &Core) -> SlotSet {
        let parity = if self.plan.method == WriteMethod::NoParity { SlotSet::EMPTY } else { self.parity };
        let spoilt = core.bad(self.range).union(self.unreadable).minus(self.written_data().union(parity));
        core.lost(self.range.end()).union(spoilt).union(self.unwritten)
    }

    /// Whether it writes all data of its rows.
    fn is_whole_write(&self) -> bool {
        self.kind == Kind::Write && self.covered == self.data
    }

    /// Slots whose new content goes into the cache.
    pub(super) fn drained(&self, core: &Core) -> SlotSet {
        if core.policy.writes_fill_cache { self.covered.union(self.partial) } else { self.partial }
    }
}

impl Parity {
    pub(super) fn view(&mut self, core: &Core, op: &StripeOp) -> StripeView {
        let all = SlotSet::first(core.geometry.raid_disks());
        let rows = op.range;
        let entries = &self.windows.get(op.window).entries;
        let uptodate = (op.rows.0..op.rows.1)
            .map(|row| self.cache.uptodate(entries[row as usize]))
            .fold(all, SlotSet::and);
        StripeView {
            data: op.data,
            p: op.map.p,
            q: op.map.q,
            covered: op.covered,
            partial: op.partial,
            uptodate,
            lost: core.lost(rows.end()).union(core.bad(rows)).union(op.unreadable),
            failed: core.failed,
            is_journaled: !op.for_journal.is_empty(),
        }
    }

    fn plan(core: &Core, op: &StripeOp, view: &StripeView) -> Result<WritePlan, TooMuchLost> {
        let plan = Self::plan_needed(core, op, view)?;
        let rows = core.policy.degraded_rows;
        if rows == DegradedRows::Needed || view.lost.is_empty() {
            return Ok(plan);
        }
        if !plan.recover.is_empty() {
            return Ok(WritePlan { read: view.left(), ..plan });
        }
        if op.kind == Kind::Write && view.is_read_whole(rows) {
            return Ok(WritePlan { read: view.left(), ..plan_anew(view)? });
        }
        Ok(plan)
    }

    /// Plans to read no more than is needed.
    fn plan_needed(core: &Core, op: &StripeOp, view: &StripeView) -> Result<WritePlan, TooMuchLost> {
        if op.kind == Kind::Read {
            let wanted = op.pieces.iter().map(|p| op.map.data_slot(p.data)).collect();
            let (read, recover) = view.plan_fetch(wanted)?;
            return Ok(WritePlan { read, recover, method: WriteMethod::NoParity });
        }
        if core.read_only {
            return Err(TooMuchLost);
        }
        // What the cache still has of a member that failed is not what parity says, if that was wrong before (after a start
        // by force): written anew, it would be wrong, too.
        let outdated = view.covered.union(view.partial).and(view.failed).and(view.uptodate);
        let is_redundant = core.is_redundant(op.range.end());
        let rmw = if is_redundant && outdated.is_empty() {
            core.policy.rmw_level_of(core.geometry.level())
        } else {
            // Parity that may be wrong must not be built upon (as md before its resync has passed).
            RmwLevel::Never
        };
        // Where another is lost, RMW with that would be all there is. What is written whole is worked out with it instead, as
        // parity has it, to be replaced in both.
        let replaced = outdated.and(view.covered);
        if !replaced.is_empty() {
            let without = StripeView { uptodate: view.uptodate.minus(replaced), ..*view };
            if let Ok(plan) = plan_write(&without, rmw) {
                return Ok(plan);
            }
        }
        // Nor is P to differ from Q afterwards, where something else is lost: what is written would be what they make of it.
        if op.map.q.is_some()
            && !is_redundant
            && outdated.is_empty()
            && let Ok(plan) = plan_anew(view)
        {
            return Ok(plan);
        }
        if core.policy.lost_parity_is_read_for
            && let Some(plan) = plan_past_lost_parity(view)
        {
            return Ok(plan);
        }
        plan_write(view, rmw)
    }

    /// Whether a write must read before it can go on.
    pub(super) fn must_read(&mut self, core: &Core, op: &StripeOp) -> bool {
        if op.is_whole_write() {
            return false;
        }
        let view = self.view(core, op);
        Self::plan(core, op, &view).is_ok_and(|plan| !plan.read.is_empty())
    }

    /// Gives an operation its rows and starts it.
    pub(super) fn start(&mut self, core: &mut Core, out: &mut ActionQueue, mut op: Box<StripeOp>) {
        self.windows.get(op.window).active.push(op.owned());
        let key = self.ops.insert(None);
        self.read_missing(core, out, key, &mut op);
        self.go_on(core, out, key, op);
    }

    /// Plans, and asks for the pages that are missing.
    fn read_missing(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        if op.is_whole_write() && !core.read_only && !reads_beside_whole_writes(core, op) {
            op.parity = parity_slots(op.map.p, op.map.q).minus(core.failed);
            op.plan = WritePlan::whole(!op.parity.union(op.for_journal).is_empty());
            return self.set_prereading(op, false);
        }
        op.unreadable = op.unreadable.minus(std::mem::replace(&mut op.to_ask_again, SlotSet::EMPTY));
        let view = self.view(core, op);
        let planned =
            if op.kind == Kind::Job { self.plan_job(core, op, &view) } else { Self::plan(core, op, &view) };
        match planned {
            Err(TooMuchLost) if may_split(core, op) => op.split = true,
            // Rebuilding takes the whole rows.
            Ok(plan) if op.shared.is_some() && !plan.recover.is_empty() => op.split = true,
            Err(TooMuchLost) => {
                op.result = Err(if core.read_only && op.kind == Kind::Write {
                    IoError::ReadOnly
                } else if op.unreadable.union(core.bad(op.range)).is_empty() {
                    IoError::Lost
                } else {
                    IoError::Media
                });
            }
            Ok(plan) => {
                op.plan = plan;
                op.parity = view.parity().minus(core.failed);
                for slot in plan.read.iter() {
                    let segs = self.page_segs(out, op, slot, op.sectors());
                    Self::member_io(core, out, key, op, slot, (Op::Read, false), segs);
                }
            }
        }
        let prereading = op.kind == Kind::Write && op.pending > 0;
        self.set_prereading(op, prereading);
    }

    /// Queues an operation's pieces again, to be done row by row.
    fn queue_again(&mut self, core: &mut Core, op: &StripeOp) {
        let window = self.windows.get(op.window);
        window.by_rows = true;
        for piece in &op.pieces {
            core.part_begins(piece.request);
            window.queue.push(*piece);
        }
    }

    pub(super) fn set_prereading(&mut self, op: &mut StripeOp, prereading: bool) {
        match (op.prereading, prereading) {
            (false, true) => self.preread_active += 1,
            (true, false) => self.preread_active -= 1,
            _ => {}
        }
        op.prereading = prereading;
    }

    /// A member answered an operation.
    pub(super) fn op_io_ended(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        record: &IoRecord,
        result: IoResult,
    ) {
        let Err(error) = result else {
            return self.op_answered(core, out, key, (record.slot, record.op));
        };
        let mut op = self.take(key);
        op.pending -= 1;
        if op.kind == Kind::Job {
            core.own_ends(record.slot, op.range.count);
        }
        if record.op == Op::Read {
            let is_taken_for_read = mutation::is(Mutation::RecoverPastFailedRead);
            if !is_taken_for_read {
                op.unreadable.insert(record.slot);
            }
            if op.step == Step::Verifying && self.is_narrowed(core, out, key, &mut op, (record, error)) {
                return self.go_on(core, out, key, op);
            }
            // A member that does not give back what was just written to it is not to be kept.
            if error == IoError::Gone || op.step == Step::Verifying {
                core.write_failed(out, record, error);
            }
            if core.has_another_source(out, record) {
                op.to_ask_again.insert(record.slot);
            }
            self.mark(&op, record.slot, is_taken_for_read);
        } else if !self.is_narrowed(core, out, key, &mut op, (record, error)) {
            core.write_failed(out, record, error);
            core.drop_replacement(out, record.slot, record.member);
            // What left the array is lost anyway; where another has its slot, or is to have it, that one was written, too.
            if core.has_kept(record) && core.source(record.slot, record.range) == record.member {
                op.unwritten.insert(record.slot);
            }
            let is_kept = op.lacking(core).len() <= usize::from(self.shape.parity_disks());
            if (core.read_only || !is_kept) && op.kind == Kind::Write {
                op.result = Err(error);
            }
        }
        self.go_on(core, out, key, op);
    }

    /// Several rows were refused as a whole: what was to be written is asked for row by row, where it can be listed which of
    /// them a member does not take; what was read, and is written back, is read again so. Answers whether that is done.
    fn is_narrowed(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        op: &mut StripeOp,
        (record, error): (&IoRecord, IoError),
    ) -> bool {
        let is_narrowed = core.is_narrowed(out, record, error);
        if is_narrowed && op.kind == Kind::Read {
            op.split = true;
            op.plan.recover.iter().for_each(|slot| self.mark(op, slot, false));
        } else if is_narrowed {
            self.write_rows(core, out, key, op, record);
        }
        is_narrowed
    }

    /// A slot's member answered an operation as it should.
    #[inline]
    pub(crate) fn op_answered(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        (slot, op): (Slot, Op),
    ) {
        let state = self.ops.get_mut(key).and_then(Option::as_mut);
        let state = state.expect("an operation lives until its last answer");
        state.pending -= 1;
        let (window, rows, is_last) = (state.window, state.rows, state.pending == 0);
        if state.kind == Kind::Job {
            core.own_ends(slot, state.range.count);
        }
        if op == Op::Read {
            self.mark_rows(window, rows, slot, true);
        }
        if is_last {
            let op = self.take(key);
            self.go_on(core, out, key, op);
        }
    }

    /// A computation of an operation ended.
    pub(crate) fn computed(&mut self, core: &mut Core, out: &mut ActionQueue, tag: Tag, verdict: Verdict) {
        if let Some(mut op) = self.ops.get_mut(tag.0).and_then(Option::take) {
            op.pending -= 1;
            op.job.verdict = verdict;
            self.go_on(core, out, tag.0, op);
        }
    }

    /// Goes from step to step until an answer is awaited.
    pub(super) fn go_on(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, mut op: Box<StripeOp>) {
        loop {
            if op.pending > 0 {
                return self.put(key, op);
            }
            if op.result.is_err() || op.split && (op.step == Step::Reading || op.kind == Kind::Read) {
                return self.end(core, out, key, op);
            }
            match op.step {
                // Row by row only what cannot be read is rewritten, and listed as bad if that fails, too.
                Step::Reading if op.kind == Kind::Job && is_spoilt(core, &op) => {
                    op.split = true;
                    return self.end(core, out, key, op);
                }
                Step::Reading => {
                    if op.plan.read.and(op.unreadable).is_empty() {
                        op.step = Step::Recovering;
                        self.recover(core, out, key, &mut op);
                    } else {
                        self.read_missing(core, out, key, &mut op);
                    }
                }
                Step::Recovering => {
                    self.all_there(core, out, key, &mut op);
                }
                Step::Updating(index) if !op.partial.is_empty() && index + 1 < op.pieces.len() => {
                    op.step = Step::Updating(index + 1);
                    self.update(core, out, key, &mut op, index + 1);
                }
                Step::Logging if op.kind == Kind::Job => self.write_job(core, out, key, &mut op),
                Step::Updating(_) | Step::Logging => self.drain(core, out, key, &mut op),
                Step::LoggingParity => self.log_sum(core, out, key, &mut op),
                Step::LoggingSum => return self.log_wait(core, out, key, op),
                Step::Draining if op.logged.is_logged() && op.plan.method == WriteMethod::Rmw => {
                    self.add_to_log(core, out, key, &mut op);
                }
                Step::Draining if op.plan.method == WriteMethod::Rcw => {
                    op.step = Step::Generating;
                    self.generate(core, out, key, &mut op);
                }
                Step::Generating if op.kind == Kind::Job && self.repair_goes_by_log(core, &op) => {
                    return self.log_wait(core, out, key, op);
                }
                Step::Generating if op.kind == Kind::Job => self.write_job(core, out, key, &mut op),
                Step::Draining | Step::Generating | Step::Summing if !op.for_journal.is_empty() => {
                    self.sum_next(core, out, key, &mut op);
                    if op.step == Step::Journaling {
                        self.put(key, op);
                        return self.journal_on(core, out);
                    }
                }
                Step::Draining | Step::Generating | Step::Adding if self.must_park(core, &op) => {
                    self.park(core, key, &mut op);
                }
                Step::Draining | Step::Generating | Step::Adding | Step::Summing | Step::Journaling => {
                    op.step = Step::Writing;
                    self.write(core, out, key, &mut op);
                }
                Step::CopyingOut => self.rewrite(core, out, key, &mut op),
                Step::Rewriting => self.verify(core, out, key, &mut op),
                Step::Checking | Step::CheckingRow(_) => self.checked(core, out, key, &mut op),
                Step::Relocating => self.relocated(core, out, key, &mut op),
                Step::Writing if op.kind == Kind::Job => self.verify(core, out, key, &mut op),
                Step::Writing | Step::Verifying => return self.end(core, out, key, op),
            }
        }
    }

    /// What had to be read or recovered is there.
    fn all_there(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        op.plan.recover.iter().for_each(|slot| self.mark(op, slot, true));
        match (op.kind, op.plan.method) {
            (Kind::Read, _) => {
                op.step = Step::CopyingOut;
                self.copy_pieces(core, out, key, op, SlotSet::first(core.geometry.raid_disks()));
            }
            (Kind::Write, _) if self.goes_by_log(core, op) => self.log_parity(core, out, key, op),
            (Kind::Write, WriteMethod::Rmw) => {
                op.step = Step::Updating(0);
                self.update(core, out, key, op, 0);
            }
            (Kind::Write, _) => self.drain(core, out, key, op),
            (Kind::Job, _) => self.job_read(core, out, key, op),
        }
    }

    /// Takes an operation out to work on it; by its box, which is cheap to move.
    pub(super) fn take(&mut self, key: u64) -> Box<StripeOp> {
        let op = self.ops.get_mut(key).and_then(Option::take);
        op.expect("an operation lives until its last answer")
    }

    pub(super) fn put(&mut self, key: u64, op: Box<StripeOp>) {
        *self.ops.get_mut(key).expect("an operation lives until its last answer") = Some(op);
    }

    pub(super) fn mark(&mut self, op: &StripeOp, slot: Slot, uptodate: bool) {
        self.mark_rows(op.window, op.rows, slot, uptodate);
    }

    /// Notes whether a slot's pages hold what its member holds.
    fn mark_rows(&mut self, window: u32, rows: Rows, slot: Slot, uptodate: bool) {
        let entries = &self.windows.get(window).entries;
        for row in rows.0..rows.1 {
            let entry = entries[row as usize];
            if uptodate { self.cache.insert(entry, slot) } else { self.cache.remove(entry, slot) }
        }
    }

    /// Gives back rows that an operation owned.
    pub(super) fn leave_rows(&mut self, index: u32, owned: Owned) {
        if self.windows.close_after(index, &owned, &mut self.cache) {
            return;
        }
        let window = self.windows.get(index);
        let position = window.active.iter().position(|o| *o == owned).expect("it owned its rows");
        window.active.swap_remove(position);
        window.release_rows(owned.rows, &mut self.cache);
        if !window.queue.is_empty() && !window.delayed {
            self.gather(index);
        }
        self.windows.close_if_free(index);
    }

    /// Notes which slots' pages hold what the members hold, and which do not; of the others nothing changes.
    fn mark_all(&mut self, op: &StripeOp, known: SlotSet, stale: SlotSet) {
        let stale = if mutation::is(Mutation::KeepStalePages) { SlotSet::EMPTY } else { stale };
        let entries = &self.windows.get(op.window).entries;
        for row in op.rows.0..op.rows.1 {
            self.cache.note(entries[row as usize], known, stale);
        }
    }

    /// Notes what the cache now holds, gives the rows back and ends the pieces.
    fn end(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, mut op: Box<StripeOp>) {
        self.set_prereading(&mut op, false);
        if op.kind == Kind::Write && !op.split {
            let computed = if op.plan.method == WriteMethod::NoParity { SlotSet::EMPTY } else { op.parity };
            let all = SlotSet::first(core.geometry.raid_disks());
            if op.result.is_ok() {
                let passes = op.is_whole_write() && !core.policy.whole_stripes_fill_cache;
                let known = if passes { SlotSet::EMPTY } else { op.drained(core).union(computed) };
                let written = op.covered.union(op.partial);
                self.mark_all(&op, known, all.minus(op.data).union(written).minus(known));
            } else {
                self.mark_all(&op, SlotSet::EMPTY, all);
            }
        }
        if op.kind == Kind::Job && !core.policy.whole_stripes_fill_cache {
            self.mark_all(&op, SlotSet::EMPTY, SlotSet::first(core.geometry.raid_disks()));
        }
        if op.result.is_ok() && !op.split && !op.unreadable.is_empty() {
            report_corrected(out, core, &op);
        }
        if op.split {
            self.queue_again(core, &op);
        }
        self.leave_rows(op.window, op.owned());
        self.ops.remove(key);
        self.log_is_done(core, out, key, op.logged);
        self.journal_is_done(&op);
        for piece in &op.pieces {
            core.part_ends(out, piece.request, op.result);
        }
        self.recycle(op);
    }
}

/// Tells of read errors that the redundancy made good.
fn report_corrected(out: &mut ActionQueue, core: &mut Core, op: &StripeOp) {
    let rewritten = op.unreadable.and(op.rewritten(core)).minus(core.failed);
    for slot in rewritten.minus(core.bad(op.range)).iter() {
        core.read_error_corrected(out, slot, op.range);
    }
}

/// Whether rows that could be read by themselves were asked for together with one that could not.
fn is_spoilt(core: &Core, op: &StripeOp) -> bool {
    op.rows.1 - op.rows.0 > 1 && !op.unreadable.minus(core.failed).is_empty()
}

/// Whether what is written whole is read for, too: md's habit on degraded RAID-6.
fn reads_beside_whole_writes(core: &Core, op: &StripeOp) -> bool {
    core.policy.degraded_rows.are_read_for_any_write(op.map.q.is_some())
        && !core.lost(op.range.end()).is_empty()
}

/// Whether less may be lost of each slot that an operation reads, or of each of its rows, than of all together.
fn may_split(core: &Core, op: &StripeOp) -> bool {
    if op.kind == Kind::Read && op.pieces.iter().any(|p| p.data != op.pieces[0].data) {
        return true;
    }
    let is_stopped = core.read_only && op.kind == Kind::Write;
    let spoilt = op.unreadable.union(core.bad(op.range));
    op.rows.1 - op.rows.0 > 1 && !spoilt.is_empty() && !is_stopped
}

#[cfg(test)]
mod tests {
    use super::super::driven::{config, drive, drive_one, write};
    use crate::array::sync::SyncConfig;
    use crate::io::{IoError, Kernel, Op};
    use crate::level::Level;
    use crate::policy::Policy;
    use crate::units::{MemberIndex, Slot};
    use crate::volume::VolumeConfig;

    const DATA: MemberIndex = MemberIndex(0);
    const PARITY: MemberIndex = MemberIndex(3);

    #[test]
    fn what_could_not_be_read_and_is_written_anew_is_not_missed() {
        let driven = drive(4, vec![write(8)], |io| match (io.op, io.member) {
            (Op::Read, DATA) => Err(IoError::Media),
            (Op::Write, PARITY) => Err(IoError::Gone),
            _ => Ok(()),
        });
        assert_eq!(driven.result, Ok(()), "data lies on every member but that of parity, which is gone");
    }

    #[test]
    fn what_could_not_be_written_is_missed() {
        let driven = drive(4, vec![write(8)], |io| match (io.op, io.member) {
            (Op::Write, DATA | PARITY) => Err(IoError::Gone),
            _ => Ok(()),
        });
        assert!(driven.result.is_err(), "two members of a RAID-5 are gone");
    }

    /// A RAID-6 of four, the last member lost: chunk 0 is written, the first row whole or in part.
    fn read_beside(policy: Policy, sectors: u64) -> Vec<u16> {
        let lost = VolumeConfig { policy, failed: vec![Slot(3)], ..config(Level::Raid6, 4) };
        let driven = drive_one(&lost, vec![write(sectors)], |_| Ok(()));
        assert_eq!(driven.result, Ok(()));
        let mut read: Vec<u16> = driven.read.iter().map(|m| m.0).collect();
        read.sort_unstable();
        read
    }

    #[test]
    fn old_md_reads_whole_rows_of_a_degraded_raid_6_for_every_write() {
        // The first row is Q, two of data, P, which is lost.
        assert_eq!(
            read_beside(Policy::linux_3_2(), 8),
            [0, 1, 2],
            "all that is left, what is overwritten as well"
        );
        assert_eq!(read_beside(Policy::linux_6_1(), 8), [2]);
        assert_eq!(read_beside(Policy::linux_3_2(), 256), [0, 1, 2], "though it is written whole");
        assert!(read_beside(Policy::linux_6_1(), 256).is_empty());
        assert!(read_beside(Policy::stripewise(), 256).is_empty());
    }

    /// Where P and Q may differ, adding to both leaves them so: what was written would be another thing to each of them.
    #[test]
    fn parities_that_may_differ_agree_after_a_write_beside_a_lost_page() {
        for (resync_from, kernels) in
            [(None, &[Kernel::Update][..]), (Some(0), &[Kernel::Recover, Kernel::Generate][..])]
        {
            // The first row is Q, what is written, what is lost, P.
            let lost = VolumeConfig { failed: vec![Slot(2)], resync_from, ..config(Level::Raid6, 4) };
            let sync = SyncConfig { start: false, ..SyncConfig::DEFAULT };
            let driven = drive_one(&VolumeConfig { sync, ..lost }, vec![write(8)], |_| Ok(()));
            assert_eq!(driven.result, Ok(()));
            let parity = |kernel: &Kernel| *kernel != Kernel::Copy;
            let computed: Vec<Kernel> = driven.computed.into_iter().filter(parity).collect();
            assert_eq!(computed, kernels, "resync from {resync_from:?}");
        }
    }
}
