//! An existing array on this machine: its members found among files and devices, and opened.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use stripewise_engine::assembly::{self, Assembly, AssemblyError, Candidate, Options, Wanted, assemble};
use stripewise_engine::journal::JournalReport;
use stripewise_engine::ppl::PplReport;
use stripewise_format::superblock::SuperblockError;

use super::overlay::{self, Overlay};
use super::paths::{Identity, refuse_twice};
use super::probe::{self, Probe, Source};
use super::signature;
use crate::error::{HostError, MemberProblem};
use crate::members::{Access, Caching, FileSpec, MemberSpec, OverlaySpec};

/// What to assemble.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Files and devices that must be members.
    pub members: Vec<PathBuf>,
    /// A folder whose files and devices may be.
    pub scan: Option<PathBuf>,
    /// Which array, where there are several.
    pub wanted: Wanted,
    /// How.
    pub options: Options,
    /// Takes the writes, and holds those of before.
    pub overlay: Option<Overlay>,
}

/// Why an array is not assembled.
#[derive(Debug)]
pub enum AssembleError {
    /// A file or device cannot be used.
    Host(HostError),
    /// A file or device that must be a member has no superblock.
    NoSuperblock(PathBuf),
    /// A named device has no md superblock, and holds something else.
    Holds(PathBuf, Vec<&'static str>),
    /// A file or device that must be a member has a superblock that is refused.
    Superblock(PathBuf, SuperblockError),
    /// The folder cannot be read.
    Scan(PathBuf, std::io::Error),
    /// The members do not make an array that may start.
    Assembly(AssemblyError),
    /// They do not, and of the folder not everything could be looked at.
    Skipped(Box<AssemblyError>, Vec<Skipped>),
    /// A member's bad-block log cannot be read.
    BadBlocks(PathBuf, probe::PointedError),
    /// Between finding the members and opening them, somebody wrote to one.
    Changed(PathBuf),
    /// There is no log where a write journal's superblock says that it begins.
    JournalDamaged(PathBuf),
    /// A write journal has no room for the parity that is needed while a member is missing.
    JournalFull(PathBuf),
    /// The array is to be written to, and what this write journal holds has not been brought to the members.
    Journaled(PathBuf),
    /// The array of this member is to be written to, and its partial parity logs have not been followed.
    LogsNotFollowed(PathBuf),
}

impl From<HostError> for AssembleError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

impl From<AssemblyError> for AssembleError {
    fn from(error: AssemblyError) -> Self {
        Self::Assembly(error)
    }
}

impl std::error::Error for AssembleError {}

impl fmt::Display for AssembleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::NoSuperblock(path) => write!(
                f,
                "{}: no md superblock is found; leave it out (with --run if the array may start without it), or, if the device was \
                 made larger and its superblock of 0.90 or 1.0 lies at its former end, restore its former size",
                path.display()
            ),
            Self::Holds(path, what) => write!(
                f,
                "{}: no md superblock is found, it holds {}; leave it out (with --run if the array may start without it)",
                path.display(),
                what.join(", ")
            ),
            Self::Superblock(path, error) => write!(
                f,
                "{}: {error}; leave it out (with --run if the array may start without it)",
                path.display()
            ),
            Self::Scan(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Assembly(error) => error.fmt(f),
            Self::Skipped(error, _) => error.fmt(f),
            Self::BadBlocks(path, error) => {
                write!(f, "{}: {error}; --readonly reads the array without the log", path.display())
            }
            Self::JournalDamaged(path) => write!(
                f,
                "{}: the write journal's first meta block is damaged, and with it what the members may lack; --readonly reads the \
                 members as they are, `stripewise assemble --force` gives the journal up and has parity resynced",
                path.display()
            ),
            Self::JournalFull(path) => write!(
                f,
                "{}: the write journal has no room for the parity of its data, which is needed without all members; name the missing \
                 member, too",
                path.display()
            ),
            Self::Journaled(path) => write!(
                f,
                "{}: the array's write journal has not been followed, and what it holds would be lost; `stripewise assemble` follows it",
                path.display()
            ),
            Self::LogsNotFollowed(path) => write!(
                f,
                "{}: the array's partial parity logs have not been followed, so that parity, and data of a missing member, may be wrong \
                 where writes were under way; `stripewise assemble` follows them",
                path.display()
            ),
            Self::Changed(path) => {
                write!(
                    f,
                    "{}: another program has just written its superblock; stop that program first",
                    path.display()
                )
            }
        }
    }
}

