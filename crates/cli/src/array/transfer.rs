//! `stripewise read` and `stripewise write`: array bytes to and from pipes and files.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow};
use clap::Args;
use stripewise_engine::geometry::Geometry;
use stripewise_engine::units::Slot;
use stripewise_host::md::assemble::Assembled;
use stripewise_host::md::paths::is_same;
use stripewise_host::{Array, HostError};

use super::bytes::parse_bytes;
use super::select::{SelectArgs, Use, impossible, tell};
use super::signals::{byte_bar, stop_flag};
use super::stream::{Reading, Source, Trouble, Writing};
use crate::exit::{Exit, cannot_open};
use crate::output::unwritten;

const SECTOR_BYTES: u64 = 512;

/// `stripewise read`.
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    range: RangeArgs,
    /// Output file [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// `stripewise write`.
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    range: RangeArgs,
    /// Input file [default: standard input].
    #[arg(long, short, value_name = "FILE")]
    input: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct RangeArgs {
    /// First byte of the array, in bytes or with a suffix K, M, G, T or P (powers of 1024).
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_bytes)]
    offset: u64,
    /// Number of bytes, with the same suffixes [default: to the end of the array or of the input].
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    length: Option<u64>,
}

impl RangeArgs {
    /// The bytes of an array of that many.
    fn within(&self, array_bytes: u64) -> Result<Range<u64>> {
        let end = self.length.map_or(Some(array_bytes), |length| self.offset.checked_add(length));
        match end {
            Some(end) if end <= array_bytes && self.offset <= end => Ok(self.offset..end),
            _ => {
                let length = self.length.map_or_else(String::new, |length| format!(" --length {length}"));
                Err(impossible(format!(
                    "--offset {}{length}: is not within the array's {array_bytes} bytes",
                    self.offset
                )))
            }
        }
    }
}

pub(crate) fn read(args: &ReadArgs) -> Result<Exit> {
    let mut assembled = args.select.assemble(Use::Read)?;
    tell(&assembled);
    let stop = stop_flag()?;
    let range = args.range.within(array_bytes(&assembled)?)?;
    let mut array = args.select.open(&mut assembled, Use::Read, |config| config.stop = Arc::clone(&stop))?;
    let place = args.output.as_ref().map_or("standard output".to_owned(), |path| path.display().to_string());
    let to: Box<dyn Write + Send> = if let Some(path) = &args.output {
        refuse_member(path, &format!("--output {}", path.display()), &assembled, &args.select)?;
        Box::new(File::create(path).map_err(|error| cannot_open(path, error))?)
    } else {
        refuse_member(Path::new("/dev/stdout"), "standard output", &assembled, &args.select)?;
        Box::new(io::stdout())
    };
    let failed_before = array.failed_slots();
    let reading = Reading::new(range.clone(), to, byte_bar(Some(range.end - range.start)));
    let (_, readings) = array.run_with_payload(vec![reading])?;
    for reading in readings {
        reading.finish(&stop).map_err(|trouble| explain(trouble, "read", &place))?;
    }
    tell_of_failed(&array, &failed_before, &assembled);
    Ok(if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { Exit::Done })
}

/// What is read to, or written from, must not be what the array is made of.
fn refuse_member(path: &Path, what: &str, assembled: &Assembled, select: &SelectArgs) -> Result<()> {
    let mut taken = assembled.found.paths.iter().chain(&select.members).chain(&select.overlay);
    if taken.any(|other| is_same(path, other)) {
        return Err(impossible(format!(
            "{what}: is a member of the array or its overlay; name another file"
        )));
    }
    Ok(())
}

fn array_bytes(assembled: &Assembled) -> Result<u64> {
    let geometry = Geometry::new(&assembled.assembly.geometry).map_err(HostError::Geometry)?;
    Ok(geometry.array_sectors() * SECTOR_BYTES)
}

fn explain(trouble: Trouble, verb: &str, place: &str) -> anyhow::Error {
    match trouble {
        Trouble::Array { offset, error } => anyhow!("cannot {verb} the array at byte {offset}: {error}"),
        Trouble::Pipe(error) => unwritten(error, place),
    }
}

