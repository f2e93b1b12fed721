//! `stripewise bench`: one workload on one array or drive.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Result, anyhow};
use serde::Serialize;
use stripewise_lab::cell::Cell;
use stripewise_lab::plan::{CellTarget, Fill, Parameter, Parameters, RealStorage, Work, find};
use stripewise_lab::results::DirectionResult;
use stripewise_lab::study::Filling;
use stripewise_lab::targets::{self, Target, TargetOptions};
use stripewise_lab::workload::parse_size;

mod itself;

use crate::args::BenchArgs;
use crate::exit::{Exit, Impossible};
use crate::output::{Document, print};
use crate::progress::{Bar, cancel_flag};

/// What holds unless an option says otherwise: the drive of the chunk-size study. The rest of the rig is the drive's usual one.
const DEFAULTS: [(&str, &str); 2] = [("drive", "st31000333as"), ("runtime", "5s")];

#[derive(Serialize)]
struct Measurement<'a> {
    target: String,
    description: String,
    simulated: bool,
    parameters: &'a BTreeMap<String, String>,
    seed: u64,
    seconds: f64,
    read: &'a DirectionResult,
    write: &'a DirectionResult,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    figures: &'a BTreeMap<String, f64>,
    notes: Vec<String>,
}

pub(crate) fn run(args: &BenchArgs) -> Result<Exit> {
    if let Some(word) = &args.of_itself {
        if let Some((name, _)) = args.parameters().first() {
            return Err(Impossible(format!(
                "{}: does not go with --self, whose rows are fixed; leave it out",
                args.option(name)
            ))
            .into());
        }
        return itself::run(word, args.quick, args.json);
    }
    run_with(args, |_| Ok(()))
}

/// Runs what the options say with parameters that are no options; refuses options that then make no difference.
pub(crate) fn run_with(
    args: &BenchArgs,
    besides: impl FnOnce(&mut Parameters) -> Result<(), String>,
) -> Result<Exit> {
    let cell = cell(args, besides).map_err(Impossible)?;
    let (kind, rest) = targets::parse(&args.on).map_err(|e| Impossible(format!("--on: {e:#}")))?;
    if kind.is_real
        && let Some((name, _)) = args.parameters().iter().find(|(name, _)| is_of_rig(name))
    {
        return Err(Impossible(format!(
            "--{name}: sets a part of the modelled rig, but {} is real; use --on model",
            kind.name
        ))
        .into());
    }
    let given = args.member_size.as_deref().map(parse_size).transpose();
    let given = given.map_err(|e| Impossible(format!("--member-size: {e}")))?;
    let options = TargetOptions {
        storage: RealStorage { member_bytes: None, fill: Fill::default() },
        member_bytes: given,
        fill: args.fill.map(Fill::from),
        members_max: cell.parameters.members(),
        keep: args.keep,
    };
    let target = (kind.open)(rest, &options).map_err(|e| Impossible(format!("{e:#}")))?;
    target.check(&cell).map_err(Impossible)?;
    measure(args, &cell, target.as_ref())
}

fn is_of_rig(name: &str) -> bool {
    find(name).is_ok_and(Parameter::is_of_rig)
}

fn cell(
    args: &BenchArgs,
    besides: impl FnOnce(&mut Parameters) -> Result<(), String>,
) -> Result<Cell, String> {
    let mut parameters = Parameters::default();
    for (name, value) in DEFAULTS.into_iter().chain(args.parameters()) {
        parameters.set(name, value).map_err(|e| format!("{}: {e}", args.option(name)))?;
        if name == "raid_devices" {
            parameters.set("count", value)?;
        }
    }
    parameters.rig = parameters.rig.completed().map_err(|e| format!("the rig: {e}"))?;
    besides(&mut parameters)?;
    for (name, _) in args.parameters() {
        if parameters.work == Work::Trace && is_idle(name, &parameters) {
            return Err(format!("{}: has no effect on a trace; leave it out", args.option(name)));
        }
    }
    if parameters.target == CellTarget::Drive && parameters.array.has_bitmap {
        return Err("--bitmap: a single drive has no bitmap; leave it out".to_owned());
    }
    parameters.check()?;
    parameters.job.randseed = args.randseed;
    Ok(Cell::single(parameters))
}

/// Whether a parameter makes no difference beside the others.
fn is_idle(name: &str, parameters: &Parameters) -> bool {
    find(name).is_ok_and(|parameter| !(parameter.applies)(parameters))
}

