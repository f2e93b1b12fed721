//! `grow` and RAID-0: levels from and to it, and more members or another chunk.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::{all, fails, json, ok};
use tempfile::TempDir;

fn blank(folder: &Path, name: &str) {
    fs::File::create(folder.join(name)).unwrap().set_len(12 << 20).unwrap();
}

fn made(options: &str, count: usize) -> (TempDir, String, Vec<u8>) {
    common::made(options, count, 12)
}

/// Puts back what a device's superblock was, and no more.
fn put_back(folder: &Path, name: &str, before: &[u8]) {
    let mut image = fs::read(folder.join(name)).unwrap();
    image[4096..8192].copy_from_slice(&before[4096..8192]);
    fs::write(folder.join(name), image).unwrap();
}

#[test]
fn a_raid0_becomes_an_array_with_empty_slots_which_devices_fill() {
    for (options, count, change, level, empty) in [
        ("-l 0 -n 2 -c 64", 2, "-l 4", "raid4", 1),
        ("-l 0 -n 3 -c 16 -e 1.1", 3, "-l 5", "raid5", 1),
        ("-l 0 -n 1 -c 64 --force", 1, "-l 5", "raid5", 1),
        ("-l 0 -n 3 -c 64", 3, "-l 5 -p left-symmetric", "raid5", 1),
        ("-l 0 -n 2 -c 64", 2, "-l 4 -c 32", "raid4", 1),
        ("-l 0 -n 3 -c 64 -e 1.0", 3, "-l 10", "raid10", 3),
    ] {
        let (folder, names, content) = made(options, count);
        let path = folder.path();
        let before = all(path, &names);
        let told = json(path, &format!("grow --json {change}{names}"));
        assert_eq!(
            (&told["level"], &told["reshape"]["empty_slots"]),
            (&level.into(), &empty.into()),
            "{told}"
        );
        assert_eq!(told["reshape"]["array_bytes"][0], told["reshape"]["array_bytes"][1], "{told}");
        assert!(told["said"].to_string().contains("`stripewise add` fills"), "{told}");
        assert_eq!(told["reshape"]["is_recovery_due"], false, "{told}");
        assert!(ok(path, &format!("read{names}"), b"") == content, "{options} {change}");
        if !change.contains("-c") && !change.contains("-p") {
            let same = before
                .iter()
                .zip(all(path, &names))
                .all(|(old, new)| old[1 << 20..11 << 20] == new[1 << 20..11 << 20]);
            assert!(same, "{change}: data moved");
        }
        let mut with = names.clone();
        for number in 0..empty {
            let name = format!("new{number}.img");
            blank(path, &name);
            ok(path, &format!("add {name} --array{with}"), b"");
            let _ = write!(with, " {name}");
        }
        ok(path, &format!("assemble{with}"), b"");
        ok(path, &format!("check{with}"), b"");
        assert!(ok(path, &format!("read{with}"), b"") == content, "{options} {change}");
        let left: Vec<&str> = with.split_whitespace().skip(1).collect();
        assert!(ok(path, &format!("read --run {}", left.join(" ")), b"") == content, "{change}: without one");
    }
}

