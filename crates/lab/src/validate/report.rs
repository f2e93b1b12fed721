//! What the comparisons come to, in figures.

use serde::Serialize;

use super::counts::CountRow;
use super::syncs::SyncRow;
use super::times::{CPU_SHARE_MAX, TimeRow};

/// Within this share of real md's sectors, a cell counts as equal.
pub const SECTORS_WITHIN: f64 = 0.02;
/// The median error of times should be below it,
pub const ERROR_MEDIAN: f64 = 0.10;
/// and the worst below this.
pub const ERROR_WORST: f64 = 0.25;

/// All comparisons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// What is sent.
    pub counts: Vec<CountRow>,
    /// How long it takes.
    pub times: Vec<TimeRow>,
    /// How fast the array works by itself.
    pub syncs: Vec<SyncRow>,
    /// The same beside reads of others.
    pub loads: Vec<SyncRow>,
    /// In figures.
    pub summary: Summary,
}

/// The comparisons in figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Cells of which sectors were compared.
    pub counts: usize,
    /// Of which they differ by less than [`SECTORS_WITHIN`].
    pub counts_within: usize,
    /// Cells that were timed.
    pub times: usize,
    /// Of which the drives were the limit.
    pub times_judged: usize,
    /// Median of their errors' size; none without such cells.
    pub error_median: Option<f64>,
    /// The largest.
    pub error_worst: Option<f64>,
    /// Cells of the array's own work.
    pub syncs: usize,
    /// Of which the drives were the limit.
    pub syncs_judged: usize,
    /// Median of their errors' size; none without such cells.
    pub sync_error_median: Option<f64>,
    /// The largest.
    pub sync_error_worst: Option<f64>,
    /// Cells of the array's own work beside reads.
    pub loads: usize,
    /// Of which the drives were the limit.
    pub loads_judged: usize,
    /// Median of their errors' size; none without such cells.
    pub load_error_median: Option<f64>,
    /// The largest.
    pub load_error_worst: Option<f64>,
    /// What was wanted.
    pub limits: Limits,
}

/// What the engine should keep to; see the constants of these names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// [`SECTORS_WITHIN`].
    pub sectors_within: f64,
    /// [`ERROR_MEDIAN`].
    pub error_median: f64,
    /// [`ERROR_WORST`].
    pub error_worst: f64,
    /// [`CPU_SHARE_MAX`].
    pub cpu_share_max: f64,
}

impl Limits {
    const ALL: Self = Self {
        sectors_within: SECTORS_WITHIN,
        error_median: ERROR_MEDIAN,
        error_worst: ERROR_WORST,
        cpu_share_max: CPU_SHARE_MAX,
    };
}

impl Validation {
    /// Draws up the figures.
    pub fn new(counts: Vec<CountRow>, times: Vec<TimeRow>, syncs: Vec<SyncRow>, loads: Vec<SyncRow>) -> Self {
        let errors = sizes(times.iter().filter(|row| row.is_judged).map(|row| row.error));
        let judged = |rows: &[SyncRow]| sizes(rows.iter().filter(|row| row.is_judged).map(|row| row.error));
        let (sync_errors, load_errors) = (judged(&syncs), judged(&loads));
        let summary = Summary {
            counts: counts.len(),
            counts_within: counts.iter().filter(|row| row.difference.abs() <= SECTORS_WITHIN).count(),
            times: times.len(),
            times_judged: errors.len(),
            error_median: median(&errors),
            error_worst: errors.last().copied(),
            syncs: syncs.len(),
            syncs_judged: sync_errors.len(),
            sync_error_median: median(&sync_errors),
            sync_error_worst: sync_errors.last().copied(),
            loads: loads.len(),
            loads_judged: load_errors.len(),
            load_error_median: median(&load_errors),
            load_error_worst: load_errors.last().copied(),
            limits: Limits::ALL,
        };
        Self { counts, times, syncs, loads, summary }
    }
}

/// Errors by size.
fn sizes(errors: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sizes: Vec<f64> = errors.map(f64::abs).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    sizes
}

/// The median of sorted numbers.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_few() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[1.0, 2.0, 5.0, 9.0]), Some(3.5));
    }
}
