//! A set of slots.

use crate::units::{MEMBERS_MAX, Slot};

const WORDS: usize = MEMBERS_MAX.div_ceil(64);

/// A set of slots of one array, by value.
///
/// Most arrays have at most 64 members, so that what is not a word-parallel operation looks at the first word first.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct SlotSet([u64; WORDS]);

// By words: the derived comparison is a call of memcmp.
impl PartialEq for SlotSet {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }
}

impl SlotSet {
    /// No slot.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// The slots 0 to `n` − 1.
    pub fn first(n: u16) -> Self {
        if n < 64 {
            return Self(std::array::from_fn(|word| if word == 0 { (1 << n) - 1 } else { 0 }));
        }
        let mut set = Self::EMPTY;
        for (word, bits) in set.0.iter_mut().enumerate() {
            let count = usize::from(n).saturating_sub(word * 64).min(64);
            *bits = if count == 64 { u64::MAX } else { (1 << count) - 1 };
        }
        set
    }

    /// How many words the slots 0 to `n` − 1 need; one at least.
    pub(crate) const fn words_of(n: u16) -> usize {
        if n == 0 { 1 } else { (n as usize).div_ceil(64) }
    }

    /// Its words: slot 0 is the first's lowest bit.
    #[inline]
    pub(crate) const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// The set of these words, the first of [`words`](Self::words) and any that follow it.
    #[inline]
    pub(crate) fn from_words(first: u64, rest: &[u64]) -> Self {
        let mut set = Self::EMPTY;
        set.0[0] = first;
        if !rest.is_empty() {
            set.0[1..=rest.len()].copy_from_slice(rest);
        }
        set
    }

    /// The set of one slot.
    #[inline]
    pub fn one(slot: Slot) -> Self {
        let mut set = Self::EMPTY;
        set.insert(slot);
        set
    }

    /// Adds a slot.
    #[inline]
    pub fn insert(&mut self, slot: Slot) {
        self.0[slot.index() / 64] |= 1 << (slot.index() % 64);
    }

    /// Takes a slot out.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        self.0[slot.index() / 64] &= !(1 << (slot.index() % 64));
    }

    /// Whether the slot is in the set.
    ///
    /// # Panics
    /// If no array has as many slots.
    #[inline]
    pub const fn contains(&self, slot: Slot) -> bool {
        self.0[slot.0 as usize / 64] & (1 << (slot.0 % 64)) != 0
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0 && self.has_only_first_word()
    }

    #[inline]
    fn has_only_first_word(&self) -> bool {
        self.0[1..].iter().fold(0, |bits, word| bits | word) == 0
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        if self.has_only_first_word() {
            return self.0[0].count_ones() as usize;
        }
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Slots of either set.
    #[must_use]
    #[inline]
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Slots of both sets.
    #[must_use]
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Slots of this set that are not in the other.
    #[must_use]
    #[inline]
    pub fn minus(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// The slots in ascending order.
    #[inline]
    pub fn iter(self) -> Slots {
        let last = if self.has_only_first_word() { 0 } else { WORDS - 1 };
        Slots { set: self, word: 0, last }
    }
}

/// The slots of a set in ascending order.
#[derive(Clone, Debug)]
pub struct Slots {
    set: SlotSet,
    word: usize,
    last: usize,
}

impl Iterator for Slots {
    type Item = Slot;

    #[inline]
    fn next(&mut self) -> Option<Slot> {
        loop {
            let bits = self.set.0[self.word];
            if bits != 0 {
                self.set.0[self.word] = bits & (bits - 1);
                return Some(Slot((self.word * 64) as u16 + bits.trailing_zeros() as u16));
            }
            if self.word >= self.last {
                return None;
            }
            self.word += 1;
        }
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut set = Self::EMPTY;
        slots.into_iter().for_each(|s| set.insert(s));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_was_put_in() {
        let slots = [0, 1, 63, 64, 200, 383].map(Slot);
        let set: SlotSet = slots.into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), slots);
        assert_eq!(set.len(), 6);
        assert_eq!(SlotSet::first(65).len(), 65);
        assert!(SlotSet::first(384).contains(Slot(383)));
        assert_eq!(set.minus(SlotSet::first(64)).len(), 3);
        assert_eq!(SlotSet::from_words(set.words()[0], &set.words()[1..]), set);
        assert_eq!(SlotSet::from_words(set.words()[0], &[]), set.and(SlotSet::first(64)));
        assert_eq!([0, 1, 65, 384].map(SlotSet::words_of), [1, 1, 2, 6]);
        assert_eq!(set.and(SlotSet::first(64)).union(SlotSet::one(Slot(5))).len(), 4);
    }
}
