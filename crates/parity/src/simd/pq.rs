//! Sums over the data blocks for P and Q by Horner's rule, for any [`Vector`], and what is done with
//! them: written, or solved for lost blocks, or compared.
//!
//! One pass reads every data block once and hands each position's sums to a [`Finish`]. As in
//! [`xor`](super::xor), at most [`PQ_GROUP`] blocks are read side by side, a [`STRIP`] at a time.

use super::vector::{At, Vector, each_register, load, store, store_or_stream};
use super::{PQ_GROUP, STRIP, Strip};

/// What becomes of the sums at one position.
pub(super) trait Finish<V: Vector> {
    /// Whether the plain sum is wanted; without, `p` is not meaningful.
    const P: bool;
    /// Whether the weighted sum is wanted; without, `q` is not meaningful.
    const Q: bool;

    /// Takes the sums of the data blocks at `at`.
    ///
    /// # Safety
    /// The CPU supports `V`, and `at` lies within the blocks.
    unsafe fn finish<const PARTIAL: bool>(&mut self, at: At, p: V, q: V);
}

/// Blocks of successive indexes that are read side by side.
struct Run {
    /// First bytes, highest index first.
    blocks: [*const u8; PQ_GROUP],
    count: usize,
    /// Doublings due to the gap above the run, beyond the one each block of the run brings.
    doublings_before: usize,
    /// Doublings due below the run, if it is the last one.
    doublings_after: usize,
    first: bool,
    last: bool,
}

/// Splits the present blocks of `data` below index `below` into the next run.
///
/// `above` is the lowest index of the run before, if there was one.
#[inline(always)]
fn next_run(data: &[Option<&[u8]>], below: usize, above: Option<usize>) -> (Run, usize) {
    let mut run = Run {
        blocks: [std::ptr::null(); PQ_GROUP],
        count: 0,
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
    while index > 0 && run.count < PQ_GROUP {
        let Some(block) = data[index - 1] else { break };
        run.blocks[run.count] = block.as_ptr();
        run.count += 1;
        index -= 1;
    }
    if data[..index].iter().all(Option::is_none) {
        run.last = true;
        run.doublings_after = index;
    }
    (run, index)
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
        let end = usize::min(start + STRIP, len);
        // Addressed by the blocks' own offsets.
        let p = p_strip.addressed_from(start);
        let q = q_strip.addressed_from(start);
        let (mut below, mut above) = (data.len(), None);
        loop {
            let (run, lowest) = next_run(data, below, above);
            // SAFETY: `start..end` is within every block and within the strips; the run is of blocks.
            unsafe {
                if run.last {
                    each_register!(V, start, end, last_step::<V, F>(&run, p, q, finish));
                    break;
                }
                each_register!(V, start, end, inner_step::<V, F>(&run, p, q));
            }
            (below, above) = (lowest, Some(lowest));
        }
        start = end;
    }
}

#[inline(always)]
unsafe fn inner_step<V: Vector, F: Finish<V>, const UNROLL: usize, const PARTIAL: bool>(
    run: &Run,
    p_strip: *mut u8,
    q_strip: *mut u8,
    at: At,
) {
    // SAFETY: the caller of `sums` vouches for the blocks; the strips hold whole registers.
    unsafe {
        let (p, q) = add_run::<V, F, UNROLL, PARTIAL>(run, p_strip, q_strip, at);
        for lane in 0..UNROLL {
            let at = at.lane::<V>(lane);
            if F::P {
                store::<V, PARTIAL>(p_strip, at, p[lane]);
            }
            if F::Q {
                store::<V, PARTIAL>(q_strip, at, q[lane]);
            }
        }
    }
}

#[inline(always)]
unsafe fn last_step<V: Vector, F: Finish<V>, const UNROLL: usize, const PARTIAL: bool>(
    run: &Run,
    p_strip: *mut u8,
    q_strip: *mut u8,
    finish: &mut F,
    at: At,
) {
    // SAFETY: the caller of `sums` vouches for the blocks.
    unsafe {
        let (p, mut q) = add_run::<V, F, UNROLL, PARTIAL>(run, p_strip, q_strip, at);
        if F::Q && run.doublings_after > 0 {
            multiply(&mut q, run.doublings_after);
        }
        for lane in 0..UNROLL {
            finish.finish::<PARTIAL>(at.lane::<V>(lane), p[lane], q[lane]);
        }
    }
}

/// Returns the sums so far, from the strips unless the run is the first, with the run's blocks added.
#[inline(always)]
unsafe fn add_run<V: Vector, F: Finish<V>, const UNROLL: usize, const PARTIAL: bool>(
    run: &Run,
    p_strip: *mut u8,
    q_strip: *mut u8,
    at: At,
) -> ([V; UNROLL], [V; UNROLL]) {
    // SAFETY: the caller of `sums` vouches for the blocks; a run that is not the first follows one
    // that stored the strips.
    unsafe {
        let mut p = [V::zero(); UNROLL];
        let mut q = [V::zero(); UNROLL];
        let mut next = 0;
        if !run.first {
            for lane in 0..UNROLL {
                let at = at.lane::<V>(lane);
                if F::P {
                    p[lane] = load::<V, PARTIAL>(p_strip, at);
                }
                if F::Q {
                    q[lane] = load::<V, PARTIAL>(q_strip, at);
                }
            }
            if F::Q && run.doublings_before > 0 {
                multiply(&mut q, run.doublings_before);
            }
        } else if run.count > 0 {
            for lane in 0..UNROLL {
                p[lane] = load::<V, PARTIAL>(run.blocks[0], at.lane::<V>(lane));
                q[lane] = p[lane];
            }
            next = 1;
        }
        while next < run.count {
            let block = *run.blocks.get_unchecked(next);
            for lane in 0..UNROLL {
                let value = load::<V, PARTIAL>(block, at.lane::<V>(lane));
                if F::P {
                    p[lane] = p[lane].xor(value);
                }
                if F::Q {
                    q[lane] = q[lane].horner(value);
                }
            }
            next += 1;
        }
        (p, q)
    }
}

