//! A member in memory: the copy is the I/O.

use std::ops::Range;

use stripewise_engine::io::{IoError, IoResult};
use stripewise_engine::units::{SECTOR_BYTES, SectorRange};
use stripewise_parity::kernels;

use super::Caches;
use crate::buffers::{Mapping, PAGE};
use crate::error::HostError;

/// Pages between the start of the mapping and the data grow by this with each slot, so that equal sectors
/// of the members of a row do not share second-level cache sets. Odd, hence prime to the number of sets.
const DISPLACEMENT_PAGES: usize = 5;

/// Runs from this length on may go past the caches, which then need not fetch what they replace: writes, what is computed to
/// members, and reads whose buffers the caches do not have. Whole 64 KiB chunks gain from it, single pages only where they are
/// written and the caches do not have their place; the limit lies between the two and is not tuned further.
pub(crate) const STREAM_BYTES_MIN: usize = 16 << 10;

/// Memory, present from the start.
#[derive(Debug)]
pub(crate) struct MemoryMember {
    mapping: Mapping,
    skip: usize,
    bytes: u64,
}

impl MemoryMember {
    pub(crate) fn new(slot: usize, sectors: u64) -> Result<Self, HostError> {
        const PURPOSE: &str = "a memory member";
        let skip = slot % 64 * DISPLACEMENT_PAGES * PAGE;
        let no_memory =
            || HostError::NoMemory { purpose: PURPOSE, bytes: sectors.saturating_mul(SECTOR_BYTES) };
        let bytes =
            sectors.checked_mul(SECTOR_BYTES).filter(|b| *b < isize::MAX as u64 / 2).ok_or_else(no_memory)?;
        let mapping = Mapping::present(bytes as usize + skip, PURPOSE)?;
        Ok(Self { mapping, skip, bytes })
    }

    /// The address of a run of sectors.
    ///
    /// # Errors
    /// If they are not all the member's.
    pub(crate) fn address(&self, range: SectorRange) -> Result<*mut u8, IoError> {
        let end = range.start.checked_add(range.count).and_then(|s| s.checked_mul(SECTOR_BYTES));
        if end.is_none_or(|end| end > self.bytes) {
            return Err(IoError::Range);
        }
        // SAFETY: just checked to be within the data, which is within the mapping.
        Ok(unsafe { self.mapping.base().add(self.skip + (range.start * SECTOR_BYTES) as usize) })
    }

    /// Where all its sectors are.
    pub(crate) fn addresses(&self) -> Range<*mut u8> {
        let start = self.mapping.base().wrapping_add(self.skip);
        start..start.wrapping_add(self.bytes as usize)
    }

    /// Copies sectors to the buffers, in order; long runs past the caches if these do not have the buffers, where that is noted.
    ///
    /// # Safety
    /// Each buffer is that many writable bytes, outside every member, and nothing else uses it; together
    /// they are as long as the range. Where it is noted, [`Caches::publish`] comes before another thread looks at them.
    pub(crate) unsafe fn read(
        &self,
        range: SectorRange,
        buffers: impl Iterator<Item = (*mut u8, usize)>,
        mut caches: Option<&mut Caches>,
    ) -> IoResult {
        let mut from = self.address(range)?;
        for (to, bytes) in buffers {
            // SAFETY: upheld by the caller; the sum of the lengths is the checked range.
            unsafe {
                if bytes < STREAM_BYTES_MIN {
                    to.copy_from_nonoverlapping(from, bytes);
                } else {
                    let is_past = caches.as_deref_mut().is_some_and(|caches| caches.is_read_past(to, bytes));
                    copy_long(to, from, bytes, is_past);
                }
                from = from.add(bytes);
            }
        }
        Ok(())
    }

    /// Copies the buffers, in order, to sectors; pages past the caches, but for those that were used lately.
    ///
    /// # Safety
    /// Each buffer is that many readable bytes, outside the range or the very ones of it, which nothing writes; together they are
    /// as long as the range. [`Caches::publish`] comes before another thread looks at the range.
    pub(crate) unsafe fn write(
        &self,
        range: SectorRange,
        buffers: impl Iterator<Item = (*mut u8, usize)>,
        caches: &mut Caches,
    ) -> IoResult {
        let mut to = self.address(range)?;
        for (from, bytes) in buffers {
            // SAFETY: upheld by the caller; the sum of the lengths is the checked range.
            unsafe {
                if to.cast_const() == from.cast_const() {
                    // Pages lent by this very place.
                } else if caches.is_write_past(to, bytes) {
                    copy_long(to, from, bytes, true);
                } else {
                    to.copy_from_nonoverlapping(from, bytes);
                }
                to = to.add(bytes);
            }
        }
        Ok(())
    }

    /// Makes sectors read as zeroes.
    pub(crate) fn zero(&self, range: SectorRange) -> IoResult {
        let to = self.address(range)?;
        // SAFETY: the range was checked; no I/O in flight overlaps it.
        unsafe { to.write_bytes(0, (range.count * SECTOR_BYTES) as usize) };
        Ok(())
    }
}

/// Copies many bytes, to the caches or past them.
///
/// # Safety
/// `from` is `bytes` readable and `to` as many writable bytes, apart from each other, and nothing else uses the latter.
/// [`Caches::publish`] comes before another thread looks at what is copied past the caches.
unsafe fn copy_long(to: *mut u8, from: *const u8, bytes: usize, is_past: bool) {
    // SAFETY: upheld by the caller.
    unsafe {
        let (target, source) =
            (std::slice::from_raw_parts_mut(to, bytes), std::slice::from_raw_parts(from, bytes));
        if is_past {
            kernels().copy_streaming_unfenced(target, source);
        } else {
            kernels().copy(target, source);
        }
    }
}
