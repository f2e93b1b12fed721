//! Existing arrays through the command: in any order, degraded, read-only, under an overlay.

mod common;

use std::fs;

use tempfile::TempDir;

use common::{blanks, images, ok, pattern, refused, run, stderr};

const MEMBERS: [&str; 3] = ["a.img", "b.img", "c.img"];
/// Of a RAID-5 of three members of 4 MiB whose data begin 1 MiB in.
const ARRAY_BYTES: usize = 6 << 20;

/// A RAID-5 that holds the bytes answered.
fn array() -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    blanks(folder.path(), &MEMBERS, 4 << 20);
    let create = "create -l 5 -n 3 -c 16K --data-offset 1M --assume-clean --name t a.img b.img c.img";
    ok(folder.path(), create, b"");
    let bytes = pattern(ARRAY_BYTES);
    ok(folder.path(), "write a.img b.img c.img", &bytes);
    (folder, bytes)
}

#[test]
fn bytes_come_back_in_any_order_and_without_any_one_member() {
    let (folder, bytes) = array();
    let folder = folder.path();
    for select in ["c.img a.img b.img", "--scan . --name t", "b.img c.img --run", "c.img a.img --run"] {
        assert!(ok(folder, &format!("read {select}"), b"") == bytes, "{select}");
    }
    std::os::unix::fs::symlink("a.img", folder.join("link.img")).unwrap();
    fs::hard_link(folder.join("b.img"), folder.join("other.img")).unwrap();
    assert!(ok(folder, "read --scan .", b"") == bytes, "a file of two names is one");
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
    let before = images(folder, &MEMBERS);
    ok(folder, "assemble --readonly a.img b.img c.img", b"");
    ok(folder, "detail --json --scan .", b"");
    ok(folder, "read --readonly --run a.img b.img", b"");
    refused(folder, "write --readonly a.img b.img c.img");
    ok(folder, "write a.img b.img c.img --overlay cow --offset 5000", &[7; 10_000]);
    let mut changed = bytes.clone();
    changed[5000..15_000].fill(7);
    assert!(ok(folder, "read --scan . --overlay cow", b"") == changed);
    assert!(ok(folder, "read a.img c.img --run --overlay cow", b"") == changed, "parity is in it too");
    assert!(images(folder, &MEMBERS) == before);
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
    let text = refused(folder, "read --scan .");
    let named = text.lines().nth(1).unwrap();
    assert!(named.contains("b.img: is not used") && named.contains("sb_csum"), "before --run: {text}");
    assert!(ok(folder, "read --scan . --run", b"") == bytes);
    image.truncate(6000);
    fs::write(&path, &image).unwrap();
    assert!(refused(folder, "assemble a.img b.img c.img").contains("b.img"));
}

/// What such an array is refused for without `--readonly` is true with it as well.
#[test]
fn a_dirty_degraded_array_is_read_with_a_warning() {
    let count = |folder: &std::path::Path, arguments: &str| {
        let output = run(folder, arguments, b"");
        assert!(output.status.success(), "{arguments}: {}", stderr(&output));
        stderr(&output).matches("was not stopped cleanly").count()
    };
    for (level, warnings) in [(5, 1), (4, 1), (1, 0)] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        blanks(folder, &MEMBERS, 8 << 20);
        // All are members at once, and the resync is still due.
        ok(folder, &format!("create -l {level} -n 3 --force a.img b.img c.img"), b"");
        for command in ["read", "assemble"] {
            let degraded = format!("{command} --readonly --run a.img c.img");
            assert_eq!(count(folder, &degraded), warnings, "level {level}: {degraded}");
        }
        assert_eq!(count(folder, "read --readonly a.img b.img c.img"), 0, "nothing is missing");
    }
    let (folder, _) = array();
    assert_eq!(count(folder.path(), "read --readonly --run a.img c.img"), 0, "it is clean");
}
