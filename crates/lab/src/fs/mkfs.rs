//! mkfs as a workload: buffered writes one after another, then a flush.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, SectorRange};
use stripewise_engine::workload::{Next, Workload};

use crate::workload::Cancel;

use super::{BLOCK_BYTES, BLOCK_SECTORS, Extent};

/// Writes extents in order.
#[derive(Clone, Debug)]
pub struct Mkfs {
    extents: Vec<Extent>,
    next: usize,
    is_busy: bool,
    is_flushed: bool,
    /// When the flush ended.
    pub end: Instant,
    /// Requests that failed.
    pub errors: u64,
    cancel: Cancel,
}

impl Mkfs {
    /// Writes those extents.
    pub fn new(extents: Vec<Extent>) -> Self {
        Self {
            extents,
            next: 0,
            is_busy: false,
            is_flushed: false,
            end: Instant::ZERO,
            errors: 0,
            cancel: Cancel::default(),
        }
    }

    /// Ends early once the flag is set.
    #[must_use]
    pub fn with_cancel(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Cancel::by(flag);
        self
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.extents.iter().map(|e| e.count * BLOCK_BYTES).sum()
    }

    /// Writes.
    pub const fn writes(&self) -> u64 {
        self.extents.len() as u64
    }
}

impl Workload for Mkfs {
    fn in_flight_max(&self) -> u32 {
        1
    }

    fn request_bytes_max(&self) -> u64 {
        self.extents.iter().map(|e| e.count * BLOCK_BYTES).max().unwrap_or(0)
    }

    fn next(&mut self, _: Instant) -> Next {
        if self.is_busy {
            return Next::Wait;
        }
        if self.cancel.is_set() {
            return Next::Finished;
        }
        let flags = Flags { buffered: true, ..Flags::default() };
        let (op, range) = match self.extents.get(self.next) {
            Some(e) => (Op::Write, SectorRange::new(e.start * BLOCK_SECTORS, e.count * BLOCK_SECTORS)),
            None if self.is_flushed => return Next::Finished,
            None => (Op::Flush, SectorRange::new(0, 0)),
        };
        self.is_flushed = op == Op::Flush;
        self.next += 1;
        self.is_busy = true;
        Next::Issue(Request { id: RequestId(0), op, range, flags })
    }

    fn complete(&mut self, now: Instant, _: RequestId, result: IoResult) {
        self.is_busy = false;
        self.errors += u64::from(result.is_err());
        self.end = now;
    }
}
