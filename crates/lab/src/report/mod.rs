//! The report: one HTML file that holds everything it shows (figures, chart library, fonts, styles) and
//! fetches nothing, so that it opens offline, in a mail or from an archive, years later.
//!
//! The judgement — recommendation, ranking, families, environment — is written here as plain HTML and
//! reads without scripts. Charts and the table of cells are drawn by the script in `assets/report/` from
//! the results embedded as JSON. Whatever comes from a study is escaped by the writer in `html.rs`, and the page's
//! own policy (`Content-Security-Policy`) forbids every outside address.

mod claims;
mod data;
mod environment;
mod html;
mod palette;
mod recommendation;
#[cfg(test)]
mod tests;
mod tradeoff;

use html::Html;
use palette::Palette;

use crate::results::StudyResults;

const CHART_LIBRARY: &str = include_str!("../../assets/echarts.min.js");
const FONTS: &str = include_str!("../../assets/fonts.css");
const STYLE: &str = include_str!("../../assets/report/report.css");
const THEME_SCRIPT: &str = include_str!("../../assets/report/theme.js");
/// The page's script in the order its parts depend on each other.
const SCRIPTS: &[&str] = &[
    include_str!("../../assets/report/format.js"),
    include_str!("../../assets/report/model.js"),
    include_str!("../../assets/report/chart.js"),
    include_str!("../../assets/report/throughput.js"),
    include_str!("../../assets/report/relative.js"),
    include_str!("../../assets/report/latency.js"),
    include_str!("../../assets/report/tradeoff.js"),
    include_str!("../../assets/report/print.js"),
    include_str!("../../assets/report/cells.js"),
    include_str!("../../assets/report/main.js"),
];

/// Renders a study's results as one self-contained HTML document.
///
/// Fails only where the results cannot be written as JSON.
pub fn render(results: &StudyResults) -> Result<String, serde_json::Error> {
    let palette = Palette::new(&results.subject_values);
    let mut html = Html::default();
    head(&mut html, results, &palette);
    header(&mut html, results);
    html.raw("<main id=\"content\">");
    recommendation::write(&mut html, results);
    tradeoff::write(&mut html, results);
    claims::write(&mut html, results);
    explore(&mut html, results);
    environment::write(&mut html, results);
    cells(&mut html, results);
    html.raw("</main>");
    footer(&mut html, results);
    scripts(&mut html, results, palette)?;
    html.raw("</body></html>\n");
    Ok(html.finish())
}

fn head(html: &mut Html, results: &StudyResults, palette: &Palette) {
    html.raw(concat!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ",
        "script-src 'unsafe-inline'; style-src 'unsafe-inline'; font-src data:; img-src data:; ",
        "base-uri 'none'; form-action 'none'\">",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
        "<meta name=\"color-scheme\" content=\"light dark\"><meta name=\"generator\" content=\"stripewise ",
    ));
    html.text(&results.environment.version).raw("\"><title>").text(title(results));
    html.raw(if results.simulated { " · simulated" } else { " · measured" });
    html.raw(if results.quick { " · quick" } else { "" });
    html.raw(" · stripewise</title><style>").raw(FONTS).raw(STYLE);
    colours(html, ":root", &palette.light);
    html.raw("@media (prefers-color-scheme:dark){");
    colours(html, ":root:not([data-theme=light])", &palette.dark);
    html.raw("}");
    colours(html, ":root[data-theme=dark]", &palette.dark);
    html.raw("</style><script>").raw(THEME_SCRIPT).raw("</script></head><body>");
    html.raw("<a class=\"skip\" href=\"#content\">Skip to the recommendation</a>");
}

/// The subject values' colours as the custom properties `--value-0`, `--value-1`, ….
fn colours(html: &mut Html, selector: &'static str, colours: &[String]) {
    html.raw(selector).raw("{");
    for (index, colour) in colours.iter().enumerate() {
        html.raw("--value-").number(index as f64, 0).raw(":").text(colour).raw(";");
    }
    html.raw("}");
}

fn header(html: &mut Html, results: &StudyResults) {
    html.raw(
        "<div class=\"weave\" aria-hidden=\"true\"></div><header class=\"page-head\"><div class=\"top\">",
    );
    html.raw("<p class=\"brand\">stripewise <span>study report</span></p>");
    html.raw("<button type=\"button\" class=\"quiet\" id=\"theme\" hidden>Dark theme</button></div>");
    html.raw("<div class=\"badges\">");
    badge(html, results);
    if results.quick {
        html.raw("<span class=\"badge quick\">quick: the shortened plan</span>");
    }
    html.raw("</div><h1>").text(title(results)).raw("</h1>");
    if !results.question.is_empty() {
        html.raw("<p class=\"question\">").text(&results.question).raw("</p>");
    }
    if !results.environment.description.is_empty() {
        html.raw("<p class=\"rig\">").text(&results.environment.description).raw("</p>");
    }
    html.raw("</header>");
}

