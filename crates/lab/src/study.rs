//! A study: a plan on a target, run into a store, judged from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cell::{Cell, ENGINE_HASH};
use crate::claims;
use crate::environment;
use crate::plan::{CellTarget, Choices, Fill, Parameter, Plan, ResolvedPlan, Work, find};
use crate::recommend::{MKFS, Question, SYNC, Weights, family, recommend};
use crate::results::{CellResult, Environment, SCHEMA_VERSION, StudyResults};
use crate::runner::{Ended, cores, run_cells};
use crate::store::{Measured, RunHeader, RunId, Store};
use crate::targets::{self, Measurement, Target, TargetOptions};
use crate::workload::Random;

/// How a study is to be run.
#[derive(Clone, Copy, Debug, Default)]
pub struct StudyOptions {
    /// The shortened plan.
    pub quick: bool,
    /// Instead of the plan's seed.
    pub seed: Option<u64>,
    /// Instead of the plan's number of replicates.
    pub replicates: Option<u32>,
    /// Bytes of each real member, instead of the plan's.
    pub member_bytes: Option<u64>,
    /// What member files hold at the start, instead of what the plan says.
    pub fill: Option<Fill>,
    /// Leave member files where they are.
    pub keep: bool,
}

/// A plan's cells on a target, checked and ready to run.
pub struct Study {
    plan: Plan,
    choices: Choices,
    resolved: ResolvedPlan,
    target: Box<dyn Target>,
    cells: Vec<Cell>,
    keys: Vec<String>,
    notes: Vec<String>,
    arguments: Vec<String>,
}

/// What a run would do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Cells of the study.
    pub cells: usize,
    /// Cells not in the store yet.
    pub missing: usize,
    /// Seconds those would take; `None` in virtual time as long as the store has no cell to judge by, and in real time where
    /// some end by their size.
    pub seconds: Option<f64>,
    /// Bytes that are written into members before the first of them.
    pub fill_bytes: u64,
}

/// How far the filling of members is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    /// Bytes written.
    pub done_bytes: u64,
    /// Bytes to be written in all.
    pub total_bytes: u64,
}

/// How far a run is; told while members are filled, and after every cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Members are being filled: no cell runs yet.
    pub filling: Option<Filling>,
    /// Cells that ended in this run.
    pub done: usize,
    /// Cells this run has to run.
    pub total: usize,
    /// Cells found in the store.
    pub found: usize,
    /// Time since the run began.
    pub elapsed: Duration,
    /// Time the rest will take at this pace; `None` before the first cell has ended.
    pub eta: Option<Duration>,
    /// The cell that ended last, in a line.
    pub label: String,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOutcome {
    /// The run in the store.
    pub run: RunId,
    /// Cells run.
    pub ran: usize,
    /// Cells found in the store.
    pub found: usize,
    /// Cells that failed.
    pub failed: usize,
    /// Whether it was cancelled; the store then resumes it.
    pub cancelled: bool,
}

impl Study {
    /// Expands a plan and opens the target named by `on`, such as `model` or `files:/mnt/x`.
    pub fn new(plan: Plan, on: &str, options: StudyOptions) -> Result<Self> {
        let (kind, rest) = targets::parse(on)?;
        let StudyOptions { quick, seed, replicates, member_bytes, fill, keep } = options;
        let choices = Choices { quick, real: kind.is_real, seed, replicates };
        let resolved = plan.resolve(choices)?;
        let expansion = plan.expand(&resolved)?;
        let members_max = expansion.cells.iter().map(|c| c.parameters.members()).max().unwrap_or(1);
        let storage = plan.real_storage()?;
        let options = TargetOptions { storage, member_bytes, fill, members_max, keep };
        let target = (kind.open)(rest, &options)?;
        Self::with_target(plan, choices, target)
    }

    /// Expands a plan on the modelled rig it names.
    pub fn simulated(plan: Plan, choices: Choices) -> Result<Self> {
        Self::with_target(plan, choices, targets::model())
    }

