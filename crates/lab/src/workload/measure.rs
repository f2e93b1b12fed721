//! What a run measures: I/Os, bytes, errors and latencies per direction.

use hdrhistogram::Histogram;
use stripewise_engine::io::IoError;
use stripewise_engine::units::Nanos;

use crate::results::DirectionResult;

/// Latencies above this (about 17 minutes) count as this.
const LATENCY_MAX_NS: u64 = 1 << 40;
/// Significant decimal digits of a recorded latency.
const LATENCY_DIGITS: u8 = 3;

/// What a run measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Length of the measure in seconds.
    pub seconds: f64,
    /// Reads.
    pub read: DirectionResult,
    /// Writes; a failed flush counts among their errors.
    pub write: DirectionResult,
    /// Flushes; those that failed count among the writes' errors.
    pub flush: DirectionResult,
    /// Reads and writes that completed from the first to the last, ramp included.
    pub requests: u64,
    /// Bytes they moved.
    pub request_bytes: u64,
    /// What failed first with, where something failed.
    pub first_error: Option<IoError>,
}

impl Measured {
    /// How long flushes took, by name and unit; nothing without flushes.
    pub fn flush_figures(&self) -> impl Iterator<Item = (String, f64)> {
        let millis = |nanos: f64| nanos / 1e6;
        let figures = [
            ("flushes", self.flush.ios as f64),
            ("flush_mean_ms", millis(self.flush.latency_mean_ns)),
            ("flush_p99_ms", millis(self.flush.latency_p99_ns as f64)),
        ];
        let is_any = self.flush.ios > 0;
        figures.into_iter().filter(move |_| is_any).map(|(name, value)| (name.to_owned(), value))
    }
}

/// The counters of one direction while a run goes on.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    latencies: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
    ios: u64,
    bytes: u64,
    pub(crate) errors: u64,
    /// What the first of them was.
    pub(crate) first_error: Option<IoError>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            latencies: Histogram::new_with_bounds(1, LATENCY_MAX_NS, LATENCY_DIGITS)
                .expect("the bounds and digits are constants that hdrhistogram accepts"),
            sum_ns: 0,
            max_ns: 0,
            ios: 0,
            bytes: 0,
            errors: 0,
            first_error: None,
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, latency: Nanos, bytes: u64) {
        self.ios += 1;
        self.bytes += bytes;
        self.sum_ns += u128::from(latency.0);
        self.max_ns = self.max_ns.max(latency.0);
        self.latencies.saturating_record(latency.0);
    }

    /// Counts one that failed.
    pub(crate) fn fail(&mut self, error: IoError) {
        self.errors += 1;
        self.first_error = self.first_error.or(Some(error));
    }

    /// Counts what others have counted, too.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.first_error = self.first_error.or(other.first_error);
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.latencies.add(&other.latencies).expect("all histograms have the same bounds");
    }

    pub(crate) fn result(&self) -> DirectionResult {
        let mean = if self.ios == 0 { 0.0 } else { self.sum_ns as f64 / self.ios as f64 };
        // A histogram answers with the upper edge of a bucket, which may lie beyond the largest latency.
        let percentile = |p: f64| self.latencies.value_at_percentile(p).min(self.max_ns);
        DirectionResult {
            ios: self.ios,
            bytes: self.bytes,
            errors: self.errors,
            latency_mean_ns: mean,
            latency_p50_ns: percentile(50.0),
            latency_p90_ns: percentile(90.0),
            latency_p99_ns: percentile(99.0),
            latency_p999_ns: percentile(99.9),
            latency_max_ns: self.max_ns,
        }
    }
}
