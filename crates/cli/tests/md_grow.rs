//! `grow`: arrays that exist are changed by their superblocks and logs alone, all members or none.

mod common;

use std::path::Path;
use std::process::Output;

use common::{json, stderr};
use serde_json::Value;
use tempfile::TempDir;

const MEMBER_BYTES: usize = 8 << 20;

fn run(folder: &Path, words: &str, names: &[String]) -> Output {
    common::run(folder, &format!("{words} {}", names.join(" ")), b"a few bytes")
}

/// An array on members of alien bytes.
fn made(options: &str, count: usize) -> (TempDir, Vec<String>) {
    let folder = TempDir::new().unwrap();
    let names: Vec<String> = (0..count).map(|n| format!("{n}.img")).collect();
    for (index, name) in names.iter().enumerate() {
        // No two alike, nor one the sum of others, so that what is not resynced is found.
        std::fs::write(folder.path().join(name), vec![1 << index; MEMBER_BYTES]).unwrap();
    }
    let output =
        run(folder.path(), &format!("create --uuid 01234567:89abcdef:01234567:89abcdef {options}"), &names);
    assert!(output.status.success(), "{options}: {}", stderr(&output));
    (folder, names)
}

fn all(folder: &Path, names: &[String]) -> Vec<Vec<u8>> {
    names.iter().map(|name| std::fs::read(folder.join(name)).unwrap()).collect()
}

/// What the members say of their bitmaps and where the rest lies.
fn described(folder: &Path, names: &[String]) -> Vec<Value> {
    let of = |name: &String| {
        let device = &json(folder, &format!("examine --json {name}"))["devices"][0];
        let superblock = &device["superblocks"][0];
        let mut bitmap = superblock["bitmap"].clone();
        if let Some(bitmap) = bitmap.as_object_mut() {
            bitmap.retain(|key, _| !key.contains("events"));
        }
        let places =
            ["data_offset_bytes", "bad_block_log", "features", "state"].map(|key| superblock[key].clone());
        serde_json::json!([bitmap, places])
    };
    names.iter().map(of).collect()
}

/// mdadm's `--update=no-bitmap`.
#[test]
fn a_bitmap_that_no_member_has_any_more_can_be_taken_away() {
    for is_clean in [true, false] {
        let options = if is_clean { "--assume-clean" } else { "" };
        let (folder, names) = made(&format!("-l 1 -n 2 -b internal {options}"), 2);
        let folder = folder.path();
        damage_bitmaps(folder, &names);
        let refused = run(folder, "assemble", &names);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains("grow --bitmap none"), "{}", stderr(&refused));
        let gone = run(folder, "grow --bitmap none", &names);
        assert!(gone.status.success(), "{}", stderr(&gone));
        let assembled = run(folder, "assemble", &names);
        assert!(assembled.status.success(), "{}", stderr(&assembled));
        let data = |name: &String| std::fs::read(folder.join(name)).unwrap()[MEMBER_BYTES / 2..].to_vec();
        assert_eq!(data(&names[0]) == data(&names[1]), !is_clean, "a resync that was due is of all");
    }
}

#[test]
fn a_recovery_under_way_is_no_dead_end_for_a_damaged_bitmap() {
    for options in ["-l 5 -n 3 -c 64 -b internal", "-l 5 -n 3 -c 64 -b internal -e 1.0"] {
        // Its last member is to be recovered.
        let (folder, names) = made(options, 3);
        let folder = folder.path();
        damage_bitmaps(folder, &names);
        for words in ["grow --bitmap none", "assemble", "check"] {
            let output = run(folder, words, &names);
            assert!(output.status.success(), "{options}: {words}: {}", stderr(&output));
        }
        let detail = json(folder, &format!("detail --json {}", names.join(" ")));
        assert_eq!((&detail["active_devices"], &detail["consistency_policy"]), (&3.into(), &"resync".into()));
    }
}

