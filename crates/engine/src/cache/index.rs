//! Which page is in which frame, and which pages are dirty.
//!
//! Leaves of 64 pages in order, so that dirty pages are found in the order of their addresses.

use std::collections::{BTreeMap, BTreeSet};

const LEAF_PAGES: u64 = 64;

#[derive(Debug)]
struct Leaf {
    frames: [u32; LEAF_PAGES as usize],
    present: u64,
    dirty: u64,
}

/// The pages of the cache by address.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Leaf number to place in `slab`.
    leaves: BTreeMap<u64, u32>,
    dirty_leaves: BTreeSet<u64>,
    slab: Vec<Leaf>,
    free: Vec<u32>,
}

const fn split(page: u64) -> (u64, usize) {
    (page / LEAF_PAGES, (page % LEAF_PAGES) as usize)
}

impl Index {
    fn leaf(&self, number: u64) -> Option<&Leaf> {
        self.leaves.get(&number).map(|&place| &self.slab[place as usize])
    }

    /// The frame of a page.
    pub(super) fn get(&self, page: u64) -> Option<u32> {
        let (number, bit) = split(page);
        let leaf = self.leaf(number)?;
        (leaf.present >> bit & 1 == 1).then(|| leaf.frames[bit])
    }

    /// Puts a page that is not there into a frame.
    pub(super) fn insert(&mut self, page: u64, frame: u32) {
        let (number, bit) = split(page);
        let place = *self.leaves.entry(number).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.slab.push(Leaf { frames: [0; LEAF_PAGES as usize], present: 0, dirty: 0 });
                (self.slab.len() - 1) as u32
            })
        });
        let leaf = &mut self.slab[place as usize];
        assert!(leaf.present >> bit & 1 == 0, "page {page} is in the cache once");
        leaf.present |= 1 << bit;
        leaf.frames[bit] = frame;
    }

    /// Takes a page out that is there and clean.
    pub(super) fn remove(&mut self, page: u64) {
        let (number, bit) = split(page);
        let place = self.leaves[&number];
        let leaf = &mut self.slab[place as usize];
        assert!(leaf.present >> bit & 1 == 1 && leaf.dirty >> bit & 1 == 0, "page {page} is there and clean");
        leaf.present &= !(1 << bit);
        if leaf.present == 0 {
            self.leaves.remove(&number);
            self.free.push(place);
        }
    }

    /// Marks a page that is there as dirty or clean.
    pub(super) fn set_dirty(&mut self, page: u64, is_dirty: bool) {
        let (number, bit) = split(page);
        let leaf = &mut self.slab[self.leaves[&number] as usize];
        let before = leaf.dirty;
        if is_dirty {
            leaf.dirty |= 1 << bit;
        } else {
            leaf.dirty &= !(1 << bit);
        }
        match (before == 0, leaf.dirty == 0) {
            (true, false) => {
                self.dirty_leaves.insert(number);
            }
            (false, true) => {
                self.dirty_leaves.remove(&number);
            }
            _ => {}
        }
    }

    /// The first dirty page of `from..end`.
    pub(super) fn next_dirty(&self, from: u64, end: u64) -> Option<u64> {
        let (first, bit) = split(from);
        for &number in self.dirty_leaves.range(first..) {
            let mask = if number == first { u64::MAX << bit } else { u64::MAX };
            let dirty = self.leaf(number)?.dirty & mask;
            if dirty != 0 {
                let page = number * LEAF_PAGES + u64::from(dirty.trailing_zeros());
                return (page < end).then_some(page);
            }
        }
        None
    }

    /// The first page of `from..end` that is there, and its frame.
    pub(super) fn next_present(&self, from: u64, end: u64) -> Option<(u64, u32)> {
        let (first, bit) = split(from);
        for (&number, &place) in self.leaves.range(first..) {
            let leaf = &self.slab[place as usize];
            let mask = if number == first { u64::MAX << bit } else { u64::MAX };
            let present = leaf.present & mask;
            if present != 0 {
                let bit = present.trailing_zeros();
                let page = number * LEAF_PAGES + u64::from(bit);
                return (page < end).then(|| (page, leaf.frames[bit as usize]));
            }
        }
        None
    }

    /// Every page with its frame and whether it is dirty, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32, bool)> + '_ {
        self.leaves.iter().flat_map(|(&number, &place)| {
            let leaf = &self.slab[place as usize];
            (0..LEAF_PAGES).filter(|bit| leaf.present >> bit & 1 == 1).map(move |bit| {
                (number * LEAF_PAGES + bit, leaf.frames[bit as usize], leaf.dirty >> bit & 1 == 1)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_pages_are_found_in_order_and_within_the_range() {
        let mut index = Index::default();
        for (frame, page) in (0..).zip([3, 64, 65, 1000]) {
            index.insert(page, frame);
        }
        index.set_dirty(65, true);
        index.set_dirty(1000, true);
        assert_eq!(index.next_dirty(0, u64::MAX), Some(65));
        assert_eq!(index.next_dirty(66, u64::MAX), Some(1000));
        assert_eq!(index.next_dirty(66, 1000), None);
        index.set_dirty(65, false);
        assert_eq!(index.next_dirty(0, 1001), Some(1000));
        assert_eq!(index.next_present(4, 100), Some((64, 1)));
        index.remove(64);
        assert_eq!((index.get(64), index.get(65)), (None, Some(2)));
        assert_eq!(index.iter().collect::<Vec<_>>(), [(3, 0, false), (65, 2, false), (1000, 3, true)]);
    }
}
