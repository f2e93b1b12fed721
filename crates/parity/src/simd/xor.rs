//! Xor of many blocks, for any [`Vector`].
//!
//! Blocks at power-of-two strides share cache sets, so only [`GROUP`] sources are read side by side,
//! a [`STRIP`] of each at a time if there are more; the strip of the target stays in L1 from group to group.

use super::vector::{At, Vector, each_group, each_single, load, store_or_stream};
use super::{GROUP, P_APART, PACED_BYTES_MAX, STRIP, Strip};

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
    let is_paced = !STREAM && len <= PACED_BYTES_MAX && V::is_paced();
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
            unsafe { add_group::<V, false>(sum, group, partial, start, end, is_paced) };
            sum = partial;
            rest = others;
        }
        // SAFETY: as above, and a streamed target is aligned by the caller.
        unsafe { add_group::<V, STREAM>(sum, rest, target, start, end, is_paced) };
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
    is_paced: bool,
) {
    let mut blocks = [std::ptr::null(); GROUP];
    for (block, source) in blocks.iter_mut().zip(group) {
        *block = source.as_ptr();
    }
    // SAFETY: the caller vouches for `start..end` within all blocks; a group has a source, and at most `GROUP`.
    unsafe {
        if is_paced {
            start = match group.len() {
                1 => add_paced::<V, 1, 32>(sum, &blocks, out, start, end),
                2 => add_paced::<V, 2, 16>(sum, &blocks, out, start, end),
                3 => add_paced::<V, 3, 8>(sum, &blocks, out, start, end),
                4 => add_paced::<V, 4, 8>(sum, &blocks, out, start, end),
                5 => add_paced::<V, 5, 6>(sum, &blocks, out, start, end),
                6 => add_paced::<V, 6, 5>(sum, &blocks, out, start, end),
                7 => add_paced::<V, 7, 4>(sum, &blocks, out, start, end),
                _ => add_paced::<V, GROUP, 4>(sum, &blocks, out, start, end),
            };
        }
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

/// As [`add_whole`], with about 32 lines under way at a time: the next of each block waits for the sums of `LINES` ago.
///
/// A core that goes on asking fills what holds its misses of L1, and asks again and again for what finds no room there: of
/// pages in L2, Zen 5 sums two thirds of what it sums so.
#[inline(always)]
unsafe fn add_paced<V: Vector, const COUNT: usize, const LINES: usize>(
    sum: *const u8,
    blocks: &[*const u8; GROUP],
    out: *mut u8,
    mut start: usize,
    end: usize,
) -> usize {
    // In memory, as this would not fit the registers beside the addresses.
    let mut due = [0; LINES];
    // SAFETY: as in `add_group`; `COUNT` is at most `GROUP`, and what is due is 0.
    unsafe {
        let blocks = *blocks.first_chunk::<COUNT>().unwrap_unchecked();
        if sum.is_null() {
            each_group!(V, 1, start, end, paced_step::<V, LINES>(std::ptr::null(), &blocks, out, &mut due));
        } else {
            each_group!(V, 1, start, end, paced_step::<V, LINES>(sum, &blocks, out, &mut due));
        }
    }
    start
}

/// As [`step`], of one register, which waits for what is due and is due in its turn.
#[inline(always)]
unsafe fn paced_step<V: Vector, const LINES: usize, const UNROLL: usize, const PARTIAL: bool>(
    sum: *const u8,
    blocks: &[*const u8],
    out: *mut u8,
    due: &mut [usize; LINES],
    at: At,
) {
    // SAFETY: `add_group` keeps `at` within every block, and what is due is 0.
    unsafe {
        let due = due.get_unchecked_mut(at.offset / V::BYTES % LINES);
        let held_up = At { offset: V::held_up(at.offset, *due), ..at };
        let [total] = sums::<V, 1, PARTIAL>(sum, blocks, held_up);
        *due = total.awaited();
        store_or_stream::<V, PARTIAL, false>(out, at, total);
    }
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
        let total = sums::<V, UNROLL, PARTIAL>(sum, blocks, at);
        for (lane, total) in total.iter().enumerate() {
            store_or_stream::<V, PARTIAL, STREAM>(out, at.lane::<V>(lane), *total);
        }
    }
}

/// Returns `sum` (nothing if null) plus `blocks`, of which there is one or more, at `UNROLL` registers from `at`.
#[inline(always)]
unsafe fn sums<V: Vector, const UNROLL: usize, const PARTIAL: bool>(
    sum: *const u8,
    blocks: &[*const u8],
    at: At,
) -> [V; UNROLL] {
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
        total
    }
}
