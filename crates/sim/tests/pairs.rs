//! Two members fail, one after the other: every ordered pair that the array survives, the second at several moments of the
//! recovery of the first, with requests all the while.

use stripewise_engine::array::slots::SlotSet;
use stripewise_engine::array::survives;
use stripewise_engine::io::{AdminCommand, Flags, Op, SyncAction};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{SectorRange, Slot};
use stripewise_format::level::{Layout, Level};
use stripewise_sim::checker::{ArrayPlan, Driver, Failure};

/// How much of the first member's recovery is done when the second fails.
const MOMENTS_PERCENT: [u64; 4] = [0, 30, 96, 100];
const MEMBER_SECTORS: u64 = 400;
/// Requests before the first failure, and after the second.
const REQUESTS: u64 = 12;
/// Answers between two requests.
const ANSWERS: u64 = 9;

struct Load {
    driver: Driver,
    sectors: u64,
    random: u64,
}

impl Load {
    fn below(&mut self, limit: u64) -> u64 {
        // Knuth's MMIX generator; its high bits are the better ones.
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    fn request(&mut self) -> Result<(), Failure> {
        let op = [Op::Write, Op::Write, Op::Read, Op::Flush][self.below(4) as usize];
        let start = self.below(self.sectors);
        let range = SectorRange::new(start, (1 + self.below(20)).min(self.sectors - start));
        let range = if op == Op::Flush { SectorRange::new(0, 0) } else { range };
        self.driver.request(op, range, Flags { sync: true, ..Flags::default() })
    }

    /// Requests, and answers, until the array's own work is at its end or so far.
    fn work(&mut self, percent: u64) -> Result<(), Failure> {
        for answers in 1_u64.. {
            let Some(status) = self.driver.sync_status() else { break };
            let is_over = !matches!(status.action, SyncAction::Recover | SyncAction::Resync);
            if is_over || status.done_sectors * 100 >= status.total_sectors * percent && percent < 100 {
                break;
            }
            if answers.is_multiple_of(ANSWERS) {
                self.request()?;
            }
            self.driver.step()?;
        }
        Ok(())
    }

    fn requests(&mut self, count: u64) -> Result<(), Failure> {
        for _ in 0..count {
            self.request()?;
            self.driver.steps(ANSWERS)?;
        }
        Ok(())
    }
}

/// When the second member failed.
enum Second {
    /// While the first was recovered, so far.
    During(u64),
    After,
    /// It did not: that would have been too much.
    Never,
}

/// Fails two members.
fn fail_two(plan: &ArrayPlan, first: Slot, second: Slot, percent: u64, seed: u64) -> Result<Second, Failure> {
    let driver = Driver::new(plan, seed, false)?;
    let sectors = driver.geometry().array_sectors();
    let mut load = Load { driver, sectors, random: seed };
    load.driver.request(Op::Write, SectorRange::new(0, sectors), Flags::default())?;
    load.requests(REQUESTS)?;
    load.driver.admin(AdminCommand::Fail(first))?;
    load.work(percent)?;
    let status = load.driver.sync_status().filter(|status| status.action == SyncAction::Recover);
    let second_is = status.map_or(Second::After, |status| Second::During(status.done_sectors));
    // Two that hold the same are survived once the first is back.
    let both = [first, second].into_iter().collect::<SlotSet>();
    if matches!(second_is, Second::During(_)) && !survives(load.driver.geometry(), both) {
        return Ok(Second::Never);
    }
    load.driver.kill(second);
    load.requests(REQUESTS)?;
    load.work(100)?;
    load.driver.verify()?;
    if load.driver.is_complete() { Ok(second_is) } else { Err(Failure::NotRecovered(second)) }
}

fn plans() -> Vec<ArrayPlan> {
    let layouts = |level, names: &[&str]| -> Vec<Layout> {
        names.iter().map(|name| Layout::parse(level, name).expect("it is one of the level's")).collect()
    };
    let mut plans = Vec::new();
    for members in [4, 6] {
        let levels = [
            (Level::Raid6, vec![Layout::default_of(Level::Raid6)]),
            (Level::Raid10, layouts(Level::Raid10, &["n2", "f2", "o2"])),
        ];
        for (level, layouts) in levels {
            for layout in layouts {
                let small = ArrayPlan::small(level, members, Policy::stripewise());
                plans.push(ArrayPlan {
                    layout,
                    spares: 2,
                    data_sectors: MEMBER_SECTORS,
                    bitmap_chunk_bytes: (members == 6).then_some(4096),
                    ..small
                });
            }
        }
    }
    plans
}

#[test]
fn every_pair_of_members_may_fail_at_any_moment_of_a_recovery() {
    let (mut during, mut late, mut after) = (0, 0, 0);
    for plan in plans() {
        let slots = || (0..plan.members).map(Slot);
        for (first, second) in slots().flat_map(|a| slots().map(move |b| (a, b))).filter(|(a, b)| a != b) {
            for percent in MOMENTS_PERCENT {
                let seed = u64::from(first.0) * 1_000 + u64::from(second.0) * 100 + percent;
                let done = fail_two(&plan, first, second, percent, seed);
                let what = format!(
                    "{} {:?} of {}, {first}, at {percent} % {second}",
                    plan.level, plan.layout, plan.members
                );
                match done.unwrap_or_else(|failure| panic!("{what}: {failure}")) {
                    Second::During(done) => {
                        assert!(
                            done * 100 >= MEMBER_SECTORS * percent,
                            "{what}: {done} sectors were recovered"
                        );
                        during += 1;
                        late += u32::from(percent == 96);
                    }
                    Second::After => after += 1,
                    Second::Never => {}
                }
            }
        }
    }
    println!(
        "{during} second failures during the first recovery, {late} of them at its end, {after} after it"
    );
    assert!(during > 220 && late > 20 && after > 150, "{during} during, {late} at the end, {after} after");
}
