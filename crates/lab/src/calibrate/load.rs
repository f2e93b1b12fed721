//! A list of reads as a workload, each with its time.

use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, SECTOR_BYTES, SectorRange};
use stripewise_engine::workload::{Next, Workload};

/// Reads in a given order, so many at a time.
#[derive(Clone, Debug)]
pub struct Load {
    reads: Vec<SectorRange>,
    depth: u32,
    next: usize,
    /// The read each id has under way.
    open: Vec<usize>,
    free: Vec<u32>,
    /// Start and end of each read.
    times: Vec<(Instant, Instant)>,
    /// Reads that failed.
    pub errors: u64,
    /// The first sector of one of them.
    pub error_sector: u64,
}

impl Load {
    /// Reads these ranges, `depth` at a time.
    pub fn new(reads: Vec<SectorRange>, depth: u32) -> Self {
        Self {
            times: vec![(Instant::ZERO, Instant::ZERO); reads.len()],
            reads,
            depth,
            next: 0,
            open: vec![0; depth as usize],
            free: (0..depth).rev().collect(),
            errors: 0,
            error_sector: 0,
        }
    }

    /// Milliseconds each read took.
    pub(super) fn latencies_ms(&self) -> impl Iterator<Item = f64> + '_ {
        self.times.iter().map(|(start, end)| end.since(*start).0 as f64 / 1e6)
    }

    /// Milliseconds of the whole, but for the first so many reads.
    pub(super) fn whole_ms(&self, without: usize) -> f64 {
        let start = self.times[without..].iter().map(|t| t.0).min().unwrap_or(Instant::ZERO);
        let end = self.times[without..].iter().map(|t| t.1).max().unwrap_or(Instant::ZERO);
        end.since(start).0 as f64 / 1e6
    }
}

impl Workload for Load {
    fn in_flight_max(&self) -> u32 {
        self.depth
    }

    fn request_bytes_max(&self) -> u64 {
        self.reads.iter().map(|r| r.count * SECTOR_BYTES).max().unwrap_or(0)
    }

    fn next(&mut self, now: Instant) -> Next {
        let Some(range) = self.reads.get(self.next) else { return Next::Finished };
        let Some(id) = self.free.pop() else { return Next::Wait };
        self.open[id as usize] = self.next;
        self.times[self.next].0 = now;
        self.next += 1;
        Next::Issue(Request { id: RequestId(id), op: Op::Read, range: *range, flags: Flags::default() })
    }

    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        let read = self.open[id.0 as usize];
        self.times[read].1 = now;
        self.free.push(id.0);
        if result.is_err() {
            self.errors += 1;
            self.error_sector = self.reads[read].start;
        }
    }
}
