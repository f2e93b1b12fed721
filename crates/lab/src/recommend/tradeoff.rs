//! Studies of a recovery under load: no value is best, for what the recovery gains its users pay. Told is what each
//! value gives and costs. Of a limit of the recovery's speed one value is named, by a rule that stands in the text; of
//! other subjects none, since both the recovery and the jobs may gain or lose by them.
//!
//! A cell's p99 is that of its slower direction. Workloads of one family that keep as many requests in flight are told
//! together, by their geometric mean; ratios are paired with the first value over the replicates that have figures of both. So a cell
//! that failed takes nothing from the other values.

use std::collections::{BTreeMap, BTreeSet};

use super::groups::{label, partial};
use super::left_out::{lacking, listed, warning, without};
use super::{FAMILIES, Judgement, Question, commands, family, no_weight};
use crate::results::{CellResult, Recommendation, TradeOff, TradeOffRow};
use crate::stats::{Interval, Mean};
use crate::units::time;

/// A value is acceptable while nowhere p99 is more than so many times that of the smallest value, nor throughput less
/// than one part in so many.
pub const COST_RATIO_MAX: f64 = 2.0;

/// What a cell says of the trade-off.
#[derive(Clone, Copy, Debug)]
struct Sample {
    sync_kib_s: f64,
    member_kib: f64,
    bytes_per_second: f64,
    p99_ns: f64,
}

impl Sample {
    /// Nothing of cells that failed, or have no figures. Where no I/O completed, whoever asked waited for all of the time.
    fn of(cell: &CellResult) -> Option<Self> {
        let figure = |name: &str| cell.figures.get(name).copied();
        let p99_ns = cell.read.latency_p99_ns.max(cell.write.latency_p99_ns) as f64;
        let bytes_per_second = cell.bytes_per_second();
        let sample = Self {
            sync_kib_s: figure("sync_kib_s")?,
            member_kib: figure("sync_total_kib").filter(|kib| *kib > 0.0)?,
            bytes_per_second,
            p99_ns: if bytes_per_second > 0.0 { p99_ns } else { cell.seconds * 1e9 },
        };
        (cell.error.is_none() && sample.p99_ns > 0.0).then_some(sample)
    }
}

/// A replicate's samples by value; none where a cell failed.
type Replicate = Vec<Option<Sample>>;

/// A replicate's samples, of which nothing is zero: what a value had none of counts as a thousandth of the most that another had,
/// since the ratio of a logarithm of 0 is none. Nothing if no value had any.
fn floored(mut samples: Replicate) -> Option<Replicate> {
    let most = |of: fn(&Sample) -> f64| samples.iter().flatten().map(of).fold(0.0, f64::max);
    let (sync, throughput) = (most(|s| s.sync_kib_s), most(|s| s.bytes_per_second));
    for sample in samples.iter_mut().flatten() {
        sample.sync_kib_s = sample.sync_kib_s.max(sync / 1000.0);
        sample.bytes_per_second = sample.bytes_per_second.max(throughput / 1000.0);
    }
    (sync > 0.0 && throughput > 0.0).then_some(samples)
}

/// A workload's samples, by replicate and then by value, smallest first.
struct Group {
    family: &'static str,
    in_flight: u64,
    label: String,
    replicates: Vec<Replicate>,
}

impl Group {
    /// The mean logarithm of a value's own figure.
    fn own(&self, value: usize, of: &dyn Fn(&Sample) -> f64) -> Mean {
        let samples = self.replicates.iter().filter_map(|r| r[value].as_ref());
        Mean::of(&samples.map(|s| of(s).ln()).collect::<Vec<_>>())
    }

    /// The logarithms of a value's figure beside that of the first, by replicate.
    fn beside_first(&self, value: usize, of: &dyn Fn(&Sample) -> f64) -> Vec<f64> {
        let pairs = self.replicates.iter().filter_map(|r| r[value].as_ref().zip(r[0].as_ref()));
        pairs.map(|(own, first)| (of(own) / of(first)).ln()).collect()
    }

    /// In how many replicates a value stands beside the first.
    fn pairs(&self, value: usize) -> usize {
        self.replicates.iter().filter(|r| r[value].is_some() && r[0].is_some()).count()
    }

    fn is_judged(&self, value: usize) -> bool {
        self.pairs(value) > 0
    }
}

