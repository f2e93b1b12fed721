//! Arrays on members in memory, one thread, beside what that memory can do.

use std::time::Duration;

use anyhow::Result;
use stripewise_engine::cache::{CacheConfig, CachePolicy};
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::Op;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_engine::volume::VolumeConfig;
use stripewise_host::{Array, ArrayConfig, Layers, MemberSpec};

use super::Scale;
use super::bare::{Copies, Members};
use super::clock::interleaved;
use super::limits::{MemoryProbe, Traffic};
use super::loops::{Job, Loop};
use super::table::{Row, Target, Unit};

pub(super) const MEMBERS: u16 = 5;
/// SPDK's strip in the runs it was recorded with; a stripe of four is 512 KiB.
pub(super) const CHUNK_BYTES: u64 = 128 << 10;
/// SPDK's full-stripe write of 7.6 GB/s beside a memcpy of 16.5 GB/s on the same machine, and the lead asked over it.
const SPDK_WRITE_RATIO: f64 = 7.6 / 16.5;
const OVER_SPDK: f64 = 1.2;
/// An ideal full-stripe write of four data chunks and one of parity reads the caller's bytes once.
const FULL_STRIPE: Traffic = Traffic { reads: 1.0, writes: 1.25 };

/// An array of this level with md's defaults on members in memory.
pub(super) fn open(level: Level, members: u16, member_bytes: u64, shards: u32) -> Result<Array> {
    let geometry = GeometrySpec {
        level,
        layout: Layout::default_of(level),
        chunk_sectors: CHUNK_BYTES / SECTOR_BYTES,
        member_sectors: vec![member_bytes / SECTOR_BYTES; members.into()],
    };
    let volume = VolumeConfig::new(geometry, Policy::stripewise());
    let mut config = ArrayConfig::new(volume, vec![MemberSpec::Memory; members.into()]);
    config.shards = shards;
    Ok(Array::open(config)?)
}

pub(super) fn span_bytes(array: &Array) -> u64 {
    array.geometry().array_sectors() * SECTOR_BYTES
}

/// Bytes a second of the array, by one thread.
fn rate(array: &mut Array, job: Job, seed: u64, time: Duration) -> f64 {
    let workload = Loop::new(job, span_bytes(array), seed, time);
    match array.run(vec![workload]) {
        Ok((_, workloads)) => workloads[0].rate(),
        // The row then says that nothing was measured.
        Err(_) => f64::NAN,
    }
}

/// A full stripe, and two at once.
pub(super) fn sequential_write(scale: &Scale) -> Result<Vec<Row>> {
    let scale = &scale.in_turns(4);
    let jobs = [Job::sequential(Op::Write, 512 << 10), Job::sequential(Op::Write, 1 << 20)];
    let mut array = open(Level::Raid5, MEMBERS, scale.member_bytes, 1)?;
    let mut copies = Copies::new(span_bytes(&array), &jobs)?;
    let mut bare = Members::new(MEMBERS.into(), 1, scale.member_bytes, &jobs)?;
    let mut probe = MemoryProbe::new(scale.probe_bytes)?;
    let mut rows = Vec::new();
    for (job, name) in jobs.into_iter().zip(["512 KiB full-stripe", "1 MiB sequential"]) {
        let mut rates = Vec::new();
        let [ours, limit, memcpy, bare] = interleaved(
            scale.rounds,
            [
                &mut |round| rate(&mut array, job, round, scale.sample),
                &mut |_| {
                    let measured = probe.rates();
                    rates.push(measured);
                    measured.limit(FULL_STRIPE)
                },
                &mut |round| copies.rate(job, round, scale.sample),
                &mut |_| bare.full_stripe_rate(job, CHUNK_BYTES as usize, scale.sample),
            ],
        );
        let last = rates.last().map(|r| {
            format!("{:.1} read, {:.1} written, {:.1} copied", r.read / 1e9, r.write / 1e9, r.copy / 1e9)
        });
        let made_of =
            last.map_or_else(String::new, |rates| format!("memory's GB/s in the last round: {rates}"));
        let name = format!("RAID-5 4+1, {name} write");
        let row = |name: String| Row::new(name, Unit::GbPerSecond, ours.clone());
        rows.push(
            row(name.clone())
                .beside("the memory's limit: each byte read once, 1.25 written", limit)
                .asked(Target::RatioAtLeast(0.8))
                .noted(made_of),
        );
        rows.push(
            row(name.clone())
                .beside("memcpy of the same bytes", memcpy)
                .asked(Target::RatioAtLeast(SPDK_WRITE_RATIO * OVER_SPDK))
                .noted("asked: 1.2 times what SPDK reached beside memcpy when it was recorded, 0.46"),
        );
        rows.push(row(name).beside("a bare loop of the same sums and copies", bare));
    }
    Ok(rows)
}