    /// Expands a plan on a target that is open.
    pub fn with_target(plan: Plan, choices: Choices, target: Box<dyn Target>) -> Result<Self> {
        let resolved = plan.resolve(choices)?;
        let expansion = plan.expand(&resolved)?;
        if !target.is_simulated()
            && let Some(name) =
                resolved.factor_names().find(|name| find(name).is_ok_and(Parameter::is_of_rig))
        {
            bail!(
                "{}: the factor '{name}' varies the modelled rig, and {} is real",
                plan.file,
                target.name()
            );
        }
        for cell in expansion.cells.iter().filter(|c| c.replicate == 0) {
            target.check(cell).map_err(|e| anyhow::anyhow!("{}: {}: {e}", plan.file, cell.label()))?;
        }
        let keys = expansion.cells.iter().map(|c| c.key(&target.identity(c))).collect();
        if expansion.unused.contains(&resolved.subject) {
            bail!(
                "{}: no cell uses the subject '{}': with this level, these layers and this work its values cannot differ; change those, or \
                 choose another subject",
                plan.file,
                resolved.subject
            );
        }
        let unused = expansion.unused.iter().map(|name| format!("No cell uses the factor '{name}'."));
        let mut notes: Vec<String> = unused.collect();
        notes.extend(rigs_note(resolved.subject, &expansion.cells));
        let is_same = choices.quick && !plan.shortens(choices);
        notes.extend(is_same.then(|| "The plan has no `[quick]`, so --quick runs all of it.".to_owned()));
        let arguments = Vec::new();
        Ok(Self { plan, choices, resolved, target, cells: expansion.cells, keys, notes, arguments })
    }

    /// Says what the command that runs the study was given, for those who want to run it again.
    #[must_use]
    pub fn with_arguments(self, arguments: Vec<String>) -> Self {
        Self { arguments, ..self }
    }

    /// Leaves out the cells that are not wanted.
    pub fn keep(&mut self, is_wanted: impl Fn(&Cell) -> bool) {
        let pairs = std::mem::take(&mut self.cells).into_iter().zip(std::mem::take(&mut self.keys));
        (self.cells, self.keys) = pairs.filter(|(cell, _)| is_wanted(cell)).unzip();
    }

    /// The cells, in the plan's order.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The target.
    pub fn target(&self) -> &dyn Target {
        self.target.as_ref()
    }

