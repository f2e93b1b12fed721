//! A study's results as text: a table per workload family, then the recommendation with its evidence.

use std::fmt::Write;

use stripewise_lab::claims::{ClaimResult, Counts};
use stripewise_lab::recommend::Weights;
use stripewise_lab::results::{Recommendation, StudyResults, TradeOff};
use stripewise_lab::units::{three_digits, time};

use super::figures;
use crate::output::Table;

/// Everything a person wants to know.
pub(crate) fn study(results: &StudyResults) -> String {
    let environment = &results.environment;
    let kind = if results.simulated { "simulated" } else { "measured" };
    let quick = if results.quick { ", quick plan" } else { "" };
    let mut text = format!("{} ({kind}{quick})\n{}\n", results.title, environment.description);
    figures::families(&mut text, results);
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
    // Without an interval none is proven to be the best.
    let is_proven = ranking.iter().all(|ranked| ranked.ratio_to_best_ci.is_some());
    let word = if is_proven { "best" } else { "highest" };
    let _ = writeln!(text, "\nBy workload family");
    let mut table = Table::of_text(["family", word, "tied with it"]);
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
    let first = trade_off.rows.first().map_or("", |row| row.value.as_str());
    let (of_first, times_first) = (format!("of {first}"), format!("x {first}"));
    let mut table = Table::new([
        "family",
        "in flight",
        results.subject.as_str(),
        "recovery MiB/s",
        "whole member",
        "job MB/s",
        &of_first,
        "95 % interval",
        "p99",
        &times_first,
        "95 % interval",
    ]);
    for row in &trade_off.rows {
        table.row([
            row.family.clone(),
            row.in_flight.to_string(),
            row.value.clone(),
            three_digits(row.sync_kib_s / 1024.0),
            time(row.member_seconds),
            three_digits(row.bytes_per_second / 1e6),
            format!("{:.0} %", row.throughput_ratio * 100.0),
            interval(row.throughput_ratio_ci, |share| format!("{:.0} %", share * 100.0)),
            time(row.p99_ns / 1e9),
            format!("{:.2}", row.p99_ratio),
            interval(row.p99_ratio_ci, |times| format!("{times:.2}")),
        ]);
    }
    text.push_str(&table.to_string());
}

/// A ratio's interval; a dash of the first value, which is itself, and of single runs.
fn interval(bounds: Option<(f64, f64)>, write: fn(f64) -> String) -> String {
    let told = bounds.filter(|(low, high)| low < high);
    told.map_or_else(|| "-".to_owned(), |(low, high)| format!("{} to {}", write(low), write(high)))
}

fn recommendation(text: &mut String, results: &StudyResults) {
    let Recommendation { ranking, summary, method, reasons, commands, weights, .. } = &results.recommendation;
    if !ranking.is_empty() {
        rankings(text, results);
    }
    if let Some(trade_off) = results.recommendation.trade_off.as_ref().filter(|t| !t.rows.is_empty()) {
        self::trade_off(text, results, trade_off);
    }
    let _ = writeln!(text, "\nRecommendation: {summary}");
    for reason in reasons {
        let _ = writeln!(text, "  {reason}");
    }
    let _ = writeln!(text, "How it was judged: {method}");
    let weights = Weights::given(weights);
    if !weights.is_empty() {
        let _ = writeln!(text, "Weights, 1 where none is told: {}", weights.join(", "));
    }
    if !commands.is_empty() {
        let _ = writeln!(text, "\nTo apply it:");
        for command in commands {
            let _ = writeln!(text, "  {command}");
        }
    }
    text.push('\n');
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
