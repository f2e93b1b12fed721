//! Traces: the requests that reached a served array, kept in a file, summed up and replayed on any rig.
//!
//! # Contract
//! *Content.* What was asked and when, never the bytes. *Format.* Text, one line a request, with a version at its head and a
//! count at its end (docs/trace.md), so that a trace that is cut short is told from a whole one. *Recording* loses nothing
//! silently: requests wait for a full buffer, and a trace that could not be written in full has no end line.
//! *Replay* keeps the order of requests that did not overlap.

mod claim;
mod error;
mod read;
mod record;
mod replay;
mod summary;

use std::path::Path;
use std::sync::Arc;

use stripewise_engine::io::Op;

pub use claim::Claim;
pub use error::{Problem, TraceError};
pub use read::Whole;
pub use record::{Recorder, Written};
pub use replay::{Replay, Speed};
pub use summary::{OpSummary, Summary};

/// Version of the format written here, and the only one read.
pub const VERSION: u32 = 1;
/// The first word of a trace.
const MAGIC: &str = "stripewise-trace";
/// The names of the columns, in the file's third line.
const COLUMNS: &str = "time_ns op offset bytes flags stream latency_ns";
/// The most a read or a write moves: what an NBD server takes.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

/// A request as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it came; counts from when the array was opened.
    pub time_ns: u64,
    /// What was asked.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub bytes: u64,
    /// Durable before its answer.
    pub fua: bool,
    /// It was answered with an error.
    pub failed: bool,
    /// The client's number.
    pub stream: u32,
    /// From its coming to its answer.
    pub latency_ns: u64,
}

impl Record {
    /// When it was answered.
    pub const fn end_ns(&self) -> u64 {
        self.time_ns.saturating_add(self.latency_ns)
    }
}

/// A trace in memory, its records in the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The file.
    pub file: String,
    /// Bytes of what it was recorded on.
    pub device_bytes: u64,
    /// The requests.
    pub records: Vec<Record>,
    /// Whether the end line is missing.
    pub is_cut_short: bool,
    /// Hash of the file's bytes.
    pub hash: String,
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    /// It cannot be read or is no whole trace; says in which line.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        read::read(path, Whole::Required)
    }

    /// As [`read`](Self::read), but a trace that is cut short is read up to its last whole line.
    ///
    /// # Errors
    /// As there, but for the missing end.
    pub fn read_partial(path: &Path) -> Result<Self, TraceError> {
        read::read(path, Whole::NotRequired)
    }

    /// As [`read`](Self::read), once for all who want the same file, as long as it does not change.
    ///
    /// # Errors
    /// As there.
    pub fn shared(path: &Path) -> Result<Arc<Self>, TraceError> {
        read::shared(path)
    }

    /// The bytes a device must have to replay it.
    pub fn bytes_used(&self) -> u64 {
        self.records.iter().map(|r| r.offset + r.bytes).max().unwrap_or(0)
    }

    /// Most requests under way at once.
    pub fn in_flight_max(&self) -> u32 {
        replay::in_flight_max(&self.records)
    }

    /// Bytes of buffers a replay needs.
    pub fn buffer_bytes(&self) -> u64 {
        u64::from(self.in_flight_max()) * self.request_bytes_max()
    }

    /// The most bytes a read or write moves.
    pub fn request_bytes_max(&self) -> u64 {
        let moves = |r: &&Record| matches!(r.op, Op::Read | Op::Write);
        self.records.iter().filter(moves).map(|r| r.bytes).max().unwrap_or(0)
    }
}

/// The letter of an operation.
const fn letter(op: Op) -> char {
    match op {
        Op::Read => 'R',
        Op::Write => 'W',
        Op::Flush => 'F',
        Op::Discard => 'D',
        Op::WriteZeroes => 'Z',
    }
}

/// Every operation.
const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

#[cfg(test)]
mod tests;
