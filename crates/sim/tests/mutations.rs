//! Engines that are broken on purpose: the checker must notice each.

use stripewise_engine::mutation::{Mutation, choose};
use stripewise_sim::checker::{Scenario, crash_cases, enumerate_crashes, lost_row_scenarios, run};

/// Seeds of the swarm that a broken engine may survive.
const SEEDS_MAX: u64 = 3_000;

/// What takes a scenario of its own.
const FOUND_ELSEWHERE: [Mutation; 2] =
    [Mutation::AcknowledgeBeforeReplacementRecorded, Mutation::PassLostRows];

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
    let list: Vec<Mutation> = Mutation::ALL.into_iter().filter(|m| !FOUND_ELSEWHERE.contains(m)).collect();
    let half = list.len() / 2;
    let caught = |list: &[Mutation]| list.iter().map(|m| (*m, caught_by_swarm(*m))).collect::<Vec<_>>();
    // A broken engine is the thread's own.
    let caught: Vec<_> = std::thread::scope(|scope| {
        let halves = [&list[..half], &list[half..]];
        let threads = halves.map(|list| scope.spawn(move || caught(list)));
        threads.into_iter().flat_map(|t| t.join().expect("panics are caught")).collect()
    });
    let _ = std::panic::take_hook();
    for (mutation, caught) in &caught {
        match caught {
            Some((seed, failure)) => println!("{mutation:?}: seed {seed}: {failure}"),
            None => println!("{mutation:?}: survives"),
        }
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

#[test]
fn an_early_answer_at_the_end_of_a_replacement_is_caught_wherever_power_fails() {
    choose(Some(Mutation::AcknowledgeBeforeReplacementRecorded));
    let cases = crash_cases().into_iter().filter(|case| case.name.contains("end of a replacement"));
    let caught: Vec<String> = cases
        .filter_map(|case| {
            let outcome = enumerate_crashes(&case, 1, 3, 3).failure?.1;
            Some(format!("{}: {}", case.name, outcome.failure.expect("it failed")))
        })
        .collect();
    choose(None);
    for line in &caught {
        println!("{line}");
    }
    assert!(!caught.is_empty());
}

#[test]
fn rows_that_are_passed_over_are_caught_at_every_level() {
    for scenario in lost_row_scenarios() {
        choose(Some(Mutation::PassLostRows));
        let failure = run(&scenario, false).failure;
        choose(None);
        assert!(failure.is_some(), "{}", scenario.array.level);
        println!("{}: {}", scenario.array.level, failure.expect("it failed"));
    }
}
