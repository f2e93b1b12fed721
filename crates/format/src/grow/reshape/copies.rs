//! What is a RAID-10's own about a reshape: layouts that md moves copies between, what the array holds before and after, and the
//! least by which its data move.
//!
//! Facts: `raid10_check_reshape`, `raid10_start_reshape`, `raid10_size` in the kernel; which numbers mdadm 4.2 sets (see the tests).

use super::{ReshapeError, Target};
use crate::level::{Layout, Level, Raid10Layout};
use crate::superblock_1::Superblock1;

/// A layout by its number.
fn layout_of(number: u32) -> Option<Raid10Layout> {
    match Layout::from_number(Level::Raid10, number as i32) {
        Some(Layout::Raid10(layout)) => Some(layout),
        _ => None,
    }
}

/// Sectors that an array holds which uses so many of each member: whole chunks of the rows of a copy, then of all members, then of
/// data.
pub(super) fn held_sectors(shape: Target, size_sectors: u64) -> u64 {
    let Some(layout) = layout_of(shape.layout) else { return 0 };
    let chunk = u64::from(shape.chunk_sectors).max(1);
    let rows = size_sectors / chunk / u64::from(layout.far);
    (rows.saturating_mul(shape.raid_disks.into()) / u64::from(layout.near)).saturating_mul(chunk)
}

/// Whether copies can be moved from what the array is to that, but for what every level needs.
pub(super) fn check(array: &Superblock1, target: Target) -> Result<(), ReshapeError> {
    let (Some(old), Some(new)) = (layout_of(array.layout), layout_of(target.layout)) else {
        return Err(ReshapeError::Level(array.level));
    };
    if [old, new].iter().any(|layout| layout.far > 1 && !layout.offset) {
        return Err(ReshapeError::FarCopies);
    }
    if old.copies() != new.copies() {
        return Err(ReshapeError::Copies { now: old.copies(), asked: new.copies() });
    }
    Ok(())
}

/// Whether what the array holds has a place. The kernel that takes a reshape up reckons with the slots of before.
pub(super) fn check_held(array: &Superblock1, target: Target) -> Result<(), ReshapeError> {
    let now_sectors = array.held_sectors();
    let before = Target { raid_disks: array.raid_disks, ..target };
    let then_sectors = held_sectors(before, array.size_sectors);
    if then_sectors < now_sectors {
        return Err(ReshapeError::HoldsLess { now_sectors, then_sectors });
    }
    Ok(())
}

/// The least by which the kernel has the data move: the rows of all copies of a chunk, old or new.
pub(super) fn move_min_sectors(array: &Superblock1, target: Target) -> u64 {
    let length = |chunk: u32, layout: u32| {
        u64::from(chunk) * layout_of(layout).map_or(1, |layout| u64::from(layout.far))
    };
    length(array.chunk_sectors, array.layout).max(length(target.chunk_sectors, target.layout))
}

/// The least by which data can move without being written over before they have: where near copies become offset ones or the other
/// way round in rows that are not full, up to half as much again as the kernel asks for (worked out for up to nine members and five
/// copies; see the course's tests).
pub(super) fn safe_min_sectors(array: &Superblock1, target: Target) -> u64 {
    let least = move_min_sectors(array, target);
    let copies = layout_of(array.layout).map_or(1, |layout| u32::from(layout.copies()));
    let is_uneven = target.raid_disks == array.raid_disks
        && target.layout != array.layout
        && !array.raid_disks.is_multiple_of(copies);
    if is_uneven { 2 * least } else { least }
}

#[cfg(test)]
mod tests {
    use super::super::{Course, Place, Room, check_reshape, plan_course, reshape_room};
    use super::*;
    use crate::grow::{Beginning, Update};
    use crate::superblock_1::{MAX_SECTOR, Role};
    use crate::time::Timestamp;
    use crate::uuid::Uuid;

    const N2: u32 = 0x102;
    const O2: u32 = 0x1_0201;
    const F2: u32 = 0x201;

    fn array(raid_disks: u32, chunk_kib: u32, layout: u32, size: u64) -> Superblock1 {
        let mut one = Superblock1::new(Level::Raid10, raid_disks, 0, Uuid([7; 16]));
        (one.super_offset_sectors, one.data_offset_sectors) = (8, 2048);
        (one.size_sectors, one.data_size_sectors) = (size, 47_104);
        (one.chunk_sectors, one.layout, one.resync_offset_sectors) = (chunk_kib * 2, layout, MAX_SECTOR);
        one.dev_roles
            .iter_mut()
            .take(raid_disks as usize)
            .zip(0..)
            .for_each(|(role, n)| *role = Role::Slot(n));
        one
    }

    fn target(raid_disks: u32, chunk_kib: u32, layout: u32) -> Target {
        Target { raid_disks, chunk_sectors: chunk_kib * 2, layout }
    }