/// The study's title, or its name where it has none.
fn title(results: &StudyResults) -> &str {
    if results.title.is_empty() { &results.study } else { &results.title }
}

/// Says whether the figures are simulated or measured, and on what; stands beside every title of figures.
fn badge(html: &mut Html, results: &StudyResults) {
    if results.simulated {
        html.raw("<span class=\"badge simulated\">simulated</span>");
    } else {
        html.raw("<span class=\"badge measured\">measured on ");
        html.text(&results.environment.target).raw("</span>");
    }
}

/// A section's opening tag and its heading with the badge.
fn section(html: &mut Html, results: &StudyResults, id: &'static str, heading: &'static str) {
    html.raw("<section id=\"").raw(id).raw("\" aria-labelledby=\"").raw(id).raw("-title\"><h2 id=\"");
    html.raw(id).raw("-title\">").raw(heading).raw(" ");
    badge(html, results);
    html.raw("</h2>");
}

/// The frame that the script fills with controls and charts.
fn explore(html: &mut Html, results: &StudyResults) {
    section(html, results, "figures", "Figures");
    if results.cells.iter().all(|cell| cell.error.is_some()) {
        html.raw("<p class=\"empty\">");
        html.raw(if results.cells.is_empty() {
            "The study has no cells yet, so there is nothing to draw."
        } else {
            "No cell has figures, so there is nothing to draw; the table of cells says why."
        });
        html.raw("</p></section>");
        return;
    }
    html.raw(concat!(
        "<noscript><p class=\"empty\">The charts need JavaScript; every figure above does not.</p></noscript>",
        "<div id=\"controls\" class=\"controls\"></div>",
    ));
    if results.recommendation.trade_off.is_some() {
        html.raw(concat!(
            "<section aria-labelledby=\"tradeoff-title\"><h3 id=\"tradeoff-title\">Recovery against waiting</h3>",
            "<p class=\"note\" id=\"tradeoff-note\">How fast a member is recovered (MiB/s) and how long the slowest hundredth of requests ",
            "waits at least (p99, the slower direction), both on logarithmic axes; colours are the values, lines the loads. ",
            "Down and to the right is better.</p><div id=\"tradeoff\" class=\"panels\"></div></section>",
        ));
    }
    html.raw(concat!(
        "<section aria-labelledby=\"throughput-title\"><h3 id=\"throughput-title\">Throughput</h3>",
        "<p class=\"note\" id=\"throughput-note\"></p>",
        "<div id=\"throughput\" class=\"panels\"></div></section>",
        "<section aria-labelledby=\"relative-title\"><h3 id=\"relative-title\">Share of the best</h3>",
        "<p class=\"note\" id=\"relative-note\"></p>",
        "<div id=\"relative\" class=\"panels\"></div></section>",
        "<section aria-labelledby=\"latency-title\"><h3 id=\"latency-title\">Latency percentiles</h3>",
        "<p class=\"note\" id=\"latency-note\"></p>",
        "<div id=\"latency-controls\" class=\"pickers\"></div>",
        "<div id=\"latency\" class=\"panels wide\"></div></section></section>",
    ));
}

fn cells(html: &mut Html, results: &StudyResults) {
    let failed = results.cells.iter().filter(|cell| cell.error.is_some()).count();
    section(html, results, "cells", "Every cell");
    html.raw(
        "<p class=\"note\">Each row is one run: one combination of factors, one replicate, with its key in ",
    );
    html.raw("the store.</p><details id=\"cells-details\"><summary>").number(results.cells.len() as f64, 0);
    html.raw(if results.cells.len() == 1 { " cell" } else { " cells" });
    if failed > 0 {
        html.raw(", ").number(failed as f64, 0).raw(" of them without figures");
    }
    html.raw("</summary><div id=\"cells-table\"></div></details></section>");
}

fn footer(html: &mut Html, results: &StudyResults) {
    html.raw("<footer class=\"page-foot\"><p>Written by stripewise ").text(&results.environment.version);
    html.raw(concat!(
        ". Figures, fonts and scripts are all in this file; it fetches nothing.</p><p>Charts drawn by ",
        "Apache ECharts (Apache License 2.0; © The Apache Software Foundation), set in IBM Plex (SIL Open ",
        "Font License 1.1; © IBM Corp.). Their notices are in this file's source.</p></footer>",
    ));
}

fn scripts(html: &mut Html, results: &StudyResults, palette: Palette) -> Result<(), serde_json::Error> {
    html.raw("<script type=\"application/json\" id=\"study-data\">");
    html.script_json(&data::ChartData::new(results, palette))?;
    html.raw("</script><script>").raw(CHART_LIBRARY).raw("</script><script>(() => {\n'use strict';\n");
    for script in SCRIPTS {
        html.raw(script);
    }
    html.raw("})();</script>");
    Ok(())
}
