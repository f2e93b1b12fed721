//! This machine's CPU: rates of the kernels that arrays use, and what the engine and the real loop cost.
//!
//! Rates are the best of repeated runs of one thread, by the time it was on a CPU: other work only ever slows a run. Costs,
//! by the time of the process, are differences between runs of arrays on members in memory that
//! differ in one thing: they are stripewise's own, not those of the kernel's md, so that this model goes with the policy
//! `stripewise`.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use stripewise_crypt::cipher::SectorCipher;
use stripewise_engine::cache::{CacheConfig, CachePolicy};
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Nanos, SECTOR_BYTES};
use stripewise_engine::volume::VolumeConfig;
use stripewise_format::luks::Encryption;
use stripewise_host::{Array, ArrayConfig, Caching, FileSpec, Fill, Layers, MemberSpec, create_member_file};
use stripewise_parity::kernels;
use stripewise_sim::models::{Model, Provenance};

use super::model::{checked, set};
use super::{CalibrateError, Circumstances};
use crate::workload::{Job, JobRunner, Rw};

/// Times each thing is measured; the best counts.
const TURNS: usize = 9;
/// How long each time.
const TURN: Duration = Duration::from_millis(60);
/// A block of a stripe: with its parity, five of them stay in a second-level cache.
const BLOCK_BYTES: usize = 32 << 10;
/// What no cache holds.
const MEMORY_BYTES: usize = 128 << 20;
/// A request to a cipher.
const CIPHER_BYTES: usize = 128 << 10;
/// Sectors of each member in memory: small, so that the members stay in cache as far as they can.
const MEMBER_SECTORS: u64 = (4 << 20) / SECTOR_BYTES;
/// Requests in flight while costs are measured.
const DEPTH: u32 = 16;

/// Measures this machine and makes its model.
///
/// # Errors
/// An array in memory cannot be made.
pub fn cpu(name: &str, circumstances: &Circumstances) -> Result<Model, CalibrateError> {
    let mut model = Model::load("opteron-244")?;
    name.clone_into(&mut model.name);
    model.file = format!("{name}.toml");
    model.title.clone_from(&circumstances.cpu);
    let source = circumstances.to_string();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    set(&mut model, "cores", cores as f64, Provenance::Measured, &source);
    let rates = rates();
    let rate_of = |name: &str| rates.iter().find(|r| r.0 == name).map_or(f64::INFINITY, |r| r.1);
    // What the simulator charges for the xor of a row of four pages, and for a change of one of them: the slower of arithmetic
    // and memory.
    let xor = |blocks: f64, touched: f64| {
        4096.0 * (blocks / rate_of("xor_rate")).max(touched / rate_of("memory_rate"))
    };
    let (row_xor, update_xor) = (xor(3.0, 5.0), xor(1.0, 3.0));
    for (parameter, rate, how) in &rates {
        set(&mut model, parameter, rate.round(), Provenance::Measured, &format!("{source}: {how}"));
    }
    let traffic = (rate_of("memory_rate") / rate_of("copy_rate")).clamp(1.0, 10.0);
    let how = "memory_rate / copy_rate: a copy of one thread is taken to be as fast as the memory lets it be";
    set(&mut model, "copy_traffic", (traffic * 100.0).round() / 100.0, Provenance::Derived, how);
    let how = "stripewise makes one I/O of the pages of several rows";
    set(&mut model, "row_io_cost", 0.0, Provenance::Derived, how);
    for (parameter, microseconds, how) in costs(row_xor, update_xor)? {
        let rounded = (microseconds.max(0.0) * 1e4).round() / 1e4;
        set(&mut model, parameter, rounded, Provenance::Measured, &format!("{source}: {how}"));
    }
    Ok(checked(&model)?)
}

