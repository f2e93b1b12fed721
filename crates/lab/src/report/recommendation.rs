//! The recommendation, the ranking it rests on and the table by workload family.

use super::html::Html;
use super::section;
use crate::results::{FamilyBest, RankedValue, StudyResults};

/// Writes the three sections.
pub(super) fn write(html: &mut Html, results: &StudyResults) {
    hero(html, results);
    notes(html, results);
    ranking(html, results);
    families(html, results);
}

fn hero(html: &mut Html, results: &StudyResults) {
    let advice = &results.recommendation;
    section(html, results, "recommendation", "Recommendation");
    if advice.best.is_empty() {
        let has_weight = advice.weights.is_empty() || advice.weights.values().any(|weight| *weight > 0.0);
        let is_open = advice.trade_off.as_ref().is_some_and(|trade_off| !trade_off.rows.is_empty());
        html.raw(if has_weight && is_open {
            "<p class=\"empty\">No value is best: the table below says what each gives and costs.</p>"
        } else if has_weight {
            "<p class=\"empty\">No recommendation: the study has too few figures to compare values.</p>"
        } else {
            "<p class=\"empty\">No recommendation: every workload that was studied has weight 0.</p>"
        });
        if !advice.summary.is_empty() {
            html.raw("<p>").text(&advice.summary).raw("</p>");
        }
        html.raw("</section>");
        return;
    }
    let tie = !advice.tied_with.is_empty();
    let single = is_single(results);
    html.raw("<div class=\"hero\"><div class=\"verdict\"><p class=\"verdict-label\">");
    html.raw(match (&advice.trade_off, tie) {
        (Some(_), _) => "A trade-off; by the rule below, ",
        (None, false) if single => "No winner without replicates; highest ",
        (None, true) if single => "A tie without replicates; ",
        (None, true) => "A tie for the best ",
        (None, false) => "Best ",
    });
    html.text(&words(&results.subject));
    html.raw("</p><p class=\"verdict-value");
    let length = advice.tied_with.iter().fold(advice.best.len(), |sum, other| sum + 4 + other.len());
    html.raw(match length {
        0..=6 => "\">",
        7..=14 => " two\">",
        _ => " many\">",
    });
    value(html, results, &advice.best);
    for other in &advice.tied_with {
        html.raw("<i>or</i>");
        value(html, results, other);
    }
    html.raw("</p></div><div class=\"reasons\"><p class=\"summary\">").sentence(&advice.summary).raw("</p>");
    if let Some(best) = advice.ranking.iter().find(|ranked| ranked.value == advice.best) {
        evidence(html, best);
    }
    html.raw("</div></div>");
    why(html, results);
    commands(html, results);
    html.raw("</section>");
}

/// Whether no winner is proven because cells ran only once.
fn is_single(results: &StudyResults) -> bool {
    results.recommendation.ranking.iter().any(|ranked| ranked.score_ci.is_none())
}

/// A factor's or family's name as words, e.g. `random-write` → `random write`.
pub(super) fn words(name: &str) -> String {
    name.replace(['-', '_'], " ")
}

/// A subject value in its colour.
pub(super) fn value(html: &mut Html, results: &StudyResults, value: &str) {
    html.raw("<b class=\"value\"");
    own_colour(html, results, value);
    html.raw(">").text(value).raw("</b>");
}

/// The attribute that gives an element its subject value's colour.
pub(super) fn own_colour(html: &mut Html, results: &StudyResults, value: &str) {
    if let Some(index) = results.subject_values.iter().position(|candidate| candidate == value) {
        html.raw(" style=\"--own:var(--value-").number(index as f64, 0).raw(")\"");
    }
}

fn evidence(html: &mut Html, best: &RankedValue) {
    html.raw("<p class=\"evidence\">Score <b>")
        .percent(best.score, 1)
        .raw("</b> of the best value of each cell");
    match interval(best.score_ci) {
        Some((low, high)) => {
            html.raw(" (95 % interval ").number(low * 100.0, 1).raw(" to ").percent(high, 1).raw(").")
        }
        None => html.raw(" (no interval: too few replicates)."),
    };
    html.raw(" In its worst cell it reaches <b>").percent(best.worst, 1).raw("</b>");
    if !best.worst_cell.is_empty() {
        html.raw(" (").text(&best.worst_cell).raw(")");
    }
    html.raw(".</p>");
}

