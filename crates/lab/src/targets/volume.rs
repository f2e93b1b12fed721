//! From a cell's parameters to the engine's configuration.

use stripewise_engine::array::sync::{SpeedLimits, SyncConfig};
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_engine::volume::{Volume, VolumeConfig};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::CellError;
use crate::cell::Cell;
use crate::fs::{BLOCK_SECTORS, Ext, ExtFile, Extent, FsKind, Xfs};
use crate::labels::{Bitmap, Devices, label};
use crate::plan::{CellTarget, Work};
use crate::trace::Replay;
use crate::workload::{Job, print_size, print_time};

/// The volume of a cell on devices of that many sectors, which are all data unless the array keeps a bitmap. A drive by itself is a
/// linear array of one member.
pub(super) fn volume(cell: &Cell, device_sectors: u64) -> Result<VolumeConfig, String> {
    let parameters = &cell.parameters;
    let array = &parameters.array;
    let (level, layout) = match parameters.target {
        CellTarget::Array => (array.level, parameters.layout()?),
        CellTarget::Drive => (Level::Linear, Layout::None),
    };
    let geometry = GeometrySpec {
        level,
        layout,
        chunk_sectors: if level.has_chunks() { array.chunk / SECTOR_BYTES } else { 0 },
        member_sectors: vec![device_sectors; parameters.members().into()],
    };
    let missing = parameters.failed_slots()?;
    let (failed, recovering) = match parameters.work {
        Work::Recover | Work::Rebuild => (Vec::new(), missing.into_iter().map(|slot| (slot, 0)).collect()),
        Work::Job | Work::Resync | Work::Mkfs | Work::Trace => (missing, Vec::new()),
    };
    let speed = SpeedLimits { min_kib: array.speed_limit_min, max_kib: array.speed_limit_max };
    let mut volume = VolumeConfig {
        stripe_cache_size: array.stripe_cache_size,
        failed,
        recovering,
        resync_from: (parameters.work == Work::Resync).then_some(0),
        sync: SyncConfig { speed, ..SyncConfig::DEFAULT },
        ..VolumeConfig::new(geometry, parameters.policy()?)
    };
    if has_bitmap(cell) {
        let devices = Devices { sectors: device_sectors, data_offset_sectors: None, size_sectors: None };
        let bitmap = Bitmap { chunk_bytes: array.bitmap_chunk, delay_seconds: array.bitmap_delay };
        label(&mut volume, devices, bitmap)?;
    }
    Ok(volume)
}

/// Where the data begin on devices of that many sectors.
pub(super) fn data_offset_sectors(cell: &Cell, device_sectors: u64) -> Result<u64, String> {
    Ok(volume(cell, device_sectors)?.data_offset_sectors())
}

/// Whether the cell's array keeps a bitmap.
pub(super) fn has_bitmap(cell: &Cell) -> bool {
    cell.parameters.target == CellTarget::Array && cell.parameters.array.has_bitmap
}

/// The sectors of the cell's target; refuses arrays that cannot be and jobs that do not fit.
pub(super) fn checked_sectors(cell: &Cell, member_sectors: u64) -> Result<u64, String> {
    let config = volume(cell, member_sectors)?;
    let sectors = Volume::new(&config).map_err(|e| e.to_string())?.geometry().array_sectors();
    let payload = cell.parameters.crypt().map_or(0, |crypt| crypt.payload_sectors);
    let Some(sectors) = sectors.checked_sub(payload) else {
        return Err(format!("crypt_offset of {payload} sectors is beyond the array's {sectors}"));
    };
    match cell.parameters.work {
        Work::Job | Work::Rebuild => {
            let usable = file(cell, sectors)?.map_or(sectors, |file| file.blocks() * BLOCK_SECTORS);
            cell.parameters.job.check_on(usable).map_err(|e| e.to_string())?;
        }
        Work::Mkfs => {
            mkfs(cell, sectors)?;
        }
        Work::Trace => check_trace(cell, sectors)?,
        Work::Resync | Work::Recover => {}
    }
    Ok(sectors)
}

