use super::*;
use crate::results::DirectionResult;

/// A cell that moved that many bytes in a second.
pub(super) fn cell(rw: &str, mix: &str, chunk: &str, replicate: u32, bytes: u64) -> CellResult {
    let factors = [("rw", rw), ("rwmixread", mix), ("bs", "4k"), ("chunk", chunk)];
    CellResult {
        key: String::new(),
        target: "array".to_owned(),
        factors: factors.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        replicate,
        seed: 0,
        seconds: 1.0,
        read: DirectionResult { ios: 1, bytes, ..DirectionResult::default() },
        write: DirectionResult::default(),
        member_ios: None,
        figures: std::collections::BTreeMap::new(),
        error: None,
        notes: Vec::new(),
    }
}

pub(super) fn judge(cells: &[CellResult], values: &[&str], weights: &Weights) -> Judgement {
    let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
    let fixed = [("level", "raid5"), ("raid_devices", "5")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    recommend(cells, &Question { subject: "chunk", values: &values, fixed: &fixed, weights })
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// By hand: reads 100 and 50, writes 60 and 80. Relative: 1 and 0.5, 0.75 and 1. Scores √0.75 and √0.5.
#[test]
fn scores_are_geometric_means_of_relative_throughput() {
    let cells: Vec<CellResult> = (0..2)
        .flat_map(|r| {
            [
                cell("rw", "100", "64K", r, 100_000),
                cell("rw", "100", "128K", r, 50_000),
                cell("rw", "0", "64K", r, 60_000),
                cell("rw", "0", "128K", r, 80_000),
            ]
        })
        .collect();
    let judged = judge(&cells, &["64K", "128K"], &Weights::default()).recommendation;
    assert_eq!(judged.best, "64K");
    assert!(judged.tied_with.is_empty());
    assert!(close(judged.ranking[0].score, 0.75f64.sqrt()));
    assert!(close(judged.ranking[1].score, 0.5f64.sqrt()));
    assert!(close(judged.ranking[0].worst, 0.75) && close(judged.ranking[1].worst, 0.5));
    assert!(judged.ranking[1].worst_cell.contains("rwmixread=100"));
    assert!(close(judged.ranking[1].ratio_to_best, (0.5f64 / 0.75).sqrt()));
    assert_eq!(judged.commands, ["mdadm --create /dev/md0 --level=5 --raid-devices=5 --chunk=64K <devices>"]);
    let families: Vec<(&str, &str)> =
        judged.by_family.iter().map(|f| (f.family.as_str(), f.best.as_str())).collect();
    assert_eq!(families, [("sequential-read", "64K"), ("sequential-write", "128K")]);

    let weights = Weights::parse(["write=3"]).unwrap();
    assert_eq!(judge(&cells, &["64K", "128K"], &weights).recommendation.best, "128K");
}

#[test]
fn a_family_counts_by_its_weight_however_many_cells_it_has() {
    let mut cells = vec![cell("randrw", "0", "64K", 0, 50), cell("randrw", "0", "128K", 0, 100)];
    for mix in ["30", "50", "70"] {
        cells.extend([cell("randrw", mix, "64K", 0, 100), cell("randrw", mix, "128K", 0, 60)]);
    }
    let judged = judge(&cells, &["64K", "128K"], &Weights::default()).recommendation;
    assert_eq!(judged.best, "128K");
    assert!(close(judged.ranking[0].score, 0.6f64.sqrt()));
}

#[test]
fn one_replicate_gives_no_interval_and_says_so() {
    let cells = [
        cell("read", "", "64K", 0, 1000),
        cell("read", "", "128K", 0, 900),
        cell("read", "", "256K", 0, 995),
    ];
    let judged = judge(&cells, &["64K", "128K", "256K"], &Weights::default());
    assert!(judged.notes.iter().any(|n| n.contains("no confidence interval")), "{:?}", judged.notes);
    assert_eq!(judged.recommendation.tied_with, ["256K"]);
    assert!(judged.recommendation.method.contains("no interval"));
}

#[test]
fn a_clear_difference_below_the_margin_is_a_tie() {
    let cells: Vec<CellResult> =
        (0..3).flat_map(|r| [cell("read", "", "64K", r, 1000), cell("read", "", "128K", r, 995)]).collect();
    assert_eq!(judge(&cells, &["64K", "128K"], &Weights::default()).recommendation.tied_with, ["128K"]);
}

#[test]
fn incomplete_and_failed_workloads_are_not_judged_and_are_told() {
    let mut failed = cell("randread", "", "64K", 0, 0);
    failed.error = Some("broken".to_owned());
    let mut reference = cell("randread", "", "64K", 0, 999_999);
    reference.target = "drive".to_owned();
    let cells = [
        cell("read", "", "64K", 0, 1000),
        cell("read", "", "128K", 0, 500),
        failed,
        cell("randread", "", "128K", 0, 1000),
        cell("write", "", "64K", 0, 0),
        cell("write", "", "128K", 0, 0),
        reference,
    ];
    let judged = judge(&cells, &["64K", "128K"], &Weights::default());
    assert_eq!(judged.recommendation.best, "64K");
    let lacking = "1 of 3 workloads lacks figures for some value and was not judged: bs=4k rw=randread rwmixread= (nothing for 64K).";
    assert_eq!(judged.notes[0], lacking);
    let warned = "chunk 64K (1 of its 3 cells have no figures) scored highest";
    assert!(judged.recommendation.summary.contains(warned), "{}", judged.recommendation.summary);
    assert!(judged.notes[1].contains("1 workloads no I/O"), "{:?}", judged.notes);
}

/// Values meet the same requests only in the same replicate, so that a replicate without one of them says nothing of the others.
#[test]
fn a_replicate_that_one_value_lacks_is_left_out_for_all_and_told() {
    let of = |chunk, bytes: [u64; 3]| {
        bytes.into_iter().zip(0..).map(move |(bytes, replicate)| cell("read", "", chunk, replicate, bytes))
    };
    let mut cells: Vec<CellResult> = of("64K", [1000, 1100, 10]).chain(of("128K", [500, 600, 1])).collect();
    cells[5].error = Some("broken".to_owned());
    let Judgement { recommendation: advice, notes } = judge(&cells, &["64K", "128K"], &Weights::default());
    assert!(close(advice.ranking[1].score, (0.5f64 * 600.0 / 1100.0).sqrt()), "{:?}", advice.ranking);
    assert!(notes[0].contains("left out for all values"), "{notes:?}");
    assert!(notes[0].contains("bs=4k rw=read rwmixread= (2 of 3 left; fewer of 128K)"), "{notes:?}");
    assert!(advice.summary.contains("chunk 64K is best"), "{}", advice.summary);
}

#[test]
fn nothing_measured_recommends_nothing() {
    let judged = judge(&[], &["64K"], &Weights::default());
    assert_eq!(judged.recommendation.best, "");
    assert!(judged.recommendation.summary.contains("No chunk can be recommended"));
    assert!(judged.recommendation.commands.is_empty());
}

#[test]
fn a_value_with_no_throughput_at_all_ranks_last() {
    let cells: Vec<CellResult> =
        (0..2).flat_map(|r| [cell("read", "", "64K", r, 0), cell("read", "", "128K", r, 4096)]).collect();
    let judged = judge(&cells, &["64K", "128K"], &Weights::default()).recommendation;
    assert_eq!(judged.best, "128K");
    assert!(judged.ranking.iter().all(|r| r.score.is_finite()));
}

/// Twice the seconds are half as good, however much was written in them.
#[test]
fn who_makes_a_file_system_sooner_is_better() {
    let made = |inode_ratio: &str, replicate: u32, seconds: f64, bytes: u64| {
        let mut cell = cell("", "", inode_ratio, replicate, 0);
        cell.factors = [("inode_ratio".to_owned(), inode_ratio.to_owned())].into();
        cell.read = DirectionResult::default();
        cell.write = DirectionResult { ios: 10, bytes: bytes * 1000, ..DirectionResult::default() };
        CellResult { seconds, ..cell }
    };
    let cells: Vec<CellResult> = (0..3)
        .flat_map(|r| {
            let noise = 1.0 + f64::from(r) / 1000.0;
            [made("4096", r, 80.0 * noise, 900_000), made("16384", r, 40.0, 200_000)]
        })
        .collect();
    let values = ["4096", "16384"].map(str::to_owned);
    let fixed = BTreeMap::new();
    let weights = Weights::default();
    let question = Question { subject: "inode_ratio", values: &values, fixed: &fixed, weights: &weights };
    let Judgement { recommendation: advice, notes } = recommend(&cells, &question);
    assert_eq!((advice.best.as_str(), notes.len()), ("16384", 0), "{notes:?}");
    assert!(advice.tied_with.is_empty());
    assert!((advice.ranking[1].score - 0.5).abs() < 0.01 && advice.ranking[1].ratio_to_best_ci.is_some());
    assert_eq!(advice.by_family[0].family, "mkfs");
    assert!(advice.summary.contains("50.0 % slower"), "{}", advice.summary);
    assert!(!advice.summary.contains("throughput"), "{}", advice.summary);
    assert!(advice.method.starts_with("The least seconds"), "{}", advice.method);
    assert_eq!(advice.reasons, ["mkfs: at 16384 it writes 200 MB; at 4096, 50 % slower, 900 MB."]);
    let without = Weights::parse(["mkfs=0"]).unwrap();
    let advice = recommend(&cells, &Question { weights: &without, ..question }).recommendation;
    assert!(advice.best.is_empty());
}
