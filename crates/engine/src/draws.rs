//! Drawn numbers for tests, the same in every run.

/// Draws a number below the one that is asked with, by a linear congruential generator (Knuth's MMIX).
pub(crate) fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}
