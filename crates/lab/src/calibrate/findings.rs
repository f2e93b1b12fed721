//! The probes, and what they find of a drive.

use stripewise_engine::units::SectorRange;

use super::{CalibrateError, Load, Probe};
use crate::workload::Random;

/// Sectors of a small read.
const SMALL: u64 = 8;
/// Sectors of a read of which the transfer shows.
const LARGE: u64 = 256;
/// Sectors of a sequential read.
const SEQUENTIAL: u64 = 2048;
/// Places along the device at which its sequential rate is measured.
pub(super) const ZONES: usize = 16;
/// Distances of seeks, as shares of the device; the first is next door, the last across it.
pub(super) const DISTANCES: [f64; 8] = [0.0001, 0.0005, 0.002, 0.01, 0.05, 0.2, 0.5, 0.97];
/// Those over which seeks hardly differ, so that what differs is where the platters are.
const SPREAD_OVER: std::ops::RangeInclusive<usize> = 1..=3;
/// Queue depths.
pub(super) const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// The smallest device whose places can be told apart: 1 GiB.
pub(super) const SECTORS_MIN: u64 = 1 << 21;
/// A mean random read above this is a mechanical drive's.
const MECHANICAL_MS: f64 = 2.0;

/// How much is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Random reads of each kind.
    pub reads: usize,
    /// Sequential reads of 1 MiB at each place.
    pub sequential: usize,
}

impl Effort {
    /// Half a minute to a minute of a mechanical drive.
    pub const DEFAULT: Self = Self { reads: 250, sequential: 24 };
}

/// What was found of a drive.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Sectors of the device.
    pub sectors: u64,
    /// MB/s at each of the places, outermost first.
    pub sequential_mb_s: Vec<f64>,
    /// Median of small reads of a place that was just read.
    pub again_ms: f64,
    /// The same, of larger reads.
    pub again_large_ms: f64,
    /// Mean of small reads at random places.
    pub random_ms: f64,
    /// Mean of small reads by their distance from the one before.
    pub seek_ms: Vec<f64>,
    /// How far apart the quick and the slow of those over short distances are: a revolution, where there is one.
    pub spread_ms: f64,
    /// Random reads a second by queue depth.
    pub depth_iops: Vec<f64>,
    /// MB/s of sequential reads, 8 at a time.
    pub deep_mb_s: f64,
}

impl Findings {
    /// Runs every probe.
    ///
    /// # Errors
    /// The device is too small, or a read fails.
    pub fn of(device: &mut impl Probe, effort: Effort) -> Result<Self, CalibrateError> {
        let sectors = device.sectors();
        if sectors < SECTORS_MIN {
            return Err(CalibrateError::TooSmall { sectors, needed: SECTORS_MIN });
        }
        let mut random = Random::new(0x5eed, 0);
        let mut place = |count: u64| random.below((sectors - count) / SMALL) * SMALL;
        let mut sequential_mb_s = Vec::with_capacity(ZONES);
        for zone in 0..ZONES as u64 {
            let start = (sectors / ZONES as u64 * zone + sectors / ZONES as u64 / 2) / SMALL * SMALL;
            sequential_mb_s.push(sequential(device, start, effort.sequential, 2)?);
        }
        let (again_ms, again_large_ms) =
            (again(device, place(LARGE), SMALL)?, again(device, place(LARGE), LARGE)?);
        let mut seek_ms = Vec::new();
        let mut spreads = Vec::new();
        for (nth, share) in DISTANCES.into_iter().enumerate() {
            let distance = (sectors as f64 * share) as u64 / SMALL * SMALL;
            let mut latencies = pairs(device, distance, effort.reads, &mut place)?;
            seek_ms.push(mean(&latencies));
            if SPREAD_OVER.contains(&nth) {
                spreads.push(spread(&mut latencies));
            }
        }
        let mut depth_iops = Vec::new();
        let mut random_ms = 0.0;
        for depth in DEPTHS {
            let count = effort.reads * if depth == 1 { 1 } else { 2 };
            let reads = (0..count).map(|_| SectorRange::new(place(SMALL), SMALL)).collect();
            let load = device.run(Load::new(reads, depth))?;
            depth_iops.push(count as f64 / load.whole_ms(0) * 1e3);
            if depth == 1 {
                random_ms = load.latencies_ms().sum::<f64>() / count as f64;
            }
        }
        let deep_mb_s = sequential(device, sectors / 8 / SMALL * SMALL, effort.sequential * 2, 8)?;
        Ok(Self {
            sectors,
            sequential_mb_s,
            again_ms,
            again_large_ms,
            random_ms,
            seek_ms,
            spread_ms: mean(&spreads),
            depth_iops,
            deep_mb_s,
        })
    }

