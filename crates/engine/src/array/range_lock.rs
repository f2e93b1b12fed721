//! Overlapping writes are ordered: a write waits for those before it that share a sector with it.
//!
//! # Contract
//! *Ordering.* First come, first served: a range waits for every overlapping one that is held or waits before
//! it, so none starves.

use std::collections::VecDeque;

use crate::mutation::{self, Mutation};
use crate::units::SectorRange;

/// Ranges held and waited for. Sorted vectors: as many entries as requests in flight, nothing allocated in
/// the steady state.
#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    held: Vec<SectorRange>,
    waiting: VecDeque<(SectorRange, u64)>,
}

impl RangeLock {
    /// Takes the range now (`true`) or queues it under `key` (`false`).
    pub(crate) fn lock(&mut self, range: SectorRange, key: u64) -> bool {
        let waits = self.overlaps_held(range) || self.waiting.iter().any(|(r, _)| r.overlaps(range));
        if waits && !mutation::is(Mutation::DropOverlapLock) {
            self.waiting.push_back((range, key));
            return false;
        }
        self.hold(range);
        true
    }

    /// Gives a held range back and names the waiting keys that hold theirs from now on.
    pub(crate) fn unlock(&mut self, range: SectorRange, granted: &mut VecDeque<u64>) {
        let mut index = self.held.partition_point(|h| h.start < range.start);
        if mutation::is(Mutation::DropOverlapLock) {
            index = self.held.iter().position(|h| *h == range).unwrap_or(index);
        }
        assert_eq!(self.held.get(index), Some(&range), "only a held range is given back");
        self.held.remove(index);
        let mut index = 0;
        while index < self.waiting.len() {
            let (range, key) = self.waiting[index];
            let behind_another = self.waiting.iter().take(index).any(|(r, _)| r.overlaps(range));
            if behind_another || self.overlaps_held(range) {
                index += 1;
            } else {
                self.waiting.remove(index);
                self.hold(range);
                granted.push_back(key);
            }
        }
    }

    /// Whether nothing is held or waited for.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    fn hold(&mut self, range: SectorRange) {
        let index = self.held.partition_point(|h| h.start < range.start);
        self.held.insert(index, range);
    }

    fn overlaps_held(&self, range: SectorRange) -> bool {
        // Held ranges do not overlap each other, so only the neighbours can overlap this one.
        let index = self.held.partition_point(|h| h.start < range.start);
        self.held.get(index).is_some_and(|h| h.overlaps(range))
            || index > 0 && self.held[index - 1].overlaps(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(start: u64, count: u64) -> SectorRange {
        SectorRange::new(start, count)
    }

    #[test]
    fn overlapping_ranges_are_granted_in_order() {
        let mut lock = RangeLock::default();
        let mut granted = VecDeque::new();
        assert!(lock.lock(range(0, 10), 1));
        assert!(lock.lock(range(10, 10), 2));
        assert!(!lock.lock(range(5, 10), 3));
        assert!(!lock.lock(range(14, 10), 4), "waits behind 3, which waits");
        assert!(lock.lock(range(30, 1), 5));
        lock.unlock(range(10, 10), &mut granted);
        assert!(granted.is_empty(), "3 still waits for 1, and 4 for 3");
        lock.unlock(range(0, 10), &mut granted);
        assert_eq!(granted, [3]);
        granted.clear();
        lock.unlock(range(5, 10), &mut granted);
        assert_eq!(granted, [4]);
        lock.unlock(range(14, 10), &mut granted);
        lock.unlock(range(30, 1), &mut granted);
        assert!(lock.is_idle());
    }
}
