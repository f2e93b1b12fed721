use super::*;
use crate::time::Timestamp;
use crate::uuid::Uuid;

fn array(level: Level, raid_disks: u32, chunk_kib: u32, data_offset: u64, size: u64) -> Superblock1 {
    let mut superblock = Superblock1::new(level, raid_disks, 0, Uuid([7; 16]));
    (superblock.super_offset_sectors, superblock.data_offset_sectors) = (8, data_offset);
    (superblock.size_sectors, superblock.data_size_sectors) = (size, 131_072 - data_offset);
    (superblock.chunk_sectors, superblock.layout) = (chunk_kib * 2, 2);
    let slots = superblock.raid_disks as usize;
    superblock.dev_roles.iter_mut().take(slots).zip(0..).for_each(|(role, slot)| *role = Role::Slot(slot));
    superblock
}

fn target(raid_disks: u32, chunk_kib: u32) -> Target {
    Target { raid_disks, chunk_sectors: chunk_kib * 2, layout: 2 }
}

fn new_offset(array: &Superblock1, target: Target) -> Result<(u64, bool), ReshapeError> {
    let (before_sectors, after_sectors) =
        (array.data_offset_sectors - 80, array.data_size_sectors - array.size_sectors);
    let course = plan_course(array, target, &[(array, Room { before_sectors, after_sectors })])?;
    Ok((array.data_offset_sectors.strict_add_signed(course.new_offsets[0].into()), course.backwards))
}

/// `New Offset` of mdadm 4.2 on devices of 131072 sectors.
#[test]
fn more_members_move_the_data_as_far_as_mdadm_moves_them() {
    for (level, disks, more, chunk, new_chunk, offset, right) in [
        (Level::Raid5, 3, 4, 64, 64, 2048, 1664),
        (Level::Raid5, 3, 5, 64, 64, 2048, 1792),
        (Level::Raid5, 3, 4, 512, 512, 4096, 1024),
        (Level::Raid5, 3, 4, 64, 64, 1024, 640),
        (Level::Raid4, 3, 4, 64, 64, 2048, 1664),
        (Level::Raid6, 4, 5, 64, 64, 2048, 1664),
        (Level::Raid6, 4, 6, 64, 128, 2048, 1536),
    ] {
        let array = array(level, disks, chunk, offset, 102_400);
        assert_eq!(new_offset(&array, target(more, new_chunk)), Ok((right, false)), "{level} {disks} {more}");
    }
    let tight = array(Level::Raid5, 3, 64, 128, 102_400);
    assert_eq!(
        new_offset(&tight, target(4, 64)),
        Err(ReshapeError::Room {
            member: 0,
            needed_sectors: 128,
            room: Room { before_sectors: 48, after_sectors: 28_544 },
            place: Place::Before,
            has_backup: true
        })
    );
    // mdadm helps itself with a backup there.
    let tight = array(Level::Raid5, 4, 512, 4096, 102_400);
    assert_eq!(new_offset(&tight, target(5, 512)), Ok((1024, false)));
}

/// The same of mdadm 4.2 when it was told before that the reshape goes backwards (`reshape_direction`), without which the kernel takes no
/// higher offset from it.
#[test]
fn fewer_members_move_the_data_as_far_as_mdadm_moves_them() {
    for (level, disks, fewer, chunk, new_chunk, moved) in [
        (Level::Raid5, 4, 3, 64, 64, 256),
        (Level::Raid4, 4, 3, 64, 64, 256),
        (Level::Raid5, 3, 2, 64, 64, 128),
        (Level::Raid5, 4, 3, 64, 128, 512),
        (Level::Raid5, 5, 3, 64, 128, 128),
        (Level::Raid5, 6, 4, 16, 16, 96),
        (Level::Raid6, 6, 4, 64, 64, 128),
        (Level::Raid6, 6, 5, 64, 64, 384),
        (Level::Raid6, 6, 4, 64, 32, 128),
    ] {
        let array = array(level, disks, chunk, 2048, 102_400);
        assert_eq!(new_offset(&array, target(fewer, new_chunk)), Ok((2048 + moved, true)), "{level} {disks}");
    }
    // With less room by less, down to a chunk.
    let six = |free: u64| array(Level::Raid6, 6, 64, 2048, 129_024 - free);
    assert_eq!(new_offset(&six(300), target(5, 64)), Ok((2048 + 256, true)));
    assert_eq!(new_offset(&six(128), target(5, 64)), Ok((2048 + 128, true)));
    assert_eq!(
        new_offset(&six(127), target(5, 64)),
        Err(ReshapeError::Room {
            member: 0,
            needed_sectors: 128,
            room: Room { before_sectors: 1968, after_sectors: 127 },
            place: Place::Behind,
            has_backup: true
        })
    );
}

