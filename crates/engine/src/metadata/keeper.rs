//! The machine that keeps superblocks and bitmap; see the module's parent.

use std::collections::VecDeque;

use stripewise_format::bitmap::{Bits, SUPERBLOCK_BYTES};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, MAX_SECTOR, Role};
use stripewise_format::time::Timestamp;

use super::superblocks::{ArrayState, Known, Standing, render};
use super::{MemberMetadata, MetadataConfig, StateChange, WriteIntent};
use crate::array::core::{Core, Owner, RequestKey};
use crate::array::slots::SlotSet;
use crate::geometry::{Geometry, Shape};
use crate::io::{ActionQueue, IoResult, Op, SegList};
use crate::mutation::{self, Mutation};
use crate::units::{Instant, MemberIndex, Nanos, PAGE_SECTORS, SECTOR_BYTES, SectorRange, Slot};

/// How far a round is.
#[derive(Debug)]
enum Step {
    Idle,
    Flushing { becomes_clean: bool, clears: Option<Bits> },
    WritingBitmap { then: Option<Saying> },
    WritingSuperblocks { saying: Saying },
}

/// Which superblocks are written.
#[derive(Clone, Copy, Debug)]
enum Saying {
    /// Those of another time, as the freshest are: no member may be two events behind when the others go on.
    CatchUp,
    /// Those of members that take a slot from another: a crash then leaves the old member or the new one.
    Joining { becomes_clean: bool },
    /// All.
    All { becomes_clean: bool },
}

/// What the round says that the next must not build upon before it is on the members.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// Slots that members were put into, to be filled.
    started: SlotSet,
    /// Slots that were filled.
    filled: SlotSet,
}

impl Said {
    fn note(&mut self, change: StateChange) {
        match change {
            StateChange::SpareStarted { slot, .. } | StateChange::ReplacementStarted { slot, .. } => {
                self.started.insert(slot);
            }
            StateChange::MemberInSync(slot) => self.filled.insert(slot),
            _ => {}
        }
    }

