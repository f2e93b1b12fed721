//! The drive against what its parameters, and through them its data sheet, say it must do.

use super::Ssd;
use crate::drive::CommandOp::{self, Flush, Read, Write, WriteFua};
use crate::drive::testing::{Loop, MIB, random_sectors, sequential};
use crate::models::{DriveModel, Model, SsdModel};

fn model(name: &str) -> SsdModel {
    SsdModel::new(&Model::load(name).unwrap()).unwrap()
}

fn s3700() -> SsdModel {
    model("ssd-dc-s3700-800gb")
}

fn p5600() -> SsdModel {
    model("ssd-d7-p5600-6.4tb")
}

fn drive(model: &SsdModel) -> Loop {
    Loop::new(&DriveModel::Ssd(model.clone()))
}

/// So many random commands of 4 KiB over the whole drive.
fn random(op: CommandOp, count: u64, model: &SsdModel) -> impl FnMut() -> Option<(CommandOp, u64, u64)> {
    let mut place = random_sectors(11, model.capacity_sectors - 8);
    let mut left = count;
    move || {
        left = left.checked_sub(1)?;
        Some((op, place(), 8))
    }
}

/// Random commands of 4 KiB a second in the steady state.
fn random_rate(op: CommandOp, depth: usize, model: &SsdModel) -> f64 {
    let mut drive = drive(model);
    // First fill the buffer, several times over.
    drive.run(depth, random(op, 4 * model.write_buffer_bytes / 4096, model));
    let count = 60_000;
    count as f64 / drive.run(depth, random(op, count, model))
}

fn sequential_rate(op: CommandOp, model: &SsdModel) -> f64 {
    let mut drive = drive(model);
    drive.run(32, sequential(op, 0, 400 * MIB, 256));
    1600.0 * 1.048_576 / drive.run(32, sequential(op, 400 * MIB, 1600 * MIB, 256))
}

fn mean_us(drive: &Loop) -> f64 {
    let total: u64 = drive.completed.iter().map(|(s, e)| e - s).sum();
    total as f64 / drive.completed.len() as f64 / 1e3
}

fn assert_near(what: &str, found: f64, published: f64, tolerance: f64) {
    assert!((found / published - 1.0).abs() < tolerance, "{what}: {found} where {published} is published");
}

/// What is left of a program's unit in a small buffer leaves no room for the next write.
#[test]
fn a_write_that_waits_for_less_than_a_program_gets_in() {
    let mut model = s3700();
    model.programs_max = 1;
    model.write_buffer_bytes = model.program_bytes;
    let sectors = model.program_bytes / 512 - 8;
    let mut drive = drive(&model);
    for depth in [1, 4] {
        let mut left = 50_u64;
        let before = drive.completed.len();
        drive.run(depth, || {
            left = left.checked_sub(1)?;
            Some((Write, left * sectors, sectors))
        });
        assert_eq!(drive.completed.len() - before, 50);
    }
}

#[test]
fn s3700_does_what_its_data_sheet_says() {
    let model = s3700();
    assert_near("sequential read, MB/s", sequential_rate(Read, &model), 500.0, 0.03);
    assert_near("sequential write, MB/s", sequential_rate(Write, &model), 460.0, 0.03);
    assert_near("random reads, depth 32", random_rate(Read, 32, &model), 75_000.0, 0.03);
    assert_near("random writes, depth 32", random_rate(Write, 32, &model), 36_000.0, 0.03);
}

#[test]
fn p5600_does_what_its_maker_says() {
    let model = p5600();
    assert_near("sequential read, MB/s", sequential_rate(Read, &model), 7000.0, 0.03);
    assert_near("sequential write, MB/s", sequential_rate(Write, &model), 4300.0, 0.03);
    assert_near("random reads, depth 256", random_rate(Read, 256, &model), 1_000_000.0, 0.05);
    assert_near("random writes, depth 256", random_rate(Write, 256, &model), 260_000.0, 0.03);
}

#[test]
fn latency_at_depth_one_is_that_of_the_data_sheet() {
    for (model, read_us, write_us, random_us) in [(s3700(), 50.0, 65.0, 137.0), (p5600(), 10.0, 13.0, 85.0)] {
        let mut reads = drive(&model);
        reads.run(1, sequential(Read, 0, 16 * MIB, 8));
        assert_near("sequential read, us", mean_us(&reads), read_us, 0.05);
        let mut writes = drive(&model);
        writes.run(1, sequential(Write, 0, MIB, 8));
        assert_near("sequential write, us", mean_us(&writes), write_us, 0.05);
        let mut random_reads = drive(&model);
        random_reads.run(1, random(Read, 5000, &model));
        assert_near("random read, us", mean_us(&random_reads), random_us, 0.03);
    }
}

#[test]
fn depth_raises_random_reads_until_the_firmware_is_busy() {
    let model = s3700();
    let rate = |depth| random_rate(Read, depth, &model);
    let (one, two, four) = (rate(1), rate(2), rate(4));
    assert!((1.9..2.0).contains(&(two / one)), "depth 2 is {} times depth 1", two / one);
    assert!((3.7..4.0).contains(&(four / one)), "depth 4 is {} times depth 1", four / one);
}

