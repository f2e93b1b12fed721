//! Xor of many blocks, for any [`Vector`].
//!
//! Blocks at power-of-two strides share cache sets, so only [`XOR_GROUP`] sources are read side by side,
//! a [`STRIP`] of each at a time; the strip of the target stays in L1 from group to group.

use super::vector::{At, Vector, each_register, load, store_or_stream};
use super::{STRIP, Strip, XOR_GROUP};

/// Sets `target` to the xor of `sources`, of itself too if `INTO`, past the caches if `STREAM`.
///
/// # Safety
/// The CPU supports `V`; there is a source; all blocks are of equal length; with `STREAM`, `target` is
/// aligned to `V::BYTES`.
#[inline(always)]
pub(super) unsafe fn xor<V: Vector, const INTO: bool, const STREAM: bool>(
    target: &mut [u8],
    sources: &[&[u8]],
) {
    let len = target.len();
    let target = target.as_mut_ptr();
    let mut strip = Strip::uninit();
    let mut start = 0;
    while start < len {
        let end = usize::min(start + STRIP, len);
        // A streamed target is written once; its partial sums live in the strip, addressed by the
        // same offsets.
        let partial = if STREAM { strip.addressed_from(start) } else { target };
        let mut sum: *const u8 = if INTO { target } else { std::ptr::null() };
        let mut rest = sources;
        while rest.len() > XOR_GROUP {
            let (group, others) = rest.split_at(XOR_GROUP);
            // SAFETY: `partial` is valid over `start..end`, which is within every block.
            unsafe { each_register!(V, start, end, step::<V, false>(sum, group, partial)) };
            sum = partial;
            rest = others;
        }
        // SAFETY: as above, and a streamed target is aligned by the caller.
        unsafe { each_register!(V, start, end, step::<V, STREAM>(sum, rest, target)) };
        start = end;
    }
    if STREAM {
        // SAFETY: the CPU supports `V`.
        unsafe { V::fence() };
    }
}

/// Writes `sum` (nothing if null) plus `sources` to `out` at `UNROLL` registers from `at`.
#[inline(always)]
unsafe fn step<V: Vector, const STREAM: bool, const UNROLL: usize, const PARTIAL: bool>(
    sum: *const u8,
    sources: &[&[u8]],
    out: *mut u8,
    at: At,
) {
    // SAFETY: `xor` keeps `at` within every block and `next` below the number of sources, and passes
    // at least one source.
    unsafe {
        let (first, mut next) = if sum.is_null() { (sources.get_unchecked(0).as_ptr(), 1) } else { (sum, 0) };
        let mut total = [V::zero(); UNROLL];
        for (lane, total) in total.iter_mut().enumerate() {
            *total = load::<V, PARTIAL>(first, at.lane::<V>(lane));
        }
        while next + 1 < sources.len() {
            let a = sources.get_unchecked(next).as_ptr();
            let b = sources.get_unchecked(next + 1).as_ptr();
            for (lane, total) in total.iter_mut().enumerate() {
                let at = at.lane::<V>(lane);
                *total = total.xor3(load::<V, PARTIAL>(a, at), load::<V, PARTIAL>(b, at));
            }
            next += 2;
        }
        if next < sources.len() {
            let a = sources.get_unchecked(next).as_ptr();
            for (lane, total) in total.iter_mut().enumerate() {
                *total = total.xor(load::<V, PARTIAL>(a, at.lane::<V>(lane)));
            }
        }
        for (lane, total) in total.iter().enumerate() {
            store_or_stream::<V, PARTIAL, STREAM>(out, at.lane::<V>(lane), *total);
        }
    }
}
