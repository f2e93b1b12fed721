//! An array is changed while clients read and write: their requests wait.

mod common;

use std::io::{BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::load::{Control, Load, serve_under_load};
use common::md::{create_array, found, open};
use common::nbd::{Client, ZEROES};
use serde_json::{Value, json};
use stripewise_engine::assembly::Options;
use stripewise_engine::io::SyncAction;
use stripewise_engine::level::Level;
use stripewise_format::placement::Consistency;
use stripewise_format::time::Timestamp;
use stripewise_host::md::grow::{BitmapChange, Change, Policy, grow};
use stripewise_host::{Array, Changed, HostError, Manage, NbdServer, ServeConfig};

/// Closes the array, changes it and opens it again.
fn change(array: Array, change: Change, members: &[PathBuf]) -> Changed {
    let mut array = array;
    array.close().unwrap();
    drop(array);
    let time = Timestamp::from_seconds(1_700_000_100);
    let grown = grow(found(members).found, Options::default(), change, time, &[]);
    let said = grown.map(|grown| format!("{:?}", grown.outcome)).map_err(|error| error.to_string());
    Changed { array: Some(open(members, true)), said }
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
    let mut changes = Vec::new();
    let serve = |server: NbdServer| {
        let (report, array) = server.serve_changing(array, &mut |array, asked| {
            changes.push(asked);
            change(array, asked, &members)
        });
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
    assert_eq!(changes.len(), 17);
    assert_eq!(changes[3], Change::Bitmap(BitmapChange::None));
    assert_eq!(changes[4], Change::Policy(Policy::Ppl));
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

/// A server of an array, and its control socket.
fn server(folder: &Path) -> (NbdServer, PathBuf, PathBuf) {
    let (socket, control) = (folder.join("nbd.sock"), folder.join("control.sock"));
    let config = ServeConfig {
        socket: Some(socket.clone()),
        control: Some(control.clone()),
        ..ServeConfig::default()
    };
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
    let (server, socket, control) = server(folder.path());
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server.serve_changing(array, &mut |mut array, _| {
                array.close().unwrap();
                Changed { array: None, said: Err("it is gone".to_owned()) }
            })
        });
        let mut client = Client::new(&socket);
        client.write(0, 0, &[7; 4096]);
        let answer = asked(&mut connect(&control), &json!({"bitmap": "internal"}));
        assert_eq!(answer, json!({"error": "it is gone"}));
        let (report, array) = serving.join().unwrap();
        let error = report.unwrap_err();
        assert!(matches!(&error, HostError::Reopen { why } if why == "it is gone"), "{error}");
        assert!(array.is_none());
        assert_eq!(client.stream.read(&mut [0; 1]).unwrap(), 0, "the client is let go of");
    });
}

#[test]
fn who_cannot_change_the_array_says_so_and_one_at_work_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let members = create_array(folder.path(), Level::Raid5, 3, Consistency::Resync);
    let mut array = open(&members, true);
    let (first, _, control) = server(folder.path());
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
    let (second, _, control) = server(folder.path());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            second.serve_changing(array, &mut |_, _| panic!("nothing is to be changed")).0.unwrap()
        });
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
    let (server, socket, control) = server(path);
    let mut rounds = 0;
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let (report, array) = server.serve_changing(array, &mut |mut array, _| {
                rounds += 1;
                array.close().unwrap();
                drop(array);
                Changed { array: Some(open(&members, true)), said: Ok("done".to_owned()) }
            });
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