/// Multiplies by `2^doublings`.
#[inline(always)]
unsafe fn multiply<V: Vector, const UNROLL: usize>(q: &mut [V; UNROLL], doublings: usize) {
    // SAFETY: the CPU supports `V`, as the caller of `sums` vouches.
    unsafe {
        let factor = V::factor(crate::field::exp(doublings));
        for lane in q {
            *lane = lane.mul(factor);
        }
    }
}

/// Writes the sums: P unless null, and Q; past the caches if `STREAM`.
pub(super) struct Write<const P: bool, const STREAM: bool> {
    pub(super) p: *mut u8,
    pub(super) q: *mut u8,
}

impl<V: Vector, const P: bool, const STREAM: bool> Finish<V> for Write<P, STREAM> {
    const P: bool = P;
    const Q: bool = true;

    #[inline(always)]
    unsafe fn finish<const PARTIAL: bool>(&mut self, at: At, p: V, q: V) {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe {
            if P {
                store_or_stream::<V, PARTIAL, STREAM>(self.p, at, p);
            }
            store_or_stream::<V, PARTIAL, STREAM>(self.q, at, q);
        }
    }
}

/// Solves with Q: `x = a·(p + P) + b·(q + Q)`, `y = x + p + P`. Null P counts as zero; null `x` or `y`
/// is not written.
pub(super) struct SolveQ<V: Vector> {
    pub(super) p: *const u8,
    pub(super) q: *const u8,
    pub(super) a: V::Factor,
    pub(super) b: V::Factor,
    pub(super) x: *mut u8,
    pub(super) y: *mut u8,
}

impl<V: Vector> Finish<V> for SolveQ<V> {
    const P: bool = true;
    const Q: bool = true;

    #[inline(always)]
    unsafe fn finish<const PARTIAL: bool>(&mut self, at: At, p: V, q: V) {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe {
            let p = if self.p.is_null() { p } else { p.xor(load::<V, PARTIAL>(self.p, at)) };
            let q = q.xor(load::<V, PARTIAL>(self.q, at));
            let x = p.mul(self.a).xor(q.mul(self.b));
            if !self.x.is_null() {
                store::<V, PARTIAL>(self.x, at, x);
            }
            if !self.y.is_null() {
                store::<V, PARTIAL>(self.y, at, x.xor(p));
            }
        }
    }
}

/// Solves with P while Q is recomputed: `x = p + P`, `new_q = q + factor·x`. Null `x` is not written.
pub(super) struct SolveP<V: Vector> {
    pub(super) p: *const u8,
    pub(super) factor: V::Factor,
    pub(super) x: *mut u8,
    pub(super) new_q: *mut u8,
}

impl<V: Vector> Finish<V> for SolveP<V> {
    const P: bool = true;
    const Q: bool = true;

    #[inline(always)]
    unsafe fn finish<const PARTIAL: bool>(&mut self, at: At, p: V, q: V) {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe {
            let x = p.xor(load::<V, PARTIAL>(self.p, at));
            if !self.x.is_null() {
                store::<V, PARTIAL>(self.x, at, x);
            }
            store::<V, PARTIAL>(self.new_q, at, q.xor(x.mul(self.factor)));
        }
    }
}

/// Collects the bits in which the sums differ from P and, if `Q`, from Q.
pub(super) struct Compare<V: Vector, const Q: bool> {
    p: *const u8,
    q: *const u8,
    p_differs: V,
    q_differs: V,
}

impl<V: Vector, const Q: bool> Compare<V, Q> {
    /// Starts with no difference seen.
    ///
    /// # Safety
    /// The CPU supports `V`.
    #[inline(always)]
    pub(super) unsafe fn new(p: *const u8, q: *const u8) -> Self {
        // SAFETY: the caller vouches for the CPU.
        let zero = unsafe { V::zero() };
        Self { p, q, p_differs: zero, q_differs: zero }
    }

    /// Returns whether P, and whether Q, differed anywhere.
    ///
    /// # Safety
    /// The CPU supports `V`.
    #[inline(always)]
    pub(super) unsafe fn differs(&self) -> (bool, bool) {
        // SAFETY: the caller vouches for the CPU.
        unsafe { (!self.p_differs.is_zero(), !self.q_differs.is_zero()) }
    }
}

impl<V: Vector, const Q: bool> Finish<V> for Compare<V, Q> {
    const P: bool = true;
    const Q: bool = Q;

    #[inline(always)]
    unsafe fn finish<const PARTIAL: bool>(&mut self, at: At, p: V, q: V) {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe {
            self.p_differs = self.p_differs.or(p.xor(load::<V, PARTIAL>(self.p, at)));
            if Q {
                self.q_differs = self.q_differs.or(q.xor(load::<V, PARTIAL>(self.q, at)));
            }
        }
    }
}
