//! Arrays with a write journal: shown, brought to rest, read, and written to through it.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tempfile::TempDir;

use common::{all, blanks, fails, images, json, made, ok, pattern, refused, run, stderr};
use stripewise_format::journal::{BLOCK_BYTES, MetaBlock, Payload, Seed};
use stripewise_format::superblock_1::{Features, Role, Superblock1};

const DEVICES: &str = "0.img 1.img 2.img journal";

fn change(path: &Path, change: impl FnOnce(&mut Superblock1)) -> Superblock1 {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, 4096).unwrap();
    let mut superblock = Superblock1::parse(&block, 8).unwrap();
    change(&mut superblock);
    file.write_all_at(&superblock.to_bytes(), 4096).unwrap();
    superblock
}

/// A RAID-5 of three whose journal has a block of 0x77 for its beginning; its other bytes.
fn journaled() -> (TempDir, Vec<u8>) {
    let (folder, _, mut bytes) = made("-l 5 -n 3 -c 16K", 3, 4);
    let journal = folder.path().join("journal");
    std::fs::copy(folder.path().join("0.img"), &journal).unwrap();
    for (number, name) in DEVICES.split(' ').enumerate() {
        change(&folder.path().join(name), |superblock| {
            superblock.features |= Features::JOURNAL;
            superblock.dev_number = number as u32;
            superblock.dev_roles[3] = Role::Journal;
        });
    }
    let superblock = change(&journal, |superblock| superblock.recovery_offset_sectors = 8);
    let seed = Seed::of(&superblock.set_uuid);
    let block = [0x77; BLOCK_BYTES];
    let data = Payload::Data { array_sector: 0, checksums: vec![seed.checksum(&block)] };
    let meta = MetaBlock { sequence: 3, position_sectors: 8, payloads: vec![data] };
    let log = [meta.to_bytes(seed), block.to_vec()].concat();
    let file = File::options().write(true).open(&journal).unwrap();
    file.write_all_at(&log, (superblock.data_offset_sectors + 8) * 512).unwrap();
    bytes[..BLOCK_BYTES].fill(0x77);
    (folder, bytes)
}

#[test]
fn what_the_journal_has_is_read_once_it_is_on_the_members() {
    let (folder, bytes) = journaled();
    let folder = folder.path();
    let before = images(folder, &["0.img", "1.img", "2.img", "journal"]);
    let said = refused(folder, &format!("read {DEVICES}"));
    assert!(
        said.contains("1 row of 4K that the members lack") && said.contains("stripewise assemble"),
        "{said}"
    );
    let old = run(folder, &format!("read --readonly {DEVICES}"), b"");
    assert!(old.status.success() && old.stdout != bytes && stderr(&old).contains("taken as they are"));
    assert!(
        images(folder, &["0.img", "1.img", "2.img", "journal"]) == before,
        "nothing is written by looking"
    );
    let said = String::from_utf8(ok(folder, &format!("assemble {DEVICES}"), b"")).unwrap();
    assert!(said.contains("assembled with 3 drives and 1 journal."), "{said}");
    assert!(ok(folder, &format!("read {DEVICES}"), b"") == bytes);
    assert!(ok(folder, "read --run 1.img 2.img journal", b"") == bytes, "parity was computed");
    let again = json(folder, &format!("assemble --json {DEVICES}"));
    assert_eq!(again["journal"]["data_only_rows"], 0);
}

#[test]
fn the_journal_is_a_device_of_the_array() {
    let (folder, _) = journaled();
    let folder = folder.path();
    let detail = json(folder, &format!("detail --json {DEVICES}"));
    assert_eq!(detail["consistency_policy"], "journal");
    assert_eq!((&detail["total_devices"], &detail["spare_devices"]), (&4.into(), &0.into()));
    assert_eq!(
        (&detail["devices"][3]["state"], &detail["devices"][3]["slot"]),
        (&"journal".into(), &().into())
    );
    let probed = json(folder, "examine --json journal");
    let journal = &probed["devices"][0]["superblocks"][0];
    assert_eq!((&journal["role"], &journal["journal_tail_bytes"]), (&"journal".into(), &4096.into()));
    assert!(journal["unsupported"].is_null());
}

