//! Runs scenarios.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use stripewise_engine::io::{AdminCommand, Op};
use stripewise_engine::units::{SectorRange, Slot};

use super::driver::Driver;
use super::failure::Failure;
use super::scenario::{Scenario, Step};
use super::tally::Tally;

/// How a run went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Of all that happened.
    pub trace_hash: u64,
    /// What came to pass.
    pub tally: Tally,
    /// Writes that the last power cut put in doubt.
    pub in_doubt: u64,
    /// What was wrong, if anything.
    pub failure: Option<Failure>,
    /// What happened, in words, if asked for.
    pub log: Vec<String>,
}

/// What the allocator keeps for the next run, about.
const KEPT_BYTES: usize = 32 << 20;

/// Has the allocator keep what a run gives back. glibc returns all but 128 KiB to the kernel, page by page, which took four fifths of
/// the time of a run that ends soon; what it keeps follows the largest piece that was ever freed (mallopt(3), `M_MMAP_THRESHOLD`).
fn keep_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| drop(black_box(Vec::<u8>::with_capacity(KEPT_BYTES / 2))));
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, logs: bool) -> Outcome {
    keep_memory();
    let mut run = match Driver::new(&scenario.array, scenario.seed, logs) {
        Ok(driver) => Run { driver },
        Err(failure) => return Outcome { failure: Some(failure), ..Outcome::default() },
    };
    let result = catch_unwind(AssertUnwindSafe(|| run.all(&scenario.steps)));
    let failure = match result {
        Ok(result) => result.err(),
        Err(panic) => Some(Failure::Panicked(message(&*panic))),
    };
    Outcome {
        trace_hash: run.driver.trace_hash(),
        tally: run.driver.tally(),
        in_doubt: run.driver.in_doubt,
        failure,
        log: run.driver.log(),
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

struct Run {
    driver: Driver,
}

impl Run {
    fn all(&mut self, steps: &[Step]) -> Result<(), Failure> {
        for step in steps {
            self.step(*step)?;
            if self.driver.is_off {
                self.driver.restart()?;
            }
        }
        self.driver.drain()?;
        if self.driver.is_off {
            self.driver.restart()?;
        }
        self.driver.cut = None;
        self.driver.verify()
    }

    fn step(&mut self, step: Step) -> Result<(), Failure> {
        let slots = self.driver.geometry().raid_disks();
        let slot_of = |slot: Slot| Slot(slot.0 % slots);
        let driver = &mut self.driver;
        match step {
            Step::Request { op, range, flags, answers } => {
                let sectors = driver.geometry().array_sectors();
                let start = range.start.min(sectors - 1);
                let range = if op == Op::Flush {
                    SectorRange::new(0, 0)
                } else {
                    SectorRange::new(start, range.count.min(sectors - start))
                };
                driver.request(op, range, flags)?;
                driver.steps(answers.into())?;
            }
            Step::Answers(count) => driver.steps(count.into())?,
            Step::Drain => driver.drain()?,
            Step::Settle => driver.settle()?,
            Step::Idle(deadlines) => driver.idle(deadlines)?,
            Step::Fail(slot) => {
                if driver.survives_without(slot_of(slot)) {
                    driver.admin(AdminCommand::Fail(slot_of(slot)))?;
                }
            }
            Step::Kill(slot) => {
                driver.cut = None;
                driver.kill(slot_of(slot));
            }
            Step::Replace(slot) => {
                driver.admin(AdminCommand::Replace { slot: slot_of(slot), with: None })?;
            }
            Step::BringBack(number) => driver.bring_back(number)?,
            Step::Sync(action) => {
                driver.admin(AdminCommand::Sync(action))?;
            }
            Step::Speed { min_kib, max_kib } => {
                driver.admin(AdminCommand::SetSpeed { min_kib, max_kib })?;
            }
            Step::Flip { slot, sector, bit, repair } => driver.flip(slot_of(slot), sector, bit, repair)?,
            Step::Stop => driver.stop()?,
            Step::Fault(fault) => driver.fault(fault),
        }
        Ok(())
    }
}
