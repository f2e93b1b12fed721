//! Lists of requests, equal on both sides: the kernel's threads play them, and the engine's workload does.

use std::collections::VecDeque;
use std::fmt::Write as _;

use serde::Serialize;
use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, Nanos, SectorRange};
use stripewise_engine::workload::{Next, Workload};

use crate::workload::Random;

/// Where the requests of a cell lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One after the other; each thread in a part of its own.
    Sequential,
    /// Anywhere, on multiples of the block size.
    Random,
}

/// Requests of one size on a number of threads, each with one in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// Where they lie.
    pub order: Order,
    /// Whether they write.
    pub is_write: bool,
    /// Sectors of each.
    pub block_sectors: u64,
    /// Sectors by which each lies behind a multiple of the block size.
    pub shift_sectors: u64,
    /// Threads.
    pub threads: u64,
    /// Requests of each thread.
    pub count: u64,
}

impl Requests {
    /// Offset and length in sectors, a list for each thread, in the first `within` sectors. Equal arguments, equal
    /// lists.
    pub fn lists(&self, within: u64, seed: u64) -> Vec<Vec<(u64, u64)>> {
        let blocks = (within - self.shift_sectors) / self.block_sectors / self.threads;
        let place = |thread: u64, block: u64| {
            let first = (thread * blocks + block) * self.block_sectors + self.shift_sectors;
            (first, self.block_sectors)
        };
        let list = |thread| {
            let mut random = Random::new(seed, thread);
            (0..self.count)
                .map(|index| match self.order {
                    Order::Sequential => place(thread, index % blocks),
                    Order::Random => place(thread, random.below(blocks)),
                })
                .collect()
        };
        (0..self.threads).map(list).collect()
    }

    /// Bytes of all requests.
    pub const fn bytes(&self) -> u64 {
        self.block_sectors * 512 * self.threads * self.count
    }

    /// In fio's words: `randwrite 4k`, with the threads and the shift where they are not 1 and 0.
    pub fn describe(&self) -> String {
        let random = if self.order == Order::Random { "rand" } else { "" };
        let mut text =
            format!("{random}{} {}", if self.is_write { "write" } else { "read" }, size(self.block_sectors));
        if self.threads > 1 {
            let _ = write!(text, " ×{}", self.threads);
        }
        if self.shift_sectors > 0 {
            let _ = write!(text, " +{}", size(self.shift_sectors));
        }
        text
    }
}

/// Sectors as people write sizes.
fn size(sectors: u64) -> String {
    match sectors {
        s if s.is_multiple_of(2048) => format!("{}M", s / 2048),
        s if s.is_multiple_of(2) => format!("{}K", s / 2),
        s => format!("{}", s * 512),
    }
}

/// The engine's workload of such lists. A thread waits for each of its requests, and takes a while from one's end to the next.
#[derive(Debug)]
pub struct Replay {
    lists: Vec<VecDeque<(u64, u64)>>,
    /// Threads with no request in flight, and from when on they may have one.
    idle: VecDeque<(u32, Instant)>,
    turn: Nanos,
    op: Op,
    in_flight: u32,
    /// When the last request ended.
    pub end: Instant,
    /// Requests that failed.
    pub errors: u64,
}

impl Replay {
    /// Plays these lists.
    pub fn new(lists: Vec<Vec<(u64, u64)>>, is_write: bool) -> Self {
        Self {
            idle: (0..lists.len() as u32).map(|thread| (thread, Instant::ZERO)).collect(),
            lists: lists.into_iter().map(VecDeque::from).collect(),
            turn: Nanos(0),
            op: if is_write { Op::Write } else { Op::Read },
            in_flight: 0,
            end: Instant::ZERO,
            errors: 0,
        }
    }

    /// The same with threads that take so long from one request's end to the next.
    #[must_use]
    pub fn with_turn(self, turn: Nanos) -> Self {
        Self { turn, ..self }
    }
}

impl Workload for Replay {
    fn in_flight_max(&self) -> u32 {
        self.lists.len() as u32
    }

    fn request_bytes_max(&self) -> u64 {
        self.lists.iter().flatten().map(|(_, sectors)| sectors * 512).max().unwrap_or(0)
    }

