//! Requests of the kernel judged: what is to be done with the array, or what the answer is.
//!
//! There is one directory with one file, [`FILE_NAME`]. Nothing about them changes but the file's bytes, and its size when
//! the array is changed, which the kernel is told. So it may keep names and attributes for as long as it likes.

use stripewise_engine::io::Op;
use stripewise_engine::units::{SECTOR_BYTES, SectorRange};

use super::abi::{self, Body, FILE, Fields, InHeader, ROOT, WRITE_IN_BYTES, init, opcode};
use crate::nbd::{Export, REQUESTS_MAX, Task};

/// The file in the folder.
pub(crate) const FILE_NAME: &str = "disk";
/// The longest write, and the longest read, which the kernel bounds by pages (256 by default since Linux 4.20).
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Pages of 4 KiB of the longest transfer.
const PAGES_MAX: u16 = (TRANSFER_BYTES_MAX >> 12) as u16;
/// How long the kernel may keep what it was told: a year.
const VALID_SECONDS: u64 = 365 * 24 * 3600;
/// Bits of a mode that `chmod` sets.
const PERMISSIONS: u32 = 0o7777;
/// Block size of a folder without room.
const BLOCK_BYTES: u32 = 4096;

/// Whose the file is, and since when (seconds of the epoch).
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) since: u64,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is answered with these bytes.
    Answer(Vec<u8>),
    /// It is answered with an error.
    Refuse(i32),
    /// Nobody waits for an answer.
    Ignore,
    /// The array has to do it; of its range, these bytes are asked for.
    Carry { task: Task, offset: u64, bytes: u32 },
}

/// Judges a request by its header and what follows it; of a write, without the payload.
pub(super) fn judge(header: InHeader, arguments: &[u8], export: &Export, owner: Owner) -> Verdict {
    let fields = Fields(arguments);
    let done = |result: Result<Verdict, i32>| result.unwrap_or_else(Verdict::Refuse);
    match header.opcode {
        opcode::READ => done(read(header, fields, export)),
        opcode::WRITE => done(write(header, fields, export)),
        opcode::FSYNC if header.node == FILE && !export.read_only => {
            let task = Task::Array { op: Op::Flush, range: SectorRange::new(0, 0), fua: false };
            Verdict::Carry { task, offset: 0, bytes: 0 }
        }
        opcode::FALLOCATE => done(allocate(header, fields, export)),
        opcode::INIT => done(begin(fields)),
        opcode::LOOKUP => done(look_up(header, arguments, export, owner)),
        opcode::GETATTR => Verdict::Answer(attributes_answer(header.node, export, owner)),
        opcode::SETATTR => done(set_attributes(header, fields, export, owner)),
        opcode::OPEN => {
            let flags = abi::OPEN_DIRECT_IO | abi::OPEN_PARALLEL_WRITES;
            Verdict::Answer(Body::default().u64s(&[0]).u32s(&[flags, 0]).0)
        }
        opcode::OPENDIR => Verdict::Answer(Body::default().u64s(&[0, 0]).0),
        opcode::READDIR => Verdict::Answer(entries(fields.u64_at(8), fields.u32_at(16))),
        opcode::STATFS => Verdict::Answer(room()),
        opcode::FSYNC | opcode::FSYNCDIR | opcode::RELEASE | opcode::RELEASEDIR | opcode::DESTROY => {
            Verdict::Answer(Vec::new())
        }
        opcode::FORGET | opcode::BATCH_FORGET => Verdict::Ignore,
        opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::RENAME
        | opcode::RENAME2
        | opcode::LINK
        | opcode::CREATE
        | opcode::TMPFILE => Verdict::Refuse(libc::EPERM),
        // The kernel then does without, and of most kinds asks no more.
        _ => Verdict::Refuse(libc::ENOSYS),
    }
}