#[test]
fn an_array_becomes_a_raid0_of_what_holds_its_data() {
    for (options, count, level, kept) in [
        ("-l 4 -n 3 -c 64", 3, "raid4", " 0.img 1.img"),
        ("-l 5 -n 4 -x 1 -c 64 -p parity-last -z 4M", 5, "raid5", " 0.img 1.img 2.img"),
        ("-l 10 -n 4 -c 64 -e 1.2", 4, "raid10", " 0.img 2.img"),
        ("-l 1 -n 3", 3, "raid1", " 0.img"),
    ] {
        let (folder, names, content) = made(options, count);
        let path = folder.path();
        let before = all(path, &names);
        let told = json(path, &format!("grow --json -l 0{names}"));
        assert_eq!(told["reshape"]["level"], serde_json::json!([level, "raid0"]), "{told}");
        let dropped: Vec<&str> = names.split_whitespace().filter(|name| !kept.contains(name)).collect();
        let mut said: Vec<String> = serde_json::from_value(told["reshape"]["dropped"].clone()).unwrap();
        said.sort();
        assert_eq!(said, dropped);
        assert!(ok(path, &format!("read{kept}"), b"") == content, "{options}");
        assert!(
            ok(path, "read --scan .", b"") == content,
            "{options}: what was dropped does not stand in the way"
        );
        let after = all(path, kept);
        // Power fails anywhere between the superblocks, in the order in which they are written.
        let order: Vec<&str> = kept.split_whitespace().chain(dropped.iter().copied()).collect();
        for reached in 1..order.len() {
            for name in &order[reached..] {
                let number: usize = name.trim_end_matches(".img").parse().unwrap();
                put_back(path, name, &before[number]);
            }
            // What was cleared is no member to be named.
            let is_cleared = |name: &&str| !kept.contains(*name) && order[..reached].contains(name);
            let left: Vec<&str> = names.split_whitespace().filter(|name| !is_cleared(name)).collect();
            ok(path, &format!("grow -l 0 {}", left.join(" ")), b"");
            let same = kept
                .split_whitespace()
                .zip(&after)
                .all(|(name, after)| fs::read(path.join(name)).unwrap() == *after);
            assert!(same, "{options}: {reached} reached");
            assert!(ok(path, "read --scan .", b"") == content, "{options}: {reached} reached");
        }
        let again = fails(path, &format!("grow -l 0{kept}"), b"", 2);
        assert!(again.contains("the array is so already"), "{again}");
    }
}

#[test]
fn what_lacks_no_more_than_parity_or_copies_becomes_a_raid0() {
    for (options, count, lost, kept) in [
        ("-l 5 -n 3 -c 64 -p parity-last", 3, "2.img", " 0.img 1.img"),
        ("-l 10 -n 4 -c 64", 4, "1.img", " 0.img 2.img 3.img"),
        ("-l 1 -n 2", 2, "1.img", " 0.img"),
    ] {
        let (folder, names, content) = made(options, count);
        let path = folder.path();
        ok(path, &format!("fail {lost} --array{names}"), b"");
        ok(path, &format!("grow -l 0{kept}"), b"");
        let kept = if count == 4 { " 0.img 2.img" } else { kept };
        assert!(ok(path, &format!("read{kept}"), b"") == content, "{options}");
    }
    let (folder, names, _) = made("-l 5 -n 3 -c 64 -p parity-last", 3);
    ok(folder.path(), &format!("fail 1.img --array{names}"), b"");
    let refused = fails(folder.path(), "grow -l 0 0.img 2.img", b"", 2);
    assert!(refused.contains("the array lacks a member"), "{refused}");
}

#[test]
fn a_change_that_was_cut_off_is_finished_by_the_same_command() {
    for (options, change) in [("-l 0 -n 3 -c 64", "-l 10"), ("-l 0 -n 3 -c 64", "-l 5")] {
        let (folder, names, content) = made(options, 3);
        let path = folder.path();
        let before = all(path, &names);
        ok(path, &format!("grow {change}{names}"), b"");
        let after = all(path, &names);
        put_back(path, "2.img", &before[2]);
        fails(path, &format!("read{names}"), b"", 2);
        ok(path, &format!("grow {change}{names}"), b"");
        assert!(all(path, &names) == after, "{change}");
        assert!(ok(path, &format!("read{names}"), b"") == content);
    }
}

