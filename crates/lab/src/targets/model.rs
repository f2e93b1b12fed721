//! `model`: modelled drives in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use stripewise_engine::io::{IoResult, RequestId, SyncAction};
use stripewise_engine::units::{Instant, Nanos, PAGE_BYTES, SECTOR_BYTES, Slot};
use stripewise_engine::workload::{Next, Workload};
use stripewise_sim::models::Model;
use stripewise_sim::{Phantom, Rig, RigNames, SimConfig, SimError, SimReport, World};

use super::volume::{beyond, checked_sectors, file, recovered_early, recovery_figures, replay, volume};
use super::{CellError, LEFT_DIRTY, Measurement, Target, TargetKind};
use crate::cell::Cell;
use crate::fs::{BLOCK_SECTORS, InFile, Mkfs};
use crate::plan::{CellTarget, Parameters, Work};
use crate::results::{DirectionResult, Provenance};
use crate::workload::{JobRunner, Measured};

pub(super) const KIND: TargetKind = TargetKind {
    name: "model",
    usage: "model (the plan's modelled rig, in virtual time)",
    is_real: false,
    open: |rest, options| {
        if !rest.is_empty() {
            bail!("'model:{rest}': the rig is named in the plan; write model alone");
        }
        if options.fill.is_some() {
            bail!("a modelled drive keeps no bytes, so that nothing is filled; leave --fill out");
        }
        if options.member_bytes.is_some() {
            bail!(
                "a member size was given, but a modelled drive has its own; leave it out, or measure on real storage"
            );
        }
        Ok(model())
    },
};

/// A rig's models as the plan names them, and how many members it is for.
type Named = ([String; 4], u16);

/// Runs cells in the simulator.
#[derive(Default)]
struct ModelTarget {
    /// Rigs by the names and the members that make them.
    rigs: Mutex<BTreeMap<Named, Arc<Rig>>>,
    /// A parameter of a model that is moved.
    change: Option<Change>,
}

/// A parameter of a model, and what it is multiplied by.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The model.
    pub model: String,
    /// The parameter.
    pub parameter: String,
    /// The factor.
    pub factor: f64,
}

/// The simulator.
pub fn model() -> Box<dyn Target> {
    Box::new(ModelTarget::default())
}

/// The simulator with one parameter of one model moved.
pub fn changed(change: Change) -> Box<dyn Target> {
    Box::new(ModelTarget { rigs: Mutex::default(), change: Some(change) })
}

impl ModelTarget {
    fn rig(&self, cell: &Cell) -> Result<Arc<Rig>, String> {
        let rig = &cell.parameters.rig;
        let members = cell.parameters.members();
        let named = [&rig.drive, &rig.controller, &rig.cpu, &rig.block].map(Clone::clone);
        let mut rigs = self.rigs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = rigs.get(&(named.clone(), members)) {
            return Ok(Arc::clone(found));
        }
        let rig = rig.completed().map_err(|e| format!("the plan's [rig]: {e}"))?;
        let names = RigNames::with_topology(&rig.drive, &rig.controller, &rig.cpu, &rig.block, members);
        let names = names.map_err(|e| format!("the plan's [rig]: {e}"))?;
        let load = |name: &str| {
            let model = crate::load_model(name)?;
            match self.change.as_ref().filter(|c| c.model == model.name) {
                Some(change) => model.scaled(&change.parameter, change.factor),
                None => Ok(model),
            }
        };
        let loaded = Arc::new(Rig::load_with(&names, load).map_err(|e| e.to_string())?);
        rigs.insert((named, members), Arc::clone(&loaded));
        Ok(loaded)
    }

    /// The models of all cells, each once, as the rigs name them.
    fn models(&self, cells: &[Cell]) -> Vec<Model> {
        let mut named = BTreeSet::new();
        let mut models = Vec::new();
        for rig in cells.iter().filter_map(|cell| self.rig(cell).ok()) {
            for model in rig.models() {
                if named.insert(model.file.clone()) {
                    models.push(model.clone());
                }
            }
        }
        models
    }

