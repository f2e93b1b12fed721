//! RAID-5 4+1 on member files past the page cache, beside fio's `io_uring` on the same bare files: bytes that members move.
//!
//! `cargo bench -p stripewise-lab --bench files -- [--quick] [--folder=DIR] [WORD]`. Rounds are interleaved; fio runs a job
//! for every file at once, and what stands beside the array is their sum.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::Op;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_engine::volume::VolumeConfig;
use stripewise_host::{Array, ArrayConfig, FileSpec, Fill, MemberSpec, create_member_file};
use stripewise_lab::environment::{host_cpu, host_kernel};
use stripewise_lab::selfbench::clock::interleaved;
use stripewise_lab::selfbench::loops::{Job, Loop, Share};
use stripewise_lab::selfbench::{Row, Target, Unit, table};

const MEMBERS: usize = 5;
const CHUNK_SECTORS: u64 = 256;
const ASKED: f64 = 0.9;

struct Case {
    name: &'static str,
    job: Job,
    /// What fio does to every file: its rw, block size and depth.
    fio: [&'static str; 3],
}

const fn job(op: Op, bytes: u64, depth: u32, is_random: bool) -> Job {
    Job { op, bytes, depth, buffers: depth, is_random, share: Share::ALL, is_buffered: false }
}

/// fio's depths give members as many I/Os as the array's requests do.
const CASES: [Case; 4] = [
    Case {
        name: "1 MiB sequential read, QD 8",
        job: job(Op::Read, 1 << 20, 8, false),
        fio: ["read", "128k", "13"],
    },
    Case {
        name: "1 MiB sequential write, QD 8",
        job: job(Op::Write, 1 << 20, 8, false),
        fio: ["write", "128k", "16"],
    },
    Case {
        name: "4 KiB random read, QD 35",
        job: job(Op::Read, 4096, 35, true),
        fio: ["randread", "4k", "7"],
    },
    Case {
        name: "4 KiB random write (RMW), QD 32",
        job: job(Op::Write, 4096, 32, true),
        fio: ["randrw", "4k", "13"],
    },
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if arguments.iter().any(|argument| argument == "--test") {
        return Ok(());
    }
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let folder = arguments.iter().find_map(|argument| argument.strip_prefix("--folder=")).unwrap_or(".");
    let word = arguments.iter().find(|argument| !argument.starts_with("--")).cloned().unwrap_or_default();
    let (rounds, seconds, member_bytes) = if is_quick { (1, 1, 64 << 20) } else { (5, 4, 1 << 30) };
    let folder = tempfile::tempdir_in(folder).context("the folder for the members cannot be written to")?;
    let paths: Vec<PathBuf> = (0..MEMBERS).map(|slot| folder.path().join(format!("member{slot}"))).collect();
    for path in &paths {
        create_member_file(path, member_bytes / SECTOR_BYTES, Fill::Written)?;
    }
    let mut array = open(&paths, member_bytes)?;
    let version = fio_version();
    println!("{}, {}, {}", host_cpu(), host_kernel(), version.as_deref().unwrap_or("no fio"));
    println!("members of {} MiB in {}", member_bytes >> 20, folder.path().display());
    array.notes().iter().for_each(|note| println!("note: {note}"));
    print!("{}", table::heading());
    for case in CASES.iter().filter(|case| case.name.contains(&word)) {
        let time = Duration::from_secs(seconds);
        let name = format!("files, RAID-5 4+1, {}", case.name);
        let mut failure = None;
        let [ours, fio] = interleaved(
            rounds,
            [&mut |round| rate(&mut array, case.job, round, time), &mut |round| {
                if version.is_none() {
                    return f64::NAN;
                }
                sum_of_fio(&paths, case.fio, seconds, round).unwrap_or_else(|error| {
                    failure = Some(error);
                    f64::NAN
                })
            }],
        );
        if let Some(error) = failure {
            return Err(error);
        }
        let row = Row::new(name, Unit::GbPerSecond, ours);
        let row = if version.is_none() {
            row.noted("fio is not installed (Debian: apt-get install fio): nothing to compare with")
        } else {
            let [rw, size, depth] = case.fio;
            row.beside(format!("fio io_uring, {rw} {size}, depth {depth} on every file"), fio)
                .asked(Target::RatioAtLeast(ASKED))
        };
        print!("{}", table::row_text(&row, true));
    }
    Ok(())
}

fn open(paths: &[PathBuf], member_bytes: u64) -> Result<Array> {
    let geometry = GeometrySpec {
        level: Level::Raid5,
        layout: Layout::default_of(Level::Raid5),
        chunk_sectors: CHUNK_SECTORS,
        member_sectors: vec![member_bytes / SECTOR_BYTES; MEMBERS],
    };
    let members = paths.iter().map(|path| MemberSpec::File(FileSpec::new(path))).collect();
    Ok(Array::open(ArrayConfig::new(VolumeConfig::new(geometry, Policy::stripewise()), members))?)
}

/// Bytes a second that members move, by the wall clock.
fn rate(array: &mut Array, job: Job, seed: u64, time: Duration) -> f64 {
    let span_bytes = array.geometry().array_sectors() * SECTOR_BYTES;
    match array.run(vec![Loop::new(job, span_bytes, seed, time)]) {
        Ok((report, _)) => {
            let moved: u64 = report.members.iter().map(|m| m.read_sectors + m.write_sectors).sum();
            (moved * SECTOR_BYTES) as f64 / report.elapsed.as_secs_f64()
        }
        Err(_) => f64::NAN,
    }
}

fn fio_version() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Bytes a second of fio's jobs together.
fn sum_of_fio(paths: &[PathBuf], [rw, size, depth]: [&str; 3], seconds: u64, seed: u64) -> Result<f64> {
    let mut command = Command::new("fio");
    command.args([
        "--output-format=json",
        "--ioengine=io_uring",
        "--direct=1",
        "--time_based",
        "--group_reporting",
    ]);
    command.arg(format!("--rw={rw}")).arg(format!("--bs={size}")).arg(format!("--iodepth={depth}"));
    command.arg(format!("--runtime={seconds}")).arg(format!("--randseed={seed}"));
    for (slot, path) in paths.iter().enumerate() {
        command.arg(format!("--name=member{slot}")).arg(named(path)?);
    }
    let output = command.output()?;
    ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |start| &text[start..]);
    let report: serde_json::Value = serde_json::from_str(json).context("fio's report is not JSON")?;
    let jobs = report["jobs"].as_array().context("fio's report has no jobs")?;
    let bytes = |job: &serde_json::Value, side: &str| job[side]["bw_bytes"].as_f64().unwrap_or(0.0);
    Ok(jobs.iter().map(|job| bytes(job, "read") + bytes(job, "write")).sum())
}

fn named(path: &Path) -> Result<String> {
    let path = path.to_str().context("the folder's name is not UTF-8")?;
    // fio takes a colon for the end of a name.
    Ok(format!("--filename={}", path.replace(':', "\\:")))
}