#[test]
fn what_fewer_members_keep_is_said_before() {
    let five = array(Level::Raid5, 4, 64, 2048, 102_400);
    let kept = |asked| check_kept(&five, target(3, 64), five.size_sectors, asked);
    let told = kept(None).unwrap_err().to_string();
    assert!(
        told.contains("holds 153600K on 4 raid devices, and with 3 all beyond 102400K would be lost"),
        "{told}"
    );
    assert!(told.contains("--array-size SIZE, 102400K or less"), "{told}");
    assert_eq!(kept(Some(204_800)), Ok(()));
    let (asked, asked_sectors, most_sectors) = (3, 204_802, 204_800);
    let too_much = ReshapeError::ArraySize { asked, asked_sectors, most_sectors };
    assert_eq!(kept(Some(asked_sectors)), Err(too_much));
    let more = check_kept(&five, target(5, 64), five.size_sectors, Some(2));
    assert_eq!(more, Err(ReshapeError::NotFewer { now: 4, asked: 5 }));
    assert_eq!(check_kept(&five, target(4, 32), five.size_sectors, None), Ok(()));
}

#[test]
fn without_room_behind_less_is_used_of_each_member() {
    let room = |after_sectors| Room { before_sectors: 2032, after_sectors };
    let five = array(Level::Raid5, 4, 64, 2048, 102_400);
    let size = |rooms: &[Room]| shrunk_size_sectors(&five, target(3, 64), rooms);
    assert_eq!(size(&[room(300), room(128)]), 102_400, "there is room");
    assert_eq!(size(&[room(300), room(127)]), 102_400 - 256, "mdadm's 256 sectors, in whole chunks");
    assert_eq!(size(&[room(0)]), 102_400 - 256);
    assert_eq!(
        shrunk_size_sectors(&five, target(5, 64), &[room(0)]),
        102_400,
        "more members leave it as it is"
    );
    let small = array(Level::Raid5, 4, 64, 2048, 256);
    assert_eq!(
        shrunk_size_sectors(&small, target(3, 64), &[room(0)]),
        256,
        "there is nothing to leave unused"
    );
    let less = |asked| check_kept(&five, target(3, 64), 102_144, Some(asked));
    let (asked_sectors, most_sectors) = (204_290, 204_288);
    assert_eq!(less(asked_sectors), Err(ReshapeError::ArraySizeRoom { asked_sectors, most_sectors }));
    assert_eq!(less(most_sectors), Ok(()));
}

#[test]
fn whose_slot_goes_is_a_spare_at_the_end() {
    let before = array(Level::Raid5, 4, 64, 2048, 102_400);
    let roles = before.dev_roles.clone();
    let beginning = Beginning { target: target(3, 64), backwards: true, roles };
    let update = |events| Update { events, utime: Timestamp::from_seconds(events) };
    let mut begun = before.with_reshape(&beginning, 256, update(6));
    assert_eq!(begun.features, Features::RESHAPE_ACTIVE | Features::NEW_OFFSET, "its direction is not said");
    assert_eq!((begun.raid_disks, begun.delta_disks, begun.slots_before_reshape()), (3, -1, 4));
    assert_eq!(begun.reshape_position_sectors, 204_800, "the end of what is kept");
    begun.dev_number = 3;
    let on = begun.with_reshape_position(51_200, update(7));
    assert_eq!((on.role(), on.reshaped_percent()), (Role::Slot(3), Some(75)));
    assert_eq!(Superblock1::parse(&on.to_bytes(), 8).unwrap(), on, "it reads");
    let done = on.reshape_ended();
    assert_eq!(
        (done.role(), done.data_offset_sectors, done.features),
        (Role::Spare, 2304, Features::default())
    );
    assert_eq!(done.dev_roles[..3], before.dev_roles[..3]);
    assert!(on.check_reshaped().is_ok());
}

#[test]
fn what_the_first_superblocks_of_fewer_members_did_not_reach_follows() {
    let update = |events| Update { events, utime: Timestamp::from_seconds(events) };
    let mut before = array(Level::Raid5, 4, 64, 2048, 102_400);
    before.events = 4;
    let beginning = Beginning { target: target(3, 64), backwards: true, roles: before.dev_roles.clone() };
    let less_used = Superblock1 { size_sectors: 102_144, ..before.clone() };
    for taken in [&before, &less_used] {
        let begun = taken.with_reshape(&beginning, 256, update(5));
        let mut members = [before.clone(), begun.clone()];
        assert_eq!(follow_reshape(&mut members), [0]);
        assert_eq!(members[0], begun);
    }
    let begun = before.with_reshape(&beginning, 256, update(6));
    assert_eq!(follow_reshape(&mut [before, begun]), [0_usize; 0], "it is out of date");
}

