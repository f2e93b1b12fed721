//! Arrays under a page cache: bytes through both layers, and what the cache does to times.

mod support;

use stripewise_engine::cache::{CacheConfig, CachePolicy};
use stripewise_engine::io::{Flags, Request};
use stripewise_sim::bytes::BytesStore;
use stripewise_sim::{Cipher, CryptConfig, Phantom, SimReport, World};
use support::{ClosedLoop, Flagged, Marked, raid5};

/// Each request is of a thread of its own, through the page cache.
fn buffered(request: Request) -> Flags {
    Flags { buffered: true, stream: request.id.0 as u16, ..request.flags }
}

fn cache(mebibytes: u64) -> CacheConfig {
    CacheConfig::new(CachePolicy::linux_6_1(), mebibytes << 20)
}

fn run(config: &CacheConfig, workload: ClosedLoop) -> (SimReport, f64) {
    let mut workload = Flagged(workload, buffered);
    let mut world = World::cached(&raid5(5, 64, 1), Some(config), Phantom).unwrap();
    let report = world.run(&mut workload, None).unwrap();
    (report, workload.0.megabytes_per_second())
}

#[test]
fn bytes_pass_the_cache_and_the_array_and_come_back() {
    let mut config = raid5(5, 16, 1);
    config.volume.geometry.member_sectors = vec![4096; 5];
    for (threads, block_bytes) in [(1, 4096), (8, 32_768), (3, 66_048)] {
        let store = BytesStore::new(&config.volume.geometry.member_sectors, config.volume.stripe_cache_size);
        let mut marked = Marked::new(store);
        let mut world = World::cached(&config, Some(&cache(2)), &mut marked).unwrap();
        let mut workload = Flagged(ClosedLoop::new(threads, block_bytes, true, 50, 4 * 4096, 3.0), buffered);
        let report = world.run(&mut workload, None).unwrap();
        assert!(report.member_ios > 100, "more than the cache holds");
        assert!(marked.sectors_read > 1000, "{} sectors read back", marked.sectors_read);
    }
}

#[test]
fn what_the_cache_holds_is_read_at_the_cpu_rate() {
    let mut workload = ClosedLoop::new(1, 65_536, true, 100, 16 << 11, 60.0);
    workload.requests_max = 20_000;
    let (report, _) = run(&cache(64), workload);
    assert!(report.member_ios < 1000, "{} I/Os for 16 MiB", report.member_ios);
    // 37 us of copying at 1770 MB/s and 2.4 us of CPU a request, and some 256 reads of the drives.
    let seconds = report.end.0 as f64 / 1e9;
    assert!((0.8..4.8).contains(&seconds), "{seconds} s for 20000 reads");
}

#[test]
fn a_read_that_the_cache_answers_waits_for_no_interrupt() {
    let end_us = |requests| {
        let mut workload = ClosedLoop::new(1, 4096, true, 100, 1 << 11, 60.0);
        workload.requests_max = requests;
        run(&cache(64), workload).0.end.0 as f64 / 1e3
    };
    let each_us = (end_us(25_000) - end_us(5000)) / 20_000.0;
    // 0.61 us for the request, 0.11 for its page, 2.31 for its copy at 1770 MB/s.
    assert!((each_us - 3.03).abs() < 0.05, "{each_us} us for a read from memory");
}

#[test]
fn readahead_keeps_a_slow_reader_s_drives_busy() {
    let sectors = support::DRIVE_SECTORS;
    let rate = |readahead| {
        let config = CacheConfig { readahead_sectors: Some(readahead), ..cache(256) };
        run(&config, ClosedLoop::new(1, 4096, false, 100, sectors, 2.0)).1
    };
    let (small, large) = (rate(8), rate(2048));
    // One drive's wait a page on one side, the bus of 100 MB/s on the other.
    assert!(small < 50.0 && large > 90.0, "{small} MB/s with one page, {large} with 1 MiB");
}

#[test]
fn write_back_makes_full_stripes_of_small_sequential_writes() {
    let workload = ClosedLoop::new(1, 4096, false, 0, support::DRIVE_SECTORS, 20.0);
    let (report, _) = run(&cache(64), workload);
    let total = |f: fn(&stripewise_sim::MemberReport) -> u64| report.members.iter().map(f).sum::<u64>();
    let (read, written) = (total(|m| m.stats.sectors_read), total(|m| m.stats.sectors_written));
    assert!(written > 100_000 && read * 10 < written, "{read} sectors read, {written} written");
}

#[test]
fn a_cached_run_is_repeatable() {
    let once = || run(&cache(32), ClosedLoop::new(4, 8192, true, 70, 1 << 18, 3.0)).0;
    assert_eq!(once(), once());
}

#[test]
fn a_cache_above_an_encrypted_container_keeps_bytes_and_what_it_holds_needs_no_cipher() {
    let crypt = CryptConfig { cipher: Cipher::AesCbc, payload_sectors: 1024 };
    let mut config = raid5(5, 16, 1);
    config.volume.geometry.member_sectors = vec![4096; 5];
    let store = BytesStore::new(&config.volume.geometry.member_sectors, config.volume.stripe_cache_size);
    let mut marked = Marked::new(store);
    let mut world = World::layered(&config, Some(crypt), Some(&cache(2)), &mut marked).unwrap();
    // All of it is written first: what never was would be decrypted to something else than zeroes.
    let sectors = 4 * 4096 - 2048;
    let mut fill = Flagged(ClosedLoop::new(1, 8192, false, 0, sectors, 100.0), buffered);
    fill.0.requests_max = sectors / 16;
    world.run(&mut fill, None).unwrap();
    let mut workload = Flagged(ClosedLoop::new(4, 8192, true, 50, sectors, 100.0), buffered);
    workload.0.requests_max = 5000;
    world.run(&mut workload, None).unwrap();
    assert!(marked.sectors_read > 1000, "{} sectors read back", marked.sectors_read);
    // Sequential reads are bound by the cipher's 75 MB/s; from memory they are not.
    let rate = |crypt, sectors| {
        let mut workload = Flagged(ClosedLoop::new(1, 65_536, false, 100, sectors, 8.0), buffered);
        let mut world = World::layered(&raid5(5, 64, 1), crypt, Some(&cache(256)), Phantom).unwrap();
        world.run(&mut workload, None).unwrap();
        workload.0.megabytes_per_second()
    };
    let (plain, ciphered, held) =
        (rate(None, 1 << 24), rate(Some(crypt), 1 << 24), rate(Some(crypt), 1 << 14));
    assert!(plain > 90.0 && ciphered < 76.0, "{plain} MB/s plain, {ciphered} encrypted");
    assert!(held > 500.0, "{held} MB/s of what is in memory");
}
