//! The engine with bytes: random requests, answers in random order, failures, and a plain array as judge.

use stripewise_engine::geometry::{Geometry, GeometrySpec, Holds, Place, Shape};
use stripewise_engine::io::{
    Action, ActionQueue, AdminCommand, Compute, Flags, Input, IoError, IoResult, MemberIo, Op, Request,
    RequestId, Role,
};
use stripewise_engine::level::{Layout, Level, ParityLayout};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Instant, MemberIndex, SectorRange, Slot};
use stripewise_engine::volume::{Volume, VolumeConfig};
use stripewise_parity::Kernels;
use stripewise_sim::Data;
use stripewise_sim::bytes::BytesStore;

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

enum Pending {
    Io(MemberIo, ActionQueue),
    Compute(Compute, ActionQueue),
}

/// An array under test and the plain copy of what it should hold.
struct Bench {
    volume: Volume,
    bytes: BytesStore,
    model: Vec<u8>,
    pending: Vec<Pending>,
    in_flight: Vec<Option<Request>>,
    random: Random,
    failed: Vec<Slot>,
    discard: bool,
    /// This member answers some reads with a media error.
    flaky: Option<Slot>,
    completed: u64,
}

impl Bench {
    fn new(config: &VolumeConfig, seed: u64) -> Self {
        let volume = Volume::new(config).unwrap();
        let bytes = BytesStore::new(&config.geometry.member_sectors, volume.stripe_cache_entries());
        let model = vec![0; (volume.geometry().array_sectors() * 512) as usize];
        Self {
            volume,
            bytes,
            model,
            pending: Vec::new(),
            in_flight: vec![None; 12],
            random: Random(seed),
            failed: config.failed.clone(),
            discard: config.discard,
            flaky: None,
            completed: 0,
        }
    }

    fn input(&mut self, input: Input) {
        self.input_at(Instant::ZERO, input);
    }

    fn input_at(&mut self, now: Instant, input: Input) {
        let mut out = ActionQueue::default();
        self.volume.handle(now, input, &mut out);
        self.volume.check_invariants();
        for action in out.actions.clone() {
            match action {
                Action::Io(io) => self.pending.push(Pending::Io(io, out.clone())),
                Action::Compute(compute) => self.pending.push(Pending::Compute(compute, out.clone())),
                Action::Complete { id, result } => self.complete(id, result),
                Action::Replied { .. } | Action::Event(_) => {}
            }
        }
    }

    fn complete(&mut self, id: RequestId, result: IoResult) {
        let request = self.in_flight[id.0 as usize].take().expect("a request ends once");
        assert_eq!(result, Ok(()), "{request:?}");
        self.completed += 1;
        if request.op == Op::Read {
            let expected = &self.model[bytes(request.range)];
            let got = self.bytes.request(id);
            let differs = expected.iter().zip(got.iter()).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{request:?} read something else from this byte on");
        }
    }

    /// Answers one action that is pending, any of them.
    fn answer_one(&mut self) {
        let index = self.random.below(self.pending.len() as u64) as usize;
        match self.pending.swap_remove(index) {
            Pending::Io(io, out) => {
                let result = if self.failed.contains(&Slot(io.member.0)) && self.random.chance(70) {
                    Err(IoError::Gone)
                } else if io.op == Op::Read && self.flaky == Some(Slot(io.member.0)) && self.random.chance(30)
                {
                    Err(IoError::Media)
                } else {
                    self.bytes.io(&io, &out);
                    Ok(())
                };
                self.input(Input::IoDone { tag: io.tag, result });
            }
            Pending::Compute(compute, out) => {
                self.bytes.compute(&compute, &out);
                self.input(Input::Computed { tag: compute.tag });
            }
        }
    }

    fn random_range(&mut self, aligned: bool) -> SectorRange {
        let sectors = self.volume.geometry().array_sectors();
        let unit = if aligned { 8 } else { 1 };
        let limit = if self.random.chance(20) { sectors } else { 64.min(sectors) };
        let start = self.random.below(sectors / unit) * unit;
        let count = ((1 + self.random.below(limit)).next_multiple_of(unit)).min(sectors - start);
        SectorRange::new(start, count)
    }

