//! SSE2 and SSSE3, 16 bytes: they differ in the multiplication, by eight doublings or by two shuffles
//! of a nibble table.

use std::arch::x86_64::{
    __m128i, _mm_add_epi8, _mm_and_si128, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_loadu_si128, _mm_movemask_epi8,
    _mm_or_si128, _mm_set1_epi8, _mm_setzero_si128, _mm_sfence, _mm_shuffle_epi8, _mm_srli_epi64,
    _mm_storeu_si128, _mm_stream_si128, _mm_xor_si128,
};

use super::kernel_set;
use super::vector::Vector;
use crate::field::{NIBBLES, POLYNOMIAL_LOW};

kernel_set!(sse2, "sse2", Sse<ByDoubling>, "sse2");
kernel_set!(ssse3, "ssse3", Sse<ByShuffle>, "ssse3");

/// How a set multiplies.
trait Multiply: Copy {
    type Factor: Copy;
    unsafe fn factor(value: u8) -> Self::Factor;
    unsafe fn mul(value: __m128i, factor: Self::Factor) -> __m128i;
}

#[derive(Clone, Copy)]
struct ByDoubling;

#[derive(Clone, Copy)]
struct ByShuffle;

#[derive(Clone, Copy)]
struct Sse<M>(__m128i, std::marker::PhantomData<M>);

#[inline(always)]
fn wrap<M>(register: __m128i) -> Sse<M> {
    Sse(register, std::marker::PhantomData)
}

/// Doubles each byte.
///
/// # Safety
/// The CPU supports SSE2.
#[inline(always)]
unsafe fn double(value: __m128i) -> __m128i {
    // SAFETY: the caller vouches for SSE2.
    unsafe {
        let overflow = _mm_cmpgt_epi8(_mm_setzero_si128(), value);
        let reduction = _mm_and_si128(overflow, _mm_set1_epi8(POLYNOMIAL_LOW as i8));
        _mm_xor_si128(_mm_add_epi8(value, value), reduction)
    }
}

impl Multiply for ByDoubling {
    type Factor = u8;

    #[inline(always)]
    unsafe fn factor(value: u8) -> u8 {
        value
    }

    #[inline(always)]
    unsafe fn mul(value: __m128i, factor: u8) -> __m128i {
        // SAFETY: `Vector`'s contract, SSE2.
        unsafe {
            let mut product = _mm_setzero_si128();
            for bit in (0..8).rev() {
                product = double(product);
                // All ones if the factor has the bit: no branch, the factor varies per block.
                let chosen = _mm_set1_epi8(0i8.wrapping_sub((factor >> bit & 1) as i8));
                product = _mm_xor_si128(product, _mm_and_si128(value, chosen));
            }
            product
        }
    }
}

impl Multiply for ByShuffle {
    type Factor = (__m128i, __m128i);

    #[inline(always)]
    unsafe fn factor(value: u8) -> Self::Factor {
        let tables = NIBBLES.0[value as usize].as_ptr();
        // SAFETY: `Vector`'s contract; a factor's tables are two registers long.
        unsafe { (_mm_loadu_si128(tables.cast()), _mm_loadu_si128(tables.add(16).cast())) }
    }

    #[inline(always)]
    unsafe fn mul(value: __m128i, (low, high): Self::Factor) -> __m128i {
        // SAFETY: `Vector`'s contract, SSSE3.
        unsafe {
            let mask = _mm_set1_epi8(0x0F);
            let low_nibbles = _mm_and_si128(value, mask);
            let high_nibbles = _mm_and_si128(_mm_srli_epi64::<4>(value), mask);
            _mm_xor_si128(_mm_shuffle_epi8(low, low_nibbles), _mm_shuffle_epi8(high, high_nibbles))
        }
    }
}

// SAFETY of every block below: the trait's contract, that the CPU supports SSE2 (SSSE3 with
// `ByShuffle`) and pointers are valid.
#[expect(clippy::undocumented_unsafe_blocks, reason = "one justification holds for all, see above")]
impl<M: Multiply> Vector for Sse<M> {
    type Factor = M::Factor;
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        wrap(unsafe { _mm_setzero_si128() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        wrap(unsafe { _mm_loadu_si128(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        unsafe { _mm_stream_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn fence() {
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        wrap(unsafe { _mm_xor_si128(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn horner(self, data: Self) -> Self {
        wrap(unsafe { _mm_xor_si128(double(self.0), data.0) })
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
        wrap(unsafe { _mm_or_si128(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, _mm_setzero_si128())) == 0xFFFF }
    }
}
