//! The table of parameters, and how their values are read.

use stripewise_engine::level::Level;
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{MEMBERS_MAX, SECTOR_BYTES};
use stripewise_host::SHARDS_MAX;
use stripewise_sim::Cipher;

use super::parameter::{CellTarget, Parameter, Parameters, Section, Work};
use crate::fs::{BLOCK_BYTES, FsKind, MkfsYear};
use crate::trace::Trace;
use crate::workload::{Job, parse_size, parse_time, print_chunk, print_size, print_time};

const fn always(_: &Parameters) -> bool {
    true
}

/// A trace has a length of its own.
fn takes_its_time(p: &Parameters) -> bool {
    p.work != Work::Trace
}

fn on_array(p: &Parameters) -> bool {
    p.target == CellTarget::Array
}

fn with_chunks(p: &Parameters) -> bool {
    on_array(p) && p.array.level.has_chunks()
}

fn with_redundancy(p: &Parameters) -> bool {
    on_array(p) && p.array.level.is_redundant()
}

fn with_bitmap(p: &Parameters) -> bool {
    with_redundancy(p) && p.array.has_bitmap
}

fn in_a_part(p: &Parameters) -> bool {
    !p.part.is_empty()
}

fn runs_a_job(p: &Parameters) -> bool {
    p.work.runs_job()
}

fn syncs(p: &Parameters) -> bool {
    p.work.syncs()
}

fn on_ext(p: &Parameters) -> bool {
    may_have_fs(p) && matches!(p.stack.fs, Some(FsKind::Ext3 | FsKind::Ext4))
}

fn on_fs(p: &Parameters) -> bool {
    may_have_fs(p) && p.stack.fs.is_some()
}

fn may_have_fs(p: &Parameters) -> bool {
    !matches!(p.work, Work::Resync | Work::Recover | Work::Trace)
}

fn mixed(p: &Parameters) -> bool {
    runs_a_job(p) && p.job.rw.is_mixed()
}

fn random(p: &Parameters) -> bool {
    runs_a_job(p) && p.job.rw.is_random()
}

fn in_runs(p: &Parameters) -> bool {
    random(p) && p.job.run.is_some()
}

fn replays(p: &Parameters) -> bool {
    p.work == Work::Trace
}

fn does_io(p: &Parameters) -> bool {
    runs_a_job(p) || replays(p)
}

fn buffered(p: &Parameters) -> bool {
    p.work == Work::Mkfs || does_io(p) && !p.job.direct
}

fn encrypted(p: &Parameters) -> bool {
    p.stack.crypt.is_some()
}

/// One line of the table.
macro_rules! parameter {
    ($name:literal, $section:ident, $applies:expr, |$p:ident, $v:ident| $set:expr, |$q:ident| $print:expr) => {
        Parameter {
            name: $name,
            section: Section::$section,
            applies: $applies,
            set: |$p, $v| {
                $set;
                Ok(())
            },
            print: |$q| $print,
        }
    };
}

