//! Copies of long blocks, for any [`Vector`].
//!
//! What is best differs from core to core (docs/performance.md): what is copied is taken from [`Pace::places`] in turn, each
//! fetched a little ahead if the CPU does not do so by itself; or the CPU's own instruction does it.

use super::vector::{At, Pace, Vector, each_group, each_register, load, store_or_stream};
use crate::cpu::{is_since_zen_4, is_since_zen_5};

/// The places lie at most this far apart.
const APART_MAX: usize = 16 << 10;

/// Shorter copies through the caches are left to the C library.
const STRING_BYTES_MIN: usize = 4096;

/// To other addresses the instruction takes up to eight times as long, unless the source lies as the target does (Zen 4).
const STRING_ALIGN: usize = 32;

/// Copies `source` to `target`, past the caches if `STREAM`.
///
/// # Safety
/// The CPU supports `V`; both are of equal length; with `STREAM`, `target` is aligned to `V::BYTES` and [`Vector::fence`] comes
/// before another thread looks at it.
#[inline(always)]
pub(super) unsafe fn copy<V: Vector, const STREAM: bool>(target: &mut [u8], source: &[u8]) {
    let bytes = target.len();
    // SAFETY: upheld by the caller.
    unsafe {
        if STREAM && V::BYTES == 64 && is_since_zen_5() {
            paced::<V, STREAM, true>(target, source);
        } else if STREAM {
            paced::<V, STREAM, false>(target, source);
        } else if bytes >= STRING_BYTES_MIN && is_since_zen_4() && is_string_aligned(target) {
            by_string(target, source);
        } else if bytes >= V::COPY.bytes_min {
            paced::<V, STREAM, false>(target, source);
        } else {
            target.copy_from_slice(source);
        }
    }
}

/// Whether the instruction copies to a place at its full speed.
#[inline(always)]
fn is_string_aligned(target: &[u8]) -> bool {
    (target.as_ptr() as usize).is_multiple_of(STRING_ALIGN)
}

/// Copies by the instruction that copies strings.
///
/// # Safety
/// Both are of equal length.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn by_string(target: &mut [u8], source: &[u8]) {
    // SAFETY: the instruction reads and writes as many bytes as both have, upwards, as the ABI has it; it changes these
    // registers alone.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") target.len() => _,
            inout("rdi") target.as_mut_ptr() => _,
            inout("rsi") source.as_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn by_string(target: &mut [u8], source: &[u8]) {
    target.copy_from_slice(source);
}

/// Copies at the set's own pace, or that of Zen 5.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub(super) unsafe fn paced<V: Vector, const STREAM: bool, const ZEN_5: bool>(
    target: &mut [u8],
    source: &[u8],
) {
    let pace = if ZEN_5 { Pace::ZEN_5 } else { V::COPY };
    let len = target.len();
    let (to, from) = (target.as_mut_ptr(), source.as_ptr());
    let mut start = 0;
    if len >= pace.bytes_min {
        let run_bytes = pace.run_bytes[usize::from(STREAM)];
        loop {
            let apart = usize::min(APART_MAX, (len - start) / pace.places) / run_bytes * run_bytes;
            if apart == 0 {
                break;
            }
            for offset in (start..start + apart).step_by(run_bytes) {
                for place in 0..pace.places {
                    let (mut start, end) = (offset + place * apart, offset + place * apart + run_bytes);
                    // SAFETY: the last place ends at `start + places * apart`, which is at most `len`.
                    unsafe {
                        each_group!(V, 4, start, end, step::<V, STREAM, ZEN_5>(from, to));
                        each_group!(V, 2, start, end, step::<V, STREAM, ZEN_5>(from, to));
                    }
                }
            }
            start += pace.places * apart;
        }
    }
    // SAFETY: `start..len` is within both.
    unsafe { each_register!(V, start, len, step::<V, STREAM, ZEN_5>(from, to)) };
}

/// Copies `UNROLL` registers from `at` on, and has those fetched that come [`Pace::ahead`] of them.
#[inline(always)]
unsafe fn step<V: Vector, const STREAM: bool, const ZEN_5: bool, const UNROLL: usize, const PARTIAL: bool>(
    from: *const u8,
    to: *mut u8,
    at: At,
) {
    let ahead = if ZEN_5 { Pace::ZEN_5.ahead } else { V::COPY.ahead };
    // SAFETY: `copy` keeps `at` within both; what is fetched may be any address.
    unsafe {
        if ahead > 0 && !PARTIAL {
            (0..UNROLL).for_each(|lane| V::fetch(from.wrapping_add(at.lane::<V>(lane).offset + ahead)));
        }
        let mut values = [V::zero(); UNROLL];
        for (lane, value) in values.iter_mut().enumerate() {
            *value = load::<V, PARTIAL>(from, at.lane::<V>(lane));
        }
        for (lane, value) in values.iter().enumerate() {
            store_or_stream::<V, PARTIAL, STREAM>(to, at.lane::<V>(lane), *value);
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::by_string;

    #[test]
    fn the_string_instruction_copies_all_and_no_more() {
        let source: Vec<u8> = (0..5000_u32).map(|i| i as u8 ^ 0x5A).collect();
        for (at, bytes) in [(0, 4096), (1, 4999), (64, 0), (63, 1)] {
            let mut target = vec![0; source.len()];
            // SAFETY: both are of equal length.
            unsafe { by_string(&mut target[at..at + bytes], &source[at..at + bytes]) };
            assert_eq!(target[at..at + bytes], source[at..at + bytes]);
            assert!(target[..at].iter().chain(&target[at + bytes..]).all(|byte| *byte == 0));
        }
    }
}