    fn issue(&mut self, aligned: bool) {
        let Some(index) = self.in_flight.iter().position(Option::is_none) else { return };
        let op = match self.random.below(20) {
            0..8 => Op::Read,
            8..17 => Op::Write,
            17 => Op::WriteZeroes,
            18 => Op::Discard,
            _ => Op::Flush,
        };
        let range = self.random_range(aligned);
        // What a read returns while an overlapping write is under way is not defined, nor is discarded data.
        let overlaps =
            |r: &Request| r.op != Op::Flush && r.range.overlaps(range) && (r.op != op || op == Op::Discard);
        if self.in_flight.iter().flatten().any(overlaps) {
            return;
        }
        let flags = Flags {
            fua: self.random.chance(10),
            more: self.random.chance(40),
            sync: self.random.chance(50),
            ..Flags::default()
        };
        let request = Request { id: RequestId(index as u32), op, range, flags };
        self.start(request);
    }

    fn start(&mut self, request: Request) {
        let Request { id, op, range, .. } = request;
        let buffer = self.bytes.request(id);
        buffer.clear();
        buffer.resize((range.count * 512) as usize, 0xEE);
        match op {
            Op::Write => {
                let mut random = Random(self.random.next());
                for word in buffer.chunks_mut(8) {
                    word.copy_from_slice(&random.next().to_le_bytes());
                }
                self.model[bytes(range)].copy_from_slice(buffer);
            }
            // On these members a discard reads as zeroes, where it is taken at all.
            Op::WriteZeroes => self.model[bytes(range)].fill(0),
            Op::Discard if self.discard => {
                let whole = match self.volume.geometry().shape() {
                    Shape::Parity(shape) => shape.stripe_sectors(),
                    _ => 1,
                };
                let (start, end) = (range.start.next_multiple_of(whole), range.end() / whole * whole);
                self.model[bytes(SectorRange::new(start, end.saturating_sub(start)))].fill(0);
            }
            Op::Discard | Op::Read | Op::Flush => {}
        }
        self.in_flight[id.0 as usize] = Some(request);
        self.input(Input::Request(request));
    }

    /// Answers an action, or lets time pass if there is none.
    fn step(&mut self) {
        if self.pending.is_empty() {
            let deadline = self.volume.next_deadline().expect("something is awaited");
            self.input_at(deadline, Input::Timer);
        } else {
            self.answer_one();
        }
    }

    fn drain(&mut self) {
        while self.in_flight.iter().any(Option::is_some) {
            self.step();
        }
        while !self.pending.is_empty() {
            self.answer_one();
        }
        assert!(self.volume.is_idle(), "nothing is left over: {:#?}", self.volume);
        self.volume.check_invariants();
    }

    /// Fails a member, if the array survives it.
    fn fail_one(&mut self, tolerated: usize) {
        let members = u64::from(self.volume.geometry().raid_disks());
        let slot = Slot(self.random.below(members) as u16);
        if self.failed.len() < tolerated && !self.failed.contains(&slot) && self.flaky != Some(slot) {
            self.failed.push(slot);
            self.input(Input::Admin { id: 0, command: AdminCommand::Fail(slot) });
        }
    }

    /// Every working member holds what the geometry says, parity included.
    fn check_members(&mut self) {
        let geometry = self.volume.geometry().clone();
        for sector in 0..geometry.array_sectors() {
            for copy in 0..geometry.copies() {
                let place = geometry.place(sector, copy);
                if !self.failed.contains(&place.slot) {
                    let on_member = &self.bytes.member(MemberIndex(place.slot.0))
                        [bytes(SectorRange::new(place.sector, 1))];
                    let expected = &self.model[bytes(SectorRange::new(sector, 1))];
                    assert!(on_member == expected, "sector {sector}, copy {copy} at {place:?}");
                }
            }
        }
        if let Shape::Parity(shape) = geometry.shape() {
            let chunk = geometry.chunk_sectors();
            for stripe in 0..geometry.used_sectors(Slot(0)) / chunk {
                self.check_parity(&geometry, shape, stripe, chunk);
            }
        }
    }

