//! A trace from a server to a replay, by command.

mod common;
#[path = "../../host/tests/common/nbd.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client is that of another crate's tests")]
mod nbd;

use std::fs;

use common::{blanks, fails, json, ok, refused, server, signal};
use nbd::{Client, FLUSH, FUA};

const MEMBERS: &str = "a.img b.img c.img";

/// An array of three small files.
fn array() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    blanks(folder.path(), &["a.img", "b.img", "c.img"], 4 << 20);
    ok(folder.path(), &format!("create -l 5 -n 3 -c 16K --data-offset 1M --assume-clean {MEMBERS}"), b"");
    folder
}

#[test]
fn what_a_client_asks_is_recorded_shown_and_replayed() {
    let folder = array();
    let folder = folder.path();
    let child = server(folder, &format!("trace record -o t.trace {MEMBERS} --socket s.sock"), "s.sock");
    let mut client = Client::new(&folder.join("s.sock"));
    for n in 0..20 {
        client.write(if n == 3 { FUA } else { 0 }, n * 65_536, &[7; 16_384]);
    }
    client.read(4096, 8192);
    assert_eq!(client.simple(FLUSH, 0, 0), 0);
    signal(&child, "TERM");
    assert!(child.wait_with_output().unwrap().status.success());
    let shown = json(folder, "trace show t.trace --json");
    assert_eq!((shown["requests"].as_u64(), shown["streams"].as_u64()), (Some(22), Some(1)));
    let write = &shown["operations"][1];
    assert_eq!((write["operation"].as_str(), write["requests"].as_u64()), (Some("write"), Some(20)));
    assert_eq!((write["bytes"].as_u64(), write["fua"].as_u64()), (Some(20 * 16_384), Some(1)));
    for on in [
        "model",
        "memory:4m",
        "files:. --member-size 4m",
        "memory:4m --shards 2",
        "files:. --member-size 4m --shards 2",
    ] {
        let replayed = json(folder, &format!("trace replay t.trace --on {on} --json"));
        assert_eq!(replayed["write"]["ios"].as_u64(), Some(20), "{on}");
        assert_eq!(replayed["read"]["bytes"].as_u64(), Some(8192), "{on}");
        assert_eq!(replayed["figures"]["flushes"].as_f64(), Some(1.0), "{on}");
    }
    for option in ["--bs 4k", "--runtime 1s", "--runtime 0", "--ramp_time 1s"] {
        let refusal = refused(folder, &format!("trace replay t.trace {option}"));
        assert!(refusal.contains(": has no effect on a trace"), "{option}: {refusal}");
    }
    let recorded = refused(folder, "trace record -o a.trace --trace b.trace a.img b.img c.img --socket s");
    assert!(recorded.contains("--output names the trace"), "{recorded}");
    for named in ["trace record -o -", "serve --trace -"] {
        let stdout = refused(folder, &format!("{named} {MEMBERS} --socket s.sock"));
        assert!(stdout.contains("-: a trace is not written to standard output; name a file"), "{stdout}");
    }
    assert!(refused(folder, "trace replay t.trace --speed 9").contains("--speed: '9' is not a speed"));
}

#[test]
fn a_file_that_is_no_array_is_served_as_it_is_and_recorded() {
    let folder = array();
    let folder = folder.path();
    blanks(folder, &["disk.img"], 1 << 20);
    let child = server(folder, "trace record -o t.trace --device disk.img --socket s.sock", "s.sock");
    let mut client = Client::new(&folder.join("s.sock"));
    client.write(0, 4096, &[9; 4096]);
    signal(&child, "TERM");
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(fs::read(folder.join("disk.img")).unwrap()[4096..8192], [9; 4096]);
    let shown = json(folder, "trace show t.trace --json");
    assert_eq!((shown["requests"].as_u64(), shown["device_bytes"].as_u64()), (Some(1), Some(1 << 20)));
    let both = refused(folder, "trace record -o t.trace --device disk.img a.img --socket s.sock");
    assert!(both.contains("give either members or --device"), "{both}");
}

