use super::*;
use crate::recommend::{Weights, recommend};
use crate::results::DirectionResult;

/// A cell at that limit, with so many milliseconds of p99.
fn cell(rw: &str, limit: &str, replicate: u32, p99_ms: u64) -> CellResult {
    let factors = [("rw", rw), ("bs", "4k"), ("speed_limit_min", limit)];
    let direction = DirectionResult {
        ios: 100,
        bytes: 1_000_000 / p99_ms,
        latency_p99_ns: p99_ms * 1_000_000,
        ..DirectionResult::default()
    };
    let rate = limit.parse::<f64>().unwrap();
    CellResult {
        key: String::new(),
        target: "array".to_owned(),
        factors: factors.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        replicate,
        seed: 0,
        seconds: 1.0,
        read: if rw == "randread" { direction.clone() } else { DirectionResult::default() },
        write: if rw == "randread" { DirectionResult::default() } else { direction },
        member_ios: None,
        figures: [("sync_kib_s".to_owned(), rate), ("sync_total_kib".to_owned(), 86_400_000.0)].into(),
        error: None,
        notes: Vec::new(),
    }
}

/// p99 of reads and of writes by limit.
fn cells(p99: &[(&str, u64, u64)]) -> Vec<CellResult> {
    let of = |(limit, read, write): &(&str, u64, u64)| {
        [0, 1].map(|r| [cell("randread", limit, r, *read), cell("randwrite", limit, r, *write)]).concat()
    };
    p99.iter().flat_map(of).collect()
}

fn judged(cells: &[CellResult], subject: &str, weights: &Weights) -> Judgement {
    // Not in order: the rule goes by size.
    let values = ["10000", "1000", "50000"].map(str::to_owned);
    let fixed = BTreeMap::new();
    recommend(cells, &Question { subject, values: &values, fixed: &fixed, weights })
}

#[test]
fn the_largest_limit_whose_p99_is_within_twice_that_of_the_smallest() {
    let cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    let advice = judged(&cells, "speed_limit_min", &Weights::default()).recommendation;
    assert_eq!(advice.best, "10000");
    assert!(
        advice.summary.contains("trade-off") && advice.summary.contains("1.50 times"),
        "{}",
        advice.summary
    );
    assert!(advice.summary.contains("takes 2.40 h instead of 24.0 h, by workload"), "{}", advice.summary);
    assert!(advice.ranking.is_empty() && advice.by_family.is_empty(), "no ranking by speed alone");
    assert_eq!(advice.commands, ["echo 10000 > /sys/block/md0/md/sync_speed_min"]);
    let trade = advice.trade_off.unwrap();
    assert!(trade.rule.contains("2 times"), "{}", trade.rule);
    let rows: Vec<(&str, &str)> = trade.rows.iter().map(|r| (r.family.as_str(), r.value.as_str())).collect();
    assert_eq!(rows.len(), 2 * 3);
    assert_eq!(rows[..2], [("random-read", "1000"), ("random-read", "10000")]);
    let last = &trade.rows[5];
    assert!((last.p99_ratio - 2.05).abs() < 1e-9 && last.p99_ratio_ci.is_some());
    assert!((last.sync_kib_s - 50_000.0).abs() < 1e-6 && (last.member_seconds - 1728.0).abs() < 1e-6);
    assert!((last.p99_ns - 41e6).abs() < 1.0);
}

#[test]
fn the_commands_of_another_system_than_the_evidence_are_told_of() {
    let cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    let notes = |subject: &str, policy: &str| {
        let values = ["1000", "10000", "50000"].map(str::to_owned);
        let fixed = BTreeMap::from([("policy".to_owned(), policy.to_owned())]);
        let weights = Weights::default();
        recommend(&cells, &Question { subject, values: &values, fixed: &fixed, weights: &weights }).notes
    };
    let own = notes("speed_limit_min", "stripewise");
    assert!(own.iter().any(|note| note.contains("the commands are of Linux's md")), "{own:?}");
    assert_eq!(notes("speed_limit_min", "linux-6.1"), [""; 0]);
}

#[test]
fn a_family_without_weight_holds_nothing_back() {
    let cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    let reads = Weights::parse(["random-write=0"]).unwrap();
    assert_eq!(judged(&cells, "speed_limit_min", &reads).recommendation.best, "50000");
}

#[test]
fn where_every_faster_recovery_costs_too_much_the_smallest_is_named() {
    let cells = cells(&[("1000", 10, 20), ("10000", 25, 30), ("50000", 30, 41)]);
    assert_eq!(judged(&cells, "speed_limit_min", &Weights::default()).recommendation.best, "1000");
}

