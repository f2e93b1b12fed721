//! The recommendation: which value of the subject serves the weighted workloads best, and what the evidence
//! does not tell apart.
//!
//! A value's throughput in a cell is its geometric mean over replicates, relative to the best value of that
//! cell. The score is the geometric mean of that over cells, each family counting by its weight however many
//! cells it has. Two values are tied if the interval of their ratio includes 1, or if they differ by less than
//! [`MARGIN`]. Cells of a single drive are for reference and do not count. Where a recovery runs beside the jobs, speed
//! alone is not what is sought: those studies are judged as a trade-off.

mod apply;
mod family;
mod reason;
mod tradeoff;

use std::collections::{BTreeMap, BTreeSet};

use crate::results::{CellResult, FamilyBest, RankedValue, Recommendation};
use crate::stats::{Interval, Mean};

pub use apply::commands;
pub use family::{FAMILIES, Weights, family};
use reason::reasons;
pub use tradeoff::COST_RATIO_MAX;

/// Values that differ by less than this share are tied whatever the statistics say: nobody would feel it.
pub const MARGIN: f64 = 0.01;

/// What is judged.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The factor whose best value is sought.
    pub subject: &'a str,
    /// Its values in order.
    pub values: &'a [String],
    /// The array's other parameters, for the commands.
    pub fixed: &'a BTreeMap<String, String>,
    /// Weights by family.
    pub weights: &'a Weights,
}

/// A recommendation with what a reader must know of its evidence.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The recommendation.
    pub recommendation: Recommendation,
    /// Cells that could not be judged, missing intervals.
    pub notes: Vec<String>,
}

/// One combination of all factors but the subject.
struct Group {
    family: &'static str,
    label: String,
    /// Logarithm of throughput by value and replicate; every value has the same replicates.
    logs: Vec<Vec<f64>>,
    /// The best value's mean logarithm.
    best: f64,
}

/// A value's score among the others.
struct Scored {
    value: usize,
    log_score: Interval,
    worst: (f64, String),
    /// Logarithm of the ratio to the best value.
    ratio: Interval,
}

/// Judges a study's cells.
pub fn recommend(cells: &[CellResult], question: &Question<'_>) -> Judgement {
    if let Some(judgement) = tradeoff::judge(cells, question) {
        return judgement;
    }
    let (groups, mut notes) = groups(cells, question);
    let ranking = rank(&groups, question.values.len(), question.weights);
    if groups.is_empty() || ranking.is_empty() {
        notes.push("No cell is complete for every value, so there is nothing to recommend yet.".to_owned());
    } else if ranking.iter().any(|s| s.ratio.bounds.is_none()) {
        notes.push(format!(
            "Some cells ran only once, so there is no confidence interval: values are called tied by the \
             practical margin of {:.0} % alone, and no winner is proven.",
            MARGIN * 100.0
        ));
    }
    let ties = ties(&ranking, question.values);
    let best = ranking.first().map_or_else(String::new, |s| question.values[s.value].clone());
    let by_family: Vec<FamilyBest> =
        present_families(&groups).filter_map(|f| family_best(&groups, f, question.values)).collect();
    let recommendation = Recommendation {
        reasons: reasons(cells, question, &by_family),
        summary: summary(&ranking, question, &ties),
        method: method(&ranking),
        weights: present_families(&groups).map(|f| (f.to_owned(), question.weights.of(f))).collect(),
        by_family,
        trade_off: None,
        commands: if best.is_empty() {
            Vec::new()
        } else {
            commands(question.subject, &best, question.fixed)
        },
        ranking: ranking.into_iter().map(|s| ranked(s, question.values)).collect(),
        best,
        tied_with: ties,
    };
    Judgement { recommendation, notes }
}

fn present_families(groups: &[Group]) -> impl Iterator<Item = &'static str> {
    let present: BTreeSet<&str> = groups.iter().map(|g| g.family).collect();
    FAMILIES.into_iter().filter(move |f| present.contains(f))
}

/// Throughput by group, value and replicate.
type Throughputs = BTreeMap<BTreeMap<String, String>, Vec<BTreeMap<u32, f64>>>;

/// Gathers the cells of the array by all factors but the subject; notes the groups that cannot be judged.
fn groups(cells: &[CellResult], question: &Question<'_>) -> (Vec<Group>, Vec<String>) {
    let mut by_group = Throughputs::new();
    let is_used = |c: &&CellResult| {
        c.target == "array" && ["rw", "trace"].iter().any(|name| c.factors.contains_key(*name))
    };
    for cell in cells.iter().filter(is_used) {
        let mut factors = cell.factors.clone();
        let Some(value) = factors.remove(question.subject) else { continue };
        let Some(value) = question.values.iter().position(|v| *v == value) else { continue };
        let values = by_group.entry(factors).or_insert_with(|| vec![BTreeMap::new(); question.values.len()]);
        if cell.error.is_none() && cell.seconds > 0.0 {
            values[value].insert(cell.replicate, cell.bytes_per_second());
        }
    }
    let (mut groups, mut incomplete, mut idle) = (Vec::new(), 0, 0);
    for (factors, values) in &by_group {
        let replicates: Vec<u32> =
            values[0].keys().copied().filter(|r| values.iter().all(|v| v.contains_key(r))).collect();
        let Some(family) = family(factors).filter(|_| !replicates.is_empty()) else {
            incomplete += 1;
            continue;
        };
        let top = values.iter().flat_map(BTreeMap::values).copied().fold(0.0, f64::max);
        if top == 0.0 {
            idle += 1;
            continue;
        }
        groups.push(group(family, factors, values, &replicates, top));
    }
    let mut notes = Vec::new();
    if incomplete > 0 {
        let all = by_group.len();
        notes.push(format!(
            "{incomplete} of {all} workloads lack figures for some value and were not judged."
        ));
    }
    if idle > 0 {
        notes.push(format!("In {idle} workloads no I/O completed within the time; they were not judged."));
    }
    (groups, notes)
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
    let label = factors.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
    Group { family, label, logs, best }
}