    fn check_parity(
        &mut self,
        geometry: &Geometry,
        shape: &stripewise_engine::geometry::ParityShape,
        stripe: u64,
        chunk: u64,
    ) {
        let map = shape.stripe(stripe);
        let length = (chunk * 512) as usize;
        let mut data: Vec<Option<Vec<u8>>> = vec![None; usize::from(geometry.raid_disks())];
        for slot in (0..geometry.raid_disks()).map(Slot) {
            if let Role::Data(index) = map.operand_role(slot) {
                let Holds::Data(sector) = geometry.holds(Place { slot, sector: stripe * chunk }) else {
                    panic!()
                };
                data[usize::from(index)] = Some(self.model[bytes(SectorRange::new(sector, chunk))].to_vec());
            }
        }
        let blocks: Vec<Option<&[u8]>> = data.iter().map(Option::as_deref).collect();
        let (mut p, mut q) = (vec![0; length], vec![0; length]);
        Kernels::scalar().pq(&mut p, &mut q, &blocks);
        for (slot, expected) in [(Some(map.p), p), (map.q, q)] {
            if let Some(slot) = slot.filter(|s| !self.failed.contains(s)) {
                let on_member =
                    &self.bytes.member(MemberIndex(slot.0))[bytes(SectorRange::new(stripe * chunk, chunk))];
                assert!(on_member == expected, "parity of stripe {stripe} in slot {slot}");
            }
        }
    }
}

const fn bytes(range: SectorRange) -> std::ops::Range<usize> {
    range.start as usize * 512..range.end() as usize * 512
}

struct Case {
    level: Level,
    layout: Layout,
    members: u16,
    chunk_sectors: u64,
    tolerated: usize,
}

fn run(case: &Case, policy: &Policy, seed: u64) {
    println!(
        "{:?} {} members, chunk of {} sectors, {}, seed {seed}",
        case.level, case.members, case.chunk_sectors, policy.name
    );
    let mut random = Random(seed);
    let member_sectors = case.chunk_sectors.max(8) * 12;
    let tolerated = case.tolerated;
    let mut failed = Vec::new();
    if tolerated > 0 && random.chance(30) {
        failed.push(Slot(random.below(u64::from(case.members)) as u16));
    }
    let geometry = GeometrySpec {
        level: case.level,
        layout: case.layout,
        chunk_sectors: case.chunk_sectors,
        member_sectors: (0..case.members)
            .map(|i| member_sectors + if case.level == Level::Raid0 { u64::from(i / 2) * 24 } else { 0 })
            .collect(),
    };
    let config = VolumeConfig {
        stripe_cache_size: [17, 24, 256][random.below(3) as usize],
        failed,
        discard: random.chance(50),
        ..VolumeConfig::new(geometry, policy.clone())
    };
    let mut bench = Bench::new(&config, seed);
    if tolerated > 0 && random.chance(50) {
        let slot = Slot(random.below(u64::from(case.members)) as u16);
        bench.flaky = (bench.failed.len() < tolerated && !bench.failed.contains(&slot)).then_some(slot);
    }
    let tolerated = tolerated - usize::from(bench.flaky.is_some());
    let aligned = random.chance(50);
    let depth = 1 + random.below(30);
    for _ in 0..50_000 {
        if bench.completed > 120 {
            break;
        }
        if bench.random.chance(1) {
            bench.fail_one(tolerated);
        }
        if (bench.pending.len() as u64) < depth || bench.random.chance(10) {
            bench.issue(aligned);
        }
        if bench.in_flight.iter().any(Option::is_some) && bench.random.chance(80) {
            bench.step();
        }
    }
    bench.drain();
    bench.check_members();
    assert!(bench.completed > 100, "the run did some work: {}", bench.completed);
}