fn begin(fields: Fields<'_>) -> Result<Verdict, i32> {
    let (major, minor, readahead, offered) =
        (fields.u32_at(0), fields.u32_at(4), fields.u32_at(8), fields.u32_at(12));
    if major > abi::MAJOR {
        // It will ask again, for this one.
        return Ok(Verdict::Answer(Body::default().u32s(&[abi::MAJOR, abi::MINOR]).u64s(&[0; 7]).0));
    }
    if major < abi::MAJOR || minor < abi::MINOR_MIN || offered & init::MAX_PAGES == 0 {
        return Err(libc::EPROTO);
    }
    let wanted =
        init::ASYNC_READ | init::BIG_WRITES | init::ASYNC_DIO | init::PARALLEL_DIROPS | init::MAX_PAGES;
    let background = REQUESTS_MAX as u16;
    let body = Body::default()
        .u32s(&[abi::MAJOR, abi::MINOR, readahead, offered & wanted])
        .u16s(&[background, background / 4 * 3])
        // The longest write, and the grain of times in nanoseconds.
        .u32s(&[TRANSFER_BYTES_MAX, 1_000_000_000])
        .u16s(&[PAGES_MAX, 0])
        .u32s(&[0; 8]);
    Ok(Verdict::Answer(body.0))
}

/// A read may begin and end anywhere: the array reads the blocks that cover it.
fn read(header: InHeader, fields: Fields<'_>, export: &Export) -> Result<Verdict, i32> {
    let (offset, asked) = (fields.u64_at(8), fields.u32_at(16));
    if header.node != FILE || asked > TRANSFER_BYTES_MAX {
        return Err(libc::EINVAL);
    }
    let bytes = u64::from(asked).min(export.bytes.saturating_sub(offset));
    if bytes == 0 {
        return Ok(Verdict::Answer(Vec::new()));
    }
    let task = Task::Array { op: Op::Read, range: blocks_around(offset, bytes, export), fua: false };
    Ok(Verdict::Carry { task, offset, bytes: bytes as u32 })
}

/// A write may begin and end anywhere, as a read. Of one that goes beyond the end, the part before it is written.
fn write(header: InHeader, fields: Fields<'_>, export: &Export) -> Result<Verdict, i32> {
    let (offset, asked, open_flags) = (fields.u64_at(8), fields.u32_at(16), fields.u32_at(32));
    let payload = (header.bytes as usize).checked_sub(abi::IN_HEADER_BYTES + WRITE_IN_BYTES);
    if header.node != FILE || payload != Some(asked as usize) || asked == 0 {
        return Err(libc::EINVAL);
    }
    let bytes = writable(offset, u64::from(asked), export)?;
    let range = blocks_around(offset, bytes, export);
    let fua = open_flags & libc::O_DSYNC as u32 != 0;
    Ok(Verdict::Carry { task: Task::Array { op: Op::Write, range, fua }, offset, bytes: bytes as u32 })
}

/// A hole reads as zeroes, which a discard of the array does not promise: it is zeroed, where that is fast. Loop devices
/// discard by holes, of everything when a file system is made.
fn allocate(header: InHeader, fields: Fields<'_>, export: &Export) -> Result<Verdict, i32> {
    let (offset, bytes, mode) = (fields.u64_at(8), fields.u64_at(16), fields.u32_at(24) as i32);
    if header.node != FILE {
        return Err(libc::EINVAL);
    }
    let is_hole = mode == libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let is_zero = mode & !libc::FALLOC_FL_KEEP_SIZE == libc::FALLOC_FL_ZERO_RANGE;
    if !(is_zero || is_hole && export.fast_zero) {
        return Err(libc::EOPNOTSUPP);
    }
    let bytes = writable(offset, bytes, export)?;
    let range = blocks_around(offset, bytes, export);
    if range.count * SECTOR_BYTES != bytes {
        return Err(libc::EINVAL);
    }
    Ok(Verdict::Carry { task: Task::Array { op: Op::WriteZeroes, range, fua: false }, offset, bytes: 0 })
}

/// How many of the bytes are before the end, if they may be written.
fn writable(offset: u64, bytes: u64, export: &Export) -> Result<u64, i32> {
    if export.read_only {
        return Err(libc::EROFS);
    }
    if offset >= export.bytes {
        // As a disk says it.
        return Err(libc::ENOSPC);
    }
    Ok(bytes.min(export.bytes - offset))
}

