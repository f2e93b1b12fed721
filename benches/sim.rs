//! The simulator's speed on representative cells: simulated member I/Os a second, and virtual seconds a real
//! second, on one core with phantom buffers. Seconds are of CPU time where the kernel tells it, so that a busy
//! machine does not count. `cargo bench -p stripewise-sim`.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

#[path = "../crates/sim/tests/support/mod.rs"]
mod support;

use std::process::Command;
use std::time::Instant;
use stripewise_sim::{SimConfig, run};
use support::{ClosedLoop, DRIVE_SECTORS, raid5, single};

/// A cell: name, array, threads, block size in KiB, random, percentage of reads, virtual seconds.
type Cell = (&'static str, SimConfig, u32, u64, bool, u64, f64);

const ARRAY_SECTORS: u64 = DRIVE_SECTORS / 2048 * 2048 * 4;
const ROUNDS: usize = 5;

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": ").map(|(_, m)| m.to_owned()));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{}, {cpus} CPUs", model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()))
}

/// Seconds this thread has been on a CPU, if the kernel tells.
fn on_cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(stat.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

fn main() {
    let cells: [Cell; 6] = [
        ("random read 4k, 20 threads, RAID-5 64K", raid5(5, 64, 1), 20, 4, true, 100, 400.0),
        ("random read 4k, 20 threads, one drive", single("st31000333as", 1), 20, 4, true, 100, 1000.0),
        ("sequential read 4k, 1 thread, RAID-5 64K", raid5(5, 64, 1), 1, 4, false, 100, 40.0),
        ("sequential write 1m, 1 thread, RAID-5 64K", raid5(5, 64, 1), 1, 1024, false, 0, 200.0),
        ("random write 64k, 20 threads, RAID-5 64K", raid5(5, 64, 1), 20, 64, true, 0, 200.0),
        ("random write 64m, 20 threads, RAID-5 4K", raid5(5, 4, 1), 20, 65_536, true, 0, 20.0),
    ];
    println!("machine: {}", machine());
    println!("commit: {}", first_line("git", &["rev-parse", "--short=12", "HEAD"]));
    let clock = if on_cpu().is_some() { "CPU" } else { "wall-clock" };
    println!(
        "{ROUNDS} rounds each, {clock} seconds; member I/Os a second of every round, then the best round\n"
    );
    let only = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    for (name, config, threads, block_kib, random, read_percent, seconds) in cells {
        if !name.contains(&only) {
            continue;
        }
        let sectors = if name.ends_with("one drive") { DRIVE_SECTORS } else { ARRAY_SECTORS };
        let (mut samples, mut best, mut moved) = (Vec::new(), (0.0_f64, 0.0, 0), 0.0);
        for _ in 0..ROUNDS {
            let mut workload =
                ClosedLoop::new(threads, block_kib * 1024, random, read_percent, sectors, seconds);
            let (began, began_cpu) = (Instant::now(), on_cpu());
            let report = run(&config, &mut workload).expect("the cell is possible");
            let wall = began.elapsed().as_secs_f64();
            let real = on_cpu().zip(began_cpu).map_or(wall, |(end, start)| end - start);
            moved = workload.megabytes_per_second();
            let rate = report.member_ios as f64 / real;
            samples.push(format!("{:.2}", rate / 1e6));
            if rate > best.0 {
                best = (rate, report.end.0 as f64 / 1e9 / real, report.events);
            }
        }
        println!("{name}: {moved:.2} MB/s simulated\n  {} million I/Os/s", samples.join(" "));
        println!("  best: {:.2} million I/Os/s, {:.0} virtual s/s, {} events", best.0 / 1e6, best.1, best.2);
    }
}
