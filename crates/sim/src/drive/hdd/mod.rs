//! A mechanical drive: commands, cache and queue. The parts: [`geometry`] (where sectors are), [`seek`] (the
//! arm), [`read_cache`] (segments and read-ahead), [`extents`] (dirty data), [`arm`] (what is done next).
//!
//! # Contract
//! One command of the mechanics is under way at a time and cannot be interrupted; read-ahead can. A read is
//! served from a segment or from dirty data if either holds all of it. A write is acknowledged when the
//! cache has it. A command's firmware time comes one after another, its data move over link and bus.

mod arm;
mod extents;
mod geometry;
mod read_cache;
mod seek;
#[cfg(test)]
mod tests;

use super::{Command, CommandOp, Surroundings};
use crate::bus::Link;
use crate::models::HddModel;
use arm::{Arm, Work};
use extents::Extents;
use geometry::{Geometry, Place};
use read_cache::{Found, ReadCache};
use std::collections::VecDeque;

/// A command with what the drive knows of it.
#[derive(Clone, Copy, Debug)]
struct Pending {
    command: Command,
    place: Place,
    /// When the firmware has decoded it.
    ready_ns: u64,
    /// When its first sector came under the head.
    media_ns: u64,
    /// A read of what follows in a segment of the cache.
    may_carry_on: bool,
}

#[derive(Debug)]
struct Limits {
    queue_depth: u32,
    command_ns: u64,
    ageing_ns: u64,
    write_cache_sectors: u64,
    write_extents_max: usize,
    high_water_sectors: u64,
    high_water_extents: usize,
    destage_window: usize,
    destage_run_sectors: u64,
    physical_sectors: u64,
    revolution_ns: u64,
}

/// A mechanical drive.
#[derive(Debug)]
pub(crate) struct Hdd {
    limits: Limits,
    geometry: Geometry,
    arm: Arm,
    reads: ReadCache,
    commands: Vec<Pending>,
    /// Tags of commands that wait for the arm, oldest first.
    queue: Vec<u8>,
    /// Tags of writes that wait for room in the cache, oldest first.
    writes: VecDeque<u8>,
    dirty: Extents,
    /// Sectors and number of writes on their way into the cache.
    arriving_sectors: u64,
    arriving: usize,
    flush: Option<u8>,
    /// When the next event comes that tells how far read-ahead is.
    read_ahead_event_ns: Option<u64>,
    /// When dirty data were last written, or when there began to be some.
    destaged_ns: u64,
    /// How many dirty ranges have been written.
    destaged: u64,
    link: Link,
    firmware_free_ns: u64,
}

impl Hdd {
    /// A drive whose platters and arm are where `random` says.
    pub(crate) fn new(model: &HddModel, random: u64) -> Self {
        let geometry = Geometry::new(model);
        let depth = model.queue_depth as usize;
        let none = Pending {
            command: Command::NONE,
            place: Place::default(),
            ready_ns: 0,
            media_ns: 0,
            may_carry_on: false,
        };
        Self {
            limits: Limits {
                queue_depth: model.queue_depth,
                command_ns: model.command_ns,
                ageing_ns: model.ageing_ns,
                write_cache_sectors: model.write_cache_sectors,
                write_extents_max: model.write_extents_max,
                high_water_sectors: model.write_high_water_sectors,
                high_water_extents: model.write_high_water_extents,
                destage_window: model.destage_window,
                destage_run_sectors: model.destage_run_sectors,
                physical_sectors: model.physical_sectors,
                revolution_ns: model.revolution_ns,
            },
            arm: Arm::new(model, &geometry, random),
            reads: ReadCache::new(model.segments, model.segment_sectors, model.read_ahead_min_sectors),
            commands: vec![none; depth],
            queue: Vec::with_capacity(depth),
            writes: VecDeque::with_capacity(depth),
            dirty: Extents::with_capacity(model.write_extents_max + depth),
            arriving_sectors: 0,
            arriving: 0,
            flush: None,
            read_ahead_event_ns: None,
            destaged_ns: 0,
            destaged: 0,
            link: Link::new(model.link_byte_ps),
            firmware_free_ns: 0,
            geometry,
        }
    }

    pub(crate) const fn queue_depth(&self) -> u32 {
        self.limits.queue_depth
    }

    pub(crate) const fn busy_ns(&self) -> u64 {
        self.arm.busy_ns
    }

