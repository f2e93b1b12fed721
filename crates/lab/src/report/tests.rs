//! Properties of the whole document.

use std::collections::BTreeMap;

use super::render;
use crate::results::{
    CellResult, DirectionResult, Environment, FamilyBest, Provenance, RankedValue, Recommendation,
    SCHEMA_VERSION, StudyResults, TradeOff, TradeOffRow,
};

const HOSTILE: &str = "</script><script>alert('1')</script><!-- <img src=x onerror=\"alert(1)\"> & \u{2028}";

/// A study of three chunks with this many cells, whose every text is `text`.
#[expect(clippy::too_many_lines, reason = "a flat value")]
fn study(cells: u32, text: &str) -> StudyResults {
    let owned = || text.to_owned();
    let values: Vec<String> = ["4K", "64K", "1024K"].iter().map(|value| format!("{value}{text}")).collect();
    let direction = DirectionResult {
        ios: 123_456,
        bytes: 505_675_776,
        errors: 0,
        latency_mean_ns: 1_234_567.0,
        latency_p50_ns: 1_234_567,
        latency_p90_ns: 2_345_678,
        latency_p99_ns: 3_456_789,
        latency_p999_ns: 4_567_890,
        latency_max_ns: 5_678_901,
    };
    let cell = |number: u32| CellResult {
        key: format!("{number:064x}"),
        target: "array".to_owned(),
        factors: ["bs", "chunk", "numjobs", "rw", "rwmixread"]
            .map(|factor| (factor.to_owned(), format!("{}{text}", number % 9)))
            .into(),
        replicate: number % 3,
        seed: u64::MAX - u64::from(number),
        seconds: 20.0,
        read: direction.clone(),
        write: direction.clone(),
        member_ios: None,
        figures: std::collections::BTreeMap::new(),
        error: (number == 1).then(owned),
        notes: Vec::new(),
    };
    StudyResults {
        schema_version: SCHEMA_VERSION,
        study: format!("chunk-size{text}"),
        title: format!("Chunk size{text}"),
        question: owned(),
        simulated: true,
        quick: false,
        seed: Some(1),
        subject: "chunk".to_owned(),
        subject_values: values.clone(),
        environment: Environment {
            target: format!("model{text}"),
            description: owned(),
            version: owned(),
            engine_hash: owned(),
            host_cpu: owned(),
            host_kernel: owned(),
            started: owned(),
            finished: owned(),
            wall_seconds: 1.0,
            notes: vec![owned()],
            arguments: Vec::new(),
            provenance: vec![Provenance {
                model: owned(),
                parameter: owned(),
                value: owned(),
                unit: owned(),
                kind: format!("assumed{text}"),
                source: owned(),
            }],
        },
        cells: (0..cells).map(cell).collect(),
        recommendation: advice(&values, text),
        claims: vec![crate::claims::ClaimResult {
            id: owned(),
            published: owned(),
            check: owned(),
            here: owned(),
            verdict: crate::claims::Verdict::NotReproduced,
            basis: crate::claims::Basis::Run,
            reason: Some(owned()),
        }],
    }
}

fn advice(values: &[String], text: &str) -> Recommendation {
    let ranked = |value: &String| RankedValue {
        value: value.clone(),
        score: 0.9,
        score_ci: Some((0.85, 0.95)),
        worst: 0.5,
        worst_cell: text.to_owned(),
        ratio_to_best: 0.99,
        ratio_to_best_ci: Some((0.9, 1.01)),
    };
    Recommendation {
        reasons: Vec::new(),
        ranking: values.iter().map(ranked).collect(),
        best: values[0].clone(),
        tied_with: vec![values[1].clone()],
        summary: text.to_owned(),
        method: text.to_owned(),
        weights: BTreeMap::from([(format!("random-read{text}"), 3.0), ("random-write".to_owned(), 1.0)]),
        trade_off: None,
        by_family: vec![FamilyBest {
            family: format!("random-read{text}"),
            best: values[0].clone(),
            score: 0.9,
            tied_with: vec![values[1].clone()],
            scores: vec![0.9, f64::NAN],
        }],
        commands: vec![format!("mdadm --create{text}")],
    }
}