#[test]
fn a_raid0_gets_more_members_or_another_chunk() {
    for (options, count, add, change) in [
        ("-l 0 -n 2 -c 64", 2, 1, "-n 3"),
        ("-l 0 -n 3 -c 16 -e 1.1", 3, 2, "-n 5"),
        ("-l 0 -n 1 -c 64 --force", 1, 1, "-n 2"),
        ("-l 0 -n 2 -c 32", 2, 0, "-c 64"),
        ("-l 0 -n 2 -c 64", 2, 1, "-n 3 -c 16"),
    ] {
        let (folder, names, content) = made(options, count);
        let path = folder.path();
        let mut with = names.clone();
        let mut words = String::new();
        for number in 0..add {
            blank(path, &format!("new{number}.img"));
            let _ = write!(words, " --add new{number}.img");
            let _ = write!(with, " new{number}.img");
        }
        let told = json(path, &format!("grow --json {change}{words}{names}"));
        assert_eq!(told["reshape"]["level"], serde_json::json!(["raid0", "raid0"]), "{told}");
        assert_eq!(told["reshape"]["raid_devices"], serde_json::json!([count, count + add]), "{told}");
        assert_eq!(told["reshape"]["empty_slots"], 0, "{told}");
        let read = ok(path, &format!("read{with}"), b"");
        assert_eq!(read.len() / (count + add), content.len() / count, "{options} {change}");
        assert!(read[..content.len()] == content, "{options} {change}: bytes differ");
        assert!(
            read[content.len()..].iter().all(|byte| *byte == 0),
            "{options} {change}: what is new is not zeroes"
        );
    }
}

