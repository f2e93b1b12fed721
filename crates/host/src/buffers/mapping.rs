//! Anonymous memory from the system.

use std::ptr::NonNull;

use super::PAGE;
use crate::error::HostError;

/// A huge page of x86-64 and of 4 KiB-granule arm64.
const HUGE_PAGE: usize = 2 << 20;

/// A run of anonymous memory, zeroed, aligned to a page and, from 2 MiB on, to a huge page.
///
/// *Ownership.* The mapping hands out raw pointers only. Who may touch which bytes when is the engine's
/// decision: it never lets two actions in flight overlap unless both read.
#[derive(Debug)]
pub(crate) struct Mapping {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory owned by this value, reachable from any thread; the bytes are only
// accessed through raw pointers whose users keep to the rule above.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` (at least a page), readable and writable, with huge pages where the system gives them.
    pub(crate) fn new(bytes: usize, purpose: &'static str) -> Result<Self, HostError> {
        let mapping = Self::map(bytes, libc::PROT_READ | libc::PROT_WRITE, purpose)?;
        if mapping.bytes >= HUGE_PAGE {
            // SAFETY: the range is this mapping's own. The call is advice: a failure changes nothing.
            unsafe { libc::madvise(mapping.base.as_ptr().cast(), mapping.bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }

    /// As [`new`](Self::new), with every page present, so that no fault is taken later.
    pub(crate) fn present(bytes: usize, purpose: &'static str) -> Result<Self, HostError> {
        if bytes as u64 > available_bytes() {
            return Err(HostError::NoMemory { purpose, bytes: bytes as u64 });
        }
        let mapping = Self::new(bytes, purpose)?;
        for offset in (0..mapping.bytes).step_by(PAGE) {
            // SAFETY: the offset is within the mapping, and nothing else uses it yet.
            unsafe { mapping.base().add(offset).write_volatile(0) };
        }
        Ok(mapping)
    }

    /// Maps `bytes` that read as zeroes and cannot be written.
    pub(crate) fn read_only(bytes: usize, purpose: &'static str) -> Result<Self, HostError> {
        Self::map(bytes, libc::PROT_READ, purpose)
    }

    fn map(bytes: usize, protection: i32, purpose: &'static str) -> Result<Self, HostError> {
        let no_memory = HostError::NoMemory { purpose, bytes: bytes as u64 };
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let slack = if bytes >= HUGE_PAGE { HUGE_PAGE } else { 0 };
        let mapped_bytes = bytes + slack;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no existing memory.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                protection,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(no_memory);
        }
        let Some(mapped) = NonNull::new(address.cast::<u8>()) else { return Err(no_memory) };
        let skip = if slack == 0 { 0 } else { mapped.align_offset(HUGE_PAGE) };
        // SAFETY: `skip` is below `slack`, so `skip + bytes` is within the mapping.
        let base = unsafe { mapped.add(skip) };
        Ok(Self { mapped, mapped_bytes, base, bytes })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value and nothing in flight names it any more.
        unsafe { libc::munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// Memory that can be had without swapping. Touching more than this would end in the system's killing the
/// process instead of an error.
pub(super) fn available_bytes() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map_or(u64::MAX, |kib: u64| kib.saturating_mul(1024))
}
