//! Which member stands where: in a slot, recovering, as a slot's replacement, as a spare, out.
//!
//! | standing | read | written |
//! |---|---|---|
//! | in a slot | yes | yes |
//! | in a slot, recovering | before its recovery offset | yes |
//! | replacement | before its offset, in place of the slot's member | with the slot's member |
//! | write journal, spare, failed, absent | no | no |
//!
//! # Contract
//! *Ordering.* A recovery offset moves only over sectors whose content is on the member. An answer of a member that has
//! left its slot changes nothing about the slot.

use super::core::{Core, IoRecord, Owner};
use super::slots::SlotSet;
use crate::geometry::Shape;
use crate::io::{Action, ActionQueue, ArrayEvent, IoError, IoResult, Op, SegList};
use crate::metadata::StateChange;
use crate::mutation::{self, Mutation};
use crate::units::{Instant, MemberIndex, Nanos, PAGE_SECTORS, SectorRange, Slot};

/// Corrected read errors, and writes not taken, that a member may have, halved every hour (md's `max_read_errors`).
pub const READ_ERRORS_MAX: u32 = 20;
const READ_ERRORS_HALVED: Nanos = Nanos::from_millis(3_600_000);

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is a slot's member, recovered or not.
    InSlot(Slot),
    /// It is being filled to replace a slot's member.
    Replacement(Slot),
    /// It waits.
    Spare,
    /// It is the write journal.
    Journal,
    /// It is out of use and not yet let go of.
    Failed,
    /// It is none of the array's.
    Absent,
}

/// A write to a slot's member and to its replacement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin {
    record: IoRecord,
    pending: u8,
    result: IoResult,
}

/// A slot's replacement: the member, and how far it is filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replacement {
    pub(crate) member: MemberIndex,
    pub(crate) filled: u64,
}

/// Members beside the slots' own, and what is not whole yet.
#[derive(Debug)]
pub(crate) struct Members {
    /// By member index.
    standing: Vec<Standing>,
    /// Slots whose member is being recovered.
    pub(crate) recovering: SlotSet,
    /// Sectors already there, of slots that are being recovered.
    recovered: Vec<u64>,
    /// Slots that are being replaced.
    pub(crate) replacing: SlotSet,
    replacements: Vec<Option<Replacement>>,
    read_errors: Vec<(u32, Instant)>,
    /// How often a slot came to another member.
    pub(crate) moves: u64,
}

impl Members {
    pub(crate) fn new(raid_disks: u16, spares: u16) -> Self {
        let slots = usize::from(raid_disks);
        let standing = (0..raid_disks).map(|s| Standing::InSlot(Slot(s)));
        Self {
            standing: standing.chain((0..spares).map(|_| Standing::Spare)).collect(),
            recovering: SlotSet::EMPTY,
            recovered: vec![0; slots],
            replacing: SlotSet::EMPTY,
            replacements: vec![None; slots],
            read_errors: vec![(0, Instant::ZERO); slots],
            moves: 0,
        }
    }

    pub(crate) fn standing(&self, member: MemberIndex) -> Standing {
        self.standing.get(member.index()).copied().unwrap_or(Standing::Absent)
    }

    pub(crate) fn set_standing(&mut self, member: MemberIndex, standing: Standing) {
        if self.standing.len() <= member.index() {
            self.standing.resize(member.index() + 1, Standing::Absent);
        }
        self.standing[member.index()] = standing;
    }

    /// The spare of the lowest index.
    pub(crate) fn first_spare(&self) -> Option<MemberIndex> {
        self.standing.iter().position(|s| *s == Standing::Spare).map(|m| MemberIndex(m as u16))
    }

    pub(crate) fn replacement(&self, slot: Slot) -> Option<Replacement> {
        self.replacements[slot.index()]
    }

    /// Sectors from which on a slot that is recovered, or its replacement, lacks its content.
    pub(crate) fn filled(&self, slot: Slot) -> u64 {
        match self.replacements[slot.index()] {
            Some(replacement) => replacement.filled,
            None => self.recovered[slot.index()],
        }
    }

    /// Slots to be recovered or replaced, whose content before `end` is not all there.
    pub(crate) fn unfilled(&self, end: u64) -> SlotSet {
        self.recovering.union(self.replacing).iter().filter(|s| self.filled(*s) < end).collect()
    }
}

impl Core {
    /// Slots that cannot be read up to a member's sector: without a member, or not recovered so far.
    #[inline]
    pub(crate) fn lost(&self, end: u64) -> SlotSet {
        if self.members.recovering.is_empty() {
            return self.failed;
        }
        let lacking = self.members.recovering.iter().filter(|s| self.members.recovered[s.index()] < end);
        lacking.collect::<SlotSet>().union(self.failed)
    }

