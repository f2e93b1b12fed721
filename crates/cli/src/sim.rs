//! `stripewise sim`: random arrays under random faults, by seed, and power cuts at every member write.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use stripewise_sim::checker::{
    CrashReport, Outcome, Scenario, Tally, crash_cases, enumerate_crashes, run as run_scenario, shrink,
};

use crate::exit::{Exit, Impossible};
use crate::output::{Document, print};
use crate::progress::cancel_flag;

/// Runs spent on cutting a failing seed down.
const SHRINK_TRIES: u32 = 5_000;
/// Failing seeds after which a swarm ends.
const FAILURES_MAX: usize = 10;

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run random arrays, workloads and faults in the simulator and verify every acknowledged byte.
    Swarm(SwarmArgs),
    /// Run one seed again and print what happens.
    Replay(ReplayArgs),
    /// Cut the power after every member write of small workloads, with every level and policy.
    Crash(CrashArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SwarmArgs {
    /// Number of seeds.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of threads [default: one per core].
    #[arg(long)]
    jobs: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Seed to run.
    seed: u64,
    /// Print the whole run instead of reducing a failing run to the steps that it takes to fail.
    #[arg(long)]
    whole: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CrashArgs {
    /// Number of orders in which members answer to try with each workload.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    orders: u64,
    /// Number of random selections of surviving writes, torn and reordered, to try at each place.
    #[arg(long, default_value_t = 20)]
    samples: u64,
    /// Try every selection of surviving writes at places where at most this many writes are in doubt.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=20))]
    exhaustive: u32,
    /// Number of threads [default: one per core].
    #[arg(long)]
    jobs: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &SimCommand) -> Result<Exit> {
    match command {
        SimCommand::Swarm(args) => swarm(args),
        SimCommand::Replay(args) => replay(args),
        SimCommand::Crash(args) => crash(args),
    }
}

fn jobs(asked: Option<usize>) -> Result<usize> {
    match asked {
        Some(0) => Err(Impossible("--jobs 0: at least one thread is needed".into()).into()),
        Some(jobs) => Ok(jobs),
        None => Ok(thread::available_parallelism().map_or(1, Into::into)),
    }
}

/// Works through `0..count` on all threads until `work` says that it is enough; answers how many were done.
fn on_all_cores(
    jobs: usize,
    count: u64,
    unit: &str,
    work: impl Fn(u64) -> bool + Sync,
) -> Result<(u64, bool)> {
    let interrupted = cancel_flag("the results so far are printed")?;
    let bar = ProgressBar::new(count);
    bar.set_style(ProgressStyle::with_template(&format!(
        "{{bar:28}} {{pos}}/{{len}} {unit}, {{per_sec}}, ETA {{eta}}"
    ))?);
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let ended = std::sync::atomic::AtomicBool::new(false);
    // A panic of the engine is a result here, and reported as one.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) && !interrupted.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    if work(index) {
                        ended.store(true, Ordering::Relaxed);
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    bar.inc(1);
                }
            });
        }
    });
    std::panic::set_hook(hook);
    bar.finish_and_clear();
    Ok((done.into_inner(), interrupted.load(Ordering::Relaxed)))
}

#[derive(Serialize)]
struct SwarmDocument {
    first_seed: u64,
    seeds: u64,
    seconds: f64,
    covered: Covered,
    failures: Vec<FailureLine>,
}

/// What came to pass in all runs together.
#[derive(Serialize)]
struct Covered {
    requests: u64,
    member_writes: u64,
    restarts: u64,
    resyncs: u64,
    recovered_members: u64,
    interrupted: u64,
    checks: u64,
    corrected_read_errors: u64,
    re_added_members: u64,
    flipped_bits: u64,
    failed_arrays: u64,
    listed_sectors: u64,
}

impl Covered {
    const fn of(tally: &Tally) -> Self {
        Self {
            requests: tally.requests,
            member_writes: tally.member_writes,
            restarts: tally.restarts,
            resyncs: tally.resyncs,
            recovered_members: tally.recovered,
            interrupted: tally.interrupted,
            checks: tally.checks,
            corrected_read_errors: tally.corrected,
            re_added_members: tally.re_added,
            flipped_bits: tally.flips,
            failed_arrays: tally.array_failures,
            listed_sectors: tally.listed,
        }
    }
}

#[derive(Clone, Serialize)]
struct FailureLine {
    seed: u64,
    failure: String,
}

#[derive(Default)]
struct Totals {
    tally: Tally,
    failures: Vec<FailureLine>,
}

fn swarm(args: &SwarmArgs) -> Result<Exit> {
    let Some(_) = args.seed.checked_add(args.seeds) else {
        return Err(Impossible(format!(
            "--seed {} and --seeds {}: the largest seed is {}",
            args.seed,
            args.seeds,
            u64::MAX
        ))
        .into());
    };
    let begun = Instant::now();
    let totals = Mutex::new(Totals::default());
    let (seeds, interrupted) = on_all_cores(jobs(args.jobs)?, args.seeds, "seeds", |index| {
        let seed = args.seed + index;
        let outcome = run_scenario(&Scenario::of(seed), false);
        let mut totals = totals.lock().expect("no thread panics while it holds the totals");
        totals.tally += outcome.tally;
        if let Some(failure) = outcome.failure {
            totals.failures.push(FailureLine { seed, failure: failure.to_string() });
        }
        totals.failures.len() >= FAILURES_MAX
    })?;
    let mut totals = totals.into_inner().expect("no thread panics while it holds the totals");
    totals.failures.sort_by_key(|f| f.seed);
    let document = SwarmDocument {
        first_seed: args.seed,
        seeds,
        seconds: begun.elapsed().as_secs_f64(),
        covered: Covered::of(&totals.tally),
        failures: totals.failures,
    };
    if args.json {
        Document::new("stripewise.sim-swarm/1", &document).print()?;
    } else {
        let covered = &document.covered;
        let mut text = format!(
            "{} seeds from {} in {:.1} s: {} failures\n{} requests, {} member writes; {} starts from what survived; \
             {} resyncs, {} members recovered or replaced, {} re-added, {} of these interrupted; {} checks and \
             repairs, {} flipped bits found, {} read errors rewritten, {} sectors listed as bad; {} arrays lost more than \
             they survive\n",
            document.seeds,
            document.first_seed,
            document.seconds,
            document.failures.len(),
            covered.requests,
            covered.member_writes,
            covered.restarts,
            covered.resyncs,
            covered.recovered_members,
            covered.re_added_members,
            covered.interrupted,
            covered.checks,
            covered.flipped_bits,
            covered.corrected_read_errors,
            covered.listed_sectors,
            covered.failed_arrays
        );
        for FailureLine { seed, failure } in &document.failures {
            let _ = writeln!(text, "seed {seed}: {failure}\n  stripewise sim replay {seed}");
        }
        print(&text)?;
    }
    Ok(match (document.failures.is_empty(), interrupted) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::Interrupted,
        (true, false) => Exit::Done,
    })
}

