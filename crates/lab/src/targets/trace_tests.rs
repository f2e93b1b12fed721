//! A trace as a cell's work, on every kind of target.

use std::fmt::Write;
use std::path::Path;

use crate::plan::Plan;
use crate::recommend::Weights;
use crate::results::StudyResults;
use crate::store::Store;
use crate::study::{Study, StudyOptions, results};

const HEAD: &str =
    "stripewise-trace 1\ndevice_bytes 1073741824\ntime_ns op offset bytes flags stream latency_ns\n";

/// A thousand writes of 16 KiB, apart, and a flush.
fn trace(path: &Path) {
    let mut text = HEAD.to_owned();
    for n in 0..1000 {
        writeln!(text, "{} W {} 16384 - 0 1500", n * 1000, n * 7919 % 1000 * 32_768).unwrap();
    }
    text.push_str("1000000 F 0 0 - 0 10\nend 1001\n");
    std::fs::write(path, text).unwrap();
}

fn plan(trace: &str, more: &str) -> String {
    format!(
        "name = \"t\"\ntitle = \"t\"\nquestion = \"q\"\nsubject = \"chunk\"\nreplicates = 2\n[rig]\n\
         drive = \"st31000333as\"\ncontroller = \"88sx6081-pci32\"\ncpu = \"opteron-244\"\n\
         block = \"linux-block-2.6.27\"\n[job]\nwork = \"trace\"\ntrace = \"{trace}\"\n{more}[factors]\n\
         chunk = [\"4K\", \"64K\"]\n[real]\nmember_size = \"16m\"\n"
    )
}

fn run(plan: &str, on: &str) -> StudyResults {
    let folder = tempfile::tempdir().unwrap();
    let study = Study::new(Plan::parse("t.toml", plan).unwrap(), on, StudyOptions::default()).unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    let outcome = study.run(&mut store, &std::sync::Arc::default(), |p| assert_eq!(p.error, None)).unwrap();
    assert_eq!((outcome.ran, outcome.failed), (4, 0));
    results(&store, outcome.run, &Weights::default()).unwrap()
}

#[test]
fn a_study_of_a_trace_on_every_target_names_a_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.trace");
    trace(&path);
    for on in ["model".to_owned(), "memory:16m".to_owned(), format!("files:{}", folder.path().display())] {
        let results = run(&plan(&path.display().to_string(), ""), &on);
        for cell in &results.cells {
            assert_eq!((cell.write.ios, cell.write.bytes, cell.read.ios), (1000, 1000 * 16_384, 0), "{on}");
            assert!(cell.seconds > 0.0 && cell.figures["flushes"] > 0.5, "{on}");
        }
        assert_eq!(results.recommendation.by_family.len(), 1, "{on}");
        assert_eq!(results.recommendation.by_family[0].family, "trace");
        assert_eq!(results.recommendation.ranking.len(), 2);
    }
    // At a tenth of the recorded speed the rig is not what limits.
    let slow = run(&plan(&path.display().to_string(), "speed = \"0.01x\"\n"), "model");
    assert!(slow.cells.iter().all(|c| c.seconds > 0.099), "{:?}", slow.cells[0].seconds);
}

#[test]
fn another_content_is_another_cell() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.trace");
    let key = || {
        let plan = Plan::parse("t.toml", &plan(&path.display().to_string(), "")).unwrap();
        Study::new(plan, "model", StudyOptions::default()).unwrap().cells()[0].key("target")
    };
    std::fs::write(&path, format!("{HEAD}0 W 0 512 - 0 5\nend 1\n")).unwrap();
    let first = key();
    std::fs::write(&path, format!("{HEAD}0 W 0 4096 - 0 5\nend 1\n")).unwrap();
    assert_ne!(first, key());
}

#[test]
fn what_is_wrong_with_a_trace_names_plan_trace_and_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.trace");
    let error = |more: &str| {
        let plan = Plan::parse("t.toml", &plan(&path.display().to_string(), more));
        match plan.map(|plan| Study::new(plan, "model", StudyOptions::default())) {
            Ok(study) => format!("{:#}", study.map(|_| ()).unwrap_err()),
            Err(error) => error.to_string(),
        }
    };
    assert!(
        error("").starts_with("t.toml:13: trace: ") && error("").contains("cannot open"),
        "{}",
        error("")
    );
    std::fs::write(&path, format!("{HEAD}0 W 0 512 - 0 5\n")).unwrap();
    assert!(error("").contains("t.trace:5: the trace is cut short after record 1"), "{}", error(""));
    std::fs::write(&path, format!("{HEAD}end 0\n")).unwrap();
    assert!(error("").starts_with("t.toml:13: ") && error("").contains("no records"), "{}", error(""));
    std::fs::write(&path, format!("{HEAD}0 W 0 512 - 0 5\nend 1\n")).unwrap();
    assert!(error("speed = \"fast\"\n").starts_with("t.toml:14: speed: 'fast'"));
}
