//! Rounds: what is written to the members, in which order, and what each answer lets follow.

use stripewise_format::bitmap::{Bits, SUPERBLOCK_BYTES};
use stripewise_format::superblock_1::MAX_SECTOR;
use stripewise_format::time::Timestamp;

use super::Keeper;
use super::change::{Said, is_failure, leaves_behind};
use crate::array::core::{Core, Owner};
use crate::array::parity::LogEnd;
use crate::io::{ActionQueue, Op, SegList};
use crate::metadata::WriteIntent;
use crate::metadata::superblocks::{ArrayState, Known, Standing, render};
use crate::mutation::{self, Mutation};
use crate::units::{Instant, MemberIndex, Nanos, PAGE_SECTORS, SECTOR_BYTES, SectorRange, Slot};

/// How far a round is.
#[derive(Debug)]
pub(super) enum Step {
    Idle,
    Flushing { becomes_clean: bool, clears: Option<Bits> },
    WritingBitmap { then: Option<Saying> },
    WritingSuperblocks { saying: Saying },
}

/// Which superblocks are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Saying {
    /// Those of another time, as the freshest are: no member may be two events behind when the others go on.
    CatchUp,
    /// Those of members that take a slot from another: a crash then leaves the old member or the new one.
    Joining { becomes_clean: bool },
    /// All.
    All { becomes_clean: bool },
}

/// Whether a write journal, if there is one, has nothing left to be applied; it is asked to have nothing.
fn ends_log(core: &mut Core) -> bool {
    let Some(journal) = &mut core.journal else { return true };
    if journal.end == LogEnd::Open {
        journal.end = LogEnd::Asked;
    }
    journal.end == LogEnd::Empty
}

impl Keeper {
    /// Lets the bitmap's daemon have its round.
    pub(super) fn age(&mut self, core: &mut Core, now: Instant) {
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
    pub(super) fn advance(&mut self, core: &mut Core, out: &mut ActionQueue, now: Instant) -> bool {
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Idle => self.begin(core, out, now),
            Step::Flushing { .. } if self.is_overtaken() => self.begin_again(core, out, now),
            Step::Flushing { becomes_clean, clears } => {
                if self.has_failures() {
                    // Of a member that may not have done it.
                    self.is_flush_due = true;
                } else {
                    core.bad_blocks_flush_ends();
                    let tail = self.journal_tail_flushed.take();
                    self.state.journal_tail_sectors = tail.or(self.state.journal_tail_sectors);
                }
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
                    // The others have not heard of this event, nor must the one that has, if it failed, count as up to date.
                    self.state.events -= 1;
                    self.rounds_owed = 2;
                    self.begin_again(core, out, now)
                }
                Saying::Joining { becomes_clean } => {
                    self.write_superblocks(core, out, now, Saying::All { becomes_clean });
                    true
                }
                Saying::All { becomes_clean } => {
                    self.all_told(core, becomes_clean);
                    true
                }
            },
        }
    }

    /// All members' superblocks say what is so.
    fn all_told(&mut self, core: &mut Core, is_clean: bool) {
        self.state.is_clean = is_clean;
        core.is_sync_recorded |= self.state.resync_offset_sectors == MAX_SECTOR;
        self.said = Said::default();
        if self.rounds_owed > 0 {
            self.rounds_owed -= 1;
            self.is_superblock_due = true;
            core.held.is_holding = true;
        }
        self.members.iter_mut().flatten().for_each(|m| m.is_joining = false);
        if let (Some(journal), Some(tail)) = (&mut core.journal, self.state.journal_tail_sectors) {
            journal.record(tail);
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
            if leaves_behind(&change) {
                self.rounds_owed = self.rounds_owed.max(1);
            }
            self.change(core, change);
        }
        let is_quiet = self.writes_in_flight == 0
            && (self.is_stopping
                || self.becomes_clean_by_itself() && self.idle_since + self.safe_mode_delay <= now);
        let becomes_clean = !self.state.is_clean && is_quiet && ends_log(core);
        let can_clear = !self.keeps_bits(core);
        let clears =
            core.intent.as_ref().filter(|i| can_clear && i.has_settled()).map(WriteIntent::clearable);
        if becomes_clean || clears.is_some() || self.is_flush_due {
            self.is_flush_due = false;
            if !mutation::is(Mutation::MarkCleanWithoutFlush) {
                self.flush(core, out);
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

    /// Asks for a flush of the members of slots and their replacements: of those that are so now, and of those that the superblocks
    /// will call so, for the changes that come after may wait.
    fn flush(&mut self, core: &mut Core, out: &mut ActionQueue) {
        core.bad_blocks_flush_begins();
        self.journal_tail_flushed = core.journal.map(|journal| journal.next_sectors);
        let of_slot = |slot: Slot| {
            let replacement = core.members.replacement(slot).map(|replacement| replacement.member);
            std::iter::once(core.member_of[slot.index()]).chain(replacement)
        };
        let mut members: Vec<MemberIndex> = core.working().flat_map(of_slot).collect();
        for (index, known) in (0..).zip(&self.members) {
            let member = MemberIndex(index);
            if known.as_ref().is_some_and(|known| known.standing.has_slot()) && !members.contains(&member) {
                members.push(member);
            }
        }
        for member in members {
            self.io(core, out, member, Op::Flush, SectorRange::new(0, 0), SegList::default());
        }
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
            let sectors = bytes.len() as u64 / SECTOR_BYTES;
            for &(member, sector) in &places {
                let range = SectorRange::new(sector + u64::from(page.number) * PAGE_SECTORS, sectors);
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
            let sector =
                metadata.superblock.bitmap_sector(metadata.sector).filter(|_| standing.has_slot())?;
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
                known.has_bad_blocks = !list.is_log_empty();
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
}
