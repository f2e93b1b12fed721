//! `grow --control`: a server changes its array.

mod common;

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use common::{all, blanks, finish, json, made, ok, refused, server, stderr};
use serde_json::{Value, json};

fn served(folder: &Path, arguments: &str) -> Child {
    server(folder, &format!("serve {arguments} --socket nbd.sock --control c.sock"), "nbd.sock")
}

fn detail(folder: &Path) -> Value {
    json(folder, "detail --json --control c.sock")
}

/// Waits until the array does nothing by itself any more; answers its detail then.
fn at_rest(folder: &Path) -> Value {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let detail = detail(folder);
        if detail["sync"]["action"] == "idle" {
            return detail;
        }
        assert!(Instant::now() < until, "it does not end: {detail}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What a command says.
fn says(folder: &Path, arguments: &str) -> String {
    String::from_utf8(ok(folder, arguments, b"")).unwrap()
}

/// Ends the server; answers what it said.
fn stop(folder: &Path, server: Child) -> String {
    ok(folder, "stop --control c.sock", b"");
    let ended = finish(server, b"");
    assert!(ended.status.success(), "{}", stderr(&ended));
    stderr(&ended)
}

#[test]
fn a_mirror_has_its_bitmap_size_and_slots_changed() {
    let (folder, names, content) = made("-l 1 -n 2 --size 2M --data-offset 1M --bitmap none", 2, 8);
    let folder = folder.path();
    blanks(folder, &["s.img"], 8 << 20);
    let server = served(folder, &names);
    ok(folder, "speed --min 5000 --max 6000 --control c.sock", b"");
    let said = says(folder, "grow --bitmap internal --bitmap-chunk 1M --control c.sock");
    assert_eq!(said, "2 members have an internal bitmap now, of 1024K a bit\n");
    let now = detail(folder);
    assert_eq!(now["consistency_policy"], "bitmap");
    assert_eq!((&now["sync"]["speed_min_kib"], &now["sync"]["speed_max_kib"]), (&json!(5000), &json!(6000)));

    let grown = json(folder, "grow --size max --json --control c.sock");
    let size = detail(folder)["array_bytes"].as_u64().unwrap();
    assert!(size > content.len() as u64 * 2, "{size}");
    let said = format!("{}K of each of 2 members are used now instead of 2048K", size >> 10);
    assert_eq!(grown["said"], json!([said, "what is new is resynced now"]));
    assert_eq!((&grown["level"], &grown["members"]), (&json!("raid1"), &json!(2)));
    at_rest(folder);

    // What came in since is a member as the others.
    ok(folder, "add-spare s.img --control c.sock", b"");
    let said = says(folder, "grow --raid-devices 3 --control c.sock");
    assert_eq!(said, "the array now has 3 raid devices instead of 2\nspares are recovered now\n");
    assert_eq!(at_rest(folder)["active_devices"], 3);
    let said = stop(folder, server);
    assert!(said.contains("stripewise: 2 members have an internal bitmap now, of 1024K a bit\n"), "{said}");
    let after = json(folder, &format!("detail --json{names} s.img"));
    assert_eq!((&after["state"], &after["raid_devices"]), (&json!(["clean"]), &json!(3)));
    assert!(ok(folder, "read s.img --run", b"").starts_with(&content));
}

#[test]
fn logs_of_a_parity_array_go_and_come_while_it_is_served_through_a_cache() {
    let (folder, names, content) = made("-l 5 -n 3 -c 16K -k ppl", 3, 8);
    let folder = folder.path();
    let server = served(folder, &format!("{names} --cache 4M"));
    for policy in ["resync", "ppl"] {
        ok(folder, &format!("grow --consistency-policy {policy} --control c.sock"), b"");
        assert_eq!(detail(folder)["consistency_policy"], policy);
    }
    assert!(detail(folder)["cache"]["bytes_max"].is_u64());
    stop(folder, server);
    assert_eq!(ok(folder, &format!("read{names}"), b""), content);
}

/// The last of what a refused command says.
fn why(folder: &Path, arguments: &str) -> String {
    refused(folder, arguments).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn what_is_refused_leaves_the_array_served_as_it_is() {
    let (folder, names, content) = made("-l 5 -n 3 -c 16K --bitmap internal", 3, 8);
    let folder = folder.path();
    let server = served(folder, &names);
    for (asked, says) in [
        ("--bitmap internal", "has a bitmap; take it away first"),
        ("--size 1G", "0.img"),
        ("--consistency-policy ppl", "bitmap"),
        ("--raid-devices 4", "must be idle: stop its server"),
        ("--chunk 32K", "stop the server"),
        ("--level 6", "stop the server"),
        ("--bitmap none 0.img", "leave out MEMBER"),
        ("--bitmap none --run", "leave out MEMBER"),
    ] {
        let why = why(folder, &format!("grow {asked} --control c.sock"));
        assert!(why.contains(says), "{asked}: {why}");
    }
    // A member that would not be found again.
    fs::rename(folder.join("2.img"), folder.join("away.img")).unwrap();
    let said = why(folder, "grow --bitmap none --control c.sock");
    assert!(said.contains("2.img"), "{said}");
    blanks(folder, &["2.img"], 8 << 20);
    let said = why(folder, "grow --bitmap none --control c.sock");
    assert!(said.contains("2.img"), "{said}");
    fs::rename(folder.join("away.img"), folder.join("2.img")).unwrap();
    // One that has failed.
    ok(folder, "fail 2.img --control c.sock", b"");
    let said = why(folder, "grow --bitmap none --control c.sock");
    assert!(said.contains("remove it first"), "{said}");
    ok(folder, "remove failed --control c.sock", b"");
    ok(folder, "grow --bitmap none --control c.sock", b"");
    let now = detail(folder);
    assert_eq!((&now["consistency_policy"], &now["active_devices"]), (&json!("resync"), &json!(2)));
    stop(folder, server);
    assert_eq!(ok(folder, "read 0.img 1.img", b""), content);
}

#[test]
fn a_server_that_cannot_change_its_array_says_why() {
    let (folder, names, _) = made("-l 1 -n 2 --size 2M --bitmap none", 2, 8);
    let folder = folder.path();
    let before = all(folder, &names);
    for (how, asked, says) in [
        ("--readonly", "--bitmap internal", "--readonly"),
        ("--overlay cow", "--bitmap internal", "--overlay"),
    ] {
        let server = served(folder, &format!("{names} {how}"));
        let said = why(folder, &format!("grow {asked} --control c.sock"));
        assert!(said.contains(says), "{how}: {said}");
        stop(folder, server);
        assert!(all(folder, &names) == before, "{how}");
    }
    let server = served(folder, &format!("{names} --trace t"));
    let said = why(folder, "grow --size max --control c.sock");
    assert!(said.contains("trace"), "{said}");
    ok(folder, "grow --bitmap internal --control c.sock", b"");
    stop(folder, server);
    ok(folder, "trace show t", b"");
}
