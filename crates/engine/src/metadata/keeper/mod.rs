//! The machine that keeps superblocks and bitmap; see the module's parent.
//!
//! | file | concern |
//! |---|---|
//! | `change` | what happened, as the superblocks will say it |
//! | `round` | what is written, in which order |

mod change;
mod round;

use std::collections::VecDeque;

use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, MAX_SECTOR, Role, Superblock1, number_anew};
use stripewise_format::time::Timestamp;

use super::superblocks::{ArrayState, Known, Standing, render};
use super::{MemberMetadata, MetadataConfig, StateChange};
use crate::array::core::{Core, RequestKey};
use crate::array::parity::LogEnd;
use crate::geometry::{Geometry, Shape};
use crate::io::{ActionQueue, IoResult};
use crate::mutation::{self, Mutation};
use crate::units::{Instant, MemberIndex, Nanos, SectorRange, Slot};
use change::Said;
use round::{Saying, Step};

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Keeper {
    members: Vec<Option<Known>>,
    /// The superblocks of members that are about to come in.
    introduced: Vec<(MemberIndex, MemberMetadata)>,
    state: ArrayState,
    clock_start: Timestamp,
    safe_mode_delay: Nanos,
    step: Step,
    /// Answers awaited by the step.
    pending: u32,
    /// Superblocks no longer say what is so.
    is_superblock_due: bool,
    said: Said,
    /// How often they are to be written again after they were next: what they say then leaves a member behind, and mdadm takes one
    /// that is one event behind as up to date, for a power cut may leave one so.
    rounds_owed: u8,
    /// What they are to say holds only once the members' data are on their media.
    is_flush_due: bool,
    /// Where a write journal's log may begin once the flush under way has ended.
    journal_tail_flushed: Option<u64>,
    /// What the next round will say. It is not known of while a round is under way: that round's flush may not cover it.
    changes: VecDeque<StateChange>,
    /// Writes that wait for the array to be active or for their bits.
    waiting: VecDeque<RequestKey>,
    writes_in_flight: u64,
    idle_since: Instant,
    next_age: Option<Instant>,
    is_stopping: bool,
}

impl Keeper {
    /// A keeper for what was found, of an array that is in sync up to `resync_from`. Nothing is written until
    /// something changes, unless the superblocks are of different times.
    /// `recovering` are slots whose members are not filled yet, and how far each is.
    pub(crate) fn new(
        config: &MetadataConfig,
        geometry: &Geometry,
        resync_from: u64,
        recovering: &[(Slot, u64)],
    ) -> Self {
        let superblocks = || config.members.iter().flatten().map(|m| &m.superblock);
        let events = superblocks().map(Superblock::events).max().unwrap_or(0);
        // A spare may be of a time that the members have lost, with as many events.
        let of_slots =
            config.members.iter().take(geometry.raid_disks().into()).flatten().map(|m| &m.superblock);
        let newest = of_slots.clone().map(Superblock::events).max().unwrap_or(0);
        // Of one that was stopped during a resync they say how far it came, and that nothing is under way before that.
        let is_clean = of_slots.filter(|s| s.events() == newest).all(|s| s.resync_offset_sectors() != 0);
        let mut members: Vec<Option<Known>> = config
            .members
            .iter()
            .enumerate()
            .map(|(index, member)| {
                let metadata = member.clone()?;
                let standing = standing(&metadata, index, geometry, recovering);
                let has_bad_blocks = metadata.bad_blocks.as_ref().is_some_and(|list| !list.is_empty());
                let is_behind = metadata.superblock.events() != events;
                Some(Known { metadata, standing, has_bad_blocks, is_behind, is_joining: false })
            })
            .collect();
        let mut numbered: Vec<_> = members.iter_mut().flatten().filter_map(of_version_1).collect();
        number_anew(&mut numbered, geometry.raid_disks().into());
        Self {
            members,
            introduced: Vec::new(),
            state: ArrayState {
                events,
                is_clean,
                resync_offset_sectors: resync_from,
                utime: config.clock_start,
                journal_tail_sectors: config.journal.map(|start| start.place.tail_sectors),
            },
            journal_tail_flushed: None,
            clock_start: config.clock_start,
            safe_mode_delay: config.safe_mode_delay,
            step: Step::Idle,
            pending: 0,
            is_superblock_due: superblocks().any(|s| s.events() != events),
            said: Said::default(),
            rounds_owed: 0,
            is_flush_due: false,
            changes: VecDeque::new(),
            waiting: VecDeque::new(),
            writes_in_flight: 0,
            idle_since: Instant::ZERO,
            next_age: None,
            is_stopping: false,
        }
    }

