//! What is made reads, and what could not be read or run is refused.

use stripewise_format::create::{CreateError, NewArray, NewMember, Request, create};
use stripewise_format::device_flags::DeviceFlags;
use stripewise_format::level::{FarSets, Layout, Level, ParityLayout, Raid0Layout, Raid10Layout};
use stripewise_format::placement::{Consistency, Metadata, PlacementError, Plan};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::Minor;
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;

const MINORS: [Minor; 3] = [Minor::End, Minor::Start, Minor::Start4K];

fn plan(level: Level, layout: Layout, minor: Minor) -> Plan {
    Plan {
        level,
        layout,
        raid_disks: 4,
        chunk_sectors: if level.has_chunks() { 8 } else { 0 },
        metadata: Metadata::V1(minor),
        consistency: Consistency::Resync,
        data_offset_sectors: None,
    }
}

fn request(plan: Plan, device_sectors: u64) -> Request {
    let (device_uuid, device_number) = (Uuid([9; 16]), (8, 17));
    let new = NewMember { device_sectors, device_uuid, device_number, flags: DeviceFlags::default() };
    Request {
        plan,
        auto_bitmap: false,
        size_sectors: None,
        assume_clean: true,
        force: false,
        spares: 0,
        members: vec![Some(new); plan.raid_disks as usize],
        journal: None,
        set_uuid: Uuid([7; 16]),
        name: "a".into(),
        homehost: None,
        created: Timestamp::from_seconds(1_000_000),
    }
}

fn check_read(array: &NewArray, device_sectors: u64) {
    for label in &array.labels {
        let area = &label.superblock_area;
        let read = Superblock::parse(array.plan.metadata, &area.bytes, area.at_sector).unwrap();
        read.check_on_device(device_sectors).unwrap();
        assert_eq!(read, label.superblock);
    }
}

#[test]
fn a_layout_of_another_level_is_refused_and_the_levels_own_are_told() {
    let far =
        |near, far| Layout::Raid10(Raid10Layout { near, far, offset: false, far_sets: FarSets::Original });
    let symmetric = Layout::Parity(ParityLayout::LeftSymmetric);
    for (level, layout) in [
        (Level::Linear, symmetric),
        (Level::Raid0, Layout::None),
        (Level::Raid0, symmetric),
        (Level::Raid1, symmetric),
        (Level::Raid4, symmetric),
        (Level::Raid5, Layout::None),
        (Level::Raid5, far(2, 1)),
        (Level::Raid5, Layout::Parity(ParityLayout::DdfNContinue)),
        (Level::Raid6, Layout::Raid0(Raid0Layout::Alternate)),
        (Level::Raid10, Layout::None),
        (Level::Raid10, symmetric),
        (Level::Raid10, far(0, 2)),
        (Level::Raid10, far(256, 257)),
    ] {
        let refused = create(&request(plan(level, layout, Minor::Start4K), 1 << 16)).unwrap_err();
        assert_eq!(refused, CreateError::Layout { level, layout });
    }
    let refused = create(&request(plan(Level::Raid5, Layout::None, Minor::End), 1 << 16)).unwrap_err();
    let said = refused.to_string();
    assert!(
        said.starts_with("a raid5 array has no layout none; its layouts are left-asymmetric, "),
        "{said}"
    );
}

#[test]
fn levels_that_use_all_of_a_member_are_made_of_as_many_data_sectors_as_are_read_again() {
    for level in [Level::Linear, Level::Raid0] {
        for minor in MINORS {
            let mut refused = 0;
            for device_sectors in (24..128).chain(2040..2100) {
                let request = request(plan(level, Layout::default_of(level), minor), device_sectors);
                match create(&request) {
                    Ok(array) => check_read(&array, device_sectors),
                    Err(CreateError::Member { error: PlacementError::DeviceTooSmall { .. }, .. }) => {
                        refused += 1;
                    }
                    Err(error) => panic!("{level} {minor:?} {device_sectors}: {error}"),
                }
            }
            assert!((8..144).contains(&refused), "{level} {minor:?}: {refused} are refused");
        }
    }
}

#[test]
fn sizes_and_places_past_all_devices_are_refused_or_told_as_the_most() {
    for minor in MINORS {
        let parity = Layout::default_of(Level::Raid5);
        let far = Plan { data_offset_sectors: Some(u64::MAX - 5), ..plan(Level::Raid5, parity, minor) };
        assert!(matches!(create(&request(far, 1 << 16)), Err(CreateError::Member { .. })));
        for level in [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid10] {
            let request = request(plan(level, Layout::default_of(level), minor), u64::MAX - 8);
            if let Ok(array) = create(&request) {
                assert_eq!(array.array_bytes(), u64::MAX, "{level} {minor:?}");
            }
        }
    }
}
