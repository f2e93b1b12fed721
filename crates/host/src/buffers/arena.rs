//! The pages behind the stripe cache.

use stripewise_engine::units::Slot;

use super::{Mapping, PAGE};
use crate::error::HostError;

/// One page per stripe-cache entry and slot, slot after slot, so that a run of entries of one slot is
/// contiguous. Pages become present when first used.
#[derive(Debug)]
pub(crate) struct Arena {
    mapping: Mapping,
    slots: usize,
    slot_bytes: usize,
    slot_stride: usize,
}

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
        })
    }

    /// The address of `bytes` from a page on.
    ///
    /// # Panics
    /// If the run is not within the slot's pages: the engine named a page it does not have.
    pub(crate) fn address(&self, entry: u32, slot: Slot, offset: u32, bytes: u32) -> *mut u8 {
        let start = entry as usize * PAGE + offset as usize;
        assert!(
            slot.index() < self.slots && start + bytes as usize <= self.slot_bytes,
            "{bytes} bytes from entry {entry} + {offset} of slot {slot} are outside the stripe cache"
        );
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
    #[should_panic(expected = "outside the stripe cache")]
    fn a_run_past_the_last_entry_is_refused() {
        Arena::new(2, 17).unwrap().address(16, Slot(1), 512, 4096);
    }
}
