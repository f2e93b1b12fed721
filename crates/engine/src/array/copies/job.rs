//! The array's own jobs on copies: filling members, comparing and repairing, rewriting what a member could not read.
//!
//! | step | asks for | then |
//! |---|---|---|
//! | Reading | one copy (Fill, and Rewrite after its own) or all (checks) | Reading another, Comparing, Writing |
//! | Comparing | the copies compared, whole, then page by page for the place | Writing |
//! | Writing | the first copy to those that lack it, differ or could not be read | Verifying |
//! | Verifying | what could not be read before | the end |
//!
//! A job holds its range of the array, so that no write comes between.

use super::{Copies, to_bad_edge};
use crate::array::core::{Core, IoRecord, Owner, RequestKey, RequestState};
use crate::array::slots::SlotSet;
use crate::array::sync::{Found, JOB_SECTORS_MAX, Job, JobKind, Mismatch, begin};
use crate::geometry::Place;
use crate::io::{
    Action, ActionQueue, Buf, Compute, Flags, IoError, IoResult, Kernel, Op, Operand, OperandList, Request,
    RequestId, Role, Seg, SegList, Tag, Verdict,
};
use crate::mutation::{self, Mutation};
use crate::units::{PAGE_BYTES, PAGE_SECTORS, SectorRange, Slot};

/// Pages of each member for all jobs together: as many as a RAID-1 of md has under way.
pub(super) const PAGES: u32 = 512;
/// Most rewrites that are under way or wait.
const REWRITES_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reading,
    /// All, or from this page on one.
    Comparing(Option<u32>),
    Writing,
    Verifying,
}

/// A job.
#[derive(Debug)]
pub(super) struct CopyJob {
    request: RequestKey,
    job: Job,
    range: SectorRange,
    /// First page of its own.
    entry: u32,
    /// Slots whose content is in the pages.
    read: SlotSet,
    /// Slots that could not be read although their member works.
    unreadable: SlotSet,
    writes: SlotSet,
    replacements: SlotSet,
    verdict: Verdict,
    disagrees: bool,
    step: Step,
    pending: u32,
}

impl CopyJob {
    fn pages(&self, slot: Slot, from_page: u32, sectors: u64) -> Seg {
        let buf = Buf::Page { entry: self.entry + from_page, slot, offset: 0 };
        Seg { buf, bytes: (sectors * 512) as u32 }
    }
}

fn places(core: &Core, sector: u64) -> impl Iterator<Item = Place> {
    (0..core.geometry.copies()).map(move |copy| core.geometry.place(sector, copy))
}

impl Copies {
    /// Starts a job that holds its range, or lets it wait for pages.
    pub(super) fn admit_job(&mut self, core: &mut Core, out: &mut ActionQueue, request: RequestKey) {
        core.part_begins(request);
        let Some(entry) = self.buffers.pop() else { return self.waiting.push_back(request) };
        self.start_job(core, out, request, entry);
    }

