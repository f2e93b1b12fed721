//! The cache over a plain array of bytes that answers in any order, fails now and then, and forgets what was
//! not flushed; and what it asks for in named situations.

mod hits;
mod pressure;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;
use crate::geometry::GeometrySpec;
use crate::io::{Compute, SegList};
use crate::level::{Layout, Level};
use crate::units::Nanos;

fn geometry(sectors: u64) -> Geometry {
    let spec = GeometrySpec {
        level: Level::Linear,
        layout: Layout::None,
        chunk_sectors: 0,
        member_sectors: vec![sectors],
    };
    Geometry::new(&spec).unwrap()
}

/// A sector is told by the eight bytes it repeats.
type Mark = u64;

struct Bench {
    cache: Cache,
    now: Instant,
    /// What the array answers with, and what would survive a loss of power.
    array: Vec<Mark>,
    durable: Vec<Mark>,
    frames: BTreeMap<(u32, u32), Mark>,
    buffers: BTreeMap<u32, Vec<Mark>>,
    copies: Vec<(Tag, Vec<Seg>, Vec<Seg>)>,
    asked: Vec<Request>,
    log: Vec<Request>,
    done: Vec<(u32, IoResult)>,
}

impl Bench {
    fn new(config: &CacheConfig, sectors: u64) -> Self {
        Self {
            cache: Cache::new(config, &geometry(sectors)).unwrap(),
            now: Instant::ZERO,
            array: vec![0; sectors as usize],
            durable: vec![0; sectors as usize],
            frames: BTreeMap::new(),
            buffers: BTreeMap::new(),
            copies: Vec::new(),
            asked: Vec::new(),
            log: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Takes up what the cache asks for, once it has let everything go on if it said that there is anything.
    fn after(&mut self, goes_on: bool, mut out: ActionQueue) {
        if goes_on {
            self.cache.settle(self.now, &mut out);
        }
        while let Some(request) = self.cache.next_below() {
            self.asked.push(request);
            self.log.push(request);
        }
        self.cache.check_invariants();
        let segs = |list: SegList| out.segs(list).to_vec();
        for action in &out.actions {
            match action {
                Action::Complete { id, result } => self.done.push((id.0, *result)),
                Action::Compute(Compute { tag, sources, targets, .. }) => {
                    let of = |list| segs(out.operands(list)[0].segs);
                    self.copies.push((*tag, of(*sources), of(*targets)));
                }
                other => panic!("{other:?} is none of the cache's business"),
            }
        }
    }

    fn start(&mut self, request: Request) {
        let mut out = ActionQueue::default();
        let goes_on = self.cache.request(self.now, request, &mut out);
        self.after(goes_on, out);
    }

    /// The sectors that segments name.
    fn places(segs: &[Seg]) -> Vec<Seg> {
        let mut places = Vec::new();
        for seg in segs {
            for skip in (0..seg.bytes).step_by(512) {
                let buf = match seg.buf {
                    Buf::Request { id, offset } => Buf::Request { id, offset: offset + u64::from(skip) },
                    Buf::CachePage { frame, offset } => {
                        let at = offset + skip;
                        Buf::CachePage { frame: frame + at / 4096, offset: at % 4096 }
                    }
                    Buf::Zero => Buf::Zero,
                    other => panic!("{other:?} is none of the cache's names"),
                };
                places.push(Seg { buf, bytes: 512 });
            }
        }
        places
    }

    fn get(&self, place: Seg) -> Mark {
        match place.buf {
            Buf::Request { id, offset } => self.buffers[&id.0][(offset / 512) as usize],
            Buf::CachePage { frame, offset } => self.frames[&(frame, offset)],
            Buf::Zero => 0,
            _ => unreachable!(),
        }
    }

    fn put(&mut self, place: Seg, mark: Mark) {
        match place.buf {
            Buf::Request { id, offset } => {
                self.buffers.get_mut(&id.0).unwrap()[(offset / 512) as usize] = mark;
            }
            Buf::CachePage { frame, offset } => {
                self.frames.insert((frame, offset), mark);
            }
            _ => unreachable!(),
        }
    }

    fn end_copy(&mut self, index: usize) {
        let (tag, sources, targets) = self.copies.swap_remove(index);
        let (sources, targets) = (Self::places(&sources), Self::places(&targets));
        assert_eq!(sources.len(), targets.len());
        for (source, target) in sources.into_iter().zip(targets) {
            let mark = self.get(source);
            self.put(target, mark);
        }
        let mut out = ActionQueue::default();
        let goes_on = self.cache.computed(tag, &mut out);
        self.after(goes_on, out);
    }

    fn answer(&mut self, index: usize, result: IoResult) -> Request {
        let request = self.asked.swap_remove(index);
        let range = request.range;
        let mut segs = Vec::new();
        if matches!(request.op, Op::Read | Op::Write) {
            self.cache.name(request.id, 0, (range.count * 512) as u32, &mut segs);
        }
        let places = Self::places(&segs);
        if result.is_ok() {
            for (sector, index) in (range.start as usize..range.end() as usize).zip(0..) {
                match request.op {
                    Op::Read => self.put(places[index], self.array[sector]),
                    Op::Write => self.array[sector] = self.get(places[index]),
                    Op::WriteZeroes => self.array[sector] = 0,
                    Op::Discard | Op::Flush => {}
                }
            }
            if request.op == Op::Flush {
                self.durable.clone_from(&self.array);
            }
        }
        let mut out = ActionQueue::default();
        self.cache.below_ended(request.id, result, &mut out);
        self.after(true, out);
        request
    }

    fn tick(&mut self) {
        self.now = self.cache.next_deadline().expect("something is dirty");
        self.cache.timer(self.now);
        self.after(true, ActionQueue::default());
    }

    /// Answers everything, oldest first, until nothing is left.
    fn drain(&mut self) {
        loop {
            if !self.copies.is_empty() {
                self.end_copy(0);
            } else if !self.asked.is_empty() {
                self.answer(0, Ok(()));
            } else {
                return;
            }
        }
    }

    /// Runs one request to its end.
    fn one(&mut self, op: Op, start: u64, count: u64, flags: Flags) -> IoResult {
        self.buffers.insert(0, vec![7; count as usize]);
        self.start(Request { id: RequestId(0), op, range: SectorRange::new(start, count), flags });
        self.drain();
        self.done.pop().expect("everything ends").1
    }

    fn asked_ranges(&mut self, op: Op) -> Vec<(u64, u64)> {
        let log = std::mem::take(&mut self.log);
        log.iter().filter(|r| r.op == op).map(|r| (r.range.start, r.range.count)).collect()
    }
}

const BUFFERED: Flags = Flags { fua: false, more: false, sync: false, buffered: true, stream: 0 };
const DIRECT: Flags = Flags { fua: false, more: false, sync: false, buffered: false, stream: 0 };

fn config() -> CacheConfig {
    CacheConfig::new(CachePolicy::linux_6_1(), 1 << 20)
}

#[test]
fn sequential_reads_ramp_up_and_hits_ask_for_nothing() {
    let mut bench = Bench::new(&CacheConfig { readahead_sectors: Some(256), ..config() }, 8192);
    for page in 0..28 {
        bench.one(Op::Read, page * 8, 8, BUFFERED).unwrap();
    }
    assert_eq!(bench.asked_ranges(Op::Read), [(0, 32), (32, 64), (96, 128), (224, 256)]);
    for page in 0..28 {
        bench.one(Op::Read, page * 8, 8, BUFFERED).unwrap();
    }
    assert_eq!(bench.asked_ranges(Op::Read), []);
}

#[test]
fn random_reads_read_themselves() {
    let mut bench = Bench::new(&config(), 8192);
    for page in [500, 100, 900, 50] {
        bench.one(Op::Read, page * 8, 8, BUFFERED).unwrap();
    }
    assert_eq!(bench.asked_ranges(Op::Read), [(4000, 8), (800, 8), (7200, 8), (400, 8)]);
}

#[test]
fn a_partial_page_is_read_before_it_is_written_and_a_whole_one_is_not() {
    let mut bench = Bench::new(&config(), 8192);
    bench.one(Op::Write, 8, 8, BUFFERED).unwrap();
    assert_eq!(bench.log.len(), 0);
    bench.one(Op::Write, 17, 2, BUFFERED).unwrap();
    assert_eq!(bench.asked_ranges(Op::Read), [(16, 8)]);
    bench.one(Op::Flush, 0, 0, BUFFERED).unwrap();
    assert_eq!(bench.asked_ranges(Op::Write), [(8, 16)], "neighbours are written as one");
    assert_eq!(bench.durable[15..20], [7, 0, 7, 7, 0]);
}

#[test]
fn what_is_below_is_asked_for_whole_units_alone() {
    let mut bench = Bench::new(&config(), 8192);
    bench.cache = bench.cache.above_units(8);
    let asked = |bench: &mut Bench, op, start, count| {
        assert_eq!(bench.one(op, start, count, DIRECT), Ok(()), "{op:?} {start} {count}");
        let log = std::mem::take(&mut bench.log);
        log.iter().map(|r| (r.op, r.range.start, r.range.count)).collect::<Vec<_>>()
    };
    assert_eq!(asked(&mut bench, Op::Discard, 9, 6), []);
    assert_eq!(asked(&mut bench, Op::Discard, 9, 20), [(Op::Discard, 16, 8)]);
    assert_eq!(asked(&mut bench, Op::Discard, 8, 16), [(Op::Discard, 8, 16)]);
    assert_eq!(asked(&mut bench, Op::WriteZeroes, 8, 16), [(Op::WriteZeroes, 8, 16)]);
    assert_eq!(asked(&mut bench, Op::WriteZeroes, 9, 18), [(Op::Read, 8, 8), (Op::Read, 24, 8)]);
    bench.one(Op::Flush, 0, 0, BUFFERED).unwrap();
    assert_eq!(bench.asked_ranges(Op::Write), [(8, 24)], "zeroes wait with what else is dirty");
}

#[test]
fn a_range_flush_leaves_other_pages_dirty() {
    let mut bench = Bench::new(&config(), 8192);
    bench.one(Op::Write, 0, 8, BUFFERED).unwrap();
    bench.one(Op::Write, 800, 16, BUFFERED).unwrap();
    bench.log.clear();
    bench.one(Op::Flush, 800, 16, BUFFERED).unwrap();
    assert_eq!(bench.asked_ranges(Op::Write), [(800, 16)]);
    assert_eq!(bench.cache.dirty_pages(), 1);
}

#[test]
fn background_write_back_starts_above_its_limit_and_writers_wait_at_theirs() {
    // 256 pages: background above 25, writers wait at (25 + 3 × 51) / 4 = 44.
    let mut bench = Bench::new(&config(), 8192);
    bench.buffers.insert(0, vec![7; 2000]);
    let range = SectorRange::new(0, 25 * 8);
    bench.start(Request { id: RequestId(0), op: Op::Write, range, flags: BUFFERED });
    bench.end_copy(0);
    assert_eq!(bench.done.pop(), Some((0, Ok(()))));
    assert!(bench.asked.is_empty(), "25 pages may be dirty");
    let range = SectorRange::new(1000, 100 * 8);
    bench.start(Request { id: RequestId(0), op: Op::Write, range, flags: BUFFERED });
    bench.end_copy(0);
    assert_eq!(bench.cache.dirty_pages(), 44);
    assert!(bench.done.is_empty() && !bench.asked.is_empty());
    bench.drain();
    assert_eq!(bench.done.pop(), Some((0, Ok(()))));
    assert!(bench.cache.dirty_pages() <= 44);
}

#[test]
fn old_pages_are_written_back_whatever_their_number() {
    let mut bench = Bench::new(&config(), 8192);
    bench.one(Op::Write, 64, 8, BUFFERED).unwrap();
    for _ in 0..5 {
        bench.tick();
        assert!(bench.asked.is_empty(), "at {:?}", bench.now);
    }
    bench.tick();
    assert_eq!(bench.now, Instant::ZERO + Nanos::from_millis(30_000));
    assert_eq!(bench.asked_ranges(Op::Write), [(64, 8)]);
    bench.drain();
    bench.tick();
    assert_eq!(bench.cache.next_deadline(), None, "nothing is dirty, nothing is due");
}

#[test]
fn a_failed_write_back_is_reported_once_to_each_stream() {
    let mut bench = Bench::new(&config(), 8192);
    bench.one(Op::Write, 64, 8, Flags { stream: 1, ..BUFFERED }).unwrap();
    bench.one(Op::Read, 640, 8, Flags { stream: 2, ..BUFFERED }).unwrap();
    let flush = |bench: &mut Bench, stream, result| {
        let range = SectorRange::new(0, 0);
        bench.start(Request { id: RequestId(0), op: Op::Flush, range, flags: Flags { stream, ..BUFFERED } });
        if bench.asked[0].op == Op::Write {
            bench.answer(0, result);
        }
        bench.drain();
        bench.done.pop().unwrap().1
    };
    assert_eq!(flush(&mut bench, 1, Err(IoError::NoSpace)), Err(IoError::NoSpace));
    assert_eq!(flush(&mut bench, 1, Ok(())), Ok(()));
    assert_eq!(flush(&mut bench, 2, Ok(())), Err(IoError::NoSpace));
    assert_eq!(flush(&mut bench, 2, Ok(())), Ok(()));
    let old = CacheConfig { policy: CachePolicy::linux_3_2(), ..config() };
    let mut bench = Bench::new(&old, 8192);
    bench.one(Op::Write, 64, 8, BUFFERED).unwrap();
    assert_eq!(flush(&mut bench, 1, Err(IoError::NoSpace)), Err(IoError::NoSpace));
    assert_eq!(flush(&mut bench, 2, Ok(())), Ok(()), "before 4.13 the first to ask took the error");
}

#[test]
fn a_failed_read_fails_those_who_need_it_and_no_others() {
    let mut bench = Bench::new(&config(), 8192);
    bench.buffers.insert(0, vec![0; 8]);
    let range = SectorRange::new(0, 8);
    bench.start(Request { id: RequestId(0), op: Op::Read, range, flags: BUFFERED });
    let read_ahead = bench.answer(0, Err(IoError::Media));
    assert!(read_ahead.range.count > 8);
    assert!(bench.done.is_empty(), "the page is tried by itself");
    assert_eq!(bench.answer(0, Err(IoError::Media)).range.count, 8);
    assert_eq!(bench.done.pop(), Some((0, Err(IoError::Media))));
    assert_eq!(bench.one(Op::Read, 8, 8, BUFFERED), Ok(()), "a page behind it");
}

#[test]
fn fsync_of_old_kernels_stops_at_the_array() {
    for (policy, flushes) in [(CachePolicy::linux_2_6_27(), 0), (CachePolicy::linux_3_2(), 1)] {
        let mut bench = Bench::new(&CacheConfig { policy, ..config() }, 8192);
        bench.one(Op::Write, 64, 8, BUFFERED).unwrap();
        bench.one(Op::Flush, 0, 0, BUFFERED).unwrap();
        assert_eq!(bench.array[64], 7);
        assert_eq!(bench.asked_ranges(Op::Flush).len(), flushes);
    }
}

#[test]
fn direct_reads_see_what_is_dirty_and_direct_writes_replace_what_is_cached() {
    let mut bench = Bench::new(&config(), 8192);
    bench.one(Op::Write, 8, 8, BUFFERED).unwrap();
    bench.one(Op::Read, 12, 2, DIRECT).unwrap();
    assert_eq!(bench.buffers[&0], [7, 7]);
    assert_eq!(bench.asked_ranges(Op::Write), [(8, 8)], "before the read");
    bench.one(Op::WriteZeroes, 10, 1, DIRECT).unwrap();
    bench.one(Op::Read, 8, 8, BUFFERED).unwrap();
    assert_eq!(bench.buffers[&0], [7, 7, 0, 7, 7, 7, 7, 7]);
}

#[test]
fn sectors_beyond_the_volume_are_refused() {
    let mut bench = Bench::new(&config(), 100);
    assert_eq!(bench.one(Op::Read, 96, 8, BUFFERED), Err(IoError::Range));
    assert_eq!(bench.one(Op::Write, 96, 4, BUFFERED), Ok(()), "the last page ends with the volume");
    assert_eq!(bench.one(Op::Flush, 0, 0, BUFFERED), Ok(()));
    assert_eq!(bench.asked_ranges(Op::Write), [(96, 4)]);
}

/// A step of a random run.
#[derive(Clone, Copy, Debug)]
enum Move {
    Start { op: Op, start: u64, count: u64, flags: Flags },
    EndCopy(usize),
    Answer(usize, bool),
    Tick,
}

const SECTORS: u64 = 3001;
const DEPTH: u32 = 6;

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let op = prop_oneof![
        6 => Just(Op::Read), 6 => Just(Op::Write), 1 => Just(Op::Flush), 1 => Just(Op::WriteZeroes)
    ];
    // A few hot pages, and runs longer than the dirty limit.
    let start = prop_oneof![2 => 0..64u64, 1 => 0..SECTORS, 1 => (0..SECTORS / 8).prop_map(|p| p * 8)];
    let count =
        prop_oneof![2 => 1..9u64, 3 => 1..40u64, 1 => (1..6u64).prop_map(|p| p * 8), 1 => 200..900u64];
    let start = (op, start, count, any::<bool>(), 0..3u16, prop::bool::weighted(0.1)).prop_map(
        |(op, start, count, buffered, stream, fua)| Move::Start {
            op,
            start,
            count: if op == Op::Flush && count < 20 { 0 } else { count.min(SECTORS - start) },
            flags: Flags { fua, buffered, stream, ..Flags::default() },
        },
    );
    let step = prop_oneof![
        3 => start,
        4 => any::<usize>().prop_map(Move::EndCopy),
        4 => (any::<usize>(), prop::bool::weighted(0.04)).prop_map(|(i, fails)| Move::Answer(i, fails)),
        1 => Just(Move::Tick),
    ];
    prop::collection::vec(step, 1..250)
}

/// What the bytes may be: every sector's marks in the order they were written.
struct Oracle {
    bench: Bench,
    history: Vec<Vec<Mark>>,
    /// Writes to the sector that were acknowledged: how many of its marks.
    acknowledged: Vec<usize>,
    /// A write-back or a write of the sector failed, as the how-manieth failure: any of its marks may be found
    /// until a write that began later was acknowledged.
    lost: BTreeMap<u64, usize>,
    /// Requests with what was known of their sectors, and the failures there had been.
    in_flight: BTreeMap<u32, (Request, Vec<usize>, usize)>,
    next_mark: Mark,
    reported: usize,
    failed: usize,
}

impl Oracle {
    fn new(config: &CacheConfig) -> Self {
        Self {
            bench: Bench::new(config, SECTORS),
            history: vec![vec![0]; SECTORS as usize],
            acknowledged: vec![1; SECTORS as usize],
            lost: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            next_mark: 1,
            reported: 0,
            failed: 0,
        }
    }

