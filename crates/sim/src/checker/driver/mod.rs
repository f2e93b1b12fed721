//! Runs a volume on members that fail, in any order of answers, and judges it.
//!
//! # Contract
//! *Determinism.* A run depends on its plan, its seed and what it is told to do; equal runs have equal trace hashes.
//! *Time.* Answers take none; the clock moves to the next deadline when nothing else is left to do, and now and
//! then before.

mod audit;
mod bad_blocks;
mod flip;
mod judge;
mod members;
mod power;

use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_engine::array::slots::SlotSet;
use stripewise_engine::array::sync::SyncStatus;
use stripewise_engine::geometry::Geometry;
use stripewise_engine::io::{
    Action, ActionQueue, AdminCommand, AdminReply, Area, Compute, Flags, Input, IoError, IoResult, MemberIo,
    Op, Request, RequestId, SyncAction,
};
use stripewise_engine::units::{Instant, SECTOR_BYTES, SectorRange, Slot};
use stripewise_engine::volume::Volume;

use super::array::ArrayPlan;
use super::content::Version;
use super::failure::Failure;
use super::oracle::{Oracle, Watch};
use super::tally::Tally;
use crate::TraceHash;
use crate::bytes::BytesStore;
use crate::data::Data;
use crate::faults::{CommandWrite, Survival};
use crate::random::Random;
pub(super) use members::Device;

/// Requests under way at most.
const IN_FLIGHT_MAX: usize = 12;
/// Steps after which a run that does not come to rest is given up.
const STEPS_MAX: u32 = 1_000_000;

/// An action that was asked for and not answered.
#[derive(Debug)]
enum Pending {
    Io {
        io: MemberIo,
        out: Rc<ActionQueue>,
        /// The device's sectors.
        range: SectorRange,
        /// What was to be written, when it was asked for.
        bytes: Vec<u8>,
        flush_point: u64,
        /// The device went away while it was under way.
        doomed: bool,
    },
    Compute(Compute, Rc<ActionQueue>),
}

/// A run.
#[derive(Debug)]
pub struct Driver {
    plan: ArrayPlan,
    geometry: Geometry,
    volume: Volume,
    pub(super) devices: Vec<Device>,
    /// The device of each member.
    member_devices: Vec<Option<usize>>,
    /// The device of each slot, before the input that is handled.
    slot_devices: Vec<Option<usize>>,
    data_offset_sectors: u64,
    /// Its buffers; the members are `devices`.
    buffers: BytesStore,
    pub(super) oracle: Oracle,
    pending: Vec<Pending>,
    in_flight: Vec<Option<(Request, Watch)>>,
    /// Those that faults might have failed when a member refused something.
    excused: [bool; IN_FLIGHT_MAX],
    /// What devices refused of their data while each was under way: it may not be asked for again, though another request
    /// has it made good meanwhile.
    refusals: Vec<Vec<(usize, SectorRange)>>,
    random: Random,
    now: Instant,
    hash: TraceHash,
    /// What happened, in words, if asked for.
    log: Option<Vec<String>>,
    array_failed: bool,
    reply: Option<AdminReply>,
    /// Slots whose member was recovered when the superblocks last did not say so yet.
    recovered: SlotSet,
    /// It has partial parity logs, and began with a resync that was due: until that is recorded writes are not logged.
    is_unlogged: bool,
    /// A bit that was flipped and is not mended.
    flipped: Option<flip::Flipped>,
    /// Whether the write that must be refused was.
    refused: Option<bool>,
    /// When power fails: after so many writes.
    pub(super) cut: Option<(u64, Survival)>,
    /// Power failed, and the volume is dead.
    pub(super) is_off: bool,
    /// Writes that the last cut put in doubt.
    pub(super) in_doubt: u64,
    pub(super) tally: Tally,
    /// Pages of the members, for copies of the array, whose parts may disagree since a power cut.
    doubtful: BTreeSet<u64>,
    /// The same, after a start by force: no resync passes them.
    forced: BTreeSet<u64>,
    /// Where members refused something.
    refused_places: bad_blocks::Refused,
}

