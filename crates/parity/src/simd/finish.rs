//! What is done with the sums of [`pq`](mod@super::pq), for any [`Vector`]: written, or solved for lost blocks, or compared.

use super::vector::{At, Vector, load, store_or_stream};

/// What becomes of the sums.
pub(super) trait Finish<V: Vector> {
    /// Whether the plain sum is wanted; without, `p` is not meaningful.
    const P: bool;
    /// Whether the weighted sum is wanted; without, `q` is not meaningful.
    const Q: bool;

    /// Takes the sums of the data blocks at `UNROLL` registers from `at`.
    ///
    /// # Safety
    /// The CPU supports `V`, and the registers lie within the blocks.
    unsafe fn finish<const UNROLL: usize, const PARTIAL: bool>(
        &mut self,
        at: At,
        p: [V; UNROLL],
        q: [V; UNROLL],
    );
}

/// Writes the sums: P unless null, and Q; past the caches if `STREAM`.
pub(super) struct Write<const P: bool, const STREAM: bool> {
    pub(super) p: *mut u8,
    pub(super) q: *mut u8,
}

impl<V: Vector, const P: bool, const STREAM: bool> Finish<V> for Write<P, STREAM> {
    const P: bool = P;
    const Q: bool = true;

    #[inline(always)]
    unsafe fn finish<const UNROLL: usize, const PARTIAL: bool>(
        &mut self,
        at: At,
        p: [V; UNROLL],
        q: [V; UNROLL],
    ) {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe {
            if P {
                store_all::<V, UNROLL, PARTIAL, STREAM>(self.p, at, p);
            }
            store_all::<V, UNROLL, PARTIAL, STREAM>(self.q, at, q);
        }
    }
}

/// Stores successive registers.
#[inline(always)]
pub(super) unsafe fn store_all<V: Vector, const UNROLL: usize, const PARTIAL: bool, const STREAM: bool>(
    to: *mut u8,
    at: At,
    values: [V; UNROLL],
) {
    for (lane, value) in values.into_iter().enumerate() {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe { store_or_stream::<V, PARTIAL, STREAM>(to, at.lane::<V>(lane), value) };
    }
}

/// Stores successive registers unless `to` is null.
#[inline(always)]
unsafe fn store_wanted<V: Vector, const UNROLL: usize, const PARTIAL: bool, const STREAM: bool>(
    to: *mut u8,
    at: At,
    values: [V; UNROLL],
) {
    if !to.is_null() {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe { store_all::<V, UNROLL, PARTIAL, STREAM>(to, at, values) };
    }
}

/// Adds a block of parity to the sums.
#[inline(always)]
unsafe fn with_parity<V: Vector, const UNROLL: usize, const PARTIAL: bool>(
    mut sums: [V; UNROLL],
    parity: *const u8,
    at: At,
) -> [V; UNROLL] {
    for (lane, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe { *sum = sum.xor(load::<V, PARTIAL>(parity, at.lane::<V>(lane))) };
    }
    sums
}

/// Adds registers pairwise.
#[inline(always)]
unsafe fn xor_all<V: Vector, const UNROLL: usize>(mut a: [V; UNROLL], b: [V; UNROLL]) -> [V; UNROLL] {
    for lane in 0..UNROLL {
        // SAFETY: the CPU supports `V`, as the caller of `sums` vouches.
        unsafe { a[lane] = a[lane].xor(b[lane]) };
    }
    a
}

/// Multiplies registers by a factor.
#[inline(always)]
pub(super) unsafe fn mul_all<V: Vector, const UNROLL: usize>(
    mut values: [V; UNROLL],
    factor: V::Factor,
) -> [V; UNROLL] {
    for value in &mut values {
        // SAFETY: the CPU supports `V`, as the caller of `sums` vouches.
        unsafe { *value = value.mul(factor) };
    }
    values
}

/// Solves with P and Q: `x = a·(p + P) + b·(q + Q)`, `y = x + p + P`. Null `x` or `y` is not written. Past the caches if
/// `STREAM`.
pub(super) struct SolveBoth<V: Vector, const STREAM: bool> {
    pub(super) p: *const u8,
    pub(super) q: *const u8,
    pub(super) a: V::Factor,
    pub(super) b: V::Factor,
    pub(super) x: *mut u8,
    pub(super) y: *mut u8,
}

impl<V: Vector, const STREAM: bool> Finish<V> for SolveBoth<V, STREAM> {
    const P: bool = true;
    const Q: bool = true;

