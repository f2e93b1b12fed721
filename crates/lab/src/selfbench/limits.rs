//! What this machine's memory gives, and what an ideal implementation would make of it.
//!
//! The limit of an operation that must read `r` and write `w` bytes of memory: what can be copied is copied, at the rate of
//! a copy, which reads and writes at once; what is left is read, or written, at the rate of doing only that. Writing goes
//! past the caches, so that nothing is fetched first.
//! ```text
//! both = min(r, w)
//! time = both · min(1 / copy, 1 / read + 1 / write) + (r - both) / read + (w - both) / write
//! ```
//! All three rates are measured in the same round, on one thread, over memory larger than every cache. RAID-5 4+1 written in
//! full stripes: `r` is 1 and `w` 1.25 for each byte of the caller's.

use std::hint::black_box;

use stripewise_host::{HostError, Memory};
use stripewise_parity::kernels;

use super::clock::Stopwatch;

/// Bytes an operation must move for one byte of the figure that is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Read from memory.
    pub reads: f64,
    /// Written to memory.
    pub writes: f64,
}

/// Bytes a second of one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryRates {
    /// Read, and nothing written.
    pub read: f64,
    /// Written past the caches, and nothing read.
    pub write: f64,
    /// Copied past the caches: each byte is read and written.
    pub copy: f64,
}

impl MemoryRates {
    /// Bytes a second of an ideal implementation.
    pub fn limit(&self, traffic: Traffic) -> f64 {
        let Traffic { reads, writes } = traffic;
        let both = reads.min(writes);
        let of_both = (1.0 / self.copy).min(1.0 / self.read + 1.0 / self.write);
        1.0 / (both * of_both + (reads - both) / self.read + (writes - both) / self.write)
    }
}

/// The memory that is measured.
#[derive(Debug)]
pub struct MemoryProbe {
    memory: Memory,
}

impl MemoryProbe {
    /// Takes `bytes` of memory.
    ///
    /// # Errors
    /// There is not that much.
    pub fn new(bytes: usize) -> Result<Self, HostError> {
        Ok(Self { memory: Memory::new(bytes)? })
    }

    /// Measures once: reads all of it, writes all of it, copies one half to the other.
    pub fn rates(&mut self) -> MemoryRates {
        const BLOCK_BYTES: usize = 64 << 10;
        let bytes = self.memory.len() as f64;
        let watch = Stopwatch::start();
        black_box(sum(&self.memory));
        let read = bytes / watch.seconds();
        // A source that stays in the first-level cache.
        let source = [1_u8; 8 << 10];
        let watch = Stopwatch::start();
        for block in self.memory.chunks_mut(source.len()) {
            kernels().copy_streaming(block, &source[..block.len()]);
        }
        let write = bytes / watch.seconds();
        let (from, to) = self.memory.split_at_mut(bytes as usize / 2);
        let watch = Stopwatch::start();
        for (to, from) in to.chunks_mut(BLOCK_BYTES).zip(from.chunks(BLOCK_BYTES)) {
            let length = to.len().min(from.len());
            kernels().copy_streaming(&mut to[..length], &from[..length]);
        }
        let copy = bytes / 2.0 / watch.seconds();
        MemoryRates { read, write, copy }
    }
}

/// Reads every byte once.
fn sum(bytes: &[u8]) -> u64 {
    const BLOCKS: usize = 8;
    const BLOCK_BYTES: usize = 4096;
    // The sum of eight blocks read side by side: one stream alone does not fill the memory's queues.
    let mut total = vec![0; BLOCK_BYTES];
    for group in bytes.chunks_exact(BLOCKS * BLOCK_BYTES) {
        let blocks: [&[u8]; BLOCKS] =
            std::array::from_fn(|index| &group[index * BLOCK_BYTES..][..BLOCK_BYTES]);
        kernels().xor_into(&mut total, &blocks);
    }
    total.iter().map(|&byte| u64::from(byte)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: MemoryRates = MemoryRates { read: 20.0, write: 10.0, copy: 8.0 };

    /// 8 a second copied, the rest at 20 read or 10 written.
    #[test]
    fn what_can_be_copied_is_copied_and_the_rest_read_or_written() {
        let limit = |reads, writes| RATES.limit(Traffic { reads, writes });
        for (reads, writes, seconds) in [
            (4.0, 0.0, 4.0 / 20.0),
            (0.0, 2.0, 2.0 / 10.0),
            (1.0, 1.0, 1.0 / 8.0),
            (1.0, 1.25, 1.0 / 8.0 + 0.25 / 10.0),
            (4.0, 1.0, 1.0 / 8.0 + 3.0 / 20.0),
        ] {
            let found: f64 = limit(reads, writes);
            assert!((found * seconds - 1.0).abs() < 1e-9, "{reads} read, {writes} written: {found}");
        }
    }

    #[test]
    fn a_copy_slower_than_reading_and_then_writing_is_no_limit() {
        let rates = MemoryRates { copy: 5.0, ..RATES };
        assert!((rates.limit(Traffic { reads: 1.0, writes: 1.0 }) - 1.0 / 0.15).abs() < 1e-9);
    }

    #[test]
    fn memory_has_rates() {
        let rates = MemoryProbe::new(1 << 20).unwrap().rates();
        assert!(rates.read > 0.0 && rates.write > 0.0 && rates.copy > 0.0, "{rates:?}");
        assert_eq!(sum(&vec![1; 64 << 10]), 0, "eight blocks cancel each other out");
        let mut bytes = vec![0; 32 << 10];
        bytes[..8192].fill(1);
        bytes[4096..8192].fill(2);
        assert_eq!(sum(&bytes), 3 * 4096);
    }
}