    /// Whether a change must wait until the members were told what this round says: nobody holds a slot that the others
    /// do not give it, and no slot is lost while another's member may not know yet that it is whole.
    fn forbids(&self, change: &StateChange) -> bool {
        match *change {
            StateChange::MemberInSync(slot) | StateChange::ReplacementDone { slot, .. } => {
                self.started.contains(slot)
            }
            StateChange::MemberFailed(slot) => !self.filled.is_empty() && !self.filled.contains(slot),
            _ => false,
        }
    }
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Keeper {
    members: Vec<Option<Known>>,
    /// The superblock of a member that is about to come in.
    introduced: Option<(MemberIndex, MemberMetadata)>,
    state: ArrayState,
    clock_start: Timestamp,
    safe_mode_delay: Nanos,
    step: Step,
    /// Answers awaited by the step.
    pending: u32,
    /// Superblocks no longer say what is so.
    is_superblock_due: bool,
    said: Said,
    /// What they are to say holds only once the members' data are on their media.
    is_flush_due: bool,
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
    pub(crate) fn new(config: &MetadataConfig, geometry: &Geometry, resync_from: u64) -> Self {
        let superblocks = || config.members.iter().flatten().map(|m| &m.superblock);
        let events = superblocks().map(Superblock::events).max().unwrap_or(0);
        // A spare may be of a time that the members have lost, with as many events.
        let of_slots =
            config.members.iter().take(geometry.raid_disks().into()).flatten().map(|m| &m.superblock);
        let newest = of_slots.clone().map(Superblock::events).max().unwrap_or(0);
        let is_clean =
            of_slots.filter(|s| s.events() == newest).all(|s| s.resync_offset_sectors() == MAX_SECTOR);
        let members: Vec<Option<Known>> = config
            .members
            .iter()
            .enumerate()
            .map(|(index, member)| {
                let metadata = member.clone()?;
                let standing = standing(&metadata, index, geometry);
                let has_bad_blocks = metadata.bad_blocks.as_ref().is_some_and(|list| !list.is_empty());
                let is_behind = metadata.superblock.events() != events;
                Some(Known { metadata, standing, has_bad_blocks, is_behind, is_joining: false })
            })
            .collect();
        Self {
            members,
            introduced: None,
            state: ArrayState {
                events,
                is_clean,
                resync_offset_sectors: resync_from,
                utime: config.clock_start,
            },
            clock_start: config.clock_start,
            safe_mode_delay: config.safe_mode_delay,
            step: Step::Idle,
            pending: 0,
            is_superblock_due: superblocks().any(|s| s.events() != events),
            said: Said::default(),
            is_flush_due: false,
            changes: VecDeque::new(),
            waiting: VecDeque::new(),
            writes_in_flight: 0,
            idle_since: Instant::ZERO,
            next_age: None,
            is_stopping: false,
        }
    }

    /// Takes note of the superblock of a member that is about to come in; it replaces what was known of it.
    pub(crate) fn introduce(&mut self, member: MemberIndex, metadata: MemberMetadata) {
        self.introduced = Some((member, metadata));
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

    /// Whether the members were left with writes under way.
    pub(crate) const fn is_dirty(&self) -> bool {
        !self.state.is_clean
    }

    /// When there is something to do.
    pub(crate) fn next_deadline(&self, core: &Core) -> Option<Instant> {
        if core.read_only || !matches!(self.step, Step::Idle) {
            return None;
        }
        let can_be_clean = !self.state.is_clean && self.state.resync_offset_sectors == MAX_SECTOR;
        let clean =
            (can_be_clean && self.writes_in_flight == 0).then(|| self.idle_since + self.safe_mode_delay);
        clean.into_iter().chain(self.next_age).min()
    }

    /// Goes on as far as possible; keys of writes that may start are added to `released`.
    pub(crate) fn settle(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        now: Instant,
        released: &mut Vec<RequestKey>,
    ) {
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
            return core.release_answers(out);
        }
        self.age(core, now);
        while self.pending == 0 && self.advance(core, out, now) {}
        if mutation::is(Mutation::AcknowledgeBeforeFailureRecorded) {
            core.release_answers(out);
        }
        if core.held.is_holding && self.changes.is_empty() && !self.is_superblock_due && self.is_at_rest() {
            core.release_answers(out);
        }
        self.release(core, released);
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

    /// Lets the bitmap's daemon have its round.
    fn age(&mut self, core: &mut Core, now: Instant) {
        let Some(intent) = &mut core.intent else { return };
        let sleep = Nanos::from_millis(u64::from(intent.daemon_sleep_seconds()) * 1000);
        match self.next_age {
            _ if self.is_stopping && self.writes_in_flight == 0 => intent.age(true),
            Some(at) if at <= now => {
                intent.age(false);
                self.next_age = intent.is_busy().then(|| now + sleep);
            }
            None if intent.is_busy() => self.next_age = Some(now + sleep),
            _ => {}
        }
        if self.keeps_bits(core) {
            // Bits are kept for the members that miss what they stand for.
            self.next_age = None;
        }
    }

    /// Takes the next step of a round, or begins one. Answers whether it did.
    fn advance(&mut self, core: &mut Core, out: &mut ActionQueue, now: Instant) -> bool {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Idle => self.begin(core, out, now),
            Step::Flushing { .. } if self.is_overtaken() => self.begin_again(core, out, now),
            Step::Flushing { becomes_clean, clears } => {
                // A member that failed meanwhile may lack what the bits stand for.
                let clears = clears.filter(|_| !self.keeps_bits(core));
                if let (Some(intent), Some(bits)) = (&mut core.intent, clears) {
                    intent.clear(&bits);
                }
                // A write that came meanwhile keeps the array active, and a member that may lack what it took.
                let becomes =
                    (becomes_clean && self.writes_in_flight == 0 && !self.has_failures()).then_some(true);
                let stays_clean = self.state.is_clean && self.waiting.is_empty();
                let says = becomes.or(self.is_superblock_due.then_some(stays_clean));
                self.write_bitmap(core, out, says.map(|becomes_clean| Saying::All { becomes_clean }));
                true
            }
            Step::WritingBitmap { then } => {
                if let Some(intent) = &mut core.intent {
                    intent.written();
                }
                match then {
                    Some(Saying::All { becomes_clean }) => {
                        self.state.events += 1;
                        // A list that changed since the logs were asked for has another round.
                        self.is_superblock_due = core.has_changed_bad_blocks();
                        let is_joining = self.members.iter().flatten().any(|m| m.is_joining);
                        let joining = is_joining.then_some(Saying::Joining { becomes_clean });
                        let first = joining.unwrap_or(Saying::All { becomes_clean });
                        self.write_superblocks(core, out, now, first);
                    }
                    Some(saying) => self.write_superblocks(core, out, now, saying),
                    None => {}
                }
                true
            }
            Step::WritingSuperblocks { saying } => match saying {
                Saying::CatchUp => {
                    self.members.iter_mut().flatten().for_each(|m| m.is_behind = false);
                    true
                }
                Saying::Joining { .. } if self.is_overtaken() => {
                    // The others have not heard of this event.
                    self.state.events -= 1;
                    self.begin_again(core, out, now)
                }
                Saying::Joining { becomes_clean } => {
                    self.write_superblocks(core, out, now, Saying::All { becomes_clean });
                    true
                }
                Saying::All { becomes_clean } => {
                    self.state.is_clean = becomes_clean;
                    self.said = Said::default();
                    self.members.iter_mut().flatten().for_each(|m| m.is_joining = false);
                    true
                }
            },
        }
    }

    fn has_failures(&self) -> bool {
        self.changes.iter().any(is_failure)
    }

    /// Whether members failed during the round whose failure it can say: what it was to say of them does not hold.
    fn is_overtaken(&self) -> bool {
        self.changes.iter().take_while(|change| !self.said.forbids(change)).any(is_failure)
    }

    fn begin_again(&mut self, core: &mut Core, out: &mut ActionQueue, now: Instant) -> bool {
        self.is_superblock_due = true;
        self.is_flush_due = true;
        self.begin(core, out, now)
    }

    fn begin(&mut self, core: &mut Core, out: &mut ActionQueue, now: Instant) -> bool {
        if self.members.iter().flatten().any(|m| m.is_behind) {
            if let Some(intent) = &mut core.intent {
                intent.dirty_all();
            }
            self.write_bitmap(core, out, Some(Saying::CatchUp));
            return true;
        }
        while self.changes.front().is_some_and(|change| !self.said.forbids(change))
            && let Some(change) = self.changes.pop_front()
        {
            self.change(core, change);
        }
        let is_quiet = self.writes_in_flight == 0
            && (self.is_stopping
                || self.state.resync_offset_sectors == MAX_SECTOR
                    && self.idle_since + self.safe_mode_delay <= now);
        let becomes_clean = !self.state.is_clean && is_quiet;
        let can_clear = !self.keeps_bits(core);
        let clears =
            core.intent.as_ref().filter(|i| can_clear && i.has_settled()).map(WriteIntent::clearable);
        if becomes_clean || clears.is_some() || self.is_flush_due {
            self.is_flush_due = false;
            for slot in core.working().filter(|_| !mutation::is(Mutation::MarkCleanWithoutFlush)) {
                let replacement = core.members.replacement(slot).map(|replacement| replacement.member);
                for member in std::iter::once(core.member_of[slot.index()]).chain(replacement) {
                    self.io(core, out, member, Op::Flush, SectorRange::new(0, 0), SegList::default());
                }
            }
            self.step = Step::Flushing { becomes_clean, clears };
            return true;
        }
        let becomes_active = self.state.is_clean && !self.waiting.is_empty();
        let has_pages = core.intent.as_ref().is_some_and(WriteIntent::has_dirty_pages);
        if becomes_active || self.is_superblock_due {
            let becomes_clean = self.state.is_clean && !becomes_active;
            self.write_bitmap(core, out, Some(Saying::All { becomes_clean }));
            return true;
        }
        if has_pages {
            self.write_bitmap(core, out, None);
        }
        has_pages
    }

    /// Writes the bitmap's changed pages; `then` says which superblocks follow, if any.
    fn write_bitmap(&mut self, core: &mut Core, out: &mut ActionQueue, then: Option<Saying>) {
        self.step = Step::WritingBitmap { then };
        if then.is_some() {
            self.write_bad_blocks(core, out);
        }
        let is_degraded = self.is_degraded(core);
        let Some(mut intent) = core.intent.take() else { return };
        let places = self.bitmap_places();
        if let Some(saying) = then {
            let ahead = u64::from(!matches!(saying, Saying::CatchUp));
            intent.set_events(self.state.events + ahead, is_degraded);
        }
        for page in intent.take_dirty_pages() {
            let is_blank = mutation::is(Mutation::SkipBitmapSet);
            let mut bytes = page.bytes.clone();
            if is_blank {
                bytes[SUPERBLOCK_BYTES..].fill(0);
            }
            for &(member, sector) in &places {
                let range = SectorRange::new(sector + u64::from(page.number) * PAGE_SECTORS, PAGE_SECTORS);
                let segs = out.add_metadata(&bytes);
                self.io(core, out, member, Op::Write, range, segs);
            }
        }
        core.intent = Some(intent);
    }

    /// The members of slots, and those that are to become so, with the sectors of their bitmaps.
    fn bitmap_places(&self) -> Vec<(MemberIndex, u64)> {
        let places = self.members.iter().enumerate().filter_map(|(index, known)| {
            let Known { metadata, standing, .. } = known.as_ref()?;
            let holds = !matches!(standing, Standing::Spare | Standing::Faulty);
            let sector = metadata.superblock.bitmap_sector(metadata.sector).filter(|_| holds)?;
            Some((MemberIndex(index as u16), sector))
        });
        places.collect()
    }

    /// Writes the logs of members whose lists changed.
    fn write_bad_blocks(&mut self, core: &mut Core, out: &mut ActionQueue) {
        for index in 0..self.members.len() {
            let member = MemberIndex(index as u16);
            let is_in_use = self.members[index].as_ref().is_some_and(|m| m.standing != Standing::Faulty);
            let Some(list) = core.bad_blocks_of(member).filter(|list| list.is_changed) else { continue };
            list.is_changed = false;
            if let Some(known) = &mut self.members[index] {
                known.has_bad_blocks = !list.is_empty();
            }
            if let Ok((range, bytes)) = list.log()
                && is_in_use
            {
                let segs = out.add_metadata(&bytes);
                self.io(core, out, member, Op::Write, range, segs);
            }
        }
    }

    fn write_superblocks(&mut self, core: &mut Core, out: &mut ActionQueue, now: Instant, saying: Saying) {
        self.step = Step::WritingSuperblocks { saying };
        self.state.utime = Timestamp::from_seconds(self.clock_start.seconds() + now.0 / 1_000_000_000);
        let is_clean = match saying {
            Saying::CatchUp => self.state.is_clean,
            Saying::Joining { becomes_clean } | Saying::All { becomes_clean } => becomes_clean,
        };
        let state = ArrayState { is_clean, ..self.state };
        for index in 0..self.members.len() {
            let member = MemberIndex(index as u16);
            let Some(known) = &self.members[index] else { continue };
            let is_told = match saying {
                Saying::CatchUp => known.is_behind,
                Saying::Joining { .. } => known.is_joining,
                Saying::All { .. } => !known.is_joining,
            };
            if known.standing == Standing::Faulty || !is_told {
                continue;
            }
            let sector = known.metadata.sector;
            let Some(superblock) = render(&self.members, member, &state) else { continue };
            let bytes = superblock.to_bytes();
            let range = SectorRange::new(sector, bytes.len() as u64 / SECTOR_BYTES);
            let segs = out.add_metadata(&bytes);
            self.io(core, out, member, Op::Write, range, segs);
        }
    }

    fn io(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        member: MemberIndex,
        op: Op,
        range: SectorRange,
        segs: SegList,
    ) {
        self.pending += 1;
        core.device_io(out, member, Owner::Metadata { member }, op, range, segs);
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

    fn change(&mut self, core: &mut Core, change: StateChange) {
        if mutation::is(Mutation::SkipSuperblockOnFailure) {
            return;
        }
        self.is_superblock_due = true;
        self.said.note(change);
        self.welcome(core, change);
        self.is_flush_due |= speaks_of_data(change) && !mutation::is(Mutation::RecordWithoutFlush);
        let stand = |members: &mut Vec<Option<Known>>, member: MemberIndex, standing: Standing| {
            if let Some(Some(known)) = members.get_mut(member.index()) {
                known.standing = standing;
            }
        };
        let of_slot = |members: &[Option<Known>], slot| {
            members
                .iter()
                .position(|m| {
                    m.as_ref().is_some_and(|m| {
                        matches!(m.standing, Standing::InSync(s) | Standing::Recovering(s, _) if s == slot)
                    })
                })
                .map(|index| MemberIndex(index as u16))
        };
        match change {
            StateChange::MemberFailed(slot) => {
                if let Some(member) = of_slot(&self.members, slot) {
                    stand(&mut self.members, member, Standing::Faulty);
                }
            }
            StateChange::SpareStarted { slot, member } => {
                stand(&mut self.members, member, Standing::Recovering(slot, 0));
                if let Some(Some(known)) = self.members.get_mut(member.index()) {
                    known.forget_bitmap_recovery();
                }
            }
            StateChange::RecoveryOffset { slot, sectors } => {
                for known in self.members.iter_mut().flatten() {
                    match &mut known.standing {
                        Standing::Recovering(s, at) | Standing::Replacing(s, at) if *s == slot => {
                            *at = sectors;
                        }
                        _ => {}
                    }
                }
            }
            StateChange::MemberInSync(slot) => {
                if let Some(member) = of_slot(&self.members, slot) {
                    stand(&mut self.members, member, Standing::InSync(slot));
                }
            }
            StateChange::ReplacementStarted { slot, member } => {
                stand(&mut self.members, member, Standing::Replacing(slot, 0));
            }
            StateChange::ReplacementDone { slot, member } => {
                if let Some(old) = of_slot(&self.members, slot) {
                    stand(&mut self.members, old, Standing::Faulty);
                }
                stand(&mut self.members, member, Standing::InSync(slot));
                if let Some(Some(known)) = self.members.get_mut(member.index()) {
                    known.is_joining = true;
                }
            }
            StateChange::ResyncOffset(sectors) => self.state.resync_offset_sectors = sectors,
            StateChange::MemberRemoved(member) => {
                if let Some(place) = self.members.get_mut(member.index()) {
                    *place = None;
                }
            }
            StateChange::SpareAdded(member) => stand(&mut self.members, member, Standing::Spare),
            // The list itself is the core's.
            StateChange::BadBlocks(_) => {}
        }
    }

    /// Makes ready for a member that comes in.
    fn welcome(&mut self, core: &mut Core, change: StateChange) {
        let (member, takes_slot) = match change {
            StateChange::SpareAdded(member) => (member, false),
            StateChange::SpareStarted { member, .. } | StateChange::ReplacementStarted { member, .. } => {
                (member, true)
            }
            _ => return,
        };
        if let Some(intent) = core.intent.as_mut().filter(|_| takes_slot) {
            // Its bitmap is of another time, or none.
            intent.dirty_all();
        }
        let Some((_, metadata)) = self.introduced.take_if(|(introduced, _)| *introduced == member) else {
            return;
        };
        if self.members.len() <= member.index() {
            self.members.resize_with(member.index() + 1, || None);
        }
        let has_bad_blocks = metadata.bad_blocks.as_ref().is_some_and(|list| !list.is_empty());
        self.members[member.index()] = Some(Known {
            metadata,
            standing: Standing::Spare,
            has_bad_blocks,
            is_behind: false,
            is_joining: false,
        });
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

/// Whether a change says that a member is out of use.
const fn is_failure(change: &StateChange) -> bool {
    matches!(change, StateChange::MemberFailed(_) | StateChange::MemberRemoved(_))
}

/// Whether a change says that members hold content.
const fn speaks_of_data(change: StateChange) -> bool {
    matches!(
        change,
        StateChange::RecoveryOffset { .. }
            | StateChange::MemberInSync(_)
            | StateChange::ReplacementDone { .. }
            | StateChange::ResyncOffset(_)
    )
}

/// What a member is, by its own superblock: those in the table's first places hold the slots, behind them are
/// replacements, which their superblocks call so, and spares.
fn standing(metadata: &super::MemberMetadata, index: usize, geometry: &Geometry) -> Standing {
    let (recovered, replaces) = match &metadata.superblock {
        Superblock::V1(superblock) => {
            (superblock.recovered_sectors(), superblock.features.contains(Features::REPLACEMENT))
        }
        Superblock::V0(_) => (None, false),
    };
    let slot = u16::try_from(index).ok().filter(|index| *index < geometry.raid_disks());
    match (slot, metadata.superblock.role(), recovered) {
        (Some(slot), Role::Slot(_), Some(sectors)) => Standing::Recovering(Slot(slot), sectors),
        (Some(slot), _, _) => Standing::InSync(Slot(slot)),
        (None, Role::Slot(slot), recovered) if replaces => {
            Standing::Replacing(Slot(slot), recovered.unwrap_or(MAX_SECTOR))
        }
        (None, _, _) => Standing::Spare,
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
