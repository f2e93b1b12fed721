//! Two threads with a shard each, beside one.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Result;
use stripewise_engine::io::Op;
use stripewise_engine::level::Level;
use stripewise_host::{Array, Memory, MemoryReads};
use stripewise_parity::kernels;

use super::Scale;
use super::array::{MEMBERS, open, span_bytes};
use super::bare::Members;
use super::clock::interleaved;
use super::loops::{Job, Loop, Places, Share};
use super::table::{Row, Target, Unit, median};

const THREADS: u64 = 2;
/// Of what two threads of a bare loop gain over one; it is 1.8 where memory gives two threads twice the bytes.
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
    for (job, unit, name) in [
        (Job::sequential(Op::Write, 1 << 20), Unit::GbPerSecond, "1 MiB sequential write"),
        (Job::sequential(Op::Read, 1 << 20), Unit::GbPerSecond, "1 MiB sequential read"),
        (Job::random(Op::Read), Unit::Iops, "4 KiB random read, QD 32"),
        (Job::random(Op::Write), Unit::Iops, "4 KiB random write (RMW), QD 32"),
    ] {
        let bare = RefCell::new(Bare::new(job, scale.member_bytes, span)?);
        let per = if unit == Unit::Iops { job.bytes as f64 } else { 1.0 };
        let [two, alone, bare_of_two, bare_of_one] = interleaved(
            scale.rounds,
            [
                &mut |round| rate(&mut both, job, span, THREADS, round, scale.sample) / per,
                &mut |round| rate(&mut one, job, span, 1, round, scale.sample) / per,
                &mut |round| bare.borrow_mut().rate(THREADS as usize, job, round, scale.sample),
                &mut |round| bare.borrow_mut().rate(1, job, round, scale.sample),
            ],
        );
        let gain = median(&bare_of_two).zip(median(&bare_of_one)).map_or(2.0, |(two, one)| two / one);
        rows.push(
            Row::new(format!("RAID-5 4+1, {name}, two shards"), unit, two)
                .beside("one thread, one shard (wall clock)", alone)
                .asked(Target::RatioAtLeast(OF_MEMORY * gain.min(THREADS as f64)))
                .noted(format!(
                    "asked: {OF_MEMORY} of what memory allows; two threads of a bare loop do {gain:.2} times what one does"
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

/// What the array's threads do, by threads that decide nothing, each within memory of its own, together as much as the array's.
enum Bare {
    /// From anywhere, as the array reads members in memory; or one after another past the caches.
    Copies(Memory),
    /// Read-modify-writes anywhere.
    Updates(Vec<Members>),
}

impl Bare {
    fn new(job: Job, member_bytes: u64, span_bytes: u64) -> Result<Self> {
        if job.op == Op::Write && job.is_random {
            let of_one = |_| Members::new(MEMBERS.into(), 1, member_bytes / THREADS, &[job]);
            return Ok(Self::Updates((0..THREADS).map(of_one).collect::<Result<_, _>>()?));
        }
        Ok(Self::Copies(Memory::new(span_bytes as usize)?))
    }

    /// Bytes of requests a second.
    fn rate(&mut self, threads: usize, job: Job, seed: u64, time: Duration) -> f64 {
        std::thread::scope(|scope| {
            let threads: Vec<_> = match self {
                Self::Copies(memory) => {
                    let part_bytes = memory.len() / threads;
                    (seed..)
                        .zip(memory.chunks_exact_mut(part_bytes))
                        .map(|(seed, part)| scope.spawn(move || copied_by_one(part, job, seed, time)))
                        .collect()
                }
                Self::Updates(members) => (seed..)
                    .zip(&mut members[..threads])
                    .map(|(seed, members)| scope.spawn(move || members.update_rate(job, seed, time)))
                    .collect(),
            };
            threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).sum()
        })
    }
}

/// Bytes a second by the wall clock, between one part of the memory and the job's buffers.
fn copied_by_one(part: &mut [u8], job: Job, seed: u64, time: Duration) -> f64 {
    let length = job.bytes as usize;
    // At a small scale all of the buffers are more than there is.
    let near_bytes = (job.buffers as usize * length).min(part.len() / 2);
    let (far, near) = part.split_at_mut(part.len() - near_bytes);
    let mut places = Places::new((far.len() / length) as u64, job.is_random, seed);
    let reads = MemoryReads::default();
    let (began, mut copies) = (Instant::now(), 0);
    loop {
        let mut blocks = near.chunks_exact_mut(length);
        let mut source = || &far[places.draw() as usize * length..][..length];
        if job.is_random {
            copies += blocks.len();
            reads.copy(blocks.map(|block| (source(), block)));
        } else {
            // One after the other, over all of both.
            let block = blocks.nth(copies % (near_bytes / length)).expect("it is one of them");
            kernels().copy_streaming(block, source());
            copies += 1;
        }
        let seconds = began.elapsed();
        if seconds >= time {
            return (copies * length) as f64 / seconds.as_secs_f64();
        }
    }
}
