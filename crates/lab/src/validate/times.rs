//! How long it takes: real md on modelled drives that are served in real time, beside the engine on the same models in
//! virtual time.
//!
//! # What is judged
//! Each cell is run once more on drives that take no time. What it takes then is the time of this machine's CPUs: of the
//! kernel and its programs, of the disks' daemons, of copies. Where that is more than [`CPU_SHARE_MAX`] of the cell's
//! time, the kernel's CPU time is the limit and the cell is shown but not judged.
//!
//! # What the guest takes
//! A command passes from the kernel to a drive's server and back by wake-ups of processes, which real hardware does not
//! have. How long that takes is measured before the cells, on a drive of a known latency, and every command of the
//! engine's runs takes as much longer: see [`Rig::way_ns`]. A thread of the guest takes its time from the end of a request to
//! the next; so do the engine's. See [`Delays`].

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use serde::Serialize;
use stripewise_engine::units::Nanos;
use stripewise_sim::Rig;
use stripewise_sim::models::{DriveModel, Model, Value};

use super::drives::Drives;
use super::engine::{Shape, rig, simulate};
use super::kernel::{self, GuestCell, GuestPlan, GuestResult};
use super::requests::{Order, Requests};

/// Of a cell's time, for the kernel and all else that is not the drives.
pub const CPU_SHARE_MAX: f64 = 0.1;
/// What a cell should take.
const CELL_SECONDS: f64 = 2.5;
/// Requests of each thread, at least and at most.
const COUNTS: (u64, u64) = (16, 3000);
/// Members of each array.
const MEMBERS: u16 = 5;
/// Used of each member: seeks are as on a small partition.
const MEMBER_KIB: u64 = 16 << 20;
pub(super) const DATA_OFFSET_KIB: u64 = 1 << 10;
/// Above it, the drives have destaged what the cell before left in their caches.
const REST_SECONDS: f64 = 0.7;
/// Commands a drive takes, where the model does not say another number.
pub(super) const QUEUE_DEPTH: f64 = 16.0;
/// Largest request of the guest's queues: the disks take 254 segments, which pages of a stripe cache are.
const REQUEST_KIB: f64 = 512.0;
/// The drive on which the way is measured: as long as it takes, the kernel has nothing else to do and sleeps.
const PROBE_LATENCY_US: f64 = 2_000.0;
const PROBES: u32 = 400;
/// Requests a queue holds.
const NR_REQUESTS: f64 = 128.0;
/// The simulator's runs, with platters elsewhere in each.
pub(super) const SEEDS: u64 = 3;
const LISTS_SEED: u64 = 11;
/// mdadm's choice for the members.
const BITMAP_CHUNK_KIB: u32 = 64 << 10;
/// What cells have unless they say otherwise.
const RAID5: Shape = Shape {
    level: 5,
    members: MEMBERS,
    missing: 0,
    chunk_kib: 64,
    stripe_cache_size: 256,
    bitmap_chunk_kib: None,
};

/// How long things take in the guest, and in the engine's runs, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// A command, between kernel and drive: there and back.
    pub command: Nanos,
    /// A thread, from the end of a request to the next.
    pub turn: Nanos,
}

/// A drive model with some values changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriveSetup {
    /// The model.
    pub model: &'static str,
    /// Values changed.
    pub changes: Vec<(&'static str, f64)>,
}

