//! Parity of blocks that are copied on the way, for any [`Vector`].
//!
//! A stripe that is written whole is read from memory once: block after block, a [`STRIP`] of each, goes to its copy and
//! into the sums, which stay in L1. Going from block to block with every register instead would be three times slower,
//! as memory takes streams of whole lines at few places at a time.

use std::ptr::null_mut;

use super::vector::{At, Vector, each_register, fetch_ahead, load, store, store_or_stream};
use super::{P_APART, Q_APART, STRIP, Strip};
use crate::Copied;

/// Copies the blocks of `data`, and makes P and, if `Q`, Q. What is written goes past the caches if `STREAM`.
///
/// # Safety
/// The CPU supports `V`; there is a block; all blocks, copies and parities that are made are of equal length; with `STREAM`, what is
/// written is aligned to `V::BYTES`.
#[inline(always)]
pub(super) unsafe fn copying<V: Vector, const Q: bool, const STREAM: bool>(
    data: &mut [Copied<'_>],
    p: &mut [u8],
    q: &mut [u8],
) {
    let len = p.len();
    let (p, q) = (p.as_mut_ptr(), q.as_mut_ptr());
    let (mut p_strip, mut q_strip) = (Strip::uninit(), Strip::uninit());
    let mut start = 0;
    while start < len {
        let end = usize::min(start + STRIP, len);
        // Addressed by the blocks' own offsets.
        let block = data[0].block.as_ptr();
        let p_sum = p_strip.addressed_from(start, block, P_APART);
        let q_sum = q_strip.addressed_from(start, block, Q_APART);
        let mut is_first = true;
        for one in data.iter_mut().rev() {
            let to = one.copy.as_mut().map_or(null_mut(), |copy| copy.as_mut_ptr());
            let from = one.block.as_ptr();
            // SAFETY: `start..end` is within every block and copy, and the strips.
            unsafe {
                each_register!(V, start, end, add::<V, Q, STREAM>(from, len, to, p_sum, q_sum, is_first));
            }
            is_first = false;
        }
        // SAFETY: as above.
        unsafe {
            each_register!(V, start, end, store_sum::<V, STREAM>(p_sum, p));
            if Q {
                each_register!(V, start, end, store_sum::<V, STREAM>(q_sum, q));
            }
        }
        start = end;
    }
    if STREAM {
        // SAFETY: the CPU supports `V`.
        unsafe { V::fence() };
    }
}

/// Copies registers of a block of `len` bytes and adds them to the sums: by Horner's rule to Q's, from the highest index down.
#[inline(always)]
unsafe fn add<V: Vector, const Q: bool, const STREAM: bool, const UNROLL: usize, const PARTIAL: bool>(
    from: *const u8,
    len: usize,
    to: *mut u8,
    p: *mut u8,
    q: *mut u8,
    is_first: bool,
    at: At,
) {
    for lane in 0..UNROLL {
        // SAFETY: `copying` keeps `at` within every block.
        unsafe {
            let at = at.lane::<V>(lane);
            if STREAM && !PARTIAL {
                fetch_ahead::<V>(from, at, len);
            }
            let data = load::<V, PARTIAL>(from, at);
            if !to.is_null() {
                store_or_stream::<V, PARTIAL, STREAM>(to, at, data);
            }
            if is_first {
                store::<V, PARTIAL>(p, at, data);
                if Q {
                    store::<V, PARTIAL>(q, at, data);
                }
            } else {
                store::<V, PARTIAL>(p, at, load::<V, PARTIAL>(p, at).xor(data));
                if Q {
                    store::<V, PARTIAL>(q, at, load::<V, PARTIAL>(q, at).horner(data));
                }
            }
        }
    }
}

/// Stores a sum, past the caches if `STREAM`.
#[inline(always)]
unsafe fn store_sum<V: Vector, const STREAM: bool, const UNROLL: usize, const PARTIAL: bool>(
    sum: *const u8,
    to: *mut u8,
    at: At,
) {
    for lane in 0..UNROLL {
        // SAFETY: `copying` keeps `at` within every block.
        unsafe {
            let at = at.lane::<V>(lane);
            store_or_stream::<V, PARTIAL, STREAM>(to, at, load::<V, PARTIAL>(sum, at));
        }
    }
}
