//! What the array knows of its members' bad blocks.

use super::core::{Core, IoRecord};
use super::slots::SlotSet;
use crate::geometry::Place;
use crate::metadata::{BadBlocks, StateChange};
use crate::units::{MemberIndex, SectorRange, Slot};

impl Core {
    /// A member came in, with its list of bad blocks if it has a log.
    pub(crate) fn set_bad_blocks(&mut self, member: MemberIndex, list: Option<BadBlocks>) {
        if self.bad_blocks.len() <= member.index() {
            self.bad_blocks.resize(member.index() + 1, None);
        }
        self.bad_blocks[member.index()] = list;
        self.look_for_bad_blocks();
    }

    /// A member's list of bad blocks.
    pub(crate) fn bad_blocks_of(&mut self, member: MemberIndex) -> Option<&mut BadBlocks> {
        self.bad_blocks.get_mut(member.index())?.as_mut()
    }

    /// Whether the member that is asked for a slot's sectors is known not to hold some of them.
    #[inline]
    pub(crate) fn is_bad(&self, slot: Slot, range: SectorRange) -> bool {
        if !self.has_bad_blocks {
            return false;
        }
        self.is_listed_bad(self.source(slot, range), range)
    }

    /// Whether a member's list says that it does not hold sectors of a range.
    pub(crate) fn is_listed_bad(&self, member: MemberIndex, range: SectorRange) -> bool {
        matches!(self.bad_blocks.get(member.index()), Some(Some(list)) if list.has(range))
    }

    /// Whether a slot's member has sectors and can give them.
    #[inline]
    pub(crate) fn can_read(&self, slot: Slot, range: SectorRange) -> bool {
        !self.is_lost(slot, range.end()) && !self.is_bad(slot, range)
    }

    /// Whether a place's member has so many sectors from there on and can give them.
    #[inline]
    pub(crate) fn can_read_at(&self, place: Place, count: u64) -> bool {
        self.can_read(place.slot, SectorRange::new(place.sector, count))
    }

    /// Slots of whose sectors in a range some are known not to be held.
    #[inline]
    pub(crate) fn bad(&self, range: SectorRange) -> SlotSet {
        if !self.has_bad_blocks {
            return SlotSet::EMPTY;
        }
        self.working().filter(|slot| self.is_bad(*slot, range)).collect()
    }

    /// The first sector after `sector` of a slot where bad blocks begin or end: its member's, or those of its replacement and
    /// what that holds.
    pub(crate) fn next_bad_edge(&self, slot: Slot, sector: u64) -> Option<u64> {
        let edge_of = |member: MemberIndex| self.bad_blocks.get(member.index())?.as_ref()?.next_edge(sector);
        let own = edge_of(self.member_of[slot.index()]);
        let Some(replacement) = self.members.replacement(slot) else { return own };
        let filled = Some(replacement.filled).filter(|filled| *filled > sector);
        [own, edge_of(replacement.member), filled].into_iter().flatten().min()
    }

    /// What the lists of a slot's member and of its replacement name.
    pub(crate) fn listed_of(&self, slot: Slot) -> impl Iterator<Item = SectorRange> {
        let replacement = self.members.replacement(slot).map(|replacement| replacement.member);
        let members = [Some(self.member_of[slot.index()]), replacement].into_iter().flatten();
        members.filter_map(|member| self.bad_blocks.get(member.index())?.as_ref()).flat_map(BadBlocks::listed)
    }

    /// Whether any member has bad blocks.
    #[inline]
    pub(crate) const fn has_bad_blocks(&self) -> bool {
        self.has_bad_blocks
    }

    /// Whether any member, in a slot or not, has bad blocks among these sectors.
    #[inline]
    pub(crate) fn has_bad_among(&self, range: SectorRange) -> bool {
        self.has_bad_blocks && self.bad_blocks.iter().flatten().any(|list| list.has(range))
    }

    fn look_for_bad_blocks(&mut self) {
        self.has_bad_blocks = self.bad_blocks.iter().flatten().any(|list| !list.is_empty());
    }

    /// Whether a list is not yet on its member.
    pub(crate) fn has_changed_bad_blocks(&self) -> bool {
        self.bad_blocks.iter().flatten().any(|list| list.is_changed)
    }

    /// Lists sectors that a member does not hold. Answers whether its log takes them.
    pub(crate) fn list_bad(&mut self, member: MemberIndex, range: SectorRange) -> bool {
        let is_listed = self.bad_blocks_of(member).is_some_and(|list| list.add(range));
        if is_listed {
            self.has_bad_blocks = true;
            self.held.is_holding = self.is_kept;
            self.changed(StateChange::BadBlocksListed);
        }
        is_listed
    }

    /// A member took a write: what it holds now is good.
    pub(crate) fn written(&mut self, record: &IoRecord) {
        if !self.has_bad_blocks {
            return;
        }
        let is_struck = self.bad_blocks_of(record.member).is_some_and(|list| list.remove(record.range));
        if is_struck {
            // Where nobody else has it, it can be read after a power cut only once the log does not name it.
            self.held.is_holding |= self.is_kept && !self.failed.is_empty();
            self.look_for_bad_blocks();
            self.changed(StateChange::BadBlocksStruck);
        }
    }

    /// A flush of all members was asked for.
    pub(crate) fn bad_blocks_flush_begins(&mut self) {
        self.bad_blocks.iter_mut().flatten().for_each(BadBlocks::flush_begins);
    }

    /// That flush is done.
    pub(crate) fn bad_blocks_flush_ends(&mut self) {
        self.bad_blocks.iter_mut().flatten().for_each(BadBlocks::flush_ends);
    }
}