    fn start_job(&mut self, core: &mut Core, out: &mut ActionQueue, request: RequestKey, entry: u32) {
        let state = core.request(request);
        let range = state.request.range;
        state.admitted = range.count;
        let job = state.job.expect("only jobs are started as such");
        let is_bad = |p: Place| core.is_bad(p.slot, SectorRange::new(p.sector, range.count));
        let has_bad = core.has_bad_blocks() && places(core, range.start).any(is_bad);
        let by_pages = range.count > PAGE_SECTORS && (has_bad || job.kind == JobKind::Rewrite);
        // What is listed of a part of a page says nothing of the rest.
        let by_parts = has_bad && to_bad_edge(core, range.start) < range.count;
        if by_pages || by_parts {
            self.buffers.push(entry);
            self.page_by_page(core, out, request);
            return core.part_ends(out, request, Ok(()));
        }
        let mut new = CopyJob {
            request,
            job,
            range,
            entry,
            read: SlotSet::EMPTY,
            unreadable: SlotSet::EMPTY,
            writes: SlotSet::EMPTY,
            replacements: SlotSet::EMPTY,
            verdict: Verdict::Consistent,
            disagrees: false,
            step: Step::Reading,
            pending: 0,
        };
        let sources: SlotSet = readable(core, range).map(|p| p.slot).collect();
        if job.kind == JobKind::Fill {
            for place in places(core, range.start) {
                let is_wanted = job.slot.is_none_or(|slot| slot == place.slot);
                let lacks = core.members.unfilled(place.sector + range.count).contains(place.slot);
                if is_wanted && lacks && core.members.replacing.contains(place.slot) {
                    new.replacements.insert(place.slot);
                } else if is_wanted && lacks {
                    new.writes.insert(place.slot);
                }
            }
        }
        // What is known to be bad is written, and so struck from the list.
        for place in places(core, range.start).filter(|_| job.kind != JobKind::Rewrite) {
            let is_wanted = job.slot.is_none_or(|slot| slot == place.slot);
            if is_wanted && core.is_bad(place.slot, SectorRange::new(place.sector, range.count)) {
                new.writes.insert(place.slot);
            }
        }
        let key = self.jobs.insert(Some(Box::new(new)));
        let mut job = self.take_job(key);
        match job.job.kind {
            JobKind::Fill => Self::read_one(core, out, key, &mut job),
            // Which page it was is seen by reading again.
            JobKind::Rewrite => {
                let slot = job.job.slot.filter(|slot| !core.failed.contains(*slot) && !core.read_only);
                if let Some(slot) = slot {
                    io(core, out, key, &mut job, slot, Op::Read);
                }
            }
            kind if core.read_only && (kind != JobKind::Check || sources.len() < 2) => {}
            _ if sources.len() < 2 && job.writes.is_empty() => {}
            _ => sources.iter().for_each(|slot| io(core, out, key, &mut job, slot, Op::Read)),
        }
        self.put_job(key, job);
        self.advance_job(core, out, key);
    }

    /// Reads a copy that was not tried.
    fn read_one(core: &mut Core, out: &mut ActionQueue, key: u64, job: &mut CopyJob) {
        let nothing_to_do = job.job.kind == JobKind::Fill && job.writes.union(job.replacements).is_empty();
        if nothing_to_do || core.read_only {
            return;
        }
        // A slot that is replaced is copied from its own member while that can be read, unless reads are to spare that.
        let place = readable(core, job.range)
            .filter(|p| !job.unreadable.contains(p.slot))
            .min_by_key(|p| (core.is_write_mostly(p.slot), !job.replacements.contains(p.slot)));
        if let Some(place) = place {
            io(core, out, key, job, place.slot, Op::Read);
        }
    }

    fn take_job(&mut self, key: u64) -> Box<CopyJob> {
        self.jobs.get_mut(key).and_then(Option::take).expect("a job lives until its last answer")
    }

    fn put_job(&mut self, key: u64, job: Box<CopyJob>) {
        *self.jobs.get_mut(key).expect("a job lives until its last answer") = Some(job);
    }

    /// A member answered a job.
    pub(super) fn job_ended(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: u64,
        record: &IoRecord,
        result: IoResult,
    ) {
        let mut job = self.take_job(key);
        job.pending -= 1;
        core.own_ends(record.slot, record.range.count);
        let is_for_good = record.op == Op::Write || job.step == Step::Verifying;
        match (record.op, result) {
            (_, Err(error)) if is_for_good && core.is_narrowed(out, record, error) => {
                ask_by_pages(core, out, key, &mut job, record);
            }
            (Op::Read, Ok(())) => job.read.insert(record.slot),
            (Op::Read, Err(error)) => {
                if error == IoError::Gone || job.step == Step::Verifying {
                    job.writes.remove(record.slot);
                    core.write_failed(out, record, error);
                }
                if core.has_another_source(out, record) && job.step == Step::Reading {
                    io(core, out, key, &mut job, record.slot, Op::Read);
                } else {
                    job.unreadable.insert(record.slot);
                }
            }
            (_, Ok(())) => {}
            (_, Err(error)) => {
                job.writes.remove(record.slot);
                core.write_failed(out, record, error);
                core.drop_replacement(out, record.slot, record.member);
            }
        }
        self.put_job(key, job);
        self.advance_job(core, out, key);
    }

    /// A comparison ended.
    pub(crate) fn computed(&mut self, core: &mut Core, out: &mut ActionQueue, tag: Tag, verdict: Verdict) {
        let mut job = self.take_job(tag.0);
        job.pending -= 1;
        job.verdict = verdict;
        self.put_job(tag.0, job);
        self.advance_job(core, out, tag.0);
    }

