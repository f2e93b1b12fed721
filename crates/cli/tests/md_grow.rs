//! `grow --bitmap`: a bitmap for arrays that exist, all or nothing.

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
    for name in &names {
        std::fs::write(folder.path().join(name), vec![0xa5; MEMBER_BYTES]).unwrap();
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
