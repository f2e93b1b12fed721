//! What was published, beside what was found.

use super::html::Html;
use crate::claims::{Counts, Verdict};
use crate::results::StudyResults;

pub(super) fn write(html: &mut Html, results: &StudyResults) {
    if results.claims.is_empty() {
        return;
    }
    super::section(html, results, "claims", "Published and here");
    html.raw("<p class=\"note\">").text(&Counts::of(&results.claims).to_string());
    html.raw(". No parameter exists for a claim's sake: models and plans come from sources of their own.");
    html.raw("</p><div class=\"scroll\"><table class=\"claims\"><thead><tr><th>Published</th><th>Here</th>");
    html.raw("<th>Verdict</th></tr></thead><tbody>");
    let ids: Vec<&str> = results.claims.iter().map(|claim| claim.id.as_str()).collect();
    for claim in &results.claims {
        let (class, by) = match claim.verdict {
            Verdict::Reproduced => ("holds", true),
            Verdict::NotReproduced => ("fails", true),
            Verdict::NotCheckable => ("open", false),
        };
        html.raw("<tr class=\"").raw(class).raw("\" id=\"claim-").text(&claim.id).raw("\"><td>");
        html.text(claim.published.trim()).raw("<small class=\"code\">").text(&claim.id).raw("</small>");
        html.raw("</td><td data-label=\"Here\"><b>").text(claim.here.trim());
        html.raw("</b><small>");
        linked(html, claim.check.trim(), &ids);
        html.raw("</small></td><td data-label=\"Verdict\">");
        html.raw("<span class=\"verdict-word\">").text(claim.verdict.name()).raw("</span>");
        if by {
            html.raw(" <small>by ").text(claim.basis.name()).raw("</small>");
        }
        if let Some(reason) = &claim.reason {
            html.raw("<p class=\"note\">");
            linked(html, reason.trim(), &ids);
            html.raw("</p>");
        }
        html.raw("</td></tr>");
    }
    html.raw("</tbody></table></div></section>");
}

/// Text that names other claims, each a link to its row. A name without a hyphen may be a word like others.
fn linked(html: &mut Html, text: &str, ids: &[&str]) {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-+".contains(c);
    let mut rest = text;
    while let Some(start) = rest.find(is_of_name) {
        let length = rest[start..].find(|c| !is_of_name(c)).unwrap_or(rest.len() - start);
        let (before, name) = (&rest[..start], &rest[start..start + length]);
        html.text(before);
        if name.contains('-') && ids.contains(&name) {
            html.raw("<a href=\"#claim-").text(name).raw("\">").text(name).raw("</a>");
        } else {
            html.text(name);
        }
        rest = &rest[start + length..];
    }
    html.text(rest);
}
