//! RAID-0: zones of equal depth over the members that are still long enough.
//!
//! The two layouts differ only where members are of unequal size: which member a zone's first chunk lies on
//! counts chunks from the start of the array (original) or of the zone (alternate); md's raid0.c since 5.4
//! names them so.

use super::Place;
use super::divisor::Divisor;
use crate::level::Raid0Layout;
use crate::units::Slot;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    /// Array sector at which the zone begins.
    start: u64,
    /// Array sector at which it ends.
    end: u64,
    /// Member sector at which it begins, on each of its members.
    member_start: u64,
    /// Its members in order.
    slots: Vec<Slot>,
    /// How many they are.
    width: Divisor,
    /// The place among them of its first chunk.
    first: u64,
}

/// The map of a RAID-0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid0Shape {
    chunk_sectors: Divisor,
    zones: Vec<Zone>,
    /// What Linux makes of the members: less than the zones hold where a chunk is no power of two.
    array_sectors: u64,
}

impl Raid0Shape {
    pub(super) fn new(member_sectors: &[u64], chunk_sectors: u64, layout: Raid0Layout) -> Self {
        let rounded: Vec<u64> = member_sectors.iter().map(|s| s / chunk_sectors * chunk_sectors).collect();
        // `raid0_size` masks each member's whole chunks as if a chunk were a power of two.
        let array_sectors = rounded.iter().map(|sectors| sectors & !(chunk_sectors - 1)).sum();
        let mut zones = Vec::new();
        let (mut member_start, mut start) = (0, 0);
        while let Some(member_end) = rounded.iter().copied().filter(|s| *s > member_start).min() {
            let slots: Vec<Slot> =
                (0..rounded.len()).filter(|i| rounded[*i] > member_start).map(|i| Slot(i as u16)).collect();
            let width = slots.len() as u64;
            let end = start + (member_end - member_start) * width;
            // Which chunk number decides the member: the array's or the zone's.
            let first = match layout {
                Raid0Layout::Original => start / chunk_sectors % width,
                Raid0Layout::Alternate => 0,
            };
            zones.push(Zone { start, end, member_start, slots, width: Divisor::new(width), first });
            (member_start, start) = (member_end, end);
        }
        Self { chunk_sectors: Divisor::new(chunk_sectors), zones, array_sectors }
    }

    pub(super) const fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    #[inline(never)]
    pub(super) fn place(&self, sector: u64) -> Place {
        self.locate(sector).0
    }

    /// Where an array sector lies, and how many sectors from it on lie there in one piece (up to the end of the chunk).
    #[inline]
    pub(super) fn locate(&self, sector: u64) -> (Place, u64) {
        let mut zone = &self.zones[0];
        if sector >= zone.end {
            zone = &self.zones[self.zones.partition_point(|z| z.end <= sector)];
        }
        let (chunk, offset) = self.chunk_sectors.div_rem(sector - zone.start);
        let (row, column) = zone.width.div_rem(chunk);
        let place = zone.first + column;
        let width = zone.width.get();
        let slot = zone.slots[if place >= width { place - width } else { place } as usize];
        let chunk_sectors = self.chunk_sectors.get();
        (Place { slot, sector: zone.member_start + row * chunk_sectors + offset }, chunk_sectors - offset)
    }

    pub(super) fn array_sector(&self, place: Place) -> u64 {
        let zone = &self.zones[self.zones.partition_point(|z| z.member_start <= place.sector) - 1];
        let width = zone.width.get();
        let position = zone.slots.iter().position(|s| *s == place.slot).unwrap_or(0) as u64;
        let (row, offset) = self.chunk_sectors.div_rem(place.sector - zone.member_start);
        let column = (position + width - zone.first) % width;
        zone.start + (row * width + column) * self.chunk_sectors.get() + offset
    }
}
