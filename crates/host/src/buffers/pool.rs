//! The buffers of a workload's requests.

use super::{Mapping, PAGE};
use crate::error::HostError;

/// Bytes of pseudo-random filling that repeat through the pool.
const FILLING_BYTES: usize = 1 << 20;

/// One page-aligned buffer per request id, present and filled with bytes that do not compress.
#[derive(Debug)]
pub(crate) struct RequestPool {
    mapping: Mapping,
    stride: usize,
    bytes: u64,
}

impl RequestPool {
    /// Buffers of `bytes` for ids below `count`.
    pub(crate) fn new(count: u32, bytes: u64, seed: u64) -> Result<Self, HostError> {
        const PURPOSE: &str = "the buffers of requests";
        let no_memory =
            || HostError::NoMemory { purpose: PURPOSE, bytes: bytes.saturating_mul(u64::from(count)) };
        let length = usize::try_from(bytes).map_err(|_| no_memory())?.max(1);
        // The page in between keeps equal offsets of neighbouring buffers out of the same cache sets.
        let stride =
            length.checked_next_multiple_of(PAGE).and_then(|b| b.checked_add(PAGE)).ok_or_else(no_memory)?;
        let total =
            stride.checked_mul(count as usize).filter(|t| *t < isize::MAX as usize).ok_or_else(no_memory)?;
        let mapping = Mapping::present(total, PURPOSE)?;
        fill(&mapping, seed);
        Ok(Self { mapping, stride, bytes })
    }

    /// The buffer of a request.
    ///
    /// # Panics
    /// If the workload uses an id it did not announce.
    pub(crate) fn buffer(&self, id: u32) -> *mut u8 {
        let start = id as usize * self.stride;
        assert!(
            start + self.stride <= self.mapping.bytes(),
            "request id {id} is above the announced maximum"
        );
        // SAFETY: just checked to be within the mapping.
        unsafe { self.mapping.base().add(start) }
    }

    /// Length of each buffer.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memory, for registration.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

/// Fills the mapping with the output of xorshift64* (Vigna, 2016), repeated each [`FILLING_BYTES`].
fn fill(mapping: &Mapping, seed: u64) {
    let mut state = seed | 1;
    let filling: Vec<u64> = (0..FILLING_BYTES / 8)
        .map(|_| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            state.wrapping_mul(0x2545_F491_4F6C_DD1D)
        })
        .collect();
    for start in (0..mapping.bytes()).step_by(FILLING_BYTES) {
        let bytes = FILLING_BYTES.min(mapping.bytes() - start);
        // SAFETY: both ranges are `bytes` long and distinct; nothing else uses the mapping yet.
        unsafe { mapping.base().add(start).copy_from_nonoverlapping(filling.as_ptr().cast(), bytes) };
    }
}
