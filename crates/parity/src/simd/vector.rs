//! The operations an instruction set brings: one implementation of [`Vector`] per set.

/// A register of bytes, each an element of GF(2^8).
///
/// Contract of every method: the CPU supports the instruction set the implementation is written for.
/// Pointers need no alignment except in [`stream`](Vector::stream).
pub(super) trait Vector: Copy {
    /// A factor in the form the set multiplies by.
    type Factor: Copy;

    /// Bytes in the register, a power of two of at most 64.
    const BYTES: usize;

    /// How far before they are used the lines of a stripe that is copied past the caches are fetched; 0 if the CPU is left to do so.
    const COPY_AHEAD: usize = 0;

    /// How long blocks are copied.
    const COPY: Pace = Pace::PLAIN;

    /// Has a line fetched into the second cache; a hint, which may name any address.
    #[inline(always)]
    unsafe fn fetch(_line: *const u8) {}

    /// Returns all zeroes.
    unsafe fn zero() -> Self;

    /// Loads `BYTES` readable bytes.
    unsafe fn load(from: *const u8) -> Self;

    /// Stores to `BYTES` writable bytes.
    unsafe fn store(self, to: *mut u8);

    /// Stores past the caches, to an address that is a multiple of `BYTES`.
    unsafe fn stream(self, to: *mut u8);

    /// Orders earlier [`stream`](Vector::stream) stores before whatever publishes the buffer.
    unsafe fn fence();

    /// Adds in the field.
    unsafe fn xor(self, other: Self) -> Self;

    /// Adds two more; sets with a three-operand instruction do it in one.
    #[inline(always)]
    unsafe fn xor3(self, second: Self, third: Self) -> Self {
        // SAFETY: the caller upholds the trait's contract.
        unsafe { self.xor(second).xor(third) }
    }

    /// One step of Horner's rule: doubles, then adds `data`.
    unsafe fn horner(self, data: Self) -> Self;

    /// Prepares a factor.
    unsafe fn factor(value: u8) -> Self::Factor;

    /// Multiplies each byte by a factor.
    unsafe fn mul(self, factor: Self::Factor) -> Self;

    /// Unites the set bits of both.
    unsafe fn or(self, other: Self) -> Self;

    /// Whether every bit is clear.
    unsafe fn is_zero(self) -> bool;
}

/// How long blocks are copied.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// At how many places a copy goes on at a time.
    pub(super) places: usize,
    /// Shorter copies go on at one place.
    pub(super) bytes_min: usize,
    /// Bytes of a place copied at a time: through the caches, and past them.
    pub(super) run_bytes: [usize; 2],
    /// How far ahead a line is fetched; 0 if the CPU is left to do so.
    pub(super) ahead: usize,
}

impl Pace {
    /// From the first byte to the last.
    const PLAIN: Self = Self { places: 1, bytes_min: usize::MAX, run_bytes: [0; 2], ahead: 0 };

    /// Past the caches with 64-byte registers on AMD's cores since Zen 5: at one place, whose lines the CPU fetches across
    /// pages, if it is told where they will be.
    pub(super) const ZEN_5: Self = Self { ahead: 4096, ..Self::PLAIN };
}

/// One register's worth of a block: its offset and how many of its bytes exist.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl At {
    /// Returns the position `lane` registers further on.
    #[inline(always)]
    pub(super) fn lane<V: Vector>(self, lane: usize) -> Self {
        Self { offset: self.offset + lane * V::BYTES, bytes: self.bytes }
    }
}

/// Loads the register at `at`; with `PARTIAL`, only `at.bytes` of it, the rest zero.
///
/// # Safety
/// The CPU supports `V`, and `at.bytes` bytes (all of `V::BYTES` unless `PARTIAL`) at `base + at.offset`
/// are readable.
#[inline(always)]
pub(super) unsafe fn load<V: Vector, const PARTIAL: bool>(base: *const u8, at: At) -> V {
    // SAFETY: the caller vouches for the range; the padded copy is as long as the longest register.
    unsafe {
        let from = base.add(at.offset);
        if PARTIAL {
            let mut padded = [0u8; 64];
            std::ptr::copy_nonoverlapping(from, padded.as_mut_ptr(), at.bytes);
            V::load(padded.as_ptr())
        } else {
            V::load(from)
        }
    }
}

