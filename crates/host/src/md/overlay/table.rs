//! The header and the table of members of an overlay's file.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::error::OverlayProblem;
use super::file::OverlayFile;
use super::region::{self, Region};

const MAGIC: [u8; 16] = *b"stripewise cow\r\n";
const VERSION: u32 = 1;
const RECORD_BYTES: usize = 4096;
const SUM_AT: usize = RECORD_BYTES - 4;
const PATH_AT: usize = 24;
const PATH_BYTES_MAX: usize = SUM_AT - PATH_AT;
/// Where regions begin: room for the header and as many members as fit before.
const REGIONS_AT: u64 = 2 << 20;
const ROWS_MAX: usize = REGIONS_AT as usize / RECORD_BYTES - 1;

type Record = [u8; RECORD_BYTES];

/// A member of the table.
#[derive(Debug)]
pub(super) struct Row {
    /// Canonical.
    pub(super) path: PathBuf,
    pub(super) size_bytes: u64,
    /// Of the member's first and last bytes, where superblocks lie, when it was added; 0 where nobody looked.
    pub(super) ends_sum: u32,
    start_bytes: u64,
    pub(super) region: Arc<Mutex<Region>>,
}

impl Row {
    fn new(path: PathBuf, size_bytes: u64, ends_sum: u32, start_bytes: u64) -> Self {
        let region = Arc::new(Mutex::new(Region::new(start_bytes, size_bytes)));
        Self { path, size_bytes, ends_sum, start_bytes, region }
    }

    fn end_bytes(&self) -> Option<u64> {
        self.start_bytes.checked_add(region::length(self.size_bytes)?)
    }

    fn to_record(&self) -> Record {
        let mut record = [0; RECORD_BYTES];
        let path = self.path.as_os_str().as_bytes();
        record[..8].copy_from_slice(&self.size_bytes.to_le_bytes());
        record[8..16].copy_from_slice(&self.start_bytes.to_le_bytes());
        record[16..20].copy_from_slice(&(path.len() as u32).to_le_bytes());
        record[20..24].copy_from_slice(&self.ends_sum.to_le_bytes());
        record[PATH_AT..PATH_AT + path.len()].copy_from_slice(path);
        seal(record)
    }

    fn from_record(record: &Record) -> Result<Self, String> {
        check_seal(record)?;
        let length = u32_at(record, 16) as usize;
        let path = record[PATH_AT..SUM_AT].get(..length).ok_or(format!("a path of {length} bytes"))?;
        let path = PathBuf::from(OsStr::from_bytes(path));
        Ok(Self::new(path, u64_at(record, 0), u32_at(record, 20), u64_at(record, 8)))
    }
}

fn header(rows: usize) -> Record {
    let mut record = [0; RECORD_BYTES];
    record[..16].copy_from_slice(&MAGIC);
    record[16..20].copy_from_slice(&VERSION.to_le_bytes());
    record[20..24].copy_from_slice(&(rows as u32).to_le_bytes());
    seal(record)
}

