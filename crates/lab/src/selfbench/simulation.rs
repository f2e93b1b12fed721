//! The simulator's speed: cells of the published chunk-size study, on one core with phantom buffers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow};

use super::Scale;
use super::clock::Stopwatch;
use super::table::{Row, Target, Unit};
use crate::plan::{Choices, PRESETS};
use crate::study::Study;

const STUDY: &str = "chunk-size";
const TIMES_REAL_TIME: f64 = 500.0;
const MEMBER_IOS: f64 = 3e6;

pub(super) fn rows(scale: &Scale) -> Result<Vec<Row>> {
    let preset = PRESETS.iter().find(|preset| preset.name == STUDY).context("the study is built in")?;
    let choices = Choices { quick: false, real: false, seed: None, replicates: Some(1) };
    let study = Study::simulated(preset.plan()?, choices)?;
    // Cells spread over the whole matrix, by a step that no factor's number of values divides.
    let count = (scale.sample.as_millis() as usize / 2).clamp(3, 90);
    let step = (study.cells().len() / count) | 1;
    let cells: Vec<_> = study.cells().iter().step_by(step).collect();
    let never = Arc::new(AtomicBool::new(false));
    let (mut speeds, mut rates) = (Vec::new(), Vec::new());
    let (mut seconds, mut ios) = (0.0, 0);
    let mut fastest = vec![f64::INFINITY; cells.len()];
    for _ in 0..scale.rounds {
        let mut real = 0.0;
        (seconds, ios) = (0.0, 0);
        for (cell, fastest) in cells.iter().zip(&mut fastest) {
            let watch = Stopwatch::start();
            let measured = study.target().run(cell, &never).map_err(|e| anyhow!("{}: {e}", cell.label()))?;
            let took = watch.seconds();
            *fastest = fastest.min(took);
            real += took;
            seconds += cell.seconds().unwrap_or(measured.seconds);
            ios += measured.member_ios.map_or(0, |ios| ios.reads + ios.writes);
        }
        speeds.push(seconds / real);
        rates.push(ios as f64 / real);
    }
    let real: f64 = fastest.iter().sum();
    let note = format!(
        "{} cells of {}, spread over the study, each at its fastest",
        cells.len(),
        study.cells().len()
    );
    Ok(vec![
        Row::new("simulation: the published chunk-size study", Unit::TimesRealTime, speeds)
            .fastest(Some(seconds / real))
            .asked(Target::AtLeast(TIMES_REAL_TIME))
            .noted(note.clone()),
        Row::new("simulation: member I/Os", Unit::MemberIosPerSecond, rates)
            .fastest(Some(ios as f64 / real))
            .asked(Target::AtLeast(MEMBER_IOS))
            .noted(note),
    ])
}
