//! How fast the array works by itself: resync and recovery of real md on modelled drives that are served in real time, beside
//! the engine's on the same models in virtual time. Nobody else uses the array and its speed has no bounds, or others read
//! anywhere in it and its speed has md's.
//!
//! A jiffy's sleep, which md takes when its stripe cache was full, is as long in the engine's runs as in user-mode-linux.
//! What is judged, and the way between kernel and drive, are as in [`times`](super::times).

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use stripewise_engine::array::sync::SpeedLimits;
use stripewise_engine::io::{AdminCommand, IoResult, RequestId, SyncAction};
use stripewise_engine::units::{Instant, Nanos};
use stripewise_engine::workload::{Next, Workload};
use stripewise_sim::{Phantom, Rig, SimConfig, World};

use super::engine::Shape;
use super::kernel::{GuestCell, GuestResult, GuestSync};
use super::requests::{Order, Replay, Requests};
use super::times::{CPU_SHARE_MAX, DATA_OFFSET_KIB, Delays, DriveSetup, QUEUE_DEPTH, SEEDS, with_control};

/// From the first sectors that are done, until it is watched.
const RAMP: Nanos = Nanos::from_millis(500);
/// How long it is watched.
const WATCHED: Nanos = Nanos::from_millis(3000);
/// Used of each member: more than is done in that time.
const MEMBER_KIB: u64 = 256 << 20;
/// A jiffy of user-mode-linux is 10 ms (HZ=100), and a sleep of one takes half of another besides.
const JIFFY_SLEPT: Nanos = Nanos::from_millis(15);
/// The same beside others.
const BESIDE_RAMP: Nanos = Nanos::from_millis(4000);
/// `sync_speed` beyond what any drive does.
const UNBOUNDED_KIB: u32 = 100_000_000;
/// Reads of each of the others' threads: more than are read in that time.
const BESIDE_COUNT: u64 = 4000;
const LISTS_SEED: u64 = 11;
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
    /// Random reads of others meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Requests>,
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
    /// Reads a second of others: real md's, the engine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_iops: Option<[f64; 2]>,
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
        SyncCell { drive: drive.clone(), shape, action, beside: None }
    };
    chosen.iter().map(cell).collect()
}

/// Cells of a drive where others read.
fn loaded_cells(drive: &DriveSetup) -> Vec<SyncCell> {
    use OwnWork::{Recover, Resync};
    let all = [
        (Recover, 5, 5, 1, 64, 256, 8, 1),
        (Recover, 5, 5, 1, 64, 256, 8, 4),
        (Recover, 5, 5, 1, 64, 256, 8, 16),
        (Recover, 5, 5, 1, 64, 256, 128, 4),
        (Resync, 5, 5, 0, 64, 256, 8, 4),
        (Recover, 1, 2, 1, 64, 256, 8, 4),
        (Recover, 10, 4, 1, 512, 256, 8, 4),
        (Recover, 6, 5, 2, 64, 256, 8, 4),
    ];
    let cell = |&(action, level, members, missing, chunk_kib, stripe_cache_size, block_sectors, threads)| {
        let shape = Shape { level, members, missing, chunk_kib, stripe_cache_size, bitmap_chunk_kib: None };
        let beside = Requests {
            order: Order::Random,
            is_write: false,
            block_sectors,
            shift_sectors: 0,
            threads,
            count: BESIDE_COUNT,
        };
        SyncCell { drive: drive.clone(), shape, action, beside: Some(beside) }
    };
    all.iter().map(cell).collect()
}

impl SyncCell {
    /// Without bounds where nobody else is.
    fn speed_limits(&self) -> SpeedLimits {
        let unbounded = SpeedLimits { min_kib: UNBOUNDED_KIB, max_kib: UNBOUNDED_KIB };
        if self.beside.is_some() { SpeedLimits::DEFAULT } else { unbounded }
    }

    fn ramp(&self) -> Nanos {
        if self.beside.is_some() { BESIDE_RAMP } else { RAMP }
    }

    fn reads(&self) -> Vec<Vec<(u64, u64)>> {
        let within = self.shape.usable_sectors(MEMBER_KIB * 2);
        self.beside.map_or_else(Vec::new, |beside| beside.lists(within, LISTS_SEED))
    }
}

fn guest_cell(cell: &SyncCell) -> GuestCell {
    let SpeedLimits { min_kib, max_kib } = cell.speed_limits();
    let sync = GuestSync {
        action: cell.action.name(),
        ramp_s: cell.ramp().as_secs_f64(),
        seconds: WATCHED.as_secs_f64(),
        speed_kib: [min_kib, max_kib],
    };
    let array = cell.shape.guest_array(MEMBER_KIB, DATA_OFFSET_KIB);
    GuestCell { sync: Some(sync), streams: cell.reads(), ..array }
}

/// Reads of others; the array is at work without any, too.
#[derive(Debug)]
struct Others {
    replay: Replay,
    done: u64,
}

impl Workload for Others {
    fn in_flight_max(&self) -> u32 {
        self.replay.in_flight_max().max(1)
    }

    fn request_bytes_max(&self) -> u64 {
        self.replay.request_bytes_max()
    }

    fn next(&mut self, now: Instant) -> Next {
        match self.replay.next(now) {
            // The array may have nothing to do either, until it is told to.
            Next::Finished => Next::WaitUntil(now + READS_FIRST),
            next => next,
        }
    }

    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        self.done += 1;
        self.replay.complete(now, id, result);
    }
}

