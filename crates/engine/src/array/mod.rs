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
        Shape::Raid10(_) => failed.is_empty() || raid10_survives(geometry, failed),
    }
}

/// The groups of members that hold the copies of a chunk repeat after as many chunks as there are members.
fn raid10_survives(geometry: &Geometry, failed: SlotSet) -> bool {
    let chunks = geometry.array_sectors() / geometry.chunk_sectors();
    (0..chunks.min(u64::from(geometry.raid_disks()))).all(|chunk| {
        (0..geometry.copies())
            .any(|copy| !failed.contains(geometry.place(chunk * geometry.chunk_sectors(), copy).slot))
    })
}

/// Checks that slots exist in a geometry.
pub(crate) fn slot_exists(geometry: &Geometry, slot: Slot) -> bool {
    slot.0 < geometry.raid_disks()
}
