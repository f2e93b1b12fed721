//! The bad-block log of a version-1 member: 64-bit little-endian entries, the start above ten bits of length, both
//! in blocks of `1 << bblog_shift` sectors. An entry of all ones ends the log.

use crate::bytes::u64_at;
use crate::error::{FieldError, structure_error};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 8;
/// The most sectors of an entry that the kernel writes (`BB_MAX_LEN`).
pub const LENGTH_MAX: u64 = 512;
/// The bytes of the largest log (`bblog_size` of 8 sectors).
pub const LOG_BYTES_MAX: usize = 4096;

const LENGTH_BITS: u32 = 10;
const END: u64 = u64::MAX;

structure_error! {
    /// Why a bad-block log is refused.
    BadBlocksError, "bad-block log",
    /// More ranges than there is room for.
    Full { ranges: usize, room: usize } => "{ranges} ranges do not fit the {room} entries there is room for"
}

/// Sectors of a member that do not hold their content, counted from the start of the device (`data_offset` is
/// included, as the kernel's `rdev_set_badblocks` has it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BadRange {
    /// The first sector.
    pub start_sector: u64,
    /// How many.
    pub length_sectors: u64,
}

impl BadRange {
    /// Whether one of so many sectors is in it.
    pub const fn overlaps(&self, start_sector: u64, sectors: u64) -> bool {
        self.start_sector < start_sector.saturating_add(sectors)
            && start_sector < self.start_sector.saturating_add(self.length_sectors)
    }
}

/// Reads the log's entries in the order in which they stand, up to the one that ends it.
pub fn parse(log: &[u8], shift: u8) -> Result<Vec<BadRange>, BadBlocksError> {
    if log.is_empty() || !log.len().is_multiple_of(512) {
        let needed_bytes = log.len().next_multiple_of(512).max(512);
        return Err(BadBlocksError::Truncated { found_bytes: log.len(), needed_bytes });
    }
    if log.len() > LOG_BYTES_MAX {
        return Err(FieldError::new("bblog_size", log.len() / 512, "it is at most 8 sectors").into());
    }
    let entries =
        log.chunks_exact(ENTRY_BYTES).map(|entry| u64_at(entry, 0)).take_while(|entry| *entry != END);
    entries.map(|entry| range(entry, shift)).collect()
}

fn range(entry: u64, shift: u8) -> Result<BadRange, BadBlocksError> {
    let (start, length) = (entry >> LENGTH_BITS, entry & ((1 << LENGTH_BITS) - 1));
    if length == 0 {
        return Err(FieldError::new("entry's length", 0, "it is at least 1 block").into());
    }
    let scale = |blocks: u64| 1_u64.checked_shl(u32::from(shift)).and_then(|unit| blocks.checked_mul(unit));
    match (scale(start), scale(length)) {
        (Some(start_sector), Some(length_sectors)) if start_sector.checked_add(length_sectors).is_some() => {
            Ok(BadRange { start_sector, length_sectors })
        }
        _ => Err(FieldError::new(
            "entry",
            format!("{entry:#x}"),
            format!("with bblog_shift {shift} it ends within 2^64 sectors"),
        )
        .into()),
    }
}

/// The bytes of a log of so many sectors. Ranges longer than an entry are split; ranges not aligned to blocks are
/// widened to them.
pub fn to_bytes(ranges: &[BadRange], shift: u8, log_sectors: u16) -> Result<Vec<u8>, BadBlocksError> {
    let mut entries = Vec::new();
    let room = usize::from(log_sectors) * 512 / ENTRY_BYTES;
    let full = |ranges| BadBlocksError::Full { ranges, room };
    for range in ranges {
        let end = range.start_sector.checked_add(range.length_sectors);
        let unit = 1_u64.checked_shl(u32::from(shift));
        let (Some(end), Some(unit)) = (end, unit) else {
            return Err(FieldError::new("range", range.start_sector, "it ends within 2^64 sectors").into());
        };
        let (mut block, end) = (range.start_sector / unit, end.div_ceil(unit));
        if end >= 1 << (64 - LENGTH_BITS) {
            return Err(
                FieldError::new("range", range.start_sector, "an entry has 54 bits for its start").into()
            );
        }
        while block < end {
            if entries.len() == room {
                return Err(full(ranges.len()));
            }
            let length = (end - block).min(LENGTH_MAX);
            entries.push(block << LENGTH_BITS | length);
            block += length;
        }
    }
    entries.resize(room, END);
    Ok(entries.iter().flat_map(|entry| entry.to_le_bytes()).collect())
}
