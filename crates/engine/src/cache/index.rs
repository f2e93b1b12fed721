//! Which page is in which frame, and which pages are dirty.
//!
//! Leaves of 64 pages, found through two tables, so that a page costs three steps however many there are; dirty pages
//! are found in the order of their addresses.

use std::collections::BTreeSet;
use std::ops::Range;

const LEAF_PAGES: u64 = 64;
/// Leaves a branch knows: 64 MiB of pages, so that an array of 1 TiB has 16,384 branches at most.
const BRANCH_LEAVES: u64 = 256;
/// No leaf.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Leaf {
    frames: [u32; LEAF_PAGES as usize],
    present: u64,
    dirty: u64,
}

/// Where the leaves of a stretch of the array are in the slab.
#[derive(Debug)]
struct Branch {
    leaves: [u32; BRANCH_LEAVES as usize],
    present: u32,
}

/// The pages of the cache by address.
#[derive(Debug, Default)]
pub(super) struct Index {
    branches: Vec<Option<Box<Branch>>>,
    dirty_leaves: BTreeSet<u64>,
    slab: Vec<Leaf>,
    free: Vec<u32>,
}

const fn split(page: u64) -> (u64, usize) {
    (page / LEAF_PAGES, (page % LEAF_PAGES) as usize)
}

const fn branch_of(leaf: u64) -> (usize, usize) {
    ((leaf / BRANCH_LEAVES) as usize, (leaf % BRANCH_LEAVES) as usize)
}

impl Index {
    fn place(&self, number: u64) -> Option<u32> {
        let (branch, at) = branch_of(number);
        let place = self.branches.get(branch)?.as_ref()?.leaves[at];
        (place != NONE).then_some(place)
    }

    fn leaf(&self, number: u64) -> Option<&Leaf> {
        self.place(number).map(|place| &self.slab[place as usize])
    }

    /// A leaf that is there.
    fn known(&mut self, number: u64) -> &mut Leaf {
        let place = self.place(number).expect("the leaf of a page that is there");
        &mut self.slab[place as usize]
    }

    /// The leaf of a page that comes.
    fn grown(&mut self, number: u64) -> &mut Leaf {
        let (branch, at) = branch_of(number);
        if self.branches.len() <= branch {
            self.branches.resize_with(branch + 1, || None);
        }
        let branch = self.branches[branch]
            .get_or_insert_with(|| Box::new(Branch { leaves: [NONE; BRANCH_LEAVES as usize], present: 0 }));
        let place = &mut branch.leaves[at];
        if *place == NONE {
            *place = self.free.pop().unwrap_or_else(|| {
                self.slab.push(Leaf { frames: [0; LEAF_PAGES as usize], present: 0, dirty: 0 });
                (self.slab.len() - 1) as u32
            });
            branch.present += 1;
        }
        &mut self.slab[*place as usize]
    }

    /// Forgets a leaf without pages.
    fn prune(&mut self, number: u64) {
        let (branch, at) = branch_of(number);
        let known = self.branches[branch].as_mut().expect("the branch of a leaf that is there");
        self.free.push(std::mem::replace(&mut known.leaves[at], NONE));
        known.present -= 1;
        if known.present == 0 {
            self.branches[branch] = None;
        }
    }

    /// The leaves of a range of numbers, in order.
    fn leaves(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Leaf)> {
        let branches = (range.start / BRANCH_LEAVES)..range.end.div_ceil(BRANCH_LEAVES);
        let branches =
            branches.start.min(self.branches.len() as u64)..branches.end.min(self.branches.len() as u64);
        let known = branches.filter_map(|index| Some((index, self.branches[index as usize].as_ref()?)));
        let numbers = known.flat_map(move |(index, branch)| {
            let base = index * BRANCH_LEAVES;
            let from = range.start.max(base) - base;
            let end = range.end.min(base + BRANCH_LEAVES) - base;
            (base + from..).zip(&branch.leaves[from as usize..end as usize])
        });
        numbers
            .filter(|(_, place)| **place != NONE)
            .map(|(number, place)| (number, &self.slab[*place as usize]))
    }

    /// The frame of a page.
    pub(super) fn get(&self, page: u64) -> Option<u32> {
        let (number, bit) = split(page);
        let leaf = self.leaf(number)?;
        (leaf.present >> bit & 1 == 1).then(|| leaf.frames[bit])
    }

    /// Where it says which frame a page is in, if its leaf is there: not looked at.
    pub(super) fn address(&self, page: u64) -> Option<*const u8> {
        let (number, bit) = split(page);
        self.leaf(number).map(|leaf| std::ptr::from_ref(&leaf.frames[bit]).cast())
    }

    /// Puts a page that is not there into a frame.
    pub(super) fn insert(&mut self, page: u64, frame: u32) {
        let (number, bit) = split(page);
        let leaf = self.grown(number);
        assert!(leaf.present >> bit & 1 == 0, "page {page} is in the cache once");
        leaf.present |= 1 << bit;
        leaf.frames[bit] = frame;
    }

    /// Takes a page out that is there and clean.
    pub(super) fn remove(&mut self, page: u64) {
        let (number, bit) = split(page);
        let leaf = self.known(number);
        assert!(leaf.present >> bit & 1 == 1 && leaf.dirty >> bit & 1 == 0, "page {page} is there and clean");
        leaf.present &= !(1 << bit);
        if leaf.present == 0 {
            self.prune(number);
        }
    }

    /// Marks a page that is there as dirty or clean.
    pub(super) fn set_dirty(&mut self, page: u64, is_dirty: bool) {
        let (number, bit) = split(page);
        let leaf = self.known(number);
        let before = leaf.dirty;
        if is_dirty {
            leaf.dirty |= 1 << bit;
        } else {
            leaf.dirty &= !(1 << bit);
        }
        let after = leaf.dirty;
        match (before == 0, after == 0) {
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
        for (number, leaf) in self.leaves(first..end.div_ceil(LEAF_PAGES)) {
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
        self.leaves(0..u64::MAX).flat_map(|(number, leaf)| {
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
        assert_eq!(index.next_present(4, 64), None);
        assert_eq!(index.next_present(66, u64::MAX), Some((1000, 3)));
        index.remove(64);
        assert_eq!((index.get(64), index.get(65)), (None, Some(2)));
        assert_eq!(index.iter().collect::<Vec<_>>(), [(3, 0, false), (65, 2, false), (1000, 3, true)]);
    }

    #[test]
    fn pages_far_apart_are_found_and_forgotten() {
        let mut index = Index::default();
        let pages = [0, BRANCH_LEAVES * LEAF_PAGES - 1, BRANCH_LEAVES * LEAF_PAGES, 1 << 28];
        for (frame, page) in (0..).zip(pages) {
            index.insert(page, frame);
        }
        let mut from = 0;
        for (frame, page) in (0..).zip(pages) {
            assert_eq!(index.next_present(from, u64::MAX), Some((page, frame)));
            assert_eq!(index.get(page), Some(frame));
            from = page + 1;
        }
        assert_eq!(index.next_present(from, u64::MAX), None);
        for page in pages {
            index.remove(page);
        }
        assert_eq!((index.iter().count(), index.get(0), index.next_present(0, u64::MAX)), (0, None, None));
        index.insert(1, 7);
        assert_eq!(index.slab.len(), 4, "leaves are used again");
    }
}
