//! The command as a part of a system: the unit for systemd, completions and manual pages.

mod common;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use common::{blanks, command, finish, json, ok, refused, signal, stderr};

const UNIT: &str = include_str!("../../../contrib/stripewise@.service");

/// What the unit starts for the array `media`, with its folders moved to a test's.
fn started(folder: &Path, options: &str) -> String {
    let line =
        UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/stripewise ")).unwrap();
    line.replace("$SERVE", options)
        .replace("%i", "media")
        .replace("/run/stripewise", folder.to_str().unwrap())
}

/// Starts it and waits for what systemd waits for.
fn start(folder: &Path, system: &UnixDatagram) -> (Child, String) {
    let mut serve = command(folder, &started(folder, "--scan . --name media --cache 4M"));
    let child = serve.env("NOTIFY_SOCKET", folder.join("notify")).spawn().unwrap();
    let mut said = [0; 4096];
    let length = system.recv(&mut said).unwrap();
    (child, String::from_utf8_lossy(&said[..length]).into_owned())
}

#[test]
fn the_unit_starts_a_server_that_says_when_it_is_ready_and_starts_again_after_it_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &["a.img", "b.img", "c.img"], 4 << 20);
    ok(folder, "create -l 5 -n 3 --assume-clean --name media a.img b.img c.img", b"");
    let system = UnixDatagram::bind(folder.join("notify")).unwrap();
    system.set_read_timeout(Some(Duration::from_secs(30))).unwrap();

    let (mut killed, said) = start(folder, &system);
    assert!(said.starts_with("READY=1\nSTATUS=") && said.contains("media"), "{said}");
    let control = json(folder, "detail --json --control media.ctl");
    assert_eq!(control["active_devices"], 3, "{control}");
    killed.kill().unwrap();
    killed.wait().unwrap();

    let (server, said) = start(folder, &system);
    assert!(said.starts_with("READY=1\n"), "{said}");
    signal(&server, "TERM");
    let ended = finish(server, b"");
    assert!(ended.status.success(), "{}", stderr(&ended));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    ok(folder, "man share/man1", b"");
    let page = fs::read_to_string(folder.join("share/man1/stripewise-create.1")).unwrap();
    assert!(page.contains("raid\\-devices"), "{page}");
    let help = String::from_utf8(ok(folder, "--help", b"")).unwrap();
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> =
        commands.filter_map(|line| line.strip_prefix("  ")?.split_once(' ')).map(|(name, _)| name).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty() && *name != "help").collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(folder.join(format!("share/man1/stripewise-{name}.1")).is_file(), "{name}");
    }
    fs::write(folder.join("file"), "").unwrap();
    let said = refused(folder, "man file");
    assert!(said.contains("file") && said.contains("not a folder"), "{said}");
}

#[test]
fn shells_complete_options_and_values() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(ok(folder.path(), &format!("completions {shell}"), b"")).unwrap();
        assert!(script.contains("raid-devices") && script.contains("add-spare"), "{shell}");
    }
}
