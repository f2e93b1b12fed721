//! RAID-0 and the levels that have its data where they are: a RAID-4, or a RAID-5 with parity last, that lacks the parity; a RAID-10 with
//! two near copies that has one of each; a RAID-1 of one.
//!
//! A RAID-0 has all of each member, the others so much of each as their superblocks say. So it is taken over where its members have
//! the same number of chunks, and has no more of each member than the level that it takes over. (Linux does so with parity; of what
//! had copies it makes a longer array, whose members may then be of unequal sizes.)
//!
//! Facts: `raid45_takeover_raid0`, `raid10_takeover_raid0`, `raid0_takeover_raid45`, `raid0_takeover_raid10` and
//! `raid0_takeover_raid1` in the kernel; the rest from what mdadm 4.2 and Linux 6.1 left on members.

use super::{LevelError, Takeover, chunk_of_copies};
use crate::create::SLOTS_MAX_V1;
use crate::level::{Level, ParityLayout};
use crate::superblock_1::{Role, Superblock1, check_chunk};

/// The layout's number of a RAID-10 with two near copies.
const NEAR_2: u32 = 0x102;

/// What a level makes of a RAID-0.
pub(super) fn over_raid0(array: &Superblock1, level: Level) -> Result<Takeover, LevelError> {
    let Superblock1 { chunk_sectors, raid_disks, data_size_sectors, .. } = *array;
    let (layout, raid_disks) = match level {
        // Linux records the number with RAID-4, too.
        Level::Raid4 | Level::Raid5 => (ParityLayout::ParityLast as u32, raid_disks.saturating_add(1)),
        Level::Raid10 => (NEAR_2, raid_disks.saturating_mul(2)),
        _ => return Err(LevelError::Pair { now: Level::Raid0, asked: level }),
    };
    if check_chunk("chunksize", level, chunk_sectors).is_err() {
        return Err(LevelError::Chunk { asked: level, chunk_sectors });
    }
    if raid_disks > SLOTS_MAX_V1 {
        return Err(LevelError::TooMany { asked: level, most: SLOTS_MAX_V1, needed: raid_disks });
    }
    let size_sectors = whole_chunks(data_size_sectors, chunk_sectors);
    Ok(Takeover { level, layout, chunk_sectors, raid_disks, size_sectors })
}

/// What RAID-0 makes of an array of another level.
pub(super) fn as_raid0(array: &Superblock1) -> Result<Takeover, LevelError> {
    let Superblock1 { level: now, layout, chunk_sectors, raid_disks, size_sectors, .. } = *array;
    let asked = Level::Raid0;
    let same = Takeover { level: asked, layout: 0, chunk_sectors, raid_disks, size_sectors };
    let takeover = match now {
        Level::Raid5 if layout != ParityLayout::ParityLast as u32 => {
            return Err(LevelError::Layout { asked, layout: "parity-last" });
        }
        Level::Raid4 | Level::Raid5 => Takeover { raid_disks: raid_disks - 1, ..same },
        Level::Raid10 if layout != NEAR_2 => return Err(LevelError::Layout { asked, layout: "n2" }),
        Level::Raid10 if !raid_disks.is_multiple_of(2) => {
            return Err(LevelError::Slots { now, asked, raid_disks });
        }
        Level::Raid10 => Takeover { raid_disks: raid_disks / 2, ..same },
        Level::Raid1 => Takeover { raid_disks: 1, chunk_sectors: chunk_of_copies(size_sectors)?, ..same },
        _ => return Err(LevelError::Pair { now, asked }),
    };
    if array.bitmap_offset_sectors().is_some() {
        return Err(LevelError::Bitmap);
    }
    let size_sectors = whole_chunks(size_sectors, takeover.chunk_sectors);
    Ok(Takeover { size_sectors, ..takeover })
}

/// Refuses a RAID-0 whose members have not the same number of chunks: no other level takes it over.
///
/// # Errors
/// They have not.
pub fn check_one_zone(members: &[&Superblock1], asked: Level) -> Result<(), LevelError> {
    let sizes = || members.iter().map(|one| whole_chunks(one.data_size_sectors, one.chunk_sectors));
    let (least_sectors, most_sectors) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    if least_sectors < most_sectors {
        return Err(LevelError::Zones { asked, least_sectors, most_sectors });
    }
    Ok(())
}

