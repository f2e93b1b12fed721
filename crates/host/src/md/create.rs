//! Opens the files and devices that become an array, and writes it onto them: onto all or onto none.
//!
//! # Contract
//! *Ownership.* A candidate is locked (`flock`; a block device also with `O_EXCL`) from [`Candidate::open`] on. One that
//! lies under an overlay is only read, whoever else reads it, and shown as it is without the overlay: an array that is
//! created there begins from the members, and what the overlay held before is dropped.
//! *Ordering.* [`write()`] saves what it will overwrite, then writes logs and flushes every member, then superblocks and
//! flushes again: a member is never labelled before its bitmap and logs are there. *Failure.* What was overwritten, and
//! only that, is put back on every member, and the error says whether that worked.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use stripewise_format::create::Area;
use stripewise_format::superblock::{self, SuperblockError};

use super::overlay::{Overlay, OverlayMember};
use super::paths::{is_same, is_storage, refuse_twice};
use super::probe::{self, Probe, probe_source};
use super::signature;
use crate::error::{HostError, MemberProblem};
use crate::members::{lock, loop_device, size_of};

const SECTOR_BYTES: u64 = 512;
/// What is cleared of a superblock that is in the way.
const OLD_BLOCK_BYTES: u64 = 4096;

/// What takes a candidate's bytes.
#[derive(Debug)]
enum Storage {
    File(File),
    /// Nothing, before [`begin_overlay`].
    None(File),
    Overlay(OverlayMember),
}

impl Storage {
    fn read(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        match self {
            Self::File(file) | Self::None(file) => file.read_exact_at(bytes, offset_bytes),
            Self::Overlay(member) => member.read_at(offset_bytes, bytes),
        }
    }

    fn write(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.write_all_at(bytes, offset_bytes),
            Self::None(_) => Err(io::Error::from_raw_os_error(libc::EROFS)),
            Self::Overlay(member) => member.write_at(offset_bytes, bytes),
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self {
            Self::File(file) => file.sync_all(),
            Self::None(_) => Ok(()),
            Self::Overlay(member) => member.flush(),
        }
    }
}

/// A file or block device that may become a member.
#[derive(Debug)]
pub struct Candidate {
    storage: Storage,
    /// The superblocks it holds, its path and its length.
    pub probe: Probe,
    /// What else it holds.
    pub signatures: Vec<&'static str>,
    /// Major and minor number of a block device; zeros for a file.
    pub device_number: (u32, u32),
}

