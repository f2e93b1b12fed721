use std::sync::Mutex;

use super::*;
use crate::export::{export_csv, export_json};
use crate::targets::fake::FakeTarget;
use crate::targets::{CellError, Measurement};

const PLAN: &str = r#"
name = "fake"
title = "t"
question = "q"
subject = "chunk"
replicates = 5
[job]
runtime = "1s"
[factors]
target = ["array", "drive"]
rw = ["rw", "randrw"]
rwmixread = [100, 0]
chunk = ["32K", "64K", "128K"]
"#;
/// Cells of [`PLAN`].
const CELLS: usize = 5 * (2 * 2 * 3 + 2 * 2);

/// 64K is best by a tenth; sequential throughput is ten times the random one.
#[allow(clippy::unnecessary_wraps, reason = "the shape the fake takes")]
fn best_64k(cell: &Cell) -> Result<f64, CellError> {
    let chunk = if cell.parameters.array.chunk == 64 * 1024 { 1.1 } else { 1.0 };
    let order = if cell.parameters.job.rw.is_random() { 1e7 } else { 1e8 };
    Ok(chunk * order)
}

#[allow(clippy::unnecessary_wraps, reason = "the shape the fake takes")]
fn all_equal(_: &Cell) -> Result<f64, CellError> {
    Ok(1e8)
}

/// The fake is shared with the test that looks at what it ran.
struct Shared(Arc<FakeTarget>);

impl Target for Shared {
    fn name(&self) -> String {
        self.0.name()
    }
    fn describe(&self, cells: &[Cell]) -> String {
        self.0.describe(cells)
    }
    fn identity(&self, cell: &Cell) -> String {
        self.0.identity(cell)
    }
    fn is_simulated(&self) -> bool {
        self.0.is_simulated()
    }
    fn check(&self, cell: &Cell) -> Result<(), String> {
        self.0.check(cell)
    }
    fn run(&self, cell: &Cell, cancel: &Arc<AtomicBool>) -> Result<Measurement, CellError> {
        self.0.run(cell, cancel)
    }
}

struct Lab {
    folder: tempfile::TempDir,
    fake: Arc<FakeTarget>,
}

impl Lab {
    fn new(fake: FakeTarget) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), fake: Arc::new(fake) }
    }

    fn study(&self, plan: &str, choices: Choices) -> Study {
        let plan = Plan::parse("fake.toml", plan).unwrap();
        Study::with_target(plan, choices, Box::new(Shared(Arc::clone(&self.fake)))).unwrap()
    }

    fn run(&self, plan: &str, choices: Choices) -> (RunOutcome, StudyResults) {
        let mut store = Store::open(self.folder.path()).unwrap();
        let cancel = Arc::new(AtomicBool::new(false));
        let outcome = self.study(plan, choices).run(&mut store, &cancel, |_| {}).unwrap();
        let results = results(&store, outcome.run, &Weights::default()).unwrap();
        (outcome, results)
    }
}

#[test]
fn the_best_chunk_is_found_through_noise() {
    let lab = Lab::new(FakeTarget::new(best_64k, 0.03));
    let (outcome, results) = lab.run(PLAN, Choices::default());
    assert_eq!((outcome.ran, outcome.found, outcome.failed), (CELLS, 0, 0));
    let judged = &results.recommendation;
    assert_eq!(judged.best, "64K");
    assert!(judged.tied_with.is_empty(), "{:?}", judged.tied_with);
    assert!(
        judged.ranking[1..]
            .iter()
            .all(|r| r.ratio_to_best_ci.is_some_and(|ci| ci.1 < 1.0) && r.ratio_to_best > 0.85)
    );
    assert_eq!(judged.by_family.len(), 4);
    assert!(judged.commands[0].contains("--chunk=64K"), "{:?}", judged.commands);
    assert!(judged.summary.contains("64K is best"), "{}", judged.summary);
    assert_eq!(results.cells.len(), CELLS);
}

