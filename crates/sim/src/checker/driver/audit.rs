//! What an array must be when nothing is under way.

use stripewise_engine::array::survives;
use stripewise_engine::geometry::{Place, Shape};
use stripewise_engine::io::{AdminCommand, Flags, Op, SyncAction};
use stripewise_engine::units::{PAGE_SECTORS, SectorRange, Slot};

use super::{Device, Driver};
use crate::checker::failure::Failure;
use crate::checker::redundancy;

impl Driver {
    /// Calls with each place that disagrees, and what would be right there.
    pub(super) fn mismatches(&self, mut found: impl FnMut(Place, &[u8])) {
        redundancy::mismatches(
            &self.geometry,
            |slot, range| {
                let is_there = !self.is_listed(slot, range) && self.holds(slot, range.end());
                let device = self.device_of(slot).filter(|d| !d.gone && is_there)?;
                let range = SectorRange::new(self.data_offset_sectors + range.start, range.count);
                Some(device.storage.bytes(range))
            },
            &mut found,
        );
    }

    /// Lets the array end its work, reads all of it and checks that members agree; of one that lost too much, that
    /// it says what.
    ///
    /// # Errors
    /// A broken promise.
    pub fn verify(&mut self) -> Result<(), Failure> {
        self.drain()?;
        self.admin(AdminCommand::Sync(SyncAction::Idle))?;
        self.settle()?;
        self.check_rested()?;
        self.read_all()?;
        self.settle()?;
        self.check_listed()?;
        if self.array_failed {
            return self.verify_failed();
        }
        let mut first = None;
        self.mismatches(|place, _| {
            let array_page = match self.geometry.holds(place) {
                stripewise_engine::geometry::Holds::Data(sector) => sector / PAGE_SECTORS,
                _ => u64::MAX,
            };
            let page =
                if self.plan.level.parity_count() > 0 { place.sector / PAGE_SECTORS } else { array_page };
            let is_doubtful = self.doubtful.contains(&page) || self.forced.contains(&page);
            first = first.or((!is_doubtful).then_some(place));
        });
        match first {
            Some(Place { slot, sector }) => Err(Failure::NotRedundant { slot, sector }),
            None => Ok(()),
        }
    }

    fn read_all(&mut self) -> Result<(), Failure> {
        let sectors = self.geometry.array_sectors();
        let mut sector = 0;
        while sector < sectors {
            let count = (1 + self.random.below(64)).min(sectors - sector);
            self.request(Op::Read, SectorRange::new(sector, count), Flags::default())?;
            sector += count;
        }
        self.drain()
    }

    /// What was begun is done, unless something keeps it from being done.
    fn check_rested(&self) -> Result<(), Failure> {
        let is_hindered = self.array_failed || self.devices.iter().any(Device::ails);
        let unfilled = self.slots().find(|slot| self.volume.recovered_sectors(*slot).is_some());
        match unfilled {
            Some(slot) if !is_hindered => Err(Failure::NotRecovered(slot)),
            _ => Ok(()),
        }
    }

    /// An array that lost too much takes no write, reads what is left, and names the rest.
    fn verify_failed(&mut self) -> Result<(), Failure> {
        let write = SectorRange::new(0, 1);
        let before = self.oracle.clone();
        self.refused = Some(false);
        self.request(Op::Write, write, Flags::default())?;
        self.drain()?;
        if self.refused.take() == Some(false) {
            return Err(Failure::TakesWrites);
        }
        self.oracle = before;
        let lost = self.volume.lost_ranges();
        let is_named = |sector: u64| lost.ranges.iter().any(|r| r.start <= sector && sector < r.end());
        let named_to = if lost.is_cut { lost.ranges.last().map_or(0, |r| r.end()) } else { u64::MAX };
        for sector in 0..self.geometry.array_sectors().min(named_to) {
            if is_named(sector) == self.can_be_had(sector) {
                return Err(Failure::LostRanges { sector, named: is_named(sector) });
            }
        }
        self.tally.array_failures += 1;
        Ok(())
    }

    /// Whether a sector can be read or rebuilt from what the volume holds to be there.
    fn can_be_had(&self, sector: u64) -> bool {
        let missing = self.slots().filter(|slot| !self.holds(*slot, u64::MAX)).collect();
        if !self.slots().any(|slot| self.has_listed(slot)) && survives(&self.geometry, missing) {
            return true;
        }
        let is_parity = self.geometry.level().parity_count() > 0;
        let is_there = |place: Place| {
            let page = SectorRange::new(place.sector / PAGE_SECTORS * PAGE_SECTORS, PAGE_SECTORS);
            let asked = if is_parity { page } else { SectorRange::new(place.sector, 1) };
            self.holds(place.slot, page.end()) && !self.is_listed(place.slot, asked)
        };
        let Shape::Parity(shape) = self.geometry.shape() else {
            return (0..self.geometry.copies()).any(|copy| is_there(self.geometry.place(sector, copy)));
        };
        let place = self.geometry.place(sector, 0);
        let lost = self.slots().filter(|slot: &Slot| !is_there(Place { slot: *slot, ..place })).count();
        is_there(place) || lost <= usize::from(shape.parity_disks())
    }
}
