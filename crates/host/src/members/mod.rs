//! Members: what holds an array's bytes.
//!
//! # Contract of a member kind
//! One file here and one line in [`Member`] and [`MemberSpec`]. A kind either carries out an I/O at once and
//! answers with its result (memory), or hands it to the ring of the shard that asks and is answered by a
//! completion (files, block devices); files in memory do both. Sectors count from the start of the member's data. Members are shared
//! by all shards: no two I/Os in flight overlap unless both read, which is the engine's promise.

mod at_once;
mod caches;
mod destinations;
mod file;
mod loop_device;
mod memory;
mod overlay;
mod present;
mod recent;
mod rotational;
mod view;

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use stripewise_engine::io::{Area, IoError, IoResult};
use stripewise_engine::units::SECTOR_BYTES;

pub(crate) use caches::Caches;
pub use file::{Access, Caching, FileSpec, Fill, claim, create_member_file, member_file_sectors};
pub(crate) use file::{FileMember, Route, lock, size_of};
pub use loop_device::loop_device;
pub(crate) use memory::{MemoryMember, STREAM_BYTES_MIN};
pub(crate) use overlay::OverlaidMember;
pub use overlay::OverlaySpec;
pub(crate) use rotational::are_rotational;

use crate::error::{HostError, MemberProblem, io_error_from_errno};

/// What a slot of the array is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberSpec {
    /// Nothing: the slot is listed among the failed ones.
    Missing,
    /// Memory of the size the geometry states, gone with the array.
    Memory,
    /// A regular file or a block device.
    File(FileSpec),
    /// A file or device that is only read, under an overlay that takes the writes.
    Overlay(OverlaySpec),
}

/// A member in use.
#[derive(Debug)]
pub(crate) enum Member {
    Missing,
    Memory(MemoryMember),
    File(FileMember),
    Overlay(OverlaidMember),
}

impl Member {
    fn open(spec: &MemberSpec, slot: usize, sectors: u64, shards: u32) -> Result<Self, HostError> {
        Ok(match spec {
            MemberSpec::Missing => Self::Missing,
            MemberSpec::Memory => Self::Memory(MemoryMember::new(slot, sectors)?),
            MemberSpec::File(spec) => Self::File(FileMember::open(spec, sectors, shards)?),
            MemberSpec::Overlay(spec) => Self::Overlay(OverlaidMember::open(spec, sectors)?),
        })
    }

    /// Reads from a sector of the whole device on, outside of any run.
    pub(crate) fn read_device(&self, sector: u64, bytes: &mut [u8]) -> IoResult {
        let offset = sector.checked_mul(SECTOR_BYTES).ok_or(IoError::Range)?;
        let result = match self {
            Self::File(file) => file.buffered().read_exact_at(bytes, offset),
            Self::Overlay(overlay) => overlay.device().read_at(offset, bytes),
            Self::Missing | Self::Memory(_) => return Err(IoError::Gone),
        };
        result.map_err(io_error)
    }

    /// Writes from a sector of the whole device on, outside of any run.
    pub(crate) fn write_device(&self, sector: u64, bytes: &[u8]) -> IoResult {
        let offset = sector.checked_mul(SECTOR_BYTES).ok_or(IoError::Range)?;
        let result = match self {
            Self::File(file) => file.buffered().write_all_at(bytes, offset),
            Self::Overlay(overlay) => overlay.device().write_at(offset, bytes),
            Self::Missing | Self::Memory(_) => return Err(IoError::Gone),
        };
        result.map_err(io_error)
    }

    /// Makes what was written by [`Self::write_device`] last.
    pub(crate) fn flush_device(&self) -> IoResult {
        let result = match self {
            Self::File(file) => file.buffered().sync_data(),
            Self::Overlay(overlay) => overlay.device().flush(),
            Self::Missing | Self::Memory(_) => return Err(IoError::Gone),
        };
        result.map_err(io_error)
    }

    /// The sector of the device that its data begin at.
    pub(crate) fn data_sector(&self) -> u64 {
        match self {
            Self::File(file) => file.data_offset_bytes() / SECTOR_BYTES,
            Self::Overlay(overlay) => overlay.start_bytes(Area::Data) / SECTOR_BYTES,
            Self::Missing | Self::Memory(_) => 0,
        }
    }

    /// Where it is, if it has a place.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file.path()),
            Self::Overlay(overlay) => Some(overlay.path()),
            Self::Missing | Self::Memory(_) => None,
        }
    }

    /// Whether it was opened at this path. No file system is asked.
    pub(crate) fn is_named(&self, path: &Path) -> bool {
        let from_root = |path| std::path::absolute(path).ok();
        self.path()
            .is_some_and(|own| own == path || from_root(own).is_some_and(|own| Some(own) == from_root(path)))
    }

    /// Whether a path leads to it.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.path().is_some_and(|own| real_path(own) == real_path(path))
    }

    /// The file behind the member, if it has one.
    pub(crate) fn file(&self) -> Option<&FileMember> {
        match self {
            Self::File(file) => Some(file),
            Self::Missing | Self::Memory(_) | Self::Overlay(_) => None,
        }
    }
}

/// The absolute path without links; of a file that is gone, the folder's with its name.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Opens the members of an array of so many shards, those of the slots first, then spares; the slots' data sizes
/// are given in sectors.
pub(crate) fn open_all(specs: &[MemberSpec], sectors: &[u64], shards: u32) -> Result<Vec<Member>, HostError> {
    if specs.len() < sectors.len() {
        return Err(HostError::MemberCount { given: specs.len(), needed: sectors.len() });
    }
    refuse_duplicates(specs)?;
    // A spare can hold the smallest slot; whether it can hold a larger one is seen when it is needed.
    let spare_sectors = sectors.iter().min().copied().unwrap_or(0);
    specs
        .iter()
        .zip(sectors.iter().chain(std::iter::repeat(&spare_sectors)))
        .enumerate()
        .map(|(slot, (spec, sectors))| Member::open(spec, slot, *sectors, shards))
        .collect()
}

/// The data sizes that members must have, of the slots first, up to a write journal in this place. It holds no slot: it may be shorter.
pub(crate) fn sizes_to_journal(slots: &[u64], journal: Option<usize>) -> Vec<u64> {
    let mut sectors = slots.to_vec();
    if let Some(place) = journal {
        sectors.resize(place, slots.iter().min().copied().unwrap_or(0));
        sectors.push(0);
    }
    sectors
}

#[expect(clippy::needless_pass_by_value, reason = "a function for map_err")]
fn io_error(error: std::io::Error) -> IoError {
    error.raw_os_error().map_or(IoError::Range, io_error_from_errno)
}

fn refuse_duplicates(specs: &[MemberSpec]) -> Result<(), HostError> {
    let paths: Vec<&Path> = specs
        .iter()
        .filter_map(|spec| match spec {
            MemberSpec::File(spec) => Some(spec.path.as_path()),
            MemberSpec::Overlay(spec) => Some(spec.member.path()),
            MemberSpec::Missing | MemberSpec::Memory => None,
        })
        .collect();
    let mut real: Vec<_> =
        paths.iter().map(|p| (p.canonicalize().unwrap_or_else(|_| p.into()), *p)).collect();
    real.sort();
    match real.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(MemberProblem::Twice.at(pair[1].1)),
        None => Ok(()),
    }
}
