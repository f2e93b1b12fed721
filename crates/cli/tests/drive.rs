//! A drive's server by command.

mod common;

use std::os::unix::net::UnixStream;

use common::{command, finish, refused, server, signal, stderr};

#[test]
fn both_servers_end_when_told_to_and_remove_their_sockets() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--socket", "--vhost-user"] {
        let arguments = format!("drive serve constant-latency {option} s");
        let child = server(folder.path(), &arguments, "s");
        // With a client that says nothing.
        let _client = UnixStream::connect(folder.path().join("s")).unwrap();
        signal(&child, "TERM");
        let output = finish(child, b"");
        assert_eq!(output.status.code(), Some(0), "{option}: {}", stderr(&output));
        assert!(!folder.path().join("s").exists(), "{option}");
    }
}

#[test]
fn a_drive_is_served_in_one_way() {
    let folder = tempfile::tempdir().unwrap();
    let neither = refused(folder.path(), "drive serve constant-latency");
    assert!(neither.contains("--socket") && neither.contains("--vhost-user"), "{neither}");
    let both = refused(folder.path(), "drive serve constant-latency --socket a --vhost-user b");
    assert!(both.contains("cannot be used with"), "{both}");
}

#[test]
fn programs_that_validation_needs_and_are_missing_are_named_with_their_packages() {
    let folder = tempfile::tempdir().unwrap();
    let child = command(folder.path(), "study validate").env("PATH", folder.path()).spawn().unwrap();
    let output = finish(child, b"");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("linux.uml") && said.contains("apt-get install user-mode-linux"), "{said}");
}
