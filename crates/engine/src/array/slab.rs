//! Records in flight, by index: no allocation once it has grown to the most there ever are.

/// A slab whose keys carry a generation, so that an answer to a record that is gone is noticed.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    /// Keys of the records that places not in use will have: a new record looks at nothing that is there.
    free: Vec<u64>,
}

/// A place for a record.
#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Keeps a record; its key is never that of another record in flight, nor 0.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let key = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            1 << 32 | (self.entries.len() - 1) as u64
        });
        self.entries[key as u32 as usize] = Entry { generation: (key >> 32) as u32, value: Some(value) };
        key
    }

    /// Looks at a record, so that it is near when its turn comes.
    #[inline]
    pub(crate) fn look_at(&self, key: u64) {
        if let Some(entry) = self.entries.get(key as u32 as usize) {
            std::hint::black_box(entry.generation);
        }
    }

    /// The record of a key, unless it is gone.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let Entry { generation, value } = self.entries.get_mut(key as u32 as usize)?;
        if *generation == (key >> 32) as u32 { value.as_mut() } else { None }
    }

    /// The record of a key, unless it is gone, to look at.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let Entry { generation, value } = self.entries.get(key as u32 as usize)?;
        if *generation == (key >> 32) as u32 { value.as_ref() } else { None }
    }

    /// The key of the record in this place, which is there.
    #[inline]
    pub(crate) fn key_at(&self, index: u32) -> u64 {
        u64::from(self.entries[index as usize].generation) << 32 | u64::from(index)
    }

    /// Takes the record of a key out.
    #[inline]
    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        let Entry { generation, value } = self.entries.get_mut(key as u32 as usize)?;
        if *generation != (key >> 32) as u32 {
            return None;
        }
        let value = value.take()?;
        self.free.push(next_key(key));
        Some(value)
    }

    /// Lets go of the record of a key, which is there.
    #[inline]
    pub(crate) fn discard(&mut self, key: u64) {
        let entry = &mut self.entries[key as u32 as usize];
        let is_there = entry.generation == (key >> 32) as u32 && entry.value.is_some();
        debug_assert!(is_there, "only what is there is let go of");
        entry.value = None;
        self.free.push(next_key(key));
    }

    /// The records.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.value.as_ref())
    }
}

/// The key of the next record in a place: another generation, which is never 0.
const fn next_key(key: u64) -> u64 {
    match key.checked_add(1 << 32) {
        Some(next) => next,
        None => 1 << 32 | key & u32::MAX as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert('a');
        assert_eq!(slab.remove(a), Some('a'));
        let b = slab.insert('b');
        assert_eq!(a as u32, b as u32, "the index is used again");
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get_mut(b), Some(&mut 'b'));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn generations_begin_again_at_one() {
        assert_eq!(next_key(7 << 32 | 5), 8 << 32 | 5);
        assert_eq!(next_key(u64::from(u32::MAX) << 32 | 5), 1 << 32 | 5);
    }
}
