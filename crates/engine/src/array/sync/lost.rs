//! Which sectors of an array cannot be had any more.

use crate::array::core::Core;
use crate::array::survives;
use crate::geometry::{Geometry, Holds, Place, Shape};
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

/// Names what cannot be had. Costs time in proportion to what is listed as bad; where too few members are there, to the
/// array's chunks from the first of which that may be so up to the last range that is named.
pub(crate) fn lost_ranges(core: &Core) -> LostRanges {
    if core.working().next().is_none() {
        return LostRanges {
            ranges: vec![SectorRange::new(0, core.geometry.array_sectors())],
            is_cut: false,
        };
    }
    walk(core, &where_to_look(core))
}

/// Names what cannot be had of ranges of the array, in ascending order and apart from each other.
fn walk(core: &Core, ranges: &[SectorRange]) -> LostRanges {
    let mut lost = LostRanges::default();
    for range in ranges {
        let mut sector = range.start;
        while sector < range.end() {
            let piece = SectorRange::new(sector, step(core, sector).min(range.end() - sector));
            sector = piece.end();
            if can_be_had(core, piece) {
                continue;
            }
            let is_full = lost.ranges.len() == LOST_RANGES_MAX;
            match lost.ranges.last_mut() {
                Some(last) if last.end() == piece.start => last.count += piece.count,
                _ if is_full => {
                    lost.is_cut = true;
                    return lost;
                }
                _ => lost.ranges.push(piece),
            }
        }
    }
    if mutation::is(Mutation::ForgetLostRange) {
        lost.ranges.pop();
    }
    lost
}

/// All ranges of the array of which something may be lost, in ascending order and apart from each other.
fn where_to_look(core: &Core) -> Vec<SectorRange> {
    let short = short_from(core);
    let end = core.geometry.array_sectors();
    let mut ranges: Vec<SectorRange> = Vec::new();
    for slot in core.working() {
        core.listed_of(slot).for_each(|bad| add_touched(&core.geometry, slot, bad, &mut ranges));
    }
    ranges.push(SectorRange::new(short, end - short));
    ranges.retain(|range| range.count > 0);
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let is_joined = next.start <= last.end();
        if is_joined {
            last.count = last.end().max(next.end()) - last.start;
        }
        is_joined
    });
    ranges
}

/// The array's first sector from which on members that are there, and hold what they should, may be too few; its end if they
/// are enough.
fn short_from(core: &Core) -> u64 {
    let geometry = &core.geometry;
    if survives(geometry, core.incomplete()) {
        return geometry.array_sectors();
    }
    let Shape::Parity(shape) = geometry.shape() else { return 0 };
    let offsets = core.members.recovering.iter().map(|slot| core.members.filled(slot));
    let short = std::iter::once(0)
        .chain(offsets)
        .filter(|offset| !survives(geometry, core.lost(offset + 1)))
        .min()
        .unwrap_or(0);
    (short / geometry.chunk_sectors() * shape.stripe_sectors()).min(geometry.array_sectors())
}

