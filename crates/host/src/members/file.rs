//! A member in a regular file or on a block device.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, StatxFlags, seek, statx};
use stripewise_engine::io::{Area, MemberIo};
use stripewise_engine::units::SECTOR_BYTES;

use super::loop_device;
use super::view::View;
use crate::buffers::{Mapping, PAGE};
use crate::error::{HostError, MemberProblem};
use crate::md::paths::is_storage;
use crate::report::Note;

/// The file system magic of tmpfs (`TMPFS_MAGIC` of the kernel's magic.h), which opens with `O_DIRECT` since
/// Linux 6.6 but goes through the page cache all the same.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// Those of ext2 to ext4, XFS and btrfs (magic.h).
const ON_DISK_MAGICS: [i64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

/// Reads at once for each time that a file's length is asked for, without writes.
const ASKED_ONCE_IN: u32 = 64;

/// What the caller allows to happen to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// It is read only.
    ReadOnly,
    /// A regular file is written to; a block device is refused.
    #[default]
    ReadWrite,
    /// A block device, too, is written to.
    Destroy,
}

/// How I/O reaches the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// Past the page cache (`O_DIRECT`) where the file system has it.
    #[default]
    Direct,
    /// Through the page cache.
    Buffered,
}

/// A member in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// The file or block device.
    pub path: PathBuf,
    /// Sectors before the member's data (md's `data_offset`).
    pub data_offset_sectors: u64,
    /// What is allowed.
    pub access: Access,
    /// How I/O reaches it.
    pub caching: Caching,
}

impl FileSpec {
    /// The whole of a regular file, read and written past the page cache.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            data_offset_sectors: 0,
            access: Access::default(),
            caching: Caching::default(),
        }
    }
}

/// Which of a member's two descriptors an I/O takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Direct,
    Buffered,
}

/// An open file. It has a second descriptor for the I/O `O_DIRECT` does not take, so that the first
/// refusal costs one I/O and not the member.
#[derive(Debug)]
pub(crate) struct FileMember {
    path: PathBuf,
    buffered: File,
    direct: Option<File>,
    /// Whether the file system is in memory.
    is_in_memory: bool,
    /// The file as it lies there.
    view: Option<View>,
    /// One for each shard.
    flushers: Vec<File>,
    /// What offsets and lengths of direct I/O are multiples of.
    align_bytes: u32,
    /// Set when the file system refused direct I/O after all.
    refused: AtomicBool,
    /// Whether the caller is owed a note about buffering.
    wants_direct: bool,
    data_offset_bytes: u64,
    /// A regular file's length when it was opened.
    length_bytes: Option<u64>,
    /// Whether asking for the file's end asks nobody but this kernel, which then is the quickest way to its length.
    has_near_end: bool,
    /// It was seen to be cut short: that it is as long as it was again does not bring back what it held.
    was_cut: AtomicBool,
    /// Writes under way to a file in memory: they may make it grow after it was cut.
    writes: AtomicU32,
    /// Reads at once since the file's length was asked for.
    reads: AtomicU32,
}

