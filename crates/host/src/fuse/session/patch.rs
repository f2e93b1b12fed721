//! Writes that do not begin or end at a block: what is around them is read first.
//!
//! They come of programs that write a few bytes, and of long transfers, which the kernel cuts by the pages of the memory they
//! are of. One at a time, and with nothing else of the mount under way until its blocks are read: the next may be of the
//! same block.

use stripewise_engine::io::{IoResult, Op};
use stripewise_engine::units::{SECTOR_BYTES, SectorRange};

use super::{Session, errno_of};
use crate::nbd::{Accepted, Buffer, Buffers, Task};

/// A write of these bytes, which the blocks hold and more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unaligned {
    pub(super) unique: u64,
    pub(super) blocks: SectorRange,
    pub(super) fua: bool,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// How far such a write is. Until its blocks are read, its payload is in the session's room.
#[derive(Debug, Default)]
pub(super) enum Patch {
    /// There is none.
    #[default]
    None,
    /// It waits until nothing else is under way.
    Waiting(Unaligned),
    /// Its blocks are being read.
    Reading(Unaligned),
    /// Its blocks are as they shall be.
    Patched(Unaligned, Buffer),
}

impl Session {
    /// Whether [`next`](Self::next) would now go on with it.
    pub(crate) fn is_patch_due(&self) -> bool {
        match self.patch {
            Patch::None | Patch::Reading(_) => false,
            Patch::Waiting(_) => self.requests == 0,
            Patch::Patched(..) => true,
        }
    }

    /// Reads its blocks, and then writes them.
    pub(super) fn patch(&mut self, buffers: &mut Buffers) -> Option<Accepted> {
        let (write, op, buffer) = match std::mem::take(&mut self.patch) {
            Patch::Waiting(write) if self.requests == 0 => {
                let Some(buffer) = buffers.take((write.blocks.count * SECTOR_BYTES) as usize) else {
                    self.send(write.unique, libc::ENOMEM, &[]);
                    return None;
                };
                self.patch = Patch::Reading(write);
                (write, Op::Read, buffer)
            }
            Patch::Patched(write, buffer) => (write, Op::Write, buffer),
            waits => {
                self.patch = waits;
                return None;
            }
        };
        let Unaligned { unique, blocks, fua, offset, bytes } = write;
        self.requests += 1;
        self.held_bytes += u64::from(bytes);
        let task = Task::Array { op, range: blocks, fua: fua && op == Op::Write };
        Some(Accepted { cookie: unique, offset, bytes, task, buffer: Some(buffer), takes_loans: false })
    }

    /// Takes the blocks it waited for, and lays the payload over them. Answers what the kernel is to be told of.
    pub(super) fn blocks_read(
        &mut self,
        accepted: Accepted,
        result: IoResult,
        buffers: &mut Buffers,
    ) -> Option<Accepted> {
        let Patch::Reading(write) = self.patch else { return Some(accepted) };
        self.patch = Patch::None;
        self.requests -= 1;
        self.held_bytes -= u64::from(accepted.bytes);
        let (Some(buffer), Some(room)) = (accepted.buffer, &self.room) else { return None };
        if let Err(error) = result {
            self.send(write.unique, errno_of(error), &[]);
            buffers.give(buffer);
            return None;
        }
        let skip = (write.offset - write.blocks.start * SECTOR_BYTES) as usize;
        // SAFETY: the room holds the payload, the buffer the blocks it is in, and both are only this session's.
        unsafe { buffer.base().add(skip).copy_from_nonoverlapping(room.base(), write.bytes as usize) };
        self.patch = Patch::Patched(write, buffer);
        None
    }
}
