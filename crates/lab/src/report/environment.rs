//! Where and on what the study ran, the model's parameters with their sources, and how to run it again.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::html::Html;
use super::section;
use crate::recommend::Weights;
use crate::results::{CellResult, Provenance, StudyResults};

/// Writes the sections.
pub(super) fn write(html: &mut Html, results: &StudyResults) {
    section(html, results, "environment", "Where it ran");
    facts(html, results);
    html.raw("</section>");
    if results.simulated {
        provenance(html, results);
    }
    reproduce(html, results);
}

fn facts(html: &mut Html, results: &StudyResults) {
    let environment = &results.environment;
    let cells = results.cells.len();
    let counted = format!("{cells} ({} per combination of factors)", replicates(&results.cells));
    let spent = format!("{} of real time, all cells added up", duration(environment.wall_seconds));
    let measured = if environment.finished.is_empty() {
        environment.started.clone()
    } else {
        format!("{} to {}", environment.started, environment.finished)
    };
    html.raw("<dl class=\"facts\">");
    for (name, fact, code) in [
        ("Target", environment.target.as_str(), true),
        ("Rig", &environment.description, false),
        (if results.simulated { "Simulated" } else { "Measured" }, &measured, false),
        ("Cells", &counted, false),
        ("Time", &spent, false),
        ("CPU", &environment.host_cpu, false),
        ("Kernel", &environment.host_kernel, false),
        ("stripewise", &environment.version, true),
        ("Engine hash", &environment.engine_hash, true),
    ] {
        if fact.is_empty() {
            continue;
        }
        html.raw("<div><dt>").raw(name).raw(if code { "</dt><dd class=\"code\">" } else { "</dt><dd>" });
        html.text(fact).raw("</dd></div>");
    }
    html.raw("</dl>");
}

/// How many cells combinations of factors have: as many each, or from the fewest to the most.
fn replicates(cells: &[CellResult]) -> String {
    let mut counts: BTreeMap<(&str, &BTreeMap<String, String>), usize> = BTreeMap::new();
    for cell in cells {
        *counts.entry((&cell.target, &cell.factors)).or_default() += 1;
    }
    match (counts.values().min(), counts.values().max()) {
        (Some(fewest), Some(most)) if fewest < most => format!("{fewest} to {most}"),
        (_, most) => most.copied().unwrap_or(0).to_string(),
    }
}

/// A duration in the unit that suits it.
fn duration(seconds: f64) -> String {
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else if seconds < 3600.0 {
        format!("{:.0} min {:02.0} s", (seconds / 60.0).floor(), (seconds % 60.0).floor())
    } else {
        format!("{:.0} h {:02.0} min", (seconds / 3600.0).floor(), (seconds % 3600.0 / 60.0).floor())
    }
}

fn provenance(html: &mut Html, results: &StudyResults) {
    let parameters = &results.environment.provenance;
    section(html, results, "model", "The model behind the figures");
    if parameters.is_empty() {
        html.raw("<p class=\"empty\">The results name no model parameters.</p></section>");
        return;
    }
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for parameter in parameters {
        *kinds.entry(&parameter.kind).or_default() += 1;
    }
    let counts: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    html.raw(
        "<p class=\"note\">Every parameter with its value and where it comes from. Quoted: as a data sheet ",
    );
    html.raw(
        "or paper states it. Derived: computed from such figures. Assumed: a guess, and marked as one.</p>",
    );
    html.raw("<details><summary>").number(parameters.len() as f64, 0).raw(" parameters: ");
    html.text(&counts.join(", ")).raw("</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" ");
    html.raw(
        "aria-labelledby=\"model-title\"><table class=\"provenance\"><thead><tr><th scope=\"col\">Parameter",
    );
    html.raw("</th><th scope=\"col\">Value</th><th scope=\"col\">Unit</th><th scope=\"col\">Kind</th>");
    html.raw("<th scope=\"col\">Source</th></tr></thead>");
    let mut model = None;
    for parameter in parameters {
        if model != Some(&parameter.model) {
            html.raw(if model.is_some() { "</tbody><tbody>" } else { "<tbody>" });
            html.raw("<tr class=\"model\"><th scope=\"rowgroup\" colspan=\"5\">").text(&parameter.model);
            html.raw("</th></tr>");
            model = Some(&parameter.model);
        }
        provenance_row(html, parameter);
    }
    html.raw("</tbody></table></div></details></section>");
}

fn provenance_row(html: &mut Html, parameter: &Provenance) {
    let assumed = parameter.kind == "assumed";
    html.raw(if assumed { "<tr class=\"assumed\">" } else { "<tr>" });
    html.raw("<th scope=\"row\"><code>").text(&parameter.parameter).raw("</code></th><td class=\"figure\">");
    html.text(&parameter.value).raw("</td><td>").text(&parameter.unit).raw("</td><td><span class=\"kind\">");
    html.text(&parameter.kind).raw("</span></td><td>").text(&parameter.source).raw("</td></tr>");
}

fn reproduce(html: &mut Html, results: &StudyResults) {
    html.raw("<section id=\"reproduce\" aria-labelledby=\"reproduce-title\"><h2 id=\"reproduce-title\">");
    html.raw("To run it again</h2><p class=\"note\">Cells that are in the store are not run twice. ");
    html.raw(if results.simulated {
        "The same seeds give the same figures, on any machine.</p>"
    } else {
        "The seeds fix what is read and written where; the drives’ timing is their own.</p>"
    });
    html.raw("<div class=\"commands\"><div class=\"commands-head\"><h3 id=\"rerun\">Command</h3>");
    html.raw("<button type=\"button\" class=\"copy\" data-copy=\"rerun-command\" hidden>Copy</button></div>");
    html.raw("<pre id=\"rerun-command\" tabindex=\"0\" aria-labelledby=\"rerun\"><code>");
    html.text(&command_line(results)).raw("</code></pre></div></section>");
}

/// The command that runs the study again, ready for a shell.
fn command_line(results: &StudyResults) -> String {
    let mut line = "stripewise study run".to_owned();
    for argument in &results.environment.arguments {
        let _ = write!(line, " {}", quoted(argument));
    }
    if results.environment.arguments.is_empty() {
        let _ = write!(line, " {}", quoted(&results.study));
        if results.quick {
            line.push_str(" --quick");
        }
        if !results.environment.target.is_empty() {
            let _ = write!(line, " --on {}", quoted(&results.environment.target));
        }
    }
    for weight in Weights::given(&results.recommendation.weights) {
        let _ = write!(line, " --weight {}", quoted(&weight));
    }
    line
}

/// An argument as a POSIX shell takes it unchanged.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_only_where_a_shell_needs_it() {
        assert_eq!(quoted("files:/mnt/x"), "files:/mnt/x");
        assert_eq!(quoted("files:/mnt/a b"), "'files:/mnt/a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn durations_take_the_unit_that_suits_them() {
        assert_eq!(duration(9.04), "9.0 s");
        assert_eq!(duration(125.9), "2 min 05 s");
        assert_eq!(duration(3.0 * 3600.0 + 61.0), "3 h 01 min");
    }
}