type Measured = (&'static str, f64, String);

/// Rates in MB/s.
fn rates() -> Vec<Measured> {
    let kernels = kernels();
    let mut near: Vec<Vec<u8>> = (0..6_u8).map(|n| vec![n.wrapping_mul(37); BLOCK_BYTES]).collect();
    let (parity, data) = near.split_at_mut(2);
    let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let blocks: Vec<Option<&[u8]>> = sources.iter().copied().map(Some).collect();
    let (p, q) = parity.split_at_mut(1);
    let (p, q) = (&mut p[0], &mut q[0]);
    let xor = rate((sources.len() - 1) * BLOCK_BYTES, || kernels.xor(black_box(p), &sources));
    let pq = rate(sources.len() * BLOCK_BYTES, || kernels.pq(black_box(p), black_box(q), &blocks));
    let (far, other) = (vec![1_u8; MEMORY_BYTES], vec![2_u8; MEMORY_BYTES]);
    let mut target = vec![3_u8; MEMORY_BYTES];
    let memory = rate(3 * MEMORY_BYTES, || kernels.xor(black_box(&mut target), &[&far, &other]));
    let copy = rate(MEMORY_BYTES, || black_box(&mut target).copy_from_slice(&far));
    let mut rates = vec![
        ("xor_rate", xor, format!("xor of 4 blocks of 32 KiB, kernel {}", kernels.xor_name())),
        ("pq_rate", pq, format!("P and Q of 4 blocks of 32 KiB, kernel {}", kernels.pq_name())),
        (
            "memory_rate",
            memory,
            "xor of two blocks of 128 MiB into a third, the bytes of all three".to_owned(),
        ),
        ("copy_rate", copy, "memcpy of 128 MiB".to_owned()),
    ];
    rates.extend(cipher_rates());
    rates
}

fn cipher_rates() -> Vec<Measured> {
    let key: Vec<u8> = (0..64).collect();
    let make = |encryption, key: &[u8]| {
        SectorCipher::new(encryption, key, SECTOR_BYTES as u32, 0)
            .expect("the keys have the ciphers' lengths")
    };
    let xts = make(Encryption::AesXtsPlain64, &key);
    let cbc = make(Encryption::AesCbcEssivSha256, &key[..32]);
    let mut data = vec![9_u8; CIPHER_BYTES];
    let how = "AES-256, requests of 128 KiB in sectors of 512 bytes, in place".to_owned();
    let encrypt = rate(CIPHER_BYTES, || cbc.encrypt_in_place(0, black_box(&mut data)));
    let decrypt = rate(CIPHER_BYTES, || cbc.decrypt_in_place(0, black_box(&mut data)));
    let both = rate(CIPHER_BYTES, || xts.encrypt_in_place(0, black_box(&mut data)));
    vec![
        ("aes_cbc_encrypt_rate", encrypt, how.clone()),
        ("aes_cbc_decrypt_rate", decrypt, how.clone()),
        ("aes_xts_rate", both, how),
    ]
}

/// Seconds a thread or the process was on a CPU.
fn on_cpu(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The best rate in MB/s of something that handles so many bytes.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    work();
    // The clock is asked once for each MiB: asking it takes as long as copying some KiB.
    let repeats = ((1 << 20) / bytes).max(1);
    let turns = (0..TURNS).map(|_| {
        let (start, mut count) = (on_cpu(ClockId::ThreadCPUTime), 0_u64);
        loop {
            (0..repeats).for_each(|_| work());
            count += repeats as u64;
            let seconds = on_cpu(ClockId::ThreadCPUTime) - start;
            if seconds > TURN.as_secs_f64() {
                return count as f64 * bytes as f64 / 1e6 / seconds;
            }
        }
    });
    turns.fold(0.0, f64::max)
}

/// A run of an array whose time for each request is measured.
struct Case {
    level: Level,
    members: u16,
    chunk: u64,
    rw: Rw,
    bs: u64,
    /// From a page cache that holds all of it.
    is_cached: bool,
}

impl Case {
    /// Random reads of a RAID-0 of two members in memory.
    const fn reads(chunk: u64, bs: u64) -> Self {
        Self { level: Level::Raid0, members: 2, chunk, rw: Rw::RandRead, bs, is_cached: false }
    }

    /// Whole rows written: one page to each data member.
    const fn rows(level: Level, members: u16) -> Self {
        Self { level, members, chunk: 4096, rw: Rw::RandWrite, bs: 16 << 10, is_cached: false }
    }

    /// Pages written at random, each to one data member of five.
    const fn updates() -> Self {
        Self {
            level: Level::Raid5,
            members: 5,
            chunk: 64 << 10,
            rw: Rw::RandWrite,
            bs: 4 << 10,
            is_cached: false,
        }
    }

    /// The least microseconds a request takes, with so many in flight on one thread.
    fn microseconds(&self, member: &MemberSpec) -> Result<f64, CalibrateError> {
        let geometry = GeometrySpec {
            level: self.level,
            layout: Layout::default_of(self.level),
            chunk_sectors: self.chunk / SECTOR_BYTES,
            member_sectors: vec![MEMBER_SECTORS; self.members.into()],
        };
        let volume = VolumeConfig::new(geometry, Policy::stripewise());
        let members = vec![member.clone(); self.members.into()];
        let mut array = Array::open(ArrayConfig::new(volume, members))?;
        if self.is_cached {
            let cache = CacheConfig::new(CachePolicy::stripewise(), 4 * MEMBER_SECTORS * SECTOR_BYTES);
            array.raise(&Layers { cache: Some(cache), ..Layers::default() })?;
        }
        let sectors = array.geometry().array_sectors();
        let job = Job {
            rw: self.rw,
            bs: self.bs,
            iodepth: DEPTH,
            direct: !self.is_cached,
            runtime: Nanos::from_millis(TURN.as_millis() as u64),
            ..Job::default()
        };
        let mut least = f64::INFINITY;
        for _ in 0..TURNS {
            let runner = JobRunner::new(&job, sectors).expect("the job fits the array");
            let start = on_cpu(ClockId::ProcessCPUTime);
            let (_, runners) = array.run(vec![runner])?;
            let seconds = on_cpu(ClockId::ProcessCPUTime) - start;
            let requests = runners[0].measured().requests;
            if requests > 0 {
                least = least.min(seconds * 1e6 / requests as f64);
            }
        }
        Ok(least)
    }
}

/// Costs in microseconds; `row_xor` is what computing a row of four pages takes by the rates, `update_xor` what changing one does.
fn costs(row_xor: f64, update_xor: f64) -> Result<Vec<Measured>, CalibrateError> {
    let memory = MemberSpec::Memory;
    let mut bytes = (vec![1_u8; 4096], vec![2_u8; 4096]);
    let copied = 4096.0 / rate(4096, || black_box(&mut bytes.0).copy_from_slice(&bytes.1));
    let small = Case::reads(64 << 10, 4 << 10).microseconds(&memory)?;
    let large = Case::reads(64 << 10, 64 << 10).microseconds(&memory)?;
    let in_sixteen = Case::reads(4 << 10, 64 << 10).microseconds(&memory)?;
    // Over many, so that what a request costs that is cut at all is not taken for what each I/O costs.
    let member_io = ((in_sixteen - large) / 15.0).max(0.0);
    let page = ((large - small) / 15.0 - copied).max(0.0);
    let request = (small - member_io - page - copied).max(0.0);
    let plain = Case::rows(Level::Raid0, 4).microseconds(&memory)?;
    let parity = Case::rows(Level::Raid5, 5).microseconds(&memory)?;
    let row = parity - plain - member_io - copied - row_xor;
    let update = Case::updates().microseconds(&memory)?;
    // Both members are read and written, and the first of four I/Os is in what a read takes.
    let row_update = update - small - 3.0 * (member_io + copied) - update_xor;
    let command = command(small - copied)?;
    let cached = |bs| Case { is_cached: true, ..Case::reads(64 << 10, bs) }.microseconds(&memory);
    let (cached_small, cached_large) = (cached(4 << 10)?, cached(64 << 10)?);
    let cached_page = ((cached_large - cached_small) / 15.0 - copied).max(0.0);
    let cached_request = cached_small - cached_page - copied;
    let halves = "reads of 4 KiB on members in memory, 16 in flight, without copy, page and member I/O; half of it, since submission \
                  and completion are not told apart";
    Ok(vec![
        ("request_submit", request / 2.0, halves.to_owned()),
        ("request_complete", request / 2.0, halves.to_owned()),
        ("page_cost", page, "reads of 64 KiB less reads of 4 KiB, for each page, without the copy".to_owned()),
        (
            "cached_request",
            cached_request,
            "reads of 4 KiB from stripewise's page cache, 16 in flight, without copy and page".to_owned(),
        ),
        (
            "cached_page",
            cached_page,
            "reads of 64 KiB from stripewise's page cache less reads of 4 KiB, for each page, without the copy"
                .to_owned(),
        ),
        ("member_io_cost", member_io, "reads of 64 KiB by 16 I/Os to two members less by one, for each".to_owned()),
        (
            "command_cost",
            command,
            "reads of 4 KiB from a file in the page cache by io_uring, 16 in flight, less from memory; a real drive's interrupt is not in it"
                .to_owned(),
        ),
        (
            "row_cost",
            row,
            "RAID-5 less RAID-0, whole rows of 4 data members written, without the parity's copy and what its xor takes by the rates"
                .to_owned(),
        ),
        (
            "row_update_cost",
            row_update,
            "4 KiB random writes to a RAID-5 less reads, without three more I/Os, their copies and what the xor takes by the rates"
                .to_owned(),
        ),
    ])
}

/// What an I/O by the ring costs beyond one to memory.
fn command(in_memory: f64) -> Result<f64, CalibrateError> {
    let path = std::env::temp_dir().join(format!("stripewise-calibrate-{}.img", std::process::id()));
    create_member_file(&path, MEMBER_SECTORS, Fill::Sparse)?;
    let measured = std::fs::write(&path, vec![1_u8; (MEMBER_SECTORS * SECTOR_BYTES) as usize])
        .map_err(|e| CalibrateError::open(&path, &e))
        .and_then(|()| {
            let spec = FileSpec { caching: Caching::Buffered, ..FileSpec::new(&path) };
            let case = Case { level: Level::Linear, members: 1, ..Case::reads(0, 4 << 10) };
            let mut bytes = (vec![1_u8; 4096], vec![2_u8; 4096]);
            let copied = 4096.0 / rate(4096, || black_box(&mut bytes.0).copy_from_slice(&bytes.1));
            Ok(case.microseconds(&MemberSpec::File(spec))? - copied)
        });
    // It is this process's own file; there is no one to tell that it could not be removed.
    let _ = std::fs::remove_file(&path);
    Ok(measured? - in_memory)
}