pub(crate) fn write(args: &WriteArgs) -> Result<Exit> {
    if args.select.readonly {
        return Err(impossible("--readonly writes nothing; leave it out, or send writes to an --overlay"));
    }
    let (from, input_bytes) = input(args)?;
    let mut assembled = args.select.assemble(Use::Write)?;
    tell(&assembled);
    match &args.input {
        Some(path) => refuse_member(path, &format!("--input {}", path.display()), &assembled, &args.select)?,
        None => refuse_member(Path::new("/dev/stdin"), "standard input", &assembled, &args.select)?,
    }
    let stop = stop_flag()?;
    let range = args.range.within(array_bytes(&assembled)?)?;
    let room = range.end - range.start;
    if args.range.length.is_none() && input_bytes.is_some_and(|bytes| bytes > room) {
        return Err(impossible(format!(
            "the input has {} bytes, but the array only {room} from --offset on; give a --length to write a part",
            input_bytes.unwrap_or(0)
        )));
    }
    if args.range.length.is_some() && input_bytes.is_some_and(|bytes| bytes < room) {
        return Err(impossible(format!(
            "the input has {} bytes, fewer than --length {room}; leave --length out to write what there is",
            input_bytes.unwrap_or(0)
        )));
    }
    let mut array = args.select.open(&mut assembled, Use::Write, |config| config.stop = Arc::clone(&stop))?;
    let failed_before = array.failed_slots();
    let total = input_bytes.map_or(args.range.length, |bytes| Some(bytes.min(room)));
    let written =
        write_range(&mut array, &range, Source::new(from), &stop, total, args.range.length.is_none());
    // What was written before something went wrong is left clean as well; the first trouble is the one to tell.
    let closed = array.close();
    let has_lost = tell_of_failed(&array, &failed_before, &assembled);
    written?;
    closed?;
    Ok(match (stop.load(Ordering::Relaxed), has_lost) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Failed,
        (false, false) => Exit::Done,
    })
}

/// Says which members failed meanwhile. Answers whether any did.
fn tell_of_failed(array: &Array, before: &[Slot], assembled: &Assembled) -> bool {
    let slots = &assembled.assembly.slots;
    let failed: Vec<Slot> = array.failed_slots().into_iter().filter(|slot| !before.contains(slot)).collect();
    for slot in &failed {
        let path =
            slots[slot.index()].candidate().map(|candidate| assembled.found.paths[candidate].display());
        let path = path.map_or_else(|| format!("the member of slot {slot}"), |path| path.to_string());
        say!("stripewise: {path} failed and is out of use: the array is degraded");
    }
    !failed.is_empty()
}

/// The input, and its length if it is a regular file.
fn input(args: &WriteArgs) -> Result<(Box<dyn Read + Send>, Option<u64>)> {
    let Some(path) = &args.input else { return Ok((Box::new(io::stdin()), None)) };
    let file = File::open(path).map_err(|error| cannot_open(path, error))?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(cannot_open(path, ErrorKind::IsADirectory.into()));
    }
    let length = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(file), length))
}

/// Writes the source's bytes to a range: the sectors at its ends, which it covers in part, are read first.
fn write_range(
    array: &mut Array,
    range: &Range<u64>,
    mut source: Source,
    stop: &Arc<AtomicBool>,
    total: Option<u64>,
    must_end: bool,
) -> Result<()> {
    let into_sector = range.start % SECTOR_BYTES;
    let mut start = range.start;
    if into_sector != 0 {
        let length = (SECTOR_BYTES - into_sector).min(range.end - start);
        let bytes = source.take(length as usize, stop)?;
        patch(array, start, &bytes)?;
        if bytes.len() < length as usize || start + length == range.end {
            return end(array, source, stop, range, start + bytes.len() as u64, must_end);
        }
        start += length;
    }
    let writing = Writing::new(start..range.end, source, Arc::clone(stop), byte_bar(total));
    let (_, writings) = array.run_with_payload(vec![writing])?;
    for writing in writings {
        let rest = writing.finish().map_err(|trouble| explain(trouble, "write", "the input"))?;
        let mut source = rest.source;
        let mut bytes = rest.bytes;
        let missing = (range.end - rest.offset - bytes.len() as u64).min(SECTOR_BYTES);
        if (bytes.len() as u64) < SECTOR_BYTES && missing > 0 {
            bytes.extend(source.take(missing as usize, stop)?);
        }
        if !stop.load(Ordering::Relaxed) {
            patch(array, rest.offset, &bytes)?;
        }
        end(array, source, stop, range, rest.offset + bytes.len() as u64, must_end)?;
    }
    Ok(())
}

/// Makes what was written last, and sees that nothing is left over, or that as much came as was asked for.
fn end(
    array: &mut Array,
    mut source: Source,
    stop: &AtomicBool,
    range: &Range<u64>,
    reached: u64,
    must_end: bool,
) -> Result<()> {
    array.flush()?;
    if stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    if must_end && reached == range.end && !source.take(1, stop)?.is_empty() {
        return Err(anyhow!("the array is full and the input is longer; the part that fits is written"));
    }
    if !must_end && reached < range.end {
        return Err(anyhow!(
            "the input ended after {} of the {} bytes of --length; these bytes are written",
            reached - range.start,
            range.end - range.start
        ));
    }
    Ok(())
}

/// Writes bytes within one sector.
fn patch(array: &mut Array, offset: u64, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut sector = [0; SECTOR_BYTES as usize];
    let skip = (offset % SECTOR_BYTES) as usize;
    array.read_at(offset / SECTOR_BYTES, &mut sector)?;
    sector[skip..skip + bytes.len()].copy_from_slice(bytes);
    array.write_at(offset / SECTOR_BYTES, &sector)?;
    Ok(())
}
