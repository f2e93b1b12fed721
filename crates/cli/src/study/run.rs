//! `stripewise study run`.

use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use stripewise_lab::cell::Cell;
use stripewise_lab::plan::{Fill, Plan};
use stripewise_lab::recommend::judged;
use stripewise_lab::report::render;
use stripewise_lab::results::StudyResults;
use stripewise_lab::store::{Store, StoreError};
use stripewise_lab::study::{self, Estimate, RunOutcome, Study, StudyOptions};
use stripewise_lab::workload::parse_size;

use super::report_file::report_file;
use super::{check_weights, stored, tables, weights};
use crate::args::RunArgs;
use crate::exit::{Exit, Impossible};
use crate::output::{Document, print, write_file};
use crate::progress::{Bar, CELLS_KEPT, cancel_flag, clock};

pub(crate) fn run(args: &RunArgs) -> Result<Exit> {
    let weights = weights(&args.weights)?;
    let plan = Plan::open(&args.study)?;
    let name = plan.name().to_owned();
    let folder = args.results.clone().unwrap_or_else(|| stored::default_folder(&name));
    let report = report_file(&folder, "choose other --results")?;
    let member_bytes = args
        .member_size
        .as_deref()
        .map(parse_size)
        .transpose()
        .map_err(|e| Impossible(format!("--member-size: {e}")))?;
    let options = StudyOptions {
        quick: args.quick,
        seed: args.seed,
        replicates: args.replicates,
        keep: args.keep,
        member_bytes,
        fill: args.fill.map(Fill::from),
    };
    // What cannot be opened was asked for wrongly: nothing has run yet.
    let study = Study::new(plan, &args.on, options).map_err(|e| Impossible(format!("{e:#}")))?;
    let study = study.with_arguments(again(args));
    check_weights(&args.weights, &study.families())?;
    if args.dry_run {
        return dry_run(args, &study, &folder);
    }
    let cancel = cancel_flag(CELLS_KEPT)?;
    let mut store = Store::open(&folder)?;
    let other = store.runs()?.pop().map(|run| run.study).filter(|other| *other != name);
    let estimate = study.estimate(Some(&store))?;
    say!("{}: {}", study.target().describe(study.cells()), announce(&estimate));
    let mut bar = Bar::new();
    let started = Instant::now();
    let outcome = study.run(&mut store, &cancel, |progress| bar.show(progress));
    bar.finish();
    let outcome = outcome?;
    if let Some(other) = other {
        say!("{}: also holds results of '{other}', which are kept; its report is replaced", folder.display());
    }
    let wall_seconds = started.elapsed().as_secs_f64();
    let results = study::results(&store, outcome.run, &weights)?;
    // Neither waits for the other: a report that cannot be written costs no tables, a reader who leaves no report.
    let written = render(&results).map_err(Into::into).and_then(|html| write_file(&report, &html));
    let printed = if args.json {
        Document::new(stored::RESULTS, &results).print()
    } else {
        print(&tables::study(&results))
    };
    written.and(printed)?;
    if results.simulated && outcome.found == 0 && !outcome.cancelled {
        say!("{}", pace(&results, wall_seconds));
    }
    say!("report: {}", report.display());
    Ok(match end(&outcome, cancel.load(Ordering::Relaxed)) {
        Exit::Done if is_idle(&results) => {
            say!("no I/O completed in any cell; use a longer runtime");
            Exit::CellsFailed
        }
        exit => exit,
    })
}

