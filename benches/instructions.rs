//! Operations whose instructions are counted: `instructions OPERATION COUNT` does one of them so many times and prints
//! nothing. tests/bench/instructions.py runs it under callgrind with two counts and takes the difference.
//!
//! Without arguments every operation is done a few times, to show that it can be.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail};
use stripewise_engine::io::Op;
use stripewise_engine::level::Level;
use stripewise_engine::volume::STRIPE_CACHE_DEFAULT;
use stripewise_format::superblock_1::{Role, Superblock1};
use stripewise_format::uuid::Uuid;
use stripewise_lab::cell::Cell;
use stripewise_lab::plan::Parameters;
use stripewise_lab::selfbench::control::{Driven, Requests};
use stripewise_lab::targets;

type Operation = (&'static str, fn(u64) -> Result<()>);

const OPERATIONS: [Operation; 14] = [
    ("raid0-random-read", |count| engine(Level::Raid0, 5, Requests::random(Op::Read), count)),
    ("raid1-random-read", |count| engine(Level::Raid1, 2, Requests::random(Op::Read), count)),
    ("raid10-random-read", |count| engine(Level::Raid10, 4, Requests::random(Op::Read), count)),
    ("raid5-random-read", |count| engine(Level::Raid5, 5, Requests::random(Op::Read), count)),
    ("raid5-rmw", |count| engine(Level::Raid5, 5, Requests::random(Op::Write), count)),
    ("raid6-rmw", |count| engine(Level::Raid6, 6, Requests::random(Op::Write), count)),
    ("raid5-full-stripe", |count| engine(Level::Raid5, 5, Requests::sequential(Op::Write, 1024), count)),
    ("raid5-sequential-read-1m", |count| {
        engine(Level::Raid5, 5, Requests::sequential(Op::Read, 2048), count)
    }),
    ("raid5-sequential-write-4k", |count| engine(Level::Raid5, 5, Requests::sequential(Op::Write, 8), count)),
    ("raid10-random-write", |count| engine(Level::Raid10, 4, Requests::random(Op::Write), count)),
    ("simulated-second-random-read", |count| simulated("randread", "4k", count)),
    ("simulated-second-random-write", |count| simulated("randwrite", "64k", count)),
    ("superblock-parse", superblock_parse),
    ("superblock-to-bytes", superblock_to_bytes),
];

fn main() -> Result<()> {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match arguments.as_slice() {
        [] => OPERATIONS.iter().try_for_each(|(name, operation)| {
            println!("{name}");
            operation(2)
        }),
        [name, count] => {
            let found = OPERATIONS.iter().find(|operation| operation.0 == name);
            let (_, operation) = found.with_context(|| format!("no operation is called {name}"))?;
            operation(count.parse().context("COUNT is a number")?)
        }
        _ => bail!("give OPERATION COUNT, or nothing"),
    }
}

fn engine(level: Level, members: usize, requests: Requests, count: u64) -> Result<()> {
    Driven::new(level, members, STRIPE_CACHE_DEFAULT)?.run(requests, count, 1);
    Ok(())
}

/// Seconds of a cell of the chunk-size study: RAID-5 of five, 20 threads.
fn simulated(rw: &str, bs: &str, seconds: u64) -> Result<()> {
    let mut parameters = Parameters::default();
    for (name, value) in [
        ("drive", "st31000333as"),
        ("controller", "88sx6081-pci32"),
        ("cpu", "opteron-244"),
        ("block", "linux-block-2.6.27"),
        ("policy", "linux-2.6.27"),
        ("chunk", "64K"),
        ("numjobs", "20"),
        ("rw", rw),
        ("bs", bs),
        ("runtime", &format!("{seconds}s")),
    ] {
        parameters.set(name, value).map_err(|e| anyhow!("{name}: {e}"))?;
    }
    let cell = Cell::single(parameters);
    targets::model().run(&cell, &Arc::new(AtomicBool::new(false))).map_err(|e| anyhow!("{e}"))?;
    Ok(())
}

/// Of a member of a RAID-5 of five.
fn superblock() -> Superblock1 {
    let mut superblock = Superblock1::new(Level::Raid5, 5, 0, Uuid([7; 16]));
    superblock.layout = 2;
    superblock.chunk_sectors = 128;
    superblock.size_sectors = 1 << 20;
    superblock.data_offset_sectors = 2048;
    superblock.data_size_sectors = 1 << 20;
    superblock.super_offset_sectors = 8;
    for slot in 0..5 {
        superblock.dev_roles[usize::from(slot)] = Role::Slot(slot);
    }
    superblock
}

fn superblock_parse(count: u64) -> Result<()> {
    let bytes = superblock().to_bytes();
    for _ in 0..count {
        std::hint::black_box(
            Superblock1::parse(std::hint::black_box(&bytes), 8).map_err(|e| anyhow!("{e}"))?,
        );
    }
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "as all operations")]
fn superblock_to_bytes(count: u64) -> Result<()> {
    let superblock = superblock();
    for _ in 0..count {
        std::hint::black_box(std::hint::black_box(&superblock).to_bytes());
    }
    Ok(())
}