fn u32_at(record: &Record, at: usize) -> u32 {
    u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(record: &Record, at: usize) -> u64 {
    u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"))
}

fn seal(mut record: Record) -> Record {
    let sum = crc32c::crc32c(&record[..SUM_AT]);
    record[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    record
}

fn check_seal(record: &Record) -> Result<(), String> {
    let (found, right) = (u32_at(record, SUM_AT), crc32c::crc32c(&record[..SUM_AT]));
    if found == right { Ok(()) } else { Err(format!("its sum is {found:08x}; the bytes sum to {right:08x}")) }
}

/// Makes a file, empty or an overlay, an overlay without members.
pub(super) fn create(file: &OverlayFile) -> io::Result<()> {
    if file.metadata()?.len() < REGIONS_AT {
        file.set_len(REGIONS_AT)?;
    }
    file.write_all_at(&header(0), 0)?;
    file.sync()?;
    // No member is counted any more: what regions held can go.
    file.set_len(REGIONS_AT)?;
    file.sync()
}

pub(super) fn has_magic(file: &File) -> bool {
    let mut magic = [0; 16];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC
}

/// Reads the table; what regions hold is not looked at.
pub(super) fn read(file: &File) -> Result<Vec<Row>, OverlayProblem> {
    if !has_magic(file) {
        return Err(OverlayProblem::NotAnOverlay);
    }
    let damaged = |record: &str, why: String| OverlayProblem::Damaged { record: record.to_owned(), why };
    let length = file.metadata().map_err(|e| OverlayProblem::from_io(&e))?.len();
    if length < REGIONS_AT {
        return Err(damaged(
            "the file",
            format!("it has {length} bytes and at least {REGIONS_AT} when whole"),
        ));
    }
    let mut record = [0; RECORD_BYTES];
    file.read_exact_at(&mut record, 0).map_err(|e| OverlayProblem::from_io(&e))?;
    let found = u32_at(&record, 16);
    if found != VERSION {
        return Err(OverlayProblem::Version { found, known: VERSION });
    }
    check_seal(&record).map_err(|why| damaged("the header", why))?;
    let count = u32_at(&record, 20) as usize;
    if count > ROWS_MAX {
        return Err(damaged("the header", format!("{count} members, more than the {ROWS_MAX} that fit")));
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut expected = REGIONS_AT;
    for index in 0..count {
        let name = format!("member {index}");
        let at = (index as u64 + 1) * RECORD_BYTES as u64;
        file.read_exact_at(&mut record, at).map_err(|e| OverlayProblem::from_io(&e))?;
        let row = Row::from_record(&record).map_err(|why| damaged(&name, why))?;
        let end = row.end_bytes().filter(|end| row.start_bytes == expected && *end <= length);
        expected = end.ok_or_else(|| damaged(&name, "its region does not lie within the file".to_owned()))?;
        rows.push(row);
    }
    Ok(rows)
}

/// Adds a member after those that are there. The header that counts it is written last.
pub(super) fn add(
    file: &OverlayFile,
    rows: &[Row],
    path: PathBuf,
    (size_bytes, ends_sum): (u64, u32),
) -> Result<Row, OverlayProblem> {
    if rows.len() >= ROWS_MAX {
        return Err(OverlayProblem::Full { most: ROWS_MAX });
    }
    let bytes = path.as_os_str().len();
    if bytes > PATH_BYTES_MAX {
        return Err(OverlayProblem::LongPath { bytes, most: PATH_BYTES_MAX });
    }
    let start_bytes = rows.last().and_then(Row::end_bytes).unwrap_or(REGIONS_AT);
    let row = Row::new(path, size_bytes, ends_sum, start_bytes);
    let end = row.end_bytes().ok_or(OverlayProblem::System { errno: libc::EFBIG })?;
    let record_at = (rows.len() as u64 + 1) * RECORD_BYTES as u64;
    let write = || {
        // What a crash left behind the last member is cut off first, so that no bit of it counts.
        file.set_len(start_bytes)?;
        file.set_len(end)?;
        file.write_all_at(&row.to_record(), record_at)?;
        file.sync()?;
        file.write_all_at(&header(rows.len() + 1), 0)?;
        file.sync()
    };
    write().map_err(|e: io::Error| OverlayProblem::from_io(&e))?;
    Ok(row)
}

/// Tells a member that was written to from the one that it was: a sum over its first bytes and its last, which have the superblock
/// of every version. It is never 0.
pub(super) fn ends_sum(base: &File, size_bytes: u64) -> io::Result<u32> {
    const FIRST_BYTES: u64 = 16 << 10;
    const LAST_BYTES: u64 = 144 << 10;
    let mut sum = 0;
    let last = size_bytes.saturating_sub(LAST_BYTES).max(FIRST_BYTES.min(size_bytes));
    for (start, end) in [(0, FIRST_BYTES.min(size_bytes)), (last, size_bytes)] {
        let mut bytes = vec![0; (end - start) as usize];
        base.read_exact_at(&mut bytes, start)?;
        sum = crc32c::crc32c_append(sum, &bytes);
    }
    Ok(sum.max(1))
}
