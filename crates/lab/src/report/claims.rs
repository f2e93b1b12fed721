//! What was published, beside what was found.

use super::html::Html;
use crate::claims::{Verdict, count};
use crate::results::StudyResults;

pub(super) fn write(html: &mut Html, results: &StudyResults) {
    if results.claims.is_empty() {
        return;
    }
    super::section(html, results, "claims", "Published and here");
    let [reproduced, not, unknown] = count(&results.claims);
    html.raw("<p class=\"note\">").number(reproduced as f64, 0).raw(" claims reproduced, ");
    html.number(not as f64, 0).raw(" not reproduced, ").number(unknown as f64, 0);
    html.raw(" not checkable. No parameter exists for a claim's sake: models and plans come from sources of their own.");
    html.raw("</p><div class=\"scroll\"><table class=\"claims\"><thead><tr><th>Published</th><th>Check</th><th>Here</th>");
    html.raw("<th>Verdict</th></tr></thead><tbody>");
    for claim in &results.claims {
        html.raw("<tr><td>").text(&claim.published).raw("</td><td>").text(&claim.check);
        html.raw("</td><td>").text(&claim.here);
        html.raw(match claim.verdict {
            Verdict::Reproduced => "</td><td class=\"holds\">",
            Verdict::NotReproduced => "</td><td class=\"fails\">",
            Verdict::NotCheckable => "</td><td class=\"open\">",
        });
        html.text(claim.verdict.name());
        if let Some(reason) = &claim.reason {
            html.raw("<p class=\"note\">").text(reason.trim()).raw("</p>");
        }
        html.raw("</td></tr>");
    }
    html.raw("</tbody></table></div></section>");
}
