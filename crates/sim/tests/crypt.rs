//! An encrypted container costs the cipher's time, on as many threads as the kernel has for it.

mod support;

use stripewise_engine::units::SectorRange;
use stripewise_sim::models::Model;
use stripewise_sim::{Cipher, CryptConfig, Phantom, Rig, RigNames, SimConfig, SimError, World};
use support::{ClosedLoop, DRIVE_SECTORS, raid5};

const CBC: CryptConfig = CryptConfig { cipher: Cipher::AesCbc, payload_sectors: 1024 };

/// The chunk-size rig under another block layer.
fn config(block: &str) -> SimConfig {
    let names = RigNames::on_one_controller("constant-latency", "sas-hba-pcie3-x8", "opteron-244", block, 5);
    let rig = Rig::load_with(&names, Model::load).expect("built-in models load");
    let mut config = raid5(5, 64, 1);
    let sectors = rig.drive.capacity_sectors();
    config.volume.geometry.member_sectors = vec![sectors.min(DRIVE_SECTORS); 5];
    SimConfig { rig, ..config }
}

fn rate(block: &str, threads: u32, read_percent: u64, crypt: Option<CryptConfig>) -> f64 {
    let config = config(block);
    let mut workload = ClosedLoop::new(threads, 65_536, true, read_percent, 1 << 20, 2.0);
    let mut world = World::layered(&config, crypt, None, Phantom).unwrap();
    world.run(&mut workload, None).unwrap();
    workload.megabytes_per_second()
}

#[test]
fn one_thread_for_each_device_until_3_2_then_one_for_each_cpu() {
    // 75 MB/s a thread on two cores.
    let plain = rate("linux-block-2.6.27", 16, 100, None);
    let (one, all) =
        (rate("linux-block-2.6.27", 16, 100, Some(CBC)), rate("linux-block-3.2", 16, 100, Some(CBC)));
    assert!(plain > 200.0, "{plain} MB/s without");
    assert!((60.0..76.0).contains(&one), "{one} MB/s on one thread");
    assert!((100.0..151.0).contains(&all), "{all} MB/s on two");
}

#[test]
fn writes_are_encrypted_before_the_array_has_them() {
    let written = rate("linux-block-2.6.27", 16, 0, Some(CBC));
    assert!((30.0..76.0).contains(&written), "{written} MB/s");
}

#[test]
fn a_payload_off_the_stripe_makes_whole_stripes_partial() {
    let member_ios = |payload_sectors| {
        let config = raid5(5, 128, 1);
        let crypt = CryptConfig { payload_sectors, ..CBC };
        let mut world = World::layered(&config, Some(crypt), None, Phantom).unwrap();
        let mut workload = ClosedLoop::new(1, 512 << 10, false, 0, 1 << 22, 20.0);
        let report = world.run(&mut workload, None).unwrap();
        let read: u64 = report.members.iter().map(|m| m.stats.sectors_read).sum();
        read as f64 / SectorRange::new(0, report.requests * 1024).count as f64
    };
    let (aligned, shifted) = (member_ios(1024), member_ios(1024 + 128));
    assert!(aligned < 0.01 && shifted > 0.2, "{aligned} and {shifted} sectors read for each written");
}

#[test]
fn a_payload_beyond_the_array_is_refused() {
    let crypt = CryptConfig { payload_sectors: u64::MAX, ..CBC };
    let made = World::layered(&raid5(5, 64, 1), Some(crypt), None, Phantom);
    assert!(matches!(made.err(), Some(SimError::Crypt(_))));
}
