//! A closed loop of threads for tests and benches, and the rig of the chunk-size study.

// Every test file takes what it needs of this.
#![allow(dead_code)]

use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::{
    ActionQueue, Compute, Flags, IoResult, MemberIo, Op, Request, RequestId, Verdict,
};
use stripewise_engine::level::{Layout, Level, ParityLayout};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Instant, Nanos, SECTOR_BYTES, SectorRange};
use stripewise_engine::volume::VolumeConfig;
use stripewise_engine::workload::{Next, Workload};
use stripewise_sim::bytes::BytesStore;
use stripewise_sim::{Data, Rig, RigNames, SimConfig};

/// Sectors of the ST31000333AS.
pub(crate) const DRIVE_SECTORS: u64 = 1_953_525_168;

/// Threads that each keep one request in flight.
#[derive(Clone, Debug)]
pub(crate) struct ClosedLoop {
    pub(crate) threads: u32,
    pub(crate) block_bytes: u64,
    pub(crate) random: bool,
    pub(crate) read_percent: u64,
    /// The part of the array that is used.
    pub(crate) sectors: u64,
    pub(crate) end: Instant,
    /// Requests still to be issued by number, for runs that end by count.
    pub(crate) requests_max: u64,
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) latency_max: Nanos,
    pub(crate) latency_total: Nanos,
    idle: Vec<u32>,
    started: Vec<Instant>,
    next_sector: Vec<u64>,
    issued: u64,
    state: u64,
}

impl ClosedLoop {
    pub(crate) fn new(
        threads: u32,
        block_bytes: u64,
        random: bool,
        read_percent: u64,
        sectors: u64,
        end_s: f64,
    ) -> Self {
        Self {
            threads,
            block_bytes,
            random,
            read_percent,
            sectors,
            end: Instant(Nanos::from_secs_f64(end_s).0),
            requests_max: u64::MAX,
            requests: 0,
            bytes: 0,
            latency_max: Nanos(0),
            latency_total: Nanos(0),
            idle: (0..threads).rev().collect(),
            started: vec![Instant::ZERO; threads as usize],
            next_sector: (0..threads)
                .map(|t| sectors / u64::from(threads) * u64::from(t) / 2048 * 2048)
                .collect(),
            issued: 0,
            state: 0x1234_5678_9ABC_DEF1,
        }
    }

    pub(crate) fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / (self.end.0 as f64 / 1e9)
    }

    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }
}

impl Workload for ClosedLoop {
    fn in_flight_max(&self) -> u32 {
        self.threads
    }

    fn request_bytes_max(&self) -> u64 {
        self.block_bytes
    }

    fn next(&mut self, now: Instant) -> Next {
        if now >= self.end || self.issued >= self.requests_max {
            return Next::Finished;
        }
        let Some(thread) = self.idle.pop() else { return Next::Wait };
        self.issued += 1;
        let count = self.block_bytes / 512;
        let op = if self.random() % 100 < self.read_percent { Op::Read } else { Op::Write };
        let start = if self.random {
            self.random() % (self.sectors / count) * count
        } else {
            let start = self.next_sector[thread as usize];
            let start = if start + count > self.sectors { 0 } else { start };
            self.next_sector[thread as usize] = start + count;
            start
        };
        self.started[thread as usize] = now;
        Next::Issue(Request {
            id: RequestId(thread),
            op,
            range: SectorRange::new(start, count),
            flags: Flags { sync: true, stream: thread as u16, ..Flags::default() },
        })
    }

    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        result.expect("a modelled drive does not fail");
        let latency = now.since(self.started[id.0 as usize]);
        self.idle.push(id.0);
        self.latency_max = self.latency_max.max(latency);
        self.latency_total += latency;
        if now <= self.end {
            self.requests += 1;
            self.bytes += self.block_bytes;
        }
    }
}