/// A file or device that was looked at and is not used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its path.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// The members of one array, chosen and not yet opened.
#[derive(Clone, Debug)]
pub struct Found {
    /// The paths of the candidates, in the same order.
    pub paths: Vec<PathBuf>,
    /// The array's members, spares and stale members.
    pub candidates: Vec<Candidate>,
    /// What was looked at in vain.
    pub skipped: Vec<Skipped>,
    /// The candidates that were named, not met in the folder.
    pub(super) named: Vec<bool>,
    pub(super) overlay: Option<Overlay>,
}

/// An array that may start, not yet opened.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// Its members.
    pub found: Found,
    /// What they make.
    pub assembly: Assembly,
    /// What the partial parity logs were good for, once they are followed.
    pub logs: Option<PplReport>,
    /// What the write journal was good for, once it is followed.
    pub replayed: Option<JournalReport>,
    /// Whether the members were told that there is no write journal any more.
    pub has_given_up_journal: bool,
    /// Whether `force` was asked for.
    pub(super) by_force: bool,
}

/// Finds one array's members. Everything is opened for reading only.
///
/// # Errors
/// A member named cannot be one, or the array is not there.
pub fn find(selection: &Selection) -> Result<Found, AssembleError> {
    let overlay = selection.overlay.as_ref();
    let mut paths = Vec::new();
    let mut candidates = Vec::new();
    let mut skipped = Vec::new();
    refuse_twice(&selection.members)?;
    for path in &selection.members {
        candidates.push(named(path, overlay)?);
        paths.push(path.clone());
    }
    if let Some(folder) = &selection.scan {
        for path in entries(folder)? {
            match scanned(&path, overlay) {
                Ok(Some(candidate)) => {
                    candidates.push(candidate);
                    paths.push(path);
                }
                Ok(None) => {}
                // The overlay was named, and is no good for what it knows.
                Err(error @ AssembleError::Host(HostError::Overlay { .. })) => return Err(error),
                Err(error) => skipped.push(Skipped { path, why: why(error) }),
            }
        }
    }
    let chosen =
        assembly::wanted(&candidates, &selection.wanted).map_err(|error| without(error, &skipped))?;
    Ok(Found {
        named: chosen.iter().map(|index| *index < selection.members.len()).collect(),
        paths: chosen.iter().map(|index| paths[*index].clone()).collect(),
        candidates: chosen.iter().map(|index| candidates[*index].clone()).collect(),
        skipped,
        overlay: overlay.cloned(),
    })
}

fn without(error: AssemblyError, skipped: &[Skipped]) -> AssembleError {
    if skipped.is_empty() {
        AssembleError::Assembly(error)
    } else {
        AssembleError::Skipped(Box::new(error), skipped.to_vec())
    }
}

/// The error without the path, which stands before it.
fn why(error: AssembleError) -> String {
    match error {
        AssembleError::Superblock(_, error) => error.to_string(),
        AssembleError::Host(HostError::Member { problem, .. }) => problem.to_string(),
        other => other.to_string(),
    }
}

/// The files and block devices of a folder, by name; each once, whatever its names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, AssembleError> {
    let problem = |error| AssembleError::Scan(folder.to_owned(), error);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(problem)? {
        paths.push(entry.map_err(problem)?.path());
    }
    paths.sort();
    let mut seen = std::collections::BTreeSet::new();
    paths.retain(|path| Identity::at(path).is_some_and(|identity| seen.insert(identity)));
    Ok(paths)
}