/// Judges the cells as a trade-off, where they are one: jobs beside a recovery.
pub(super) fn judge(all_cells: &[CellResult], question: &Question<'_>) -> Option<Judgement> {
    let has_both = |c: &CellResult| c.figures.contains_key("sync_kib_s") && c.factors.contains_key("rw");
    if !all_cells.iter().any(has_both) {
        return None;
    }
    let is_limit = question.subject.starts_with("speed_limit_");
    let mut values: Vec<&String> = question.values.iter().collect();
    values.sort_by_key(|v| v.parse::<u64>().unwrap_or(u64::MAX));
    let cells: Vec<&CellResult> =
        all_cells.iter().filter(|c| c.target == "array" && c.factors.contains_key("rw")).collect();
    let is_beside = |c: &&CellResult| c.error.is_some() || c.figures.contains_key("sync_kib_s");
    let (cells, alone): (Vec<_>, Vec<_>) = cells.into_iter().partition(is_beside);
    let partial = partial(&cells, question);
    let groups = groups(&cells, question.subject, &values, &partial.single);
    let families: Vec<&str> =
        FAMILIES.into_iter().filter(|f| groups.iter().any(|g| g.family == *f && g.is_judged(0))).collect();
    let rows = rows(&groups, &families, &values);
    let mut notes = partial.notes;
    if notes.is_empty() {
        notes.extend(left_out(&groups, &values));
    }
    if !alone.is_empty() {
        notes.push(
            "Jobs that run beside no recovery are not judged with those that do; give them a plan of their own."
                .to_owned(),
        );
    }
    if rows.iter().any(|r| r.p99_ratio_ci.is_none()) {
        notes.push(
            "Where a value stands beside the first in one replicate only, there is no confidence interval."
                .to_owned(),
        );
    }
    let counts = |f: &str| question.weights.of(f) > 0.0;
    let is_judged = families.iter().any(|f| counts(f));
    if !is_judged && !families.is_empty() {
        notes.push(no_weight(families.iter().copied()));
    }
    let is_acceptable = |value: &String| {
        let mut of_value = rows.iter().filter(|r| r.value == **value && counts(&r.family)).peekable();
        of_value.peek().is_some() && of_value.all(is_within)
    };
    let best =
        (is_limit && is_judged).then(|| values.iter().rev().find(|v| is_acceptable(v)).copied()).flatten();
    let rule = if is_limit { rule(question.subject) } else { NO_RULE.to_owned() };
    let recommendation = Recommendation {
        ranking: Vec::new(),
        best: best.cloned().unwrap_or_default(),
        tied_with: Vec::new(),
        summary: match best {
            Some(best) => {
                summary(question, best, &values, &rows, &groups, &warning(all_cells, question, best))
            }
            None if is_limit || rows.is_empty() => {
                format!("No {} can be recommended yet.", question.subject)
            }
            None => unnamed(question.subject),
        },
        reasons: Vec::new(),
        method: rule.clone(),
        weights: families.iter().map(|f| ((*f).to_owned(), question.weights.of(f))).collect(),
        by_family: Vec::new(),
        trade_off: Some(TradeOff { rule, rows }),
        commands: best.map_or_else(Vec::new, |b| commands(question.subject, b, question.fixed)),
    };
    Some(Judgement { recommendation, notes })
}

/// Whether a row costs the job no more than the rule allows.
fn is_within(row: &TradeOffRow) -> bool {
    row.p99_ratio <= COST_RATIO_MAX && row.throughput_ratio * COST_RATIO_MAX >= 1.0
}

/// The rule by which one value is named, in words.
fn rule(subject: &str) -> String {
    format!(
        "By the rule, the largest {subject} is recommended with which no workload family that has weight waits, at any load, more than \
         {COST_RATIO_MAX} times as long (p99 of completion latency) as with the smallest one studied, nor has less than \
         1/{COST_RATIO_MAX} of its throughput. Figures are geometric means over the workloads of one family and load, \
         p99 that of the slower direction."
    )
}

/// What stands for the rule where there is none.
const NO_RULE: &str = "Nothing is ranked: the recovery's rate stands beside the throughput and p99 of the jobs. Figures are \
                       geometric means over the workloads of one family and load, p99 that of the slower direction.";

