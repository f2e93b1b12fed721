//! The engine's own work: members and kernels that answer at once, and no bytes. What a request costs, and that it costs
//! the same however large the array, its stripe cache and the number of requests are.

use anyhow::Result;
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::{Action, ActionQueue, Flags, Input, Op, Request, RequestId, Tag, Verdict};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Instant, SectorRange};
use stripewise_engine::volume::{STRIPE_CACHE_DEFAULT, STRIPE_CACHE_MAX, Volume, VolumeConfig};

use super::Scale;
use super::clock::{Stopwatch, interleaved};
use super::loops::Places;
use super::table::{Row, Target, Unit};

/// Requests of one shape.
#[derive(Clone, Copy, Debug)]
pub struct Requests {
    /// What they do.
    pub op: Op,
    /// How long they are.
    pub sectors: u64,
    /// How many are in flight.
    pub depth: u32,
    /// Anywhere, or one after another.
    pub is_random: bool,
}

impl Requests {
    /// 4 KiB anywhere, 64 in flight.
    pub const fn random(op: Op) -> Self {
        Self { op, sectors: 8, depth: 64, is_random: true }
    }

    /// One after another.
    pub const fn sequential(op: Op, sectors: u64) -> Self {
        Self { op, sectors, depth: 1, is_random: false }
    }
}

/// What one RMW may cost.
const RMW_NS: f64 = 250.0;
/// How much more a request may cost where everything is larger.
const GROWTH: f64 = 1.2;

/// A volume and what is under way in it.
#[derive(Debug)]
pub struct Driven {
    volume: Volume,
    out: ActionQueue,
    answers: Vec<Asked>,
    /// Those that are being given.
    batch: Vec<Asked>,
}

/// What waits to be answered.
#[derive(Debug)]
enum Asked {
    Io(Tag),
    Compute(Tag),
}

impl Asked {
    const fn answer(&self) -> Input {
        match *self {
            Self::Io(tag) => Input::IoDone { tag, result: Ok(()) },
            Self::Compute(tag) => Input::Computed { tag, verdict: Verdict::Consistent },
        }
    }
}

impl Driven {
    /// A volume of this level with chunks of 128 KiB and no bytes.
    ///
    /// # Errors
    /// The level cannot have so many members, or md no such stripe cache.
    pub fn new(level: Level, members: usize, stripe_cache: u32) -> Result<Self> {
        let geometry = GeometrySpec {
            level,
            layout: Layout::default_of(level),
            chunk_sectors: 256,
            member_sectors: vec![1 << 31; members],
        };
        let mut config = VolumeConfig::new(geometry, Policy::stripewise());
        config.stripe_cache_size = stripe_cache;
        Ok(Self {
            volume: Volume::new(&config)?,
            out: ActionQueue::default(),
            answers: Vec::new(),
            batch: Vec::new(),
        })
    }

    /// Random 4 KiB requests; nanoseconds each.
    fn nanoseconds(&mut self, op: Op, count: u64, seed: u64) -> f64 {
        let watch = Stopwatch::start();
        self.run(Requests::random(op), count, seed);
        watch.seconds() * 1e9 / count as f64
    }

    /// Takes so many requests to their end. What the engine asks for is answered in batches, in order.
    pub fn run(&mut self, requests: Requests, count: u64, seed: u64) {
        let Requests { op, sectors, depth, is_random } = requests;
        let blocks = self.volume.geometry().array_sectors() / sectors;
        // More blocks than a draw reaches would not be drawn evenly.
        let mut places = Places::new(blocks.min(1 << 31), is_random, seed);
        let mut free: Vec<u32> = (0..depth).collect();
        let (mut issued, mut ended) = (0, 0);
        while ended < count {
            while issued < count
                && let Some(id) = free.pop()
            {
                issued += 1;
                let range = SectorRange::new(places.draw() * sectors, sectors);
                let request = Request { id: RequestId(id), op, range, flags: Flags::default() };
                self.volume.handle(Instant::ZERO, Input::Request(request), &mut self.out);
                ended += self.take(&mut free);
            }
            ended += self.answer(&mut free);
        }
    }

    /// Answers all that was asked for up to now. Returns how many requests ended.
    fn answer(&mut self, free: &mut Vec<u32>) -> u64 {
        let mut ended = 0;
        let mut batch = std::mem::replace(&mut self.answers, std::mem::take(&mut self.batch));
        for asked in &batch {
            self.volume.handle(Instant::ZERO, asked.answer(), &mut self.out);
            ended += self.take(free);
        }
        batch.clear();
        self.batch = batch;
        ended
    }

    /// Takes what the engine asks for, and the numbers of requests that ended. Returns how many did.
    fn take(&mut self, free: &mut Vec<u32>) -> u64 {
        let mut ended = 0;
        for action in &self.out.actions {
            match action {
                Action::Io(io) => self.answers.push(Asked::Io(io.tag)),
                Action::Compute(compute) => self.answers.push(Asked::Compute(compute.tag)),
                Action::Complete { id, .. } => {
                    ended += 1;
                    free.push(id.0);
                }
                Action::Replied { .. } | Action::Event(_) => {}
            }
        }
        self.out.clear();
        ended
    }
}

/// The flow is judged by its fastest turn: of the machine's short quiet moments some are whole turns.
const FLOW_TURNS: u32 = 16;
/// Each turn begins with a large stripe cache's tables out of the CPU's caches: these are longer.
const GROWTH_TURNS: u32 = 4;

