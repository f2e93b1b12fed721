//! What the targets on real storage have in common: an array opened anew for every cell, in real time.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stripewise_crypt::cipher::SectorCipher;
use stripewise_engine::units::{SECTOR_BYTES, Slot};
use stripewise_engine::workload::Workload;
use stripewise_format::luks::Encryption;
use stripewise_host::{Array, ArrayConfig, CryptLayer, Layers, MemberSpec, RunReport};
use stripewise_sim::Cipher;

use super::volume::{beyond, checked_sectors, has_bitmap, recovered_early, recovery_figures, replay, volume};
use super::{CellError, Measurement, named};
use crate::cell::Cell;
use crate::plan::{CellTarget, Work};
use crate::workload::{JobRunner, print_size};

/// Refuses cells that do not fit members of that size, or whose buffers do not fit the memory.
pub(super) fn check(cell: &Cell, member_bytes: u64) -> Result<(), String> {
    let parameters = &cell.parameters;
    let runs = parameters.work.runs_job() || parameters.work == Work::Trace;
    if !runs {
        return Err(format!(
            "work {} is modelled only; use --on model, or work job, rebuild or trace",
            parameters.work.name()
        ));
    }
    if let Some(fs) = parameters.stack.fs {
        // A job would run on the bare array, whatever the file system lays out.
        return Err(format!("fs={}: a file system is modelled only; use --on model, or fs none", fs.name()));
    }
    check_shards(cell)?;
    checked_sectors(cell, member_bytes / SECTOR_BYTES)?;
    let trace = parameters.trace.as_ref().filter(|_| parameters.work == Work::Trace);
    let buffers = trace.map_or_else(|| parameters.job.buffer_bytes(), |trace| trace.buffer_bytes());
    let needed = buffers.saturating_add(parameters.cache().map_or(0, |cache| cache.memory_bytes));
    match memory_available() {
        Some(free) if needed > free / 2 => Err(format!(
            "the page cache and the requests in flight need {}, and at most half of the {} of free memory is used",
            print_size(needed),
            print_room(free)
        )),
        _ => Ok(()),
    }
}

/// Runs a cell on an array of those members.
pub(super) fn run(
    cell: &Cell,
    members: Vec<MemberSpec>,
    member_bytes: u64,
    cancel: &Arc<AtomicBool>,
) -> Result<Measurement, CellError> {
    let member_sectors = member_bytes / SECTOR_BYTES;
    let sectors = checked_sectors(cell, member_sectors).map_err(CellError)?;
    let volume = volume(cell, member_sectors).map_err(CellError)?;
    let shards = shards(cell);
    let config = ArrayConfig { shards, stop: Arc::clone(cancel), ..ArrayConfig::new(volume, members) };
    let mut array = Array::open(config).map_err(|e| CellError(e.to_string()))?;
    array.raise(&layers(cell, sectors)?).map_err(|e| CellError(e.to_string()))?;
    let (report, measured, replayed) = if cell.parameters.work == Work::Trace {
        let (report, replays) = drive(&mut array, vec![replay(cell, cancel)?])?;
        let replay = replays.first().ok_or_else(|| CellError("the loop lost its workload".to_owned()))?;
        (report, replay.measured(), replay.figures())
    } else {
        let runner =
            JobRunner::new(&cell.parameters.kernel_job(), sectors).map_err(|e| CellError(e.to_string()))?;
        let runners = runner.with_cancel(Arc::clone(cancel)).dealt(shards as usize);
        let (report, runners) = drive(&mut array, runners)?;
        (report, JobRunner::joined(&runners), Vec::new())
    };
    let bytes = |sectors: u64| sectors * SECTOR_BYTES;
    let failed = of_members(&report);
    let members =
        report.members.iter().map(|m| [m.reads, bytes(m.read_sectors), m.writes, bytes(m.write_sectors)]);
    let measurement = match cell.parameters.work {
        Work::Trace => Measurement::of(measured, members),
        _ => Measurement::of_job(&cell.parameters.job, measured, members),
    };
    let mut measurement = measurement.map_err(|error| CellError(format!("{error}{failed}")))?;
    measurement.notes = report.notes.iter().map(ToString::to_string).collect();
    measurement.notes.extend(beyond(cell, sectors));
    measurement.figures.extend(replayed);
    if let Some(share) = array.cache_status().and_then(|cache| cache.stats.hit_share()) {
        measurement.figures.insert("cache_hit_share".to_owned(), share);
    }
    if cell.parameters.work == Work::Rebuild {
        let recovered =
            array.recovered_sectors(Slot(0)).ok_or_else(|| recovered_early(&cell.parameters.job))?;
        let total = array.geometry().used_sectors(Slot(0));
        let seconds = report.elapsed.as_secs_f64();
        measurement.figures.extend(recovery_figures(recovered, total, seconds));
    }
    Ok(measurement)
}

