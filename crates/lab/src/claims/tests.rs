use std::collections::BTreeMap;

use super::file::{CLAIMS, Claims};
use super::test::{Found, Test};
use super::{Basis, ClaimResult, Counts, Verdict};
use crate::results::{CellResult, DirectionResult};

/// A cell of the array with a throughput in MB/s.
fn cell(factors: &[(&str, &str)], megabytes: u64) -> CellResult {
    CellResult {
        key: String::new(),
        target: "array".to_owned(),
        factors: factors.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        replicate: 0,
        seed: 1,
        seconds: 1.0,
        read: DirectionResult { bytes: megabytes * 1_000_000, ios: megabytes, ..DirectionResult::default() },
        write: DirectionResult::default(),
        member_ios: None,
        figures: BTreeMap::new(),
        error: None,
        notes: Vec::new(),
    }
}

/// Chunks a and b at sizes 1 and 2: a 100 and 200, b 50 and 190.
fn cells() -> Vec<CellResult> {
    [("a", "1", 100), ("a", "2", 200), ("b", "1", 50), ("b", "2", 190)]
        .map(|(chunk, size, rate)| cell(&[("chunk", chunk), ("bs", size)], rate))
        .into()
}

fn run(test: &str) -> Found {
    let test: Test = toml::from_str(test).unwrap();
    test.run(&cells())
}

fn holds(test: &str) -> bool {
    match run(test) {
        Found::Holds(_) => true,
        Found::Not(_) => false,
        Found::Unknown(reason) => panic!("{test}: {reason}"),
    }
}

#[test]
fn every_kind_of_check_can_hold_and_fail() {
    for (test, expected) in [
        ("kind = 'spread'\nover = 'chunk'\nat_most = 2.0", true),
        ("kind = 'spread'\nover = 'chunk'\nat_most = 1.9", false),
        ("kind = 'spread'\nover = 'chunk'\nat_most = 1.9\nshare = 0.5", true),
        ("kind = 'value'\nwhere = { chunk = 'a' }\nlow = 149.0\nhigh = 151.0", true),
        ("kind = 'value'\nwhere = { chunk = 'a' }\ntake = 'least'\nlow = 101.0", false),
        ("kind = 'value'\nwhere = { chunk = 'a' }\ntake = 'greatest'\nhigh = 199.0", false),
        (
            "kind = 'ratio'\ntop = { chunk = 'a' }\nbottom = { chunk = 'b' }\ntake = 'greatest'\nlow = 2.0",
            true,
        ),
        ("kind = 'ratio'\ntop = { chunk = 'a' }\nbottom = { chunk = 'b' }\nhigh = 1.5", false),
        ("kind = 'order'\nover = 'bs'\nvalues = ['1', '2']", true),
        ("kind = 'order'\nover = 'bs'\nvalues = ['1', '2']\nfalls = true", false),
        ("kind = 'order'\nover = 'bs'\nvalues = ['2', '1']\nslack = 0.75", true),
        ("kind = 'order'\nover = 'bs'\nvalues = ['1', '2']\ngain = 2.7", true),
        ("kind = 'order'\nover = 'bs'\nvalues = ['1', '2']\ngain = 2.8", false),
        ("kind = 'order'\nover = 'bs'\nvalues = ['2', '1']\nfalls = true\ngain = 2.7", true),
        ("kind = 'order'\nover = 'bs'\nvalues = ['2', '1']\nfalls = true\ngain = 2.8", false),
        ("kind = 'best'\nover = 'chunk'\nvalues = ['a']\nwithin = 0.0", true),
        ("kind = 'best'\nover = 'chunk'\nvalues = ['b']\nwithin = 0.1", false),
        ("kind = 'best'\nover = 'chunk'\nvalues = ['b']\nwithin = 0.1\nshare = 0.5", true),
        ("kind = 'best'\nover = 'chunk'\nvalues = ['b']\nwithin = 0.1\noverall = true", false),
        ("kind = 'best'\nover = 'chunk'\nvalues = ['a']\nwithin = 0.3\nwins = true", true),
        ("kind = 'best'\nover = 'chunk'\nvalues = ['a']\nwithin = 0.4\nwins = true", false),
        ("kind = 'best'\nover = 'chunk'\nvalues = ['a']\nwithin = 0.3\noverall = true\nwins = true", true),
        ("kind = 'best'\nover = 'chunk'\nvalues = ['a']\nwithin = 0.4\noverall = true\nwins = true", false),
        ("kind = 'best'\nover = 'chunk'\nvalues = ['b']\nwithin = 0.1\nwins = true", false),
        ("kind = 'pathology'\nover = 'chunk'\nsets = [['b']]\nbelow = 0.7", true),
        ("kind = 'pathology'\nover = 'chunk'\nsets = [['b'], ['a']]\nbelow = 0.7", false),
        ("kind = 'middle'\nover = 'chunk'\nvalue = 'b'\nshare = 0.0\nslack = 0.6", true),
        ("kind = 'middle'\nover = 'chunk'\nvalue = 'b'\nshare = 0.0\nslack = 0.4", false),
        ("kind = 'middle'\nover = 'chunk'\nvalue = 'b'\nshare = 0.5\nslack = 0.6", false),
        ("kind = 'no-winner'\nover = 'chunk'\nshare = 1.0", true),
        ("kind = 'no-winner'\nover = 'chunk'\nshare = 0.6", false),
        ("kind = 'count'\nequals = 4", true),
        ("kind = 'count'\nwhere = { chunk = 'a' }\nequals = 4", false),
        ("kind = 'count'\nwhere = { chunk = 'c' }\nequals = 0", true),
        ("kind = 'product'\nof = [2.0, 3.0]\nequals = 6.0\nwithin = 0.0", true),
        ("kind = 'product'\nof = [2.0, 3.0]\nequals = 7.0\nwithin = 0.1", false),
        ("kind = 'group-starts'\nmembers = 4\nchunk_kib = 64\ngroup_mib = 128\non = 1", true),
        ("kind = 'group-starts'\nmembers = 5\nchunk_kib = 128\ngroup_mib = 128\non = 5", true),
        ("kind = 'group-starts'\nmembers = 5\nchunk_kib = 128\ngroup_mib = 128\non = 1", false),
    ] {
        assert_eq!(holds(test), expected, "{test}: {:?}", run(test));
    }
}