/// Requests that take about a sample's time.
fn requests(scale: &Scale) -> u64 {
    (scale.sample.as_nanos() / 500).max(1000) as u64
}

pub(super) fn flow(scale: &Scale) -> Result<Vec<Row>> {
    let scale = &scale.in_turns(FLOW_TURNS);
    let mut rows = Vec::new();
    for (level, members, op, name, target) in [
        (Level::Raid5, 5, Op::Write, "one RMW, RAID-5 of 5", Some(Target::Below(RMW_NS))),
        (Level::Raid6, 6, Op::Write, "one RMW, RAID-6 of 6", None),
        (Level::Raid5, 5, Op::Read, "one random read, RAID-5 of 5", None),
    ] {
        let mut driven = Driven::new(level, members, STRIPE_CACHE_DEFAULT)?;
        let [samples] =
            interleaved(scale.rounds, [&mut |round| driven.nanoseconds(op, requests(scale), round)]);
        let fastest = samples.iter().copied().min_by(f64::total_cmp);
        let row = Row::new(format!("engine's control flow: {name}, QD 64"), Unit::Nanoseconds, samples)
            .fastest(fastest);
        rows.push(match target {
            Some(target) => row.asked(target),
            None => row,
        });
    }
    Ok(rows)
}

/// The same requests in a small and in a large array, cache or number.
pub(super) fn growth(scale: &Scale) -> Result<Vec<Row>> {
    let scale = &scale.in_turns(GROWTH_TURNS);
    let mut rows = Vec::new();
    for (op, name) in [(Op::Read, "random read"), (Op::Write, "RMW")] {
        let mut small = Driven::new(Level::Raid5, 3, STRIPE_CACHE_DEFAULT)?;
        let mut large = Driven::new(Level::Raid5, 384, STRIPE_CACHE_DEFAULT)?;
        // Of three members a page is written by RCW; five is the least that does an RMW.
        let mut least = Driven::new(Level::Raid5, if op == Op::Write { 5 } else { 3 }, STRIPE_CACHE_DEFAULT)?;
        let mut cached = Driven::new(Level::Raid5, 5, STRIPE_CACHE_MAX)?;
        let mut five = Driven::new(Level::Raid5, 5, STRIPE_CACHE_DEFAULT)?;
        let count = requests(scale);
        let [three, few, many, less, more] = interleaved(
            scale.rounds,
            [
                &mut |round| small.nanoseconds(op, count, round),
                &mut |round| least.nanoseconds(op, count, round),
                &mut |round| large.nanoseconds(op, count, round),
                &mut |round| five.nanoseconds(op, count, round),
                &mut |round| cached.nanoseconds(op, count, round),
            ],
        );
        rows.push(
            Row::new(format!("a {name}: 384 members"), Unit::Nanoseconds, many)
                .beside(if op == Op::Write { "5 members" } else { "3 members" }, few)
                .by_rounds()
                .asked(Target::RatioAtMost(GROWTH)),
        );
        if op == Op::Write {
            rows.push(Row::new("a write: 3 members, by RCW", Unit::Nanoseconds, three));
        }
        rows.push(
            Row::new(format!("a {name}: stripe cache {STRIPE_CACHE_MAX}"), Unit::Nanoseconds, more)
                .beside(format!("stripe cache {STRIPE_CACHE_DEFAULT}"), less)
                .by_rounds()
                .asked(Target::RatioAtMost(GROWTH)),
        );
        rows.extend(by_number(op, name, scale)?);
    }
    Ok(rows)
}

/// A volume that has had many requests beside a new one.
fn by_number(op: Op, name: &str, scale: &Scale) -> Result<Vec<Row>> {
    let count = requests(scale);
    let total = scale.requests.unwrap_or_else(|| count * 8 * scale.rounds);
    let mut used = Driven::new(Level::Raid5, 5, STRIPE_CACHE_DEFAULT)?;
    let memory_before = resident_bytes();
    used.run(Requests::random(op), total, 1);
    let grown = resident_bytes().zip(memory_before).map(|(after, before)| after.saturating_sub(before));
    let mut new = Driven::new(Level::Raid5, 5, STRIPE_CACHE_DEFAULT)?;
    let [after, before] = interleaved(
        scale.rounds,
        [&mut |round| used.nanoseconds(op, count, round), &mut |round| new.nanoseconds(op, count, round)],
    );
    let row = Row::new(format!("a {name}: after {total} requests"), Unit::Nanoseconds, after)
        .beside("a new array", before)
        .by_rounds()
        .asked(Target::RatioAtMost(GROWTH));
    Ok(vec![match grown {
        Some(bytes) => row.noted(format!("memory grew by {} KiB in between", bytes / 1024)),
        None => row,
    }])
}

/// Memory of this process, where the kernel tells it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix("kB")?.trim();
    Some(kib.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requests_end_and_leave_nothing_behind() {
        for op in [Op::Read, Op::Write] {
            let mut driven = Driven::new(Level::Raid6, 6, STRIPE_CACHE_DEFAULT).unwrap();
            assert!(driven.nanoseconds(op, 1000, 1) > 0.0);
            // What was computed and written ended before its request was answered.
            while !driven.answers.is_empty() {
                driven.answer(&mut Vec::new());
            }
            driven.volume.check_invariants();
        }
    }
}
