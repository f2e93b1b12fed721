//! A change that was cut off between two superblocks: the members that it did not reach are an event behind and say what the
//! array was.

use super::{ppl, room_sectors, slots};
use crate::level::Level;
use crate::superblock::Superblock;
use crate::superblock_1::Superblock1;

/// Whether a change that `freshest` tells of did not reach a member.
pub fn is_left_behind(member: &Superblock, freshest: &Superblock) -> bool {
    let is_an_event_behind = member.events().checked_add(1) == Some(freshest.events());
    let is_alike = member.metadata() == freshest.metadata() && member.set_uuid() == freshest.set_uuid();
    is_an_event_behind && is_alike && changed(member) != changed(freshest)
}

/// What one of these changes changes.
fn changed(superblock: &Superblock) -> (Level, u64, u32, bool, bool) {
    let has_bitmap = superblock.bitmap_offset_sectors().is_some();
    let (level, size) = (superblock.level(), superblock.size_sectors());
    (level, size, superblock.raid_disks(), has_bitmap, superblock.ppl().is_some())
}

/// The superblock that a member would have if the change had reached it; none if its device of so many sectors has no room for
/// that, or if the change is a reshape, which has rules of its own ([`follow_reshape`](super::follow_reshape)). Bitmap and logs are not
/// looked at.
pub fn follow(
    member: &Superblock,
    at_sector: u64,
    device_sectors: u64,
    freshest: &Superblock,
) -> Option<Superblock> {
    if matches!(freshest, Superblock::V1(array) if array.reshape().is_some()) {
        return None;
    }
    let mut new = member.clone();
    let is_other_level = member.level() != freshest.level();
    if member.size_sectors() != freshest.size_sectors() && !is_other_level {
        let room = room_sectors(member, at_sector, device_sectors);
        if room < freshest.size_sectors() {
            return None;
        }
        new.set_size_sectors(freshest.size_sectors(), room);
    }
    if is_other_level {
        let (Superblock::V1(own), Superblock::V1(array)) = (&mut new, freshest) else { return None };
        let followed = own.follow_level(array.as_it_is(), &array.dev_roles);
        **own = followed.filter(|new| !new.is_dropped())?;
    } else if member.raid_disks() != freshest.raid_disks() {
        slots::renumber(&mut new, freshest.raid_disks());
    }
    match (&mut new, freshest) {
        (Superblock::V0(own), Superblock::V0(array)) => {
            own.state = array.state;
            own.checkpoint_events = array.checkpoint_events;
            own.recovery_checkpoint_sectors = array.recovery_checkpoint_sectors;
            own.utime_seconds = array.utime_seconds;
            own.events = array.events;
        }
        (Superblock::V1(own), Superblock::V1(array)) => follow_1(own, array)?,
        _ => return None,
    }
    Some(new)
}

/// Whether a change of the level that `freshest` tells of left the member no place, and did not come to clear its superblock.
pub fn is_dropped(member: &Superblock, freshest: &Superblock) -> bool {
    let (Superblock::V1(own), Superblock::V1(array)) = (member, freshest) else { return false };
    let is_other_level = own.level != array.level && array.reshape().is_none();
    is_other_level
        && is_left_behind(member, freshest)
        && own.follow_level(array.as_it_is(), &array.dev_roles).is_some_and(|new| new.is_dropped())
}

fn follow_1(own: &mut Superblock1, array: &Superblock1) -> Option<()> {
    match (array.ppl(), own.ppl(), array.bitmap_offset_sectors()) {
        (Some(_), Some(_), _) => {}
        // A log behind the data lies where this member's data end.
        (Some(_), None, _) => own.set_ppl(ppl::ppl_area(own).ok()?),
        (None, _, Some(offset)) => own.set_bitmap(offset),
        (None, _, None) => {
            own.clear_bitmap_and_ppl();
            own.forget_recovery_by_bitmap();
        }
    }
    own.resync_offset_sectors = array.resync_offset_sectors;
    own.utime = array.utime;
    own.events = array.events;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::{Resized, Update, place_bitmap, with_bitmap, with_size};
    use super::*;
    use crate::superblock_0::Superblock0;
    use crate::superblock_1::Features;
    use crate::time::Timestamp;
    use crate::uuid::Uuid;

    const DEVICE_SECTORS: u64 = 1 << 20;

    fn members() -> [Superblock; 2] {
        let mut new = Superblock1::new(Level::Raid1, 2, 0, Uuid([7; 16]));
        (new.super_offset_sectors, new.data_offset_sectors, new.events) = (8, 2048, 4);
        (new.size_sectors, new.data_size_sectors) = (1 << 16, 1 << 16);
        let mut old = Superblock0::new(Level::Raid1, 2, Uuid([7; 16]));
        (old.size_kib, old.state, old.events) = (1 << 15, Superblock0::CLEAN, 4);
        [Superblock::V1(Box::new(new)), Superblock::V0(Box::new(old))]
    }

    #[test]
    fn a_member_that_was_left_behind_becomes_what_it_would_have() {
        let update = Update { events: 5, utime: Timestamp::from_seconds(5) };
        for member in members() {
            let at_sector = member.metadata().sector(DEVICE_SECTORS).unwrap();
            let resized = Resized { size_sectors: 1 << 17, resync_offset_sectors: 1 << 16, bitmap: None };
            let place = place_bitmap(&member, None).unwrap();
            for changed in [
                with_size(&member, at_sector, DEVICE_SECTORS, &resized, update),
                with_bitmap(&member, at_sector, &place, update).unwrap(),
            ] {
                let array =
                    Superblock::parse(member.metadata(), &changed.superblock.bytes, at_sector).unwrap();
                assert!(is_left_behind(&member, &array));
                let followed = follow(&member, at_sector, DEVICE_SECTORS, &array).unwrap();
                assert_eq!(followed.to_bytes(), array.to_bytes());
                let mut older = member.clone();
                older.set_events(3, Timestamp::from_seconds(3));
                assert!(!is_left_behind(&older, &array), "two events are more than a change");
                assert!(!is_left_behind(&array, &array));
            }
        }
    }

    #[test]
    fn a_member_does_not_follow_into_a_reshape() {
        let [Superblock::V1(member), _] = members() else { panic!("version 1 is the first") };
        let array = Superblock1 {
            raid_disks: 1,
            delta_disks: -1,
            features: Features::RESHAPE_ACTIVE,
            events: member.events + 1,
            ..*member.clone()
        };
        assert!(array.reshape().is_some());
        let (member, array) = (Superblock::V1(member), Superblock::V1(Box::new(array)));
        assert!(is_left_behind(&member, &array));
        assert_eq!(follow(&member, 8, DEVICE_SECTORS, &array), None);
    }

    #[test]
    fn a_member_without_room_does_not_follow() {
        let [member, _] = members();
        let mut array = member.clone();
        array.set_size_sectors(1 << 19, 1 << 19);
        assert!(follow(&member, 8, 2048 + (1 << 19), &array).is_some());
        assert!(follow(&member, 8, 2047 + (1 << 19), &array).is_none());
    }
}
