//! What a run tells its caller.

use std::fmt;
use std::path::PathBuf;

use stripewise_engine::io::{Area, ArrayEvent, IoError, IoResult, MemberIo, Op};
use stripewise_engine::units::{Instant, Nanos};

/// What was asked of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounts {
    /// Reads.
    pub reads: u64,
    /// Sectors read.
    pub read_sectors: u64,
    /// Writes.
    pub writes: u64,
    /// Sectors written.
    pub write_sectors: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards and writes of zeroes.
    pub discards: u64,
    /// Sectors discarded or zeroed.
    pub discard_sectors: u64,
    /// I/Os of any kind that failed.
    pub errors: u64,
    /// What the first of them failed with.
    pub first_error: Option<IoError>,
}

impl MemberCounts {
    /// Counts an I/O that ended with an error.
    pub(crate) fn end(&mut self, result: IoResult) {
        if let Err(error) = result {
            self.errors += 1;
            self.first_error = self.first_error.or(Some(error));
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.read_sectors += other.read_sectors;
        self.writes += other.writes;
        self.write_sectors += other.write_sectors;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.discard_sectors += other.discard_sectors;
        self.errors += other.errors;
        self.first_error = self.first_error.or(other.first_error);
    }
}

/// What a member did not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberError {
    /// What it was asked for.
    pub op: Op,
    /// Its first sector, from the start of the device; none of a flush, which concerns all.
    pub sector: Option<u64>,
    /// What it answered.
    pub error: IoError,
}

impl MemberError {
    /// Of an I/O to a member whose data begin at this sector of the device.
    pub(crate) fn of(io: &MemberIo, data_sector: u64, error: IoError) -> Self {
        let before = if io.area == Area::Data { data_sector } else { 0 };
        let sector = (io.op != Op::Flush).then(|| before + io.range.start);
        Self { op: io.op, sector, error }
    }
}

impl fmt::Display for MemberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "write of zeroes",
        })?;
        if let Some(sector) = self.sector {
            write!(f, " at sector {sector}")?;
        }
        f.write_str(": ")?;
        f.write_str(match self.error {
            IoError::Media => "input/output error",
            IoError::Gone => "it does not answer, or was cut short",
            IoError::NoSpace => "no space left on the member's storage",
            IoError::Range => "invalid argument",
            IoError::ReadOnly => "it may not be written to",
            IoError::Lost => "the bytes are lost",
        })
    }
}

/// An event and when it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedEvent {
    /// Nanoseconds since the array was opened.
    pub at: Instant,
    /// What happened.
    pub event: ArrayEvent,
    /// The member's error for which it happened; none where it was no error, or not one alone.
    pub cause: Option<MemberError>,
}

/// Something done otherwise than asked, which the caller should state beside its results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The member's file system has no `O_DIRECT`; its I/O goes through the page cache.
    Buffered {
        /// The member.
        path: PathBuf,
    },
    /// `O_DIRECT` needs larger blocks than a sector; smaller I/O goes through the page cache.
    PartlyBuffered {
        /// The member.
        path: PathBuf,
        /// Bytes that `O_DIRECT` needs I/O to be a multiple of.
        align_bytes: u32,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffered { path } => write!(
                f,
                "{}: the file system has no O_DIRECT; I/O goes through the page cache",
                path.display()
            ),
            Self::PartlyBuffered { path, align_bytes } => write!(
                f,
                "{}: O_DIRECT needs multiples of {align_bytes} bytes; smaller I/O goes through the page cache",
                path.display()
            ),
        }
    }
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunReport {
    /// What was asked of each member, by slot.
    pub members: Vec<MemberCounts>,
    /// Events, oldest first.
    pub events: Vec<TimedEvent>,
    /// What was done otherwise than asked.
    pub notes: Vec<Note>,
    /// Wall time of the run.
    pub elapsed: Nanos,
    /// Whether the stop flag ended it.
    pub stopped: bool,
}

#[cfg(test)]
mod tests {
    use stripewise_engine::io::{SegList, Tag};
    use stripewise_engine::units::{MemberIndex, SectorRange};

    use super::*;

    #[test]
    fn an_error_of_a_member_is_said_with_the_devices_sector() {
        let of = |op, area, error| {
            let range = if op == Op::Flush { SectorRange::new(0, 0) } else { SectorRange::new(8, 8) };
            let (tag, member) = (Tag(0), MemberIndex(0));
            let io = MemberIo { tag, member, area, op, range, fua: false, segs: SegList::default() };
            MemberError::of(&io, 2048, error).to_string()
        };
        for (op, area, error, words) in [
            (Op::Read, Area::Data, IoError::Media, "read at sector 2056: input/output error"),
            (
                Op::Write,
                Area::Device,
                IoError::NoSpace,
                "write at sector 8: no space left on the member's storage",
            ),
            (Op::Flush, Area::Data, IoError::Media, "flush: input/output error"),
            (
                Op::WriteZeroes,
                Area::Data,
                IoError::Gone,
                "write of zeroes at sector 2056: it does not answer, or was cut short",
            ),
        ] {
            assert_eq!(of(op, area, error), words);
        }
    }
}
