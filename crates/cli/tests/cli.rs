//! The command as a user meets it: files, exit codes, messages.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A plan of a few short cells.
const SMALL: &str = r#"
name = "small"
title = "A small study"
question = "Which chunk?"
subject = "chunk"
replicates = 2
[rig]
drive = "st31000333as"
count = 4
controller = "88sx6081-pci32"
cpu = "opteron-244"
block = "linux-block-2.6.27"
policy = "linux-2.6.27"
[array]
level = "5"
raid_devices = 4
[job]
runtime = "500ms"
[factors]
rw = ["randread", "randwrite"]
bs = ["4k", "64k"]
chunk = ["16K", "64K"]
[real]
member_size = "16m"
runtime = "30ms"
"#;

fn stripewise(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stripewise"));
    command.current_dir(folder).args(args).stdin(Stdio::null()).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stdout(output)))
}

fn folder_with_plan(text: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("plan.toml"), text).unwrap();
    folder
}

/// Throughputs by key, which do not depend on when or where a cell ran.
fn figures(output: &Output) -> Vec<(String, u64, u64)> {
    let results = json(output);
    let mut figures: Vec<_> = results["cells"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            let ios = c["read"]["ios"].as_u64().unwrap() + c["write"]["ios"].as_u64().unwrap();
            let p99 = c["read"]["latency_p99_ns"].as_u64().unwrap()
                + c["write"]["latency_p99_ns"].as_u64().unwrap();
            (c["key"].as_str().unwrap().to_owned(), ios, p99)
        })
        .collect();
    figures.sort();
    figures
}

