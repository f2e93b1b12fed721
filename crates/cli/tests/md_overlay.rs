//! Doubtful arrays: superblocks are made up in an overlay, and the members stay as they are.

mod common;

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use common::{blanks, images, json, ok, pattern, refused, run, stderr};

const MEMBERS: [&str; 3] = ["a.img", "b.img", "c.img"];
const SHAPE: &str = "-l 5 -n 3 -c 16K --data-offset 1M --assume-clean";

/// The bytes of an array that was made of c, a and b, in this order, and lost its superblocks.
fn lost() -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    blanks(folder.path(), &MEMBERS, 4 << 20);
    ok(folder.path(), &format!("create {SHAPE} c.img a.img b.img"), b"");
    let bytes = pattern(6 << 20);
    ok(folder.path(), "write --scan .", &bytes);
    for name in MEMBERS {
        let path = folder.path().join(name);
        let mut image = fs::read(&path).unwrap();
        image[..1 << 20].fill(0);
        fs::write(&path, image).unwrap();
    }
    assert!(refused(folder.path(), "read --scan .").contains("no array is found"));
    (folder, bytes)
}

fn read_back(folder: &Path, order: &str) -> Vec<u8> {
    ok(folder, &format!("read --overlay try {order}"), b"")
}

#[test]
fn the_order_of_members_that_lost_their_superblocks_is_found_without_changing_them() {
    let (folder, bytes) = lost();
    let folder = folder.path();
    let before = images(folder, &MEMBERS);
    let mut right = Vec::new();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let order = order.map(|index| MEMBERS[index]).join(" ");
        let said = ok(folder, &format!("create --overlay try {SHAPE} {order}"), b"");
        assert!(String::from_utf8(said).unwrap().contains("Overlay : try; no member is changed"));
        if read_back(folder, "a.img b.img c.img") == bytes {
            right.push(order);
        }
    }
    assert_eq!(right, ["c.img a.img b.img"]);
    ok(folder, &format!("create --overlay try {SHAPE} c.img a.img missing"), b"");
    assert!(read_back(folder, "--scan .") == bytes, "the member left out is no other array's");
    assert!(images(folder, &MEMBERS) == before);
}

#[test]
fn other_levels_layouts_chunks_offsets_and_versions_are_tried_over_superblocks_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    blanks(folder, &MEMBERS, 4 << 20);
    ok(folder, "create -l 5 -n 3 -c 16K -e 1.0 -p right-symmetric --assume-clean a.img b.img c.img", b"");
    let length = json(folder, "detail --json --scan .")["array_bytes"].as_u64().unwrap();
    let bytes = pattern(length as usize);
    ok(folder, "write --scan .", &bytes);
    let before = images(folder, &MEMBERS);
    for (shape, is_right) in [
        ("-l 5 -c 16K -e 1.0 -p left-symmetric", false),
        ("-l 0 -c 16K -e 1.1", false),
        ("-l 4 -c 64K -e 1.2 --data-offset 1M", false),
        ("-l 1 -e 0.90", false),
        ("-l 10 -p f2 -c 16K -e 1.0 -b internal", false),
        ("-l 5 -c 16K -e 1.0 -p right-symmetric", true),
    ] {
        ok(folder, &format!("create --overlay try -n 3 --assume-clean {shape} a.img b.img c.img"), b"");
        let found = read_back(folder, "--scan .");
        assert_eq!(found.len() == bytes.len() && found == bytes, is_right, "{shape}");
        let probed = json(folder, "examine --json --overlay try b.img");
        assert_eq!(probed["devices"][0]["superblocks"].as_array().unwrap().len(), 1, "{shape}");
    }
    assert_eq!(json(folder, "examine --json b.img")["devices"][0]["superblocks"][0]["metadata"], "1.0");
    assert!(images(folder, &MEMBERS) == before);
}

#[test]
fn an_overlay_that_holds_data_is_dropped_by_force_alone() {
    let (folder, bytes) = lost();
    let folder = folder.path();
    let before = images(folder, &MEMBERS);
    let create = format!("create --overlay try {SHAPE} c.img a.img b.img");
    ok(folder, &create, b"");
    ok(folder, "write --overlay try --scan . --offset 100000", b"tried");
    let refusal = refused(folder, &create);
    assert!(refusal.contains("try") && refusal.contains("--force"), "{refusal}");
    let read = "read --overlay try --scan . --offset 100000 --length 5";
    assert_eq!(ok(folder, read, b""), b"tried");
    ok(folder, &format!("{create} --force"), b"");
    assert!(read_back(folder, "--scan .") == bytes, "nothing of the try before is left");
    assert!(images(folder, &MEMBERS) == before);
}

#[test]
fn what_cannot_be_created_leaves_the_overlay_alone() {
    let (folder, _) = lost();
    let folder = folder.path();
    refused(folder, "create --overlay try -l 5 -n 3 -c 48 a.img b.img c.img");
    assert!(!folder.join("try").exists());
    ok(folder, &format!("create --overlay try {SHAPE} a.img b.img c.img"), b"");
    let kept = fs::read(folder.join("try")).unwrap();
    refused(folder, "create --overlay try -l 5 -n 3 -c 48 a.img b.img c.img");
    refused(folder, "create --overlay try -l 1 -n 2 a.img ./a.img");
    assert!(fs::read(folder.join("try")).unwrap() == kept);
    let refusal = refused(folder, "create --overlay a.img -l 1 -n 2 b.img c.img");
    assert!(refusal.contains("a.img: exists and is not an overlay"), "{refusal}");
    let refusal = refused(folder, "create --overlay try --destroy a.img -l 1 -n 2 b.img c.img");
    assert!(refusal.contains("--destroy"), "{refusal}");
    let output = run(folder, "examine --overlay absent a.img", b"");
    assert!(!output.status.success() && stderr(&output).contains("absent"), "{}", stderr(&output));
    assert!(!folder.join("absent").exists());
}

/// What the overlay holds are changes to members as they were.
#[test]
fn an_overlay_is_not_used_over_members_that_were_written_to_without_it() {
    for metadata in ["0.90", "1.0", "1.1", "1.2"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        blanks(folder, &MEMBERS, 4 << 20);
        let create = "create -l 5 -n 3 -c 16K --assume-clean";
        ok(folder, &format!("{create} -e {metadata} a.img b.img c.img"), b"");
        ok(folder, "write --scan . --overlay try --offset 100000", b"tried");
        ok(folder, "write --scan . --overlay try --offset 200000", b"again");
        ok(folder, "write --scan .", b"directly");
        for command in [
            "read --scan . --overlay try",
            "detail --scan . --overlay try",
            "assemble --scan . --overlay try",
        ] {
            let refusal = refused(folder, command);
            assert!(
                refusal.contains("was written to after it was added to this overlay"),
                "{metadata}: {refusal}"
            );
        }
        assert_eq!(ok(folder, "read --scan . --length 8", b""), b"directly");
    }
}