    fn advance_job(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64) {
        loop {
            let mut job = self.take_job(key);
            if job.pending > 0 {
                return self.put_job(key, job);
            }
            match job.step {
                Step::Reading if is_parted_by_errors(core, &job) => {
                    self.jobs.remove(key);
                    self.page_by_page(core, out, job.request);
                    core.part_ends(out, job.request, Ok(()));
                    return self.pass_on(core, out, job.entry);
                }
                Step::Reading => Self::read_done(core, out, key, &mut job),
                Step::Comparing(page) => compared(core, out, key, &mut job, page),
                Step::Writing => {
                    job.step = Step::Verifying;
                    let written = if job.read.is_empty() { SlotSet::EMPTY } else { job.writes };
                    let again = written.and(job.unreadable);
                    for place in places(core, job.range.start).collect::<Vec<_>>() {
                        // Another member may have the slot by now, and lack it.
                        let is_there = !core.is_lost(place.slot, place.sector + job.range.count);
                        if is_there && again.contains(place.slot) {
                            io(core, out, key, &mut job, place.slot, Op::Read);
                        }
                    }
                }
                Step::Verifying => return self.end_job(core, out, key, &job),
            }
            self.put_job(key, job);
        }
    }

    fn read_done(core: &mut Core, out: &mut ActionQueue, key: u64, job: &mut CopyJob) {
        if job.read.is_empty() {
            Self::read_one(core, out, key, job);
            if job.pending > 0 {
                return;
            }
        }
        if matches!(job.job.kind, JobKind::Fill | JobKind::Rewrite) || job.read.len() < 2 {
            return write(core, out, key, job);
        }
        job.step = Step::Comparing(None);
        compare(out, key, job, 0, job.range.count);
    }

    fn end_job(&mut self, core: &mut Core, out: &mut ActionQueue, key: u64, job: &CopyJob) {
        for place in places(core, job.range.start).collect::<Vec<_>>() {
            let is_corrected = job.writes.and(job.unreadable).minus(core.failed).contains(place.slot);
            if is_corrected && !job.read.is_empty() {
                let range = SectorRange::new(place.sector, job.range.count);
                core.read_error_corrected(out, place.slot, range);
            }
        }
        if compares(job) && is_unread(core, job) {
            note(core, job.range, Verdict::Unlocated, true);
        }
        let wanted = job.writes.union(job.replacements);
        let lacks =
            job.job.kind == JobKind::Fill && !wanted.is_empty() && job.read.is_empty() && !core.read_only;
        let is_lost = lacks && !self.goes_without(core, out, job);
        self.rewrites -= usize::from(job.job.kind == JobKind::Rewrite);
        self.jobs.remove(key);
        core.part_ends(out, job.request, if is_lost { Err(IoError::Lost) } else { Ok(()) });
        self.pass_on(core, out, job.entry);
    }

    /// Gives a job's pages to the next.
    fn pass_on(&mut self, core: &mut Core, out: &mut ActionQueue, entry: u32) {
        match self.waiting.pop_front() {
            Some(request) => self.start_job(core, out, request, entry),
            None => self.buffers.push(entry),
        }
    }

    /// Leaves alone what cannot be had while members are filled: page by page, a page that they lack is listed as bad.
    /// Answers whether they have room for that.
    fn goes_without(&mut self, core: &mut Core, out: &mut ActionQueue, job: &CopyJob) -> bool {
        if job.range.count <= PAGE_SECTORS {
            let places: Vec<Place> = places(core, job.range.start).collect();
            let listed = |place: Place| {
                let range = SectorRange::new(place.sector, job.range.count);
                // One that does not give it lacks it as well; one that lists a part of it has the rest. A member that is replaced
                // may have listed it itself: its replacement lacks it all the same.
                let own = core.member_of[place.slot.index()];
                let lacks = job.writes.contains(place.slot) && !core.is_listed_bad(own, range);
                let own = lacks.then_some(own);
                let replacement = core.members.replacement(place.slot).map(|r| r.member);
                let replacement = replacement.filter(|_| job.replacements.contains(place.slot));
                own.into_iter().chain(replacement).all(|member| core.list_bad(member, range))
            };
            return places.into_iter().all(listed);
        }
        self.page_by_page(core, out, job.request);
        true
    }