pub(super) fn sequential_read(scale: &Scale) -> Result<Vec<Row>> {
    let scale = &scale.in_turns(4);
    let jobs = [Job::sequential(Op::Read, 512 << 10), Job::sequential(Op::Read, 1 << 20)];
    let mut array = open(Level::Raid5, MEMBERS, scale.member_bytes, 1)?;
    let mut copies = Copies::new(span_bytes(&array), &jobs)?;
    let mut rows = Vec::new();
    for (job, name) in jobs.into_iter().zip(["512 KiB", "1 MiB"]) {
        let [ours, memcpy] = interleaved(
            scale.rounds,
            [&mut |round| rate(&mut array, job, round, scale.sample), &mut |round| {
                copies.rate(job, round, scale.sample)
            }],
        );
        rows.push(
            Row::new(format!("RAID-5 4+1, {name} sequential read"), Unit::GbPerSecond, ours)
                .beside("memcpy of the same bytes", memcpy)
                .asked(Target::RatioAtLeast(0.9)),
        );
    }
    Ok(rows)
}

pub(super) fn random_read(scale: &Scale) -> Result<Vec<Row>> {
    let scale = &scale.in_turns(4);
    let job = Job::random(Op::Read);
    let mut rows = Vec::new();
    for (level, name) in [(Level::Raid5, "RAID-5 4+1"), (Level::Raid0, "RAID-0 of 5")] {
        let mut array = open(level, MEMBERS, scale.member_bytes, 1)?;
        let mut copies = Copies::new(span_bytes(&array), &[job])?;
        let [ours, memcpy] = interleaved(
            scale.rounds,
            [&mut |round| rate(&mut array, job, round, scale.sample) / job.bytes as f64, &mut |round| {
                copies.rate(job, round, scale.sample) / job.bytes as f64
            }],
        );
        rows.push(
            Row::new(format!("{name}, 4 KiB random read, QD 32"), Unit::Iops, ours)
                .beside("memcpy of 4 KiB anywhere in as many bytes", memcpy)
                .asked(Target::RatioAtLeast(0.8)),
        );
    }
    Ok(rows)
}

pub(super) fn random_write(scale: &Scale) -> Result<Vec<Row>> {
    let scale = &scale.in_turns(4);
    let job = Job::random(Op::Write);
    let mut rows = Vec::new();
    for (level, parities, members, name) in
        [(Level::Raid5, 1, MEMBERS, "RAID-5 4+1"), (Level::Raid6, 2, MEMBERS + 1, "RAID-6 4+2")]
    {
        let mut array = open(level, members, scale.member_bytes, 1)?;
        let mut bare = Members::new(members.into(), parities, scale.member_bytes, &[job])?;
        let [ours, bare] = interleaved(
            scale.rounds,
            [&mut |round| rate(&mut array, job, round, scale.sample) / job.bytes as f64, &mut |round| {
                bare.update_rate(job, round, scale.sample) / job.bytes as f64
            }],
        );
        rows.push(
            Row::new(format!("{name}, 4 KiB random write (RMW), QD 32"), Unit::Iops, ours)
                .beside("a bare loop of the same copies and sums", bare)
                .asked(Target::RatioAtLeast(0.5)),
        );
    }
    Ok(rows)
}

/// What a page cache above the array holds, it answers itself.
pub(super) fn cache_hit(scale: &Scale) -> Result<Vec<Row>> {
    let scale = &scale.in_turns(4);
    let job = Job { is_buffered: true, ..Job::random(Op::Read) };
    let mut array = open(Level::Raid5, MEMBERS, scale.member_bytes / 2, 1)?;
    let span = span_bytes(&array);
    // Room for every page and what a cache keeps free.
    let cache = CacheConfig::new(CachePolicy::linux_6_1(), span + span / 4);
    array.raise(&Layers { cache: Some(cache), crypt: None })?;
    let fill = Job { buffers: 1, is_buffered: true, ..Job::sequential(Op::Read, 64 << 10) };
    array.run(vec![Loop::once(fill, span)])?;
    let mut copies = Copies::new(span, &[job])?;
    let mut member_reads = 0;
    let [ours, memcpy] = interleaved(
        scale.rounds,
        [
            &mut |round| {
                let workload = Loop::new(job, span, round, scale.sample);
                let Ok((report, workloads)) = array.run(vec![workload]) else { return f64::NAN };
                member_reads += report.members.iter().map(|member| member.reads).sum::<u64>();
                workloads[0].rate() / job.bytes as f64
            },
            &mut |round| copies.rate(job, round, scale.sample) / job.bytes as f64,
        ],
    );
    Ok(vec![
        Row::new("page cache, 4 KiB random read that hits, QD 32", Unit::Iops, ours)
            .beside("memcpy of 4 KiB anywhere in as many bytes", memcpy)
            .asked(Target::RatioAtLeast(0.6))
            .noted(format!("{member_reads} reads went to members; 196,000 a core were published in 2012")),
    ])
}
