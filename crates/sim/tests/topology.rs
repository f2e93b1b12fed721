//! Controllers, the buses they share, and how members are spread over them.

mod support;

use stripewise_engine::units::Slot;
use stripewise_sim::{ControllerNames, Rig, RigNames, SimConfig, SimReport, run};
use support::{ClosedLoop, striped};

const DRIVE: &str = "st3320620as";
const DRIVE_SECTORS: u64 = 625_140_335 / 128 * 128;

/// A RAID-0 over drives on a topology.
fn config(topology: &str, members: u16) -> SimConfig {
    let mut config = striped(DRIVE, members, 64, 1);
    config.volume.geometry.member_sectors = vec![DRIVE_SECTORS; members as usize];
    let names =
        RigNames::with_topology(DRIVE, topology, "athlon64-2.0", "linux-block-2.6.18", members).unwrap();
    config.rig = Rig::load(&names).unwrap();
    config
}

/// MB/s of reads in order from all members.
fn stream(topology: &str, members: u16) -> (f64, SimReport) {
    let mut workload = ClosedLoop::new(1, 16 << 20, false, 100, u64::from(members) * DRIVE_SECTORS, 4.0);
    let report = run(&config(topology, members), &mut workload).unwrap();
    (workload.megabytes_per_second(), report)
}

#[test]
fn pci_holds_four_drives_to_its_rate() {
    let (rate, report) = stream("sii3114-pci", 4);
    assert!((85.0..=100.0).contains(&rate), "{rate} MB/s over PCI");
    assert!(report.bus_busy_share[0] > 0.95);
}

#[test]
fn drives_split_over_two_controllers_use_both() {
    let (all, _) = stream("nforce4-sata", 4);
    let (split, report) = stream("sii3114-pci:2 + nforce4-sata:2", 4);
    let (pci, _) = stream("sii3114-pci", 4);
    assert!(all > 200.0, "{all} MB/s from the chipset");
    assert!(split > 1.5 * pci && split < all, "{split} MB/s split, {pci} over PCI, {all} from the chipset");
    let (on_pci, in_chipset) = (report.bus_bytes[0] as f64, report.bus_bytes[1] as f64);
    assert!((on_pci / in_chipset - 1.0).abs() < 0.02, "{on_pci} bytes over PCI, {in_chipset} in the chipset");
}

#[test]
fn four_and_two_drives_are_held_by_the_four_on_pci() {
    let (rate, report) = stream("sii3114-pci:4 + nforce4-sata:2", 6);
    // Four of six stripes cross PCI.
    assert!((130.0..=150.0).contains(&rate), "{rate} MB/s, of which PCI takes 100");
    assert!(report.bus_busy_share[0] > 0.9 && report.bus_busy_share[1] < 0.2);
}

#[test]
fn controllers_on_one_bus_share_its_rate() {
    let (apart, _) = stream("sii3114-pci:2 + sii3114-pci:2", 4);
    let (shared, report) = stream("sii3114-pci:2@pci-32-33 + sii3114-pci:2@pci-32-33", 4);
    assert!((170.0..=200.0).contains(&apart), "{apart} MB/s on two buses of 100");
    assert!((85.0..=100.0).contains(&shared), "{shared} MB/s on one bus of 100");
    assert_eq!(report.shared_bus_busy_share.len(), 1);
    assert!(report.shared_bus_busy_share[0] > 0.95);
    assert!(report.bus_busy_share.iter().all(|&share| share < 0.6), "{:?}", report.bus_busy_share);
}

#[test]
fn shared_bus_adds_nothing_to_a_lone_command() {
    let latency = |topology| {
        let mut workload = ClosedLoop::new(1, 65_536, true, 100, DRIVE_SECTORS, 2.0);
        run(&config(topology, 1), &mut workload).unwrap();
        workload.latency_total.as_secs_f64() / workload.requests as f64
    };
    let (alone, shared) = (latency("sii3114-pci"), latency("sii3114-pci@pci-32-33"));
    assert!((shared / alone - 1.0).abs() < 1e-3, "{shared} s through a shared bus, {alone} s without");
}

#[test]
fn drive_without_ncq_gains_nothing_from_depth_but_the_elevator() {
    let rate = |controller: &str| {
        let mut workload = ClosedLoop::new(32, 4096, true, 100, DRIVE_SECTORS, 30.0);
        run(&config(controller, 1), &mut workload).unwrap();
        workload.requests as f64 / 30.0
    };
    let (none, ncq) = (rate("sii3114-pci"), rate("88sx6081-pci32"));
    assert!(ncq > 1.2 * none, "{ncq} a second with NCQ, {none} without");
}

#[test]
fn controller_takes_no_more_commands_than_it_can() {
    // A drive of constant latency answers in proportion to the commands it is given at a time.
    let rate = |controller| {
        let names =
            RigNames::on_one_controller("constant-latency", controller, "opteron-244", "linux-block-3.2", 1);
        let mut config = striped("constant-latency", 1, 64, 1);
        config.rig = Rig::load(&names).unwrap();
        let mut workload = ClosedLoop::new(4, 512, true, 100, DRIVE_SECTORS, 0.5);
        run(&config, &mut workload).unwrap();
        workload.requests as f64 / 0.5
    };
    let (one, many) = (rate("sii3114-pci"), rate("sas2008-pcie2-x8"));
    assert!((8_000.0..10_000.0).contains(&one), "{one} a second, one at a time");
    assert!(many > 3.0 * one, "{many} a second, four at a time, {one} one at a time");
}

#[test]
fn every_controller_carries_what_it_says() {
    // Fast drives in stripes.
    let cases = [
        ("sas2008-pcie2-x8", 8_u16, "ssd-dc-s3700-800gb", 2500.0),
        ("sas-hba-pcie3-x8", 8, "ssd-dc-s3700-800gb", 4000.0),
        ("nvme-pcie4-x4", 1, "ssd-d7-p5600-6.4tb", 7000.0),
        // One port: one for each of them.
        ("nvme-pcie4-x4", 3, "ssd-d7-p5600-6.4tb", 21_000.0),
    ];
    for (controller, members, drive, limit) in cases {
        let mut config = striped(drive, members, 128, 1);
        let names =
            RigNames::on_one_controller(drive, controller, "xeon-e5-2600-2s", "linux-block-6.1", members);
        config.rig = Rig::load(&names).unwrap();
        let sectors = config.rig.drive.capacity_sectors() / 256 * 256;
        config.volume.geometry.member_sectors = vec![sectors; members as usize];
        let mut workload = ClosedLoop::new(16, 4 << 20, false, 100, sectors * u64::from(members), 0.5);
        run(&config, &mut workload).unwrap();
        let rate = workload.megabytes_per_second();
        assert!((rate / limit - 1.0).abs() < 0.06, "{controller}: {rate} MB/s where {limit} are expected");
    }
}

#[test]
fn rig_with_shared_buses_differs_from_one_without() {
    let load = |bus| {
        let controllers = [[0, 1], [2, 3]].map(|slots| ControllerNames {
            model: "sii3114-pci",
            members: slots.map(Slot).to_vec(),
            bus,
        });
        let names = RigNames {
            drive: DRIVE,
            controllers: controllers.to_vec(),
            cpu: "athlon64-2.0",
            block: "linux-block-2.6.18",
        };
        Rig::load(&names).unwrap()
    };
    let (apart, shared) = (load(None), load(Some("pci-32-33")));
    assert_ne!(apart.hash(), shared.hash());
    assert_eq!(shared.models().count(), apart.models().count() + 1);
}