    /// Does a job again in parts of its range: pages, and the parts of a page of which each copy is listed as bad, or not.
    fn page_by_page(&mut self, core: &mut Core, out: &mut ActionQueue, request: RequestKey) {
        let state = core.request(request);
        let (range, job) = (state.request.range, state.job);
        // Each part counts as one when it ends.
        let counted = usize::from(job.is_some_and(|job| job.kind == JobKind::Rewrite));
        self.rewrites -= counted;
        let mut sector = range.start;
        while sector < range.end() {
            let to_page_end = PAGE_SECTORS - (sector - range.start) % PAGE_SECTORS;
            let count = to_page_end.min(range.end() - sector).min(to_bad_edge(core, sector));
            self.rewrites += counted;
            core.part_begins(request);
            let child = core.requests.insert(child(request, job, SectorRange::new(sector, count)));
            self.admit_job(core, out, child);
            core.part_ends(out, child, Ok(()));
            sector += count;
        }
    }

    /// Begins to rewrite what a copy could not read.
    pub(super) fn begin_rewrites(&mut self, core: &mut Core, slot: Slot, range: SectorRange) {
        if core.failed.contains(slot) || core.read_only {
            return;
        }
        let mut sector = range.start;
        while sector < range.end() && self.rewrites < REWRITES_MAX {
            let count = (range.end() - sector).min(self.job_sectors);
            begin(core, SectorRange::new(sector, count), Job { kind: JobKind::Rewrite, slot: Some(slot) });
            self.rewrites += 1;
            sector += count;
        }
    }
}

/// Whether a job compares copies.
const fn compares(job: &CopyJob) -> bool {
    !matches!(job.job.kind, JobKind::Fill | JobKind::Rewrite)
}

/// Whether no member gives a range of which several would hold a copy.
fn is_unread(core: &Core, job: &CopyJob) -> bool {
    let held = places(core, job.range.start).filter(|p| !core.is_lost(p.slot, p.sector + job.range.count));
    let looks = !core.read_only || job.job.kind == JobKind::Check;
    let is_refused = |place: Place| job.unreadable.contains(place.slot);
    looks && job.read.is_empty() && held.count() > 1 && readable(core, job.range).all(is_refused)
}

/// Whether a check or repair goes on page by page: only what cannot be read by itself is left out of the comparison, rewritten,
/// and listed as bad if that fails, too. So it does where all members know something of the range to be bad.
fn is_parted_by_errors(core: &Core, job: &CopyJob) -> bool {
    let is_parted = !job.unreadable.minus(core.failed).is_empty() || is_unread(core, job);
    compares(job) && job.range.count > PAGE_SECTORS && is_parted
}

/// A part of a job, in the range that the job holds.
fn child(parent: RequestKey, job: Option<Job>, range: SectorRange) -> RequestState {
    let request = Request { id: RequestId(u32::MAX), op: Op::Read, range, flags: Flags::default() };
    RequestState { parent: Some(parent), through_cache: true, job, ..RequestState::new(request) }
}

/// Copies of a range that can be read.
fn readable(core: &Core, range: SectorRange) -> impl Iterator<Item = Place> {
    places(core, range.start).filter(move |p| core.can_read_at(*p, range.count))
}

fn io(core: &mut Core, out: &mut ActionQueue, key: u64, job: &mut CopyJob, slot: Slot, op: Op) {
    let place =
        places(core, job.range.start).find(|p| p.slot == slot).expect("jobs go to the range's copies");
    let source = if op == Op::Read { slot } else { first_read(core, job) };
    let segs = out.add_seg(job.pages(source, 0, job.range.count));
    let range = SectorRange::new(place.sector, job.range.count);
    job.pending += 1;
    let record = core.record(slot, op, range, Owner::CopyJob { job: key });
    core.io(out, record, false, segs);
    core.own_begins(slot, range.count, range.count);
}

/// The copy that is held to be right: the first, as for reads of copies that may not agree, which spare the same members.
fn first_read(core: &Core, job: &CopyJob) -> Slot {
    let read = places(core, job.range.start).filter(|place| job.read.contains(place.slot));
    let first = if mutation::is(Mutation::SyncFromLastCopy) {
        read.last()
    } else {
        read.min_by_key(|p| core.is_write_mostly(p.slot))
    };
    first.expect("nothing is written that was not read").slot
}