impl DriveSetup {
    pub(super) fn new(model: &'static str, changes: &[(&'static str, f64)]) -> Self {
        Self { model, changes: changes.to_vec() }
    }

    /// Drives that take no time.
    pub(super) fn none() -> Self {
        Self::new(
            "constant-latency",
            &[("latency", 0.0), ("link_rate", 100_000.0), ("queue_depth", QUEUE_DEPTH)],
        )
    }

    /// The name with what is changed.
    pub fn describe(&self) -> String {
        let changes = self.changes.iter().map(|(name, value)| format!(" {name}={value}"));
        std::iter::once(self.model.to_owned()).chain(changes).collect()
    }

    fn load(&self) -> Result<Model> {
        let mut model = Model::load(self.model)?;
        for &(name, value) in &self.changes {
            model = model.with_value(name, &Value::Number(value))?;
        }
        Ok(model)
    }

    fn words(&self) -> Vec<String> {
        let changes = self
            .changes
            .iter()
            .flat_map(|(name, value)| ["--parameter".to_owned(), format!("{name}={value}")]);
        std::iter::once(self.model.to_owned()).chain(changes).collect()
    }

    pub(super) fn rig(&self, members: u16, way: Nanos) -> Result<Rig> {
        let block = [("request_size_max", REQUEST_KIB), ("nr_requests", NR_REQUESTS)];
        rig(&self.load()?, &block, members, way.0)
    }

    fn guest_plan(&self) -> Result<GuestPlan> {
        let depth = DriveModel::new(&self.load()?)?.queue_depth();
        Ok(GuestPlan {
            module_options: [("virtio_blk", vec![format!("queue_depth={depth}")])].into(),
            // The scheduler first: it comes with limits of its own.
            queue: vec![
                ("scheduler", "mq-deadline".to_owned()),
                ("nr_requests", NR_REQUESTS.to_string()),
                // Linux 6.1 leaves it as it was for fewer requests: a write that finds one or two queued would wait.
                ("iosched/async_depth", (NR_REQUESTS * 0.75).to_string()),
                ("max_sectors_kb", REQUEST_KIB.to_string()),
                // The block layer's model has no writeback throttling.
                ("wbt_lat_usec", "0".to_owned()),
            ],
            ..GuestPlan::default()
        })
    }
}

/// An array on drives, and requests to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeCell {
    /// The drives.
    pub drive: DriveSetup,
    /// The array.
    pub shape: Shape,
    /// The requests.
    pub requests: Requests,
}

/// A cell's outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeRow {
    /// The cell.
    #[serde(flatten)]
    pub cell: TimeCell,
    /// Seconds of real md.
    pub linux_s: f64,
    /// Seconds of the engine, the mean of its runs.
    pub engine_s: f64,
    /// Seconds of real md on drives that take no time.
    pub cpu_s: f64,
    /// Microseconds of each command between kernel and drive.
    pub way_us: f64,
    /// Microseconds of a thread from the end of a request to the next.
    pub turn_us: f64,
    /// Sectors real md read and wrote.
    pub linux_sectors: [u64; 2],
    /// Sectors the engine read and wrote.
    pub engine_sectors: [u64; 2],
    /// How far the engine's throughput is from real md's, of real md's.
    pub error: f64,
    /// Whether the drives are the limit.
    pub is_judged: bool,
}

impl TimeRow {
    /// MB/s of requests on either side: real md's, the engine's.
    pub fn rates(&self) -> [f64; 2] {
        [self.linux_s, self.engine_s].map(|seconds| self.cell.requests.bytes() as f64 / 1e6 / seconds)
    }
}

/// Drives that are booted together.
fn setups(quick: bool) -> Vec<DriveSetup> {
    let depth = ("queue_depth", QUEUE_DEPTH);
    let queued = DriveSetup::new("constant-latency", &[("latency", 20_000.0), ("link_rate", 20.0), depth]);
    if quick {
        return vec![queued];
    }
    vec![
        queued,
        DriveSetup::new(
            "constant-latency",
            &[("latency", 10_000.0), ("link_rate", 20.0), ("queue_depth", 1.0)],
        ),
        DriveSetup::new("st31000333as", &[("link_rate", 20.0)]),
    ]
}

