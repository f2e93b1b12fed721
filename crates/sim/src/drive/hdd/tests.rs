//! The drive against what its parameters say it must do.

use super::geometry::{Geometry, Run};
use crate::drive::CommandOp;
use crate::drive::testing::{Loop, MIB, random_sectors, sequential};
use crate::models::{DriveModel, HddModel, Model};

fn model() -> HddModel {
    HddModel::new(&Model::load("st31000333as").unwrap()).unwrap()
}

fn drive(model: &HddModel) -> Loop {
    Loop::new(&DriveModel::Hdd(model.clone()))
}

fn random(op: CommandOp, count: usize, sectors: u64) -> impl FnMut() -> Option<(CommandOp, u64, u64)> {
    let mut place = random_sectors(7, model().capacity_sectors);
    let mut left = count;
    move || {
        left = left.checked_sub(1)?;
        Some((op, place(), sectors))
    }
}

#[test]
fn sequential_read_reaches_the_rates_of_outer_and_inner_zone() {
    for (start, published) in [(0, 120.0), (1_950_000_000, 60.0)] {
        let mut drive = drive(&model());
        let seconds = drive.run(2, sequential(CommandOp::Read, start, 1600 * MIB, 256));
        let rate = 1600.0 * 1.048_576 / seconds;
        assert!((rate / published - 1.0).abs() < 0.02, "{rate} MB/s where {published} is published");
    }
}

#[test]
fn whole_disk_read_takes_the_published_time() {
    let model = model();
    let geometry = Geometry::new(&model);
    let ns = Run::new(&geometry, 0, 0).end_ns(&geometry, model.capacity_sectors);
    let rate = model.capacity_sectors as f64 * 512.0 / 1e6 / (ns as f64 / 1e9);
    assert!((rate / 95.1 - 1.0).abs() < 0.02, "mean {rate} MB/s");
    // The same by commands, on a sample of every hundredth part of the disk.
    let (mut seconds, mut bytes) = (0.0, 0.0);
    for part in 0..100 {
        let mut drive = drive(&model);
        let start = model.capacity_sectors / 100 * part;
        seconds += drive.run(2, sequential(CommandOp::Read, start, 100 * MIB, 256)) - 0.012;
        bytes += 100.0 * 1_048_576.0;
    }
    let sampled = bytes / seconds / 1e6;
    assert!((sampled / 95.1 - 1.0).abs() < 0.02, "mean of the samples {sampled} MB/s");
}

#[test]
fn sequential_run_across_tracks_loses_only_the_skew() {
    let model = model();
    let geometry = Geometry::new(&model);
    let track = model.zones[0].sectors_per_track;
    let run = Run::new(&geometry, 0, 0);
    let one = run.end_ns(&geometry, track);
    let two = run.end_ns(&geometry, 2 * track);
    assert!(one.abs_diff(model.revolution_ns) < 10_000);
    assert!((two - one).abs_diff(model.revolution_ns + model.track_skew_ns) < 10);
    let cylinder = model.heads * track;
    let next = run.end_ns(&geometry, cylinder + track) - run.end_ns(&geometry, cylinder);
    assert!(next.abs_diff(model.revolution_ns + model.cylinder_skew_ns) < 10);
}

#[test]
fn run_is_at_the_sector_whose_end_it_has_passed() {
    let model = model();
    let geometry = Geometry::new(&model);
    let zone = model.zones[0].cylinders * model.heads * model.zones[0].sectors_per_track;
    for start in [0, 1000, zone - 5000, zone, 900_000_123] {
        let run = Run::new(&geometry, start, 5_000_000);
        for count in [1, 7, 2168, 4000, 13_007, 40_000] {
            let passed_ns = run.end_ns(&geometry, start + count);
            let at = run.sector_at(&geometry, passed_ns + 100);
            assert!(at.abs_diff(start + count) <= 1, "from {start}: {at} after {count}");
        }
    }
}

#[test]
fn random_reads_at_depth_one_take_seek_half_a_revolution_and_overhead() {
    let model = model();
    let mut drive = drive(&model);
    let count = 5000;
    let seconds = drive.run(1, random(CommandOp::Read, count, 8));
    let rate = count as f64 / seconds;
    // Sectors are denser in the outer cylinders, so random sectors lie a little closer than random cylinders.
    let (seek, half, overhead) = (8.5e-3, 60.0 / 7200.0 / 2.0, 0.05e-3);
    let analytic = 1.0 / (seek + half + overhead);
    assert!((rate / analytic - 1.0).abs() < 0.04, "{rate} a second where {analytic} is expected");
}

#[test]
fn queue_raises_random_reads_by_a_plausible_factor() {
    let rate = |depth| 4000.0 / drive(&model()).run(depth, random(CommandOp::Read, 4000, 8));
    let (one, four, all) = (rate(1), rate(4), rate(31));
    assert!(one < four && four < all);
    assert!((1.8..3.5).contains(&(all / one)), "depth 31 is {} times depth 1", all / one);
}