/// A recovery's study with replicates, or without.
fn trade_off(spread: Option<f64>) -> StudyResults {
    let mut results = study(9, "");
    let row = |value: &String, ratio: f64| TradeOffRow {
        family: "random-read".to_owned(),
        in_flight: 1,
        value: value.clone(),
        sync_kib_s: 1024.0,
        member_seconds: 3600.0,
        bytes_per_second: 1e6,
        p99_ns: 1e7,
        throughput_ratio: ratio,
        throughput_ratio_ci: spread.map(|s| (ratio - (1.0 - ratio) * s, ratio + (1.0 - ratio) * s)),
        p99_ratio: 1.0 / ratio,
        p99_ratio_ci: spread.map(|s| (1.0 / ratio - (1.0 - ratio) * s, 1.0 / ratio + (1.0 - ratio) * s)),
    };
    let rows = vec![row(&results.subject_values[0], 1.0), row(&results.subject_values[1], 0.5)];
    results.recommendation.trade_off = Some(TradeOff { rule: "Nothing is ranked.".to_owned(), rows });
    results
}

#[test]
fn ratios_of_a_trade_off_have_intervals_that_are_called_so() {
    let html = render(&trade_off(Some(0.2))).unwrap();
    let table = &html[html.find("id=\"trade-off\"").unwrap()..html.find("id=\"claims\"").unwrap()];
    assert_eq!(table.matches("of 4K <small>95\u{a0}% interval</small>").count(), 2, "{table}");
    assert!(table.contains("50\u{a0}% <small>40 – 60</small>"), "{table}");
    assert!(table.contains("× 2.00 <small>1.90 – 2.10</small>"), "{table}");
    assert_eq!(table.matches("<td>× 1.00</td>").count(), 1, "the first value is itself: {table}");
    assert!(!table.contains("The rule of the recommendation: Nothing"), "{table}");
    let single = render(&trade_off(None)).unwrap();
    assert!(!single.contains("95\u{a0}% interval</small>"));
}

#[test]
fn claims_that_others_refer_to_are_named_and_linked() {
    let mut results = study(9, "");
    let mut other = results.claims[0].clone();
    "mkfs-default".clone_into(&mut results.claims[0].id);
    other.id = "mkfs-n-100".to_owned();
    other.reason = Some("see mkfs-default; matrix".to_owned());
    results.claims.push(other);
    let html = render(&results).unwrap();
    assert!(
        html.contains("id=\"claim-mkfs-default\"")
            && html.contains("<small class=\"code\">mkfs-default</small>")
    );
    assert!(html.contains("see <a href=\"#claim-mkfs-default\">mkfs-default</a>; matrix"));
}

#[test]
fn where_it_ran_says_when_and_how_often() {
    let mut results = study(9, "");
    "2026-11-30T08:00:00Z".clone_into(&mut results.environment.started);
    "2026-11-30T09:00:00Z".clone_into(&mut results.environment.finished);
    let html = render(&results).unwrap();
    assert!(html.contains("2026-11-30T08:00:00Z to 2026-11-30T09:00:00Z"));
    assert!(html.contains("9 (1 per combination of factors)"));
    results.cells[1].factors = results.cells[0].factors.clone();
    assert!(render(&results).unwrap().contains("9 (1 to 2 per combination of factors)"));
}

#[test]
fn the_command_that_runs_it_again_has_the_weights() {
    let mut results = study(9, "");
    assert!(render(&results).unwrap().contains("chunk-size --on model --weight random-read=3<"));
    results.recommendation.weights.values_mut().for_each(|weight| *weight = 0.0);
    let command = "chunk-size --on model --weight random-read=0 --weight random-write=0<";
    assert!(render(&results).unwrap().contains(command));
    results.recommendation.weights.values_mut().for_each(|weight| *weight = 1.0);
    assert!(render(&results).unwrap().contains("chunk-size --on model<"));
}

