//! The array's own work: resync, recovery onto spares and replacements, check and repair.
//!
//! | what holds | what runs |
//! |---|---|
//! | members that lack content, or spares for empty slots | Recover |
//! | redundancy may not be right | Resync |
//! | an administrator asked | Check, Repair, `RepairLocated` |
//!
//! The first line that holds wins; a change of the members' standing interrupts what runs, and the table is read anew.
//!
//! # Contract
//! *Ordering.* Jobs are begun in ascending order, and what lies before the oldest one in flight is done. *Fairness.* A
//! job takes its rows, or its range, in its turn with requests. *Limits.* As many jobs at once as there is room for.

mod admin;
mod job;
mod lost;
mod room;
mod speed;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub(crate) use job::{Found, JOB_SECTORS_MAX, Job, JobKind, TURN_SECTORS, takes_turns};
pub use job::{MISMATCHES_KEPT, Mismatch};
pub(crate) use lost::lost_ranges;
pub use lost::{LOST_RANGES_MAX, LostRanges};
pub(crate) use room::Room;
pub use speed::SpeedLimits;

use super::core::{Core, RequestKey, RequestState};
use super::members::Replacement;
use super::slots::SlotSet;
use crate::geometry::{Holds, Place, Shape};
use crate::io::{Action, ActionQueue, ArrayEvent, Flags, IoError, Op, Request, RequestId, SyncAction};
use crate::metadata::StateChange;
use crate::mutation::{self, Mutation};
use crate::units::{Instant, PAGE_SECTORS, SectorRange, Slot};
use speed::Speed;

/// How the array works by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncConfig {
    /// Bounds of its speed.
    pub speed: SpeedLimits,
    /// It begins by itself; otherwise it is frozen until [`SyncAction::Idle`] is asked for.
    pub start: bool,
}

impl SyncConfig {
    /// md's defaults.
    pub const DEFAULT: Self = Self { speed: SpeedLimits::DEFAULT, start: true };
}

/// How far the array's own work has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncStatus {
    /// What runs.
    pub action: SyncAction,
    /// Sectors done, in the action's units (of a member; for resync and check of RAID-10 of the array).
    pub done_sectors: u64,
    /// Sectors in all.
    pub total_sectors: u64,
    /// Sectors of what runs, or ran last, that disagreed (md's `mismatch_cnt`).
    pub mismatch_sectors: u64,
    /// Of these, what too few members gave to compare it, or to make it right.
    pub unread_sectors: u64,
    /// Where, the first [`MISMATCHES_KEPT`].
    pub mismatches: Vec<Mismatch>,
    /// Average speed in KiB/s.
    pub speed_kib: u64,
}

/// A job in flight.
#[derive(Debug)]
struct InFlight {
    request: RequestKey,
    /// Where the action stands when this and those before are done.
    upto: u64,
    /// Sectors of each member that it works on.
    sectors: u64,
    is_done: bool,
}

/// What runs.
#[derive(Debug)]
struct Run {
    action: SyncAction,
    /// Next sector to begin.
    cursor: u64,
    /// Slots of RAID-10 still to be recovered at the cursor, once it is begun.
    slots: Option<SlotSet>,
    /// Sectors before it are done.
    done: u64,
    /// Where it began.
    from: u64,
    total: u64,
    /// Slots that are filled.
    filling: SlotSet,
    /// Only what the write-intent bitmap names.
    by_intent: bool,
    /// What `done` was when the metadata was last told.
    told: u64,
    in_flight: VecDeque<InFlight>,
    /// Sectors of each member that jobs work on.
    under_way: u64,
    end: Option<Ending>,
}

/// Why nothing more begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Interrupted,
    Failed(SectorRange),
}