#[test]
fn a_plan_without_a_shorter_one_is_not_called_short() {
    let quick = Choices { quick: true, ..Choices::default() };
    let (_, whole) = Lab::new(FakeTarget::new(best_64k, 0.0)).run(PLAN, quick);
    assert!(
        !whole.quick && whole.environment.notes.iter().any(|note| note.contains("--quick runs all of it"))
    );
    let shorter = format!("{PLAN}\n[quick]\nreplicates = 2\n");
    let (outcome, short) = Lab::new(FakeTarget::new(best_64k, 0.0)).run(&shorter, quick);
    assert!(short.quick && outcome.ran < CELLS, "{}", outcome.ran);
}

#[test]
fn drives_on_rigs_of_their_own_are_told_of() {
    let notes = |rig: &str| {
        let plan = PLAN.replace("subject = \"chunk\"", "subject = \"drive\"");
        let plan = plan.replace("[job]", &format!("[rig]\n{rig}\n[job]"));
        let drives = "drive = [\"exos-x20-20tb\", \"st31000333as\"]";
        let plan = plan.replace("chunk = [\"32K\", \"64K\", \"128K\"]", drives);
        let (_, results) = Lab::new(FakeTarget::new(best_64k, 0.0)).run(&plan, Choices::default());
        results.environment.notes.join("\n")
    };
    let told = notes("");
    assert!(told.contains("exos-x20-20tb with ") && told.contains("opteron-244"), "{told}");
    assert!(!notes("cpu = \"epyc-7313\"\nblock = \"linux-block-6.1\"").contains("are compared on the rigs"));
}

/// Cells with a long ramp take as long as the stored ones with it did.
#[test]
fn the_estimate_goes_by_what_is_measured() {
    let lab = Lab::new(FakeTarget::new(best_64k, 0.0));
    let plan = PLAN.replace("runtime = \"1s\"", "runtime = \"1s\"\nramp_time = \"99s\"");
    lab.run(&plan, Choices::default());
    let store = Store::open(lab.folder.path()).unwrap();
    let (mean, _) = store.wall_paces().unwrap().unwrap();
    let more = lab.study(&plan, Choices { replicates: Some(10), ..Choices::default() });
    let estimate = more.estimate(Some(&store)).unwrap();
    let right = mean * estimate.missing as f64 / cores() as f64;
    let ratio = estimate.seconds.unwrap() / right;
    assert!(estimate.missing == CELLS && (0.99..1.01).contains(&ratio), "{ratio} of {right} s");
}

#[test]
fn a_subject_that_no_cell_uses_is_refused() {
    let plan = Plan::parse("fake.toml", &PLAN.replace("[job]", "[array]\nlevel = 1\n[job]")).unwrap();
    let fake = Box::new(Shared(Arc::new(FakeTarget::new(best_64k, 0.0))));
    let refused = Study::with_target(plan, Choices::default(), fake).err().unwrap().to_string();
    assert!(refused.contains("no cell uses the subject 'chunk'"), "{refused}");
}

/// The command of a study with these factors in place of [`PLAN`]'s chunks.
fn command(subject: &str, array: &str, factors: &str) -> String {
    let plan = PLAN.replace("subject = \"chunk\"", &format!("subject = \"{subject}\""));
    let plan = plan.replace("[job]", &format!("[array]\n{array}\n[job]"));
    let plan = plan.replace("chunk = [\"32K\", \"64K\", \"128K\"]", factors);
    let (_, results) = Lab::new(FakeTarget::new(best_64k, 0.0)).run(&plan, Choices::default());
    results.recommendation.commands.join("; ")
}

