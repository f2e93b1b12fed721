//! What members are listed not to hold: nobody is asked for it, and nothing is listed without a cause.

use std::collections::BTreeSet;

use stripewise_engine::geometry::{Holds, Place};
use stripewise_engine::io::{MemberIo, Op};
use stripewise_engine::units::{MemberIndex, PAGE_SECTORS, SectorRange, Slot};

use super::Driver;
use crate::checker::failure::Failure;

/// Where members refused something: of arrays with parity the pages of the members that were refused, of copies the
/// array's sectors. A member that takes a slot is listed for what others did not give.
pub(super) type Refused = BTreeSet<u64>;

impl Driver {
    /// Whether a slot's member is listed not to hold some of its sectors.
    pub(super) fn is_listed(&self, slot: Slot, range: SectorRange) -> bool {
        self.plan.bad_block_log
            && self.volume.member_of(slot).is_some_and(|member| self.volume.is_listed_bad(member, range))
    }

    /// Whether a slot's member is listed not to hold some of its content.
    pub(super) fn has_listed(&self, slot: Slot) -> bool {
        self.volume.member_of(slot).is_some_and(|member| self.volume.listed_bad(member).next().is_some())
    }

    /// A member refused to give or take sectors of its data.
    pub(super) fn note_refused(&mut self, io: &MemberIo) {
        let spoilt = |page: u64| {
            let device = &self.devices[self.device_index(io.member)];
            let start = self.data_offset_sectors + page * PAGE_SECTORS;
            device.storage.is_unreadable(SectorRange::new(start, PAGE_SECTORS))
        };
        // What was refused of several pages is asked for again, page by page.
        let is_long = io.op == Op::Read && io.range.count > PAGE_SECTORS;
        let refused = |sector: &u64| !is_long || spoilt(sector / PAGE_SECTORS);
        let sectors: Vec<u64> = (io.range.start..io.range.end()).filter(refused).collect();
        // One that is to replace a slot's member has no slot yet.
        let own = self.slots().find(|slot| self.volume.member_of(*slot) == Some(io.member));
        for slot in self.slots().filter(|slot| own.is_none_or(|own| own == *slot)) {
            let places: Vec<u64> =
                sectors.iter().filter_map(|sector| self.refused_place(slot, *sector)).collect();
            self.refused_places.extend(places);
        }
    }

    /// Where a refusal of a member's sector counts, as [`Refused`] has it; nowhere, if nothing is there.
    fn refused_place(&self, slot: Slot, sector: u64) -> Option<u64> {
        match self.geometry.holds(Place { slot, sector }) {
            _ if self.geometry.level().parity_count() > 0 => Some(sector / PAGE_SECTORS),
            Holds::Data(of_array) => Some(of_array),
            _ => None,
        }
    }

    /// What is listed of members in slots was refused once, by them or by those that they were filled from.
    ///
    /// # Errors
    /// What was not.
    pub(super) fn check_listed(&mut self) -> Result<(), Failure> {
        for slot in self.slots() {
            let Some(member) = self.volume.member_of(slot) else { continue };
            let listed: Vec<u64> = self.listed_sectors(member).collect();
            self.tally.listed += listed.len() as u64;
            for sector in listed {
                let place = self.refused_place(slot, sector);
                if place.is_some_and(|place| !self.refused_places.contains(&place)) {
                    return Err(Failure::ListedWithoutCause { slot, sector });
                }
            }
        }
        Ok(())
    }

    fn listed_sectors(&self, member: MemberIndex) -> impl Iterator<Item = u64> {
        self.volume.listed_bad(member).flat_map(|range| range.start..range.end())
    }
}
