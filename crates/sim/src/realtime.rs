//! A modelled drive by itself, for a loop that runs it in real time: the time comes from the caller.
//!
//! # Contract
//! *Time.* The caller's instants never go back. Whatever was due before the instant named happens at its own time, so that
//! a late caller changes when it learns of an end, not when that end was. *Queue.* As many commands are in the drive as
//! the model and its controller take; the others wait in the order they came. A flush waits for all before it and is
//! alone. *Size.* A request is one command, however long.

use std::collections::VecDeque;

use stripewise_engine::io::Op;
use stripewise_engine::units::{Instant, SectorRange};

use crate::bus::{Bus, BusPath};
use crate::clock::{Event, Schedule};
use crate::drive::{Command, CommandOp, Drive, Surroundings};
use crate::models::{ControllerModel, DriveModel};

/// The drive's number in events.
const MEMBER: u32 = 0;

/// A request to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoneRequest {
    /// The caller's handle.
    pub id: u32,
    /// What is asked.
    pub op: Op,
    /// Where.
    pub range: SectorRange,
    /// Acknowledged only when it is on the medium.
    pub fua: bool,
}

/// A modelled drive on a controller of its own.
#[derive(Debug)]
pub struct LoneDrive {
    drive: Drive,
    bus: Bus,
    schedule: Schedule,
    waiting: VecDeque<LoneRequest>,
    /// Requests in the drive by tag.
    outstanding: Vec<Option<u32>>,
    is_flushing: bool,
    now: Instant,
    done: Vec<u8>,
}

impl LoneDrive {
    /// A drive in a state that the seed decides: where the platters and the arm are.
    pub fn new(drive: &DriveModel, controller: &ControllerModel, seed: u64) -> Self {
        let drive = Drive::new(drive, seed);
        let depth = drive.queue_depth().min(controller.queue_depth);
        Self {
            drive,
            bus: Bus::new(controller),
            schedule: Schedule::default(),
            waiting: VecDeque::new(),
            outstanding: vec![None; depth as usize],
            is_flushing: false,
            now: Instant::ZERO,
            done: Vec::new(),
        }
    }

    /// Commands the drive takes at a time.
    pub fn queue_depth(&self) -> u32 {
        self.outstanding.len() as u32
    }

    /// Takes a request that came just now.
    pub fn submit(&mut self, now: Instant, request: LoneRequest) {
        self.now = self.now.max(now);
        self.waiting.push_back(request);
        self.start();
    }

    /// When something is due next.
    pub fn next_time(&self) -> Option<Instant> {
        self.schedule.next_time().map(Instant)
    }

    /// Lets happen what is due; the requests that have ended are added to `ended`.
    pub fn advance(&mut self, now: Instant, ended: &mut Vec<u32>) {
        while self.schedule.next_time().is_some_and(|due| due <= now.0) {
            let Some((due, event)) = self.schedule.pop() else { break };
            self.now = self.now.max(Instant(due));
            match event {
                Event::Arm(_) => self.with_drive(Drive::arm),
                Event::ReadAheadFull(_) => self.with_drive(Drive::read_ahead_full),
                Event::Transferred(_, tag) => self.with_drive(|drive, around| drive.transferred(tag, around)),
                _ => unreachable!("a drive schedules only its own events"),
            }
            for tag in std::mem::take(&mut self.done) {
                ended.extend(self.outstanding[usize::from(tag)].take());
                self.is_flushing = false;
            }
            self.start();
        }
        self.now = self.now.max(now);
    }

    /// Gives the drive what it has room for.
    fn start(&mut self) {
        while let Some(&request) = self.waiting.front().filter(|_| !self.is_flushing) {
            let Some(tag) = self.outstanding.iter().position(Option::is_none) else { return };
            let op = CommandOp::of(request.op, request.fua);
            if op == CommandOp::Flush && self.outstanding.iter().any(Option::is_some) {
                return;
            }
            self.is_flushing = op == CommandOp::Flush;
            self.waiting.pop_front();
            self.outstanding[tag] = Some(request.id);
            let SectorRange { start, count: sectors } = request.range;
            let command = Command { op, start, sectors, arrival_ns: self.now.0 };
            self.with_drive(|drive, around| drive.submit(tag as u8, command, around));
        }
    }

