//! What each value of the subject gives to a recovery and costs the jobs beside it.

use super::html::Html;
use super::recommendation::{own_colour, value, words};
use crate::recommend::COST_RATIO_MAX;
use crate::results::{StudyResults, TradeOff, TradeOffRow};
use crate::units::{three_digits, time};

/// Writes the table, where the study is a trade-off.
pub(super) fn write(html: &mut Html, results: &StudyResults) {
    let Some(TradeOff { rule, rows }) = &results.recommendation.trade_off else { return };
    super::section(html, results, "trade-off", "The trade-off");
    let first = rows.first().map_or("", |row| row.value.as_str());
    html.raw("<p class=\"note\">").text(rule);
    html.raw(
        " The time is that of a whole member at the rate that was found. Throughput and p99 stand beside ",
    );
    html.raw("those with ").text(first);
    html.raw(if rows.iter().any(|row| row.p99_ratio_ci.is_some()) {
        ", each with its 95 % interval, paired over replicates.</p>"
    } else {
        ".</p>"
    });
    html.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"trade-off-title\">");
    html.raw("<table class=\"trade-off\"><thead><tr><th scope=\"col\">Family, requests in flight</th><th scope=\"col\">");
    html.text(&words(&results.subject)).raw("</th><th scope=\"col\">Recovery, MiB/s</th>");
    html.raw("<th scope=\"col\">Whole member</th><th scope=\"col\">Throughput, MB/s</th>");
    beside(html, rows, first);
    html.raw("<th scope=\"col\">p99</th>");
    beside(html, rows, first);
    html.raw("</tr></thead><tbody>");
    let mut last = None;
    for row in rows {
        let is_first = last != Some((&row.family, row.in_flight));
        last = Some((&row.family, row.in_flight));
        write_row(html, results, row, is_first);
    }
    html.raw("</tbody></table></div></section>");
}

/// The heading of a column of ratios, with what their small print is.
fn beside(html: &mut Html, rows: &[TradeOffRow], first: &str) {
    html.raw("<th scope=\"col\">of ").text(first);
    if rows.iter().any(|row| row.p99_ratio_ci.is_some()) {
        html.raw(" <small>95\u{a0}% interval</small>");
    }
    html.raw("</th>");
}

fn write_row(html: &mut Html, results: &StudyResults, row: &TradeOffRow, is_first: bool) {
    html.raw(match (is_first, row.value == results.recommendation.best) {
        (true, true) => "<tr class=\"first top-rank\"",
        (true, false) => "<tr class=\"first\"",
        (false, true) => "<tr class=\"top-rank\"",
        (false, false) => "<tr",
    });
    own_colour(html, results, &row.value);
    html.raw("><th scope=\"row\">");
    html.raw(if is_first { "<span>" } else { "<span class=\"unseen\">" });
    html.text(&format!("{}, {}", words(&row.family), row.in_flight)).raw("</span></th><td>");
    value(html, results, &row.value);
    if row.value == results.recommendation.best {
        html.raw("<span class=\"tag\">by the rule</span>");
    }
    html.raw("</td><td>")
        .text(&three_digits(row.sync_kib_s / 1024.0))
        .raw("</td><td>")
        .text(&time(row.member_seconds));
    html.raw("</td><td>")
        .text(&three_digits(row.bytes_per_second / 1e6))
        .raw("</td><td>")
        .percent(row.throughput_ratio, 0);
    interval(html, row.throughput_ratio_ci, 100.0, 0);
    html.raw("</td><td>").text(&time(row.p99_ns / 1e9));
    html.raw(if row.p99_ratio > COST_RATIO_MAX { "</td><td class=\"beyond\">× " } else { "</td><td>× " });
    html.number(row.p99_ratio, 2);
    interval(html, row.p99_ratio_ci, 1.0, 2);
    html.raw("</td></tr>");
}

/// A ratio's interval in small print; nothing of the first value, which is itself, and of single runs.
fn interval(html: &mut Html, bounds: Option<(f64, f64)>, times: f64, decimals: usize) {
    if let Some((low, high)) = bounds.filter(|(low, high)| low < high) {
        html.raw(" <small>")
            .number(low * times, decimals)
            .raw(" – ")
            .number(high * times, decimals)
            .raw("</small>");
    }
}
