//! A spare's superblock says of the array what the members' say: nothing else is known of it by a device that holds none of its data.

use super::ppl;
use crate::superblock::Superblock;
use crate::superblock_0::Superblock0;
use crate::superblock_1::{Features, Role, Superblock1};

/// A spare's superblock as the array of `array`, a member's, has it: its own are its events, its number, its name, its flags and where
/// its things lie (`super_1_sync` and `super_90_sync`). None if the array's logs have no place on it, or the metadata are others.
pub fn spare_of(own: &Superblock, array: &Superblock) -> Option<Superblock> {
    match (own, array) {
        (Superblock::V0(own), Superblock::V0(array)) => {
            Some(Superblock::V0(Box::new(spare_of_0(own, array))))
        }
        (Superblock::V1(own), Superblock::V1(array)) => {
            Some(Superblock::V1(Box::new(spare_of_1(own, array)?)))
        }
        _ => None,
    }
}

fn spare_of_0(own: &Superblock0, array: &Superblock0) -> Superblock0 {
    let mut new = array.clone();
    let number = own.this_disk.number as usize;
    (new.this_disk, new.events, new.utime_seconds) = (own.this_disk, own.events, own.utime_seconds);
    if let (Some(row), Some(before)) = (new.disks.get_mut(number), own.disks.get(number)) {
        *row = *before;
    }
    new
}

fn spare_of_1(own: &Superblock1, array: &Superblock1) -> Option<Superblock1> {
    let of_member =
        Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP | Features::REPLACEMENT | Features::BAD_BLOCKS;
    let mut new = Superblock1 {
        features: array.features.without(of_member) | own.features.common(Features::BAD_BLOCKS),
        data_offset_sectors: own.data_offset_sectors,
        data_size_sectors: own.data_size_sectors,
        super_offset_sectors: own.super_offset_sectors,
        recovery_offset_sectors: 0,
        events: own.events,
        utime: own.utime,
        dev_number: own.dev_number,
        corrected_reads: own.corrected_reads,
        device_uuid: own.device_uuid,
        devflags: own.devflags,
        bblog_shift: own.bblog_shift,
        bblog_size_sectors: own.bblog_size_sectors,
        bblog_offset_sectors: own.bblog_offset_sectors,
        ..array.clone()
    };
    let rows = new.dev_roles.len().max(own.dev_roles.len());
    new.dev_roles.resize(rows, Role::Spare);
    if array.ppl().is_some() {
        // A log behind the data lies where the device's own data end.
        let area = own.ppl().map_or_else(|| ppl::ppl_area(&new), Ok).ok()?;
        new.set_ppl(area);
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::super::{Beginning, Target, Update, place_bitmap, take_over, with_bitmap};
    use super::*;
    use crate::level::Level;
    use crate::superblock_0::Disk;
    use crate::time::Timestamp;
    use crate::uuid::Uuid;

    fn member(number: u32) -> Superblock1 {
        let mut new = Superblock1::new(Level::Raid5, 3, 1, Uuid([7; 16]));
        (new.super_offset_sectors, new.data_offset_sectors, new.events) = (8, 4096, 4);
        (new.size_sectors, new.data_size_sectors) = (1 << 16, (1 << 16) + 128 * u64::from(number));
        (new.chunk_sectors, new.layout, new.dev_number) = (128, 2, number);
        new.device_uuid = Uuid([number as u8; 16]);
        new.dev_roles.iter_mut().zip(0..3).for_each(|(role, slot)| *role = Role::Slot(slot));
        new
    }

    fn boxed(superblock: Superblock1) -> Superblock {
        Superblock::V1(Box::new(superblock))
    }

    /// What the array gets while the spare is not told, it has from the members.
    #[test]
    fn a_spare_is_one_of_the_array_as_its_members_say_it_is() {
        let update = Update { events: 5, utime: Timestamp::from_seconds(5) };
        let spare = member(3);
        let mut larger = member(0);
        (larger.size_sectors, larger.raid_disks) = (1 << 17, 4);
        let six = member(0).taken_over(take_over(&member(0), Level::Raid6).unwrap());
        let place = place_bitmap(&boxed(member(0)), None).unwrap();
        let marked = with_bitmap(&boxed(member(0)), 8, &place, update).unwrap().superblock.bytes;
        let marked = Superblock1::parse(&marked, 8).unwrap();
        for array in [larger, six, marked] {
            let Some(Superblock::V1(new)) = spare_of(&boxed(spare.clone()), &boxed(array.clone())) else {
                panic!("it is of version 1");
            };
            let told = |of: &Superblock1| (of.as_it_is(), of.features, of.bitmap_offset_sectors());
            assert_eq!(told(&new), told(&array));
            let own = |of: &Superblock1| {
                (of.dev_number, of.device_uuid, of.data_size_sectors, of.role(), of.events)
            };
            assert_eq!(own(&new), own(&spare));
        }
    }

    #[test]
    fn a_spare_knows_of_no_reshape_that_the_members_know_nothing_of() {
        let target = Target { raid_disks: 3, chunk_sectors: 32, layout: 2 };
        let beginning = Beginning { target, backwards: false, roles: member(3).dev_roles };
        let update = Update { events: 5, utime: Timestamp::from_seconds(5) };
        let spare = member(3).with_reshape(&beginning, -1024, update);
        assert!(spare.reshape().is_some());
        let new = spare_of(&boxed(spare), &boxed(member(0))).unwrap();
        assert_eq!(new, boxed(member(3).with_update(update)));
    }

    #[test]
    fn a_spare_of_0_90_keeps_its_row() {
        let mut array = Superblock0::new(Level::Raid1, 2, Uuid([7; 16]));
        (array.size_kib, array.events) = (1 << 16, 5);
        let mut own = array.clone();
        own.size_kib = 1 << 15;
        own.this_disk = Disk { number: 2, raid_disk: 2, major: 7, minor: 2, state: 0 };
        own.disks[2] = own.this_disk;
        let old = |one: &Superblock0| Superblock::V0(Box::new(one.clone()));
        let Some(Superblock::V0(new)) = spare_of(&old(&own), &old(&array)) else { panic!("it is 0.90") };
        assert_eq!((new.size_kib, new.this_disk, new.disks[2]), (1 << 16, own.this_disk, own.this_disk));
        assert_eq!(spare_of(&old(&own), &boxed(member(0))), None);
    }
}
