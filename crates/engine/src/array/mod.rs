//! The levels' machines: what a request becomes on the members.
//!
//! `copies` serves the levels that keep whole copies of a block (linear, 0, 1, 10), `parity` those that keep
//! parity (4, 5, 6) with their stripe cache.

mod bad;
#[cfg(test)]
mod bad_tests;
mod chains;
pub(crate) mod copies;
pub(crate) mod core;
pub mod members;
pub mod parity;
pub(crate) mod plain_read;
pub(crate) mod range_lock;
#[cfg(test)]
pub(crate) mod recorded;
pub(crate) mod slab;
pub mod slots;
#[cfg(test)]
mod source_tests;
pub mod sync;
mod write_mostly;

use crate::geometry::{Geometry, Shape};
use crate::units::Slot;
use slots::SlotSet;

/// Whether every block can still be had with these members lost.
pub fn survives(geometry: &Geometry, failed: SlotSet) -> bool {
    match geometry.shape() {
        Shape::Linear(_) | Shape::Raid0(_) => failed.is_empty(),
        Shape::Mirror => failed.len() < usize::from(geometry.raid_disks()),
        Shape::Parity(p) => failed.len() <= usize::from(p.parity_disks()),
        Shape::Raid10(_) => {
            failed.is_empty() || groups(geometry).all(|group| !group.minus(failed).is_empty())
        }
    }
}

/// The members that hold the copies of a chunk. They repeat after as many chunks as there are members.
fn groups(geometry: &Geometry) -> impl Iterator<Item = SlotSet> {
    let chunks = geometry.array_sectors().checked_div(geometry.chunk_sectors()).unwrap_or(1);
    (0..chunks.min(u64::from(geometry.raid_disks()))).map(|chunk| {
        (0..geometry.copies())
            .map(|copy| geometry.place(chunk * geometry.chunk_sectors(), copy).slot)
            .collect()
    })
}

/// Whether a slot holds copies of which no other that is not `lost` has one.
pub(crate) fn is_last_copy(geometry: &Geometry, slot: Slot, lost: SlotSet) -> bool {
    let is_alone = |group: SlotSet| group.minus(lost) == SlotSet::one(slot);
    geometry.copies() > 1 && groups(geometry).any(is_alone)
}

/// Checks that slots exist in a geometry.
pub(crate) fn slot_exists(geometry: &Geometry, slot: Slot) -> bool {
    slot.0 < geometry.raid_disks()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::GeometrySpec;
    use crate::level::{Layout, Level};

    #[test]
    fn a_slot_is_the_last_of_its_group_whatever_else_is_lost() {
        let member_sectors = vec![1 << 12; 4];
        let layout = Layout::default_of(Level::Raid10);
        let spec = GeometrySpec { level: Level::Raid10, layout, chunk_sectors: 128, member_sectors };
        let geometry = Geometry::new(&spec).unwrap();
        let lost = |slots: &[u16]| slots.iter().map(|slot| Slot(*slot)).collect::<SlotSet>();
        for (slot, others, is_last) in [
            (0, &[][..], false),
            (0, &[1], true),
            (0, &[2], false),
            (3, &[0, 1], false),
            (3, &[0, 1, 2], true),
            (1, &[0, 1], false),
        ] {
            assert_eq!(
                is_last_copy(&geometry, Slot(slot), lost(others)),
                is_last,
                "{slot} without {others:?}"
            );
        }
    }
}
