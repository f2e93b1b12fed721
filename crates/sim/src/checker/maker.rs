//! The scenario of a seed.

use stripewise_engine::array::sync::{SpeedLimits, SyncConfig};
use stripewise_engine::io::{Flags, Op, SyncAction};
use stripewise_engine::level::{Layout, Level, ParityLayout};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{SectorRange, Slot};
use stripewise_engine::volume::STRIPE_CACHE_MIN;
use stripewise_format::placement::Metadata;

use super::array::ArrayPlan;
use super::scenario::{Scenario, Step};
use crate::faults::{Fault, Survival};
use crate::random::Random;

impl Scenario {
    /// The scenario of a seed: some arrays have bad-block logs, some of RAID-5 partial parity logs, some drives with
    /// heads.
    pub fn of(seed: u64) -> Self {
        let plain = Self::plain(seed);
        let mut random = Random::new(!seed);
        let mut scenario = if random.chance(30) { plain.with_bad_block_log(&mut random) } else { plain };
        scenario.array.rotational = random.chance(50);
        let has_logs = scenario.array.level == Level::Raid5 && random.chance(50);
        if has_logs { scenario.with_partial_parity_logs(&mut random) } else { scenario }
    }

    /// The same array and steps where members have partial parity logs, and where power may fail just when a member dies that comes
    /// back.
    fn with_partial_parity_logs(mut self, random: &mut Random) -> Self {
        // Areas of a header and one page, of three, and with room for several writes.
        self.array.ppl_sectors = Some(random.pick(&[16, 32, 200]));
        let loses_too_many = self.steps.iter().any(|step| matches!(step, Step::Kill(_)));
        if loses_too_many || random.chance(50) {
            return self;
        }
        for step in &mut self.steps {
            if !random.chance(6) {
                continue;
            }
            let survival = Survival::Seeded(random.next_u64());
            *step = Step::Fault(if random.chance(50) {
                Fault::Death { device: random.below(8) as u16, comes_back: true }
            } else {
                Fault::PowerCut { after_writes: random.below(12) as u32, survival }
            });
        }
        self
    }

    /// The same array and steps where members have bad-block logs, and sectors that take no writes.
    fn with_bad_block_log(mut self, random: &mut Random) -> Self {
        self.array.bad_block_log = true;
        for step in &mut self.steps {
            if let Step::Fault(Fault::Flaky { device, .. }) = *step {
                let (sector, count) = (random.below(200), 1 + random.below(20));
                *step = Step::Fault(Fault::Stuck { device, sector, count });
            }
        }
        self
    }

    /// The scenario of a seed without logs, on drives without heads.
    pub fn plain(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let array = array(&mut random);
        let sectors = array.geometry().map_or(1, |g| g.array_sectors());
        let requests = 10 + random.below(60);
        let mut maker = StepMaker {
            sectors,
            slots: array.members.into(),
            devices: (array.members + array.spares).into(),
            aligned: random.chance(50),
            hot: random.chance(50),
            faults_percent: random.pick(&[0, 2, 8]),
            admin_percent: if array.is_redundant() { random.pick(&[0, 6, 20]) } else { 0 },
            cut_percent: random.pick(&[0, 1, 5]),
            fua_percent: random.pick(&[0, 10, 40]),
            depth: 1 + random.below(40),
            random,
        };
        let mut steps: Vec<Step> = (0..requests).map(|_| maker.step()).collect();
        if array.is_redundant() && maker.random.chance(10) {
            maker.one_too_many(&mut steps);
        } else if maker.cut_percent > 0 {
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
    let is_redundant = !matches!(level, Level::Linear | Level::Raid0) && members > 1;
    // Arrays as small as these are slowed down only by limits of a few KiB/s.
    let limits = [(1000, 200_000), (1000, 200_000), (1, 2), (1, 50)];
    let (min_kib, max_kib) = random.pick(&limits);
    ArrayPlan {
        level,
        layout,
        members,
        spares: if is_redundant { random.pick(&[0, 1, 1, 2]) } else { 0 },
        metadata: if is_redundant { random.pick(&Metadata::ALL) } else { Metadata::DEFAULT },
        sync: SyncConfig { speed: SpeedLimits { min_kib, max_kib }, start: true },
        chunk_sectors,
        data_sectors: chunk_sectors.max(8) * (3 + random.below(9)),
        policy: random.pick(&Policy::ALL),
        stripe_cache_size: random.pick(&[STRIPE_CACHE_MIN, STRIPE_CACHE_MIN, 24, 64]),
        discard: random.chance(50),
        bitmap_chunk_bytes: random.pick(&[None, Some(4096), Some(16384), Some(1 << 20)]),
        bad_block_log: false,
        ppl_sectors: None,
        rotational: false,
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
    slots: u64,
    devices: u64,
    aligned: bool,
    hot: bool,
    faults_percent: u64,
    admin_percent: u64,
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
        if random.chance(self.admin_percent) {
            return self.admin();
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
        Slot(self.random.below(self.slots) as u16)
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
        let device = self.random.below(self.devices) as u16;
        let percent = self.random.pick(&[0, 10, 50]);
        Step::Fault(match self.random.below(12) {
            0..2 => return Step::Fail(self.slot()),
            2..4 => Fault::Death { device, comes_back: self.random.chance(50) },
            4..8 => {
                let (sector, count) = (self.random.below(200), 1 + self.random.below(20));
                Fault::Latent { device, sector, count }
            }
            8..10 => Fault::Flaky { device, percent },
            10 => Fault::FailingWrites { device, percent },
            _ => Fault::Slow { device, slow: self.random.chance(70) },
        })
    }

    /// What an administrator does.
    fn admin(&mut self) -> Step {
        match self.random.below(20) {
            0..4 => Step::Fail(self.slot()),
            4..8 => Step::BringBack(self.random.below(4) as u16),
            8..11 => Step::Replace(self.slot()),
            11..14 => Step::Sync(self.random.pick(&[
                SyncAction::Check,
                SyncAction::Repair,
                SyncAction::RepairLocated,
                SyncAction::Idle,
                SyncAction::Frozen,
                SyncAction::Recover,
                SyncAction::Resync,
            ])),
            14 => {
                let (min_kib, max_kib) = self.random.pick(&[(1, 2), (1, 100), (1000, 200_000)]);
                Step::Speed { min_kib, max_kib }
            }
            15 => Step::Flip {
                slot: self.slot(),
                sector: self.random.below(1 << 16),
                bit: self.random.below(4096),
                repair: self.random.pick(&[SyncAction::Repair, SyncAction::RepairLocated]),
            },
            16 => Step::Stop,
            17 => Step::Answers(self.random.below(200) as u16),
            _ => Step::Settle,
        }
    }

    /// Members die one after the other until more are lost than the level survives, with requests between.
    fn one_too_many(&mut self, steps: &mut Vec<Step>) {
        let mut slots: Vec<u16> = (0..self.slots as u16).collect();
        while !slots.is_empty() {
            let slot = slots.swap_remove(self.random.below(slots.len() as u64) as usize);
            steps.push(Step::Kill(Slot(slot)));
            for _ in 0..self.random.below(6) {
                let step = self.step();
                if matches!(step, Step::Request { .. } | Step::Settle | Step::Answers(_)) {
                    steps.push(step);
                }
            }
            if self.random.chance(20) {
                break;
            }
        }
    }
}
