//! Requests judged: what is to be done, or why it is not.

use stripewise_engine::io::{Flags, IoError, Op};
use stripewise_engine::units::{SECTOR_BYTES, SectorRange};

use super::export::{Export, REQUEST_BYTES_MAX};
use super::handshake::Agreed;
use super::wire::{Errno, RawRequest, command, command_flag as flag};

/// A request that can be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// The engine's.
    Array {
        /// What to do.
        op: Op,
        /// Where.
        range: SectorRange,
        /// Whether it is durable before it is answered.
        fua: bool,
    },
    /// Tell what a range holds.
    BlockStatus {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u32,
        /// One extent is enough.
        one: bool,
    },
    /// End the connection after what is in flight.
    Disconnect,
}

/// Judges a request.
///
/// # Errors
/// What the client is told. The payload of a write follows in any case.
pub(crate) fn judge(raw: &RawRequest, export: &Export, agreed: Agreed) -> Result<Task, Errno> {
    let allowed = match raw.command {
        command::READ if agreed.structured => flag::DF,
        command::WRITE | command::TRIM => flag::FUA,
        command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE | flag::FAST_ZERO,
        command::BLOCK_STATUS => flag::REQ_ONE,
        _ => 0,
    };
    // Clients may set FUA on anything once it is offered; it means nothing to what does not write.
    if raw.flags & !(allowed | flag::FUA) != 0 {
        return Err(Errno::Invalid);
    }
    let fua = raw.flags & flag::FUA != 0;
    match raw.command {
        command::READ => {
            let range = sectors(raw, export, Errno::Invalid)?;
            limit(raw)?;
            Ok(Task::Array { op: Op::Read, range, fua: false })
        }
        command::WRITE => {
            writable(export)?;
            limit(raw)?;
            Ok(Task::Array { op: Op::Write, range: sectors(raw, export, Errno::NoSpace)?, fua })
        }
        command::TRIM => {
            writable(export)?;
            Ok(Task::Array { op: Op::Discard, range: sectors(raw, export, Errno::Invalid)?, fua })
        }
        command::WRITE_ZEROES => {
            writable(export)?;
            let range = sectors(raw, export, Errno::NoSpace)?;
            if raw.flags & flag::FAST_ZERO != 0 && !export.fast_zero {
                return Err(Errno::NotSupported);
            }
            Ok(Task::Array { op: Op::WriteZeroes, range, fua })
        }
        command::FLUSH if raw.offset == 0 && raw.length == 0 => {
            Ok(Task::Array { op: Op::Flush, range: SectorRange::new(0, 0), fua: false })
        }
        command::BLOCK_STATUS if agreed.block_status => {
            sectors(raw, export, Errno::Invalid)?;
            let one = raw.flags & flag::REQ_ONE != 0;
            Ok(Task::BlockStatus { offset: raw.offset, bytes: raw.length, one })
        }
        command::DISC => Ok(Task::Disconnect),
        _ => Err(Errno::Invalid),
    }
}

fn writable(export: &Export) -> Result<(), Errno> {
    if export.read_only { Err(Errno::Perm) } else { Ok(()) }
}

fn limit(raw: &RawRequest) -> Result<(), Errno> {
    if raw.length > REQUEST_BYTES_MAX { Err(Errno::Overflow) } else { Ok(()) }
}

/// The request's sectors, which are whole, at least one, and within the export.
fn sectors(raw: &RawRequest, export: &Export, beyond: Errno) -> Result<SectorRange, Errno> {
    let bytes = u64::from(raw.length);
    if bytes == 0 || !(raw.offset | bytes).is_multiple_of(SECTOR_BYTES) {
        return Err(Errno::Invalid);
    }
    match raw.offset.checked_add(bytes) {
        Some(end) if end <= export.bytes => {
            Ok(SectorRange::new(raw.offset / SECTOR_BYTES, bytes / SECTOR_BYTES))
        }
        _ => Err(beyond),
    }
}

/// What a client is told of the engine's error.
pub(crate) fn errno_of(error: IoError) -> Errno {
    match error {
        // Nothing that an export announces as read-only comes this far: an array that takes no more writes is no fault of the client.
        IoError::Media | IoError::Gone | IoError::Lost | IoError::ReadOnly => Errno::Io,
        IoError::NoSpace => Errno::NoSpace,
        IoError::Range => Errno::Invalid,
    }
}

/// The engine's flags of a task of the client at this place. A client's only request in flight is one it waits for.
pub(crate) fn engine_flags(fua: bool, is_alone: bool, export: &Export, client: usize) -> Flags {
    let sync = fua || is_alone;
    Flags { fua, sync, buffered: export.buffered, stream: stream_of(client), ..Flags::default() }
}

/// Each client is an open file to the page cache; the first is the server's own, for its last flush.
pub(crate) fn stream_of(client: usize) -> u16 {
    client as u16 + 1
}