/// A sentence for each option that makes no difference to what is measured.
fn without_effect(args: &BenchArgs, parameters: &Parameters) -> Vec<String> {
    let given = args.parameters();
    let idle = given.iter().map(|(name, _)| *name).filter(|name| is_idle(name, parameters));
    idle.map(|name| format!("{} has no effect here", args.option(name))).collect()
}

fn measure(args: &BenchArgs, cell: &Cell, target: &dyn Target) -> Result<Exit> {
    let cancel = cancel_flag("an interrupted workload has no figures")?;
    let (mut bar, total_bytes) = (Bar::new(), target.fill_bytes());
    let started = Instant::now();
    target
        .begin(&cancel, &mut |done_bytes| bar.show_filling(Filling { done_bytes, total_bytes }, started))?;
    bar.finish();
    let measured = target.run(cell, &Arc::clone(&cancel));
    if cancel.load(Ordering::Relaxed) {
        return Ok(Exit::Interrupted);
    }
    let measured = measured.map_err(|e| anyhow!("{}: {e}", target.name()))?;
    let mut notes = without_effect(args, &cell.parameters);
    let is_idle = measured.read.ios + measured.write.ios == 0 && cell.parameters.work == Work::Job;
    if is_idle {
        notes.push("no I/O completed in this time; use a longer --runtime".to_owned());
    }
    notes.extend(measured.notes);
    let mut parameters = cell.factors.clone();
    parameters.retain(|name, _| target.is_simulated() || !is_of_rig(name));
    let measurement = Measurement {
        target: target.name(),
        description: target.describe(std::slice::from_ref(cell)),
        simulated: target.is_simulated(),
        parameters: &parameters,
        seed: cell.seed(),
        seconds: measured.seconds,
        read: &measured.read,
        write: &measured.write,
        figures: &measured.figures,
        notes,
    };
    if args.json {
        Document::new("stripewise.bench/1", &measurement).print()?;
    } else {
        print(&text(&measurement))?;
    }
    Ok(if is_idle { Exit::CellsFailed } else { Exit::Done })
}

fn text(document: &Measurement<'_>) -> String {
    let kind = if document.simulated { "simulated" } else { "measured" };
    let mut text = format!("{} ({kind})\n", document.description);
    let parameters: Vec<String> = document.parameters.iter().map(|(n, v)| format!("{n}={v}")).collect();
    let _ = writeln!(text, "{}", parameters.join(" "));
    for (name, direction) in [("read", document.read), ("write", document.write)] {
        if direction.ios > 0 {
            direction_lines(&mut text, name, direction, document.seconds);
        }
    }
    flush_lines(&mut text, document.figures);
    let is_told = |name: &str| FLUSH.contains(&name);
    let figures = document.figures.iter().filter(|(name, _)| !is_told(name));
    let figures: Vec<String> = figures.map(|(n, v)| format!("{n}={v:.4}")).collect();
    if !figures.is_empty() {
        let _ = writeln!(text, "        {}", figures.join(" "));
    }
    for note in &document.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// The figures of flushes, which have lines of their own.
const FLUSH: [&str; 3] = ["flushes", "flush_mean_ms", "flush_p99_ms"];

/// How long flushes took, where there were any.
fn flush_lines(text: &mut String, figures: &BTreeMap<String, f64>) {
    let [Some(flushes), Some(mean_ms), Some(p99_ms)] = FLUSH.map(|name| figures.get(name)) else { return };
    let _ = writeln!(text, "  sync: {flushes:.0} flushes");
    let _ = writeln!(text, "        sync (us): avg {:.1}, p99 {:.1}", mean_ms * 1e3, p99_ms * 1e3);
}

fn direction_lines(text: &mut String, name: &str, direction: &DirectionResult, seconds: f64) {
    let micros = |nanos: u64| format!("{:.1}", nanos as f64 / 1e3);
    let bandwidth = direction.bytes as f64 / seconds / 1e6;
    let places = if bandwidth < 1.0 { 3 } else { 1 };
    let _ = writeln!(
        text,
        "{name:>6}: IOPS {:.0}, BW {bandwidth:.places$} MB/s, {} I/Os in {seconds:.3} s",
        direction.ios as f64 / seconds,
        direction.ios
    );
    let _ = writeln!(
        text,
        "        lat (us): avg {:.1}, p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
        direction.latency_mean_ns / 1e3,
        micros(direction.latency_p50_ns),
        micros(direction.latency_p90_ns),
        micros(direction.latency_p99_ns),
        micros(direction.latency_p999_ns),
        micros(direction.latency_max_ns)
    );
}
