//! The recommendation: which value of the subject serves the weighted workloads best, and what the evidence
//! does not tell apart.
//!
//! A value's throughput in a cell is its geometric mean over replicates, relative to the best value of that
//! cell; where file systems are made, the inverse of the seconds that takes stands for it. The score is the geometric mean of that over cells, each family counting by its weight however many
//! cells it has. A value is tied with the best if the interval of their ratio includes 1, or if they differ by less
//! than [`MARGIN`]. The best is chosen from the same figures, so any two values may be the ones compared: the
//! intervals of all pairs hold together (Bonferroni). Cells of a single drive are for reference and do not count. Where a recovery runs beside the jobs, speed
//! alone is not what is sought: those studies are judged as a trade-off, whatever their subject.

mod apply;
mod bitmap;
mod family;
mod groups;
mod left_out;
mod preference;
mod reason;
mod summary;
mod tradeoff;

use std::collections::{BTreeMap, BTreeSet};

use crate::results::{CellResult, FamilyBest, RankedValue, Recommendation};
use crate::stats::{Interval, Mean};

pub use apply::commands;
use apply::must_be_chosen;
pub use family::{FAMILIES, Judged, JudgedFigure, Weights, families_of, family, judged};
pub(crate) use family::{MKFS, PACED, SYNC};
use groups::{Gathered, Group, gather};
use left_out::warning;
use preference::{nothing_to_apply, preferred};
use reason::reasons;
use summary::{method, mkfs_sizes, no_weight, summary, survival};
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

/// A value's score among the others.
struct Scored {
    value: usize,
    log_score: Interval,
    worst: (f64, String),
    /// Logarithm of the ratio to the best value.
    ratio: Interval,
}

/// What is said where the commands are of another system than the evidence.
const OTHER_POLICY: &str = "The array followed the policy stripewise, this engine's own, and the commands are of Linux's md: name its \
                            policy, such as policy = \"linux-6.1\" in [rig], to compare values under that.";

/// Subjects that decide how large an array is.
const SIZES: [&str; 4] = ["level", "raid_devices", "layout", "drive"];

/// Judges a study's cells.
pub fn recommend(cells: &[CellResult], question: &Question<'_>) -> Judgement {
    let mut judgement = tradeoff::judge(cells, question).unwrap_or_else(|| ranked_judgement(cells, question));
    let is_of_md = question.fixed.get("policy").is_none_or(|policy| policy != "stripewise");
    if !is_of_md && !judgement.recommendation.commands.is_empty() {
        judgement.notes.push(OTHER_POLICY.to_owned());
    }
    judgement
}

/// Judges cells in which speed is what is sought.
fn ranked_judgement(cells: &[CellResult], question: &Question<'_>) -> Judgement {
    let Gathered { groups, mut notes, is_explained } = gather(cells, question);
    let preferred = preferred(question);
    let ranking = rank(&groups, &preferred, question.weights);
    if ranking.is_empty() && !groups.is_empty() {
        notes.push(no_weight(present_families(&groups)));
    } else if ranking.is_empty() && !is_explained {
        notes.push("No cell is complete for every value, so there is nothing to recommend yet.".to_owned());
    } else if ranking.iter().any(|s| s.ratio.bounds.is_none()) {
        notes.push(format!(
            "Some workloads were compared in one replicate only, so there is no confidence interval: values are called tied by \
             the practical margin of {:.0} % alone, and no winner is proven.",
            MARGIN * 100.0
        ));
    }
    notes.extend(bitmap::costs(cells, question));
    notes.extend((question.subject == "level" && !ranking.is_empty()).then(|| survival(question.values)));
    let sizes_differ = SIZES.contains(&question.subject) && groups.iter().any(|group| group.family == MKFS);
    notes.extend(sizes_differ.then(|| mkfs_sizes(question.subject)));
    let ties = ties(&ranking, question.values);
    let best = ranking.first().map_or_else(String::new, |s| question.values[s.value].clone());
    notes.extend((question.subject == "bitmap" && best == "none").then(|| bitmap::WITHOUT.to_owned()));
    let by_family: Vec<FamilyBest> = present_families(&groups)
        .filter_map(|f| family_best(&groups, f, &preferred, question.values))
        .collect();
    let recommendation = Recommendation {
        reasons: reasons(cells, question, &by_family),
        summary: summary(&ranking, question, &groups, &warning(cells, question, &best)),
        method: method(&ranking, &groups),
        weights: present_families(&groups).map(|f| (f.to_owned(), question.weights.of(f))).collect(),
        by_family,
        trade_off: None,
        commands: if best.is_empty() || nothing_to_apply(&ranking, question).is_some() {
            Vec::new()
        } else {
            commands(question.subject, &best, question.fixed)
        },
        ranking: ranking.into_iter().map(|s| ranked(s, question.values)).collect(),
        best,
        tied_with: ties,
    };
    if apply::leave_bitmap_open(&recommendation.commands) {
        notes.push(bitmap::LEFT_OPEN.to_owned());
    }
    Judgement { recommendation, notes }
}

