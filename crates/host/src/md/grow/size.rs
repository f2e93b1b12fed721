//! Has an array use more of each member.

use stripewise_engine::assembly::Consistency;
use stripewise_engine::geometry::{Geometry, GeometrySpec};
use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::grow::{
    Resized, SizeError, Update, bitmap_room_sectors, resize_bitmap, room_sectors, settle_size, with_size,
};
use stripewise_format::level::Level;

use super::{Assembled, Decided, Decision, GrowProblem, Outcome, is_recovering, kept_bitmap, members};
use crate::error::HostError;

pub(super) fn decide(
    assembled: &Assembled,
    asked_sectors: Option<u64>,
    assume_clean: bool,
    update: Update,
) -> Result<Decision, GrowProblem> {
    let (assembly, candidates) = (&assembled.assembly, &assembled.found.candidates);
    let array = &candidates[assembly.freshest].superblock;
    let members = members(assembly);
    let rooms: Vec<u64> = members
        .iter()
        .map(|index| &candidates[*index])
        .map(|member| room_sectors(&member.superblock, member.at_sector, member.device_sectors))
        .collect();
    let named = |error| match error {
        SizeError::Room { member, .. } => {
            GrowProblem::MemberSize(assembled.found.paths[members[member]].clone(), error)
        }
        other => GrowProblem::Size(other),
    };
    let size_sectors = settle_size(array, &rooms, asked_sectors).map_err(named)?;
    let before_sectors = array.size_sectors();
    if size_sectors == before_sectors {
        return Ok(Decision::Already);
    }
    check(assembled, assume_clean)?;
    let in_sync_sectors = sync_sectors(&assembly.geometry)?;
    let mut geometry = assembly.geometry.clone();
    geometry.member_sectors.fill(size_sectors);
    let new_sync_sectors = sync_sectors(&geometry)?;
    let due_from = if assume_clean { u64::MAX } else { in_sync_sectors };
    let bitmap = bitmap(assembled, &members, new_sync_sectors, !assume_clean).map_err(named)?;
    let chunk_bytes = bitmap.as_ref().map(|(head, _)| head.chunk_bytes);
    let chunk_before = candidates[assembly.freshest].bitmap.as_ref().and_then(|bitmap| bitmap.as_ref().ok());
    let resized =
        Resized { size_sectors, resync_offset_sectors: assembly.resync_offset_sectors.min(due_from), bitmap };
    let outcome = Outcome::Size {
        before_sectors,
        now_sectors: size_sectors,
        is_resync_due: resized.resync_offset_sectors != u64::MAX,
        bitmap_chunk_bytes: chunk_bytes
            .filter(|chunk| chunk_before.is_some_and(|head| head.chunk_bytes < *chunk)),
    };
    let changed = |index: &usize| {
        let member = &candidates[*index];
        with_size(&member.superblock, member.at_sector, member.device_sectors, &resized, update)
    };
    Ok(Decision::Change(Decided { outcome, changes: members.iter().map(changed).collect() }))
}

/// Sectors that a resync passes: of a RAID-10 the array's, else a member's.
fn sync_sectors(spec: &GeometrySpec) -> Result<u64, GrowProblem> {
    let geometry = Geometry::new(spec).map_err(HostError::Geometry)?;
    Ok(match spec.level {
        Level::Raid10 => geometry.array_sectors(),
        _ => spec.member_sectors.first().copied().unwrap_or(0),
    })
}

/// Refuses an array whose new part nobody could make right.
fn check(assembled: &Assembled, assume_clean: bool) -> Result<(), GrowProblem> {
    let assembly = &assembled.assembly;
    if is_recovering(assembly) {
        return Err(GrowProblem::refused(
            "a recovery is due, during which the size stays as it is; let `stripewise assemble` end it first",
        ));
    }
    let has_parity = assembly.geometry.level.parity_count() > 0;
    if has_parity && assembly.is_degraded() && !assume_clean {
        return Err(GrowProblem::refused(
            "a member is missing, and the larger array would not start: its new part is to be resynced, for which all members \
             must be there; `stripewise add` one first",
        ));
    }
    Ok(())
}

/// The bitmap that stands for all of the larger array.
fn bitmap(
    assembled: &Assembled,
    members: &[usize],
    sync_sectors: u64,
    is_new_set: bool,
) -> Result<Option<(BitmapSuperblock, Bits)>, SizeError> {
    if assembled.assembly.consistency != Consistency::Bitmap {
        return Ok(None);
    }
    let candidates = &assembled.found.candidates;
    let rooms = members.iter().filter_map(|index| {
        let member = &candidates[*index];
        bitmap_room_sectors(&member.superblock, member.at_sector, member.device_sectors)
    });
    let room_sectors = rooms.min().ok_or(SizeError::Bitmap)?;
    let found = kept_bitmap(assembled).ok().flatten().ok_or(SizeError::Bitmap)?;
    resize_bitmap(&found.superblock, &found.bits, sync_sectors, room_sectors, is_new_set).map(Some)
}