impl Candidate {
    /// Opens a member for writing. A block device is taken only if `destroy` names it and nothing holds it.
    pub fn open(path: &Path, destroy: &[PathBuf]) -> Result<Self, HostError> {
        let problem = |e: io::Error| MemberProblem::from_io(&e, 0).at(path);
        let metadata = std::fs::metadata(path).map_err(problem)?;
        let kind = metadata.file_type();
        if !is_storage(&metadata) {
            return Err(MemberProblem::WrongKind.at(path));
        }
        if kind.is_block_device() && !destroy.iter().any(|named| is_same(named, path)) {
            return Err(MemberProblem::NeedsDestroy.at(path));
        }
        if let Some(device) = loop_device(path) {
            return Err(MemberProblem::BehindLoopDevice { device }.at(path));
        }
        let alone = if kind.is_block_device() { libc::O_EXCL } else { 0 };
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC | alone).open(path);
        let file = file.map_err(problem)?;
        claim(&file, path)?;
        Self::look(path, file, Storage::File)
    }

    /// Opens a member that an overlay will stand for: it is only read, with others who do.
    pub fn open_under_overlay(path: &Path) -> Result<Self, HostError> {
        let (file, _) = probe::open(path)?;
        Self::look(path, file, Storage::None)
    }

    /// Looks at what was opened: the path may be another's by now.
    fn look(path: &Path, file: File, storage: impl FnOnce(File) -> Storage) -> Result<Self, HostError> {
        let problem = |e: io::Error| MemberProblem::from_io(&e, 0).at(path);
        let metadata = file.metadata().map_err(problem)?;
        let device_sectors = size_of(&file).map_err(problem)? / SECTOR_BYTES;
        let is_device = metadata.file_type().is_block_device();
        let number = metadata.rdev();
        let device_number = if is_device { (libc::major(number), libc::minor(number)) } else { (0, 0) };
        let probe = probe_source(path, device_sectors, &file)?;
        // A member is known by its superblock, whatever of its other places does not read.
        let signatures = match signature::find(&file, device_sectors) {
            Err(_) if probe.superblock().is_some() => Vec::new(),
            found => found.map_err(problem)?,
        };
        Ok(Self { storage: storage(file), probe, signatures, device_number })
    }

    /// Opens several, none of which may be given twice.
    pub fn open_all(paths: &[PathBuf], destroy: &[PathBuf]) -> Result<Vec<Self>, HostError> {
        refuse_twice(paths)?;
        paths.iter().map(|path| Self::open(path, destroy)).collect()
    }

    /// As [`open_all`](Self::open_all), for members that an overlay will stand for.
    pub fn open_all_under_overlay(paths: &[PathBuf]) -> Result<Vec<Self>, HostError> {
        refuse_twice(paths)?;
        paths.iter().map(|path| Self::open_under_overlay(path)).collect()
    }

    /// Reads from an offset of the device on.
    pub(super) fn read(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.storage.read(bytes, offset_bytes)
    }

    /// Writes from an offset of the device on.
    pub(super) fn write(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.storage.write(bytes, offset_bytes)
    }

    /// Makes what was written last.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.storage.flush()
    }

    /// Refuses a member that holds anything.
    pub fn require_blank(&self) -> Result<(), HostError> {
        let holds = |what: String| Err(MemberProblem::Holds { what }.at(&self.probe.path));
        match self.probe.found.first() {
            Some(found) => match &found.superblock {
                Ok(superblock) => holds(format!(
                    "an md superblock of version {} (array {}, {} with {} raid devices)",
                    found.metadata,
                    superblock.set_uuid(),
                    superblock.level(),
                    superblock.raid_disks()
                )),
                Err(error) => holds(damaged(found.metadata.name(), error)),
            },
            None if self.signatures.is_empty() => Ok(()),
            None => holds(self.signatures.join(", ")),
        }
    }
}

fn damaged(metadata: &str, error: &SuperblockError) -> String {
    format!("an md superblock of version {metadata} that cannot be used ({error})")
}

/// Whether an overlay holds array data: what was written elsewhere than to superblocks, bitmap and logs, or to a member
/// that is no longer there.
pub fn overlay_has_data(overlay: &Overlay) -> Result<bool, HostError> {
    for path in overlay.paths() {
        let Ok(member) = overlay.look(&path) else { return Ok(true) };
        let device_sectors = member.size_bytes() / SECTOR_BYTES;
        let probe = probe_source(&path, device_sectors, &member)?;
        let data = probe.found.first().and_then(|found| {
            let superblock = found.superblock.as_ref().ok()?;
            let start = superblock.data_offset_sectors();
            Some(start..start.saturating_add(superblock.data_size_sectors(found.at_sector)))
        });
        let data = data.unwrap_or(0..device_sectors);
        // Superblocks of another version, which were in the way.
        let places: Vec<u64> = superblock::places(device_sectors).map(|(_, sector)| sector).collect();
        let is_data = |offset_bytes: u64| {
            let sector = offset_bytes / SECTOR_BYTES;
            let block = sector..sector + OLD_BLOCK_BYTES / SECTOR_BYTES;
            data.contains(&sector) && !places.iter().any(|place| block.contains(place))
        };
        let problem = |e: io::Error| MemberProblem::from_io(&e, 0).at(&path);
        if member.any_written(is_data).map_err(problem)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Begins an overlay anew, with these members.
pub fn begin_overlay(overlay: &Overlay, candidates: &mut [Candidate]) -> Result<(), HostError> {
    overlay.reset()?;
    for candidate in candidates {
        candidate.storage = Storage::Overlay(overlay.member(&candidate.probe.path)?);
    }
    Ok(())
}

fn claim(file: &File, path: &Path) -> Result<(), HostError> {
    lock(file, true).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => MemberProblem::Locked.at(path),
        _ => MemberProblem::from_io(&error, 0).at(path),
    })
}

