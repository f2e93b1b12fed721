//! Power cuts at every write of a small workload, each with many choices of what survives.

use stripewise_engine::io::{Flags, Op};
use stripewise_engine::level::Level;
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{PAGE_SECTORS, SectorRange, Slot};

use super::array::ArrayPlan;
use super::run::{Outcome, run};
use super::scenario::{Scenario, Step};
use crate::faults::{Fault, Survival};
use crate::random::Random;

/// A level with a small workload.
#[derive(Clone, Debug)]
pub struct CrashCase {
    /// What it is called.
    pub name: String,
    scenario: Scenario,
}

/// How much of a case was tried.
#[derive(Clone, Debug, Default)]
pub struct CrashReport {
    /// Power cuts.
    pub cuts: u64,
    /// Those of which every selection of the writes in doubt was tried.
    pub exhausted: u64,
    /// Places to cut.
    pub places: u64,
    /// The first run that failed.
    pub failure: Option<(Scenario, Outcome)>,
}

/// The small workload: writes of part of a stripe, of a whole one and across two, a flush, forced unit access, and
/// an overwrite of all of it.
fn workload(stripe: u64, sectors: u64) -> Vec<Step> {
    let plain = Flags::default();
    let fua = Flags { fua: true, ..plain };
    let request = |op, start: u64, count: u64, flags| {
        let range = SectorRange::new(start.min(sectors - 1), count.min(sectors - start.min(sectors - 1)));
        Step::Request { op, range, flags, answers: 3 }
    };
    vec![
        request(Op::Write, 3, 2, plain),
        request(Op::Write, stripe, stripe, plain),
        request(Op::Flush, 0, 0, plain),
        request(Op::Write, stripe / 2, stripe, plain),
        request(Op::Write, 0, 8, fua),
        request(Op::WriteZeroes, stripe + 4, 8, plain),
        Step::Drain,
        request(Op::Write, 2, 7, plain),
        request(Op::Flush, 0, 0, plain),
        request(Op::Write, 0, 2 * stripe, plain),
    ]
}

/// A replacement with writes that are acknowledged all the while: at its end, too.
fn writes_through_a_replacement(sectors: u64) -> Vec<Step> {
    let flags = Flags { fua: true, sync: true, ..Flags::default() };
    let write = |i: u64| {
        let range = SectorRange::new(i * PAGE_SECTORS % (sectors - PAGE_SECTORS), PAGE_SECTORS);
        Step::Request { op: Op::Write, range, flags, answers: 4 }
    };
    let writes = (0..24).map(write);
    std::iter::once(Step::Replace(Slot(1))).chain(writes).chain([Step::Settle]).collect()
}

/// What goes on beside the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// Nothing.
    Nothing,
    /// A member fails, and a spare takes its slot.
    Recovery,
    /// A spare is to replace a member.
    Replacement,
    /// A member fails, and comes back with what it held.
    ReAdd,
}

impl Beside {
    /// The workload with it.
    fn among(self, mut steps: Vec<Step>) -> Vec<Step> {
        let (fail, back) = (Step::Fail(Slot(1)), Step::BringBack(0));
        match self {
            Self::Nothing => {}
            Self::Recovery => steps.insert(3, fail),
            Self::Replacement => steps.insert(3, Step::Replace(Slot(1))),
            Self::ReAdd => {
                steps.insert(3, fail);
                steps.insert(5, back);
            }
        }
        if self != Self::Nothing {
            steps.push(Step::Settle);
        }
        steps
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Recovery => ", recovery onto a spare",
            Self::Replacement => ", replacement",
            Self::ReAdd => ", re-add",
        }
    }
}

/// Every level with redundancy, with each policy: without a bitmap and with one; with one, and a member recovered,
/// replaced, or taken back meanwhile; and writes through the end of a replacement.
pub fn crash_cases() -> Vec<CrashCase> {
    let levels =
        [(Level::Raid1, 2), (Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 4), (Level::Raid10, 4)];
    let bitmap = Some(4096);
    let kinds = [
        (None, Beside::Nothing),
        (bitmap, Beside::Nothing),
        (bitmap, Beside::Recovery),
        (bitmap, Beside::Replacement),
        (bitmap, Beside::ReAdd),
    ];
    let mut cases = Vec::new();
    for (level, members) in levels {
        for policy in Policy::ALL {
            for (bitmap_chunk_bytes, beside) in kinds {
                let with = if bitmap_chunk_bytes.is_some() { "a bitmap" } else { "no bitmap" };
                let name = format!("{level} of {members}, {}, {with}{}", policy.name, beside.words());
                let array = ArrayPlan {
                    bitmap_chunk_bytes,
                    spares: u16::from(matches!(beside, Beside::Recovery | Beside::Replacement)),
                    ..ArrayPlan::small(level, members, policy.clone())
                };
                let geometry = array.geometry().expect("small arrays are possible");
                let stripe = geometry.chunk_sectors().max(8) * u64::from(geometry.data_disks());
                let steps = beside.among(workload(stripe, geometry.array_sectors()));
                cases.push(CrashCase { name, scenario: Scenario { seed: 1, array, steps } });
            }
        }
        let array = ArrayPlan { spares: 1, ..ArrayPlan::small(level, members, Policy::stripewise()) };
        let sectors = array.geometry().expect("small arrays are possible").array_sectors();
        let name = format!("{level} of {members}, writes through the end of a replacement");
        let steps = writes_through_a_replacement(sectors);
        cases.push(CrashCase { name, scenario: Scenario { seed: 1, array, steps } });
    }
    cases
}

/// Cuts the power after each write that a member answers. Where no more than `exhaustive_max` writes are in doubt
/// every selection of them is tried, and `samples` torn and reordered ones everywhere; `order` is the seed of the
/// order of answers.
pub fn enumerate_crashes(case: &CrashCase, order: u64, exhaustive_max: u32, samples: u64) -> CrashReport {
    let mut report = CrashReport::default();
    let mut scenario = Scenario { seed: order, ..case.scenario.clone() };
    let whole = run(&scenario, false);
    if whole.failure.is_some() {
        report.failure = Some((scenario, whole));
        return report;
    }
    let mut random = Random::new(order);
    scenario.steps.insert(0, Step::Drain);
    for after_writes in 0..whole.tally.member_writes as u32 {
        report.places += 1;
        let mut tried = |survival| {
            let cut = Step::Fault(Fault::PowerCut { after_writes, survival });
            scenario.steps[0] = cut;
            let outcome = run(&scenario, false);
            report.cuts += 1;
            let in_doubt = outcome.in_doubt;
            if outcome.failure.is_some() && report.failure.is_none() {
                report.failure = Some((scenario.clone(), outcome));
            }
            in_doubt
        };
        let in_doubt = tried(Survival::None).min(64) as u32;
        tried(Survival::All);
        if in_doubt <= exhaustive_max {
            (1..(1u64 << in_doubt).saturating_sub(1)).for_each(|bits| {
                tried(Survival::Subset(bits));
            });
            report.exhausted += 1;
        }
        (0..samples).for_each(|_| {
            tried(Survival::Seeded(random.next_u64()));
        });
        if report.failure.is_some() {
            break;
        }
    }
    report
}