fn damage_bitmaps(folder: &Path, names: &[String]) {
    for name in names {
        let mut bytes = std::fs::read(folder.join(name)).unwrap();
        let magic = bytes.windows(4).position(|four| four == b"bitm").unwrap();
        bytes[magic..magic + 256].fill(0);
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

fn superblock(folder: &Path, name: &str) -> Value {
    json(folder, &format!("examine --json {name}"))["devices"][0]["superblocks"][0].clone()
}

/// Linux takes a member whose superblock is an event behind, and with no bitmap recovers nothing of one that went by it.
#[test]
fn what_was_recovered_by_a_bitmap_is_recovered_anew_before_the_bitmap_is_gone() {
    for is_named in [true, false] {
        let (folder, names) = made("-l 1 -n 2 -b internal --assume-clean", 2);
        let folder = folder.path();
        let [first, second] = [&names[..1], &names[1..]];
        let ok = |words: &str, names: &[String]| {
            let output = run(folder, words, names);
            assert!(output.status.success(), "{words}: {}", stderr(&output));
        };
        ok("write --run --length 11", first);
        ok("assemble --no-sync", &names);
        let goes_by_bitmap =
            |superblock: &Value| superblock["features"].to_string().contains("recovery bitmap");
        let before = superblock(folder, "1.img");
        assert!(goes_by_bitmap(&before), "{before}");
        let as_it_was = all(folder, second);
        damage_bitmaps(folder, &names);
        if is_named {
            ok("grow --bitmap none", &names);
            let after = superblock(folder, "1.img");
            assert!(!goes_by_bitmap(&after), "{after}");
            assert_eq!(
                (&after["recovered_bytes"], &after["events"]),
                (&0.into(), &superblock(folder, "0.img")["events"])
            );
            ok("assemble", &names);
            ok("check", &names);
            continue;
        }
        // One that is not there is two events behind then.
        ok("grow --bitmap none --run", first);
        std::fs::write(folder.join("1.img"), &as_it_was[0]).unwrap();
        let (array, member) = (superblock(folder, "0.img"), superblock(folder, "1.img"));
        assert!(
            array["events"].as_u64() >= member["events"].as_u64().map(|events| events + 2),
            "{array} {member}"
        );
        ok("assemble --run", &names);
        assert_eq!(superblock(folder, "1.img"), member, "it is left out");
    }
}

#[test]
fn a_dirty_degraded_array_with_a_damaged_bitmap_can_be_forced_once_the_bitmap_is_gone() {
    let (folder, names) = made("-l 5 -n 4 -c 64 -b internal --assume-clean", 4);
    let folder = folder.path();
    // Dirty: the state is of a clean stop, which the checksum vouches for; a resync from the start says the same.
    for name in &names {
        let mut bytes = std::fs::read(folder.join(name)).unwrap();
        bytes[4096 + 208..4096 + 216].fill(0);
        let checksum = checksum_1(&bytes[4096..8192]);
        bytes[4096 + 216..4096 + 220].copy_from_slice(&checksum.to_le_bytes());
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    damage_bitmaps(folder, &names);
    let rest = &names[1..];
    let refused = run(folder, "assemble --force", rest);
    assert!(stderr(&refused).contains("grow --bitmap none"), "{}", stderr(&refused));
    let gone = run(folder, "grow --bitmap none --run", rest);
    assert!(gone.status.success(), "{}", stderr(&gone));
    let refused = run(folder, "assemble --run", rest);
    assert!(stderr(&refused).contains("assemble --force"), "a due resync is forgotten: {}", stderr(&refused));
    let forced = run(folder, "assemble --force", rest);
    assert!(forced.status.success(), "{}", stderr(&forced));
}

/// The checksum of a superblock without its own.
fn checksum_1(block: &[u8]) -> u32 {
    let roles = u32::from_le_bytes(block[220..224].try_into().unwrap()) as usize;
    let mut bytes = block[..256 + 2 * roles].to_vec();
    bytes[216..220].fill(0);
    let words = bytes.chunks(4).map(|word| {
        let mut four = [0; 4];
        four[..word.len()].copy_from_slice(word);
        u64::from(u32::from_le_bytes(four))
    });
    let sum: u64 = words.sum();
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

#[test]
fn a_bitmap_is_where_create_puts_it_and_goes_again() {
    for version in ["0.90", "1.0", "1.1", "1.2"] {
        for (options, count) in [
            ("-l 1 -n 2 -x 1", 3),
            ("-l 5 -n 3 -c 64", 3),
            ("-l 6 -n 4 -c 64", 4),
            ("-l 10 -n 3 -c 64 -p f2", 3),
        ] {
            for chunk in ["", "--bitmap-chunk 64K"] {
                let options = format!("-e {version} {options} --assume-clean");
                let (wanted, names) = made(&format!("{options} -b internal {chunk}"), count);
                let (folder, _) = made(&format!("{options} -b none"), count);
                let before = (described(folder.path(), &names), all(folder.path(), &names));
                let grown = run(folder.path(), &format!("grow -b internal {chunk}"), &names);
                assert!(grown.status.success(), "{options}: {}", stderr(&grown));
                let told = described(folder.path(), &names);
                assert_eq!(told, described(wanted.path(), &names), "{options} {chunk}");
                let read = run(folder.path(), "assemble", &names);
                assert!(read.status.success(), "{options} {chunk}: {}", stderr(&read));
                let gone = run(folder.path(), "grow -b none", &names);
                assert!(gone.status.success(), "{options} {chunk}: {}", stderr(&gone));
                assert_eq!(described(folder.path(), &names), before.0, "{options} {chunk}");
                for (name, whole) in names.iter().zip(before.1) {
                    let superblock = &json(folder.path(), &format!("examine --json {name}"))["devices"][0]["superblocks"]
                        [0];
                    let data = superblock["data_offset_bytes"].as_u64().unwrap() as usize;
                    let now = std::fs::read(folder.path().join(name)).unwrap();
                    assert!(now[data..data + (4 << 20)] == whole[data..data + (4 << 20)], "{name}: data");
                }
            }
        }
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    let clean = "-l 5 -n 3 -c 64 --assume-clean";
    for (options, words, left_out, told) in [
        (format!("{clean} -b internal"), "-b internal", 0, "the array has a bitmap; take it away first"),
        (format!("{clean} -b none"), "-b none", 0, "the array has no bitmap"),
        (format!("{clean} -k ppl"), "-b internal", 0, "partial parity log"),
        ("-l 5 -n 3 -c 64 --force".to_owned(), "-b internal", 0, "a resync or recovery is due"),
        ("-l 5 -n 3 -c 64".to_owned(), "-b internal", 0, "a resync or recovery is due"),
        ("-l 0 -n 3 -c 64".to_owned(), "-b internal", 0, "raid0"),
        ("-l 0 -n 3 -c 64".to_owned(), "-z max", 0, "uses all of each member"),
        ("-l linear -n 3".to_owned(), "-z max", 0, "uses all of each member"),
        (format!("{clean} -z 4M"), "-z 3M", 0, "mdadm --grow --array-size"),
        (format!("{clean} -z 4M"), "-z 4M", 0, "4096K of each member are used already"),
        (clean.to_owned(), "-z max", 0, "7168K of each member are used already"),
        (format!("{clean} -z 4M"), "-z 9M", 0, "0.img: has 7168K for data, less than the 9216K"),
        (format!("{clean} -z 4M -e 1.0"), "-z 9M", 0, "its superblock lies behind them"),
        (format!("{clean} -z 4M -k ppl"), "-z max", 0, "--consistency-policy resync"),
        (format!("{clean} -z 4M"), "-z max --run", 1, "a member is missing"),
        ("-l 5 -n 3 -c 64 -z 4M".to_owned(), "-z max", 0, "a recovery is due"),
        ("-l 10 -n 3 -c 64 -p f2 -z 4M --assume-clean".to_owned(), "-z max", 0, "far copies"),
        (format!("{clean} -z 4M"), "-b internal -z max", 0, "one change at a time"),
        (format!("{clean} -b internal"), "-b none --assume-clean", 0, "--assume-clean needs --size"),
        (format!("{clean} -z 4M"), "-z max --bitmap-chunk 64K", 0, "--bitmap-chunk needs --bitmap internal"),
        (clean.to_owned(), "", 0, "required"),
        (format!("{clean} -k ppl"), "-k ppl", 0, "the consistency policy is ppl already"),
        (clean.to_owned(), "-k resync", 0, "the consistency policy is resync already"),
        (clean.to_owned(), "-k bitmap", 0, "--bitmap internal gives the array a bitmap"),
        (
            clean.to_owned(),
            "-k ppl",
            0,
            "0.img: a partial parity log takes 16 sectors or more and 8 are free",
        ),
        (format!("{clean} -b internal"), "-k ppl", 0, "take it away first, with --bitmap none"),
        (format!("{clean} -b internal"), "-k resync", 0, "take it away first, with --bitmap none"),
        (format!("{clean} -e 0.90"), "-k ppl", 0, "metadata 0.90 has no PPL"),
        ("-l 1 -n 3 --assume-clean".to_owned(), "-k ppl", 0, "only raid5 has"),
        ("-l 0 -n 3 -c 64".to_owned(), "-k resync", 0, "without redundancy"),
        ("-l 5 -n 3 -c 64 --force -k ppl".to_owned(), "-k resync", 0, "a resync or recovery is due"),
        ("-l linear -n 3".to_owned(), "-n 4", 0, "only raid1 takes another number of raid devices"),
        ("-l 0 -n 3 -c 64".to_owned(), "-n 4", 0, "as many new devices, and 0 are named with --add"),
        ("-l 1 -n 3 --assume-clean".to_owned(), "-n 3", 0, "has 3 raid devices already"),
        ("-l 1 -n 3 --assume-clean".to_owned(), "-n 2", 0, "3 raid devices are in use"),
        ("-l 1 -n 3 --assume-clean".to_owned(), "-n 4", 0, "need as many spares, and there are 0"),
        ("-l 1 -n 3 --assume-clean".to_owned(), "-n 4 --run --force", 1, "a member is missing"),
        ("-l 1 -n 3 --assume-clean".to_owned(), "-n 2 --run", 1, "a member is missing"),
        ("-l 1 -n 3".to_owned(), "-n 4 --force", 0, "a resync or recovery is due"),
        ("-l 1 -n 2 -x 1 --assume-clean".to_owned(), "-n 0", 0, "0 is not in"),
        ("-l 1 -n 3 --assume-clean".to_owned(), "-b internal --force", 0, "needs --raid-devices or"),
        (format!("{clean} -b none"), "-b internal", 1, "--run"),
        (format!("{clean} -b none"), "-b internal --bitmap-chunk 96K", 0, "power of two"),
        (format!("{clean} -b none"), "-b internal --bitmap-chunk 4G", 0, "at most 2G"),
        (
            format!("{clean} -b internal"),
            "-b none --bitmap-chunk 64K",
            0,
            "--bitmap-chunk needs --bitmap internal",
        ),
    ] {
        let (folder, names) = made(&options, 3);
        let before = all(folder.path(), &names);
        let refused = run(folder.path(), &format!("grow {words}"), &names[left_out..]);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(2), "{options}, {words}: {said}");
        assert!(said.contains(told), "{options}, {words}: {said}");
        assert!(all(folder.path(), &names) == before, "{options}, {words}");
    }
}

#[test]
fn a_change_that_was_cut_off_is_finished_either_way() {
    for (from, to, again) in [
        ("none", "internal", "internal"),
        ("none", "internal", "none"),
        ("internal", "none", "none"),
        ("internal", "none", "internal"),
    ] {
        for version in ["0.90", "1.0", "1.2"] {
            let (folder, names) = made(&format!("-e {version} -l 5 -n 3 -c 64 --assume-clean -b {from}"), 3);
            let before = all(folder.path(), &names);
            assert!(run(folder.path(), &format!("grow -b {to}"), &names).status.success());
            // One member's superblock was written, and those of two were not.
            for (name, whole) in names.iter().zip(&before).skip(1) {
                std::fs::write(folder.path().join(name), whole).unwrap();
            }
            let finished = run(folder.path(), &format!("grow -b {again}"), &names);
            let words = format!("{version}: {from}, {to}, {again}");
            assert!(finished.status.success(), "{words}: {}", stderr(&finished));
            let (wanted, _) = made(&format!("-e {version} -l 5 -n 3 -c 64 --assume-clean -b {again}"), 3);
            assert_eq!(described(folder.path(), &names), described(wanted.path(), &names), "{words}");
            assert!(run(folder.path(), "assemble", &names).status.success(), "{words}");
        }
    }
}

#[test]
fn a_member_that_was_missing_comes_back_by_a_whole_recovery() {
    let (folder, names) = made("-l 5 -n 3 -c 64 --assume-clean -b none", 3);
    let grown = run(folder.path(), "grow --run -b internal", &names[1..]);
    assert!(grown.status.success(), "{}", stderr(&grown));
    let path = folder.path();
    assert!(run(path, "write --run", &names[1..]).status.success());
    let left_out = run(path, "assemble --run", &names);
    assert!(stderr(&left_out).contains("is left out"), "{}", stderr(&left_out));
    let added = run(path, "add 0.img --array", &names[1..]);
    assert!(added.status.success(), "{}", stderr(&added));
    assert!(run(path, "check", &names).status.success());
}

/// Bytes of the array.
fn content(folder: &Path, names: &[String]) -> Vec<u8> {
    let read = run(folder, "read", names);
    assert!(read.status.success(), "{}", stderr(&read));
    read.stdout
}

/// Bytes that are no pattern of the members'.
fn some(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 4096 * 7) as u8).collect()
}

#[test]
fn more_of_each_member_is_used_and_resynced_and_the_rest_is_as_before() {
    for version in ["0.90", "1.0", "1.1", "1.2"] {
        for (options, count) in [
            ("-l 1 -n 2", 2),
            ("-l 1 -n 2 -b internal --bitmap-chunk 64K", 2),
            ("-l 4 -n 3 -c 64", 3),
            ("-l 5 -n 3 -c 64 -b internal --bitmap-chunk 4K", 3),
            ("-l 6 -n 4 -c 64", 4),
            ("-l 10 -n 3 -c 64 -b internal", 3),
            ("-l 10 -n 3 -c 64 -p o2", 3),
        ] {
            let words = format!("{version} {options}");
            let (folder, names) = made(&format!("-e {version} {options} -z 2M --assume-clean"), count);
            let path = folder.path();
            let data = some(content(path, &names).len());
            let written = common::run(path, &format!("write {}", names.join(" ")), &data);
            assert!(written.status.success(), "{words}: {}", stderr(&written));
            for size in ["4100K", "max"] {
                let before = content(path, &names).len();
                let grown = run(path, &format!("grow --size {size}"), &names);
                assert!(grown.status.success(), "{words}: {}", stderr(&grown));
                let told = String::from_utf8_lossy(&grown.stdout).into_owned();
                assert!(told.contains("what is new is resynced"), "{words}: {told}");
                let detail = json(path, &format!("detail --json {}", names.join(" ")));
                // How much is in sync: what the array used before, and no more.
                let (done, total) = (&detail["sync"]["done_bytes"], &detail["sync"]["total_bytes"]);
                let (done, total) = (done.as_u64().unwrap(), total.as_u64().unwrap());
                let now = content(path, &names);
                assert_eq!(
                    now.len() as u64 * done / total,
                    before as u64,
                    "{words}, {size}: {done} of {total}"
                );
                assert!(run(path, "assemble", &names).status.success(), "{words}, {size}");
                let checked = run(path, "check", &names);
                assert!(checked.status.success(), "{words}, {size}: {}", stderr(&checked));
                assert!(content(path, &names)[..data.len()] == data, "{words}, {size}");
            }
        }
    }
}

#[test]
fn what_is_new_is_not_resynced_if_it_is_taken_as_in_sync() {
    for bitmap in ["none", "internal"] {
        let (folder, names) = made(&format!("-l 5 -n 3 -c 64 -z 2M -b {bitmap} --assume-clean"), 3);
        let path = folder.path();
        assert!(run(path, "repair", &names).status.success());
        let grown = run(path, "grow -z max --assume-clean", &names);
        assert!(grown.status.success(), "{}", stderr(&grown));
        assert_eq!(
            run(path, "check --readonly", &names).status.code(),
            Some(4),
            "{bitmap}: nothing was resynced"
        );
    }
}

#[test]
fn a_size_that_was_cut_off_is_finished() {
    for (version, bitmap) in [("0.90", "internal"), ("1.0", "none"), ("1.2", "internal"), ("1.2", "none")] {
        for again in ["-z 4M", "-z max", "-b none"] {
            let chunk = if bitmap == "none" { "" } else { "--bitmap-chunk 64K" };
            let create = format!("-e {version} -l 5 -n 3 -c 64 -b {bitmap} {chunk} -z 2M --assume-clean");
            let (folder, names) = made(&create, 3);
            let path = folder.path();
            assert!(run(path, "repair", &names).status.success());
            let before = all(path, &names);
            assert!(run(path, "grow -z 4M", &names).status.success());
            let whole = described(path, &names);
            for (name, whole) in names.iter().zip(&before).skip(1) {
                std::fs::write(path.join(name), whole).unwrap();
            }
            let cut_off = all(path, &names);
            let words = format!("{version}, {bitmap}, {again}");
            assert_eq!(run(path, "assemble", &names).status.code(), Some(2), "{words}");
            let finished = run(path, &format!("grow {again}"), &names);
            if again == "-b none" {
                // Now there is a resync to be done, or no bitmap.
                assert_eq!(
                    finished.status.code(),
                    if bitmap == "none" { Some(0) } else { Some(2) },
                    "{words}"
                );
                assert_eq!(all(path, &names) == cut_off, bitmap != "none", "{words}");
                continue;
            }
            assert!(finished.status.success(), "{words}: {}", stderr(&finished));
            if again == "-z 4M" {
                assert_eq!(described(path, &names), whole, "{words}");
            }
            assert!(run(path, "assemble", &names).status.success(), "{words}");
            assert!(run(path, "check", &names).status.success(), "{words}");
            let used = json(path, "examine --json 2.img")["devices"][0]["superblocks"][0].clone();
            let wanted = if again == "-z 4M" { 4 << 20 } else { 7 << 20 };
            assert!(used.to_string().contains(&format!(":{wanted}")) || version != "1.2", "{words}: {used}");
        }
    }
}

#[test]
fn members_that_were_made_larger_have_more_room() {
    let larger = |path: &Path, names: &[String]| {
        for name in names {
            let file = std::fs::OpenOptions::new().write(true).open(path.join(name)).unwrap();
            file.set_len(2 * MEMBER_BYTES as u64).unwrap();
        }
    };
    let (folder, names) = made("-l 1 -n 2 --assume-clean", 2);
    larger(folder.path(), &names);
    let grown = run(folder.path(), "grow -z max", &names);
    assert!(
        String::from_utf8_lossy(&grown.stdout).starts_with("15360K of each of 2 members"),
        "{}",
        stderr(&grown)
    );
    assert!(run(folder.path(), "assemble", &names).status.success());
    let (folder, names) = made("-e 1.0 -l 1 -n 2 --assume-clean", 2);
    larger(folder.path(), &names);
    let refused = run(folder.path(), "grow -z max", &names);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("the device was made larger"), "{}", stderr(&refused));
}

#[test]
fn a_resync_that_was_due_is_not_forgotten() {
    let (folder, names) = made("-l 1 -n 2 -z 2M", 2);
    let path = folder.path();
    let grown = run(path, "grow -z max", &names);
    assert!(grown.status.success(), "{}", stderr(&grown));
    let detail = json(path, &format!("detail --json {}", names.join(" ")));
    assert_eq!(detail["sync"]["done_bytes"], 0, "{detail}");
    assert!(run(path, "assemble", &names).status.success());
    assert!(run(path, "check", &names).status.success());
}

#[test]
fn a_bitmap_that_was_out_of_date_is_none_the_better_for_more_slots() {
    for is_stale in [false, true] {
        let (folder, names) = made("-l 1 -n 2 -b internal --assume-clean", 2);
        let folder = folder.path();
        assert!(run(folder, "write --length 11", &names).status.success());
        // Version 1.2: superblock at 4K, bitmap at 8K; its events are at 24, its state at 48.
        for name in names.iter().filter(|_| is_stale) {
            let mut bytes = std::fs::read(folder.join(name)).unwrap();
            bytes[8192 + 24..8192 + 32].fill(0);
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        assert!(run(folder, "grow --raid-devices 3 --force", &names).status.success());
        for bytes in all(folder, &names) {
            assert_eq!(bytes[8192 + 48] & 2 != 0, is_stale, "STATE_STALE");
        }
    }
}

#[test]
fn a_mirror_gets_slots_for_spares_and_lets_empty_ones_go() {
    for version in ["0.90", "1.0", "1.2"] {
        for bitmap in ["none", "internal"] {
            let create = format!("-e {version} -l 1 -n 2 -x 1 -b {bitmap} --assume-clean");
            let (folder, names) = made(&create, 3);
            let (path, words) = (folder.path(), format!("{version}, {bitmap}"));
            assert!(run(path, "repair", &names).status.success(), "{words}");
            let data = content(path, &names);
            let grown = run(path, "grow --raid-devices 3", &names);
            assert!(grown.status.success(), "{words}: {}", stderr(&grown));
            let told = String::from_utf8_lossy(&grown.stdout).into_owned();
            assert!(told.contains("spares are recovered"), "{words}: {told}");
            let superblock = &json(path, "examine --json 1.img")["devices"][0]["superblocks"][0];
            let events = superblock["bitmap"].as_object().map(|bitmap| &bitmap["events"]);
            assert!(events.is_none_or(|events| *events == superblock["events"]), "{words}: {superblock}");
            assert!(run(path, "assemble", &names).status.success(), "{words}");
            assert!(content(path, &["2.img --run".to_owned()]) == data, "{words}: the spare has all of it");
            assert!(run(path, "fail 0.img --array", &names).status.success(), "{words}");
            let grown = run(path, "grow --raid-devices 2", &names[1..]);
            assert!(grown.status.success(), "{words}: {}", stderr(&grown));
            let detail = json(path, "detail --json 1.img 2.img");
            assert_eq!(
                (&detail["raid_devices"], &detail["state"][0]),
                (&2.into(), &"clean".into()),
                "{words}"
            );
            assert_eq!(detail["state"].as_array().unwrap().len(), 1, "{words}: nothing is missing");
            let refused = run(path, "grow --raid-devices 1 --force", &names[1..]);
            assert_eq!(refused.status.code(), Some(2), "{words}");
            let grown = run(path, "grow --raid-devices 4 --force", &names[1..]);
            assert!(String::from_utf8_lossy(&grown.stdout).contains("slots are empty"), "{}", stderr(&grown));
            assert!(run(path, "add 0.img --array", &names[1..]).status.success(), "{words}");
            assert!(content(path, &["0.img --run".to_owned()]) == data, "{words}: it was recovered");
        }
    }
}

#[test]
fn a_number_of_slots_that_was_cut_off_is_finished() {
    for version in ["0.90", "1.2"] {
        for reached in [0, 2] {
            let (folder, names) = made(&format!("-e {version} -l 1 -n 2 -x 1 --assume-clean"), 3);
            let path = folder.path();
            let before = all(path, &names);
            assert!(run(path, "grow -n 3", &names).status.success());
            // A member has it, or the spare alone.
            for (name, whole) in
                names.iter().zip(&before).enumerate().filter(|(n, _)| *n != reached).map(|(_, one)| one)
            {
                std::fs::write(path.join(name), whole).unwrap();
            }
            let finished = run(path, "grow -n 3", &names);
            assert!(finished.status.success(), "{version}: {}", stderr(&finished));
            assert!(run(path, "assemble", &names).status.success(), "{version}");
            let detail = json(path, &format!("detail --json {}", names.join(" ")));
            assert_eq!(
                (&detail["raid_devices"], &detail["active_devices"]),
                (&3.into(), &3.into()),
                "{version}"
            );
        }
    }
}

#[test]
fn partial_parity_logs_go_and_come_back_and_what_was_cut_off_is_finished() {
    for version in ["1.0", "1.1", "1.2"] {
        let create = format!("-e {version} -l 5 -n 3 -x 1 -c 64 -k ppl --assume-clean");
        let (folder, names) = made(&create, 4);
        let path = folder.path();
        assert!(run(path, "repair", &names).status.success());
        let ppl = || described_log(path, &names);
        let (data, before) = (content(path, &names), ppl());
        assert!(before.iter().all(|log| !log.is_null()));
        for (policy, reached) in [("resync", 0), ("ppl", 1), ("resync", 3), ("ppl", 2)] {
            let held = all(path, &names);
            let grown = run(path, &format!("grow --consistency-policy {policy}"), &names);
            assert!(grown.status.success(), "{version}, {policy}: {}", stderr(&grown));
            // One member has it, and the others nothing of it.
            for (name, whole) in
                names.iter().zip(&held).enumerate().filter(|(n, _)| *n != reached).map(|(_, one)| one)
            {
                std::fs::write(path.join(name), whole).unwrap();
            }
            let finished = run(path, &format!("grow --consistency-policy {policy}"), &names);
            assert!(finished.status.success(), "{version}, {policy}: {}", stderr(&finished));
            if policy == "ppl" {
                assert_eq!(ppl(), before, "{version}");
            } else {
                assert!(ppl().iter().all(Value::is_null), "{version}");
            }
            let (detail, words) =
                (json(path, &format!("detail --json {}", names.join(" "))), format!("{version}, {policy}"));
            assert_eq!(detail["consistency_policy"], policy, "{words}");
            assert!(run(path, "assemble", &names).status.success(), "{words}");
            assert!(run(path, "write", &names).status.success(), "{words}");
            assert!(run(path, "check", &names).status.success(), "{words}");
            assert!(content(path, &names)[64..] == data[64..], "{words}");
        }
    }
}

/// Where the members have partial parity logs.
fn described_log(folder: &Path, names: &[String]) -> Vec<Value> {
    let of =
        |name| json(folder, &format!("examine --json {name}"))["devices"][0]["superblocks"][0]["ppl"].clone();
    names.iter().map(of).collect()
}

fn names_in(folder: &Path, names: &[String]) -> Vec<Value> {
    let of = |name: &String| {
        json(folder, &format!("examine --json {name}"))["devices"][0]["superblocks"][0]["name"].clone()
    };
    names.iter().map(of).collect()
}

/// mdadm's `--assemble --update=name`.
#[test]
fn an_array_is_assembled_under_another_name() {
    let (folder, names) = made("-l 5 -n 3 -x 1 -c 64 -b internal --assume-clean -N old --homehost h", 4);
    let folder = folder.path();
    let update = |words: &str| run(folder, &format!("assemble --update name {words}"), &names);
    assert!(run(folder, "assemble", &names).status.success());
    let told = described(folder, &names);
    let renamed = update("-N new --homehost here");
    assert!(renamed.status.success(), "{}", stderr(&renamed));
    assert!(stderr(&renamed).contains("4 devices have the new name"), "{}", stderr(&renamed));
    assert_eq!(names_in(folder, &names), ["here:new"; 4]);
    assert_eq!(described(folder, &names), told, "more than the name is another");
    assert!(update("-N new --homehost here").status.success(), "it has the name, and is assembled");
    let before = all(folder, &names);
    for (words, why) in [
        ("-N a-name-that-has-more-than-31-bytes", "1 to 31 bytes"),
        ("", "--name"),
        ("-N other --readonly", "--readonly"),
    ] {
        let refused = update(words);
        assert_eq!(refused.status.code(), Some(2), "{words}");
        assert!(stderr(&refused).contains(why), "{words}: {}", stderr(&refused));
    }
    assert!(all(folder, &names) == before, "refused and written");
    let two = run(folder, "assemble --update name -N other", &names[..2]);
    assert_eq!(two.status.code(), Some(2));
    assert!(all(folder, &names) == before, "what is refused without --run has changed nothing");
    // A name with a colon has its host.
    assert!(update("-N far:new").status.success());
    assert_eq!(names_in(folder, &names), ["far:new"; 4]);

    let (folder, names) = made("-l 1 -n 2 -e 0.90 --assume-clean", 2);
    let refused = run(folder.path(), "assemble --update name -N new", &names);
    assert!(stderr(&refused).contains("0.90 has no name"), "{}", stderr(&refused));
}

#[test]
fn a_new_name_changes_nothing_about_who_is_left_out_or_comes_back() {
    let (folder, names) = made("-l 1 -n 2 -b internal --assume-clean -N old", 2);
    let folder = folder.path();
    let [first, second] = [&names[..1], &names[1..]];
    let ok = |words: &str, names: &[String]| {
        let output = run(folder, words, names);
        assert!(output.status.success(), "{words}: {}", stderr(&output));
        stderr(&output)
    };
    // The second is not there while the array is written to and renamed.
    ok("write --run --length 11", first);
    ok("assemble --run --update name -N new", first);
    assert_ne!(names_in(folder, first), names_in(folder, second));
    let both = [names[1].clone(), names[0].clone()];
    let said = ok("assemble -N new", &both);
    assert!(said.contains("returns to slot 1"), "the bitmap is good, and the name the freshest's: {said}");
    // A device that is left out is renamed, too, and may be named first.
    ok(&format!("fail {} --array", names[1]), &both);
    ok("assemble --run --update name -N newer", &both);
    assert_eq!(names_in(folder, first), names_in(folder, second));
}
