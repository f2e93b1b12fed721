//! A trace summed up.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use stripewise_engine::io::Op;

use super::{OPS, Record, Trace};

/// What a trace holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The file.
    pub file: String,
    /// Whether the end line is missing.
    pub cut_short: bool,
    /// Bytes of what it was recorded on.
    pub device_bytes: u64,
    /// Requests.
    pub requests: u64,
    /// From the first request's coming to the last answer.
    pub seconds: f64,
    /// Clients.
    pub streams: u64,
    /// Most requests under way at once.
    pub in_flight_max: u32,
    /// Their mean over time.
    pub in_flight_mean: f64,
    /// By operation, those that occur.
    pub operations: Vec<OpSummary>,
}

/// The requests of one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpSummary {
    /// `read`, `write`, `flush`, `discard` or `write-zeroes`.
    pub operation: &'static str,
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// Of them with forced unit access.
    pub fua: u64,
    /// Answered with an error.
    pub failed: u64,
    /// Share that does not begin where the request of the same operation and client before it ended; 0 for flushes.
    pub random_share: f64,
    /// Requests by size in bytes.
    pub sizes: BTreeMap<u64, u64>,
    /// Mean time to the answer.
    pub latency_mean_ns: f64,
    /// Longest.
    pub latency_max_ns: u64,
}

const fn name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::Discard => "discard",
        Op::WriteZeroes => "write-zeroes",
    }
}

impl Summary {
    /// Sums a trace up.
    pub fn of(trace: &Trace) -> Self {
        let records = &trace.records;
        let first_ns = records.first().map_or(0, |r| r.time_ns);
        let last_ns = records.iter().map(Record::end_ns).max().unwrap_or(0);
        let under_way: u128 = records.iter().map(|r| u128::from(r.latency_ns)).sum();
        let span_ns = last_ns - first_ns;
        Self {
            file: trace.file.clone(),
            cut_short: trace.is_cut_short,
            device_bytes: trace.device_bytes,
            requests: records.len() as u64,
            seconds: span_ns as f64 / 1e9,
            streams: records.iter().map(|r| r.stream).collect::<BTreeSet<_>>().len() as u64,
            in_flight_max: trace.in_flight_max(),
            in_flight_mean: if span_ns == 0 { 0.0 } else { under_way as f64 / span_ns as f64 },
            operations: OPS.into_iter().filter_map(|op| OpSummary::of(op, records)).collect(),
        }
    }
}

impl OpSummary {
    fn of(op: Op, records: &[Record]) -> Option<Self> {
        let mut ends = BTreeMap::new();
        let mut sum = Self {
            operation: name(op),
            requests: 0,
            bytes: 0,
            fua: 0,
            failed: 0,
            random_share: 0.0,
            sizes: BTreeMap::new(),
            latency_mean_ns: 0.0,
            latency_max_ns: 0,
        };
        let (mut elsewhere, mut latency_ns) = (0_u64, 0_u128);
        for record in records.iter().filter(|r| r.op == op) {
            sum.requests += 1;
            sum.bytes += record.bytes;
            sum.fua += u64::from(record.fua);
            sum.failed += u64::from(record.failed);
            sum.latency_max_ns = sum.latency_max_ns.max(record.latency_ns);
            latency_ns += u128::from(record.latency_ns);
            *sum.sizes.entry(record.bytes).or_default() += 1;
            let end = ends.insert(record.stream, record.offset + record.bytes);
            elsewhere += u64::from(end != Some(record.offset));
        }
        if sum.requests == 0 {
            return None;
        }
        sum.random_share = if op == Op::Flush { 0.0 } else { elsewhere as f64 / sum.requests as f64 };
        sum.latency_mean_ns = latency_ns as f64 / sum.requests as f64;
        Some(sum)
    }
}
