//! A study's results as text: a table per workload family, then the recommendation with its evidence.

use std::collections::BTreeMap;
use std::fmt::Write;

use stripewise_lab::claims::{ClaimResult, Counts};
use stripewise_lab::recommend::{FAMILIES, family};
use stripewise_lab::results::{CellResult, Recommendation, StudyResults, TradeOff};
use stripewise_lab::workload::parse_size;

use crate::output::Table;

/// Everything a person wants to know.
pub(crate) fn study(results: &StudyResults) -> String {
    let environment = &results.environment;
    let kind = if results.simulated { "simulated" } else { "measured" };
    let quick = if results.quick { ", quick plan" } else { "" };
    let mut text = format!("{} ({kind}{quick})\n{}\n", results.title, environment.description);
    for family in FAMILIES {
        family_tables(&mut text, results, family);
    }
    recommendation(&mut text, results);
    text.push_str(&claims(&results.claims));
    for note in &environment.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// What was published beside what was found; nothing where nothing is claimed.
pub(crate) fn claims(claims: &[ClaimResult]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let mut text = String::from("Published and here\n");
    let mut table = Table::of_text(["claim", "published", "here", "verdict", "by"]);
    for claim in claims {
        let words = [&claim.id, &claim.published, &claim.here].map(|text| text.trim().to_owned());
        let [id, published, here] = words;
        table.row([id, published, here, claim.verdict.name().to_owned(), claim.basis.name().to_owned()]);
    }
    text.push_str(&table.to_string());
    for claim in claims {
        if let Some(reason) = &claim.reason {
            let _ = writeln!(text, "{} ({}): {}", claim.id, claim.verdict.name(), reason.trim());
        }
    }
    let _ = writeln!(text, "{}", Counts::of(claims));
    text
}

/// Throughput of one family in MB/s: a line per block size, a column per value of the subject, apart by
/// every other factor.
fn family_tables(text: &mut String, results: &StudyResults, name: &str) {
    let mut groups: BTreeMap<Vec<(String, String)>, Vec<&CellResult>> = BTreeMap::new();
    let of_family = results.cells.iter().filter(|c| family(&c.factors) == Some(name) && c.error.is_none());
    for cell in of_family {
        groups.entry(other_factors(results, cell)).or_default().push(cell);
    }
    for (others, cells) in ordered(groups) {
        let others: Vec<String> = others.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let simulated = if results.simulated { ", simulated" } else { "" };
        let title: Vec<&str> = std::iter::once(name).chain(others.iter().map(String::as_str)).collect();
        let line = if name == "trace" { "trace" } else { "bs" };
        let _ = writeln!(text, "\n{}: MB/s by {line} and {}{simulated}", title.join(", "), results.subject);
        text.push_str(&table(results, &cells).to_string());
    }
}

/// The factors that neither the table's sides nor the family name.
fn other_factors(results: &StudyResults, cell: &CellResult) -> Vec<(String, String)> {
    let shown = [results.subject.as_str(), "bs", "run", "rw", "rwmixread", "trace"];
    let varies = |name: &str| {
        let mut values = results.cells.iter().filter_map(|c| c.factors.get(name));
        let first = values.next();
        values.any(|v| Some(v) != first)
    };
    let is_other = |name: &str| !shown.contains(&name) && (varies(name) || name == "numjobs");
    cell.factors.iter().filter(|(name, _)| is_other(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
}

type Groups<'a> = Vec<(Vec<(String, String)>, Vec<&'a CellResult>)>;

/// Groups in order of their numbers rather than of their digits.
fn ordered(groups: BTreeMap<Vec<(String, String)>, Vec<&CellResult>>) -> Groups<'_> {
    let mut groups: Groups<'_> = groups.into_iter().collect();
    groups.sort_by_key(|(others, _)| {
        others.iter().map(|(_, value)| parse_size(value).unwrap_or(u64::MAX)).collect::<Vec<_>>()
    });
    groups
}

/// What a line is told by: the run where there is one, the block, or the trace.
fn size(cell: &CellResult) -> Option<&str> {
    ["run", "bs", "trace"].iter().find_map(|name| cell.factors.get(*name)).map(String::as_str)
}

fn table(results: &StudyResults, cells: &[&CellResult]) -> Table {
    let mut sizes: Vec<&str> = cells.iter().filter_map(|c| size(c)).collect();
    sizes.sort_by_key(|s| parse_size(s).unwrap_or(u64::MAX));
    sizes.dedup();
    let has_drive = cells.iter().any(|c| c.target == "drive");
    let is_trace = cells.iter().all(|c| c.factors.contains_key("trace"));
    let mut headings = vec![if is_trace { "trace" } else { "bs" }];
    headings.extend(results.subject_values.iter().map(String::as_str));
    if has_drive {
        headings.push("one drive");
    }
    let mut table = Table::new(headings);
    for size in sizes {
        let of_size = |target: &str, value: Option<&str>| {
            mean(cells.iter().filter(|c| {
                c.target == target
                    && self::size(c) == Some(size)
                    && value.is_none_or(|v| c.factors.get(&results.subject).map(String::as_str) == Some(v))
            }))
        };
        let mut row = vec![size.to_owned()];
        row.extend(results.subject_values.iter().map(|v| of_size("array", Some(v))));
        if has_drive {
            row.push(of_size("drive", None));
        }
        table.row(row);
    }
    table
}

/// Mean throughput over replicates, or a dash where there is none.
fn mean<'a>(cells: impl Iterator<Item = &'a &'a CellResult>) -> String {
    let rates: Vec<f64> = cells.map(|c| c.bytes_per_second() / 1e6).collect();
    if rates.is_empty() {
        return "-".to_owned();
    }
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    if mean < 10.0 { format!("{mean:.2}") } else { format!("{mean:.1}") }
}

