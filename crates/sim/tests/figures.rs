//! Every drive model beside the figures published for the drive, alone on a rig that costs nothing.
//!
//! A tolerance is wider where a figure was measured by another method (a benchmark's mean) or is stated of a
//! whole family, tight where the model's own parameters must give it.

mod support;

use stripewise_engine::units::Instant;
use stripewise_engine::workload::{Next, Workload};
use stripewise_sim::{Rig, SimConfig, run};
use support::ClosedLoop;

/// One drive, on a controller and a CPU that take no time and let as many commands through as the drive takes.
fn alone(drive: &str) -> SimConfig {
    let mut rig = support::rig(drive, 1);
    let controller = &mut rig.controllers[0].model;
    (controller.byte_ps, controller.command_ns) = (1, 0);
    (controller.command_sectors_max, controller.queue_depth) = (2048, 256);
    rig.block.nr_requests = 512;
    free(&mut rig);
    let mut config = support::single(drive, 5);
    config.volume.geometry.member_sectors = vec![rig.drive.capacity_sectors()];
    SimConfig { rig, ..config }
}

fn free(rig: &mut Rig) {
    let cpu = &mut rig.cpu;
    (cpu.request_submit_ns, cpu.request_complete_ns, cpu.page_ns) = (0, 0, 0);
    (cpu.member_io_ns, cpu.command_ns) = (0, 0);
}

/// Random commands of 4 KiB a second.
fn random(drive: &str, depth: u32, read_percent: u64, seconds: f64) -> f64 {
    let config = alone(drive);
    let sectors = config.rig.drive.capacity_sectors();
    let mut workload = ClosedLoop::new(depth, 4096, true, read_percent, sectors, seconds);
    run(&config, &mut workload).unwrap();
    workload.requests as f64 / seconds
}

/// A stream that begins at some place.
struct From {
    inner: ClosedLoop,
    start: u64,
}

impl Workload for From {
    fn in_flight_max(&self) -> u32 {
        self.inner.in_flight_max()
    }

    fn request_bytes_max(&self) -> u64 {
        self.inner.request_bytes_max()
    }

    fn next(&mut self, now: Instant) -> Next {
        match self.inner.next(now) {
            Next::Issue(mut request) => {
                request.range.start += self.start;
                Next::Issue(request)
            }
            other => other,
        }
    }

    fn complete(
        &mut self,
        now: Instant,
        id: stripewise_engine::io::RequestId,
        result: stripewise_engine::io::IoResult,
    ) {
        self.inner.complete(now, id, result);
    }
}

/// MB/s of a sequential stream that begins at so many hundredths of the drive.
fn sequential(drive: &str, percent: u64, read_percent: u64, seconds: f64) -> f64 {
    streams(drive, 1, percent, read_percent, seconds)
}

fn streams(drive: &str, threads: u32, percent: u64, read_percent: u64, seconds: f64) -> f64 {
    let config = alone(drive);
    let capacity = config.rig.drive.capacity_sectors();
    let start = (capacity / 100 * percent).min(capacity - (4 << 20)) / 2048 * 2048;
    let inner = ClosedLoop::new(threads, 1 << 20, false, read_percent, capacity - start, seconds);
    let mut workload = From { inner, start };
    run(&config, &mut workload).unwrap();
    workload.inner.megabytes_per_second()
}

fn assert_near(what: &str, found: f64, published: f64, tolerance: f64) {
    let off = found / published - 1.0;
    assert!(off.abs() < tolerance, "{what}: {found:.1} where {published} is published");
}

const HDDS: [(&str, f64, f64); 5] = [
    ("hdd-2006-7200", 64.8, 31.0),
    ("st3320620as", 78.0, 37.3),
    ("st31000333as", 120.0, 60.0),
    ("st3000dm001", 193.0, 91.5),
    ("exos-x20-20tb", 285.0, 135.0),
];

#[test]
fn hdds_stream_at_the_published_rate_of_outer_and_inner_zone() {
    for (drive, outer, inner) in HDDS {
        assert_near(&format!("{drive}, outer read"), sequential(drive, 0, 100, 4.0), outer, 0.03);
        assert_near(&format!("{drive}, inner read"), sequential(drive, 99, 100, 4.0), inner, 0.03);
        // The write cache takes its fill at the rate of the link first.
        assert_near(&format!("{drive}, outer write"), sequential(drive, 0, 0, 8.0), outer, 0.10);
    }
}