#[test]
fn a_workload_that_lacks_a_value_is_not_judged_and_told() {
    let mut cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    for cell in
        cells.iter_mut().filter(|c| c.factors["rw"] == "randwrite" && c.factors["speed_limit_min"] == "50000")
    {
        cell.error = Some("the recovery ended".to_owned());
    }
    let judgement = judged(&cells, "speed_limit_min", &Weights::default());
    let Judgement { recommendation: advice, notes } = judgement;
    assert_eq!(advice.best, "50000");
    let note = "1 of 2 workloads lacks figures for some value and was not judged: bs=4k rw=randwrite (nothing for 50000).";
    assert_eq!(notes, [note]);
    let warned = "speed_limit_min 50000 (2 of its 4 cells have no figures) is the largest";
    assert!(advice.summary.contains(warned), "{}", advice.summary);
    assert!(!advice.summary.contains("in any family"), "{}", advice.summary);
    assert!(advice.summary.contains("could be judged, without bs=4k rw=randwrite:"), "{}", advice.summary);
    let rows = advice.trade_off.unwrap().rows;
    let values =
        |family: &str| rows.iter().filter(|r| r.family == family).map(|r| &*r.value).collect::<Vec<_>>();
    assert_eq!(values("random-read"), ["1000", "10000", "50000"]);
    assert_eq!(values("random-write"), ["1000", "10000"], "what has figures is judged");
}

/// The tables of means have every cell that has figures, and so have these.
#[test]
fn a_cell_that_failed_takes_no_replicate_from_the_other_values() {
    let mut cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    for cell in cells.iter_mut().filter(|c| c.replicate == 1) {
        cell.read.latency_p99_ns *= 4;
        if cell.factors["speed_limit_min"] == "50000" && cell.factors["rw"] == "randread" {
            cell.error = Some("the recovery ended".to_owned());
        }
    }
    let Judgement { recommendation: advice, notes } = judged(&cells, "speed_limit_min", &Weights::default());
    let rows = advice.trade_off.unwrap().rows;
    let p99: Vec<f64> = rows[..3].iter().map(|r| (r.p99_ns / 1e6).round()).collect();
    assert_eq!(p99, [20.0, 30.0, 15.0], "geometric means of 10 and 40, of 15 and 60, and 15 alone");
    assert!((rows[2].p99_ratio - 1.5).abs() < 1e-9, "beside the first in the replicate that both have");
    assert!(rows[1].p99_ratio_ci.is_some() && rows[2].p99_ratio_ci.is_none());
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(
        notes[0].contains("fewer replicates") && notes[0].contains("bs=4k rw=randread (50000)"),
        "{notes:?}"
    );
    assert!(notes[1].contains("in one replicate only"), "{notes:?}");
}

#[test]
fn a_limit_without_any_figure_is_never_named() {
    let mut cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 30)]);
    for cell in cells.iter_mut().filter(|c| c.factors["speed_limit_min"] == "50000") {
        cell.error = Some("the recovery ended".to_owned());
    }
    let advice = judged(&cells, "speed_limit_min", &Weights::default()).recommendation;
    assert_eq!(advice.best, "10000");
    assert!(advice.summary.contains("in any family at any load"), "{}", advice.summary);
}

#[test]
fn a_workload_of_which_nothing_was_recovered_or_done_counts_all_the_same() {
    let mut cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    let of = |cells: &mut [CellResult], limit: &str, change: fn(&mut CellResult)| {
        let writes =
            |c: &&mut CellResult| c.factors["rw"] == "randwrite" && c.factors["speed_limit_min"] == limit;
        cells.iter_mut().filter(writes).for_each(change);
    };
    of(&mut cells, "1000", |c| *c.figures.get_mut("sync_kib_s").unwrap() = 0.0);
    let judgement = judged(&cells, "speed_limit_min", &Weights::default());
    assert_eq!((judgement.recommendation.best.as_str(), judgement.notes.len()), ("10000", 0));
    // No write completed: whoever asked waited for the whole second.
    of(&mut cells, "10000", |c| c.write = DirectionResult::default());
    let judgement = judged(&cells, "speed_limit_min", &Weights::default());
    assert_eq!((judgement.recommendation.best.as_str(), judgement.notes.len()), ("1000", 0));
    let rows = judgement.recommendation.trade_off.unwrap().rows;
    let none = rows.iter().find(|r| r.family == "random-write" && r.value == "10000").unwrap();
    assert!((none.p99_ns - 1e9).abs() < 1.0 && (none.throughput_ratio - 0.001).abs() < 1e-9, "{none:?}");
}

