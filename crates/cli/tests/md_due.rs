//! What `assemble` does about arrays that are not whole: recovery, resync, members that come back, partial parity logs.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{blanks, command, images, json, ok, pattern, refused, run, signal, stderr};

const MEMBERS: [&str; 3] = ["a.img", "b.img", "c.img"];
const PAIRS: [&str; 3] = ["a.img b.img", "b.img c.img", "a.img c.img"];

fn starts_with(folder: &Path, bytes: &[u8]) {
    for pair in PAIRS {
        let read = format!("read --run {pair} --length {}", bytes.len());
        assert!(ok(folder, &read, b"") == bytes, "without one: {pair}");
    }
}

#[test]
fn a_new_raid5_is_recovered_onto_its_last_member() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &MEMBERS, 8 << 20);
    fs::write(folder.join("b.img"), pattern(8 << 20)).unwrap();
    ok(folder, "create -l 5 -n 3 -c 16K a.img b.img c.img", b"");
    assert_eq!(json(folder, "detail --json --scan .")["state"], serde_json::json!(["clean", "degraded"]));
    let left = json(folder, "assemble --no-sync --json a.img b.img c.img");
    assert_eq!(left["spare_devices"], 1, "nothing is begun");
    let done = json(folder, "assemble --json a.img b.img c.img");
    assert_eq!(done["synced"], serde_json::json!([{ "action": "recovery", "result": "done" }]));
    assert_eq!(done["state"], serde_json::json!(["clean"]));
    assert_eq!(done["active_devices"], 3);
    starts_with(folder, &ok(folder, "read a.img b.img c.img", b""));
    let before = images(folder, &MEMBERS);
    let again = json(folder, "assemble --json a.img b.img c.img");
    assert_eq!(again["synced"], serde_json::json!([]));
    assert!(images(folder, &MEMBERS) == before, "nothing was due, nothing is written");
}

#[test]
fn a_resync_makes_copies_equal() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &MEMBERS, 8 << 20);
    fs::write(folder.join("c.img"), pattern(8 << 20)).unwrap();
    ok(folder, "create -l 1 -n 3 a.img b.img c.img", b"");
    let due = json(folder, "detail --json --scan .");
    assert_eq!(due["sync"]["action"], "resync");
    assert_eq!(due["state"], serde_json::json!(["active", "resyncing"]));
    let said = stderr(&run(folder, "assemble c.img b.img a.img", b""));
    assert!(said.contains("resync is done"), "{said}");
    let whole = ok(folder, "read a.img b.img c.img", b"");
    for one in MEMBERS {
        assert!(ok(folder, &format!("read --run {one}"), b"") == whole, "{one}");
    }
    assert_eq!(json(folder, "detail --json --scan .")["is_clean"], true);
}

#[test]
fn copies_that_may_differ_are_read_from_the_first_by_those_who_write_nothing() {
    for (level, members) in [("1", "a.img b.img"), ("10", "a.img b.img c.img d.img")] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let names: Vec<&str> = members.split(' ').collect();
        blanks(folder, &names, 8 << 20);
        for second in names.iter().skip(1).step_by(2) {
            fs::write(folder.join(second), pattern(8 << 20)).unwrap();
        }
        ok(folder, &format!("create --force -l {level} -n {} {members}", names.len()), b"");
        for options in ["", "--readonly"] {
            let read = ok(folder, &format!("read {options} {members}"), b"");
            assert!(read.iter().all(|byte| *byte == 0), "level {level}, {options}");
        }
        assert_eq!(
            run(folder, &format!("check --readonly {members}"), b"").status.code(),
            Some(4),
            "level {level}"
        );
    }
}