#[test]
fn random_writes_wear_the_drive_by_its_write_amplification_and_sequential_ones_do_not() {
    let model = s3700();
    let programs = |next: &mut dyn FnMut() -> Option<(CommandOp, u64, u64)>, bytes: f64| {
        let mut drive = drive(&model);
        drive.run(8, next);
        drive.busy_ns() as f64 * f64::from(model.dies) / (bytes / model.program_bytes as f64)
    };
    // What stays in the buffer at the end is not programmed: 4 of 400 MiB.
    let bytes = 400.0 * 1_048_576.0;
    let sequential = programs(&mut sequential(Write, 0, 400 * MIB, 8), bytes);
    let random = programs(&mut random(Write, 400 * 256, &model), bytes);
    // As an array's rows come that are not done in the order of their numbers: each 16 commands in some other order.
    let mut next = 0_u64;
    let mut shuffled = || {
        let (round, turn) = (next / 16, next % 16);
        next += 1;
        (next <= 400 * 256).then_some((Write, (round * 16 + turn * 7 % 16) * 8, 8))
    };
    let shuffled = programs(&mut shuffled, bytes);
    assert_near("programs of neighbours that come out of turn", shuffled / sequential, 1.0, 0.02);
    let expected = 1.0 + model.collection_permille as f64 / 1000.0;
    assert_near("programs of random to sequential writes", random / sequential, expected, 0.02);
}

#[test]
fn what_random_extents_cost_does_not_hang_on_how_commands_cut_them() {
    let model = s3700();
    let rate = |extent: u64, command: u64| {
        let mut drive = drive(&model);
        let mut place = random_sectors(7, model.capacity_sectors / extent - 1);
        let (mut start, mut done, mut left) = (0, extent, 2000 * MIB / command);
        let mut next = || {
            left = left.checked_sub(1)?;
            if done == extent {
                (start, done) = (place() * extent, 0);
            }
            done += command;
            Some((Write, start + done - command, command))
        };
        2000.0 * 1.048_576 / drive.run(32, &mut next)
    };
    let whole = rate(1024, 1024);
    for command in [8, 128, 256] {
        assert_near("random extents of 512 KiB, MB/s", rate(1024, command), whole, 0.05);
    }
    let (small, large) = (rate(8, 8), rate(16 * 2048, 1024));
    assert_near("512 KiB beside 4 KiB at random", whole, small, 0.1);
    assert!(large > 1.3 * whole, "extents of four blocks {large} MB/s, of a part of one {whole}");
}

#[test]
fn reads_go_before_programs_not_yet_begun() {
    let model = s3700();
    let mut drive = drive(&model);
    let mut place = random_sectors(5, model.capacity_sectors - 8);
    let mut count = 0_u64;
    // Far more writes than the flash takes, so that the buffer is always full.
    drive.run(32, || {
        count += 1;
        (count < 40_000).then(|| (if count.is_multiple_of(8) { Read } else { Write }, place(), 8))
    });
    let mut reads: Vec<u64> = drive.reads().map(|(s, e)| e - s).collect();
    reads.sort_unstable();
    let (median_us, worst_us) = (reads[reads.len() / 2] as f64 / 1e3, reads[reads.len() - 1] as f64 / 1e3);
    assert!(median_us < 250.0, "a read takes {median_us} us beside writes");
    // A program under way, one begun meanwhile on the same die, and what else there is.
    assert!(worst_us < 2.0 * 815.0 + 1000.0, "a read waited {worst_us} us");
}

#[test]
fn flush_is_nearly_free_with_power_loss_protection_and_waits_for_the_flash_without() {
    let mut model = s3700();
    let flush_us = |model: &SsdModel| {
        let mut drive = drive(model);
        drive.run(4, random(Write, 100, model));
        let mut once = Some((Flush, 0, 0));
        drive.run(1, || once.take()) * 1e6
    };
    let protected = flush_us(&model);
    assert!(protected < 20.0, "a flush took {protected} us");
    model.power_loss_protection = false;
    let bare = flush_us(&model);
    assert!((300.0..5000.0).contains(&bare), "a flush took {bare} us");
    let mut forced = drive(&model);
    forced.run(1, random(WriteFua, 50, &model));
    let forced_us = mean_us(&forced);
    assert!((750.0..1200.0).contains(&forced_us), "a forced write took {forced_us} us");
}

#[test]
fn write_of_less_than_a_mapping_unit_costs_one() {
    let model = s3700();
    let mut drive = drive(&model);
    let mut place = random_sectors(5, model.capacity_sectors - 8);
    let mut left = 40_000;
    drive.run(32, || {
        left -= 1;
        (left > 0).then(|| (Write, place() + 3, 1))
    });
    let seconds = drive.run(32, || {
        left -= 1;
        (left > -30_000).then(|| (Write, place() + 3, 1))
    });
    let rate = 30_000.0 / seconds;
    assert!((33_000.0..37_000.0).contains(&rate), "{rate} writes of 512 bytes a second");
}

#[test]
fn same_commands_give_the_same_times() {
    let model = p5600();
    let times = || {
        let mut drive = drive(&model);
        let mut place = random_sectors(3, model.capacity_sectors - 8);
        let mut count = 0_u64;
        drive.run(64, || {
            count += 1;
            (count < 20_000).then(|| (if count.is_multiple_of(3) { Write } else { Read }, place(), 8))
        });
        drive.completed
    };
    assert_eq!(times(), times());
}

#[test]
fn state_does_not_grow_with_the_capacity() {
    let mut large = s3700();
    large.capacity_sectors *= 1000;
    for model in [s3700(), large] {
        let dies = model.dies as usize * size_of::<(u64, u64)>();
        let streams =
            model.streams * (model.read_ahead_sectors.div_ceil(model.page_sectors) as usize + 8) * 8;
        let bytes = size_of::<Ssd>() + dies + streams + model.queue_depth as usize * 64;
        assert!(bytes < 64 * 1024, "{bytes} bytes for a drive");
    }
}
