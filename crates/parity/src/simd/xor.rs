//! Xor of many blocks, for any [`Vector`].
//!
//! Blocks at power-of-two strides share cache sets, so only [`GROUP`] sources are read side by side,
//! a [`STRIP`] of each at a time if there are more; the strip of the target stays in L1 from group to group.

use super::vector::{At, Vector, each_group, each_single, load, store_or_stream};
use super::{GROUP, P_APART, STRIP, Strip};

/// Registers summed side by side.
const UNROLL: usize = 4;

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
        // A single group leaves no sums to be kept in L1.
        let end = if sources.len() <= GROUP { len } else { usize::min(start + STRIP, len) };
        // A streamed target is written once; its partial sums live in the strip, addressed by the
        // same offsets.
        let partial = if STREAM { strip.addressed_from(start, sources[0].as_ptr(), P_APART) } else { target };
        let mut sum: *const u8 = if INTO { target } else { std::ptr::null() };
        let mut rest = sources;
        while rest.len() > GROUP {
            let (group, others) = rest.split_at(GROUP);
            // SAFETY: `partial` is valid over `start..end`, which is within every block.
            unsafe { add_group::<V, false>(sum, group, partial, start, end) };
            sum = partial;
            rest = others;
        }
        // SAFETY: as above, and a streamed target is aligned by the caller.
        unsafe { add_group::<V, STREAM>(sum, rest, target, start, end) };
        start = end;
    }
    if STREAM {
        // SAFETY: the CPU supports `V`.
        unsafe { V::fence() };
    }
}

/// Writes `sum` (nothing if null) plus a group's sources to `out` over `start..end`.
#[inline(always)]
unsafe fn add_group<V: Vector, const STREAM: bool>(
    sum: *const u8,
    group: &[&[u8]],
    out: *mut u8,
    mut start: usize,
    end: usize,
) {
    let mut blocks = [std::ptr::null(); GROUP];
    for (block, source) in blocks.iter_mut().zip(group) {
        *block = source.as_ptr();
    }
    // SAFETY: the caller vouches for `start..end` within all blocks; a group has a source, and at most `GROUP`.
    unsafe {
        match group.len() {
            1 => add_whole::<V, STREAM, 1>(sum, &blocks, out, &mut start, end),
            2 => add_whole::<V, STREAM, 2>(sum, &blocks, out, &mut start, end),
            3 => add_whole::<V, STREAM, 3>(sum, &blocks, out, &mut start, end),
            4 => add_whole::<V, STREAM, 4>(sum, &blocks, out, &mut start, end),
            5 => add_whole::<V, STREAM, 5>(sum, &blocks, out, &mut start, end),
            6 => add_whole::<V, STREAM, 6>(sum, &blocks, out, &mut start, end),
            7 => add_whole::<V, STREAM, 7>(sum, &blocks, out, &mut start, end),
            _ => add_whole::<V, STREAM, GROUP>(sum, &blocks, out, &mut start, end),
        }
        let blocks = blocks.get_unchecked(..group.len());
        each_single!(V, start, end, step::<V, STREAM>(sum, blocks, out));
    }
}

/// As [`add_group`], as far as [`UNROLL`] registers are whole; `from` becomes where that ended.
///
/// The number of sources is known when compiled, so that their addresses stay in registers and the loop over them is
/// unrolled.
#[inline(always)]
unsafe fn add_whole<V: Vector, const STREAM: bool, const COUNT: usize>(
    sum: *const u8,
    blocks: &[*const u8; GROUP],
    out: *mut u8,
    from: &mut usize,
    end: usize,
) {
    let mut start = *from;
    // SAFETY: as in `add_group`; `COUNT` is at most `GROUP`.
    unsafe {
        let blocks = *blocks.first_chunk::<COUNT>().unwrap_unchecked();
        if sum.is_null() {
            each_group!(V, UNROLL, start, end, step::<V, STREAM>(std::ptr::null(), &blocks, out));
        } else {
            each_group!(V, UNROLL, start, end, step::<V, STREAM>(sum, &blocks, out));
        }
    }
    *from = start;
}

/// Writes `sum` (nothing if null) plus `blocks`, of which there is one or more, to `out` at `UNROLL` registers from `at`.
#[inline(always)]
unsafe fn step<V: Vector, const STREAM: bool, const UNROLL: usize, const PARTIAL: bool>(
    sum: *const u8,
    blocks: &[*const u8],
    out: *mut u8,
    at: At,
) {
    // SAFETY: `add_group` keeps `at` within every block.
    unsafe {
        let mut total = [V::zero(); UNROLL];
        for (lane, total) in total.iter_mut().enumerate() {
            let at = at.lane::<V>(lane);
            *total = load::<V, PARTIAL>(*blocks.get_unchecked(0), at);
            if !sum.is_null() {
                *total = total.xor(load::<V, PARTIAL>(sum, at));
            }
        }
        let (pairs, last) = blocks.get_unchecked(1..).as_chunks::<2>();
        for [a, b] in pairs {
            for (lane, total) in total.iter_mut().enumerate() {
                let at = at.lane::<V>(lane);
                *total = total.xor3(load::<V, PARTIAL>(*a, at), load::<V, PARTIAL>(*b, at));
            }
        }
        for last in last {
            for (lane, total) in total.iter_mut().enumerate() {
                *total = total.xor(load::<V, PARTIAL>(*last, at.lane::<V>(lane)));
            }
        }
        for (lane, total) in total.iter().enumerate() {
            store_or_stream::<V, PARTIAL, STREAM>(out, at.lane::<V>(lane), *total);
        }
    }
}