fn whole_chunks(sectors: u64, chunk_sectors: u32) -> u64 {
    let chunk = u64::from(chunk_sectors).max(1);
    sectors / chunk * chunk
}

/// The roles at the level that takes the array over. RAID-0 keeps the first of the copies that are there.
pub(super) fn roles(array: &Superblock1, level: Level) -> Vec<Role> {
    let copies = match (array.level, level) {
        (Level::Raid1, Level::Raid0) => array.raid_disks as u16,
        (Level::Raid10, Level::Raid0) | (Level::Raid0, Level::Raid10) => 2,
        _ => 1,
    };
    let is_kept = |slot: u16| {
        let earlier = slot / copies * copies..slot;
        !array.dev_roles.iter().any(|role| matches!(role, Role::Slot(other) if earlier.contains(other)))
    };
    let role = |role: &Role| match *role {
        Role::Slot(slot) if level == Level::Raid10 => Role::Slot(slot.saturating_mul(copies)),
        Role::Slot(slot) if is_kept(slot) => Role::Slot(slot / copies),
        _ if level == Level::Raid0 => Role::Spare,
        other => other,
    };
    array.dev_roles.iter().map(role).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::{Update, follow, is_dropped, is_left_behind};
    use super::super::{level_layout, take_over, tests::array};
    use super::*;
    use crate::superblock::Superblock;
    use crate::superblock_1::Features;
    use crate::time::Timestamp;

    fn raid0(raid_disks: u32) -> Superblock1 {
        let mut array = array(Level::Raid0, raid_disks, 2);
        (array.size_sectors, array.data_size_sectors) = (0, 47_110);
        array.features |= Features::RAID0_LAYOUT;
        array
    }

    fn slots(array: &Superblock1) -> Vec<Option<u16>> {
        let slot = |role: &Role| match role {
            Role::Slot(slot) => Some(*slot),
            _ => None,
        };
        array.dev_roles.iter().map(slot).collect()
    }

    /// What Linux 6.1 left of a RAID-0 of two.
    #[test]
    fn other_levels_take_over_a_raid0() {
        for (level, layout, raid_disks, roles) in [
            (Level::Raid4, 5, 3, [Some(0), Some(1)]),
            (Level::Raid5, 5, 3, [Some(0), Some(1)]),
            (Level::Raid10, 0x102, 4, [Some(0), Some(2)]),
        ] {
            let array = raid0(2);
            let takeover = take_over(&array, level).unwrap();
            let right = Takeover { level, layout, chunk_sectors: 128, raid_disks, size_sectors: 47_104 };
            assert_eq!(takeover, right);
            assert_eq!(level_layout(takeover, true, None), Ok(layout), "nothing moves");
            let taken = array.taken_over(takeover);
            let read = Superblock1::parse(&taken.to_bytes(), 8).unwrap();
            assert_eq!((read.as_it_is(), read.features.number()), (right, 0), "it reads");
            assert_eq!((&slots(&taken)[..2], taken.resync_offset_sectors), (&roles[..], u64::MAX));
            assert_eq!((taken.held_sectors(), taken.data_size_sectors), (array.held_sectors(), 47_104));
        }
    }

    #[test]
    fn a_stray_role_takes_nobodys_slot() {
        let mut array = raid0(2);
        array.dev_roles[2] = Role::Slot(0x8000);
        let taken = array.taken_over(take_over(&array, Level::Raid10).unwrap());
        assert_eq!(slots(&taken)[..3], [Some(0), Some(2), None]);
    }

    #[test]
    fn a_raid0_takes_over_what_has_its_data_in_place() {
        for (now, disks, layout, raid_disks, chunk_sectors, roles) in [
            (Level::Raid4, 3, 0, 2, 128, vec![Some(0), Some(1), None]),
            (Level::Raid5, 3, 5, 2, 128, vec![Some(0), Some(1), None]),
            (Level::Raid10, 4, NEAR_2, 2, 128, vec![Some(0), None, Some(1), None]),
            (Level::Raid1, 3, 0, 1, 128, vec![Some(0), None, None]),
        ] {
            let mut array = array(now, disks, layout);
            array.data_size_sectors = 50_000;
            let takeover = take_over(&array, Level::Raid0).unwrap();
            let (level, size_sectors) = (Level::Raid0, 47_104);
            assert_eq!(takeover, Takeover { level, layout: 0, chunk_sectors, raid_disks, size_sectors });
            let taken = array.taken_over(takeover);
            assert_eq!(slots(&taken)[..disks as usize], roles, "{now}");
            assert_eq!(taken.data_size_sectors, 47_104, "it holds what it held");
            assert_eq!(taken.held_sectors(), array.held_sectors(), "{now}");
            assert_eq!(Superblock1::parse(&taken.to_bytes(), 8).unwrap(), taken);
        }
    }

    #[test]
    fn the_only_copy_is_kept_whichever_it_is() {
        let mut ten = array(Level::Raid10, 6, NEAR_2);
        for lost in [1, 2, 5] {
            ten.dev_roles[lost] = Role::Faulty;
        }
        let taken = ten.taken_over(take_over(&ten, Level::Raid0).unwrap());
        assert_eq!(slots(&taken)[..6], [Some(0), None, None, Some(1), Some(2), None]);
    }

    #[test]
    fn what_a_raid0_cannot_be_is_refused() {
        let odd = Superblock1 { chunk_sectors: 24, ..raid0(2) };
        let chunk = LevelError::Chunk { asked: Level::Raid5, chunk_sectors: 24 };
        assert_eq!(take_over(&odd, Level::Raid5), Err(chunk));
        let many = LevelError::TooMany { asked: Level::Raid10, most: SLOTS_MAX_V1, needed: 386 };
        assert_eq!(take_over(&raid0(193), Level::Raid10), Err(many));
        let refused = |array: &Superblock1| take_over(array, Level::Raid0).unwrap_err();
        let (asked, layout) = (Level::Raid0, |layout| LevelError::Layout { asked: Level::Raid0, layout });
        assert_eq!(refused(&array(Level::Raid5, 3, 2)), layout("parity-last"));
        assert_eq!(refused(&array(Level::Raid10, 4, 0x201)), layout("n2"));
        let three = LevelError::Slots { now: Level::Raid10, asked, raid_disks: 3 };
        assert_eq!(refused(&array(Level::Raid10, 3, NEAR_2)), three);
        let mut mapped = array(Level::Raid4, 3, 0);
        mapped.set_bitmap(8);
        assert_eq!(refused(&mapped), LevelError::Bitmap);
        let of = |data_size_sectors| Superblock1 { data_size_sectors, ..raid0(2) };
        assert_eq!(check_one_zone(&[&of(47_104), &of(47_231)], Level::Raid4), Ok(()), "the same chunks");
        let zones = LevelError::Zones { asked: Level::Raid4, least_sectors: 47_104, most_sectors: 47_232 };
        assert_eq!(check_one_zone(&[&of(47_232), &of(47_104)], Level::Raid4), Err(zones));
    }

    #[test]
    fn members_that_the_change_did_not_reach_follow_or_are_dropped() {
        for (array, level) in [
            (raid0(2), Level::Raid4),
            (raid0(3), Level::Raid10),
            (array(Level::Raid5, 3, 5), Level::Raid0),
            (array(Level::Raid10, 4, NEAR_2), Level::Raid0),
            (array(Level::Raid1, 2, 0), Level::Raid0),
        ] {
            let takeover = take_over(&array, level).unwrap();
            let update = Update { events: 5, utime: Timestamp::from_seconds(5) };
            let boxed = |one: &Superblock1| Superblock::V1(Box::new(one.clone()));
            for number in 0..array.raid_disks {
                let member = Superblock1 { dev_number: number, ..array.clone() };
                let taken = boxed(&member.taken_over(takeover).with_update(update));
                let reached = array.taken_over(takeover).with_update(update);
                let (dropped, reached) = (member.taken_over(takeover).is_dropped(), boxed(&reached));
                assert!(is_left_behind(&boxed(&member), &reached));
                assert_eq!(is_dropped(&boxed(&member), &reached), dropped, "{level} {number}");
                let followed = follow(&boxed(&member), 8, 1 << 20, &reached);
                assert_eq!(followed, (!dropped).then_some(taken), "{level} {number}");
            }
        }
    }
}