fn run_all(cases: &[Case], seeds: u64) {
    for case in cases {
        for policy in &Policy::ALL {
            for seed in 0..seeds {
                run(case, policy, seed * 7919 + u64::from(case.members));
            }
        }
    }
}

fn parity_cases(level: Level, tolerated: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for layout in ParityLayout::ALL.map(Layout::Parity) {
        if Layout::from_number(level, layout.number()) != Some(layout) {
            continue;
        }
        for (members, chunk_sectors) in [(level.members_min() + 1, 8), (5, 32), (6, 64)] {
            cases.push(Case { level, layout, members, chunk_sectors, tolerated });
        }
    }
    cases
}

#[test]
fn raid5_keeps_every_byte_and_its_parity() {
    run_all(&parity_cases(Level::Raid5, 1), 6);
}

#[test]
fn raid6_keeps_every_byte_and_both_parities() {
    run_all(&parity_cases(Level::Raid6, 2), 4);
}

#[test]
fn raid4_keeps_every_byte_and_its_parity() {
    let layout = Layout::default_of(Level::Raid4);
    run_all(&[Case { level: Level::Raid4, layout, members: 4, chunk_sectors: 16, tolerated: 1 }], 10);
}

#[test]
fn mirrors_keep_every_byte_on_every_copy() {
    let mut cases = vec![
        Case { level: Level::Raid1, layout: Layout::None, members: 2, chunk_sectors: 0, tolerated: 1 },
        Case { level: Level::Raid1, layout: Layout::None, members: 3, chunk_sectors: 0, tolerated: 2 },
    ];
    for name in ["n2", "f2", "o2", "n3"] {
        let layout = Layout::parse(Level::Raid10, name).unwrap();
        for members in [4, 5] {
            cases.push(Case { level: Level::Raid10, layout, members, chunk_sectors: 16, tolerated: 1 });
        }
    }
    run_all(&cases, 6);
}

#[test]
fn striped_arrays_keep_every_byte() {
    let mut cases = Vec::new();
    for name in ["original", "alternate"] {
        let layout = Layout::parse(Level::Raid0, name).unwrap();
        cases.push(Case { level: Level::Raid0, layout, members: 5, chunk_sectors: 24, tolerated: 0 });
    }
    cases.push(Case {
        level: Level::Linear,
        layout: Layout::None,
        members: 3,
        chunk_sectors: 0,
        tolerated: 0,
    });
    run_all(&cases, 6);
}

#[test]
fn one_failure_too_many_is_said_and_stops_writes() {
    let geometry = GeometrySpec {
        level: Level::Raid5,
        layout: Layout::default_of(Level::Raid5),
        chunk_sectors: 16,
        member_sectors: vec![160; 4],
    };
    let config = VolumeConfig { failed: vec![Slot(0)], ..VolumeConfig::new(geometry, Policy::stripewise()) };
    let mut volume = Volume::new(&config).unwrap();
    let mut out = ActionQueue::default();
    volume.handle(Instant::ZERO, Input::Admin { id: 1, command: AdminCommand::Fail(Slot(2)) }, &mut out);
    assert!(out.actions.contains(&Action::Event(stripewise_engine::io::ArrayEvent::ArrayFailed)));
    let request = |op, start| Request {
        id: RequestId(0),
        op,
        range: SectorRange::new(start, 8),
        flags: Flags::default(),
    };
    let mut ask = |request| {
        out.clear();
        volume.handle(Instant::ZERO, Input::Request(request), &mut out);
        out.actions.clone()
    };
    let complete = |result| vec![Action::Complete { id: RequestId(0), result }];
    assert_eq!(ask(request(Op::Write, 0)), complete(Err(IoError::ReadOnly)));
    // Stripe 0 of left-symmetric: data 0, 1, 2 in slots 0, 1, 2, so that only chunk 1 is left.
    assert_eq!(ask(request(Op::Read, 0)), complete(Err(IoError::Lost)));
    assert!(matches!(ask(request(Op::Read, 16))[..], [Action::Io(_)]), "what is left stays readable");
    assert_eq!(ask(request(Op::Read, 479)), complete(Err(IoError::Range)));
}