/// An interval, if it is of numbers.
fn interval(bounds: Option<(f64, f64)>) -> Option<(f64, f64)> {
    bounds.filter(|(low, high)| low.is_finite() && high.is_finite() && high >= low)
}

/// What the best and the worst value made the members do, where the target counts it.
fn why(html: &mut Html, results: &StudyResults) {
    if results.recommendation.reasons.is_empty() {
        return;
    }
    html.raw("<div class=\"why\"><h3>Why</h3><ul>");
    for reason in &results.recommendation.reasons {
        html.raw("<li>");
        match reason.split_once(": ") {
            Some((family, rest)) => html.raw("<b>").text(&words(family)).raw("</b>: ").text(rest),
            None => html.text(reason),
        };
        html.raw("</li>");
    }
    html.raw("</ul></div>");
}

fn commands(html: &mut Html, results: &StudyResults) {
    if results.recommendation.commands.is_empty() {
        return;
    }
    html.raw("<div class=\"commands\"><div class=\"commands-head\"><h3 id=\"apply\">To apply it</h3>");
    html.raw(
        "<button type=\"button\" class=\"copy\" data-copy=\"apply-commands\" hidden>Copy</button></div>",
    );
    html.raw("<pre id=\"apply-commands\" tabindex=\"0\" aria-labelledby=\"apply\"><code>");
    for (index, line) in results.recommendation.commands.iter().enumerate() {
        html.raw(if index == 0 { "" } else { "\n" });
        for (index, word) in line.split(' ').enumerate() {
            html.raw(if index == 0 { "<span>" } else { " <span>" }).text(word).raw("</span>");
        }
    }
    html.raw("</code></pre></div>");
}

fn notes(html: &mut Html, results: &StudyResults) {
    let notes = &results.environment.notes;
    if notes.is_empty() && !results.quick {
        return;
    }
    html.raw("<section class=\"callout\" aria-labelledby=\"notes-title\"><h2 id=\"notes-title\">");
    html.raw("Before you rely on it</h2><ul>");
    if results.quick {
        html.raw("<li>A quick run: fewer values and shorter cells than the full plan.</li>");
    }
    for note in notes {
        html.raw("<li>").marked(note).raw("</li>");
    }
    html.raw("</ul></section>");
}

fn ranking(html: &mut Html, results: &StudyResults) {
    let ranking = &results.recommendation.ranking;
    if ranking.is_empty() {
        return;
    }
    section(html, results, "ranking", "Ranking");
    html.raw("<p class=\"note\">").text(&results.recommendation.method).raw("</p>");
    let floor = axis_floor(ranking);
    html.raw("<table class=\"ranking\"><thead><tr><th scope=\"col\">").text(&words(&results.subject));
    html.raw("</th><th scope=\"col\" class=\"bar-head\">Score and 95 % interval<span class=\"axis\" ");
    html.raw("aria-hidden=\"true\"><i>").percent(floor, 0).raw("</i><i>100 %</i></span></th>");
    html.raw("<th scope=\"col\">Beside the best</th><th scope=\"col\">Worst cell</th></tr></thead><tbody>");
    for ranked in ranking {
        ranking_row(html, results, ranked, floor);
    }
    html.raw("</tbody></table></section>");
}

/// Where the score axis begins: the ten per cent below the lowest bound, so that intervals stay visible.
fn axis_floor(ranking: &[RankedValue]) -> f64 {
    let lows = ranking.iter().map(|r| interval(r.score_ci).map_or(r.score, |(low, _)| low.min(r.score)));
    let lows = lows.filter(|x| x.is_finite());
    let lowest = lows.fold(1.0_f64, f64::min).max(0.0);
    ((lowest * 10.0 - 1e-9).floor() / 10.0).clamp(0.0, 0.9)
}

