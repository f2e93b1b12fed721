//! Members that come and go, by command: on an idle array and on one that is served.

mod common;
#[path = "../../host/tests/common/nbd.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client is that of another crate's tests")]
mod nbd;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use stripewise_format::bad_blocks::{self, BadRange};
use stripewise_format::superblock_1::{Features, Superblock1};
use tempfile::TempDir;

use common::{blanks, command, fails, finish, images, json, ok, pattern, refused, run, signal};
use nbd::Client;

const FOUR: [&str; 4] = ["a.img", "b.img", "c.img", "d.img"];
const DATA_START: u64 = 1 << 20;

/// An array on `a.img` and so on, as many as the level's arguments say, that holds the bytes answered; `s.img` and
/// `t.img` are blank.
fn array(level: &str, members: usize) -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    blanks(folder.path(), &["a.img", "b.img", "c.img", "d.img", "s.img", "t.img"], 4 << 20);
    let names = FOUR[..members].join(" ");
    let create = format!("create -l {level} -n {members} --data-offset 1M --assume-clean --name t {names}");
    ok(folder.path(), &create, b"");
    let bytes = pattern(3 << 20);
    ok(folder.path(), &format!("write {names}"), &bytes);
    (folder, bytes)
}

fn says(folder: &Path, arguments: &str) -> String {
    String::from_utf8(ok(folder, arguments, b"")).unwrap()
}

fn holds(folder: &Path, members: &str, bytes: &[u8]) {
    let read = ok(folder, &format!("read {members} --length {}", bytes.len()), b"");
    assert!(read == bytes, "{members}");
    assert_eq!(says(folder, &format!("check {members}")), "stripewise: check is done: nothing disagrees\n");
}

#[test]
fn an_idle_array_loses_a_member_and_has_it_back_by_the_bitmap() {
    let (folder, mut bytes) = array("5 -c 16K --bitmap internal --bitmap-chunk 64K", 3);
    let folder = folder.path();
    assert_eq!(says(folder, "fail b.img --array a.img c.img"), "stripewise: set b.img faulty\n");
    assert!(refused(folder, "fail b.img --array a.img c.img").contains("is already out of the array"));
    assert!(says(folder, "remove b.img --array a.img c.img").contains("is already out of the array"));
    bytes[70_000..90_000].fill(9);
    ok(folder, "write --run a.img c.img --offset 70000", &bytes[70_000..90_000]);
    let back = says(folder, "re-add b.img --array c.img a.img --run");
    assert_eq!(back, "stripewise: re-added b.img to slot 1\n");
    holds(folder, "a.img b.img c.img", &bytes);
    holds(folder, "a.img b.img --run", &bytes);
}

/// Something was done, so that it is no refusal of the whole call.
#[test]
fn a_call_that_is_refused_half_way_says_what_is_not_done() {
    let (folder, _) = array("6 -c 16K", 4);
    let folder = folder.path();
    let said = fails(folder, "fail a.img b.img c.img --array a.img b.img c.img d.img", b"", 1);
    assert!(said.contains("the devices before it are done, and 1 are unchanged"), "{said}");
    assert_eq!(json(folder, "detail --json --scan .")["failed_devices"], 0, "they have left their slots");
}

#[test]
fn a_member_that_comes_back_gets_what_changed_and_nothing_else() {
    for (level, members) in
        [("1", 3), ("5 -c 16K", 3), ("6 -c 16K", 4), ("10 -c 16K", 4), ("10 -c 16K -p f2", 3)]
    {
        let level = format!("{level} --bitmap internal --bitmap-chunk 64K");
        let (folder, mut bytes) = array(&level, members);
        let folder = folder.path();
        let others = [&FOUR[..1], &FOUR[2..members]].concat().join(" ");
        ok(folder, &format!("fail b.img --array {others}"), b"");
        bytes[70_000..90_000].fill(9);
        ok(folder, &format!("write --run {others} --offset 70000"), &bytes[70_000..90_000]);
        // What did not change is not written again: this stays.
        let member = fs::OpenOptions::new().write(true).open(folder.join("b.img")).unwrap();
        member.write_all_at(b"something else", DATA_START + 700_000).unwrap();
        ok(folder, &format!("re-add b.img --array {others} --run"), b"");
        let said = String::from_utf8(run(folder, "check --scan .", b"").stdout).unwrap();
        assert!(said.contains("8 sectors disagree"), "{level}: {said}");
        ok(folder, "fail a.img --scan .", b"");
        let read = ok(folder, "read --scan . --run --offset 70000 --length 20000", b"");
        assert!(read == bytes[70_000..90_000], "{level}: what changed is on the member that came back");
    }
}

