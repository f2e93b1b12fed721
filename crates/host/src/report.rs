//! What a run tells its caller.

use std::fmt;
use std::path::PathBuf;

use stripewise_engine::io::{ArrayEvent, IoError, IoResult};
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

/// An event and when it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedEvent {
    /// Nanoseconds since the array was opened.
    pub at: Instant,
    /// What happened.
    pub event: ArrayEvent,
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
