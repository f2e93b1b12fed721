//! What is a reshape's own that takes slots away: how much of the array is kept, which has to be said, and how much of each member is
//! used where there is no room to move the data otherwise.
//!
//! Facts: `raid5_check_reshape`, `raid5_start_reshape` and `raid10_start_reshape` in the kernel, which want the array cut short before
//! (`mdadm --grow --array-size`) and data that move to higher sectors; by how much from what mdadm 4.2 chose (see the tests).

use super::{ReshapeError, Room, Target, copies, move_min_sectors};
use crate::level::Level;
use crate::superblock_1::Superblock1;

/// Sectors that the array holds with the slots asked for, of so many sectors of each member.
fn held_sectors(array: &Superblock1, target: Target, size_sectors: u64) -> u64 {
    let Target { raid_disks, chunk_sectors, layout } = target;
    Superblock1 { layout, size_sectors, chunk_sectors, raid_disks, ..array.clone() }.held_sectors()
}

/// The least by which the data of a shrinking array can move: there is room for the rows that come next at every position.
pub(super) fn shrink_min_sectors(array: &Superblock1, target: Target) -> u64 {
    match array.level {
        Level::Raid10 => copies::safe_min_sectors(array, target),
        _ => u64::from(array.chunk_sectors.max(target.chunk_sectors)).min(move_min_sectors(array, target)),
    }
}

/// Sectors that are used of each member while the data move, and from then on: all that are used now if the members have room for the
/// move behind them, else less, whole chunks, so that they have.
pub fn shrunk_size_sectors(array: &Superblock1, target: Target, rooms: &[Room]) -> u64 {
    let size_sectors = array.size_sectors;
    if target.raid_disks >= array.raid_disks {
        return size_sectors;
    }
    let room = rooms.iter().map(|room| room.after_sectors).min().unwrap_or(0);
    let least = shrink_min_sectors(array, target);
    if room >= least {
        return size_sectors;
    }
    let unit = match array.level {
        Level::Raid10 => move_min_sectors(array, target),
        _ => u64::from(array.chunk_sectors.max(target.chunk_sectors)),
    };
    let missing =
        move_min_sectors(array, target).max(least).saturating_sub(room).next_multiple_of(unit.max(1));
    // Of next to nothing no part can be left unused.
    size_sectors.checked_sub(missing).filter(|size| *size > 0).unwrap_or(size_sectors)
}

/// Whether what is to be kept of an array, `asked_sectors`, fits the slots asked for when so much is used of each member; and whether
/// it is said where the array gets smaller, and only there.
///
/// # Errors
/// It does not, or is not.
pub fn check_kept(
    array: &Superblock1,
    target: Target,
    size_sectors: u64,
    asked_sectors: Option<u64>,
) -> Result<(), ReshapeError> {
    let (now, asked) = (array.raid_disks, target.raid_disks);
    if asked >= now {
        return asked_sectors.map_or(Ok(()), |_| Err(ReshapeError::NotFewer { now, asked }));
    }
    let now_sectors = array.held_sectors();
    let most_sectors = held_sectors(array, target, size_sectors);
    let (is_less_used, whole_sectors) =
        (size_sectors < array.size_sectors, held_sectors(array, target, array.size_sectors));
    match asked_sectors {
        None => Err(ReshapeError::Fewer { now, asked, now_sectors, most_sectors }),
        Some(asked_sectors) if asked_sectors > whole_sectors => {
            Err(ReshapeError::ArraySize { asked, asked_sectors, most_sectors })
        }
        Some(asked_sectors) if asked_sectors > most_sectors && is_less_used => {
            Err(ReshapeError::ArraySizeRoom { asked_sectors, most_sectors })
        }
        Some(_) => Ok(()),
    }
}

/// Refuses what md does not make of an array that gets fewer slots.
pub(super) fn check(array: &Superblock1, target: Target) -> Result<(), ReshapeError> {
    if target.raid_disks >= array.raid_disks {
        return Ok(());
    }
    let least = u32::from(array.level.members_min());
    if target.raid_disks < least {
        return Err(ReshapeError::TooFew { level: array.level, least, asked: target.raid_disks });
    }
    Ok(())
}