#[test]
fn spares_take_empty_slots_and_replace_members_of_every_level_with_redundancy() {
    for (level, members) in [("1", 2), ("4", 3), ("5", 3), ("6", 4), ("10", 4)] {
        let (folder, bytes) = array(level, members);
        let folder = folder.path();
        let others = FOUR[1..members].join(" ");
        says(folder, &format!("fail a.img --array {others}"));
        assert_eq!(says(folder, &format!("add s.img --array {others} --run")), "stripewise: added s.img\n");
        holds(folder, &format!("s.img {others}"), &bytes);
        says(folder, &format!("add-spare t.img --array s.img {others}"));
        let replace =
            says(folder, &format!("replace b.img --array s.img {} t.img", FOUR[2..members].join(" ")));
        assert_eq!(replace, "stripewise: marked b.img of slot 1 for replacement\n");
        let now = format!("s.img t.img {}", FOUR[2..members].join(" "));
        holds(folder, &now, &bytes);
        let detail = json(folder, &format!("detail --json {now}"));
        assert_eq!(detail["active_devices"], members, "{detail}");
        assert_eq!(detail["state"], serde_json::json!(["clean"]));
    }
}

#[test]
fn a_check_says_where_and_a_repair_rewrites_what_is_asked() {
    let (folder, bytes) = array("6 -c 16K", 4);
    let folder = folder.path();
    let damage = |name: &str, at: u64| {
        let file = fs::OpenOptions::new().read(true).write(true).open(folder.join(name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, DATA_START + at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x40], DATA_START + at).unwrap();
    };
    damage("c.img", 5000);
    let members = "a.img b.img c.img d.img";
    let found = common::run(folder, &format!("check --json {members}"), b"");
    assert_eq!(found.status.code(), Some(4));
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(found["mismatch_sectors"], 8);
    assert_eq!(found["mismatches"][0]["slot"], 2, "{found}");
    assert_eq!(found["mismatches"][0]["member_start_bytes"], 4096);
    let before = images(folder, &FOUR);
    let code = common::run(folder, &format!("check {members}"), b"").status.code();
    assert_eq!(code, Some(4), "a check repairs nothing");
    assert!(images(folder, &FOUR).iter().zip(&before).all(|(now, before)| now.0 == before.0));
    let repaired = says(folder, &format!("repair --locate {members}"));
    assert!(repaired.contains("slot 2 (c.img)"), "{repaired}");
    holds(folder, members, &bytes);
}

#[test]
fn a_check_comes_after_the_recovery_that_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &FOUR[..3], 4 << 20);
    // As mdadm does, this leaves the last member to be recovered.
    ok(folder, "create -l 5 -n 3 --data-offset 1M a.img b.img c.img", b"");
    assert!(says(folder, "detail --scan .").contains("degraded"));
    assert_eq!(says(folder, "check --scan ."), "stripewise: check is done: nothing disagrees\n");
    assert!(!says(folder, "detail --scan .").contains("degraded"));
    let member = fs::OpenOptions::new().write(true).open(folder.join("c.img")).unwrap();
    member.write_all_at(b"something else", DATA_START + 100_000).unwrap();
    fails(folder, "check --scan .", b"", 4);
}