/// Scores every value, best first; empty if no group has weight.
fn rank(groups: &[Group], values: usize, weights: &Weights) -> Vec<Scored> {
    let mut cells_of = BTreeMap::<&str, f64>::new();
    for group in groups {
        *cells_of.entry(group.family).or_default() += 1.0;
    }
    let total: f64 = cells_of.keys().map(|family| weights.of(family)).sum();
    if total <= 0.0 {
        return Vec::new();
    }
    let weighted: Vec<(f64, &Group)> = groups
        .iter()
        .map(|g| (weights.of(g.family) / total / cells_of[g.family], g))
        .filter(|(weight, _)| *weight > 0.0)
        .collect();
    let score = |value: usize| {
        let relative = |g: &Group| g.logs[value].iter().map(|l| l - g.best).collect::<Vec<_>>();
        Interval::of_weighted_sum(weighted.iter().map(|(w, g)| (*w, Mean::of(&relative(g)))))
    };
    let scores: Vec<Interval> = (0..values).map(score).collect();
    let mut order: Vec<usize> = (0..values).collect();
    order.sort_by(|a, b| scores[*b].value.total_cmp(&scores[*a].value));
    let best = order[0];
    let ratio = |value: usize| {
        let paired =
            |g: &Group| g.logs[value].iter().zip(&g.logs[best]).map(|(a, b)| a - b).collect::<Vec<_>>();
        Interval::of_weighted_sum(weighted.iter().map(|(w, g)| (*w, Mean::of(&paired(g)))))
    };
    let worst = |value: usize| {
        let relative = weighted.iter().map(|(_, g)| (Mean::of(&g.logs[value]).mean - g.best, &g.label));
        let (log, label) = relative.min_by(|a, b| a.0.total_cmp(&b.0)).expect("a group has weight");
        (log.exp(), label.clone())
    };
    order
        .into_iter()
        .map(|value| Scored { value, log_score: scores[value], worst: worst(value), ratio: ratio(value) })
        .collect()
}

/// The values the evidence does not tell from the best.
fn ties(ranking: &[Scored], values: &[String]) -> Vec<String> {
    let is_tied = |s: &&Scored| {
        s.ratio.value.exp() > 1.0 - MARGIN || s.ratio.bounds.is_some_and(|(_, high)| high >= 0.0)
    };
    ranking.iter().skip(1).filter(is_tied).map(|s| values[s.value].clone()).collect()
}

fn ranked(scored: Scored, values: &[String]) -> RankedValue {
    let (score, ratio) = (scored.log_score.exp(), scored.ratio.exp());
    let (low, high) = score.bounds_or_value();
    RankedValue {
        value: values[scored.value].clone(),
        score: score.value,
        score_ci: (low, high.min(1.0).max(score.value)),
        worst: scored.worst.0,
        worst_cell: scored.worst.1,
        ratio_to_best: ratio.value,
        ratio_to_best_ci: ratio.bounds_or_value(),
    }
}

fn family_best(groups: &[Group], family: &'static str, values: &[String]) -> Option<FamilyBest> {
    let ranking = rank(groups, values.len(), &Weights::only(family));
    let best = ranking.first()?;
    let mut scores = vec![0.0; values.len()];
    for scored in &ranking {
        scores[scored.value] = scored.log_score.value.exp();
    }
    Some(FamilyBest {
        family: family.to_owned(),
        best: values[best.value].clone(),
        score: best.log_score.value.exp(),
        tied_with: ties(&ranking, values),
        scores,
    })
}

fn summary(ranking: &[Scored], question: &Question<'_>, ties: &[String]) -> String {
    let name = |s: &Scored| question.values[s.value].as_str();
    let subject = question.subject;
    let Some(best) = ranking.first() else { return format!("No {subject} can be recommended yet.") };
    let reaches = format!(
        "It reaches {:.0} % of the best throughput of each workload on average, {:.0} % in the worst.",
        best.log_score.value.exp() * 100.0,
        best.worst.0 * 100.0
    );
    if !ties.is_empty() {
        let tied = ties.join(", ");
        return format!(
            "{subject} {} scores highest, but is tied with {tied}: the evidence does not tell them apart. {reaches}",
            name(best)
        );
    }
    let Some(next) = ranking.get(1) else {
        return format!("{subject} {} is the only value studied.", name(best));
    };
    let slower = |log: f64| (1.0 - log.exp()) * 100.0;
    let interval = next.ratio.bounds.map_or_else(
        || "no interval".to_owned(),
        |(low, high)| format!("95 % interval {:.1} to {:.1} %", slower(high), slower(low)),
    );
    format!(
        "{subject} {} is best; the next, {}, is {:.1} % slower ({interval}). {reaches}",
        name(best),
        name(next),
        slower(next.ratio.value)
    )
}

fn method(ranking: &[Scored]) -> String {
    let interval = if ranking.iter().any(|s| s.ratio.bounds.is_none()) {
        "cells ran only once, so there is no interval, and values are tied if"
    } else {
        "values are tied if the 95 % Student-t interval of their ratio, paired over replicates, includes 1, or if"
    };
    format!(
        "Throughput relative to the best value of the same workload, as the geometric mean over workloads, \
         each family counting by its weight; {interval} they differ by less than {:.0} %.",
        MARGIN * 100.0
    )
}

#[cfg(test)]
mod tests;
