//! The cells' figures as text. Only replicates are averaged: cells that differ in anything but the subject and a
//! table's lines stand in different tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use stripewise_lab::recommend::{FAMILIES, JudgedFigure, judged};
use stripewise_lab::results::{CellResult, StudyResults};
use stripewise_lab::workload::parse_size;

use crate::output::Table;

/// What a table's lines are told by: the first of these that its cells have.
const LINES: [&str; 3] = ["trace", "run", "bs"];

/// Factors that a family or a line names, so that a title need not where they are the same in all its cells.
const NAMED: [&str; 6] = ["rw", "rwmixread", "bs", "run", "trace", "speed"];

/// A figure of cells.
struct Figure {
    unit: &'static str,
    /// What a line is called that nothing tells from others.
    name_alone: &'static str,
    of: fn(&CellResult) -> Option<f64>,
}

/// What the lines of a table are told by, and whether it is of a drive alone.
type Kind = (Option<&'static str>, bool);

/// The factors in a table's title, with their values.
type Others = Vec<(String, String)>;

/// Throughput by workload family, of a paced trace the mean latency; where no job runs, the rate of what arrays do by themselves, or
/// the time of mkfs.
pub(super) fn families(text: &mut String, results: &StudyResults) {
    for name in FAMILIES {
        let (title, unit, name_alone) = match name {
            "sync" => ("resync or recovery", "MB/s of each member", "rate"),
            "mkfs" => ("mkfs", "seconds, less is better,", "time"),
            "paced-trace" => (name, "ms of mean latency, less is better,", "time"),
            _ => (name, "MB/s", "rate"),
        };
        let of = |cell: &CellResult| {
            judged(cell).map(|judged| match judged.figure {
                JudgedFigure::BytesPerSecond(rate) => rate / 1e6,
                JudgedFigure::Seconds(seconds) if judged.family == "paced-trace" => seconds * 1e3,
                JudgedFigure::Seconds(seconds) => seconds,
            })
        };
        let figure = Figure { unit, name_alone, of };
        tables(text, results, title, &figure, |cell| {
            judged(cell).is_some_and(|judged| judged.family == name)
        });
    }
}

/// A figure of the cells that belong: a line per block size, run or trace, a column per value of the subject.
fn tables(
    text: &mut String,
    results: &StudyResults,
    name: &str,
    figure: &Figure,
    belongs: impl Fn(&CellResult) -> bool,
) {
    let mut kinds: BTreeMap<Kind, Vec<&CellResult>> = BTreeMap::new();
    for cell in results.cells.iter().filter(|cell| cell.error.is_none() && belongs(cell)) {
        let line = LINES.into_iter().find(|l| *l != results.subject && cell.factors.contains_key(*l));
        let alone = cell.target == "drive" && cell.factors.contains_key(&results.subject);
        kinds.entry((line, alone)).or_default().push(cell);
    }
    for ((line, alone), cells) in kinds {
        let told = told_apart(results, &cells, line);
        let mut groups: BTreeMap<Others, Vec<&CellResult>> = BTreeMap::new();
        for cell in cells {
            let others = cell.factors.iter().filter(|(name, _)| told.contains(name.as_str()));
            let others = others.map(|(name, value)| (name.clone(), value.clone())).collect();
            groups.entry(others).or_default().push(cell);
        }
        for (others, cells) in ordered(groups) {
            let alone = alone.then(|| "one drive".to_owned());
            let others = others.iter().map(|(name, value)| format!("{name} {value}"));
            let title: Vec<String> = std::iter::once(name.to_owned()).chain(alone).chain(others).collect();
            let simulated = if results.simulated { ", simulated" } else { "" };
            let by: Vec<&str> = line.into_iter().chain([results.subject.as_str()]).collect();
            let _ =
                writeln!(text, "\n{}: {} by {}{simulated}", title.join(", "), figure.unit, by.join(" and "));
            text.push_str(&table(results, &cells, line, figure).to_string());
        }
    }
}

/// The factors beside subject and line in which cells of one target differ.
fn told_apart<'a>(
    results: &'a StudyResults,
    cells: &[&'a CellResult],
    line: Option<&str>,
) -> BTreeSet<&'a str> {
    let all: Vec<&CellResult> = results.cells.iter().collect();
    let differs = |name: &str, among: &[&CellResult]| {
        ["array", "drive"].into_iter().any(|target| {
            let of_target = among.iter().filter(|cell| cell.target == target);
            of_target.map(|cell| cell.factors.get(name)).collect::<BTreeSet<_>>().len() > 1
        })
    };
    let names: BTreeSet<&str> =
        cells.iter().flat_map(|cell| cell.factors.keys()).map(String::as_str).collect();
    let tells = |name: &str| {
        let among = if NAMED.contains(&name) { cells } else { &all };
        name != results.subject && Some(name) != line && (name == "numjobs" || differs(name, among))
    };
    names.into_iter().filter(|name| tells(name)).collect()
}

/// Groups in order of their numbers rather than of their digits.
fn ordered(groups: BTreeMap<Others, Vec<&CellResult>>) -> Vec<(Others, Vec<&CellResult>)> {
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(others, _)| others.iter().map(|(_, value)| number(value)).collect::<Vec<_>>());
    groups
}

/// A size for ordering; names come last.
fn number(value: &str) -> u64 {
    parse_size(value).unwrap_or(u64::MAX)
}

fn table(results: &StudyResults, cells: &[&CellResult], line: Option<&str>, figure: &Figure) -> Table {
    let label = |cell: &CellResult| line.and_then(|l| cell.factors.get(l)).cloned();
    let labels: BTreeSet<_> =
        cells.iter().map(|cell| label(cell)).map(|l| (l.as_deref().map(number), l)).collect();
    let is_untouched = |cell: &CellResult, target: &str| {
        cell.target == target && !cell.factors.contains_key(&results.subject)
    };
    // A part that fixes the subject, or does without it, has figures of no value.
    let mut besides = vec![("one drive", "drive"), ("any", "array")];
    besides.retain(|(_, target)| cells.iter().any(|cell| is_untouched(cell, target)));
    let mut headings = vec![line.unwrap_or_default()];
    headings.extend(results.subject_values.iter().map(String::as_str));
    headings.extend(besides.iter().map(|(heading, _)| *heading));
    let mut table = Table::new(headings);
    for (_, own) in labels {
        let of_line: Vec<&CellResult> = cells.iter().copied().filter(|cell| label(cell) == own).collect();
        let mut row = vec![own.unwrap_or_else(|| figure.name_alone.to_owned())];
        row.extend(results.subject_values.iter().map(|value| {
            mean(figure, of_line.iter().filter(|cell| cell.factors.get(&results.subject) == Some(value)))
        }));
        row.extend(
            besides
                .iter()
                .map(|(_, target)| mean(figure, of_line.iter().filter(|cell| is_untouched(cell, target)))),
        );
        table.row(row);
    }
    table
}

/// Mean over replicates, or a dash where there is none.
fn mean<'a>(figure: &Figure, cells: impl Iterator<Item = &'a &'a CellResult>) -> String {
    let rates: Vec<f64> = cells.filter_map(|cell| (figure.of)(cell)).collect();
    if rates.is_empty() {
        return "-".to_owned();
    }
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    if mean < 10.0 { format!("{mean:.2}") } else { format!("{mean:.1}") }
}
