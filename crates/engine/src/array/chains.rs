//! Which record has a key: chains of records, by number, from four times as many heads. It holds no keys, as the records
//! have them; finding one looks at a head, and seldom at more than one record.

/// The end of a chain.
const END: u32 = u32::MAX;

/// Records by key.
#[derive(Debug)]
pub(crate) struct Chains {
    heads: Vec<u32>,
    /// The record after each, by number.
    next: Vec<u32>,
    /// What a product is shifted by to have the number of a head.
    shift: u32,
    len: usize,
}

impl Chains {
    /// None yet, of so many records at most without growing.
    pub(crate) fn new(records: u32) -> Self {
        let heads = records.next_power_of_two().max(64) * 4;
        Self {
            heads: vec![END; heads as usize],
            next: vec![END; records as usize],
            shift: 64 - heads.trailing_zeros(),
            len: 0,
        }
    }

    /// How many are held.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    const fn head(&self, key: u64) -> usize {
        // Fibonacci hashing (Knuth, "Sorting and Searching", 6.4): neighbouring keys come far apart.
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// The record of a key; `is_it` tells whether a record is of that key.
    #[inline]
    pub(crate) fn find(&self, key: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut record = self.heads[self.head(key)];
        while record != END && !is_it(record) {
            record = self.next[record as usize];
        }
        (record != END).then_some(record)
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
        let head = self.head(key);
        self.next[record as usize] = self.heads[head];
        self.heads[head] = record;
        self.len += 1;
    }

    /// Lets go of a record. Answers whether it was held.
    #[inline]
    pub(crate) fn remove(&mut self, key: u64, record: u32) -> bool {
        let head = self.head(key);
        let mut at = self.heads[head];
        if at == record {
            self.heads[head] = self.next[record as usize];
            self.len -= 1;
            return true;
        }
        while at != END {
            let next = self.next[at as usize];
            if next == record {
                self.next[at as usize] = self.next[record as usize];
                self.len -= 1;
                return true;
            }
            at = next;
        }
        false
    }

    #[cold]
    fn grow(&mut self, records: u32, key_of: &dyn Fn(u32) -> u64) {
        let mut grown = Self::new(records.next_power_of_two().max(64));
        for &first in &self.heads {
            let mut record = first;
            while record != END {
                grown.put(key_of(record), record);
                record = self.next[record as usize];
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
        let mut random = 7_u64;
        for step in 0..2000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (random >> 33) % 97 * 4096;
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
}
