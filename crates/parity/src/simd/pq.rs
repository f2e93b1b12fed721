//! Sums over the data blocks for P and Q by Horner's rule, for any [`Vector`].
//!
//! One pass reads every data block once and hands each position's sums to a [`Finish`]. As in
//! [`xor`](super::xor), at most [`GROUP`] blocks are read side by side, a [`STRIP`] at a time.

use super::finish::{Finish, mul_all, store_all};
use super::vector::{At, Vector, each_group, each_single, load};
use super::{GROUP, P_APART, Q_APART, STRIP, Strip};
use crate::field::exp;

/// Registers of each sum held at once. With four, P, Q and the data do not fit sixteen registers.
const UNROLL: usize = 2;

/// Blocks of successive indexes that are read side by side. Blocks that are missing between them or below the last count
/// as blocks of zeroes where they fit the run.
struct Run {
    /// First bytes, highest index first.
    blocks: [*const u8; GROUP],
    count: usize,
    /// Whether some of the blocks are zeroes, of which there are no more than a strip.
    has_zeroes: bool,
    /// Doublings due to the gap above the run, beyond the one each block of the run brings.
    doublings_before: usize,
    /// Doublings due below the run, if it is the last one.
    doublings_after: usize,
    first: bool,
    last: bool,
}

/// Zeroes for a strip of a missing block.
static ZEROES: Zeroes = Zeroes([0; STRIP]);

#[repr(align(64))]
struct Zeroes([u8; STRIP]);

/// Splits the blocks of `data` below index `below` into the next run, for a strip that begins at `start`.
///
/// `above` is the lowest index of the run before, if there was one.
#[inline(always)]
fn next_run(data: &[Option<&[u8]>], start: usize, below: usize, above: Option<usize>) -> (Run, usize) {
    let mut run = Run {
        blocks: [std::ptr::null(); GROUP],
        count: 0,
        has_zeroes: false,
        doublings_before: 0,
        doublings_after: 0,
        first: above.is_none(),
        last: false,
    };
    let mut index = below;
    while index > 0 && data[index - 1].is_none() {
        index -= 1;
    }
    if let Some(above) = above {
        run.doublings_before = above - index;
    }
    let (mut count, mut lowest, mut has_gap) = (0, index, false);
    while index > 0 && count < GROUP {
        index -= 1;
        run.blocks[count] = if let Some(block) = data[index] {
            (run.count, run.has_zeroes, lowest) = (count + 1, has_gap, index);
            block.as_ptr()
        } else {
            has_gap = true;
            ZEROES.0.as_ptr().wrapping_sub(start)
        };
        count += 1;
    }
    if index == 0 {
        // Zeroes to the end are the doublings due.
        (run.count, run.has_zeroes, lowest) = (count, has_gap, 0);
    }
    if data[..lowest].iter().all(Option::is_none) {
        run.last = true;
        run.doublings_after = lowest;
    }
    (run, lowest)
}

/// Sums `data`, each block of `len` bytes, and hands the sums to `finish`.
///
/// # Safety
/// The CPU supports `V`, every block of `data` and every pointer in `finish` is of `len` bytes, and the
/// highest index present is at most 254.
#[inline(always)]
pub(super) unsafe fn sums<V: Vector, F: Finish<V>>(data: &[Option<&[u8]>], len: usize, finish: &mut F) {
    let (mut p_strip, mut q_strip) = (Strip::uninit(), Strip::uninit());
    let mut start = 0;
    while start < len {
        let (mut run, mut lowest) = next_run(data, start, data.len(), None);
        // A single run leaves no sums to be kept in L1.
        let end = if run.last && !run.has_zeroes { len } else { usize::min(start + STRIP, len) };
        // Addressed by the blocks' own offsets.
        let p = p_strip.addressed_from(start, run.blocks[0], P_APART);
        let strips = Strips { p, q: q_strip.addressed_from(start, run.blocks[0], Q_APART) };
        // SAFETY: `start..end` is within every block and, unless the first run is the last, within the strips.
        unsafe {
            while !run.last {
                inner_run::<V, F>(&run, strips, start, end);
                (run, lowest) = next_run(data, start, lowest, Some(lowest));
            }
            last_run::<V, F>(&run, strips, start, end, finish);
        }
        start = end;
    }
}

