//! Read-modify-write of P and Q, for any [`Vector`].

use super::vector::{At, Vector, each_register, load, store};
use super::{GROUP, STRIP};
use crate::Change;
use crate::field;

/// Changes taken side by side, each an old and a new block: with P and Q, a group.
const PAIRS: usize = GROUP / 2 - 1;

/// Adds `old + new` of each change to `p` (if `P`) and `2^index · (old + new)` to `q`.
///
/// # Safety
/// The CPU supports `V`; `q`, `p` if `P`, and the blocks of `changes` are of `len` bytes.
#[inline(always)]
pub(super) unsafe fn update<V: Vector, const P: bool>(
    p: *mut u8,
    q: *mut u8,
    len: usize,
    changes: &[Change<'_>],
) {
    let mut start = 0;
    while start < len {
        let end = usize::min(start + STRIP, len);
        for group in changes.chunks(PAIRS) {
            // SAFETY: `start..end` is within every block, as the caller vouches.
            unsafe {
                let mut factors = [V::factor(1); PAIRS];
                for (factor, change) in factors.iter_mut().zip(group) {
                    *factor = V::factor(field::exp(usize::from(change.index)));
                }
                each_register!(V, start, end, step::<V, P>(p, q, group, &factors));
            }
        }
        start = end;
    }
}

#[inline(always)]
unsafe fn step<V: Vector, const P: bool, const UNROLL: usize, const PARTIAL: bool>(
    p: *mut u8,
    q: *mut u8,
    changes: &[Change<'_>],
    factors: &[V::Factor; PAIRS],
    at: At,
) {
    // SAFETY: the caller of `update` vouches for the blocks.
    unsafe {
        let mut p_sum = [V::zero(); UNROLL];
        let mut q_sum = [V::zero(); UNROLL];
        for lane in 0..UNROLL {
            if P {
                p_sum[lane] = load::<V, PARTIAL>(p, at.lane::<V>(lane));
            }
            q_sum[lane] = load::<V, PARTIAL>(q, at.lane::<V>(lane));
        }
        for (change, factor) in changes.iter().zip(factors) {
            for lane in 0..UNROLL {
                let old = load::<V, PARTIAL>(change.old.as_ptr(), at.lane::<V>(lane));
                let new = load::<V, PARTIAL>(change.new.as_ptr(), at.lane::<V>(lane));
                let difference = old.xor(new);
                if P {
                    p_sum[lane] = p_sum[lane].xor(difference);
                }
                q_sum[lane] = q_sum[lane].xor(difference.mul(*factor));
            }
        }
        for lane in 0..UNROLL {
            if P {
                store::<V, PARTIAL>(p, at.lane::<V>(lane), p_sum[lane]);
            }
            store::<V, PARTIAL>(q, at.lane::<V>(lane), q_sum[lane]);
        }
    }
}