    /// Whether a slot cannot be read up to a member's sector.
    #[inline]
    pub(crate) fn is_lost(&self, slot: Slot, end: u64) -> bool {
        self.failed.contains(slot)
            || self.members.recovering.contains(slot) && self.members.recovered[slot.index()] < end
    }

    /// Whether parity, or copies, agree up to a sector that resync counts.
    #[inline]
    pub(crate) fn is_redundant(&self, end: u64) -> bool {
        self.resync_from >= end
    }

    /// Slots that lack some of their content.
    pub(crate) fn incomplete(&self) -> SlotSet {
        self.failed.union(self.members.recovering)
    }

    /// Takes a slot's member out of use. Answers whether it was in use before.
    pub(crate) fn fail(&mut self, out: &mut ActionQueue, slot: Slot) -> bool {
        if self.failed.contains(slot) {
            return false;
        }
        self.members.set_standing(self.member_of[slot.index()], Standing::Failed);
        self.changed(StateChange::MemberFailed(slot));
        self.held.is_holding = self.is_kept;
        out.push(Action::Event(ArrayEvent::MemberFailed { slot }));
        self.members.recovering.remove(slot);
        match self.members.replacements[slot.index()].take() {
            // What was to replace it goes on as a member that is recovered.
            Some(Replacement { member, filled }) => {
                self.members.replacing.remove(slot);
                self.take_slot(slot, member, filled);
            }
            None => self.failed.insert(slot),
        }
        self.standing_changed = true;
        if !super::survives(&self.geometry, self.incomplete()) {
            self.take_no_more_writes(out);
        }
        true
    }

    /// Takes a member out of use that did not do what the array's own I/O asked, whatever it is to the array.
    pub(crate) fn fail_member(&mut self, out: &mut ActionQueue, member: MemberIndex) {
        match self.members.standing(member) {
            Standing::InSlot(slot) => self.fail_for_error(out, slot),
            Standing::Replacement(slot) => self.drop_replacement(out, slot, member),
            Standing::Spare => {
                self.members.set_standing(member, Standing::Failed);
                self.changed(StateChange::MemberRemoved(member));
            }
            Standing::Journal => self.fail_journal(out),
            Standing::Failed | Standing::Absent => {}
        }
    }

    /// The write journal did not take something. The array takes no more writes; the superblocks go on naming the journal, so that the
    /// next start follows what it has, or says that it is missing.
    #[cold]
    pub(crate) fn fail_journal(&mut self, out: &mut ActionQueue) {
        let Some(journal) = &mut self.journal else { return };
        if !std::mem::replace(&mut journal.has_failed, true) {
            self.read_only = true;
            out.push(Action::Event(ArrayEvent::JournalFailed));
        }
    }

    /// Takes out of use the member that an I/O failed on, unless it has left its slot since.
    pub(crate) fn fail_member_of(&mut self, out: &mut ActionQueue, record: &IoRecord) {
        if self.is_still_its(record) {
            self.fail_for_error(out, record.slot);
        }
    }

    fn fail_for_error(&mut self, out: &mut ActionQueue, slot: Slot) {
        if self.is_last_copy(slot) {
            self.keep_last_copy(out, slot);
        } else {
            self.fail(out, slot);
        }
    }

    /// Whether a slot of an array of copies is the only one left that has some of its content. As in Linux, it does not fail
    /// for an error: what it has nobody else has. Arrays without metadata are served by several shards, which are told of
    /// failed members alone.
    fn is_last_copy(&self, slot: Slot) -> bool {
        (self.is_kept || self.read_only) && super::is_last_copy(&self.geometry, slot, self.incomplete())
    }

    /// Takes no more writes, nor says of a flush that it was done, and goes on reading the last copy.
    #[cold]
    fn keep_last_copy(&mut self, out: &mut ActionQueue, slot: Slot) {
        if !std::mem::replace(&mut self.has_kept_last_copy, true) {
            self.standing_changed = true;
            // As with one that fails: who has been asked before may have been filled since.
            self.members.moves += 1;
            out.push(Action::Event(ArrayEvent::LastCopyKept { slot }));
        }
        self.take_no_more_writes(out);
    }

    fn take_no_more_writes(&mut self, out: &mut ActionQueue) {
        if !self.read_only {
            self.has_failed = true;
            self.read_only = !mutation::is(Mutation::TakeWritesWhenFailed);
            out.push(Action::Event(ArrayEvent::ArrayFailed));
        }
    }

