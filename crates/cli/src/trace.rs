//! `stripewise trace`: recorded requests.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, Subcommand};
use stripewise_lab::plan::Work;
use stripewise_lab::trace::{OpSummary, Summary, Trace, TraceError};
use stripewise_lab::workload::print_size;

use crate::args::BenchArgs;
use crate::array::serve::{ServeArgs, run_device, run_traced};
use crate::bench;
use crate::exit::{Exit, Impossible};
use crate::output::{Document, Table, print};

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Serve an array as `serve` does, or a file or device as it is, and record every request.
    Record(Box<RecordArgs>),
    /// Summarize a trace.
    Show(ShowArgs),
    /// Replay a trace on an array or drive: modelled, in memory or on files.
    ///
    /// A request starts once every request has completed that had completed before it in the recording; requests that
    /// overlapped may overlap again. Data are not recorded: writes send pseudo-random bytes.
    #[command(mut_arg("of_itself", |arg| arg.hide(true)), mut_arg("quick", |arg| arg.hide(true)))]
    Replay(Box<ReplayArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Trace file; an existing trace is replaced.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Serve this file or device as it is instead of an array (a block device is written to only if --destroy names it,
    /// too).
    #[arg(long, value_name = "FILE")]
    device: Option<PathBuf>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Trace file.
    file: PathBuf,
    /// Use the records of a trace that is cut short.
    #[arg(long)]
    partial: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Trace file.
    file: PathBuf,
    /// Pace: asap, 1x for the recorded times, 2x for twice as fast, and so on from 0.001x to 1000x.
    #[arg(long, value_name = "SPEED", default_value = "asap")]
    speed: String,
    /// Use the records of a trace that is cut short.
    #[arg(long)]
    partial: bool,
    #[command(flatten)]
    bench: BenchArgs,
}

pub(crate) fn run(command: &TraceCommand) -> Result<Exit> {
    match command {
        TraceCommand::Record(args) if args.serve.trace.is_some() => {
            Err(Impossible("--trace: --output names the trace; leave it out".to_owned()).into())
        }
        TraceCommand::Record(args) => match &args.device {
            Some(device) => run_device(&args.serve, device, &args.output),
            None => run_traced(&args.serve, Some(&args.output)),
        },
        TraceCommand::Show(args) => show(args),
        TraceCommand::Replay(args) if args.bench.of_itself.is_some() || args.bench.quick => {
            Err(Impossible("--self and --quick are for `stripewise bench`; leave them out".to_owned()).into())
        }
        TraceCommand::Replay(args) => replay(args),
    }
}

fn show(args: &ShowArgs) -> Result<Exit> {
    let summary = Summary::of(&read(&args.file, args.partial)?);
    if args.json {
        Document::new("stripewise.trace/1", &summary).print()?;
    } else {
        print(&text(&summary))?;
    }
    Ok(Exit::Done)
}

/// A number of things in words.
fn counted(number: usize, name: &str) -> String {
    format!("{number} {name}{}", if number == 1 { "" } else { "s" })
}

fn text(summary: &Summary) -> String {
    let mut text = format!(
        "{}: {} of {} in {:.3} s on a device of {}; up to {} in flight at once, {:.2} on average\n",
        summary.file,
        counted(summary.requests as usize, "request"),
        counted(summary.streams as usize, "client"),
        summary.seconds,
        print_size(summary.device_bytes),
        summary.in_flight_max,
        summary.in_flight_mean
    );
    if summary.cut_short {
        text.push_str("the trace is cut short: the figures are of the records before the cut\n");
    }
    let mut table =
        Table::new(["operation", "requests", "bytes", "FUA", "failed", "random", "mean us", "max us"]);
    for op in &summary.operations {
        table.row([
            op.operation.to_owned(),
            op.requests.to_string(),
            print_size(op.bytes),
            op.fua.to_string(),
            op.failed.to_string(),
            format!("{:.0} %", op.random_share * 100.0),
            format!("{:.1}", op.latency_mean_ns / 1e3),
            format!("{:.1}", op.latency_max_ns as f64 / 1e3),
        ]);
    }
    let _ = write!(text, "{table}");
    for op in &summary.operations {
        if op.bytes > 0 {
            let _ = writeln!(text, "  {} sizes: {}", op.operation, sizes(op));
        }
    }
    text
}

/// The most frequent sizes.
fn sizes(op: &OpSummary) -> String {
    let mut sizes: Vec<_> = op.sizes.iter().collect();
    sizes.sort_by_key(|(size, count)| (std::cmp::Reverse(**count), **size));
    let shown = sizes.iter().take(8).map(|(size, count)| format!("{} × {count}", print_size(**size)));
    let mut words: Vec<String> = shown.collect();
    if sizes.len() > words.len() {
        words.push(format!("and {} more", sizes.len() - words.len()));
    }
    words.join(", ")
}

fn replay(args: &ReplayArgs) -> Result<Exit> {
    let trace = Arc::new(read(&args.file, args.partial)?);
    let speed = args.speed.parse().map_err(|e| Impossible(format!("--speed: {e}")))?;
    bench::run_with(&args.bench, |parameters| {
        parameters.work = Work::Trace;
        parameters.trace = Some(trace);
        parameters.speed = speed;
        Ok(())
    })
}

fn read(path: &Path, partial: bool) -> Result<Trace, TraceError> {
    if partial { Trace::read_partial(path) } else { Trace::read(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_is_one_client() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "client")), ["0 clients", "1 client", "2 clients"]);
    }
}
