//! The race that chooses the kernels: each set computes parity of the same small stripe, in turns.

use std::fmt;
use std::time::{Duration, Instant};

use crate::simd::set::Set;

/// Data blocks of the stripe: as many as the Linux kernel's own P+Q race uses.
const WIDTH: usize = 8;

/// Bytes of a block. Ten blocks exceed L1 and fit any L2: the state of data that just arrived.
const BLOCK_BYTES: usize = 8192;

/// What the stripe is aligned to, as every buffer is that kernels are used on: where `malloc` puts it, each load of 64 bytes
/// reads two lines, and sets with shorter registers win.
const ALIGN: usize = 4096;

/// Turns each set gets. The best counts, since noise only ever slows a turn.
const TURNS: usize = 4;

/// Time of one turn; with 6 sets, 2 operations and 4 turns the race takes about 4 ms.
const TURN: Duration = Duration::from_micros(80);

/// What a heat of the race measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The xor of 8 blocks.
    Xor,
    /// P and Q of 8 blocks.
    Pq,
}

/// One set's result at one operation.
#[derive(Clone, Copy, Debug)]
pub struct Heat {
    /// The instruction set.
    pub name: &'static str,
    /// The operation.
    pub operation: Operation,
    /// Data bytes read per second, in 10^9, in the best turn.
    pub gb_per_second: f64,
}

impl fmt::Display for Heat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operation {
            Operation::Xor => "xor",
            Operation::Pq => "P+Q",
        };
        write!(f, "{operation} {}: {:.1} GB/s", self.name, self.gb_per_second)
    }
}

pub(crate) struct RaceResult {
    pub(crate) xor_set: &'static Set,
    pub(crate) pq_set: &'static Set,
    pub(crate) heats: Vec<Heat>,
}

/// Races `sets`, of which there is at least one.
pub(crate) fn run(sets: &[&'static Set]) -> RaceResult {
    let mut room = vec![0x5A; (WIDTH + 2) * BLOCK_BYTES + ALIGN];
    let start = room.as_ptr().align_offset(ALIGN);
    let (parity, data) = room[start..start + (WIDTH + 2) * BLOCK_BYTES].split_at_mut(2 * BLOCK_BYTES);
    let (p, q) = parity.split_at_mut(BLOCK_BYTES);
    let sources: Vec<&[u8]> = data.chunks(BLOCK_BYTES).collect();
    let blocks: Vec<Option<&[u8]>> = sources.iter().copied().map(Some).collect();

    let xor_rates = best_rates(sets, |set| set.xor(p, &sources));
    let pq_rates = best_rates(sets, |set| set.pq(p, q, &blocks));
    RaceResult {
        xor_set: chosen(sets, &xor_rates),
        pq_set: chosen(sets, &pq_rates),
        heats: [(Operation::Xor, &xor_rates), (Operation::Pq, &pq_rates)]
            .into_iter()
            .flat_map(|(operation, rates)| {
                sets.iter().zip(rates).map(move |(set, &gb_per_second)| Heat {
                    name: set.name,
                    operation,
                    gb_per_second,
                })
            })
            .collect(),
    }
}

/// Returns each set's best rate in GB/s; turns are interleaved so that a slow spell hits all alike.
fn best_rates(sets: &[&'static Set], mut operation: impl FnMut(&Set)) -> Vec<f64> {
    let mut best = vec![0.0; sets.len()];
    for _ in 0..TURNS {
        for (set, best) in sets.iter().zip(&mut best) {
            operation(set);
            let start = Instant::now();
            let mut rounds = 0;
            while start.elapsed() < TURN {
                operation(set);
                rounds += 1;
            }
            let bytes = (rounds * WIDTH * BLOCK_BYTES) as f64;
            *best = f64::max(*best, bytes / start.elapsed().as_secs_f64() / 1e9);
        }
    }
    best
}

/// How much of the best rate a later set must reach to win all the same. In L2 all but the scalar one come near to each
/// other, and a disturbed turn would decide; past the caches AVX2 writes stripes a tenth faster than those before it.
const NEAR: f64 = 0.9;

/// The last set, of those that are named from the slowest instruction set on, that comes near the best.
fn chosen(sets: &[&'static Set], rates: &[f64]) -> &'static Set {
    let best = rates.iter().copied().fold(0.0, f64::max);
    let near = sets.iter().zip(rates).rev().find(|(_, rate)| **rate >= best * NEAR);
    near.expect("the best itself is near").0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kernels;

    #[test]
    fn the_last_set_near_the_highest_rate_wins() {
        let (first, last) = (&crate::scalar::SCALAR, *Kernels::sets().last().expect("the scalar set"));
        if std::ptr::eq(first, last) {
            return;
        }
        let sets = [first, last];
        let won = |rates: [f64; 2]| sets.iter().position(|set| std::ptr::eq(*set, chosen(&sets, &rates)));
        assert_eq!(won([1.0, 2.0]), Some(1));
        assert_eq!(won([51.6, 49.4]), Some(1), "as good as the same");
        assert_eq!(won([51.6, 40.0]), Some(0));
    }

    #[test]
    fn every_set_is_raced_at_both_operations() {
        let heats = run(&[&crate::scalar::SCALAR]).heats;
        assert_eq!(heats.len(), 2);
        assert!(heats.iter().all(|heat| heat.gb_per_second > 0.0));
    }
}
