//! A trace as a workload.
//!
//! Requests start in the order in which they came. A request starts once every request is answered that had been answered
//! before it came: what did not overlap in the recording does not overlap in the replay, and what did may. So the recorded
//! depth is kept, and what one request left for the next is there. With a speed, a request besides never starts before its
//! time; a rig too slow for the recorded times falls behind, and how far is measured.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, Nanos, SECTOR_BYTES, SectorRange};
use stripewise_engine::workload::{Next, Workload};

use super::{Record, Trace};
use crate::workload::{Cancel, Counters, Measured};

/// A large discard or zeroing is replayed in pieces of at most so many bytes, as the server carries it out.
const PIECE_BYTES: u64 = 16 << 20;
/// A replay that met so many errors ends.
const ERRORS_MAX: u64 = 1000;

/// When requests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// As soon as those before them allow.
    Asap,
    /// Not before their recorded time, which runs so many thousandths as fast.
    Timed {
        /// 1000 is the recorded speed, 2000 twice as fast.
        permille: u32,
    },
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "asap" {
            return Ok(Self::Asap);
        }
        let factor = text.strip_suffix('x').and_then(|n| n.parse::<f64>().ok());
        match factor.map(|f| (f * 1000.0).round()) {
            Some(permille) if (1.0..=1e6).contains(&permille) => {
                Ok(Self::Timed { permille: permille as u32 })
            }
            _ => Err(format!(
                "'{text}' is not a speed; write asap, 1x for the recorded times, or 0.001x to 1000x"
            )),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asap => f.write_str("asap"),
            Self::Timed { permille } => write!(f, "{}x", f64::from(*permille) / 1000.0),
        }
    }
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Open {
    record: usize,
    issued: Instant,
    /// Sectors of a discard or zeroing that are still to be asked for.
    rest: SectorRange,
}

/// Replays a [`Trace`].
#[derive(Debug)]
pub struct Replay {
    trace: Arc<Trace>,
    speed: Speed,
    is_buffered: bool,
    next: usize,
    open: Vec<Option<Open>>,
    /// When the requests under way had been answered in the recording, with their places.
    ends: BTreeSet<(u64, u32)>,
    free: Vec<u32>,
    /// Requests of which another piece is due.
    due: VecDeque<u32>,
    start: Option<Instant>,
    end: Instant,
    read: Counters,
    write: Counters,
    other: Counters,
    flush: Counters,
    late_max: Nanos,
    cancel: Cancel,
}

impl Replay {
    /// Replays a trace past the page cache.
    pub fn new(trace: Arc<Trace>, speed: Speed) -> Self {
        let depth = trace.in_flight_max();
        Self {
            trace,
            speed,
            is_buffered: false,
            next: 0,
            open: vec![None; depth as usize],
            ends: BTreeSet::new(),
            free: (0..depth).rev().collect(),
            due: VecDeque::new(),
            start: None,
            end: Instant::ZERO,
            read: Counters::new(),
            write: Counters::new(),
            other: Counters::new(),
            flush: Counters::new(),
            late_max: Nanos(0),
            cancel: Cancel::default(),
        }
    }

    /// Reads and writes go through the page cache, where the rig has one.
    #[must_use]
    pub fn buffered(mut self) -> Self {
        self.is_buffered = true;
        self
    }

    /// Starts no more once the flag is set.
    #[must_use]
    pub fn with_cancel(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Cancel::by(flag);
        self
    }

    /// What was measured, from the first request's start to the last one's answer.
    pub fn measured(&self) -> Measured {
        let (read, write) = (self.read.result(), self.write.result());
        let mut errors = write.errors;
        errors += self.other.result().errors + self.flush.result().errors;
        Measured {
            seconds: self.start.map_or(0.0, |start| self.end.since(start).as_secs_f64()),
            requests: read.ios + write.ios,
            request_bytes: read.bytes + write.bytes,
            flush: self.flush.result(),
            read,
            write: crate::results::DirectionResult { errors, ..write },
            first_error: [&self.read, &self.write, &self.other, &self.flush]
                .iter()
                .find_map(|c| c.first_error),
        }
    }

