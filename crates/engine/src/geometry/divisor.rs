//! Division by a number that stays the same.

/// A divisor with its reciprocal: a quotient costs two products instead of a division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    by: u64,
    /// (2⁶⁴ − 1) / `by`, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// For division by a number.
    ///
    /// # Panics
    /// If it is zero.
    pub const fn new(by: u64) -> Self {
        Self { by, reciprocal: u64::MAX / by }
    }

    /// The divisor.
    pub const fn get(self) -> u64 {
        self.by
    }

    /// Quotient and remainder.
    #[inline]
    pub const fn div_rem(self, number: u64) -> (u64, u64) {
        // The reciprocal times `by` falls short of 2⁶⁴ by `by` at most, so that the product falls short of the quotient by
        // number / 2⁶⁴ at most: this is the quotient or one less than it.
        let quotient = ((number as u128 * self.reciprocal as u128) >> 64) as u64;
        let rest = number - quotient * self.by;
        if rest >= self.by { (quotient + 1, rest - self.by) } else { (quotient, rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_those_of_a_division() {
        let edges = |n: u64| [n.wrapping_sub(1), n, n.wrapping_add(1)];
        let divisors = (1..400).chain([512, 1 << 31, (1 << 32) + 1, u64::MAX / 3, u64::MAX - 1, u64::MAX]);
        for by in divisors {
            let divisor = Divisor::new(by);
            let shifted = (0..64).flat_map(|bit| edges(1 << bit));
            let multiples =
                [1, 2, 3, 1000, u64::MAX / by].into_iter().flat_map(|n| edges(by.wrapping_mul(n)));
            for number in shifted.chain(multiples).chain([0, u64::MAX]) {
                assert_eq!(divisor.div_rem(number), (number / by, number % by), "{number} / {by}");
            }
        }
    }
}
