//! RAID parity: xor, P+Q, read-modify-write of both, recovery of any two blocks of a stripe, checking.
//!
//! # Contract
//! P is the xor of the data blocks. Q is the sum of `2^i` times data block `i` in GF(2^8) with the
//! polynomial 0x11D: the code of Linux md's RAID-6. All blocks of a call are of one length, which may
//! be any and need no alignment; blocks of whole 4 KiB pages, page-aligned, are the fast case. Unequal
//! lengths and data indexes above [`INDEX_MAX`] are the caller's bug and panic; losing more blocks than
//! parity covers is a value, [`RecoverError`].
//!
//! # Kernels
//! [`kernels`] returns the sets that won a short race on this CPU, for xor and for P+Q apart, as the Linux kernel
//! does: the most advanced of those that come near the fastest; [`Kernels::all`] lists every set that runs here. Every set gives the same
//! bytes.
//!
//! `unsafe` is in `simd` alone, but for [`Kernels::copy_streaming_unfenced`], which asks something of its caller, and the
//! question which CPU it is.
//!
//! # What has been run where
//! The tests were run with scalar, SSE2, SSSE3 and AVX2 natively (AMD Zen 3, Intel Sapphire Rapids), with AVX-512BW and
//! AVX-512 with GFNI natively (the latter CPU, and AMD Zen 5, which goes ways of its own), with NEON under `qemu-aarch64`, and one stripe through every operation but
//! the streaming ones with the AVX-512 sets under Miri:
//! ```text
//! RUSTFLAGS="-C target-feature=+avx2,+avx512f,+avx512bw,+gfni" MIRIFLAGS=-Zmiri-disable-isolation \
//!     cargo +nightly miri test -p stripewise-parity --test recovery one_short_stripe
//! ```
//! NEON has not been run on, nor timed on, a CPU that has it.

mod check;
pub mod cpu;
mod field;
mod kernels;
mod race;
mod recover;
mod scalar;
mod simd;

pub use check::Verdict;
pub use kernels::{Kernels, kernels};
pub use race::{Heat, Operation};
pub use recover::{Lost, RecoverError, Role, Stripe};

/// The highest index a data block can have in a stripe with Q.
///
/// The powers of the generator repeat after 255, so block 255 could not be told from block 0.
pub const INDEX_MAX: u16 = field::ORDER as u16 - 1;

/// One data block's old and new contents, for [`Kernels::pq_update`].
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The block's index in the stripe, which is its power of 2 in Q.
    pub index: u16,
    /// The contents the parity was computed with.
    pub old: &'a [u8],
    /// The contents it is to cover.
    pub new: &'a [u8],
}

/// A data block and where it is copied to, for [`Kernels::generate_copying`].
#[derive(Debug)]
pub struct Copied<'a> {
    /// The contents.
    pub block: &'a [u8],
    /// Becomes the same, if there is one.
    pub copy: Option<&'a mut [u8]>,
}