#[test]
fn text_of_a_study_never_becomes_markup() {
    let (plain, hostile) = (render(&study(9, "")).unwrap(), render(&study(9, HOSTILE)).unwrap());
    let count = |html: &str, tag: &str| html.matches(tag).count();
    for tag in ["<script", "</script", "<!--"] {
        assert_eq!(count(&plain, tag), count(&hostile, tag), "{tag}");
    }
    assert!(!hostile.contains("<img src=x"));
    assert!(!hostile.contains("onerror=\"alert"));
}

#[test]
fn a_report_loads_nothing_from_outside() {
    let html = render(&study(9, "")).unwrap();
    assert!(html.contains("default-src 'none'"));
    for load in
        ["src=\"http", "href=\"http", "url(http", "url(\"http", "url(//", "@import", "<link", "<iframe"]
    {
        assert!(!html.contains(load), "{load}");
    }
}

#[test]
fn simulated_figures_are_called_so_wherever_they_are_shown() {
    let html = render(&study(9, "")).unwrap();
    let title = &html[html.find("<title>").unwrap()..html.find("</title>").unwrap()];
    assert!(title.contains("simulated"), "{title}");
    for (at, _) in html.match_indices("<h2") {
        let heading = &html[at..at + html[at..].find("</h2>").unwrap()];
        let shows_figures = !heading.contains("Before you rely") && !heading.contains("To run it again");
        assert_eq!(heading.contains(">simulated<"), shows_figures, "{heading}");
    }
    assert!(!html.contains("class=\"badge measured\""));
}

#[test]
fn measured_figures_name_their_target_and_quick_ones_say_so() {
    let mut results = study(9, "");
    results.simulated = false;
    results.quick = true;
    "files:/mnt/x".clone_into(&mut results.environment.target);
    let html = render(&results).unwrap();
    assert!(html.contains("· measured · quick"));
    assert!(html.contains("measured on files:/mnt/x"));
    assert!(!html.contains("class=\"badge simulated\">"));
    assert!(html.contains("stripewise study run chunk-size --quick --on files:/mnt/x"));
}

#[test]
fn a_study_without_cells_or_ranking_says_so() {
    let mut results = study(0, "");
    results.recommendation.ranking.clear();
    results.recommendation.by_family.clear();
    results.recommendation.best.clear();
    let html = render(&results).unwrap();
    assert!(html.contains("No recommendation"));
    assert!(html.contains("no cells yet"));
    results.recommendation.weights.values_mut().for_each(|weight| *weight = 0.0);
    assert!(render(&results).unwrap().contains("every workload that was studied has weight 0"));
    assert!(!html.contains("id=\"controls\""));
}

#[test]
fn intervals_that_are_none_are_not_drawn() {
    let mut results = study(9, "");
    for ranked in &mut results.recommendation.ranking {
        (ranked.score_ci, ranked.ratio_to_best_ci) = (None, None);
    }
    results.recommendation.tied_with.clear();
    let html = render(&results).unwrap();
    assert!(html.contains("no interval"));
    assert!(html.contains("No winner without replicates; highest chunk"));
    assert!(!html.contains(">best</span>"));
    assert!(!html.contains("class=\"range\""));
    assert!(!html.contains("NaN%"));
}

#[test]
fn a_tie_of_single_runs_is_called_one() {
    let mut results = study(9, "");
    for ranked in &mut results.recommendation.ranking {
        (ranked.score_ci, ranked.ratio_to_best_ci) = (None, None);
    }
    results.recommendation.tied_with = vec!["64K".to_owned(), "1024K".to_owned()];
    let html = render(&results).unwrap();
    assert!(html.contains("A tie without replicates; chunk"));
    assert!(!html.contains("highest chunk"));
    assert!(html.contains(">tie</span>"));
}

#[test]
fn the_whole_published_matrix_stays_small_enough_to_mail() {
    let html = render(&study(3300, "")).unwrap();
    assert!(html.len() < 2_000_000, "{} bytes", html.len());
}
