//! Two threads with a shard each, beside one.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Result;
use stripewise_engine::io::Op;
use stripewise_engine::level::Level;
use stripewise_host::{Array, Memory};
use stripewise_parity::kernels;

use super::Scale;
use super::array::{MEMBERS, open, span_bytes};
use super::clock::interleaved;
use super::loops::{Job, Loop, Places, Share};
use super::table::{Row, Target, Unit, median};

const THREADS: u64 = 2;
/// Of what two threads of such copies gain over one; it is 1.8 where memory gives two threads twice the bytes.
const OF_MEMORY: f64 = 0.9;

pub(super) fn two(scale: &Scale) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Ok(vec![Row::absent(
            "two threads, two shards",
            Unit::GbPerSecond,
            "this machine has one CPU",
        )]);
    }
    let scale = &scale.in_turns(4);
    let mut one = open(Level::Raid5, MEMBERS, scale.member_bytes, 1)?;
    let mut both = open(Level::Raid5, MEMBERS, scale.member_bytes, THREADS as u32)?;
    let span = span_bytes(&one);
    let memory = RefCell::new(Memory::new(scale.probe_bytes)?);
    for (job, unit, name) in [
        (Job::sequential(Op::Write, 1 << 20), Unit::GbPerSecond, "1 MiB sequential write"),
        (Job::sequential(Op::Read, 1 << 20), Unit::GbPerSecond, "1 MiB sequential read"),
        (Job::random(Op::Read), Unit::Iops, "4 KiB random read, QD 32"),
        (Job::random(Op::Write), Unit::Iops, "4 KiB random write (RMW), QD 32"),
    ] {
        let per = if unit == Unit::Iops { job.bytes as f64 } else { 1.0 };
        let [two, alone, copied_by_two, copied_by_one] = interleaved(
            scale.rounds,
            [
                &mut |round| rate(&mut both, job, span, THREADS, round, scale.sample) / per,
                &mut |round| rate(&mut one, job, span, 1, round, scale.sample) / per,
                &mut |_| copied(&mut memory.borrow_mut(), THREADS as usize, job, scale.sample),
                &mut |_| copied(&mut memory.borrow_mut(), 1, job, scale.sample),
            ],
        );
        let gain = median(&copied_by_two).zip(median(&copied_by_one)).map_or(2.0, |(two, one)| two / one);
        rows.push(
            Row::new(format!("RAID-5 4+1, {name}, two shards"), unit, two)
                .beside("one thread, one shard (wall clock)", alone)
                .asked(Target::RatioAtLeast(OF_MEMORY * gain.min(THREADS as f64)))
                .noted(format!(
                    "asked: {OF_MEMORY} of what memory allows; two threads copy {gain:.2} times what one does"
                )),
        );
    }
    Ok(rows)
}

/// Bytes a second by the wall clock, each thread asking for what its shard has.
fn rate(array: &mut Array, job: Job, span: u64, threads: u64, seed: u64, time: Duration) -> f64 {
    let share = |index| Job { share: Share { index, count: threads }, ..job };
    let loops = (0..threads).map(|index| Loop::new(share(index), span, seed + index, time)).collect();
    match array.run::<Loop>(loops) {
        Ok((_, loops)) => loops.iter().map(Loop::wall_rate).sum(),
        Err(_) => f64::NAN,
    }
}

/// Bytes a second by the wall clock of threads that copy what the job asks for, each within a part of its own: one after
/// another past the caches; or from anywhere to few buffers, for writes from few buffers to anywhere.
fn copied(memory: &mut Memory, threads: usize, job: Job, time: Duration) -> f64 {
    let part_bytes = memory.len() / threads;
    std::thread::scope(|scope| {
        let copiers: Vec<_> = memory
            .chunks_exact_mut(part_bytes)
            .map(|part| scope.spawn(move || copied_by_one(part, job, time)))
            .collect();
        copiers.into_iter().map(|copier| copier.join().unwrap_or(f64::NAN)).sum()
    })
}

fn copied_by_one(part: &mut [u8], job: Job, time: Duration) -> f64 {
    const BATCH_BYTES: usize = 1 << 20;
    let length = job.bytes as usize;
    let half = part.len() / 2;
    let (from, to) = part.split_at_mut(half);
    let mut places = Places::new((half / length) as u64, job.is_random, 1);
    let buffers = if job.is_random { job.buffers as usize } else { half / length };
    let (began, mut copies) = (Instant::now(), 0);
    loop {
        for _ in 0..BATCH_BYTES.div_ceil(length) {
            let (place, buffer) = (places.draw() as usize * length, copies % buffers * length);
            let is_anywhere_written = job.is_random && job.op == Op::Write;
            let (read, written) = if is_anywhere_written { (buffer, place) } else { (place, buffer) };
            let (source, target) = (&from[read..][..length], &mut to[written..][..length]);
            copies += 1;
            if job.is_random {
                target.copy_from_slice(source);
            } else {
                kernels().copy_streaming(target, source);
            }
        }
        let seconds = began.elapsed();
        if seconds >= time {
            return (copies * length) as f64 / seconds.as_secs_f64();
        }
    }
}