    /// Takes a command.
    pub(crate) fn submit(&mut self, tag: u8, command: Command, around: &mut Surroundings<'_>) {
        let ready_ns = self.firmware_free_ns.max(command.arrival_ns) + self.limits.command_ns;
        self.firmware_free_ns = ready_ns;
        let place = match command.op {
            CommandOp::Read | CommandOp::WriteFua => self.geometry.place(command.start),
            CommandOp::Write | CommandOp::Flush | CommandOp::Discard => Place::default(),
        };
        self.commands[tag as usize] = Pending { command, place, ready_ns, media_ns: 0, may_carry_on: false };
        match command.op {
            CommandOp::Read => self.read(tag, around),
            CommandOp::Write if self.limits.write_cache_sectors > 0 => {
                self.writes.push_back(tag);
                self.admit_writes(around);
            }
            CommandOp::Write | CommandOp::WriteFua => {
                self.commands[tag as usize].command.op = CommandOp::WriteFua;
                self.commands[tag as usize].place = self.geometry.place(command.start);
                self.transfer(tag, ready_ns, around);
            }
            CommandOp::Flush => {
                self.flush = Some(tag);
                if self.is_clean() {
                    self.flush = None;
                    around.transferred_at(ready_ns, tag);
                }
                self.arm_next(around);
            }
            CommandOp::Discard => around.transferred_at(ready_ns, tag),
        }
    }

    /// A command's data have crossed the bus (or it had none).
    pub(crate) fn transferred(&mut self, tag: u8, around: &mut Surroundings<'_>) {
        let command = self.commands[tag as usize].command;
        match command.op {
            CommandOp::Read | CommandOp::Flush | CommandOp::Discard => around.done.push(tag),
            CommandOp::Write => {
                self.arriving_sectors -= command.sectors;
                self.arriving -= 1;
                if self.dirty.is_empty() {
                    self.destaged_ns = around.now_ns;
                }
                self.dirty.insert(command.start, command.end(), self.destaged, &self.geometry);
                around.done.push(tag);
                self.arm_next(around);
            }
            CommandOp::WriteFua => {
                self.queue.push(tag);
                self.arm_next(around);
            }
        }
    }

    /// The arm has finished its work.
    pub(crate) fn arm_free(&mut self, around: &mut Surroundings<'_>) {
        match self.arm.finish() {
            Work::None => unreachable!("the arm finishes only what it began"),
            Work::Read(tag) => {
                // The data cross the bus while they come off the medium: the transfer began as early as the
                // first sector, as late as it takes to end with the last.
                let pending = self.commands[tag as usize];
                let holding_ns = around.bus.holding_ns(pending.command.bytes());
                let arrival_ns = around.now_ns.saturating_sub(holding_ns).max(pending.media_ns);
                let end_ns = around.transfer(arrival_ns, pending.command.bytes(), &mut self.link);
                if end_ns <= around.now_ns {
                    around.done.push(tag);
                } else {
                    around.transferred_at(end_ns, tag);
                }
            }
            Work::WriteFua(tag) => around.done.push(tag),
            Work::Destage { .. } => {
                self.destaged_ns = around.now_ns;
                self.admit_writes(around);
                if self.is_clean() {
                    around.done.extend(self.flush.take());
                }
            }
        }
        self.arm_next(around);
    }

    /// Read-ahead has come as far as something waits for, unless it was carried on meanwhile.
    pub(crate) fn read_ahead_full(&mut self, around: &mut Surroundings<'_>) {
        self.read_ahead_event_ns = self.read_ahead_event_ns.filter(|&at_ns| at_ns > around.now_ns);
        self.arm_next(around);
    }

    fn read(&mut self, tag: u8, around: &mut Surroundings<'_>) {
        let Pending { command, ready_ns, .. } = self.commands[tag as usize];
        let (start, end) = (command.start, command.end());
        let destaging =
            matches!(self.arm.work(), Work::Destage { start: s, end: e } if s <= start && end <= e);
        let found = if destaging {
            Found::All
        } else {
            self.reads.find((start, end), around.now_ns, &self.geometry, &self.arm)
        };
        if found == Found::All || (!self.dirty.is_empty() && self.dirty.covers(start, end)) {
            self.transfer(tag, ready_ns, around);
            return;
        }
        self.commands[tag as usize].may_carry_on = found == Found::Reader;
        self.queue.push(tag);
        self.arm_next(around);
    }

    fn transfer(&mut self, tag: u8, ready_ns: u64, around: &mut Surroundings<'_>) {
        let bytes = self.commands[tag as usize].command.bytes();
        let end_ns = around.transfer(ready_ns.max(around.now_ns), bytes, &mut self.link);
        around.transferred_at(end_ns, tag);
    }

    /// Lets waiting writes into the cache while there is room. A write larger than the cache gets in alone.
    fn admit_writes(&mut self, around: &mut Surroundings<'_>) {
        while let Some(&tag) = self.writes.front() {
            let Pending { command, ready_ns, .. } = self.commands[tag as usize];
            let used = self.dirty.sectors() + self.arm.destaging_sectors() + self.arriving_sectors;
            let room = used == 0 || used + command.sectors <= self.limits.write_cache_sectors;
            let tracked = self.dirty.len() + self.arriving < self.limits.write_extents_max
                || self.dirty.joins(command.start, command.end());
            if !room || !tracked {
                return;
            }
            self.writes.pop_front();
            self.arriving_sectors += command.sectors;
            self.arriving += 1;
            self.transfer(tag, ready_ns, around);
        }
    }

    fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.arriving == 0 && self.arm.destaging_sectors() == 0
    }

    /// Whether dirty data must go even though reads wait.
    fn is_pressed(&self, now_ns: u64) -> bool {
        self.flush.is_some()
            || !self.writes.is_empty()
            || self.dirty.sectors() >= self.limits.high_water_sectors
            || self.dirty.len() >= self.limits.high_water_extents
            || now_ns > self.destaged_ns + self.limits.ageing_ns
    }

    /// Gives the arm its next work, if it is free and there is any. Commands go before dirty data, and so
    /// does read-ahead; under pressure commands and dirty data take turns.
    fn arm_next(&mut self, around: &mut Surroundings<'_>) {
        if !self.arm.is_free() || (self.queue.is_empty() && self.dirty.is_empty()) {
            return;
        }
        let pressed = !self.dirty.is_empty() && self.is_pressed(around.now_ns);
        if self.queue.is_empty()
            && !pressed
            && let Some(full_ns) = self.reads.full_ns(around.now_ns, &self.geometry)
        {
            self.look_at_read_ahead(full_ns, around);
            return;
        }
        self.reads.fill(around.now_ns, &self.geometry);
        self.arm.follow(&self.reads, &self.geometry);
        if !pressed && let Some(least_ns) = self.reads_on_until(around.now_ns) {
            self.look_at_read_ahead(least_ns, around);
            return;
        }
        let destage =
            !self.dirty.is_empty() && (self.queue.is_empty() || (pressed && self.arm.last_was_command()));
        let end_ns = if destage { self.destage(around.now_ns) } else { self.command(around.now_ns) };
        around.arm_at(end_ns);
    }

    /// Has the arm's next work considered again at a time.
    fn look_at_read_ahead(&mut self, at_ns: u64, around: &mut Surroundings<'_>) {
        if self.read_ahead_event_ns.is_none_or(|event_ns| at_ns < event_ns) {
            self.read_ahead_event_ns = Some(at_ns);
            around.read_ahead_full_at(at_ns);
        }
    }

    /// Until when the arm goes on reading ahead for its reader though commands wait; none of them has come to the ageing bound or
    /// is on the way.
    fn reads_on_until(&self, now_ns: u64) -> Option<u64> {
        let least_ns = self.reads.least_ns(now_ns, &self.geometry)?;
        let waits = |tag: &u8| {
            let command = &self.commands[*tag as usize].command;
            now_ns.saturating_sub(command.arrival_ns) <= self.limits.ageing_ns
        };
        let first = self.first_on_the_way();
        let is_passed = first
            .is_some_and(|tag| self.read_through_ns(&self.commands[tag as usize], now_ns, true).is_some());
        (!is_passed && self.queue.iter().all(waits)).then_some(least_ns)
    }

    /// Begins the queued command that is reached first, or the oldest if it has waited too long.
    fn command(&mut self, now_ns: u64) -> u64 {
        let oldest = self.commands[self.queue[0] as usize].command;
        let first = self.first_on_the_way();
        let mut best = 0;
        if self.queue.len() > 1 && now_ns.saturating_sub(oldest.arrival_ns) <= self.limits.ageing_ns {
            let mut best_ns = u64::MAX;
            for (index, &tag) in self.queue.iter().enumerate() {
                let pending = &self.commands[tag as usize];
                let reached_ns = self.reached_ns(pending, now_ns, first == Some(tag));
                if reached_ns < best_ns {
                    (best, best_ns) = (index, reached_ns);
                }
            }
        }
        let tag = self.queue.remove(best);
        let pending = self.commands[tag as usize];
        let (start, end) = (pending.command.start, pending.command.end());
        let from_ns = now_ns.max(pending.ready_ns);
        let (work, media_ns, end_ns) = if pending.command.op == CommandOp::Read {
            let (media_ns, end_ns) = if let Some(reached_ns) = self.read_through_ns(&pending, now_ns, true) {
                (reached_ns, self.reads.carry_on(end, &self.geometry).max(from_ns))
            } else {
                let miss = self.reads.miss(start, pending.may_carry_on);
                let place = if miss.from == start { pending.place } else { self.geometry.place(miss.from) };
                let media_ns = self.arm.access_ns(from_ns, place, false);
                (media_ns, self.reads.begin(miss, (start, end), media_ns, &self.geometry))
            };
            (Work::Read(tag), media_ns, end_ns)
        } else {
            self.reads.stop();
            let media_ns = self.arm.access_ns(from_ns, pending.place, true);
            (Work::WriteFua(tag), media_ns, self.written_ns(start, end, media_ns))
        };
        self.commands[tag as usize].media_ns = media_ns;
        self.arm.begin(work, now_ns, end_ns, end, &self.geometry);
        end_ns
    }

    /// The first of the queued reads that the run under way comes to.
    fn first_on_the_way(&self) -> Option<u8> {
        let start = |tag: &u8| self.commands[*tag as usize].command.start;
        let is_passed = |tag: &&u8| {
            self.commands[**tag as usize].command.op == CommandOp::Read
                && self.reads.is_on_the_way(start(tag))
        };
        self.queue.iter().filter(is_passed).min_by_key(|tag| start(tag)).copied()
    }

    /// When the head could be at the command's first sector, which `is_first` on the way or not.
    fn reached_ns(&self, pending: &Pending, now_ns: u64, is_first: bool) -> u64 {
        let from_ns = now_ns.max(pending.ready_ns);
        if pending.command.op == CommandOp::Read {
            return self
                .read_through_ns(pending, now_ns, is_first)
                .unwrap_or_else(|| self.arm.access_ns(from_ns, pending.place, false));
        }
        self.arm.access_ns(from_ns, pending.place, true)
    }

    /// When the run under way has come to a read's first sector, if that is on its way and a seek over what lies between is not
    /// quicker. Both come to the sector at the same angle, so they differ by whole revolutions or hardly at all. Only to the first on
    /// the way is a seek considered: what lies between the others is wanted too, and would be left behind. The arm must have
    /// followed the run.
    fn read_through_ns(&self, pending: &Pending, now_ns: u64, is_first: bool) -> Option<u64> {
        let from_ns = now_ns.max(pending.ready_ns);
        let read_ns = self.reads.on_the_way(pending.command.start, now_ns, &self.geometry)?.max(from_ns);
        if !is_first || read_ns < from_ns + self.limits.revolution_ns {
            return Some(read_ns);
        }
        let sought_ns = self.arm.access_ns(from_ns, pending.place, false);
        (read_ns < sought_ns + self.limits.revolution_ns / 2).then_some(read_ns)
    }

    /// When a range has been written whose start comes under the head at `media_ns`. What it leaves of a physical sector is read, and
    /// the sector written when it comes round again: a revolution for both ends of a range that passes within one, else for each.
    fn written_ns(&self, start: u64, end: u64, media_ns: u64) -> u64 {
        let written_ns = geometry::Run::new(&self.geometry, start, media_ns).end_ns(&self.geometry, end);
        let is_cut = |sector: u64| sector & (self.limits.physical_sectors - 1) != 0;
        let cuts = u64::from(is_cut(start)) + u64::from(is_cut(end));
        let passes_within_one = written_ns - media_ns < self.limits.revolution_ns;
        let rounds = if passes_within_one { cuts.min(1) } else { cuts };
        written_ns + rounds * self.limits.revolution_ns
    }

    /// Begins to write a dirty range.
    fn destage(&mut self, now_ns: u64) -> u64 {
        self.reads.stop();
        self.destaged += 1;
        let best = self.overdue().unwrap_or_else(|| self.reached_first(now_ns));
        let media_ns = self.arm.access_ns(now_ns, self.dirty.get(best).place, true);
        let (start, end) = self.dirty.take(
            best,
            self.limits.destage_run_sectors,
            self.limits.physical_sectors,
            self.destaged,
            &self.geometry,
        );
        let end_ns = self.written_ns(start, end, media_ns);
        self.arm.begin(Work::Destage { start, end }, now_ns, end_ns, end, &self.geometry);
        end_ns
    }

    /// The dirty range that has waited longest, if meanwhile four times as many as wait now have been written. Asked once in so many
    /// ranges as the window has: what is far from all others has its turn, and the others cost no seek each.
    fn overdue(&self) -> Option<usize> {
        if !self.destaged.is_multiple_of(self.limits.destage_window as u64) {
            return None;
        }
        let oldest = self.dirty.oldest()?;
        let passed_over = self.destaged - self.dirty.get(oldest).since;
        (passed_over > 4 * self.dirty.len() as u64).then_some(oldest)
    }

    /// The dirty range that is reached first among those next to the head, on either side.
    fn reached_first(&self, now_ns: u64) -> usize {
        let window = self.limits.destage_window.min(self.dirty.len());
        let above = self.dirty.after(self.arm.sector());
        let from = above.saturating_sub(window / 2).min(self.dirty.len() - window);
        let reached_ns = |&index: &usize| self.arm.access_ns(now_ns, self.dirty.get(index).place, true);
        (from..from + window).min_by_key(reached_ns).expect("there are dirty ranges")
    }
}