/// The machine.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
pub(crate) struct Sync {
    speed: Speed,
    room: Room,
    /// No request is let in while any of it is under way.
    takes_turns: bool,
    /// Its turn comes when the requests that are under way have ended.
    is_next: bool,
    /// When its turn began that it waited for.
    turn_began: Option<Instant>,
    run: Option<Run>,
    frozen: bool,
    /// The table is to be read anew.
    look: bool,
    /// What an administrator asked for.
    asked: Option<SyncAction>,
    /// Sectors that cannot be had ended the last one: it does not begin again by itself until members change.
    gave_up: bool,
    /// Slots that come back with only what was written since missing.
    returned: SlotSet,
    /// A resync is due that has nothing to compare: the metadata say that none is.
    waived: bool,
    mismatch_sectors: u64,
    unread_sectors: u64,
    mismatches: Vec<Mismatch>,
}

impl Sync {
    /// `returned` are recovering slots that lack only what the write-intent bitmap names.
    pub(crate) fn new(config: SyncConfig, returned: SlotSet, room: Room, core: &Core) -> Self {
        Self {
            speed: Speed::new(config.speed),
            room,
            takes_turns: takes_turns(&core.geometry, &core.policy),
            is_next: false,
            turn_began: None,
            run: None,
            frozen: !config.start,
            look: false,
            asked: None,
            gave_up: false,
            returned,
            waived: false,
            mismatch_sectors: 0,
            unread_sectors: 0,
            mismatches: Vec::new(),
        }
    }

    /// Lets the array's own work go on. To be called after every input; answers whether it began something.
    pub(crate) fn settle(&mut self, core: &mut Core, out: &mut ActionQueue) -> bool {
        let began = self.go_on(core, out);
        self.is_next &= self.run.is_some();
        let is_under_way = self.run.as_ref().is_some_and(|run| !run.in_flight.is_empty());
        core.is_barred &= is_under_way || self.is_next;
        began
    }

    fn go_on(&mut self, core: &mut Core, out: &mut ActionQueue) -> bool {
        if core.standing_changed {
            core.standing_changed = false;
            self.gave_up = false;
            self.interrupt();
        }
        if self.run.is_none() {
            core.jobs_ended.clear();
            core.found.clear();
            if !self.wants_work(core) || !self.decide(core, out) {
                return false;
            }
        }
        self.collect(core);
        self.advance(core, out);
        if self.run.is_none() {
            // What was interrupted makes room for what comes now.
            return self.decide(core, out) && self.begin_jobs(core);
        }
        self.begin_jobs(core)
    }

    /// Whether [`Self::settle`] would do nothing.
    #[inline]
    pub(crate) fn is_settled(&self, core: &Core) -> bool {
        let is_quiet = self.run.is_none() && self.asked.is_none() && !self.look;
        is_quiet && !core.standing_changed && core.jobs_ended.is_empty() && core.found.is_empty()
    }

    /// Whether there may be something to do: cheap, for it is asked after every input.
    fn wants_work(&mut self, core: &Core) -> bool {
        self.asked.is_some() || std::mem::take(&mut self.look) && !core.read_only
    }

    /// Tells the metadata that no resync is due while members are out without which it has nothing to compare, and that it is
    /// once they are there: what pages still hold of a former member may differ from what the others make of it.
    fn waive(&mut self, core: &mut Core) {
        let waives = core.resync_from != u64::MAX && has_nothing_to_compare(core);
        if waives != self.waived && !core.read_only {
            self.waived = waives;
            core.changed(StateChange::ResyncOffset(if waives { u64::MAX } else { core.resync_from }));
        }
    }

    /// The first sector that a resync has still to make agree.
    pub(crate) fn resync_due_from(&self, core: &Core) -> Option<u64> {
        (core.resync_from != u64::MAX && !self.waived).then_some(core.resync_from)
    }

    /// Nothing more begins.
    pub(crate) fn stop(&mut self) {
        self.frozen = true;
        self.asked = None;
        self.interrupt();
    }

    /// Nothing more begins, and what ends from now on says nothing about the members as they are: even where it had failed.
    fn interrupt(&mut self) {
        self.look = true;
        if let Some(run) = &mut self.run {
            run.end = Some(Ending::Interrupted);
        }
    }

