//! What ranges of the export hold, in the terms of `base:allocation`.
//!
//! Members say nothing of holes that would be true of the array's data behind parity, so every range is
//! data: true, if not as much as could be known.

/// Extents of a range, as the chunk's bytes: lengths and states.
pub(crate) fn extents(bytes: u32) -> Vec<u8> {
    const DATA: u32 = 0;
    [bytes.to_be_bytes(), DATA.to_be_bytes()].concat()
}
