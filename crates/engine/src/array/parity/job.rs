//! The array's own operations on rows: filling members, checking and repairing parity, rewriting what a member could
//! not read.
//!
//! | step | asks for | then |
//! |---|---|---|
//! | Reading, Recovering | as other operations | Checking, or Generating (Fill) |
//! | Checking | all rows compared | `CheckingRow` if they disagree |
//! | `CheckingRow` | row after row compared, for the place | Generating, Relocating, or again row by row |
//! | Relocating | the located block from the others | Generating |
//! | Generating | parity that is to be written | Writing |
//! | Writing | what lacks, disagrees or could not be read | Verifying |
//! | Verifying | what could not be read before | the end |

use super::Parity;
use super::op::{Step, StripeOp};
use super::plan::{StripeView, TooMuchLost, WriteMethod, WritePlan};
use super::window::Piece;
use crate::array::core::{Core, Owner, RequestKey};
use crate::array::slots::SlotSet;
use crate::array::sync::{Found, JobKind, Mismatch};
use crate::io::{ActionQueue, Kernel, Op, OperandList, Role, Verdict};
use crate::mutation::{self, Mutation};
use crate::policy::DegradedRows;
use crate::units::{MemberIndex, PAGE_BYTES, PAGE_SECTORS, SectorRange, Slot};

/// What an operation knows as a job.
#[derive(Debug, Default)]
pub(super) struct JobState {
    kind: Option<JobKind>,
    /// Slots to be written, on their own members.
    pub(super) writes: SlotSet,
    /// Slots to be written on their replacements.
    replacements: SlotSet,
    /// The last comparison's answer.
    pub(super) verdict: Verdict,
    /// Something disagreed.
    disagrees: bool,
}

impl JobState {
    /// Whether something disagreed, and a slot is to be written for it.
    pub(super) fn rewrites(&self, slot: Slot) -> bool {
        self.disagrees && self.writes.contains(slot)
    }
}

impl Parity {
    /// Takes stripe-cache entries for a job. Answers whether it has all.
    pub(super) fn take_job_rows(&mut self, core: &mut Core, key: RequestKey, rows: SectorRange) -> bool {
        let window_sectors = self.windows.sectors();
        // A job takes only a part of the cache at a time: requests go on.
        let most = u64::from(self.cache.entries() / 8).max(1) * PAGE_SECTORS;
        loop {
            let admitted = core.request(key).admitted;
            if admitted == rows.count {
                return true;
            }
            let sector = rows.start + admitted;
            let start = sector % window_sectors;
            let count = (window_sectors - start).min(rows.count - admitted).min(most);
            let piece = Piece {
                request: key,
                read: true,
                job: true,
                sync: false,
                fua: false,
                data: 0,
                start: start as u32,
                count: count as u32,
                sector,
            };
            let taken = self.queue_piece(core, sector / window_sectors, piece);
            core.request(key).admitted += taken;
            if taken < count {
                return false;
            }
        }
    }