impl Driver {
    /// Starts an array of zeroes.
    ///
    /// # Errors
    /// If the plan is impossible.
    pub fn new(plan: &ArrayPlan, seed: u64, logs: bool) -> Result<Self, Failure> {
        let not_started = |error: &dyn std::fmt::Display| Failure::NotStarted(error.to_string());
        let geometry = plan.geometry().map_err(|e| not_started(&e))?;
        let mut storages = plan.devices().map_err(|e| not_started(&e))?;
        let start = plan.start(&mut storages.iter_mut().map(Some).collect::<Vec<_>>(), None)?;
        let start = start.expect("power does not fail meanwhile");
        let volume = Volume::new(&start.config).map_err(|e| not_started(&e))?;
        let mut driver = Self {
            buffers: buffers(start.devices.len(), volume.stripe_cache_entries()),
            oracle: Oracle::new(geometry.array_sectors()),
            plan: plan.clone(),
            geometry,
            volume,
            devices: storages.into_iter().map(Device::new).collect(),
            member_devices: start.devices,
            slot_devices: Vec::new(),
            data_offset_sectors: plan.data_offset_sectors(),
            pending: Vec::new(),
            in_flight: vec![None; IN_FLIGHT_MAX],
            excused: [false; IN_FLIGHT_MAX],
            refusals: vec![Vec::new(); IN_FLIGHT_MAX],
            random: Random::new(seed),
            now: Instant::ZERO,
            hash: TraceHash::new(),
            log: logs.then(Vec::new),
            array_failed: false,
            reply: None,
            recovered: SlotSet::EMPTY,
            is_unlogged: false,
            flipped: None,
            refused: None,
            cut: None,
            is_off: false,
            in_doubt: 0,
            tally: Tally::default(),
            doubtful: BTreeSet::new(),
            forced: BTreeSet::new(),
            refused_places: BTreeSet::new(),
        };
        driver.note_slots();
        Ok(driver)
    }

    /// The geometry.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The hash of all that happened.
    pub const fn trace_hash(&self) -> u64 {
        self.hash.value()
    }

    /// What came to pass.
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// What happened, in words.
    pub fn log(&mut self) -> Vec<String> {
        self.log.take().unwrap_or_default()
    }

    fn note(&mut self, words: &[u64], text: impl FnOnce() -> String) {
        for word in words {
            self.hash.add(*word);
        }
        if let Some(log) = &mut self.log {
            log.push(text());
        }
    }

    fn input(&mut self, input: Input) -> Result<(), Failure> {
        let mut out = ActionQueue::default();
        self.volume.handle(self.now, input, &mut out);
        self.volume.check_invariants();
        let out = Rc::new(out);
        for action in &out.actions {
            match *action {
                Action::Io(io) => self.ask(io, &out)?,
                Action::Compute(compute) => self.pending.push(Pending::Compute(compute, Rc::clone(&out))),
                Action::Complete { id, result } => self.complete(id, result)?,
                Action::Event(event) => self.event(event)?,
                Action::Replied { reply, .. } => self.reply = Some(reply),
            }
        }
        self.note_slots();
        if !self.recovered.is_empty() && self.volume.is_recorded() {
            self.recovered = SlotSet::EMPTY;
        }
        Ok(())
    }

    /// The volume asks a member for an I/O.
    fn ask(&mut self, io: MemberIo, out: &Rc<ActionQueue>) -> Result<(), Failure> {
        let device = &self.devices[self.device_index(io.member)].storage;
        let before = if io.area == Area::Data { self.data_offset_sectors } else { 0 };
        let range = SectorRange::new(before + io.range.start, io.range.count);
        let bad = Failure::BadIo { member: io.member, sector: range.start, count: range.count };
        let named: u64 = out.segs(io.segs).iter().map(|s| u64::from(s.bytes)).sum();
        let bytes = match io.op {
            Op::Write => self.buffers.gather(io.segs, out),
            Op::Discard | Op::WriteZeroes => vec![0; (range.count * SECTOR_BYTES) as usize],
            Op::Read | Op::Flush => Vec::new(),
        };
        let carries = matches!(io.op, Op::Read | Op::Write);
        let end = if io.area == Area::Data { before + self.plan.data_sectors } else { device.sectors() };
        if range.end() > end || (carries && named != range.count * SECTOR_BYTES) {
            return Err(bad);
        }
        let flush_point = device.flush_point();
        let doomed = false;
        self.pending.push(Pending::Io { io, out: Rc::clone(out), range, bytes, flush_point, doomed });
        Ok(())
    }