    fn with_drive(&mut self, event: impl FnOnce(&mut Drive, &mut Surroundings<'_>)) {
        let mut around = Surroundings {
            now_ns: self.now.0,
            member: MEMBER,
            schedule: &mut self.schedule,
            bus: BusPath::alone(&mut self.bus),
            done: &mut self.done,
        };
        event(&mut self.drive, &mut around);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Model;

    fn drive(drive: &str) -> LoneDrive {
        let drive = DriveModel::new(&Model::load(drive).unwrap()).unwrap();
        let controller = ControllerModel::new(&Model::load("nvme-pcie4-x4").unwrap()).unwrap();
        LoneDrive::new(&drive, &controller, 1)
    }

    fn read(id: u32, start: u64) -> LoneRequest {
        LoneRequest { id, op: Op::Read, range: SectorRange::new(start, 8), fua: false }
    }

    fn ended_until(drive: &mut LoneDrive, until: u64) -> Vec<u32> {
        let mut ended = Vec::new();
        drive.advance(Instant(until), &mut ended);
        ended
    }

    #[test]
    fn constant_latency_is_kept_and_a_late_look_changes_nothing() {
        let mut drive = drive("constant-latency");
        drive.submit(Instant(1_000), read(7, 0));
        assert!(ended_until(&mut drive, 100_000).is_empty());
        let due = drive.next_time().unwrap().0;
        assert!((101_000..120_000).contains(&due), "{due}");
        assert_eq!(ended_until(&mut drive, 9_000_000), [7]);
        assert_eq!(drive.next_time(), None);
    }

    /// Each end with its time.
    fn ends(drive: &mut LoneDrive) -> Vec<(u32, u64)> {
        let mut ends = Vec::new();
        while let Some(due) = drive.next_time() {
            ends.extend(ended_until(drive, due.0).into_iter().map(|id| (id, due.0)));
        }
        ends
    }

    #[test]
    fn more_than_the_queue_takes_waits_for_the_first_to_end() {
        let last_alone = |waits: u32| {
            let mut drive = drive("constant-latency");
            let depth = drive.queue_depth();
            (0..depth + waits).for_each(|id| drive.submit(Instant(0), read(id, u64::from(id) * 8)));
            let ends = ends(&mut drive);
            assert!((0..depth + waits).eq(ends.iter().map(|e| e.0)), "{ends:?}");
            (ends[0].1, ends[ends.len() - 1].1)
        };
        let (first, without) = last_alone(0);
        assert!(without < 2 * 300_000, "all at a time, one after the other on the link: {without}");
        let (_, with) = last_alone(32);
        assert!(with >= first + without - 100_000, "the others begin as the first end: {with}");
    }

    #[test]
    fn a_flush_is_alone() {
        let mut drive = drive("constant-latency");
        drive.submit(Instant(0), read(0, 0));
        drive.submit(Instant(0), LoneRequest { op: Op::Flush, range: SectorRange::new(0, 0), ..read(1, 0) });
        drive.submit(Instant(0), read(2, 8));
        let ends = ends(&mut drive);
        assert_eq!([0, 1, 2], [ends[0].0, ends[1].0, ends[2].0]);
        assert_eq!(ends[1].1, ends[0].1 + 100_000, "begins when the read has ended");
        assert_eq!(ends[2].1, ends[1].1 + ends[0].1, "begins when the flush has ended");
    }

    #[test]
    fn a_mechanical_drive_takes_its_revolutions() {
        let mut drive = drive("st31000333as");
        let mut now = 0;
        for (id, start) in [(0, 0), (1, 1_900_000_000), (2, 5_000_000)] {
            drive.submit(Instant(now), read(id, start));
            let before = now;
            let mut ended = Vec::new();
            while ended.is_empty() {
                now = drive.next_time().unwrap().0;
                drive.advance(Instant(now), &mut ended);
            }
            assert_eq!(ended, [id]);
            assert!((100_000..40_000_000).contains(&(now - before)), "{} ns", now - before);
        }
    }
}