/// Stores the register at `at`; with `PARTIAL`, only `at.bytes` of it.
///
/// # Safety
/// As [`load`], for writing.
#[inline(always)]
pub(super) unsafe fn store<V: Vector, const PARTIAL: bool>(base: *mut u8, at: At, value: V) {
    // SAFETY: the caller vouches for the range; the padded copy is as long as the longest register.
    unsafe {
        let to = base.add(at.offset);
        if PARTIAL {
            let mut padded = [0u8; 64];
            value.store(padded.as_mut_ptr());
            std::ptr::copy_nonoverlapping(padded.as_ptr(), to, at.bytes);
        } else {
            value.store(to);
        }
    }
}

/// Has the register fetched that is [`Vector::COPY_AHEAD`] behind `at`, if it lies before `end`.
///
/// # Safety
/// The CPU supports `V`.
#[inline(always)]
pub(super) unsafe fn fetch_ahead<V: Vector>(base: *const u8, at: At, end: usize) {
    let ahead = at.offset + V::COPY_AHEAD;
    if V::COPY_AHEAD > 0 && ahead < end {
        // SAFETY: the caller vouches for the CPU.
        unsafe { V::fetch(base.wrapping_add(ahead)) };
    }
}

/// Stores the register at `at`, past the caches if `STREAM` and the register is whole.
///
/// # Safety
/// As [`store`]; with `STREAM`, `base + at.offset` is a multiple of `V::BYTES`.
#[inline(always)]
pub(super) unsafe fn store_or_stream<V: Vector, const PARTIAL: bool, const STREAM: bool>(
    base: *mut u8,
    at: At,
    value: V,
) {
    // SAFETY: the caller vouches for the range and the alignment.
    unsafe {
        if STREAM && !PARTIAL {
            value.stream(base.add(at.offset));
        } else {
            store::<V, PARTIAL>(base, at, value);
        }
    }
}

/// Runs `$step::<UNROLL, PARTIAL>(at)` over `$start..$end`: four registers at a time, then one, then what
/// is left of one.
macro_rules! each_register {
    ($vector:ty, $start:expr, $end:expr, $($step:tt)*) => {{
        let mut start = $start;
        $crate::simd::vector::each_group!($vector, 4, start, $end, $($step)*);
        $crate::simd::vector::each_single!($vector, start, $end, $($step)*);
    }};
}
pub(super) use each_register;

/// As [`each_register`], `$unroll` registers at a time while as many are whole; `$start` becomes where that
/// ended.
macro_rules! each_group {
    (
        $vector:ty, $unroll:expr, $start:ident, $end:expr,
        $step:ident :: <$($generic:tt),*> ( $($argument:expr),* )
    ) => {{
        let (bytes, end) = (<$vector>::BYTES, $end);
        while $start + $unroll * bytes <= end {
            $step::<$($generic,)* { $unroll }, false>($($argument,)* At { offset: $start, bytes });
            $start += $unroll * bytes;
        }
    }};
}
pub(super) use each_group;

/// As [`each_register`], one register at a time.
macro_rules! each_single {
    ($vector:ty, $start:expr, $end:expr, $step:ident :: <$($generic:tt),*> ( $($argument:expr),* )) => {{
        let bytes = <$vector>::BYTES;
        let (mut offset, end) = ($start, $end);
        while offset + bytes <= end {
            $step::<$($generic,)* 1, false>($($argument,)* At { offset, bytes });
            offset += bytes;
        }
        if offset < end {
            $step::<$($generic,)* 1, true>($($argument,)* At { offset, bytes: end - offset });
        }
    }};
}
pub(super) use each_single;