#[test]
fn a_read_only_check_finds_the_same_and_writes_nothing() {
    for (level, members) in [("1", 2), ("5 -c 16K", 3), ("6 -c 16K", 4), ("10 -c 16K", 4)] {
        let (folder, _) = array(level, members);
        let folder = folder.path();
        let names = FOUR[..members].join(" ");
        assert_eq!(
            says(folder, &format!("check --readonly {names}")),
            "stripewise: check is done: nothing disagrees\n"
        );
        let member = fs::OpenOptions::new().write(true).open(folder.join("b.img")).unwrap();
        member.write_all_at(b"something else", DATA_START + 100_000).unwrap();
        let before = images(folder, &FOUR[..members]);
        let found = common::run(folder, &format!("check --readonly {names}"), b"");
        let said = String::from_utf8(found.stdout).unwrap();
        assert_eq!(
            (found.status.code(), said.contains("8 sectors disagree")),
            (Some(4), true),
            "{level}: {said}"
        );
        fails(folder, &format!("repair --readonly {names}"), b"", 2);
        assert!(
            images(folder, &FOUR[..members]).iter().zip(&before).all(|(now, before)| now == before),
            "{level}"
        );
    }
}

#[test]
fn what_is_refused_changes_no_image() {
    let (folder, _) = array("5 -c 16K", 3);
    let folder = folder.path();
    blanks(folder, &["small.img"], 2 << 20);
    blanks(folder, &["e.img", "f.img"], 4 << 20);
    ok(folder, "create -l 1 -n 2 --data-offset 1M --assume-clean e.img f.img", b"");
    ok(folder, "fail c.img --array a.img b.img", b"");
    let all = ["a.img", "b.img", "c.img", "s.img", "small.img", "e.img"];
    let before = images(folder, &all);
    for (arguments, why) in [
        ("fail s.img --array a.img b.img --run", "no md superblock"),
        ("fail a.img --array b.img --run", "does not survive"),
        ("remove a.img --array b.img --run", "fail it first"),
        ("add small.img --array a.img b.img --run", "needs"),
        ("add e.img --array a.img b.img --run", "--force"),
        ("re-add c.img --array a.img b.img --run", "cannot be re-added"),
        ("re-add s.img --array a.img b.img --run", "cannot be re-added"),
        ("replace a.img --array b.img --run", "no spare"),
        (
            "replace a.img --with s.img --array a.img b.img --run",
            "s.img: is not a spare of the array; add it with add-spare",
        ),
        ("add a.img --array a.img b.img --run", "is named after --array, too"),
        ("add nowhere.img --array a.img b.img --run", "no such file"),
        ("fail a.img", "--control"),
        ("stop --control nowhere.sock", "no server answers"),
    ] {
        let output = common::run(folder, arguments, b"");
        let told = common::stderr(&output);
        assert!(told.contains(why), "{arguments}: {told}");
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments}");
    }
    assert!(images(folder, &all) == before, "an image was written to");
}

/// Serves until dropped.
struct Server(Option<Child>);

impl Server {
    fn start(folder: &Path, members: &str) -> Self {
        let serve = format!("serve {members} --socket nbd.sock --control c.sock");
        Self(Some(common::server(folder, &serve, "nbd.sock")))
    }

    fn wait(mut self) {
        let output = finish(self.0.take().unwrap(), b"");
        assert!(output.status.success(), "{}", common::stderr(&output));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().unwrap_or_default();
            child.wait().unwrap();
        }
    }
}

#[test]
fn who_asks_for_nothing_keeps_nobody_from_the_control_socket() {
    let (folder, _) = array("5 -c 16K", 3);
    let folder = folder.path();
    let _server = Server::start(folder, "a.img b.img c.img");
    let mut asks = UnixStream::connect(folder.join("c.sock")).unwrap();
    let mut ask = || {
        asks.write_all(b"{\"command\":\"detail\"}\n").unwrap();
        let mut answer = String::new();
        BufReader::new(&asks).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"detail\":"), "{answer}");
    };
    ask();
    let mut silent = Vec::new();
    for _ in 0..200 {
        ask();
        silent.push(UnixStream::connect(folder.join("c.sock")).unwrap());
    }
    for _ in 0..10 {
        assert_eq!(json(folder, "detail --json --control c.sock")["active_devices"], 3);
        assert!(says(folder, "speed --max 5000 --control c.sock").contains("5000"));
        ask();
    }
    drop(silent);
}