    /// The array's events.
    pub(crate) const fn events(&self) -> u64 {
        self.state.events
    }

    /// Whether the members were left with nothing under way.
    pub(crate) const fn is_clean(&self) -> bool {
        self.state.is_clean
    }

    /// Has the superblocks say what is otherwise than they say: that replacements hold less, and that members are missing. A
    /// missing one may be an event behind only, and would come back in sync; of a clean array the first write says so.
    pub(crate) fn correct(&mut self, core: &mut Core) {
        for known in self.members.iter().flatten() {
            if let Standing::Replacing(slot, said) = known.standing
                && core.members.replacing.contains(slot)
                && core.members.filled(slot) < said
            {
                core.changed(StateChange::RecoveryOffset { slot, sectors: core.members.filled(slot) });
            }
        }
        let known = || self.members.iter().flatten().map(|known| &known.metadata.superblock);
        let is_known = |number: u32| known().any(|superblock| superblock.dev_number() == number);
        let names_absent = |superblock: &Superblock| {
            (0..superblock.device_rows()).any(|row| match superblock.role_of(row) {
                Role::Slot(slot) => core.failed.contains(Slot(slot)) || !is_known(row),
                _ => false,
            })
        };
        let mut newest = known().filter(|superblock| superblock.events() == self.state.events);
        if newest.any(names_absent) {
            // One that is missing may have heard of an event alone.
            self.rounds_owed = 2;
            if !self.state.is_clean {
                self.is_superblock_due = true;
                core.held.is_holding = true;
            }
        }
    }

    /// Takes note of the superblock of a member that is about to come in; it replaces what was known of it.
    pub(crate) fn introduce(&mut self, member: MemberIndex, metadata: MemberMetadata) {
        self.introduced.retain(|(introduced, _)| *introduced != member);
        self.introduced.push((member, metadata));
    }

    /// What the members' superblocks say when everything is written; those of failed members as they were left.
    pub(crate) fn superblocks(&self) -> Vec<Option<MemberMetadata>> {
        (0..self.members.len())
            .map(|index| {
                let Known { metadata, standing, .. } = self.members[index].as_ref()?;
                if *standing == Standing::Faulty {
                    return Some(metadata.clone());
                }
                let superblock = render(&self.members, MemberIndex(index as u16), &self.state)?;
                Some(MemberMetadata {
                    superblock,
                    sector: metadata.sector,
                    bad_blocks: metadata.bad_blocks.clone(),
                })
            })
            .collect()
    }

    /// Whether the members say all that is so.
    pub(crate) fn is_recorded(&self, core: &Core) -> bool {
        core.read_only
            || matches!(self.step, Step::Idle) && !self.is_superblock_due && core.changes.is_empty()
    }

    /// Takes note of a write that is about to start. Answers whether it may; if not, [`Self::settle`] names it
    /// later.
    pub(crate) fn admits(&mut self, core: &mut Core, range: SectorRange) -> bool {
        let range = sync_range(&core.geometry, range);
        self.writes_in_flight += 1;
        let is_durable = core.intent.as_mut().is_none_or(|intent| intent.begin_write(range));
        // A round that makes the array clean has begun: it must end first.
        let is_active = !self.state.is_clean && !self.is_becoming_clean();
        // Until it is recorded that a member failed a crash brings it back, with a bitmap that lacks the latest bits.
        let is_recorded = !core.held.is_holding;
        is_durable && is_active && is_recorded || mutation::is(Mutation::WriteBeforeActive)
    }

