//! The stripe cache: entries of one page per member, each for one row, the least recently used replaced.
//!
//! # Contract
//! *Ownership.* An entry is active while a window of rows holds it, else it is on the list of inactive ones
//! and keeps its content until it is needed for another row. Where the policy says so, those without content are needed
//! first. Entries given out one after the other are neighbours where possible, so that a run of rows is a run of memory.

use crate::array::chains::Chains;
use crate::array::slots::SlotSet;

const NONE: u32 = u32::MAX;
/// In place of the neighbours of an entry that is active.
const ACTIVE: (u32, u32) = (NONE - 1, NONE - 1);

/// An entry: one line of memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entry {
    row: u64,
    /// Neighbours on the inactive list.
    links: (u32, u32),
    uptodate: SlotSet,
}

impl Entry {
    #[inline]
    fn is_active(&self) -> bool {
        self.links == ACTIVE
    }
}

/// The cache of one array.
#[derive(Debug)]
pub(crate) struct StripeCache {
    table: Vec<Entry>,
    oldest: u32,
    newest: u32,
    active_count: u32,
    by_row: Chains,
    /// Entries without content are used before those that have been inactive for longer.
    empty_first: bool,
}

impl StripeCache {
    /// A cache of so many entries, of which those without content are used first or not.
    pub(crate) fn new(entries: u32, empty_first: bool) -> Self {
        let empty = Entry { row: u64::MAX, links: ACTIVE, uptodate: SlotSet::EMPTY };
        let mut cache = Self {
            table: vec![empty; entries as usize],
            oldest: NONE,
            newest: NONE,
            active_count: entries,
            by_row: Chains::new(entries),
            empty_first,
        };
        (0..entries).for_each(|e| cache.retire(e));
        cache
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> u32 {
        self.table.len() as u32
    }

    /// Entries in use.
    pub(crate) fn active_count(&self) -> u32 {
        self.active_count
    }

    /// Makes the entry of a row active, its own with what it holds or the least recently used one. None is
    /// left when all are active.
    pub(crate) fn acquire(&mut self, row: u64) -> Option<u32> {
        let Self { table, by_row, .. } = self;
        let entry = if let Some(entry) = by_row.find(row, |e| table[e as usize].row == row) {
            entry
        } else {
            let entry = self.oldest;
            if entry == NONE {
                return None;
            }
            by_row.remove(table[entry as usize].row, entry);
            by_row.insert(row, entry, |e| table[e as usize].row);
            let at = &mut table[entry as usize];
            at.row = row;
            at.uptodate = SlotSet::EMPTY;
            entry
        };
        assert!(!self.table[entry as usize].is_active(), "a row is held once");
        self.unlink(entry);
        self.table[entry as usize].links = ACTIVE;
        self.active_count += 1;
        Some(entry)
    }

    /// Whether an entry will be the next to be used if it is given back now.
    pub(crate) fn is_next(&self, entry: u32) -> bool {
        self.empty_first && self.table[entry as usize].uptodate.is_empty()
    }

    /// Gives an active entry back; it keeps its content.
    pub(crate) fn release(&mut self, entry: u32) {
        if self.is_next(entry) {
            self.deactivate(entry);
            self.table[entry as usize].links = (NONE, self.oldest);
            match self.oldest {
                NONE => self.newest = entry,
                oldest => self.table[oldest as usize].links.0 = entry,
            }
            self.oldest = entry;
        } else {
            self.retire(entry);
        }
    }

    /// Puts an entry behind all others.
    fn retire(&mut self, entry: u32) {
        self.deactivate(entry);
        self.table[entry as usize].links = (self.newest, NONE);
        match self.newest {
            NONE => self.oldest = entry,
            newest => self.table[newest as usize].links.1 = entry,
        }
        self.newest = entry;
    }

    fn deactivate(&mut self, entry: u32) {
        assert!(self.table[entry as usize].is_active(), "only an active entry is released");
        self.active_count -= 1;
    }

    fn unlink(&mut self, entry: u32) {
        let (before, after) = self.table[entry as usize].links;
        match before {
            NONE => self.oldest = after,
            before => self.table[before as usize].links.1 = after,
        }
        match after {
            NONE => self.newest = before,
            after => self.table[after as usize].links.0 = before,
        }
    }

    /// Slots whose page of an entry holds what the member holds.
    pub(crate) fn uptodate(&mut self, entry: u32) -> &mut SlotSet {
        &mut self.table[entry as usize].uptodate
    }

    /// Forgets the content of rows that changed behind the cache. None of them may be active.
    pub(crate) fn forget(&mut self, first_row: u64, rows: u64) {
        let is_within = |row: u64| row >= first_row && row - first_row < rows;
        for index in 0..self.table.len() {
            if is_within(self.table[index].row) {
                assert!(
                    !self.table[index].is_active(),
                    "content is forgotten only where nothing is under way"
                );
                self.table[index].uptodate = SlotSet::EMPTY;
            }
        }
    }

    /// Panics if the entries are not each active or listed.
    pub(crate) fn check(&self) {
        let inactive = std::iter::successors((self.oldest != NONE).then_some(self.oldest), |e| {
            let next = self.table[*e as usize].links.1;
            (next != NONE).then_some(next)
        })
        .inspect(|e| assert!(!self.table[*e as usize].is_active(), "only inactive entries are on the list"))
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
