//! Which sectors of an array cannot be had any more.

use crate::array::core::Core;
use crate::geometry::{Geometry, Place, Shape};
use crate::mutation::{self, Mutation};
use crate::units::{SectorRange, Slot};

/// Ranges that are named.
pub const LOST_RANGES_MAX: usize = 64;

/// Sectors of the array that cannot be had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostRanges {
    /// The first [`LOST_RANGES_MAX`], in ascending order.
    pub ranges: Vec<SectorRange>,
    /// There are more.
    pub is_cut: bool,
}

/// Names what cannot be had. Costs time in proportion to the array's chunks up to the last range that is named.
pub(crate) fn lost_ranges(core: &Core) -> LostRanges {
    let mut lost = LostRanges::default();
    if super::super::survives(&core.geometry, core.incomplete()) && !core.has_bad_blocks() {
        return lost;
    }
    let mut sector = 0;
    while sector < core.geometry.array_sectors() {
        let count = step(core, sector);
        if !can_be_had(core, SectorRange::new(sector, count)) {
            let is_full = lost.ranges.len() == LOST_RANGES_MAX;
            match lost.ranges.last_mut() {
                Some(last) if last.end() == sector => last.count += count,
                _ if is_full => {
                    lost.is_cut = true;
                    return lost;
                }
                _ => lost.ranges.push(SectorRange::new(sector, count)),
            }
        }
        sector += count;
    }
    if mutation::is(Mutation::ForgetLostRange) {
        lost.ranges.pop();
    }
    lost
}

/// Sectors from one on that share their fate: of one chunk, and on one side of the offsets of recoveries.
fn step(core: &Core, sector: u64) -> u64 {
    let geometry = &core.geometry;
    let mut count = geometry.contiguous(sector).min(geometry.array_sectors() - sector);
    for copy in 0..geometry.copies() {
        let place = geometry.place(sector, copy);
        for slot in core.members.recovering.iter() {
            let offset = core.members.filled(slot);
            if offset > place.sector {
                count = count.min(offset - place.sector);
            }
        }
    }
    // Rows of parity are lost with what other members of the stripe do not hold.
    let row = geometry.place(sector, 0).sector;
    let places: Vec<Place> = match geometry.shape() {
        Shape::Parity(_) => core.working().map(|slot| Place { slot, sector: row }).collect(),
        _ => (0..geometry.copies()).map(|copy| geometry.place(sector, copy)).collect(),
    };
    let edges = places.iter().filter_map(|p| Some(core.next_bad_edge(p.slot, p.sector)? - p.sector));
    edges.fold(count, u64::min)
}

fn can_be_had(core: &Core, range: SectorRange) -> bool {
    let geometry: &Geometry = &core.geometry;
    let is_there = |slot: Slot, sector: u64| {
        let place = SectorRange::new(sector, range.count);
        core.can_read(slot, place)
    };
    match geometry.shape() {
        Shape::Parity(shape) => {
            let place = geometry.place(range.start, 0);
            is_there(place.slot, place.sector)
                || core
                    .lost(place.sector + range.count)
                    .union(core.bad(SectorRange::new(place.sector, range.count)))
                    .len()
                    <= usize::from(shape.parity_disks())
        }
        _ => (0..geometry.copies()).any(|copy| {
            let place = geometry.place(range.start, copy);
            is_there(place.slot, place.sector)
        }),
    }
}
