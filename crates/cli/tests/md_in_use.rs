//! Members that are in use, that are let go of, and that are lost meanwhile.

mod common;

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Stdio;

use common::{blanks, command, fails, finish, ok, pattern, refused, server, stderr};

const CREATE: &str = "create -l 5 -n 3 -c 16K -e 1.0 --assume-clean a.img b.img c.img";

fn array() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    blanks(folder.path(), &["a.img", "b.img", "c.img"], 4 << 20);
    ok(folder.path(), CREATE, b"");
    folder
}

#[test]
fn a_member_that_is_served_is_no_container_to_be_made_or_written() {
    let folder = array();
    let folder = folder.path();
    std::fs::write(folder.join("key"), "secret").unwrap();
    let format = "--luks-key-file key --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    blanks(folder, &["l.img"], 18 << 20);
    ok(folder, &format!("luks format --destroy l.img {format}"), b"");
    let serve = "serve a.img b.img c.img --overlay cow --socket nbd.sock --control c.sock";
    let server = server(folder, serve, "nbd.sock");
    for in_use in ["a.img", "cow"] {
        let refusal = refused(folder, &format!("luks format --destroy {in_use} --force {format}"));
        assert!(refusal.contains(&format!("{in_use}: is in use by another stripewise")), "{refusal}");
    }
    ok(folder, "stop --control c.sock", b"");
    finish(server, b"");
    ok(folder, "read a.img b.img c.img --length 512", b"");
    ok(folder, "luks write l.img --luks-key-file key", &pattern(1 << 20));
    // What is longer than the payload is written as far as pieces fit, and the code says that something was done.
    fails(folder, "luks write l.img --luks-key-file key", &pattern(4 << 20), 1);
    refused(folder, "luks dump key");
}

/// A served array that is written to says that a resync is due, and that is not what keeps it from being changed.
#[test]
fn an_array_that_another_has_is_in_use_whatever_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &["a.img", "b.img", "c.img"], 4 << 20);
    ok(folder, &CREATE.replace(" --assume-clean", ""), b"");
    let grow = [
        "--chunk 8K",
        "--bitmap internal",
        "--size max",
        "--continue",
        "--level 6",
        "--consistency-policy ppl",
    ];
    for change in grow {
        let refusal = refused(folder, &format!("grow {change} a.img b.img c.img"));
        assert!(!refusal.contains("in use"), "{refusal}");
    }
    let held = File::open(folder.join("b.img")).unwrap();
    held.lock().unwrap();
    for change in grow {
        let refusal = refused(folder, &format!("grow {change} a.img b.img c.img"));
        assert!(refusal.contains("b.img: is in use by another stripewise"), "{change}: {refusal}");
    }
}

#[test]
fn standard_output_may_not_be_a_member() {
    let folder = array();
    let folder = folder.path();
    let before = std::fs::read(folder.join("b.img")).unwrap();
    let to = File::options().append(true).open(folder.join("b.img")).unwrap();
    let mut read = command(folder, "read a.img b.img c.img --length 4K");
    let output = read.stdout(Stdio::from(to)).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("standard output: is a member"), "{}", stderr(&output));
    assert!(std::fs::read(folder.join("b.img")).unwrap() == before);
}

#[test]
fn a_member_that_is_lost_while_the_array_is_written_is_told_of() {
    let folder = array();
    let folder = folder.path();
    let mut write = command(folder, "write a.img b.img c.img").spawn().unwrap();
    let bytes = pattern((2 << 20) + (20 << 10));
    let (first, rest) = bytes.split_at(2 << 20);
    // As it has taken these, the array is open. The rest is not of whole stripes, and reads.
    write.stdin.as_mut().unwrap().write_all(first).unwrap();
    File::options().write(true).open(folder.join("a.img")).unwrap().set_len(0).unwrap();
    let output = finish(write, rest);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("a.img failed and is out of use: the array is degraded"),
        "{}",
        stderr(&output)
    );
    let length = bytes.len();
    assert!(ok(folder, &format!("read b.img c.img --length {length}"), b"") == bytes);
}

/// Whether nobody else has a file open: only then a lease for writing is given.
fn is_let_go_of(path: &Path) -> bool {
    let file = File::options().read(true).write(true).open(path).unwrap();
    // SAFETY: the descriptor is open; no pointers are passed.
    let has_lease = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } == 0;
    // File systems without leases do not say.
    has_lease || std::io::Error::last_os_error().raw_os_error() != Some(libc::EAGAIN)
}

#[test]
fn members_are_let_go_of_when_a_command_has_ended() {
    let folder = array();
    let folder = folder.path();
    for arguments in
        ["read a.img b.img c.img --length 1M", "write a.img b.img c.img", "check a.img b.img c.img"]
    {
        for _ in 0..5 {
            ok(folder, arguments, b"0123456789");
            assert!(is_let_go_of(&folder.join("b.img")), "{arguments}");
        }
    }
}
