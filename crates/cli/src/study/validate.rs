//! `stripewise study validate`.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use stripewise_lab::validate::counts::{self, CountRow};
use stripewise_lab::validate::report::{ERROR_MEDIAN, ERROR_WORST, SECTORS_WITHIN, Summary};
use stripewise_lab::validate::syncs::{self, SyncRow};
use stripewise_lab::validate::times::{self, CPU_SHARE_MAX, TimeRow};
use stripewise_lab::validate::{Shape, Validation, check_programs};

use crate::args::{ValidateArgs, ValidatePart};
use crate::array::signals::{is_watched, stop_flag};
use crate::exit::{Exit, Impossible};
use crate::output::{Document, Table, print};

pub(crate) fn run(args: &ValidateArgs) -> Result<Exit> {
    check_programs().map_err(|missing| Impossible(missing.to_string()))?;
    let stripewise = std::env::current_exe().context("this program's own path")?;
    let progress = |text: &str| {
        if is_watched() {
            say_on!("\r\x1b[K{text}");
        }
    };
    let stop = stop_flag()?;
    let wants = |part| args.only.is_none_or(|only| only == part);
    let all = || -> Result<Validation> {
        let (mut counts, mut times, mut syncs, mut loads) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        if wants(ValidatePart::Counts) {
            counts = counts::run(args.quick, &stop, progress)?;
        }
        if [ValidatePart::Times, ValidatePart::Syncs, ValidatePart::Loads].into_iter().any(wants) {
            progress("measuring the way from the kernel to a drive and back");
            let delays = times::delays(&stripewise, &stop)?;
            if wants(ValidatePart::Times) {
                times = times::run(args.quick, &stripewise, delays, &stop, progress)?;
            }
            if wants(ValidatePart::Syncs) {
                syncs = syncs::run(false, args.quick, &stripewise, delays, &stop, progress)?;
            }
            if wants(ValidatePart::Loads) && (!args.quick || args.only.is_some()) {
                loads = syncs::run(true, args.quick, &stripewise, delays, &stop, progress)?;
            }
        }
        Ok(Validation::new(counts, times, syncs, loads))
    };
    let validation = all();
    progress("");
    if stop.load(Ordering::Relaxed) {
        return Ok(Exit::Interrupted);
    }
    let validation = validation?;
    if args.json {
        Document::new("stripewise.study-validate/1", &validation).print()?;
        return Ok(Exit::Done);
    }
    print(&told(&validation))?;
    Ok(Exit::Done)
}

/// For people.
fn told(validation: &Validation) -> String {
    let mut text = String::new();
    if !validation.counts.is_empty() {
        let _ = writeln!(
            text,
            "Requests to the members: sectors read + written by Linux 6.1's md and by the engine\n"
        );
        let _ = writeln!(text, "{}", count_table(&validation.counts));
    }
    if !validation.times.is_empty() {
        let _ =
            writeln!(text, "Throughput: MB/s of Linux 6.1's md and of the engine on the same drive models\n");
        let _ = writeln!(text, "{}", time_table(&validation.times));
    }
    if let Some(row) = validation.times.first() {
        let _ = writeln!(
            text,
            "A command took {:.2} ms between kernel and drive, a thread {:.2} ms from a request's end to its next; the engine's take the same.",
            row.way_us / 1000.0,
            row.turn_us / 1000.0
        );
    }
    if !validation.syncs.is_empty() {
        let _ = writeln!(
            text,
            "Speed of resync, recovery and check: MiB/s as in sync_speed, of Linux 6.1's md and of the engine\n"
        );
        let _ = writeln!(text, "{}", sync_table(&validation.syncs));
    }
    if !validation.loads.is_empty() {
        let _ = writeln!(text, "The same within md's speed limits and beside random reads\n");
        let _ = writeln!(text, "{}", load_table(&validation.loads));
    }
    text.push_str(&summary(&validation.summary));
    text
}

fn array(shape: &Shape) -> String {
    let Shape { level, members, missing, chunk_kib, stripe_cache_size, bitmap_chunk_kib } = shape;
    let without = if *missing > 0 { format!(" without {missing}") } else { String::new() };
    let bitmap = bitmap_chunk_kib.map_or_else(String::new, |kib| format!(", bitmap {kib}K"));
    let array = match level {
        1 => format!("RAID-1 of {members}{without}"),
        10 => format!("RAID-10 of {members}{without}, {chunk_kib}K"),
        _ => format!("RAID-{level} of {members}{without}, {chunk_kib}K, {stripe_cache_size}"),
    };
    array + &bitmap
}