#[test]
fn a_member_that_missed_writes_comes_back_by_the_bitmap_when_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &MEMBERS, 16 << 20);
    ok(
        folder,
        "create -l 5 -n 3 -c 16K --bitmap internal --bitmap-chunk 64K --assume-clean a.img b.img c.img",
        b"",
    );
    let mut bytes = pattern(8 << 20);
    ok(folder, "write a.img b.img c.img", &bytes);
    ok(folder, "write --run a.img b.img --offset 1000000", &vec![0x5A; 300_000]);
    bytes[1_000_000..1_300_000].fill(0x5A);
    let said = stderr(&run(folder, "assemble --scan .", b""));
    assert!(said.contains("c.img is left out") && said.contains("the bitmap covers"), "{said}");
    let named = "assemble a.img c.img b.img";
    let before = images(folder, &MEMBERS);
    ok(folder, &format!("{named} --readonly"), b"");
    assert!(images(folder, &MEMBERS) == before);
    let said = stderr(&run(folder, named, b""));
    assert!(said.contains("c.img returns to slot 2") && said.contains("recovery is done"), "{said}");
    starts_with(folder, &bytes);
    assert_eq!(json(folder, "detail --json --scan .")["state"], serde_json::json!(["clean"]));
}

#[test]
fn a_member_that_comes_back_may_be_left_half_way() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &MEMBERS, 16 << 20);
    ok(folder, "create -l 5 -n 3 -c 16K --bitmap internal --assume-clean a.img b.img c.img", b"");
    let bytes = pattern(8 << 20);
    ok(folder, "write --run b.img c.img", &bytes);
    ok(folder, "assemble --no-sync a.img b.img c.img", b"");
    let detail = json(folder, "detail --json --scan .");
    assert_eq!(detail["state"], serde_json::json!(["clean", "degraded", "recovering"]));
    let text = String::from_utf8(ok(folder, "detail --scan .", b"")).unwrap();
    assert!(text.contains("Rebuild Status : 0% complete") && text.contains("spare rebuilding"), "{text}");
    assert!(
        ok(folder, "read a.img b.img c.img --length 8M", b"") == bytes,
        "what it lacks is not read from it"
    );
    let said = stderr(&run(folder, "assemble --scan .", b""));
    assert!(said.contains("a.img returns to slot 0"), "its superblock says that the bitmap knows: {said}");
    starts_with(folder, &bytes);
}

/// 0.90 has no place for how far a member is: until it is filled, it is a spare.
#[test]
fn a_member_of_metadata_0_90_that_comes_back_is_no_member_until_it_is_filled() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (level, members) in [("1", "a.img b.img"), ("5", "a.img b.img c.img")] {
        for name in MEMBERS {
            drop(fs::remove_file(folder.join(name)));
        }
        blanks(folder, &MEMBERS, 16 << 20);
        let count = members.split(' ').count();
        let how = "--metadata 0.90 --bitmap internal --assume-clean";
        ok(folder, &format!("create -l {level} -n {count} {how} {members}"), b"");
        let others = members.strip_prefix("a.img ").unwrap();
        let bytes = pattern(8 << 20);
        ok(folder, &format!("write --run {others}"), &bytes);
        ok(folder, &format!("assemble --no-sync {members}"), b"");
        let read = format!("read {members} --length 8M");
        assert!(ok(folder, &read, b"") == bytes, "level {level}: what it lacks is not read from it");
        if level == "1" {
            let refused = refused(folder, "read a.img --run --length 8M");
            assert!(refused.contains("0 of 2 members are in sync"), "it does not hold it: {refused}");
        }
        let detail = json(folder, &format!("detail --json {members}"));
        assert!(detail["state"].as_array().unwrap().contains(&"degraded".into()), "level {level}: {detail}");
        ok(folder, &format!("assemble {members}"), b"");
        let detail = json(folder, &format!("detail --json {members}"));
        assert_eq!(detail["state"], serde_json::json!(["clean"]), "level {level}");
        let without = members.rsplit_once(' ').unwrap().0;
        let read = format!("read {without} --run --length 8M");
        assert!(ok(folder, &read, b"") == bytes, "level {level}: it is filled");
    }
}

/// Waits until the array is put together, and a little longer.
fn begun(child: &mut Child) -> BufReader<std::process::ChildStdout> {
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("has been assembled"), "{line}");
    std::thread::sleep(Duration::from_millis(300));
    said
}