/// Why an array could not be written.
#[derive(Debug)]
pub struct WriteError {
    /// The member.
    pub path: PathBuf,
    /// What happened.
    pub error: io::Error,
    /// Members that could not be put back as they were, with the reason.
    pub not_restored: Vec<(PathBuf, io::Error)>,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)?;
        if self.not_restored.is_empty() {
            return f.write_str("; every member is as it was");
        }
        f.write_str("; these members could not be put back as they were:")?;
        self.not_restored.iter().try_for_each(|(path, error)| write!(f, " {} ({error})", path.display()))
    }
}

impl std::error::Error for WriteError {}

/// What is written to a candidate.
#[derive(Debug)]
pub struct MemberWrite<'a> {
    /// The candidate.
    pub candidate: &'a Candidate,
    /// Whether superblocks that are there are cleared before.
    pub clears: bool,
    /// Bitmap and logs.
    pub logs: &'a [Area],
    /// The superblock.
    pub superblock: &'a Area,
}

impl MemberWrite<'_> {
    /// Superblocks found elsewhere, which would be taken for this one, are cleared.
    fn clearings(&self) -> impl Iterator<Item = Area> {
        let probe = &self.candidate.probe;
        probe.found.iter().filter(|_| self.clears).map(|found| {
            let bytes = ((probe.device_sectors - found.at_sector) * SECTOR_BYTES).min(OLD_BLOCK_BYTES);
            Area { at_sector: found.at_sector, bytes: vec![0; bytes as usize] }
        })
    }

    fn areas(&self) -> impl Iterator<Item = (u64, usize)> {
        let clearings = self.clearings().map(|area| (area.at_sector, area.bytes.len()));
        let areas = self.logs.iter().chain([self.superblock]);
        clearings.chain(areas.map(|area| (area.at_sector, area.bytes.len())))
    }
}

/// Bytes that were there before.
struct Saved<'a> {
    candidate: &'a Candidate,
    areas: Vec<Area>,
}

/// Writes all members or, after an error, none.
pub fn write(members: &[MemberWrite]) -> Result<(), WriteError> {
    let failed = |member: &MemberWrite, error| WriteError {
        path: member.candidate.probe.path.clone(),
        error,
        not_restored: Vec::new(),
    };
    let mut saved = Vec::new();
    for member in members {
        saved.push(save(member).map_err(|error| failed(member, error))?);
    }
    let phases: [fn(&MemberWrite) -> io::Result<()>; 2] = [write_logs, write_superblock];
    for phase in phases {
        for member in members {
            if let Err(error) = phase(member) {
                return Err(WriteError { not_restored: restore(&saved), ..failed(member, error) });
            }
        }
    }
    Ok(())
}

fn save<'a>(member: &MemberWrite<'a>) -> io::Result<Saved<'a>> {
    let read = |(at_sector, length)| {
        let mut bytes = vec![0; length];
        member.candidate.storage.read(&mut bytes, at_sector * SECTOR_BYTES)?;
        Ok(Area { at_sector, bytes })
    };
    let areas = member.areas().map(read).collect::<io::Result<_>>()?;
    Ok(Saved { candidate: member.candidate, areas })
}

fn write_area(candidate: &Candidate, area: &Area) -> io::Result<()> {
    candidate.storage.write(&area.bytes, area.at_sector * SECTOR_BYTES)
}

fn write_logs(member: &MemberWrite) -> io::Result<()> {
    member.clearings().try_for_each(|area| write_area(member.candidate, &area))?;
    member.logs.iter().try_for_each(|area| write_area(member.candidate, area))?;
    member.candidate.storage.flush()
}

fn write_superblock(member: &MemberWrite) -> io::Result<()> {
    write_area(member.candidate, member.superblock)?;
    member.candidate.storage.flush()
}