/// The cells of a drive: the cache-size and chunk-size studies' factors, and what a bitmap costs.
fn cells(drive: &DriveSetup, delays: Delays, quick: bool) -> Result<Vec<TimeCell>> {
    use Order::{Random, Sequential};
    let plain = [
        (64, 256, Sequential, true, 8192, 1),
        (64, 4096, Sequential, true, 8192, 1),
        (512, 256, Sequential, true, 8192, 1),
        (512, 4096, Sequential, true, 8192, 1),
        (64, 256, Random, true, 8, 1),
        (512, 256, Random, true, 8, 4),
        (64, 256, Random, false, 128, 1),
        (512, 256, Random, false, 128, 8),
        (64, 4096, Sequential, true, 128, 1),
        (512, 4096, Sequential, true, 128, 1),
        (64, 256, Random, true, 128, 4),
        (512, 4096, Random, true, 1024, 4),
        (64, 256, Sequential, false, 2048, 1),
        (512, 256, Sequential, false, 8192, 1),
    ];
    let chosen = if quick { &plain[..8] } else { &plain[..] };
    let plain =
        chosen.iter().map(|&(chunk_kib, stripe_cache_size, order, is_write, block_sectors, threads)| {
            let shape = Shape { chunk_kib, stripe_cache_size, ..RAID5 };
            (shape, Requests { order, is_write, block_sectors, shift_sectors: 0, threads, count: COUNTS.0 })
        });
    // Every request of the random ones finds a bit that is clear.
    let with_bitmap = [
        (5, MEMBERS, 64, Random, 8, 1),
        (5, MEMBERS, 64, Random, 8, 4),
        (5, MEMBERS, 512, Random, 8, 8),
        (6, MEMBERS, 64, Random, 8, 4),
        (1, 2, 64, Random, 8, 4),
        (10, 4, 64, Random, 8, 8),
        (5, MEMBERS, 64, Sequential, 8192, 1),
    ];
    let chosen = if quick { &with_bitmap[..0] } else { &with_bitmap[..] };
    let with_bitmap = chosen.iter().map(|&(level, members, chunk_kib, order, block_sectors, threads)| {
        let bitmap_chunk_kib = Some(BITMAP_CHUNK_KIB);
        let shape = Shape { level, members, chunk_kib, bitmap_chunk_kib, ..RAID5 };
        (shape, Requests { order, is_write: true, block_sectors, shift_sectors: 0, threads, count: COUNTS.0 })
    });
    plain
        .chain(with_bitmap)
        .map(|(shape, mut requests)| {
            // As many as the engine needs for a cell's time.
            let rig = drive.rig(shape.members, delays.command)?;
            let trial = simulate(&shape, &requests, MEMBER_KIB * 2, [LISTS_SEED, 1], &rig, delays.turn)?;
            let wanted = CELL_SECONDS / trial.seconds * requests.count as f64;
            requests.count = (wanted as u64).clamp(COUNTS.0, COUNTS.1);
            Ok(TimeCell { drive: drive.clone(), shape, requests })
        })
        .collect()
}

