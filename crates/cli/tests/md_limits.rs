//! Signals, full file systems, several arrays in a folder, old superblocks.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{blanks, command, fails, images, json, ok, pattern, refused, run, server, signal, stderr};

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

/// 0.90 counts KiB in 32 bits. Linux uses no more of a linear member, whose level it takes for an unsigned number, and all of a
/// RAID-0's (seen with Linux 6.1 on members of 5 TiB).
#[test]
fn metadata_0_90_uses_four_tebibytes_of_a_linear_member_and_all_of_a_raid0s() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (level, bytes) in [("linear", 2 * u64::from(u32::MAX) * 1024), ("0", 2 * (5 * 1024 - 1) * (1 << 30))]
    {
        for name in MEMBERS {
            drop(fs::remove_file(folder.join(name)));
        }
        blanks(folder, &["a.img", "b.img"], 5 << 40);
        ok(folder, &format!("create -l {level} -n 2 -e 0.90 a.img b.img"), b"");
        let size = json(folder, "detail --json a.img b.img")["array_bytes"].as_u64().unwrap();
        assert!(size == bytes || level == "0" && size > bytes, "level {level}: {size}");
    }
    let far = ok(folder, "read a.img b.img --offset 9T --length 1M", b"");
    assert!(far.iter().all(|byte| *byte == 0));
}

/// Several pieces are under way when the one who takes them is gone.
#[test]
fn a_read_whose_output_ends_early_is_told_or_quiet_but_ends() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    raid5(folder);
    for _ in 0..5 {
        let said = fails(folder, "read a.img b.img c.img -o /dev/full", b"", 1);
        assert!(said.contains("No space left"), "{said}");
        let mut child = command(folder, "read a.img b.img c.img").spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn an_input_that_is_shorter_than_asked_for_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    raid5(folder);
    for (length, input) in [("1M", 5), ("3000", 1025), ("100", 99), ("5M", 3 << 20)] {
        let said = fails(
            folder,
            &format!("write a.img b.img c.img --offset 300 --length {length}"),
            &pattern(input),
            1,
        );
        assert!(said.contains(&format!("the input ended after {input} of the")), "{said}");
        assert!(
            ok(folder, &format!("read a.img b.img c.img --offset 300 --length {input}"), b"")
                == pattern(input)
        );
    }
    fs::write(folder.join("short"), "short").unwrap();
    let said = refused(folder, "write a.img b.img c.img --length 6 -i short");
    assert!(said.contains("5 bytes, fewer than --length 6"), "{said}");
    ok(folder, "write a.img b.img c.img --length 5", b"longer");
}

/// Nobody can be told, which is no reason to end.
#[test]
fn a_full_standard_error_stops_no_server_and_no_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    raid5(folder);
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let mut serve = command(folder, "serve a.img b.img c.img --socket nbd.sock --control ctl.sock");
    let mut child = serve.stderr(full()).stdout(Stdio::null()).spawn().unwrap();
    for _ in 0..500 {
        std::thread::sleep(Duration::from_millis(10));
        if folder.join("ctl.sock").exists() {
            break;
        }
    }
    ok(folder, "fail c.img --control ctl.sock", b"");
    ok(folder, "stop --control ctl.sock", b"");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut examine = command(folder, "write a.img b.img --run --length 9 -i nothing-here");
    assert_eq!(examine.stderr(full()).status().unwrap().code(), Some(2));
}

/// With no redundancy left a resync has nothing to make agree: what is left is clean, and starts again.
#[test]
fn a_member_that_fails_while_a_resync_is_due_leaves_an_array_that_starts() {
    for (level, members, failed) in [
        ("5", "a.img b.img c.img d.img", "a.img"),
        ("6", "a.img b.img c.img d.img", "a.img b.img"),
        ("1", "a.img b.img", "a.img"),
    ] {
        for served in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            blanks(folder, &["a.img", "b.img", "c.img", "d.img"], 16 << 20);
            let chunk = if level == "1" { "" } else { "-c 16K" };
            let count = members.split(' ').count();
            ok(folder, &format!("create -l {level} -n {count} {chunk} -f {members}"), b"");
            if served {
                let mut child = server(
                    folder,
                    &format!("serve {members} --socket nbd.sock --control ctl.sock"),
                    "nbd.sock",
                );
                ok(folder, "speed --max 100 --min 100 --control ctl.sock", b"");
                ok(folder, &format!("fail {failed} --control ctl.sock"), b"");
                ok(folder, "stop --control ctl.sock", b"");
                assert_eq!(child.wait().unwrap().code(), Some(0));
            } else {
                ok(folder, &format!("fail {failed} --array {members}"), b"");
            }
            let detail = json(folder, "detail --json --run --scan .");
            assert_eq!(
                (&detail["is_clean"], &detail["resync_offset_bytes"]),
                (&true.into(), &serde_json::Value::Null),
                "{level} {served}"
            );
            ok(folder, "read --run --scan . --length 4096", b"");
        }
    }
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

