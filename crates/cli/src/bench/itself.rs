//! `stripewise bench --self`: the table of benchmarks that needs no other program.

use anyhow::Result;
use serde::Serialize;
use stripewise_lab::environment::{host_cpu, host_kernel};
use stripewise_lab::selfbench::{self, BENCHES, Row, Scale, Verdict, table};

use crate::exit::{Exit, Impossible};
use crate::output::{print, print_json};

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    version: &'static str,
    cpu: String,
    kernel: String,
    rounds: u64,
    sample_ms: u128,
    rows: Vec<Line>,
}

/// A row, with what follows from it.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    row: Row,
    ours: Option<f64>,
    limit: Option<f64>,
    ratio: Option<f64>,
    verdict: Verdict,
}

pub(super) fn run(word: &str, is_quick: bool, is_json: bool) -> Result<Exit> {
    if !BENCHES.iter().any(|bench| bench.name.contains(word)) {
        let names: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        return Err(Impossible(format!(
            "--self {word}: no row has a name with that word; the rows are {}",
            names.join(", ")
        ))
        .into());
    }
    let scale = if is_quick { Scale::QUICK } else { Scale::TABLE };
    if is_json {
        let rows = selfbench::run(word, &scale, |_| {})?;
        print_json(&document(&scale, rows))?;
        return Ok(Exit::Done);
    }
    print(&format!(
        "stripewise {} on {}, {}\nmedians of interleaved rounds; close other programs first\n\n{}",
        env!("CARGO_PKG_VERSION"),
        host_cpu(),
        host_kernel(),
        table::heading()
    ))?;
    // Rows come one by one, for the whole takes minutes.
    let mut printed = Ok(());
    let rows = selfbench::run(word, &scale, |row| {
        if printed.is_ok() {
            printed = print(&table::row_text(row, false));
        }
    })?;
    printed?;
    let count = |verdict| rows.iter().filter(|row| row.verdict() == verdict).count();
    print(&format!(
        "\n{} met, {} missed, {} absent\n",
        count(Verdict::Met),
        count(Verdict::Missed),
        count(Verdict::Absent)
    ))?;
    Ok(Exit::Done)
}

fn document(scale: &Scale, rows: Vec<Row>) -> Document {
    let line = |row: Row| Line {
        ours: row.ours(),
        limit: row.limit(),
        ratio: row.ratio(),
        verdict: row.verdict(),
        row,
    };
    Document {
        schema: "stripewise.bench-self/1",
        version: env!("CARGO_PKG_VERSION"),
        cpu: host_cpu(),
        kernel: host_kernel(),
        rounds: scale.rounds,
        sample_ms: scale.sample.as_millis(),
        rows: rows.into_iter().map(line).collect(),
    }
}