    /// A model's title, with how many of it the rigs have if it is a controller of which they have several.
    fn title(&self, cells: &[Cell], model: Model) -> String {
        let arrays = cells.iter().filter(|cell| cell.parameters.target == CellTarget::Array);
        let rigs: Vec<Arc<Rig>> = arrays.filter_map(|cell| self.rig(cell).ok()).collect();
        let in_use = |rig: &Arc<Rig>| {
            let alike = rig.controllers.iter().filter(|c| c.model.model.file == model.file);
            alike.filter(|c| !c.members.is_empty()).count()
        };
        let counts: BTreeSet<usize> = rigs.iter().map(in_use).filter(|count| *count > 0).collect();
        match (counts.first(), counts.last()) {
            (_, None | Some(1)) => model.title,
            (Some(fewest), Some(most)) if fewest < most => format!("{} (up to {most} of them)", model.title),
            (_, Some(count)) => format!("{} ({count} of them)", model.title),
        }
    }

    fn config(&self, cell: &Cell) -> Result<SimConfig, String> {
        let mut rig = Rig::clone(&*self.rig(cell)?);
        rig.group_thread_cnt = cell.parameters.group_thread_cnt();
        let mut volume = volume(cell, rig.drive.capacity_sectors())?;
        volume.rotational = rig.drive.is_rotational();
        Ok(SimConfig { volume, rig, seed: cell.seed() })
    }
}

impl Target for ModelTarget {
    fn name(&self) -> String {
        "model".to_owned()
    }

    fn describe(&self, cells: &[Cell]) -> String {
        let members = cells.iter().map(|c| c.parameters.members()).max().unwrap_or(0);
        let policies: BTreeSet<&str> = cells.iter().map(|c| c.parameters.rig.policy.as_str()).collect();
        let titles: Vec<String> = self.models(cells).into_iter().map(|m| self.title(cells, m)).collect();
        let policies = policies.into_iter().collect::<Vec<_>>().join(", ");
        format!("simulated: up to {members} members; {}; array policy {policies}", titles.join("; "))
    }

