//! The command as a part of a system: the unit for systemd, completions and manual pages.

mod common;

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use common::{blanks, command, finish, json, ok, refused, server, signal, stderr};

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

/// A program that notes what it is run with, and ends with an error for a spare that is active.
const NOTES: &str = "#!/bin/sh
echo \"$*: $STRIPEWISE_MESSAGE\" >> notes
test \"$1\" != SpareActive
";

/// Waits until the program has noted something of an event.
fn noted(folder: &Path, event: &str) -> String {
    for _ in 0..600 {
        let notes = fs::read_to_string(folder.join("notes")).unwrap_or_default();
        if let Some(line) = notes.lines().rfind(|line| line.starts_with(&format!("{event} "))) {
            return line.to_owned();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("nothing of {event}: {:?}", fs::read_to_string(folder.join("notes")));
}

#[test]
fn a_program_is_told_of_events_as_by_mdadm() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &["a.img", "b.img", "c.img"], 8 << 20);
    ok(folder, "create -l 5 -n 3 --assume-clean --name media a.img b.img c.img", b"");
    let serve = "serve a.img b.img c.img --socket s --control ctl --program ./note";
    let said = refused(folder, serve);
    assert!(said.contains("--program ./note: no such file that can be executed"), "{said}");
    fs::write(folder.join("note"), NOTES).unwrap();
    assert!(refused(folder, serve).contains("executed"), "it is not executable");
    fs::set_permissions(folder.join("note"), fs::Permissions::from_mode(0o755)).unwrap();

    let served = server(folder, serve, "s");
    ok(folder, "fail --control ctl b.img", b"");
    let line = noted(folder, "Fail");
    assert!(line.starts_with("Fail media b.img: b.img failed and is out of use"), "{line}");
    signal(&served, "TERM");
    let said = stderr(&finish(served, b""));
    assert!(!said.contains("--program"), "{said}");

    let served = server(folder, serve, "s");
    let line = noted(folder, "DegradedArray");
    assert!(line.starts_with("DegradedArray media: ") && line.contains("2 drives (out of 3)"), "{line}");
    ok(folder, "add --control ctl b.img", b"");
    let line = noted(folder, "SpareActive");
    assert!(line.starts_with("SpareActive media /") && line.contains("/b.img: /"), "{line}");
    assert_eq!(noted(folder, "RebuildStarted"), "RebuildStarted media: a recovery begins");
    assert_eq!(noted(folder, "RebuildFinished"), "RebuildFinished media: a recovery is done");
    signal(&served, "TERM");
    let said = stderr(&finish(served, b""));
    assert!(said.contains("--program ./note SpareActive: exit status: 1"), "{said}");

    // The members are not alike: a check finds it.
    let found = json(folder, "examine --json c.img");
    let data = found["devices"][0]["superblocks"][0]["data_offset_bytes"].as_u64().unwrap();
    let image = fs::OpenOptions::new().write(true).open(folder.join("c.img")).unwrap();
    image.write_all_at(&[1; 512], data).unwrap();
    let served = server(folder, serve, "s");
    ok(folder, "check --control ctl", b"");
    for _ in 0..600 {
        if noted(folder, "RebuildFinished").contains("check") {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let wanted = "RebuildFinished media mismatches found: 8: a check is done: 8 sectors disagreed";
    assert_eq!(noted(folder, "RebuildFinished"), wanted);
    signal(&served, "TERM");
    finish(served, b"");
}

#[test]
fn the_mail_program_mails_what_needs_somebody() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/stripewise-mail");
    for (arguments, subject) in [
        (&["Fail", "media", "/dev/sdb"][..], "Subject: Fail on array media of "),
        (&["DegradedArray", "media"], "Subject: DegradedArray on array media of "),
        (&["RebuildFinished", "media", "mismatches found: 8"], "Subject: RebuildFinished on array media of "),
        (&["RebuildFinished", "media"], ""),
        (&["SpareActive", "media", "/dev/sdb"], ""),
    ] {
        let mut mail = Command::new(program);
        mail.args(arguments).envs([
            ("SENDMAIL", "cat"),
            ("MAILTO", "me"),
            ("STRIPEWISE_MESSAGE", "in words"),
        ]);
        let ended = mail.output().unwrap();
        let said = String::from_utf8(ended.stdout).unwrap();
        assert!(ended.status.success(), "{arguments:?}");
        if subject.is_empty() {
            assert_eq!(said, "", "{arguments:?}");
        } else {
            assert!(
                said.starts_with(&format!("To: me\n{subject}")) && said.ends_with("\n\nin words\n"),
                "{said}"
            );
        }
    }
}