fn ranking_row(html: &mut Html, results: &StudyResults, ranked: &RankedValue, floor: f64) {
    let advice = &results.recommendation;
    let (best, tied) = (ranked.value == advice.best, advice.tied_with.contains(&ranked.value));
    html.raw(if best || tied { "<tr class=\"top-rank\"" } else { "<tr" });
    own_colour(html, results, &ranked.value);
    html.raw("><th scope=\"row\">");
    value(html, results, &ranked.value);
    if tied || (best && !advice.tied_with.is_empty()) {
        html.raw("<span class=\"tag\">tie</span>");
    } else if best {
        html.raw("<span class=\"tag\">")
            .raw(if is_single(results) { "highest" } else { "best" })
            .raw("</span>");
    }
    html.raw("</th><td class=\"bar\"><div><span class=\"figure\">").percent(ranked.score, 1).raw("</span>");
    let place = |share: f64| ((share - floor) / (1.0 - floor) * 100.0).clamp(0.0, 100.0);
    html.raw("<span class=\"track\" aria-hidden=\"true\">");
    let bounds = interval(ranked.score_ci);
    if let Some((low, high)) = bounds {
        html.raw("<i class=\"range\" style=\"left:").number(place(low), 2).raw("%;width:");
        html.number(place(high) - place(low), 2).raw("%\"></i>");
    }
    if ranked.score.is_finite() {
        html.raw("<i class=\"mark\" style=\"left:").number(place(ranked.score), 2).raw("%\"></i>");
    }
    html.raw("</span><span class=\"bounds\">");
    match bounds {
        Some((low, high)) => html.number(low * 100.0, 1).raw(" – ").percent(high, 1),
        None => html.raw("no interval"),
    };
    html.raw("</span></div></td><td data-label=\"Beside the best\">");
    if best {
        html.raw("<span class=\"muted\">—</span>");
    } else {
        html.raw("× ").number(ranked.ratio_to_best, 3);
        if let Some((low, high)) = interval(ranked.ratio_to_best_ci) {
            html.raw(" <small>").number(low, 3).raw(" – ").number(high, 3).raw("</small>");
        }
    }
    html.raw("</td><td data-label=\"Worst cell\">").percent(ranked.worst, 1).raw(" <small>");
    html.text(&ranked.worst_cell).raw("</small></td></tr>");
}

fn families(html: &mut Html, results: &StudyResults) {
    let advice = &results.recommendation;
    if advice.by_family.is_empty() {
        return;
    }
    section(html, results, "families", "By workload family");
    html.raw("<p class=\"note\">Score of each value within the family, in per cent of the best value of each cell. ");
    html.raw("A family’s share in the ranking above is its weight in the sum of all; <code>--weight</code> changes it.</p>");
    html.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"families-title\">");
    html.raw("<table class=\"families\"><thead><tr><th scope=\"col\">Family</th><th scope=\"col\">");
    html.raw(if is_single(results) { "Highest" } else { "Best" }).raw("</th>");
    for value in &results.subject_values {
        html.raw("<th scope=\"col\" class=\"score\">").text(value).raw("</th>");
    }
    html.raw("<th scope=\"col\" class=\"weight\">Weight</th></tr></thead><tbody>");
    for family in &advice.by_family {
        family_row(html, results, family);
    }
    html.raw("</tbody></table></div></section>");
}

fn family_row(html: &mut Html, results: &StudyResults, family: &FamilyBest) {
    html.raw("<tr><th scope=\"row\">").text(&words(&family.family)).raw("</th><td class=\"best\">");
    value(html, results, &family.best);
    for other in &family.tied_with {
        html.raw(" <i>or</i> ");
        value(html, results, other);
    }
    html.raw("</td>");
    for (index, name) in results.subject_values.iter().enumerate() {
        match family.scores.get(index).filter(|score| score.is_finite()) {
            Some(score) => {
                let top = *name == family.best || family.tied_with.contains(name);
                html.raw(if top { "<td class=\"score is-best\"" } else { "<td class=\"score\"" });
                html.raw(" style=\"--share:").number(score.clamp(0.0, 1.0) * 100.0, 1).raw("%\"><span>");
                html.number(score * 100.0, 0).raw("</span></td>")
            }
            None => html.raw("<td class=\"score\"><span class=\"muted\">–</span></td>"),
        };
    }
    html.raw("<td class=\"weight\">");
    match results.recommendation.weights.get(&family.family) {
        Some(weight) => html.text(&weight.to_string()),
        None => html.raw("–"),
    };
    html.raw("</td></tr>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_no_number_is_none() {
        assert_eq!(interval(None), None);
        assert_eq!(interval(Some((f64::NAN, 1.0))), None);
        assert_eq!(interval(Some((0.5, 0.5))), Some((0.5, 0.5)));
        assert_eq!(interval(Some((0.5, 0.6))), Some((0.5, 0.6)));
    }
}