/// What the meta block at the log's tail lists, and where the log begins.
fn at_tail(journal: &Path) -> (u64, MetaBlock) {
    let superblock = change(journal, |_| {});
    let tail = superblock.journal_tail_sectors().unwrap();
    let mut block = vec![0; BLOCK_BYTES];
    let file = File::open(journal).unwrap();
    file.read_exact_at(&mut block, (superblock.data_offset_sectors + tail) * 512).unwrap();
    (tail, MetaBlock::parse(&block, Seed::of(&superblock.set_uuid)).unwrap())
}

#[test]
fn what_is_written_goes_through_the_journal() {
    let (folder, mut bytes) = journaled();
    let folder = folder.path();
    let written: Vec<u8> = (0..5000).map(|n| (n % 251) as u8).collect();
    // Two chunks, the second page in part.
    ok(folder, &format!("write --offset 16K {DEVICES}"), &written);
    bytes[16 << 10..][..written.len()].copy_from_slice(&written);
    let journal = folder.join("journal");
    let (tail, last) = at_tail(&journal);
    assert!(tail > 8, "{tail}");
    assert!(last.payloads.is_empty(), "the log of a clean array has nothing to apply: {last:?}");
    let sequence = last.sequence;
    assert!(sequence > 10_000, "a gap behind what was there before: {sequence}");
    let superblock = change(&folder.join("0.img"), |_| {});
    assert!(superblock.features.contains(Features::JOURNAL));
    assert_eq!(superblock.resync_offset_sectors, u64::MAX);
    assert!(ok(folder, &format!("read {DEVICES}"), b"") == bytes);
    for rest in ["1.img 2.img", "0.img 2.img", "0.img 1.img"] {
        assert!(ok(folder, &format!("read --readonly --run {rest} journal"), b"") == bytes, "{rest}");
    }
    let checked = json(folder, &format!("check --json {DEVICES}"));
    assert_eq!(checked["mismatch_sectors"], 0, "{checked}");
}

#[test]
fn an_array_is_created_with_a_journal() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    blanks(folder, &["a", "b", "c", "spare"], 24 << 20);
    blanks(folder, &["j"], 4 << 20);
    let words = "-l 5 -n 3 -x 1 -c 64K --write-journal j --json a b c spare";
    let made = json(folder, &format!("create {words}"));
    assert_eq!(made["consistency_policy"], "journal");
    assert_eq!(made["spare_devices"], 2, "one is to be recovered: {made}");
    let roles: Vec<&str> =
        made["members"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["active", "active", "spare", "spare", "journal"]);
    let all = "a b c spare j";
    ok(folder, &format!("assemble {all}"), b"");
    ok(folder, &format!("write {all} --offset 4K"), &pattern(300_000));
    assert!(
        ok(folder, "read --readonly --run b c spare j --offset 4K --length 300000B", b"") == pattern(300_000)
    );
    let detail = json(folder, &format!("detail --json {all}"));
    assert_eq!((&detail["consistency_policy"], &detail["total_devices"]), (&"journal".into(), &5.into()));
}

#[test]
fn journals_that_cannot_be_are_refused() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    blanks(folder, &["a", "b", "c"], 24 << 20);
    blanks(folder, &["j"], 4 << 20);
    blanks(folder, &["short"], 1100 << 10);
    for (words, why) in [
        ("-l 1 -n 3 --write-journal j", "a raid1 array has no write journal"),
        ("-l 5 -n 3 -e 0.90 --write-journal j", "metadata 0.90 has no write journal"),
        ("-l 5 -n 3 -k journal", "go together"),
        ("-l 5 -n 3 -k ppl --write-journal j", "go together"),
        ("-l 5 -n 3 -b internal --write-journal j", "cannot be used with"),
        ("-l 5 -n 3 --write-journal short", "short: has 1100K, too little for the write journal"),
        ("-l 5 -n 3 --write-journal a", "a: "),
    ] {
        let said = fails(folder, &format!("create {words} a b c"), b"", 2);
        assert!(said.contains(why), "{words}: {said}");
    }
    ok(folder, "create -l 5 -n 3 -k journal --write-journal j a b c", b"");
}