#[test]
fn a_trace_of_a_killed_server_is_cut_short_and_there_in_part() {
    let folder = array();
    let folder = folder.path();
    let mut child = server(folder, &format!("serve {MEMBERS} --socket s.sock --trace t.trace"), "s.sock");
    let mut client = Client::new(&folder.join("s.sock"));
    client.write(0, 0, &[7; 4096]);
    // Longer than a record stays in memory.
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        if fs::read_to_string(folder.join("t.trace")).unwrap().lines().count() > 3 {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        refused(folder, "trace show t.trace").contains("t.trace:5: the trace is cut short after record 1")
    );
    refused(folder, "trace replay t.trace");
    assert_eq!(json(folder, "trace show t.trace --partial --json")["requests"].as_u64(), Some(1));
    ok(folder, "trace replay t.trace --partial", b"");
}

#[test]
fn what_is_no_trace_is_neither_overwritten_nor_read() {
    let folder = array();
    let folder = folder.path();
    let before = fs::read(folder.join("a.img")).unwrap();
    assert!(refused(folder, "trace show a.img").contains("a.img:1: this is not a trace"));
    let refusal = refused(folder, &format!("serve {MEMBERS} --socket s.sock --trace a.img"));
    assert!(refusal.contains("a.img: the file exists and is not a trace"), "{refusal}");
    assert!(fs::read(folder.join("a.img")).unwrap() == before);
    assert!(fails(folder, "trace show none.trace", b"", 2).contains("none.trace: cannot open it"));
    assert!(fails(folder, "trace show .", b"", 2).contains(".: cannot read it"));
    // Nobody reads the pipe: it is not waited for.
    assert!(std::process::Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success());
    let refusal = refused(folder, &format!("serve {MEMBERS} --socket s.sock --trace pipe"));
    assert!(refusal.contains("pipe: the file exists and is not a trace"), "{refusal}");
}

#[test]
fn what_is_refused_leaves_an_older_trace_as_it_was() {
    let folder = array();
    let folder = folder.path();
    let first = server(folder, &format!("serve {MEMBERS} --socket s.sock --trace keep.trace"), "s.sock");
    Client::new(&folder.join("s.sock")).write(0, 0, &[7; 4096]);
    signal(&first, "TERM");
    assert!(first.wait_with_output().unwrap().status.success());
    let before = fs::read(folder.join("keep.trace")).unwrap();
    fs::write(folder.join("file"), "no socket").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let name = "n".repeat(5000);
    for at in [
        "--socket none/s.sock".to_owned(),
        "--socket file".to_owned(),
        "--socket s.sock --control file".to_owned(),
        format!("--listen 127.0.0.1:{port}"),
        format!("--socket s.sock --export-name {name}"),
    ] {
        for (command, option) in [("trace record", "-o"), ("serve", "--trace")] {
            refused(folder, &format!("{command} {option} keep.trace {MEMBERS} {at}"));
            assert!(fs::read(folder.join("keep.trace")).unwrap() == before, "{command} {at}");
            refused(folder, &format!("{command} {option} new.trace {MEMBERS} {at}"));
            assert!(!folder.join("new.trace").exists(), "{command} {at}");
        }
    }
}

#[test]
fn a_second_recorder_of_a_trace_is_refused() {
    let folder = array();
    let folder = folder.path();
    blanks(folder, &["disk.img"], 1 << 20);
    let first = server(folder, &format!("trace record -o t.trace {MEMBERS} --socket s.sock"), "s.sock");
    let second = refused(folder, "trace record -o t.trace --device disk.img --socket other.sock");
    assert!(second.contains("t.trace: another recording is writing this trace"), "{second}");
    Client::new(&folder.join("s.sock")).write(0, 0, &[7; 4096]);
    signal(&first, "TERM");
    assert!(first.wait_with_output().unwrap().status.success());
    assert_eq!(json(folder, "trace show t.trace --json")["requests"].as_u64(), Some(1));
}
