//! Pages by number: the frames of a page cache, and what writes are encrypted into.

use super::mapping::available_bytes;
use super::{Mapping, PAGE};
use crate::error::HostError;

/// Pages one after the other, aligned, in huge pages where the system has them. They become present when first used.
#[derive(Debug)]
pub(crate) struct Pages {
    mapping: Mapping,
}

impl Pages {
    /// So many pages. They must fit the memory that is free now: using them later could not fail otherwise than by
    /// the end of the process.
    pub(crate) fn new(count: u32, purpose: &'static str) -> Result<Self, HostError> {
        let bytes = count as usize * PAGE;
        if bytes as u64 > available_bytes() {
            return Err(HostError::NoMemory { purpose, bytes: bytes as u64 });
        }
        Ok(Self { mapping: Mapping::new(bytes, purpose)? })
    }

    /// The address of `bytes` from a page's byte `offset` on.
    ///
    /// # Panics
    /// If the run is not within the pages: the engine named one it does not have.
    #[inline]
    pub(crate) fn address(&self, page: u32, offset: u32, bytes: u32) -> *mut u8 {
        let start = page as usize * PAGE + offset as usize;
        assert!(
            start + bytes as usize <= self.mapping.bytes(),
            "{bytes} bytes from page {page} + {offset} are outside the pages"
        );
        // SAFETY: just checked to be within the mapping.
        unsafe { self.mapping.base().add(start) }
    }

    /// The memory, for registration.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_contiguous() {
        let pages = Pages::new(600, "a test").unwrap();
        let first = pages.address(0, 0, 600 * 4096);
        assert_eq!(first as usize % (2 << 20), 0, "a huge page can hold the first");
        assert_eq!(pages.address(3, 512, 512) as usize, first as usize + 3 * 4096 + 512);
    }

    #[test]
    #[should_panic(expected = "outside the pages")]
    fn a_run_past_the_last_page_is_refused() {
        Pages::new(2, "a test").unwrap().address(1, 1, 4096);
    }

    #[test]
    fn more_than_the_memory_is_refused() {
        assert!(matches!(Pages::new(u32::MAX, "a test"), Err(HostError::NoMemory { .. })));
    }
}