#[test]
fn hdds_stream_on_the_mean_as_was_measured() {
    // Means of rates at places evenly spread, as HD Tune and reviews give them.
    let published = [("st3320620as", 62.0, 0.03), ("st31000333as", 95.1, 0.06), ("st3000dm001", 156.0, 0.03)];
    for (drive, mean, tolerance) in published {
        let rates: f64 = (0..20).map(|i| sequential(drive, 5 * i + 2, 100, 1.0)).sum();
        assert_near(&format!("{drive}, mean read"), rates / 20.0, mean, tolerance);
    }
}

#[test]
fn hdds_position_as_their_data_sheets_say() {
    for (drive, ..) in HDDS {
        // Half a revolution and the average seek: sectors are denser outside, so random ones are a little closer.
        let published = 1e3 / (8.5 + 60_000.0 / 7200.0 / 2.0 + 0.05);
        assert_near(&format!("{drive}, random reads"), random(drive, 1, 100, 60.0), published, 0.05);
        let gain = random(drive, 32, 100, 60.0) / published;
        assert!((1.8..3.5).contains(&gain), "{drive}: a queue of 32 gives {gain} times as much");
    }
    // The maker's data sheet, from memory: 168 random reads of 4 KiB a second at depth 16.
    assert_near("exos-x20-20tb, depth 16", random("exos-x20-20tb", 16, 100, 60.0), 168.0, 0.20);
}

/// Reads from one end of the drive to the other and back.
struct Strokes {
    inner: ClosedLoop,
    last: u64,
    count: u64,
}

impl Workload for Strokes {
    fn in_flight_max(&self) -> u32 {
        1
    }

    fn request_bytes_max(&self) -> u64 {
        4096
    }

    fn next(&mut self, now: Instant) -> Next {
        match self.inner.next(now) {
            Next::Issue(mut request) => {
                self.count += 1;
                let place = request.range.start % 100_000 / 8 * 8;
                request.range.start = if self.count.is_multiple_of(2) { place } else { self.last - place };
                Next::Issue(request)
            }
            other => other,
        }
    }

    fn complete(
        &mut self,
        now: Instant,
        id: stripewise_engine::io::RequestId,
        result: stripewise_engine::io::IoResult,
    ) {
        self.inner.complete(now, id, result);
    }
}

#[test]
fn full_strokes_take_the_longest_seek_and_half_a_revolution() {
    for (drive, ..) in HDDS {
        let config = alone(drive);
        let capacity = config.rig.drive.capacity_sectors();
        let inner = ClosedLoop::new(1, 4096, true, 100, capacity, 20.0);
        let mut workload = Strokes { inner, last: capacity / 8 * 8 - 8, count: 0 };
        run(&config, &mut workload).unwrap();
        let mean_ms = workload.inner.latency_total.as_secs_f64() * 1e3 / workload.inner.requests as f64;
        assert_near(&format!("{drive}, full stroke"), mean_ms, 17.0 + 25.0 / 6.0 + 0.05, 0.03);
    }
}

#[test]
fn ssds_do_what_their_data_sheets_say() {
    // Reads and writes of 4 KiB at depths 1 and 32, reads and writes in order.
    let published = [
        ("ssd-dc-s3700-800gb", [7300.0, 75_000.0, 15_400.0, 36_000.0], [500.0, 460.0]),
        ("ssd-d7-p5600-6.4tb", [11_800.0, 353_000.0, 77_000.0, 260_000.0], [7000.0, 4300.0]),
    ];
    for (drive, [read_1, read_32, write_1, write_32], [read, write]) in published {
        assert_near(&format!("{drive}, reads, depth 1"), random(drive, 1, 100, 0.5), read_1, 0.03);
        // At depth 32 NVMe is far from its limit: 32 reads of 85 us, some of them on the same die.
        assert_near(&format!("{drive}, reads, depth 32"), random(drive, 32, 100, 0.5), read_32, 0.12);
        assert_near(&format!("{drive}, writes, depth 1"), random(drive, 1, 0, 0.5), write_1, 0.03);
        assert_near(&format!("{drive}, writes, depth 32"), random(drive, 32, 0, 3.0), write_32, 0.04);
        assert_near(&format!("{drive}, read in order"), streams(drive, 4, 10, 100, 1.0), read, 0.05);
        assert_near(&format!("{drive}, write in order"), streams(drive, 4, 10, 0, 2.0), write, 0.05);
    }
}

#[test]
fn constant_drive_answers_in_its_latency_at_any_depth() {
    assert_near("constant, depth 1", random("constant-latency", 1, 100, 0.5), 1e6 / 113.7, 0.02);
    assert_near("constant, depth 4", random("constant-latency", 4, 100, 0.5), 4e6 / 113.7, 0.05);
}