/// The blocks that bytes before the end are in.
fn blocks_around(offset: u64, bytes: u64, export: &Export) -> SectorRange {
    let block = u64::from(export.min_bytes);
    let (start, end) = (offset / block * block, (offset + bytes).next_multiple_of(block).min(export.bytes));
    SectorRange::new(start / SECTOR_BYTES, (end - start) / SECTOR_BYTES)
}

fn look_up(header: InHeader, name: &[u8], export: &Export, owner: Owner) -> Result<Verdict, i32> {
    if header.node != ROOT || name.strip_suffix(b"\0") != Some(FILE_NAME.as_bytes()) {
        return Err(libc::ENOENT);
    }
    // Node, generation, how long the name and the attributes hold; and the parts of these below a second.
    let body = Body::default().u64s(&[FILE, 0, VALID_SECONDS, VALID_SECONDS]).u32s(&[0, 0]);
    Ok(Verdict::Answer(attributes(body, FILE, export, owner).0))
}

/// Nothing can be set, except to what it is; times are nobody's concern.
fn set_attributes(
    header: InHeader,
    fields: Fields<'_>,
    export: &Export,
    owner: Owner,
) -> Result<Verdict, i32> {
    let (valid, size) = (fields.u32_at(0), fields.u64_at(16));
    if valid & abi::SET_SIZE != 0 && size != export.bytes {
        return Err(libc::EINVAL);
    }
    let differs = |bit: u32, wanted: u32, is: u32| valid & bit != 0 && wanted != is;
    if differs(abi::SET_MODE, fields.u32_at(68) & PERMISSIONS, mode(header.node, export) & PERMISSIONS)
        || differs(abi::SET_UID, fields.u32_at(76), owner.uid)
        || differs(abi::SET_GID, fields.u32_at(80), owner.gid)
    {
        return Err(libc::EPERM);
    }
    Ok(Verdict::Answer(attributes_answer(header.node, export, owner)))
}

fn attributes_answer(node: u64, export: &Export, owner: Owner) -> Vec<u8> {
    let body = Body::default().u64s(&[VALID_SECONDS, 0]);
    attributes(body, node, export, owner).0
}

/// Appends `struct fuse_attr`.
fn attributes(body: Body, node: u64, export: &Export, owner: Owner) -> Body {
    let (bytes, links) = if node == ROOT { (0, 2) } else { (export.bytes, 1) };
    let since = owner.since;
    body.u64s(&[node, bytes, bytes / SECTOR_BYTES, since, since, since])
        // The three times' nanoseconds.
        .u32s(&[0, 0, 0, mode(node, export), links, owner.uid, owner.gid])
        // No device; the block size; no flags.
        .u32s(&[0, export.preferred_bytes, 0])
}

/// Kind and permissions.
fn mode(node: u64, export: &Export) -> u32 {
    match (node, export.read_only) {
        (ROOT, _) => libc::S_IFDIR | 0o555,
        (_, true) => libc::S_IFREG | 0o400,
        (_, false) => libc::S_IFREG | 0o600,
    }
}

fn entries(offset: u64, room_bytes: u32) -> Vec<u8> {
    let (folder, file) = (u32::from(libc::DT_DIR), u32::from(libc::DT_REG));
    let all: [(u64, u32, &[u8]); 3] =
        [(ROOT, folder, b"."), (ROOT, folder, b".."), (FILE, file, FILE_NAME.as_bytes())];
    let mut body = Body::default();
    for (place, (node, kind, name)) in all.into_iter().enumerate().skip(offset.min(3) as usize) {
        let kept = body.0.len();
        body = body.entry(node, place as u64 + 1, kind, name);
        if body.0.len() > room_bytes as usize {
            body.0.truncate(kept);
            break;
        }
    }
    body.0
}

/// `struct fuse_kstatfs`: without blocks, as of a file system that stores nothing itself. `df` leaves it out.
fn room() -> Vec<u8> {
    const NAME_BYTES_MAX: u32 = 255;
    Body::default().u64s(&[0, 0, 0, 1, 0]).u32s(&[BLOCK_BYTES, NAME_BYTES_MAX, BLOCK_BYTES]).u32s(&[0; 7]).0
}
