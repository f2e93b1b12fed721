//! Runs a volume on members that fail, in any order of answers, and judges it.
//!
//! # Contract
//! *Determinism.* A run depends on its plan, its seed and what it is told to do; equal runs have equal trace hashes.
//! *Time.* Answers take none; the clock moves to the next deadline when nothing else is left to do, and now and
//! then before.

use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_engine::geometry::{Geometry, Holds, Place};
use stripewise_engine::io::{
    Action, ActionQueue, AdminCommand, Area, ArrayEvent, Compute, Flags, Input, IoError, IoResult, MemberIo,
    Op, Request, RequestId,
};
use stripewise_engine::level::Level;
use stripewise_engine::units::{Instant, MemberIndex, PAGE_SECTORS, SECTOR_BYTES, SectorRange, Slot};
use stripewise_engine::volume::Volume;

use super::array::{ArrayPlan, Start};
use super::content::Version;
use super::failure::Failure;
use super::oracle::{Oracle, Watch};
use super::redundancy;
use crate::TraceHash;
use crate::bytes::BytesStore;
use crate::data::Data;
use crate::faults::{CommandWrite, MemberStorage, Survival};
use crate::random::Random;

/// Requests under way at most.
const IN_FLIGHT_MAX: usize = 12;

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
    },
    Compute(Compute, Rc<ActionQueue>),
}

/// A device, and what ails it.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) storage: MemberStorage,
    pub(super) gone: bool,
    pub(super) comes_back: bool,
    pub(super) flaky_percent: u8,
    pub(super) failing_percent: u8,
    pub(super) slow: bool,
}

impl Device {
    /// Whether it is not to be relied on.
    pub(super) fn ails(&self) -> bool {
        self.gone || self.flaky_percent > 0 || self.failing_percent > 0 || self.storage.is_spoilt()
    }
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
    data_offset_sectors: u64,
    /// Its buffers; the members are `devices`.
    buffers: BytesStore,
    pub(super) oracle: Oracle,
    pending: Vec<Pending>,
    in_flight: Vec<Option<(Request, Watch)>>,
    random: Random,
    now: Instant,
    hash: TraceHash,
    /// What happened, in words, if asked for.
    log: Option<Vec<String>>,
    /// Slots that the volume took out of use.
    pub(super) failed: Vec<Slot>,
    array_failed: bool,
    /// Writes that members answered since the start of the run.
    writes: u64,
    /// When power fails: after so many writes.
    pub(super) cut: Option<(u64, Survival)>,
    /// Power failed, and the volume is dead.
    pub(super) is_off: bool,
    /// Writes that the last cut put in doubt.
    pub(super) in_doubt: u64,
    completed: u64,
    /// Rows of the members whose parts may disagree since a power cut.
    doubtful_rows: BTreeSet<u64>,
}

impl Driver {
    /// Starts an array of zeroes.
    ///
    /// # Errors
    /// If the plan is impossible.
    pub fn new(plan: &ArrayPlan, seed: u64, logs: bool) -> Result<Self, Failure> {
        let not_started = |error: &dyn std::fmt::Display| Failure::NotStarted(error.to_string());
        let geometry = plan.geometry().map_err(|e| not_started(&e))?;
        let storages = plan.devices().map_err(|e| not_started(&e))?;
        let start = plan.start(&storages.iter().map(Some).collect::<Vec<_>>())?;
        let volume = Volume::new(&start.config).map_err(|e| not_started(&e))?;
        let device = |storage| Device {
            storage,
            gone: false,
            comes_back: false,
            flaky_percent: 0,
            failing_percent: 0,
            slow: false,
        };
        Ok(Self {
            buffers: buffers(start.devices.len(), volume.stripe_cache_entries()),
            oracle: Oracle::new(geometry.array_sectors()),
            plan: plan.clone(),
            geometry,
            volume,
            devices: storages.into_iter().map(device).collect(),
            member_devices: start.devices,
            data_offset_sectors: start.data_offset_sectors,
            pending: Vec::new(),
            in_flight: vec![None; IN_FLIGHT_MAX],
            random: Random::new(seed),
            now: Instant::ZERO,
            hash: TraceHash::new(),
            log: logs.then(Vec::new),
            failed: Vec::new(),
            array_failed: false,
            writes: 0,
            cut: None,
            is_off: false,
            in_doubt: 0,
            completed: 0,
            doubtful_rows: BTreeSet::new(),
        })
    }

    /// The geometry.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The hash of all that happened.
    pub const fn trace_hash(&self) -> u64 {
        self.hash.value()
    }