#[test]
fn nothing_waits_much_longer_than_the_ageing_bound() {
    let model = model();
    let mut drive = drive(&model);
    // Reads near the start of the disk all the time, and one in a hundred far away.
    let mut count = 0_u64;
    let mut place = random_sectors(3, 1 << 20);
    drive.run(31, || {
        count += 1;
        let far = if count.is_multiple_of(100) { 1_900_000_000 } else { 0 };
        (count < 6000).then(|| (CommandOp::Read, far + place(), 8))
    });
    let bound_ms = model.ageing_ns as f64 / 1e6 + 32.0 * 30.0;
    assert!(drive.latency_max_ms() < bound_ms, "a read waited {} ms", drive.latency_max_ms());
}

#[test]
fn reads_are_served_while_the_write_cache_is_full() {
    let mut drive = drive(&model());
    let mut place = random_sectors(5, model().capacity_sectors);
    let mut count = 0;
    drive.run(31, || {
        count += 1;
        let op = if count % 2 == 0 { CommandOp::Read } else { CommandOp::Write };
        (count < 4000).then(|| (op, place(), 8))
    });
    assert!(drive.latency_max_ms() < 1500.0, "a command waited {} ms", drive.latency_max_ms());
}

#[test]
fn write_cache_absorbs_then_throttles() {
    let mut drive = drive(&model());
    let absorbed = drive.run(4, sequential(CommandOp::Write, 0, 8 * MIB, 256));
    assert!(8.0 * 1.048_576 / absorbed > 180.0, "8 MiB go into the cache at the rate of the link");
    let throttled = drive.run(4, sequential(CommandOp::Write, 8 * MIB, 800 * MIB, 256));
    let rate = 800.0 * 1.048_576 / throttled;
    assert!((100.0..125.0).contains(&rate), "{rate} MB/s where the medium takes 120");
}

/// Random writes of 64 KiB a second, each to the next of these places' 20 GB.
fn random_writes_in(model: &HddModel, places: &[u64]) -> f64 {
    let count: usize = 6000;
    let mut place = random_sectors(7, 20_000 * MIB);
    let mut left = count;
    let seconds = drive(model).run(31, || {
        left = left.checked_sub(1)?;
        Some((CommandOp::Write, places[left % places.len()] + place() / 128 * 128, 128))
    });
    count as f64 / seconds
}

#[test]
fn dirty_data_in_two_places_do_not_cost_a_long_seek_every_few_writes() {
    for name in ["st31000333as", "st3000dm001", "exos-x20-20tb"] {
        let model = HddModel::new(&Model::load(name).unwrap()).unwrap();
        let one = random_writes_in(&model, &[0]);
        let two = random_writes_in(&model, &[0, model.capacity_sectors / 2]);
        assert!(two > 0.8 * one, "{name}: {two} a second in two places, {one} in one");
    }
}

#[test]
fn dirty_data_far_from_all_others_are_written_though_the_others_never_end() {
    let model = model();
    let far = model.capacity_sectors - 8;
    let mut drive = drive(&model);
    let mut place = random_sectors(7, 1000 * MIB);
    let mut count = 0;
    drive.run(31, || {
        count += 1;
        let at = if count == 500 { far } else { place() };
        (count <= 5000).then_some((CommandOp::Write, at, 8))
    });
    let mut once = Some((CommandOp::Read, far, 8));
    let read = drive.run(1, || once.take());
    assert!(read > 0.002, "read in {read} s: it is still in the cache");
}

#[test]
fn flush_and_forced_writes_wait_for_the_medium() {
    let mut drive = drive(&model());
    let quick = drive.run(1, random(CommandOp::Write, 40, 8));
    let mut once = Some((CommandOp::Flush, 0, 0));
    let flush = drive.run(1, || once.take());
    assert!(quick < 0.01 && flush > 0.1, "40 writes took {quick} s, their flush {flush} s");
    let mut once = Some((CommandOp::Flush, 0, 0));
    assert!(drive.run(1, || once.take()) < 0.001, "a second flush has nothing to do");
    let forced = drive.run(1, random(CommandOp::WriteFua, 100, 8));
    assert!((0.010..0.016).contains(&(forced / 100.0)), "a forced write took {} s", forced / 100.0);
}

#[test]
fn sequential_reader_slower_than_the_medium_is_served_from_the_segment() {
    let mut drive = drive(&model());
    drive.run(1, sequential(CommandOp::Read, 0, 8 * MIB, 8));
    let slow = drive.completed.iter().filter(|(s, e)| e - s > 1_000_000).count();
    assert!(slow < 10, "{slow} of {} reads waited for the medium", drive.completed.len());
}

#[test]
fn sequential_reader_that_fills_the_read_ahead_loses_no_revolutions() {
    for (model, megabytes) in [("hdd-2006-7200", 50.0), ("st31000333as", 80.0)] {
        let model = HddModel::new(&Model::load(model).unwrap()).unwrap();
        let mut drive = Loop::on_bus(&DriveModel::Hdd(model), (1e6 / megabytes) as u64);
        let seconds = drive.run(2, sequential(CommandOp::Read, 0, 400 * MIB, 128));
        let rate = 400.0 * 1.048_576 / seconds;
        assert!(rate / megabytes > 0.97, "{rate} MB/s over a bus of {megabytes}");
    }
}

