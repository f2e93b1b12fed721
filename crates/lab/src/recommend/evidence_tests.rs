//! What the evidence bears: single runs, ties, many values, factors that some values lack.

use super::tests::{cell, judge};
use super::*;
use crate::workload::Random;

/// Normal with mean 0 and variance 1 (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let mut uniform = || (random.below(1 << 32) as f64 + 0.5) / (1u64 << 32) as f64;
    (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|value| format!("{}K", 4 << value)).collect()
}

/// The share of 1,000 studies of equal values in which some value is told from the best. The last value scatters so many times
/// as much as the others.
fn family_error(values: usize, replicates: u32, last: f64) -> f64 {
    let names = names(values);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let trials = 1000;
    let is_wrong = |trial: &u64| {
        let mut random = Random::new(*trial, values as u64);
        let mut cells = Vec::new();
        for replicate in 0..replicates {
            for name in &names {
                let times = if Some(name) == names.last() { last } else { 1.0 };
                let bytes = (1e9 * (0.1 * times * normal(&mut random)).exp()) as u64;
                cells.push(cell("randread", "", name, replicate, bytes));
            }
        }
        judge(&cells, &names, &Weights::default()).recommendation.tied_with.len() < values - 1
    };
    (0..trials).filter(is_wrong).count() as f64 / trials as f64
}

#[test]
fn equal_values_are_told_apart_in_one_study_of_twenty_at_most() {
    let of = |last: f64, most: f64| {
        let cases = [(2, 3), (2, 5), (3, 3), (3, 5), (8, 3), (8, 5)];
        let rates =
            cases.map(|(values, replicates)| (values, replicates, family_error(values, replicates, last)));
        println!("{last}: {rates:?}");
        assert!(rates.iter().all(|(.., rate)| *rate < most), "{last}: {rates:?}");
    };
    of(1.0, 0.065);
    of(3.0, 0.12);
}

#[test]
fn many_values_a_third_apart_are_told_apart_by_three_noisy_replicates() {
    let names = names(9);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let told = |trial: &u64| {
        let mut random = Random::new(*trial, 1);
        let mut cells = Vec::new();
        for replicate in 0..3 {
            for (name, place) in names.iter().zip(0..) {
                let share = 0.67f64.powi(place) * (0.05 * normal(&mut random)).exp();
                cells.push(cell("randread", "", name, replicate, (1e9 * share) as u64));
            }
        }
        judge(&cells, &names, &Weights::default()).recommendation.tied_with.is_empty()
    };
    let told = (0..100).filter(told).count();
    assert!(told > 90, "{told} of 100");
}

#[test]
fn the_interval_of_a_score_is_no_wider_for_the_number_of_values() {
    let cells: Vec<CellResult> = [1000, 1100, 1200]
        .into_iter()
        .zip(0..)
        .flat_map(|(bytes, r)| [cell("read", "", "64K", r, bytes), cell("read", "", "128K", r, 500)])
        .collect();
    let two = judge(&cells, &["64K", "128K"], &Weights::default()).recommendation;
    let more: Vec<CellResult> = (0..3).map(|r| cell("read", "", "256K", r, 400)).collect();
    let three = judge(&[cells, more].concat(), &["64K", "128K", "256K"], &Weights::default()).recommendation;
    assert_eq!(two.ranking[0].score_ci, three.ranking[0].score_ci);
    assert_eq!(two.ranking[1].score_ci, three.ranking[1].score_ci);
    assert_ne!(two.ranking[1].ratio_to_best_ci, three.ranking[1].ratio_to_best_ci);
}

#[test]
fn a_setting_is_not_to_be_changed_where_nothing_is_told_apart() {
    let values = ["64K", "128K", "256K"].map(str::to_owned);
    let judge = |subject: &str, of_third: [u64; 3]| {
        let noisy = [[800, 1000, 1200], [1100, 900, 900], of_third];
        let cell = |value: usize, replicate: usize| {
            let mut cell = cell("read", "", "", replicate as u32, noisy[value][replicate]);
            cell.factors.remove("chunk");
            cell.factors.insert(subject.to_owned(), values[value].clone());
            cell
        };
        let cells: Vec<CellResult> = (0..9).map(|i| cell(i / 3, i % 3)).collect();
        let fixed = BTreeMap::from([("level".to_owned(), "raid5".to_owned())]);
        let weights = Weights::default();
        recommend(&cells, &Question { subject, values: &values, fixed: &fixed, weights: &weights })
            .recommendation
    };
    let alike = [1000, 1050, 950];
    let untold = judge("stripe_cache_size", alike);
    assert_eq!((untold.tied_with.len(), untold.commands.len()), (2, 0), "{}", untold.summary);
    assert!(untold.summary.contains("there is nothing to apply"), "{}", untold.summary);
    let chunk = judge("chunk", alike);
    assert_eq!((chunk.tied_with.len(), chunk.commands.len()), (2, 1), "{}", chunk.summary);
    let told = judge("stripe_cache_size", [10, 11, 9]);
    assert_eq!((told.tied_with.len(), told.commands.len()), (1, 1), "{}", told.summary);
}