#[test]
fn an_array_that_is_written_to_is_active_and_nothing_is_resynced() {
    let (folder, _) = array("5 -c 16K", 3);
    let folder = folder.path();
    let _server = Server::start(folder, "a.img b.img c.img");
    let mut client = Client::new(&folder.join("nbd.sock"));
    let detail = || json(folder, "detail --json --control c.sock")["state"].take();
    // Which is so for a fifth of a second after a write.
    let active = (0..20).find_map(|_| {
        client.write(0, 0, &[7; 4096]);
        Some(detail()).filter(|state| state[0] == "active")
    });
    assert_eq!(active.unwrap(), serde_json::json!(["active"]));
}

#[test]
fn a_server_that_goes_without_an_answer_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let door = UnixListener::bind(folder.path().join("c.sock")).unwrap();
    std::thread::spawn(move || {
        for (turn, socket) in door.incoming().enumerate() {
            // Now it leaves at once, now it has read.
            if turn % 2 == 1 {
                let _asked = socket.unwrap().read(&mut [0; 1000]);
            }
        }
    });
    for _ in 0..10 {
        let output = run(folder.path(), "fail a.img --control c.sock", b"");
        assert_eq!(output.status.code(), Some(1), "{}", common::stderr(&output));
        assert!(common::stderr(&output).contains("c.sock: "), "{}", common::stderr(&output));
    }
}

