//! A flash drive: commands and their way through firmware, buffer and flash. The parts: [`flash`] (dies and
//! channels), [`read_ahead`] (sequential streams), [`buffer`] (writes, programs, garbage collection).
//!
//! # Contract
//! Firmware time comes one command after another; the rest overlaps. A read waits for its dies, of which one
//! that programs finishes first, and goes before programs not yet begun. A write is acknowledged when the buffer
//! has it. Without protection against power loss, flushes and forced writes wait for the flash.
//! *Memory.* Nothing is kept for a page or a block: the state is one entry for each die, each program under way,
//! each page read ahead and each stream, some ten KiB whatever the capacity. So a read is never served from the
//! write buffer, and the collector's work follows from the kind of writes, not from where they went before.

mod buffer;
mod extents;
mod flash;
mod read_ahead;
#[cfg(test)]
mod tests;

use super::{Command, CommandOp, Surroundings};
use crate::bus::Link;
use crate::models::SsdModel;
use buffer::WriteBuffer;
use flash::Flash;
use read_ahead::ReadAhead;
use std::collections::VecDeque;
use stripewise_engine::units::SECTOR_BYTES;

/// Where a command is.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Its data come from the flash; the first of them at this time.
    Flash { first_ns: u64 },
    /// Its data cross the bus, or it has none.
    Moving,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    command: Command,
    /// When the firmware has decoded it.
    ready_ns: u64,
    phase: Phase,
}

/// A flash drive.
#[derive(Debug)]
pub(crate) struct Ssd {
    queue_depth: u32,
    command_ns: u64,
    read_latency_ns: u64,
    write_latency_ns: u64,
    mapping_sectors: u64,
    page_sectors: u64,
    power_loss_protection: bool,
    flash: Flash,
    reads: ReadAhead,
    buffer: WriteBuffer,
    commands: Vec<Pending>,
    /// Tags of writes that wait for room in the buffer, oldest first.
    writes: VecDeque<u8>,
    link: Link,
    firmware_free_ns: u64,
}

impl Ssd {
    pub(crate) fn new(model: &SsdModel) -> Self {
        let none = Pending { command: Command::NONE, ready_ns: 0, phase: Phase::Moving };
        Self {
            queue_depth: model.queue_depth,
            command_ns: model.command_ns,
            read_latency_ns: model.read_latency_ns,
            write_latency_ns: model.write_latency_ns,
            mapping_sectors: model.mapping_sectors,
            page_sectors: model.page_sectors,
            power_loss_protection: model.power_loss_protection,
            flash: Flash::new(model),
            reads: ReadAhead::new(model),
            buffer: WriteBuffer::new(model),
            commands: vec![none; model.queue_depth as usize],
            writes: VecDeque::with_capacity(model.queue_depth as usize),
            link: Link::new(model.link_byte_ps),
            firmware_free_ns: 0,
        }
    }

    pub(crate) const fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    pub(crate) fn busy_ns(&self) -> u64 {
        self.flash.busy_ns()
    }

    /// Takes a command.
    pub(crate) fn submit(&mut self, tag: u8, command: Command, around: &mut Surroundings<'_>) {
        let ready_ns = self.firmware_free_ns.max(command.arrival_ns) + self.command_ns;
        self.firmware_free_ns = ready_ns;
        self.commands[tag as usize] = Pending { command, ready_ns, phase: Phase::Moving };
        match command.op {
            CommandOp::Read => {
                let from_ns = ready_ns + self.read_latency_ns;
                let (start, end) = (command.start, command.end());
                let (first_ns, last_ns) =
                    self.reads.read(around.now_ns, from_ns, start, end, &mut self.flash);
                self.commands[tag as usize].phase = Phase::Flash { first_ns };
                around.transferred_at(last_ns, tag);
            }
            CommandOp::Write | CommandOp::WriteFua => {
                self.writes.push_back(tag);
                self.admit_writes(around);
            }
            CommandOp::Flush if !self.power_loss_protection && self.buffer.force(tag) => self.program(around),
            CommandOp::Flush | CommandOp::Discard => around.transferred_at(ready_ns, tag),
        }
    }

