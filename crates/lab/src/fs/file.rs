//! A workload on a file: its requests are cut where the file's blocks do not follow each other.

use std::collections::VecDeque;

use stripewise_engine::io::{IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, SectorRange};
use stripewise_engine::workload::{Next, Workload};

use super::{BLOCK_SECTORS, ExtFile};

/// A workload whose sectors are those of a file.
#[derive(Debug)]
pub struct InFile<'a, W> {
    file: &'a ExtFile,
    inner: &'a mut W,
    /// Pieces a request may have at most.
    pieces_max: u32,
    /// Pieces to be issued.
    pending: VecDeque<Request>,
    /// By request: pieces that have not ended, and what became of the others.
    open: Vec<(u32, IoResult)>,
}

impl<'a, W: Workload> InFile<'a, W> {
    /// Runs a workload on a file.
    pub fn new(file: &'a ExtFile, inner: &'a mut W) -> Self {
        // A gap at least every 1024 blocks (indirect blocks), and those of group and bitmaps.
        let blocks = inner.request_bytes_max() / super::BLOCK_BYTES;
        let pieces_max = 3 + (blocks / 512) as u32;
        let open = vec![(0, Ok(())); inner.in_flight_max() as usize];
        Self { file, inner, pieces_max, pending: VecDeque::new(), open }
    }

    fn cut(&mut self, request: Request) {
        let RequestId(id) = request.id;
        let mut piece = id * self.pieces_max;
        let mut add = |range| {
            self.pending.push_back(Request { id: RequestId(piece), range, ..request });
            piece += 1;
        };
        if request.op == Op::Flush {
            add(request.range);
        } else {
            let (mut sector, mut left) = (request.range.start, request.range.count);
            while left > 0 {
                let place = self.file.place(sector / BLOCK_SECTORS);
                let within = sector % BLOCK_SECTORS;
                let count = left.min(place.count * BLOCK_SECTORS - within);
                add(SectorRange::new(place.start * BLOCK_SECTORS + within, count));
                sector += count;
                left -= count;
            }
        }
        let count = piece - id * self.pieces_max;
        assert!(count <= self.pieces_max, "a request of {count} pieces; {} were foreseen", self.pieces_max);
        self.open[id as usize] = (count, Ok(()));
    }
}

impl<W: Workload> Workload for InFile<'_, W> {
    fn in_flight_max(&self) -> u32 {
        self.inner.in_flight_max() * self.pieces_max
    }

    fn request_bytes_max(&self) -> u64 {
        self.inner.request_bytes_max()
    }

    fn next(&mut self, now: Instant) -> Next {
        if self.pending.is_empty() {
            match self.inner.next(now) {
                Next::Issue(request) => self.cut(request),
                other => return other,
            }
        }
        let piece = self.pending.pop_front().expect("a request has a piece");
        Next::Issue(piece)
    }

    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        let request = id.0 / self.pieces_max;
        let (left, outcome) = &mut self.open[request as usize];
        *left -= 1;
        if result.is_err() {
            *outcome = result;
        }
        if *left == 0 {
            let outcome = *outcome;
            self.inner.complete(now, RequestId(request), outcome);
        }
    }
}