    /// When the array's own work wants to go on.
    #[inline]
    pub(crate) fn next_deadline(&self, core: &Core) -> Option<Instant> {
        if core.standing_changed {
            return Some(core.now);
        }
        let run = self.run.as_ref()?;
        self.speed.paused_until().max(self.room.rests_until()).filter(|_| run.end.is_none())
    }

    /// Chooses what to do. Answers whether there is anything.
    fn decide(&mut self, core: &mut Core, out: &mut ActionQueue) -> bool {
        self.waive(core);
        if !has_redundancy(core) || self.asked.is_some_and(|action| !may_begin(core, action)) {
            self.asked = None;
            return false;
        }
        if !core.read_only && !self.frozen && !self.gave_up {
            self.place_spares(core);
            core.standing_changed = false;
            self.waive(core);
            let unfilled = core.members.recovering.union(core.members.replacing);
            if !unfilled.is_empty() {
                let from = unfilled.iter().map(|s| core.members.filled(s)).min().unwrap_or(0);
                let by_intent = unfilled.minus(self.returned).is_empty();
                return self.start(core, out, SyncAction::Recover, from, by_intent);
            }
            if !self.waived && core.resync_from < sync_sectors(core, SyncAction::Resync) {
                return self.start(core, out, SyncAction::Resync, core.resync_from, true);
            }
        }
        match self.asked.take() {
            Some(action) => {
                self.mismatch_sectors = 0;
                self.unread_sectors = 0;
                self.mismatches.clear();
                self.start(core, out, action, 0, false)
            }
            None => false,
        }
    }

    fn start(
        &mut self,
        core: &Core,
        out: &mut ActionQueue,
        action: SyncAction,
        from: u64,
        by_intent: bool,
    ) -> bool {
        let total = sync_sectors(core, action);
        self.speed.start(core);
        self.room.clear();
        self.run = Some(Run {
            action,
            cursor: from,
            slots: None,
            done: from,
            from,
            total,
            filling: core.members.recovering.union(core.members.replacing),
            by_intent,
            told: from,
            in_flight: VecDeque::new(),
            under_way: 0,
            end: None,
        });
        out.push(Action::Event(ArrayEvent::SyncStarted(action)));
        true
    }

    /// Gives spares to empty slots.
    fn place_spares(&mut self, core: &mut Core) {
        for slot in core.failed.iter() {
            let Some(member) = core.members.first_spare() else { return };
            self.returned.remove(slot);
            core.take_slot(slot, member, 0);
        }
    }

    /// Takes note of jobs that ended, and of what they found.
    fn collect(&mut self, core: &mut Core) {
        for Found { mismatch, sectors } in core.found.drain(..) {
            self.mismatch_sectors += sectors;
            self.unread_sectors += if mismatch.is_unread { sectors } else { 0 };
            if self.mismatches.len() < MISMATCHES_KEPT {
                self.mismatches.push(mismatch);
            }
        }
        while let Some((key, result)) = core.jobs_ended.pop_front() {
            let Some(run) = &mut self.run else { continue };
            let Some(index) = run.in_flight.iter().position(|j| j.request == key) else { continue };
            run.in_flight[index].is_done = true;
            run.under_way -= run.in_flight[index].sectors;
            if result.is_err() && !mutation::is(Mutation::PassLostRows) {
                let range = SectorRange::new(run.done, run.in_flight[index].upto.saturating_sub(run.done));
                // Members whose standing changed may be why: then that is how it ends.
                run.end.get_or_insert(match result {
                    Err(IoError::Lost | IoError::Media) => Ending::Failed(range),
                    _ => Ending::Interrupted,
                });
                // What failed is not done, nor what comes after it.
                run.in_flight.iter_mut().skip(index).for_each(|j| j.upto = run.done);
            }
        }
    }

    /// Moves `done` forward, and ends what has come to its end.
    fn advance(&mut self, core: &mut Core, out: &mut ActionQueue) {
        let Some(run) = &mut self.run else { return };
        let before = run.done;
        while run.in_flight.front().is_some_and(|j| j.is_done) {
            let job = run.in_flight.pop_front().expect("it was there a moment ago");
            run.done = run.done.max(job.upto);
        }
        let is_over = run.cursor >= run.total && run.end.is_none() && run.slots.is_none();
        if run.in_flight.is_empty() && is_over {
            run.done = run.total;
        }
        if run.done > before && run.end != Some(Ending::Interrupted) {
            run.progress(core, before);
        }
        if run.in_flight.is_empty() && (is_over || run.end.is_some()) {
            self.finish(core, out);
        }
    }