    /// Keeps a write that it did not admit until it may start.
    pub(crate) fn keep_waiting(&mut self, key: RequestKey) {
        self.waiting.push_back(key);
    }

    fn is_becoming_clean(&self) -> bool {
        matches!(
            self.step,
            Step::Flushing { becomes_clean: true, .. }
                | Step::WritingBitmap { then: Some(Saying::All { becomes_clean: true }) }
                | Step::WritingSuperblocks {
                    saying: Saying::All { becomes_clean: true } | Saying::Joining { becomes_clean: true }
                }
        )
    }

    /// Asks for the array to be left clean.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Whether everything is said and nothing is under way, after [`Self::stop`].
    pub(crate) fn is_stopped(&self, core: &Core) -> bool {
        let is_said = core.read_only
            || self.state.is_clean
                && !self.is_superblock_due
                && self.changes.is_empty()
                && core.intent.as_ref().is_none_or(|i| !i.is_busy() || self.is_degraded(core));
        self.is_stopping && matches!(self.step, Step::Idle) && is_said && self.writes_in_flight == 0
    }

    /// Whether nothing is under way or waits.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.step, Step::Idle) && self.waiting.is_empty()
    }

    /// When there is something to do.
    pub(crate) fn next_deadline(&self, core: &Core) -> Option<Instant> {
        if core.read_only || !matches!(self.step, Step::Idle) {
            return None;
        }
        // It is looked at again when the log has ended.
        let is_ending =
            core.journal.is_some_and(|journal| matches!(journal.end, LogEnd::Asked | LogEnd::Writing));
        let can_be_clean = !self.state.is_clean && self.becomes_clean_by_itself() && !is_ending;
        let clean =
            (can_be_clean && self.writes_in_flight == 0).then(|| self.idle_since + self.safe_mode_delay);
        clean.into_iter().chain(self.next_age).min()
    }

    /// Whether the array is said to be clean when nothing was written for a while.
    pub(super) fn becomes_clean_by_itself(&self) -> bool {
        self.safe_mode_delay > Nanos(0) && self.state.resync_offset_sectors == MAX_SECTOR
    }

    /// Goes on as far as possible; keys of writes that may start are added to `released`. Answers whether it is to be asked again
    /// when they have: they go to the members before the next round does, as in md, whose flush would else hold them up.
    pub(crate) fn settle(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        now: Instant,
        released: &mut Vec<RequestKey>,
    ) -> bool {
        self.changes.append(&mut core.changes);
        while let Some(range) = core.writes_ended.pop() {
            let range = sync_range(&core.geometry, range);
            if let Some(intent) = &mut core.intent {
                intent.end_write(range);
            }
            self.writes_in_flight -= 1;
            self.idle_since = now;
        }
        if core.read_only {
            // Nothing is recorded any more: what waits is answered by the level's machine.
            released.extend(self.waiting.drain(..));
            if self.pending == 0 {
                self.step = Step::Idle;
            }
            core.release_answers(out);
            return false;
        }
        self.age(core, now);
        while self.pending == 0 && self.advance(core, out, now) {
            if self.is_at_rest() {
                self.release(core, released);
                if !released.is_empty() {
                    return true;
                }
            }
        }
        if mutation::is(Mutation::AcknowledgeBeforeFailureRecorded) {
            core.release_answers(out);
        }
        if core.held.is_holding && self.changes.is_empty() && !self.is_superblock_due && self.is_at_rest() {
            core.release_answers(out);
        }
        self.release(core, released);
        false
    }

    const fn is_at_rest(&self) -> bool {
        matches!(self.step, Step::Idle)
    }

    /// A member answered.
    pub(crate) fn ended(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        member: MemberIndex,
        result: IoResult,
    ) {
        self.pending -= 1;
        if result.is_err() {
            core.fail_member(out, member);
        }
    }

    fn is_degraded(&self, core: &Core) -> bool {
        let in_sync =
            self.members.iter().flatten().filter(|m| matches!(m.standing, Standing::InSync(_))).count();
        in_sync < usize::from(core.geometry.raid_disks()) || !core.incomplete().is_empty()
    }

    /// Whether a member misses what set bits stand for.
    fn keeps_bits(&self, core: &Core) -> bool {
        self.is_degraded(core) && !mutation::is(Mutation::ClearBitsWhileDegraded)
    }

    /// Names the writes whose bits are durable, once the array is active.
    fn release(&mut self, core: &mut Core, released: &mut Vec<RequestKey>) {
        if self.state.is_clean || self.is_becoming_clean() || core.held.is_holding {
            return;
        }
        let mut index = 0;
        while index < self.waiting.len() {
            let key = self.waiting[index];
            let range = core.request(key).request.range;
            let range = sync_range(&core.geometry, range);
            if core.intent.as_ref().is_none_or(|intent| intent.is_durable(range)) {
                self.waiting.remove(index);
                released.push(key);
            } else {
                index += 1;
            }
        }
    }

    /// Panics if the keeper contradicts itself.
    pub(crate) fn check_invariants(&self, core: &Core) {
        assert!(
            self.writes_in_flight >= self.waiting.len() as u64,
            "writes that wait are counted among those in flight"
        );
        if let Some(intent) = &core.intent {
            intent.check();
        }
    }
}

