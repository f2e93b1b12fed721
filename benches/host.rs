//! RAID-5 4+1 by one thread, beside the limit measured in the same run: plain copies of the same bytes for
//! members in memory, the raw files for members in files.
//!
//! Rounds are interleaved, so that a slow moment of the machine meets both sides. Run with `--quick` for a
//! first look (under 15 s).

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant as WallInstant;

use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Instant, SectorRange};
use stripewise_engine::volume::VolumeConfig;
use stripewise_engine::workload::{Next, Workload};
use stripewise_host::{Array, ArrayConfig, FileSpec, Fill, MemberSpec, create_member_file};

const MEMBERS: usize = 5;
const CHUNK_SECTORS: u64 = 128;
const SECTOR: u64 = 512;
const ALIGN: usize = 4096;

/// One line of the result.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    op: Op,
    bytes: u64,
    depth: u32,
    is_random: bool,
}

const CASES: [Case; 4] = [
    Case { name: "1 MiB sequential write", op: Op::Write, bytes: 1 << 20, depth: 1, is_random: false },
    Case { name: "1 MiB sequential read", op: Op::Read, bytes: 1 << 20, depth: 1, is_random: false },
    Case { name: "4 KiB random write", op: Op::Write, bytes: 4096, depth: 32, is_random: true },
    Case { name: "4 KiB random read", op: Op::Read, bytes: 4096, depth: 32, is_random: true },
];

/// Where the requests of a case go, the same for both sides.
struct Places {
    count: u64,
    is_random: bool,
    state: u64,
    next: u64,
}

impl Places {
    fn new(case: Case, span_bytes: u64, seed: u64) -> Self {
        Self { count: span_bytes / case.bytes, is_random: case.is_random, state: seed | 1, next: seed }
    }

    /// The index of the next block.
    fn draw(&mut self) -> u64 {
        if self.is_random {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            self.state % self.count
        } else {
            self.next += 1;
            self.next % self.count
        }
    }
}

/// A closed loop of one case.
struct Loop {
    case: Case,
    places: Places,
    left: u64,
    free: Vec<u32>,
    errors: u64,
}

impl Loop {
    fn new(case: Case, places: Places, requests: u64) -> Self {
        Self { case, places, left: requests, free: (0..case.depth).rev().collect(), errors: 0 }
    }
}

impl Workload for Loop {
    fn in_flight_max(&self) -> u32 {
        self.case.depth
    }
    fn request_bytes_max(&self) -> u64 {
        self.case.bytes
    }
    fn next(&mut self, _: Instant) -> Next {
        if self.left == 0 {
            return Next::Finished;
        }
        let Some(id) = self.free.pop() else { return Next::Wait };
        self.left -= 1;
        let sectors = self.case.bytes / SECTOR;
        let range = SectorRange::new(self.places.draw() * sectors, sectors);
        Next::Issue(Request { id: RequestId(id), op: self.case.op, range, flags: Flags::default() })
    }
    fn complete(&mut self, _: Instant, id: RequestId, result: IoResult) {
        self.free.push(id.0);
        self.errors += u64::from(result.is_err());
    }
}

fn raid5(member_bytes: u64, members: Vec<MemberSpec>) -> Array {
    let geometry = GeometrySpec {
        level: Level::Raid5,
        layout: Layout::default_of(Level::Raid5),
        chunk_sectors: CHUNK_SECTORS,
        member_sectors: vec![member_bytes / SECTOR; MEMBERS],
    };
    let volume = VolumeConfig::new(geometry, Policy::stripewise());
    Array::open(ArrayConfig::new(volume, members)).expect("the array opens")
}

/// Bytes per second of the array.
fn array_rate(array: &mut Array, case: Case, span_bytes: u64, requests: u64, seed: u64) -> f64 {
    let workload = Loop::new(case, Places::new(case, span_bytes, seed), requests);
    let (report, workloads) = array.run(vec![workload]).expect("the run ends");
    assert_eq!(workloads[0].errors, 0);
    (requests * case.bytes) as f64 / report.elapsed.as_secs_f64()
}

/// Memory aligned as the array's buffers are, in huge pages, touched.
struct Aligned {
    bytes: Vec<u8>,
    skip: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        const HUGE_PAGE: usize = 2 << 20;
        let mut bytes = vec![0u8; length + HUGE_PAGE];
        let skip = bytes.as_ptr().align_offset(HUGE_PAGE);
        let start = bytes[skip..].as_mut_ptr();
        // SAFETY: advice about memory of this vector's own; failing changes nothing.
        unsafe { libc::madvise(start.cast(), length, libc::MADV_HUGEPAGE) };
        bytes[skip..].iter_mut().step_by(ALIGN).for_each(|b| *b = 1);
        Self { bytes, skip }
    }

    fn slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.skip..]
    }
}

/// Bytes per second of copies of the same blocks from or to as many buffers.
fn copy_rate(
    memory: &mut Aligned,
    buffers: &mut Aligned,
    case: Case,
    span_bytes: u64,
    requests: u64,
    seed: u64,
) -> f64 {
    let mut places = Places::new(case, span_bytes, seed);
    let (memory, buffers) = (memory.slice(), buffers.slice());
    let length = case.bytes as usize;
    let start = WallInstant::now();
    for request in 0..requests {
        let block = &mut memory[(places.draw() * case.bytes) as usize..][..length];
        // Buffers lie a page apart, as the array's do.
        let buffer = &mut buffers[(request % u64::from(case.depth)) as usize * (length + ALIGN)..][..length];
        if case.op == Op::Read {
            buffer.copy_from_slice(black_box(block));
        } else {
            block.copy_from_slice(black_box(buffer));
        }
    }
    black_box(memory);
    (requests * case.bytes) as f64 / start.elapsed().as_secs_f64()
}