    fn finish(&mut self, core: &mut Core, out: &mut ActionQueue) {
        let Some(mut run) = self.run.take() else { return };
        let action = run.action;
        let event = match run.end {
            None => {
                run.complete(core, out);
                ArrayEvent::SyncDone(action)
            }
            Some(ending) => {
                run.tell(core);
                if mutation::is(Mutation::SwapReplacementEarly) && !core.members.replacing.is_empty() {
                    run.complete(core, out);
                }
                match ending {
                    Ending::Interrupted => ArrayEvent::SyncInterrupted(action),
                    Ending::Failed(range) => {
                        self.gave_up = true;
                        ArrayEvent::SyncFailed { action, range }
                    }
                }
            }
        };
        if core.members.recovering.is_empty() {
            self.returned = SlotSet::EMPTY;
        }
        out.push(Action::Event(event));
    }

    /// Begins jobs as far as limits go. Answers whether it began any.
    fn begin_jobs(&mut self, core: &mut Core) -> bool {
        let mut began = false;
        let mut is_next = std::mem::take(&mut self.is_next);
        while let Some(run) = &mut self.run {
            if run.end.is_some() || run.is_past_end(core) {
                self.room.clear();
                break;
            }
            if !self.room.may_begin(core.now, run.in_flight.len(), run.under_way) {
                break;
            }
            // md's stripes that are recovered are read at one time and written at another: where it looks, with room for more,
            // next to nothing is being read.
            let is_in_waves =
                run.action == SyncAction::Recover && matches!(core.geometry.shape(), Shape::Parity(_));
            if !self.speed.may_begin(core, run.cursor - run.from, run.ended(), !is_in_waves) {
                break;
            }
            if self.takes_turns {
                if self.turn_began == Some(core.now) && !run.in_flight.is_empty() {
                    break;
                }
                if !core.barred.is_empty() && !is_next {
                    self.speed.wait_for_others(core, run.ended());
                    break;
                }
                core.is_barred = true;
                // Having waited, it begins one piece, and others may come before the next.
                self.turn_began = is_next.then_some(core.now);
                is_next = false;
                if run.in_flight.is_empty() && core.has_requests() {
                    self.is_next = true;
                    break;
                }
            }
            run.begin_one(core, if self.takes_turns { TURN_SECTORS } else { self.room.job_sectors() });
            began = true;
        }
        // A run over nothing ends at once.
        began || self.run.as_ref().is_some_and(|r| r.in_flight.is_empty() && r.cursor >= r.total)
    }

    /// Bounds of its speed.
    pub(crate) const fn speed_limits(&self) -> SpeedLimits {
        self.speed.limits
    }

    /// How far the array's own work has come.
    pub(crate) fn status(&self, core: &Core) -> Option<SyncStatus> {
        if !has_redundancy(core) {
            return None;
        }
        let run = self.run.as_ref();
        let idle = if self.frozen { SyncAction::Frozen } else { SyncAction::Idle };
        Some(SyncStatus {
            action: run.map_or(idle, |r| r.action),
            done_sectors: run.map_or(0, |r| r.done),
            total_sectors: run.map_or(0, |r| r.total),
            mismatch_sectors: self.mismatch_sectors,
            unread_sectors: self.unread_sectors,
            mismatches: self.mismatches.clone(),
            speed_kib: run.map_or(0, |r| self.speed.kib_per_second(core.now, r.ended())),
        })
    }
}

impl Run {
    /// Sectors that were begun and have ended, in whatever order: as md counts them for the speed.
    const fn ended(&self) -> u64 {
        (self.cursor - self.from).saturating_sub(self.under_way)
    }