/// As the above, of a chunk of 32K in place of 64K; 0 stands for all that there is.
#[test]
fn another_chunk_moves_the_data_to_where_mdadm_moves_them() {
    for (offset, size, right, backwards) in [
        (2048, 0, 1024, false),
        (6144, 0, 4096, false),
        (10_240, 0, 6144, false),
        (20_480, 0, 10_240, false),
        (2200, 0, 2048, false),
        (2048, 79_872, 26_624, true),
        (2048, 81_920, 24_576, true),
        (2048, 102_400, 14_336, true),
        (2048, 122_880, 4096, true),
        (2048, 126_976, 4096, true),
        (2048, 125_184, 4096, true),
    ] {
        let size = if size == 0 { 131_072 - offset } else { size };
        let array = array(Level::Raid5, 3, 64, offset, size);
        assert_eq!(new_offset(&array, target(3, 32)), Ok((right, backwards)), "{offset} {size}");
    }
    for (offset, right) in [(600, 512), (192, 128)] {
        let array = array(Level::Raid5, 3, 16, offset, 131_072 - offset);
        assert_eq!(new_offset(&array, target(3, 8)), Ok((right, false)), "{offset}");
    }
}

#[test]
fn room_ends_where_logs_are() {
    let mut start = array(Level::Raid5, 3, 64, 2048, 129_000);
    assert_eq!(reshape_room(&start, None), Room { before_sectors: 1968, after_sectors: 24 });
    start.set_bitmap(8);
    let bitmap = BitmapSuperblock::new(start.set_uuid, 129_000, 4096);
    assert_eq!(reshape_room(&start, Some(&bitmap)).before_sectors, 1968);
    (start.bblog_offset_sectors, start.bblog_size_sectors) = (200, 8);
    assert_eq!(reshape_room(&start, Some(&bitmap)).before_sectors, 2048 - 216);
    let mut end = array(Level::Raid5, 3, 64, 0, 81_920);
    end.super_offset_sectors = 131_056;
    assert_eq!(reshape_room(&end, None), Room { before_sectors: 0, after_sectors: 131_056 - 81_920 });
    (end.bblog_offset_sectors, end.bblog_size_sectors) = (-8, 8);
    end.set_bitmap(-16);
    assert_eq!(reshape_room(&end, None).after_sectors, 131_040 - 81_920);
}

#[test]
fn what_cannot_be_is_refused() {
    let five = array(Level::Raid5, 3, 64, 2048, 128_000);
    let check = |array: &Superblock1, target, spares| check_reshape(array, target, spares).unwrap_err();
    assert_eq!(check(&five, target(3, 64), 0), ReshapeError::Same);
    let (level, least) = (Level::Raid5, 2);
    assert_eq!(check(&five, target(1, 64), 0), ReshapeError::TooFew { level, least, asked: 1 });
    assert_eq!(check(&five, target(5, 64), 1), ReshapeError::Spares { added: 2, spares: 1 });
    assert_eq!(check(&five, target(3, 6), 0), ReshapeError::Chunk { chunk_sectors: 12 });
    assert_eq!(
        check(&five, target(3, 1024), 0),
        ReshapeError::ChunkDoesNotDivide { chunk_sectors: 2048, size_sectors: 128_000, can_use_less: true }
    );
    let larger = check(&five, target(3, 1 << 20), 0).to_string();
    assert_eq!(larger, "64000K are used of each member, less than a chunk of 1048576K; take a smaller one");
    let one = array(Level::Raid1, 3, 0, 2048, 128_000);
    assert_eq!(check(&one, target(4, 64), 1), ReshapeError::Level(Level::Raid1));
    let six = array(Level::Raid6, 4, 64, 2048, 128_000);
    assert_eq!(check(&six, target(256, 64), 300), ReshapeError::TooMany { most: 255, asked: 256 });
    assert!(check_reshape(&five, target(4, 32), 1).is_ok());
}

