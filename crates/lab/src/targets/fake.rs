//! A target whose figures are known beforehand, for tests.

use std::result::Result;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::*;
use crate::workload::Random;

/// Answers with a given throughput, scattered by the cell's seed.
pub(crate) struct FakeTarget {
    /// Bytes per second before the scatter; `Err` fails the cell.
    pub(crate) throughput: fn(&Cell) -> Result<f64, CellError>,
    /// Half-width of the scatter, as a share.
    pub(crate) noise: f64,
    pub(crate) simulated: bool,
    /// Keys of the cells run, in order.
    pub(crate) runs: Mutex<Vec<String>>,
    /// Sets the cancel flag during this run, counted from 1.
    pub(crate) cancel_at: usize,
    /// Notes of every cell it runs.
    pub(crate) notes: Vec<String>,
}

impl FakeTarget {
    pub(crate) fn new(throughput: fn(&Cell) -> Result<f64, CellError>, noise: f64) -> Self {
        Self {
            throughput,
            noise,
            simulated: true,
            runs: Mutex::new(Vec::new()),
            cancel_at: 0,
            notes: Vec::new(),
        }
    }

    pub(crate) fn run_count(&self) -> usize {
        self.runs.lock().unwrap().len()
    }
}

impl Target for FakeTarget {
    fn name(&self) -> String {
        "fake".to_owned()
    }

    fn describe(&self, _: &[Cell]) -> String {
        "a fake".to_owned()
    }

    fn identity(&self, _: &Cell) -> String {
        "fake".to_owned()
    }

    fn is_simulated(&self) -> bool {
        self.simulated
    }

    fn check(&self, _: &Cell) -> Result<(), String> {
        Ok(())
    }

    fn run(&self, cell: &Cell, cancel: &Arc<AtomicBool>) -> Result<Measurement, CellError> {
        let count = {
            let mut runs = self.runs.lock().unwrap();
            runs.push(cell.label());
            runs.len()
        };
        if count == self.cancel_at {
            cancel.store(true, Ordering::Relaxed);
        }
        let mut random = Random::new(cell.seed(), cell.parameters.array.chunk);
        let scatter = 1.0 + self.noise * (random.below(2_000_001) as f64 / 1e6 - 1.0);
        let bytes = ((self.throughput)(cell)? * scatter) as u64;
        let block = cell.parameters.job.bs;
        let read = DirectionResult { ios: bytes / block, bytes, ..DirectionResult::default() };
        Ok(Measurement {
            seconds: 1.0,
            read,
            write: DirectionResult::default(),
            member_ios: None,
            figures: std::collections::BTreeMap::new(),
            notes: self.notes.clone(),
        })
    }
}