/// What runs the study again, from the same folder; weights are the report's to say.
fn again(args: &RunArgs) -> Vec<String> {
    let mut words = vec![args.study.clone(), "--on".to_owned(), args.on.clone()];
    words.extend(args.quick.then(|| "--quick".to_owned()));
    words.extend(args.keep.then(|| "--keep".to_owned()));
    for (option, value) in [
        ("--seed", args.seed.map(|seed| seed.to_string())),
        ("--replicates", args.replicates.map(|number| number.to_string())),
        ("--member-size", args.member_size.clone()),
        ("--fill", args.fill.map(|fill| format!("{:?}", Fill::from(fill)).to_lowercase())),
        ("--results", args.results.as_ref().map(|folder| folder.display().to_string())),
    ] {
        words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    words
}

fn end(outcome: &RunOutcome, cancelled: bool) -> Exit {
    if outcome.cancelled && cancelled {
        say!("interrupted after {} cells; run the same command again to continue", outcome.ran);
        Exit::Interrupted
    } else if outcome.failed > 0 {
        say!("{} cells have no result", outcome.failed);
        Exit::CellsFailed
    } else {
        Exit::Done
    }
}

/// Whether nothing was measured in the time that there was.
fn is_idle(results: &StudyResults) -> bool {
    let mut cells = results.cells.iter().peekable();
    cells.peek().is_some() && cells.all(|cell| judged(cell).is_some_and(|figure| figure.speed() == 0.0))
}

/// How fast the simulation went.
fn pace(results: &StudyResults, wall_seconds: f64) -> String {
    let virtual_seconds: f64 = results.cells.iter().map(|c| c.seconds).sum();
    let counts = results.cells.iter().filter_map(|c| c.member_ios);
    let member_ios: u64 = counts.map(|m| m.reads + m.writes).sum();
    format!(
        "{virtual_seconds:.0} virtual seconds and {:.1} million member I/Os in {wall_seconds:.1} s: \
         {:.0} virtual seconds and {:.2} million member I/Os a second",
        member_ios as f64 / 1e6,
        virtual_seconds / wall_seconds,
        member_ios as f64 / 1e6 / wall_seconds
    )
}

fn announce(estimate: &Estimate) -> String {
    let found = estimate.cells - estimate.missing;
    let mut text = format!("{} cells", estimate.cells);
    if found > 0 {
        let _ = write!(text, ", {found} of them in the store");
    }
    if let Some(seconds) = estimate.seconds.filter(|_| estimate.missing > 0) {
        let _ = write!(text, ", about {}", clock(seconds.ceil() as u64));
    }
    if estimate.fill_bytes > 0 {
        let (mib, seconds) = (estimate.fill_bytes >> 20, estimate.fill_bytes.div_ceil(FILL_BYTES_A_SECOND));
        let _ = write!(
            text,
            "; first the members are filled with {mib} MiB of random bytes, {} at {} MB/s",
            clock(seconds),
            FILL_BYTES_A_SECOND / 1_000_000
        );
    }
    text
}

/// A rate at which members may be filled, to say how long that takes; told beside it, since no drive is known yet.
const FILL_BYTES_A_SECOND: u64 = 200_000_000;

#[derive(Serialize)]
struct DryRun {
    cells: Vec<DryCell>,
    missing: usize,
    seconds: Option<f64>,
    fill_bytes: u64,
}

#[derive(Serialize)]
struct DryCell {
    label: String,
    seed: u64,
    seconds: Option<f64>,
}

fn dry_run(args: &RunArgs, study: &Study, folder: &Path) -> Result<Exit> {
    let store = match Store::open_existing(folder) {
        Err(StoreError::Absent(_)) => None,
        opened => Some(opened?),
    };
    let estimate = study.estimate(store.as_ref())?;
    let Estimate { missing, seconds, fill_bytes, .. } = estimate;
    if missing > 0 {
        study.target().check_place()?;
    }
    if args.json {
        let cells = study.cells().iter();
        let cells =
            cells.map(|c| DryCell { label: c.label(), seed: c.seed(), seconds: c.seconds() }).collect();
        let dry = DryRun { cells, missing, seconds, fill_bytes };
        Document::new("stripewise.study-plan/1", dry).print()?;
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    for cell in study.cells() {
        text.push_str(&cell.label());
        text.push('\n');
    }
    let known: Vec<f64> = study.cells().iter().filter_map(Cell::seconds).collect();
    let (virtual_seconds, unknown) =
        (known.iter().fold(0.0, |sum, seconds| sum + seconds), study.cells().len() - known.len());
    let _ = write!(text, "{}\n{}", study.target().describe(study.cells()), announce(&estimate));
    if study.target().is_simulated() && !known.is_empty() {
        let _ = write!(text, "; {virtual_seconds:.0} virtual seconds");
    }
    if unknown > 0 {
        let _ = write!(text, "; the duration of {unknown} of them is unknown: no runtime ends them");
    }
    text.push('\n');
    print(&text)?;
    Ok(Exit::Done)
}
