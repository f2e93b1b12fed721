//! The log on a write journal device (raid5-cache): what makes data and parity right after a crash, with a member missing or
//! not, and has writes that the members never got.
//!
//! Data and parity of a row go to the journal before they go to the members. In md's write-back mode the data alone go there
//! first, and the write is acknowledged; parity follows when the row is written out. The format is the kernel's
//! (raid5-cache.c); so is what a recovery makes of it, `r5l_recovery_log`.
//!
//! | module | |
//! |---|---|
//! | `log` | the chain of meta blocks, up to the first that is torn, and what it says of each row |
//! | `rows` | what is to be written of a row, and its parity where the log has none |
//! | `recover` | the order of all that: members, flush, an empty log, the tail |

mod log;
mod recover;
mod rows;
#[cfg(test)]
mod tests;

use stripewise_format::bad_blocks::BadRange;
use stripewise_format::journal::BLOCK_SECTORS;

use crate::geometry::{Geometry, Holds, Place};
use crate::io::{IoResult, Role};
use crate::ppl::MemberStorage;
use crate::units::{MemberIndex, Slot};

pub use recover::{pending, recover};

/// The array's sector of a slot's data.
///
/// # Panics
/// If the slot holds no data there.
pub(crate) fn array_sector(geometry: &Geometry, slot: Slot, row_sector: u64) -> u64 {
    match geometry.holds(Place { slot, sector: row_sector }) {
        Holds::Data(sector) => sector,
        _ => unreachable!("the slot holds data of this row"),
    }
}

/// The members' and the journal's bytes, and what is computed of them.
pub trait JournalStorage: MemberStorage {
    /// Writes to the journal's superblock that the log begins at a sector of its data, durably.
    fn move_tail(&mut self, tail_sectors: u64) -> IoResult;

    /// Fills in every block of a row that is not there. There are never more such blocks than the level has parity.
    fn solve(&mut self, row: &mut [RowBlock]);
}

/// A block of a row: the part that it plays in the parity computation, and its bytes if they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowBlock {
    /// The part.
    pub role: Role,
    /// The bytes.
    pub bytes: Option<Vec<u8>>,
}

/// Where the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPlace {
    /// The journal device.
    pub member: MemberIndex,
    /// The device's sector where its data, and so the log, begin.
    pub data_offset_sectors: u64,
    /// Its length.
    pub data_sectors: u64,
    /// Where in it the log begins, as the superblock says.
    pub tail_sectors: u64,
}

impl JournalPlace {
    /// Sectors of the ring: whole blocks.
    pub(crate) const fn ring_sectors(&self) -> u64 {
        self.data_sectors / BLOCK_SECTORS * BLOCK_SECTORS
    }
}

/// The meta block that comes next: where it must be, and its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// `position`: in sectors from the start of the log.
    pub position_sectors: u64,
    /// `seq`.
    pub sequence: u64,
}

/// A log that is written on: nothing in it is needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalStart {
    /// Where it is. At its tail is a meta block.
    pub place: JournalPlace,
    /// What is written next.
    pub next: Head,
}

/// A member that data and parity are written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowMember {
    /// Which.
    pub member: MemberIndex,
    /// Its slot.
    pub slot: Slot,
    /// The device's sector where the data begin.
    pub data_offset_sectors: u64,
    /// Sectors of the data that hold; all for a member in sync, none for one that is not read.
    pub valid_sectors: u64,
    /// Sectors of the device that it is listed not to hold.
    pub bad: Vec<BadRange>,
}

impl RowMember {
    /// Whether a block of the device is listed as bad.
    fn lists(&self, sector: u64) -> bool {
        self.bad.iter().any(|bad| bad.overlaps(sector, BLOCK_SECTORS))
    }
}

/// What a recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalReport {
    /// Rows of a page whose data and parity were in the log, and are on the members now.
    pub rows: u64,
    /// Rows whose data alone were in the log: their parity was computed.
    pub data_only_rows: u64,
    /// Of these, rows whose parity cannot be had, for too much of them is listed as bad.
    pub without_parity: u64,
    /// There is no log where the superblock says that it begins. Nothing was done.
    pub is_damaged: bool,
    /// How the log may be written on; none if it is damaged.
    pub start: Option<JournalStart>,
}
