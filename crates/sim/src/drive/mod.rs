//! Drives as machines: a command comes in, an event is scheduled, completions come out.
//!
//! # Contract
//! Commands are named by a tag below the drive's queue depth; the queue above hands out the tags. A drive
//! schedules its own events ([`Event::Arm`], [`Event::ReadAheadFull`], [`Event::Transferred`]) and never
//! completes a command while one is being submitted. A flush is submitted only when nothing else is outstanding, and nothing follows it
//! until it completes (the flush of ATA is no queued command).

mod constant;
mod hdd;
mod ssd;
#[cfg(test)]
mod testing;

use crate::bus::{BusPath, Link};
use crate::clock::{Event, Schedule};
use crate::models::DriveModel;
use stripewise_engine::io::Op;
use stripewise_engine::units::SECTOR_BYTES;

pub(crate) use constant::Constant;
pub(crate) use hdd::Hdd;
pub(crate) use ssd::Ssd;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandOp {
    Read,
    Write,
    /// A write acknowledged only when it is on the medium.
    WriteFua,
    Flush,
    /// Takes a command's overhead and moves no data.
    Discard,
}

impl CommandOp {
    /// What a member is asked as what its drive is asked.
    pub(crate) const fn of(op: Op, fua: bool) -> Self {
        match op {
            Op::Read => Self::Read,
            Op::Write | Op::WriteZeroes if fua => Self::WriteFua,
            Op::Write | Op::WriteZeroes => Self::Write,
            Op::Flush => Self::Flush,
            Op::Discard => Self::Discard,
        }
    }
}

/// A command to a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) op: CommandOp,
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    /// When the drive has it.
    pub(crate) arrival_ns: u64,
}

impl Command {
    pub(crate) const NONE: Self = Self { op: CommandOp::Flush, start: 0, sectors: 0, arrival_ns: 0 };

    pub(crate) const fn end(&self) -> u64 {
        self.start + self.sectors
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES
    }
}

/// What a drive needs of the world around it while it handles something.
pub(crate) struct Surroundings<'a> {
    pub(crate) now_ns: u64,
    pub(crate) member: u32,
    pub(crate) schedule: &'a mut Schedule,
    pub(crate) bus: BusPath<'a>,
    /// Tags of completed commands.
    pub(crate) done: &'a mut Vec<u8>,
}

impl Surroundings<'_> {
    /// Moves a command's bytes as soon after `arrival_ns` as buses and link allow; returns the end.
    fn transfer(&mut self, arrival_ns: u64, bytes: u64, link: &mut Link) -> u64 {
        self.bus.transfer(self.now_ns, arrival_ns, bytes, link)
    }

    fn transferred_at(&mut self, time_ns: u64, tag: u8) {
        self.schedule.at(time_ns.max(self.now_ns), Event::Transferred(self.member, tag));
    }

    fn read_ahead_full_at(&mut self, time_ns: u64) {
        self.schedule.at(time_ns.max(self.now_ns), Event::ReadAheadFull(self.member));
    }

    fn arm_at(&mut self, time_ns: u64) {
        self.schedule.at(time_ns.max(self.now_ns), Event::Arm(self.member));
    }
}

/// A drive of any kind.
#[derive(Debug)]
pub(crate) enum Drive {
    Hdd(Box<Hdd>),
    Ssd(Box<Ssd>),
    Constant(Constant),
}

impl Drive {
    /// A drive in a state drawn from `random`: where the platters and the arm are.
    pub(crate) fn new(model: &DriveModel, random: u64) -> Self {
        match model {
            DriveModel::Hdd(hdd) => Self::Hdd(Box::new(Hdd::new(hdd, random))),
            DriveModel::Ssd(ssd) => Self::Ssd(Box::new(Ssd::new(ssd))),
            DriveModel::Constant(constant) => Self::Constant(Constant::new(constant)),
        }
    }

    pub(crate) fn queue_depth(&self) -> u32 {
        match self {
            Self::Hdd(hdd) => hdd.queue_depth(),
            Self::Ssd(ssd) => ssd.queue_depth(),
            Self::Constant(constant) => constant.queue_depth(),
        }
    }

    pub(crate) fn submit(&mut self, tag: u8, command: Command, around: &mut Surroundings<'_>) {
        match self {
            Self::Hdd(hdd) => hdd.submit(tag, command, around),
            Self::Ssd(ssd) => ssd.submit(tag, command, around),
            Self::Constant(constant) => constant.submit(tag, command, around),
        }
    }

    pub(crate) fn arm(&mut self, around: &mut Surroundings<'_>) {
        match self {
            Self::Hdd(hdd) => hdd.arm_free(around),
            Self::Ssd(ssd) => ssd.programmed(around),
            Self::Constant(_) => unreachable!("a drive of constant latency schedules no such event"),
        }
    }

    pub(crate) fn read_ahead_full(&mut self, around: &mut Surroundings<'_>) {
        match self {
            Self::Hdd(hdd) => hdd.read_ahead_full(around),
            Self::Ssd(_) | Self::Constant(_) => unreachable!("only a drive with an arm schedules this event"),
        }
    }

    pub(crate) fn transferred(&mut self, tag: u8, around: &mut Surroundings<'_>) {
        match self {
            Self::Hdd(hdd) => hdd.transferred(tag, around),
            Self::Ssd(ssd) => ssd.transferred(tag, around),
            Self::Constant(_) => around.done.push(tag),
        }
    }

    /// Nanoseconds the mechanics (or what stands for them) have been at work.
    pub(crate) fn busy_ns(&self) -> u64 {
        match self {
            Self::Hdd(hdd) => hdd.busy_ns(),
            Self::Ssd(ssd) => ssd.busy_ns(),
            Self::Constant(constant) => constant.busy_ns(),
        }
    }
}
