//! `files:DIR`: the real loop on member files in a folder.
//!
//! # Contract
//! *Ownership.* It makes files of its own, under names that are free, and removes them when it is
//! dropped, unless they are to be kept. It never opens a file it has not made.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use rustix::fs::StatVfsMountFlags;
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_host::{FileSpec, HostError, MemberProblem, MemberSpec, create_member_file};

use super::made::Made;
use super::mount;
use super::real::{self, memory_available, print_room};
use super::volume::data_offset_sectors;
use super::{CellError, Measurement, NoRoom, Target, TargetKind, TargetOptions};
use crate::cell::Cell;
use crate::plan::{Fill, MEMBER_BYTES_DEFAULT};
use crate::workload::{Random, print_size};

pub(super) const KIND: TargetKind = TargetKind {
    name: "files",
    usage: "files:DIR (member files made in DIR, in real time)",
    is_real: true,
    open: |rest, options| Ok(Box::new(FilesTarget::new(rest, *options)?)),
};

struct FilesTarget {
    folder: PathBuf,
    /// The folder's file system: another one mounted there has other figures.
    system: String,
    member_bytes: u64,
    fill: Fill,
    members_max: u16,
    keep: bool,
    /// What the files' names begin with, once there are any.
    name: OnceLock<String>,
    /// The files made so far, unless they are to be kept.
    made: Made,
    /// What is said of files that another run left.
    left: Option<String>,
}

impl FilesTarget {
    fn new(rest: &str, options: TargetOptions) -> Result<Self> {
        if rest.is_empty() {
            bail!("'files' names no folder; write files:DIR");
        }
        let folder = fs::canonicalize(rest).with_context(|| format!("cannot use the folder {rest}"))?;
        if !folder.is_dir() {
            bail!("{rest}: not a folder; member files are created in a folder");
        }
        let TargetOptions { storage, member_bytes, fill, members_max, keep } = options;
        let member_bytes = member_bytes.or(storage.member_bytes).unwrap_or(MEMBER_BYTES_DEFAULT);
        if member_bytes == 0 || !member_bytes.is_multiple_of(SECTOR_BYTES) {
            bail!("member_size of {member_bytes} bytes: a member is a multiple of {SECTOR_BYTES} bytes");
        }
        let fill = fill.unwrap_or(storage.fill);
        let (system, name, made) = (mount::identity(&folder), OnceLock::new(), Made::default());
        let left = left_behind(&folder);
        Ok(Self { folder, system, member_bytes, fill, members_max, keep, name, made, left })
    }

    fn path(&self, member: u16) -> PathBuf {
        let name = self.name.get_or_init(|| name(0));
        self.folder.join(format!("{name}-member{member}.img"))
    }

    /// Makes the first member under the first name that is free: files of a run that was killed, or of one in another
    /// container, may bear this process's number.
    fn take_name(&self) -> Result<()> {
        let mut number = 0;
        while let Err(error) = self.create(&self.folder.join(format!("{}-member0.img", name(number)))) {
            let is_taken = matches!(&error, HostError::Member { problem: MemberProblem::Exists, .. })
                && number < NAMES_MAX;
            if !is_taken {
                return Err(error.into());
            }
            number += 1;
        }
        let _first = self.name.set(name(number));
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<(), HostError> {
        let sectors = self.member_bytes / SECTOR_BYTES;
        let create = |path: &Path| create_member_file(path, sectors, stripewise_host::Fill::Sparse);
        if self.keep { create(path) } else { self.made.make(path, create) }
    }

    /// Notes without the names of files that are of one run only, each once.
    fn notes(&self, cell: &Cell, of_members: Vec<String>) -> Vec<String> {
        let anywhere = format!("members in {}", self.folder.display());
        let mut notes: BTreeSet<String> = of_members.into_iter().collect();
        for member in 0..cell.parameters.members() {
            let path = self.path(member).display().to_string();
            notes = notes.into_iter().map(|note| note.replace(&path, &anywhere)).collect();
        }
        notes.extend((self.fill == Fill::Sparse).then(|| HOLES.to_owned()));
        notes.extend(self.left.clone());
        notes.into_iter().collect()
    }

    fn make(&self, member: u16, cancel: &AtomicBool, filled: &mut dyn FnMut(u64)) -> Result<()> {
        if member == 0 {
            self.take_name()?;
        } else {
            self.create(&self.path(member))?;
        }
        if self.fill == Fill::Random {
            let path = self.path(member);
            let before = self.member_bytes * u64::from(member);
            fill(&path, self.member_bytes, member.into(), cancel, &mut |bytes| filled(before + bytes))
                .with_context(|| format!("cannot fill {}", path.display()))?;
        }
        Ok(())
    }
}

/// More names than this are not tried.
const NAMES_MAX: u32 = 1000;

/// What the files of a run begin with, if so many names are taken.
fn name(number: u32) -> String {
    let process = std::process::id();
    if number == 0 { format!("stripewise-{process}") } else { format!("stripewise-{process}-{number}") }
}

/// Names the member files of other runs in a folder: of one that was killed, that kept them, or that is under way.
fn left_behind(folder: &Path) -> Option<String> {
    let is_member = |name: &str| {
        let number = name.strip_prefix("stripewise-").and_then(|rest| rest.strip_suffix(".img"));
        number.and_then(|rest| rest.split_once("-member")).is_some_and(|(process, member)| {
            process.bytes().all(|b| b.is_ascii_digit() || b == b'-') && member.parse::<u16>().is_ok()
        })
    };
    let names = fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_member(name)).collect();
    names.sort();
    let (count, first) = (names.len(), names.first()?);
    let folder = folder.display();
    let files = if count == 1 { "file" } else { "files" };
    Some(format!(
        "{folder} has {count} member {files} that this run did not make, such as {first}: of a run that was killed or kept them, \
         or of one under way; remove them unless they are in use"
    ))
}