/// Where the sums are kept from run to run.
#[derive(Clone, Copy)]
struct Strips {
    p: *mut u8,
    q: *mut u8,
}

/// The factors due to a run's gaps.
#[derive(Clone, Copy)]
struct Gaps<V: Vector> {
    before: Option<V::Factor>,
    after: Option<V::Factor>,
}

impl<V: Vector> Gaps<V> {
    const NONE: Self = Self { before: None, after: None };

    #[inline(always)]
    unsafe fn of(run: &Run) -> Self {
        let mut gaps = Self::NONE;
        // SAFETY: the CPU supports `V`, as the caller of `sums` vouches.
        unsafe {
            if run.doublings_before > 0 {
                gaps.before = Some(V::factor(exp(run.doublings_before)));
            }
            if run.doublings_after > 0 {
                gaps.after = Some(V::factor(exp(run.doublings_after)));
            }
        }
        gaps
    }
}

/// Adds a run that others follow. Most are full.
#[inline(always)]
unsafe fn inner_run<V: Vector, F: Finish<V>>(run: &Run, strips: Strips, mut start: usize, end: usize) {
    // SAFETY: the caller of `sums` vouches for the blocks.
    unsafe {
        if run.count == GROUP && run.doublings_before == 0 {
            let (blocks, gaps) = (run.blocks, Gaps::NONE);
            if run.first {
                each_group!(V, UNROLL, start, end, inner_step::<V, F>(&blocks, true, gaps, strips));
            } else {
                each_group!(V, UNROLL, start, end, inner_step::<V, F>(&blocks, false, gaps, strips));
            }
        }
        let (blocks, gaps) = (run.blocks.get_unchecked(..run.count), Gaps::of(run));
        each_group!(V, UNROLL, start, end, inner_step::<V, F>(blocks, run.first, gaps, strips));
        each_single!(V, start, end, inner_step::<V, F>(blocks, run.first, gaps, strips));
    }
}

/// Adds the last run and finishes.
#[inline(always)]
unsafe fn last_run<V: Vector, F: Finish<V>>(
    run: &Run,
    strips: Strips,
    start: usize,
    end: usize,
    finish: &mut F,
) {
    // SAFETY: the caller of `sums` vouches for the blocks.
    unsafe {
        let mut start = match run.count {
            _ if run.doublings_before > 0 || run.doublings_after > 0 => start,
            1 => last_whole::<V, F, 1>(run, strips, start, end, finish),
            2 => last_whole::<V, F, 2>(run, strips, start, end, finish),
            3 => last_whole::<V, F, 3>(run, strips, start, end, finish),
            4 => last_whole::<V, F, 4>(run, strips, start, end, finish),
            5 => last_whole::<V, F, 5>(run, strips, start, end, finish),
            6 => last_whole::<V, F, 6>(run, strips, start, end, finish),
            7 => last_whole::<V, F, 7>(run, strips, start, end, finish),
            GROUP => last_whole::<V, F, GROUP>(run, strips, start, end, finish),
            _ => start,
        };
        let (blocks, gaps) = (run.blocks.get_unchecked(..run.count), Gaps::of(run));
        each_group!(V, UNROLL, start, end, last_step::<V, F>(blocks, run.first, gaps, strips, finish));
        each_single!(V, start, end, last_step::<V, F>(blocks, run.first, gaps, strips, finish));
    }
}

/// As [`last_run`], as far as [`UNROLL`] registers are whole, for a run of `COUNT` blocks and no gaps; returns where that
/// ended.
///
/// As the number is known when compiled, the addresses stay in registers and the loop over the blocks is unrolled.
#[inline(always)]
unsafe fn last_whole<V: Vector, F: Finish<V>, const COUNT: usize>(
    run: &Run,
    strips: Strips,
    mut start: usize,
    end: usize,
    finish: &mut F,
) -> usize {
    // SAFETY: the caller of `sums` vouches for the blocks; the run has `COUNT`.
    unsafe {
        let (blocks, gaps) = (*run.blocks.first_chunk::<COUNT>().unwrap_unchecked(), Gaps::NONE);
        if run.first {
            each_group!(V, UNROLL, start, end, last_step::<V, F>(&blocks, true, gaps, strips, finish));
        } else {
            each_group!(V, UNROLL, start, end, last_step::<V, F>(&blocks, false, gaps, strips, finish));
        }
    }
    start
}