    /// Writes that members answered.
    pub const fn writes(&self) -> u64 {
        self.writes
    }

    /// Requests that were answered.
    pub const fn completed(&self) -> u64 {
        self.completed
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
                Action::Event(event) => self.event(event),
                Action::Replied { .. } => {}
            }
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
        if range.end() > device.sectors() || (carries && named != range.count * SECTOR_BYTES) {
            return Err(bad);
        }
        let flush_point = device.flush_point();
        self.pending.push(Pending::Io { io, out: Rc::clone(out), range, bytes, flush_point });
        Ok(())
    }

    fn event(&mut self, event: ArrayEvent) {
        match event {
            ArrayEvent::MemberFailed { slot } => {
                self.failed.push(slot);
                self.doubt(slot);
            }
            ArrayEvent::ArrayFailed => self.array_failed = true,
            _ => {}
        }
        self.note(&[7, self.failed.len() as u64], || format!("event {event:?}"));
    }

    fn complete(&mut self, id: RequestId, result: IoResult) -> Result<(), Failure> {
        let (request, watch) = self.in_flight[id.0 as usize].take().expect("a request ends once");
        self.completed += 1;
        self.note(&[2, id.0.into(), u64::from(result.is_ok())], || {
            format!("request {} ends: {result:?}", id.0)
        });
        if let Err(error) = result
            && !self.may_fail(&request)
        {
            return Err(Failure::Refused(request, error));
        }
        match request.op {
            Op::Read if result.is_ok() => {
                let bytes = std::mem::take(self.buffers.request(id));
                self.oracle
                    .read(request.range, watch, &bytes)
                    .map_err(|wrong| Failure::Read(request, wrong))?;
            }
            Op::Flush if result.is_ok() => {
                let oldest = self.in_flight.iter().flatten().map(|(_, watch)| *watch).min();
                self.oracle.flushed(watch, oldest);
            }
            Op::Write | Op::WriteZeroes | Op::Discard => {
                self.oracle.wrote(request.range, watch, result, request.flags.fua);
            }
            Op::Read | Op::Flush => {}
        }
        Ok(())
    }

    /// Whether faults explain that a request failed.
    fn may_fail(&self, request: &Request) -> bool {
        let is_lost = |place: Place| {
            let Some(member) = self.device_of(place.slot) else { return true };
            let sector = self.data_offset_sectors + place.sector;
            member.gone
                || self.failed.contains(&place.slot)
                || member.flaky_percent > 0
                || member.failing_percent > 0
                || member.storage.is_unreadable(SectorRange::new(sector, 1))
        };
        if self.array_failed {
            return true;
        }
        if request.op == Op::Flush {
            return self.geometry.copies() == 1
                && (0..self.plan.members).any(|slot| is_lost(Place { slot: Slot(slot), sector: 0 }));
        }
        let tolerated = usize::from(self.plan.level.parity_count());
        (request.range.start..request.range.end()).any(|sector| {
            if tolerated == 0 {
                return (0..self.geometry.copies()).all(|copy| is_lost(self.geometry.place(sector, copy)));
            }
            let row = self.geometry.place(sector, 0).sector / 8 * 8;
            let lost = |slot: &u16| (row..row + 8).any(|sector| is_lost(Place { slot: Slot(*slot), sector }));
            (0..self.plan.members).filter(lost).count() > tolerated
        })
    }

    fn device_of(&self, slot: Slot) -> Option<&Device> {
        self.member_devices.get(slot.index())?.map(|device| &self.devices[device])
    }

    /// # Panics
    /// If the engine names a member that the array has not: a bug of the engine.
    fn device_index(&self, member: MemberIndex) -> usize {
        self.member_devices[member.index()].expect("the engine names members that are there")
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
        self.note(&[1, op as u64, range.start, range.count, u64::from(flags.fua)], || {
            let fua = if flags.fua { " fua" } else { "" };
            let more = if flags.more { " more" } else { "" };
            let wrote = if op == Op::Write { format!(" as version {}", version.0) } else { String::new() };
            format!("request {index}: {op:?} {} sectors from {}{fua}{more}{wrote}", range.count, range.start)
        });
        self.input(Input::Request(request))
    }

    /// Gives an administrator's command.
    ///
    /// # Errors
    /// A broken promise.
    pub fn admin(&mut self, command: AdminCommand) -> Result<(), Failure> {
        self.note(&[8], || format!("command {command:?}"));
        self.input(Input::Admin { id: 0, command })
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
        let (io, out, range, bytes, flush_point) = match pending {
            Pending::Compute(compute, out) => {
                let verdict = self.buffers.compute(&compute, &out);
                self.note(&[5, compute.bytes], || format!("computed {:?}", compute.kernel));
                return self.input(Input::Computed { tag: compute.tag, verdict });
            }
            Pending::Io { io, out, range, bytes, flush_point } => (io, out, range, bytes, flush_point),
        };
        if io.op == Op::Write && self.buffers.gather(io.segs, &out) != bytes {
            return Err(Failure::BytesChanged { member: io.member, sector: range.start });
        }
        let result = self.carry_out(&io, &out, range, bytes, flush_point);
        let words =
            [4, io.member.0.into(), io.op as u64, range.start, range.count, u64::from(result.is_ok())];
        self.note(&words, || {
            let what =
                format!("{:?} {} sectors from {} of {:?}", io.op, io.range.count, io.range.start, io.area);
            let fua = if io.fua { " fua" } else { "" };
            format!("member {} answers {what}{fua}: {result:?}", io.member)
        });
        self.input(Input::IoDone { tag: io.tag, result })?;
        if io.op.is_write() {
            self.writes += 1;
            if let Some((_, survival)) = self.cut.filter(|(after, _)| *after <= self.writes) {
                self.power_cut(survival)?;
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
                let fails = device.failing_percent > 0 && self.random.chance(device.failing_percent.into());
                if fails {
                    bytes.truncate((self.random.below(range.count + 1) * SECTOR_BYTES) as usize);
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

    /// Answers so many actions, as long as there are requests under way.
    ///
    /// # Errors
    /// A broken promise.
    pub fn steps(&mut self, count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            if self.is_off || self.under_way() == 0 {
                break;
            }
            self.step()?;
        }
        Ok(())
    }

    /// Answers until nothing is under way.
    ///
    /// # Errors
    /// A broken promise.
    pub fn drain(&mut self) -> Result<(), Failure> {
        let mut steps = 0u32;
        while !self.is_off && (self.under_way() > 0 || !self.pending.is_empty()) {
            self.step()?;
            steps += 1;
            if steps > 1_000_000 {
                return Err(Failure::Stuck(format!("{} requests after a million steps", self.under_way())));
            }
        }
        Ok(())
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

    /// Cuts the power. Nothing goes on until [`Driver::restart`].
    ///
    /// # Errors
    /// A broken promise.
    pub fn power_cut(&mut self, survival: Survival) -> Result<(), Failure> {
        self.cut = None;
        self.is_off = true;
        let mut in_flight: Vec<Vec<CommandWrite>> = vec![Vec::new(); self.devices.len()];
        for pending in std::mem::take(&mut self.pending) {
            if let Pending::Io { io, range, bytes, .. } = pending
                && io.op.is_write()
                && !self.devices[self.device_index(io.member)].gone
            {
                in_flight[self.device_index(io.member)].push(CommandWrite { sector: range.start, bytes });
            }
        }
        self.in_doubt = 0;
        let before = self.data_offset_sectors;
        for (device, writes) in self.devices.iter_mut().zip(&in_flight) {
            for range in device.storage.unflushed().chain(writes).map(CommandWrite::range) {
                let data = range.start.saturating_sub(before)..range.end().saturating_sub(before);
                self.doubtful_rows.extend(data.map(|sector| sector / PAGE_SECTORS));
            }
            self.in_doubt += device.storage.power_cut(writes, survival, self.in_doubt);
        }
        self.in_flight.fill(None);
        self.oracle.power_cut();
        let in_doubt = self.in_doubt;
        self.note(&[9, in_doubt], || format!("power cut with {in_doubt} writes in doubt, {survival:?}"));
        self.check_survivors()
    }

    /// Every copy of a sector on a member that is in use is one that may have survived.
    fn check_survivors(&self) -> Result<(), Failure> {
        for slot in self.slots().filter(|s| !self.failed.contains(s)) {
            let Some(device) = self.device_of(slot).filter(|d| !d.gone) else { continue };
            for sector in 0..self.geometry.used_sectors(slot) {
                if let Holds::Data(of_array) = self.geometry.holds(Place { slot, sector }) {
                    let range = SectorRange::new(self.data_offset_sectors + sector, 1);
                    self.oracle
                        .may_hold(of_array, device.storage.bytes(range))
                        .map_err(|wrong| Failure::Survived(slot, wrong))?;
                }
            }
        }
        Ok(())
    }

    fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.plan.members).map(Slot)
    }

    /// Starts the array from what its devices hold.
    ///
    /// # Errors
    /// If it cannot be started, or what survived is not what must.
    pub fn restart(&mut self) -> Result<(), Failure> {
        for device in &mut self.devices {
            device.gone &= !device.comes_back;
        }
        let present: Vec<Option<&MemberStorage>> =
            self.devices.iter().map(|d| (!d.gone).then_some(&d.storage)).collect();
        let start = self.plan.start(&present)?;
        self.volume = Volume::new(&start.config).map_err(|error| Failure::NotStarted(error.to_string()))?;
        self.buffers = buffers(start.devices.len(), self.volume.stripe_cache_entries());
        self.failed.clone_from(&start.config.failed);
        self.member_devices.clone_from(&start.devices);
        self.data_offset_sectors = start.data_offset_sectors;
        self.array_failed = false;
        self.is_off = false;
        self.now = Instant::ZERO;
        self.note(&[10, start.config.failed.len() as u64], || {
            let (failed, forced) = (&start.config.failed, start.forced);
            format!("restart: without {failed:?}, clean {}, forced {forced}", start.is_clean)
        });
        for slot in self.slots() {
            let device = self.device_of(slot);
            if self.failed.contains(&slot) || device.is_none_or(Device::ails) {
                self.doubt(slot);
            }
        }
        self.check_survivors()?;
        if !start.forced {
            self.check_suspects(&start)?;
        }
        self.resync();
        if !start.forced {
            self.doubtful_rows.clear();
        }
        Ok(())
    }

    /// Makes parity and copies agree, as a resync would.
    fn resync(&mut self) {
        loop {
            let mut wrong = Vec::new();
            self.mismatches(|place, right| wrong.push((place, right.to_vec())));
            if wrong.is_empty() {
                return;
            }
            for (place, right) in wrong {
                let before = self.data_offset_sectors;
                if let Some((device, _)) = self.device_mut(place.slot) {
                    device.storage.put(before + place.sector, &right);
                }
            }
        }
    }

    /// Where writes were under way when power failed and parity was not made right since, a slot that is lost or
    /// unreadable cannot be told from the others.
    pub(super) fn doubt(&mut self, slot: Slot) {
        if self.geometry.level().parity_count() == 0 {
            return;
        }
        for row in &self.doubtful_rows {
            let place = Place { slot, sector: row * PAGE_SECTORS };
            if let Holds::Data(sector) = self.geometry.holds(place) {
                self.oracle.undefine(SectorRange::new(sector, PAGE_SECTORS));
            }
        }
    }

    /// What disagrees is what the members' metadata say may disagree.
    fn check_suspects(&self, start: &Start) -> Result<(), Failure> {
        let mut result = Ok(());
        self.mismatches(|place, _| {
            let sync_sector = match self.geometry.holds(place) {
                Holds::Data(sector) if self.geometry.level() == Level::Raid10 => sector,
                _ => place.sector,
            };
            if start.is_suspect(sync_sector) || result.is_err() {
                return;
            }
            result = Err(Failure::NotMarked { slot: place.slot, sector: place.sector });
        });
        result
    }

    /// Calls with each place that disagrees, and what would be right there.
    fn mismatches(&self, mut found: impl FnMut(Place, &[u8])) {
        redundancy::mismatches(
            &self.geometry,
            |slot, range| {
                let device = self.device_of(slot).filter(|d| !d.gone && !self.failed.contains(&slot))?;
                let range = SectorRange::new(self.data_offset_sectors + range.start, range.count);
                Some(device.storage.bytes(range))
            },
            &mut found,
        );
    }

    /// Reads the whole array and checks that members agree. To be called when nothing is under way.
    ///
    /// # Errors
    /// A broken promise.
    pub fn verify(&mut self) -> Result<(), Failure> {
        let sectors = self.geometry.array_sectors();
        let mut sector = 0;
        while sector < sectors {
            let count = (1 + self.random.below(64)).min(sectors - sector);
            self.request(Op::Read, SectorRange::new(sector, count), Flags::default())?;
            sector += count;
        }
        self.drain()?;
        if self.array_failed {
            return Ok(());
        }
        let mut first = None;
        self.mismatches(|place, _| first = first.or(Some(place)));
        match first {
            Some(Place { slot, sector }) => Err(Failure::NotRedundant { slot, sector }),
            None => Ok(()),
        }
    }

    /// The device that is the member of a slot.
    pub(super) fn device_mut(&mut self, slot: Slot) -> Option<(&mut Device, u64)> {
        let device = (*self.member_devices.get(slot.index())?)?;
        Some((&mut self.devices[device], self.data_offset_sectors))
    }
}

/// Buffers for so many slots, without members.
fn buffers(slots: usize, entries: u32) -> BytesStore {
    BytesStore::new(&vec![0; slots], entries)
}