/// By the job's speed the value that holds the recovery back most would win, whatever the subject is.
#[test]
fn no_value_of_another_subject_is_best_beside_a_recovery() {
    let mut cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    for cell in &mut cells {
        let entries = cell.factors.remove("speed_limit_min").unwrap();
        cell.factors.insert("stripe_cache_size".to_owned(), entries);
        cell.member_ios = Some(crate::results::MemberIos {
            requests: 10,
            request_bytes: 1000,
            reads: 1_000_000,
            read_bytes: 1_000_000_000,
            ..Default::default()
        });
    }
    let advice = judged(&cells, "stripe_cache_size", &Weights::default()).recommendation;
    assert_eq!((advice.best.as_str(), advice.commands.len()), ("", 0), "{}", advice.summary);
    assert!(advice.ranking.is_empty() && advice.by_family.is_empty() && advice.reasons.is_empty());
    assert!(
        !advice.summary.contains("is best") && advice.summary.contains("trade-off"),
        "{}",
        advice.summary
    );
    let rows = advice.trade_off.unwrap().rows;
    assert_eq!(rows.len(), 2 * 3);
    assert_eq!((rows[2].value.as_str(), rows[2].sync_kib_s.round() as u64), ("50000", 50_000));
}

#[test]
fn jobs_beside_no_recovery_are_told_of() {
    let mut cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    for cell in cells.iter_mut().filter(|c| c.factors["rw"] == "randwrite") {
        cell.figures.clear();
    }
    let judgement = judged(&cells, "speed_limit_min", &Weights::default());
    assert_eq!(judgement.recommendation.best, "50000");
    assert!(judgement.notes[0].contains("beside no recovery"), "{:?}", judgement.notes);
    assert_eq!(judgement.notes.len(), 1, "{:?}", judgement.notes);
}

/// raid1 has no chunk; where there is one chunk, that keeps no workloads apart.
#[test]
fn levels_that_lack_a_factor_of_one_value_stand_beside_each_other() {
    let mut cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    for cell in &mut cells {
        let level = cell.factors.remove("speed_limit_min").unwrap();
        if level != "1000" {
            cell.factors.insert("chunk".to_owned(), "64K".to_owned());
        }
        cell.factors.insert("level".to_owned(), level);
    }
    let judgement = judged(&cells, "level", &Weights::default());
    let rows = judgement.recommendation.trade_off.unwrap().rows;
    assert_eq!((rows.len(), judgement.notes.len()), (2 * 3, 0), "{:?}", judgement.notes);
    assert_eq!(judgement.recommendation.best, "");
}

#[test]
fn other_studies_are_ranked_as_ever() {
    let mut cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    for cell in &mut cells {
        cell.figures.clear();
    }
    let advice = judged(&cells, "speed_limit_min", &Weights::default()).recommendation;
    assert!(advice.trade_off.is_none() && advice.ranking.len() == 3);
}

#[test]
fn a_limit_that_halves_the_throughput_costs_too_much_whatever_p99_says() {
    let mut cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 39)]);
    assert_eq!(judged(&cells, "speed_limit_min", &Weights::default()).recommendation.best, "50000");
    for cell in cells.iter_mut().filter(|c| c.factors["speed_limit_min"] == "50000") {
        cell.read.bytes /= 2;
        cell.write.bytes /= 2;
    }
    assert_eq!(judged(&cells, "speed_limit_min", &Weights::default()).recommendation.best, "10000");
}

#[test]
fn what_has_no_weight_is_no_part_of_the_sentence_either() {
    let cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 82)]);
    let weights = Weights::parse(["random-write=0"]).unwrap();
    let advice = judged(&cells, "speed_limit_min", &weights).recommendation;
    assert_eq!(advice.best, "50000");
    assert!(advice.summary.contains("p99 is at most 1.50 times"), "{}", advice.summary);
    assert!(advice.summary.contains("waits 1.50 times as long"), "{}", advice.summary);
    assert!(!advice.summary.contains("rw=randwrite"), "{}", advice.summary);
    assert!(advice.summary.contains("family that has weight"), "{}", advice.summary);
}

#[test]
fn where_nothing_has_weight_nothing_is_recommended() {
    let cells = cells(&[("1000", 10, 20), ("10000", 15, 30), ("50000", 15, 41)]);
    let judgement = judged(&cells, "speed_limit_min", &Weights::parse(["random=0"]).unwrap());
    assert_eq!(judgement.recommendation.best, "");
    assert!(judgement.notes.iter().any(|n| n.contains("weight 0")), "{:?}", judgement.notes);
}
