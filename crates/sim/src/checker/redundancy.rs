//! Whether what members hold fits together: copies agree, parity is the parity of its stripe.

use stripewise_engine::geometry::{Geometry, Holds, Place, Shape};
use stripewise_engine::io::Role;
use stripewise_engine::units::{PAGE_SECTORS, SECTOR_BYTES, SectorRange, Slot};
use stripewise_parity::Kernels;

/// The first place that disagrees with the rest of its stripe, if one does. `data` gives a slot's data, or nothing
/// for members that are lost.
pub fn first_mismatch<'a>(
    geometry: &Geometry,
    data: impl Fn(Slot, SectorRange) -> Option<&'a [u8]>,
) -> Option<Place> {
    match geometry.shape() {
        Shape::Parity(_) => {
            let rows = geometry.used_sectors(Slot(0)) / PAGE_SECTORS;
            (0..rows).find_map(|row| parity_mismatch(geometry, row * PAGE_SECTORS, &data))
        }
        _ => (0..geometry.array_sectors()).find_map(|sector| copy_mismatch(geometry, sector, &data)),
    }
}

fn copy_mismatch<'a>(
    geometry: &Geometry,
    sector: u64,
    data: &impl Fn(Slot, SectorRange) -> Option<&'a [u8]>,
) -> Option<Place> {
    let mut first: Option<&[u8]> = None;
    (0..geometry.copies()).map(|copy| geometry.place(sector, copy)).find(|place| {
        let Some(bytes) = data(place.slot, SectorRange::new(place.sector, 1)) else { return false };
        *first.get_or_insert(bytes) != bytes
    })
}

fn parity_mismatch<'a>(
    geometry: &Geometry,
    sector: u64,
    data: &impl Fn(Slot, SectorRange) -> Option<&'a [u8]>,
) -> Option<Place> {
    let Shape::Parity(shape) = geometry.shape() else { unreachable!("asked for parity levels only") };
    let map = shape.stripe(sector / geometry.chunk_sectors());
    let range = SectorRange::new(sector, PAGE_SECTORS);
    let mut blocks: Vec<Option<&[u8]>> = vec![None; usize::from(geometry.raid_disks())];
    for slot in (0..geometry.raid_disks()).map(Slot) {
        if let Role::Data(index) = map.operand_role(slot) {
            // Without a data block there is nothing to hold parity against: it defines that block.
            blocks[usize::from(index)] = Some(data(slot, range)?);
        }
    }
    let length = (PAGE_SECTORS * SECTOR_BYTES) as usize;
    let (mut p, mut q) = (vec![0; length], vec![0; length]);
    Kernels::scalar().pq(&mut p, &mut q, &blocks);
    [(Some(map.p), p), (map.q, q)].into_iter().find_map(|(slot, right)| {
        let slot = slot?;
        let wrong = data(slot, range)? != right;
        wrong.then_some(Place { slot, sector })
    })
}

/// Array sectors that share a row, or a copy, with a sector of a member's data.
pub fn sectors_of_row(geometry: &Geometry, place: Place) -> Vec<SectorRange> {
    let Shape::Parity(_) = geometry.shape() else {
        return match geometry.holds(place) {
            Holds::Data(sector) => vec![SectorRange::new(sector, 1)],
            Holds::Parity | Holds::Nothing => Vec::new(),
        };
    };
    let row = place.sector / PAGE_SECTORS * PAGE_SECTORS;
    (0..geometry.raid_disks())
        .filter_map(|slot| match geometry.holds(Place { slot: Slot(slot), sector: row }) {
            Holds::Data(sector) => Some(SectorRange::new(sector, PAGE_SECTORS)),
            Holds::Parity | Holds::Nothing => None,
        })
        .collect()
}