    fn start(&mut self, op: Op, range: SectorRange, flags: Flags) {
        let Some(id) = (0..DEPTH).find(|id| !self.in_flight.contains_key(id)) else { return };
        // Writes in flight at the same time to the same sectors have no order.
        let is_write = |r: &Request| r.op.is_write() && r.range.overlaps(range);
        if op.is_write() && self.in_flight.values().any(|(r, ..)| is_write(r)) {
            return;
        }
        let whole = op == Op::Flush && range.count == 0;
        let sectors = if whole { 0..SECTORS } else { range.start..range.end() };
        let known = |s| if self.lost.contains_key(&s) { 0 } else { self.acknowledged[s as usize] - 1 };
        let known = sectors.clone().map(known).collect();
        let mark = if op == Op::WriteZeroes { 0 } else { self.next_mark };
        self.next_mark += 1;
        if op.is_write() {
            sectors.for_each(|s| self.history[s as usize].push(mark));
        }
        let request = Request { id: RequestId(id), op, range, flags };
        self.in_flight.insert(id, (request, known, self.failed));
        self.bench
            .buffers
            .insert(id, vec![if op == Op::Write { mark } else { u64::MAX }; range.count as usize]);
        self.bench.start(request);
    }

    fn ended(&mut self) {
        for (id, result) in std::mem::take(&mut self.bench.done) {
            let (request, known, failed_before) = self.in_flight.remove(&id).expect("a request ends once");
            let whole = request.op == Op::Flush && request.range.count == 0;
            let sectors = if whole { 0..SECTORS } else { request.range.start..request.range.end() };
            let found: Vec<Mark> = match request.op {
                Op::Read => self.bench.buffers[&id].clone(),
                _ => self.bench.durable[sectors.start as usize..sectors.end as usize].to_vec(),
            };
            let checks =
                result.is_ok() && (!request.op.is_write() || request.flags.fua && request.flags.buffered);
            for (index, sector) in sectors.enumerate() {
                let marks = &self.history[sector as usize];
                let count = marks.len();
                let from = if self.lost.contains_key(&sector) {
                    0
                } else if request.op == Op::Write {
                    marks.len() - 1
                } else {
                    known[index]
                };
                let is_good =
                    !checks || request.op == Op::WriteZeroes || marks[from..].contains(&found[index]);
                assert!(
                    is_good,
                    "sector {sector} is {} after {request:?}, not of {:?}",
                    found[index],
                    &marks[from..]
                );
                if request.op.is_write() {
                    self.acknowledged[sector as usize] = count;
                    if result.is_err() {
                        self.lose(SectorRange::new(sector, 1));
                    } else if self.lost.get(&sector).is_some_and(|failure| *failure <= failed_before) {
                        self.lost.remove(&sector);
                    }
                }
            }
            if result.is_err() && request.op == Op::Flush {
                self.reported += 1;
            }
            assert!(result.is_ok() || self.failed > 0, "{request:?} failed of itself");
        }
    }

