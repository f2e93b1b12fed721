//! Linear: members one after the other.

use super::Place;
use crate::units::Slot;

/// The map of a linear array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearShape {
    /// Array sector at which each member ends.
    ends: Vec<u64>,
}

impl LinearShape {
    /// Members of these sizes, each rounded down to `rounding` sectors (0: not rounded).
    pub(super) fn new(member_sectors: &[u64], rounding: u64) -> Self {
        let mut end = 0;
        let ends = member_sectors
            .iter()
            .map(|sectors| {
                end += sectors.checked_div(rounding).map_or(*sectors, |units| units * rounding);
                end
            })
            .collect();
        Self { ends }
    }

    pub(super) fn array_sectors(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    pub(super) fn used_sectors(&self) -> Vec<u64> {
        (0..self.ends.len()).map(|i| self.ends[i] - self.start(i)).collect()
    }

    fn start(&self, index: usize) -> u64 {
        if index == 0 { 0 } else { self.ends[index - 1] }
    }

    fn index(&self, sector: u64) -> usize {
        self.ends.partition_point(|end| *end <= sector)
    }

    pub(super) fn contiguous(&self, sector: u64) -> u64 {
        self.ends[self.index(sector)] - sector
    }

    #[inline(never)]
    pub(super) fn place(&self, sector: u64) -> Place {
        let index = self.index(sector);
        Place { slot: Slot(index as u16), sector: sector - self.start(index) }
    }

    pub(super) fn array_sector(&self, place: Place) -> u64 {
        self.start(place.slot.index()) + place.sector
    }
}
