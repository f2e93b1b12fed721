//! Reading a trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use stripewise_engine::units::SECTOR_BYTES;

use super::{COLUMNS, MAGIC, OPS, Problem, REQUEST_BYTES_MAX, Record, Trace, TraceError, VERSION, letter};
use stripewise_engine::io::Op;

/// The longest line, end included: seven numbers of 20 digits fit.
const LINE_BYTES_MAX: u64 = 200;

/// Whether a trace must have its end line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// Without it the trace is refused.
    Required,
    /// Without it the whole lines are taken.
    NotRequired,
}

pub(super) fn read(path: &Path, whole: Whole) -> Result<Trace, TraceError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|e| Problem::opening("open it", &e).of(&name))?;
    parse(&name, BufReader::with_capacity(1 << 16, file), whole)
}

/// Reads the lines of a trace.
pub(super) fn parse(file: &str, from: impl BufRead, whole: Whole) -> Result<Trace, TraceError> {
    let mut lines = Lines { file, from, text: Vec::new(), line: 0, hash: blake3::Hasher::new() };
    let device_bytes = lines.head()?;
    let mut records = Vec::new();
    let is_cut_short = loop {
        let at = lines.line + 1;
        let Some(text) = lines.next()? else { break true };
        if let Some(said) = text.strip_prefix("end ") {
            let said = number(said, "the count after end").map_err(|p| p.at(file, at))?;
            let found = records.len() as u64;
            if said != found {
                return Err(Problem::Count { said, records: found }.at(file, at));
            }
            break false;
        }
        records.push(record(text, device_bytes).map_err(|p| p.at(file, at))?);
    };
    if is_cut_short && whole == Whole::Required {
        let cut = Problem::CutShort { records: records.len() as u64 };
        return Err(cut.at(file, lines.line + 1));
    }
    if !is_cut_short && !lines.is_over()? {
        return Err(Problem::AfterEnd.at(file, lines.line + 1));
    }
    records.sort_by_key(|r| r.time_ns);
    let hash = lines.hash.finalize().to_hex()[..16].to_owned();
    Ok(Trace { file: file.to_owned(), device_bytes, records, is_cut_short, hash })
}

/// The whole lines of a file.
struct Lines<'a, R> {
    file: &'a str,
    from: R,
    text: Vec<u8>,
    /// The line read last, from 1.
    line: u64,
    hash: blake3::Hasher,
}

impl<R: BufRead> Lines<'_, R> {
    /// The next line, which may end as those of other systems, by CR LF; nothing where the file ends, in the middle of a line
    /// or not.
    fn next(&mut self) -> Result<Option<&str>, TraceError> {
        self.text.clear();
        let read = self.from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.text);
        let read = read.map_err(|e| Problem::opening("read it", &e).of(self.file))?;
        self.hash.update(&self.text);
        let Some(text) = self.text.strip_suffix(b"\n") else {
            return if read as u64 == LINE_BYTES_MAX { Err(self.no_line()) } else { Ok(None) };
        };
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let Ok(text) = std::str::from_utf8(text) else { return Err(self.no_line()) };
        self.line += 1;
        Ok(Some(text))
    }

    /// A line that is none.
    fn no_line(&self) -> TraceError {
        match self.line {
            0 => Problem::NoTrace.at(self.file, 1),
            line => Problem::Columns(1).at(self.file, line + 1),
        }
    }

    /// Reads the head; answers the bytes of the device.
    fn head(&mut self) -> Result<u64, TraceError> {
        let file = self.file;
        let Some(first) = self.next()? else {
            let is_begun =
                !self.text.is_empty() && format!("{MAGIC} {VERSION}\r").as_bytes().starts_with(&self.text);
            return Err(if is_begun { Problem::HeadCut } else { Problem::NoTrace }.at(file, 1));
        };
        match first.strip_prefix(MAGIC).map(str::trim) {
            None => return Err(Problem::NoTrace.at(file, 1)),
            Some(version) if version != VERSION.to_string() => {
                return Err(Problem::Version(version.to_owned()).at(file, 1));
            }
            Some(_) => {}
        }
        let second = self.next()?.ok_or_else(|| Problem::HeadCut.at(file, 2))?;
        let bytes = second.strip_prefix("device_bytes ").and_then(|n| n.parse().ok());
        let bytes = bytes.ok_or_else(|| Problem::Head("device_bytes N").at(file, 2))?;
        match self.next()? {
            None => Err(Problem::HeadCut.at(file, 3)),
            Some(COLUMNS) => Ok(bytes),
            Some(_) => Err(Problem::Head(COLUMNS).at(file, 3)),
        }
    }

    fn is_over(&mut self) -> Result<bool, TraceError> {
        let rest = self.from.fill_buf();
        rest.map(<[u8]>::is_empty).map_err(|e| Problem::opening("read it", &e).of(self.file))
    }
}