    /// A write of these sectors failed: any of their marks may be found, also by requests that began before.
    fn lose(&mut self, range: SectorRange) {
        let failed = self.failed;
        self.lost.extend((range.start..range.end()).map(|s| (s, failed)));
        for (request, known, _) in self.in_flight.values_mut() {
            let whole = request.op == Op::Flush && request.range.count == 0;
            let start = if whole { 0 } else { request.range.start };
            let of_range = |(index, _): &(usize, &mut usize)| {
                (range.start..range.end()).contains(&(start + *index as u64))
            };
            known.iter_mut().enumerate().filter(of_range).for_each(|(_, known)| *known = 0);
        }
    }

    fn answer(&mut self, index: usize, fails: bool) {
        let request = self.bench.asked[index];
        if fails {
            self.failed += 1;
            if request.op.is_write() {
                self.lose(request.range);
            }
        }
        let result = if fails { Err(IoError::Media) } else { Ok(()) };
        self.bench.answer(index, result);
        self.ended();
    }

    fn make(&mut self, step: Move) {
        match step {
            Move::Start { op, start, count, flags } => self.start(op, SectorRange::new(start, count), flags),
            Move::EndCopy(index) if !self.bench.copies.is_empty() => {
                self.bench.end_copy(index % self.bench.copies.len());
            }
            Move::Answer(index, fails) if !self.bench.asked.is_empty() => {
                self.answer(index % self.bench.asked.len(), fails);
            }
            Move::Tick if self.bench.cache.next_deadline().is_some() => self.bench.tick(),
            _ => {}
        }
        self.ended();
    }