#[test]
fn trials_are_compared_with_each_other_and_need_two() {
    let test =
        |at_most: f64| -> Test { toml::from_str(&format!("kind = 'trials'\nat_most = {at_most}")).unwrap() };
    let two = [cell(&[("chunk", "a")], 90), cell(&[("chunk", "a")], 110), cell(&[("chunk", "b")], 50)];
    assert!(matches!(test(0.21).run(&two), Found::Holds(_)));
    assert!(matches!(test(0.19).run(&two), Found::Not(_)));
    assert!(matches!(test(1.0).run(&two[1..]), Found::Unknown(_)), "one of each");
}

#[test]
fn verdicts_without_a_run_are_counted_apart() {
    let result = |basis, verdict| ClaimResult {
        id: String::new(),
        published: String::new(),
        check: String::new(),
        here: String::new(),
        verdict,
        basis,
        reason: None,
    };
    let claims = [
        result(Basis::Run, Verdict::Reproduced),
        result(Basis::Arithmetic, Verdict::Reproduced),
        result(Basis::Model, Verdict::Reproduced),
        result(Basis::Run, Verdict::NotReproduced),
        result(Basis::Plan, Verdict::NotCheckable),
    ];
    let expected = Counts { reproduced: 1, agreeing: 2, not_reproduced: 1, not_checkable: 1 };
    assert_eq!(Counts::of(&claims), expected);
}

#[test]
fn a_check_looks_at_the_cells_it_chooses_and_no_others() {
    let looks = |test: &str| -> Vec<usize> {
        let test: Test = toml::from_str(test).unwrap();
        let cells = cells();
        (0..cells.len()).filter(|i| test.looks_at(&cells[*i].factors, &cells[*i].target)).collect()
    };
    assert_eq!(looks("kind = 'value'\nwhere = { chunk = 'a' }"), [0, 1]);
    assert_eq!(looks("kind = 'ratio'\ntop = { bs = '1', chunk = 'a' }\nbottom = { chunk = 'b' }"), [0, 2, 3]);
    assert_eq!(looks("kind = 'value'\nwhere = { target = 'drive' }"), [0; 0]);
    assert_eq!(looks("kind = 'count'\nequals = 4"), [0; 0]);
}

