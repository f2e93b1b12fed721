//! AVX2, 32 bytes: doubling by compare and add, multiplication by two shuffles of a nibble table.

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm_sfence, _mm256_add_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi8, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_stream_si256, _mm256_testz_si256,
    _mm256_xor_si256,
};

use super::kernel_set;
use super::vector::{Pace, Vector};
use crate::field::{NIBBLES, POLYNOMIAL_LOW};

kernel_set!(kernels, "avx2", Avx2, "avx2");

#[derive(Clone, Copy)]
struct Avx2(__m256i);

// SAFETY of every block below: the trait's contract, that the CPU supports AVX2 and pointers are valid.
#[expect(clippy::undocumented_unsafe_blocks, reason = "one justification holds for all, see above")]
impl Vector for Avx2 {
    type Factor = (__m256i, __m256i);
    const BYTES: usize = 32;
    // What a CPU of AMD's fetches by itself ends with the page, and it fetches for several places at one time. It puts lines
    // together that go past the caches, and gives them up half written where too many are begun.
    const COPY: Pace = Pace { places: 4, bytes_min: 16 << 10, run_bytes: [64, 1024], ahead: 0 };

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        unsafe { _mm256_stream_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn fence() {
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn horner(self, data: Self) -> Self {
        unsafe {
            let overflow = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
            let reduction = _mm256_and_si256(overflow, _mm256_set1_epi8(POLYNOMIAL_LOW as i8));
            let shifted = _mm256_add_epi8(self.0, self.0);
            Self(_mm256_xor_si256(_mm256_xor_si256(shifted, data.0), reduction))
        }
    }

    #[inline(always)]
    unsafe fn factor(value: u8) -> Self::Factor {
        unsafe {
            let tables = NIBBLES.0[value as usize].as_ptr();
            let low = _mm_loadu_si128(tables.cast());
            let high = _mm_loadu_si128(tables.add(16).cast());
            (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
        }
    }

    #[inline(always)]
    unsafe fn mul(self, (low, high): Self::Factor) -> Self {
        unsafe {
            let mask = _mm256_set1_epi8(0x0F);
            let low_nibbles = _mm256_and_si256(self.0, mask);
            let high_nibbles = _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), mask);
            Self(_mm256_xor_si256(
                _mm256_shuffle_epi8(low, low_nibbles),
                _mm256_shuffle_epi8(high, high_nibbles),
            ))
        }
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        Self(unsafe { _mm256_or_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        unsafe { _mm256_testz_si256(self.0, self.0) == 1 }
    }
}
