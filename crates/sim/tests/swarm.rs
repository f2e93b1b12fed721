//! Random arrays, workloads and faults, by seed.

use stripewise_sim::checker::{Scenario, run, shrink};

#[test]
fn a_few_thousand_seeds_keep_every_promise() {
    let count = std::env::var("SWARM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let first = std::env::var("SWARM_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    for seed in first..first + count {
        let scenario = Scenario::of(seed);
        let outcome = run(&scenario, false);
        if outcome.failure.is_some() {
            let small = shrink(&scenario, 2_000);
            let again = run(&small, true);
            println!("{:#?}", small.array);
            again.log.iter().for_each(|line| println!("{line}"));
            panic!("seed {seed}: {}; shrunk: {}", outcome.failure.unwrap(), again.failure.unwrap());
        }
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..50 {
        let scenario = Scenario::of(seed);
        let (first, second) = (run(&scenario, false), run(&Scenario::of(seed), true));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.completed, second.completed);
    }
}