/// What a member is: those in the table's first places hold the slots, behind them are replacements, which their superblocks
/// call so, and spares. How far a slot's member is its superblock says, if it is of version 1: one of 0.90 that comes back is
/// filled all the same.
fn standing(
    metadata: &super::MemberMetadata,
    index: usize,
    geometry: &Geometry,
    recovering: &[(Slot, u64)],
) -> Standing {
    let (recovered, replaces) = match &metadata.superblock {
        Superblock::V1(superblock) => {
            (superblock.recovered_sectors(), superblock.features.contains(Features::REPLACEMENT))
        }
        Superblock::V0(_) => {
            let own = recovering.iter().find(|(slot, _)| slot.index() == index);
            (own.map(|(_, sectors)| *sectors), false)
        }
    };
    let slot = u16::try_from(index).ok().filter(|index| *index < geometry.raid_disks());
    match (slot, metadata.superblock.role(), recovered) {
        (Some(slot), _, Some(sectors)) => Standing::Recovering(Slot(slot), sectors),
        (Some(slot), _, _) => Standing::InSync(Slot(slot)),
        (None, Role::Slot(slot), recovered) if replaces => {
            Standing::Replacing(Slot(slot), recovered.unwrap_or(MAX_SECTOR))
        }
        (None, Role::Journal, _) => Standing::Journal,
        (None, _, _) => Standing::Spare,
    }
}

fn of_version_1(known: &mut Known) -> Option<&mut Superblock1> {
    match &mut known.metadata.superblock {
        Superblock::V1(superblock) => Some(superblock),
        Superblock::V0(_) => None,
    }
}

/// The sectors of the sync range that a range of the array belongs to.
fn sync_range(geometry: &Geometry, range: SectorRange) -> SectorRange {
    match geometry.shape() {
        Shape::Parity(shape) => {
            let (stripe, chunk) = (shape.stripe_sectors(), geometry.chunk_sectors());
            let first = range.start / stripe;
            let end = range.end().div_ceil(stripe);
            // Within one stripe and chunk only these rows are touched; else take whole chunks.
            let (offset, left) = (range.start % chunk, chunk - range.start % chunk);
            if range.count <= left {
                SectorRange::new(first * chunk + offset, range.count)
            } else {
                SectorRange::new(first * chunk, (end - first) * chunk)
            }
        }
        _ => range,
    }
}
