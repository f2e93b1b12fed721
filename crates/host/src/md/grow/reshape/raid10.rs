//! What is a RAID-10's own: shapes that keep copies apart, and the bitmap, which stands for sectors of the array and so for more when
//! it holds more.

use stripewise_engine::assembly::{Assembly, Consistency, SlotState};
use stripewise_engine::geometry::{Geometry, GeometrySpec};
use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::grow::{SizeError, bitmap_room_sectors, resize_bitmap};
use stripewise_format::level::{Layout, Level};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::Superblock1;

use super::super::{Assembled, GrowProblem};

/// Refuses what has no shape that keeps the copies of each block, and blocks, apart.
pub(super) fn require_shape(after: &Superblock1) -> Result<(), GrowProblem> {
    let Some(layout @ Layout::Raid10(_)) = after.layout() else { return Ok(()) };
    let spec = GeometrySpec {
        level: Level::Raid10,
        layout,
        chunk_sectors: after.chunk_sectors.into(),
        member_sectors: vec![after.size_sectors; after.raid_disks as usize],
    };
    Geometry::new(&spec).map(|_| ()).map_err(|error| GrowProblem::Refused(error.to_string()))
}

/// Refuses a recovery beside the reshape, which fills nobody.
pub(super) fn require_whole(assembly: &Assembly) -> Result<(), GrowProblem> {
    if assembly.slots.iter().any(|state| matches!(state, SlotState::Recovering { .. })) {
        return Err(GrowProblem::refused(
            "a member is being recovered beside the reshape; that is Linux's work (`mdadm --assemble`)",
        ));
    }
    Ok(())
}

/// The bitmap when the reshape that the members tell of has ended, if the array holds more then. What is new is set.
pub(super) fn larger_bitmap(
    assembled: &Assembled,
    members: &[usize],
    superblocks: &[Superblock1],
) -> Result<Option<(BitmapSuperblock, Bits)>, GrowProblem> {
    let Some(array) = superblocks.iter().max_by_key(|one| one.events) else { return Ok(None) };
    let sync_sectors = array.reshaped().held_sectors();
    let has_bitmap = assembled.assembly.consistency == Consistency::Bitmap;
    if array.level != Level::Raid10 || sync_sectors <= array.reshape_sectors() || !has_bitmap {
        return Ok(None);
    }
    let candidates = &assembled.found.candidates;
    let rooms = members.iter().zip(superblocks).filter_map(|(index, superblock)| {
        let after = Superblock::V1(Box::new(superblock.reshaped()));
        bitmap_room_sectors(&after, candidates[*index].at_sector, candidates[*index].device_sectors)
    });
    let unfit = || GrowProblem::Size(SizeError::Bitmap);
    let room_sectors = rooms.min().ok_or_else(unfit)?;
    let mut found = assembled.bitmap().ok().flatten().ok_or_else(unfit)?;
    if found.superblock.events < assembled.assembly.events {
        found.superblock.state |= BitmapSuperblock::STATE_STALE;
    }
    resize_bitmap(&found.superblock, &found.bits, sync_sectors, room_sectors, true)
        .map(Some)
        .map_err(GrowProblem::Size)
}
