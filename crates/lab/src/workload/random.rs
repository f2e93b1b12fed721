//! The workload's own random numbers: small, fast, and the same on every machine and in every version.

/// xoshiro256++ (Blackman and Vigna, <https://prng.di.unimi.it>), seeded by splitmix64 as its authors advise.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of a seed and a stream number; streams of one seed are unrelated.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mix = seed ^ splitmix64(&mut stream.wrapping_add(0x5851_f42d_4c95_7f2d));
        Self { state: std::array::from_fn(|_| splitmix64(&mut mix)) }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which is above zero. Multiply-and-shift: the most likely number is more likely
    /// than the least by less than `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Puts the items in a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Steps the state and returns the mixed bits.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs published for splitmix64 with seed 1234567 (Rosetta Code).
    #[test]
    fn splitmix64_gives_the_published_numbers() {
        let mut state = 1_234_567;
        let out: Vec<u64> = (0..3).map(|_| splitmix64(&mut state)).collect();
        assert_eq!(out, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    /// The first outputs of the reference implementation from the state 1, 2, 3, 4.
    #[test]
    fn xoshiro256pp_gives_the_published_numbers() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let out: Vec<u64> = (0..4).map(|_| random.next_u64()).collect();
        assert_eq!(out, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut random = Random::new(7, 0);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|c| (9_600..10_400).contains(c)), "{counts:?}");
    }

    #[test]
    fn streams_and_seeds_differ() {
        let first = |seed, stream| Random::new(seed, stream).next_u64();
        assert_ne!(first(1, 0), first(1, 1));
        assert_ne!(first(1, 0), first(2, 0));
        assert_eq!(first(1, 0), first(1, 0));
    }
}
