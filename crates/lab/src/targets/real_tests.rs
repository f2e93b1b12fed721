use std::os::unix::fs::MetadataExt;

use super::*;
use crate::plan::Plan;
use crate::recommend::Weights;
use crate::results::{CellResult, DirectionResult, StudyResults};
use crate::store::Store;
use crate::study::{Study, StudyOptions, results};

const PLAN: &str = r#"
name = "tiny"
title = "t"
question = "q"
subject = "chunk"
replicates = 2
[rig]
policy = "stripewise"
[factors]
target = ["array", "drive"]
rw = ["randrw"]
bs = ["4k", "64k"]
chunk = ["16K", "64K"]
[real]
member_size = "8m"
fill = "random"
runtime = "20ms"
"#;

fn study(on: &str, options: StudyOptions) -> Result<Study> {
    Study::new(Plan::parse("tiny.toml", PLAN)?, on, options)
}

fn run(study: &Study) -> StudyResults {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    let outcome = study.run(&mut store, &Arc::default(), |p| assert_eq!(p.error, None)).unwrap();
    assert_eq!((outcome.ran, outcome.failed, outcome.cancelled), (2 * (2 * 2 + 2), 0, false));
    results(&store, outcome.run, &Weights::default()).unwrap()
}

fn files_in(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_study_on_memory_members() {
    let results = run(&study("memory:8m", StudyOptions::default()).unwrap());
    assert!(!results.simulated);
    assert!(results.cells.iter().all(|c| c.seconds > 0.0));
    // A busy machine may let a single short cell pass without an I/O.
    let moved = results.cells.iter().filter(|c| c.read.ios > 0 && c.write.ios > 0).count();
    assert!(moved * 2 > results.cells.len(), "{moved} of {} cells", results.cells.len());
}

fn with_stack(stack: &str, factors: &str) -> StudyResults {
    let plan = PLAN.replace("[factors]", &format!("[stack]\n{stack}\n[factors]\n{factors}"));
    run(&Study::new(Plan::parse("tiny.toml", &plan).unwrap(), "memory:8m", StudyOptions::default()).unwrap())
}

#[test]
fn page_cache_and_cipher_are_those_that_are_served() {
    let cached = with_stack("memory = \"4m\"", "direct = [0]");
    let shares: Vec<f64> =
        cached.cells.iter().filter_map(|c| c.figures.get("cache_hit_share").copied()).collect();
    assert!(shares.iter().any(|share| *share > 0.0), "{shares:?}");
    let crypted = with_stack("crypt = \"aes-xts-plain64\"\ncrypt_offset = \"1m\"", "direct = [1]");
    assert!(crypted.cells.iter().all(|c| c.seconds > 0.0));
}

#[test]
fn an_old_kernels_page_cache_takes_one_request_of_a_thread_at_a_time() {
    for (policy, depth) in [("linux-6.1", 1.0), ("stripewise", 8.0)] {
        let plan = PLAN.replace("\"stripewise\"", &format!("{policy:?}\n[stack]\nmemory = \"4m\""));
        let plan = plan
            .replace("chunk = [\"16K\", \"64K\"]", "chunk = [\"16K\", \"64K\"]\niodepth = [8]\ndirect = [0]");
        let results =
            run(&Study::new(Plan::parse("tiny.toml", &plan).unwrap(), "memory:8m", StudyOptions::default())
                .unwrap());
        // Little's law; the greatest, as a cell that is short may have had little to do.
        let in_flight = |c: &CellResult| {
            let of = |d: &DirectionResult| d.ios as f64 * d.latency_mean_ns / 1e9;
            (of(&c.read) + of(&c.write)) / c.seconds
        };
        let most = results.cells.iter().map(in_flight).fold(0.0, f64::max);
        assert!((depth * 0.4..depth * 1.6).contains(&most), "{policy}: {most}");
    }
}

/// More jobs than shards, as many, and fewer; what cannot be of several threads is refused.
const SHARDS: &str = r#"
name = "tiny"
title = "t"
question = "q"
subject = "shards"
replicates = 1
[rig]
policy = "stripewise"
[job]
rw = "randrw"
runtime = "50ms"
[factors]
numjobs = [1, 2, 5]
bs = ["4k", "4m"]
shards = [1, 2, 3]
"#;

#[test]
fn several_shards_share_the_jobs_of_a_cell() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    let plan = Plan::parse("tiny.toml", SHARDS).unwrap();
    let study = Study::new(plan, "memory:32m", StudyOptions::default()).unwrap();
    let outcome = study.run(&mut store, &Arc::default(), |p| assert_eq!(p.error, None)).unwrap();
    let results = results(&store, outcome.run, &Weights::default()).unwrap();
    assert_eq!(results.cells.len(), 3 * 2 * 3);
    for cell in &results.cells {
        assert_eq!(cell.read.errors + cell.write.errors, 0, "{:?}", cell.factors);
        assert!((cell.seconds - 0.05).abs() < 1e-9, "{:?}: {}", cell.factors, cell.seconds);
    }
    // A busy machine may let a single short cell pass without an I/O.
    let moved = results.cells.iter().filter(|c| c.read.ios + c.write.ios > 0).count();
    assert!(moved * 2 > results.cells.len(), "{moved} of {} cells", results.cells.len());
}

