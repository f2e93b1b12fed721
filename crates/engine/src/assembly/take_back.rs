//! Stale members that come back: what they missed is what the write-intent bitmap names.

use super::candidate::Candidate;
use super::{Assembly, AssemblyError, Consistency, SlotState, compare};
use crate::units::Slot;

impl Assembly {
    /// Gives a stale member that is [re-addable](super::Stale::re_addable) its slot back, to be recovered by the
    /// bitmap. Answers whether it is taken: its slot is free, nothing else is doubtful about the array, and it says the
    /// same of the array as the freshest member.
    pub fn take_back(&mut self, candidates: &[Candidate], candidate: usize) -> bool {
        let Some(index) = self.stale.iter().position(|stale| stale.candidate == candidate) else {
            return false;
        };
        let Some(slot) = self.stale[index].re_addable else { return false };
        let is_free = self.slots.get(slot.index()) == Some(&SlotState::Missing);
        let is_alike = compare::check_pair(&candidates[self.freshest], &candidates[candidate]).is_ok();
        if !is_free || !is_alike || !self.bitmap_is_relied_on() {
            return false;
        }
        self.stale.remove(index);
        self.slots[slot.index()] = SlotState::Recovering { candidate, offset_sectors: 0 };
        self.returned.push(slot);
        true
    }

    /// What a candidate that is left out says otherwise of the array than the freshest member, so that it cannot come back.
    pub fn difference(&self, candidates: &[Candidate], candidate: usize) -> Option<AssemblyError> {
        compare::check_pair(&candidates[self.freshest], &candidates[candidate]).err()
    }

    /// Notes which recoveries went by the bitmap when the array was last used, and may again.
    pub(super) fn resume_by_bitmap(&mut self, candidates: &[Candidate]) {
        if !self.bitmap_is_relied_on() {
            return;
        }
        let by_bitmap = |state: &SlotState| match *state {
            SlotState::Recovering { candidate, .. } => candidates[candidate].recovers_by_bitmap(),
            SlotState::InSync { .. } | SlotState::Missing => false,
        };
        let slots = (0..).map(Slot).zip(&self.slots).filter(|(_, state)| by_bitmap(state));
        self.returned = slots.map(|(slot, _)| slot).collect();
    }

    /// A recovery passes over the bitmap's bits, so that a resync due after it would no longer see them.
    fn bitmap_is_relied_on(&self) -> bool {
        self.consistency == Consistency::Bitmap && self.bitmap_damage.is_none() && self.is_clean
    }
}
