//! Signals, full file systems, several arrays in a folder, old superblocks.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{blanks, command, images, json, ok, pattern, refused, server, signal, stderr};

const MEMBERS: [&str; 3] = ["a.img", "b.img", "c.img"];

fn raid5(folder: &Path) {
    blanks(folder, &MEMBERS, 16 << 20);
    ok(folder, "create -l 5 -n 3 -c 16K --data-offset 1M --assume-clean --name t a.img b.img c.img", b"");
}

#[test]
fn an_interrupted_read_ends_with_130() {
    let folder = tempfile::tempdir().unwrap();
    raid5(folder.path());
    let mut child = command(folder.path(), "read a.img b.img c.img").spawn().unwrap();
    let mut first = [0; 4096];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    // Nobody takes the rest: the pipe is full.
    signal(&child, "INT");
    let mut child = child;
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_interrupted_write_ends_with_130_and_leaves_the_array_clean() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    raid5(folder);
    let bytes = pattern(2 << 20);
    let mut child = command(folder, "write a.img b.img c.img").spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&bytes).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(json(folder, "detail --json --scan .")["is_clean"], true);
    for pair in ["a.img b.img", "b.img c.img", "a.img c.img"] {
        assert!(ok(folder, &format!("read --run {pair} --length 1M"), b"") == bytes[..1 << 20], "{pair}");
    }
}

#[test]
fn a_server_tells_its_detail_and_leaves_the_array_clean_at_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    raid5(folder);
    let mut child =
        server(folder, "serve a.img b.img c.img --socket nbd.sock --control ctl.sock", "nbd.sock");
    let detail = json(folder, "detail --json --control ctl.sock");
    assert_eq!((&detail["level"], &detail["raid_devices"]), (&"raid5".into(), &3.into()));
    assert!(refused(folder, "write a.img b.img c.img").contains("in use"));
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(json(folder, "detail --json --scan .")["is_clean"], true);
    assert!(!folder.join("nbd.sock").exists() && !folder.join("ctl.sock").exists());
}

#[test]
fn several_arrays_in_a_folder_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    raid5(folder);
    blanks(folder, &["d.img", "e.img"], 8 << 20);
    ok(folder, "create -l 1 -n 2 -e 1.0 --assume-clean --name other d.img e.img", b"");
    fs::write(folder.join("notes.txt"), "no member of anything").unwrap();
    let refusal = refused(folder, "detail --scan .");
    assert!(refusal.contains(":t") && refusal.contains(":other") && refusal.contains("--uuid"), "{refusal}");
    assert_eq!(json(folder, "detail --json --scan . --name other")["level"], "raid1");
    let uuid = json(folder, "detail --json a.img b.img c.img")["uuid"].clone();
    let by_uuid = format!("assemble --json --scan . --uuid {}", uuid.as_str().unwrap());
    assert_eq!(json(folder, &by_uuid)["level"], "raid5");
}

#[test]
fn version_0_90_is_assembled_recovered_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &MEMBERS, 8 << 20);
    ok(folder, "create -l 5 -n 3 -c 16K -e 0.90 a.img b.img c.img", b"");
    ok(folder, "assemble a.img b.img c.img", b"");
    assert_eq!(json(folder, "detail --json --scan .")["active_devices"], 3);
    let bytes = pattern(4 << 20);
    ok(folder, "write c.img b.img a.img", &bytes);
    for pair in ["a.img b.img", "b.img c.img", "a.img c.img"] {
        assert!(ok(folder, &format!("read --run {pair} --length 4M"), b"") == bytes, "{pair}");
    }
}

#[test]
fn an_overlay_that_finds_no_room_fails_the_write_and_spares_the_members() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    raid5(folder);
    let before = images(folder, &MEMBERS);
    let script = format!(
        "trap '' XFSZ; ulimit -f 8192; exec {} write a.img b.img c.img --overlay cow",
        env!("CARGO_BIN_EXE_stripewise")
    );
    let mut child = Command::new("sh");
    child.args(["-c", &script]).current_dir(folder).stdin(Stdio::piped()).stderr(Stdio::piped());
    let output = common::finish(child.spawn().unwrap(), &pattern(20 << 20));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    assert!(images(folder, &MEMBERS) == before);
}
