//! AVX-512, 64 bytes, with and without GFNI: they differ in doubling and multiplication, which GFNI
//! does as one product with an 8 × 8 bit matrix. Three-operand xor is `VPTERNLOG`.

use std::arch::x86_64::{
    __m512i, _MM_HINT_T1, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm512_add_epi8, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_maskz_mov_epi8,
    _mm512_movepi8_mask, _mm512_or_si512, _mm512_set1_epi8, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_srli_epi64, _mm512_storeu_si512, _mm512_stream_si512,
    _mm512_ternarylogic_epi32, _mm512_test_epi64_mask, _mm512_xor_si512,
};

use super::kernel_set;
use super::vector::{Pace, Vector};
use crate::field::{NIBBLES, POLYNOMIAL_LOW, affine_matrix};

kernel_set!(bw, "avx512bw", Avx512<ByShuffle>, "avx512f,avx512bw");
kernel_set!(gfni, "avx512gfni", Avx512<ByMatrix>, "avx512f,avx512bw,gfni");

/// `VPTERNLOG`'s truth table for the xor of three.
const XOR3: i32 = 0x96;

/// The matrices of multiplication by each factor.
static MATRICES: [i64; 256] = {
    let mut matrices = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        matrices[factor] = affine_matrix(factor as u8) as i64;
        factor += 1;
    }
    matrices
};

/// How a set doubles and multiplies.
trait Multiply: Copy {
    type Factor: Copy;
    unsafe fn horner(value: __m512i, data: __m512i) -> __m512i;
    unsafe fn factor(value: u8) -> Self::Factor;
    unsafe fn mul(value: __m512i, factor: Self::Factor) -> __m512i;
}

#[derive(Clone, Copy)]
struct ByShuffle;

#[derive(Clone, Copy)]
struct ByMatrix;

#[derive(Clone, Copy)]
struct Avx512<M>(__m512i, std::marker::PhantomData<M>);

#[inline(always)]
fn wrap<M>(register: __m512i) -> Avx512<M> {
    Avx512(register, std::marker::PhantomData)
}

impl Multiply for ByShuffle {
    type Factor = (__m512i, __m512i);

    #[inline(always)]
    unsafe fn horner(value: __m512i, data: __m512i) -> __m512i {
        // SAFETY: `Vector`'s contract, AVX-512F and BW.
        unsafe {
            let polynomial = _mm512_set1_epi8(POLYNOMIAL_LOW as i8);
            let reduction = _mm512_maskz_mov_epi8(_mm512_movepi8_mask(value), polynomial);
            _mm512_ternarylogic_epi32::<XOR3>(_mm512_add_epi8(value, value), reduction, data)
        }
    }

    #[inline(always)]
    unsafe fn factor(value: u8) -> Self::Factor {
        // SAFETY: `Vector`'s contract; a factor's tables are two 16-byte registers long.
        unsafe {
            let tables = NIBBLES.0[value as usize].as_ptr();
            let low = _mm_loadu_si128(tables.cast());
            let high = _mm_loadu_si128(tables.add(16).cast());
            (_mm512_broadcast_i32x4(low), _mm512_broadcast_i32x4(high))
        }
    }

    #[inline(always)]
    unsafe fn mul(value: __m512i, (low, high): Self::Factor) -> __m512i {
        // SAFETY: `Vector`'s contract, AVX-512F and BW.
        unsafe {
            let mask = _mm512_set1_epi8(0x0F);
            let low_nibbles = _mm512_and_si512(value, mask);
            let high_nibbles = _mm512_and_si512(_mm512_srli_epi64::<4>(value), mask);
            _mm512_xor_si512(_mm512_shuffle_epi8(low, low_nibbles), _mm512_shuffle_epi8(high, high_nibbles))
        }
    }
}

impl Multiply for ByMatrix {
    type Factor = __m512i;

    #[inline(always)]
    unsafe fn horner(value: __m512i, data: __m512i) -> __m512i {
        // SAFETY: `Vector`'s contract, AVX-512F and GFNI.
        unsafe {
            let doubled = _mm512_gf2p8affine_epi64_epi8::<0>(value, _mm512_set1_epi64(MATRICES[2]));
            _mm512_xor_si512(doubled, data)
        }
    }

    #[inline(always)]
    unsafe fn factor(value: u8) -> Self::Factor {
        // SAFETY: `Vector`'s contract, AVX-512F.
        unsafe { _mm512_set1_epi64(MATRICES[value as usize]) }
    }

    #[inline(always)]
    unsafe fn mul(value: __m512i, matrix: Self::Factor) -> __m512i {
        // SAFETY: `Vector`'s contract, AVX-512F and GFNI.
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(value, matrix) }
    }
}

// SAFETY of every block below: the trait's contract, that the CPU supports AVX-512F and BW (GFNI with
// `ByMatrix`) and pointers are valid.
#[expect(clippy::undocumented_unsafe_blocks, reason = "one justification holds for all, see above")]
impl<M: Multiply> Vector for Avx512<M> {
    type Factor = M::Factor;
    const BYTES: usize = 64;
    // The CPU's own fetching stops where a page does.
    const COPY_AHEAD: usize = 4096;
    // A core waits for memory the least when it is asked for lines at several places at a time.
    const COPY: Pace = Pace { places: 4, bytes_min: 0, run_bytes: [256; 2], ahead: 256 };

    #[inline(always)]
    unsafe fn fetch(line: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        wrap(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        wrap(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        unsafe { _mm512_stream_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn fence() {
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        wrap(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn xor3(self, second: Self, third: Self) -> Self {
        wrap(unsafe { _mm512_ternarylogic_epi32::<XOR3>(self.0, second.0, third.0) })
    }

    #[inline(always)]
    unsafe fn horner(self, data: Self) -> Self {
        wrap(unsafe { M::horner(self.0, data.0) })
    }

    #[inline(always)]
    unsafe fn factor(value: u8) -> Self::Factor {
        unsafe { M::factor(value) }
    }

    #[inline(always)]
    unsafe fn mul(self, factor: Self::Factor) -> Self {
        wrap(unsafe { M::mul(self.0, factor) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        wrap(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        unsafe { _mm512_test_epi64_mask(self.0, self.0) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Avx512, ByShuffle};
    use crate::simd::{copy, has_avx512};

    /// # Safety
    /// The CPU has the features; both are of equal length, and the target is aligned to 64 bytes.
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn copy<const STREAM: bool, const ZEN_5: bool>(target: &mut [u8], source: &[u8]) {
        // SAFETY: upheld by the caller.
        unsafe { copy::paced::<Avx512<ByShuffle>, STREAM, ZEN_5>(target, source) }
    }

    #[test]
    fn copies_at_either_pace_are_whole() {
        if !has_avx512() {
            return;
        }
        let source: Vec<u8> = (0..300_000_u32).map(|i| (i ^ (i >> 8)) as u8).collect();
        for bytes in [0, 1, 63, 64, 1000, 4096, 16 << 10, (64 << 10) + 320, 300_000] {
            let copies = [copy::<false, false>, copy::<false, true>, copy::<true, false>, copy::<true, true>];
            for copy in copies {
                let mut room = vec![0; bytes + 128];
                let start = room.as_ptr().align_offset(64);
                let (target, behind) = room[start..].split_at_mut(bytes);
                // SAFETY: the CPU has the features; the target is aligned.
                unsafe { copy(target, &source[..bytes]) };
                assert!(target == &source[..bytes], "{bytes} bytes");
                assert!(behind.iter().all(|byte| *byte == 0));
            }
        }
    }
}
