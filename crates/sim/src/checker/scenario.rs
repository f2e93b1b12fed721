//! What a run does: an array, and steps. A scenario follows from a seed, and is plain data that can be cut down.

use stripewise_engine::io::{Flags, Op};
use stripewise_engine::level::{Layout, Level, ParityLayout};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{SectorRange, Slot};
use stripewise_engine::volume::STRIPE_CACHE_MIN;

use super::array::ArrayPlan;
use crate::faults::{Fault, Survival};
use crate::random::Random;

/// A step of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for a request, then answer so many actions.
    Request {
        /// What.
        op: Op,
        /// Which sectors, cut to the array's.
        range: SectorRange,
        /// What else.
        flags: Flags,
        /// Answers afterwards.
        answers: u16,
    },
    /// Something goes wrong.
    Fault(Fault),
    /// An administrator fails the slot's member, if the array survives it.
    Fail(Slot),
    /// Answer until nothing is under way.
    Drain,
    /// Let time pass without requests, up to so many deadlines.
    Idle(u8),
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Of the order of answers and of all that is left to chance.
    pub seed: u64,
    /// The array.
    pub array: ArrayPlan,
    /// What happens, in this order. After a power cut the array starts anew.
    pub steps: Vec<Step>,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let array = array(&mut random);
        let sectors = array.geometry().map_or(1, |g| g.array_sectors());
        let requests = 10 + random.below(60);
        let mut maker = StepMaker {
            sectors,
            members: array.members.into(),
            aligned: random.chance(50),
            hot: random.chance(50),
            faults_percent: random.pick(&[0, 2, 8]),
            cut_percent: random.pick(&[0, 1, 5]),
            fua_percent: random.pick(&[0, 10, 40]),
            depth: 1 + random.below(40),
            random,
        };
        let mut steps: Vec<Step> = (0..requests).map(|_| maker.step()).collect();
        if maker.cut_percent > 0 {
            steps.push(maker.cut());
        }
        Self { seed: maker.random.next_u64(), array, steps }
    }
}

fn array(random: &mut Random) -> ArrayPlan {
    let level = random.pick(&[
        Level::Raid0,
        Level::Linear,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid5,
        Level::Raid6,
        Level::Raid6,
        Level::Raid10,
    ]);
    let members = level.members_min() + random.below(4) as u16;
    let layout = layout(level, members, random);
    let chunk_sectors = if level.has_chunks() { random.pick(&[8, 16, 32, 64]) } else { 0 };
    ArrayPlan {
        level,
        layout,
        members,
        chunk_sectors,
        data_sectors: chunk_sectors.max(8) * (3 + random.below(9)),
        policy: random.pick(&Policy::ALL),
        stripe_cache_size: random.pick(&[STRIPE_CACHE_MIN, STRIPE_CACHE_MIN, 24, 64]),
        discard: random.chance(50),
        bitmap_chunk_bytes: random.pick(&[None, Some(4096), Some(16384), Some(1 << 20)]),
    }
}

fn layout(level: Level, members: u16, random: &mut Random) -> Layout {
    match level {
        Level::Raid4 | Level::Linear | Level::Raid1 => Layout::default_of(level),
        Level::Raid0 => named(level, random.pick(&["original", "alternate"])),
        Level::Raid10 => {
            let name = random.pick(&["n2", "f2", "o2", "n3"]);
            named(level, if members < 3 { "n2" } else { name })
        }
        Level::Raid5 | Level::Raid6 => {
            let of_level = |l: &Layout| Layout::from_number(level, l.number()) == Some(*l);
            let layouts: Vec<Layout> =
                ParityLayout::ALL.map(Layout::Parity).into_iter().filter(of_level).collect();
            random.pick(&layouts)
        }
    }
}

fn named(level: Level, name: &str) -> Layout {
    Layout::parse(level, name).expect("it is one of the level's")
}

struct StepMaker {
    sectors: u64,
    members: u64,
    aligned: bool,
    hot: bool,
    faults_percent: u64,
    cut_percent: u64,
    fua_percent: u64,
    depth: u64,
    random: Random,
}

impl StepMaker {
    fn step(&mut self) -> Step {
        let random = &mut self.random;
        if random.chance(self.cut_percent) {
            return self.cut();
        }
        if random.chance(self.faults_percent) {
            return self.fault();
        }
        if random.chance(8) {
            return Step::Idle(1 + random.below(8) as u8);
        }
        let op = match random.below(20) {
            0..5 => Op::Read,
            5..16 => Op::Write,
            16 => Op::WriteZeroes,
            17 => Op::Discard,
            _ => Op::Flush,
        };
        let flags = Flags {
            fua: op.is_write() && random.chance(self.fua_percent),
            more: random.chance(40),
            sync: random.chance(50),
            ..Flags::default()
        };
        let answers = random.below(self.depth) as u16;
        Step::Request { op, range: self.range(), flags, answers }
    }

    fn range(&mut self) -> SectorRange {
        let random = &mut self.random;
        let unit = if self.aligned { 8 } else { 1 };
        let sectors = if self.hot { self.sectors.min(64) } else { self.sectors };
        let limit = if random.chance(15) { sectors } else { sectors.min(40) };
        let start = random.below(sectors.div_ceil(unit)) * unit;
        let count = (1 + random.below(limit)).next_multiple_of(unit);
        SectorRange::new(start, count.min(self.sectors - start))
    }

    fn slot(&mut self) -> Slot {
        Slot(self.random.below(self.members) as u16)
    }

    fn cut(&mut self) -> Step {
        let survival = match self.random.below(10) {
            0 => Survival::All,
            1 => Survival::None,
            _ => Survival::Seeded(self.random.next_u64()),
        };
        Step::Fault(Fault::PowerCut { after_writes: self.random.below(30) as u32, survival })
    }

    fn fault(&mut self) -> Step {
        let slot = self.slot();
        let percent = self.random.pick(&[0, 10, 50]);
        Step::Fault(match self.random.below(12) {
            0..2 => return Step::Fail(slot),
            2..4 => Fault::Death { slot, comes_back: self.random.chance(50) },
            4..8 => {
                let (sector, count) = (self.random.below(200), 1 + self.random.below(20));
                Fault::Latent { slot, sector, count }
            }
            8..10 => Fault::Flaky { slot, percent },
            10 => Fault::FailingWrites { slot, percent },
            _ => Fault::Slow { slot, slow: self.random.chance(70) },
        })
    }
}