    /// A command's data are there: those of a read from the flash, later across the bus; those of a write in the
    /// buffer.
    pub(crate) fn transferred(&mut self, tag: u8, around: &mut Surroundings<'_>) {
        let Pending { command, phase, .. } = self.commands[tag as usize];
        match (command.op, phase) {
            (CommandOp::Read, Phase::Flash { first_ns }) => self.answer(tag, first_ns, around),
            (CommandOp::Write | CommandOp::WriteFua, _) => {
                self.buffer.arrived(command.start, command.end(), self.mapped_bytes(&command));
                let forced = command.op == CommandOp::WriteFua && !self.power_loss_protection;
                if !(forced && self.buffer.force(tag)) {
                    around.done.push(tag);
                }
                self.program(around);
            }
            (CommandOp::Read | CommandOp::Flush | CommandOp::Discard, _) => around.done.push(tag),
        }
    }

    /// A program has ended.
    pub(crate) fn programmed(&mut self, around: &mut Surroundings<'_>) {
        self.buffer.ended(&mut self.flash, around.done);
        self.admit_writes(around);
        self.program(around);
    }

    /// Sends a read's data, which came off the flash since `first_ns` and now all have.
    fn answer(&mut self, tag: u8, first_ns: u64, around: &mut Surroundings<'_>) {
        let bytes = self.commands[tag as usize].command.bytes();
        let moving_ns = around.bus.holding_ns(bytes).max(self.link.ns(bytes));
        let arrival_ns = around.now_ns.saturating_sub(moving_ns).max(first_ns);
        let end_ns = around.transfer(arrival_ns, bytes, &mut self.link);
        if end_ns <= around.now_ns {
            around.done.push(tag);
        } else {
            self.commands[tag as usize].phase = Phase::Moving;
            around.transferred_at(end_ns, tag);
        }
    }

    fn admit_writes(&mut self, around: &mut Surroundings<'_>) {
        while let Some(&tag) = self.writes.front() {
            let Pending { command, ready_ns, .. } = self.commands[tag as usize];
            if !self.buffer.admit(self.mapped_bytes(&command)) {
                return self.program(around);
            }
            self.writes.pop_front();
            self.read_old(&command, around.now_ns, ready_ns);
            let from_ns = ready_ns.max(around.now_ns);
            let end_ns = around.transfer(from_ns, command.bytes(), &mut self.link);
            around.transferred_at(end_ns + self.write_latency_ns, tag);
        }
    }

    /// Reads what a write leaves of the pieces at its ends, which are written anew as a whole.
    fn read_old(&mut self, command: &Command, now_ns: u64, from_ns: u64) {
        let piece = |sector: u64| sector / self.mapping_sectors;
        let first = (!command.start.is_multiple_of(self.mapping_sectors)).then(|| piece(command.start));
        let last = (!command.end().is_multiple_of(self.mapping_sectors)).then(|| piece(command.end()));
        for piece in first.into_iter().chain(last.filter(|_| first != last)) {
            let page = piece * self.mapping_sectors / self.page_sectors;
            self.flash.read(now_ns, from_ns, page, self.mapping_sectors * SECTOR_BYTES);
        }
    }

    /// Bytes of the pieces a command touches.
    fn mapped_bytes(&self, command: &Command) -> u64 {
        let first = command.start / self.mapping_sectors;
        (command.end().div_ceil(self.mapping_sectors) - first) * self.mapping_sectors * SECTOR_BYTES
    }

    fn program(&mut self, around: &mut Surroundings<'_>) {
        while let Some(end_ns) = self.buffer.begin(around.now_ns, &mut self.flash) {
            around.arm_at(end_ns);
        }
    }
}
