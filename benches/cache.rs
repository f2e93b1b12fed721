//! Hits of the page cache in front of an array, by one thread with 32 requests in flight, beside plain copies of the
//! same 4 KiB blocks from memory as large, drawn in the same order: the limit, measured in the same run.
//!
//! Rounds are interleaved, so that a slow moment of the machine meets both sides. `--quick` takes some seconds.

use std::hint::black_box;
use std::time::Instant as WallInstant;

use stripewise_engine::cache::{CacheConfig, CachePolicy};
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Instant, SectorRange};
use stripewise_engine::volume::VolumeConfig;
use stripewise_engine::workload::{Next, Workload};
use stripewise_host::{Array, ArrayConfig, Layers, MemberSpec};

const MEMBERS: u64 = 2;
const BLOCK: u64 = 4096;
const SECTOR: u64 = 512;
const DEPTH: u32 = 32;
/// More than any level of the CPU's caches.
const SPAN_BYTES: u64 = 512 << 20;

/// Blocks in an order that both sides draw alike.
struct Places(u64);

impl Places {
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % (SPAN_BYTES / BLOCK)
    }
}

/// Reads of one block after the other, at random or in order.
struct Reads {
    op: Op,
    places: Option<Places>,
    done: u64,
    left: u64,
    free: Vec<u32>,
    errors: u64,
}

impl Reads {
    fn new(op: Op, places: Option<Places>, count: u64) -> Self {
        Self { op, places, done: 0, left: count, free: (0..DEPTH).rev().collect(), errors: 0 }
    }
}

impl Workload for Reads {
    fn in_flight_max(&self) -> u32 {
        DEPTH
    }
    fn request_bytes_max(&self) -> u64 {
        BLOCK
    }
    fn next(&mut self, _: Instant) -> Next {
        if self.left == 0 {
            return Next::Finished;
        }
        let Some(id) = self.free.pop() else { return Next::Wait };
        self.left -= 1;
        let block = match &mut self.places {
            Some(places) => places.draw(),
            None => self.done,
        };
        self.done += 1;
        let range = SectorRange::new(block * (BLOCK / SECTOR), BLOCK / SECTOR);
        let flags = Flags { buffered: true, ..Flags::default() };
        Next::Issue(Request { id: RequestId(id), op: self.op, range, flags })
    }
    fn complete(&mut self, _: Instant, id: RequestId, result: IoResult) {
        self.free.push(id.0);
        self.errors += u64::from(result.is_err());
    }
}

fn array() -> Array {
    let geometry = GeometrySpec {
        level: Level::Raid0,
        layout: Layout::default_of(Level::Raid0),
        chunk_sectors: 128,
        member_sectors: vec![SPAN_BYTES / MEMBERS / SECTOR; MEMBERS as usize],
    };
    let volume = VolumeConfig::new(geometry, Policy::stripewise());
    let members = vec![MemberSpec::Memory; MEMBERS as usize];
    let mut array = Array::open(ArrayConfig::new(volume, members)).expect("the array opens");
    let cache = CacheConfig::new(CachePolicy::stripewise(), 2 * SPAN_BYTES);
    array.raise(&Layers { cache: Some(cache), crypt: None }).expect("there is memory for the cache");
    array
}

/// Requests per second through the page cache.
fn cached_rate(array: &mut Array, op: Op, count: u64, seed: u64) -> f64 {
    let (report, workloads) =
        array.run(vec![Reads::new(op, Some(Places(seed)), count)]).expect("the run ends");
    assert_eq!(workloads[0].errors, 0);
    count as f64 / report.elapsed.as_secs_f64()
}

/// Memory in huge pages, touched.
struct Memory {
    bytes: Vec<u8>,
    skip: usize,
}

impl Memory {
    fn new(length: usize) -> Self {
        const HUGE_PAGE: usize = 2 << 20;
        let mut bytes = vec![0u8; length + HUGE_PAGE];
        let skip = bytes.as_ptr().align_offset(HUGE_PAGE);
        let start = bytes[skip..].as_mut_ptr();
        // SAFETY: advice about memory of this vector's own; failing changes nothing.
        unsafe { libc::madvise(start.cast(), length, libc::MADV_HUGEPAGE) };
        bytes.iter_mut().step_by(4096).for_each(|b| *b = 1);
        Self { bytes, skip }
    }

    fn block(&mut self, index: u64) -> &mut [u8] {
        let start = self.skip + (index * BLOCK) as usize;
        &mut self.bytes[start..start + BLOCK as usize]
    }
}

/// Copies per second, to as many buffers as there are requests in flight, or from them.
fn copy_rate(memory: &mut Memory, buffers: &mut Memory, op: Op, count: u64, seed: u64) -> f64 {
    let mut places = Places(seed);
    let start = WallInstant::now();
    for done in 0..count {
        let (block, buffer) = (places.draw(), done % u64::from(DEPTH));
        if op == Op::Read {
            black_box(buffers.block(buffer)).copy_from_slice(black_box(memory.block(block)));
        } else {
            black_box(memory.block(block)).copy_from_slice(black_box(buffers.block(buffer)));
        }
    }
    count as f64 / start.elapsed().as_secs_f64()
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn main() {
    // `cargo test` asks with `--test` only that benches build.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, count) = if quick { (5, 100_000) } else { (11, 400_000) };
    let mut array = array();
    let (mut memory, mut buffers) =
        (Memory::new(SPAN_BYTES as usize), Memory::new((BLOCK * u64::from(DEPTH)) as usize));
    // Everything is in the cache, and twice used.
    for _ in 0..2 {
        let blocks = SPAN_BYTES / BLOCK;
        array.run(vec![Reads::new(Op::Read, None, blocks)]).expect("the run ends");
    }
    let misses = array.cache_status().expect("there is a cache").stats.misses;
    let (mut cached, mut copied) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let seed = 0x9E37_79B9 + round;
        copied.push(copy_rate(&mut memory, &mut buffers, Op::Read, count, seed));
        cached.push(cached_rate(&mut array, Op::Read, count, seed));
    }
    assert_eq!(array.cache_status().expect("there is a cache").stats.misses, misses, "all were hits");
    report("4 KiB random read, all hits", &cached, &copied);
}

fn report(name: &str, cached: &[f64], copied: &[f64]) {
    println!("{name}, {} MiB, {DEPTH} in flight, one thread", SPAN_BYTES >> 20);
    for (who, samples) in [("page cache", cached), ("copies", copied)] {
        let raw: Vec<String> = samples.iter().map(|s| format!("{:.0}", s / 1e3)).collect();
        let rate = median(samples);
        println!(
            "  {who:11} {:6.0} k/s  {:5.2} GB/s   [{}]",
            rate / 1e3,
            rate * BLOCK as f64 / 1e9,
            raw.join(" ")
        );
    }
    let ratios: Vec<f64> = cached.iter().zip(copied).map(|(cached, copied)| cached / copied).collect();
    println!("  ratio {:.2} (median of the rounds' ratios)", median(&ratios));
}
