//! A study's results for other programs.

use std::collections::BTreeSet;
use std::fmt::{Display, Write};

use crate::results::{DirectionResult, StudyResults};

/// The cells as CSV (RFC 4180), one line each under a line of names. Factors and figures that a cell has not are
/// empty.
pub fn export_csv(results: &StudyResults) -> String {
    let factors: BTreeSet<&str> =
        results.cells.iter().flat_map(|c| c.factors.keys()).map(String::as_str).collect();
    let figures: BTreeSet<&String> = results.cells.iter().flat_map(|c| c.figures.keys()).collect();
    let mut names = vec!["study", "simulated", "key", "target", "replicate", "seed"];
    names.extend(&factors);
    names.extend(["seconds", "bytes_per_second", "iops"]);
    let mut csv = names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(",");
    for direction in ["read", "write"] {
        for name in DIRECTION {
            let _ = write!(csv, ",{direction}_{name}");
        }
    }
    for name in &figures {
        let _ = write!(csv, ",{}", quoted(name));
    }
    csv.push_str(",error,notes\r\n");
    for cell in &results.cells {
        let simulated = results.simulated;
        let (target, key) = (quoted(&cell.target), quoted(&cell.key));
        let _ = write!(
            csv,
            "{},{simulated},{key},{target},{},{}",
            quoted(&results.study),
            cell.replicate,
            cell.seed
        );
        for name in &factors {
            let _ = write!(csv, ",{}", cell.factors.get(*name).map_or_else(String::new, |v| quoted(v)));
        }
        if cell.error.is_some() {
            // A mean over the file takes no part of what failed for a figure.
            csv.push_str(&",".repeat(3 + 2 * DIRECTION.len()));
        } else {
            let _ = write!(csv, ",{},{},{}", cell.seconds, cell.bytes_per_second(), cell.iops());
            write_direction(&mut csv, &cell.read);
            write_direction(&mut csv, &cell.write);
        }
        for name in &figures {
            let _ = write!(csv, ",{}", cell.figures.get(*name).map_or_else(String::new, f64::to_string));
        }
        let error = cell.error.as_deref().map_or_else(String::new, quoted);
        let _ = write!(csv, ",{error},{}\r\n", quoted(&cell.notes.join("; ")));
    }
    csv
}

/// What [`write_direction`] writes.
const DIRECTION: [&str; 9] =
    ["ios", "bytes", "errors", "mean_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"];

/// Latencies are empty where there was no I/O.
fn write_direction(csv: &mut String, d: &DirectionResult) {
    let _ = write!(csv, ",{},{},{}", d.ios, d.bytes, d.errors);
    let latencies: [&dyn Display; 6] = [
        &d.latency_mean_ns,
        &d.latency_p50_ns,
        &d.latency_p90_ns,
        &d.latency_p99_ns,
        &d.latency_p999_ns,
        &d.latency_max_ns,
    ];
    for latency in latencies {
        let _ = if d.ios > 0 { write!(csv, ",{latency}") } else { csv.write_char(',') };
    }
}

/// A field as CSV has it.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// The whole document as JSON.
pub fn export_json(results: &StudyResults) -> serde_json::Result<String> {
    serde_json::to_string_pretty(results)
}
