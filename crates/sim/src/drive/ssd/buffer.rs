//! The write path: the buffer, the programs that empty it, and what garbage collection adds.
//!
//! Data are programmed in units of one pass over the planes of a die, on the dies in turn, on so many at a time
//! as the drive's power allows. A byte written at random owes the collector a fixed amount of programming: the
//! steady state of a drive long written that way. Of what is written one behind the other, however commands cut it, as much as an
//! erase block owes that and the rest none, for whole blocks of its predecessors become invalid together. It owes it when the
//! drive expects it to go on no longer. What is owed for a program is programmed right after it.

use super::extents::Extents;
use super::flash::Flash;

use crate::models::SsdModel;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use stripewise_engine::units::SECTOR_BYTES;

/// A program under way: when it ends, its die, and how many bytes of the host it holds.
type Program = Reverse<(u64, usize, u64)>;

#[derive(Debug)]
pub(super) struct WriteBuffer {
    limit_bytes: u64,
    program_bytes: u64,
    programs_max: usize,
    collection_permille: u64,
    /// Bytes of an erase block on all planes of a die.
    block_bytes: u64,
    extents: Extents,
    /// Whether a write waits for room.
    is_short: bool,
    /// Bytes on their way into the buffer.
    arriving_bytes: u64,
    /// Bytes in the buffer, those being programmed included.
    held_bytes: u64,
    /// Bytes in the buffer that no program has taken.
    waiting_bytes: u64,
    /// Bytes the collector will owe for those.
    waiting_owed_bytes: u64,
    /// Bytes the collector has yet to program for what was programmed.
    owed_bytes: u64,
    programs: BinaryHeap<Program>,
    /// Bytes that ever came in, and that ever were programmed.
    entered_bytes: u64,
    programmed_bytes: u64,
    /// Commands that wait until so many bytes have been programmed.
    forced: VecDeque<(u64, u8)>,
}

impl WriteBuffer {
    pub(super) fn new(model: &SsdModel) -> Self {
        Self {
            limit_bytes: model.write_buffer_bytes,
            program_bytes: model.program_bytes,
            programs_max: model.programs_max as usize,
            collection_permille: model.collection_permille,
            block_bytes: model.block_bytes,
            extents: Extents::new(model.streams, model.write_buffer_bytes / SECTOR_BYTES),
            is_short: false,
            arriving_bytes: 0,
            held_bytes: 0,
            waiting_bytes: 0,
            waiting_owed_bytes: 0,
            owed_bytes: 0,
            programs: BinaryHeap::with_capacity(model.programs_max as usize),
            entered_bytes: 0,
            programmed_bytes: 0,
            forced: VecDeque::new(),
        }
    }

    /// Makes room for a write, if there is any; one larger than the buffer gets in alone.
    pub(super) fn admit(&mut self, bytes: u64) -> bool {
        let used = self.held_bytes + self.arriving_bytes;
        let room = used == 0 || used + bytes <= self.limit_bytes;
        self.is_short = !room;
        if room {
            self.arriving_bytes += bytes;
        }
        room
    }

    /// A write's data are in the buffer; `start` and `end` are its sectors.
    pub(super) fn arrived(&mut self, start: u64, end: u64, bytes: u64) {
        self.arriving_bytes -= bytes;
        self.held_bytes += bytes;
        self.waiting_bytes += bytes;
        self.entered_bytes += bytes;
        if let Some(bytes) = self.extents.add(start, end, bytes) {
            self.waiting_owed_bytes += bytes.min(self.block_bytes) * self.collection_permille / 1000;
        }
    }

    /// Has a command complete when all that came in by now has been programmed; false if it has been already.
    pub(super) fn force(&mut self, tag: u8) -> bool {
        let pending = self.programmed_bytes < self.entered_bytes;
        if pending {
            self.forced.push_back((self.entered_bytes, tag));
        }
        pending
    }

    /// Begins the next program, if there is something to program and a die may; returns when it ends.
    pub(super) fn begin(&mut self, now_ns: u64, flash: &mut Flash) -> Option<u64> {
        if self.programs.len() >= self.programs_max {
            return None;
        }
        let bytes = if self.owed_bytes >= self.program_bytes {
            self.owed_bytes -= self.program_bytes;
            0
        } else if self.waiting_bytes >= self.program_bytes
            || (self.waiting_bytes > 0 && (!self.forced.is_empty() || self.is_stuck()))
        {
            self.waiting_bytes.min(self.program_bytes)
        } else {
            return None;
        };
        if bytes > 0 {
            let owed = (u128::from(self.waiting_owed_bytes) * u128::from(bytes)
                / u128::from(self.waiting_bytes)) as u64;
            self.waiting_owed_bytes -= owed;
            self.owed_bytes += owed;
            self.waiting_bytes -= bytes;
        }
        let (die, end_ns) = flash.program(now_ns);
        self.programs.push(Reverse((end_ns, die, bytes)));
        Some(end_ns)
    }

    /// Whether a write waits for room that nothing under way will make.
    fn is_stuck(&self) -> bool {
        self.is_short && self.programs.is_empty() && self.arriving_bytes == 0
    }

    /// The program that ends first has ended; commands that waited for it are added to `done`.
    pub(super) fn ended(&mut self, flash: &mut Flash, done: &mut Vec<u8>) {
        let Reverse((_, die, bytes)) = self.programs.pop().expect("a program that ends was begun");
        flash.programmed(die);
        self.held_bytes -= bytes;
        self.programmed_bytes += bytes;
        while self.forced.front().is_some_and(|&(until, _)| until <= self.programmed_bytes) {
            done.extend(self.forced.pop_front().map(|(_, tag)| tag));
        }
    }
}