    /// Plans what a job reads and rebuilds.
    pub(super) fn plan_job(
        &mut self,
        core: &mut Core,
        op: &mut StripeOp,
        view: &StripeView,
    ) -> Result<WritePlan, TooMuchLost> {
        let job = core.request(op.pieces[0].request).job.expect("only jobs are planned as such");
        let is_first = op.job.kind.replace(job.kind).is_none();
        let mut view = *view;
        let all = SlotSet::first(core.geometry.raid_disks());
        let both = all.minus(view.data);
        // What is known to be bad is written, and so struck from the list.
        let to_heal = op.unreadable.union(core.bad(op.range));
        let wanted = if job.kind == JobKind::Fill {
            let unfilled = core.members.unfilled(op.range.end()).minus(core.failed);
            op.job.replacements = unfilled.and(core.members.replacing);
            op.job.writes = unfilled.minus(op.job.replacements).union(to_heal).minus(core.failed);
            let to_write = op.job.writes.union(op.job.replacements);
            let readable = to_write.minus(view.lost);
            let rebuilt = to_write.minus(readable);
            let data = if rebuilt.and(both).is_empty() { rebuilt } else { view.data };
            let wanted = readable.union(data.and(view.data));
            // What the cache still has of a member that left is not what the others say, if they disagreed before: it is
            // rebuilt, as long as it can be.
            let cached = unfilled.and(rebuilt).and(view.uptodate);
            let without = StripeView { uptodate: view.uptodate.minus(cached), ..view };
            if !cached.is_empty() && without.plan_fetch(wanted).is_ok() {
                cached.iter().for_each(|slot| self.mark(op, slot, false));
                view = without;
            }
            wanted
        } else {
            if is_first {
                // What the members hold is to be compared, not what the cache knows.
                all.iter().for_each(|slot| self.mark(op, slot, false));
                view.uptodate = SlotSet::EMPTY;
            }
            let heals = !core.read_only && !to_heal.is_empty();
            op.job.writes = if heals { to_heal.minus(core.failed) } else { SlotSet::EMPTY };
            let is_checkable = both.minus(view.lost).len() > view.data.and(view.lost).len();
            let is_row = op.rows.1 - op.rows.0 == 1;
            if !is_checkable && core.read_only && !to_heal.is_empty() && !is_row {
                // Other rows are compared by themselves.
                return Err(TooMuchLost);
            }
            let is_gone = both.minus(view.lost).len() < view.data.and(view.lost).len();
            if core.read_only && job.kind != JobKind::Check {
                SlotSet::EMPTY
            } else if is_checkable || heals {
                view.data.union(both.minus(view.lost))
            } else if is_gone {
                // It cannot be had, which is counted below.
                view.data
            } else {
                SlotSet::EMPTY
            }
        };
        let (read, recover) = match view.plan_fetch(wanted) {
            // Row by row less may be lost.
            Err(TooMuchLost) if !to_heal.is_empty() && op.rows.1 - op.rows.0 > 1 => return Err(TooMuchLost),
            // A check goes on past what cannot be had, and says so.
            Err(TooMuchLost) if job.kind != JobKind::Fill => {
                op.job.writes = SlotSet::EMPTY;
                // Without a member that failed meanwhile there would have been nothing to compare.
                let out = core.lost(op.range.end());
                if both.minus(out).len() > view.data.and(out).len() {
                    op.job.verdict = Verdict::Unlocated;
                    (op.rows.0..op.rows.1).for_each(|row| self.note(core, op, row, true));
                    op.job.disagrees = false;
                }
                (SlotSet::EMPTY, SlotSet::EMPTY)
            }
            Err(TooMuchLost) if !to_heal.is_empty() && goes_without(core, op) => {
                (SlotSet::EMPTY, SlotSet::EMPTY)
            }
            planned => planned?,
        };
        let is_rebuilt = !op.job.writes.union(op.job.replacements).and(view.lost).is_empty();
        let is_whole = is_rebuilt && core.policy.degraded_rows != DegradedRows::Needed;
        let read = if is_whole && !read.is_empty() { view.left() } else { read };
        Ok(WritePlan { read, recover, method: WriteMethod::NoParity })
    }

    /// All that can be read or rebuilt is there.
    pub(super) fn job_read(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        let view = self.view(core, op);
        let parities = view.uptodate.minus(view.data);
        let is_complete = view.data.minus(view.uptodate).is_empty();
        // With nothing left to compare with there is nothing to be found.
        if op.job.kind == Some(JobKind::Fill) || !is_complete || parities.is_empty() {
            return self.generate_parity(core, out, key, op);
        }
        op.step = Step::Checking;
        let sectors = op.sectors();
        self.compare(core, out, key, op, sectors);
    }

    fn compare(
        &mut self,
        core: &Core,
        out: &mut ActionQueue,
        key: u64,
        op: &mut StripeOp,
        sectors: (u32, u32),
    ) {
        let known = self.view(core, op).uptodate;
        let sources = self.page_operands(out, op, known, sectors);
        let bytes = u64::from(sectors.1 - sectors.0) * 512;
        Self::compute(out, key, op, Kernel::Check, bytes, sources, OperandList::default());
    }