    /// Moves the cursor over what need not be done. Answers whether that was all.
    fn is_past_end(&mut self, core: &Core) -> bool {
        if self.slots.is_none() && self.by_intent && !self.goes_by_slots(core) {
            self.cursor = next_needed(core, self.cursor).min(self.total);
        }
        self.cursor >= self.total
    }

    /// Begins a job at the cursor.
    fn begin_one(&mut self, core: &mut Core, sectors_max: u64) {
        let kind = match self.action {
            SyncAction::Recover => JobKind::Fill,
            SyncAction::Check => JobKind::Check,
            SyncAction::RepairLocated => JobKind::RepairLocated,
            _ => JobKind::Repair,
        };
        let left = (self.total - self.cursor).min(sectors_max);
        if let (Shape::Raid10(_), JobKind::Fill) = (core.geometry.shape(), kind) {
            return self.begin_raid10_fill(core, left);
        }
        let count = match core.geometry.shape() {
            Shape::Parity(_) => {
                left.min(core.geometry.chunk_sectors() - self.cursor % core.geometry.chunk_sectors())
            }
            _ => left.min(core.geometry.contiguous(self.cursor)),
        };
        let range = SectorRange::new(self.cursor, count);
        self.cursor += count;
        if self.action == SyncAction::Recover && mutation::is(Mutation::SkipRowInRecovery) {
            self.cursor = self.total.min(self.cursor + PAGE_SECTORS);
        }
        let request = begin(core, range, Job { kind, slot: None });
        self.in_flight.push_back(InFlight { request, upto: self.cursor, sectors: count, is_done: false });
        self.under_way += count;
    }

    /// Whether it goes over members' sectors slot by slot, where the bitmap counts sectors of the array.
    fn goes_by_slots(&self, core: &Core) -> bool {
        self.action == SyncAction::Recover && matches!(core.geometry.shape(), Shape::Raid10(_))
    }

    /// Recovers one slot's sectors at the cursor; the cursor moves on after the last slot.
    fn begin_raid10_fill(&mut self, core: &mut Core, left: u64) {
        let chunk = core.geometry.chunk_sectors();
        let count = left.min(chunk - self.cursor % chunk);
        let end = self.cursor + count;
        let slots = self.slots.get_or_insert_with(|| core.members.unfilled(end));
        let slot = slots.iter().next();
        if let Some(slot) = slot {
            slots.remove(slot);
        }
        let is_last = slots.is_empty();
        let upto = if is_last { end } else { self.cursor };
        let place = slot.map(|slot| Place { slot, sector: self.cursor });
        if is_last {
            self.slots = None;
            self.cursor = end;
        }
        let request = match place.map(|p| (p.slot, core.geometry.holds(p))) {
            Some((slot, Holds::Data(sector)))
                if !self.by_intent || next_needed(core, sector) < sector + count =>
            {
                let count = count.min(core.geometry.array_sectors() - sector);
                let job = Job { kind: JobKind::Fill, slot: Some(slot) };
                Some(begin(core, SectorRange::new(sector, count), job))
            }
            _ => None,
        };
        let sectors = if request.is_some() { count } else { 0 };
        self.under_way += sectors;
        self.in_flight.push_back(InFlight {
            request: request.unwrap_or(RequestKey::MAX),
            upto,
            sectors,
            is_done: request.is_none(),
        });
    }

    /// Notes how far it came. No member's standing has changed since it began.
    fn progress(&mut self, core: &mut Core, before: u64) {
        // A resync that is due after a recovery needs what that went by, too.
        let is_last = self.action == SyncAction::Resync || core.resync_from == u64::MAX;
        let by_intent = self.by_intent && is_last && !self.goes_by_slots(core);
        if let Some(intent) = core.intent.as_mut().filter(|_| by_intent) {
            intent.synced(SectorRange::new(before, self.done - before));
        }
        match self.action {
            SyncAction::Recover => {
                let is_early = mutation::is(Mutation::RecoveredWhenBegun);
                let filled = if is_early { self.cursor } else { self.done };
                self.filling.iter().for_each(|slot| core.filled_to(slot, filled));
            }
            SyncAction::Resync => core.resync_from = core.resync_from.max(self.done),
            _ => return,
        }
        if self.done - self.told >= (self.total / 16).max(1) {
            self.tell(core);
        }
    }

