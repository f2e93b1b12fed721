//! Copies of long blocks, for any [`Vector`].
//!
//! A core waits for memory the least when it is asked for lines at several places at a time: what is copied is taken from
//! [`Vector::COPY_PLACES`] of them in turn, each fetched a little ahead if the CPU does not do so by itself.

use super::vector::{At, Vector, each_group, each_register, load, store_or_stream};

/// The places lie at most this far apart.
const APART_MAX: usize = 16 << 10;
/// How far ahead a line is fetched.
const AHEAD: usize = 256;

/// Whether a copy of so many bytes goes on at several places.
pub(super) const fn is_long<V: Vector>(bytes: usize) -> bool {
    V::COPY_PLACES > 1 && bytes >= V::COPY_PLACES_BYTES_MIN
}

/// Copies `source` to `target`, past the caches if `STREAM`.
///
/// # Safety
/// The CPU supports `V`; both are of equal length; with `STREAM`, `target` is aligned to `V::BYTES` and [`Vector::fence`] comes
/// before another thread looks at it.
#[inline(always)]
pub(super) unsafe fn copy<V: Vector, const STREAM: bool>(target: &mut [u8], source: &[u8]) {
    let len = target.len();
    let (to, from) = (target.as_mut_ptr(), source.as_ptr());
    let mut start = 0;
    if is_long::<V>(len) {
        let run_bytes = V::COPY_RUN_BYTES[usize::from(STREAM)];
        loop {
            let apart = usize::min(APART_MAX, (len - start) / V::COPY_PLACES) / run_bytes * run_bytes;
            if apart == 0 {
                break;
            }
            for offset in (start..start + apart).step_by(run_bytes) {
                for place in 0..V::COPY_PLACES {
                    let (mut start, end) = (offset + place * apart, offset + place * apart + run_bytes);
                    // SAFETY: the last place ends at `start + COPY_PLACES * apart`, which is at most `len`.
                    unsafe {
                        each_group!(V, 4, start, end, step::<V, STREAM>(from, to));
                        each_group!(V, 2, start, end, step::<V, STREAM>(from, to));
                    }
                }
            }
            start += V::COPY_PLACES * apart;
        }
    }
    // SAFETY: `start..len` is within both.
    unsafe { each_register!(V, start, len, step::<V, STREAM>(from, to)) };
}

/// Copies `UNROLL` registers from `at` on, and has those fetched that come [`AHEAD`] of them.
#[inline(always)]
unsafe fn step<V: Vector, const STREAM: bool, const UNROLL: usize, const PARTIAL: bool>(
    from: *const u8,
    to: *mut u8,
    at: At,
) {
    // SAFETY: `copy` keeps `at` within both; what is fetched may be any address.
    unsafe {
        if V::COPY_PLACES > 1 && !PARTIAL {
            (0..UNROLL).for_each(|lane| V::fetch(from.wrapping_add(at.lane::<V>(lane).offset + AHEAD)));
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