/// Adds the ranges of the array that a member's bad sectors may keep from being had.
fn add_touched(geometry: &Geometry, slot: Slot, bad: SectorRange, ranges: &mut Vec<SectorRange>) {
    let end = bad.end().min(geometry.used_sectors(slot));
    let mut sector = bad.start;
    if let Shape::Parity(shape) = geometry.shape() {
        if sector < end {
            // What else is in its stripes may need it.
            let first = sector / geometry.chunk_sectors();
            let stripes = end.div_ceil(geometry.chunk_sectors()) - first;
            ranges.push(SectorRange::new(first * shape.stripe_sectors(), stripes * shape.stripe_sectors()));
        }
        return;
    }
    while sector < end {
        let count = if let Holds::Data(start) = geometry.holds(Place { slot, sector }) {
            let count = geometry.contiguous(start).min(end - sector);
            ranges.push(SectorRange::new(start, count));
            count
        } else {
            // Rounding ends with its chunk.
            (sector + 1).next_multiple_of(geometry.chunk_sectors().max(1)) - sector
        };
        sector += count;
    }
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

#[cfg(test)]
mod tests {
    use stripewise_format::bad_blocks::BadRange;
    use stripewise_format::superblock::Superblock;

    use super::*;
    use crate::array::recorded::config;
    use crate::draws::draws;
    use crate::geometry::GeometrySpec;
    use crate::level::{Layout, Level, Raid10Layout};
    use crate::metadata::BadBlocks;
    use crate::policy::Policy;
    use crate::units::MemberIndex;

    const CHUNK: u64 = 16;

    fn core(level: Level, layout: Layout, chunk_sectors: u64, member_sectors: Vec<u64>) -> Core {
        let geometry = Geometry::new(&GeometrySpec { level, layout, chunk_sectors, member_sectors });
        Core::new(geometry.unwrap(), Policy::stripewise(), false, 0)
    }

    /// Lists ranges of the data of a slot's member.
    fn list(core: &mut Core, slot: u16, ranges: &[SectorRange]) {
        let mut members = config(Level::Raid1, 2, &[false; 2]).metadata.unwrap().members;
        let mut metadata = members.swap_remove(0).unwrap();
        let Superblock::V1(superblock) = &metadata.superblock else { unreachable!() };
        let offset = superblock.data_offset_sectors;
        let on_device =
            |r: &SectorRange| BadRange { start_sector: r.start + offset, length_sectors: r.count };
        metadata.bad_blocks = Some(ranges.iter().map(on_device).collect());
        core.set_bad_blocks(MemberIndex(slot), BadBlocks::new(&metadata));
    }

    fn all(core: &Core) -> [SectorRange; 1] {
        [SectorRange::new(0, core.geometry.array_sectors())]
    }

    fn every_shape() -> Vec<Core> {
        let raid10 =
            |near, far, offset| Layout::Raid10(Raid10Layout { near, far, offset, ..Raid10Layout::DEFAULT });
        let of = |level, layout, sectors: &[u64]| {
            let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
            core(level, layout, chunk, sectors.iter().map(|s| s * 8).collect())
        };
        vec![
            of(Level::Linear, Layout::default_of(Level::Linear), &[79, 128, 62]),
            of(Level::Raid0, Layout::default_of(Level::Raid0), &[79, 228, 228, 62]),
            of(Level::Raid1, Layout::default_of(Level::Raid1), &[128; 3]),
            of(Level::Raid4, Layout::default_of(Level::Raid4), &[131; 4]),
            of(Level::Raid5, Layout::default_of(Level::Raid5), &[257; 5]),
            of(Level::Raid6, Layout::default_of(Level::Raid6), &[256; 6]),
            of(Level::Raid10, raid10(2, 1, false), &[126; 5]),
            of(Level::Raid10, raid10(1, 2, false), &[128; 4]),
            of(Level::Raid10, raid10(1, 3, true), &[129; 4]),
            of(Level::Raid10, raid10(2, 2, false), &[126; 5]),
        ]
    }

    #[test]
    fn what_is_not_looked_at_is_not_lost() {
        let mut random = draws(1);
        let mut kinds = [0; 3];
        for _ in 0..300 {
            for mut core in every_shape() {
                let disks = core.geometry.raid_disks();
                for slot in 0..disks {
                    let size = core.geometry.used_sectors(Slot(slot));
                    let ranges: Vec<_> = (0..random(4))
                        .map(|_| SectorRange::new(random(size / 8) * 8, 8 + random(12) * 8))
                        .collect();
                    list(&mut core, slot, &ranges);
                    match random(9) {
                        0 => core.failed.insert(Slot(slot)),
                        1 => core.take_slot(Slot(slot), MemberIndex(slot), random(size / 8) * 8),
                        _ => {}
                    }
                }
                let found = lost_ranges(&core);
                let whole = walk(&core, &all(&core));
                assert_eq!(found, whole, "{:?}", core.geometry);
                kinds[usize::from(!whole.ranges.is_empty()) + usize::from(whole.is_cut)] += 1;
            }
        }
        assert!(kinds.iter().all(|count| *count > 20), "{kinds:?}");
    }

    #[test]
    fn all_that_a_member_holds_is_looked_at() {
        for core in every_shape() {
            for slot in (0..core.geometry.raid_disks()).map(Slot) {
                let sectors = core.geometry.used_sectors(slot);
                let mut ranges = Vec::new();
                add_touched(&core.geometry, slot, SectorRange::new(0, sectors), &mut ranges);
                for sector in (0..sectors).step_by(8) {
                    let Holds::Data(held) = core.geometry.holds(Place { slot, sector }) else { continue };
                    let is_in = ranges.iter().any(|r| r.start <= held && held < r.end());
                    assert!(is_in, "{slot:?} {sector} of {:?}", core.geometry);
                }
            }
        }
    }

    #[test]
    fn all_of_a_large_array_is_lost_at_once() {
        for level in [Level::Raid1, Level::Raid5, Level::Raid10] {
            let mut core = core(level, Layout::default_of(level), 8, vec![1 << 42; 4]);
            (0..4).for_each(|slot| core.failed.insert(Slot(slot)));
            let lost = lost_ranges(&core);
            assert_eq!(lost.ranges, [SectorRange::new(0, core.geometry.array_sectors())], "{level}");
        }
    }

    #[test]
    fn a_bad_block_of_a_large_array_is_found_at_once() {
        let size = 1 << 42;
        let bad = SectorRange::new(size - 512, 8);
        for (level, is_recovered) in [(Level::Raid5, false), (Level::Raid5, true), (Level::Raid10, false)] {
            let mut core = core(level, Layout::default_of(level), 8, vec![size; 4]);
            (0..4).for_each(|slot| list(&mut core, slot, &[bad]));
            if is_recovered {
                core.failed.insert(Slot(0));
                core.take_slot(Slot(1), MemberIndex(1), size - 1024);
            }
            let lost = lost_ranges(&core);
            assert!(!lost.ranges.is_empty(), "{level}");
            assert!(
                lost.ranges.iter().all(|range| range.start > core.geometry.array_sectors() / 2),
                "{lost:?}"
            );
        }
    }
}
