//! A real device, opened read-only.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_engine::volume::VolumeConfig;
use stripewise_host::md::paths::is_storage;
use stripewise_host::{Access, Array, ArrayConfig, FileSpec, MemberSpec};

use super::findings::SECTORS_MIN;
use super::{CalibrateError, Load, Probe};

/// A block device or a file, read past the page cache where that is possible.
#[derive(Debug)]
pub struct Device {
    array: Array,
    sectors: u64,
}

impl Device {
    /// Opens it; it is never written to.
    ///
    /// # Errors
    /// It cannot be opened or read, or is too small.
    pub fn open(path: &Path) -> Result<Self, CalibrateError> {
        let metadata = std::fs::metadata(path).map_err(|e| CalibrateError::open(path, &e))?;
        if !is_storage(&metadata) {
            let error = "it is neither a regular file nor a block device".to_owned();
            return Err(CalibrateError::Open { path: path.to_owned(), error });
        }
        let mut file = File::open(path).map_err(|e| CalibrateError::open(path, &e))?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(|e| CalibrateError::open(path, &e))?;
        let sectors = bytes / SECTOR_BYTES;
        if sectors < SECTORS_MIN {
            return Err(CalibrateError::TooSmall { sectors, needed: SECTORS_MIN });
        }
        // A file system that does not tell of holes says that the first is at the end.
        let first = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap_or(bytes);
        if metadata.is_file() && first < bytes {
            return Err(CalibrateError::Holes { path: path.to_owned(), first });
        }
        let spec = FileSpec { access: Access::ReadOnly, ..FileSpec::new(path) };
        let volume = alone(sectors);
        let array = Array::open(ArrayConfig::new(volume, vec![MemberSpec::File(spec)]))?;
        Ok(Self { array, sectors })
    }

    /// What is done otherwise than asked, such as reads through the page cache.
    pub fn notes(&self) -> Vec<String> {
        self.array.notes().iter().map(ToString::to_string).collect()
    }
}

impl Probe for Device {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn run(&mut self, load: Load) -> Result<Load, CalibrateError> {
        let (_, mut loads) = self.array.run(vec![load])?;
        let load = loads.pop().expect("a run gives its workloads back");
        if load.errors > 0 {
            return Err(CalibrateError::Read { errors: load.errors, sector: load.error_sector });
        }
        Ok(load)
    }
}

/// A drive by itself: a linear array of one member.
pub(super) fn alone(sectors: u64) -> VolumeConfig {
    let geometry = GeometrySpec {
        level: Level::Linear,
        layout: Layout::None,
        chunk_sectors: 0,
        member_sectors: vec![sectors],
    };
    VolumeConfig::new(geometry, Policy::stripewise())
}