/// Every parameter, in the order in which factors are expanded: what others depend on comes first.
pub static PARAMETERS: &[Parameter] = &[
    parameter!("part", Factors, in_a_part, |p, v| v.clone_into(&mut p.part), |p| p.part.clone()),
    parameter!("target", Factors, always, |p, v| p.target = subject(v)?, |p| match p.target {
        CellTarget::Array => "array".to_owned(),
        CellTarget::Drive => "drive".to_owned(),
    }),
    parameter!("drive", Rig, always, |p, v| v.clone_into(&mut p.rig.drive), |p| p.rig.drive.clone()),
    parameter!("controller", Rig, always, |p, v| v.clone_into(&mut p.rig.controller), |p| p
        .rig
        .controller
        .clone()),
    parameter!("cpu", Rig, always, |p, v| v.clone_into(&mut p.rig.cpu), |p| p.rig.cpu.clone()),
    parameter!("block", Rig, always, |p, v| v.clone_into(&mut p.rig.block), |p| p.rig.block.clone()),
    parameter!("policy", Rig, always, |p, v| policy(v)?.name.clone_into(&mut p.rig.policy), |p| p
        .rig
        .policy
        .clone()),
    parameter!("count", Rig, always, |p, v| p.rig.count = members(v)?, |p| p.rig.count.to_string()),
    parameter!("level", Array, on_array, |p, v| p.array.level = level(v)?, |p| p.array.level.to_string()),
    parameter!("layout", Array, on_array, |p, v| p.array.layout = Some(v.to_owned()), |p| p
        .layout()
        .map_or_else(|_| p.array.layout.clone().unwrap_or_default(), |l| l.to_string())),
    parameter!("raid_devices", Array, on_array, |p, v| p.array.raid_devices = Some(members(v)?), |p| p
        .members()
        .to_string()),
    parameter!(
        "stripe_cache_size",
        Array,
        Parameters::has_parity,
        |p, v| p.array.stripe_cache_size = cache(v)?,
        |p| p.array.stripe_cache_size.to_string()
    ),
    parameter!(
        "group_thread_cnt",
        Array,
        Parameters::has_workers,
        |p, v| p.array.group_thread_cnt = workers(v)?,
        |p| p.array.group_thread_cnt.to_string()
    ),
    parameter!("chunk", Array, with_chunks, |p, v| p.array.chunk = chunk(v)?, |p| print_chunk(p.array.chunk)),
    parameter!("shards", Array, on_array, |p, v| p.array.shards = shards(v)?, |p| p.array.shards.to_string()),
    parameter!("failed", Array, on_array, |p, v| p.array.failed = number(v, 0, MEMBERS_MAX as u64)?, |p| p
        .array
        .failed
        .to_string()),
    parameter!("bitmap", Array, with_redundancy, |p, v| p.array.has_bitmap = bitmap(v)?, |p| {
        if p.array.has_bitmap { "internal" } else { "none" }.to_owned()
    }),
    parameter!("bitmap_chunk", Array, with_bitmap, |p, v| p.array.bitmap_chunk = bitmap_chunk(v)?, |p| p
        .array
        .bitmap_chunk
        .map_or_else(|| "default".to_owned(), |bytes| print_chunk(bytes.into()))),
    parameter!(
        "bitmap_delay",
        Array,
        with_bitmap,
        |p, v| p.array.bitmap_delay = number(v, 1, 86_400)?,
        |p| p.array.bitmap_delay.to_string()
    ),
    parameter!("work", Job, always, |p, v| p.work = work(v)?, |p| p.work.name().to_owned()),
    parameter!("trace", Job, replays, |p, v| p.trace = Some(trace(v)?), |p| p
        .trace
        .as_ref()
        .map_or_else(String::new, |t| t.file.clone())),
    parameter!("speed", Job, replays, |p, v| p.speed = v.parse()?, |p| p.speed.to_string()),
    parameter!("speed_limit_min", Array, syncs, |p, v| p.array.speed_limit_min = speed(v)?, |p| p
        .array
        .speed_limit_min
        .to_string()),
    parameter!("speed_limit_max", Array, syncs, |p, v| p.array.speed_limit_max = speed(v)?, |p| p
        .array
        .speed_limit_max
        .to_string()),
    parameter!("rw", Job, runs_a_job, |p, v| p.job.rw = v.parse()?, |p| p.job.rw.to_string()),
    parameter!("rwmixread", Job, mixed, |p, v| p.job.rwmixread = percent(v)?, |p| p
        .job
        .rwmixread
        .to_string()),
    parameter!("numjobs", Job, runs_a_job, |p, v| p.job.numjobs = at_least(v, 1)?, |p| p
        .job
        .numjobs
        .to_string()),
    parameter!("iodepth", Job, runs_a_job, |p, v| p.job.iodepth = at_least(v, 1)?, |p| p
        .job
        .iodepth
        .to_string()),
    parameter!("bs", Job, runs_a_job, |p, v| p.job.bs = block(v)?, |p| print_size(p.job.bs)),
    parameter!("direct", Job, does_io, |p, v| p.job.direct = switch(v)?, |p| u8::from(p.job.direct)
        .to_string()),
    parameter!("fsync", Job, runs_a_job, |p, v| p.job.fsync = at_least(v, 0)?, |p| p.job.fsync.to_string()),
    parameter!("run", Job, random, |p, v| p.job.run = Some(parse_size(v)?), |p| p
        .job
        .run
        .map_or_else(|| "bs".to_owned(), print_size)),
    parameter!("run_fsync", Job, in_runs, |p, v| p.job.run_fsync = switch(v)?, |p| u8::from(p.job.run_fsync)
        .to_string()),
    parameter!("memory", Stack, buffered, |p, v| p.stack.memory = parse_size(v)?, |p| print_size(
        p.stack.memory
    )),
    parameter!("readahead", Stack, buffered, |p, v| p.stack.readahead = sectors(v)?, |p| p
        .stack
        .readahead
        .map_or_else(|| "default".to_owned(), |n| n.to_string())),
    parameter!("dirty_ratio", Stack, buffered, |p, v| p.stack.dirty_ratio = Some(percent(v)?), |p| p
        .stack
        .dirty_ratio
        .map_or_else(|| "default".to_owned(), |n| n.to_string())),
    parameter!(
        "dirty_background_ratio",
        Stack,
        buffered,
        |p, v| p.stack.dirty_background_ratio = Some(percent(v)?),
        |p| p.stack.dirty_background_ratio.map_or_else(|| "default".to_owned(), |n| n.to_string())
    ),
    parameter!("crypt", Stack, always, |p, v| p.stack.crypt = cipher(v)?, |p| p
        .stack
        .crypt
        .map_or("none", Cipher::name)
        .to_owned()),
    parameter!("crypt_offset", Stack, encrypted, |p, v| p.stack.crypt_offset = aligned(v)?, |p| print_size(
        p.stack.crypt_offset
    )),
    parameter!("fs", Stack, may_have_fs, |p, v| p.stack.fs = file_system(v)?, |p| p
        .stack
        .fs
        .map_or("none", FsKind::name)
        .to_owned()),
    parameter!("mkfs", Stack, on_fs, |p, v| p.stack.mkfs = mkfs(v)?, |p| p.stack.mkfs.name().to_owned()),
    parameter!("stride", Stack, on_ext, |p, v| p.stack.stride = blocks(v)?, |p| print_size(p.stack.stride)),
    parameter!("inode_ratio", Stack, on_ext, |p, v| p.stack.inode_ratio = number(v, 1024, 1 << 26)?, |p| p
        .stack
        .inode_ratio
        .to_string()),
    parameter!("inodes", Stack, on_ext, |p, v| p.stack.inodes = inodes(v)?, |p| p
        .stack
        .inodes
        .map_or_else(|| "default".to_owned(), |n| n.to_string())),
    parameter!("inode_size", Stack, on_ext, |p, v| p.stack.inode_size = inode_size(v)?, |p| p
        .stack
        .inode_size
        .to_string()),
    parameter!("size", Job, runs_a_job, |p, v| p.job.size = Some(parse_size(v)?), |p| p
        .job
        .size
        .map_or_else(|| "all".to_owned(), print_size)),
    parameter!("offset", Job, runs_a_job, |p, v| p.job.offset = parse_size(v)?, |p| print_size(p.job.offset)),
    parameter!(
        "offset_increment",
        Job,
        runs_a_job,
        |p, v| p.job.offset_increment = Some(parse_size(v)?),
        |p| p.job.offset_increment.map_or_else(|| "default".to_owned(), print_size)
    ),
    parameter!("runtime", Job, takes_its_time, |p, v| p.job.runtime = parse_time(v)?, |p| print_time(
        p.job.runtime
    )),
    parameter!("ramp_time", Job, takes_its_time, |p, v| p.job.ramp_time = parse_time(v)?, |p| print_time(
        p.job.ramp_time
    )),
    parameter!("time_based", Job, runs_a_job, |p, v| p.job.time_based = switch(v)?, |p| u8::from(
        p.job.time_based
    )
    .to_string()),
];

