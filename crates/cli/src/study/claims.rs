//! `study verify` and `study sensitivity`: built-in studies beside what was published of them.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use stripewise_lab::claims::{CLAIMS, ClaimResult, Counts};
use stripewise_lab::plan::{Choices, PRESETS, Plan};
use stripewise_lab::recommend::Weights;
use stripewise_lab::report::render;
use stripewise_lab::results::Provenance;
use stripewise_lab::sensitivity::{self, Moved};
use stripewise_lab::store::Store;
use stripewise_lab::study::{self, Study};
use stripewise_sim::models::Model;

use super::report_file::report_file;
use super::{stored, tables};
use crate::args::{SensitivityArgs, VerifyArgs};
use crate::exit::{Exit, Impossible};
use crate::output::{Document, print, write_file};
use crate::progress::{Bar, CELLS_KEPT, cancel_flag, clock};

#[derive(Serialize)]
struct Verified {
    studies: Vec<VerifiedStudy>,
    #[serde(flatten)]
    counts: Counts,
    seconds: f64,
}

#[derive(Serialize)]
struct Moves<'a> {
    moves: &'a [Moved],
}

#[derive(Serialize)]
struct VerifiedStudy {
    study: String,
    cells: usize,
    seconds: f64,
    claims: Vec<ClaimResult>,
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<Exit> {
    let plans = plans(&args.studies)?;
    for plan in &plans {
        report_file(&args.results.join(plan.name()), "choose other --results")?;
    }
    let cancel = cancel_flag(CELLS_KEPT)?;
    let started = Instant::now();
    let mut studies = Vec::new();
    let mut failed = 0;
    for plan in plans {
        let began = Instant::now();
        let name = plan.name().to_owned();
        let folder = args.results.join(&name);
        let choices = Choices { quick: args.quick, ..Choices::default() };
        let study = Study::simulated(plan, choices)?;
        let mut store = Store::open(&folder)?;
        say!("{name}: {} cells", study.cells().len());
        let mut bar = Bar::new();
        let outcome = study.run(&mut store, &cancel, |progress| bar.show(progress));
        bar.finish();
        let outcome = outcome?;
        if cancel.load(Ordering::Relaxed) {
            return Ok(Exit::Interrupted);
        }
        failed += outcome.failed;
        let results = study::results(&store, outcome.run, &Weights::default())?;
        write_file(&folder.join("report.html"), &render(&results)?)?;
        let seconds = began.elapsed().as_secs_f64();
        studies.push(VerifiedStudy {
            study: name,
            cells: results.cells.len(),
            seconds,
            claims: results.claims,
        });
    }
    let counts = Counts::of(studies.iter().flat_map(|s| &s.claims));
    let seconds = started.elapsed().as_secs_f64();
    let verified = Verified { studies, counts, seconds };
    if args.json {
        Document::new("stripewise.study-verify/1", &verified).print()?;
    } else {
        print(&text(&verified))?;
    }
    Ok(if failed > 0 { Exit::CellsFailed } else { Exit::Done })
}

/// The built-in studies of that name, or all, of which there are claims.
fn plans(names: &[String]) -> Result<Vec<Plan>> {
    let published = || PRESETS.iter().filter(|p| CLAIMS.iter().any(|c| c.study == p.name));
    if names.is_empty() {
        return Ok(published().map(stripewise_lab::plan::Preset::plan).collect::<Result<_, _>>()?);
    }
    let plan = |name: &String| {
        if let Some(preset) = published().find(|p| p.name == name) {
            return Ok(preset.plan()?);
        }
        let known: Vec<&str> = published().map(|p| p.name).collect();
        let message =
            format!("'{name}' is not a built-in study with published claims; these are {}", known.join(", "));
        Err(Impossible(message).into())
    };
    names.iter().map(plan).collect()
}

fn text(verified: &Verified) -> String {
    let mut text = String::new();
    for study in &verified.studies {
        let _ = writeln!(text, "{} ({} cells, {:.1} s)", study.study, study.cells, study.seconds);
        text.push_str(&tables::claims(&study.claims));
        text.push('\n');
    }
    let _ = writeln!(text, "All in {:.1} s: {}.", verified.seconds, verified.counts);
    text
}

pub(crate) fn sensitivity(args: &SensitivityArgs) -> Result<Exit> {
    for name in &args.model {
        Model::load(name)?;
    }
    let plan = plans(std::slice::from_ref(&args.study))?.remove(0);
    let folder =
        args.results.clone().unwrap_or_else(|| stored::default_folder(plan.name()).join("sensitivity"));
    let cancel = cancel_flag(CELLS_KEPT)?;
    let choices = Choices { quick: !args.full, replicates: Some(1), ..Choices::default() };
    let step = f64::from(args.step) / 100.0;
    let began = Instant::now();
    let is_in = |list: &[String], name: &String| list.is_empty() || list.contains(name);
    let wanted = |p: &Provenance| is_in(&args.kind, &p.kind) && is_in(&args.model, &p.model);
    let moved = sensitivity::run(&plan, choices, step, wanted, &folder, &cancel, |done, total, moved| {
        let left = began.elapsed().as_secs_f64() / done as f64 * (total - done) as f64;
        say!("{done}/{total} {}, ETA {}", line(moved), clock(left as u64));
    })?;
    let is_interrupted = cancel.load(Ordering::Relaxed);
    let unused = args.model.iter().find(|name| !moved.iter().any(|moved| moved.model == **name));
    if let Some(name) = unused.filter(|_| !is_interrupted) {
        let kinds =
            if args.kind.is_empty() { String::new() } else { format!(" that is {}", args.kind.join(" or ")) };
        let message = format!(
            "--model {name}: study {} uses no parameter of this model{kinds}; leave it out",
            args.study
        );
        return Err(Impossible(message).into());
    }
    if args.json {
        Document::new("stripewise.study-sensitivity/1", Moves { moves: &moved }).print()?;
    } else {
        print(&flips(&moved))?;
    }
    Ok(if is_interrupted { Exit::Interrupted } else { Exit::Done })
}

/// A moved parameter in a line.
fn line(moved: &Moved) -> String {
    let Moved { model, parameter, provenance, factor, flips, error } = moved;
    let outcome = match (error, flips.len()) {
        (Some(error), _) => format!("cannot be varied: {error}"),
        (None, 0) => "no verdict changes".to_owned(),
        (None, count) => format!("{count} verdicts change"),
    };
    format!("{model} {parameter} ({provenance}) x {factor}: {outcome}")
}

fn flips(moved: &[Moved]) -> String {
    let mut text = String::new();
    for change in moved.iter().filter(|m| !m.flips.is_empty()) {
        let _ = writeln!(
            text,
            "{} {} ({}) x {}",
            change.model, change.parameter, change.provenance, change.factor
        );
        for flip in &change.flips {
            let (before, after) = (flip.before.name(), flip.after.name());
            let _ = writeln!(text, "  {}: {before} -> {after} ({})", flip.id, flip.here);
        }
    }
    let refused = moved.iter().filter(|m| m.error.is_some()).count();
    let changing = moved.iter().filter(|m| !m.flips.is_empty()).count();
    let _ = writeln!(
        text,
        "{} variations of a parameter: {changing} change a verdict, {refused} contradict their model.",
        moved.len()
    );
    text
}
