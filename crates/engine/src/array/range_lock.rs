//! Overlapping writes are ordered: a write waits for those before it that share a sector with it.
//!
//! # Contract
//! *Ordering.* First come, first served: a range waits for every overlapping one that is held or waits before
//! it, so none starves.

use std::collections::VecDeque;

use super::chains::Chains;
use crate::mutation::{self, Mutation};
use crate::units::SectorRange;

/// Sectors of a block, as a shift. Ranges within one block are found by its number.
const BLOCK_SHIFT: u32 = 7;

/// Ranges held and waited for. As many records as requests in flight, nothing allocated in the steady state.
#[derive(Debug)]
pub(crate) struct RangeLock {
    /// Held ranges within one block, at the places that `by_block` names.
    short: Vec<SectorRange>,
    free: Vec<u32>,
    by_block: Chains,
    /// Other held ranges, sorted.
    long: Vec<SectorRange>,
    waiting: VecDeque<(SectorRange, u64)>,
}

impl Default for RangeLock {
    fn default() -> Self {
        let (short, free, long, waiting) = (Vec::new(), Vec::new(), Vec::new(), VecDeque::new());
        Self { short, free, by_block: Chains::new(0), long, waiting }
    }
}

/// The block a range begins in.
const fn block(range: SectorRange) -> u64 {
    range.start >> BLOCK_SHIFT
}

/// Whether a range lies within one block.
#[inline]
const fn is_short(range: SectorRange) -> bool {
    block(range) == last_block(range)
}

/// The block a range ends in.
const fn last_block(range: SectorRange) -> u64 {
    range.end().saturating_sub(1) >> BLOCK_SHIFT
}

impl RangeLock {
    /// Takes the range now (`true`) or queues it under `key` (`false`).
    #[inline]
    pub(crate) fn lock(&mut self, range: SectorRange, key: u64) -> bool {
        let waits = self.overlaps_held(range) || self.waiting.iter().any(|(r, _)| r.overlaps(range));
        if waits && !mutation::is(Mutation::DropOverlapLock) {
            self.waiting.push_back((range, key));
            return false;
        }
        self.hold(range);
        true
    }

    /// Takes the range if it is free. Answers whether it did.
    #[inline]
    pub(crate) fn try_lock(&mut self, range: SectorRange) -> bool {
        let is_free = self.waiting.is_empty() && !self.overlaps_held(range);
        if is_free {
            self.hold(range);
        }
        is_free
    }

    /// Gives a held range back and names the waiting keys that hold theirs from now on.
    #[inline]
    pub(crate) fn unlock(&mut self, range: SectorRange, granted: &mut VecDeque<u64>) {
        let Self { short, by_block, .. } = self;
        if is_short(range) {
            let found = by_block.find(block(range), |at| short[at as usize] == range);
            let at = found.expect("only a held range is given back");
            by_block.remove(block(range), at);
            self.free.push(at);
        } else {
            self.unlock_long(range);
        }
        if !self.waiting.is_empty() {
            self.grant(granted);
        }
    }

    fn unlock_long(&mut self, range: SectorRange) {
        let is_it = |held: &SectorRange| *held == range;
        let index = self.long.iter().position(is_it).expect("only a held range is given back");
        self.long.remove(index);
    }

    #[cold]
    fn grant(&mut self, granted: &mut VecDeque<u64>) {
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
        self.by_block.len() == 0 && self.long.is_empty() && self.waiting.is_empty()
    }

    #[inline]
    fn hold(&mut self, range: SectorRange) {
        if !is_short(range) {
            return self.hold_long(range);
        }
        let Self { short, free, by_block, .. } = self;
        let at = if let Some(at) = free.pop() {
            short[at as usize] = range;
            at
        } else {
            short.push(range);
            (short.len() - 1) as u32
        };
        by_block.insert(block(range), at, |at| block(short[at as usize]));
    }

    fn hold_long(&mut self, range: SectorRange) {
        let index = self.long.partition_point(|h| h.start < range.start);
        self.long.insert(index, range);
    }

    #[inline]
    fn overlaps_held(&self, range: SectorRange) -> bool {
        if !is_short(range) {
            return self.is_long_and_overlaps_held(range);
        }
        let overlaps = |at: u32| self.short[at as usize].overlaps(range);
        self.by_block.any(block(range), overlaps) || !self.long.is_empty() && self.overlaps_long(range)
    }

    fn is_long_and_overlaps_held(&self, range: SectorRange) -> bool {
        let (first, last) = (block(range), last_block(range));
        let overlaps = |at: u32| self.short[at as usize].overlaps(range);
        let has_many_blocks = last - first >= self.short.len() as u64;
        let overlaps_short = if self.by_block.len() == 0 {
            false
        } else if has_many_blocks {
            let is_held = |at: u32| self.by_block.any(block(self.short[at as usize]), |other| other == at);
            (0..self.short.len() as u32).any(|at| overlaps(at) && is_held(at))
        } else {
            (first..=last).any(|block| self.by_block.any(block, overlaps))
        };
        overlaps_short || self.overlaps_long(range)
    }

    fn overlaps_long(&self, range: SectorRange) -> bool {
        // Held ranges do not overlap each other, so only the neighbours can overlap this one.
        let index = self.long.partition_point(|h| h.start < range.start);
        self.long.get(index).is_some_and(|h| h.overlaps(range))
            || index > 0 && self.long[index - 1].overlaps(range)
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

    /// Beside the plain rule, over short ranges and long ones in many orders.
    #[test]
    fn ranges_are_held_as_the_rule_says() {
        let mut random = 5_u64;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut lock = RangeLock::default();
        let mut held: Vec<(SectorRange, u64)> = Vec::new();
        let mut waiting: Vec<(SectorRange, u64)> = Vec::new();
        let (mut waited, mut were_long) = (0, 0);
        for key in 0..20_000 {
            let is_long = draw(4) == 0;
            let one = range(draw(9000), 1 + draw(if is_long { 1500 } else { 40 }));
            let overlaps = |(other, _): &(SectorRange, u64)| other.overlaps(one);
            let is_free = !held.iter().any(overlaps) && !waiting.iter().any(overlaps);
            assert_eq!(lock.lock(one, key), is_free, "{one:?}");
            if is_free { &mut held } else { &mut waiting }.push((one, key));
            (waited, were_long) = (waited + u32::from(!is_free), were_long + u32::from(is_long && is_free));
            while held.len() + waiting.len() > 12 {
                let (given, _) = held.swap_remove(draw(held.len() as u64) as usize);
                let mut granted = VecDeque::new();
                lock.unlock(given, &mut granted);
                let mut expected = Vec::new();
                let mut index = 0;
                while index < waiting.len() {
                    let (one, key) = waiting[index];
                    let overlaps = |(other, _): &(SectorRange, u64)| other.overlaps(one);
                    if held.iter().any(overlaps) || waiting[..index].iter().any(overlaps) {
                        index += 1;
                    } else {
                        held.push(waiting.remove(index));
                        expected.push(key);
                    }
                }
                assert_eq!(granted, expected);
            }
        }
        assert!(waited > 1000 && were_long > 100, "{waited} waited, {were_long} were long");
    }
}