/// The values from best to worst, over all and by family.
fn rankings(text: &mut String, results: &StudyResults) {
    let Recommendation { ranking, by_family, .. } = &results.recommendation;
    let _ = writeln!(text, "\nRanking by {}", results.subject);
    let mut table =
        Table::new([results.subject.as_str(), "score", "95 % interval", "worst", "of the best there"]);
    for ranked in ranking {
        table.row([
            ranked.value.clone(),
            format!("{:.3}", ranked.score),
            ranked.score_ci.map_or_else(|| "-".to_owned(), |(low, high)| format!("{low:.3} to {high:.3}")),
            format!("{:.2}", ranked.worst),
            ranked.worst_cell.clone(),
        ]);
    }
    text.push_str(&table.to_string());
    let _ = writeln!(text, "\nBest by workload family");
    let mut table = Table::of_text(["family", "best", "tied with it"]);
    for best in by_family {
        table.row([best.family.clone(), best.best.clone(), best.tied_with.join(", ")]);
    }
    text.push_str(&table.to_string());
}

/// What each value gives to the recovery and costs the jobs.
fn trade_off(text: &mut String, results: &StudyResults, trade_off: &TradeOff) {
    let simulated = if results.simulated { ", simulated" } else { "" };
    let _ = writeln!(
        text,
        "\nTrade-off by workload family, requests in flight and {}{simulated}",
        results.subject
    );
    let mut table = Table::new([
        "family",
        "in flight",
        results.subject.as_str(),
        "recovery MiB/s",
        "whole member h",
        "job MB/s",
        "of smallest",
        "p99 ms",
        "x smallest",
    ]);
    for row in &trade_off.rows {
        table.row([
            row.family.clone(),
            row.in_flight.to_string(),
            row.value.clone(),
            format!("{:.1}", row.sync_kib_s / 1024.0),
            format!("{:.1}", row.member_seconds / 3600.0),
            format!("{:.2}", row.bytes_per_second / 1e6),
            format!("{:.0} %", row.throughput_ratio * 100.0),
            format!("{:.1}", row.p99_ns / 1e6),
            format!("{:.2}", row.p99_ratio),
        ]);
    }
    text.push_str(&table.to_string());
}

fn recommendation(text: &mut String, results: &StudyResults) {
    let Recommendation { ranking, summary, method, reasons, commands, .. } = &results.recommendation;
    if !ranking.is_empty() {
        rankings(text, results);
    }
    if let Some(trade_off) = &results.recommendation.trade_off {
        self::trade_off(text, results, trade_off);
    }
    let _ = writeln!(text, "\nRecommendation: {summary}");
    for reason in reasons {
        let _ = writeln!(text, "  {reason}");
    }
    let _ = writeln!(text, "How it was judged: {method}");
    if !commands.is_empty() {
        let _ = writeln!(text, "\nTo apply it:");
        for command in commands {
            let _ = writeln!(text, "  {command}");
        }
    }
    text.push('\n');
}