#[test]
fn what_is_of_one_thread_is_refused_with_several_shards() {
    let refused = |text: &str, on: &str| {
        let plan = Plan::parse("tiny.toml", text).unwrap();
        format!("{:#}", Study::new(plan, on, StudyOptions::default()).err().unwrap())
    };
    let error = refused(&SHARDS.replace("[job]", "[job]\ndirect = 0"), "memory:32m");
    assert!(error.contains("page cache") && error.contains("shards to 1"), "{error}");
    let error = refused(&REBUILD.replace("failed = 1", "failed = 1\nshards = 2"), "memory:64m");
    assert!(error.contains("recovery") && error.contains("shards to 1"), "{error}");
    let error = Plan::parse("tiny.toml", &SHARDS.replace("[1, 2, 3]", "[65]")).err().unwrap().to_string();
    assert!(error.contains("'65'") && error.contains("1 to 64"), "{error}");
}

#[test]
fn a_study_on_files_leaves_the_folder_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine"), "untouched").unwrap();
    let on = format!("files:{}", folder.path().display());
    let first = study(&on, StudyOptions::default()).unwrap();
    assert_eq!(files_in(folder.path()), 1, "nothing is made before the run");
    let results = run(&first);
    assert!(results.cells.iter().any(|c| c.bytes_per_second() > 0.0));
    assert_eq!(files_in(folder.path()), 1 + 5);
    drop(first);
    assert_eq!(files_in(folder.path()), 1);

    let kept = study(&on, StudyOptions { keep: true, ..StudyOptions::default() }).unwrap();
    run(&kept);
    drop(kept);
    assert_eq!(files_in(folder.path()), 1 + 5);
    // The kept files bear this process's names: others are taken, and they stay.
    let again = study(&on, StudyOptions::default()).unwrap();
    let is_told = |note: &String| note.contains("5 member files that this run did not make");
    assert!(!results.environment.notes.iter().any(is_told));
    assert!(run(&again).environment.notes.iter().any(is_told));
    assert_eq!(files_in(folder.path()), 1 + 5 + 5);
    drop(again);
    assert_eq!(files_in(folder.path()), 1 + 5);
}

#[test]
fn members_are_filled_unless_sparse_ones_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let on = format!("files:{}", folder.path().display());
    let study = |fill: Option<Fill>| {
        let plan = Plan::parse("tiny.toml", &PLAN.replace("fill = \"random\"\n", "")).unwrap();
        Study::new(plan, &on, StudyOptions { fill, ..StudyOptions::default() }).unwrap()
    };
    let filled = study(None);
    let (all, mut told) = (5 * (8 << 20), Vec::new());
    assert_eq!((filled.target().fill_bytes(), filled.estimate(None).unwrap().fill_bytes), (all, all));
    filled.target().begin(&AtomicBool::default(), &mut |bytes| told.push(bytes)).unwrap();
    assert!(told.is_sorted() && told.len() > 5 && told.last() == Some(&all), "{told:?}");
    for made in fs::read_dir(folder.path()).unwrap() {
        let mut bytes = fs::read(made.unwrap().path()).unwrap();
        assert_eq!(bytes.len(), 8 << 20);
        assert!(bytes.split_off((8 << 20) - 512).iter().any(|byte| *byte != 0));
    }
    drop(filled);

    let sparse = study(Some(Fill::Sparse));
    assert_eq!(sparse.target().fill_bytes(), 0);
    let results = run(&sparse);
    let of_holes = |note: &String| note.contains("touches no drive");
    assert!(results.cells.iter().all(|cell| cell.notes.iter().any(of_holes)));
    assert_eq!(results.environment.notes.iter().filter(|note| of_holes(note)).count(), 1);
    assert!(results.environment.notes.iter().all(|note| !note.contains("member0.img")));
    let asked = StudyOptions { fill: Some(Fill::Random), ..StudyOptions::default() };
    for target in ["model", "memory"] {
        let refused = super::tests::study(target, asked).err().unwrap().to_string();
        assert!(refused.contains("leave --fill out"), "{refused}");
    }
}

