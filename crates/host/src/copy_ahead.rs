//! Copies that have the CPU fetch what is copied after them.
//!
//! How far ahead it is best fetched, into which cache, and how many lines before, depends on how many a core can wait for
//! and how soon a copy stops behind them; which CPU has which is measured (docs/performance.md).

pub(crate) const LINE_BYTES: usize = 64;

/// How copies that wait are fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fetching {
    /// The next copy's lines, beside those copied, into the first cache.
    Next,
    /// The lines of the copy after the next into the second cache, where they wait for no room among those of the first;
    /// 32 bytes copied at a time. Of Intel's cores.
    #[cfg(target_arch = "x86_64")]
    SecondNext,
}

impl Fetching {
    /// What does best on this CPU.
    pub(crate) fn of_cpu() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") && is_intel() {
            return Self::SecondNext;
        }
        Self::Next
    }

    /// So many reads are asked for together. One: each is as soon as it is known, beside the engine's work. A core of
    /// Intel's does not go on for long while an address of a prefetch is translated, which takes longer than its line in
    /// a virtual machine; but it translates several addresses at a time.
    pub(crate) fn together(self) -> usize {
        match self {
            Self::Next => 1,
            #[cfg(target_arch = "x86_64")]
            Self::SecondNext => 8,
        }
    }

    /// The lines of a copy that are asked for first: about as many as memory brings meanwhile, and no more than the copy
    /// that runs can do without.
    pub(crate) fn first_lines(self) -> usize {
        match self {
            Self::Next => 16,
            #[cfg(target_arch = "x86_64")]
            Self::SecondNext => 4,
        }
    }

    /// How many copies lie between the one that runs and the one that it has fetched.
    pub(crate) fn between(self) -> usize {
        match self {
            Self::Next => 0,
            #[cfg(target_arch = "x86_64")]
            Self::SecondNext => 1,
        }
    }

    /// Copies, and has what a later copy is from fetched if there is one.
    ///
    /// # Safety
    /// `from` is `bytes` readable and `to` as many writable bytes, apart from each other.
    pub(crate) unsafe fn copy(self, from: *const u8, to: *mut u8, bytes: usize, later: Option<Later>) {
        // SAFETY: upheld by the caller; AVX2 is there where it was chosen.
        unsafe {
            match (later, self) {
                (None, _) => to.copy_from_nonoverlapping(from, bytes),
                (Some(later), Self::Next) => copy_lines(from, to, bytes, later, ask_for),
                #[cfg(target_arch = "x86_64")]
                (Some(later), Self::SecondNext) => copy_wide(from, to, bytes, later),
            }
        }
    }
}

/// The bytes that a later copy is from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Later {
    pub(crate) from: *const u8,
    pub(crate) bytes: usize,
}

/// Copies line by line, and asks for a line of what is copied later beside each. In line, for the vectors of the CPU that
/// the caller is compiled for.
///
/// # Safety
/// `from` is `bytes` readable and `to` as many writable bytes, apart from each other.
#[inline(always)]
unsafe fn copy_lines(from: *const u8, to: *mut u8, bytes: usize, later: Later, ask: impl Fn(*const u8)) {
    type Line = [u64; LINE_BYTES / 8];
    let lines = bytes / LINE_BYTES;
    for line in 0..lines {
        let at = line * LINE_BYTES;
        if at < later.bytes {
            ask(later.from.wrapping_add(at));
        }
        // SAFETY: upheld by the caller; the line lies within.
        unsafe { to.add(at).cast::<Line>().write_unaligned(from.add(at).cast::<Line>().read_unaligned()) };
    }
    let done = lines * LINE_BYTES;
    // SAFETY: as above.
    unsafe { to.add(done).copy_from_nonoverlapping(from.add(done), bytes - done) };
}

/// # Safety
/// As above, on a CPU with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_wide(from: *const u8, to: *mut u8, bytes: usize, later: Later) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: upheld by the caller.
    unsafe { copy_lines(from, to, bytes, later, |line| _mm_prefetch::<_MM_HINT_T1>(line.cast())) };
}

#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    // CPUID leaf 0: the vendor's name in EBX, EDX, ECX.
    #[allow(unused_unsafe, reason = "safe since Rust 1.94")]
    // SAFETY: every CPU of 64 bits has the instruction.
    let leaf = unsafe { std::arch::x86_64::__cpuid(0) };
    [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
}

/// Has the CPU fetch a line; a hint, which may name any address.
#[inline]
pub(crate) fn ask_for(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_kinds() -> Vec<Fetching> {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            return vec![Fetching::Next, Fetching::SecondNext];
        }
        vec![Fetching::Next]
    }

    #[test]
    fn every_byte_is_copied_and_none_beside() {
        let source: Vec<u8> = (0..5000u32).map(|i| (i * 7 % 251) as u8).collect();
        let laters = [
            None,
            Some(Later { from: source.as_ptr(), bytes: 100 }),
            Some(Later { from: std::ptr::null(), bytes: 4096 }),
        ];
        for (kind, bytes) in
            all_kinds().into_iter().flat_map(|kind| [0, 1, 63, 64, 65, 4096, 4200].map(|bytes| (kind, bytes)))
        {
            for ((from, to), later) in
                [(0, 0), (3, 0), (0, 5)].into_iter().flat_map(|ends| laters.map(|later| (ends, later)))
            {
                let mut target = vec![9; 5000];
                // SAFETY: both lie within their vectors.
                unsafe { kind.copy(source.as_ptr().add(from), target.as_mut_ptr().add(to), bytes, later) };
                let (before, rest) = target.split_at(to);
                assert!(before.iter().all(|byte| *byte == 9), "{kind:?}, {bytes} bytes");
                assert_eq!(
                    rest[..bytes],
                    source[from..from + bytes],
                    "{kind:?}, {bytes} bytes from {from} to {to}"
                );
                assert!(rest[bytes..].iter().all(|byte| *byte == 9), "{kind:?}, {bytes} bytes");
            }
        }
    }
}