/// What a reader must know of figures of sparse files.
const HOLES: &str = "member files are sparse, as asked for: a read of what has not been written is of a hole and touches no drive";

/// Writes random bytes over the whole file and waits until they are on the medium, unless it is cancelled.
fn fill(
    path: &Path,
    bytes: u64,
    seed: u64,
    cancel: &AtomicBool,
    filled: &mut dyn FnMut(u64),
) -> std::io::Result<()> {
    const WORDS_PER_LOOK: u64 = 1 << 17;
    let file = File::options().write(true).open(path)?;
    let mut writer = BufWriter::with_capacity(1 << 20, &file);
    let mut random = Random::new(seed, 0);
    for word in 0..bytes / 8 {
        if word.is_multiple_of(WORDS_PER_LOOK) {
            if cancel.load(Ordering::Relaxed) {
                return Ok(());
            }
            filled(word * 8);
        }
        writer.write_all(&random.next_u64().to_le_bytes())?;
    }
    writer.flush()?;
    drop(writer);
    file.sync_data()?;
    filled(bytes);
    Ok(())
}

impl Target for FilesTarget {
    fn name(&self) -> String {
        format!("files:{}", self.folder.display())
    }

    fn describe(&self, _: &[Cell]) -> String {
        let fill = match self.fill {
            Fill::Sparse => "sparse",
            Fill::Random => "filled with random bytes",
        };
        format!(
            "real time: up to {} member files of {} in {}, {fill}",
            self.members_max,
            print_size(self.member_bytes),
            self.folder.display()
        )
    }

    fn identity(&self, _: &Cell) -> String {
        let (cpu, kernel) = (crate::environment::host_cpu(), crate::environment::host_kernel());
        let (folder, system) = (self.folder.display(), &self.system);
        format!(
            "files in {folder}, {system}, {} bytes, {:?}, on {cpu}, {kernel}",
            self.member_bytes, self.fill
        )
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn check(&self, cell: &Cell) -> Result<(), String> {
        real::check(cell, self.member_bytes)
    }

    /// Sparse files, too, fill up as they are written, so all of their size must be free.
    fn check_place(&self) -> Result<()> {
        let needed = self.member_bytes.saturating_mul(self.members_max.into());
        let system = rustix::fs::statvfs(&self.folder)
            .with_context(|| format!("cannot tell the room in {}", self.folder.display()))?;
        if system.f_flag.contains(StatVfsMountFlags::RDONLY) {
            let folder = self.folder.display();
            bail!(NoRoom(format!(
                "{folder} is on a read-only file system; choose a folder you may write to"
            )));
        }
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        // A file system in memory says how much it may have, not how much there is.
        let memory = memory_available().filter(|_| mount::is_in_memory(&self.system));
        let free = memory.map_or(free, |memory| free.min(memory / 4 * 3));
        if needed > free {
            bail!(NoRoom(format!(
                "{} has no room: {} members of {} need {}, and {} are free; use a smaller member size",
                self.folder.display(),
                self.members_max,
                print_size(self.member_bytes),
                print_room(needed),
                print_room(free)
            )));
        }
        Ok(())
    }

    fn fill_bytes(&self) -> u64 {
        match self.fill {
            Fill::Sparse => 0,
            Fill::Random => self.member_bytes.saturating_mul(self.members_max.into()),
        }
    }

    fn begin(&self, cancel: &AtomicBool, filled: &mut dyn FnMut(u64)) -> Result<()> {
        self.check_place()?;
        let mut members = (0..self.members_max).take_while(|_| !cancel.load(Ordering::Relaxed));
        members.try_for_each(|member| self.make(member, cancel, filled))
    }

    fn run(&self, cell: &Cell, cancel: &Arc<AtomicBool>) -> Result<Measurement, CellError> {
        let members = 0..cell.parameters.members();
        let data_offset_sectors =
            data_offset_sectors(cell, self.member_bytes / SECTOR_BYTES).map_err(CellError)?;
        let spec = |member| FileSpec { data_offset_sectors, ..FileSpec::new(self.path(member)) };
        let members = members.map(|member| MemberSpec::File(spec(member))).collect();
        let mut measurement = real::run(cell, members, self.member_bytes, cancel)?;
        measurement.notes = self.notes(cell, measurement.notes);
        Ok(measurement)
    }
}

#[cfg(test)]
#[path = "real_tests.rs"]
mod tests;
