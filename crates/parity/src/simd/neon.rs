//! NEON, 16 bytes: doubling by an arithmetic shift of the sign, multiplication by two table look-ups.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vmaxvq_u8, vorrq_u8, vqtbl1q_u8,
    vreinterpretq_s8_u8, vreinterpretq_u8_s8, vshlq_n_u8, vshrq_n_s8, vshrq_n_u8, vst1q_u8,
};

use super::kernel_set;
use super::vector::Vector;
use crate::field::{NIBBLES, POLYNOMIAL_LOW};

kernel_set!(kernels, "neon", Neon, "neon");

#[derive(Clone, Copy)]
struct Neon(uint8x16_t);

// SAFETY of every block below: the trait's contract, that the CPU supports NEON and pointers are valid.
#[expect(clippy::undocumented_unsafe_blocks, reason = "one justification holds for all, see above")]
impl Vector for Neon {
    type Factor = (uint8x16_t, uint8x16_t);
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { vst1q_u8(to, self.0) }
    }

    /// An ordinary store: `std::arch` has no non-temporal one for NEON.
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn fence() {}

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn horner(self, data: Self) -> Self {
        unsafe {
            let overflow = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(self.0)));
            let reduction = vandq_u8(overflow, vdupq_n_u8(POLYNOMIAL_LOW));
            Self(veorq_u8(veorq_u8(vshlq_n_u8::<1>(self.0), reduction), data.0))
        }
    }

    #[inline(always)]
    unsafe fn factor(value: u8) -> Self::Factor {
        unsafe {
            let tables = NIBBLES.0[value as usize].as_ptr();
            (vld1q_u8(tables), vld1q_u8(tables.add(16)))
        }
    }

    #[inline(always)]
    unsafe fn mul(self, (low, high): Self::Factor) -> Self {
        unsafe {
            let low_nibbles = vandq_u8(self.0, vdupq_n_u8(0x0F));
            let high_nibbles = vshrq_n_u8::<4>(self.0);
            Self(veorq_u8(vqtbl1q_u8(low, low_nibbles), vqtbl1q_u8(high, high_nibbles)))
        }
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        Self(unsafe { vorrq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        unsafe { vmaxvq_u8(self.0) == 0 }
    }
}
