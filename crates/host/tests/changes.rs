//! An array is changed while clients read and write: their requests wait.

mod common;

use std::io::{BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::load::{Control, Load, serve_under_load};
use common::md::{create_array, found, open};
use common::nbd::{Client, ZEROES};
use serde_json::{Value, json};
use stripewise_engine::assembly::Options;
use stripewise_engine::cache::{CacheConfig, CachePolicy};
use stripewise_engine::io::SyncAction;
use stripewise_engine::level::Level;
use stripewise_engine::units::{self as engine, Nanos};
use stripewise_format::placement::Consistency;
use stripewise_format::time::Timestamp;
use stripewise_host::md::grow::{BitmapChange, Change, Policy, check, grow};
use stripewise_host::{
    Array, ArrayStatus, Changer, HostError, Layers, Manage, NbdServer, Observed, Observer, Reopened,
    ServeConfig, ServeEvent,
};

/// Changes the array of these members, as it is told to.
struct Ours {
    members: Vec<PathBuf>,
    changes: Vec<Change>,
}

const TIME: Timestamp = Timestamp::from_seconds(1_700_000_100);

impl Changer for Ours {
    fn refusal(&mut self, array: &Array, change: Change) -> Option<String> {
        if array.status().cache.is_some() {
            // Its members may be gone already, unnoticed.
            return None;
        }
        let found = found(&self.members).found;
        check(found, Options::default(), change, TIME).err().map(|error| error.to_string())
    }

    fn reopen(&mut self, _: &ArrayStatus, change: Option<Change>) -> Reopened {
        let said = change.map_or(Ok(String::new()), |change| {
            self.changes.push(change);
            let grown = grow(found(&self.members).found, Options::default(), change, TIME, &[]);
            grown.map(|grown| format!("{:?}", grown.outcome)).map_err(|error| error.to_string())
        });
        Reopened { array: Some(open(&self.members, true)), said }
    }
}

/// Opens the array again, or not.
struct Reopens<F>(F);

impl<F: FnMut() -> Reopened> Changer for Reopens<F> {
    fn refusal(&mut self, _: &Array, _: Change) -> Option<String> {
        None
    }

    fn reopen(&mut self, _: &ArrayStatus, _: Option<Change>) -> Reopened {
        self.0()
    }
}

fn asked(control: &mut Control, what: &Value) -> Value {
    let mut line = what.clone();
    line["command"] = "grow".into();
    control.ask(&line.to_string())
}

fn done(control: &mut Control, what: &Value) {
    let answer = asked(control, what);
    assert!(answer["done"].is_string(), "{what}: {answer}");
}

#[test]
fn an_array_is_changed_while_clients_write() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid5, 4, Consistency::Ppl);
    let array = open(&members, true);
    let loads = Load::of_each_third(&array);
    let mut ours = Ours { members: members.clone(), changes: Vec::new() };
    let serve = |server: NbdServer| {
        let (report, array) = server.serve_changing(array, &mut ours);
        report.unwrap();
        array.unwrap().close().unwrap();
    };
    let loads = serve_under_load(loads, folder.path(), serve, |control| {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(50));
            done(control, &json!({"consistency_policy": "resync"}));
            done(control, &json!({"bitmap": "internal"}));
            // What is refused leaves it as it is.
            let again = asked(control, &json!({"bitmap": "internal"}));
            assert!(again["error"].as_str().unwrap().contains("has a bitmap"), "{again}");
            done(control, &json!({"bitmap": "none"}));
            done(control, &json!({"consistency_policy": "ppl"}));
        }
        done(control, &json!({"consistency_policy": "resync"}));
        done(control, &json!({"bitmap": "internal"}));
    });
    assert_eq!(ours.changes.len(), 14, "what is refused is not begun");
    assert_eq!(ours.changes[2], Change::Bitmap(BitmapChange::None));
    assert_eq!(ours.changes[3], Change::Policy(Policy::Ppl));
    let assembled = found(&members);
    assert!(assembled.assembly.is_clean);
    assert_eq!(assembled.assembly.consistency, stripewise_engine::assembly::Consistency::Bitmap);
    let mut array = open(&members, true);
    for load in &loads {
        assert!(load.versions.iter().any(|version| *version > 0));
        load.verify(&mut array);
    }
    array.manage(&Manage::Sync(SyncAction::Check)).unwrap();
    array.sync(|_| ()).unwrap();
    assert_eq!(array.status().sync.unwrap().mismatch_sectors, 0);
}

/// A server, and where its clients and its control socket are.
fn server(folder: &Path, config: ServeConfig) -> (NbdServer, PathBuf, PathBuf) {
    let (socket, control) = (folder.join("nbd.sock"), folder.join("control.sock"));
    let config = ServeConfig { socket: Some(socket.clone()), control: Some(control.clone()), ..config };
    (NbdServer::bind(config).unwrap(), socket, control)
}

