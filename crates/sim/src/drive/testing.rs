//! A drive by itself in a closed loop, for tests.

use super::{Command, CommandOp, Drive, Surroundings};
use crate::bus::Bus;
use crate::clock::{Event, Schedule};
use crate::models::{ControllerModel, DriveModel, Model};

/// Sectors of a MiB.
pub(crate) const MIB: u64 = 2048;

fn bus(byte_ps: u64) -> Bus {
    let mut model = ControllerModel::new(&Model::load("88sx6081-pci32").unwrap()).unwrap();
    model.byte_ps = byte_ps;
    model.command_ns = 0;
    Bus::new(&model)
}

/// A drive in a closed loop: as many commands outstanding as the depth says.
pub(crate) struct Loop {
    drive: Drive,
    pub(crate) bus: Bus,
    schedule: Schedule,
    now_ns: u64,
    /// Start and end of each command completed, in order of completion.
    pub(crate) completed: Vec<(u64, u64)>,
    /// What each of them did.
    ops: Vec<CommandOp>,
}

impl Loop {
    /// On a bus so fast that only the drive limits.
    pub(crate) fn new(model: &DriveModel) -> Self {
        Self::on_bus(model, 1)
    }

    /// On a bus that takes so many picoseconds for a byte.
    pub(crate) fn on_bus(model: &DriveModel, byte_ps: u64) -> Self {
        Self {
            drive: Drive::new(model, 0x1234_5678_8765_4321),
            bus: bus(byte_ps),
            schedule: Schedule::default(),
            now_ns: 0,
            completed: Vec::new(),
            ops: Vec::new(),
        }
    }

    /// Runs commands from `next` until it ends and all have completed; returns the virtual seconds.
    pub(crate) fn run(
        &mut self,
        depth: usize,
        mut next: impl FnMut() -> Option<(CommandOp, u64, u64)>,
    ) -> f64 {
        self.run_readers(depth, |_| next())
    }

    /// Runs the commands of so many that have one outstanding each.
    pub(crate) fn run_readers(
        &mut self,
        depth: usize,
        mut next: impl FnMut(usize) -> Option<(CommandOp, u64, u64)>,
    ) -> f64 {
        let began_ns = self.now_ns;
        let mut free: Vec<u8> = (0..depth).map(|tag| tag as u8).rev().collect();
        let mut started = vec![(0, CommandOp::Flush); depth];
        let mut done = Vec::new();
        loop {
            while let Some(&tag) = free.last() {
                let Some((op, start, sectors)) = next(usize::from(tag)) else { break };
                free.pop();
                started[tag as usize] = (self.now_ns, op);
                let command = Command { op, start, sectors, arrival_ns: self.now_ns };
                let mut around = self.surroundings(&mut done);
                around.0.submit(tag, command, &mut around.1);
            }
            if free.len() == depth {
                return (self.now_ns - began_ns) as f64 / 1e9;
            }
            let (now_ns, event) = self.schedule.pop().expect("commands are outstanding");
            self.now_ns = now_ns;
            let mut around = self.surroundings(&mut done);
            match event {
                Event::Arm(_) => around.0.arm(&mut around.1),
                Event::Transferred(_, tag) => around.0.transferred(tag, &mut around.1),
                Event::ReadAheadFull(_) => around.0.read_ahead_full(&mut around.1),
                other => unreachable!("a drive schedules no {other:?}"),
            }
            for tag in done.drain(..) {
                let (start_ns, op) = started[tag as usize];
                self.completed.push((start_ns, now_ns));
                self.ops.push(op);
                free.push(tag);
            }
        }
    }

    fn surroundings<'a>(&'a mut self, done: &'a mut Vec<u8>) -> (&'a mut Drive, Surroundings<'a>) {
        let (schedule, bus) = (&mut self.schedule, &mut self.bus);
        (
            &mut self.drive,
            Surroundings {
                now_ns: self.now_ns,
                member: 0,
                schedule,
                bus: crate::bus::BusPath::alone(bus),
                done,
            },
        )
    }

    /// Start and end of each read.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (u64, u64)> {
        self.completed
            .iter()
            .zip(&self.ops)
            .filter(|(_, op)| **op == CommandOp::Read)
            .map(|(times, _)| *times)
    }

    /// Nanoseconds the drive has been at work.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.drive.busy_ns()
    }

    pub(crate) fn latency_max_ms(&self) -> f64 {
        self.completed.iter().map(|(s, e)| e - s).max().unwrap_or(0) as f64 / 1e6
    }
}

/// Random sectors, page-aligned, over the whole drive.
pub(crate) fn random_sectors(seed: u64, capacity: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 20) % (capacity / 8) * 8
    }
}

pub(crate) fn sequential(
    op: CommandOp,
    start: u64,
    sectors: u64,
    each: u64,
) -> impl FnMut() -> Option<(CommandOp, u64, u64)> {
    let mut at = start;
    move || {
        let command = (op, at, each);
        at += each;
        (at <= start + sectors).then_some(command)
    }
}