#[test]
fn an_interrupted_resync_goes_on_from_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Sparse zeroes agree: nothing is written to them.
    blanks(folder, &MEMBERS, 6 << 30);
    ok(folder, "create -l 5 -n 3 -c 64K --force a.img b.img c.img", b"");
    let mut child = command(folder, "assemble a.img b.img c.img").spawn().unwrap();
    let _said = begun(&mut child);
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let sync = json(folder, "detail --json --scan .")["sync"].clone();
    let (done, total) = (sync["done_bytes"].as_u64().unwrap(), sync["total_bytes"].as_u64().unwrap());
    assert!(sync["action"] == "resync" && 0 < done && done < total, "{sync}");
    let text = String::from_utf8(ok(folder, "detail --scan .", b"")).unwrap();
    assert!(text.contains(&format!("Resync Status : {}% complete", done * 100 / total)), "{text}");
    ok(folder, "assemble a.img b.img c.img", b"");
    assert_eq!(json(folder, "detail --json --scan .")["state"], serde_json::json!(["clean"]));
}

#[test]
fn parity_is_right_by_the_log_after_a_writer_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &MEMBERS, 64 << 20);
    let create = "create -l 5 -n 3 -c 64K --consistency-policy ppl --assume-clean a.img b.img c.img";
    ok(folder, create, b"");
    let mut child = command(folder, "write a.img b.img c.img").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let fed = Arc::new(AtomicUsize::new(0));
    let feeder = std::thread::spawn({
        let fed = Arc::clone(&fed);
        move || {
            // Partial stripes without end, until nobody reads them any more.
            for piece in (0..=u8::MAX).cycle() {
                if stdin.write_all(&[piece; 5_000]).is_err() {
                    return;
                }
                fed.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(500));
            }
        }
    });
    // Half as much again as the eight pieces of 1 MiB that may be under way: what is looked for below has ended, on however slow
    // a machine.
    while fed.load(Ordering::Relaxed) < 2_500 {
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    feeder.join().unwrap();
    assert_eq!(json(folder, "detail --json --scan .")["is_clean"], false);
    let refusal = refused(folder, "read --run a.img b.img");
    assert!(refusal.contains("partial parity logs") && refusal.contains("--readonly"), "{refusal}");
    ok(folder, "read --readonly --run a.img b.img --length 1M", b"");
    let copies = tempfile::tempdir().unwrap();
    for name in MEMBERS {
        fs::copy(folder.join(name), copies.path().join(name)).unwrap();
    }
    let without = ["a.img b.img", "b.img c.img", "a.img c.img"];
    // With all members first: parity is made right, whichever of them is lost afterwards.
    ok(folder, "assemble a.img b.img c.img", b"");
    starts_with(folder, &ok(folder, "read a.img b.img c.img", b""));
    // Degraded at once after: what was acknowledged long before must be there.
    for pair in without {
        let folder = tempfile::tempdir().unwrap();
        for name in pair.split(' ') {
            fs::copy(copies.path().join(name), folder.path().join(name)).unwrap();
        }
        ok(folder.path(), &format!("assemble --run {pair}"), b"");
        let bytes = ok(folder.path(), &format!("read --run {pair} --length 500000"), b"");
        let expected = (0..100).flat_map(|piece| [piece; 5_000]);
        assert!(bytes.into_iter().eq(expected), "{pair}");
        assert_eq!(json(folder.path(), &format!("detail --json {pair}"))["is_clean"], true);
    }
}

/// Parity that is not right yet must not be what the failed member's data are read by.
#[test]
fn a_member_fails_only_after_the_resync_that_is_due() {
    for (level, count) in [(5, 3), (6, 4), (4, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let names: Vec<String> = (0..count).map(|n| format!("{n}.img")).collect();
        for name in &names {
            std::fs::write(folder.join(name), vec![7; 6 << 20]).unwrap();
        }
        let all = names.join(" ");
        ok(folder, &format!("create -l {level} -n {count} -c 16K --force {all}"), b"");
        let before = ok(folder, &format!("read --readonly {all}"), b"");
        let output = run(folder, &format!("fail 1.img --array {all}"), b"");
        assert!(output.status.success(), "level {level}: {}", stderr(&output));
        assert!(stderr(&output).contains("a resync is due"), "level {level}: {}", stderr(&output));
        let rest: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != "1.img").collect();
        let after = ok(folder, &format!("read --run {}", rest.join(" ")), b"");
        assert!(after == before, "level {level}: the data are what they were");
    }
}