    /// The workload families of the cells.
    pub fn families(&self) -> BTreeSet<&'static str> {
        let of_cell = |cell: &Cell| match cell.parameters.work {
            Work::Resync | Work::Recover => Some(SYNC),
            Work::Mkfs => Some(MKFS),
            Work::Job | Work::Rebuild | Work::Trace => family(&cell.factors),
        };
        self.cells.iter().filter_map(of_cell).collect()
    }

    fn missing(&self, store: Option<&Store>) -> Result<Vec<usize>> {
        let mut missing = Vec::new();
        for (index, key) in self.keys.iter().enumerate() {
            if !store.map_or(Ok(false), |s| s.has(key))? {
                missing.push(index);
            }
        }
        Ok(missing)
    }

    /// What a run into the store would do; without a store, all of it.
    pub fn estimate(&self, store: Option<&Store>) -> Result<Estimate> {
        let missing = self.missing(store)?;
        let seconds = if self.target.is_simulated() {
            let known = store.map_or(Ok(None), Store::wall_paces)?;
            known.map(|(mean, rate)| {
                let measured = missing.iter().map(|i| self.cells[*i].parameters.job.runtime.as_secs_f64());
                let each = measured.map(|seconds| if seconds > 0.0 { rate * seconds } else { mean });
                each.sum::<f64>() / cores() as f64
            })
        } else {
            missing.iter().try_fold(0.0, |sum, i| Some(sum + self.cells[*i].seconds()?))
        };
        let fill_bytes = if missing.is_empty() { 0 } else { self.target.fill_bytes() };
        Ok(Estimate { cells: self.cells.len(), missing: missing.len(), seconds, fill_bytes })
    }

    /// Runs the cells the store does not have. A set `cancel` ends the run early, with every cell that ended
    /// in the store.
    pub fn run(
        &self,
        store: &mut Store,
        cancel: &Arc<AtomicBool>,
        mut progress: impl FnMut(&Progress),
    ) -> Result<RunOutcome> {
        let mut missing = self.missing(Some(store))?;
        if !self.target.is_simulated() {
            // So that warming up, wear and other users of the machine favour no value.
            Random::new(self.resolved.seed, 0).shuffle(&mut missing);
        }
        let found = self.cells.len() - missing.len();
        let mut header = self.header(store.now()?);
        let cells: Vec<&Cell> = missing.iter().map(|i| &self.cells[*i]).collect();
        let is_real = !missing.is_empty() && !self.target.is_simulated();
        let _taken = is_real.then(|| store.lock_for_real()).transpose()?;
        // A run that cannot be does not take the place of the one before it.
        if !missing.is_empty() {
            let (pace, total_bytes) = (Pace::new(&cells), self.target.fill_bytes());
            let mut filled = |done_bytes| progress(&pace.filling(found, Filling { done_bytes, total_bytes }));
            self.target
                .begin(cancel, &mut filled)
                .with_context(|| format!("cannot prepare {}", self.target.name()))?;
        }
        let run = store.begin_run(&header, &self.keys)?;
        let mut pace = Pace::new(&cells);
        let mut failed = 0;
        let outcome = run_cells(self.target.as_ref(), &cells, cancel, |ended| {
            let cell = cells[ended.index];
            let wall = ended.wall.as_secs_f64();
            let result = self.result(cell, missing[ended.index], ended);
            let parameters = serde_json::to_string(&cell.parameters.printed())?;
            store.put(run, &result, &parameters, wall)?;
            failed += usize::from(result.error.is_some());
            pace.end(cell);
            progress(&pace.progress(cell, found, result.error));
            Ok(())
        });
        header.environment.wall_seconds = pace.started.elapsed().as_secs_f64();
        store.update_run(run, &header)?;
        outcome?;
        let cancelled = pace.done < cells.len() && cancel.load(Ordering::Relaxed);
        Ok(RunOutcome { run, ran: pace.done, found, failed, cancelled })
    }

    fn result(&self, cell: &Cell, index: usize, ended: Ended) -> CellResult {
        let (measured, error) = match ended.outcome {
            Ok(measured) => (measured, None),
            Err(error) => (Measurement::default(), Some(error.to_string())),
        };
        let Measurement { seconds, read, write, member_ios, figures, notes } = measured;
        CellResult {
            key: self.keys[index].clone(),
            target: cell.target().to_owned(),
            factors: cell.factors.clone(),
            replicate: cell.replicate,
            seed: cell.seed(),
            seconds,
            read,
            write,
            member_ios,
            figures,
            error,
            notes,
        }
    }

    /// The array's parameters beside the subject, for the commands that apply it: those that differ where the subject has one
    /// value are a choice of all that were studied, such as `<64K|128K>`.
    fn fixed(&self) -> BTreeMap<String, String> {
        let mut base = self.resolved.base().clone();
        base.target = CellTarget::Array;
        let mut fixed = base.printed();
        let mut studied: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
        let is_of_array = |cell: &&Cell| cell.replicate == 0 && cell.parameters.target == CellTarget::Array;
        let arrays = self.cells.iter().filter(is_of_array).map(|cell| cell.parameters.printed());
        let arrays: Vec<BTreeMap<String, String>> = arrays.collect();
        // What the subject makes no difference to is not judged by it.
        let has_subject = arrays.iter().any(|values| values.contains_key(self.resolved.subject));
        for mut values in arrays {
            let subject = values.remove(self.resolved.subject);
            if subject.is_none() && has_subject {
                continue;
            }
            let subject = subject.unwrap_or_default();
            for (name, value) in values {
                let of_subject = studied.entry(name).or_default().entry(subject.clone()).or_default();
                if !of_subject.contains(&value) {
                    of_subject.push(value);
                }
            }
        }
        for (name, by_subject) in studied {
            // What follows from a factor, as the layout from the level, is none itself.
            let is_factor = self.resolved.factor_names().any(|factor| factor == name);
            let is_chosen = is_factor && by_subject.values().any(|values| values.len() > 1);
            let mut all: Vec<String> = Vec::new();
            for value in by_subject.into_values().flatten() {
                if !all.contains(&value) {
                    all.push(value);
                }
            }
            if is_chosen {
                fixed.insert(name, format!("<{}>", all.join("|")));
            } else if let [value] = &all[..] {
                fixed.insert(name, value.clone());
            }
        }
        fixed
    }

    fn header(&self, started: String) -> RunHeader {
        RunHeader {
            study: self.plan.name().to_owned(),
            title: self.plan.title().to_owned(),
            question: self.plan.question().to_owned(),
            plan: self.plan.text.clone(),
            quick: self.choices.quick && self.plan.shortens(self.choices),
            simulated: self.target.is_simulated(),
            seed: self.resolved.seed,
            subject: self.resolved.subject.to_owned(),
            subject_values: self.resolved.subject_values.clone(),
            fixed: self.fixed(),
            environment: Environment {
                target: self.target.name(),
                description: self.target.describe(&self.cells),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                engine_hash: ENGINE_HASH.to_owned(),
                host_cpu: environment::host_cpu(),
                host_kernel: environment::host_kernel(),
                started,
                finished: String::new(),
                wall_seconds: 0.0,
                notes: self.notes.clone(),
                provenance: self.target.provenance(&self.cells),
                arguments: self.arguments.clone(),
            },
        }
    }
}

