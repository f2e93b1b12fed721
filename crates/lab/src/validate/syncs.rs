//! How fast the array works by itself: resync and recovery of real md on modelled drives that are served in real time, beside
//! the engine's on the same models in virtual time. Nobody else uses the array, and its speed has no bounds.
//!
//! A jiffy's sleep, which md takes when its stripe cache was full, is as long in the engine's runs as in user-mode-linux.
//! What is judged, and the way between kernel and drive, are as in [`times`](super::times).

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use stripewise_engine::io::{IoResult, RequestId};
use stripewise_engine::units::{Instant, Nanos};
use stripewise_engine::workload::{Next, Workload};
use stripewise_sim::{Phantom, Rig, SimConfig, World};

use super::engine::Shape;
use super::kernel::{GuestCell, GuestResult, GuestSync};
use super::times::{CPU_SHARE_MAX, DATA_OFFSET_KIB, DriveSetup, QUEUE_DEPTH, SEEDS, with_control};

/// From the first sectors that are done, until it is watched.
const RAMP: Nanos = Nanos::from_millis(500);
/// How long it is watched.
const WATCHED: Nanos = Nanos::from_millis(3000);
/// Used of each member: more than is done in that time.
const MEMBER_KIB: u64 = 256 << 20;
/// A jiffy of user-mode-linux is 10 ms (HZ=100), and a sleep of one takes half of another besides.
const JIFFY_SLEPT: Nanos = Nanos::from_millis(15);
/// Bytes a millisecond of each drive's interface: what is read and written passes this machine's CPUs.
const LINK_RATE: (&str, f64) = ("link_rate", 10.0);

/// The array's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnWork {
    /// Makes redundancy right, from the start on.
    Resync,
    /// Fills the members that were missing.
    Recover,
}

impl OwnWork {
    /// As `sync_action` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Recover => "recover",
        }
    }
}

/// An array on drives that works by itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SyncCell {
    /// The drives.
    pub drive: DriveSetup,
    /// The array; to be recovered: what is missing.
    pub shape: Shape,
    /// What it does.
    pub action: OwnWork,
}

/// A cell's outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SyncRow {
    /// The cell.
    #[serde(flatten)]
    pub cell: SyncCell,
    /// KiB a second of real md, in the units of `/proc/mdstat`.
    pub linux_kib_s: f64,
    /// KiB a second of the engine, the mean of its runs.
    pub engine_kib_s: f64,
    /// KiB a second of real md on drives that take no time.
    pub cpu_kib_s: f64,
    /// Of md's time, the share of this machine's CPUs: what it takes on drives that take no time, less what the engine takes
    /// on them, which rests as md does.
    pub cpu_share: f64,
    /// How far the engine's speed is from real md's, of real md's.
    pub error: f64,
    /// Whether the drives are the limit.
    pub is_judged: bool,
}

/// The cells of a drive.
fn cells(drive: &DriveSetup, quick: bool) -> Vec<SyncCell> {
    use OwnWork::{Recover, Resync};
    let all = [
        (Resync, 5, 5, 0, 64, 256),
        (Recover, 5, 5, 1, 64, 256),
        (Recover, 5, 5, 1, 512, 256),
        (Recover, 1, 2, 1, 64, 256),
        (Recover, 5, 5, 1, 4, 256),
        (Recover, 5, 5, 1, 512, 4096),
        (Resync, 5, 5, 0, 512, 4096),
        (Recover, 6, 5, 2, 64, 256),
        (Resync, 6, 5, 0, 512, 1024),
        (Resync, 1, 2, 0, 64, 256),
        (Resync, 10, 4, 0, 64, 256),
        (Recover, 10, 4, 1, 512, 256),
    ];
    let chosen = if quick { &all[..4] } else { &all[..] };
    let cell = |&(action, level, members, missing, chunk_kib, stripe_cache_size)| {
        let shape = Shape { level, members, missing, chunk_kib, stripe_cache_size, bitmap_chunk_kib: None };
        SyncCell { drive: drive.clone(), shape, action }
    };
    chosen.iter().map(cell).collect()
}

fn guest_cell(cell: &SyncCell) -> GuestCell {
    let sync =
        GuestSync { action: cell.action.name(), ramp_s: RAMP.as_secs_f64(), seconds: WATCHED.as_secs_f64() };
    GuestCell { sync: Some(sync), ..cell.shape.guest_array(MEMBER_KIB, DATA_OFFSET_KIB) }
}

