//! Copies that have the CPU fetch what is copied after them, or beside them.
//!
//! How far ahead it is best fetched, into which cache, and how many lines before, or how many copies go on side by side,
//! depends on how many lines and addresses a core can wait for and how soon a copy stops behind them; which CPU has which is
//! measured (docs/performance.md).

pub(crate) const LINE_BYTES: usize = 64;

/// How copies that wait are carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetching {
    kind: Kind,
    /// So many reads are asked for together. One: each is as soon as it is known, beside the engine's work. A core of
    /// Intel's does not go on for long while an address of a prefetch is translated, which takes longer than its line in
    /// a virtual machine; but it translates several addresses at a time.
    pub(crate) together: usize,
    /// The lines of a copy that are asked for first: about as many as memory brings meanwhile, and no more than the copy
    /// that runs can do without.
    pub(crate) first_lines: usize,
    /// How many copies lie between the one that runs and the one that it has fetched.
    pub(crate) between: usize,
    /// How many copies go on side by side, at most [`SIDE_BY_SIDE_MAX`].
    pub(crate) side_by_side: usize,
}

/// What is fetched while a copy runs.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The next copy's lines, beside those copied, into the first cache.
    Next,
    /// The lines of the copy after the next into the second cache, where they wait for no room among those of the first;
    /// 32 bytes copied at a time.
    #[cfg(target_arch = "x86_64")]
    SecondNext,
    /// What the copies beside it are of: the CPU looks the addresses of several up, and fetches what comes next in each, at
    /// one time. 32 bytes copied at a time.
    #[cfg(target_arch = "x86_64")]
    SideBySide,
}

impl Fetching {
    /// Where neither of those below was measured.
    const OTHERS: Self = Self { kind: Kind::Next, together: 1, first_lines: 16, between: 0, side_by_side: 1 };

    /// Of Intel's cores.
    #[cfg(target_arch = "x86_64")]
    const INTEL: Self =
        Self { kind: Kind::SecondNext, together: 8, first_lines: 4, between: 1, side_by_side: 1 };

    /// Of AMD's cores. The engine would wait longer for prefetches than such copies do for their bytes.
    #[cfg(target_arch = "x86_64")]
    const AMD: Self = Self {
        kind: Kind::SideBySide,
        together: 1,
        first_lines: 0,
        between: 0,
        side_by_side: SIDE_BY_SIDE_MAX,
    };

    /// What does best on this CPU.
    pub(crate) fn of_cpu() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            return if stripewise_parity::cpu::is_intel() { Self::INTEL } else { Self::AMD };
        }
        Self::OTHERS
    }

    /// Copies, and has what a later copy is from fetched if there is one.
    ///
    /// # Safety
    /// `from` is `bytes` readable and `to` as many writable bytes, apart from each other.
    pub(crate) unsafe fn copy(self, from: *const u8, to: *mut u8, bytes: usize, later: Option<Later>) {
        // SAFETY: upheld by the caller; AVX2 is there where it was chosen.
        unsafe {
            match (later, self.kind) {
                (Some(later), Kind::Next) => copy_lines(from, to, bytes, later, ask_for),
                #[cfg(target_arch = "x86_64")]
                (Some(later), Kind::SecondNext) => copy_wide(from, to, bytes, later),
                _ => to.copy_from_nonoverlapping(from, bytes),
            }
        }
    }

    /// Copies as many bytes from every place to another, up to [`SIDE_BY_SIDE_MAX`] at a time.
    ///
    /// # Safety
    /// Of every copy, `from` is `bytes` readable and `to` as many writable bytes; those written are apart from all others.
    pub(crate) unsafe fn copy_side_by_side(self, copies: &[Ends], bytes: usize) {
        // SAFETY: upheld by the caller; AVX2 is there where it was chosen.
        unsafe {
            match (self.kind, copies) {
                #[cfg(target_arch = "x86_64")]
                (Kind::SideBySide, &[a, b]) => copy_in_turn([a, b], bytes),
                #[cfg(target_arch = "x86_64")]
                (Kind::SideBySide, &[a, b, c]) => copy_in_turn([a, b, c], bytes),
                #[cfg(target_arch = "x86_64")]
                (Kind::SideBySide, &[a, b, c, d]) => copy_in_turn([a, b, c, d], bytes),
                _ => copies.iter().for_each(|&Ends { from, to }| to.copy_from_nonoverlapping(from, bytes)),
            }
        }
    }
}

/// The most copies that go on side by side.
pub(crate) const SIDE_BY_SIDE_MAX: usize = 4;

/// Where a copy is from, and where to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) from: *const u8,
    pub(crate) to: *mut u8,
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

/// Copies some lines of each in turn.
///
/// # Safety
/// As [`Fetching::copy_side_by_side`], on a CPU with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn copy_in_turn<const COPIES: usize>(copies: [Ends; COPIES], bytes: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    /// Of each in turn.
    const RUN_BYTES: usize = 4 * LINE_BYTES;
    let done = bytes / RUN_BYTES * RUN_BYTES;
    for run in (0..done).step_by(RUN_BYTES) {
        for Ends { from, to } in copies {
            for at in (run..run + RUN_BYTES).step_by(size_of::<__m256i>()) {
                // SAFETY: upheld by the caller; the run lies within.
                unsafe {
                    let bytes = _mm256_loadu_si256(from.add(at).cast());
                    _mm256_storeu_si256(to.add(at).cast(), bytes);
                }
            }
        }
    }
    for Ends { from, to } in copies {
        // SAFETY: as above.
        unsafe { to.add(done).copy_from_nonoverlapping(from.add(done), bytes - done) };
    }
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
pub(crate) mod tests {
    use super::*;

    pub(crate) fn all_kinds() -> Vec<Fetching> {
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("avx2") {
            return vec![Fetching::OTHERS, Fetching::INTEL, Fetching::AMD];
        }
        vec![Fetching::OTHERS]
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

    #[test]
    fn side_by_side_every_byte_is_copied_and_none_beside() {
        let source: Vec<u8> = (0..20_000u32).map(|i| (i * 7 % 251) as u8).collect();
        for (kind, bytes) in all_kinds()
            .into_iter()
            .flat_map(|kind| [0, 1, 255, 256, 257, 4096, 4200].map(|bytes| (kind, bytes)))
        {
            for count in 0..=SIDE_BY_SIDE_MAX + 1 {
                let mut targets = vec![vec![9; 5000]; count];
                // The first two are of the same place.
                let starts: Vec<usize> = (0..count).map(|copy| copy.saturating_sub(1) * 3001).collect();
                let ends = |(target, start): (&mut Vec<u8>, &usize)| Ends {
                    from: source[*start..].as_ptr(),
                    to: target[5..].as_mut_ptr(),
                };
                let copies: Vec<Ends> = targets.iter_mut().zip(&starts).map(ends).collect();
                // SAFETY: all lie within their vectors.
                unsafe { kind.copy_side_by_side(&copies, bytes) };
                for (target, start) in targets.iter().zip(starts) {
                    assert_eq!(target[5..5 + bytes], source[start..start + bytes], "{kind:?}, {bytes} bytes");
                    assert!([&target[..5], &target[5 + bytes..]].concat().iter().all(|byte| *byte == 9));
                }
            }
        }
    }
}
