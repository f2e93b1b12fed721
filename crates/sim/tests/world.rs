//! Arrays on their rig: determinism, limits of the parts, and that everything ends.

mod support;

use stripewise_engine::io::{Flags, IoError, IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, MemberIndex, SectorRange, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_engine::workload::{Next, Workload};
use stripewise_sim::bytes::BytesStore;
use stripewise_sim::{ControllerNames, Rig, RigError, RigNames, SimError, SimReport, World, run};
use support::{ClosedLoop, DRIVE_SECTORS, Marked, raid5, rig, single, striped};

const ARRAY_SECTORS: u64 = DRIVE_SECTORS / 2048 * 2048 * 4 - 8192;

fn random_writes(chunk_kib: u64, seed: u64) -> SimReport {
    let mut workload = ClosedLoop::new(20, 65_536, true, 0, ARRAY_SECTORS, 2.0);
    run(&raid5(5, chunk_kib, seed), &mut workload).unwrap()
}

#[test]
fn same_seed_gives_the_same_trace_and_another_seed_another() {
    let first = random_writes(64, 1);
    assert_eq!(first, random_writes(64, 1));
    assert_ne!(first.trace_hash, random_writes(64, 2).trace_hash);
    assert_ne!(first.trace_hash, random_writes(128, 1).trace_hash);
}

#[test]
fn bus_saturates_at_its_rate_with_five_drives_streaming() {
    let mut workload = ClosedLoop::new(4, 4 << 20, false, 100, 5 * (DRIVE_SECTORS / 128 * 128), 5.0);
    let report = run(&striped("st31000333as", 5, 64, 1), &mut workload).unwrap();
    let rate = workload.megabytes_per_second();
    assert!((92.0..=100.0).contains(&rate), "{rate} MB/s over a bus of 100");
    assert!(report.bus_busy_share[0] > 0.97);
    let moved = report.bus_bytes[0] as f64 / 1e6 / (report.end.0 as f64 / 1e9);
    assert!(moved <= 100.0, "the bus moved {moved} MB/s");
}

#[test]
fn two_buses_move_twice_as_much() {
    let mut config = striped("st31000333as", 6, 64, 1);
    let names = RigNames {
        drive: "st31000333as",
        controllers: vec![
            ControllerNames { model: "88sx6081-pci32", members: [0, 1, 2].map(Slot).to_vec(), bus: None },
            ControllerNames { model: "88sx6081-pci32", members: [3, 4, 5].map(Slot).to_vec(), bus: None },
        ],
        cpu: "opteron-244",
        // Without turns of processes, for the drives to be busy all the time.
        block: "linux-block-6.1",
    };
    config.rig = Rig::load(&names).unwrap();
    let mut workload = ClosedLoop::new(4, 4 << 20, false, 100, 6 * (DRIVE_SECTORS / 128 * 128), 3.0);
    run(&config, &mut workload).unwrap();
    let rate = workload.megabytes_per_second();
    assert!((185.0..=200.0).contains(&rate), "{rate} MB/s over two buses of 100");
}

#[test]
fn members_without_a_slot_are_not_modelled_and_refused() {
    let refused = |change: fn(&mut VolumeConfig)| {
        let mut config = raid5(5, 64, 1);
        change(&mut config.volume);
        let mut workload = ClosedLoop::new(1, 4096, true, 100, DRIVE_SECTORS, 0.1);
        run(&config, &mut workload).unwrap_err()
    };
    let right = SimError::MembersBehindSlots { slots: 5 };
    assert_eq!(refused(|volume| volume.spares = 1), right);
    assert_eq!(refused(|volume| volume.replacements = vec![(Slot(1), MemberIndex(5), 0)]), right);
}

/// One request of more sectors than there are.
#[derive(Default)]
struct TooLong {
    is_issued: bool,
    result: Option<IoResult>,
}

impl Workload for TooLong {
    fn in_flight_max(&self) -> u32 {
        1
    }
    fn request_bytes_max(&self) -> u64 {
        4096
    }
    fn next(&mut self, _: Instant) -> Next {
        if std::mem::replace(&mut self.is_issued, true) {
            return Next::Finished;
        }
        let range = SectorRange::new(0, u64::MAX);
        Next::Issue(Request { id: RequestId(0), op: Op::Read, range, flags: Flags::default() })
    }
    fn complete(&mut self, _: Instant, _: RequestId, result: IoResult) {
        self.result = Some(result);
    }
}

#[test]
fn a_request_of_more_sectors_than_there_are_is_refused() {
    let mut workload = TooLong::default();
    run(&raid5(5, 64, 1), &mut workload).unwrap();
    assert_eq!(workload.result, Some(Err(IoError::Range)));
}

#[test]
fn constant_drive_answers_in_its_latency() {
    let mut workload = ClosedLoop::new(1, 4096, true, 100, DRIVE_SECTORS, 1.0);
    run(&single("constant-latency", 1), &mut workload).unwrap();
    // 100 us of the drive; 46 us of the bus at 100 MB/s with 5 us a command; 16.15 us of CPU.
    let mean_us = workload.latency_total.as_secs_f64() * 1e6 / workload.requests as f64;
    assert!((mean_us - 162.1).abs() < 2.0, "mean latency {mean_us} us");
}

#[test]
fn raid5_reads_and_writes_end_and_count_as_the_level_says() {
    let mut reads = ClosedLoop::new(8, 4096, true, 100, ARRAY_SECTORS, 2.0);
    let report = run(&raid5(5, 64, 3), &mut reads).unwrap();
    assert_eq!(report.member_ios, report.requests);
    let mut writes = ClosedLoop::new(8, 4096, true, 0, ARRAY_SECTORS, 2.0);
    let report = run(&raid5(5, 64, 3), &mut writes).unwrap();
    assert_eq!(report.member_ios, 4 * report.requests, "old data, old parity, data, parity");
    let total = |f: fn(&stripewise_sim::MemberReport) -> u64| report.members.iter().map(f).sum::<u64>();
    assert_eq!(total(|m| m.stats.reads), total(|m| m.stats.writes));
    assert_eq!(total(|m| m.stats.sectors_read), 16 * report.requests);
}

#[test]
fn contiguous_chunks_of_a_member_are_merged() {
    let mut workload = ClosedLoop::new(1, 4 << 20, false, 100, ARRAY_SECTORS, 1.0);
    let report = run(&raid5(5, 4, 1), &mut workload).unwrap();
    let merges: u64 = report.members.iter().map(|m| m.stats.merges).sum();
    let commands: u64 = report.members.iter().map(|m| m.stats.commands).sum();
    assert!(merges > report.member_ios / 2, "{merges} merges of {} I/Os", report.member_ios);
    assert_eq!(merges + commands, report.member_ios);
}

#[test]
fn rig_that_does_not_fit_is_refused() {
    let mut workload = ClosedLoop::new(1, 4096, true, 100, ARRAY_SECTORS, 0.1);
    let mut config = raid5(5, 64, 1);
    config.rig = rig("st31000333as", 4);
    assert_eq!(run(&config, &mut workload).unwrap_err(), SimError::Rig(RigError::Unattached(Slot(4))));
    let mut config = raid5(9, 64, 1);
    config.rig = rig("st31000333as", 9);
    let error = run(&config, &mut workload).unwrap_err();
    assert_eq!(error, SimError::Rig(RigError::TooManyMembers { members: 9, ports: 8 }));
    let mut config = single("st31000333as", 1);
    config.volume.geometry.member_sectors = vec![2 * DRIVE_SECTORS];
    let error = run(&config, &mut workload).unwrap_err().to_string();
    assert!(error.contains("the drive has 1953525168"), "{error}");
}

#[test]
fn run_until_a_time_stops_there() {
    let mut workload = ClosedLoop::new(1, 4096, true, 100, DRIVE_SECTORS, 100.0);
    let mut world = World::new(&single("st31000333as", 1), stripewise_sim::Phantom).unwrap();
    let until = stripewise_engine::units::Instant(500_000_000);
    let report = world.run(&mut workload, Some(until)).unwrap();
    assert!(report.end <= until && report.requests > 20);
}

#[test]
fn bytes_follow_the_simulated_array_without_changing_its_times() {
    let mut config = raid5(5, 16, 1);
    config.volume.geometry.member_sectors = vec![4096; 5];
    let array_sectors = 4 * 4096;
    for (threads, block_bytes) in [(1, 4096), (8, 32_768), (4, 262_144)] {
        let workload = ClosedLoop::new(threads, block_bytes, true, 50, array_sectors, 3.0);
        let phantom = run(&config, &mut workload.clone()).unwrap();
        let entries = config.volume.stripe_cache_size;
        let store = BytesStore::new(&config.volume.geometry.member_sectors, entries);
        let mut marked = Marked::new(store);
        let report = World::new(&config, &mut marked).unwrap().run(&mut workload.clone(), None).unwrap();
        assert_eq!(report, phantom);
        assert!(marked.sectors_read > 1000, "{} sectors read back", marked.sectors_read);
    }
}