/// A study of a setting with these values, each with its bytes in every one of three replicates.
fn setting(subject: &str, values: &[(&str, u64)]) -> Recommendation {
    let cells: Vec<CellResult> = (0..3)
        .flat_map(|replicate| values.iter().map(move |value| (replicate, value)))
        .map(|(replicate, (value, bytes))| {
            let mut cell = cell("read", "", "", replicate, bytes + u64::from(replicate) * bytes / 1000);
            cell.factors.remove("chunk");
            cell.factors.insert(subject.to_owned(), (*value).to_owned());
            cell
        })
        .collect();
    let names: Vec<String> = values.iter().map(|(value, _)| (*value).to_owned()).collect();
    let (fixed, weights) = (BTreeMap::new(), Weights::default());
    recommend(&cells, &Question { subject, values: &names, fixed: &fixed, weights: &weights }).recommendation
}

#[test]
fn a_default_that_is_tied_with_the_best_is_left_as_it_is() {
    let alike = setting("readahead", &[("8", 100_000), ("4096", 1_000_000), ("default", 999_000)]);
    assert_eq!((&*alike.best, alike.commands.len()), ("4096", 0), "{}", alike.summary);
    assert!(
        alike.summary.contains("The default is among them, so there is nothing to apply"),
        "{}",
        alike.summary
    );
    let apart = setting("readahead", &[("8", 100_000), ("4096", 1_000_000), ("default", 700_000)]);
    assert_eq!(apart.commands, ["blockdev --setra 4096 /dev/md0"]);
}

#[test]
fn commands_of_linux_from_figures_of_this_engine_are_told() {
    let cells: Vec<CellResult> = (0..3)
        .flat_map(|r| [cell("read", "", "64K", r, 1000 + u64::from(r)), cell("read", "", "128K", r, 500)])
        .collect();
    let values = ["64K", "128K"].map(str::to_owned);
    let weights = Weights::default();
    for (policy, is_told) in [("stripewise", true), ("linux-6.1", false)] {
        let fixed = BTreeMap::from(
            [("level", "raid5"), ("policy", policy)].map(|(k, v)| (k.to_owned(), v.to_owned())),
        );
        let judged = recommend(
            &cells,
            &Question { subject: "chunk", values: &values, fixed: &fixed, weights: &weights },
        );
        assert_eq!(judged.recommendation.commands.len(), 1);
        assert_eq!(judged.notes.iter().any(|note| note.contains("policy stripewise")), is_told, "{policy}");
    }
}

#[test]
fn of_equal_values_the_default_is_taken_and_else_the_smallest_in_any_order() {
    for upper in [["256", "1024", "4096"], ["4096", "1024", "256"], ["1024", "4096", "256"]] {
        let values = [("17", 500_000)].into_iter().chain(upper.map(|n| (n, 1_000_000)));
        let judged = setting("stripe_cache_size", &values.collect::<Vec<_>>());
        assert_eq!((&*judged.best, judged.commands.len()), ("256", 0), "{}", judged.summary);
        assert!(judged.summary.contains("The default, 256, is among them"), "{}", judged.summary);
    }
    for upper in [["1024", "4096", "512"], ["512", "4096", "1024"]] {
        let values = [("256", 500_000)].into_iter().chain(upper.map(|n| (n, 1_000_000)));
        let judged = setting("stripe_cache_size", &values.collect::<Vec<_>>());
        assert_eq!(judged.commands, ["echo 512 > /sys/block/md0/md/stripe_cache_size"], "{}", judged.summary);
    }
}

