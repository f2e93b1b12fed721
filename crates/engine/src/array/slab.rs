//! Records in flight, by index: no allocation once it has grown to the most there ever are.

/// A slab whose keys carry a generation, so that an answer to a record that is gone is noticed.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
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
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push((0, None));
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.0 = entry.0.wrapping_add(1).max(1);
        entry.1 = Some(value);
        u64::from(entry.0) << 32 | u64::from(index)
    }

    /// The record of a key, unless it is gone.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let (generation, value) = self.entries.get_mut(key as u32 as usize)?;
        if *generation == (key >> 32) as u32 { value.as_mut() } else { None }
    }

    /// The record of a key, unless it is gone, to look at.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let (generation, value) = self.entries.get(key as u32 as usize)?;
        if *generation == (key >> 32) as u32 { value.as_ref() } else { None }
    }

    /// Takes the record of a key out.
    #[inline]
    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        let (generation, value) = self.entries.get_mut(key as u32 as usize)?;
        if *generation != (key >> 32) as u32 {
            return None;
        }
        let value = value.take()?;
        self.free.push(key as u32);
        Some(value)
    }

    /// Lets go of the record of a key, which is there.
    #[inline]
    pub(crate) fn discard(&mut self, key: u64) {
        let entry = &mut self.entries[key as u32 as usize];
        debug_assert!(entry.0 == (key >> 32) as u32 && entry.1.is_some(), "only what is there is let go of");
        entry.1 = None;
        self.free.push(key as u32);
    }

    /// The records.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|(_, v)| v.as_ref())
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
}