fn field(column: &'static str, found: &str, wanted: &'static str) -> Problem {
    Problem::Field { column, found: found.to_owned(), wanted }
}

fn number(text: &str, column: &'static str) -> Result<u64, Problem> {
    text.parse().map_err(|_| field(column, text, "a whole number"))
}

/// Reads one record.
fn record(text: &str, device_bytes: u64) -> Result<Record, Problem> {
    let mut fields = text.split(' ');
    let [Some(time), Some(op), Some(offset), Some(bytes), Some(flags), Some(stream), Some(latency), None] =
        std::array::from_fn(|_| fields.next())
    else {
        return Err(Problem::Columns(text.split(' ').count()));
    };
    let op = *OPS
        .iter()
        .find(|o| op.chars().eq([letter(**o)]))
        .ok_or_else(|| field("op", op, "R (read), W (write), F (flush), D (discard) or Z (write zeroes)"))?;
    let (at, length) = (number(offset, "offset")?, number(bytes, "bytes")?);
    let moves = matches!(op, Op::Read | Op::Write);
    match length {
        _ if op == Op::Flush && (at, length) != (0, 0) => {
            return Err(field("offset", offset, "0, and bytes 0, for a flush"));
        }
        0 if op != Op::Flush => return Err(field("bytes", bytes, "at least 512")),
        _ if moves && length > REQUEST_BYTES_MAX => {
            return Err(field("bytes", bytes, "at most 67108864 for a read or write"));
        }
        _ => {}
    }
    for (column, found, value) in [("offset", offset, at), ("bytes", bytes, length)] {
        if !value.is_multiple_of(SECTOR_BYTES) {
            return Err(field(column, found, "a multiple of 512"));
        }
    }
    if at.checked_add(length).is_none_or(|end| end > device_bytes) {
        return Err(Problem::Beyond { end: at.saturating_add(length), device: device_bytes });
    }
    let flags_are_known = flags == "-" || !flags.is_empty() && flags.chars().all(|c| matches!(c, 'f' | 'e'));
    if !flags_are_known {
        return Err(field("flags", flags, "'-', or of f (forced unit access) and e (error)"));
    }
    let stream = number(stream, "stream")?;
    Ok(Record {
        time_ns: number(time, "time_ns")?,
        op,
        offset: at,
        bytes: length,
        fua: flags.contains('f'),
        failed: flags.contains('e'),
        stream: u32::try_from(stream).map_err(|_| field("stream", &stream.to_string(), "below 2^32"))?,
        latency_ns: number(latency, "latency_ns")?,
    })
}

/// A file's traces by path: when it was changed last, its length, and what was in it.
type Known = BTreeMap<PathBuf, (Option<SystemTime>, u64, Arc<Trace>)>;

static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());

pub(super) fn shared(path: &Path) -> Result<Arc<Trace>, TraceError> {
    let metadata = std::fs::metadata(path)
        .map_err(|e| Problem::opening("open it", &e).of(&path.display().to_string()))?;
    let (modified, length) = (metadata.modified().ok(), metadata.len());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, _, trace)) = known.get(path).filter(|(m, l, _)| (*m, *l) == (modified, length)) {
        return Ok(Arc::clone(trace));
    }
    let trace = Arc::new(read(path, Whole::Required)?);
    known.insert(path.to_owned(), (modified, length, Arc::clone(&trace)));
    Ok(trace)
}