#[test]
fn the_member_with_the_least_room_decides_how_far_all_move() {
    // 48, 16 and 20 MiB of which 8 are used, from 1 MiB on: mdadm moves all of them to sector 8192.
    let small = array(Level::Raid5, 3, 64, 2048, 16_384);
    let room = |after_sectors| Room { before_sectors: 2032, after_sectors };
    let moved = |rooms: &[u64]| {
        let rooms: Vec<_> = rooms.iter().map(|after| (&small, room(*after))).collect();
        plan_course(&small, target(3, 128), &rooms).unwrap()
    };
    assert_eq!(moved(&[79_872, 14_336, 22_528]), Course { new_offsets: vec![6144; 3], backwards: true });
    let far = moved(&[1 << 34; 3]).new_offsets;
    assert_eq!(far, [2_147_481_600; 3], "aligned, and no more than the superblock holds");
    assert!(
        moved(&[79_872, 600, 79_872]).new_offsets.iter().all(|offset| *offset < 0),
        "where there is more room for all"
    );
}

#[test]
fn what_the_first_or_last_superblocks_did_not_reach_follows() {
    let update = |events| Update { events, utime: Timestamp::from_seconds(events) };
    let mut before = array(Level::Raid5, 3, 64, 2048, 129_024);
    before.events = 4;
    let roles = vec![Role::Slot(0), Role::Slot(1), Role::Slot(2), Role::Slot(3)];
    let beginning = Beginning { target: target(4, 32), backwards: false, roles };
    let begun = before.with_reshape(&beginning, -384, update(5));
    let mut members = [before.clone(), begun.clone()];
    assert_eq!(follow_reshape(&mut members), [0]);
    assert_eq!(members, [begun.clone(), begun.clone()]);
    let on = begun.with_reshape_position(3072, update(6));
    let mut members = [begun.clone(), on.clone()];
    assert_eq!(follow_reshape(&mut members), [0_usize; 0], "it knows");
    let mut members = [before.clone(), on.clone()];
    assert_eq!(follow_reshape(&mut members), [0_usize; 0], "it is out of date");
    let mut ended = on.reshaped();
    ended.events = 6 + END_EVENTS;
    ended.utime = Timestamp::from_seconds(9);
    let mut members = [ended.clone(), on.clone(), begun];
    assert_eq!(follow_reshape(&mut members), [1]);
    assert_eq!(members[1], ended);
}

#[test]
fn a_reshape_begins_goes_on_and_ends_as_in_linux() {
    let before = array(Level::Raid5, 3, 64, 2048, 129_024);
    let roles = vec![Role::Slot(0), Role::Slot(1), Role::Slot(2), Role::Slot(3)];
    let beginning = Beginning { target: Target { layout: 1, ..target(4, 32) }, backwards: false, roles };
    let update = |events| Update { events, utime: Timestamp::from_seconds(events) };
    let begun = before.with_reshape(&beginning, -384, update(5));
    assert_eq!(begun.features, Features::RESHAPE_ACTIVE | Features::NEW_OFFSET);
    assert_eq!((begun.raid_disks, begun.chunk_sectors, begun.layout), (4, 128, 2), "those of before");
    assert_eq!((begun.new_chunk_sectors, begun.new_layout, begun.delta_disks), (64, 1, 1));
    assert_eq!((begun.reshape_position_sectors, begun.slots_before_reshape()), (0, 3));
    let on = begun.with_reshape_position(3072, update(6));
    assert_eq!((on.reshape_position_sectors, on.events), (3072, 6));
    assert_eq!((on.reshaped_percent(), before.reshaped_percent()), (Some(0), None));
    assert_eq!(begun.with_reshape_position(129_024, update(6)).reshaped_percent(), Some(33));
    let bytes = on.to_bytes();
    assert_eq!(Superblock1::parse(&bytes, 8).unwrap(), on, "it reads");
    assert!(on.check_reshaped().is_ok());
    let onto_superblock = Superblock1 { new_offset_sectors: -2045, ..on.clone() };
    assert!(onto_superblock.check_reshaped().is_err());
    let before_device = Superblock1 { new_offset_sectors: -4000, ..on.clone() };
    assert!(before_device.check_reshaped().unwrap_err().to_string().contains("new_offset"));
    let done = on.reshaped();
    assert_eq!(done.features, Features::default());
    assert_eq!((done.data_offset_sectors, done.data_size_sectors), (1664, 129_408));
    assert_eq!((done.raid_disks, done.chunk_sectors, done.layout), (4, 64, 1));
    assert_eq!(done.delta_disks, 1, "what means nothing stays");
    let mut back = Beginning { backwards: true, ..beginning };
    back.target.raid_disks = 3;
    let begun = before.with_reshape(&back, 1024, update(5));
    assert!(begun.features.contains(Features::RESHAPE_BACKWARDS));
    assert_eq!(begun.reshape_position_sectors, 129_024 * 2);
}
