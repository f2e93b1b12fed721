//! A workload that knows every byte it wrote, and short ways to arrays of it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod load;
pub mod md;
pub mod nbd;

use std::path::Path;

use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::{Flags, IoError, IoResult, Op, Request, RequestId};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Instant, SectorRange};
use stripewise_engine::volume::VolumeConfig;
use stripewise_engine::workload::{Next, Workload};
use stripewise_host::{Array, FileSpec, Fill, MemberSpec, Payload, create_member_file};

pub const SECTOR: usize = 512;

pub fn volume(level: Level, layout: Layout, members: usize, chunk: u64, sectors: u64) -> VolumeConfig {
    let geometry =
        GeometrySpec { level, layout, chunk_sectors: chunk, member_sectors: vec![sectors; members] };
    VolumeConfig { stripe_cache_size: 64, ..VolumeConfig::new(geometry, Policy::stripewise()) }
}

pub fn memory(members: usize) -> Vec<MemberSpec> {
    vec![MemberSpec::Memory; members]
}

pub fn files(folder: &Path, members: usize, sectors: u64) -> Vec<MemberSpec> {
    (0..members)
        .map(|slot| {
            let path = folder.join(format!("member{slot}"));
            create_member_file(&path, sectors, Fill::Sparse).unwrap();
            MemberSpec::File(FileSpec::new(path))
        })
        .collect()
}

/// The bytes of a sector at a version; version 0 is what a fresh member holds.
pub fn sector_bytes(sector: u64, version: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if version > 0 {
        let mut state =
            sector.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version.wrapping_mul(0xD1B5_4A32_D192_ED03);
        for word in bytes.chunks_exact_mut(8) {
            state = random(state);
            word.copy_from_slice(&state.to_le_bytes());
        }
    }
    bytes
}

fn random(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Random reads and writes of 1 to `most` sectors within `zone`, never two that overlap at once.
pub struct Verify {
    zone: SectorRange,
    most: u64,
    left: u32,
    state: u64,
    version: u64,
    versions: Vec<u64>,
    in_flight: Vec<Option<Request>>,
    pub errors: Vec<IoError>,
    pub reads: u32,
    pub writes: bool,
    pub flags: Flags,
}

impl Verify {
    pub fn new(zone: SectorRange, most: u64, requests: u32, depth: usize, seed: u64) -> Self {
        Self {
            zone,
            most,
            left: requests,
            state: seed,
            version: 0,
            versions: vec![0; zone.count as usize],
            in_flight: vec![None; depth],
            errors: Vec::new(),
            reads: 0,
            writes: true,
            flags: Flags::default(),
        }
    }

    /// Goes on with what it knows of the array.
    pub fn again(mut self, requests: u32) -> Self {
        self.left = requests;
        self
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.state = random(self.state);
        self.state % below
    }

    /// The bytes the range should hold.
    pub fn expected(&self, range: SectorRange) -> Vec<u8> {
        (range.start..range.end())
            .flat_map(|s| sector_bytes(s, self.versions[(s - self.zone.start) as usize]))
            .collect()
    }

    /// Reads the whole zone back through the blocking interface.
    pub fn verify(&self, array: &mut Array) {
        let mut bytes = vec![0xEE; self.zone.count as usize * SECTOR];
        array.read_at(self.zone.start, &mut bytes).unwrap();
        assert_same(&bytes, &self.expected(self.zone), self.zone.start);
    }
}

pub fn assert_same(have: &[u8], want: &[u8], start: u64) {
    assert_eq!(have.len(), want.len());
    for (index, (have, want)) in have.chunks(SECTOR).zip(want.chunks(SECTOR)).enumerate() {
        assert!(
            have == want,
            "sector {} differs: {:?} is not {:?}",
            start + index as u64,
            &have[..8],
            &want[..8]
        );
    }
}

impl Workload for Verify {
    fn in_flight_max(&self) -> u32 {
        self.in_flight.len() as u32
    }

    fn request_bytes_max(&self) -> u64 {
        self.most * SECTOR as u64
    }

    fn next(&mut self, _: Instant) -> Next {
        if self.left == 0 {
            return Next::Finished;
        }
        let Some(id) = self.in_flight.iter().position(Option::is_none) else { return Next::Wait };
        let most = self.most;
        let count = (1 + self.draw(most)).min(self.zone.count);
        let first = self.draw(self.zone.count - count + 1);
        let range = SectorRange::new(self.zone.start + first, count);
        if self.in_flight.iter().flatten().any(|r| r.range.overlaps(range)) {
            return if self.in_flight.iter().any(Option::is_some) { Next::Wait } else { Next::Finished };
        }
        self.left -= 1;
        let op = if self.draw(3) == 0 || !self.writes { Op::Read } else { Op::Write };
        let request = Request { id: RequestId(id as u32), op, range, flags: self.flags };
        self.in_flight[id] = Some(request);
        Next::Issue(request)
    }

    fn complete(&mut self, _: Instant, id: RequestId, result: IoResult) {
        self.in_flight[id.0 as usize] = None;
        self.errors.extend(result.err());
    }
}

impl Payload for Verify {
    fn fill(&mut self, request: &Request, bytes: &mut [u8]) {
        self.version += 1;
        for (sector, bytes) in (request.range.start..).zip(bytes.chunks_exact_mut(SECTOR)) {
            self.versions[(sector - self.zone.start) as usize] = self.version;
            bytes.copy_from_slice(&sector_bytes(sector, self.version));
        }
    }

    fn check(&mut self, request: &Request, bytes: &[u8]) {
        self.reads += 1;
        assert_same(bytes, &self.expected(request.range), request.range.start);
    }
}
