//! A mixed random job of 4 KiB beside a recovery: IOPS and p99 at several speed limits, beside those of the same
//! degraded array that nobody recovers.
//!
//! `cargo bench -p stripewise-lab --bench rebuild_load`; `-- --quick` for a first look.

use stripewise_engine::array::sync::{SpeedLimits, SyncConfig};
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Instant, Nanos, SECTOR_BYTES, SectorRange, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_engine::workload::{Next, Workload};
use stripewise_host::{Array, ArrayConfig, MemberSpec};
use stripewise_lab::environment::{host_cpu, host_kernel};
use stripewise_lab::selfbench::table::median;

const CHUNK_SECTORS: u64 = 128;
const MEMBERS: u16 = 5;
const BLOCK_SECTORS: u64 = 8;
const DEPTH: u32 = 8;
const READ_PERCENT: u64 = 70;
/// Bounds of the recovery, least and greatest the same, in KiB/s of a member; none for no recovery.
const LIMITS: [Option<u32>; 5] = [None, Some(1000), Some(10_000), Some(50_000), Some(200_000)];

/// Keeps [`DEPTH`] requests in flight until its time is over.
struct Job {
    blocks: u64,
    random: u64,
    runtime: Nanos,
    end: Option<Instant>,
    ready: Vec<u32>,
    issued: [Instant; DEPTH as usize],
    latencies_ns: Vec<u64>,
}

impl Job {
    fn new(array_sectors: u64, runtime: Nanos, seed: u64) -> Self {
        Self {
            blocks: array_sectors / BLOCK_SECTORS,
            random: seed,
            runtime,
            end: None,
            ready: (0..DEPTH).collect(),
            issued: [Instant::ZERO; DEPTH as usize],
            latencies_ns: Vec::with_capacity(1 << 22),
        }
    }

    /// splitmix64.
    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.random;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % below
    }
}

impl Workload for Job {
    fn in_flight_max(&self) -> u32 {
        DEPTH
    }

    fn request_bytes_max(&self) -> u64 {
        BLOCK_SECTORS * SECTOR_BYTES
    }

    fn next(&mut self, now: Instant) -> Next {
        let runtime = self.runtime;
        if now >= *self.end.get_or_insert_with(|| now + runtime) {
            return Next::Finished;
        }
        let Some(id) = self.ready.pop() else { return Next::Wait };
        let op = if self.draw(100) < READ_PERCENT { Op::Read } else { Op::Write };
        let range = SectorRange::new(self.draw(self.blocks) * BLOCK_SECTORS, BLOCK_SECTORS);
        self.issued[id as usize] = now;
        Next::Issue(Request { id: RequestId(id), op, range, flags: Flags::default() })
    }

    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        result.expect("members in memory do not fail");
        self.latencies_ns.push(now.since(self.issued[id.0 as usize]).0);
        self.ready.push(id.0);
    }
}

/// What one run found.
struct Found {
    iops: f64,
    p99_us: f64,
    recovered_mib_s: f64,
}

fn run(limit: Option<u32>, member_bytes: u64, runtime: Nanos, seed: u64) -> Found {
    let geometry = GeometrySpec {
        level: Level::Raid5,
        layout: Layout::default_of(Level::Raid5),
        chunk_sectors: CHUNK_SECTORS,
        member_sectors: vec![member_bytes / SECTOR_BYTES; MEMBERS.into()],
    };
    let mut volume = VolumeConfig::new(geometry, Policy::stripewise());
    match limit {
        None => volume.failed = vec![Slot(0)],
        Some(kib) => {
            volume.sync = SyncConfig { speed: SpeedLimits { min_kib: kib, max_kib: kib }, start: true };
            volume.recovering = vec![(Slot(0), 0)];
        }
    }
    let members = vec![MemberSpec::Memory; MEMBERS.into()];
    let mut array = Array::open(ArrayConfig::new(volume, members)).expect("the array opens");
    let job = Job::new(array.geometry().array_sectors(), runtime, seed);
    let (report, mut jobs) = array.run(vec![job]).expect("the job runs");
    let seconds = report.elapsed.as_secs_f64();
    let latencies = &mut jobs[0].latencies_ns;
    let place = (latencies.len() * 99 / 100).min(latencies.len() - 1);
    let p99_ns = *latencies.select_nth_unstable(place).1;
    let recovered = match limit {
        None => 0,
        Some(_) => array.recovered_sectors(Slot(0)).expect("members are larger than what the limits recover"),
    };
    Found {
        iops: latencies.len() as f64 / seconds,
        p99_us: p99_ns as f64 / 1e3,
        recovered_mib_s: (recovered * SECTOR_BYTES) as f64 / 1_048_576.0 / seconds,
    }
}

fn main() {
    let has = |option: &str| std::env::args().any(|argument| argument == option);
    // `cargo test` asks with `--test` only that benches build.
    if !has("--test") {
        println!("{}, {}", host_cpu(), host_kernel());
        curve(has("--quick"));
    }
}

/// Prints the curve: medians over interleaved rounds.
fn curve(is_quick: bool) {
    // A limit's first second may be spent at once, so that a member holds that and the runtime's.
    let (rounds, member_bytes, runtime) = if is_quick {
        (1, 512 << 20, Nanos::from_millis(1000))
    } else {
        (3, 1 << 30, Nanos::from_millis(3000))
    };
    let mut found: Vec<Vec<Found>> = LIMITS.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (limit, found) in LIMITS.iter().zip(&mut found) {
            found.push(run(*limit, member_bytes, runtime, round + 1));
        }
    }
    println!(
        "\nraid5 of {MEMBERS} in memory, one lost: 4 KiB random, {READ_PERCENT} % reads, depth {DEPTH}, one thread, {} s",
        runtime.as_secs_f64()
    );
    let medians = |of: fn(&Found) -> f64| -> Vec<f64> {
        found.iter().map(|f| median(&f.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)).collect()
    };
    let (iops, p99) = (medians(|f| f.iops), medians(|f| f.p99_us));
    for (place, recovered) in medians(|f| f.recovered_mib_s).into_iter().enumerate() {
        let what =
            LIMITS[place].map_or_else(|| "no recovery".to_owned(), |kib| format!("recovery at {kib} KiB/s"));
        println!(
            "{what:<32} {recovered:>8.1} MiB/s   {:>9.0} IOPS ({:>4.2} x)   p99 {:>8.1} us ({:>5.2} x)",
            iops[place],
            iops[place] / iops[0],
            p99[place],
            p99[place] / p99[0]
        );
    }
}