/// What the first member that failed an I/O says, since the array's own error may be that it has lost too many.
fn of_members(report: &RunReport) -> String {
    let mut firsts = report.members.iter().enumerate().filter_map(|(slot, m)| Some((slot, m.first_error?)));
    firsts.next().map_or_else(String::new, |(slot, error)| format!("; member {slot}: {}", named(error)))
}

/// The layers of a cell, of so many sectors. Any key will do: what it protects is random bytes.
fn layers(cell: &Cell, sectors: u64) -> Result<Layers, CellError> {
    let crypt = cell.parameters.crypt().map(|crypt| {
        let key: [u8; 64] = std::array::from_fn(|i| i as u8);
        let (encryption, key) = match crypt.cipher {
            Cipher::AesXts => (Encryption::AesXtsPlain64, &key[..]),
            Cipher::AesCbc => (Encryption::AesCbcEssivSha256, &key[..32]),
        };
        let cipher = SectorCipher::new(encryption, key, SECTOR_BYTES as u32, 0);
        let cipher = Arc::new(cipher.map_err(|e| CellError(e.to_string()))?);
        Ok(CryptLayer { cipher, start_sector: crypt.payload_sectors, sectors })
    });
    Ok(Layers { crypt: crypt.transpose()?, cache: cell.parameters.cache() })
}

/// Runs workloads on an array, one on each of as many of its threads.
fn drive<W: Workload + Send>(array: &mut Array, workloads: Vec<W>) -> Result<(RunReport, Vec<W>), CellError> {
    array.run(workloads).map_err(|e| CellError(e.to_string()))
}

/// Threads that serve the cell's target.
fn shards(cell: &Cell) -> u32 {
    match cell.parameters.target {
        CellTarget::Array => cell.parameters.array.shards,
        CellTarget::Drive => 1,
    }
}

/// Refuses several shards where only one can be, and threads of the kernel's.
fn check_shards(cell: &Cell) -> Result<(), String> {
    let workers = cell.parameters.group_thread_cnt();
    if workers > 0 {
        return Err(format!(
            "group_thread_cnt {workers}: those are threads of Linux's md, which is only modelled; here, use shards"
        ));
    }
    let shards = shards(cell);
    let of_one = match (cell.parameters.cache(), cell.parameters.work) {
        (Some(_), _) => "a page cache is of one thread; set shards to 1, or direct to 1",
        (None, _) if has_bitmap(cell) => "a bitmap is kept by one thread; set shards to 1, or bitmap to none",
        (None, Work::Rebuild) => "a recovery is of one thread; set shards to 1",
        _ => return Ok(()),
    };
    if shards > 1 { Err(format!("{shards} shards: {of_one}")) } else { Ok(()) }
}

/// Bytes of memory that can be had without swapping, where the kernel tells.
pub(super) fn memory_available() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Prints bytes in whole MiB, GiB or TiB, of five digits or so.
pub(super) fn print_room(bytes: u64) -> String {
    match bytes >> 20 {
        mib @ ..=99_999 => format!("{mib} MiB"),
        mib @ ..=99_999_999 => format!("{} GiB", mib >> 10),
        mib => format!("{} TiB", mib >> 20),
    }
}

#[cfg(test)]
mod tests {
    use stripewise_engine::io::IoError;
    use stripewise_host::MemberCounts;

    use super::*;
    use crate::results::DirectionResult;
    use crate::workload::Measured;

    #[test]
    fn io_that_failed_is_named_with_what_failed_first() {
        let write = DirectionResult { errors: 1000, ..DirectionResult::default() };
        let measured = Measured { write, first_error: Some(IoError::Lost), ..Measured::default() };
        let error = Measurement::of(measured, []).unwrap_err().to_string();
        let lost = "more members are lost than the level survives (EIO)";
        assert_eq!(error, format!("0 reads and 1000 writes failed, the first with: {lost}"));
        let full = MemberCounts { errors: 2, first_error: Some(IoError::NoSpace), ..MemberCounts::default() };
        let report = RunReport { members: vec![MemberCounts::default(), full, full], ..RunReport::default() };
        assert_eq!(of_members(&report), "; member 1: no space left on the member's storage (ENOSPC)");
        let cut = MemberCounts { errors: 1, first_error: Some(IoError::Gone), ..MemberCounts::default() };
        let report = RunReport { members: vec![cut], ..RunReport::default() };
        assert_eq!(of_members(&report), "; member 0: the member does not answer, or was cut short (ENODEV)");
        assert_eq!(of_members(&RunReport::default()), "");
    }
}
