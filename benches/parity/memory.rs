//! The memory the benchmark works in.

/// Alignment of the blocks.
const PAGE_BYTES: usize = 4096;

/// Page-aligned memory, written once so that every page is its own.
pub(crate) struct Arena {
    bytes: Vec<u8>,
    first: usize,
    len: usize,
}

impl Arena {
    /// Makes an arena of `len` bytes of unlike contents.
    pub(crate) fn new(len: usize) -> Self {
        let bytes: Vec<u8> = (0..len + PAGE_BYTES).map(|index| (index ^ (index >> 7)) as u8).collect();
        let first = bytes.as_ptr().align_offset(PAGE_BYTES);
        Self { bytes, first, len }
    }

    /// Returns the arena's length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the blocks of a stripe, one after the other in memory, page-aligned.
    pub(crate) fn stripe(&mut self, stripe: usize, blocks: usize, block_bytes: usize) -> Vec<&mut [u8]> {
        let start = self.first + stripe * blocks * block_bytes;
        self.bytes[start..start + blocks * block_bytes].chunks_mut(block_bytes).collect()
    }
}
