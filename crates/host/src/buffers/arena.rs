//! The pages behind the stripe cache.

use std::ops::Range;

use stripewise_engine::units::Slot;

use super::{Mapping, PAGE};
use crate::error::HostError;

/// One page per stripe-cache entry and slot, slot after slot, so that a run of entries of one slot is
/// contiguous. Pages become present when first used.
///
/// A page may be lent: its bytes are then a member's own, in memory, until something else is to be written to the page than
/// to the member.
#[derive(Debug)]
pub(crate) struct Arena {
    mapping: Mapping,
    slots: usize,
    slot_bytes: usize,
    slot_stride: usize,
    /// Whose bytes stand for a page's, by slot and entry; null for its own. Empty as long as none was ever lent.
    lent: Vec<*mut u8>,
}

// SAFETY: what is lent is only followed by those that carry out the engine's actions, as the pages themselves.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of `entries` pages for each of `slots`.
    ///
    /// One more page lies between slots: with a stride that is a power of two, the pages of one row
    /// would compete for the same sets of the second-level cache.
    pub(crate) fn new(slots: u16, entries: u32) -> Result<Self, HostError> {
        let slots = usize::from(slots);
        let slot_bytes = entries as usize * PAGE;
        let slot_stride = slot_bytes + PAGE;
        Ok(Self {
            mapping: Mapping::new(slots * slot_stride, "the stripe cache")?,
            slots,
            slot_bytes,
            slot_stride,
            lent: Vec::new(),
        })
    }

    /// The places in `lent` of a run's pages.
    fn places(&self, entry: u32, slot: Slot, offset: u32, bytes: u32) -> Range<usize> {
        let first = slot.index() * (self.slot_bytes / PAGE) + entry as usize;
        first + offset as usize / PAGE..first + (offset as usize + bytes as usize).div_ceil(PAGE)
    }

    /// Lets a member's bytes, which are contiguous, stand for those of a run of pages.
    pub(crate) fn lend(&mut self, entry: u32, slot: Slot, bytes: u32, from: *mut u8) {
        if self.lent.is_empty() {
            self.lent = vec![std::ptr::null_mut(); self.slots * (self.slot_bytes / PAGE)];
        }
        let places = self.places(entry, slot, 0, bytes);
        for (page, lent) in self.lent[places].iter_mut().enumerate() {
            *lent = from.wrapping_add(page * PAGE);
        }
    }

    /// Makes a run's pages their own again, before they are written to; with what they hold, if that is kept.
    ///
    /// # Safety
    /// What is lent is readable, if it is kept.
    pub(crate) unsafe fn reclaim(&mut self, entry: u32, slot: Slot, offset: u32, bytes: u32, is_kept: bool) {
        if self.lent.is_empty() {
            return;
        }
        for place in self.places(entry, slot, offset, bytes) {
            let lent = std::mem::replace(&mut self.lent[place], std::ptr::null_mut());
            if is_kept && !lent.is_null() {
                // SAFETY: the page is within the mapping, and its bytes are of a member's whole page.
                unsafe { self.own(place).copy_from_nonoverlapping(lent, PAGE) };
            }
        }
    }

    /// As [`reclaim`](Self::reclaim) for every page that is lent from within a range of addresses, with its bytes.
    ///
    /// # Safety
    /// The range is readable.
    pub(crate) unsafe fn reclaim_from(&mut self, range: Range<*mut u8>) {
        for place in 0..self.lent.len() {
            let lent = self.lent[place];
            if range.contains(&lent) {
                let bytes = PAGE.min(range.end as usize - lent as usize);
                // SAFETY: as above.
                unsafe { self.own(place).copy_from_nonoverlapping(lent, bytes) };
                self.lent[place] = std::ptr::null_mut();
            }
        }
    }

    /// The page of a place in `lent`, its own.
    fn own(&self, place: usize) -> *mut u8 {
        let (slot, entry) = (place / (self.slot_bytes / PAGE), place % (self.slot_bytes / PAGE));
        self.mapping.base().wrapping_add(slot * self.slot_stride + entry * PAGE)
    }

    /// How many of a run's bytes, from its first on, follow each other in memory.
    pub(crate) fn contiguous(&self, entry: u32, slot: Slot, offset: u32, bytes: u32) -> u32 {
        if self.lent.is_empty() {
            return bytes;
        }
        let places = &self.lent[self.places(entry, slot, offset, bytes)];
        let follows = |pair: &[*mut u8]| match (pair[0].is_null(), pair[1].is_null()) {
            (true, true) => true,
            (false, false) => pair[0].wrapping_add(PAGE) == pair[1],
            _ => false,
        };
        let pages = 1 + places.windows(2).take_while(|pair| follows(pair)).count();
        bytes.min((pages * PAGE - offset as usize % PAGE) as u32)
    }

    /// The address of `bytes` from a page on, which follow each other there as far as
    /// [`contiguous`](Self::contiguous) says.
    ///
    /// # Panics
    /// If the run is not within the slot's pages: the engine named a page it does not have.
    pub(crate) fn address(&self, entry: u32, slot: Slot, offset: u32, bytes: u32) -> *mut u8 {
        let start = entry as usize * PAGE + offset as usize;
        assert!(
            slot.index() < self.slots && start + bytes as usize <= self.slot_bytes,
            "{bytes} bytes from entry {entry} + {offset} of slot {slot} are outside the stripe cache"
        );
        if !self.lent.is_empty() {
            let lent = self.lent[self.places(entry, slot, offset, bytes).start];
            if !lent.is_null() {
                return lent.wrapping_add(offset as usize % PAGE);
            }
        }
        // SAFETY: just checked to be within the slot's pages, which are within the mapping.
        unsafe { self.mapping.base().add(slot.index() * self.slot_stride + start) }
    }

    /// The memory, for registration.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_entries_of_a_slot_are_contiguous_and_aligned() {
        let arena = Arena::new(5, 17).unwrap();
        for slot in 0..5 {
            let first = arena.address(0, Slot(slot), 0, 17 * 4096);
            assert_eq!(first as usize % 4096, 0);
            assert_eq!(arena.address(3, Slot(slot), 512, 512) as usize, first as usize + 3 * 4096 + 512);
        }
    }

    #[test]
    fn lent_pages_are_another_s_until_they_are_reclaimed() {
        let mut arena = Arena::new(2, 8).unwrap();
        let mut member = vec![7_u8; 3 * 4096];
        let from = member.as_mut_ptr();
        let own = |arena: &Arena, entry| arena.address(entry, Slot(1), 0, 4096);
        let pages: Vec<*mut u8> = (0..8).map(|entry| own(&arena, entry)).collect();
        assert_eq!(arena.contiguous(1, Slot(1), 512, 4 * 4096), 4 * 4096);
        arena.lend(2, Slot(1), 2 * 4096 + 512, from);
        assert_eq!(arena.address(3, Slot(1), 100, 50), from.wrapping_add(4196));
        assert_eq!(own(&arena, 1), pages[1]);
        assert_eq!(arena.contiguous(1, Slot(1), 512, 4 * 4096), 3584, "its own page, then a lent one");
        assert_eq!(arena.contiguous(2, Slot(1), 0, 4 * 4096), 3 * 4096);
        assert_eq!(arena.contiguous(2, Slot(0), 0, 4 * 4096), 4 * 4096, "another slot's");
        // SAFETY: `member` lives, and the pages are nobody's else.
        unsafe {
            arena.reclaim(2, Slot(1), 0, 4096, false);
            arena.reclaim(3, Slot(1), 0, 4096, true);
            assert_eq!((own(&arena, 2), own(&arena, 3)), (pages[2], pages[3]));
            assert_eq!((*pages[2], *pages[3]), (0, 7), "the bytes came along where they were wanted");
            arena.reclaim_from(from..from.wrapping_add(member.len()));
            assert_eq!((own(&arena, 4), *pages[4]), (pages[4], 7));
        }
    }

    #[test]
    #[should_panic(expected = "outside the stripe cache")]
    fn a_run_past_the_last_entry_is_refused() {
        Arena::new(2, 17).unwrap().address(16, Slot(1), 512, 4096);
    }
}