fn count_table(rows: &[CountRow]) -> Table {
    let mut table = Table::new([
        "array, chunk, stripe cache",
        "requests",
        "md",
        "engine",
        "difference",
        "I/Os md",
        "engine",
    ]);
    for row in rows {
        table.row([
            array(&row.cell.shape),
            format!("{} × {}", row.cell.requests.count, row.cell.requests.describe()),
            format!("{} + {}", row.linux.sectors_read, row.linux.sectors_written),
            format!("{} + {}", row.engine.sectors_read, row.engine.sectors_written),
            format!("{:+.1} %", 100.0 * row.difference),
            (row.linux.reads + row.linux.writes).to_string(),
            (row.engine.reads + row.engine.writes).to_string(),
        ]);
    }
    table
}

fn time_table(rows: &[TimeRow]) -> Table {
    let mut table =
        Table::new(["drive", "array, chunk, stripe cache", "requests", "md", "engine", "error", "CPU"]);
    for row in rows {
        let [linux, engine] = row.rates();
        let error = format!("{:+.1} %", 100.0 * row.error);
        table.row([
            row.cell.drive.describe(),
            array(&row.cell.shape),
            format!("{} × {}", row.cell.requests.count, row.cell.requests.describe()),
            format!("{linux:.2}"),
            format!("{engine:.2}"),
            if row.is_judged { error } else { format!("({error})") },
            format!("{:.0} %", 100.0 * row.cpu_s / row.linux_s),
        ]);
    }
    table
}

fn sync_table(rows: &[SyncRow]) -> Table {
    let mut table =
        Table::new(["drive", "array, chunk, stripe cache", "work", "md", "engine", "error", "CPU"]);
    for row in rows {
        let error = format!("{:+.1} %", 100.0 * row.error);
        table.row([
            row.cell.drive.describe(),
            array(&row.cell.shape),
            row.cell.action.name().to_owned(),
            format!("{:.2}", row.linux_kib_s / 1024.0),
            format!("{:.2}", row.engine_kib_s / 1024.0),
            if row.is_judged { error } else { format!("({error})") },
            format!("{:.0} %", 100.0 * row.cpu_share),
        ]);
    }
    table
}

fn load_table(rows: &[SyncRow]) -> Table {
    let mut table = Table::new([
        "drive",
        "array, chunk, stripe cache",
        "work",
        "beside",
        "md",
        "engine",
        "error",
        "IOPS md",
        "engine",
        "CPU",
    ]);
    for row in rows {
        let error = format!("{:+.1} %", 100.0 * row.error);
        let [linux_iops, engine_iops] = row.beside_iops.unwrap_or_default();
        table.row([
            row.cell.drive.describe(),
            array(&row.cell.shape),
            row.cell.action.name().to_owned(),
            row.cell.beside.map_or_else(String::new, |reads| reads.describe()),
            format!("{:.2}", row.linux_kib_s / 1024.0),
            format!("{:.2}", row.engine_kib_s / 1024.0),
            if row.is_judged { error } else { format!("({error})") },
            format!("{linux_iops:.0}"),
            format!("{engine_iops:.0}"),
            format!("{:.0} %", 100.0 * row.cpu_share),
        ]);
    }
    table
}

fn summary(summary: &Summary) -> String {
    let mut text = String::new();
    if summary.counts > 0 {
        let _ = writeln!(
            text,
            "Sectors within {} % of md's: {} of {} cells.",
            100.0 * SECTORS_WITHIN,
            summary.counts_within,
            summary.counts
        );
    }
    let times = [summary.error_median, summary.error_worst];
    text.push_str(&errors("Throughput", times, summary.times_judged, summary.times));
    let syncs = [summary.sync_error_median, summary.sync_error_worst];
    text.push_str(&errors("Speed of resync, recovery and check", syncs, summary.syncs_judged, summary.syncs));
    let loads = [summary.load_error_median, summary.load_error_worst];
    text.push_str(&errors(
        "The same within limits and beside reads",
        loads,
        summary.loads_judged,
        summary.loads,
    ));
    text
}

/// A line of the errors, median and worst, of cells where the drives were the limit.
fn errors(what: &str, [median, worst]: [Option<f64>; 2], judged: usize, cells: usize) -> String {
    let cpu = 100.0 * CPU_SHARE_MAX;
    let wanted = |error: f64, limit: f64| {
        let verdict = if error < limit { "met" } else { "MISSED" };
        format!("{:.1} % (wanted: below {} %, {verdict})", 100.0 * error, 100.0 * limit)
    };
    match (median, worst) {
        (Some(median), Some(worst)) => {
            let others = if judged < cells {
                format!("; in the others the CPU takes more than {cpu} % of the time")
            } else {
                String::new()
            };
            format!(
                "{what}: median error {}, worst {}, over {judged} of {cells} cells{others}.\n",
                wanted(median, ERROR_MEDIAN),
                wanted(worst, ERROR_WORST)
            )
        }
        _ if cells > 0 => format!(
            "{what}: no verdict, as in each of {cells} cells the CPU takes more than {cpu} % of the time: run the validation on an \
             idle machine, or at real-time priority (chrt -r 5).\n"
        ),
        _ => String::new(),
    }
}
