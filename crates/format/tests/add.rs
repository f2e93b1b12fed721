//! A device that is added has everything where the other members have it.

use stripewise_format::add::{AddError, NewMember, add, needed_sectors};
use stripewise_format::bitmap::{BitmapSuperblock, SUPERBLOCK_BYTES};
use stripewise_format::create::{NewArray, Request, create};
use stripewise_format::device_flags::DeviceFlags;
use stripewise_format::level::{Layout, Level};
use stripewise_format::placement::{Consistency, Metadata, Plan};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Minor, Role};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;

const DEVICE_SECTORS: u64 = 64 << 11;

fn new(device_sectors: u64) -> NewMember {
    let (device_uuid, device_number) = (Uuid([9; 16]), (8, 17));
    NewMember { device_sectors, device_uuid, device_number, flags: DeviceFlags::default() }
}

fn array(level: Level, metadata: Metadata, consistency: Consistency) -> NewArray {
    let raid_disks = 4;
    let request = Request {
        plan: Plan {
            level,
            layout: Layout::default_of(level),
            raid_disks,
            chunk_sectors: if level.has_chunks() { 128 } else { 0 },
            metadata,
            consistency,
            data_offset_sectors: None,
        },
        auto_bitmap: false,
        size_sectors: None,
        assume_clean: true,
        force: false,
        spares: 0,
        members: vec![Some(new(DEVICE_SECTORS)); raid_disks as usize],
        journal: None,
        set_uuid: Uuid([7; 16]),
        name: "a".into(),
        homehost: None,
        created: Timestamp::from_seconds(1_000_000),
    };
    create(&request).unwrap()
}

const METADATA: [Metadata; 4] =
    [Metadata::V0, Metadata::V1(Minor::End), Metadata::V1(Minor::Start), Metadata::V1(Minor::Start4K)];

fn cases() -> impl Iterator<Item = (NewArray, Option<BitmapSuperblock>)> {
    let logs = [Consistency::Resync, Consistency::Bitmap { chunk_bytes: None }, Consistency::Ppl];
    let all = METADATA.into_iter().flat_map(move |metadata| logs.map(|log| (metadata, log)));
    all.filter(|(metadata, log)| (*metadata, *log) != (Metadata::V0, Consistency::Ppl)).map(
        |(metadata, consistency)| {
            let array = array(Level::Raid5, metadata, consistency);
            let has_bitmap = matches!(consistency, Consistency::Bitmap { .. });
            let bitmap = has_bitmap.then(|| {
                BitmapSuperblock::parse(&array.labels[0].logs[0].bytes[..SUPERBLOCK_BYTES]).unwrap()
            });
            (array, bitmap)
        },
    )
}

#[test]
fn a_device_as_long_as_the_others_is_laid_out_like_them() {
    for (array, bitmap) in cases() {
        let other = &array.labels[1];
        let added = add(&other.superblock, &[0, 1, 2, 3], &new(DEVICE_SECTORS), bitmap.as_ref()).unwrap();
        let (at, theirs) = (added.at_sector, other.superblock_area.at_sector);
        assert_eq!(at, theirs, "{:?}", other.superblock.metadata());
        let own = &added.superblock;
        assert_eq!(own.data_offset_sectors(), other.superblock.data_offset_sectors());
        assert_eq!(own.data_size_sectors(at), other.superblock.data_size_sectors(theirs));
        assert_eq!((own.dev_number(), own.role()), (4, Role::Spare));
        let places = |logs: &[stripewise_format::create::Area]| -> Vec<u64> {
            logs.iter().map(|log| log.at_sector).collect()
        };
        assert_eq!(places(&added.logs), places(&other.logs));
        let mut block = own.to_bytes();
        block.resize(4096, 0);
        let parsed = Superblock::parse(own.metadata(), &block, at).unwrap();
        parsed.check_on_device(DEVICE_SECTORS).unwrap();
        assert!(parsed.to_bytes() == own.to_bytes(), "{:?}", own.metadata());
    }
}