    fn next(&mut self, now: Instant) -> Next {
        while let Some(&(thread, from)) = self.idle.front() {
            if from > now && !self.lists[thread as usize].is_empty() {
                return Next::WaitUntil(from);
            }
            self.idle.pop_front();
            if let Some((first, sectors)) = self.lists[thread as usize].pop_front() {
                self.in_flight += 1;
                // O_DIRECT: the kernel marks such writes as waited for.
                let flags = Flags { sync: true, stream: thread as u16, ..Flags::default() };
                let range = SectorRange::new(first, sectors);
                return Next::Issue(Request { id: RequestId(thread), op: self.op, range, flags });
            }
        }
        if self.in_flight == 0 { Next::Finished } else { Next::Wait }
    }

    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        self.in_flight -= 1;
        self.end = now;
        self.errors += u64::from(result.is_err());
        self.idle.push_back((id.0, now + self.turn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: Requests = Requests {
        order: Order::Random,
        is_write: true,
        block_sectors: 8,
        shift_sectors: 1,
        threads: 3,
        count: 50,
    };

    #[test]
    fn lists_stay_within_their_threads_part_and_are_the_same_again() {
        let lists = RANDOM.lists(10_000, 7);
        assert_eq!(lists, RANDOM.lists(10_000, 7));
        assert_ne!(lists, RANDOM.lists(10_000, 8));
        let part = (10_000 - 1) / 8 / 3 * 8;
        for (thread, list) in (0..).zip(&lists) {
            assert_eq!(list.len(), 50);
            for &(first, sectors) in list {
                assert_eq!((first % 8, sectors), (1, 8));
                assert!(first >= thread * part && first + sectors <= (thread + 1) * part + 1, "{first}");
            }
        }
    }

    #[test]
    fn a_sequential_list_begins_anew_at_its_end() {
        let requests =
            Requests { order: Order::Sequential, shift_sectors: 0, threads: 1, count: 5, ..RANDOM };
        assert_eq!(requests.lists(24, 0), [[(0, 8), (8, 8), (16, 8), (0, 8), (8, 8)]]);
    }

    #[test]
    fn a_thread_has_one_request_in_flight() {
        let mut replay = Replay::new(vec![vec![(0, 8), (8, 8)], vec![(16, 8)]], true);
        let mut started = Vec::new();
        while let Next::Issue(request) = replay.next(Instant::ZERO) {
            started.push((request.id.0, request.range.start));
        }
        assert_eq!(started, [(0, 0), (1, 16)]);
        replay.complete(Instant(5), RequestId(0), Ok(()));
        assert!(matches!(replay.next(Instant(5)), Next::Issue(r) if r.range.start == 8));
        assert_eq!(replay.next(Instant(5)), Next::Wait);
        replay.complete(Instant(6), RequestId(1), Ok(()));
        replay.complete(Instant(7), RequestId(0), Ok(()));
        assert_eq!((replay.next(Instant(7)), replay.end), (Next::Finished, Instant(7)));
    }

    #[test]
    fn a_thread_takes_its_time_from_a_request_to_the_next() {
        let lists = vec![vec![(0, 8), (8, 8)], vec![(16, 8)]];
        let mut replay = Replay::new(lists, true).with_turn(Nanos(10));
        while let Next::Issue(_) = replay.next(Instant::ZERO) {}
        replay.complete(Instant(5), RequestId(0), Ok(()));
        replay.complete(Instant(6), RequestId(1), Ok(()));
        assert_eq!(replay.next(Instant(6)), Next::WaitUntil(Instant(15)));
        assert!(matches!(replay.next(Instant(15)), Next::Issue(r) if r.range.start == 8));
        assert_eq!(replay.next(Instant(15)), Next::Wait);
        replay.complete(Instant(20), RequestId(0), Ok(()));
        assert_eq!(replay.next(Instant(20)), Next::Finished, "nobody has anything left to wait for");
        assert_eq!(replay.end, Instant(20));
    }

    #[test]
    fn cells_are_named_in_fios_words() {
        assert_eq!(RANDOM.describe(), "randwrite 4K ×3 +512");
    }
}
