//! Power cuts, and what the array must be after them.

use stripewise_engine::array::slots::SlotSet;
use stripewise_engine::geometry::{Holds, Place};
use stripewise_engine::io::{AdminCommand, Op, Request};
use stripewise_engine::level::Level;
use stripewise_engine::units::{Instant, PAGE_SECTORS, SectorRange, Slot};
use stripewise_engine::volume::Volume;

use super::{Driver, Pending, buffers};
use crate::checker::failure::Failure;
use crate::checker::start::Start;
use crate::faults::{CommandWrite, MemberStorage, Survival};

impl Driver {
    /// Cuts the power. Nothing goes on until [`Driver::restart`].
    pub fn power_cut(&mut self, survival: Survival) {
        self.cut = None;
        self.is_off = true;
        let mut in_flight: Vec<Vec<CommandWrite>> = vec![Vec::new(); self.devices.len()];
        for pending in std::mem::take(&mut self.pending) {
            if let Pending::Io { io, range, bytes, doomed: false, .. } = pending
                && io.op.is_write()
                && !self.devices[self.device_index(io.member)].gone
            {
                in_flight[self.device_index(io.member)].push(CommandWrite { sector: range.start, bytes });
            }
        }
        self.in_doubt = 0;
        for (index, writes) in in_flight.iter().enumerate() {
            let storage = &self.devices[index].storage;
            let ranges: Vec<SectorRange> =
                storage.unflushed().chain(writes).map(CommandWrite::range).collect();
            for range in ranges {
                self.note_doubtful(index, range);
            }
            let first = self.in_doubt;
            self.in_doubt += self.devices[index].storage.power_cut(writes, survival, first);
        }
        // Writes under way may have reached all caches but that of a member that failed meanwhile.
        let under_way: Vec<Request> =
            self.in_flight.iter_mut().filter_map(Option::take).map(|(r, _)| r).collect();
        under_way.iter().filter(|r| r.op.is_write()).for_each(|request| self.note_request(request.range));
        self.oracle.power_cut();
        let in_doubt = self.in_doubt;
        self.note(&[9, in_doubt], || format!("power cut with {in_doubt} writes in doubt, {survival:?}"));
    }

    /// What a write in doubt leaves doubtful: its rows, or the array's pages of its copies.
    fn note_doubtful(&mut self, device: usize, range: SectorRange) {
        let before = self.data_offset_sectors;
        let start = range.start.max(before) - before;
        let end = (range.end().max(before) - before).min(self.geometry.used_sectors(Slot(0)));
        let rows = start / PAGE_SECTORS..end.div_ceil(PAGE_SECTORS);
        if range.end() <= before || start >= end {
            return;
        }
        if self.geometry.level().parity_count() > 0 {
            return self.doubtful.extend(rows);
        }
        // A device that is to take a slot may have left it, or not have it yet, by now.
        for slot in self.slots() {
            let is_it = self.slot_devices[slot.index()] == Some(device);
            for row in rows.clone().filter(|_| is_it) {
                if let Holds::Data(sector) = self.geometry.holds(Place { slot, sector: row * PAGE_SECTORS }) {
                    self.doubtful.insert(sector / PAGE_SECTORS);
                }
            }
        }
    }

    /// What a request under way leaves doubtful.
    pub(super) fn note_request(&mut self, range: SectorRange) {
        let is_parity = self.geometry.level().parity_count() > 0;
        for sector in range.start..range.end() {
            let page = if is_parity { self.geometry.place(sector, 0).sector } else { sector } / PAGE_SECTORS;
            self.doubtful.insert(page);
        }
    }

    /// Starts the array from what its devices hold.
    ///
    /// # Errors
    /// If it cannot be started, or what survived is not what must.
    pub fn restart(&mut self) -> Result<(), Failure> {
        for device in &mut self.devices {
            device.gone &= !device.comes_back;
            device.left = None;
        }
        let start = self.start()?;
        self.volume = Volume::new(&start.config).map_err(|error| Failure::NotStarted(error.to_string()))?;
        self.buffers = buffers(start.devices.len(), self.volume.stripe_cache_entries());
        self.member_devices.clone_from(&start.devices);
        self.slot_devices.clear();
        self.note_slots();
        self.array_failed = false;
        self.recovered = SlotSet::EMPTY;
        let had_logs = self.plan.ppl().is_some() && !self.is_unlogged;
        self.is_unlogged = start.config.resync_from.is_some();
        self.is_off = false;
        self.now = Instant::ZERO;
        self.tally.restarts += 1;
        let config = &start.config;
        self.note(&[10, config.failed.len() as u64, config.recovering.len() as u64], || {
            format!(
                "restart: without {:?}, recovering {:?}, spares {}, replacing {:?}, resync from {:?} of {:?} dirty bits, \
                 forced {}",
                config.failed,
                config.recovering,
                config.spares,
                config.replacements,
                config.resync_from,
                start.bitmap.as_ref().map(|b| b.bits.dirty_count()),
                start.forced
            )
        });
        if start.forced && start.config.resync_from.is_none() {
            self.forced.extend(&self.doubtful);
        }
        for slot in self.slots() {
            let is_whole = self.holds(slot, u64::MAX);
            let ails = self.ails(slot);
            if is_whole && !ails {
                continue;
            }
            if had_logs {
                self.doubt_unfinished(slot, if ails { PAGE_SECTORS } else { 1 });
            } else {
                self.doubt(slot);
            }
        }
        self.check_survivors()?;
        self.check_suspects(&start, had_logs)?;
        self.check_listed()?;
        if start.config.resync_from.is_none() || had_logs {
            self.doubtful.clear();
        }
        Ok(())
    }