/// Asks again, page by page, for what a member did not take, or not give back, as a whole.
fn ask_by_pages(core: &mut Core, out: &mut ActionQueue, key: u64, job: &mut CopyJob, whole: &IoRecord) {
    let source = if whole.op == Op::Read { whole.slot } else { first_read(core, job) };
    for done in (0..whole.range.count).step_by(PAGE_SECTORS as usize) {
        let count = PAGE_SECTORS.min(whole.range.count - done);
        let segs = out.add_seg(job.pages(source, (done / PAGE_SECTORS) as u32, count));
        let range = SectorRange::new(whole.range.start + done, count);
        job.pending += 1;
        let owner = Owner::CopyJob { job: key };
        core.send(out, IoRecord { is_again: true, range, owner, ..*whole }, false, segs);
        core.own_begins(whole.slot, count, count);
    }
}

fn compare(out: &mut ActionQueue, key: u64, job: &mut CopyJob, page: u32, sectors: u64) {
    let first = out.operands.len() as u32;
    for (index, slot) in job.read.iter().enumerate() {
        let segs = out.add_seg(job.pages(slot, page, sectors));
        out.operands.push(Operand { role: Role::Data(index as u16), segs });
    }
    let sources = OperandList { first, count: out.operands.len() as u32 - first };
    job.pending += 1;
    let (bytes, targets) = (sectors * 512, OperandList::default());
    out.push(Action::Compute(Compute { tag: Tag(key), kernel: Kernel::Check, bytes, sources, targets }));
}

/// Counts sectors that disagree or cannot be read, and says where they are.
fn note(core: &mut Core, array: SectorRange, verdict: Verdict, is_unread: bool) {
    let place = core.geometry.place(array.start, 0);
    let member = SectorRange::new(place.sector, array.count);
    let mismatch = Mismatch { array, member, slot: None, verdict, is_unread };
    core.found.push(Found { mismatch, sectors: array.count });
}

fn compared(core: &mut Core, out: &mut ActionQueue, key: u64, job: &mut CopyJob, page: Option<u32>) {
    let page_of = |page: u32| {
        let start = u64::from(page) * PAGE_SECTORS;
        SectorRange::new(job.range.start + start, PAGE_SECTORS.min(job.range.count - start))
    };
    let next = match (page, job.verdict) {
        (None, Verdict::Consistent) => (JOB_SECTORS_MAX / PAGE_SECTORS) as u32,
        (None, _) => 0,
        (Some(page), verdict) => {
            if verdict != Verdict::Consistent {
                let array = page_of(page);
                note(core, array, verdict, false);
                job.disagrees = true;
            }
            page + 1
        }
    };
    if u64::from(next) * PAGE_BYTES < job.range.count * 512 {
        let sectors = page_of(next).count;
        job.step = Step::Comparing(Some(next));
        return compare(out, key, job, next, sectors);
    }
    if job.disagrees && job.job.kind == JobKind::Repair {
        job.writes = job.read.minus(SlotSet::one(first_read(core, job)));
    }
    write(core, out, key, job);
}

/// Writes the first copy to those that need it.
fn write(core: &mut Core, out: &mut ActionQueue, key: u64, job: &mut CopyJob) {
    job.step = Step::Writing;
    job.writes = job.writes.union(job.unreadable).minus(core.failed);
    if core.read_only {
        job.writes = SlotSet::EMPTY;
    }
    if core.read_only || job.read.is_empty() {
        return;
    }
    for slot in job.writes.iter() {
        io(core, out, key, job, slot, Op::Write);
    }
    for slot in job.replacements.and(core.members.replacing).minus(job.writes).iter() {
        let Some(replacement) = core.members.replacement(slot) else { continue };
        let place = places(core, job.range.start).find(|p| p.slot == slot).expect("of the range's copies");
        let segs: SegList = out.add_seg(job.pages(first_read(core, job), 0, job.range.count));
        let range = SectorRange::new(place.sector, job.range.count);
        let mut record = core.record(slot, Op::Write, range, Owner::CopyJob { job: key });
        record.member = replacement.member;
        job.pending += 1;
        core.send(out, record, false, segs);
        core.own_begins(slot, range.count, range.count);
    }
}