/// Bytes per second of one raw file read or written past the page cache, one request at a time.
fn file_rate(
    file: &File,
    buffer: &mut Aligned,
    case: Case,
    span_bytes: u64,
    requests: u64,
    seed: u64,
) -> f64 {
    let mut places = Places::new(case, span_bytes, seed);
    let buffer = &mut buffer.slice()[..case.bytes as usize];
    let start = WallInstant::now();
    for _ in 0..requests {
        let offset = places.draw() * case.bytes;
        if case.op == Op::Read {
            file.read_exact_at(buffer, offset).expect("the file is read");
        } else {
            file.write_all_at(buffer, offset).expect("the file is written");
        }
    }
    (requests * case.bytes) as f64 / start.elapsed().as_secs_f64()
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn print_line(name: &str, ours: &[f64], peer: &[f64], bytes: u64) {
    let (rate, limit) = (median(ours), median(peer));
    println!(
        "{name:<34} {:>8.2} GB/s {:>10.0} ns/request   peer {:>8.2} GB/s   ratio {:.2}",
        rate / 1e9,
        bytes as f64 / rate * 1e9,
        limit / 1e9,
        rate / limit
    );
    let list =
        |samples: &[f64]| samples.iter().map(|s| format!("{:.3}", s / 1e9)).collect::<Vec<_>>().join(" ");
    println!("    array [{}] peer [{}]", list(ours), list(peer));
}

fn memory_cases(rounds: u64, member_bytes: u64, sample_bytes: u64) {
    let mut array = raid5(member_bytes, vec![MemberSpec::Memory; MEMBERS]);
    let span = array.geometry().array_sectors() * SECTOR;
    let mut memory = Aligned::new(span as usize);
    let mut buffers = Aligned::new(32 * (ALIGN + ALIGN) + (1 << 20) + ALIGN);
    println!("\nmembers in memory: RAID-5 4+1, chunk 64 KiB, {} MiB of data; peer: copies", span >> 20);
    let mut samples = vec![(Vec::new(), Vec::new()); CASES.len()];
    for round in 0..=rounds {
        for (case, (ours, peer)) in CASES.into_iter().zip(&mut samples) {
            let share = if case.is_random { 4 } else { 1 };
            let requests = sample_bytes / share / case.bytes;
            let rates = (
                array_rate(&mut array, case, span, requests, round + 1),
                copy_rate(&mut memory, &mut buffers, case, span, requests, round + 1),
            );
            // The first round warms the caches and the page tables up.
            if round > 0 {
                ours.push(rates.0);
                peer.push(rates.1);
            }
        }
    }
    for (case, (ours, peer)) in CASES.into_iter().zip(&samples) {
        print_line(case.name, ours, peer, case.bytes);
    }
}

fn file_cases(folder: &Path, rounds: u64, member_bytes: u64) {
    let paths: Vec<_> = (0..MEMBERS).map(|slot| folder.join(format!("member{slot}"))).collect();
    for path in &paths {
        create_member_file(path, member_bytes / SECTOR, Fill::Written).expect("the member is created");
    }
    let members = paths.iter().map(|p| MemberSpec::File(FileSpec::new(p))).collect();
    let mut array = raid5(member_bytes, members);
    println!(
        "\nmembers in files: RAID-5 4+1, {} MiB each; peer: one raw file, O_DIRECT, one request at a time",
        member_bytes >> 20
    );
    array.notes().iter().for_each(|note| println!("    note: {note}"));
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&paths[0]);
    let Ok(raw) = direct else { return println!("    no O_DIRECT here: nothing to compare with") };
    let mut buffer = Aligned::new(1 << 20);
    let span = array.geometry().array_sectors() * SECTOR;
    for case in CASES {
        let requests = if case.is_random { 1024 } else { member_bytes / case.bytes };
        let (mut ours, mut peer) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            ours.push(array_rate(&mut array, case, span, requests, round + 1));
            peer.push(file_rate(&raw, &mut buffer, case, member_bytes, requests, round + 1));
        }
        print_line(case.name, &ours, &peer, case.bytes);
    }
}

fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown CPU", |m| m.1);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let commit = std::process::Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = commit.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {threads} CPUs, Linux {}, commit {commit}", release.trim())
}

fn main() {
    // `cargo test` runs benches with `--test`: that they build is all it asks.
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|a| a == "--test") {
        return;
    }
    let is_quick = arguments.iter().any(|a| a == "--quick");
    println!("{}", machine());
    println!("rates: medians; kernels: {}", stripewise_parity::kernels());
    if is_quick {
        memory_cases(3, 128 << 20, 512 << 20);
    } else {
        memory_cases(9, 256 << 20, 2 << 30);
    }
    let folder = tempfile::tempdir_in(".").expect("the folder can be written to");
    if is_quick {
        file_cases(folder.path(), 3, 32 << 20);
    } else {
        file_cases(folder.path(), 5, 256 << 20);
    }
}
