//! Bits that flip at rest: a check must find them, say where, and a repair mend what the redundancy can tell.

use stripewise_engine::geometry::{Holds, Place};
use stripewise_engine::io::{AdminCommand, Flags, Op, SyncAction};
use stripewise_engine::units::{PAGE_SECTORS, SectorRange, Slot};

use super::Driver;
use crate::checker::failure::Failure;

/// A bit that was flipped.
pub(super) type Flipped = Place;

impl Driver {
    /// Whether nothing is wrong with the array, so that a flipped bit is all there is to find.
    fn is_whole(&self) -> bool {
        !self.is_off
            && !self.array_failed
            && self.plan.is_redundant()
            && self.doubtful.is_empty()
            && self.forced.is_empty()
            && self.unreliable().is_empty()
    }

    /// Flips a bit of a slot's data, has the array checked and repaired in this way.
    ///
    /// # Errors
    /// A broken promise.
    pub fn flip(&mut self, slot: Slot, sector: u64, bit: u64, repair: SyncAction) -> Result<(), Failure> {
        self.cut = None;
        self.admin(AdminCommand::Sync(SyncAction::Idle))?;
        self.settle()?;
        let place = Place { slot, sector: sector % self.geometry.used_sectors(slot) };
        if !self.is_whole() || self.geometry.holds(place) == Holds::Nothing {
            return Ok(());
        }
        let Some(device) = self.slot_devices[slot.index()] else { return Ok(()) };
        let page = SectorRange::new(
            self.data_offset_sectors + place.sector / PAGE_SECTORS * PAGE_SECTORS,
            PAGE_SECTORS,
        );
        let before = self.devices[device].storage.bytes(page).to_vec();
        self.devices[device].storage.flip(self.data_offset_sectors + place.sector, bit % 4096);
        self.note(&[13, slot.0.into(), place.sector], || {
            format!("a bit of sector {} of slot {slot} flips", place.sector)
        });
        self.flipped = Some(place);
        self.run_to_end(SyncAction::Check)?;
        self.check_place(place)?;
        self.run_to_end(repair)?;
        let is_mended = self.devices[device].storage.bytes(page) == before;
        if !is_mended && self.must_be_mended(place, repair) {
            return Err(Failure::NotMended { slot, sector: place.sector });
        }
        if !is_mended && repair == SyncAction::RepairLocated {
            self.run_to_end(SyncAction::Repair)?;
        }
        if self.devices[device].storage.bytes(page) != before
            && let Holds::Data(sector) = self.geometry.holds(place)
        {
            self.oracle.undefine(SectorRange::new(sector, 1));
        }
        self.flipped = None;
        self.tally.flips += 1;
        // What was repaired is durable as other writes are: once it is flushed.
        self.request(Op::Flush, SectorRange::new(0, 0), Flags::default())?;
        self.drain()
    }

    fn run_to_end(&mut self, action: SyncAction) -> Result<(), Failure> {
        self.admin(AdminCommand::Sync(action))?;
        self.settle()
    }

    /// The check counts what a flipped bit makes disagree, and says where as well as redundancy can tell.
    fn check_place(&self, place: Place) -> Result<(), Failure> {
        let status = self.volume.sync_status().expect("levels with redundancy have a status");
        let parities = self.plan.level.parity_count();
        let wrong = Err(Failure::WrongPlace {
            slot: place.slot,
            sector: place.sector,
            found: status.mismatches.clone(),
        });
        let [found] = status.mismatches[..] else { return wrong };
        let is_there = if parities > 0 {
            found.member.start == place.sector / PAGE_SECTORS * PAGE_SECTORS
                && found.member.count == PAGE_SECTORS
        } else {
            matches!(self.geometry.holds(place), Holds::Data(sector)
                if found.array.start <= sector && sector < found.array.end())
        };
        let located = (parities == 2).then_some(place.slot);
        let is_counted = status.mismatch_sectors > 0 && status.mismatch_sectors <= PAGE_SECTORS;
        let names_data = match self.geometry.holds(place) {
            Holds::Data(sector) => found.array.start <= sector && sector < found.array.end(),
            _ => true,
        };
        if is_there && is_counted && names_data && found.slot == located { Ok(()) } else { wrong }
    }

    /// Whether a repair must bring back the flipped bytes.
    fn must_be_mended(&self, place: Place, repair: SyncAction) -> bool {
        let is_data = matches!(self.geometry.holds(place), Holds::Data(_));
        match (self.plan.level.parity_count(), repair) {
            (2, SyncAction::RepairLocated) => true,
            (1 | 2, SyncAction::Repair) => !is_data,
            (0, SyncAction::Repair) => match self.geometry.holds(place) {
                Holds::Data(sector) => self.geometry.place(sector, 0).slot != place.slot,
                _ => false,
            },
            _ => false,
        }
    }
}