/// What a reader of several logs would find further on may be a log of this array, and newer than the empty one.
#[test]
fn the_partial_parity_log_of_a_device_that_is_added_is_written_whole() {
    for metadata in &METADATA[1..] {
        let array = array(Level::Raid5, *metadata, Consistency::Ppl);
        let other = &array.labels[1];
        let added = add(&other.superblock, &[0, 1, 2, 3], &new(DEVICE_SECTORS), None).unwrap();
        assert!(added.logs == other.logs, "{metadata}: as on a member of a new array");
    }
}

#[test]
fn the_least_device_is_taken_and_one_that_is_shorter_is_not() {
    for (array, bitmap) in cases() {
        let member = &array.labels[0].superblock;
        let least = needed_sectors(member);
        assert!(least <= DEVICE_SECTORS, "the array's own members are long enough");
        let added = add(member, &[], &new(least), bitmap.as_ref()).unwrap();
        added.superblock.check_on_device(least).unwrap();
        assert!(added.superblock.data_size_sectors(added.at_sector) >= member.size_sectors());
        for log in &added.logs {
            let data_end = member.data_offset_sectors() + member.size_sectors();
            let log_end = log.at_sector + log.bytes.len() as u64 / 512;
            let in_data = log.at_sector < data_end && log_end > member.data_offset_sectors();
            assert!(!in_data && log_end <= least, "{:?}: a log at {}", member.metadata(), log.at_sector);
        }
        let refused = add(member, &[], &new(least - 1), bitmap.as_ref());
        let needed = AddError::TooSmall { device_sectors: least - 1, needed_sectors: least };
        assert_eq!(refused, Err(needed), "{:?}", member.metadata());
    }
}

#[test]
fn numbers_of_devices_that_are_there_are_not_given_again() {
    let array = array(Level::Raid6, Metadata::V0, Consistency::Resync);
    let member = &array.labels[0].superblock;
    let number =
        |taken: &[u32]| add(member, taken, &new(DEVICE_SECTORS), None).map(|a| a.superblock.dev_number());
    assert_eq!(number(&[0, 1, 3]), Ok(4), "a slot's number is its member's");
    assert_eq!(number(&[0, 1, 2, 3, 4, 6]), Ok(5));
    let all: Vec<u32> = (0..27).collect();
    assert_eq!(number(&all), Err(AddError::NoNumber { most: 27 }));
}

#[test]
fn levels_without_redundancy_take_no_spare() {
    let array = array(Level::Raid0, METADATA[3], Consistency::Resync);
    let refused = add(&array.labels[0].superblock, &[], &new(DEVICE_SECTORS), None);
    assert_eq!(refused, Err(AddError::NoSpares(Level::Raid0)));
}

#[test]
fn a_device_that_is_added_has_the_flags_it_was_given_and_none_of_the_others() {
    let flags = |is_write_mostly, is_failfast| DeviceFlags { is_write_mostly, is_failfast };
    for metadata in METADATA {
        let mut member = array(Level::Raid1, metadata, Consistency::Resync).labels[0].superblock.clone();
        member.set_device_flags(flags(true, false));
        for given in [flags(false, false), flags(true, true), flags(false, true)] {
            let new = NewMember { flags: given, ..new(DEVICE_SECTORS) };
            let own = add(&member, &[0, 1, 2, 3], &new, None).unwrap().superblock;
            assert_eq!(
                (own.device_flags(), member.device_flags()),
                (given, flags(true, false)),
                "{metadata}"
            );
        }
    }
}

#[test]
fn a_size_past_all_devices_fits_none() {
    for metadata in METADATA.into_iter().skip(1) {
        let mut array = array(Level::Raid5, metadata, Consistency::Resync);
        let Superblock::V1(superblock) = &mut array.labels[0].superblock else { unreachable!() };
        superblock.size_sectors = u64::MAX - 5;
        assert_eq!(needed_sectors(&array.labels[0].superblock), u64::MAX);
    }
}
