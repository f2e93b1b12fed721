//! Whether what members hold fits together: copies agree, parity is the parity of its stripe.

use stripewise_engine::geometry::{Geometry, Place, Shape};
use stripewise_engine::io::Role;
use stripewise_engine::units::{PAGE_SECTORS, SECTOR_BYTES, SectorRange, Slot};
use stripewise_parity::Kernels;

/// Calls with places that disagree with the rest of their stripe, and what would be right there: one for each row or
/// sector. `data` gives a slot's data, or nothing for members that are lost.
pub(super) fn mismatches<'a>(
    geometry: &Geometry,
    data: impl Fn(Slot, SectorRange) -> Option<&'a [u8]>,
    found: &mut impl FnMut(Place, &[u8]),
) {
    if let Shape::Parity(_) = geometry.shape() {
        for row in 0..geometry.used_sectors(Slot(0)) / PAGE_SECTORS {
            if let Some((place, right)) = parity_mismatch(geometry, row * PAGE_SECTORS, &data) {
                found(place, &right);
            }
        }
    } else {
        for sector in 0..geometry.array_sectors() {
            if let Some((place, right)) = copy_mismatch(geometry, sector, &data) {
                found(place, right);
            }
        }
    }
}

fn copy_mismatch<'a>(
    geometry: &Geometry,
    sector: u64,
    data: &impl Fn(Slot, SectorRange) -> Option<&'a [u8]>,
) -> Option<(Place, &'a [u8])> {
    let mut first: Option<&[u8]> = None;
    (0..geometry.copies()).map(|copy| geometry.place(sector, copy)).find_map(|place| {
        let bytes = data(place.slot, SectorRange::new(place.sector, 1))?;
        let right = *first.get_or_insert(bytes);
        (right != bytes).then_some((place, right))
    })
}

fn parity_mismatch<'a>(
    geometry: &Geometry,
    sector: u64,
    data: &impl Fn(Slot, SectorRange) -> Option<&'a [u8]>,
) -> Option<(Place, Vec<u8>)> {
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
        wrong.then_some((Place { slot, sector }, right))
    })
}
