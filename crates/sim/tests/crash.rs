//! Power fails after every member write of small workloads.

use stripewise_sim::checker::{crash_cases, enumerate_crashes, run};

#[test]
fn nothing_promised_is_lost_wherever_power_fails() {
    let (mut cuts, mut places, mut exhausted) = (0, 0, 0);
    for case in crash_cases() {
        let report = enumerate_crashes(&case, 1, 4, 6);
        if let Some((scenario, outcome)) = report.failure {
            run(&scenario, true).log.iter().for_each(|line| println!("{line}"));
            panic!("{}: {}\n{:?}", case.name, outcome.failure.expect("it failed"), scenario.steps[0]);
        }
        cuts += report.cuts;
        places += report.places;
        exhausted += report.exhausted;
    }
    println!("{cuts} power cuts at {places} places, {exhausted} of them with every selection");
    assert!(cuts > 10_000, "{cuts} power cuts were tried");
    assert!(exhausted > 300, "{exhausted} places were tried with every selection");
}
