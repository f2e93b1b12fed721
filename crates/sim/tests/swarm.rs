//! Random arrays, workloads and faults, by seed.

use stripewise_sim::checker::{Scenario, Tally, lost_row_scenarios, run, shrink};

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn a_few_thousand_seeds_keep_every_promise() {
    let (first, count) = (number("SWARM_FIRST", 0), number("SWARM_SEEDS", 3_000));
    let mut total = Tally::default();
    for seed in first..first + count {
        let scenario = Scenario::of(seed);
        let outcome = run(&scenario, false);
        total += outcome.tally;
        if let Some(failure) = outcome.failure {
            let small = shrink(&scenario, 2_000);
            let again = run(&small, true);
            println!("{:#?}", small.array);
            again.log.iter().for_each(|line| println!("{line}"));
            panic!("seed {seed}: {failure}; shrunk: {}", again.failure.expect("it failed before"));
        }
    }
    println!("{total:#?}");
    let Tally {
        resyncs,
        recovered,
        interrupted,
        checks,
        corrected,
        re_added,
        flips,
        array_failures,
        listed,
        ..
    } = total;
    let covered =
        [resyncs, recovered, interrupted, checks, corrected, re_added, flips, array_failures, listed];
    assert!(count < 1_000 || covered.iter().all(|n| *n > 20), "something hardly came to pass: {total:?}");
}

/// Runs seeds that failed once, named by what was wrong.
fn are_right(seeds: &[(u64, &str)], scenario: fn(u64) -> Scenario) {
    for (seed, what) in seeds {
        assert_eq!(run(&scenario(*seed), false).failure, None, "seed {seed}: {what}");
    }
}

/// They failed before arrays of the swarm had logs.
#[test]
fn what_was_wrong_once_is_right() {
    let seeds = [
        (14_933, "others call a replaced member faulty before the new one knows its slot"),
        (18_370, "a member that ails is rebuilt from parity that was doubtful before a start by force"),
        (19_866, "clean, though a member failed in the flush before"),
        (22_178, "a spare is read in place of the member whose sectors were written back"),
        (22_803, "a member is two events behind when power fails twice"),
        (38_003, "a replaced member dies, and power fails before the replacement is recorded"),
        (38_513, "a spare says that the array is clean, in as many events as the members have"),
        (43_045, "a member that failed comes back with a bitmap that lacks what was written since"),
        (
            68_546,
            "a page of a failed member is written by what the cache still had of it, upon doubtful parity",
        ),
        (68_801, "a write fails with a member though it rewrites what another could not read"),
        (165_415, "a replacement has less than its member of what was under way before a start by force"),
        (
            168_061,
            "0.90 names a recovered spare in its slot, and power fails when it alone has that superblock",
        ),
        (189_400, "a row that a member did not give is not read from the one that took its slot"),
        (407_027, "a missing member comes back in sync, an event behind, after a write without it"),
        (231_165, "a row that only a member's replacement has is not read from it while that is filled"),
        (
            426_843,
            "an array is clean to the member that a start by force was recorded on, in as many events as before",
        ),
        (479_919, "a recovery writes what the cache has of a member that failed in a resync"),
        (
            684_942,
            "P and Q say different things after a start by force without one member, and nothing resyncs them",
        ),
        (1_226_910, "a recovery by the bitmap leaves nothing to the resync that is due after it"),
        (1_355_767, "the member that took the slot of one that refused a read is not asked for it"),
        (
            1_419_478,
            "a page of a failed member written whole is added to parity that a resync was to make right, with another member lost",
        ),
        (
            5_013_066,
            "a recovery that was given up does not begin again once all can be read and it is asked to",
        ),
        (1_755_011, "what an array that failed did not write counts as recovered"),
        (1_856_225, "a spare is said to be recovered and was not flushed, as another has its slot by now"),
        (1_897_421, "P and Q that may differ are both added to beside a lost page, and differ as before"),
        (392_704, "a replacement has more than its member of what was under way before a start by force"),
    ];
    are_right(&seeds, Scenario::plain);
}

#[test]
fn what_was_wrong_once_with_logs_is_right() {
    let seeds = [
        (19_712, "an array that failed waits for ever for a flush before its next log of partial parity"),
        (24_284, "a log of a write that ended undoes a repair"),
        (52_468, "a replacement takes the slot and its log does not have what is being written"),
        (20_082_375, "a resync that is due is forgotten where a member is being filled"),
    ];
    are_right(&seeds, Scenario::of);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..50 {
        let scenario = Scenario::of(seed);
        let (first, second) = (run(&scenario, false), run(&Scenario::of(seed), true));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.tally, second.tally);
    }
}

#[test]
fn a_recovery_does_not_pass_over_rows_that_cannot_be_had() {
    for scenario in lost_row_scenarios() {
        let outcome = run(&scenario, true);
        assert_eq!(outcome.failure, None, "{}: {:#?}", scenario.array.level, outcome.log);
        let gave_up = outcome.log.iter().any(|line| line.contains("SyncFailed"));
        assert!(gave_up, "{}: {:#?}", scenario.array.level, outcome.log);
    }
}