    /// A member did not take a write, or not give it back. It is listed that it does not hold these sectors, if it has a log for that and
    /// answers at all; otherwise, or if this happened too often, it fails.
    pub(crate) fn write_failed(&mut self, out: &mut ActionQueue, record: &IoRecord, error: IoError) {
        let is_data = matches!(record.op, Op::Read | Op::Write);
        let can_be_listed = error == IoError::Media && is_data && self.is_still_its(record);
        if can_be_listed && self.bad_blocks_of(record.member).is_some_and(|l| l.has_all(record.range)) {
            // It is known already.
        } else if can_be_listed && self.list_bad(record.member, record.range) {
            if !record.is_again {
                self.count_error(out, record.slot);
            }
        } else {
            self.fail_member_of(out, record);
        }
    }

    /// Whether a member that did not take several pages, or not give them back, is to be asked for them one by one: it can be
    /// listed which of them it does not hold. All count as one error.
    pub(crate) fn is_narrowed(&mut self, out: &mut ActionQueue, record: &IoRecord, error: IoError) -> bool {
        let is_data = matches!(record.op, Op::Read | Op::Write);
        let is_long = record.range.count > PAGE_SECTORS;
        let is_for_pages = is_long && is_data && error == IoError::Media && self.has_kept(record);
        if !is_for_pages || self.bad_blocks_of(record.member).is_none() {
            return false;
        }
        self.count_error(out, record.slot);
        self.has_kept(record)
    }

    /// The member that is asked for a slot's sectors: its replacement where it holds them already (as Linux does), else the
    /// slot's own.
    #[inline]
    pub(crate) fn source(&self, slot: Slot, range: SectorRange) -> MemberIndex {
        if self.members.replacing.contains(slot) {
            return self.source_of_two(slot, range);
        }
        self.member_of[slot.index()]
    }

    #[cold]
    fn source_of_two(&self, slot: Slot, range: SectorRange) -> MemberIndex {
        let replacement = self.members.replacement(slot).filter(|r| r.filled >= range.end());
        let held = replacement.map(|r| r.member).filter(|member| !self.is_listed_bad(*member, range));
        held.unwrap_or(self.member_of[slot.index()])
    }

    /// A member did not give what was read. A replacement is given up for it. Answers whether there is another member now that
    /// is asked for the same.
    pub(crate) fn has_another_source(&mut self, out: &mut ActionQueue, record: &IoRecord) -> bool {
        self.drop_replacement(out, record.slot, record.member);
        let is_there = !self.is_lost(record.slot, record.range.end());
        is_there && self.source(record.slot, record.range) != record.member
    }

    /// Whether no other member than the one that was asked has the slot of an I/O by now.
    fn is_still_its(&self, record: &IoRecord) -> bool {
        self.member_of[record.slot.index()] == record.member
    }

    /// Whether the slot of an I/O still has the member that was asked.
    pub(crate) fn has_kept(&self, record: &IoRecord) -> bool {
        !self.failed.contains(record.slot) && self.is_still_its(record)
    }

    /// Puts a member into a slot, to be recovered from a sector on.
    pub(crate) fn take_slot(&mut self, slot: Slot, member: MemberIndex, from: u64) {
        self.failed.remove(slot);
        self.member_of[slot.index()] = member;
        self.members.set_standing(member, Standing::InSlot(slot));
        self.members.recovering.insert(slot);
        self.members.recovered[slot.index()] = from;
        self.members.moves += 1;
        self.members.read_errors[slot.index()].0 = 0;
        self.changed(StateChange::SpareStarted { slot, member });
        if from > 0 {
            self.changed(StateChange::RecoveryOffset { slot, sectors: from });
        }
        self.standing_changed = true;
    }

    /// Begins to fill a member that will replace the slot's.
    pub(crate) fn begin_replacement(&mut self, slot: Slot, member: MemberIndex, filled: u64) {
        self.members.replacing.insert(slot);
        self.members.replacements[slot.index()] = Some(Replacement { member, filled });
        self.members.set_standing(member, Standing::Replacement(slot));
        self.changed(StateChange::ReplacementStarted { slot, member });
        self.standing_changed = true;
    }

    /// A slot's member, or its replacement, holds its content up to a sector.
    pub(crate) fn filled_to(&mut self, slot: Slot, sector: u64) {
        let filled = match &mut self.members.replacements[slot.index()] {
            Some(replacement) => &mut replacement.filled,
            None => &mut self.members.recovered[slot.index()],
        };
        *filled = (*filled).max(sector);
    }

