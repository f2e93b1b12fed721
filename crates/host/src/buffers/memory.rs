//! Memory for those who measure: laid out as the array's own, so that what is compared is not the memory.

use std::ops::{Deref, DerefMut};

use super::Mapping;
use crate::error::HostError;

/// A run of bytes, zeroed and present, aligned to a page and, from 2 MiB on, in huge pages where the system gives them:
/// the memory that memory members and the buffers of requests are made of.
#[derive(Debug)]
pub struct Memory {
    mapping: Mapping,
    bytes: usize,
}

impl Memory {
    /// Takes `bytes` of memory.
    ///
    /// # Errors
    /// There is not that much.
    pub fn new(bytes: usize) -> Result<Self, HostError> {
        Ok(Self { mapping: Mapping::present(bytes, "a benchmark")?, bytes })
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is at least this long, initialised, owned by this value alone and never lent as a pointer.
        unsafe { std::slice::from_raw_parts(self.mapping.base(), self.bytes) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of this value is that of the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.base(), self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_as_long_as_asked_for() {
        let mut memory = Memory::new((2 << 20) + 5).unwrap();
        assert_eq!((memory.len(), memory.as_ptr() as usize % (2 << 20)), ((2 << 20) + 5, 0));
        assert!(memory.iter().all(|&byte| byte == 0));
        *memory.last_mut().unwrap() = 7;
        assert_eq!(memory.last(), Some(&7));
    }
}