#[test]
fn the_command_is_of_the_arrays_that_were_studied() {
    let chunks = "chunk = [\"32K\", \"64K\"]";
    for (subject, array, factors, words) in [
        ("chunk", "level = 6", chunks, "--level=6 --raid-devices=5 --chunk=64K"),
        (
            "chunk",
            "",
            &format!("level = [\"raid6\", \"raid10\"]\n{chunks}"),
            "--level=<6|10> --raid-devices=5 --chunk=64K",
        ),
        // A RAID-1 has no chunk.
        (
            "chunk",
            "",
            &format!("level = [\"raid1\", \"raid0\"]\n{chunks}"),
            "--level=0 --raid-devices=5 --chunk=64K",
        ),
        (
            "chunk",
            "",
            &format!("level = [\"raid5\", \"raid1\", \"raid0\"]\n{chunks}"),
            "--level=<5|0> --raid-devices=5 --chunk=64K",
        ),
        (
            "chunk",
            "",
            &format!("raid_devices = [3, 4]\n{chunks}"),
            "--level=5 --raid-devices=<3|4> --chunk=64K",
        ),
        (
            "chunk",
            "level = 10",
            &format!("layout = [\"f2\", \"o2\"]\n{chunks}"),
            "--level=10 --layout=<f2|o2> --raid-devices=5 --chunk=64K",
        ),
        (
            "level",
            "",
            &format!("level = [\"raid6\"]\n{chunks}"),
            "--level=6 --raid-devices=5 --chunk=<32K|64K>",
        ),
        ("level", "", "level = [\"raid6\"]\nchunk = [\"64K\"]", "--level=6 --raid-devices=5 --chunk=64K"),
        (
            "layout",
            "",
            "layout = [\"ra\"]",
            "--level=5 --layout=right-asymmetric --raid-devices=5 --chunk=512K",
        ),
    ] {
        assert_eq!(
            command(subject, array, factors),
            format!("mdadm --create /dev/md0 {words} <devices>"),
            "{subject} {factors}"
        );
    }
}

#[test]
fn equal_chunks_are_tied() {
    let (_, results) = Lab::new(FakeTarget::new(all_equal, 0.05)).run(PLAN, Choices::default());
    assert_eq!(results.recommendation.tied_with.len(), 2, "{:#?}", results.recommendation.ranking);
    assert!(results.recommendation.summary.contains("tied"));
}

#[test]
fn a_second_run_measures_nothing_and_finds_the_same() {
    let lab = Lab::new(FakeTarget::new(best_64k, 0.03));
    let (_, first) = lab.run(PLAN, Choices::default());
    let (again, second) = lab.run(PLAN, Choices::default());
    assert_eq!((again.ran, again.found), (0, CELLS));
    assert_eq!(lab.fake.run_count(), CELLS);
    assert_eq!(first.cells, second.cells);
    assert_eq!(first.recommendation, second.recommendation);
}

#[test]
fn a_widened_plan_runs_only_what_is_new() {
    let lab = Lab::new(FakeTarget::new(best_64k, 0.03));
    lab.run(PLAN, Choices::default());
    let wider = PLAN.replace("\"128K\"]", "\"128K\", \"256K\"]").replace("t\"\n", "other title\"\n");
    let (outcome, results) = lab.run(&wider, Choices::default());
    assert_eq!((outcome.ran, outcome.found), (5 * 4, CELLS));
    assert_eq!(results.recommendation.ranking.len(), 4);
    let (more, _) = lab.run(PLAN, Choices { replicates: Some(6), ..Choices::default() });
    assert_eq!((more.ran, more.found), (CELLS / 5, CELLS));
}

#[test]
fn an_interrupted_run_resumes_where_it_was() {
    let mut fake = FakeTarget::new(best_64k, 0.03);
    fake.cancel_at = 30;
    fake.simulated = false;
    let lab = Lab::new(fake);
    let mut store = Store::open(lab.folder.path()).unwrap();
    let cancel = Arc::new(AtomicBool::new(false));
    let study = lab.study(PLAN, Choices::default());
    let mut told = Vec::new();
    let outcome = study.run(&mut store, &cancel, |p| told.push((p.done, p.total, p.eta.is_some()))).unwrap();
    assert!(outcome.cancelled);
    assert_eq!(outcome.ran, 29);
    assert_eq!(told.last(), Some(&(29, CELLS, true)));
    let partial = results(&store, outcome.run, &Weights::default()).unwrap();
    assert_eq!(partial.cells.len(), 29);
    assert!(
        partial.environment.notes.iter().any(|n| n.contains("51 of 80 cells")),
        "{:?}",
        partial.environment.notes
    );
    drop(store);
    let (resumed, _) = lab.run(PLAN, Choices::default());
    assert_eq!((resumed.ran, resumed.found), (51, 29));
    assert_eq!(lab.fake.run_count(), CELLS + 1, "only the cell that was cut off runs again");
}