/// How long others read before a recovery begins: the kernel gets the device for it when they do.
const READS_FIRST: Nanos = Nanos::from_millis(500);

/// KiB a second of the engine, and reads of others.
fn on_engine(cell: &SyncCell, rig: &Rig, turn: Nanos, seed: u64) -> Result<[f64; 2]> {
    let mut volume = cell.shape.config(MEMBER_KIB * 2)?;
    volume.policy.sync.full_rest = JIFFY_SLEPT;
    volume.sync.speed = cell.speed_limits();
    match cell.action {
        OwnWork::Resync => volume.resync_from = Some(0),
        OwnWork::Recover => {
            volume.recovering =
                std::mem::take(&mut volume.failed).into_iter().map(|slot| (slot, 0)).collect();
        }
    }
    let reads_first = cell.beside.is_some() && cell.action == OwnWork::Recover;
    volume.sync.start = !reads_first;
    let mut world = World::new(&SimConfig { volume, rig: rig.clone(), seed }, Phantom)?;
    let mut others = Others { replay: Replay::new(cell.reads(), false).with_turn(turn), done: 0 };
    let start = if reads_first { READS_FIRST } else { Nanos(0) };
    if reads_first {
        world.run(&mut others, Some(Instant::ZERO + start))?;
        world.admin(AdminCommand::Sync(SyncAction::Idle));
    }
    let mut done = |until| -> Result<[u64; 2]> {
        world.run(&mut others, Some(Instant::ZERO + start + until))?;
        let status = world.volume().sync_status().filter(|status| status.done_sectors < status.total_sectors);
        Ok([status.context("the engine has nothing left to do")?.done_sectors / 2, others.done])
    };
    let before = done(cell.ramp())?;
    let after = done(cell.ramp() + WATCHED)?;
    let rate = |index: usize| (after[index] - before[index]) as f64 / WATCHED.as_secs_f64();
    Ok([rate(0), rate(1)])
}

fn row(
    cell: SyncCell,
    linux: &GuestResult,
    control: &GuestResult,
    rig: &Rig,
    turn: Nanos,
) -> Result<SyncRow> {
    let rate = |result: &GuestResult| result.sync_sectors as f64 / 2.0 / result.seconds;
    let (linux_kib_s, cpu_kib_s) = (rate(linux), rate(control));
    if linux.sync_sectors == 0 || control.sync_sectors == 0 {
        bail!("md's {} does not move", cell.action.name());
    }
    let (mut engine_kib_s, mut engine_iops) = (0.0, 0.0);
    for seed in 1..=SEEDS {
        let [kib_s, iops] = on_engine(&cell, rig, turn, seed)?;
        engine_kib_s += kib_s / SEEDS as f64;
        engine_iops += iops / SEEDS as f64;
    }
    let [resting, _] = on_engine(&cell, &DriveSetup::none().rig(cell.shape.members, Nanos(0))?, Nanos(0), 1)?;
    let beside_iops = cell.beside.map(|_| [linux.reads as f64 / linux.seconds, engine_iops]);
    let cpu_share = (linux_kib_s / cpu_kib_s - linux_kib_s / resting).max(0.0);
    Ok(SyncRow {
        linux_kib_s,
        engine_kib_s,
        beside_iops,
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

/// Runs all cells on both sides, with nobody else on the array or beside reads of others; `stripewise` is the program that serves
/// drives, and the engine's commands and threads take so long.
///
/// # Errors
/// A program does not start, the kernel cannot be booted, or a cell fails; or `cancel` was set.
pub fn run(
    beside_reads: bool,
    quick: bool,
    stripewise: &Path,
    delays: Delays,
    cancel: &AtomicBool,
    mut progress: impl FnMut(&str),
) -> Result<Vec<SyncRow>> {
    let title = if beside_reads { "its own work beside reads" } else { "the array's own work" };
    let mut rows = Vec::new();
    for drive in setups(quick) {
        let cells = if beside_reads { loaded_cells(&drive) } else { cells(&drive, quick) };
        let guest_cells: Vec<_> = cells.iter().map(guest_cell).collect();
        let (linux, control) = with_control(stripewise, &drive, &guest_cells, title, cancel, &mut progress)?;
        for ((cell, linux), control) in cells.into_iter().zip(&linux).zip(&control) {
            let rig = drive.rig(cell.shape.members, delays.command)?;
            rows.push(row(cell, linux, control, &rig, delays.turn)?);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Real md: 9.5 MiB/s, next to what the links let through.
    #[test]
    fn a_raid10_is_recovered_at_its_drives_rate() {
        let depth = ("queue_depth", QUEUE_DEPTH);
        let drive = DriveSetup::new("constant-latency", &[("latency", 20_000.0), LINK_RATE, depth]);
        let found = cells(&drive, false).into_iter().find(|c| c.shape.level == 10 && c.shape.missing == 1);
        let cell = found.expect("it is among the cells");
        let rig = drive.rig(cell.shape.members, Nanos(0)).unwrap();
        let [kib_s, _] = on_engine(&cell, &rig, Nanos(0), 1).unwrap();
        assert!(kib_s > 9.0 * 1024.0, "{kib_s} KiB a second");
    }
}