    /// Asks for a request; if too many are under way, answers members first.
    ///
    /// # Errors
    /// A broken promise.
    pub fn request(&mut self, op: Op, range: SectorRange, flags: Flags) -> Result<(), Failure> {
        let index = loop {
            if self.is_off {
                return Ok(());
            }
            match self.in_flight.iter().position(Option::is_none) {
                Some(index) => break index,
                None => self.step()?,
            }
        };
        let id = RequestId(index as u32);
        let version = match op {
            Op::Write => self.oracle.next_version(),
            Op::WriteZeroes => Version::ZERO,
            Op::Discard | Op::Read | Op::Flush => Version::ANY,
        };
        let buffer = self.buffers.request(id);
        buffer.clear();
        match op {
            Op::Write => {
                (range.start..range.end())
                    .for_each(|sector| buffer.extend_from_slice(&version.bytes(sector)));
            }
            Op::Read => buffer.resize((range.count * SECTOR_BYTES) as usize, 0xEE),
            Op::Flush | Op::Discard | Op::WriteZeroes => {}
        }
        let watch = if op.is_write() { self.oracle.writes(range, version) } else { self.oracle.asked() };
        let request = Request { id, op, range, flags };
        self.in_flight[index] = Some((request, watch));
        self.excused[index] = false;
        self.refusals[index].clear();
        self.note(&[1, op as u64, range.start, range.count, u64::from(flags.fua)], || {
            let fua = if flags.fua { " fua" } else { "" };
            let more = if flags.more { " more" } else { "" };
            let wrote = if op == Op::Write { format!(" as version {}", version.0) } else { String::new() };
            format!("request {index}: {op:?} {} sectors from {}{fua}{more}{wrote}", range.count, range.start)
        });
        self.input(Input::Request(request))
    }

    /// Gives an administrator's command, and answers how it was answered at once.
    ///
    /// # Errors
    /// A broken promise.
    pub fn admin(&mut self, command: AdminCommand) -> Result<Option<AdminReply>, Failure> {
        if let AdminCommand::Fail(slot) = command
            && let Some(device) = self.slot_devices[slot.index()]
        {
            self.devices[device].blamed = true;
        }
        self.reply = None;
        self.note(&[8], || format!("command {command:?}"));
        self.input(Input::Admin { id: 0, command })?;
        let reply = self.reply;
        self.note(&[11, reply.map_or(99, |r| r as u64)], || format!("  replied {reply:?}"));
        Ok(reply)
    }

    /// Answers one action, or lets time pass.
    ///
    /// # Errors
    /// A broken promise.
    pub fn step(&mut self) -> Result<(), Failure> {
        let due = self.volume.next_deadline();
        if self.pending.is_empty() || (due.is_some() && self.random.chance(2)) {
            let Some(due) = due else {
                return Err(Failure::Stuck(format!("{} requests wait for no answer", self.under_way())));
            };
            self.now = self.now.max(due);
            self.note(&[6], || "time passes".into());
            return self.input(Input::Timer);
        }
        let index = self.choose();
        let pending = self.pending.swap_remove(index);
        self.answer(pending)
    }

    /// Which action is answered next: any, those of slow members last.
    fn choose(&mut self) -> usize {
        let mut index = 0;
        for _ in 0..4 {
            index = self.random.below(self.pending.len() as u64) as usize;
            let Pending::Io { io, .. } = &self.pending[index] else { break };
            if !self.devices[self.device_index(io.member)].slow {
                break;
            }
        }
        index
    }

    fn answer(&mut self, pending: Pending) -> Result<(), Failure> {
        let (io, out, range, bytes, flush_point, doomed) = match pending {
            Pending::Compute(compute, out) => {
                let verdict = self.buffers.compute(&compute, &out);
                self.note(&[5, compute.bytes], || format!("computed {:?}", compute.kernel));
                return self.input(Input::Computed { tag: compute.tag, verdict });
            }
            Pending::Io { io, out, range, bytes, flush_point, doomed } => {
                (io, out, range, bytes, flush_point, doomed)
            }
        };
        if io.op == Op::Write && self.buffers.gather(io.segs, &out) != bytes {
            return Err(Failure::BytesChanged { member: io.member, sector: range.start });
        }
        let result =
            if doomed { Err(IoError::Gone) } else { self.carry_out(&io, &out, range, bytes, flush_point) };
        let words =
            [4, io.member.0.into(), io.op as u64, range.start, range.count, u64::from(result.is_ok())];
        self.note(&words, || {
            let what =
                format!("{:?} {} sectors from {} of {:?}", io.op, io.range.count, io.range.start, io.area);
            let fua = if io.fua { " fua" } else { "" };
            format!("member {} answers {what}{fua}: {result:?}", io.member)
        });
        if result.is_err() {
            let device = self.member_devices[io.member.index()].filter(|_| io.area == Area::Data);
            if device.is_some() {
                self.note_refused(&io);
            }
            self.excuse(device.map(|device| (device, io.range)));
        }
        self.input(Input::IoDone { tag: io.tag, result })?;
        if io.op.is_write() {
            self.tally.member_writes += 1;
            if let Some((_, survival)) = self.cut.filter(|(after, _)| *after <= self.tally.member_writes) {
                self.power_cut(survival);
            }
        }
        Ok(())
    }

