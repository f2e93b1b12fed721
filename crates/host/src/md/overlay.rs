//! A copy-on-write file that takes every write meant for a set of files and devices, which are only read.
//!
//! # Contract
//! *Ownership.* An overlay in use is locked: alone by a writer, together by readers. Members are opened read-only and
//! known by canonical path and size. *Durability.* A write is found by later opens once [`OverlayMember::flush`]
//! returned: data go to the file first, the bits that say so after them, each made durable in turn. A crash in
//! between leaves what the last flush left, or newer data of blocks that were there already. *Bounds.* Presence bits
//! are read 4 KiB at a time when they are needed; nothing is allocated by a member's size.
//!
//! # Bytes
//! Numbers are little-endian; every record ends with the CRC-32C of the bytes before it.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 4096 | header: magic, version, number of members |
//! | 4096 × (1 + n) | 4096 | member n: size, where its region begins, length of its path, sum of its ends, its path |
//! | from 2 MiB on | | regions: presence bits (one for each 4 KiB, least significant first), padded to 4 KiB, then the data, sparse |

mod error;
mod file;
mod region;
mod table;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use error::OverlayProblem;
use file::OverlayFile;
use region::Region;
use table::Row;

use crate::error::{HostError, MemberProblem};
use crate::md::paths::is_at;
use crate::md::probe::{self, Source};
use crate::members::lock;

/// An overlay, shared by everyone who uses it.
#[derive(Clone, Debug)]
pub struct Overlay(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    file: OverlayFile,
    writable: bool,
    /// The file was made by this process: it is no more if no member is added.
    is_new: bool,
    rows: Mutex<Vec<Row>>,
}

impl Overlay {
    /// Opens an overlay for writing, and creates it if there is no such file. One that is created is removed again if no member is
    /// added to it.
    ///
    /// # Errors
    /// The file cannot be had, is in use, or is not an overlay.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let problem = |e: io::Error| OverlayProblem::from_io(&e).at(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(libc::O_CLOEXEC);
        let was_there = path.exists();
        let open = || {
            let file = options.open(path)?;
            lock(&file, true)?;
            Ok(file)
        };
        let mut file = open().map_err(problem)?;
        if !is_at(&file, path) {
            // Who had it locked has removed it.
            file = open().map_err(problem)?;
        }
        if !is_at(&file, path) {
            return Err(problem(io::Error::from_raw_os_error(libc::EBUSY)));
        }
        let is_empty = file.metadata().map_err(problem)?.len() == 0;
        let is_new = is_empty && !was_there;
        let shared = Shared {
            path: path.to_owned(),
            file: OverlayFile::new(file),
            writable: true,
            is_new,
            rows: Mutex::default(),
        };
        if is_empty {
            table::create(&shared.file).map_err(problem)?;
        }
        Self::read(shared)
    }

    /// Opens an overlay that is there, for reading: nothing is written, neither to it nor to members.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_readonly(path: &Path) -> Result<Self, HostError> {
        let problem = |e: io::Error| OverlayProblem::from_io(&e).at(path);
        let file = OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC).open(path).map_err(problem)?;
        lock(&file, false).map_err(problem)?;
        Self::read(Shared {
            path: path.to_owned(),
            file: OverlayFile::new(file),
            writable: false,
            is_new: false,
            rows: Mutex::default(),
        })
    }

    fn read(mut shared: Shared) -> Result<Self, HostError> {
        shared.rows = Mutex::new(table::read(&shared.file).map_err(|p| p.at(&shared.path))?);
        Ok(Self(Arc::new(shared)))
    }

    /// The overlay's path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// A file or device as this overlay has it; one that it does not know yet is added where writing is allowed.
    ///
    /// # Errors
    /// The member cannot be opened, is in use by a writer, or is not what it was when it was added.
    pub fn member(&self, path: &Path) -> Result<OverlayMember, HostError> {
        self.open_member(path, self.0.writable)
    }

    /// As [`member`](Self::member), for a look: one that the overlay does not know is not added.
    ///
    /// # Errors
    /// As [`member`](Self::member).
    pub fn look(&self, path: &Path) -> Result<OverlayMember, HostError> {
        self.open_member(path, false)
    }

    /// The members it knows, by canonical path.
    pub fn paths(&self) -> Vec<PathBuf> {
        lock_of(&self.0.rows).iter().map(|row| row.path.clone()).collect()
    }

    /// Forgets every member and all that was written. Members that are open can be neither read nor written any more (`ESTALE`): what
    /// was written to them is gone, and its place may become another's.
    ///
    /// # Errors
    /// The overlay is only read, or the system's error.
    pub fn reset(&self) -> Result<(), HostError> {
        let problem = |e: io::Error| OverlayProblem::from_io(&e).at(self.path());
        if !self.0.writable {
            return Err(problem(io::Error::from_raw_os_error(libc::EROFS)));
        }
        let mut rows = lock_of(&self.0.rows);
        rows.drain(..).for_each(|row| lock_of(&row.region).forget());
        table::create(&self.0.file).map_err(problem)
    }

    fn open_member(&self, path: &Path, may_add: bool) -> Result<OverlayMember, HostError> {
        let member_problem = |e: io::Error| MemberProblem::from_io(&e, 0).at(path);
        let canonical = path.canonicalize().map_err(member_problem)?;
        let (base, device_sectors) = probe::open(path)?;
        lock(&base, false).map_err(member_problem)?;
        let size_bytes = device_sectors * 512;
        let ends_sum = table::ends_sum(&base, size_bytes).map_err(member_problem)?;
        let mut rows = lock_of(&self.0.rows);
        let known = rows.iter().find(|row| row.path == canonical);
        let region = match known {
            Some(row) if row.size_bytes != size_bytes => {
                let problem = OverlayProblem::SizeChanged {
                    member: path.to_owned(),
                    was_bytes: row.size_bytes,
                    is_bytes: size_bytes,
                };
                return Err(problem.at(self.path()));
            }
            Some(row) if ![0, ends_sum].contains(&row.ends_sum) => {
                return Err(OverlayProblem::MemberWritten { member: path.to_owned() }.at(self.path()));
            }
            Some(row) => Some(Arc::clone(&row.region)),
            None if may_add => {
                let row = table::add(&self.0.file, &rows, canonical, (size_bytes, ends_sum))
                    .map_err(|p| p.at(self.path()))?;
                rows.push(row);
                rows.last().map(|row| Arc::clone(&row.region))
            }
            None => None,
        };
        drop(rows);
        Ok(OverlayMember(Arc::new(Member {
            overlay: self.clone(),
            path: path.to_owned(),
            base,
            size_bytes,
            region,
        })))
    }
}