#[test]
fn examine_tells_of_the_others_where_one_device_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &["a.img", "b.img"], 8 << 20);
    ok(folder, "create -l 1 -n 2 --assume-clean a.img b.img", b"");
    let output = run(folder, "examine a.img absent b.img", b"");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("a.img:") && text.contains("b.img:"), "{text}");
    assert!(stderr(&output).contains("absent: no such file"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
    let output = run(folder, "examine --json a.img absent b.img", b"");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors = found["devices"].as_array().unwrap().iter().map(|device| device["error"].is_string());
    assert_eq!(errors.collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn superblocks_of_all_versions_are_cleared_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    raid5(folder);
    let text = |name: &str| {
        String::from_utf8_lossy(&run(folder, &format!("examine {name}"), b"").stderr).into_owned()
    };
    fs::write(folder.join("none.img"), vec![1; 1 << 20]).unwrap();
    let before = images(folder, &MEMBERS);
    // All or none: one of them has none.
    let said = refused(folder, "zero-superblock a.img none.img");
    assert!(said.contains("none.img: holds no md superblock"), "{said}");
    assert!(images(folder, &MEMBERS) == before);
    let mut served = server(folder, "serve --socket s a.img b.img c.img", "s");
    let said = refused(folder, "zero-superblock a.img");
    assert!(said.contains("in use"), "{said}");
    signal(&served, "TERM");
    served.wait().unwrap();

    let held = fs::read(folder.join("b.img")).unwrap();
    let cleared = json(folder, "zero-superblock --json b.img");
    assert_eq!(cleared["devices"][0]["cleared"], serde_json::json!(["1.2"]));
    let mut now = fs::read(folder.join("b.img")).unwrap();
    assert!(text("b.img").contains("holds no md superblock"));
    let differs = |now: &[u8]| now.iter().zip(&held).filter(|(a, b)| a != b).count();
    assert!(now[8 << 10 << 9..] == held[8 << 10 << 9..] && differs(&now) > 0, "data differ");
    now[4096..8192].copy_from_slice(&held[4096..8192]);
    assert_eq!(differs(&now), 0, "more than the superblock was cleared");

    // A damaged one takes force, and superblocks of several versions go together.
    fs::copy(folder.join("a.img"), folder.join("old.img")).unwrap();
    ok(folder, "create -l 1 -n 1 -e 1.0 --force --assume-clean old.img", b"");
    let mut two = fs::read(folder.join("old.img")).unwrap();
    let damaged = fs::read(folder.join("c.img")).unwrap();
    two[4096..8192].copy_from_slice(&damaged[4096..8192]);
    fs::write(folder.join("old.img"), &two).unwrap();
    let said = refused(folder, "zero-superblock old.img");
    assert!(said.contains("of several arrays") && said.contains("1.0 and 1.2"), "{said}");
    let said = String::from_utf8(ok(folder, "zero-superblock --force old.img", b"")).unwrap();
    assert!(said.contains("1.0") && said.contains("1.2"), "{said}");
    assert!(text("old.img").contains("holds no md superblock"));
    let mut damaged = damaged;
    damaged[4096 + 100] ^= 1;
    fs::write(folder.join("c.img"), &damaged).unwrap();
    let said = refused(folder, "zero-superblock c.img");
    assert!(said.contains("not valid") && said.contains("--force"), "{said}");
    ok(folder, "zero-superblock --force c.img", b"");
    assert!(text("c.img").contains("holds no md superblock"));
}
