//! Engines that are broken on purpose: the checker must notice each.

use stripewise_engine::mutation::{Mutation, choose};
use stripewise_sim::checker::{Scenario, crash_cases, enumerate_crashes, run};

/// Seeds of the swarm that a broken engine may survive.
const SEEDS_MAX: u64 = 3_000;

/// The first seed that fails.
fn caught_by_swarm(mutation: Mutation) -> Option<(u64, String)> {
    choose(Some(mutation));
    let failing = |seed| Some((seed, run(&Scenario::of(seed), false).failure?.to_string()));
    let caught = (0..SEEDS_MAX).find_map(failing);
    choose(None);
    caught
}

#[test]
fn every_broken_engine_is_caught_by_the_swarm() {
    std::panic::set_hook(Box::new(|_| {}));
    let caught: Vec<_> = Mutation::ALL.map(|mutation| (mutation, caught_by_swarm(mutation))).into();
    let _ = std::panic::take_hook();
    for (mutation, caught) in &caught {
        println!("{mutation:?}: {caught:?}");
    }
    let survivors: Vec<_> = caught.iter().filter(|(_, c)| c.is_none()).map(|(m, _)| m).collect();
    assert!(survivors.is_empty(), "not caught in {SEEDS_MAX} seeds: {survivors:?}");
}

#[test]
fn lost_flushes_are_caught_wherever_power_fails() {
    for mutation in
        [Mutation::AcknowledgeBeforeFlush, Mutation::ForgetForcedUnitAccess, Mutation::SkipBitmapSet]
    {
        choose(Some(mutation));
        let caught = crash_cases().iter().any(|case| enumerate_crashes(case, 1, 0, 2).failure.is_some());
        choose(None);
        assert!(caught, "{mutation:?}");
    }
}