    /// Tells the metadata how far it came.
    fn tell(&mut self, core: &mut Core) {
        self.told = self.done;
        match self.action {
            SyncAction::Recover => {
                for slot in core.members.recovering.union(core.members.replacing).iter() {
                    let sectors = core.members.filled(slot);
                    core.changed(StateChange::RecoveryOffset { slot, sectors });
                }
            }
            SyncAction::Resync => core.changed(StateChange::ResyncOffset(core.resync_from)),
            _ => {}
        }
    }

    /// It came to its end.
    fn complete(&self, core: &mut Core, out: &mut ActionQueue) {
        match self.action {
            SyncAction::Recover => self.filling.iter().for_each(|slot| core.filled(out, slot)),
            SyncAction::Resync => {
                core.resync_from = u64::MAX;
                core.changed(StateChange::ResyncOffset(u64::MAX));
            }
            _ => return,
        }
        if core.incomplete().is_empty()
            && core.resync_from == u64::MAX
            && let Some(intent) = &mut core.intent
        {
            intent.redundant();
        }
    }
}

/// The first sector from `sector` on that must be resynced or recovered.
fn next_needed(core: &Core, sector: u64) -> u64 {
    match &core.intent {
        Some(intent) => intent.next_needed(sector).map_or(u64::MAX, |range| range.start),
        None => sector,
    }
}

/// Hands a job to the level's machine.
pub(crate) fn begin(core: &mut Core, range: SectorRange, job: Job) -> RequestKey {
    let is_parity = matches!(core.geometry.shape(), Shape::Parity(_));
    let request = Request { id: RequestId(u32::MAX), op: Op::Read, range, flags: Flags::default() };
    let key = core.requests.insert(RequestState {
        locked: !is_parity,
        through_cache: true,
        job: Some(job),
        rows: is_parity.then_some(range),
        ..RequestState::new(request)
    });
    let lock = if is_parity { &mut core.rows } else { &mut core.ranges };
    if lock.lock(range, key) {
        core.granted.push_back(key);
    }
    key
}

/// Whether an action may begin: a check only looks, so that an array that takes no writes is checked while what it holds can
/// be had.
fn may_begin(core: &Core, action: SyncAction) -> bool {
    !core.read_only || action == SyncAction::Check && super::survives(&core.geometry, core.incomplete())
}

/// Whether so many members are out that a resync has no redundancy left to make agree: as in Linux it is over then, and the
/// array can be left clean.
fn has_nothing_to_compare(core: &Core) -> bool {
    let out = core.failed.len();
    match core.geometry.shape() {
        Shape::Parity(parity) => out >= usize::from(parity.parity_disks()),
        Shape::Mirror => out + 1 >= usize::from(core.geometry.raid_disks()),
        Shape::Raid10(_) | Shape::Linear(_) | Shape::Raid0(_) => false,
    }
}

/// Whether the level has anything to sync.
pub(crate) fn has_redundancy(core: &Core) -> bool {
    match core.geometry.shape() {
        Shape::Parity(_) | Shape::Raid10(_) => true,
        Shape::Mirror => core.geometry.raid_disks() > 1,
        Shape::Linear(_) | Shape::Raid0(_) => false,
    }
}

/// Sectors that an action goes over.
pub(crate) fn sync_sectors(core: &Core, action: SyncAction) -> u64 {
    match (core.geometry.shape(), action) {
        (Shape::Raid10(_), SyncAction::Recover) => core.geometry.used_sectors(Slot(0)),
        (Shape::Raid10(_), _) => core.geometry.array_sectors(),
        _ => core.geometry.used_sectors(Slot(0)),
    }
}

/// How far a slot's replacement was filled when the array was taken up.
pub(crate) fn take_up_replacement(core: &mut Core, slot: Slot, replacement: Replacement) {
    core.begin_replacement(slot, replacement.member, replacement.filled);
    core.changes.clear();
}