fn present_families(groups: &[Group]) -> impl Iterator<Item = &'static str> {
    let present: BTreeSet<&str> = groups.iter().map(|g| g.family).collect();
    FAMILIES.into_iter().filter(move |f| present.contains(f))
}

/// Logarithms of scores that differ by less are of equal figures.
const EQUAL: f64 = 1e-9;

/// Scores every value, best first, those that are equal by preference; empty if no group has weight.
fn rank(groups: &[Group], preferred: &[usize], weights: &Weights) -> Vec<Scored> {
    let values = preferred.len();
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
    let mut order = preferred.to_vec();
    let rounded = |value: usize| (scores[value].value / EQUAL).round();
    order.sort_by(|a, b| rounded(*b).total_cmp(&rounded(*a)));
    let best = order[0];
    let pairs = values * values.saturating_sub(1) / 2;
    let ratio = |value: usize| {
        let paired =
            |g: &Group| g.logs[value].iter().zip(&g.logs[best]).map(|(a, b)| a - b).collect::<Vec<_>>();
        let own = |g: &Group| Mean::of(&paired(g));
        let of_all = |g: &Group| match g.scatter.filter(|_| value != best) {
            Some(scatter) => scatter.difference(own(g).mean, g.logs[value].len()),
            None => own(g),
        };
        let of = |mean: &dyn Fn(&Group) -> Mean, comparisons: usize| {
            Interval::simultaneous(weighted.iter().map(|(w, g)| (*w, mean(g))), comparisons)
        };
        // Of two values both are the same.
        if values < 3 { of(&own, 1) } else { of(&own, 2 * pairs).narrower(of(&of_all, 2 * pairs)) }
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

/// Why a value is tied with the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tie {
    /// The interval of their ratio includes 1.
    Evidence,
    /// They differ by less than [`MARGIN`].
    Margin,
}

impl Scored {
    /// The score: 1 for the best everywhere, though a mean of many ratios may come to a little more.
    fn score(&self) -> f64 {
        self.log_score.value.exp().min(1.0)
    }

    fn tie(&self) -> Option<Tie> {
        if self.ratio.bounds.is_some_and(|(_, high)| high >= 0.0) {
            Some(Tie::Evidence)
        } else {
            (self.ratio.value.exp() > 1.0 - MARGIN).then_some(Tie::Margin)
        }
    }
}

/// The values that are tied with the best.
fn ties(ranking: &[Scored], values: &[String]) -> Vec<String> {
    ranking.iter().skip(1).filter(|s| s.tie().is_some()).map(|s| values[s.value].clone()).collect()
}

fn ranked(scored: Scored, values: &[String]) -> RankedValue {
    let (score, ratio) = (scored.score(), scored.ratio.exp());
    RankedValue {
        value: values[scored.value].clone(),
        score,
        score_ci: scored.log_score.exp().bounds.map(|(low, high)| (low, high.min(1.0).max(score))),
        worst: scored.worst.0,
        worst_cell: scored.worst.1,
        ratio_to_best: ratio.value,
        ratio_to_best_ci: ratio.bounds,
    }
}

fn family_best(
    groups: &[Group],
    family: &'static str,
    preferred: &[usize],
    values: &[String],
) -> Option<FamilyBest> {
    let ranking = rank(groups, preferred, &Weights::only(family));
    let best = ranking.first()?;
    let mut scores = vec![0.0; values.len()];
    for scored in &ranking {
        scores[scored.value] = scored.score();
    }
    Some(FamilyBest {
        family: family.to_owned(),
        best: values[best.value].clone(),
        score: best.score(),
        tied_with: ties(&ranking, values),
        scores,
    })
}

#[cfg(test)]
mod evidence_tests;
#[cfg(test)]
mod tests;
