//! Which record has a key: chains of records, by number, from four times as many heads. It holds no keys, as the records
//! have them, but beside each number as much of its key as there is room for; finding one looks at a head, and seldom at any
//! record but its own.

/// The end of a chain; no link, as no record has the highest number there is room for.
const END: u32 = u32::MAX;

/// Records by key.
#[derive(Debug)]
pub(crate) struct Chains {
    /// Links: the number of a record, and above it a part of its key.
    heads: Vec<u32>,
    /// The link after each record, by number.
    next: Vec<u32>,
    /// What a product is shifted by to have the number of a head.
    shift: u32,
    /// The bits of a link that are the record's number.
    number: u32,
    len: usize,
}

impl Chains {
    /// None yet, of so many records at most without growing.
    pub(crate) fn new(records: u32) -> Self {
        let places = records.next_power_of_two().max(64);
        let heads = places * 4;
        Self {
            heads: vec![END; heads as usize],
            next: vec![END; records as usize],
            shift: 64 - heads.trailing_zeros(),
            number: places * 2 - 1,
            len: 0,
        }
    }

    /// How many are held.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The head of a key, and the part of the key in its link.
    #[inline]
    const fn head(&self, key: u64) -> (usize, u32) {
        // Fibonacci hashing (Knuth, "Sorting and Searching", 6.4): neighbouring keys come far apart.
        let product = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((product >> self.shift) as usize, product as u32 & !self.number)
    }

    /// The record of a key; `is_it` tells whether a record is of that key.
    #[inline]
    pub(crate) fn find(&self, key: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let (head, part) = self.head(key);
        let mut link = self.heads[head];
        while link != END {
            let record = link & self.number;
            if link & !self.number == part && is_it(record) {
                return Some(record);
            }
            link = self.next[record as usize];
        }
        None
    }

    /// Whether `is_it` is so of any record whose key may be this one.
    #[inline]
    pub(crate) fn any(&self, key: u64, is_it: impl Fn(u32) -> bool) -> bool {
        self.find(key, is_it).is_some()
    }

    /// Holds a record that it did not hold; `key_of` tells those of the others.
    #[inline]
    pub(crate) fn insert(&mut self, key: u64, record: u32, key_of: impl Fn(u32) -> u64) {
        if record as usize >= self.next.len() {
            self.grow(record + 1, &key_of);
        }
        self.put(key, record);
    }

    #[inline]
    fn put(&mut self, key: u64, record: u32) {
        let (head, part) = self.head(key);
        self.next[record as usize] = self.heads[head];
        self.heads[head] = part | record;
        self.len += 1;
    }

    /// Lets go of a record. Answers whether it was held.
    #[inline]
    pub(crate) fn remove(&mut self, key: u64, record: u32) -> bool {
        let (head, _) = self.head(key);
        let mut link = self.heads[head];
        if link & self.number == record {
            self.heads[head] = self.next[record as usize];
            self.len -= 1;
            return true;
        }
        while link != END {
            let at = (link & self.number) as usize;
            link = self.next[at];
            if link & self.number == record {
                self.next[at] = self.next[record as usize];
                self.len -= 1;
                return true;
            }
        }
        false
    }

    #[cold]
    fn grow(&mut self, records: u32, key_of: &dyn Fn(u32) -> u64) {
        let mut grown = Self::new(records.next_power_of_two().max(64));
        for &first in &self.heads {
            let mut link = first;
            while link != END {
                let record = link & self.number;
                grown.put(key_of(record), record);
                link = self.next[record as usize];
            }
        }
        *self = grown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_until_it_is_taken_out() {
        let mut chains = Chains::new(0);
        let mut keys: Vec<u64> = Vec::new();
        let mut held = std::collections::BTreeMap::new();
        let mut draw = crate::draws::draws(7);
        for step in 0..2000_u64 {
            let key = draw(97) * 4096;
            if let Some(record) = held.remove(&key) {
                assert!(chains.remove(key, record), "step {step}");
                assert!(!chains.remove(key, record), "it is gone");
            } else {
                let record = keys.len() as u32;
                keys.push(key);
                chains.insert(key, record, |r| keys[r as usize]);
                held.insert(key, record);
            }
            assert_eq!(chains.len(), held.len());
            for key in (0..97).map(|k| k * 4096) {
                let found = chains.find(key, |r| keys[r as usize] == key);
                assert_eq!(found, held.get(&key).copied(), "step {step}, key {key}");
            }
        }
    }

    #[test]
    fn records_of_other_keys_are_not_looked_at() {
        let mut chains = Chains::new(64);
        (0..64).for_each(|record| chains.insert(u64::from(record) * 8, record, u64::from));
        let looked = std::cell::Cell::new(0);
        for key in 64 * 8..64 * 8 + 1000 {
            let found = chains.find(key, |_| {
                looked.set(looked.get() + 1);
                false
            });
            assert_eq!(found, None);
        }
        assert_eq!(looked.get(), 0);
    }
}