impl FileMember {
    pub(crate) fn open(spec: &FileSpec, sectors: u64, shards: u32) -> Result<Self, HostError> {
        let path = spec.path.as_path();
        let metadata = std::fs::metadata(path).map_err(|e| MemberProblem::from_io(&e, 0).at(path))?;
        let is_device = metadata.file_type().is_block_device();
        if !is_device && !metadata.is_file() {
            return Err(MemberProblem::WrongKind.at(path));
        }
        if is_device && spec.access == Access::ReadWrite {
            return Err(MemberProblem::NeedsDestroy.at(path));
        }
        if spec.access != Access::ReadOnly
            && let Some(device) = loop_device(path)
        {
            return Err(MemberProblem::BehindLoopDevice { device }.at(path));
        }
        // The first descriptor claims the device; a second claim would be refused as the first one's rival.
        let claim = if is_device && spec.access == Access::Destroy { libc::O_EXCL } else { 0 };
        let buffered = open_with(spec, claim).map_err(|e| MemberProblem::from_io(&e, 0).at(path))?;
        lock(&buffered, spec.access != Access::ReadOnly)
            .map_err(|e| MemberProblem::from_io(&e, 0).at(path))?;
        let have = size_of(&buffered).map_err(|e| MemberProblem::from_io(&e, 0).at(path))?;
        let need = spec.data_offset_sectors.saturating_add(sectors).saturating_mul(SECTOR_BYTES);
        if have < need {
            return Err(MemberProblem::TooSmall { have, need }.at(path));
        }
        let is_in_memory = is_tmpfs(&buffered);
        let view =
            if is_in_memory && spec.access != Access::ReadOnly { View::of(&buffered, have) } else { None };
        let wants_direct = spec.caching == Caching::Direct;
        let direct = if wants_direct { open_direct(spec) } else { None };
        let (direct, align_bytes) =
            direct.map_or((None, SECTOR_BYTES as u32), |(file, align)| (Some(file), align));
        let flushers = (0..shards)
            .map(|_| open_flusher(spec, &metadata))
            .collect::<std::io::Result<_>>()
            .map_err(|e| MemberProblem::from_io(&e, 0).at(path))?;
        Ok(Self {
            path: path.to_owned(),
            direct,
            is_in_memory,
            view,
            flushers,
            align_bytes,
            refused: AtomicBool::new(false),
            wants_direct,
            data_offset_bytes: spec.data_offset_sectors * SECTOR_BYTES,
            length_bytes: (!is_device).then_some(have),
            has_near_end: is_in_memory || is_on_disk(&buffered),
            was_cut: AtomicBool::new(false),
            writes: AtomicU32::new(0),
            reads: AtomicU32::new(0),
            buffered,
        })
    }

    /// Its path, as given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor that goes through the page cache.
    pub(crate) fn buffered(&self) -> &File {
        &self.buffered
    }

    /// Whether its file system is in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// Where the kernel finds the bytes that a read asks for, if the file is in memory and written to, and they are all
    /// there; and their sector of the whole file. This process leaves the address alone: see [`View`].
    pub(crate) fn lent(&self, io: &MemberIo) -> Option<(*const u8, u64)> {
        let before = if io.area == Area::Data { self.data_offset_bytes / SECTOR_BYTES } else { 0 };
        let sector = before.checked_add(io.range.start)?;
        let (offset, bytes) = (sector.checked_mul(SECTOR_BYTES)?, io.range.count.checked_mul(SECTOR_BYTES)?);
        Some((self.view.as_ref()?.address(&self.buffered, offset, bytes)?, sector))
    }

    /// Bytes before the member's data.
    pub(crate) fn data_offset_bytes(&self) -> u64 {
        self.data_offset_bytes
    }

    /// The way of an I/O at this offset of the file, of this length, whose buffers are aligned likewise.
    pub(crate) fn route(&self, offset: u64, bytes: u64) -> Route {
        let unaligned = (offset | bytes) & u64::from(self.align_bytes - 1) != 0;
        if self.direct.is_none() || unaligned || self.refused.load(Ordering::Relaxed) {
            Route::Buffered
        } else {
            Route::Direct
        }
    }

    /// Whether somebody cut the file short, now or when this was asked before. A write would lengthen it again, with a hole
    /// before it that reads as zeroes and not as what was there: so it is asked before a write, and, since a write may be
    /// under way when the file is cut, after each I/O before its bytes are believed. Who serves a file system elsewhere is
    /// not asked.
    pub(crate) fn is_cut(&self) -> bool {
        let Some(length) = self.length_bytes else { return false };
        if self.was_cut.load(Ordering::Relaxed) {
            return true;
        }
        let now = if self.has_near_end {
            seek(&self.buffered, rustix::fs::SeekFrom::End(0))
        } else {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            statx(&self.buffered, "", flags, StatxFlags::SIZE).map(|status| status.stx_size)
        };
        let is_cut = now.is_ok_and(|now| now < length);
        if is_cut {
            self.has_ended_early();
        }
        is_cut
    }

