//! What the engine's own control flow costs: members and kernels that answer at once, no bytes.
//!
//! `cargo bench -p stripewise-engine [-- --quick] [WORD]` prints nanoseconds per request and per member I/O, of the
//! cases whose name contains the word. `--requests=N` runs N requests of each and measures nothing, for callgrind.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock; the engine does not")]

use std::time::Instant as Clock;

use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::{Action, ActionQueue, Flags, Input, Op, Request, RequestId, Tag, Verdict};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Instant, SectorRange};
use stripewise_engine::volume::{Volume, VolumeConfig};

struct Work {
    name: &'static str,
    op: Op,
    sectors: u64,
    random: bool,
    depth: u32,
}

const WORKS: [Work; 5] = [
    Work { name: "4 KiB random read, QD 64", op: Op::Read, sectors: 8, random: true, depth: 64 },
    Work { name: "4 KiB random write (RMW), QD 64", op: Op::Write, sectors: 8, random: true, depth: 64 },
    Work { name: "4 KiB sequential write, QD 1", op: Op::Write, sectors: 8, random: false, depth: 1 },
    Work { name: "1 MiB sequential write, QD 1", op: Op::Write, sectors: 2048, random: false, depth: 1 },
    Work { name: "1 MiB sequential read, QD 1", op: Op::Read, sectors: 2048, random: false, depth: 1 },
];

/// What waits to be answered.
enum Asked {
    Io(Tag),
    Compute(Tag),
}

/// Runs so many requests; answers how many member I/Os they took. What was asked is answered in batches, in order.
fn drive(volume: &mut Volume, work: &Work, requests: u64) -> u64 {
    let blocks = volume.geometry().array_sectors() / work.sectors;
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut out = ActionQueue::default();
    let (mut asked, mut batch) = (Vec::new(), Vec::new());
    let (mut issued, mut ended, mut ios) = (0, 0, 0);
    let mut free: Vec<u32> = (0..work.depth).collect();
    while ended < requests {
        while issued < requests
            && let Some(id) = free.pop()
        {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let next = if work.random { random } else { issued } % blocks;
            issued += 1;
            let range = SectorRange::new(next * work.sectors, work.sectors);
            let request = Request { id: RequestId(id), op: work.op, range, flags: Flags::default() };
            volume.handle(Instant::ZERO, Input::Request(request), &mut out);
            ended += take(&mut out, &mut asked, &mut free);
        }
        std::mem::swap(&mut asked, &mut batch);
        for one in &batch {
            let answer = match *one {
                Asked::Io(tag) => {
                    ios += 1;
                    Input::IoDone { tag, result: Ok(()) }
                }
                Asked::Compute(tag) => Input::Computed { tag, verdict: Verdict::Consistent },
            };
            volume.handle(Instant::ZERO, answer, &mut out);
            ended += take(&mut out, &mut asked, &mut free);
        }
        batch.clear();
    }
    ios
}

/// Takes what the engine asks for, and the numbers of requests that ended. Answers how many did.
fn take(out: &mut ActionQueue, asked: &mut Vec<Asked>, free: &mut Vec<u32>) -> u64 {
    let mut ended = 0;
    for action in &out.actions {
        match action {
            Action::Io(io) => asked.push(Asked::Io(io.tag)),
            Action::Compute(compute) => asked.push(Asked::Compute(compute.tag)),
            Action::Complete { id, .. } => {
                ended += 1;
                free.push(id.0);
            }
            Action::Replied { .. } | Action::Event(_) => {}
        }
    }
    out.clear();
    ended
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let quick = arguments.iter().any(|a| a == "--quick");
    let counted = arguments.iter().find_map(|a| a.strip_prefix("--requests=")?.parse::<u64>().ok());
    let word = arguments.into_iter().find(|a| !a.starts_with("--")).unwrap_or_default();
    for (level, members, chunk) in
        [(Level::Raid5, 5, 128), (Level::Raid5, 5, 4), (Level::Raid6, 6, 128), (Level::Raid0, 5, 128)]
    {
        println!("{level}, {members} members, {chunk}K chunk, stripe cache 256");
        for work in WORKS.iter().filter(|w| format!("{level} {}", w.name).contains(&word)) {
            let geometry = GeometrySpec {
                level,
                layout: Layout::default_of(level),
                chunk_sectors: chunk * 2,
                member_sectors: vec![1 << 31; members],
            };
            let config = VolumeConfig::new(geometry, Policy::stripewise());
            let mut volume = Volume::new(&config).expect("a possible array");
            if let Some(requests) = counted {
                drive(&mut volume, work, requests);
                continue;
            }
            let requests = if quick { 20_000 } else { 200_000 };
            let requests = if work.sectors > 8 { requests / 20 } else { requests };
            drive(&mut volume, work, requests / 4);
            let mut samples: Vec<(f64, f64)> = (0..5)
                .map(|_| {
                    let start = Clock::now();
                    let ios = drive(&mut volume, work, requests);
                    let nanos = start.elapsed().as_nanos() as f64;
                    (nanos / requests as f64, nanos / ios as f64)
                })
                .collect();
            samples.sort_by(|a, b| a.0.total_cmp(&b.0));
            let raw: Vec<String> = samples.iter().map(|s| format!("{:.0}", s.0)).collect();
            println!(
                "  {:34} {:8.0} ns/request {:6.0} ns/member I/O   ({})",
                work.name,
                samples[2].0,
                samples[2].1,
                raw.join(" ")
            );
        }
    }
}
