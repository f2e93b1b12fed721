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
    for claim in &results.claims {
        let (class, by) = match claim.verdict {
            Verdict::Reproduced => ("holds", true),
            Verdict::NotReproduced => ("fails", true),
            Verdict::NotCheckable => ("open", false),
        };
        html.raw("<tr class=\"").raw(class).raw("\"><td>").text(claim.published.trim());
        html.raw("</td><td data-label=\"Here\"><b>").text(claim.here.trim());
        html.raw("</b><small>").text(claim.check.trim()).raw("</small></td><td data-label=\"Verdict\">");
        html.raw("<span class=\"verdict-word\">").text(claim.verdict.name()).raw("</span>");
        if by {
            html.raw(" <small>by ").text(claim.basis.name()).raw("</small>");
        }
        if let Some(reason) = &claim.reason {
            html.raw("<p class=\"note\">").text(reason.trim()).raw("</p>");
        }
        html.raw("</td></tr>");
    }
    html.raw("</tbody></table></div></section>");
}