#[test]
fn a_study_runs_recommends_and_writes_its_report() {
    let folder = folder_with_plan(SMALL);
    let output = stripewise(folder.path(), &["study", "run", "plan.toml"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("simulated") && text.contains("Recommendation: "), "{text}");
    assert!(text.contains("mdadm --create") && text.contains("--chunk="), "{text}");
    let report = folder.path().join("stripewise-results/small/report.html");
    let html = std::fs::read_to_string(report).unwrap();
    assert!(html.contains("simulated") && html.contains("<span>mdadm</span> <span>--create</span>"));

    let words = "--seed 9 --replicates 1 --results 'other folder'";
    let given =
        ["study", "run", "plan.toml", "--seed", "9", "--replicates", "1", "--results", "other folder"];
    assert_eq!(code(&stripewise(folder.path(), &given)), 0);
    let html = std::fs::read_to_string(folder.path().join("other folder/report.html")).unwrap();
    let command = format!("stripewise study run plan.toml --on model {words}");
    assert!(html.replace("&#39;", "'").contains(&command), "what runs it again is what ran it");

    let shown = stripewise(folder.path(), &["study", "show", "small", "--json"]);
    assert_eq!(json(&shown)["cells"].as_array().unwrap().len(), 16);
    let csv = stdout(&stripewise(folder.path(), &["study", "export", "small"]));
    assert_eq!(csv.lines().count(), 17, "a line of names and one for each cell");
    let weighed = |weight: &str| stripewise(folder.path(), &["study", "show", "small", "--weight", weight]);
    let shown = stdout(&weighed("random-read=3"));
    assert!(shown.contains("Weights, 1 where none is told: random-read=3\n"), "{shown}");
    assert!(stderr(&weighed("mkfs=3")).contains("no workload of the family 'mkfs'"));
    let again = stripewise(folder.path(), &["study", "report", "small", "-o", "other.html"]);
    assert_eq!(code(&again), 0);
    assert!(folder.path().join("other.html").exists());
}

#[test]
fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
    let run = |seed: &str| {
        let folder = folder_with_plan(SMALL);
        let output = stripewise(folder.path(), &["study", "run", "plan.toml", "--json", "--seed", seed]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        figures(&output)
    };
    let first = run("7");
    assert_eq!(first, run("7"));
    let other = run("8");
    assert!(first.iter().zip(&other).all(|(a, b)| a.0 != b.0), "other seeds are other cells");
    let numbers = |f: &[(String, u64, u64)]| {
        let mut numbers: Vec<_> = f.iter().map(|(_, ios, p99)| (*ios, *p99)).collect();
        numbers.sort_unstable();
        numbers
    };
    assert_ne!(numbers(&first), numbers(&other));
}

#[test]
fn what_is_in_the_store_is_not_run_again_and_a_wider_study_runs_only_what_is_new() {
    let folder = folder_with_plan(SMALL);
    assert_eq!(code(&stripewise(folder.path(), &["study", "run", "plan.toml"])), 0);
    let dry = |name: &str| {
        let output = stripewise(
            folder.path(),
            &["study", "run", name, "--dry-run", "--json", "--results", "stripewise-results/small"],
        );
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        json(&output)["missing"].as_u64().unwrap()
    };
    assert_eq!(dry("plan.toml"), 0);
    let times = || {
        let shown = json(&stripewise(folder.path(), &["study", "show", "small", "--json"]));
        ["started", "finished", "wall_seconds"].map(|name| shown["environment"][name].clone())
    };
    let measured = times();
    assert!(measured[2].as_f64().unwrap() > 0.0, "{measured:?}");
    assert_eq!(code(&stripewise(folder.path(), &["study", "run", "plan.toml"])), 0);
    assert_eq!(times(), measured, "nothing was measured anew");
    let wider = SMALL.replace(r#"chunk = ["16K", "64K"]"#, r#"chunk = ["16K", "64K", "256K"]"#);
    std::fs::write(folder.path().join("wider.toml"), wider).unwrap();
    assert_eq!(dry("wider.toml"), 8);
}

#[test]
fn a_study_runs_on_memory_and_on_files_and_leaves_nothing_behind() {
    let folder = folder_with_plan(SMALL);
    std::fs::create_dir(folder.path().join("members")).unwrap();
    for on in ["memory", "files:members"] {
        let output = stripewise(folder.path(), &["study", "run", "plan.toml", "--on", on, "--json"]);
        assert_eq!(code(&output), 0, "{on}: {}", stderr(&output));
        let results = json(&output);
        assert_eq!(results["simulated"], false);
        assert!(results["cells"].as_array().unwrap().iter().all(|c| c["error"].is_null()), "{results}");
    }
    let left = std::fs::read_dir(folder.path().join("members")).unwrap().count();
    assert_eq!(left, 0, "member files are removed");
    let output = stripewise(
        folder.path(),
        &["study", "run", "plan.toml", "--on", "files:members", "--keep", "--seed", "9"],
    );
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(std::fs::read_dir(folder.path().join("members")).unwrap().count() >= 4, "and kept when asked");
}

#[test]
fn a_study_in_which_nothing_completed_says_so_and_fails() {
    let folder = folder_with_plan(&SMALL.replace("runtime = \"500ms\"", "runtime = \"1us\""));
    for run in ["the first", "that finds the results"] {
        let output = stripewise(folder.path(), &["study", "run", "plan.toml"]);
        assert_eq!(code(&output), 3, "{run}: {}", stderr(&output));
        assert!(stderr(&output).contains("no I/O completed in any cell"), "{}", stderr(&output));
    }
}

/// Both signals wait for a process that is stopped, and come at once.
#[test]
fn who_ends_a_bench_at_once_leaves_no_member_file() {
    let folder = TempDir::new().unwrap();
    let args = ["bench", "--on", "files:.", "--member-size", "16m", "--runtime", "60s"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_stripewise"));
    let mut child = command.current_dir(folder.path()).args(args).stdout(Stdio::null()).spawn().unwrap();
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    while files() < 5 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for name in ["STOP", "INT", "TERM", "CONT"] {
        let status = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(files(), 0);
}

#[test]
fn impossible_plans_say_file_line_and_what_would_be_right() {
    let cases = [
        ("[job]", "[job]\nblocksize = \"4k\"", "blocksize"),
        ("raid_devices = 4", "raid_devices = 0", "raid_devices"),
        ("raid_devices = 4", "raid_devices = 9", "9"),
        ("level = \"5\"\nraid_devices = 4", "level = \"6\"\nraid_devices = 3", "at least 4"),
        ("[\"16K\", \"64K\"]", "[\"16K\", \"48K\"]", "power of two"),
        ("[\"16K\", \"64K\"]", "[]", "chunk"),
        ("bs = [\"4k\", \"64k\"]", "bs = [\"4k\", \"700\"]", "512"),
        ("policy = \"linux-2.6.27\"", "policy = \"linux-9\"", "linux-6.1"),
        ("drive = \"st31000333as\"", "drive = \"nosuch\"", "nosuch"),
        ("replicates = 2", "replicates = 0", "replicates"),
        ("subject = \"chunk\"", "subject = \"colour\"", "colour"),
        ("[factors]", "[factors", "plan.toml"),
    ];
    for (from, to, said) in cases {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "{from} is in the plan");
        let folder = folder_with_plan(&text);
        let output = stripewise(folder.path(), &["study", "run", "plan.toml"]);
        assert_eq!(code(&output), 2, "{to}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{to}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{to}: {}", stderr(&output));
        assert!(!folder.path().join("stripewise-results").exists(), "{to}: nothing was done");
    }
}

#[test]
fn impossible_arguments_are_refused_with_exit_code_2() {
    let folder = folder_with_plan(SMALL);
    std::fs::write(folder.path().join("small.img"), "small").unwrap();
    let cases: [(&[&str], &str); 38] = [
        (&["study", "run", "nosuch"], "chunk-size"),
        (&["study", "run", "nosuch.toml"], "nosuch.toml"),
        (&["study", "run", "plan.toml", "--on", "tape"], "memory"),
        (&["study", "run", "plan.toml", "--on", "files:/nonexistent/dir"], "/nonexistent/dir"),
        (&["study", "run", "plan.toml", "--weight", "night=3"], "random-read"),
        (&["study", "run", "plan.toml", "--weight", "random=-1"], "-1"),
        (
            &["study", "run", "plan.toml", "--weight", "mkfs=2"],
            "no workload of the family 'mkfs'; its families are ",
        ),
        (&["study", "run", "plan.toml", "--replicates", "0"], "replicates"),
        (&["study", "show", "nothing-here"], "study run"),
        (&["study", "run", "plan.toml", "--results", "small.img/results"], "small.img/results"),
        (&["study", "run", "plan.toml", "--results", "small.img"], "name a folder, or a path"),
        (&["models", "show", "nosuch"], "nosuch"),
        (&["bench", "--level", "6", "--raid-devices", "3"], "at least 4"),
        (&["bench", "--level", "7"], "7"),
        (&["bench", "--chunk", "48K"], "power of two"),
        (&["bench", "--level", "0", "--chunk", "6K"], "multiple of 4K"),
        (&["bench", "--bs", "0"], "bs"),
        (&["bench", "--rw", "sideways"], "randread"),
        (&["bench", "--runtime", "yesterday"], "runtime"),
        (&["bench", "--on", "memory", "--member-size", "1"], "member"),
        (&["bench", "--shards", "0"], "1 to 64"),
        (&["bench", "--on", "memory", "--drive", "st31000333as"], "--drive: sets a part of the modelled rig"),
        (&["bench", "--on", "files:.", "--cpu", "nosuch"], "--cpu"),
        (&["bench", "--on", "memory:16m", "--member-size", "8m"], "once"),
        (&["bench", "--member-size", "8m"], "has its own"),
        (&["bench", "--on", "files:.", "--member-size", "900t"], "are free"),
        (&["models", "calibrate", "small.img"], "too small"),
        (&["study", "sensitivity", "stride", "--model", "nosuch"], "nosuch: no such model"),
        (&["bench", "--bs", "64k", "--size", "32k"], "does not fit in size 32k"),
        (&["models", "calibrate", "nosuch.img"], "nosuch.img"),
        (
            &["models", "calibrate", "small.img", "-o", "./small.img"],
            "is the drive to measure, which is only read",
        ),
        (&["bench", "--rw", "randwrite", "--run_fsync", "1"], "run=4k"),
        (&["models", "calibrate", "--output", "nosuch/model.toml"], "nosuch/model.toml"),
        (&["luks", "dump", "nosuch.img"], "nosuch.img"),
        (&["luks", "dump", "small.img"], "no LUKS header"),
        (&["bench", "--shards", "2"], "modelled"),
        (&["bench", "--raid-devices", "9"], "'88sx6081-pci32:8 + 88sx6081-pci32'"),
        (&["bench", "--on", "memory", "--member-size", "8m", "--shards", "2", "--direct", "0"], "page cache"),
    ];
    for (args, said) in cases {
        let output = stripewise(folder.path(), args);
        assert_eq!(code(&output), 2, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn bench_takes_fios_names_on_every_target() {
    let folder = TempDir::new().unwrap();
    let job = ["--rw=randrw", "--rwmixread=70", "--bs=4k", "--iodepth=4", "--numjobs=2", "--runtime=200ms"];
    for target in [
        &["--on", "model"][..],
        &["--on", "memory", "--member-size", "8m"],
        &["--on", "files:.", "--member-size", "8m"],
        &["--on", "memory", "--member-size", "8m", "--shards", "2"],
        &["--on", "files:.", "--member-size", "8m", "--shards", "3"],
    ] {
        for (level, chunk) in [
            ("0", "64k"),
            ("0", "12k"),
            ("1", "64k"),
            ("4", "64k"),
            ("5", "64k"),
            ("6", "64k"),
            ("10", "64k"),
        ] {
            let mut args = vec!["bench", "--json", "--level", level];
            args.extend((level != "1").then_some(["--chunk", chunk]).into_iter().flatten());
            args.extend(target);
            args.extend(job);
            let output = stripewise(folder.path(), &args);
            assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
            let document = json(&output);
            assert!(document["read"]["ios"].as_u64().unwrap() > 0, "{args:?}");
            assert!(document["write"]["ios"].as_u64().unwrap() > 0, "{args:?}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn bench_says_which_options_make_no_difference_and_that_nothing_completed() {
    let folder = TempDir::new().unwrap();
    let notes = |args: &[&str]| {
        let output = stripewise(folder.path(), &[&["bench", "--json", "--runtime", "1s"], args].concat());
        assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
        json(&output)["notes"].to_string()
    };
    for (args, option) in [
        (&["--level", "1", "--chunk", "64K"][..], "--chunk"),
        (&["--level", "0", "--stripe-cache-size", "512"], "--stripe-cache-size"),
        (&["--rw", "write", "--rwmixread", "30"], "--rwmixread"),
        (&["--rw", "write", "--rwmixwrite", "30"], "--rwmixwrite"),
        (&["--readahead", "128"], "--readahead"),
        (&["--dirty_ratio", "30"], "--dirty_ratio"),
        (&["--target", "drive", "--level", "5"], "--level"),
    ] {
        assert_eq!(notes(args), format!("[\"{option} has no effect here\"]"), "{args:?}");
    }
    assert_eq!(notes(&["--level", "5", "--chunk", "64K", "--rw", "randrw", "--rwmixread", "3"]), "[]");
    let nothing = stripewise(folder.path(), &["bench", "--json", "--runtime", "1s", "--bs", "1g"]);
    assert_eq!(code(&nothing), 3, "{}", stderr(&nothing));
    assert!(json(&nothing)["notes"].to_string().contains("no I/O completed"));
}

#[test]
fn reads_may_be_told_by_the_writes_beside_them() {
    let folder = TempDir::new().unwrap();
    let bench = |args: &[&str]| {
        stripewise(
            folder.path(),
            &[&["bench", "--json", "--runtime", "1ms", "--rw", "randrw"], args].concat(),
        )
    };
    let told = json(&bench(&["--rwmixwrite", "30"]));
    assert_eq!(told["parameters"]["rwmixread"], "70");
    // Nothing happens in a millisecond of a mechanical drive; the shares are of that millisecond.
    assert!(told["figures"]["cpu_busy_share"].as_f64().unwrap() < 0.01, "{told}");
    for args in [&["--rwmixwrite", "101"][..], &["--rwmixwrite", "30", "--rwmixread", "70"]] {
        assert_eq!(code(&bench(args)), 2, "{args:?}");
    }
    let negative = bench(&["--iodepth", "-1"]);
    assert!(stderr(&negative).contains("--iodepth: '-1'"), "{}", stderr(&negative));
}

#[test]
fn the_table_of_itself_has_rows_with_verdicts_and_names_what_is_absent() {
    let folder = TempDir::new().unwrap();
    let bench = |args: &[&str]| stripewise(folder.path(), &[&["bench", "--quick", "--self"], args].concat());
    let output = bench(&["control", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let document = json(&output);
    assert_eq!(document["schema"], "stripewise.bench-self/1");
    let row = &document["rows"][0];
    assert!(row["ours"].as_f64().unwrap() > 0.0, "{row}");
    assert!(["met", "missed"].contains(&row["verdict"].as_str().unwrap()), "{row}");
    let output = bench(&["peers"]);
    assert!(stdout(&output).contains("tests/bench/peers.py"), "{}", stdout(&output));
    for (args, says) in [(&["nothing-like-it"][..], "no row"), (&["control", "--level", "5"][..], "fixed")] {
        let output = bench(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(stderr(&output).contains(says), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn every_parameter_of_every_model_has_a_unit_and_a_source() {
    let folder = TempDir::new().unwrap();
    let models = json(&stripewise(folder.path(), &["models", "list", "--json"]));
    for model in models["models"].as_array().unwrap() {
        let name = model["name"].as_str().unwrap();
        let shown = json(&stripewise(folder.path(), &["models", "show", name, "--json"]));
        for parameter in shown["parameters"].as_array().unwrap() {
            assert!(!parameter["unit"].as_str().unwrap().is_empty(), "{name}: {parameter}");
            assert!(!parameter["source"].as_str().unwrap().is_empty(), "{name}: {parameter}");
            let kind = parameter["kind"].as_str().unwrap();
            assert!(["quoted", "derived", "assumed", "measured"].contains(&kind), "{name}: {parameter}");
        }
    }
}

#[test]
fn a_reader_that_leaves_the_pipe_is_no_error() {
    let folder = folder_with_plan(SMALL);
    let mut child = Command::new(env!("CARGO_BIN_EXE_stripewise"))
        .current_dir(folder.path())
        .args(["models", "show", "st31000333as"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn a_full_output_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["models", "list"][..], &["--help"], &["bench", "--help"], &["--version"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_stripewise"))
            .current_dir(folder.path())
            .args(args)
            .stdout(full)
            .output()
            .unwrap();
        assert_eq!(code(&output), 1, "{args:?}");
        let said = stderr(&output);
        assert!(said.starts_with("stripewise: standard output: No space left"), "{args:?}: {said}");
    }
}

#[test]
fn what_is_no_file_or_device_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    for args in [["models", "calibrate", "pipe"], ["models", "calibrate", "."], ["luks", "dump", "pipe"]] {
        let output = stripewise(folder.path(), &args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(stderr(&output).contains("regular file"), "{}", stderr(&output));
    }
}

#[test]
fn an_interrupted_study_goes_on_where_it_stopped() {
    let long = SMALL
        .replace("runtime = \"500ms\"", "runtime = \"400s\"")
        .replace("replicates = 2", "replicates = 9");
    let folder = folder_with_plan(&long);
    let child = Command::new(env!("CARGO_BIN_EXE_stripewise"))
        .current_dir(folder.path())
        .args(["study", "run", "plan.toml"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    assert!(stderr(&output).contains("run the same command again to continue"), "{}", stderr(&output));
    let dry = json(&stripewise(folder.path(), &["study", "run", "plan.toml", "--dry-run", "--json"]));
    let (cells, missing) = (dry["cells"].as_array().unwrap().len() as u64, dry["missing"].as_u64().unwrap());
    assert!(missing > 0 && missing <= cells, "{missing} of {cells} are left");
}

/// Results on a read-only medium, or of another user.
#[test]
fn results_are_shown_where_nothing_may_be_written() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let folder = folder_with_plan(SMALL);
    assert_eq!(code(&stripewise(folder.path(), &["study", "run", "plan.toml", "--results", "there"])), 0);
    let allow =
        |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let there = folder.path().join("there");
    // Whoever runs the tests, the program runs as a user to whom the folder is closed.
    let program = folder.path().join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_stripewise"), &program).unwrap();
    allow(folder.path(), 0o755);
    allow(&there, 0o555);
    for file in std::fs::read_dir(&there).unwrap() {
        allow(&file.unwrap().path(), 0o444);
    }
    let mut command = Command::new(&program);
    command.current_dir(folder.path()).args(["study", "show", "there", "--json"]).stdin(Stdio::null());
    if std::fs::write(there.join("try"), "").is_ok() {
        std::fs::remove_file(there.join("try")).unwrap();
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    allow(&there, 0o755);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(json(&output)["schema"], "stripewise.study/1");
}

/// docs/json.md lists every schema.
#[test]
fn every_document_names_its_schema_and_is_described() {
    let folder = folder_with_plan(SMALL);
    assert_eq!(code(&stripewise(folder.path(), &["study", "run", "plan.toml"])), 0);
    let described =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap();
    for args in [
        &["study", "list", "--json"][..],
        &["study", "run", "plan.toml", "--json"],
        &["study", "run", "plan.toml", "--json", "--dry-run"],
        &["study", "show", "small", "--json"],
        &["study", "export", "small", "--format", "json"],
        &["study", "report", "small", "--json"],
        &["models", "list", "--json"],
        &["models", "show", "st31000333as", "--json"],
        &["bench", "--json", "--runtime", "200ms"],
        &["sim", "swarm", "--json", "--seeds", "1"],
        &["sim", "replay", "1", "--json"],
    ] {
        let output = stripewise(folder.path(), args);
        assert_eq!(code(&output), 0, "{args:?}: {}", stderr(&output));
        let schema =
            json(&output)["schema"].as_str().unwrap_or_else(|| panic!("{args:?} names none")).to_owned();
        assert!(described.contains(&format!("`{schema}`")), "docs/json.md does not describe {schema}");
    }
}

#[test]
fn a_folder_with_results_of_another_study_says_so() {
    let folder = folder_with_plan(SMALL);
    std::fs::write(folder.path().join("other.toml"), SMALL.replace("\"small\"", "\"other\"")).unwrap();
    for (plan, word) in [("plan.toml", ""), ("other.toml", "holds results of 'small'"), ("other.toml", "")] {
        let output = stripewise(folder.path(), &["study", "run", plan, "--results", "r"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
        assert_eq!(stderr(&output).contains("holds results"), !word.is_empty(), "{}", stderr(&output));
    }
}

#[test]
fn a_study_beside_another_says_only_that_it_waits_for_it() {
    let folder = folder_with_plan(SMALL);
    std::fs::write(folder.path().join("other.toml"), SMALL.replace("\"small\"", "\"other\"")).unwrap();
    let args = |plan| ["study", "run", plan, "--results", "r", "--on", "memory"];
    assert_eq!(code(&stripewise(folder.path(), &args("other.toml"))), 0);
    let taken = std::fs::File::open(folder.path().join("r")).unwrap();
    taken.lock().unwrap();
    let output = stripewise(folder.path(), &[&args("plan.toml")[..], &["--seed", "9"]].concat());
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("another run on real storage is in progress"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("report"), "{}", stderr(&output));
}

#[test]
fn a_results_folder_with_a_file_that_is_no_report_keeps_it() {
    let folder = folder_with_plan(SMALL);
    let report = folder.path().join("r/report.html");
    std::fs::create_dir(folder.path().join("r")).unwrap();
    std::fs::write(&report, "<!doctype html><title>Somebody's quarterly report</title>").unwrap();
    let run = ["study", "run", "plan.toml", "--results", "r"];
    for args in [&run[..], &[&run[..], &["--dry-run"]].concat()] {
        let output = stripewise(folder.path(), args);
        assert_eq!(code(&output), 2, "{args:?}: {}", stderr(&output));
        let words = "r/report.html: is no report of a study, and the report would replace it; move it away, or choose";
        assert!(stderr(&output).contains(words), "{args:?}: {}", stderr(&output));
    }
    assert!(!folder.path().join("r/store.sqlite").exists(), "nothing was done");
    for content in ["", "a report"] {
        if content.is_empty() {
            std::fs::write(&report, content).unwrap();
        }
        assert_eq!(
            code(&stripewise(folder.path(), &run)),
            0,
            "an empty file, and {content}, may be replaced"
        );
    }
    std::fs::write(&report, "notes of one's own").unwrap();
    let written = stripewise(folder.path(), &["study", "report", "r"]);
    assert_eq!(code(&written), 2, "{}", stderr(&written));
    assert!(stderr(&written).contains("--output"), "{}", stderr(&written));
    assert_eq!(
        code(&stripewise(folder.path(), &["study", "verify", "stride", "--quick", "--results", "v"])),
        0
    );
    std::fs::write(folder.path().join("v/stride/report.html"), "notes of one's own").unwrap();
    let verified = stripewise(folder.path(), &["study", "verify", "stride", "--quick", "--results", "v"]);
    assert_eq!(code(&verified), 2, "{}", stderr(&verified));
}

#[test]
fn an_output_does_not_take_the_place_of_results() {
    let folder = folder_with_plan(SMALL);
    assert_eq!(code(&stripewise(folder.path(), &["study", "run", "plan.toml"])), 0);
    let before = json(&stripewise(folder.path(), &["study", "show", "small", "--json"]));
    let store = "stripewise-results/small/store.sqlite";
    let log = format!("{store}-wal");
    for file in [store, &log] {
        for args in
            [&["study", "export", "small"][..], &["study", "report", "small"], &["models", "calibrate"]]
        {
            let output = stripewise(folder.path(), &[args, &["-o", file]].concat());
            assert_eq!(code(&output), 2, "{args:?}: {}", stderr(&output));
            assert!(stderr(&output).contains("results of a study"), "{args:?}: {}", stderr(&output));
        }
    }
    assert_eq!(json(&stripewise(folder.path(), &["study", "show", "small", "--json"])), before);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = folder_with_plan(SMALL);
    std::fs::write(folder.path().join("taken"), "a file").unwrap();
    let output = stripewise(folder.path(), &["study", "run", "plan.toml", "--results", "taken"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    let words = "results folder taken: not a directory; name a folder, or a path that does not exist yet";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
    let full =
        stripewise(folder.path(), &["study", "run", "plan.toml", "--on", "files:.", "--member-size", "900t"]);
    assert!(code(&full) != 0 && stderr(&full).contains("free"), "{}", stderr(&full));
    assert_eq!(
        std::fs::read_dir(folder.path())
            .unwrap()
            .filter(|e| { e.as_ref().unwrap().file_name().to_string_lossy().contains("member") })
            .count(),
        0,
        "no member file is left"
    );
}

#[test]
fn a_dry_run_refuses_what_a_run_would() {
    let folder = folder_with_plan(SMALL);
    std::fs::create_dir(folder.path().join("r")).unwrap();
    std::fs::write(
        folder.path().join("r/store.sqlite"),
        "no database at all, however long it is. ".repeat(40),
    )
    .unwrap();
    for more in [&["--dry-run"][..], &[]] {
        let output =
            stripewise(folder.path(), &[&["study", "run", "plan.toml", "--results", "r"], more].concat());
        assert_eq!(code(&output), 1, "{more:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("damaged or not a store"), "{more:?}: {}", stderr(&output));
    }
}

#[test]
fn sparse_members_are_asked_for_and_noted_beside_the_figures() {
    let folder = folder_with_plan(SMALL);
    let notes = |fill: &[&str]| {
        let args = [
            "bench",
            "--json",
            "--on",
            "files:.",
            "--member-size",
            "8m",
            "--rw",
            "randread",
            "--runtime",
            "50ms",
        ];
        let output = stripewise(folder.path(), &[&args[..], fill].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        json(&output)["notes"].to_string()
    };
    assert!(!notes(&[]).contains("touches no drive"));
    assert!(notes(&["--fill", "sparse"]).contains("touches no drive"));
    assert!(
        notes(&["--size", "900g"]).contains("size 900g reaches beyond the target's end: 32m from offset 0")
    );

    let sparse = ["study", "run", "plan.toml", "--on", "files:.", "--fill", "sparse"];
    for run in ["first", "from the store"] {
        let output = stripewise(folder.path(), &sparse);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert_eq!(stdout(&output).matches("touches no drive").count(), 1, "{run}: {}", stdout(&output));
    }
    for told in [
        &["show", "small"][..],
        &["show", "small", "--json"],
        &["export", "small"],
        &["report", "small", "-o", "-"],
    ] {
        let output = stripewise(folder.path(), &[&["study"], told].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stdout(&output).contains("touches no drive"), "{told:?}");
    }
    assert!(!folder.path().join("-").exists());
    let report = std::fs::read_to_string(folder.path().join("stripewise-results/small/report.html")).unwrap();
    assert!(report.contains("--on files:. --fill sparse"), "the command that runs it again");
}

#[test]
fn a_dry_run_tells_of_filling_and_of_what_it_does_not_know() {
    let folder = folder_with_plan(SMALL);
    let plan = SMALL
        .replace("runtime = \"500ms\"", "size = \"1m\"\ntime_based = 0\nruntime = \"0s\"")
        .replace("runtime = \"30ms\"\n", "");
    std::fs::write(folder.path().join("sized.toml"), plan).unwrap();
    let dry = |name: &str, more: &[&str]| {
        let output = stripewise(
            folder.path(),
            &[&["study", "run", name, "--dry-run", "--on", "files:."], more].concat(),
        );
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        output
    };
    let text = stdout(&dry("plan.toml", &[]));
    assert!(text.contains("filled with 64 MiB of random bytes, 0:01 at 200 MB/s"), "{text}");
    assert!(!stdout(&dry("plan.toml", &["--fill", "sparse"])).contains("are filled with"));
    let document = json(&dry("sized.toml", &["--json"]));
    assert!(document["seconds"].is_null(), "{document}");
    assert_eq!(document["fill_bytes"], 64 << 20);
    let text = stdout(&dry("sized.toml", &[]));
    assert!(text.contains("the duration of 16 of them is unknown"), "{text}");
}