    /// A comparison ended.
    pub(super) fn checked(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        let page = PAGE_SECTORS as u32;
        let locates = op.job.kind == Some(JobKind::RepairLocated);
        let next = match op.step {
            Step::CheckingRow(row) => {
                self.note(core, op, row, false);
                row + 1
            }
            _ if op.job.verdict == Verdict::Consistent => op.rows.1,
            _ if locates && op.rows.1 - op.rows.0 > 1 => {
                op.split = true;
                return self.generate_parity(core, out, key, op);
            }
            _ => op.rows.0,
        };
        if next < op.rows.1 {
            op.step = Step::CheckingRow(next);
            return self.compare(core, out, key, op, (next * page, (next + 1) * page));
        }
        if !op.job.disagrees {
            return self.generate_parity(core, out, key, op);
        }
        let view = self.view(core, op);
        match (op.job.kind, op.job.verdict) {
            (Some(JobKind::Repair), _) => op.job.writes = op.job.writes.union(view.parity()),
            (Some(JobKind::RepairLocated), Verdict::P) => op.job.writes.insert(op.map.p),
            (Some(JobKind::RepairLocated), Verdict::Q) => {
                op.map.q.iter().for_each(|q| op.job.writes.insert(*q));
            }
            (Some(JobKind::RepairLocated), Verdict::Data(_))
                if mutation::is(Mutation::RepairLocatedAsRepair) =>
            {
                op.job.writes = op.job.writes.union(view.parity());
            }
            (Some(JobKind::RepairLocated), Verdict::Data(index)) => {
                if let Some(slot) = located(op, &view, index) {
                    return self.relocate(core, out, key, op, slot);
                }
            }
            _ => {}
        }
        self.generate_parity(core, out, key, op);
    }

    /// Rebuilds the block that is wrong from P and the others.
    fn relocate(&mut self, core: &Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp, slot: Slot) {
        self.mark(op, slot, false);
        op.job.writes.insert(slot);
        op.plan.recover.insert(slot);
        op.step = Step::Relocating;
        let kept = std::mem::replace(&mut op.plan.recover, SlotSet::one(slot));
        self.recover(core, out, key, op);
        op.plan.recover = kept;
    }

    pub(super) fn relocated(&mut self, core: &Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        op.job.writes.iter().for_each(|slot| self.mark(op, slot, true));
        self.generate_parity(core, out, key, op);
    }

    /// Counts a row that disagrees or cannot be read, and says where it is.
    fn note(&self, core: &mut Core, op: &mut StripeOp, row: u32, is_unread: bool) {
        let verdict = op.job.verdict;
        if verdict == Verdict::Consistent {
            return;
        }
        op.job.disagrees = true;
        let member =
            SectorRange::new(op.range.start + u64::from(row - op.rows.0) * PAGE_SECTORS, PAGE_SECTORS);
        let chunk = core.geometry.chunk_sectors();
        let shift = if mutation::is(Mutation::CheckWithoutPlace) { chunk } else { 0 };
        let member = SectorRange::new(member.start + shift, member.count);
        let (stripe, offset) = (member.start / chunk, member.start % chunk);
        let data: SlotSet = (0..self.shape.data_disks()).map(|d| op.map.data_slot(d)).collect();
        let slot = match verdict {
            Verdict::P => Some(op.map.p),
            Verdict::Q => op.map.q,
            Verdict::Data(index) => data.iter().find(|s| op.map.operand_role(*s) == Role::Data(index)),
            _ => None,
        };
        let stripe_start = stripe * self.shape.stripe_sectors();
        let chunk_of = |s: Slot| (0..self.shape.data_disks()).find(|d| op.map.data_slot(*d) == s);
        let array = match slot.and_then(chunk_of) {
            Some(d) => SectorRange::new(stripe_start + u64::from(d) * chunk + offset, PAGE_SECTORS),
            None => SectorRange::new(stripe_start, self.shape.stripe_sectors()),
        };
        let mismatch = Mismatch { array, member, slot, verdict, is_unread };
        core.found.push(Found { mismatch, sectors: PAGE_SECTORS });
    }

