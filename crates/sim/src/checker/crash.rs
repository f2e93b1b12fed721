//! Power cuts at every write of a small workload, each with many choices of what survives.

use stripewise_engine::io::{Flags, Op};
use stripewise_engine::level::Level;
use stripewise_engine::policy::Policy;
use stripewise_engine::units::SectorRange;

use super::array::ArrayPlan;
use super::scenario::{Scenario, Step};
use super::swarm::{Outcome, run};
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

/// Every level with redundancy, with each policy, without a bitmap and with one.
pub fn crash_cases() -> Vec<CrashCase> {
    let levels =
        [(Level::Raid1, 2), (Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 4), (Level::Raid10, 4)];
    let mut cases = Vec::new();
    for (level, members) in levels {
        for policy in Policy::ALL {
            for bitmap_chunk_bytes in [None, Some(4096)] {
                let with = if bitmap_chunk_bytes.is_some() { "a bitmap" } else { "no bitmap" };
                let name = format!("{level} of {members}, {}, {with}", policy.name);
                let array =
                    ArrayPlan { bitmap_chunk_bytes, ..ArrayPlan::small(level, members, policy.clone()) };
                let geometry = array.geometry().expect("small arrays are possible");
                let stripe = geometry.chunk_sectors().max(8) * u64::from(geometry.data_disks());
                let steps = workload(stripe, geometry.array_sectors());
                cases.push(CrashCase { name, scenario: Scenario { seed: 1, array, steps } });
            }
        }
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
    for after_writes in 0..whole.member_writes as u32 {
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