/// Has real md play cells on five drives; seconds and counts of each.
fn on_linux(
    stripewise: &Path,
    drive: &DriveSetup,
    cells: &[GuestCell],
    rest_s: f64,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<GuestResult>> {
    let drives = Drives::start(stripewise, &drive.words(), MEMBERS)?;
    let plan = GuestPlan {
        devices: drives.names(),
        cells: cells.iter().map(|cell| GuestCell { rest_s, ..cell.clone() }).collect(),
        ..drive.guest_plan()?
    };
    Ok(kernel::run(&plan, &drives.kernel_arguments(), cancel, |index, _| progress(index))?.results)
}

/// Has real md play cells on drives, and the same on drives that take no time; `what` is told of as it comes.
pub(super) fn with_control(
    stripewise: &Path,
    drive: &DriveSetup,
    cells: &[GuestCell],
    what: &str,
    cancel: &AtomicBool,
    progress: &mut impl FnMut(&str),
) -> Result<(Vec<GuestResult>, Vec<GuestResult>)> {
    let (total, name) = (cells.len(), drive.describe());
    let linux = on_linux(stripewise, drive, cells, REST_SECONDS, cancel, &mut |index| {
        progress(&format!("{what}, {name}: {} of {total}", index + 1));
    });
    let linux = linux.with_context(|| name.clone())?;
    let control = on_linux(stripewise, &DriveSetup::none(), cells, 0.0, cancel, &mut |index| {
        progress(&format!("the same without drives' time: {} of {total}", index + 1));
    })?;
    Ok((linux, control))
}

/// Measures them: of a read that takes a known time in the drive, the rest; and of threads that wake each other, how long each
/// takes. The read's thread is woken likewise, which is not the command's.
///
/// # Errors
/// As [`run`].
pub fn delays(stripewise: &Path, cancel: &AtomicBool) -> Result<Delays> {
    let drive = DriveSetup::new(
        "constant-latency",
        &[("latency", PROBE_LATENCY_US), ("link_rate", 100_000.0), ("queue_depth", QUEUE_DEPTH)],
    );
    let drives = Drives::start(stripewise, &drive.words(), 1)?;
    let plan = GuestPlan { devices: drives.names(), probes: PROBES, ..drive.guest_plan()? };
    let ran = kernel::run(&plan, &drives.kernel_arguments(), cancel, |_, _| {})?;
    let probed = ran.probed.context("the kernel does not say how long a read takes")?;
    let nanos = |seconds: f64| Nanos((seconds * 1e9).max(0.0) as u64);
    let command = nanos(probed.read_s - PROBE_LATENCY_US / 1e6 - probed.turn_s);
    Ok(Delays { command, turn: nanos(probed.turn_s) })
}

fn guest_cell(cell: &TimeCell) -> GuestCell {
    let within = cell.shape.usable_sectors(MEMBER_KIB * 2);
    cell.shape.guest_cell(&cell.requests, within, LISTS_SEED, MEMBER_KIB, DATA_OFFSET_KIB)
}

fn row(cell: TimeCell, linux: &GuestResult, control: &GuestResult, delays: Delays) -> Result<TimeRow> {
    let rig = cell.drive.rig(cell.shape.members, delays.command)?;
    let mut seconds = 0.0;
    let mut engine_sectors = [0; 2];
    for seed in 1..=SEEDS {
        let run =
            simulate(&cell.shape, &cell.requests, MEMBER_KIB * 2, [LISTS_SEED, seed], &rig, delays.turn)?;
        seconds += run.seconds / SEEDS as f64;
        engine_sectors = [
            run.members.iter().map(|m| m.stats.sectors_read).sum(),
            run.members.iter().map(|m| m.stats.sectors_written).sum(),
        ];
    }
    let sum = |field: usize| linux.members.iter().map(|m| m[field]).sum();
    Ok(TimeRow {
        linux_s: linux.seconds,
        engine_s: seconds,
        cpu_s: control.seconds,
        way_us: delays.command.0 as f64 / 1e3,
        turn_us: delays.turn.0 as f64 / 1e3,
        linux_sectors: [sum(1), sum(3)],
        engine_sectors,
        error: linux.seconds / seconds - 1.0,
        is_judged: control.seconds <= CPU_SHARE_MAX * linux.seconds,
        cell,
    })
}

/// Runs all cells on both sides; `stripewise` is the program that serves drives, and the engine's commands and threads take so long.
///
/// # Errors
/// A program does not start, the kernel cannot be booted, or a cell fails; or `cancel` was set.
pub fn run(
    quick: bool,
    stripewise: &Path,
    delays: Delays,
    cancel: &AtomicBool,
    mut progress: impl FnMut(&str),
) -> Result<Vec<TimeRow>> {
    let mut rows = Vec::new();
    for drive in setups(quick) {
        let cells = cells(&drive, delays, quick)?;
        let guest_cells: Vec<_> = cells.iter().map(guest_cell).collect();
        let (linux, control) =
            with_control(stripewise, &drive, &guest_cells, "how long it takes", cancel, &mut progress)?;
        for ((cell, linux), control) in cells.into_iter().zip(&linux).zip(&control) {
            rows.push(row(cell, linux, control, delays)?);
        }
    }
    Ok(rows)
}