    /// What else was measured, by name and unit, beside the flushes.
    pub fn figures(&self) -> Vec<(String, f64)> {
        let other = self.other.result();
        let mut figures = vec![("late_max_ms", self.late_max.0 as f64 / 1e6)];
        if self.speed == Speed::Asap {
            figures.clear();
        }
        if other.ios > 0 {
            figures.push(("discards_and_zeroes", other.ios as f64));
            figures.push(("discards_and_zeroes_mean_ms", other.latency_mean_ns / 1e6));
        }
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn errors(&self) -> u64 {
        [&self.read, &self.write, &self.other, &self.flush].iter().map(|c| c.errors).sum()
    }

    /// Whether a request must wait for one that is under way.
    fn must_wait(&self, record: &Record) -> bool {
        self.ends.first().is_some_and(|(end, _)| *end <= record.time_ns)
    }

    /// When a record is due, by the speed.
    fn due_at(&self, record: &Record, start: Instant) -> Option<Instant> {
        let Speed::Timed { permille } = self.speed else { return None };
        let first_ns = self.trace.records[0].time_ns;
        let after = u128::from(record.time_ns - first_ns) * 1000 / u128::from(permille);
        Some(start + Nanos(u64::try_from(after).unwrap_or(u64::MAX / 2)))
    }

    fn request(&mut self, id: u32, op: Op, fua: bool, stream: u32, range: SectorRange) -> Request {
        let mut piece = range;
        if matches!(op, Op::Discard | Op::WriteZeroes) {
            piece.count = piece.count.min(PIECE_BYTES / SECTOR_BYTES);
        }
        if let Some(open) = &mut self.open[id as usize] {
            open.rest = SectorRange::new(piece.end(), range.count - piece.count);
        }
        let buffered = self.is_buffered && matches!(op, Op::Read | Op::Write | Op::Flush);
        let sync = op == Op::Write && !buffered;
        let flags = Flags { fua, buffered, sync, stream: stream as u16, ..Flags::default() };
        Request { id: RequestId(id), op, range: piece, flags }
    }
}

/// The most records, in the order in which they came, of which none is before another that is under way with it.
pub(super) fn in_flight_max(records: &[Record]) -> u32 {
    let mut ends = BinaryHeap::new();
    let mut most = 0;
    for record in records {
        while ends.peek().is_some_and(|Reverse(end)| *end <= record.time_ns) {
            ends.pop();
        }
        ends.push(Reverse(record.end_ns()));
        most = most.max(ends.len());
    }
    most as u32
}

impl Workload for Replay {
    fn in_flight_max(&self) -> u32 {
        self.open.len() as u32
    }

    fn request_bytes_max(&self) -> u64 {
        self.trace.request_bytes_max()
    }

    fn next(&mut self, now: Instant) -> Next {
        let start = *self.start.get_or_insert(now);
        let is_cancelled = self.cancel.is_set();
        if is_cancelled || self.errors() >= ERRORS_MAX {
            return Next::Finished;
        }
        if let Some(id) = self.due.pop_front() {
            let open = self.open[id as usize].expect("a request of which a piece is due is under way");
            let record = self.trace.records[open.record];
            return Next::Issue(self.request(id, record.op, record.fua, record.stream, open.rest));
        }
        let Some(record) = self.trace.records.get(self.next).copied() else {
            let is_over = self.free.len() == self.open.len();
            return if is_over { Next::Finished } else { Next::Wait };
        };
        if let Some(due) = self.due_at(&record, start) {
            if due > now {
                return Next::WaitUntil(due);
            }
            self.late_max = self.late_max.max(now.since(due));
        }
        if self.must_wait(&record) {
            return Next::Wait;
        }
        let id = self.free.pop().expect("no more are under way at once than in the recording");
        let range = SectorRange::new(record.offset / SECTOR_BYTES, record.bytes / SECTOR_BYTES);
        self.open[id as usize] = Some(Open { record: self.next, issued: now, rest: range });
        self.ends.insert((record.end_ns(), id));
        self.next += 1;
        Next::Issue(self.request(id, record.op, record.fua, record.stream, range))
    }

    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        let place = &mut self.open[id.0 as usize];
        let open = place.expect("a request completes once");
        if result.is_ok() && open.rest.count > 0 {
            return self.due.push_back(id.0);
        }
        *place = None;
        self.free.push(id.0);
        self.end = now;
        let record = &self.trace.records[open.record];
        self.ends.remove(&(record.end_ns(), id.0));
        let counters = match record.op {
            Op::Read => &mut self.read,
            Op::Write => &mut self.write,
            Op::Flush => &mut self.flush,
            Op::Discard | Op::WriteZeroes => &mut self.other,
        };
        match result {
            Ok(()) => counters.record(now.since(open.issued), record.bytes),
            Err(error) => counters.fail(error),
        }
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
