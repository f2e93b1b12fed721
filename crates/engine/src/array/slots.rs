//! A set of slots.

use crate::units::{MEMBERS_MAX, Slot};

const WORDS: usize = MEMBERS_MAX.div_ceil(64);

/// A set of slots of one array, by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SlotSet([u64; WORDS]);

impl SlotSet {
    /// No slot.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// The slots 0 to `n` − 1.
    pub fn first(n: u16) -> Self {
        let mut set = Self::EMPTY;
        for (word, bits) in set.0.iter_mut().enumerate() {
            let count = usize::from(n).saturating_sub(word * 64).min(64);
            *bits = if count == 64 { u64::MAX } else { (1 << count) - 1 };
        }
        set
    }

    /// The set of one slot.
    pub fn one(slot: Slot) -> Self {
        let mut set = Self::EMPTY;
        set.insert(slot);
        set
    }

    /// Adds a slot.
    pub fn insert(&mut self, slot: Slot) {
        self.0[slot.index() / 64] |= 1 << (slot.index() % 64);
    }

    /// Takes a slot out.
    pub fn remove(&mut self, slot: Slot) {
        self.0[slot.index() / 64] &= !(1 << (slot.index() % 64));
    }

    /// Whether the slot is in the set.
    pub const fn contains(&self, slot: Slot) -> bool {
        self.0[slot.0 as usize / 64] & (1 << (slot.0 % 64)) != 0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Slots of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Slots of both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Slots of this set that are not in the other.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// The slots in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Slot> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                (bits != 0).then(|| {
                    let bit = bits.trailing_zeros();
                    bits &= bits - 1;
                    Slot((word * 64) as u16 + bit as u16)
                })
            })
        })
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
        assert_eq!(set.and(SlotSet::first(64)).union(SlotSet::one(Slot(5))).len(), 4);
    }
}