    /// Starts the array, once more if power fails while its logs are followed.
    fn start(&mut self) -> Result<Start, Failure> {
        let mut writes_left = None;
        if self.plan.ppl().is_some() && self.random.chance(30) {
            writes_left = Some(self.random.below(20));
        }
        loop {
            let mut present: Vec<Option<&mut MemberStorage>> =
                self.devices.iter_mut().map(|d| (!d.gone).then_some(&mut d.storage)).collect();
            if let Some(start) = self.plan.start(&mut present, writes_left.take())? {
                return Ok(start);
            }
            let survival = Survival::Seeded(self.random.next_u64());
            for storage in present.into_iter().flatten() {
                storage.power_cut(&[], survival, 0);
            }
        }
    }

    /// Every copy of a sector on a member that is in use is one that may have survived.
    fn check_survivors(&self) -> Result<(), Failure> {
        for slot in self.slots() {
            let Some(device) = self.device_of(slot).filter(|d| !d.gone) else { continue };
            for sector in 0..self.geometry.used_sectors(slot) {
                if let Holds::Data(of_array) = self.geometry.holds(Place { slot, sector })
                    && self.holds(slot, sector + 1)
                    && !self.is_listed(slot, SectorRange::new(sector, 1))
                {
                    let range = SectorRange::new(self.data_offset_sectors + sector, 1);
                    self.oracle
                        .may_hold(of_array, device.storage.bytes(range))
                        .map_err(|wrong| Failure::Survived(slot, wrong))?;
                }
            }
        }
        Ok(())
    }

    /// What disagrees is what the members' metadata say may disagree; nothing where every write was logged.
    fn check_suspects(&self, start: &Start, had_logs: bool) -> Result<(), Failure> {
        let mut result = Ok(());
        self.mismatches(|place, _| {
            let (sync_sector, page) = match self.geometry.holds(place) {
                Holds::Data(sector) if self.geometry.level().parity_count() == 0 => {
                    let is_raid10 = self.geometry.level() == Level::Raid10;
                    (if is_raid10 { sector } else { place.sector }, sector / PAGE_SECTORS)
                }
                _ => (place.sector, place.sector / PAGE_SECTORS),
            };
            // Logs say of all rows, but of those that cannot be read whole: there parity says what they hold.
            let is_suspect = if had_logs { self.is_spoilt(page) } else { start.is_suspect(sync_sector) };
            if !is_suspect && !self.forced.contains(&page) && result.is_ok() {
                result = Err(Failure::NotMarked { slot: place.slot, sector: place.sector });
            }
        });
        result
    }

    /// Whether a slot's member has sectors of a page that cannot be read.
    fn is_spoilt(&self, page: u64) -> bool {
        let range = SectorRange::new(self.data_offset_sectors + page * PAGE_SECTORS, PAGE_SECTORS);
        self.slots().filter_map(|slot| self.device_of(slot)).any(|device| device.storage.is_unreadable(range))
    }

    /// Stops the array, takes the power with all that is not durable, and starts it again: nothing may be missing.
    ///
    /// # Errors
    /// A broken promise.
    pub fn stop(&mut self) -> Result<(), Failure> {
        self.drain()?;
        if self.is_off || self.array_failed || !self.plan.is_redundant() {
            return Ok(());
        }
        self.cut = None;
        let mut reply = self.admin(AdminCommand::Stop)?;
        for _ in 0..super::STEPS_MAX {
            if reply.is_some() || self.array_failed {
                break;
            }
            self.step()?;
            reply = self.reply;
        }
        if reply.is_none() {
            return if self.array_failed { Ok(()) } else { Err(Failure::Stuck("the stop".into())) };
        }
        let writes =
            self.pending.iter().filter(|p| matches!(p, Pending::Io { io, .. } if io.op == Op::Write)).count();
        self.note(&[12, writes as u64], || format!("stopped, with {writes} writes of its own under way"));
        self.oracle.stopped();
        self.power_cut(Survival::None);
        self.restart()
    }
}