    /// Ends everything; then every acknowledged byte is read back, and survives once flushed.
    fn finish(&mut self) {
        self.bench.drain();
        self.ended();
        assert!(self.in_flight.is_empty() && self.bench.cache.is_idle(), "everything ends");
        self.start(Op::Read, SectorRange::new(0, SECTORS), BUFFERED);
        self.bench.drain();
        self.ended();
        for _ in 0..2 {
            self.start(Op::Flush, SectorRange::new(0, 0), BUFFERED);
            self.bench.drain();
            self.ended();
        }
        assert_eq!(self.bench.cache.dirty_pages(), 0);
        assert!(self.reported <= 4 * self.failed, "an error is told once to each stream");
    }
}

proptest! {
    #![proptest_config(Config { cases: 400, ..Config::default() })]

    #[test]
    fn every_byte_is_what_was_written_last_and_a_flush_makes_it_durable(
        steps in moves(),
        policy in 0..CachePolicy::ALL.len(),
        dirty in 1..=100u8,
    ) {
        // `fsync` of the older kernels makes nothing durable: there is nothing to check.
        let policy = CachePolicy { flush_reaches_array: true, ..CachePolicy::ALL[policy].clone() };
        let limit = Some(DirtyLimit::Ratio(dirty));
        let mut oracle = Oracle::new(&CacheConfig { dirty: limit, ..CacheConfig::new(policy, 1 << 20) });
        for step in steps {
            oracle.make(step);
        }
        oracle.finish();
    }
}