fn connect(control: &Path) -> Control {
    let stream = UnixStream::connect(control).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    Control(BufReader::new(stream))
}

#[test]
fn a_server_whose_array_cannot_be_opened_again_says_why_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid1, 2, Consistency::Resync);
    let array = open(&members, true);
    let (server, socket, control) = server(folder.path(), ServeConfig::default());
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let gone = || Reopened { array: None, said: Err("it is gone".to_owned()) };
            server.serve_changing(array, &mut Reopens(gone))
        });
        let mut client = Client::new(&socket);
        client.write(0, 0, &[7; 4096]);
        let answer = asked(&mut connect(&control), &json!({"bitmap": "internal"}));
        assert_eq!(answer, json!({"failed": "it is gone"}));
        let (report, array) = serving.join().unwrap();
        let error = report.unwrap_err();
        assert!(matches!(&error, HostError::Reopen { why } if why == "it is gone"), "{error}");
        assert!(array.is_none());
        assert_eq!(client.stream.read(&mut [0; 1]).unwrap(), 0, "the client is let go of");
    });
}

#[test]
fn members_are_found_again_as_the_files_that_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid1, 2, Consistency::Resync);
    let array = open(&members, true);
    let (server, socket, control) = server(folder.path(), ServeConfig::default());
    std::thread::scope(|scope| {
        let mut ours = Ours { members: members.clone(), changes: Vec::new() };
        let serving = scope.spawn(move || server.serve_changing(array, &mut ours));
        let mut client = Client::new(&socket);
        let copy = folder.path().join("copy");
        std::fs::copy(&members[1], &copy).unwrap();
        std::fs::rename(&members[1], folder.path().join("away")).unwrap();
        std::fs::rename(&copy, &members[1]).unwrap();
        client.write(0, 0, &[7; 4096]);
        let mut control = connect(&control);
        let answer = asked(&mut control, &json!({"bitmap": "internal"}));
        assert!(answer["error"].as_str().unwrap().contains("m1: the member is not there"), "{answer}");
        std::fs::rename(folder.path().join("away"), &members[1]).unwrap();
        done(&mut control, &json!({"bitmap": "internal"}));
        assert_eq!(client.read(0, 4096), [7; 4096]);
        assert_eq!(control.ask(r#"{"command":"stop"}"#), json!({"stopping": true}));
        serving.join().unwrap().0.unwrap();
    });
}

/// Serves an array behind a page cache, cuts off a member with what was written still in the cache, and asks for a change; answers what
/// is said to who asked, the server's error, and what it told of the array.
fn cut_before_a_change(level: Level) -> (Value, Option<HostError>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), level, 2, Consistency::Resync);
    let mut array = open(&members, true);
    let cache = CacheConfig::new(CachePolicy::stripewise(), 4 << 20);
    array.raise(&Layers { crypt: None, cache: Some(cache) }).unwrap();
    let (heard, lines) = std::sync::mpsc::channel();
    let tell = move |event: &ServeEvent| heard.send(event.to_string()).unwrap_or_default();
    let config = ServeConfig { tell: Some(Arc::new(tell)), ..ServeConfig::default() };
    let (server, socket, control) = server(folder.path(), config);
    let (answer, error) = std::thread::scope(|scope| {
        let left = members[1..].to_vec();
        let serving = scope.spawn(move || {
            let mut ours = Ours { members: left, changes: Vec::new() };
            let (report, array) = server.serve_changing(array, &mut ours);
            assert_eq!(ours.changes, []);
            drop(array);
            report.err()
        });
        let mut client = Client::new(&socket);
        client.write(0, 0, &[7; 4096]);
        common::md::file(&members[0]).set_len(0).unwrap();
        let mut control = connect(&control);
        let answer = asked(&mut control, &json!({"bitmap": "internal"}));
        if answer["failed"].is_null() {
            assert_eq!(client.read(0, 4096), [7; 4096]);
            assert_eq!(control.ask(r#"{"command":"stop"}"#), json!({"stopping": true}));
        }
        (answer, serving.join().unwrap())
    });
    (answer, error, lines.try_iter().collect())
}

#[test]
fn a_server_ends_where_what_was_written_before_a_change_is_lost() {
    let (answer, error, told) = cut_before_a_change(Level::Raid0);
    assert!(answer["failed"].is_string(), "{answer}");
    assert!(matches!(error, Some(HostError::Reopen { .. })), "{error:?}");
    assert!(told.iter().any(|line| line.contains("m0")), "{told:?}");
}

#[test]
fn an_array_that_lost_a_member_while_it_was_closed_is_not_changed() {
    let (answer, error, told) = cut_before_a_change(Level::Raid1);
    assert!(answer["error"].as_str().unwrap().contains("a member failed"), "{answer}");
    assert!(error.is_none(), "{error:?}");
    assert!(told.iter().any(|line| line.contains("m0")), "{told:?}");
}

/// When each request came.
#[derive(Default)]
struct Arrivals(Mutex<Vec<Nanos>>);

impl Observer for Arrivals {
    fn observe(&self, observed: &Observed) {
        self.0.lock().unwrap().push(observed.arrived.since(engine::Instant::ZERO));
        assert!(observed.latency < Nanos::from_millis(20_000));
    }
}

#[test]
fn times_go_on_over_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid1, 2, Consistency::Resync);
    let array = open(&members, true);
    let arrivals = Arc::new(Arrivals::default());
    let observer = Some(Arc::clone(&arrivals) as Arc<dyn Observer>);
    let (server, socket, control) = server(folder.path(), ServeConfig { observer, ..ServeConfig::default() });
    std::thread::sleep(Duration::from_millis(300));
    std::thread::scope(|scope| {
        let mut ours = Ours { members: members.clone(), changes: Vec::new() };
        scope.spawn(move || server.serve_changing(array, &mut ours).0.unwrap());
        let mut client = Client::new(&socket);
        client.write(0, 0, &[7; 4096]);
        let mut control = connect(&control);
        done(&mut control, &json!({"bitmap": "internal"}));
        client.write(0, 4096, &[7; 4096]);
        assert_eq!(control.ask(r#"{"command":"stop"}"#), json!({"stopping": true}));
    });
    let arrivals = arrivals.0.lock().unwrap();
    assert!(matches!(arrivals[..], [first, second] if first < second), "{arrivals:?}");
}

#[test]
fn who_cannot_change_the_array_says_so_and_one_at_work_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid5, 3, Consistency::Resync);
    let mut array = open(&members, true);
    let (first, _, control) = server(folder.path(), ServeConfig::default());
    let error = |answer: &Value| answer["error"].as_str().unwrap_or_default().to_owned();
    std::thread::scope(|scope| {
        scope.spawn(|| first.serve(&mut array).unwrap());
        let mut control = connect(&control);
        let answer = asked(&mut control, &json!({"bitmap": "internal"}));
        assert!(error(&answer).contains("stop it"), "{answer}");
        assert_eq!(control.ask(r#"{"command":"stop"}"#), json!({"stopping": true}));
    });
    array.close().unwrap();
    drop(array);
    let array = open(&members, true);
    let (second, _, control) = server(folder.path(), ServeConfig::default());
    std::thread::scope(|scope| {
        let mut never = Reopens(|| panic!("nothing is to be changed"));
        scope.spawn(move || second.serve_changing(array, &mut never).0.unwrap());
        let mut control = connect(&control);
        for (command, says) in [
            (json!({"command": "frozen"}), "action idle"),
            (json!({"command": "speed", "min_kib": 1, "max_kib": 1}), ""),
            (json!({"command": "idle"}), ""),
            (json!({"command": "check"}), "at work (check)"),
        ] {
            assert!(control.ask(&command.to_string())["done"].is_string(), "{command}");
            if !says.is_empty() {
                let answer = asked(&mut control, &json!({"bitmap": "internal"}));
                assert!(error(&answer).contains(says), "{answer}");
            }
        }
        assert_eq!(control.ask(r#"{"command":"stop"}"#), json!({"stopping": true}));
    });
}

#[test]
fn what_is_left_of_a_long_request_is_carried_out_by_the_changed_array() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let members = create_array(path, Level::Raid1, 2, Consistency::Resync);
    for member in &members {
        // So that it takes longer than a change waits for.
        common::md::file(member).set_len(96 << 20).unwrap();
    }
    let all = Change::Size { asked_sectors: None, assume_clean: true };
    grow(found(&members).found, Options::default(), all, Timestamp::from_seconds(1_700_000_000), &[])
        .unwrap();
    let array = open(&members, true);
    let bytes = array.sectors() * 512;
    assert!(bytes > 2 * (16 << 20), "{bytes}");
    let (server, socket, control) = server(path, ServeConfig::default());
    let mut rounds = 0;
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut again = Reopens(|| {
                rounds += 1;
                Reopened { array: Some(open(&members, true)), said: Ok("done".to_owned()) }
            });
            let (report, array) = server.serve_changing(array, &mut again);
            report.unwrap();
            array.unwrap().close().unwrap();
        });
        let mut client = Client::new(&socket);
        client.write(0, bytes - 4096, &[7; 4096]);
        client.send(ZEROES, 0, 9, 0, u32::try_from(bytes).unwrap());
        let mut control = connect(&control);
        for _ in 0..3 {
            assert_eq!(asked(&mut control, &json!({"bitmap": "none"})), json!({"done": "done"}));
        }
        assert_eq!(client.reply(), (0, 9));
        assert_eq!(client.read(bytes - 4096, 4096), [0; 4096]);
        assert_eq!(control.ask(r#"{"command":"stop"}"#), json!({"stopping": true}));
        serving.join().unwrap();
    });
    assert_eq!(rounds, 3);
}