/// The rig of the published chunk-size study with so many members.
pub(crate) fn rig(drive: &str, members: u16) -> Rig {
    let names =
        RigNames::on_one_controller(drive, "88sx6081-pci32", "opteron-244", "linux-block-2.6.27", members);
    Rig::load(&names).expect("built-in models load")
}

/// A RAID-5, left-symmetric.
pub(crate) fn raid5(members: u16, chunk_kib: u64, seed: u64) -> SimConfig {
    let geometry = GeometrySpec {
        level: Level::Raid5,
        layout: Layout::Parity(ParityLayout::LeftSymmetric),
        chunk_sectors: chunk_kib * 2,
        member_sectors: vec![DRIVE_SECTORS; members as usize],
    };
    config(geometry, rig("st31000333as", members), seed)
}

/// One drive by itself.
pub(crate) fn single(drive: &str, seed: u64) -> SimConfig {
    striped(drive, 1, 64, seed)
}

/// A RAID-0 over drives of a model, or one drive by itself.
pub(crate) fn striped(drive: &str, members: u16, chunk_kib: u64, seed: u64) -> SimConfig {
    let (level, chunk_sectors) =
        if members == 1 { (Level::Linear, 0) } else { (Level::Raid0, chunk_kib * 2) };
    let geometry = GeometrySpec {
        level,
        layout: Layout::default_of(level),
        chunk_sectors,
        member_sectors: vec![DRIVE_SECTORS; members as usize],
    };
    config(geometry, rig(drive, members), seed)
}

fn config(geometry: GeometrySpec, rig: Rig, seed: u64) -> SimConfig {
    let volume = VolumeConfig::new(geometry, Policy::linux_2_6_27());
    SimConfig { volume, rig, seed }
}

/// Blocks of which every sector says where it belongs.
#[derive(Debug)]
pub(crate) struct Marked {
    store: BytesStore,
    pub(crate) sectors_read: u64,
}

impl Marked {
    pub(crate) const fn new(store: BytesStore) -> Self {
        Self { store, sectors_read: 0 }
    }
}

fn mark(sector: u64) -> Vec<u8> {
    sector.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().repeat(64)
}

impl Data for Marked {
    fn begin(&mut self, request: &Request) {
        let buffer = self.store.request(request.id);
        buffer.clear();
        buffer.resize((request.range.count * SECTOR_BYTES) as usize, 0);
        if request.op == Op::Write {
            for (sector, bytes) in (request.range.start..).zip(buffer.chunks_exact_mut(512)) {
                bytes.copy_from_slice(&mark(sector));
            }
        }
    }

    fn end(&mut self, request: &Request, result: IoResult) {
        result.expect("a modelled drive does not fail");
        if request.op != Op::Read {
            return;
        }
        for (sector, bytes) in (request.range.start..).zip(self.store.request(request.id).chunks_exact(512)) {
            let is_blank = bytes.iter().all(|&b| b == 0);
            assert!(is_blank || bytes == mark(sector), "sector {sector} holds something else");
            self.sectors_read += u64::from(!is_blank);
        }
    }

    fn io(&mut self, io: &MemberIo, out: &ActionQueue) {
        self.store.io(io, out);
    }

    fn compute(&mut self, compute: &Compute, out: &ActionQueue) -> Verdict {
        self.store.compute(compute, out)
    }
}

/// A closed loop whose requests have these flags.
#[derive(Clone, Debug)]
pub(crate) struct Flagged(pub(crate) ClosedLoop, pub(crate) fn(Request) -> Flags);

impl Workload for Flagged {
    fn in_flight_max(&self) -> u32 {
        self.0.in_flight_max()
    }

    fn request_bytes_max(&self) -> u64 {
        self.0.request_bytes_max()
    }

    fn next(&mut self, now: Instant) -> Next {
        match self.0.next(now) {
            Next::Issue(request) => Next::Issue(Request { flags: self.1(request), ..request }),
            other => other,
        }
    }

    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        self.0.complete(now, id, result);
    }
}