#[test]
fn cells_that_are_missing_leave_a_claim_open() {
    for test in [
        "kind = 'value'\nwhere = { chunk = 'c' }",
        "kind = 'value'\nmetric = 'sync_kib_s'",
        "kind = 'ratio'\ntop = { chunk = 'a' }\nbottom = { chunk = 'c' }",
        "kind = 'best'\nover = 'chunk'\nvalues = ['c']\nwithin = 0.5",
        "kind = 'order'\nover = 'bs'\nvalues = ['1', '3']",
        "kind = 'count'\nwhere = { chunk = 'c' }\nequals = 4",
        "kind = 'value'\nwhere = { target = 'drive' }",
    ] {
        assert!(matches!(run(test), Found::Unknown(_)), "{test}: {:?}", run(test));
    }
}

/// Every cell of a built-in study, all with the same figures.
fn alike(study: &str) -> Vec<CellResult> {
    let plan = crate::plan::Plan::open(study).unwrap();
    let resolved = plan.resolve(crate::plan::Choices::default()).unwrap();
    let figures = [
        "cpu_busy_share",
        "parity_busy_share",
        "bus_mb_s",
        "sync_kib_s",
        "cache_hit_share",
        "requests_per_flush",
    ];
    let ios = crate::results::MemberIos {
        requests: 1,
        request_bytes: 1,
        reads: 1,
        read_bytes: 1,
        ..crate::results::MemberIos::default()
    };
    let cells = plan.expand(&resolved).unwrap().cells.into_iter();
    cells
        .map(|c| CellResult {
            replicate: c.replicate,
            target: c.target().to_owned(),
            factors: c.factors,
            member_ios: Some(ios),
            figures: figures.map(|name| (name.to_owned(), 1.0)).into(),
            ..cell(&[], 1)
        })
        .collect()
}

/// What is published as a difference is not found where there is none.
#[test]
fn where_no_setting_has_an_effect_only_claims_of_likeness_hold() {
    let holding = CLAIMS.iter().flat_map(|file| {
        let cells = alike(file.study);
        let compares = |test: &Test| {
            matches!(
                test,
                Test::Spread { .. }
                    | Test::Ratio { .. }
                    | Test::Order { .. }
                    | Test::Best { .. }
                    | Test::Pathology { .. }
                    | Test::Middle { .. }
                    | Test::NoWinner { .. }
            )
        };
        let claims = Claims::of(file.study).unwrap().unwrap().claim.into_iter();
        claims
            .filter(move |c| compares(&c.test) && matches!(c.test.run(&cells), Found::Holds(_)))
            .map(move |c| format!("{} {}", file.study, c.id))
    });
    let likeness = [
        "cache-size reads-ignore-cache-size",
        "chunk-size parity-by-page",
        "chunk-size 64k-and-128k-sequential",
        "chunk-size 64k-and-128k-random",
        "monkey-house default-readahead",
        "monkey-house readahead-enough",
        "stride small-io-alike",
        "stride sequential-mixed-alike",
        "stride random-reads-alike",
        "stride sequential-20-threads-alike",
        "stride no-trend-at-larger-blocks",
        "stride random-20-threads-alike",
    ];
    assert_eq!(holding.collect::<Vec<_>>(), likeness);
}

#[test]
fn built_in_claims_read_and_name_what_the_plans_have() {
    for file in CLAIMS {
        let claims = Claims::of(file.study).unwrap().unwrap();
        assert!(!claims.claim.is_empty() && !claims.source.is_empty(), "{}", file.study);
        // A claim of which no cell can be found would be open whatever is run.
        let results = alike(file.study);
        for claim in &claims.claim {
            let is_open = matches!(claim.test.run(&results), Found::Unknown(_));
            let is_meant = matches!(claim.test, Test::NotCheckable { .. });
            assert_eq!(is_open, is_meant, "{}: {}", file.study, claim.id);
        }
    }
}

#[test]
fn a_fault_in_a_file_of_claims_names_its_line() {
    let text =
        "source = 's'\n[[claim]]\nid = 'a'\npublished = 'p'\ncheck = 'c'\n[claim.test]\nkind = 'guess'\n";
    let error = Claims::parse("x.toml", text).unwrap_err().to_string();
    assert!(error.starts_with("x.toml:") && error.contains("guess"), "{error}");
    let claim = "[[claim]]\nid = 'a'\npublished = 'p'\ncheck = 'c'\ntest = { kind = 'count', equals = 1 }\n";
    let twice = format!("source = 's'\n{claim}{claim}");
    assert!(Claims::parse("x.toml", &twice).unwrap_err().to_string().contains("'a'"));
}