fn subject(text: &str) -> Result<CellTarget, String> {
    match text {
        "array" => Ok(CellTarget::Array),
        "drive" => Ok(CellTarget::Drive),
        _ => Err(format!("'{text}' is not a target; use array or drive")),
    }
}

pub(super) fn policy(text: &str) -> Result<Policy, String> {
    Policy::by_name(text).ok_or_else(|| {
        let known = Policy::ALL.map(|p| p.name).join(", ");
        format!("'{text}' is not a policy; use one of {known}")
    })
}

fn level(text: &str) -> Result<Level, String> {
    text.parse().map_err(|e: stripewise_engine::level::UnknownName| e.to_string())
}

fn members(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(count) if (1..=MEMBERS_MAX as u16).contains(&count) => Ok(count),
        _ => Err(format!("'{text}' is not a number of members; an array has 1 to {MEMBERS_MAX}")),
    }
}

fn chunk(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes == 0 || !bytes.is_multiple_of(4096) || bytes > 1 << 30 {
        return Err(format!(
            "'{text}' is not a chunk; a chunk is a power of two from 4K to 1024M, of raid0 any multiple of 4K up to that"
        ));
    }
    Ok(bytes)
}

fn bitmap(text: &str) -> Result<bool, String> {
    match text {
        "none" => Ok(false),
        "internal" => Ok(true),
        _ => Err(format!("'{text}' is not a bitmap; use none or internal")),
    }
}

/// The largest power of two that a bitmap's superblock holds.
const BITMAP_CHUNK_MAX: u64 = 2 << 30;

fn bitmap_chunk(text: &str) -> Result<Option<u32>, String> {
    if text == "default" {
        return Ok(None);
    }
    let bytes = parse_size(text)?;
    if bytes < 4096 || !bytes.is_power_of_two() || bytes > BITMAP_CHUNK_MAX {
        return Err(format!(
            "'{text}' is not a bitmap_chunk; use a power of two from 4K to 2048M, or default for mdadm's choice"
        ));
    }
    Ok(u32::try_from(bytes).ok())
}

fn block(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    Job { bs: bytes, ..Job::default() }.check().map_err(|e| e.to_string())?;
    Ok(bytes)
}