#[test]
fn real_time_runs_one_at_a_time_in_a_seeded_random_order() {
    let order = |seed| {
        let mut fake = FakeTarget::new(all_equal, 0.0);
        fake.simulated = false;
        let lab = Lab::new(fake);
        lab.run(PLAN, Choices { seed: Some(seed), ..Choices::default() });
        let runs: Vec<String> = lab.fake.runs.lock().unwrap().clone();
        (runs, lab.study(PLAN, Choices::default()).cells().iter().map(Cell::label).collect::<Vec<_>>())
    };
    let (first, plan_order) = order(1);
    assert_ne!(first, plan_order);
    assert_eq!(first, order(1).0);
    assert_ne!(first, order(2).0);
}

#[test]
fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
    let figures = |seed| {
        let (_, results) = Lab::new(FakeTarget::new(best_64k, 0.03))
            .run(PLAN, Choices { seed: Some(seed), ..Choices::default() });
        results.cells.into_iter().map(|c| (c.seed, c.read.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(figures(1), figures(1));
    let (one, two) = (figures(1), figures(2));
    assert!(one.iter().zip(&two).all(|(a, b)| a.0 != b.0 && a.1 != b.1));
}

#[test]
fn a_failing_cell_is_kept_as_its_error_and_tried_again() {
    fn fails(cell: &Cell) -> Result<f64, CellError> {
        assert!(cell.replicate != 1 || cell.target() != "drive", "an invariant broke");
        if cell.replicate == 0 && cell.parameters.array.chunk == 32 * 1024 && cell.target() == "array" {
            return Err(CellError("out of room".to_owned()));
        }
        best_64k(cell)
    }
    let lab = Lab::new(FakeTarget::new(fails, 0.01));
    let (outcome, results) = lab.run(PLAN, Choices::default());
    assert_eq!((outcome.ran, outcome.failed), (CELLS, 4 + 4));
    assert_eq!(results.recommendation.best, "64K");
    let notes = results.environment.notes.join("\n");
    assert!(notes.contains("8 of 80 cells failed"), "{notes}");
    assert!(
        results.cells.iter().any(|c| c.error.as_deref().is_some_and(|e| e.contains("an invariant broke")))
    );
    let (again, _) = lab.run(PLAN, Choices::default());
    assert_eq!((again.ran, again.failed), (8, 8));
}

#[test]
fn the_estimate_counts_what_is_missing() {
    let lab = Lab::new(FakeTarget::new(best_64k, 0.0));
    let study = lab.study(PLAN, Choices::default());
    assert_eq!(
        study.estimate(None).unwrap(),
        Estimate { cells: CELLS, missing: CELLS, seconds: None, fill_bytes: 0 }
    );
    lab.run(PLAN, Choices::default());
    let store = Store::open(lab.folder.path()).unwrap();
    let estimate = study.estimate(Some(&store)).unwrap();
    assert_eq!((estimate.missing, estimate.seconds), (0, Some(0.0)));
}

#[test]
fn a_rig_factor_is_refused_on_real_storage() {
    let mut fake = FakeTarget::new(all_equal, 0.0);
    fake.simulated = false;
    let plan = Plan::parse("p.toml", &PLAN.replace("rw = [", "drive = [\"a\", \"b\"]\nrw = [")).unwrap();
    let error = Study::with_target(plan, Choices::default(), Box::new(fake)).err().unwrap().to_string();
    assert!(error.contains("'drive' varies the modelled rig"), "{error}");
}

#[test]
fn exports_hold_every_cell() {
    let lab = Lab::new(FakeTarget::new(best_64k, 0.01));
    let (_, results) = lab.run(PLAN, Choices::default());
    let csv = export_csv(&results);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), CELLS + 1);
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns));
    assert!(
        lines[0]
            .starts_with("study,simulated,key,target,replicate,seed,bs,chunk,iodepth,numjobs,rw,rwmixread,")
    );
    let read: StudyResults = serde_json::from_str(&export_json(&results).unwrap()).unwrap();
    assert_eq!(read, results);
}