/// Whether a file begins like an overlay, so that it is no member.
pub fn is_overlay(file: &File) -> bool {
    table::has_magic(file)
}

/// A file or device under an overlay.
#[derive(Clone, Debug)]
pub struct OverlayMember(Arc<Member>);

#[derive(Debug)]
struct Member {
    overlay: Overlay,
    path: PathBuf,
    base: File,
    size_bytes: u64,
    /// None where the overlay is only read and does not know the member.
    region: Option<Arc<Mutex<Region>>>,
}

impl PartialEq for OverlayMember {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OverlayMember {}

impl OverlayMember {
    /// The member's path as it was given.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The member's size.
    pub fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    /// Fills `bytes` from an offset.
    ///
    /// # Errors
    /// The range ends beyond the member, or the system's error.
    pub fn read_at(&self, offset_bytes: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.check(offset_bytes, bytes.len())?;
        let Member { overlay, base, region, .. } = &*self.0;
        match region {
            Some(region) => lock_of(region).read(&overlay.0.file, base, offset_bytes, bytes),
            None => base.read_exact_at(bytes, offset_bytes),
        }
    }

    /// Writes `bytes` from an offset, to the overlay alone.
    ///
    /// # Errors
    /// The range ends beyond the member, the overlay is only read, or the system's error.
    pub fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset_bytes, bytes.len())?;
        let Member { overlay, base, region, .. } = &*self.0;
        match region {
            Some(region) if overlay.0.writable => {
                lock_of(region).write(&overlay.0.file, base, offset_bytes, bytes)
            }
            _ => Err(io::Error::from_raw_os_error(libc::EROFS)),
        }
    }

    /// Makes what was written last.
    ///
    /// # Errors
    /// The system's error; what was written since the last flush may be lost.
    pub fn flush(&self) -> io::Result<()> {
        let Member { overlay, region, .. } = &*self.0;
        match region {
            Some(region) if overlay.0.writable => lock_of(region).flush(&overlay.0.file),
            _ => Ok(()),
        }
    }

    /// Whether a block was written that begins at a byte that is `wanted`.
    ///
    /// # Errors
    /// The overlay cannot be read.
    pub fn any_written(&self, wanted: impl Fn(u64) -> bool) -> io::Result<bool> {
        match &self.0.region {
            Some(region) => lock_of(region).any_present(&self.0.overlay.0.file, wanted),
            None => Ok(false),
        }
    }

    fn check(&self, offset_bytes: u64, length: usize) -> io::Result<()> {
        let end = offset_bytes.checked_add(length as u64);
        if end.is_some_and(|end| end <= self.0.size_bytes) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let is_file = std::fs::symlink_metadata(&self.path).is_ok_and(|at| at.is_file());
        if self.is_new && is_file && is_at(&self.file, &self.path) && lock_of(&self.rows).is_empty() {
            // It holds nothing, and whoever waits for its lock looks whether it is there; one that stays is empty, too.
            let _stays = std::fs::remove_file(&self.path);
        } else if self.writable {
            for row in lock_of(&self.rows).iter() {
                // Whoever needs to know has flushed; this is for those who end without.
                let _unheard = lock_of(&row.region).flush(&self.file);
            }
        }
    }
}

impl Source for OverlayMember {
    fn read_exact_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.read_at(offset_bytes, bytes)
    }
}

/// A panic while a lock was held leaves nothing half-done that matters: a region's bits are set after its data.
fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