/// What is said of a subject that is no limit of the recovery's speed.
fn unnamed(subject: &str) -> String {
    format!(
        "This is a trade-off, and no {subject} is recommended: by the speed of the jobs alone, the value that holds the recovery \
         back most would win. Compare the time of a whole member with the throughput and p99 of the jobs, value by value."
    )
}

/// Samples by value, by replicate, by all factors but the subject.
type Samples = BTreeMap<BTreeMap<String, String>, BTreeMap<u32, Replicate>>;

/// Cells by all factors but the subject and those that tell no workloads apart.
fn groups(cells: &[&CellResult], subject: &str, values: &[&String], single: &BTreeSet<&str>) -> Vec<Group> {
    let mut by_group = Samples::new();
    for cell in cells {
        let mut factors = cell.factors.clone();
        let Some(value) = factors.remove(subject) else { continue };
        factors.retain(|name, _| !single.contains(name.as_str()));
        let Some(place) = values.iter().position(|v| **v == value) else { continue };
        let replicates = by_group.entry(factors).or_default();
        replicates.entry(cell.replicate).or_insert_with(|| vec![None; values.len()])[place] =
            Sample::of(cell);
    }
    let group = |(factors, replicates): (BTreeMap<String, String>, BTreeMap<u32, Replicate>)| {
        let number = |name: &str| factors.get(name).and_then(|n| n.parse::<u64>().ok()).unwrap_or(1);
        Some(Group {
            family: family(&factors)?,
            in_flight: number("iodepth") * number("numjobs"),
            label: label(&factors),
            replicates: replicates.into_values().filter_map(floored).collect(),
        })
    };
    by_group.into_iter().filter_map(group).collect()
}

/// What is not judged, or by fewer replicates than another value.
fn left_out(groups: &[Group], values: &[&String]) -> Vec<String> {
    let (mut none, mut fewer) = (Vec::new(), Vec::new());
    for group in groups {
        let pairs: Vec<usize> = (0..values.len()).map(|value| group.pairs(value)).collect();
        let most = pairs.iter().copied().max().unwrap_or(0);
        let with = |is: &dyn Fn(usize) -> bool| -> Vec<&str> {
            values
                .iter()
                .zip(&pairs)
                .filter(|(_, pairs)| is(**pairs))
                .map(|(value, _)| value.as_str())
                .collect()
        };
        let nothing = with(&|pairs| pairs == 0);
        if most == 0 {
            none.push(format!("{} (nothing to stand beside)", group.label));
        } else if !nothing.is_empty() {
            none.push(without(&group.label, &nothing));
        }
        let some = with(&|pairs| pairs > 0 && pairs < most);
        if !some.is_empty() {
            fewer.push(format!("{} ({})", group.label, some.join(", ")));
        }
    }
    let mut notes = Vec::new();
    if !none.is_empty() {
        notes.push(lacking(&none, groups.len()));
    }
    if !fewer.is_empty() {
        notes.push(format!(
            "Judged by fewer replicates than other values, since cells have no figures: {}.",
            listed(&fewer)
        ));
    }
    notes
}

/// A row for each family, load and value that stands beside the first.
fn rows(groups: &[Group], families: &[&str], values: &[&String]) -> Vec<TradeOffRow> {
    let mut rows = Vec::new();
    for family in families {
        let loads: BTreeSet<u64> =
            groups.iter().filter(|g| g.family == *family).map(|g| g.in_flight).collect();
        for load in loads {
            let alike = groups.iter().filter(|g| g.family == *family && g.in_flight == load);
            let alike: Vec<&Group> = alike.collect();
            rows.extend((0..values.len()).filter_map(|value| row(&alike, value, values[value])));
        }
    }
    rows
}