    /// Computes the parities that are to be written and not known.
    fn generate_parity(&mut self, core: &Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        op.step = Step::Generating;
        let view = self.view(core, op);
        let to_write = op.job.writes.union(op.job.replacements).minus(view.data).minus(core.failed);
        let unknown = if op.job.disagrees { to_write } else { to_write.minus(view.uptodate) };
        if unknown.is_empty() || op.split {
            return;
        }
        let sources = self.page_operands(out, op, view.data, op.sectors());
        let targets = self.page_operands(out, op, unknown, op.sectors());
        let bytes = u64::from(op.rows.1 - op.rows.0) * PAGE_BYTES;
        Self::compute(out, key, op, Kernel::Generate, bytes, sources, targets);
        unknown.iter().for_each(|slot| self.mark(op, slot, true));
    }

    /// Writes what lacks, disagrees or could not be read.
    pub(super) fn write_job(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        op.step = Step::Writing;
        if core.read_only || op.split {
            op.job.writes = SlotSet::EMPTY;
            return;
        }
        op.job.writes = op.job.writes.minus(core.failed);
        for slot in op.job.writes.iter() {
            let segs = self.page_segs(out, op, slot, op.sectors());
            Self::member_io(core, out, key, op, slot, (Op::Write, false), segs);
        }
        for slot in op.job.replacements.and(core.members.replacing).minus(op.job.writes).iter() {
            let Some(replacement) = core.members.replacement(slot) else { continue };
            let segs = self.page_segs(out, op, slot, op.sectors());
            let range = op.range;
            let mut record = core.record(slot, Op::Write, range, Owner::Stripe { op: key });
            record.member = replacement.member;
            op.pending += 1;
            core.send(out, record, false, segs);
            core.own_begins(slot, range.count, range.count);
        }
    }

    /// Writes back what a read could not read and the redundancy gave.
    pub(super) fn rewrite(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        op.step = Step::Rewriting;
        let fua = op.pieces.iter().any(|p| p.fua);
        for slot in op.rewritten(core).and(op.unreadable).minus(core.failed).iter() {
            let segs = self.page_segs(out, op, slot, op.sectors());
            Self::member_io(core, out, key, op, slot, (Op::Write, fua), segs);
        }
    }

    /// Reads again what could not be read before, unless another member has the slot by now and lacks it.
    pub(super) fn verify(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, op: &mut StripeOp) {
        op.step = Step::Verifying;
        let end = op.range.end();
        for slot in op.rewritten(core).and(op.unreadable).minus(core.lost(end)).iter() {
            let segs = self.page_segs(out, op, slot, op.sectors());
            Self::member_io(core, out, key, op, slot, (Op::Read, false), segs);
        }
    }
}

/// Leaves alone a row that cannot be had while members are filled: it is listed as bad on those that lack it, not on those that
/// list a part of it. Answers whether they have room for that.
fn goes_without(core: &mut Core, op: &mut StripeOp) -> bool {
    let lacking = core.members.recovering.and(core.members.unfilled(op.range.end()));
    let (writes, replacements) = (op.job.writes.and(lacking), op.job.replacements);
    (op.job.writes, op.job.replacements) = (SlotSet::EMPTY, SlotSet::EMPTY);
    if core.read_only {
        return false;
    }
    let range = op.range;
    let own = writes.iter().map(|slot| core.member_of[slot.index()]);
    let replacements = replacements.iter().filter_map(|slot| Some(core.members.replacement(slot)?.member));
    let members: Vec<MemberIndex> = own.chain(replacements).collect();
    members.into_iter().all(|member| core.list_bad(member, range))
}

/// The slot of a located block, if it can be written and P is there to rebuild it from.
fn located(op: &StripeOp, view: &StripeView, index: u16) -> Option<Slot> {
    let is_it = |slot: &Slot| op.map.operand_role(*slot) == Role::Data(index);
    view.data.iter().find(is_it).filter(|slot| !view.lost.contains(*slot) && view.uptodate.contains(op.map.p))
}