/// What a reader must know of a job whose `size` reaches beyond the sectors there are: it uses those.
pub(super) fn beyond(cell: &Cell, sectors: u64) -> Option<String> {
    let job = &cell.parameters.job;
    let there = (sectors * SECTOR_BYTES).saturating_sub(job.offset);
    let size = job.size.filter(|size| cell.parameters.work.runs_job() && *size > there)?;
    Some(format!(
        "size {} reaches beyond the target's end: {} from offset {} are used",
        print_size(size),
        print_size(there),
        print_size(job.offset)
    ))
}

/// What is told of a recovery beside a job: its rate, and how much of a member there is to recover in all.
pub(super) fn recovery_figures(done_sectors: u64, total_sectors: u64, seconds: f64) -> Vec<(String, f64)> {
    let kib = |sectors: u64| sectors as f64 / 2.0;
    vec![
        ("sync_kib_s".to_owned(), kib(done_sectors) / seconds),
        ("sync_total_kib".to_owned(), kib(total_sectors)),
    ]
}

/// A recovery that left the job alone before its time was over: figures would be of neither.
pub(super) fn recovered_early(job: &Job) -> CellError {
    CellError(format!(
        "the recovery ended before the job's {}; use larger members, a shorter runtime or lower speed limits",
        print_time(job.ramp_time + job.runtime)
    ))
}

/// Refuses a trace that reaches beyond the target.
fn check_trace(cell: &Cell, sectors: u64) -> Result<(), String> {
    let Some(trace) = &cell.parameters.trace else { return Ok(()) };
    let (used, there) = (trace.bytes_used(), sectors * SECTOR_BYTES);
    if used > there {
        return Err(format!(
            "{}: the trace reaches to byte {used}, but the target has {there}; use larger or more members",
            trace.file
        ));
    }
    Ok(())
}

/// The cell's trace, to be replayed.
pub(super) fn replay(cell: &Cell, cancel: &Arc<AtomicBool>) -> Result<Replay, CellError> {
    let parameters = &cell.parameters;
    let trace = parameters.trace.clone().ok_or_else(|| CellError("no trace is named".to_owned()))?;
    let replay = Replay::new(trace, parameters.speed).with_cancel(Arc::clone(cancel));
    Ok(if parameters.job.direct { replay } else { replay.buffered() })
}

/// The cell's ext file system on so many sectors.
fn layout(cell: &Cell, sectors: u64) -> Result<Ext, String> {
    let no_room = || {
        format!(
            "a device of {sectors} sectors has no room for this file system: it is too small for one, or its inodes and \
             group descriptors fill it; with a larger inode_ratio it has fewer"
        )
    };
    Ext::new(&cell.parameters.ext(sectors)).ok_or_else(no_room)
}

/// The cell's xfs on so many sectors.
fn xfs(cell: &Cell, sectors: u64) -> Result<Xfs, String> {
    let too_small = || format!("a device of {sectors} sectors is too small for xfs, which needs 300 MiB");
    Xfs::new(&cell.parameters.xfs(sectors)).ok_or_else(too_small)
}

/// The file a cell's job uses, if it uses one.
pub(super) fn file(cell: &Cell, sectors: u64) -> Result<Option<ExtFile>, String> {
    match cell.parameters.stack.fs {
        Some(FsKind::Ext3 | FsKind::Ext4) => layout(cell, sectors).map(|layout| Some(ExtFile::new(layout))),
        Some(FsKind::Xfs) | None => Ok(None),
    }
}

/// What making the cell's file system writes.
pub(super) fn mkfs(cell: &Cell, sectors: u64) -> Result<Vec<Extent>, String> {
    match cell.parameters.stack.fs {
        Some(FsKind::Xfs) => xfs(cell, sectors).map(|layout| layout.mkfs()),
        _ => layout(cell, sectors).map(|layout| layout.mkfs()),
    }
}
