//! What is wrong with a trace, and where.

use std::fmt;
use std::io;

use stripewise_host::is_of_path;

use super::{COLUMNS, MAGIC, VERSION};

/// A trace that cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The file.
    pub file: String,
    /// Line from 1, where the fault has one.
    pub line: Option<u64>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It cannot be made or opened at this path.
    Path(String),
    /// The system cannot read or write it.
    System(String),
    /// The first line is none of a trace.
    NoTrace,
    /// Another version of the format.
    Version(String),
    /// One of the lines at the head is not as it must be.
    Head(&'static str),
    /// A field of a record.
    Field {
        /// The column.
        column: &'static str,
        /// What stands there.
        found: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// Too few or too many fields.
    Columns(usize),
    /// A record reaches beyond the device.
    Beyond {
        /// One past its last byte.
        end: u64,
        /// Bytes of the device.
        device: u64,
    },
    /// The end line is missing.
    CutShort {
        /// Whole records before the cut.
        records: u64,
    },
    /// The trace ends within its head.
    HeadCut,
    /// The end line counts other than the records there are.
    Count {
        /// What it says.
        said: u64,
        /// What there is.
        records: u64,
    },
    /// Something follows the end line.
    AfterEnd,
    /// There is a file of this name that is no trace.
    Exists,
    /// Another recording writes it.
    Recording,
}

impl Problem {
    /// A file could not be made or opened.
    pub(super) fn opening(what: &str, error: &io::Error) -> Self {
        let said = format!("cannot {what}: {error}");
        if is_of_path(error) { Self::Path(format!("{said}; correct the path")) } else { Self::System(said) }
    }

    pub(super) fn at(self, file: &str, line: u64) -> TraceError {
        TraceError { file: file.to_owned(), line: Some(line), problem: self }
    }

    pub(super) fn of(self, file: &str) -> TraceError {
        TraceError { file: file.to_owned(), line: None, problem: self }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.problem),
            None => write!(f, "{}: {}", self.file, self.problem),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(error) | Self::System(error) => f.write_str(error),
            Self::NoTrace => write!(f, "this is not a trace: the first line must be '{MAGIC} {VERSION}'"),
            Self::Version(found) => {
                write!(f, "a trace of version {found}; this program reads version {VERSION}")
            }
            Self::Head(wanted) => write!(f, "the line must be '{wanted}'"),
            Self::Field { column, found, wanted } => write!(f, "{column} is '{found}'; it must be {wanted}"),
            Self::Columns(found) => write!(f, "a record has {found} fields; it must have: {COLUMNS}"),
            Self::Beyond { end, device } => {
                write!(f, "the request ends at byte {end}, beyond the device of {device} bytes")
            }
            Self::CutShort { records } => write!(
                f,
                "the trace is cut short after record {records}: its end line is missing, because the recording was \
                 killed or its disk was full; `trace show` and `trace replay` take what there is with --partial"
            ),
            Self::HeadCut => f.write_str(
                "the trace is cut short within its head of three lines, before any record; record it again",
            ),
            Self::Count { said, records } => {
                let wrong = if said > records { "some are missing" } else { "some were added" };
                write!(f, "the end line counts {said} records, but there are {records}; {wrong}")
            }
            Self::AfterEnd => f.write_str("there is text after the end line; a trace ends with that line"),
            Self::Exists => f.write_str("the file exists and is not a trace; name another, or remove it"),
            Self::Recording => f.write_str(
                "another recording is writing this trace; name another file, or stop that one first",
            ),
        }
    }
}

impl std::error::Error for TraceError {}