/// Judges a stored run, with weights that may differ from one call to the next.
pub fn results(store: &Store, run: RunId, weights: &Weights) -> Result<StudyResults> {
    let (mut header, loaded) = store.load(run)?;
    if !header.simulated {
        // The plan's drive is of the model that it names, not of what it ran on.
        header.fixed.remove("drive");
    }
    let asked = loaded.len();
    let cells: Vec<CellResult> = loaded.into_iter().flatten().collect();
    let question =
        Question { subject: &header.subject, values: &header.subject_values, fixed: &header.fixed, weights };
    let judgement = recommend(&cells, &question);
    let mut environment = header.environment;
    if let Some(Measured { from, to, seconds }) = store.measured(run)? {
        // A run that finds its cells in the store measures none of them anew.
        (environment.started, environment.finished, environment.wall_seconds) = (from, to, seconds);
    }
    if cells.len() < asked {
        let missing = asked - cells.len();
        environment
            .notes
            .push(format!("{missing} of {asked} cells have not been run; run the study again to resume."));
    }
    let mut errors = cells.iter().filter_map(|c| c.error.as_ref());
    if let Some(first) = errors.next() {
        environment
            .notes
            .push(format!("{} of {asked} cells failed, the first with: {first}", errors.count() + 1));
    }
    environment.notes.extend(notes_of(&cells));
    environment.notes.extend(judgement.notes);
    let mut results = StudyResults {
        schema_version: SCHEMA_VERSION,
        study: header.study,
        title: header.title,
        question: header.question,
        simulated: header.simulated,
        quick: header.quick,
        seed: Some(header.seed),
        subject: header.subject,
        subject_values: header.subject_values,
        environment,
        cells,
        recommendation: judgement.recommendation,
        claims: Vec::new(),
    };
    results.claims = claims::judge(&results, &header.plan);
    Ok(results)
}

/// What is told where drives are compared that are used with different rigs.
fn rigs_note(subject: &str, cells: &[Cell]) -> Option<String> {
    let rigs: BTreeMap<&str, [&str; 3]> = cells
        .iter()
        .map(|cell| &cell.parameters.rig)
        .map(|rig| (&rig.drive[..], [&rig.controller[..], &rig.cpu, &rig.block]))
        .collect();
    let beside: BTreeSet<[&str; 2]> = rigs.values().map(|[_, cpu, block]| [*cpu, *block]).collect();
    (subject == "drive" && beside.len() > 1).then(|| {
        let told = |(drive, [controller, cpu, block]): (&&str, &[&str; 3])| {
            format!("{drive} with {controller}, {cpu} and {block}")
        };
        let each: Vec<String> = rigs.iter().map(told).collect();
        format!(
            "The drives are compared on the rigs that their models name: {}. To compare the drives alone, name cpu and block in [rig].",
            each.join("; ")
        )
    })
}

/// What the cells' notes say, each once; with how many cells it is of, where that is not all that have figures.
fn notes_of(cells: &[CellResult]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for note in cells.iter().flat_map(|cell| &cell.notes) {
        *counts.entry(note).or_default() += 1;
    }
    let measured = cells.iter().filter(|cell| cell.error.is_none()).count();
    let told = counts.into_iter().map(|(note, count)| match count {
        all if all == measured => note.to_owned(),
        some => format!("{note} ({some} of {measured} cells)"),
    });
    told.collect()
}

/// How fast cells end.
struct Pace {
    started: Instant,
    done: usize,
    total: usize,
    seconds_done: f64,
    seconds_total: f64,
}

impl Pace {
    fn new(cells: &[&Cell]) -> Self {
        let seconds_total = cells.iter().map(|c| c.seconds().unwrap_or(1.0)).sum();
        Self { started: Instant::now(), done: 0, total: cells.len(), seconds_done: 0.0, seconds_total }
    }

    fn end(&mut self, cell: &Cell) {
        self.done += 1;
        self.seconds_done += cell.seconds().unwrap_or(1.0);
    }

    fn progress(&self, cell: &Cell, found: usize, error: Option<String>) -> Progress {
        let elapsed = self.started.elapsed();
        let rest = (self.seconds_total - self.seconds_done).max(0.0) / self.seconds_done;
        let eta = Duration::try_from_secs_f64(elapsed.as_secs_f64() * rest).ok();
        let (filling, label) = (None, cell.label());
        Progress { filling, done: self.done, total: self.total, found, elapsed, eta, label, error }
    }

    /// How far the filling is that goes before the cells, at its own pace.
    fn filling(&self, found: usize, filling: Filling) -> Progress {
        let elapsed = self.started.elapsed();
        let rest = filling.total_bytes.saturating_sub(filling.done_bytes) as f64 / filling.done_bytes as f64;
        let eta = Duration::try_from_secs_f64(elapsed.as_secs_f64() * rest).ok();
        let (label, filling) = ("filling the members".to_owned(), Some(filling));
        Progress { filling, done: self.done, total: self.total, found, elapsed, eta, label, error: None }
    }
}

#[cfg(test)]
#[path = "study_tests.rs"]
mod tests;
