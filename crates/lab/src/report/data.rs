//! The results as the report's script reads them: one document, cells as short rows with their factor
//! values numbered, so that thousands of cells stay a file one can mail.

use std::collections::BTreeMap;

use serde::Serialize;

use super::palette::Palette;
use crate::recommend::{MKFS, PACED, judged};
use crate::results::{CellResult, DirectionResult, StudyResults};

/// What the charts and the table of cells are drawn from.
#[derive(Serialize)]
pub(super) struct ChartData<'a> {
    subject: &'a str,
    subject_values: &'a [String],
    best: &'a str,
    tied_with: &'a [String],
    /// A recovery runs beside the jobs.
    is_trade_off: bool,
    simulated: bool,
    target: &'a str,
    colours_light: Vec<String>,
    colours_dark: Vec<String>,
    /// Factor names; the subject is among them.
    factors: Vec<&'a str>,
    /// For each factor, the values its cells take, in order of appearance.
    values: Vec<Vec<&'a str>>,
    targets: Vec<&'a str>,
    cells: Vec<Row<'a>>,
}

/// A cell: key, target number, value number per factor (−1 where it has none), replicate, seed (text, for
/// a script's numbers are exact to 2⁵³ only), seconds, reads, writes, error, KiB/s of a recovery beside it, and whether
/// it made a file system, which is judged by its seconds.
#[derive(Serialize)]
struct Row<'a>(
    &'a str,
    usize,
    Vec<i32>,
    u32,
    String,
    f64,
    Option<Direction>,
    Option<Direction>,
    Option<&'a str>,
    Option<f64>,
    bool,
    bool,
);

/// I/Os, bytes, errors, then latency in nanoseconds: mean, p50, p90, p99, p99.9, largest.
#[derive(Serialize)]
struct Direction(u64, u64, u64, f64, u64, u64, u64, u64, u64);

impl Direction {
    /// Nothing where there was nothing to do.
    fn of(d: &DirectionResult) -> Option<Self> {
        (d.ios > 0 || d.errors > 0).then(|| {
            Self(
                d.ios,
                d.bytes,
                d.errors,
                d.latency_mean_ns.round(),
                d.latency_p50_ns,
                d.latency_p90_ns,
                d.latency_p99_ns,
                d.latency_p999_ns,
                d.latency_max_ns,
            )
        })
    }
}

/// Numbers texts in order of appearance.
#[derive(Default)]
struct Numbering<'a> {
    texts: Vec<&'a str>,
    numbers: BTreeMap<&'a str, usize>,
}

impl<'a> Numbering<'a> {
    fn number(&mut self, text: &'a str) -> usize {
        *self.numbers.entry(text).or_insert_with(|| {
            self.texts.push(text);
            self.texts.len() - 1
        })
    }
}

impl<'a> ChartData<'a> {
    /// The document of these results.
    pub(super) fn new(results: &'a StudyResults, palette: Palette) -> Self {
        let mut factors = Numbering::default();
        for cell in &results.cells {
            for name in cell.factors.keys() {
                factors.number(name);
            }
        }
        let mut values: Vec<_> = factors.texts.iter().map(|_| Numbering::default()).collect();
        let mut targets = Numbering::default();
        let cells = results
            .cells
            .iter()
            .map(|cell| {
                let numbers = factors.texts.iter().zip(&mut values).map(|(name, values)| {
                    cell.factors.get(*name).map_or(-1, |value| values.number(value) as i32)
                });
                row(cell, targets.number(&cell.target), numbers.collect())
            })
            .collect();
        Self {
            subject: &results.subject,
            subject_values: &results.subject_values,
            best: &results.recommendation.best,
            tied_with: &results.recommendation.tied_with,
            is_trade_off: results.recommendation.trade_off.is_some(),
            simulated: results.simulated,
            target: &results.environment.target,
            colours_light: palette.light,
            colours_dark: palette.dark,
            factors: factors.texts,
            values: values.into_iter().map(|numbering| numbering.texts).collect(),
            targets: targets.texts,
            cells,
        }
    }
}

fn row(cell: &CellResult, target: usize, values: Vec<i32>) -> Row<'_> {
    let family = judged(cell).map(|judged| judged.family);
    Row(
        &cell.key,
        target,
        values,
        cell.replicate,
        cell.seed.to_string(),
        cell.seconds,
        Direction::of(&cell.read),
        Direction::of(&cell.write),
        cell.error.as_deref(),
        cell.figures.get("sync_kib_s").copied(),
        family == Some(MKFS),
        family == Some(PACED),
    )
}