#[test]
fn a_single_run_names_no_winner_and_has_no_interval_anywhere() {
    let cells = [cell("randread", "", "64K", 0, 1000), cell("randread", "", "128K", 0, 800)];
    let judged = judge(&cells, &["64K", "128K"], &Weights::default()).recommendation;
    let json = serde_json::to_value(&judged).unwrap();
    for ranked in json["ranking"].as_array().unwrap() {
        assert!(ranked["score_ci"].is_null() && ranked["ratio_to_best_ci"].is_null(), "{ranked}");
    }
    let summary = &judged.summary;
    assert!(!summary.contains("is best"), "{summary}");
    assert!(summary.contains("64K scored highest in a single run"), "{summary}");
    assert!(summary.contains("no winner can be told") && summary.contains("--replicates 5"), "{summary}");
}

#[test]
fn equal_values_of_single_runs_are_tied_and_not_called_highest() {
    let single = |subject: &str, bytes: [u64; 3]| {
        let values = ["64K", "128K", "256K"].map(str::to_owned);
        let cells: Vec<CellResult> = (0..3)
            .map(|place| {
                let mut cell = cell("randread", "", "", 0, bytes[place]);
                cell.factors.remove("chunk");
                cell.factors.insert(subject.to_owned(), values[place].clone());
                cell
            })
            .collect();
        let fixed = BTreeMap::from([("level".to_owned(), "raid5".to_owned())]);
        let weights = Weights::default();
        recommend(&cells, &Question { subject, values: &values, fixed: &fixed, weights: &weights })
            .recommendation
    };
    let judged = single("chunk", [100_000, 99_500, 50_000]);
    assert_eq!((judged.tied_with.len(), judged.commands.len()), (1, 1));
    let summary = &judged.summary;
    assert!(summary.starts_with("chunk 64K is tied with 128K in a single run: "), "{summary}");
    assert!(summary.contains("less than 1 %") && summary.contains("--replicates 5"), "{summary}");
    assert!(!summary.contains("highest") && !summary.contains("lower"), "{summary}");
    let equal = single("stripe_cache_size", [100_000; 3]);
    assert_eq!((equal.tied_with.len(), equal.commands.len()), (2, 0), "{}", equal.summary);
    assert!(equal.summary.contains("there is nothing to apply"), "{}", equal.summary);
    let apart = single("chunk", [100_000, 98_000, 50_000]);
    assert!(apart.summary.contains("64K scored highest in a single run"), "{}", apart.summary);
}

#[test]
fn of_equal_figures_none_is_called_highest() {
    let summary = |second: [u64; 3]| {
        let at = |value: &str, bytes: [u64; 3]| -> Vec<CellResult> {
            bytes.into_iter().zip(0..).map(|(b, r)| cell("read", "", value, r, b * 1_000_000)).collect()
        };
        let cells = [at("64K", [90, 100, 110]), at("128K", second)].concat();
        judge(&cells, &["64K", "128K"], &Weights::default()).recommendation.summary
    };
    let (equal, near) = (summary([90, 100, 110]), summary([110, 91, 98]));
    assert!(equal.contains("is tied with") && !equal.contains("highest"), "{equal}");
    assert!(near.contains("scores highest, but is tied with"), "{near}");
}

#[test]
fn values_alike_by_the_margin_alone_are_not_called_indistinguishable() {
    let at = |value: &str, share: f64| {
        (0..3).map(|r| cell("read", "", value, r, (1e9 * share) as u64 + u64::from(r))).collect::<Vec<_>>()
    };
    let alike = [at("64K", 1.0), at("128K", 0.993)].concat();
    let summary = judge(&alike, &["64K", "128K"], &Weights::default()).recommendation.summary;
    assert!(!summary.contains("evidence"), "{summary}");
    assert!(summary.contains("128K is within 1 % of it, which the study counts as alike"), "{summary}");
    let noisy: Vec<CellResult> = [800, 1000, 1150]
        .into_iter()
        .zip(0..)
        .map(|(b, r)| cell("read", "", "256K", r, b * 1_000_000))
        .collect();
    let both = judge(&[alike, noisy].concat(), &["64K", "128K", "256K"], &Weights::default());
    let summary = both.recommendation.summary;
    assert!(summary.contains("the evidence does not tell 256K from it"), "{summary}");
    assert!(summary.contains("128K is within 1 % of it"), "{summary}");
}