/// Runs of 4 MiB with gaps of so many MiB between them, as one reader asks for them; milliseconds that a gap costs.
fn gap_ms(model: &HddModel, gap: u64, depth: usize) -> f64 {
    let runs = 100;
    let ms = |gap: u64| {
        let mut drive = drive(model);
        let (mut count, mut at) = (0, 0);
        let seconds = drive.run(depth, || {
            let start = at;
            count += 1;
            at += 256 + if count % 16 == 0 { gap * MIB } else { 0 };
            (count <= runs * 16).then_some((CommandOp::Read, start, 256))
        });
        seconds * 1e3 / runs as f64
    };
    ms(gap) - ms(0)
}

#[test]
fn a_gap_is_sought_over_where_that_is_quicker_than_reading_through_it() {
    let exos = HddModel::new(&Model::load("exos-x20-20tb").unwrap()).unwrap();
    for model in [model(), exos] {
        let revolution_ms = model.revolution_ns as f64 / 1e6;
        for depth in [1, 8] {
            for gap in [1, 2, 4, 8, 16, 32, 64, 128, 512] {
                let cost = gap_ms(&model, gap, depth);
                // A seek over a gap of 512 MiB is a few hundred tracks long.
                assert!(cost < 3.0 + revolution_ms, "{gap} MiB at depth {depth} cost {cost} ms");
            }
        }
    }
}

#[test]
fn a_deep_queue_of_one_sequential_reader_is_served_in_order() {
    for name in ["st31000333as", "st3000dm001", "exos-x20-20tb"] {
        let model = HddModel::new(&Model::load(name).unwrap()).unwrap();
        for (depth, sectors) in [(31, 128), (31, 512), (31, 2048), (8, 2048)] {
            let mut drive = drive(&model);
            drive.run(depth, sequential(CommandOp::Read, 0, 3000 * MIB, sectors));
            // What is in front of it in the queue, at less than the medium's rate, and the first seek.
            let bound_ms = depth as f64 * sectors as f64 * 512.0 / 100e3 + 60.0;
            let most = drive.latency_max_ms();
            assert!(most < bound_ms, "{name}, {depth} reads of {sectors} sectors: {most} ms");
        }
    }
}

/// Reads of so many KiB by readers that take turns, far from each other; the rate of all in MB/s.
fn readers(model: &HddModel, count: u64, kib: u64) -> f64 {
    let mut drive = drive(model);
    let mut next: Vec<u64> = (0..count).map(|n| model.capacity_sectors / count * n / 8 * 8).collect();
    let each = 2 * kib;
    let mut left = 24 * MIB / each * count;
    // Each reader has one read at a time.
    let seconds = drive.run_readers(count as usize, |reader| {
        left = left.checked_sub(1)?;
        next[reader] += each;
        Some((CommandOp::Read, next[reader] - each, each))
    });
    24.0 * 1.048_576 * count as f64 / seconds
}

#[test]
fn readers_that_take_turns_are_read_ahead_for() {
    let model = model();
    let none = HddModel { read_ahead_min_sectors: 0, ..model.clone() };
    for count in [2, 4, 16] {
        let (with, without) = (readers(&model, count, 64), readers(&none, count, 64));
        // A turn is a seek and half a revolution, then 64 KiB and what is read ahead in it.
        let turn_ms = |kib: f64| 8.5 + 4.2 + kib / 1024.0 / 100.0 * 1e3;
        let most = 320.0 * 1.024 / turn_ms(320.0);
        assert!(with < 1.6 * most, "{count} readers: {with} MB/s");
        assert!(
            with > 2.5 * without,
            "{count} readers: {with} MB/s, and {without} without a least read-ahead"
        );
    }
}

#[test]
fn write_that_cuts_a_physical_sector_costs_a_revolution_where_these_are_of_4_kib() {
    let native = model();
    let emulating = HddModel { physical_sectors: 8, ..native.clone() };
    let mean_ms = |model: &HddModel, op, offset: u64, sectors| {
        let mut drive = drive(model);
        let mut place = random_sectors(7, model.capacity_sectors - 16);
        let mut left = 2000;
        let seconds = drive.run(1, || {
            left -= 1;
            (left > 0).then(|| (op, place() + offset, sectors))
        });
        seconds * 1e3 / 2000.0
    };
    let revolution_ms = native.revolution_ns as f64 / 1e6;
    for (offset, sectors, costs) in [(0, 8, 0.0), (0, 64, 0.0), (1, 8, 1.0), (0, 1, 1.0), (7, 1, 1.0)] {
        let [native, emulating] =
            [&native, &emulating].map(|model| mean_ms(model, CommandOp::WriteFua, offset, sectors));
        let more = (emulating - native) / revolution_ms;
        assert!((more - costs).abs() < 0.05, "{sectors} sectors at {offset}: {more} revolutions more");
    }
    // Through the cache it costs what is written back, not what is answered.
    let [native, emulating] = [&native, &emulating].map(|model| mean_ms(model, CommandOp::Write, 1, 8));
    assert!(emulating > native + 0.8 * revolution_ms, "{emulating} ms, {native} natively");
}
