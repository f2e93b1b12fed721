//! Runs cells: on all cores in virtual time, one at a time in real time.
//!
//! # Contract
//! *Failures.* A cell that fails or panics is a result of that cell. *Cancellation.* Once the flag is set no
//! cell starts, and cells under way end early and are not told. *Ordering.* Results are told on the caller's
//! thread, in the order in which cells end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cell::Cell;
use crate::targets::{CellError, Measurement, Target};

/// A cell that ended.
pub(crate) struct Ended {
    /// Its place among the cells given.
    pub(crate) index: usize,
    pub(crate) outcome: Result<Measurement, CellError>,
    pub(crate) wall: Duration,
}

/// Runs the cells and tells of each that ends. An error of `ended` stops the run.
pub(crate) fn run_cells(
    target: &dyn Target,
    cells: &[&Cell],
    cancel: &Arc<AtomicBool>,
    mut ended: impl FnMut(Ended) -> Result<()>,
) -> Result<()> {
    let threads = if target.is_simulated() { cores().min(cells.len()) } else { 1 };
    let next = AtomicUsize::new(0);
    // A failing store stops the workers without touching the caller's flag.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..threads {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            scope.spawn(move || {
                while !cancel.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = cells.get(index) else { return };
                    let started = Instant::now();
                    let outcome = run_one(target, cell, cancel);
                    let wall = started.elapsed();
                    if cancel.load(Ordering::Relaxed) || sender.send(Ended { index, outcome, wall }).is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let outcome = receiver.iter().try_for_each(&mut ended);
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Cores to run on.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn run_one(target: &dyn Target, cell: &Cell, cancel: &Arc<AtomicBool>) -> Result<Measurement, CellError> {
    catch_unwind(AssertUnwindSafe(|| target.run(cell, cancel)))
        .unwrap_or_else(|panic| Err(CellError(format!("the cell panicked: {}", message(panic.as_ref())))))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}