/// A member that is named: anything wrong with it is an error.
fn named(path: &Path, overlay: Option<&Overlay>) -> Result<Candidate, AssembleError> {
    let (probe, source) = look(path, overlay)?;
    match probe.found.first() {
        None => match signature::find(&*source, probe.device_sectors).unwrap_or_default() {
            what if what.is_empty() => Err(AssembleError::NoSuperblock(path.to_owned())),
            what => Err(AssembleError::Holds(path.to_owned(), what)),
        },
        Some(found) => match &found.superblock {
            Ok(_) => candidate(&probe, &*source).ok_or_else(|| AssembleError::NoSuperblock(path.to_owned())),
            Err(error) => Err(AssembleError::Superblock(path.to_owned(), error.clone())),
        },
    }
}

/// A file or device of the folder: nothing if it is no member of anything.
fn scanned(path: &Path, overlay: Option<&Overlay>) -> Result<Option<Candidate>, AssembleError> {
    let (file, _) = match probe::open(path) {
        Err(HostError::Member { problem: MemberProblem::WrongKind, .. }) => return Ok(None),
        other => other?,
    };
    if overlay::is_overlay(&file) {
        return Ok(None);
    }
    let (probe, source) = look(path, overlay)?;
    match probe.found.first().map(|found| &found.superblock) {
        None => Ok(None),
        Some(Ok(_)) => Ok(candidate(&probe, &*source)),
        Some(Err(error)) => Err(AssembleError::Superblock(path.to_owned(), error.clone())),
    }
}

pub(super) fn look(path: &Path, overlay: Option<&Overlay>) -> Result<(Probe, Box<dyn Source>), HostError> {
    let (file, device_sectors): (File, u64) = probe::open(path)?;
    let source: Box<dyn Source> = match overlay {
        Some(overlay) => Box::new(overlay.look(path)?),
        None => Box::new(file),
    };
    let probe = probe::probe_source(path, device_sectors, &*source)?;
    Ok((probe, source))
}

fn candidate(probe: &Probe, source: &dyn Source) -> Option<Candidate> {
    let found = probe.found.first()?;
    let superblock = found.superblock.clone().ok()?;
    let bitmap = probe::read_bitmap(source, probe.device_sectors, &superblock, found.at_sector);
    let bitmap = match bitmap {
        Ok(bitmap) => bitmap.map(|(head, _)| Ok(head)),
        Err(error) => Some(Err(error.to_string())),
    };
    Some(Candidate {
        label: probe.path.display().to_string(),
        device_sectors: probe.device_sectors,
        at_sector: found.at_sector,
        superblock,
        bitmap,
    })
}

impl Found {
    /// Decides what the members make.
    ///
    /// # Errors
    /// They contradict each other, or are too few.
    pub fn assemble(self, options: Options) -> Result<Assembled, AssembleError> {
        let assembly = assemble(&self.candidates, options).map_err(|error| without(error, &self.skipped))?;
        Ok(Assembled {
            found: self,
            assembly,
            logs: None,
            replayed: None,
            has_given_up_journal: false,
            by_force: options.force,
        })
    }

    /// Takes one in that was not found there.
    pub(super) fn push(&mut self, path: PathBuf, candidate: Candidate) {
        self.paths.push(path);
        self.candidates.push(candidate);
        self.named.push(true);
    }

    /// Takes one out; those behind it move up.
    pub(super) fn remove(&mut self, index: usize) -> (PathBuf, Candidate) {
        self.named.remove(index);
        (self.paths.remove(index), self.candidates.remove(index))
    }

    pub(super) fn spec(&self, index: usize, access: Access) -> Result<MemberSpec, HostError> {
        let path = &self.paths[index];
        let data_offset_sectors = self.candidates[index].superblock.data_offset_sectors();
        Ok(match &self.overlay {
            Some(overlay) => {
                MemberSpec::Overlay(OverlaySpec { member: overlay.member(path)?, data_offset_sectors })
            }
            None => MemberSpec::File(FileSpec {
                path: path.clone(),
                data_offset_sectors,
                access,
                caching: Caching::Direct,
            }),
        })
    }

    pub(super) fn has_changed(&self, index: usize) -> Result<bool, AssembleError> {
        let (probe, source) = look(&self.paths[index], self.overlay.as_ref())?;
        Ok(candidate(&probe, &*source).is_none_or(|now| now != self.candidates[index]))
    }
}