    /// Whether this is a drive with an arm.
    pub fn is_mechanical(&self) -> bool {
        self.random_ms > MECHANICAL_MS
    }

    /// Every probe by name, with its value and unit.
    pub fn rows(&self) -> Vec<(String, f64, &'static str)> {
        let mut rows = Vec::new();
        for (zone, rate) in self.sequential_mb_s.iter().enumerate() {
            let percent = (zone * 2 + 1) as f64 * 50.0 / ZONES as f64;
            rows.push((format!("sequential read at {percent:.0} %"), *rate, "MB/s"));
        }
        rows.push(("sequential read, 8 at a time".to_owned(), self.deep_mb_s, "MB/s"));
        rows.push(("4 KiB read again".to_owned(), self.again_ms, "ms"));
        rows.push(("128 KiB read again".to_owned(), self.again_large_ms, "ms"));
        for (share, mean) in DISTANCES.into_iter().zip(&self.seek_ms) {
            rows.push((format!("4 KiB read {} % away", share * 100.0), *mean, "ms"));
        }
        rows.push(("4 KiB read at random".to_owned(), self.random_ms, "ms"));
        for (depth, iops) in DEPTHS.into_iter().zip(&self.depth_iops) {
            rows.push((format!("random 4 KiB reads, {depth} at a time"), *iops, "IOPS"));
        }
        rows
    }
}

/// The rate of reads of 1 MiB one after another, without the first.
fn sequential(device: &mut impl Probe, start: u64, count: usize, depth: u32) -> Result<f64, CalibrateError> {
    let reads = (0..count as u64).map(|n| SectorRange::new(start + n * SEQUENTIAL, SEQUENTIAL)).collect();
    let load = device.run(Load::new(reads, depth))?;
    let skipped = 4.min(count / 2);
    Ok((count - skipped) as f64 * SEQUENTIAL as f64 * 512.0 / 1e3 / load.whole_ms(skipped))
}

/// The median of reads of a place that was just read: now and then a drive's read-ahead pushes it out of the cache.
fn again(device: &mut impl Probe, start: u64, sectors: u64) -> Result<f64, CalibrateError> {
    let load = device.run(Load::new(vec![SectorRange::new(start, sectors); 40], 1))?;
    let mut latencies: Vec<f64> = load.latencies_ms().collect();
    latencies.sort_by(f64::total_cmp);
    Ok(latencies[latencies.len() / 2])
}

/// How long reads take that lie so far from the read before them, either way, in turn with reads at random places.
fn pairs(
    device: &mut impl Probe,
    distance: u64,
    count: usize,
    place: &mut impl FnMut(u64) -> u64,
) -> Result<Vec<f64>, CalibrateError> {
    let mut reads = Vec::with_capacity(count * 2);
    for nth in 0..count {
        let low = place(distance + SMALL);
        let (first, second) = if nth % 2 == 0 { (low, low + distance) } else { (low + distance, low) };
        reads.extend([first, second].map(|start| SectorRange::new(start, SMALL)));
    }
    let load = device.run(Load::new(reads, 1))?;
    Ok(load.latencies_ms().skip(1).step_by(2).collect())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The width of an even distribution, by what lies between its outer tenths.
fn spread(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    (at(0.9) - at(0.1)) / 0.8
}
