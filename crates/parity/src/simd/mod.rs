//! The kernels in the CPU's own instructions, one file for each instruction set; all `unsafe` of the
//! crate is below this module.
//!
//! The algorithms ([`xor`], [`pq`], [`update`]) are written once over [`vector::Vector`]; an
//! instruction set implements that trait and names its features in [`kernel_set`]. Functions below the
//! generated entry points are `inline(always)` so that they are compiled for those features.

#![expect(clippy::inline_always, reason = "a call boundary would lose the entry point's CPU features")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod copy;
mod copying;
mod finish;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pq;
pub(crate) mod set;
#[cfg(target_arch = "x86_64")]
mod sse;
mod update;
mod vector;
mod xor;

use std::mem::MaybeUninit;

use set::Set;

/// Blocks read side by side. Eight is the associativity of L1 on most CPUs, which bounds how many blocks it
/// holds at one page offset; blocks usually begin at page boundaries. P and Q may come on top, as a step
/// takes whole lines.
const GROUP: usize = 8;

/// Bytes of each block taken in one go: a multiple of every unrolled register, small enough that two
/// strips of partial sums stay in L1 beside the data.
const STRIP: usize = 4096;

/// Room for the partial sums of a strip, at whatever offset of a page the strip has to be.
///
/// Where sums and block lie at the same offset, a load of the one waits for a store of the other, as the CPU compares the
/// low twelve bits of addresses first: by where their stacks came to lie, one process in ten wrote stripes at a third to two
/// thirds of the speed (Zen 3).
#[repr(align(64))]
struct Strip(MaybeUninit<[u8; 2 * STRIP]>);

/// How far into a page the sums of P are from the block they are of.
const P_APART: usize = 1344;
/// And those of Q.
const Q_APART: usize = 2752;

impl Strip {
    fn uninit() -> Self {
        Self(MaybeUninit::uninit())
    }

    /// Returns a pointer that the block offsets of a strip beginning at `start`, a multiple of [`STRIP`], can be added to. It
    /// is `apart`, a multiple of 64, further in its page than the block's.
    fn addressed_from(&mut self, start: usize, block: *const u8, apart: usize) -> *mut u8 {
        let room = self.0.as_mut_ptr().cast::<u8>();
        let shift = ((block.addr() & !63) + apart).wrapping_sub(room.addr()) % STRIP;
        room.wrapping_add(shift).wrapping_sub(start)
    }
}

/// Returns the sets this CPU runs, slowest instruction set first.
pub(crate) fn runnable() -> Vec<&'static Set> {
    let mut sets = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let candidates = [
            (std::is_x86_feature_detected!("sse2"), &sse::sse2::SET),
            (std::is_x86_feature_detected!("ssse3"), &sse::ssse3::SET),
            (std::is_x86_feature_detected!("avx2"), &avx2::kernels::SET),
            (has_avx512(), &avx512::bw::SET),
            (has_avx512() && std::is_x86_feature_detected!("gfni"), &avx512::gfni::SET),
        ];
        sets.extend(candidates.into_iter().filter_map(|(runs, set)| runs.then_some(set)));
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        sets.push(&neon::kernels::SET);
    }
    sets
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512bw")
}

