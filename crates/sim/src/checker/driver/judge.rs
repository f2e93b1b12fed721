//! Whether what the volume says is explained by what was done to it.

use stripewise_engine::geometry::{Holds, Place};
use stripewise_engine::io::{ArrayEvent, IoResult, Op, Request, RequestId, SyncAction};
use stripewise_engine::units::{PAGE_SECTORS, SectorRange, Slot};

use super::{Device, Driver};
use crate::checker::failure::Failure;

impl Driver {
    pub(super) fn event(&mut self, event: ArrayEvent) -> Result<(), Failure> {
        self.note(&[7], || format!("event {event:?}"));
        match event {
            ArrayEvent::MemberFailed { slot } => {
                self.has_cause(slot)?;
                self.doubt(slot);
            }
            ArrayEvent::LastCopyKept { slot } => self.has_cause(slot)?,
            ArrayEvent::ArrayFailed => {
                self.array_failed = true;
                self.doubt_writes();
            }
            ArrayEvent::ReadErrorCorrected { .. } => self.tally.corrected += 1,
            ArrayEvent::MemberInSync { slot } => {
                self.tally.recovered += 1;
                self.recovered.insert(slot);
                // What it was filled with can be made anew only from parity that is right.
                if self.ails(slot) {
                    self.doubt(slot);
                }
            }
            ArrayEvent::SyncDone(action) => return self.sync_done(action),
            ArrayEvent::SyncInterrupted(action) => {
                self.tally.interrupted += 1;
                return self.check_found(action);
            }
            ArrayEvent::SyncFailed { action, .. } => {
                let is_explained = self.array_failed || self.devices.iter().any(Device::ails);
                if !is_explained {
                    return Err(Failure::GaveUp(action));
                }
            }
            ArrayEvent::JournalFailed => unreachable!("the arrays of the checker have none"),
            ArrayEvent::ReplacementFailed { .. } | ArrayEvent::SyncStarted(_) => {}
        }
        Ok(())
    }

    /// The slot's member did something for which it fails.
    fn has_cause(&self, slot: Slot) -> Result<(), Failure> {
        let device = self.slot_devices[slot.index()];
        let is_innocent = device.is_some_and(|device| !self.devices[device].blamed);
        if is_innocent { Err(Failure::FailedWithoutCause(slot)) } else { Ok(()) }
    }