/// Puts back the sectors that are not as they were. The others may be a hole of a file that there is no room to fill.
fn put_back(candidate: &Candidate, area: &Area) -> io::Result<()> {
    let sector_bytes = SECTOR_BYTES as usize;
    let mut found = vec![0; area.bytes.len()];
    candidate.storage.read(&mut found, area.at_sector * SECTOR_BYTES)?;
    let sectors: Vec<_> = area.bytes.chunks(sector_bytes).zip(found.chunks(sector_bytes)).collect();
    let mut at = area.at_sector;
    for run in sectors.chunk_by(|a, b| (a.0 == a.1) == (b.0 == b.1)) {
        if run[0].0 != run[0].1 {
            let bytes = run.iter().flat_map(|(before, _)| *before).copied().collect();
            write_area(candidate, &Area { at_sector: at, bytes })?;
        }
        at += run.len() as u64;
    }
    Ok(())
}

/// Puts everything back, and returns the members where that failed.
fn restore(saved: &[Saved]) -> Vec<(PathBuf, io::Error)> {
    let restore = |saved: &Saved| {
        saved.areas.iter().try_for_each(|area| put_back(saved.candidate, area))?;
        saved.candidate.storage.flush()
    };
    let failure = |saved| Some((saved, restore(saved).err()?));
    saved.iter().filter_map(failure).map(|(saved, e)| (saved.candidate.probe.path.clone(), e)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTORS: u64 = 4096;

    fn member(folder: &Path, name: &str, fill: u8) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, vec![fill; (SECTORS * SECTOR_BYTES) as usize]).unwrap();
        path
    }

    fn area(at_sector: u64) -> Area {
        Area { at_sector, bytes: vec![0x11; 4096] }
    }

    #[test]
    fn a_member_that_fails_leaves_all_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [member(folder.path(), "a", 0xa5), member(folder.path(), "b", 0x5a)];
        let mut candidates = Candidate::open_all(&paths, &[]).unwrap();
        // Reading it still works, writing does not.
        candidates[1].storage = Storage::File(File::open(&paths[1]).unwrap());
        let (logs, superblock) = ([area(16), area(SECTORS - 8)], area(8));
        let writes: Vec<_> = candidates
            .iter()
            .map(|candidate| MemberWrite { candidate, clears: true, logs: &logs, superblock: &superblock })
            .collect();
        let error = write(&writes).unwrap_err();
        assert_eq!(error.path, paths[1]);
        assert!(error.not_restored.is_empty(), "nothing was written to the other: {error}");
        for (path, fill) in paths.iter().zip([0xa5, 0x5a]) {
            assert!(std::fs::read(path).unwrap().iter().all(|byte| *byte == fill), "{}", path.display());
        }
        candidates.remove(1);
        let only =
            MemberWrite { candidate: &candidates[0], clears: true, logs: &logs, superblock: &superblock };
        write(&[only]).unwrap();
        assert_eq!(std::fs::read(&paths[0]).unwrap()[4096..12288], [0x11; 8192]);
    }

    #[test]
    fn only_sectors_that_are_not_as_they_were_are_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = member(folder.path(), "a", 0xa5);
        let candidate = Candidate::open(&path, &[]).unwrap();
        let saved = Area { at_sector: 16, bytes: vec![0xa5; 4096] };
        // Two runs of other bytes, in the middle and at the end.
        for (sector, count) in [(17, 2), (23, 1)] {
            let bytes = vec![0x11; count * SECTOR_BYTES as usize];
            write_area(&candidate, &Area { at_sector: sector, bytes }).unwrap();
        }
        put_back(&candidate, &saved).unwrap();
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0xa5));
        let read_only = Candidate { storage: Storage::File(File::open(&path).unwrap()), ..candidate };
        assert!(put_back(&read_only, &saved).is_ok(), "all is as it was");
        assert!(put_back(&read_only, &area(16)).is_err());
    }

    #[test]
    fn a_candidate_is_locked_and_is_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = member(folder.path(), "a", 0);
        let link = folder.path().join("link");
        std::fs::hard_link(&path, &link).unwrap();
        let twice = Candidate::open_all(&[path.clone(), link.clone()], &[]).unwrap_err();
        assert!(matches!(twice, HostError::Member { problem: MemberProblem::Twice, .. }), "{twice}");
        let held = Candidate::open(&path, &[]).unwrap();
        let locked = Candidate::open(&link, &[]).unwrap_err();
        assert!(matches!(locked, HostError::Member { problem: MemberProblem::Locked, .. }), "{locked}");
        drop(held);
        assert!(Candidate::open(&link, &[]).is_ok());
    }
}
