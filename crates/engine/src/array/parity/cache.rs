//! The stripe cache: entries of one page per member, each for one row, the least recently used replaced.
//!
//! # Contract
//! *Ownership.* An entry is active while a window of rows holds it, else it is on the list of inactive ones
//! and keeps its content until it is needed for another row. Where the policy says so, those without content are needed
//! first. Entries given out one after the other are neighbours where possible, so that a run of rows is a run of memory.

use crate::array::chains::Chains;
use crate::array::slots::SlotSet;
use crate::units::Slot;

const NONE: u32 = u32::MAX;
/// In place of the neighbours of an entry that is active.
const ACTIVE: (u32, u32) = (NONE - 1, NONE - 1);

/// An entry, but for what it holds. Kept small: of a large cache, the next entry is seldom in the CPU's caches, but
/// its neighbours were just used.
#[derive(Clone, Copy, Debug)]
struct Entry {
    row: u64,
    /// Neighbours on the inactive list.
    links: (u32, u32),
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
    /// Slots whose page of an entry holds what the member holds: of each entry as many words as the array's slots need.
    uptodate: Vec<u64>,
    words: usize,
    oldest: u32,
    newest: u32,
    active_count: u32,
    by_row: Chains,
    /// Entries without content are used before those that have been inactive for longer.
    empty_first: bool,
}

impl StripeCache {
    /// A cache of so many entries for so many slots; entries without content are used first or not.
    pub(crate) fn new(entries: u32, slots: u16, empty_first: bool) -> Self {
        let words = SlotSet::words_of(slots);
        let empty = Entry { row: u64::MAX, links: ACTIVE };
        let mut cache = Self {
            table: vec![empty; entries as usize],
            uptodate: vec![0; entries as usize * words],
            words,
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
            table[entry as usize].row = row;
            self.clear(entry);
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
        self.empty_first && self.is_empty(entry)
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

    /// Which of the words has the bit of a slot of an entry.
    #[inline]
    const fn word(&self, entry: u32, slot: Slot) -> usize {
        entry as usize * self.words + slot.index() / 64
    }

    /// An entry's words but the first; most arrays have none.
    #[inline]
    fn rest(&self, entry: u32) -> std::ops::Range<usize> {
        let first = entry as usize * self.words;
        first + 1..first + self.words
    }

    /// Whether an entry has no content.
    #[inline]
    pub(crate) fn is_empty(&self, entry: u32) -> bool {
        self.uptodate[entry as usize * self.words] == 0
            && (self.words == 1 || self.uptodate[self.rest(entry)].iter().all(|word| *word == 0))
    }

    fn clear(&mut self, entry: u32) {
        self.uptodate[entry as usize * self.words] = 0;
        if self.words > 1 {
            let rest = self.rest(entry);
            self.uptodate[rest].fill(0);
        }
    }

    /// Slots whose page of an entry holds what the member holds.
    #[inline]
    pub(crate) fn uptodate(&self, entry: u32) -> SlotSet {
        let first = self.uptodate[entry as usize * self.words];
        let rest = if self.words > 1 { &self.uptodate[self.rest(entry)] } else { &[] };
        SlotSet::from_words(first, rest)
    }

    /// Whether a slot's page of an entry holds what the member holds.
    #[inline]
    pub(crate) fn contains(&self, entry: u32, slot: Slot) -> bool {
        self.uptodate[self.word(entry, slot)] & (1 << (slot.index() % 64)) != 0
    }

    /// Notes that the pages of these slots hold what the member holds, and those of others no longer; nothing changes of the
    /// rest. One that is in both is of the latter.
    #[inline]
    pub(crate) fn note(&mut self, entry: u32, known: SlotSet, stale: SlotSet) {
        let (known, stale) = (known.words(), stale.words());
        let first = entry as usize * self.words;
        for word in 0..self.words {
            let at = &mut self.uptodate[first + word];
            *at = (*at | known[word]) & !stale[word];
        }
    }

    /// Notes that a slot's page holds what the member holds.
    #[inline]
    pub(crate) fn insert(&mut self, entry: u32, slot: Slot) {
        let word = self.word(entry, slot);
        self.uptodate[word] |= 1 << (slot.index() % 64);
    }

    /// Notes that a slot's page does not hold what the member holds.
    #[inline]
    pub(crate) fn remove(&mut self, entry: u32, slot: Slot) {
        let word = self.word(entry, slot);
        self.uptodate[word] &= !(1 << (slot.index() % 64));
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
                self.clear(index as u32);
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

    #[test]
    fn the_least_recently_used_row_is_replaced() {
        let mut cache = StripeCache::new(3, 65, false);
        let entries: Vec<u32> = (0..3).map(|row| cache.acquire(row).unwrap()).collect();
        assert_eq!(entries, [0, 1, 2], "neighbours, for a run of rows");
        assert_eq!(cache.acquire(9), None);
        cache.insert(1, Slot(64));
        cache.note(1, SlotSet::first(3), SlotSet::one(Slot(2)));
        for entry in [1, 0, 2] {
            cache.release(entry);
        }
        assert_eq!(cache.acquire(1), Some(1), "still there");
        assert_eq!(cache.uptodate(1), [0, 1, 64].map(Slot).into_iter().collect());
        cache.remove(1, Slot(64));
        assert_eq!(cache.uptodate(1), SlotSet::first(2));
        assert!([0, 2].iter().all(|e| cache.uptodate(*e).is_empty()), "neighbours have their own");
        assert_eq!(cache.acquire(7), Some(0), "row 0 was used least recently");
        cache.release(1);
        cache.forget(1, 1);
        assert!(cache.uptodate(1).is_empty());
        cache.check();
    }

    #[test]
    fn entries_without_content_are_next_if_so_wanted() {
        let mut cache = StripeCache::new(5, 5, true);
        let entries: Vec<u32> = (0..4).map(|row| cache.acquire(row).unwrap()).collect();
        cache.insert(1, Slot(0));
        entries.into_iter().rev().for_each(|entry| cache.release(entry));
        cache.check();
        let next: Vec<u32> = (10..15).map(|row| cache.acquire(row).unwrap()).collect();
        assert_eq!(next, [0, 2, 3, 4, 1], "in order, and the one with content last");
    }
}
