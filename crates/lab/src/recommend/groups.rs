//! Cells gathered into workloads: one combination of all factors but the subject, with every value's speed: throughput, or the
//! inverse of seconds.

use std::collections::{BTreeMap, BTreeSet};

use super::left_out::{lacking, listed, without};
use super::{Question, family, judged};
use crate::results::CellResult;
use crate::stats::{Mean, Scatter};

/// The factors that tell a workload's family.
const WORKLOAD: [&str; 4] = ["rw", "rwmixread", "trace", "speed"];

/// One combination of all factors but the subject.
pub(super) struct Group {
    pub(super) family: &'static str,
    pub(super) label: String,
    /// Logarithm of the speed by value and replicate; every value has the same replicates.
    pub(super) logs: Vec<Vec<f64>>,
    /// How they scatter beside what a value, or a replicate, has in common.
    pub(super) scatter: Option<Scatter>,
    /// The best value's mean logarithm.
    pub(super) best: f64,
}

/// The groups, and what could not be judged.
pub(super) struct Gathered {
    pub(super) groups: Vec<Group>,
    pub(super) notes: Vec<String>,
    /// Whether the notes say why no group is complete.
    pub(super) is_explained: bool,
}

/// Speed by group (family and factors), value and replicate.
type Throughputs = BTreeMap<(Option<&'static str>, BTreeMap<String, String>), Vec<BTreeMap<u32, f64>>>;

/// Gathers the cells of the array; notes the groups that cannot be judged.
pub(super) fn gather(cells: &[CellResult], question: &Question<'_>) -> Gathered {
    // What failed has no figures to tell a resync by, and is missed among its workload's replicates.
    let is_used =
        |c: &&CellResult| c.target == "array" && (family(&c.factors).is_some() || judged(c).is_some());
    let cells: Vec<&CellResult> = cells.iter().filter(is_used).collect();
    let Partial { single, mut notes } = partial(&cells, question);
    let is_explained = !notes.is_empty();
    let mut by_group = Throughputs::new();
    for cell in cells {
        let mut factors = cell.factors.clone();
        let Some(value) = factors.remove(question.subject) else { continue };
        let Some(value) = question.values.iter().position(|v| *v == value) else { continue };
        factors.retain(|name, _| !single.contains(name.as_str()));
        let family = family(&cell.factors).or_else(|| judged(cell).map(|judged| judged.family));
        let values =
            by_group.entry((family, factors)).or_insert_with(|| vec![BTreeMap::new(); question.values.len()]);
        if let Some(judged) = judged(cell).filter(|_| cell.error.is_none() && cell.seconds > 0.0) {
            values[value].insert(cell.replicate, judged.speed());
        }
    }
    let (mut groups, mut incomplete, mut fewer, mut idle) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for ((family, factors), values) in &by_group {
        let replicates: Vec<u32> =
            values[0].keys().copied().filter(|r| values.iter().all(|v| v.contains_key(r))).collect();
        let Some(family) = family.filter(|_| !replicates.is_empty()) else {
            incomplete.push(without(&label(factors), &with_fewer(question, values, 1)));
            continue;
        };
        let most = values.iter().map(BTreeMap::len).max().unwrap_or(0);
        if most > replicates.len() {
            fewer.push(format!(
                "{} ({} of {most} left; fewer of {})",
                label(factors),
                replicates.len(),
                with_fewer(question, values, most).join(", ")
            ));
        }
        let top = values.iter().flat_map(BTreeMap::values).copied().fold(0.0, f64::max);
        if top == 0.0 {
            idle += 1;
            continue;
        }
        groups.push(group(family, factors, values, &replicates, top));
    }
    if !incomplete.is_empty() && !is_explained {
        notes.push(lacking(&incomplete, by_group.len()));
    }
    if !fewer.is_empty() {
        notes.push(format!(
            "Replicates without figures for some value were left out for all values, unlike in tables of means: {}.",
            listed(&fewer)
        ));
    }
    let mut is_explained = is_explained;
    if idle > 0 {
        is_explained |= incomplete.is_empty();
        notes.push(format!("In {idle} workloads no I/O completed within the time; they were not judged. A longer runtime shows more."));
    }
    Gathered { groups, notes, is_explained }
}

/// The values that have fewer replicates than so many.
fn with_fewer<'a>(question: &Question<'a>, values: &[BTreeMap<u32, f64>], than: usize) -> Vec<&'a str> {
    let fewer = question.values.iter().zip(values).filter(|(_, by)| by.len() < than);
    fewer.map(|(value, _)| value.as_str()).collect()
}

/// A workload's name.
pub(super) fn label(factors: &BTreeMap<String, String>) -> String {
    factors.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// The factors that some of the subject's values do not have.
pub(super) struct Partial<'a> {
    /// Those of one value, which tell no workloads apart.
    pub(super) single: BTreeSet<&'a str>,
    /// A sentence for each of several values: no workload of theirs has figures for every value.
    pub(super) notes: Vec<String>,
}

pub(super) fn partial<'a>(cells: &[&'a CellResult], question: &Question<'_>) -> Partial<'a> {
    let mut found = BTreeMap::<&str, BTreeSet<&str>>::new();
    let mut settings = BTreeMap::<&str, BTreeSet<&str>>::new();
    for cell in cells {
        let Some(value) = cell.factors.get(question.subject) else { continue };
        let names = found.entry(value).or_default();
        for (name, setting) in cell.factors.iter().filter(|(name, _)| *name != question.subject) {
            names.insert(name);
            settings.entry(name).or_default().insert(setting);
        }
    }
    let mut partial = Partial { single: BTreeSet::new(), notes: Vec::new() };
    for (name, settings) in settings.into_iter().filter(|(name, _)| !WORKLOAD.contains(name)) {
        let lacks = |value: &&String| found.get(value.as_str()).is_some_and(|names| !names.contains(name));
        let Some(value) = question.values.iter().find(lacks) else { continue };
        if settings.len() == 1 {
            partial.single.insert(name);
            continue;
        }
        partial.notes.push(format!(
            "The factor '{name}' has several values but does not apply to {} {value}, so that no workload has \
             figures for every {}; give '{name}' one value.",
            question.subject, question.subject
        ));
    }
    partial
}

fn group(
    family: &'static str,
    factors: &BTreeMap<String, String>,
    values: &[BTreeMap<u32, f64>],
    replicates: &[u32],
    top: f64,
) -> Group {
    // No I/O completed for a value while others had some: it counts as a thousandth of the best, since
    // nothing has no logarithm.
    let log = |throughput: f64| throughput.max(top / 1000.0).ln();
    let logs: Vec<Vec<f64>> =
        values.iter().map(|by| replicates.iter().map(|r| log(by[r])).collect()).collect();
    let best = logs.iter().map(|l| Mean::of(l).mean).fold(f64::NEG_INFINITY, f64::max);
    Group { family, label: label(factors), scatter: Scatter::of(&logs), logs, best }
}