fn cache(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(entries) if (17..=32_768).contains(&entries) => Ok(entries),
        _ => Err(format!("'{text}' is not a stripe_cache_size; md takes 17 to 32768 entries")),
    }
}

fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(workers) if workers <= 8192 => Ok(workers),
        _ => Err(format!("'{text}' is not a group_thread_cnt; md takes 0 to 8192 threads")),
    }
}

fn shards(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(shards) if (1..=SHARDS_MAX).contains(&shards) => Ok(shards),
        _ => Err(format!("'{text}' is not a number of shards; an array has 1 to {SHARDS_MAX}")),
    }
}

fn percent(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(percent) if percent <= 100 => Ok(percent),
        _ => Err(format!("'{text}' is not a percentage; write 0 to 100")),
    }
}

fn at_least(text: &str, least: u32) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if count >= least => Ok(count),
        _ => Err(format!("'{text}' is not a number from {least} on")),
    }
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(format!("'{text}' is not a switch; write 1 or 0")),
    }
}

fn work(text: &str) -> Result<Work, String> {
    Work::ALL.into_iter().find(|w| w.name() == text).ok_or_else(|| {
        let known = Work::ALL.map(Work::name).join(", ");
        format!("'{text}' is not a kind of work; use one of {known}")
    })
}

fn trace(text: &str) -> Result<std::sync::Arc<Trace>, String> {
    Trace::shared(std::path::Path::new(text)).map_err(|e| e.to_string())
}

fn cipher(text: &str) -> Result<Option<Cipher>, String> {
    if text == "none" {
        return Ok(None);
    }
    let found = Cipher::ALL.into_iter().find(|c| c.name() == text);
    found.map(Some).ok_or_else(|| {
        let known = Cipher::ALL.map(Cipher::name).join(", ");
        format!("'{text}' is not a cipher; use one of none, {known}")
    })
}

fn aligned(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(format!("'{text}' is not an offset; it must be a multiple of {SECTOR_BYTES} bytes"));
    }
    Ok(bytes)
}

/// The largest readahead: that of the largest page cache.
const READAHEAD_MAX: u64 = stripewise_engine::cache::MEMORY_BYTES_MAX / 2 / SECTOR_BYTES;

fn sectors(text: &str) -> Result<Option<u64>, String> {
    match text.parse() {
        _ if text == "default" => Ok(None),
        Ok(count) if (8..=READAHEAD_MAX).contains(&count) => Ok(Some(count)),
        _ => Err(format!(
            "'{text}' is not a readahead; write sectors of 512 bytes, 8 to {READAHEAD_MAX}, or default for md's"
        )),
    }
}

fn speed(text: &str) -> Result<u32, String> {
    number(text, 1, 1 << 30)
}

fn number<T: TryFrom<u64>>(text: &str, least: u64, most: u64) -> Result<T, String> {
    let found = text.parse().ok().filter(|n| (least..=most).contains(n)).and_then(|n| T::try_from(n).ok());
    found.ok_or_else(|| format!("'{text}' is not a number from {least} to {most}"))
}

fn file_system(text: &str) -> Result<Option<FsKind>, String> {
    if text == "none" {
        return Ok(None);
    }
    let found = FsKind::ALL.into_iter().find(|fs| fs.name() == text);
    found.map(Some).ok_or_else(|| {
        let known = FsKind::ALL.map(FsKind::name).join(", ");
        format!("'{text}' is not a file system; use one of none, {known}")
    })
}

fn mkfs(text: &str) -> Result<MkfsYear, String> {
    let found = MkfsYear::ALL.into_iter().find(|year| year.name() == text);
    found.ok_or_else(|| {
        format!("'{text}' is not a year of mkfs; use 2006 (e2fsprogs 1.39, xfsprogs 2.8) or 2023 (1.47, 6.1)")
    })
}

/// The largest stride: a group.
const STRIDE_MAX: u64 = 128 << 20;

fn blocks(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if !bytes.is_multiple_of(BLOCK_BYTES) || bytes > STRIDE_MAX {
        return Err(format!(
            "'{text}' is not a stride; it is a multiple of 4k, at most {}",
            print_size(STRIDE_MAX)
        ));
    }
    Ok(bytes)
}

fn inodes(text: &str) -> Result<Option<u64>, String> {
    if text == "default" {
        return Ok(None);
    }
    number(text, 1, u32::MAX.into()).map(Some)
}

fn inode_size(text: &str) -> Result<u64, String> {
    let bytes = number(text, 128, BLOCK_BYTES)?;
    if !u64::is_power_of_two(bytes) {
        return Err(format!("'{text}' is not an inode size; it is a power of two from 128 to {BLOCK_BYTES}"));
    }
    Ok(bytes)
}