    /// A write begins, before which [`is_cut`](Self::is_cut) was asked.
    pub(crate) fn begin_write(&self) {
        if self.is_in_memory {
            self.writes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// It has ended, and [`is_cut`](Self::is_cut) was asked again.
    pub(crate) fn end_write(&self) {
        if self.is_in_memory {
            self.writes.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether what was just read from a file in memory may be a hole for [`is_cut`](Self::is_cut), which is asked while
    /// writes are under way. When there is none, it was asked after the last one, and only another program can have cut
    /// the file and lengthened it again: that is looked for once in a while, for the question would be a sixth of a
    /// short read.
    pub(super) fn may_be_hole(&self) -> bool {
        let reads = self.reads.load(Ordering::Relaxed) + 1;
        let is_due = reads >= ASKED_ONCE_IN;
        self.reads.store(if is_due { 0 } else { reads }, Ordering::Relaxed);
        let may_grow = self.writes.load(Ordering::Acquire) > 0;
        if is_due || may_grow { self.is_cut() } else { self.was_cut.load(Ordering::Relaxed) }
    }

    /// Takes note that the file ended where it should not.
    pub(crate) fn has_ended_early(&self) {
        self.was_cut.store(true, Ordering::Relaxed);
    }

    /// The descriptor of a way.
    pub(crate) fn fd(&self, route: Route) -> RawFd {
        match (route, &self.direct) {
            (Route::Direct, Some(file)) => file.as_raw_fd(),
            _ => self.buffered.as_raw_fd(),
        }
    }

    /// The descriptor a shard flushes through, and uses for nothing else.
    pub(crate) fn flush_fd(&self, shard: usize) -> RawFd {
        self.flushers[shard].as_raw_fd()
    }

    /// Takes the buffered way from now on.
    pub(crate) fn refuse_direct(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// What the caller should know about the way taken.
    pub(crate) fn note(&self) -> Option<Note> {
        let path = self.path.clone();
        if !self.wants_direct {
            None
        } else if self.direct.is_none() || self.refused.load(Ordering::Relaxed) {
            Some(Note::Buffered { path })
        } else if u64::from(self.align_bytes) > SECTOR_BYTES {
            Some(Note::PartlyBuffered { path, align_bytes: self.align_bytes })
        } else {
            None
        }
    }
}

fn open_with(spec: &FileSpec, flags: i32) -> std::io::Result<File> {
    let write = spec.access != Access::ReadOnly;
    OpenOptions::new().read(true).write(write).custom_flags(flags | libc::O_CLOEXEC).open(&spec.path)
}

impl Drop for FileMember {
    /// The claim ends here: a ring that is gone may keep the file open for a while yet.
    fn drop(&mut self) {
        // SAFETY: the descriptor is open; no pointers are passed.
        unsafe { libc::flock(self.buffered.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// How often a claim is tried, and how long after each time: the ring of a process that was killed keeps its files
/// open until the kernel has taken it down.
const LOCK_TRIES: u32 = 80;
const LOCK_WAIT: Duration = Duration::from_millis(25);

/// Claims an open file for as long as it is open: alone for writing, with other readers otherwise. A claim that
/// another program (or another array of this one) has is `EBUSY`.
pub(crate) fn lock(file: &File, alone: bool) -> std::io::Result<()> {
    let how = if alone { libc::LOCK_EX } else { libc::LOCK_SH };
    for _ in 0..LOCK_TRIES {
        // SAFETY: the descriptor is open; no pointers are passed.
        if unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EWOULDBLOCK) => std::thread::sleep(LOCK_WAIT),
            // A file system without locks has nobody to ask.
            Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(()),
            _ => return Err(error),
        }
    }
    Err(std::io::Error::from_raw_os_error(libc::EBUSY))
}

/// Claims an open file alone, as a member of an array that runs is, for as long as it is open.
///
/// # Errors
/// Another program, or another array of this one, has it ([`std::io::ErrorKind::ResourceBusy`]), or the system's error.
pub fn claim(file: &File) -> std::io::Result<()> {
    lock(file, true)
}

/// Opens the file once more: an open file of its own is told of each failed write-back.
fn open_flusher(spec: &FileSpec, metadata: &Metadata) -> std::io::Result<File> {
    let file = open_with(spec, 0)?;
    let is_same = file.metadata().is_ok_and(|m| (m.dev(), m.ino()) == (metadata.dev(), metadata.ino()));
    // Replaced while it was being opened: no file is where the path says.
    if is_same { Ok(file) } else { Err(std::io::Error::from_raw_os_error(libc::ESTALE)) }
}

/// Opens the file with `O_DIRECT` and finds the smallest blocks it takes; nothing if it takes none.
fn open_direct(spec: &FileSpec) -> Option<(File, u32)> {
    let file = open_with(spec, libc::O_DIRECT).ok()?;
    if is_tmpfs(&file) {
        return None;
    }
    let page = Mapping::new(PAGE, "a probe").ok()?;
    for align in [SECTOR_BYTES as usize, PAGE] {
        // SAFETY: the mapping is a page long, of which `align` bytes are lent for the read alone.
        let block = unsafe { std::slice::from_raw_parts_mut(page.base(), align) };
        // An offset that is a multiple of `align` and of nothing larger.
        match file.read_at(block, align as u64) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            _ => return Some((file, align as u32)),
        }
    }
    None
}

/// Whether it is a file in memory. Device nodes are in a tmpfs as well (devtmpfs), what they name is not.
pub(super) fn is_tmpfs(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file()) && magic_of(file) == Some(TMPFS_MAGIC)
}

/// Whether it is on a file system that this kernel keeps on a device.
fn is_on_disk(file: &File) -> bool {
    magic_of(file).is_some_and(|magic| ON_DISK_MAGICS.contains(&magic))
}

/// The magic number of the file system it is in.
fn magic_of(file: &File) -> Option<i64> {
    // SAFETY: all-zero is a valid `statfs`, which the call fills.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the pointer is to a local.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut stat) };
    #[allow(clippy::unnecessary_cast, reason = "the type differs between targets")]
    let magic = stat.f_type as i64;
    (result == 0).then_some(magic)
}

/// The size in bytes of a regular file or block device; a device's end is where seeking to the end leads.
pub(crate) fn size_of(file: &File) -> std::io::Result<u64> {
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

/// The size in sectors of a file or block device that is to become a member.
pub fn member_file_sectors(path: &Path) -> Result<u64, HostError> {
    let problem = |e: std::io::Error| MemberProblem::from_io(&e, 0).at(path);
    if !is_storage(&std::fs::metadata(path).map_err(problem)?) {
        return Err(MemberProblem::WrongKind.at(path));
    }
    let bytes = File::open(path).and_then(|f| size_of(&f)).map_err(problem)?;
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(MemberProblem::NotSectors { bytes }.at(path));
    }
    Ok(bytes / SECTOR_BYTES)
}

/// How a new member file gets its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Without room of its own: blocks are allotted when written.
    Sparse,
    /// With room reserved and zeroes written, so that later writes find their blocks.
    Written,
}

/// Creates a member file of that many sectors. An existing file is refused, and a file that could not be
/// completed is removed again.
///
/// # Errors
/// The file cannot be made, or there is no room for it; a file that is longer than the file system's may be is no room, too.
pub fn create_member_file(path: &Path, sectors: u64, fill: Fill) -> Result<(), HostError> {
    let bytes = sectors.saturating_mul(SECTOR_BYTES);
    let problem = |e: std::io::Error| MemberProblem::from_io(&e, bytes).at(path);
    let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(problem)?;
    let result = match fill {
        Fill::Sparse => file.set_len(bytes),
        Fill::Written => write_zeroes(&file, bytes),
    };
    result.map_err(|e| {
        let _already_failing = std::fs::remove_file(path);
        problem(e)
    })
}

fn write_zeroes(file: &File, bytes: u64) -> std::io::Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    // Room is reserved first: running out after minutes of writing is found out in the first moment.
    // SAFETY: the descriptor is open; no pointers are passed.
    let result = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) };
    match result {
        0 | libc::EOPNOTSUPP | libc::ENOSYS => {}
        // A length past what the system counts to.
        libc::EINVAL if bytes > 0 => return Err(std::io::Error::from_raw_os_error(libc::EFBIG)),
        libc::EINVAL => {}
        errno => return Err(std::io::Error::from_raw_os_error(errno)),
    }
    let zeroes = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let piece = (bytes - offset).min(PIECE_BYTES as u64);
        file.write_all_at(&zeroes[..piece as usize], offset)?;
        offset += piece;
    }
    file.sync_data()
}