    #[inline(always)]
    unsafe fn finish<const UNROLL: usize, const PARTIAL: bool>(
        &mut self,
        at: At,
        p: [V; UNROLL],
        q: [V; UNROLL],
    ) {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe {
            let p = with_parity::<V, UNROLL, PARTIAL>(p, self.p, at);
            let q = with_parity::<V, UNROLL, PARTIAL>(q, self.q, at);
            let x = xor_all(mul_all(p, self.a), mul_all(q, self.b));
            store_wanted::<V, UNROLL, PARTIAL, STREAM>(self.x, at, x);
            store_wanted::<V, UNROLL, PARTIAL, STREAM>(self.y, at, xor_all(x, p));
        }
    }
}

/// Solves with Q while P is lost: `x = b·(q + Q)` and, if `P`, `new_p = x + p`. Null `x` is not written. Past the
/// caches if `STREAM`.
pub(super) struct SolveQ<V: Vector, const P: bool, const STREAM: bool> {
    pub(super) q: *const u8,
    pub(super) b: V::Factor,
    pub(super) x: *mut u8,
    pub(super) new_p: *mut u8,
}

impl<V: Vector, const P: bool, const STREAM: bool> Finish<V> for SolveQ<V, P, STREAM> {
    const P: bool = P;
    const Q: bool = true;

    #[inline(always)]
    unsafe fn finish<const UNROLL: usize, const PARTIAL: bool>(
        &mut self,
        at: At,
        p: [V; UNROLL],
        q: [V; UNROLL],
    ) {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe {
            let q = with_parity::<V, UNROLL, PARTIAL>(q, self.q, at);
            let x = mul_all(q, self.b);
            store_wanted::<V, UNROLL, PARTIAL, STREAM>(self.x, at, x);
            if P {
                store_all::<V, UNROLL, PARTIAL, STREAM>(self.new_p, at, xor_all(x, p));
            }
        }
    }
}

/// Solves with P while Q is recomputed: `x = p + P`, `new_q = q + factor·x`. Null `x` is not written. Past the caches if
/// `STREAM`.
pub(super) struct SolveP<V: Vector, const STREAM: bool> {
    pub(super) p: *const u8,
    pub(super) factor: V::Factor,
    pub(super) x: *mut u8,
    pub(super) new_q: *mut u8,
}

impl<V: Vector, const STREAM: bool> Finish<V> for SolveP<V, STREAM> {
    const P: bool = true;
    const Q: bool = true;

    #[inline(always)]
    unsafe fn finish<const UNROLL: usize, const PARTIAL: bool>(
        &mut self,
        at: At,
        p: [V; UNROLL],
        q: [V; UNROLL],
    ) {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe {
            let x = with_parity::<V, UNROLL, PARTIAL>(p, self.p, at);
            store_wanted::<V, UNROLL, PARTIAL, STREAM>(self.x, at, x);
            store_all::<V, UNROLL, PARTIAL, STREAM>(self.new_q, at, xor_all(q, mul_all(x, self.factor)));
        }
    }
}

/// Collects the bits in which the sums differ from P and, if `Q`, from Q.
pub(super) struct Compare<V: Vector, const Q: bool> {
    p: *const u8,
    q: *const u8,
    p_differs: V,
    q_differs: V,
}

impl<V: Vector, const Q: bool> Compare<V, Q> {
    /// Starts with no difference seen.
    ///
    /// # Safety
    /// The CPU supports `V`.
    #[inline(always)]
    pub(super) unsafe fn new(p: *const u8, q: *const u8) -> Self {
        // SAFETY: the caller vouches for the CPU.
        let zero = unsafe { V::zero() };
        Self { p, q, p_differs: zero, q_differs: zero }
    }

    /// Returns whether P, and whether Q, differed anywhere.
    ///
    /// # Safety
    /// The CPU supports `V`.
    #[inline(always)]
    pub(super) unsafe fn differs(&self) -> (bool, bool) {
        // SAFETY: the caller vouches for the CPU.
        unsafe { (!self.p_differs.is_zero(), !self.q_differs.is_zero()) }
    }
}

impl<V: Vector, const Q: bool> Finish<V> for Compare<V, Q> {
    const P: bool = true;
    const Q: bool = Q;

    #[inline(always)]
    unsafe fn finish<const UNROLL: usize, const PARTIAL: bool>(
        &mut self,
        at: At,
        p: [V; UNROLL],
        q: [V; UNROLL],
    ) {
        // SAFETY: the caller of `sums` vouches for the pointers.
        unsafe {
            for difference in with_parity::<V, UNROLL, PARTIAL>(p, self.p, at) {
                self.p_differs = self.p_differs.or(difference);
            }
            if Q {
                for difference in with_parity::<V, UNROLL, PARTIAL>(q, self.q, at) {
                    self.q_differs = self.q_differs.or(difference);
                }
            }
        }
    }
}