#[derive(Serialize)]
struct ReplayDocument {
    seed: u64,
    trace_hash: String,
    failure: Option<String>,
    shrunk_failure: Option<String>,
    array: String,
    steps: Vec<String>,
    log: Vec<String>,
}

fn replay(args: &ReplayArgs) -> Result<Exit> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let scenario = Scenario::of(args.seed);
    let first = run_scenario(&scenario, false);
    let shrinks = first.failure.is_some() && !args.whole;
    let shown = if shrinks { shrink(&scenario, SHRINK_TRIES) } else { scenario };
    let Outcome { failure: shrunk, log, .. } = run_scenario(&shown, true);
    std::panic::set_hook(hook);
    let failure = first.failure.map(|f| f.to_string());
    let document = ReplayDocument {
        seed: args.seed,
        trace_hash: format!("{:016x}", first.trace_hash),
        shrunk_failure: shrunk.filter(|_| shrinks).map(|f| f.to_string()),
        array: format!("{:?}", shown.array),
        steps: shown.steps.iter().map(|s| format!("{s:?}")).collect(),
        log,
        failure,
    };
    if args.json {
        Document::new("stripewise.sim-replay/1", &document).print()?;
    } else {
        let mut text = format!("seed {}, trace {}\n{}\n", document.seed, document.trace_hash, document.array);
        let lines = document
            .steps
            .iter()
            .map(|s| format!("  {s}\n"))
            .chain(document.log.iter().map(|l| format!("{l}\n")));
        text.extend(lines);
        let _ = match (&document.failure, &document.shrunk_failure) {
            (None, _) => writeln!(text, "no failure: every promise was kept"),
            (Some(failure), None) => writeln!(text, "{failure}"),
            (Some(failure), Some(shrunk)) => writeln!(text, "{shrunk}\nin the whole run: {failure}"),
        };
        print(&text)?;
    }
    Ok(if document.failure.is_some() { Exit::Failed } else { Exit::Done })
}

#[derive(Serialize)]
struct CrashDocument {
    cases: usize,
    places: u64,
    power_cuts: u64,
    exhausted_places: u64,
    seconds: f64,
    failures: Vec<CrashFailure>,
}

#[derive(Serialize)]
struct CrashFailure {
    case: String,
    order: u64,
    failure: String,
    log: Vec<String>,
}

fn crash(args: &CrashArgs) -> Result<Exit> {
    let begun = Instant::now();
    let cases = crash_cases();
    let count = cases.len() as u64 * args.orders;
    let totals = Mutex::new((CrashReport::default(), Vec::new()));
    let (_, interrupted) = on_all_cores(jobs(args.jobs)?, count, "workloads", |index| {
        let (case, order) = (&cases[(index / args.orders) as usize], index % args.orders);
        let report = enumerate_crashes(case, order, args.exhaustive, args.samples);
        let failure = report.failure.map(|(scenario, outcome)| CrashFailure {
            case: case.name.clone(),
            order,
            failure: outcome.failure.map_or_else(String::new, |f| f.to_string()),
            log: run_scenario(&scenario, true).log,
        });
        let mut totals = totals.lock().expect("no thread panics while it holds the totals");
        totals.0.cuts += report.cuts;
        totals.0.places += report.places;
        totals.0.exhausted += report.exhausted;
        totals.1.extend(failure);
        totals.1.len() >= FAILURES_MAX
    })?;
    let (report, failures) = totals.into_inner().expect("no thread panics while it holds the totals");
    let document = CrashDocument {
        cases: cases.len(),
        places: report.places,
        power_cuts: report.cuts,
        exhausted_places: report.exhausted,
        seconds: begun.elapsed().as_secs_f64(),
        failures,
    };
    if args.json {
        Document::new("stripewise.sim-crash/1", &document).print()?;
    } else {
        let mut text = format!(
            "{} power cuts at {} places of {} workloads in {:.1} s, at {} places with every selection of the writes in doubt; \
             {} failures\n",
            document.power_cuts,
            document.places,
            document.cases,
            document.seconds,
            document.exhausted_places,
            document.failures.len()
        );
        for CrashFailure { case, order, failure, log } in &document.failures {
            let _ = writeln!(text, "{case}, order {order}: {failure}");
            text.extend(log.iter().map(|line| format!("  {line}\n")));
        }
        print(&text)?;
    }
    Ok(match (document.failures.is_empty(), interrupted) {
        (false, _) => Exit::Failed,
        (true, true) => Exit::Interrupted,
        (true, false) => Exit::Done,
    })
}
