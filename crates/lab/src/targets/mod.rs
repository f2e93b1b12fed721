//! Targets: what a cell is measured on. A target kind is one file and one line in [`TARGETS`].

#[cfg(test)]
pub(crate) mod fake;
mod files;
mod made;
mod memory;
mod model;
mod mount;
mod real;
#[cfg(test)]
mod trace_tests;
mod volume;

pub use made::remove_made_files;
pub use model::{Change, changed, model};

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use stripewise_engine::io::IoError;

use crate::cell::Cell;
use crate::plan::{Fill, RealStorage};
use crate::results::{DirectionResult, MemberIos, Provenance};
use crate::workload::{Job, Measured, print_time};

/// What a cell is measured on.
pub trait Target: Sync {
    /// As given to `--on`.
    fn name(&self) -> String;
    /// One line for people: what those cells are measured on.
    fn describe(&self, cells: &[Cell]) -> String;
    /// What decides a cell's figures besides its parameters, with the content of models; part of the key.
    fn identity(&self, cell: &Cell) -> String;
    /// Whether time is virtual: cells then run at the same time, on all cores.
    fn is_simulated(&self) -> bool;
    /// Where the parameters of the models that those cells use come from; empty for real storage.
    fn provenance(&self, _cells: &[Cell]) -> Vec<Provenance> {
        Vec::new()
    }
    /// Refuses, before anything runs, cells this target can never run.
    fn check(&self, cell: &Cell) -> std::result::Result<(), String>;
    /// Refuses, before anything runs, a place that members cannot be made in.
    fn check_place(&self) -> Result<()> {
        Ok(())
    }
    /// Bytes that [`begin`](Self::begin) writes before any cell can run.
    fn fill_bytes(&self) -> u64 {
        0
    }
    /// Makes ready to run cells, such as member files; `filled` is told how many of the [`fill_bytes`](Self::fill_bytes) are
    /// written. Called once, if any cell is to be run. A set `cancel` ends it early; no cell is run then.
    fn begin(&self, _cancel: &AtomicBool, _filled: &mut dyn FnMut(u64)) -> Result<()> {
        Ok(())
    }
    /// Runs a cell. A set `cancel` ends it early; what it measured is then thrown away.
    fn run(&self, cell: &Cell, cancel: &Arc<AtomicBool>) -> std::result::Result<Measurement, CellError>;
}

/// The figure of bytes that were still dirty in the page cache when all came to rest.
pub const LEFT_DIRTY: &str = "left_dirty_bytes";

/// A cell's figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurement {
    /// Length of the measure in seconds.
    pub seconds: f64,
    /// Reads.
    pub read: DirectionResult,
    /// Writes.
    pub write: DirectionResult,
    /// What the array asked of its members, where the target counts it.
    pub member_ios: Option<MemberIos>,
    /// What else was found, by name and unit.
    pub figures: BTreeMap<String, f64>,
    /// What a reader must know of how they came about, such as a fallback from `O_DIRECT`.
    pub notes: Vec<String>,
}

impl Measurement {
    /// The figures of a finished job; one that ended before the measure began has none.
    pub fn of_job(
        job: &Job,
        measured: Measured,
        members: impl IntoIterator<Item = [u64; 4]>,
    ) -> std::result::Result<Self, CellError> {
        let measurement = Self::of(measured, members)?;
        if measurement.seconds > 0.0 {
            return Ok(measurement);
        }
        Err(CellError(format!(
            "the job ended within its ramp_time of {}, so that nothing was measured; use a shorter ramp_time or a \
             larger size",
            print_time(job.ramp_time)
        )))
    }

    /// The figures of a finished workload, with reads, read bytes, writes and written bytes of each member.
    /// I/O that failed leaves no figure.
    pub fn of(
        measured: Measured,
        members: impl IntoIterator<Item = [u64; 4]>,
    ) -> std::result::Result<Self, CellError> {
        let figures = measured.flush_figures().collect();
        let Measured { seconds, read, write, requests, request_bytes, first_error, .. } = measured;
        if read.errors + write.errors > 0 {
            let first = first_error.map_or_else(String::new, |e| format!(", the first with: {}", named(e)));
            let (reads, writes) = (read.errors, write.errors);
            return Err(CellError(format!("{reads} reads and {writes} writes failed{first}")));
        }
        let none = MemberIos { requests, request_bytes, ..MemberIos::default() };
        let member_ios =
            members.into_iter().fold(none, |sum, [reads, read_bytes, writes, write_bytes]| MemberIos {
                reads: sum.reads + reads,
                read_bytes: sum.read_bytes + read_bytes,
                writes: sum.writes + writes,
                write_bytes: sum.write_bytes + write_bytes,
                ..sum
            });
        Ok(Self { seconds, read, write, member_ios: Some(member_ios), figures, notes: Vec::new() })
    }
}

/// An error with the name that the system has for it.
fn named(error: IoError) -> String {
    let name = match error {
        IoError::Media | IoError::Lost => "EIO",
        IoError::Gone => "ENODEV",
        IoError::NoSpace => "ENOSPC",
        IoError::Range => "EINVAL",
        IoError::ReadOnly => "EROFS",
    };
    let cut = if error == IoError::Gone { ", or was cut short" } else { "" };
    format!("{error}{cut} ({name})")
}

/// Why a cell has no figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellError(pub String);

impl fmt::Display for CellError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CellError {}

/// The members asked for do not fit where they are to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRoom(pub String);

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoRoom {}

/// What a target is opened for.
#[derive(Clone, Copy, Debug)]
pub struct TargetOptions {
    /// Size and content of real members.
    pub storage: RealStorage,
    /// The size, where the user named one: it goes before the plan's.
    pub member_bytes: Option<u64>,
    /// What member files hold, where the user says: it goes before the plan's.
    pub fill: Option<Fill>,
    /// The most members any cell uses.
    pub members_max: u16,
    /// Leave member files where they are.
    pub keep: bool,
}

/// A kind of target.
pub struct TargetKind {
    /// The word before the colon in `--on`.
    pub name: &'static str,
    /// How it is written, with a line of explanation.
    pub usage: &'static str,
    /// Whether time is real, so that a plan's `[real]` overrides apply.
    pub is_real: bool,
    /// Opens it; the text is what follows the colon.
    pub open: fn(&str, &TargetOptions) -> Result<Box<dyn Target>>,
}

/// Every kind of target.
pub static TARGETS: &[TargetKind] = &[model::KIND, files::KIND, memory::KIND];

/// The kind a text given to `--on` names, with what follows the colon.
pub fn parse(text: &str) -> Result<(&'static TargetKind, &str)> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let Some(kind) = TARGETS.iter().find(|kind| kind.name == name) else {
        let known: Vec<&str> = TARGETS.iter().map(|kind| kind.usage).collect();
        bail!("'{text}' is not a target; use one of {}", known.join("; "))
    };
    Ok((kind, rest))
}