    fn sync_done(&mut self, action: SyncAction) -> Result<(), Failure> {
        match action {
            SyncAction::Resync => {
                self.tally.resyncs += 1;
                self.doubtful.clear();
                if !self.plan.has_bitmap() {
                    self.forced.clear();
                }
                self.oracle.settled();
            }
            SyncAction::Check | SyncAction::Repair | SyncAction::RepairLocated => {
                self.tally.checks += 1;
                self.check_found(action)?;
                let is_whole = self.slots().all(|slot| self.holds(slot, u64::MAX));
                if action == SyncAction::Repair && is_whole {
                    self.doubtful.clear();
                    self.forced.clear();
                    self.oracle.settled();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A check finds nothing where nothing is wrong.
    fn check_found(&self, action: SyncAction) -> Result<(), Failure> {
        let compares = matches!(action, SyncAction::Check | SyncAction::Repair | SyncAction::RepairLocated);
        let found = self.volume.sync_status().map_or(0, |status| status.mismatch_sectors);
        // What so many members do not give at once cannot be compared, which counts as well.
        let ailing = self.devices.iter().filter(|device| device.blamed).count();
        let is_explained = !self.doubtful.is_empty()
            || !self.forced.is_empty()
            || self.flipped.is_some()
            || self.slots().any(|slot| self.has_listed(slot))
            || ailing > usize::from(self.plan.level.parity_count()).max(1);
        if compares && found > 0 && !is_explained && !self.array_failed {
            return Err(Failure::FalseMismatch(found));
        }
        Ok(())
    }

    pub(super) fn complete(&mut self, id: RequestId, result: IoResult) -> Result<(), Failure> {
        let (request, watch) = self.in_flight[id.0 as usize].take().expect("a request ends once");
        self.tally.requests += 1;
        self.note(&[2, id.0.into(), u64::from(result.is_ok())], || {
            format!("request {} ends: {result:?}", id.0)
        });
        if let Err(error) = result
            && !self.excused[id.0 as usize]
            && !self.may_fail(&request, &self.refusals[id.0 as usize])
        {
            return Err(Failure::Refused(request, error));
        }
        if request.op.is_write() && result.is_err() {
            self.refused = self.refused.map(|_| true);
        }
        match request.op {
            Op::Read if result.is_ok() => {
                let bytes = std::mem::take(self.buffers.request(id));
                self.oracle
                    .read(request.range, watch, &bytes)
                    .map_err(|wrong| Failure::Read(request, wrong))?;
            }
            Op::Flush if result.is_ok() && self.array_failed => return Err(Failure::TakesFlush),
            Op::Flush if result.is_ok() => {
                let oldest = self.in_flight.iter().flatten().map(|(_, watch)| *watch).min();
                self.oracle.flushed(watch, oldest);
            }
            Op::Write | Op::WriteZeroes | Op::Discard => {
                self.oracle.wrote(request.range, watch, result, request.flags.fua);
                self.doubt_written(request.range);
            }
            Op::Read | Op::Flush => {}
        }
        Ok(())
    }

    /// Whether a page of a member, around a place, cannot be relied on, or was refused: the engine asks for whole pages.
    fn is_page_lost(&self, place: Place, refusals: &[(usize, SectorRange)]) -> bool {
        let page = SectorRange::new(place.sector / PAGE_SECTORS * PAGE_SECTORS, PAGE_SECTORS);
        let device = self.slot_devices[place.slot.index()];
        let is_refused =
            refusals.iter().any(|(refuser, range)| device == Some(*refuser) && range.overlaps(page));
        is_refused || (page.start..page.end()).any(|sector| self.is_lost(Place { sector, ..place }))
    }

    /// Whether a place of a member cannot be relied on.
    fn is_lost(&self, place: Place) -> bool {
        let Some(device) = self.device_of(place.slot) else { return true };
        let sector = self.data_offset_sectors + place.sector;
        !self.holds(place.slot, place.sector + 1)
            || device.gone
            || device.flaky_percent > 0
            || device.failing_percent > 0
            || device.storage.is_unreadable(SectorRange::new(sector, 1))
            || self.is_listed(place.slot, SectorRange::new(place.sector, 1))
    }

    /// A member refused something. What may fail for that at this moment may say so later, when another request has had made
    /// good what could not be read.
    pub(super) fn excuse(&mut self, refusal: Option<(usize, SectorRange)>) {
        for index in 0..self.in_flight.len() {
            if let Some((request, _)) = self.in_flight[index] {
                self.refusals[index].extend(refusal);
                self.excused[index] = self.excused[index] || self.may_fail(&request, &self.refusals[index]);
            }
        }
    }

    /// Whether faults explain that a request failed.
    fn may_fail(&self, request: &Request, refusals: &[(usize, SectorRange)]) -> bool {
        if self.array_failed && request.op != Op::Read {
            return true;
        }
        if request.op == Op::Flush {
            return self.geometry.copies() == 1
                && self.slots().any(|slot| self.is_lost(Place { slot, sector: 0 }));
        }
        let tolerated = usize::from(self.plan.level.parity_count());
        let is_gone = |sector: u64| {
            if tolerated == 0 {
                return (0..self.geometry.copies())
                    .all(|copy| self.is_page_lost(self.geometry.place(sector, copy), refusals));
            }
            let place = self.geometry.place(sector, 0);
            let lost = |slot: &Slot| self.is_page_lost(Place { slot: *slot, ..place }, refusals);
            (request.op != Op::Read || lost(&place.slot)) && self.slots().filter(lost).count() > tolerated
        };
        (request.range.start..request.range.end()).any(is_gone)
    }

    /// What cannot be told apart where writes were under way when power failed and nothing made it right since: the
    /// content of a slot that is lost or unreadable, and which of two copies is read.
    pub(super) fn doubt(&mut self, slot: Slot) {
        for page in self.doubtful.union(&self.forced) {
            let pages = SectorRange::new(page * PAGE_SECTORS, PAGE_SECTORS);
            if self.geometry.level().parity_count() == 0 {
                self.oracle.unsettle(pages);
            } else if let Holds::Data(sector) = self.geometry.holds(Place { slot, sector: pages.start }) {
                self.oracle.undefine(SectorRange::new(sector, PAGE_SECTORS));
            }
        }
    }

    /// What is lost of a slot though partial parity logs were followed: runs of so many sectors of which some were being written.
    pub(super) fn doubt_unfinished(&mut self, slot: Slot, run: u64) {
        for page in &self.doubtful {
            let start = page * PAGE_SECTORS;
            for row in (start..start + PAGE_SECTORS).step_by(run as usize) {
                if let Holds::Data(sector) = self.geometry.holds(Place { slot, sector: row }) {
                    self.oracle.undefine_unfinished(SectorRange::new(sector, run));
                }
            }
        }
    }

    /// After a start by force parity may be wrong, and is built upon by writes of parts of a stripe: what a member that ails
    /// took can be read from it, and not be rebuilt.
    fn doubt_written(&mut self, range: SectorRange) {
        if self.geometry.level().parity_count() == 0 || self.forced.is_empty() {
            return;
        }
        for sector in range.start..range.end() {
            let place = self.geometry.place(sector, 0);
            let is_forced = self.forced.contains(&(place.sector / PAGE_SECTORS));
            if is_forced && self.device_of(place.slot).is_some() && self.ails(place.slot) {
                self.oracle.undefine(SectorRange::new(sector, 1));
            }
        }
    }

    /// Writes that are under way when the array fails leave stripes half written.
    fn doubt_writes(&mut self) {
        if self.geometry.level().parity_count() == 0 {
            return;
        }
        let writes: Vec<SectorRange> =
            self.in_flight.iter().flatten().filter(|(r, _)| r.op.is_write()).map(|(r, _)| r.range).collect();
        for range in writes {
            for sector in range.start..range.end() {
                self.forced.insert(self.geometry.place(sector, 0).sector / PAGE_SECTORS);
            }
        }
        let lost: Vec<Slot> = self.slots().filter(|slot| !self.holds(*slot, u64::MAX)).collect();
        for slot in lost {
            self.doubt(slot);
        }
    }
}
