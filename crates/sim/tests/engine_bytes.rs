//! The engine with bytes: random requests, answers in random order, failures, recoveries and checks at any time.

mod bytes_bench;

use bytes_bench::{Bench, SPARES_MAX};
use stripewise_engine::array::sync::{SpeedLimits, SyncConfig};
use stripewise_engine::geometry::GeometrySpec;
use stripewise_engine::io::{
    Action, ActionQueue, AdminCommand, Flags, Input, IoError, Op, Request, RequestId, SyncAction,
};
use stripewise_engine::level::{Layout, Level, ParityLayout};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Instant, SectorRange, Slot};
use stripewise_engine::volume::{Volume, VolumeConfig};
use stripewise_sim::random::Random;

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
    let mut random = Random::new(seed);
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
        spares: random.below(SPARES_MAX as u64) as u16,
        sync: SyncConfig {
            speed: if random.chance(30) {
                SpeedLimits { min_kib: 1, max_kib: 2 }
            } else {
                SpeedLimits::DEFAULT
            },
            start: random.chance(90),
        },
        ..VolumeConfig::new(geometry, policy.clone())
    };
    let mut bench = Bench::new(&config, seed);
    if random.chance(50) {
        bench.flaky = Some(random.below(u64::from(case.members)) as u16);
    }
    let aligned = random.chance(50);
    let meddling = random.chance(60);
    let depth = 1 + random.below(30);
    for _ in 0..50_000 {
        if bench.completed > 120 {
            break;
        }
        if tolerated > 0 && bench.random.chance(1) {
            bench.fail_one();
        }
        if tolerated > 0 && bench.random.chance(3) {
            bench.spoil();
        }
        if meddling && tolerated > 0 && bench.random.chance(3) {
            bench.meddle();
        }
        if (bench.pending_count() as u64) < depth || bench.random.chance(10) {
            bench.issue(aligned);
        }
        if bench.has_requests() && bench.random.chance(80) {
            bench.step();
        }
    }
    bench.drain();
    bench.check_members();
    bench.admin(AdminCommand::Sync(SyncAction::Idle));
    bench.rest();
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
    run_all(&parity_cases(Level::Raid5, 1), 3);
}

#[test]
fn raid6_keeps_every_byte_and_both_parities() {
    run_all(&parity_cases(Level::Raid6, 2), 2);
}

#[test]
fn raid4_keeps_every_byte_and_its_parity() {
    let layout = Layout::default_of(Level::Raid4);
    run_all(&[Case { level: Level::Raid4, layout, members: 4, chunk_sectors: 16, tolerated: 1 }], 10);
}

/// Most requests write or read one page of a large enough array, and now and then something goes wrong.
#[test]
fn pages_written_alone_keep_every_byte_whatever_goes_wrong() {
    for (level, members) in [(Level::Raid5, 5), (Level::Raid6, 7), (Level::Raid4, 6)] {
        for seed in 0..60 {
            let layout = Layout::default_of(level);
            let member_sectors = vec![64 * 16; members];
            let geometry = GeometrySpec { level, layout, chunk_sectors: 64, member_sectors };
            let config = VolumeConfig {
                stripe_cache_size: [24, 256][seed as usize % 2],
                spares: SPARES_MAX as u16,
                ..VolumeConfig::new(geometry, Policy::stripewise())
            };
            let mut bench = Bench::new(&config, seed);
            bench.page_percent = 90;
            bench.flaky = Some((seed % members as u64) as u16);
            let depth = 4 + bench.random.below(60);
            while bench.completed < 400 {
                match bench.random.below(1000) {
                    0 => bench.fail_one(),
                    1..6 => bench.spoil(),
                    6..9 => bench.meddle(),
                    _ => {}
                }
                bench.issue(true);
                while bench.pending_count() as u64 >= depth || bench.has_requests() && bench.random.chance(60)
                {
                    bench.step();
                }
            }
            bench.drain();
            bench.check_members();
        }
    }
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