#[test]
fn a_csv_has_a_column_for_each_figure() {
    let lab = Lab::new(FakeTarget::new(best_64k, 0.01));
    let (_, mut results) = lab.run(PLAN, Choices::default());
    results.cells[1].figures =
        [("cpu_busy_share".to_owned(), 0.5), ("sync_kib_s".to_owned(), 19430.5)].into();
    let csv = export_csv(&results);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].ends_with(",write_max_ns,cpu_busy_share,sync_kib_s,error,notes"), "{}", lines[0]);
    assert!(lines[1].ends_with(",,,,"), "{}", lines[1]);
    assert!(lines[2].ends_with(",0.5,19430.5,,"), "{}", lines[2]);
}

#[test]
fn what_a_failed_cell_has_not_is_empty_in_the_csv() {
    let lab = Lab::new(FakeTarget::new(best_64k, 0.01));
    let (_, mut results) = lab.run(PLAN, Choices::default());
    results.cells[0].error = Some("it failed".to_owned());
    let csv = export_csv(&results);
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let column = |name: &str| rows[0].iter().position(|column| *column == name).unwrap();
    for name in ["seconds", "bytes_per_second", "read_ios", "write_max_ns"] {
        assert_eq!(rows[1][column(name)], "", "{name}");
    }
    // The others read, and wrote nothing.
    assert!(rows[2][column("seconds")] == "1" && rows[2][column("write_ios")] == "0");
    assert!(rows[2][column("write_p99_ns")].is_empty());
}

#[test]
fn progress_comes_on_the_callers_thread_once_per_cell() {
    let lab = Lab::new(FakeTarget::new(best_64k, 0.0));
    let mut store = Store::open(lab.folder.path()).unwrap();
    let told = Mutex::new(0);
    let caller = std::thread::current().id();
    let cancel = Arc::new(AtomicBool::new(false));
    lab.study(PLAN, Choices::default())
        .run(&mut store, &cancel, |_| {
            assert_eq!(std::thread::current().id(), caller);
            *told.lock().unwrap() += 1;
        })
        .unwrap();
    assert_eq!(*told.lock().unwrap(), CELLS);
}

/// What is found in the store was measured under what its notes say.
#[test]
fn notes_stay_with_the_cells_they_are_of() {
    let measured = |results: &StudyResults| -> Vec<String> {
        let notes = results.environment.notes.iter();
        // Those of the recommendation are of no cell.
        let is_of_cell =
            |note: &&String| !note.contains("write-intent bitmap") && !note.contains("policy stripewise");
        notes.filter(is_of_cell).cloned().collect()
    };
    let noted = |notes: &[&str]| {
        let mut fake = FakeTarget::new(best_64k, 0.0);
        fake.notes = notes.iter().map(|note| (*note).to_owned()).collect();
        Arc::new(fake)
    };
    let mut lab = Lab::new(FakeTarget::new(best_64k, 0.0));
    lab.fake = noted(&["no O_DIRECT"]);
    assert_eq!(measured(&lab.run(PLAN, Choices::default()).1), ["no O_DIRECT"]);
    lab.fake = noted(&["sparse"]);
    let (outcome, results) = lab.run(PLAN, Choices::default());
    assert_eq!((outcome.ran, outcome.found), (0, CELLS));
    assert_eq!(measured(&results), ["no O_DIRECT"]);
    let wider = PLAN.replace("\"128K\"]", "\"128K\", \"256K\"]");
    let (outcome, results) = lab.run(&wider, Choices::default());
    let all = CELLS + outcome.ran;
    let told =
        [format!("no O_DIRECT ({CELLS} of {all} cells)"), format!("sparse ({} of {all} cells)", outcome.ran)];
    assert_eq!(measured(&results), told);
    assert!(export_csv(&results).lines().nth(1).unwrap().ends_with(",no O_DIRECT"));
    assert!(export_json(&results).unwrap().contains("\"notes\": [\n        \"sparse\"\n"));
}