#[test]
fn a_raid0_whose_new_member_alone_says_that_it_grows_is_what_it_was_or_continued() {
    let (folder, names, content) = made("-l 0 -n 2 -c 64", 2);
    let path = folder.path();
    blank(path, "new.img");
    let before = all(path, &names);
    // Power fails when the new device alone says that there is a reshape, before anything has moved.
    ok(path, &format!("grow -n 3 --add new.img{names}"), b"");
    let data = 1 << 20;
    let mut begun = fs::read(path.join("new.img")).unwrap();
    let put = |block: &mut [u8], at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    let block = &mut begun[4096..8192];
    put(block, 8, &(2_u32 | 4 | 64).to_le_bytes()); // recovery_offset, reshape, new_offset
    put(block, 72, &4_u32.to_le_bytes());
    put(block, 76, &5_u32.to_le_bytes());
    put(block, 92, &4_u32.to_le_bytes());
    put(block, 100, &4_u32.to_le_bytes());
    put(block, 104, &0_u64.to_le_bytes());
    put(block, 112, &1_i32.to_le_bytes());
    let moved = i32::from_le_bytes(block[124..128].try_into().unwrap());
    let offset = u64::from_le_bytes(block[128..136].try_into().unwrap());
    assert!(moved < 0 && offset == 2048 - u64::from(moved.unsigned_abs()));
    put(block, 128, &2048_u64.to_le_bytes());
    put(block, 152, &0_u64.to_le_bytes());
    put(block, 200, &1_u64.to_le_bytes());
    put(block, 216, &0_u32.to_le_bytes());
    let words = (256 + 2 * u32::from_le_bytes(block[220..224].try_into().unwrap()) as usize) / 4;
    let sum: u64 =
        block.chunks(4).take(words).map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap()))).sum();
    put(block, 216, &(((sum & 0xffff_ffff) + (sum >> 32)) as u32).to_le_bytes());
    begun[data..].fill(0x5a);
    fs::write(path.join("new.img"), begun).unwrap();
    for (name, before) in names.split_whitespace().zip(&before) {
        fs::write(path.join(name), before).unwrap();
    }
    assert!(ok(path, &format!("read{names}"), b"") == content, "it is what it was");
    // The same command does it, and so does going on with what the new device says.
    let with_new = format!("{names} new.img");
    let cut = all(path, &with_new);
    ok(path, &format!("grow -n 3 --add new.img{names}"), b"");
    let read = ok(path, &format!("read{with_new}"), b"");
    assert!(read[..content.len()] == content && read[content.len()..].iter().all(|byte| *byte == 0));
    for (name, cut) in with_new.split_whitespace().zip(&cut) {
        fs::write(path.join(name), cut).unwrap();
    }
    let said = ok(path, &format!("grow --continue new.img{names}"), b"");
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("it has no parity: `stripewise grow --level 0` makes a raid0 of it"), "{said}");
    let read = ok(path, &format!("read new.img{names}"), b"");
    assert!(read[..content.len()] == content);
    ok(path, &format!("grow --level 0 new.img{names}"), b"");
    let read = ok(path, &format!("read new.img{names}"), b"");
    assert!(read[..content.len()] == content && read[content.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_added_may_hold_something_with_force_alone() {
    let (folder, names, content) = made("-l 0 -n 2 -c 64", 2);
    let path = folder.path();
    blank(path, "new.img");
    ok(path, "create -l 0 -n 1 -c 64 --force new.img", b"");
    let refused = fails(path, &format!("grow -n 3 --add new.img{names}"), b"", 2);
    assert!(refused.contains("new.img") && refused.contains("--force overwrites it"), "{refused}");
    ok(path, &format!("grow -f -n 3 --add new.img{names}"), b"");
    let read = ok(path, &format!("read{names} new.img"), b"");
    assert!(read[..content.len()] == content && read[content.len()..].iter().all(|byte| *byte == 0));
    let refused = fails(path, &format!("grow -f -n 4 --add new.img{names} new.img"), b"", 2);
    assert!(refused.contains("new.img"), "{refused}");
}

#[test]
fn what_cannot_be_is_refused_and_stays_as_it_is() {
    let two = "-l 0 -n 2 -c 64";
    for (options, count, words, said) in [
        (two, 2, "-l 1", "from raid0 to raid1 is Linux's work, if it can be"),
        (two, 2, "-l 0", "the array is so already"),
        (two, 2, "-l 10 -c 32", "change the level alone first"),
        (two, 2, "-l 5 -n 4", "change the level alone first"),
        (two, 2, "-n 3", "1 more raid devices take as many new devices, and 0 are named with --add"),
        (two, 2, "-n 2", "the array is so already"),
        (two, 2, "-n 1", "the array has 2 raid devices, and 1 would hold less"),
        (two, 2, "-c 6K", "it is a power of two"),
        (two, 2, "-c 2M", "take a chunk that divides it, as a raid0 array uses all of its members"),
        (two, 2, "-l 5 --add new.img", "--add needs --raid-devices"),
        ("-l 1 -n 2", 2, "-n 3 --add new.img", "others get spares first, by `stripewise add-spare`"),
        (two, 2, "-l 4 -p ls", "no layouts"),
        ("-l 0 -n 2 -c 12", 2, "-l 5", "a power of two, 4K or more; this one is 12288 bytes long"),
        ("-l 0 -n 2 -c 64 -e 0.90", 2, "-l 5", "metadata 0.90"),
        ("-l 5 -n 3 -c 64", 3, "-l 0", "`stripewise grow --layout parity-last` it first"),
        (
            "-l 5 -n 3 -c 64 -p parity-last -b internal",
            3,
            "-l 0",
            "raid0 has no bitmap; take it away first, with --bitmap none",
        ),
        ("-l 5 -n 3 -c 64 -p parity-last", 3, "-l 0 -p original", "has no layouts"),
        ("-l 10 -n 4 -c 64 -p o2", 4, "-l 0", "`stripewise grow --layout n2` makes it of an o2"),
        (
            "-l 10 -n 3 -c 64",
            3,
            "-l 0",
            "a raid10 array of an even number of raid devices can become raid0; this one has 3",
        ),
        ("-l 6 -n 4 -c 64", 4, "-l 0", "from raid6 to raid0 is Linux's work, if it can be"),
    ] {
        let (folder, names, _) = made(options, count);
        let before = all(folder.path(), &names);
        let refused = fails(folder.path(), &format!("grow {words}{names}"), b"", 2);
        assert!(refused.contains(said), "{options} {words}: {refused}");
        assert!(all(folder.path(), &names) == before, "{options} {words}: written");
    }
    let folder = TempDir::new().unwrap();
    for (name, mib) in [("0.img", 12), ("1.img", 14)] {
        fs::File::create(folder.path().join(name)).unwrap().set_len(mib << 20).unwrap();
    }
    ok(folder.path(), "create -l 0 -n 2 -c 64 0.img 1.img", b"");
    let refused = fails(folder.path(), "grow -l 10 0.img 1.img", b"", 2);
    assert!(refused.contains("the smallest has 11264K for data and the largest 13312K"), "{refused}");
}
