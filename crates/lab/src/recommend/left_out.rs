//! What of a study is not compared, by name: a reader must not take the rest for all of it.

use super::{Question, family};
use crate::results::CellResult;

/// Workloads named in a sentence; of more the rest is counted.
const NAMED_MAX: usize = 5;

/// Names in a sentence.
pub(super) fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let shown = names[..names.len() - more].join("; ");
    if more == 0 { shown } else { format!("{shown}; and {more} more") }
}

/// So many workloads of all are not judged, and which.
pub(super) fn lacking(names: &[String], all: usize) -> String {
    let (lack, were) = if names.len() == 1 { ("lacks", "was") } else { ("lack", "were") };
    let workloads = if all == 1 { "workload" } else { "workloads" };
    format!(
        "{} of {all} {workloads} {lack} figures for some value and {were} not judged: {}.",
        names.len(),
        listed(names)
    )
}

/// A workload's name with the values it has nothing of; where it has something of each, no replicate has all.
pub(super) fn without(label: &str, lacks: &[&str]) -> String {
    if lacks.is_empty() {
        format!("{label} (no replicate is complete)")
    } else {
        format!("{label} (nothing for {})", lacks.join(", "))
    }
}

/// What has to be said of a value wherever it is named: how many of its cells that count have no figures. Nothing if all have.
pub(super) fn warning(cells: &[CellResult], question: &Question<'_>, value: &str) -> String {
    let is_its = |c: &&CellResult| {
        let counts = family(&c.factors).is_none_or(|family| question.weights.of(family) > 0.0);
        c.target == "array" && counts && c.factors.get(question.subject).is_some_and(|v| v == value)
    };
    let its: Vec<&CellResult> = cells.iter().filter(is_its).collect();
    let failed = its.iter().filter(|c| c.error.is_some()).count();
    if failed == 0 {
        String::new()
    } else {
        format!(" ({failed} of its {} cells have no figures)", its.len())
    }
}
