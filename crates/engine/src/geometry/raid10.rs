//! RAID-10: near, far and offset copies (md's raid10.c, `setup_geo` and `raid10_find_phys`).
//!
//! Copies of a chunk lie side by side (near), and each of those again on the members `near` further on, a
//! large stride down the member (far) or one chunk down (offset).

use super::Place;
use crate::level::{FarSets, Raid10Layout};
use crate::units::Slot;

/// Whether the copies of every block lie on members of their own, as far as sets of members have a say in it.
pub(super) const fn keeps_copies_apart(layout: Raid10Layout, members: usize) -> bool {
    let (near, far) = (layout.near as usize, layout.far as usize);
    match layout.far_sets {
        FarSets::Original => true,
        FarSets::ByFarCopies => has_room(near, far, members / far, members),
        FarSets::ByCopies => has_room(near, far, near * far, members),
    }
}

/// Whether sets of that many members keep copies apart. With several near copies md takes the last blocks of a set for those of
/// the next where that is larger.
const fn has_room(near: usize, far: usize, set: usize, members: usize) -> bool {
    set >= near * far && (near == 1 || members / set < 2 || members.is_multiple_of(set))
}

/// Whether no two blocks lie in one place. Where near copies go on in the next row, md has them one chunk further down
/// (`__raid10_find_phys`), though with offset copies the row of that is the first row's second copy.
pub(super) const fn keeps_blocks_apart(layout: Raid10Layout, members: usize) -> bool {
    let has_offset_copies = layout.offset && layout.far > 1;
    !has_offset_copies || members.is_multiple_of(layout.near as usize)
}

/// The map of a RAID-10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raid10Shape {
    layout: Raid10Layout,
    raid_disks: u64,
    chunk_sectors: u64,
    /// Rows of chunks from one far copy to the next; for offset copies unused.
    stride_rows: u64,
    array_sectors: u64,
    used_sectors: u64,
    set: u64,
}

impl Raid10Shape {
    pub(super) fn new(
        layout: Raid10Layout,
        raid_disks: u16,
        chunk_sectors: u64,
        member_sectors: u64,
    ) -> Self {
        let (near, far, n) = (u64::from(layout.near), u64::from(layout.far), u64::from(raid_disks));
        let array_chunks = member_sectors / chunk_sectors / far * n / near;
        let used_rows = (array_chunks * near * far).div_ceil(n);
        let set = match layout.far_sets {
            FarSets::Original => n,
            FarSets::ByFarCopies => n / far,
            FarSets::ByCopies => far * near,
        };
        let stride_rows = used_rows / far;
        let used_rows = if layout.offset { used_rows.div_ceil(far) * far } else { used_rows };
        Self {
            layout,
            raid_disks: n,
            chunk_sectors,
            stride_rows,
            array_sectors: array_chunks * chunk_sectors,
            used_sectors: used_rows * chunk_sectors,
            set: set.clamp(1, n),
        }
    }

    /// The layout.
    pub const fn layout(&self) -> Raid10Layout {
        self.layout
    }

    pub(super) const fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    pub(super) const fn used_sectors(&self) -> u64 {
        self.used_sectors
    }

    /// The set of members a slot's far copies rotate in: its first slot and its width. A remainder of
    /// members joins the last set.
    fn set_of(&self, slot: u64) -> (u64, u64) {
        let sets = self.raid_disks / self.set;
        let index = (slot / self.set).min(sets - 1);
        let width = if index == sets - 1 { self.raid_disks - index * self.set } else { self.set };
        (index * self.set, width)
    }

    fn rotate(&self, slot: u64, far_copy: u64) -> u64 {
        let (first, width) = self.set_of(slot);
        first + (slot - first + far_copy * u64::from(self.layout.near)) % width
    }

    fn rotate_back(&self, slot: u64, far_copy: u64) -> u64 {
        let (first, width) = self.set_of(slot);
        let by = far_copy * u64::from(self.layout.near) % width;
        first + (slot - first + width - by) % width
    }

    /// Where a copy of an array sector lies: near copies first, then those of each far copy.
    #[inline(never)]
    pub fn place(&self, sector: u64, copy: u16) -> Place {
        let (near, far) = (u64::from(self.layout.near), u64::from(self.layout.far));
        let (near_copy, far_copy) = (u64::from(copy) % near, u64::from(copy) / near);
        let position = sector / self.chunk_sectors * near + near_copy;
        let (row, slot) = (position / self.raid_disks, position % self.raid_disks);
        let row = if self.layout.offset { row * far + far_copy } else { row + far_copy * self.stride_rows };
        Place {
            slot: Slot(self.rotate(slot, far_copy) as u16),
            sector: row * self.chunk_sectors + sector % self.chunk_sectors,
        }
    }

    pub(super) fn array_sector(&self, place: Place) -> u64 {
        let (near, far) = (u64::from(self.layout.near), u64::from(self.layout.far));
        let row = place.sector / self.chunk_sectors;
        let (row, far_copy) = if self.layout.offset {
            (row / far, row % far)
        } else if row >= far * self.stride_rows {
            return u64::MAX;
        } else {
            (row % self.stride_rows, row / self.stride_rows)
        };
        let slot = self.rotate_back(u64::from(place.slot.0), far_copy);
        (row * self.raid_disks + slot) / near * self.chunk_sectors + place.sector % self.chunk_sectors
    }
}