/// Nobody uses the array until then.
#[derive(Debug)]
struct Nobody;

impl Workload for Nobody {
    fn in_flight_max(&self) -> u32 {
        1
    }

    fn request_bytes_max(&self) -> u64 {
        0
    }

    fn next(&mut self, _: Instant) -> Next {
        Next::Wait
    }

    fn complete(&mut self, _: Instant, _: RequestId, _: IoResult) {}
}

/// KiB a second of the engine.
fn on_engine(cell: &SyncCell, rig: &Rig, seed: u64) -> Result<f64> {
    let mut volume = cell.shape.config(MEMBER_KIB * 2)?;
    volume.policy.sync.full_rest = JIFFY_SLEPT;
    (volume.sync.speed.min_kib, volume.sync.speed.max_kib) = (u32::MAX, u32::MAX);
    match cell.action {
        OwnWork::Resync => volume.resync_from = Some(0),
        OwnWork::Recover => {
            volume.recovering =
                std::mem::take(&mut volume.failed).into_iter().map(|slot| (slot, 0)).collect();
        }
    }
    let mut world = World::new(&SimConfig { volume, rig: rig.clone(), seed }, Phantom)?;
    let mut done = |until| -> Result<u64> {
        world.run(&mut Nobody, Some(Instant::ZERO + until))?;
        let status = world.volume().sync_status().filter(|status| status.done_sectors < status.total_sectors);
        Ok(status.context("the engine has nothing left to do")?.done_sectors)
    };
    let before = done(RAMP)?;
    let after = done(RAMP + WATCHED)?;
    Ok((after - before) as f64 / 2.0 / WATCHED.as_secs_f64())
}

fn row(cell: SyncCell, linux: &GuestResult, control: &GuestResult, rig: &Rig) -> Result<SyncRow> {
    let rate = |result: &GuestResult| result.sync_sectors as f64 / 2.0 / result.seconds;
    let (linux_kib_s, cpu_kib_s) = (rate(linux), rate(control));
    if linux.sync_sectors == 0 || control.sync_sectors == 0 {
        bail!("md's {} does not move", cell.action.name());
    }
    let mut engine_kib_s = 0.0;
    for seed in 1..=SEEDS {
        engine_kib_s += on_engine(&cell, rig, seed)? / SEEDS as f64;
    }
    let resting = on_engine(&cell, &DriveSetup::none().rig(cell.shape.members, 0)?, 1)?;
    let cpu_share = (linux_kib_s / cpu_kib_s - linux_kib_s / resting).max(0.0);
    Ok(SyncRow {
        linux_kib_s,
        engine_kib_s,
        cpu_kib_s,
        error: engine_kib_s / linux_kib_s - 1.0,
        cpu_share,
        is_judged: cpu_share <= CPU_SHARE_MAX,
        cell,
    })
}

/// Drives that are booted together.
fn setups(quick: bool) -> Vec<DriveSetup> {
    let depth = ("queue_depth", QUEUE_DEPTH);
    let queued = DriveSetup::new("constant-latency", &[("latency", 20_000.0), LINK_RATE, depth]);
    if quick {
        return vec![queued];
    }
    vec![queued, DriveSetup::new("st31000333as", &[LINK_RATE])]
}

/// Runs all cells on both sides; `stripewise` is the program that serves drives, and commands are so long on their way to them.
///
/// # Errors
/// A program does not start, the kernel cannot be booted, or a cell fails; or `cancel` was set.
pub fn run(
    quick: bool,
    stripewise: &Path,
    way_ns: u64,
    cancel: &AtomicBool,
    mut progress: impl FnMut(&str),
) -> Result<Vec<SyncRow>> {
    let mut rows = Vec::new();
    for drive in setups(quick) {
        let cells = cells(&drive, quick);
        let guest_cells: Vec<_> = cells.iter().map(guest_cell).collect();
        let (linux, control) =
            with_control(stripewise, &drive, &guest_cells, "the array's own work", cancel, &mut progress)?;
        for ((cell, linux), control) in cells.into_iter().zip(&linux).zip(&control) {
            let rig = drive.rig(cell.shape.members, way_ns)?;
            rows.push(row(cell, linux, control, &rig)?);
        }
    }
    Ok(rows)
}
