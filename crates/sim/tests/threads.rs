//! What the kernel does on one thread limits how fast many cores are.

mod support;

use stripewise_engine::io::{Flags, Request};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::Instant;
use stripewise_sim::{Cipher, CryptConfig, Phantom, SimConfig, World};
use support::{ClosedLoop, Flagged, raid5, striped};

const SECTORS: u64 = 1 << 22;

/// Eight threads' requests, by turns.
fn of_a_thread(request: Request) -> Flags {
    Flags { stream: (request.id.0 % 8) as u16, ..request.flags }
}

/// On drives and a bus that take next to no time, on so many cores.
fn quick(mut config: SimConfig, cores: usize) -> SimConfig {
    let names = support::rig("constant-latency", config.volume.geometry.member_sectors.len() as u16);
    config.rig.drive = names.drive;
    config.volume.policy = Policy::linux_6_1();
    config.volume.stripe_cache_size = 4096;
    for controller in &mut config.rig.controllers {
        (controller.model.byte_ps, controller.model.command_ns) = (1, 0);
    }
    config.rig.cpu.cores = cores;
    config
}

fn iops(config: &SimConfig, crypt: Option<CryptConfig>, read_percent: u64) -> f64 {
    let mut workload = Flagged(ClosedLoop::new(64, 4096, true, read_percent, SECTORS, 0.5), of_a_thread);
    World::layered(config, crypt, None, Phantom).unwrap().run(&mut workload, None).unwrap();
    workload.0.requests as f64 / 0.5
}

#[test]
fn small_writes_to_parity_are_sent_by_one_thread_however_many_cores_there_are() {
    let at = |cores| iops(&quick(raid5(5, 64, 1), cores), None, 0);
    let (few, many) = (at(4), at(16));
    let cpu = quick(raid5(5, 64, 1), 16).rig.cpu;
    // Four I/Os and as many commands, and the row's parity.
    let bound = 1e9 / (4 * (cpu.member_io_ns + cpu.command_ns) + cpu.row_ns) as f64;
    assert!(many < 1.1 * bound, "{many} writes a second; one thread sends {bound}");
    assert!(many < 1.2 * few, "{few} with 4 cores, {many} with 16");
}

#[test]
fn worker_threads_send_more() {
    let at = |workers| {
        let mut config = quick(raid5(5, 64, 1), 16);
        config.rig.group_thread_cnt = workers;
        iops(&config, None, 0)
    };
    let (none, three) = (at(0), at(3));
    assert!(
        (2.0..4.1).contains(&(three / none)),
        "{none} writes a second without workers, {three} with three"
    );
    // There are no more than cores.
    assert!(at(1000) >= three);
}

/// Linux makes an I/O for each page of a row, however many pages go to the drive in one command.
#[test]
fn every_page_that_passes_the_stripe_cache_is_sent_by_itself() {
    const STRIPE_BYTES: u64 = 4 * (64 << 10);
    let mut config = quick(raid5(5, 64, 1), 16);
    config.rig.cpu.row_io_ns = 20_000;
    let mut workload = ClosedLoop::new(8, STRIPE_BYTES, false, 0, SECTORS, 0.5);
    World::new(&config, Phantom).unwrap().run(&mut workload, None).unwrap();
    let stripes = workload.requests as f64 / 0.5;
    // Sixteen rows of four blocks and parity; of each member's run of pages the first is counted as any I/O.
    let bound = 1e9 / ((16.0 - 1.0) * 5.0 * config.rig.cpu.row_io_ns as f64);
    assert!((0.8..1.02).contains(&(stripes / bound)), "{stripes} stripes a second; one thread sends {bound}");
}

#[test]
fn reads_past_the_stripe_cache_are_sent_by_those_who_ask() {
    let at = |cores| iops(&quick(raid5(5, 64, 1), cores), None, 100);
    let (few, many) = (at(2), at(8));
    assert!(many > 2.0 * few, "{few} with 2 cores, {many} with 8");
}

#[test]
fn encryption_makes_no_write_faster() {
    let config = quick(striped("constant-latency", 4, 64, 1), 16);
    let crypt = CryptConfig { cipher: Cipher::AesXts, payload_sectors: 0 };
    let (plain, encrypted) = (iops(&config, None, 0), iops(&config, Some(crypt), 0));
    assert!(encrypted <= plain, "{plain} plain, {encrypted} encrypted");
}

/// The array's own work is md's thread's, too.
#[test]
fn a_resync_is_no_faster_than_its_thread() {
    let mut config = quick(raid5(5, 64, 1), 16);
    config.volume.resync_from = Some(0);
    (config.volume.sync.speed.min_kib, config.volume.sync.speed.max_kib) = (u32::MAX, u32::MAX);
    config.volume.stripe_cache_size = 256;
    let mut one = ClosedLoop::new(1, 4096, true, 100, SECTORS, 0.02);
    let report = World::new(&config, Phantom).unwrap().run(&mut one, Some(Instant(20_000_000))).unwrap();
    let seconds = report.end.0 as f64 / 1e9;
    let read: u64 = report.members.iter().map(|m| m.stats.sectors_read).sum();
    let rows = read as f64 / 8.0 / 5.0;
    let bound = seconds * 1e9 / config.rig.cpu.row_ns as f64;
    assert!(rows > 0.0 && rows < 1.1 * bound, "{rows} rows in {seconds} s; one thread handles {bound}");
}