    fn identity(&self, cell: &Cell) -> String {
        self.rig(cell).map_or_else(|e| e, |rig| format!("model {:016x}", rig.hash()))
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn provenance(&self, cells: &[Cell]) -> Vec<Provenance> {
        let entry = |model: &str, p: stripewise_sim::models::Parameter| Provenance {
            model: model.to_owned(),
            parameter: p.name.to_owned(),
            value: p.value.to_string(),
            unit: p.unit.to_owned(),
            kind: p.kind.name().to_owned(),
            source: p.note.map_or_else(|| p.source.clone(), |note| format!("{}; {note}", p.source)),
        };
        let of_model = |m: Model| m.parameters.into_iter().map(|p| entry(&m.name, p)).collect::<Vec<_>>();
        self.models(cells).into_iter().flat_map(of_model).collect()
    }

    fn check(&self, cell: &Cell) -> Result<(), String> {
        let rig = self.rig(cell)?;
        let Parameters { target, array, .. } = &cell.parameters;
        if *target == CellTarget::Array && array.shards > 1 {
            return Err(format!(
                "{} shards: a modelled array is of one thread; set shards to 1, or measure on memory or files:DIR",
                array.shards
            ));
        }
        let members = usize::from(cell.parameters.members());
        if let Some(full) = rig.controllers.iter().find(|c| c.members.len() > c.model.ports) {
            let (name, ports) = (&full.model.model.name, full.model.ports);
            let plural = if ports == 1 { "" } else { "s" };
            return Err(format!(
                "{members} members on {name}, which has {ports} port{plural}; several controllers are joined by +, as \
                 '{name}:{ports} + {name}'"
            ));
        }
        checked_sectors(cell, rig.drive.capacity_sectors()).map(|_| ())
    }

    fn run(&self, cell: &Cell, cancel: &Arc<AtomicBool>) -> Result<Measurement, CellError> {
        let config = self.config(cell).map_err(CellError)?;
        let sectors = checked_sectors(cell, config.rig.drive.capacity_sectors()).map_err(CellError)?;
        match cell.parameters.work {
            Work::Job | Work::Rebuild => {}
            Work::Resync | Work::Recover => return sync(cell, &config, cancel),
            Work::Mkfs => return mkfs(cell, &config, sectors, cancel),
            Work::Trace => return trace(cell, &config, cancel),
        }
        let file = file(cell, sectors).map_err(CellError)?;
        let sectors = file.as_ref().map_or(sectors, |file| file.blocks() * BLOCK_SECTORS);
        let runner =
            JobRunner::new(&cell.parameters.kernel_job(), sectors).map_err(|e| CellError(e.to_string()))?;
        let mut runner = runner.with_cancel(Arc::clone(cancel));
        let mut world = world(cell, &config)?;
        let ran = match &file {
            Some(file) => run_job(cell, &mut world, &mut InFile::new(file, &mut runner))?,
            None => run_job(cell, &mut world, &mut runner)?,
        };
        let short = beyond(cell, sectors);
        let measured = runner.measured();
        let (requests, flushes) = (measured.read.ios + measured.write.ios, measured.flush.ios);
        let mut measurement = Measurement::of_job(&cell.parameters.job, measured, members(&ran.end))?;
        measurement.figures.extend(ran.figures);
        measurement.notes.extend(short);
        let is_unsteady = ran.dirty_growth > UNSTEADY * measurement.write.bytes as f64;
        measurement.notes.extend((ran.dirty_growth > 0.0 && is_unsteady).then(|| GROWS.to_owned()));
        if flushes > 0 {
            let each = requests as f64 / flushes as f64;
            measurement.figures.insert("requests_per_flush".to_owned(), each);
        }
        if let Some(share) = world.cache().and_then(|cache| cache.stats().hit_share()) {
            measurement.figures.insert("cache_hit_share".to_owned(), share);
        }
        Ok(measurement)
    }
}

/// Above this share of written bytes that stay in the page cache, a cell has not come to its steady state.
const UNSTEADY: f64 = 0.25;
/// What is said then.
const GROWS: &str = "Where a page cache takes writes, it took more than a quarter of those of some cells and had not written them \
                     back at their end; their figures show the memory as well as the array. A longer ramp_time, or less \
                     memory, shows the array.";

/// The array of a cell with the layers above it.
fn world(cell: &Cell, config: &SimConfig) -> Result<World<Phantom>, CellError> {
    let made = World::layered(config, cell.parameters.crypt(), cell.parameters.cache().as_ref(), Phantom);
    made.map_err(|e| CellError(e.to_string()))
}

/// What a cell's job left.
struct Ran {
    /// At the end of everything: the job's ramp, its timed part, and what was written back after it.
    end: SimReport,
    /// Of the timed part.
    figures: BTreeMap<String, f64>,
    /// By how many bytes what is dirty in the page cache grew in the timed part.
    dirty_growth: f64,
}

/// Bytes that are dirty in the page cache.
fn dirty_bytes(world: &World<Phantom>) -> u64 {
    world.cache().map_or(0, |cache| cache.dirty_pages() * PAGE_BYTES)
}

/// Runs the cell's job, beside a recovery if that is the cell's work: with the figures of that recovery.
fn run_job(cell: &Cell, world: &mut World<Phantom>, workload: &mut impl Workload) -> Result<Ran, CellError> {
    let failed = |e: SimError| CellError(e.to_string());
    let job = &cell.parameters.job;
    let ramp_end = Instant::ZERO + job.ramp_time;
    let ramp = world.run(workload, Some(ramp_end)).map_err(failed)?;
    let before = world.volume().sync_status();
    // A job without a runtime is timed until it has done its size.
    let end = (job.runtime > Nanos(0)).then(|| ramp_end + job.runtime);
    let dirty_before = dirty_bytes(world);
    let timed = world.run(workload, end).map_err(failed)?;
    let dirty_growth = dirty_bytes(world) as f64 - dirty_before as f64;
    let mut figures =
        figures(Some(&ramp), &timed, end.filter(|_| job.time_based).map(|_| job.runtime.as_secs_f64()));
    if cell.parameters.work != Work::Rebuild {
        let end = world.run(workload, None).map_err(failed)?;
        let left_dirty = dirty_bytes(world);
        figures.extend((left_dirty > 0).then(|| (LEFT_DIRTY.to_owned(), left_dirty as f64)));
        return Ok(Ran { end, figures, dirty_growth });
    }
    // The drives never come to rest while the recovery goes on, so that the clock ends the run.
    let after = world.volume().sync_status();
    let (Some(before), Some(after)) = (before, after.filter(|s| s.action == SyncAction::Recover)) else {
        return Err(recovered_early(job));
    };
    let done_sectors = after.done_sectors - before.done_sectors;
    figures.extend(recovery_figures(done_sectors, after.total_sectors, job.runtime.as_secs_f64()));
    Ok(Ran { end: timed, figures, dirty_growth })
}

/// Reads, read bytes, writes and written bytes of each member.
fn members(report: &SimReport) -> impl Iterator<Item = [u64; 4]> {
    let bytes = |sectors: u64| sectors * SECTOR_BYTES;
    let stats = report.members.iter().map(|m| m.stats);
    stats.map(move |s| [s.reads, bytes(s.sectors_read), s.writes, bytes(s.sectors_written)])
}

/// The shares and bytes of one kind of buses.
type Buses = fn(&SimReport) -> (&[f64], &[u64]);

/// The figures of what went on between two reports, the first at the start if there is none. A report is of the last thing that
/// happened: how many seconds are between them may be known better.
fn figures(from: Option<&SimReport>, to: &SimReport, known: Option<f64>) -> BTreeMap<String, f64> {
    let seconds = |report: &SimReport| report.end.0 as f64 / 1e9;
    let elapsed = known.unwrap_or_else(|| seconds(to) - from.map_or(0.0, seconds)).max(1e-9);
    let rate = |total: &dyn Fn(&SimReport) -> f64| (total(to) - from.map_or(0.0, total)) / elapsed;
    let busy = |share: &dyn Fn(&SimReport) -> f64| rate(&|report| share(report) * seconds(report));
    // Of each controller, and of each bus that several share.
    let kinds: [Buses; 2] =
        [|r| (&r.bus_busy_share, &r.bus_bytes), |r| (&r.shared_bus_busy_share, &r.shared_bus_bytes)];
    let all = kinds.into_iter().flat_map(|buses| (0..buses(to).0.len()).map(move |bus| (buses, bus)));
    let of = |(buses, bus): (Buses, usize)| {
        let mb_s = rate(&|report| buses(report).1[bus] as f64 / 1e6);
        (busy(&|report| buses(report).0[bus]), mb_s)
    };
    let busiest = all.map(of).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
    let figures = [
        // Sums of many parts may come to a little more than all.
        ("cpu_busy_share", busy(&|report| report.cpu_busy_share).min(1.0)),
        ("parity_busy_share", busy(&|report| report.parity_busy_share)),
        ("bus_busy_share", busiest.0.min(1.0)),
        ("bus_mb_s", busiest.1),
    ];
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Lets the array work by itself for the job's runtime, after its ramp.
fn sync(cell: &Cell, config: &SimConfig, cancel: &AtomicBool) -> Result<Measurement, CellError> {
    let job = &cell.parameters.job;
    let ramp_end = Instant::ZERO + job.ramp_time;
    let end = ramp_end + job.runtime;
    let mut world = world(cell, config)?;
    let mut now = Instant::ZERO;
    let mut until = |end| {
        let mut alone = LeftAlone { end, has_asked: false };
        let report = loop {
            now = (now + BETWEEN_LOOKS).min(end);
            let report = world.run(&mut alone, Some(now)).map_err(|e| CellError(e.to_string()))?;
            if cancel.load(Ordering::Relaxed) {
                return Err(CellError("interrupted".to_owned()));
            }
            if now == end {
                break report;
            }
        };
        let status = world.volume().sync_status().filter(|s| s.action != SyncAction::Idle);
        let nothing_left =
            || CellError("the array had nothing left to do before the time was over".to_owned());
        let status = status.ok_or_else(nothing_left)?;
        // RAID-10's resync counts sectors of the array, as md's does.
        let member_sectors = world.volume().geometry().used_sectors(Slot(0));
        let part = status.done_sectors as f64 / status.total_sectors as f64;
        Ok((report, part * member_sectors as f64))
    };
    let ramp = if job.ramp_time.0 > 0 { Some(until(ramp_end)?) } else { None };
    let (report, after) = until(end)?;
    let before = ramp.as_ref().map_or(0.0, |(_, done)| *done);
    let (done, seconds) = (after - before, end.since(ramp_end).as_secs_f64());
    let measured = Measured { seconds, ..Measured::default() };
    let mut measurement = Measurement::of(measured, members(&report))?;
    measurement.figures = figures(ramp.as_ref().map(|(report, _)| report), &report, Some(seconds));
    measurement.figures.insert("sync_kib_s".to_owned(), done / 2.0 / seconds);
    Ok(measurement)
}

/// Makes a file system.
fn mkfs(
    cell: &Cell,
    config: &SimConfig,
    sectors: u64,
    cancel: &Arc<AtomicBool>,
) -> Result<Measurement, CellError> {
    let extents = super::volume::mkfs(cell, sectors).map_err(CellError)?;
    let mut workload = Mkfs::new(extents).with_cancel(Arc::clone(cancel));
    let report = world(cell, config)?.run(&mut workload, None).map_err(|e| CellError(e.to_string()))?;
    let (ios, bytes) = (workload.writes(), workload.bytes());
    let measured = Measured {
        seconds: workload.end.since(Instant::ZERO).as_secs_f64(),
        write: DirectionResult { ios, bytes, errors: workload.errors, ..DirectionResult::default() },
        requests: ios,
        request_bytes: bytes,
        ..Measured::default()
    };
    let mut measurement = Measurement::of(measured, members(&report))?;
    measurement.figures = figures(None, &report, None);
    Ok(measurement)
}

/// Replays a trace.
fn trace(cell: &Cell, config: &SimConfig, cancel: &Arc<AtomicBool>) -> Result<Measurement, CellError> {
    let mut replay = replay(cell, cancel)?;
    let report = world(cell, config)?.run(&mut replay, None).map_err(|e| CellError(e.to_string()))?;
    let mut measurement = Measurement::of(replay.measured(), members(&report))?;
    measurement.figures.extend(figures(None, &report, None));
    measurement.figures.extend(replay.figures());
    Ok(measurement)
}

/// How often, in virtual time, it is looked whether an array that is left alone is to end early.
const BETWEEN_LOOKS: Nanos = Nanos(1_000_000_000);

/// Nobody uses the array.
struct LeftAlone {
    end: Instant,
    /// Whether it is to be woken at the end already.
    has_asked: bool,
}

impl Workload for LeftAlone {
    fn in_flight_max(&self) -> u32 {
        1
    }

    fn request_bytes_max(&self) -> u64 {
        0
    }

    fn next(&mut self, now: Instant) -> Next {
        if now >= self.end {
            Next::Finished
        } else if std::mem::replace(&mut self.has_asked, true) {
            Next::Wait
        } else {
            Next::WaitUntil(self.end)
        }
    }

    fn complete(&mut self, _: Instant, _: RequestId, _: IoResult) {}
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