    /// The array was not stopped: what was under way may be on a member and not on its replacement, or the other way round.
    /// Replacements are filled again from the first such place on.
    pub(crate) fn doubt_replacements(&mut self) {
        // RAID-10's bitmap is of the array's sectors, which do not go up with those of its members.
        let is_by_member = !matches!(self.geometry.shape(), Shape::Raid10(_));
        let from = match &self.intent {
            Some(intent) => intent.first_set().map(|sector| if is_by_member { sector } else { 0 }),
            None => Some(0),
        };
        let Some(from) = from else { return };
        for replacement in self.members.replacements.iter_mut().flatten() {
            replacement.filled = replacement.filled.min(from);
        }
    }

    /// A slot's member, or its replacement, holds all of its content.
    pub(crate) fn filled(&mut self, out: &mut ActionQueue, slot: Slot) {
        if let Some(Replacement { member, .. }) = self.members.replacements[slot.index()].take() {
            self.members.replacing.remove(slot);
            self.members.set_standing(self.member_of[slot.index()], Standing::Failed);
            self.members.set_standing(member, Standing::InSlot(slot));
            self.member_of[slot.index()] = member;
            self.members.moves += 1;
            self.members.read_errors[slot.index()].0 = 0;
            self.changed(StateChange::ReplacementDone { slot, member });
            // From now on the old member misses what is written, and it would come back after a crash.
            self.held.is_holding |=
                self.is_kept && !mutation::is(Mutation::AcknowledgeBeforeReplacementRecorded);
        } else {
            self.members.recovering.remove(slot);
            self.changed(StateChange::MemberInSync(slot));
        }
        out.push(Action::Event(ArrayEvent::MemberInSync { slot }));
    }

    /// A replacement does not take writes, or give back what it was filled with: it is given up.
    pub(crate) fn drop_replacement(&mut self, out: &mut ActionQueue, slot: Slot, member: MemberIndex) {
        if self.members.replacement(slot).is_some_and(|r| r.member == member) {
            self.members.replacements[slot.index()] = None;
            self.members.replacing.remove(slot);
            self.members.set_standing(member, Standing::Failed);
            self.changed(StateChange::MemberRemoved(member));
            out.push(Action::Event(ArrayEvent::ReplacementFailed { slot }));
            self.standing_changed = true;
        }
    }

    /// Writes to a slot's member and to its replacement; the answer is one.
    pub(crate) fn twin_io(&mut self, out: &mut ActionQueue, record: IoRecord, fua: bool, segs: SegList) {
        let replacement =
            self.members.replacement(record.slot).expect("a slot being replaced has a replacement");
        let twin = self.twins.insert(Twin { record, pending: 2, result: Ok(()) });
        let owner = Owner::Twin { twin };
        self.send(out, IoRecord { owner, ..record }, fua, segs);
        self.send(out, IoRecord { owner, member: replacement.member, ..record }, fua, segs);
    }

    /// One of two answered. The second brings the answer of the slot's member.
    pub(crate) fn twin_ended(
        &mut self,
        out: &mut ActionQueue,
        key: u64,
        member: MemberIndex,
        result: IoResult,
    ) -> Option<(IoRecord, IoResult)> {
        let twin = self.twins.get_mut(key).expect("a twin lives until its second answer");
        twin.pending -= 1;
        let Twin { record, pending, .. } = *twin;
        if member == record.member {
            twin.result = result;
        } else if result.is_err() {
            self.drop_replacement(out, record.slot, member);
            // It may have taken the slot meanwhile.
            self.fail_member_of(out, &IoRecord { member, ..record });
        }
        if pending > 0 {
            return None;
        }
        self.twins.remove(key).map(|twin| (twin.record, twin.result))
    }

    /// A sector that could not be read was rewritten from the redundancy. A member with too many of them fails, if
    /// the array can do without.
    pub(crate) fn read_error_corrected(&mut self, out: &mut ActionQueue, slot: Slot, range: SectorRange) {
        out.push(Action::Event(ArrayEvent::ReadErrorCorrected { slot, range }));
        self.count_error(out, slot);
    }

    /// A member with too many errors fails, if the array can do without.
    fn count_error(&mut self, out: &mut ActionQueue, slot: Slot) {
        let (count, since) = &mut self.members.read_errors[slot.index()];
        let hours = self.now.since(*since).0 / READ_ERRORS_HALVED.0;
        *count = count.checked_shr(hours as u32).unwrap_or(0) + 1;
        *since = *since + Nanos(hours * READ_ERRORS_HALVED.0);
        let is_past_limit = *count > READ_ERRORS_MAX;
        let without = self.incomplete().union(SlotSet::one(slot));
        if is_past_limit && super::survives(&self.geometry, without) {
            self.fail(out, slot);
        }
    }
}
