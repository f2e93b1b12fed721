//! Existing arrays through the command: in any order, degraded, read-only, under an overlay.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const MEMBERS: [&str; 3] = ["a.img", "b.img", "c.img"];
/// Of a RAID-5 of three members of 4 MiB whose data begin 1 MiB in.
const ARRAY_BYTES: usize = 6 << 20;

fn run(folder: &Path, arguments: &str, input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stripewise"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A command that refuses does not read its input.
        scope.spawn(move || stdin.write_all(input).unwrap_or_default());
        child.wait_with_output().unwrap()
    })
}

fn ok(folder: &Path, arguments: &str, input: &[u8]) -> Vec<u8> {
    let output = run(folder, arguments, input);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn refused(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments, b"");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments}: {text}");
    text
}

/// A RAID-5 that holds the bytes answered.
fn array() -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    for name in MEMBERS {
        fs::File::create(folder.path().join(name)).unwrap().set_len(4 << 20).unwrap();
    }
    let create = "create -l 5 -n 3 -c 16K --data-offset 1M --assume-clean --name t a.img b.img c.img";
    ok(folder.path(), create, b"");
    let bytes: Vec<u8> = (0..ARRAY_BYTES).map(|i| (i / 3 % 253) as u8).collect();
    ok(folder.path(), "write a.img b.img c.img", &bytes);
    (folder, bytes)
}

fn state(folder: &Path) -> Vec<(Vec<u8>, std::time::SystemTime)> {
    let one = |name: &&str| {
        let path = folder.join(name);
        (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap())
    };
    MEMBERS.iter().map(one).collect()
}

#[test]
fn bytes_come_back_in_any_order_and_without_any_one_member() {
    let (folder, bytes) = array();
    let folder = folder.path();
    for select in ["c.img a.img b.img", "--scan . --name t", "b.img c.img --run", "c.img a.img --run"] {
        assert!(ok(folder, &format!("read {select}"), b"") == bytes, "{select}");
    }
    assert!(refused(folder, "assemble a.img b.img").contains("--run"));
    assert!(refused(folder, "read --run a.img").contains("not enough"));
    assert!(refused(folder, "read --scan . --name other").contains(":t"));
}

#[test]
fn bytes_may_begin_and_end_anywhere_and_not_beyond_the_array() {
    let (folder, mut bytes) = array();
    let folder = folder.path();
    for (offset, length) in
        [(0, 1), (511, 2), (700, 100), (1 << 20, 512), (3333, 2_000_001), (ARRAY_BYTES - 3, 3)]
    {
        let new = vec![0xA5; length];
        ok(folder, &format!("write a.img b.img c.img --offset {offset}"), &new);
        bytes[offset..offset + length].copy_from_slice(&new);
        let read = format!("read a.img b.img c.img --offset {offset} --length {length}");
        assert!(ok(folder, &read, b"") == new, "{offset} {length}");
    }
    assert!(ok(folder, "read --run a.img c.img", b"") == bytes);
    refused(folder, "read a.img b.img c.img --offset 7M");
    refused(folder, "read a.img b.img c.img --output a.img");
}

#[test]
fn readonly_and_an_overlay_leave_members_alone() {
    let (folder, bytes) = array();
    let folder = folder.path();
    let before = state(folder);
    ok(folder, "assemble --readonly a.img b.img c.img", b"");
    ok(folder, "detail --json --scan .", b"");
    ok(folder, "read --readonly --run a.img b.img", b"");
    refused(folder, "write --readonly a.img b.img c.img");
    ok(folder, "write a.img b.img c.img --overlay cow --offset 5000", &[7; 10_000]);
    let mut changed = bytes.clone();
    changed[5000..15_000].fill(7);
    assert!(ok(folder, "read --scan . --overlay cow", b"") == changed);
    assert!(ok(folder, "read a.img c.img --run --overlay cow", b"") == changed, "parity is in it too");
    assert!(state(folder) == before);
}

#[test]
fn a_damaged_superblock_is_refused_by_member_and_field() {
    let (folder, bytes) = array();
    let folder = folder.path();
    let path = folder.join("b.img");
    let mut image = fs::read(&path).unwrap();
    image[4096 + 92] ^= 4;
    fs::write(&path, &image).unwrap();
    let text = refused(folder, "read a.img b.img c.img");
    assert!(text.contains("b.img") && text.contains("sb_csum"), "{text}");
    assert!(ok(folder, "read --scan . --run", b"") == bytes);
    image.truncate(6000);
    fs::write(&path, &image).unwrap();
    assert!(refused(folder, "assemble a.img b.img c.img").contains("b.img"));
}
