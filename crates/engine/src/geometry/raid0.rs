//! RAID-0: zones of equal depth over the members that are still long enough.
//!
//! The two layouts differ only where members are of unequal size: which member a zone's first chunk lies on
//! counts chunks from the start of the array (original) or of the zone (alternate); md's raid0.c since 5.4
//! names them so.

use super::Place;
use crate::level::Raid0Layout;
use crate::units::Slot;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    /// Array sector at which the zone ends.
    end: u64,
    /// Member sector at which it begins, on each of its members.
    member_start: u64,
    /// Its members in order.
    slots: Vec<Slot>,
}

/// The map of a RAID-0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid0Shape {
    chunk_sectors: u64,
    layout: Raid0Layout,
    zones: Vec<Zone>,
}

impl Raid0Shape {
    pub(super) fn new(member_sectors: &[u64], chunk_sectors: u64, layout: Raid0Layout) -> Self {
        let rounded: Vec<u64> = member_sectors.iter().map(|s| s / chunk_sectors * chunk_sectors).collect();
        let mut zones = Vec::new();
        let (mut member_start, mut end) = (0, 0);
        while let Some(member_end) = rounded.iter().copied().filter(|s| *s > member_start).min() {
            let slots: Vec<Slot> =
                (0..rounded.len()).filter(|i| rounded[*i] > member_start).map(|i| Slot(i as u16)).collect();
            end += (member_end - member_start) * slots.len() as u64;
            zones.push(Zone { end, member_start, slots });
            member_start = member_end;
        }
        Self { chunk_sectors, layout, zones }
    }

    pub(super) fn array_sectors(&self) -> u64 {
        self.zones.last().map_or(0, |z| z.end)
    }

    fn start(&self, zone: usize) -> u64 {
        if zone == 0 { 0 } else { self.zones[zone - 1].end }
    }

    /// Which chunk number decides the member: the array's or the zone's.
    fn first_chunk(&self, zone: usize) -> u64 {
        match self.layout {
            Raid0Layout::Original => self.start(zone) / self.chunk_sectors,
            Raid0Layout::Alternate => 0,
        }
    }

    pub(super) fn place(&self, sector: u64) -> Place {
        let index = self.zones.partition_point(|z| z.end <= sector);
        let zone = &self.zones[index];
        let width = zone.slots.len() as u64;
        let chunk = (sector - self.start(index)) / self.chunk_sectors;
        let slot = zone.slots[((self.first_chunk(index) + chunk) % width) as usize];
        let row = chunk / width;
        Place { slot, sector: zone.member_start + row * self.chunk_sectors + sector % self.chunk_sectors }
    }

    pub(super) fn array_sector(&self, place: Place) -> u64 {
        let index = self.zones.partition_point(|z| z.member_start <= place.sector) - 1;
        let zone = &self.zones[index];
        let width = zone.slots.len() as u64;
        let position = zone.slots.iter().position(|s| *s == place.slot).unwrap_or(0) as u64;
        let row = (place.sector - zone.member_start) / self.chunk_sectors;
        let column = (position + width - self.first_chunk(index) % width) % width;
        self.start(index) + (row * width + column) * self.chunk_sectors + place.sector % self.chunk_sectors
    }
}