#[test]
fn the_plans_member_size_holds_in_memory_too() {
    let name = |on: &str, member_bytes: Option<u64>| {
        study(on, StudyOptions { member_bytes, ..StudyOptions::default() }).unwrap().target().name()
    };
    assert_eq!(name("memory", None), "memory:8m");
    assert_eq!(name("memory", Some(16 << 20)), "memory:16m");
    assert_eq!(name("memory:4m", None), "memory:4m");
}

#[test]
fn who_interrupts_the_filling_of_members_does_not_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let on = format!("files:{}", folder.path().display());
    let target =
        study(&on, StudyOptions { member_bytes: Some(256 << 20), ..StudyOptions::default() }).unwrap();
    let cancel = AtomicBool::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while files_in(folder.path()) == 0 {
                std::thread::yield_now();
            }
            cancel.store(true, Ordering::Relaxed);
        });
        target.target().begin(&cancel, &mut |_| {}).unwrap();
    });
    let made: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap()).collect();
    assert_eq!(made.len(), 1);
    assert!(made[0].blocks() * 512 < 256 << 20, "{} blocks", made[0].blocks());
}

#[test]
fn a_folder_without_room_says_how_much_is_needed_and_free() {
    let folder = tempfile::tempdir().unwrap();
    let on = format!("files:{}", folder.path().display());
    let options = StudyOptions { member_bytes: Some(1 << 50), ..StudyOptions::default() };
    let study = study(&on, options).unwrap();
    let begun = study.target().begin(&AtomicBool::default(), &mut |_| {});
    for refused in [begun, study.target().check_place()] {
        let error = format!("{:#}", refused.unwrap_err());
        assert!(error.contains("need 5120 TiB") && error.contains("are free"), "{error}");
    }
    assert_eq!(files_in(folder.path()), 0);
}

/// Only root mounts.
#[test]
fn a_read_only_file_system_is_told_of_without_what_only_arrays_have() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |words: &[&str]| std::process::Command::new("mount").args(words).arg(folder.path()).status();
    if !mount(&["-t", "tmpfs", "-o", "ro", "none"]).is_ok_and(|status| status.success()) {
        return;
    }
    let on = format!("files:{}", folder.path().display());
    let study = study(&on, StudyOptions::default()).unwrap();
    let begun = study.target().begin(&AtomicBool::default(), &mut |_| {});
    std::process::Command::new("umount").arg(folder.path()).status().unwrap();
    let error = begun.unwrap_err();
    assert!(error.is::<NoRoom>(), "{error:#}");
    assert!(error.to_string().contains("read-only file system; choose a folder"), "{error:#}");
}

#[test]
fn a_run_that_cannot_be_leaves_the_one_before_it_the_latest() {
    let [folder, results] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut store = Store::open(results.path()).unwrap();
    let on = format!("files:{}", folder.path().display());
    let run = |store: &mut Store, member_bytes| {
        let options = StudyOptions { member_bytes: Some(member_bytes), ..StudyOptions::default() };
        study(&on, options).unwrap().run(store, &Arc::default(), |_| {})
    };
    let first = run(&mut store, 64 << 20).unwrap().run;
    assert!(run(&mut store, 1 << 50).is_err());
    assert_eq!(store.latest_run(None).unwrap(), first);
}

#[test]
fn a_file_system_that_would_not_be_there_is_refused() {
    let on = |target: &str, fs: &str| {
        let plan = REBUILD
            .replace("failed = 1", &format!("[stack]\nfs = \"{fs}\""))
            .replace("work = \"rebuild\"\n", "");
        let plan = plan.replace("speed_limit_min\"", "chunk\"").replace("chunk = \"64K\"\n", "");
        let plan = plan[..plan.find("speed_limit_min = ").unwrap()].to_owned() + "chunk = [\"64K\"]\n";
        Study::new(Plan::parse("tiny.toml", &plan).unwrap(), target, StudyOptions::default())
    };
    let refusal = format!("{:#}", on("memory:16m", "ext4").err().unwrap());
    assert!(refusal.contains("fs=ext4: a file system is modelled only"), "{refusal}");
    assert!(on("memory:16m", "none").is_ok());
}