    fn course(array: &Superblock1, target: Target) -> Result<Course, ReshapeError> {
        plan_course(array, target, &[(array, reshape_room(array, None))])
    }

    /// `New Offset` of mdadm 4.2, on members of 24 MiB.
    #[test]
    fn data_move_as_far_as_mdadm_moves_them() {
        for (disks, more, chunk, new_chunk, layout, size, offset, backwards) in [
            (4, 5, 64, 64, N2, 47_104, -128, false),
            (3, 4, 64, 64, N2, 47_104, -128, false),
            (4, 5, 64, 128, N2, 46_592, -256, false),
            (4, 5, 64, 64, O2, 47_104, -256, false),
            (4, 4, 64, 128, N2, 24_576, 10_240, true),
            (4, 4, 64, 32, N2, 47_104, -1024, false),
            (4, 3, 64, 64, N2, 24_576, 128, true),
            (6, 4, 64, 64, N2, 24_576, 128, true),
            (4, 3, 64, 32, N2, 24_576, 128, true),
            (5, 4, 64, 64, O2, 24_576, 256, true),
        ] {
            let found = course(&array(disks, chunk, layout, size), target(more, new_chunk, layout));
            assert_eq!(
                found,
                Ok(Course { new_offsets: vec![offset], backwards }),
                "{disks} {more} {new_chunk}"
            );
        }
        let other = course(&array(4, 64, N2, 47_104), target(4, 64, O2));
        assert_eq!(other, Ok(Course { new_offsets: vec![-1024], backwards: false }));
    }

    #[test]
    fn what_md_does_not_move_is_refused() {
        let four = array(4, 64, N2, 46_592);
        let check = |array: &Superblock1, target| check_reshape(array, target, 1);
        assert_eq!(check(&four, target(5, 64, N2)), Ok(()));
        assert_eq!(check(&four, target(4, 64, O2)), Ok(()));
        assert_eq!(check(&four, target(4, 64, F2)), Err(ReshapeError::FarCopies));
        assert_eq!(check(&array(4, 64, F2, 46_592), target(5, 64, F2)), Err(ReshapeError::FarCopies));
        assert_eq!(check(&four, target(4, 64, 0x103)), Err(ReshapeError::Copies { now: 2, asked: 3 }));
        assert_eq!(check(&four, target(3, 64, N2)), Ok(()));
        assert_eq!(
            check(&array(3, 64, N2, 1280), target(2, 128, N2)),
            Ok(()),
            "how much is kept is asked elsewhere"
        );
        let odd = array(4, 64, N2, 128 * 5);
        assert_eq!(
            check(&odd, target(4, 64, O2)),
            Err(ReshapeError::HoldsLess { now_sectors: 1280, then_sectors: 1024 }),
            "the last row has no place for its second copies"
        );
        let three = array(3, 64, N2, 1280);
        assert_eq!(
            check(&three, target(4, 128, N2)),
            Err(ReshapeError::HoldsLess { now_sectors: 1920, then_sectors: 1792 }),
            "as long as the slots are counted as before"
        );
        let tight = Superblock1 { data_offset_sectors: 160, ..four };
        assert!(matches!(
            course(&tight, target(5, 64, N2)),
            Err(ReshapeError::Room {
                needed_sectors: 128,
                room: Room { before_sectors: 80, .. },
                place: Place::Before,
                ..
            })
        ));
    }

    #[test]
    fn what_more_members_add_is_resynced_when_the_reshape_has_ended() {
        let before = array(4, 64, N2, 1280);
        let roles = (0..5).map(Role::Slot).collect();
        let beginning = Beginning { target: target(5, 64, N2), backwards: false, roles };
        let update = |events| Update { events, utime: Timestamp::from_seconds(events) };
        let begun = before.with_reshape(&beginning, -128, update(5));
        assert_eq!((begun.delta_disks, begun.reshape_position_sectors), (1, 0));
        assert_eq!(begun.reshape_sectors(), 2560, "what the array held moves, and no more");
        assert_eq!(begun.with_reshape_position(1280, update(6)).reshaped_percent(), Some(50));
        let ended = begun.with_reshape_position(2560, update(6)).reshape_ended();
        assert_eq!((ended.held_sectors(), ended.resync_offset_sectors), (3200, 2560));
        assert_eq!((ended.data_offset_sectors, ended.data_size_sectors), (1920, 47_232));
        let due = Superblock1 { resync_offset_sectors: 512, ..begun };
        assert_eq!(due.reshape_ended().resync_offset_sectors, 512, "what was due before is due");
        let beginning = Beginning { target: target(4, 128, N2), backwards: true, ..beginning };
        let back = before.with_reshape(&beginning, 10_240, update(5));
        assert_eq!((back.reshape_position_sectors, back.reshaped_percent()), (2560, Some(0)));
        assert_eq!(back.reshape_ended().resync_offset_sectors, MAX_SECTOR);
    }
}