#[inline(always)]
unsafe fn inner_step<V: Vector, F: Finish<V>, const UNROLL: usize, const PARTIAL: bool>(
    blocks: &[*const u8],
    is_first: bool,
    gaps: Gaps<V>,
    strips: Strips,
    at: At,
) {
    // SAFETY: the caller of `sums` vouches for the blocks; the strips hold whole registers.
    unsafe {
        let (p, q) = add_run::<V, F, UNROLL, PARTIAL>(blocks, is_first, gaps, strips, at);
        if F::P {
            store_all::<V, UNROLL, PARTIAL, false>(strips.p, at, p);
        }
        if F::Q {
            store_all::<V, UNROLL, PARTIAL, false>(strips.q, at, q);
        }
    }
}

#[inline(always)]
unsafe fn last_step<V: Vector, F: Finish<V>, const UNROLL: usize, const PARTIAL: bool>(
    blocks: &[*const u8],
    is_first: bool,
    gaps: Gaps<V>,
    strips: Strips,
    finish: &mut F,
    at: At,
) {
    // SAFETY: the caller of `sums` vouches for the blocks.
    unsafe {
        let (p, mut q) = add_run::<V, F, UNROLL, PARTIAL>(blocks, is_first, gaps, strips, at);
        if let (true, Some(factor)) = (F::Q, gaps.after) {
            q = mul_all(q, factor);
        }
        finish.finish::<UNROLL, PARTIAL>(at, p, q);
    }
}

/// Returns the sums so far, from the strips unless the run is the first, with the run's blocks added.
#[inline(always)]
unsafe fn add_run<V: Vector, F: Finish<V>, const UNROLL: usize, const PARTIAL: bool>(
    blocks: &[*const u8],
    is_first: bool,
    gaps: Gaps<V>,
    strips: Strips,
    at: At,
) -> ([V; UNROLL], [V; UNROLL]) {
    // SAFETY: the caller of `sums` vouches for the blocks; a run that is not the first follows one
    // that stored the strips.
    unsafe {
        let mut p = [V::zero(); UNROLL];
        let mut q = [V::zero(); UNROLL];
        let [first, others @ ..] = blocks else { return (p, q) };
        if is_first {
            for lane in 0..UNROLL {
                p[lane] = load::<V, PARTIAL>(*first, at.lane::<V>(lane));
                q[lane] = p[lane];
            }
        } else {
            for lane in 0..UNROLL {
                let at = at.lane::<V>(lane);
                if F::P {
                    p[lane] = load::<V, PARTIAL>(strips.p, at);
                }
                if F::Q {
                    q[lane] = load::<V, PARTIAL>(strips.q, at);
                }
            }
            if let (true, Some(factor)) = (F::Q, gaps.before) {
                q = mul_all(q, factor);
            }
            add_block::<V, F, UNROLL, PARTIAL>(&mut p, &mut q, *first, at);
        }
        for block in others {
            add_block::<V, F, UNROLL, PARTIAL>(&mut p, &mut q, *block, at);
        }
        (p, q)
    }
}

/// Adds the next lower block.
#[inline(always)]
unsafe fn add_block<V: Vector, F: Finish<V>, const UNROLL: usize, const PARTIAL: bool>(
    p: &mut [V; UNROLL],
    q: &mut [V; UNROLL],
    block: *const u8,
    at: At,
) {
    for lane in 0..UNROLL {
        // SAFETY: the caller of `sums` vouches for the blocks.
        unsafe {
            let value = load::<V, PARTIAL>(block, at.lane::<V>(lane));
            if F::P {
                p[lane] = p[lane].xor(value);
            }
            if F::Q {
                q[lane] = q[lane].horner(value);
            }
        }
    }
}