    /// What the device makes of an I/O.
    fn carry_out(
        &mut self,
        io: &MemberIo,
        out: &ActionQueue,
        range: SectorRange,
        mut bytes: Vec<u8>,
        flush_point: u64,
    ) -> IoResult {
        let index = self.device_index(io.member);
        let device = &mut self.devices[index];
        if device.gone {
            // What was under way may have been done, though nobody says so.
            if io.op.is_write() && self.random.chance(30) {
                device.storage.write(CommandWrite { sector: range.start, bytes }, false);
            }
            return Err(IoError::Gone);
        }
        match io.op {
            Op::Read => {
                if device.flaky_percent > 0 && self.random.chance(device.flaky_percent.into()) {
                    return Err(IoError::Media);
                }
                let read = device.storage.read(range)?.to_vec();
                self.buffers.scatter(io.segs, out, &read);
            }
            Op::Write | Op::Discard | Op::WriteZeroes => {
                let may_fail = device.failing_percent > 0;
                let fails_at = (may_fail && self.random.chance(device.failing_percent.into()))
                    .then(|| self.random.below(range.count + 1))
                    .or_else(|| device.stuck_at(range, &mut self.random));
                let fails = fails_at.is_some();
                if let Some(taken) = fails_at {
                    bytes.truncate((taken * SECTOR_BYTES) as usize);
                }
                device.storage.write(CommandWrite { sector: range.start, bytes }, io.fua && !fails);
                if fails {
                    return Err(IoError::Media);
                }
            }
            Op::Flush => device.storage.flush(flush_point),
        }
        Ok(())
    }

    /// Requests under way.
    fn under_way(&self) -> usize {
        self.in_flight.iter().flatten().count()
    }

    /// Answers so many actions, as long as there are any.
    ///
    /// # Errors
    /// A broken promise.
    pub fn steps(&mut self, count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            if self.is_off || self.pending.is_empty() && self.under_way() == 0 && !self.is_due() {
                break;
            }
            self.step()?;
        }
        Ok(())
    }

    /// Whether the volume wants to go on at once.
    fn is_due(&self) -> bool {
        self.volume.next_deadline().is_some_and(|due| due <= self.now)
    }

    /// Answers until nothing is under way.
    ///
    /// # Errors
    /// A broken promise.
    pub fn drain(&mut self) -> Result<(), Failure> {
        for _ in 0..STEPS_MAX {
            if self.is_off || self.under_way() == 0 && self.pending.is_empty() {
                return Ok(());
            }
            self.step()?;
        }
        Err(Failure::Stuck(format!("{} requests after a million steps", self.under_way())))
    }

    /// Lets time pass with nothing to do, up to so many deadlines.
    ///
    /// # Errors
    /// A broken promise.
    pub fn idle(&mut self, deadlines: u8) -> Result<(), Failure> {
        for _ in 0..deadlines {
            self.drain()?;
            if self.is_off || self.volume.next_deadline().is_none() {
                break;
            }
            self.step()?;
        }
        self.drain()
    }

    /// Answers until the array's own work is at its end, too.
    ///
    /// # Errors
    /// A broken promise.
    pub fn settle(&mut self) -> Result<(), Failure> {
        for _ in 0..STEPS_MAX {
            self.drain()?;
            let is_working =
                self.sync_action() != SyncAction::Idle && self.sync_action() != SyncAction::Frozen;
            if self.is_off || !is_working && !self.is_due() {
                return Ok(());
            }
            self.step()?;
        }
        Err(Failure::Stuck(format!("{:?} does not come to its end", self.sync_action())))
    }

    /// How far the array's own work has come; none without redundancy.
    pub fn sync_status(&self) -> Option<SyncStatus> {
        self.volume.sync_status()
    }

    /// What the array works on.
    pub(super) fn sync_action(&self) -> SyncAction {
        self.volume.sync_status().map_or(SyncAction::Idle, |status| status.action)
    }

    fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.plan.members).map(Slot)
    }
}

/// Buffers for so many slots, without members.
fn buffers(members: usize, entries: u32) -> BytesStore {
    BytesStore::new(&vec![0; members], entries)
}