/// A value in those workloads of one family and load that have figures of it and of the first.
fn row(alike: &[&Group], value: usize, name: &str) -> Option<TradeOffRow> {
    let judged: Vec<&&Group> = alike.iter().filter(|g| g.is_judged(value)).collect();
    let first = judged.first()?;
    let mean = |of: &dyn Fn(&Group) -> Mean| {
        Interval::of_weighted_sum(judged.iter().map(|g| (1.0 / judged.len() as f64, of(g)))).exp()
    };
    let own = |of: &dyn Fn(&Sample) -> f64| mean(&|g| g.own(value, of)).value;
    let ratio = |of: &dyn Fn(&Sample) -> f64| mean(&|g| Mean::of(&g.beside_first(value, of)));
    let (throughput, p99) = (ratio(&|s| s.bytes_per_second), ratio(&|s| s.p99_ns));
    Some(TradeOffRow {
        family: first.family.to_owned(),
        in_flight: first.in_flight,
        value: name.to_owned(),
        sync_kib_s: own(&|s| s.sync_kib_s),
        member_seconds: own(&|s| s.member_kib / s.sync_kib_s),
        bytes_per_second: own(&|s| s.bytes_per_second),
        p99_ns: own(&|s| s.p99_ns),
        throughput_ratio: throughput.value,
        throughput_ratio_ci: throughput.bounds,
        p99_ratio: p99.value,
        p99_ratio_ci: p99.bounds,
    })
}

/// Where the rule was found to hold for a value: everywhere, or not in the workloads that are named.
fn reach(groups: &[&Group], place: usize, family: &str) -> String {
    let unjudged: Vec<String> =
        groups.iter().filter(|g| !g.is_judged(place)).map(|g| g.label.clone()).collect();
    if unjudged.is_empty() {
        format!("in any {family} at any load")
    } else {
        format!("in all workloads that could be judged, without {}", listed(&unjudged))
    }
}

fn summary(
    question: &Question<'_>,
    best: &str,
    values: &[&String],
    rows: &[TradeOffRow],
    groups: &[Group],
    warning: &str,
) -> String {
    let Question { subject, weights, .. } = *question;
    let least = values[0].as_str();
    let counts = |family: &str| weights.of(family) > 0.0;
    let of = |value: &str| rows.iter().filter(|r| r.value == value && counts(&r.family)).collect::<Vec<_>>();
    let family = if rows.iter().all(|r| counts(&r.family)) { "family" } else { "family that has weight" };
    let place = values.iter().position(|v| *v == best).unwrap_or(0);
    let groups: Vec<&Group> = groups.iter().filter(|g| counts(g.family)).collect();
    let reach = reach(&groups, place, family);
    let worst = groups
        .iter()
        .filter(|g| g.is_judged(place))
        .map(|g| (Mean::of(&g.beside_first(place, &|s| s.p99_ns)).mean.exp(), g.label.as_str()))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(ratio, label)| {
            format!(" The workload that suffers most waits {ratio:.2} times as long ({label}).")
        });
    let range = |rows: &[&TradeOffRow], of: fn(&TradeOffRow) -> f64| {
        let figures = rows.iter().map(|r| of(r));
        (figures.clone().fold(f64::INFINITY, f64::min), figures.fold(0.0, f64::max))
    };
    let whole = |value: &str| {
        let (low, high) = range(&of(value), |r| r.member_seconds);
        if time(low) == time(high) { time(low) } else { format!("{} to {}", time(low), time(high)) }
    };
    let (with_best, with_least) = (whole(best), whole(least));
    let (slowest, fastest) = range(&of(best), |r| r.throughput_ratio);
    let of_best = of(best);
    let p99_most = of_best.iter().max_by(|a, b| a.p99_ratio.total_cmp(&b.p99_ratio));
    let p99_most = p99_most.map_or_else(String::new, |row| {
        let interval = row.p99_ratio_ci.map(|(low, high)| format!(" (95 % interval {low:.2} to {high:.2})"));
        format!("{:.2} times as long{}", row.p99_ratio, interval.unwrap_or_default())
    });
    let reaches = of_best.iter().filter_map(|row| row.p99_ratio_ci).map(|(_, high)| high).fold(0.0, f64::max);
    let doubt = if reaches > COST_RATIO_MAX {
        format!(" An interval reaches {reaches:.2}, so more replicates may name a smaller value.")
    } else {
        String::new()
    };
    format!(
        "This is a trade-off: a faster recovery is paid for by those who use the array. {subject} {best}{warning} is \
         the largest that costs them no more than a doubled p99 or half of the throughput they have with {least}, {reach}: p99 is at most {p99_most}, throughput {:.0} to {:.0} %. A whole member then takes \
         {with_best} instead of {with_least}, by workload.{worst}{doubt}",
        slowest * 100.0,
        fastest * 100.0,
    )
}

#[cfg(test)]
#[path = "tradeoff_tests.rs"]
mod tests;