#[test]
fn members_fail_and_come_back_beside_the_journal() {
    let (folder, mut bytes) = journaled();
    let folder = folder.path();
    ok(folder, &format!("fail 0.img --array {DEVICES}"), b"");
    let detail = json(folder, &format!("detail --json {DEVICES}"));
    assert_eq!(detail["consistency_policy"], "journal");
    ok(folder, "write --run 1.img 2.img journal", &[3; 8192]);
    bytes[..8192].fill(3);
    ok(folder, "add 0.img --force --array 1.img 2.img journal --run", b"");
    ok(folder, &format!("assemble {DEVICES}"), b"");
    assert!(ok(folder, "read --readonly --run 0.img 2.img journal", b"") == bytes);
    let said = fails(folder, &format!("fail journal --array {DEVICES}"), b"", 2);
    assert!(said.contains("is the array's write journal"), "{said}");
}

#[test]
fn what_a_journal_has_no_room_for_is_refused_and_an_overlay_takes_writes() {
    let (folder, bytes) = journaled();
    let folder = folder.path();
    let before = all(folder, DEVICES);
    for command in ["--bitmap internal", "--consistency-policy ppl", "--raid-devices 4", "--size max"] {
        let said = refused(folder, &format!("grow {command} {DEVICES}"));
        assert!(said.contains("has a write journal"), "{command}: {said}");
    }
    assert!(all(folder, DEVICES) == before, "nothing is written");
    let over = format!("--overlay try {DEVICES}");
    ok(folder, &format!("write --offset 4K {over}"), &[9; 4096]);
    let read = ok(folder, &format!("read {over}"), b"");
    assert!(read[..4096] == [0x77; 4096] && read[4096..8192] == [9; 4096] && read[8192..] == bytes[8192..]);
    assert!(all(folder, DEVICES) == before, "the overlay has it");
}

#[test]
fn the_array_goes_on_without_its_journal_once_that_is_empty() {
    let (folder, bytes) = journaled();
    let folder = folder.path();
    let said =
        String::from_utf8(ok(folder, &format!("grow --consistency-policy resync {DEVICES}"), b"")).unwrap();
    assert!(said.contains("3 members have no write journal any more"), "{said}");
    assert!(ok(folder, "read 0.img 1.img 2.img", b"") == bytes);
    ok(folder, "write --offset 4K 0.img 1.img 2.img", &[9; 4096]);
    let detail = json(folder, &format!("detail --json {DEVICES}"));
    assert_eq!((&detail["consistency_policy"], &detail["state"][0]), (&"resync".into(), &"clean".into()));
    assert!(
        detail["left_out"][0]["reason"].as_str().unwrap().starts_with("it was the array's write journal")
    );
}

#[test]
fn without_the_journal_the_array_is_read_or_goes_on_by_force() {
    let (folder, _) = journaled();
    let folder = folder.path();
    let members = "0.img 1.img 2.img";
    for command in ["assemble", "assemble --run", "read", "write"] {
        let said = fails(folder, &format!("{command} {members}"), b"x", 2);
        assert!(said.contains("the array's write journal is missing") && said.contains("--force"), "{said}");
    }
    ok(folder, &format!("read --readonly {members}"), b"");
    let done = json(folder, &format!("assemble --force --json {members}"));
    assert_eq!((&done["journal"]["given_up"], &done["synced"][0]["result"]), (&true.into(), &"done".into()));
    ok(folder, &format!("write {members}"), b"x");
    let detail = json(folder, &format!("detail --json {DEVICES}"));
    assert_eq!(detail["left_out"][0]["path"], "journal");
}
