//! Power fails after every member write of small workloads.

use stripewise_sim::checker::{CrashCase, CrashReport, crash_cases, enumerate_crashes, run};

/// Works through cases; panics at the first broken promise.
fn enumerate(cases: &[CrashCase]) -> CrashReport {
    let mut total = CrashReport::default();
    for case in cases {
        let report = enumerate_crashes(case, 1, 3, 3);
        if let Some((scenario, outcome)) = report.failure {
            run(&scenario, true).log.iter().for_each(|line| println!("{line}"));
            panic!("{}: {}\n{:?}", case.name, outcome.failure.expect("it failed"), scenario.steps[0]);
        }
        total.cuts += report.cuts;
        total.places += report.places;
        total.exhausted += report.exhausted;
    }
    total
}

#[test]
fn nothing_promised_is_lost_wherever_power_fails() {
    let cases = crash_cases();
    let (first, second) = cases.split_at(cases.len() / 2);
    let reports = std::thread::scope(|scope| {
        let threads = [first, second].map(|cases| scope.spawn(move || enumerate(cases)));
        threads.map(|thread| thread.join().expect("no promise is broken"))
    });
    let sum = |of: fn(&CrashReport) -> u64| reports.iter().map(of).sum::<u64>();
    let (cuts, places, exhausted) = (sum(|r| r.cuts), sum(|r| r.places), sum(|r| r.exhausted));
    println!("{cuts} power cuts at {places} places, {exhausted} of them with every selection");
    assert!(cuts > 25_000, "{cuts} power cuts were tried");
    assert!(exhausted > 500, "{exhausted} places were tried with every selection");
}