#[test]
fn a_served_array_is_managed_by_its_control_socket() {
    let (folder, bytes) = array("5 -c 16K --bitmap internal --bitmap-chunk 64K", 3);
    let folder = folder.path();
    let server = Server::start(folder, "a.img b.img c.img");
    let detail = || json(folder, "detail --json --control c.sock");
    assert!(says(folder, "add-spare s.img --control c.sock").starts_with("stripewise: added "));
    assert_eq!(detail()["spare_devices"], 1);
    assert!(says(folder, "fail b.img --control c.sock").contains("faulty"));
    assert!(refused(folder, "fail b.img --control c.sock").contains("has failed already"));
    assert!(refused(folder, "replace a.img --control c.sock").contains("no spare"));
    let until = Instant::now() + Duration::from_secs(30);
    while detail()["active_devices"] != 3 {
        assert!(Instant::now() < until, "the spare does not take over: {}", detail());
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = says(folder, "detail --control c.sock");
    assert!(text.contains("State : clean") && text.contains("faulty   "), "{text}");
    let failed = |row: &serde_json::Value| row["state"] == "faulty" && row["slot"].is_null();
    assert!(detail()["devices"].as_array().unwrap().iter().any(failed), "{}", detail());
    let removed = says(folder, "remove failed --control c.sock");
    assert!(removed.starts_with("stripewise: removed ") && removed.contains("b.img"), "{removed}");
    assert_eq!(says(folder, "remove failed --control c.sock"), "stripewise: no member has failed\n");
    assert!(says(folder, "check --control c.sock").contains("check"));
    assert!(says(folder, "action idle --control c.sock").contains("idle"));
    says(folder, "stop --control c.sock");
    server.wait();
    holds(folder, "a.img s.img c.img", &bytes);
}

#[test]
fn a_replacement_that_failed_is_shown_as_faulty_and_can_be_removed() {
    let (folder, bytes) = array("1", 2);
    let folder = folder.path();
    let server = Server::start(folder, "a.img b.img");
    let detail = || json(folder, "detail --json --control c.sock");
    says(folder, "speed --control c.sock --min 100 --max 100");
    says(folder, "add-spare s.img --control c.sock");
    says(folder, "replace b.img --with s.img --control c.sock");
    let events_before = detail()["events"].as_u64().unwrap();
    assert!(says(folder, "fail s.img --control c.sock").contains("set replacement "));
    let shown = detail();
    assert_eq!(shown["state"], serde_json::json!(["clean"]), "{shown}");
    assert!(shown["events"].as_u64().unwrap() > events_before, "{shown}");
    let counts = ["active_devices", "failed_devices", "total_devices"].map(|count| shown[count].as_u64());
    assert_eq!(counts, [Some(2), Some(1), Some(3)], "{shown}");
    let last = &shown["devices"][2];
    assert!(last["state"] == "faulty" && last["slot"].is_null(), "{shown}");
    assert!(last["path"].as_str().unwrap().ends_with("s.img"), "{shown}");
    let text = says(folder, "detail --control c.sock");
    assert!(text.contains("faulty   ") && text.contains("Failed Devices : 1"), "{text}");
    let removed = says(folder, "remove failed --control c.sock");
    assert!(removed.starts_with("stripewise: removed ") && removed.contains("s.img"), "{removed}");
    assert_eq!(detail()["total_devices"], 2);
    says(folder, "stop --control c.sock");
    server.wait();
    holds(folder, "a.img b.img", &bytes);
}

#[test]
fn a_check_of_a_served_array_is_waited_for_and_ends_as_that_of_an_idle_one() {
    let (folder, bytes) = array("1", 2);
    let folder = folder.path();
    let member = fs::OpenOptions::new().write(true).open(folder.join("b.img")).unwrap();
    let spoil = || member.write_all_at(&[!bytes[100_000]; 14], DATA_START + 100_000).unwrap();
    spoil();
    let server = Server::start(folder, "a.img b.img");
    let ends = |arguments: &str, code: i32, text: &str| {
        let output = run(folder, &format!("{arguments} --control c.sock"), b"");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = common::stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {said}{errors}");
        assert!(said.starts_with(text), "{arguments}: {said}{errors}");
    };
    let (found, whole) =
        ("stripewise: check is done: 8 sectors", "stripewise: check is done: nothing disagrees\n");
    ends("check --wait", 4, found);
    ends("action check --wait", 4, found);
    let as_json = run(folder, "check --wait --json --control c.sock", b"");
    assert_eq!(as_json.status.code(), Some(4));
    let as_json: serde_json::Value = serde_json::from_slice(&as_json.stdout).unwrap();
    assert_eq!(as_json["mismatch_sectors"], 8, "{as_json}");
    assert_eq!(as_json["mismatches"][0]["what"], "unlocated", "{as_json}");
    ends("repair --wait", 0, "stripewise: repair is done: 8 sectors disagreed");
    ends("check --wait", 0, whole);
    assert!(refused(folder, "check --json --control c.sock").contains("add --wait"));
    assert!(refused(folder, "action idle --wait --control c.sock").contains("--wait: idle and frozen"));
    let last = || json(folder, "detail --json --control c.sock")["last_check"].take();
    assert_eq!(last(), serde_json::json!({ "number": 5, "result": "done" }));
    says(folder, "stop --control c.sock");
    server.wait();
    assert_eq!(says(folder, "check --wait a.img b.img"), whole, "an idle array is waited for anyway");
}

#[test]
fn a_check_that_is_waited_for_and_does_not_end_is_no_success() {
    let (folder, _) = array("1", 3);
    let folder = folder.path();
    let server = Server::start(folder, "a.img b.img c.img");
    says(folder, "speed --control c.sock --min 100 --max 100");
    let begin = || {
        let waits = command(folder, "check --wait --control c.sock").spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while json(folder, "detail --json --control c.sock")["sync"]["action"] != "check" {
            assert!(Instant::now() < until, "the check does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        waits
    };
    let ends = |waits: Child, code: i32, text: &str| {
        let output = finish(waits, b"");
        let said = common::stderr(&output);
        assert!(output.status.code() == Some(code) && said.contains(text), "{:?}: {said}", output.status);
    };
    let waits = begin();
    signal(&waits, "INT");
    ends(waits, 130, "interrupted; the check goes on");
    assert!(refused(folder, "check --wait --control c.sock").contains("another action is under way"));
    says(folder, "action idle --control c.sock");
    let waits = begin();
    says(folder, "action idle --control c.sock");
    ends(waits, 1, "the server interrupted the check");
    let waits = begin();
    says(folder, "fail c.img --control c.sock");
    ends(waits, 1, "the server interrupted the check");
    let waits = begin();
    says(folder, "stop --control c.sock");
    server.wait();
    ends(waits, 1, "the check");
}

#[test]
fn an_array_that_is_only_read_says_so_when_a_flag_is_to_be_set() {
    let (folder, _) = array("1", 2);
    let folder = folder.path();
    let before = images(folder, &FOUR[..2]);
    let _server = Server::start(folder, "a.img b.img --readonly");
    for arguments in ["state --write-mostly a.img", "fail a.img", "add s.img"] {
        let said = refused(folder, &format!("{arguments} --control c.sock"));
        assert!(said.contains("it is read-only"), "{arguments}: {said}");
    }
    // What could not be compared is known only to a check of its own.
    assert!(refused(folder, "check --wait --control c.sock").contains("`stripewise check --readonly`"));
    assert!(says(folder, "check --readonly a.img b.img").contains("nothing disagrees"));
    assert!(images(folder, &FOUR[..2]) == before);
}

#[test]
fn flags_of_members_are_set_on_idle_and_served_arrays_and_reads_spare_them() {
    let (folder, bytes) = array("1 --bitmap internal --bitmap-chunk 64K", 2);
    let folder = folder.path();
    let spoil = || {
        let file = fs::OpenOptions::new().write(true).open(folder.join("a.img")).unwrap();
        file.write_all_at(&vec![0xee; bytes.len()], DATA_START).unwrap();
    };
    let reads = |of: &str| ok(folder, &format!("read {of} --length {}", bytes.len()), b"") == bytes;
    let set = says(folder, "state --write-mostly a.img -w --failfast b.img --array a.img b.img");
    assert_eq!(set, "stripewise: flags of a.img are write-mostly\nstripewise: flags of b.img are failfast\n");
    spoil();
    assert!(reads("a.img b.img"), "a member to be spared was read");
    let refused_state = refused(folder, "state a.img -W b.img --array a.img b.img");
    assert!(refused_state.contains("a.img: no flag is given"), "{refused_state}");
    assert!(refused(folder, "state -W s.img --array a.img b.img").contains("s.img"));
    let (striped, _) = array("0 -c 16K", 2);
    let of_striped = refused(striped.path(), "state -W a.img --array a.img b.img");
    assert!(of_striped.contains("no redundancy"), "{of_striped}");
    let server = Server::start(folder, "a.img b.img");
    let text = || says(folder, "detail --control c.sock");
    assert!(text().contains("active sync writemostly   "), "{}", text());
    assert!(
        says(folder, "state -w a.img -W b.img --control c.sock")
            .ends_with("b.img are write-mostly failfast\n")
    );
    assert!(text().contains("active sync writemostly failfast   "), "{}", text());
    says(folder, "fail b.img --control c.sock");
    assert!(text().contains("faulty writemostly failfast   "), "{}", text());
    assert!(refused(folder, "state -w b.img --control c.sock").contains("has failed already"));
    says(folder, "remove b.img --control c.sock");
    says(folder, "re-add --nofailfast b.img --control c.sock");
    says(folder, "add-spare --failfast s.img --control c.sock");
    assert!(text().contains(" writemostly   ") && text().contains("spare failfast   "), "{}", text());
    says(folder, "stop --control c.sock");
    server.wait();
    assert!(!reads("a.img b.img"), "the member that is not to be spared is read, whatever it holds");
}

#[test]
fn progress_is_watched_and_an_interruption_is_recorded() {
    let (folder, bytes) = array("1", 2);
    let folder = folder.path();
    let server = Server::start(folder, "a.img b.img");
    says(folder, "speed --control c.sock --min 100 --max 500");
    says(folder, "add-spare s.img --control c.sock");
    says(folder, "fail b.img --control c.sock");
    let watch = command(folder, "detail --watch --control c.sock").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    signal(&watch, "INT");
    let watched = finish(watch, b"");
    assert_eq!(watched.status.code(), Some(130));
    let lines = String::from_utf8(watched.stdout).unwrap();
    assert!(lines.lines().next().unwrap().contains("recover") && lines.contains("KiB/s"), "{lines}");
    says(folder, "speed --control c.sock --max 200000");
    let until = Instant::now() + Duration::from_secs(30);
    while json(folder, "detail --json --control c.sock")["sync"]["action"] != "idle" {
        assert!(Instant::now() < until, "the recovery does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
    says(folder, "stop --control c.sock");
    server.wait();
    holds(folder, "a.img s.img", &bytes);
    assert!(fails(folder, "detail --json --control c.sock", b"", 1).contains("no server answers"));
}

/// Lists a page of a member's data as bad, as one that could not be written.
fn list_as_bad(member: &Path, data_sector: u64) {
    const SUPERBLOCK: u64 = 8;
    // The log counts from the start of the device.
    let start_sector = DATA_START / 512 + data_sector;
    let file = fs::File::options().read(true).write(true).open(member).unwrap();
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, SUPERBLOCK * 512).unwrap();
    let mut superblock = Superblock1::parse(&block, SUPERBLOCK).unwrap();
    superblock.features |= Features::BAD_BLOCKS;
    let log = bad_blocks::to_bytes(
        &[BadRange { start_sector, length_sectors: 8 }],
        superblock.bblog_shift,
        superblock.bblog_size_sectors,
    );
    let log_sector = SUPERBLOCK.checked_add_signed(superblock.bblog_offset_sectors.into()).unwrap();
    file.write_all_at(&log.unwrap(), log_sector * 512).unwrap();
    file.write_all_at(&superblock.to_bytes(), SUPERBLOCK * 512).unwrap();
}

#[test]
fn what_no_copy_has_is_said_by_all_that_meet_it() {
    let (folder, bytes) = array("1", 2);
    let folder = folder.path();
    let (lost, unread) = ("array bytes 40960 to 45056 are lost", "8 cannot be read from enough members");
    for name in ["a.img", "b.img"] {
        list_as_bad(&folder.join(name), 80);
    }
    let ends = |arguments: &str, code: i32, stdout: &str, stderr: &str| {
        let output = run(folder, arguments, b"");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains(stdout), "{arguments}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains(stderr), "{arguments}: {}", text(&output.stderr));
    };
    for command in ["check --readonly", "check", "repair"] {
        ends(&format!("{command} a.img b.img"), 1, unread, lost);
    }
    let all_before = run(folder, "read a.img b.img", b"");
    assert!(all_before.stdout == bytes[..40960], "{} bytes", all_before.stdout.len());
    assert!(String::from_utf8_lossy(&all_before.stderr).contains("at byte 40960"));
    // A recovery that leaves it out.
    ends("fail b.img --array a.img b.img", 0, "faulty", "");
    ends("add s.img --array a.img", 1, "added", lost);
    // What is written again is there again.
    ok(folder, "write a.img s.img --offset 40960", &bytes[40960..45056]);
    holds(folder, "a.img s.img", &bytes);
}

#[test]
fn what_copies_lack_at_different_places_is_written_from_each_other() {
    let (folder, bytes) = array("1", 2);
    let folder = folder.path();
    list_as_bad(&folder.join("a.img"), 80);
    list_as_bad(&folder.join("b.img"), 96);
    let output = run(folder, "check --readonly a.img b.img", b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("b.img lists bad blocks"));
    holds(folder, "a.img b.img", &bytes);
    assert!(!says(folder, "examine a.img b.img").contains("bad blocks present"));
}

#[test]
fn a_replacement_that_was_interrupted_goes_on_by_the_same_command() {
    let (folder, bytes) = array("5 -c 16K", 3);
    let folder = folder.path();
    let server = Server::start(folder, "a.img b.img c.img");
    says(folder, "speed --control c.sock --min 100 --max 100");
    says(folder, "add-spare s.img --control c.sock");
    says(folder, "replace b.img --control c.sock");
    says(folder, "stop --control c.sock");
    server.wait();
    let of = "--array a.img c.img s.img";
    assert!(refused(folder, &format!("replace b.img --with a.img {of}")).contains("a.img"));
    let said = says(folder, &format!("replace b.img {of}"));
    assert_eq!(said, "stripewise: b.img is already being replaced\n");
    holds(folder, "a.img s.img c.img", &bytes);
}
