//! Closed loops of requests of one kind.

use std::collections::VecDeque;
use std::time::Duration;

use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, Nanos, SECTOR_BYTES, SectorRange};
use stripewise_engine::workload::{Next, Workload};

use super::clock::Stopwatch;

/// What is asked for again and again.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// What requests do.
    pub op: Op,
    /// How long they are.
    pub bytes: u64,
    /// How many are in flight.
    pub depth: u32,
    /// How many buffers they use in turn, at least `depth`.
    pub buffers: u32,
    /// Anywhere, or one after another.
    pub is_random: bool,
    /// Which part of the array, if not all of it.
    pub share: Share,
    /// Through the page cache, if there is one.
    pub is_buffered: bool,
}

/// The part of an array whose MiB are dealt out in turn, as the host deals them to shards.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Which one.
    pub index: u64,
    /// Of how many.
    pub count: u64,
}

impl Share {
    /// All of it.
    pub const ALL: Self = Self { index: 0, count: 1 };
    /// What is dealt at a time.
    const BYTES: u64 = 1 << 20;

    /// Where the part's byte `offset` is.
    const fn place(self, offset: u64) -> u64 {
        (offset / Self::BYTES * self.count + self.index) * Self::BYTES + offset % Self::BYTES
    }
}

impl Job {
    /// One after another, whose bytes are in memory and not in a cache when their turn comes.
    pub fn sequential(op: Op, bytes: u64) -> Self {
        const BUFFERED_BYTES: u64 = 128 << 20;
        Self {
            op,
            bytes,
            depth: 1,
            buffers: (BUFFERED_BYTES / bytes) as u32,
            is_random: false,
            share: Share::ALL,
            is_buffered: false,
        }
    }

    /// 4 KiB anywhere, 32 in flight.
    pub const fn random(op: Op) -> Self {
        Self {
            op,
            bytes: 4096,
            depth: 32,
            buffers: 32,
            is_random: true,
            share: Share::ALL,
            is_buffered: false,
        }
    }
}

/// Where requests go: equal seeds give equal places.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    count: u64,
    is_random: bool,
    state: u64,
}

impl Places {
    /// Over so many blocks.
    pub fn new(count: u64, is_random: bool, seed: u64) -> Self {
        Self {
            count,
            is_random,
            state: if is_random { seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 } else { 0 },
        }
    }

    /// The index of the next block.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        if self.is_random {
            // xorshift64* (Vigna, 2016); its upper half, scaled.
            self.state ^= self.state >> 12;
            self.state ^= self.state << 25;
            self.state ^= self.state >> 27;
            let upper = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
            (upper * self.count) >> 32
        } else {
            self.state += 1;
            if self.state >= self.count {
                self.state = 0;
            }
            self.state
        }
    }
}

/// A job on an array for a while.
#[derive(Debug)]
pub struct Loop {
    job: Job,
    places: Places,
    runtime: Nanos,
    began: Option<(Instant, Stopwatch)>,
    ready: VecDeque<u32>,
    in_flight: u32,
    /// Requests it still may issue.
    left: u64,
    bytes: u64,
    seconds: f64,
    wall_seconds: f64,
}

impl Loop {
    /// The job over `span_bytes` of an array.
    pub fn new(job: Job, span_bytes: u64, seed: u64, runtime: Duration) -> Self {
        Self {
            job,
            places: Places::new(span_bytes / job.share.count / job.bytes, job.is_random, seed),
            runtime: Nanos(runtime.as_nanos() as u64),
            began: None,
            ready: (0..job.buffers).collect(),
            in_flight: 0,
            left: u64::MAX,
            bytes: 0,
            seconds: 0.0,
            wall_seconds: 0.0,
        }
    }

    /// The job over all of the array, once.
    pub fn once(job: Job, span_bytes: u64) -> Self {
        let left = span_bytes / job.bytes;
        Self { left, runtime: Nanos(u64::MAX), ..Self::new(job, span_bytes, 0, Duration::ZERO) }
    }

    /// Takes the time; the last taken is that of the last request.
    fn end(&mut self, now: Instant) {
        let Some((began, watch)) = &self.began else { return };
        self.seconds = watch.seconds();
        self.wall_seconds = now.since(*began).as_secs_f64();
    }