/// A study of levels where raid1 has no chunk.
fn levels(chunks: &[&str]) -> Judgement {
    let mut cells = Vec::new();
    for replicate in 0..2 {
        for (level, bytes) in [("raid5", 1000), ("raid1", 500)] {
            for chunk in chunks {
                let mut cell = cell("randread", "", chunk, replicate, bytes);
                cell.factors.insert("level".to_owned(), level.to_owned());
                if level == "raid1" {
                    cell.factors.remove("chunk");
                }
                cells.push(cell);
            }
        }
    }
    let values = ["raid5", "raid1"].map(str::to_owned);
    let (fixed, weights) = (BTreeMap::new(), Weights::default());
    recommend(&cells, &Question { subject: "level", values: &values, fixed: &fixed, weights: &weights })
}

#[test]
fn a_factor_of_one_value_that_some_values_lack_keeps_nothing_apart() {
    let judged = levels(&["64K"]);
    assert_eq!(judged.recommendation.best, "raid5");
    let said = "Levels are compared by throughput alone: raid5 survives one lost member, raid1 survives all lost members but one.";
    assert_eq!(judged.notes[0], said);
    assert!(!judged.notes.join("").contains("'chunk'"), "{:?}", judged.notes);
}

#[test]
fn an_array_without_a_bitmap_is_said_to_be_resynced_whole() {
    let cells: Vec<CellResult> = [("none", 20), ("internal", 10)]
        .into_iter()
        .flat_map(|(kind, bytes)| {
            (0..2).map(move |replicate| {
                let mut cell = cell("randwrite", "", "64K", replicate, bytes);
                cell.factors.insert("bitmap".to_owned(), kind.to_owned());
                cell
            })
        })
        .collect();
    let values = ["none", "internal"].map(str::to_owned);
    let (fixed, weights) = (BTreeMap::new(), Weights::default());
    let question = Question { subject: "bitmap", values: &values, fixed: &fixed, weights: &weights };
    let judged = recommend(&cells, &question);
    assert_eq!(judged.recommendation.best, "none");
    assert!(judged.recommendation.ranking.iter().all(|value| value.score <= 1.0));
    assert!(judged.notes.iter().any(|note| note.contains("the whole array is resynced after a crash")));
}

#[test]
fn a_factor_of_several_values_that_some_values_lack_is_named() {
    let judged = levels(&["64K", "128K"]);
    assert_eq!(judged.recommendation.best, "");
    let notes = judged.notes.join("\n");
    assert!(notes.contains("'chunk'") && notes.contains("level raid1"), "{notes}");
    assert!(!notes.contains("lack figures") && !notes.contains("No cell is complete"), "{notes}");
}

#[test]
fn where_all_families_have_weight_0_that_is_said() {
    let cells: Vec<CellResult> =
        (0..2).flat_map(|r| [cell("read", "", "64K", r, 10), cell("read", "", "128K", r, 20)]).collect();
    let weights = Weights::parse(["sequential=0"]).unwrap();
    let judged = judge(&cells, &["64K", "128K"], &weights);
    let notes = judged.notes.join("\n");
    assert!(notes.contains("sequential-read") && notes.contains("weight 0"), "{notes}");
    assert!(!notes.contains("complete"), "{notes}");
}

/// Nobody uses those arrays: what they do by themselves is what is compared.
#[test]
fn resyncs_are_judged_by_their_rate() {
    let cells: Vec<CellResult> = [("64K", 90_000.0), ("128K", 100_000.0)]
        .into_iter()
        .flat_map(|(chunk, rate)| (0..3).map(move |replicate| (chunk, rate, replicate)))
        .map(|(chunk, rate, replicate)| {
            let mut cell = cell("", "", chunk, replicate, 0);
            cell.factors.retain(|name, _| name == "chunk");
            cell.figures.insert("sync_kib_s".to_owned(), rate + f64::from(replicate));
            cell
        })
        .collect();
    let Judgement { recommendation, notes } = judge(&cells, &["64K", "128K"], &Weights::default());
    assert_eq!((recommendation.best.as_str(), recommendation.tied_with.len()), ("128K", 0), "{notes:?}");
    assert!((recommendation.ranking[1].ratio_to_best - 0.9).abs() < 1e-4);
    assert_eq!(recommendation.by_family[0].family, "sync");
    let weights = Weights::parse(["sync=0"]).unwrap();
    let judged = judge(&cells, &["64K", "128K"], &weights);
    assert!(
        judged.recommendation.ranking.is_empty() && judged.notes[0].contains("(sync)"),
        "{:?}",
        judged.notes
    );
}
