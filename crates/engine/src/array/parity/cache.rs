//! The stripe cache: entries of one page per member, each for one row, the least recently used replaced.
//!
//! # Contract
//! *Ownership.* An entry is active while a window of rows holds it, else it is on the list of inactive ones
//! and keeps its content until it is needed for another row. Where the policy says so, those without content are needed
//! first. Entries given out one after the other are
//! neighbours where possible, so that a run of rows is a run of memory.

use rustc_hash::FxHashMap;

use crate::array::slots::SlotSet;

const NONE: u32 = u32::MAX;

/// The cache of one array.
#[derive(Debug)]
pub(crate) struct StripeCache {
    rows: Vec<u64>,
    uptodate: Vec<SlotSet>,
    active: Vec<bool>,
    /// Neighbours on the inactive list.
    links: Vec<(u32, u32)>,
    oldest: u32,
    newest: u32,
    active_count: u32,
    by_row: FxHashMap<u64, u32>,
    /// Entries without content are used before those that have been inactive for longer.
    empty_first: bool,
}

impl StripeCache {
    /// A cache of so many entries, of which those without content are used first or not.
    pub(crate) fn new(entries: u32, empty_first: bool) -> Self {
        let mut cache = Self {
            rows: vec![u64::MAX; entries as usize],
            uptodate: vec![SlotSet::EMPTY; entries as usize],
            active: vec![true; entries as usize],
            links: vec![(NONE, NONE); entries as usize],
            oldest: NONE,
            newest: NONE,
            active_count: entries,
            by_row: FxHashMap::default(),
            empty_first,
        };
        cache.by_row.reserve(entries as usize);
        (0..entries).for_each(|e| cache.retire(e));
        cache
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Entries in use.
    pub(crate) fn active_count(&self) -> u32 {
        self.active_count
    }

    /// Makes the entry of a row active, its own with what it holds or the least recently used one. None is
    /// left when all are active.
    pub(crate) fn acquire(&mut self, row: u64) -> Option<u32> {
        let entry = if let Some(&entry) = self.by_row.get(&row) {
            entry
        } else {
            let entry = self.oldest;
            if entry == NONE {
                return None;
            }
            let index = entry as usize;
            self.by_row.remove(&self.rows[index]);
            self.by_row.insert(row, entry);
            self.rows[index] = row;
            self.uptodate[index] = SlotSet::EMPTY;
            entry
        };
        assert!(!self.active[entry as usize], "a row is held once");
        self.unlink(entry);
        self.active[entry as usize] = true;
        self.active_count += 1;
        Some(entry)
    }

    /// Whether an entry will be the next to be used if it is given back now.
    pub(crate) fn is_next(&self, entry: u32) -> bool {
        self.empty_first && self.uptodate[entry as usize].is_empty()
    }

    /// Gives an active entry back; it keeps its content.
    pub(crate) fn release(&mut self, entry: u32) {
        if self.is_next(entry) {
            self.deactivate(entry);
            self.links[entry as usize] = (NONE, self.oldest);
            match self.oldest {
                NONE => self.newest = entry,
                oldest => self.links[oldest as usize].0 = entry,
            }
            self.oldest = entry;
        } else {
            self.retire(entry);
        }
    }

    /// Puts an entry behind all others.
    fn retire(&mut self, entry: u32) {
        self.deactivate(entry);
        self.links[entry as usize] = (self.newest, NONE);
        match self.newest {
            NONE => self.oldest = entry,
            newest => self.links[newest as usize].1 = entry,
        }
        self.newest = entry;
    }

    fn deactivate(&mut self, entry: u32) {
        let index = entry as usize;
        assert!(self.active[index], "only an active entry is released");
        self.active[index] = false;
        self.active_count -= 1;
    }

    fn unlink(&mut self, entry: u32) {
        let (before, after) = self.links[entry as usize];
        match before {
            NONE => self.oldest = after,
            before => self.links[before as usize].1 = after,
        }
        match after {
            NONE => self.newest = before,
            after => self.links[after as usize].0 = before,
        }
    }

    /// Slots whose page of an entry holds what the member holds.
    pub(crate) fn uptodate(&mut self, entry: u32) -> &mut SlotSet {
        &mut self.uptodate[entry as usize]
    }

    /// Forgets the content of rows that changed behind the cache. None of them may be active.
    pub(crate) fn forget(&mut self, first_row: u64, rows: u64) {
        let is_within = |row: u64| row >= first_row && row - first_row < rows;
        for index in 0..self.rows.len() {
            if is_within(self.rows[index]) {
                assert!(!self.active[index], "content is forgotten only where nothing is under way");
                self.uptodate[index] = SlotSet::EMPTY;
            }
        }
    }

    /// Panics if the entries are not each active or listed.
    pub(crate) fn check(&self) {
        let inactive = std::iter::successors((self.oldest != NONE).then_some(self.oldest), |e| {
            let next = self.links[*e as usize].1;
            (next != NONE).then_some(next)
        })
        .inspect(|e| assert!(!self.active[*e as usize], "only inactive entries are on the list"))
        .count();
        assert_eq!(inactive as u32 + self.active_count, self.entries(), "every entry is active or listed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Slot;

    #[test]
    fn the_least_recently_used_row_is_replaced() {
        let mut cache = StripeCache::new(3, false);
        let entries: Vec<u32> = (0..3).map(|row| cache.acquire(row).unwrap()).collect();
        assert_eq!(entries, [0, 1, 2], "neighbours, for a run of rows");
        assert_eq!(cache.acquire(9), None);
        cache.uptodate(1).insert(Slot(4));
        for entry in [1, 0, 2] {
            cache.release(entry);
        }
        assert_eq!(cache.acquire(1), Some(1), "still there");
        assert!(cache.uptodate(1).contains(Slot(4)));
        assert_eq!(cache.acquire(7), Some(0), "row 0 was used least recently");
        cache.release(1);
        cache.forget(1, 1);
        assert!(cache.uptodate(1).is_empty());
        cache.check();
    }

    #[test]
    fn entries_without_content_are_next_if_so_wanted() {
        let mut cache = StripeCache::new(5, true);
        let entries: Vec<u32> = (0..4).map(|row| cache.acquire(row).unwrap()).collect();
        cache.uptodate(1).insert(Slot(0));
        entries.into_iter().rev().for_each(|entry| cache.release(entry));
        cache.check();
        let next: Vec<u32> = (10..15).map(|row| cache.acquire(row).unwrap()).collect();
        assert_eq!(next, [0, 2, 3, 4, 1], "in order, and the one with content last");
    }
}