    /// Bytes a second that the thread was on a CPU.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Bytes a second by the wall clock.
    pub fn wall_rate(&self) -> f64 {
        self.bytes as f64 / self.wall_seconds
    }
}

impl Workload for Loop {
    fn in_flight_max(&self) -> u32 {
        self.job.buffers
    }

    fn request_bytes_max(&self) -> u64 {
        self.job.bytes
    }

    fn next(&mut self, now: Instant) -> Next {
        let (began, _) = *self.began.get_or_insert_with(|| (now, Stopwatch::start()));
        if self.left == 0 || now.since(began) >= self.runtime {
            self.end(now);
            return Next::Finished;
        }
        if self.in_flight == self.job.depth {
            return Next::Wait;
        }
        let Some(id) = self.ready.pop_front() else { return Next::Wait };
        self.in_flight += 1;
        self.left -= 1;
        let sectors = self.job.bytes / SECTOR_BYTES;
        let start = self.job.share.place(self.places.draw() * self.job.bytes);
        let range = SectorRange::new(start / SECTOR_BYTES, sectors);
        let flags = Flags { buffered: self.job.is_buffered, ..Flags::default() };
        Next::Issue(Request { id: RequestId(id), op: self.job.op, range, flags })
    }

    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        result.expect("healthy members do not fail");
        self.in_flight -= 1;
        self.ready.push_back(id.0);
        self.bytes += self.job.bytes;
        if self.began.is_some_and(|(began, _)| now.since(began) >= self.runtime) {
            self.end(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_places_go_round_and_random_ones_stay_inside() {
        let mut places = Places::new(3, false, 7);
        assert_eq!([places.draw(), places.draw(), places.draw(), places.draw()], [1, 2, 0, 1]);
        let draw = |seed| {
            let mut places = Places::new(1000, true, seed);
            (0..10_000).map(|_| places.draw()).collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert!(drawn.iter().all(|&place| place < 1000));
        assert!(drawn.iter().min() < Some(&10) && drawn.iter().max() > Some(&989));
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
    }

    #[test]
    fn once_is_every_block_once() {
        let job = Job { depth: 4, buffers: 4, ..Job::sequential(Op::Read, 512) };
        let mut workload = Loop::once(job, 8 * 512);
        let mut sectors: Vec<u64> = Vec::new();
        while let Next::Issue(request) = workload.next(Instant(sectors.len() as u64)) {
            sectors.push(request.range.start);
            workload.complete(Instant(sectors.len() as u64), request.id, Ok(()));
        }
        sectors.sort_unstable();
        assert_eq!(sectors, (0..8).collect::<Vec<u64>>());
    }

    #[test]
    fn shares_are_dealt_out_by_the_mib() {
        let place = |index, offset| Share { index, count: 2 }.place(offset);
        assert_eq!([place(0, 5), place(1, 5)], [5, (1 << 20) + 5]);
        assert_eq!([place(0, 1 << 20), place(1, (3 << 20) + 512)], [2 << 20, (7 << 20) + 512]);
        assert_eq!(Share::ALL.place(123_456_789), 123_456_789);
    }

    #[test]
    fn no_more_are_in_flight_than_asked_for_and_buffers_take_turns() {
        let job = Job {
            op: Op::Read,
            bytes: 512,
            depth: 1,
            buffers: 2,
            is_random: false,
            share: Share::ALL,
            is_buffered: false,
        };
        let mut workload = Loop::new(job, 4096, 1, Duration::from_nanos(10));
        let issued = |next| if let Next::Issue(request) = next { request.id.0 } else { u32::MAX };
        assert_eq!(issued(workload.next(Instant(0))), 0);
        assert_eq!(workload.next(Instant(1)), Next::Wait);
        workload.complete(Instant(2), RequestId(0), Ok(()));
        assert_eq!(issued(workload.next(Instant(2))), 1);
        workload.complete(Instant(10), RequestId(1), Ok(()));
        assert_eq!(workload.next(Instant(10)), Next::Finished);
        assert!((workload.wall_rate() - 1024.0 / 10e-9).abs() < 1.0);
    }
}
