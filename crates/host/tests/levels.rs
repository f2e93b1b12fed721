//! Every level keeps what is written, on memory and on files, by one shard and by two, whole and degraded.

mod common;

use common::{SECTOR, Verify, assert_same, files, memory, volume};
use stripewise_engine::array::sync::SpeedLimits;
use stripewise_engine::geometry::{Holds, Place};
use stripewise_engine::level::{Layout, Level, ParityLayout, Raid10Layout};
use stripewise_engine::units::{SectorRange, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_host::{Array, ArrayConfig, MemberSpec};

/// Sectors of a member: no whole number of megabytes, so that the last granule of a shard is cut.
const MEMBER_SECTORS: u64 = 4096 + 128;

fn parity(layout: ParityLayout) -> Layout {
    Layout::Parity(layout)
}

fn volumes() -> Vec<VolumeConfig> {
    let near = |members: usize, near: u16, far: u16, offset: bool| {
        let layout = Layout::Raid10(Raid10Layout { near, far, offset, ..Raid10Layout::DEFAULT });
        volume(Level::Raid10, layout, members, 16, MEMBER_SECTORS)
    };
    vec![
        volume(Level::Linear, Layout::None, 3, 0, MEMBER_SECTORS),
        volume(Level::Raid0, Layout::default_of(Level::Raid0), 4, 16, MEMBER_SECTORS),
        volume(Level::Raid1, Layout::None, 2, 0, MEMBER_SECTORS),
        volume(Level::Raid4, parity(ParityLayout::ParityLast), 4, 8, MEMBER_SECTORS),
        volume(Level::Raid5, parity(ParityLayout::LeftSymmetric), 5, 16, MEMBER_SECTORS),
        volume(Level::Raid5, parity(ParityLayout::RightAsymmetric), 3, 64, MEMBER_SECTORS),
        volume(Level::Raid6, parity(ParityLayout::LeftSymmetric), 6, 16, MEMBER_SECTORS),
        volume(Level::Raid6, parity(ParityLayout::DdfNContinue), 5, 8, MEMBER_SECTORS),
        volume(Level::Raid6, parity(ParityLayout::RightSymmetric), 5, 64, MEMBER_SECTORS),
        near(4, 2, 1, false),
        near(3, 1, 2, false),
        near(3, 1, 2, true),
    ]
}

fn workloads(array: &Array, shards: u32, requests: u32) -> Vec<Verify> {
    let zone = array.geometry().array_sectors() / u64::from(shards);
    (0..shards)
        .map(|i| Verify::new(SectorRange::new(u64::from(i) * zone, zone), 700, requests, 8, u64::from(i) + 7))
        .collect()
}

fn write_and_read_back(array: &mut Array, shards: u32, requests: u32) -> Vec<Verify> {
    let (report, workloads) = array.run_with_payload(workloads(array, shards, requests)).unwrap();
    for workload in &workloads {
        assert_eq!(workload.errors, []);
        assert!(workload.reads > 0);
        workload.verify(array);
    }
    assert!(report.members.iter().any(|m| m.writes > 0));
    array.flush().unwrap();
    workloads
}

#[test]
fn every_level_keeps_what_is_written_to_memory() {
    for shards in [1, 2] {
        for volume in volumes() {
            println!("{shards} shards, {:?}", volume.geometry);
            let members = memory(volume.geometry.member_sectors.len());
            let mut array = Array::open(ArrayConfig { shards, ..ArrayConfig::new(volume, members) }).unwrap();
            write_and_read_back(&mut array, shards, 150);
        }
    }
}

#[test]
fn every_level_keeps_what_is_written_to_files() {
    for shards in [1, 2] {
        for volume in volumes() {
            println!("{shards} shards, {:?}", volume.geometry);
            let folder = tempfile::tempdir().unwrap();
            let members = files(folder.path(), volume.geometry.member_sectors.len(), MEMBER_SECTORS);
            let mut array = Array::open(ArrayConfig { shards, ..ArrayConfig::new(volume, members) }).unwrap();
            write_and_read_back(&mut array, shards, 100);
        }
    }
}

#[test]
fn redundant_levels_work_with_a_member_missing_and_survive_its_loss() {
    for shards in [1, 2] {
        for volume in
            volumes().into_iter().filter(|v| !matches!(v.geometry.level, Level::Linear | Level::Raid0))
        {
            println!("{shards} shards, {:?}", volume.geometry);
            let mut members = memory(volume.geometry.member_sectors.len());
            members[1] = MemberSpec::Missing;
            let config = ArrayConfig { shards, ..ArrayConfig::new(volume.clone(), members) };
            write_and_read_back(&mut Array::open(config).unwrap(), shards, 150);

            let members = memory(volume.geometry.member_sectors.len());
            let mut array = Array::open(ArrayConfig { shards, ..ArrayConfig::new(volume, members) }).unwrap();
            let workloads = write_and_read_back(&mut array, shards, 150);
            array.fail(Slot(0)).unwrap();
            let again = workloads.into_iter().map(|w| w.again(150)).collect();
            let (_, workloads) = array.run_with_payload(again).unwrap();
            for workload in &workloads {
                assert_eq!(workload.errors, []);
                workload.verify(&mut array);
            }
        }
    }
}

#[test]
fn raid6_works_with_two_members_missing() {
    let volume = volume(Level::Raid6, parity(ParityLayout::LeftSymmetric), 6, 16, MEMBER_SECTORS);
    let mut members = memory(6);
    members[2] = MemberSpec::Missing;
    members[4] = MemberSpec::Missing;
    write_and_read_back(&mut Array::open(ArrayConfig::new(volume, members)).unwrap(), 1, 600);
}

/// The bytes in the member files lie where the geometry says, and P is their xor.
#[test]
fn member_bytes_lie_where_the_geometry_says() {
    for volume in volumes() {
        println!("{:?}", volume.geometry);
        let folder = tempfile::tempdir().unwrap();
        let members = files(folder.path(), volume.geometry.member_sectors.len(), MEMBER_SECTORS);
        let parities = volume.geometry.level.parity_count();
        let mut array = Array::open(ArrayConfig::new(volume, members)).unwrap();
        let geometry = array.geometry().clone();
        let all = SectorRange::new(0, geometry.array_sectors());
        let mut workload = Verify::new(all, 700, 200, 8, 3);
        workload = array.run_with_payload(vec![workload]).unwrap().1.remove(0);
        // One full write makes all parity valid; the workload's writes before it took other ways.
        let bytes = workload.expected(all);
        array.write_at(0, &bytes).unwrap();
        drop(array);
        let images: Vec<Vec<u8>> = (0..geometry.raid_disks())
            .map(|slot| std::fs::read(folder.path().join(format!("member{slot}"))).unwrap())
            .collect();
        let at = |slot: usize, sector: u64| &images[slot][sector as usize * SECTOR..][..SECTOR];
        for (slot, _) in images.iter().enumerate() {
            for sector in 0..MEMBER_SECTORS {
                let place = Place { slot: Slot(slot as u16), sector };
                if let Holds::Data(of) = geometry.holds(place) {
                    assert_same(at(slot, sector), &bytes[of as usize * SECTOR..][..SECTOR], of);
                }
            }
        }
        if parities == 1 {
            for sector in 0..geometry.used_sectors(Slot(0)) {
                let sum = (0..images.len()).fold([0; SECTOR], |mut sum: [u8; SECTOR], slot| {
                    sum.iter_mut().zip(at(slot, sector)).for_each(|(s, b)| *s ^= b);
                    sum
                });
                assert!(sum == [0; SECTOR], "parity of member sector {sector}");
            }
        }
    }
}

#[test]
fn members_in_memory_are_filled_and_checked_beside_writes() {
    let is_redundant = |v: &VolumeConfig| !matches!(v.geometry.level, Level::Linear | Level::Raid0);
    for volume in volumes().into_iter().filter(is_redundant) {
        for is_recovery in [true, false] {
            println!("recovery {is_recovery}, {:?}", volume.geometry);
            let members = volume.geometry.member_sectors.len();
            let mut volume = volume.clone();
            volume.sync.start = true;
            volume.sync.speed = SpeedLimits { min_kib: u32::MAX, max_kib: u32::MAX };
            if is_recovery {
                volume.recovering = vec![(Slot(members as u16 - 1), 0)];
            } else {
                volume.resync_from = Some(0);
            }
            // Only one shard works on an array by itself.
            let mut array = Array::open(ArrayConfig::new(volume, memory(members))).unwrap();
            let workloads = write_and_read_back(&mut array, 1, 150);
            array.sync(|_| {}).unwrap();
            array.fail(Slot(0)).unwrap();
            let again = workloads.into_iter().map(|w| w.again(150)).collect();
            let (_, workloads) = array.run_with_payload(again).unwrap();
            for workload in &workloads {
                assert_eq!(workload.errors, []);
                workload.verify(&mut array);
            }
        }
    }
}
