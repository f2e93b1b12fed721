//! Runs scenarios, and cuts those that fail down to what is needed to fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use stripewise_engine::array::slots::SlotSet;
use stripewise_engine::array::survives;
use stripewise_engine::io::{AdminCommand, Op};
use stripewise_engine::units::{SectorRange, Slot};

use super::driver::Driver;
use super::failure::Failure;
use super::scenario::{Scenario, Step};
use crate::faults::Fault;

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of all that happened; of nothing if the engine panicked.
    pub trace_hash: u64,
    /// Requests that were answered.
    pub completed: u64,
    /// Writes that members answered.
    pub member_writes: u64,
    /// Writes that the last power cut put in doubt.
    pub in_doubt: u64,
    /// Starts after power cuts.
    pub restarts: u32,
    /// What was wrong, if anything.
    pub failure: Option<Failure>,
    /// What happened, in words, if asked for.
    pub log: Vec<String>,
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, logs: bool) -> Outcome {
    let mut run = match Driver::new(&scenario.array, scenario.seed, logs) {
        Ok(driver) => Run { driver, restarts: 0 },
        Err(failure) => return Outcome::failed(failure),
    };
    let result = catch_unwind(AssertUnwindSafe(|| run.all(&scenario.steps)));
    let failure = match result {
        Ok(result) => result.err(),
        Err(panic) => Some(Failure::Panicked(message(&*panic))),
    };
    Outcome {
        trace_hash: run.driver.trace_hash(),
        completed: run.driver.completed(),
        member_writes: run.driver.writes(),
        in_doubt: run.driver.in_doubt,
        restarts: run.restarts,
        failure,
        log: run.driver.log(),
    }
}

impl Outcome {
    const fn failed(failure: Failure) -> Self {
        let (completed, member_writes, in_doubt) = (0, 0, 0);
        Self {
            trace_hash: 0,
            completed,
            member_writes,
            in_doubt,
            restarts: 0,
            failure: Some(failure),
            log: Vec::new(),
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

struct Run {
    driver: Driver,
    restarts: u32,
}

impl Run {
    fn all(&mut self, steps: &[Step]) -> Result<(), Failure> {
        for step in steps {
            self.step(*step)?;
            if self.driver.is_off {
                self.restart()?;
            }
        }
        self.driver.drain()?;
        if self.driver.is_off {
            self.restart()?;
        }
        self.driver.cut = None;
        self.driver.verify()
    }

    fn restart(&mut self) -> Result<(), Failure> {
        self.restarts += 1;
        self.driver.restart()
    }

    fn step(&mut self, step: Step) -> Result<(), Failure> {
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
                driver.steps(answers.into())
            }
            Step::Drain => driver.drain(),
            Step::Idle(deadlines) => driver.idle(deadlines),
            Step::Fail(slot) => {
                let slot = self.slot(slot);
                if self.survives_without(slot) {
                    self.driver.admin(AdminCommand::Fail(slot))?;
                }
                Ok(())
            }
            Step::Fault(fault) => {
                self.fault(fault);
                Ok(())
            }
        }
    }

    fn slot(&self, slot: Slot) -> Slot {
        Slot(slot.0 % self.driver.geometry().raid_disks())
    }

    /// Whether the array survives this slot's loss beside those lost and ailing.
    fn survives_without(&mut self, slot: Slot) -> bool {
        let slots = self.driver.geometry().raid_disks();
        let mut lost: SlotSet = self.driver.failed.iter().copied().collect();
        for other in (0..slots).map(Slot) {
            let ails = self.driver.device_mut(other).is_none_or(|(device, _)| device.ails());
            if ails {
                lost.insert(other);
            }
        }
        lost.insert(slot);
        survives(self.driver.geometry(), lost)
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::PowerCut { after_writes, survival } => {
                self.driver.cut = Some((self.driver.writes() + u64::from(after_writes) + 1, survival));
            }
            Fault::Death { slot, comes_back } => self.ail(slot, |device, _| {
                device.gone = true;
                device.comes_back = comes_back;
            }),
            Fault::Latent { slot, sector, count } => self.ail(slot, |device, before| {
                let data = device.storage.sectors() - before;
                let range = SectorRange::new(before + sector % data, count);
                device.storage.spoil(range);
            }),
            Fault::Flaky { slot, percent } => self.ail(slot, |device, _| device.flaky_percent = percent),
            Fault::FailingWrites { slot, percent } => {
                self.ail(slot, |device, _| device.failing_percent = percent);
            }
            Fault::Slow { slot, slow } => {
                let slot = self.slot(slot);
                if let Some((device, _)) = self.driver.device_mut(slot) {
                    device.slow = slow;
                }
            }
        }
    }

    /// Lets a member ail, unless that is more than the array survives.
    fn ail(&mut self, slot: Slot, how: impl FnOnce(&mut super::driver::Device, u64)) {
        let slot = self.slot(slot);
        self.driver.doubt(slot);
        if self.survives_without(slot)
            && let Some((device, before)) = self.driver.device_mut(slot)
        {
            how(device, before);
        }
    }
}

/// Cuts a failing scenario down: fewer steps, a plainer array, as long as it still fails. `tries` bounds the runs.
pub fn shrink(scenario: &Scenario, tries: u32) -> Scenario {
    let mut best = scenario.clone();
    let mut left = tries;
    let mut fails = |candidate: &Scenario| {
        left = left.saturating_sub(1);
        left > 0 && run(candidate, false).failure.is_some()
    };
    let mut width = best.steps.len().div_ceil(2);
    while width > 0 {
        let mut at = 0;
        while at < best.steps.len() {
            let mut fewer = best.clone();
            fewer.steps.drain(at..(at + width).min(best.steps.len()));
            if fails(&fewer) {
                best = fewer;
            } else {
                at += width;
            }
        }
        width = if width == 1 { 0 } else { width.div_ceil(2) };
    }
    for plainer in PLAINER {
        let mut candidate = best.clone();
        plainer(&mut candidate);
        if candidate != best && candidate.array.geometry().is_ok() && fails(&candidate) {
            best = candidate;
        }
    }
    for seed in 0..64 {
        let mut calmer = Scenario { seed, ..best.clone() };
        for step in &mut calmer.steps {
            if let Step::Request { answers, .. } = step {
                *answers = if seed % 2 == 0 { 0 } else { *answers / 2 };
            }
        }
        if fails(&calmer) {
            best = calmer;
            break;
        }
    }
    best
}

/// Ways to make an array plainer.
const PLAINER: [fn(&mut Scenario); 6] = [
    |s| s.array.members = s.array.level.members_min(),
    |s| s.array.members = s.array.members.min(s.array.level.members_min() + 1),
    |s| s.array.chunk_sectors = s.array.chunk_sectors.min(8),
    |s| s.array.data_sectors = s.array.chunk_sectors.max(8) * 2,
    |s| s.array.discard = false,
    |s| s.array.policy = stripewise_engine::policy::Policy::stripewise(),
];
