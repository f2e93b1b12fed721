//! The table of benchmarks that needs no other program: what this build does on this machine, beside what the machine can
//! do.
//!
//! # Contract
//! A row's two sides are measured in interleaved rounds on the same memory, and the ratio is that of their medians, of
//! growth the median of each round's; see [`table`]. Rates of one thread on memory are per second on a CPU ([`clock`]), so that others on the machine disturb
//! them less. Nothing is written to disk.
//!
//! `stripewise bench --self` prints the table; `benches/` measures the same rows longer, and beside peers.

mod array;
mod bare;
pub mod clock;
pub mod control;
mod kernels;
pub mod limits;
pub mod loops;
mod shards;
mod simulation;
mod sync;
pub mod table;

use std::time::Duration;

use anyhow::Result;

pub use table::{Row, Target, Unit, Verdict};

/// How long is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Rounds that count; some rows have more and shorter ones.
    pub rounds: u64,
    /// Of one side in one round.
    pub sample: Duration,
    /// Of every member in memory.
    pub member_bytes: u64,
    /// Memory whose rates are measured: more than the caches hold.
    pub probe_bytes: usize,
    /// Requests of which the last are compared with the first; if none are named, as many as rounds and samples stand for.
    pub requests: Option<u64>,
}

impl Scale {
    /// A first look: seconds, and figures that only show that everything runs.
    pub const QUICK: Self = Self {
        rounds: 3,
        sample: Duration::from_millis(20),
        member_bytes: 32 << 20,
        probe_bytes: 64 << 20,
        requests: None,
    };
    /// The whole table within three minutes.
    pub const TABLE: Self = Self {
        rounds: 7,
        sample: Duration::from_millis(120),
        member_bytes: 128 << 20,
        probe_bytes: 256 << 20,
        requests: None,
    };
    /// For figures that are written down.
    pub const LONG: Self = Self {
        rounds: 15,
        sample: Duration::from_millis(400),
        member_bytes: 256 << 20,
        probe_bytes: 512 << 20,
        requests: None,
    };

    /// As long, in so many times as many turns: a machine that others share changes its speed within tenths of a second.
    fn in_turns(&self, times: u32) -> Self {
        Self { rounds: self.rounds * u64::from(times), sample: self.sample / times, ..*self }
    }
}

/// Some rows that are measured together.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// The word that chooses it.
    pub name: &'static str,
    run: fn(&Scale) -> Result<Vec<Row>>,
}

/// All rows, in the table's order.
pub const BENCHES: &[Bench] = &[
    Bench { name: "parity", run: kernels::rows },
    Bench { name: "write-sequential", run: array::sequential_write },
    Bench { name: "read-sequential", run: array::sequential_read },
    Bench { name: "read-random", run: array::random_read },
    Bench { name: "write-random", run: array::random_write },
    Bench { name: "cache-hit", run: array::cache_hit },
    Bench { name: "shards", run: shards::two },
    Bench { name: "sync", run: sync::rows },
    Bench { name: "control-flow", run: control::flow },
    Bench { name: "growth", run: control::growth },
    Bench { name: "simulation", run: simulation::rows },
    Bench { name: "peers", run: peers },
];

/// What other programs are needed for.
#[expect(clippy::unnecessary_wraps, reason = "as all benches are run")]
fn peers(_: &Scale) -> Result<Vec<Row>> {
    let rows = [
        ("Linux md and btrfs, in process and attached", Unit::GbPerSecond, "tests/bench/peers.py"),
        ("the NBD server beside nbdkit", Unit::Iops, "tests/nbd/bench.py"),
        (
            "file members beside fio on the same files",
            Unit::GbPerSecond,
            "cargo bench -p stripewise-lab --bench files",
        ),
        (
            "parity beside ISA-L and reed-solomon-erasure",
            Unit::GbPerSecond,
            "cargo bench -p stripewise-lab --bench parity",
        ),
    ];
    Ok(rows.map(|(name, unit, how)| Row::absent(name, unit, format!("needs other programs: {how}"))).into())
}

/// Measures the rows of the benches whose name contains the word, telling each when it is there.
///
/// # Errors
/// There is no memory for it, or an array on it does not open.
pub fn run(word: &str, scale: &Scale, mut each: impl FnMut(&Row)) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for bench in BENCHES.iter().filter(|bench| bench.name.contains(word)) {
        for row in (bench.run)(scale)? {
            each(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}
