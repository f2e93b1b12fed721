//! What a server says, and what it refuses.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{blanks, command, finish, json, ok, pattern, refused, server, signal, stderr};

/// A RAID-5 on `a.img`, `b.img` and `c.img`; `s.img` is blank.
fn array() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    blanks(folder.path(), &["a.img", "b.img", "c.img", "s.img"], 4 << 20);
    let create = "create -l 5 -n 3 -c 16K --data-offset 1M --assume-clean --name t a.img b.img c.img";
    ok(folder.path(), create, b"");
    folder
}

fn served(folder: &Path) -> Child {
    server(folder, "serve a.img b.img c.img --socket nbd.sock --control c.sock", "nbd.sock")
}

/// Cuts a member to nothing, as somebody else would.
fn cut(folder: &Path, member: &str) {
    fs::File::options().write(true).open(folder.join(member)).unwrap().set_len(0).unwrap();
}

/// Waits until the server counts so many devices; answers its detail then.
fn wait_for(folder: &Path, devices: &str, count: u64) -> serde_json::Value {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let detail = json(folder, "detail --json --control c.sock");
        if detail[devices] == count {
            return detail;
        }
        assert!(Instant::now() < until, "{devices} is never {count}: {detail}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_lost_member_and_the_recovery_after_it_are_said_as_they_happen() {
    let folder = array();
    let folder = folder.path();
    let server = served(folder);
    cut(folder, "b.img");
    // It notices.
    ok(folder, "check --control c.sock", b"");
    wait_for(folder, "active_devices", 2);
    ok(folder, "add-spare s.img --control c.sock", b"");
    wait_for(folder, "active_devices", 3);
    ok(folder, "fail s.img --control c.sock", b"");
    ok(folder, "stop --control c.sock", b"");
    let ended = finish(server, b"");
    assert!(ended.status.success(), "{}", stderr(&ended));
    let said = stderr(&ended).replace(&format!("{}/", folder.canonicalize().unwrap().display()), "");
    let said: Vec<&str> = said.lines().filter(|line| !line.contains("a check")).collect();
    // The first read of the check; which of several is refused first is the kernel's choice.
    let (why, first) = said[0].split_once(" at sector ").unwrap();
    let rest = first.trim_start_matches(|c: char| c.is_ascii_digit());
    assert_eq!(why, "stripewise: b.img failed and is out of use (read");
    assert_eq!(rest, ": it does not answer, or was cut short): the array is degraded (2 of 3 members)");
    assert_eq!(
        said[1..],
        [
            "stripewise: a recovery begins",
            "stripewise: s.img holds all of its content and is in use (3 of 3 members)",
            "stripewise: a recovery is done",
            "stripewise: s.img failed and is out of use: the array is degraded (2 of 3 members)",
        ]
    );
}

/// Waits until a server listens.
fn wait_for_socket(path: &Path) {
    let until = Instant::now() + Duration::from_secs(30);
    while std::os::unix::net::UnixStream::connect(path).is_err() {
        assert!(Instant::now() < until, "there is no {}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_whose_output_nobody_reads_serves() {
    let folder = array();
    let folder = folder.path();
    let mut command = command(folder, "serve a.img b.img c.img --socket nbd.sock --control c.sock");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let server = command.stdout(writer).spawn().unwrap();
    wait_for_socket(&folder.join("c.sock"));
    assert_eq!(json(folder, "detail --json --control c.sock")["active_devices"], 3);
    ok(folder, "stop --control c.sock", b"");
    assert!(finish(server, b"").status.success());
}

#[test]
fn a_server_whose_messages_nobody_reads_serves_and_ends() {
    let folder = array();
    let folder = folder.path();
    let server = served(folder);
    let mut control = std::os::unix::net::UnixStream::connect(folder.join("c.sock")).unwrap();
    control.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answers = BufReader::new(control.try_clone().unwrap()).lines();
    // More than a pipe holds, a line or two for each.
    for _ in 0..1500 {
        for line in ["{\"command\":\"check\"}\n", "{\"command\":\"idle\"}\n"] {
            control.write_all(line.as_bytes()).unwrap();
            assert!(answers.next().unwrap().unwrap().contains("done"));
        }
    }
    signal(&server, "TERM");
    let begun = Instant::now();
    // Its messages are read once it has ended.
    let mut server = server;
    while server.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_hangup_that_the_parent_ignores_ends_no_server() {
    let folder = array();
    let folder = folder.path();
    let shell = format!(
        "trap '' HUP; exec {} serve a.img b.img c.img --socket nbd.sock",
        env!("CARGO_BIN_EXE_stripewise")
    );
    let mut server =
        std::process::Command::new("sh").args(["-c", &shell]).current_dir(folder).spawn().unwrap();
    wait_for_socket(&folder.join("nbd.sock"));
    signal(&server, "HUP");
    std::thread::sleep(Duration::from_millis(500));
    assert!(server.try_wait().unwrap().is_none(), "it has ended");
    signal(&server, "TERM");
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_of_members() {
    let folder = array();
    let folder = folder.path();
    // In blocks of 512 bytes: half of a member.
    let shell = format!("ulimit -f 4096; exec {} write a.img b.img c.img", env!("CARGO_BIN_EXE_stripewise"));
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", &shell]).current_dir(folder);
    limited.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = finish(limited.spawn().unwrap(), &pattern(5 << 20));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn what_is_left_of_a_failed_array_is_counted() {
    let folder = array();
    let folder = folder.path();
    let server = served(folder);
    cut(folder, "b.img");
    cut(folder, "c.img");
    ok(folder, "check --control c.sock", b"");
    let detail = wait_for(folder, "failed_devices", 2);
    let states: Vec<&str> =
        detail["devices"].as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap()).collect();
    let counts = ["active_devices", "working_devices", "failed_devices", "total_devices", "spare_devices"];
    assert_eq!(counts.map(|count| detail[count].as_u64().unwrap()), [1, 1, 2, 3, 0], "{detail}");
    let state = detail["state"].as_array().unwrap();
    assert!(state.iter().any(|word| word == "FAILED"), "{state:?}");
    assert!(!state.iter().any(|word| word == "resyncing"), "{state:?}");
    assert_eq!(states.iter().filter(|state| **state == "faulty").count(), 2, "{states:?}");
    ok(folder, "stop --control c.sock", b"");
    finish(server, b"");
}

#[test]
fn what_was_answered_under_an_overlay_outlives_a_killed_server() {
    let folder = array();
    let folder = folder.path();
    let serve = "serve a.img b.img c.img --overlay cow --socket nbd.sock --control c.sock";
    let mut server = server(folder, serve, "nbd.sock");
    ok(folder, "fail c.img --control c.sock", b"");
    server.kill().unwrap();
    server.wait().unwrap();
    let detail = json(folder, "detail --json --overlay cow --scan .");
    assert_eq!(detail["active_devices"], 2, "{detail}");
}

#[test]
fn a_server_is_to_be_reached_in_some_way() {
    let folder = array();
    let said = refused(folder.path(), "serve a.img b.img c.img");
    for way in ["--socket", "--listen", "--mount"] {
        assert!(said.contains(way), "{said}");
    }
}

#[test]
fn a_server_listens_at_a_host_name() {
    let folder = array();
    let folder = folder.path();
    let serve = "serve a.img b.img c.img --control c.sock --listen";
    for (listen, words) in [
        ("localhost", "the port is missing"),
        (":10809", "the host is missing"),
        ("localhost:nbd", "\"nbd\" is no port"),
        ("localhost:70000", "\"70000\" is no port"),
        ("nowhere.invalid:10809", "no address is known for the host \"nowhere.invalid\""),
    ] {
        let said = refused(folder, &format!("{serve} {listen}"));
        assert!(said.contains(words) && said.contains("; "), "{listen}: {said}");
    }
    for (listen, place) in [("localhost:0", ""), ("127.0.0.1:0", "127.0.0.1:")] {
        let server = common::server(folder, &format!("{serve} {listen}"), place);
        ok(folder, "stop --control c.sock", b"");
        assert!(finish(server, b"").status.success());
    }
}

#[test]
fn a_folder_that_cannot_be_mounted_is_refused_before_anything_is_made() {
    let folder = array();
    let folder = folder.path();
    let serve = "serve a.img b.img c.img --mount";
    fs::create_dir(folder.join("empty")).unwrap();
    fs::create_dir_all(folder.join("full/inner")).unwrap();
    for (arguments, words) in [
        ("none --trace t --overlay o --control c.sock", "no such folder"),
        ("a.img --trace t --overlay o --socket nbd.sock", "not a folder"),
        ("full --trace t --overlay o", "is not empty"),
        (". --trace t", "would hide t"),
        ("empty --socket empty/nbd.sock --trace t", "empty/nbd.sock"),
        ("empty --control empty/../empty/c.sock --overlay o", "c.sock"),
        ("empty --trace empty/t", "empty/t"),
        ("empty --overlay empty/o", "empty/o"),
    ] {
        let said = refused(folder, &format!("{serve} {arguments}"));
        assert!(said.contains(words), "{arguments}: {said}");
        for name in ["t", "o", "c.sock", "nbd.sock", "empty/nbd.sock", "empty/c.sock", "empty/t", "empty/o"] {
            assert!(!folder.join(name).exists(), "{arguments}: {name}");
        }
    }
    // Nor does another refusal leave new files behind; what was there stays.
    fs::write(folder.join("no.sock"), b"kept").unwrap();
    refused(folder, "serve a.img b.img c.img --socket no.sock --trace t --overlay o");
    assert!(!folder.join("t").exists() && !folder.join("o").exists());
    assert_eq!(fs::read(folder.join("no.sock")).unwrap(), b"kept");
}

#[test]
fn paths_that_will_not_do_are_refused_with_what_would_be_right() {
    let folder = array();
    let folder = folder.path();
    fs::create_dir(folder.join("dir")).unwrap();
    for (arguments, words) in [
        ("serve a.img b.img c.img --socket s --overlay none/o", "none/o: there is no such overlay"),
        ("serve a.img b.img c.img --socket s --overlay dir", "name a file"),
        ("serve a.img b.img c.img --socket s --trace none/t", "none/t: cannot make the trace"),
        ("serve a.img b.img c.img --socket s --luks --luks-key-file none", "none: No such file"),
        ("serve a.img b.img c.img --socket s --control s", "--control s: --socket has the same path"),
        (
            "serve a.img b.img c.img --socket s --trace o --overlay o",
            "--overlay o: --trace has the same path",
        ),
        ("read a.img b.img c.img --output none/o", "none/o: No such file"),
        ("read a.img b.img c.img --output dir", "dir: Is a directory"),
        ("write a.img b.img c.img --input none", "none: No such file"),
        ("write a.img b.img c.img --input dir", "dir: is a directory"),
        ("trace record --device none --output t --socket s", "none: No such file"),
        ("trace replay none", "none: cannot open it"),
    ] {
        let said = refused(folder, arguments);
        assert!(said.contains(words), "{arguments}: {said}");
        for name in ["s", "o"] {
            assert!(!folder.join(name).exists(), "{arguments}: {name}");
        }
    }
}