/// Defines the module `$module` with `SET`, the entry points for the vector `$vector` compiled for the
/// CPU features `$features`.
macro_rules! kernel_set {
    ($module:ident, $name:literal, $vector:ty, $features:literal) => {
        // SAFETY of every block below: the contract of `Set`'s fields, which is that of the functions
        // called; a block is as long as every other, and streaming is asked for aligned targets only.
        #[expect(clippy::undocumented_unsafe_blocks, reason = "one justification holds for all, see above")]
        pub(super) mod $module {
            use std::ptr::{null, null_mut};

            use super::*;
            use $crate::simd::set::{Data, Set, SolveBoth, SolveP, SolveQ};
            use $crate::simd::vector::Vector;
            use $crate::simd::{copy, copying, finish, pq, update, xor};
            use $crate::{Change, Copied};

            type V = $vector;

            /// The kernels, for a CPU that has the features.
            pub(in crate::simd) static SET: Set = Set {
                name: $name,
                xor,
                xor_into,
                xor_streaming,
                copy,
                copy_streaming,
                fence,
                pq,
                pq_streaming,
                q,
                q_streaming,
                solve_both,
                solve_q,
                solve_p,
                differs,
                update,
                copying,
            };

            #[target_feature(enable = $features)]
            unsafe fn xor(target: &mut [u8], sources: &[&[u8]]) {
                unsafe { xor::xor::<V, false, false>(target, sources) }
            }

            #[target_feature(enable = $features)]
            unsafe fn xor_into(target: &mut [u8], sources: &[&[u8]]) {
                unsafe { xor::xor::<V, true, false>(target, sources) }
            }

            #[target_feature(enable = $features)]
            unsafe fn xor_streaming(target: &mut [u8], sources: &[&[u8]]) {
                if target.as_ptr().addr() % V::BYTES == 0 {
                    unsafe { xor::xor::<V, false, true>(target, sources) }
                } else {
                    unsafe { xor::xor::<V, false, false>(target, sources) }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn copy(target: &mut [u8], source: &[u8]) {
                unsafe { copy::copy::<V, false>(target, source) }
            }

            #[target_feature(enable = $features)]
            unsafe fn copy_streaming(target: &mut [u8], source: &[u8]) {
                if target.as_ptr().addr() % V::BYTES == 0 {
                    unsafe { copy::copy::<V, true>(target, source) }
                } else {
                    unsafe { self::copy(target, source) }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn fence() {
                unsafe { V::fence() }
            }

            #[target_feature(enable = $features)]
            unsafe fn pq(p: &mut [u8], q: &mut [u8], data: Data<'_>) {
                let mut write = finish::Write::<true, false> { p: p.as_mut_ptr(), q: q.as_mut_ptr() };
                unsafe { pq::sums::<V, _>(data, q.len(), &mut write) }
            }

            #[target_feature(enable = $features)]
            unsafe fn pq_streaming(p: &mut [u8], q: &mut [u8], data: Data<'_>) {
                if (p.as_ptr().addr() | q.as_ptr().addr()) % V::BYTES == 0 {
                    let mut write = finish::Write::<true, true> { p: p.as_mut_ptr(), q: q.as_mut_ptr() };
                    unsafe { pq::sums::<V, _>(data, q.len(), &mut write) }
                    unsafe { V::fence() }
                } else {
                    unsafe { pq(p, q, data) }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn q(q: &mut [u8], data: Data<'_>) {
                let mut write = finish::Write::<false, false> { p: null_mut(), q: q.as_mut_ptr() };
                unsafe { pq::sums::<V, _>(data, q.len(), &mut write) }
            }

            #[target_feature(enable = $features)]
            unsafe fn q_streaming(q: &mut [u8], data: Data<'_>) {
                if q.as_ptr().addr() % V::BYTES == 0 {
                    let mut write = finish::Write::<false, true> { p: null_mut(), q: q.as_mut_ptr() };
                    unsafe { pq::sums::<V, _>(data, q.len(), &mut write) }
                    unsafe { V::fence() }
                } else {
                    unsafe { self::q(q, data) }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn solve_both(data: Data<'_>, solve: SolveBoth<'_>) {
                if solve.streaming && is_aligned([&solve.x, &solve.y]) {
                    unsafe { solve_both_by::<true>(data, solve) }
                    unsafe { V::fence() }
                } else {
                    unsafe { solve_both_by::<false>(data, solve) }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn solve_both_by<const STREAM: bool>(data: Data<'_>, solve: SolveBoth<'_>) {
                let mut finish = finish::SolveBoth::<V, STREAM> {
                    p: solve.p.as_ptr(),
                    q: solve.q.as_ptr(),
                    a: unsafe { V::factor(solve.a) },
                    b: unsafe { V::factor(solve.b) },
                    x: solve.x.map_or(null_mut(), <[u8]>::as_mut_ptr),
                    y: solve.y.map_or(null_mut(), <[u8]>::as_mut_ptr),
                };
                unsafe { pq::sums::<V, _>(data, solve.q.len(), &mut finish) }
            }

            #[target_feature(enable = $features)]
            unsafe fn solve_q(data: Data<'_>, solve: SolveQ<'_>) {
                let is_streamed = solve.streaming && is_aligned([&solve.x, &solve.new_p]);
                match (solve.new_p.is_some(), is_streamed) {
                    (false, false) => unsafe { solve_q_by::<false, false>(data, solve) },
                    (true, false) => unsafe { solve_q_by::<true, false>(data, solve) },
                    (false, true) => unsafe { solve_q_by::<false, true>(data, solve) },
                    (true, true) => unsafe { solve_q_by::<true, true>(data, solve) },
                }
                if is_streamed {
                    unsafe { V::fence() }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn solve_q_by<const P: bool, const STREAM: bool>(data: Data<'_>, solve: SolveQ<'_>) {
                let mut finish = finish::SolveQ::<V, P, STREAM> {
                    q: solve.q.as_ptr(),
                    b: unsafe { V::factor(solve.b) },
                    x: solve.x.map_or(null_mut(), <[u8]>::as_mut_ptr),
                    new_p: solve.new_p.map_or(null_mut(), <[u8]>::as_mut_ptr),
                };
                unsafe { pq::sums::<V, _>(data, solve.q.len(), &mut finish) }
            }

            /// Whether the targets that are wanted can be streamed to.
            fn is_aligned(targets: [&Option<&mut [u8]>; 2]) -> bool {
                targets.into_iter().flatten().all(|target| target.as_ptr().addr() % V::BYTES == 0)
            }

            #[target_feature(enable = $features)]
            unsafe fn solve_p(data: Data<'_>, solve: SolveP<'_>) {
                let is_new_q_aligned = solve.new_q.as_ptr().addr() % V::BYTES == 0;
                if solve.streaming && is_new_q_aligned && is_aligned([&solve.x, &None]) {
                    unsafe { solve_p_by::<true>(data, solve) }
                    unsafe { V::fence() }
                } else {
                    unsafe { solve_p_by::<false>(data, solve) }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn solve_p_by<const STREAM: bool>(data: Data<'_>, solve: SolveP<'_>) {
                let mut finish = finish::SolveP::<V, STREAM> {
                    p: solve.p.as_ptr(),
                    factor: unsafe { V::factor(solve.factor) },
                    x: solve.x.map_or(null_mut(), <[u8]>::as_mut_ptr),
                    new_q: solve.new_q.as_mut_ptr(),
                };
                unsafe { pq::sums::<V, _>(data, solve.p.len(), &mut finish) }
            }

            #[target_feature(enable = $features)]
            unsafe fn differs(data: Data<'_>, p: &[u8], q: Option<&[u8]>) -> (bool, bool) {
                unsafe {
                    if let Some(q) = q {
                        let mut compare = finish::Compare::<V, true>::new(p.as_ptr(), q.as_ptr());
                        pq::sums::<V, _>(data, p.len(), &mut compare);
                        compare.differs()
                    } else {
                        let mut compare = finish::Compare::<V, false>::new(p.as_ptr(), null());
                        pq::sums::<V, _>(data, p.len(), &mut compare);
                        compare.differs()
                    }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn copying(data: &mut [Copied<'_>], p: &mut [u8], q: Option<&mut [u8]>) {
                let copies = data.iter().filter_map(|one| one.copy.as_deref());
                let places = copies.chain([&*p]).chain(q.as_deref()).map(|place| place.as_ptr().addr());
                let is_aligned = places.fold(0, |all, place| all | place) % V::BYTES == 0;
                match (q, is_aligned) {
                    (None, true) => unsafe { copying::copying::<V, false, true>(data, p, &mut []) },
                    (None, false) => unsafe { copying::copying::<V, false, false>(data, p, &mut []) },
                    (Some(q), true) => unsafe { copying::copying::<V, true, true>(data, p, q) },
                    (Some(q), false) => unsafe { copying::copying::<V, true, false>(data, p, q) },
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn update(p: Option<&mut [u8]>, q: &mut [u8], changes: &[Change<'_>]) {
                let (len, q) = (q.len(), q.as_mut_ptr());
                match p {
                    Some(p) => unsafe { update::update::<V, true>(p.as_mut_ptr(), q, len, changes) },
                    None => unsafe { update::update::<V, false>(null_mut(), q, len, changes) },
                }
            }
        }
    };
}
use kernel_set;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_lie_where_they_should_however_the_stack_and_the_block_lie() {
        let blocks = [0; 3 * STRIP];
        for offset in (0..STRIP).step_by(24) {
            for start in [0, STRIP, 7 * STRIP] {
                let block = blocks[offset..].as_ptr();
                let (mut p, mut q) = (Strip::uninit(), Strip::uninit());
                for (strip, apart) in [(&mut p, P_APART), (&mut q, Q_APART)] {
                    let room = strip.0.as_mut_ptr().addr();
                    let first = strip.addressed_from(start, block, apart).addr().wrapping_add(start);
                    assert!((room..=room + STRIP).contains(&first), "a strip has room behind it");
                    assert_eq!(first % 64, 0);
                    assert_eq!(first.wrapping_sub(block.addr() & !63) % STRIP, apart);
                }
            }
        }
    }
}