#[test]
fn what_cannot_be_used_is_refused_up_front() {
    let refused = |on: &str| format!("{:#}", study(on, StudyOptions::default()).err().unwrap());
    assert!(refused("files:/nowhere/at/all").contains("/nowhere/at/all"));
    assert!(refused("files").contains("files:DIR"));
    assert!(refused("files:/proc/version").contains("not a folder"));
    assert!(refused("tape").contains("model"));
    assert!(refused("memory:900t").contains("free memory"));
    assert!(refused("memory:8q").contains("not a size"));
    assert!(refused("memory:4k").contains("chunk") || refused("memory:4k").contains("sectors"));
    let options = StudyOptions { member_bytes: Some(32 << 20), ..StudyOptions::default() };
    let twice = study("memory:16m", options).err().unwrap().to_string();
    assert!(twice.contains("memory:16m and a member size of 32m"), "{twice}");
    assert!(study("memory:32m", options).is_ok());
    let modelled = study("model", options).err().unwrap().to_string();
    assert!(modelled.contains("a modelled drive has its own"), "{modelled}");
    let plan = PLAN.replace("[factors]", "[job]\nwork = \"recover\"\n[array]\nfailed = 1\n[factors]");
    let plan = plan.replace("rw = [\"randrw\"]\nbs = [\"4k\", \"64k\"]\n", "").replace(", \"drive\"", "");
    let recover = Study::new(Plan::parse("tiny.toml", &plan).unwrap(), "memory:8m", StudyOptions::default());
    let recover = recover.err().unwrap().to_string();
    let words = "work recover is modelled only; use --on model, or work job, rebuild or trace";
    assert!(recover.contains(words), "{recover}");
    let options = StudyOptions { member_bytes: Some(1000), ..StudyOptions::default() };
    assert!(study("files:/tmp", options).err().unwrap().to_string().contains("multiple of 512"));
}

/// A member in memory is recovered while the others are read.
const REBUILD: &str = r#"
name = "tiny"
title = "t"
question = "q"
subject = "speed_limit_min"
replicates = 1
[rig]
policy = "stripewise"
[array]
chunk = "64K"
failed = 1
[job]
work = "rebuild"
rw = "randread"
iodepth = 4
runtime = "300ms"
[factors]
speed_limit_min = [1000]
speed_limit_max = [4000]
"#;

fn rebuild(member: &str) -> crate::results::CellResult {
    on_memory(REBUILD, member)
}

fn on_memory(plan: &str, member: &str) -> crate::results::CellResult {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(folder.path()).unwrap();
    let on = format!("memory:{member}");
    let study = Study::new(Plan::parse("tiny.toml", plan).unwrap(), &on, StudyOptions::default()).unwrap();
    let outcome = study.run(&mut store, &Arc::default(), |_| {}).unwrap();
    results(&store, outcome.run, &Weights::default()).unwrap().cells.remove(0)
}

#[test]
fn a_job_beside_a_recovery_in_real_time() {
    let cell = rebuild("64m");
    assert_eq!(cell.error, None);
    assert!(cell.read.ios > 0);
    // md's average counts a second too much: the first 0.3 s may recover what a whole one may.
    let rate = cell.figures["sync_kib_s"];
    assert!(rate > 0.0 && rate <= 4000.0 * (1.0 + 1.0 / 0.3) * 1.5, "{rate}");
    assert!((cell.figures["sync_total_kib"] - 65_536.0).abs() < 1.0);
}

#[test]
fn copies_are_recovered_beside_a_job_in_real_time() {
    for array in
        ["level = \"raid1\"\nraid_devices = 3", "level = \"raid10\"\nlayout = \"f2\"\nraid_devices = 4"]
    {
        let plan = REBUILD.replace("failed = 1", &format!("{array}\nfailed = 2"));
        let cell = on_memory(&plan, "64m");
        assert_eq!(cell.error, None, "{array}");
        assert!(cell.read.ios > 0 && cell.figures["sync_kib_s"] > 0.0, "{array}");
    }
}

#[test]
fn a_recovery_that_ends_before_the_job_says_what_would_be_right() {
    let error = rebuild("1m").error.unwrap();
    assert!(error.contains("larger members") && error.contains("300ms"), "{error}");
}

/// The bitmap lies between the superblock and the data of each file, where mdadm has it.
#[test]
fn an_array_of_files_keeps_a_bitmap_and_one_in_memory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plan = PLAN.replace("[factors]", "[array]\nbitmap = \"internal\"\n[factors]");
    let plan = || Plan::parse("tiny.toml", &plan).unwrap();
    let options = StudyOptions { keep: true, ..StudyOptions::default() };
    run(&Study::new(plan(), &format!("files:{}", folder.path().display()), options).unwrap());
    let is_bitmap = |entry: std::io::Result<fs::DirEntry>| {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        bytes[8192..8196] == *b"bitm"
    };
    // The first is also the drive by itself, which uses all of it.
    let kept = fs::read_dir(folder.path()).unwrap().map(is_bitmap).filter(|is_there| *is_there).count();
    assert!((4..=5).contains(&kept), "{kept}");
    let refused = Study::new(plan(), "memory:8m", StudyOptions::default()).map(drop).unwrap_err();
    assert!(format!("{refused:#}").contains("members in memory hold data alone"), "{refused:#}");
}
