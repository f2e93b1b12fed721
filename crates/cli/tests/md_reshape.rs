//! `grow` where all data move: more members, another chunk or layout, cut off and continued.

mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{all, command, fails, finish, json, made, ok, run, stderr};
use tempfile::TempDir;

/// What the first member says of a reshape, and whether it says so.
fn position(folder: &Path) -> Option<u64> {
    let block = fs::read(folder.join("0.img")).unwrap()[4096..4352].to_vec();
    (block[8] & 4 != 0).then(|| u64::from_le_bytes(block[104..112].try_into().unwrap()))
}

#[test]
fn data_are_where_they_were_in_an_array_of_another_shape() {
    for (options, count, change, said) in [
        ("-l 5 -n 3 -x 1 -c 64", 4, "-n 4", "the array now has 4 raid devices instead of 3"),
        ("-l 4 -n 3 -c 16 -b internal", 3, "-c 32", "the array now has a chunk of 32K instead of 16K"),
        (
            "-l 6 -n 4 -x 1 -c 64 -e 1.1",
            5,
            "-n 5 -p ra -c 32",
            "the layout right-asymmetric instead of left-symmetric",
        ),
        (
            "-l 5 -n 3 -c 64 -e 1.0 -z 6M",
            3,
            "-p parity-last",
            "the layout parity-last instead of left-symmetric",
        ),
    ] {
        let (folder, names, content) = made(options, count, 12);
        let path = folder.path();
        let told = json(path, &format!("grow --json {change}{names}"));
        assert_eq!(told["schema"], "stripewise.grow/1");
        assert!(told["said"][0].as_str().unwrap().contains(said), "{told}");
        let reshape = &told["reshape"];
        assert_eq!((&reshape["is_done"], &reshape["percent"]), (&true.into(), &100.0.into()));
        assert_eq!(reshape["array_bytes"][0], content.len());
        let read = ok(path, &format!("read{names}"), b"");
        assert_eq!(reshape["array_bytes"][1], read.len());
        assert!(read[..content.len()] == content, "{options} {change}: bytes differ");
        assert!(
            read[content.len()..].iter().all(|byte| *byte == 0),
            "{options} {change}: what is new is zeroes"
        );
        ok(path, &format!("check{names}"), b"");
        let one_less = names.trim_start().split_once(' ').unwrap().1;
        assert!(
            ok(path, &format!("read --run {one_less}"), b"") == read,
            "{options} {change}: without a member"
        );
        let again = fails(path, &format!("grow {change}{names}"), b"", 2);
        assert!(again.contains("the array is so already"), "{again}");
        let nothing = fails(path, &format!("grow --continue{names}"), b"", 2);
        assert!(nothing.contains("the array is not being reshaped"), "{nothing}");
    }
}

#[test]
fn fewer_members_hold_what_is_kept_and_the_others_are_spares() {
    for (options, count, change, left, used) in [
        ("-l 5 -n 4 -c 64 -z 6M", 4, "-n 3 --array-size 10M", 3, 6 << 20),
        ("-l 6 -n 6 -c 16 -e 1.0 -z 6M -b internal", 6, "-n 4 -c 32 -Z 12M", 4, 6 << 20),
        ("-l 10 -n 4 -c 64 -z 6M -b internal", 4, "-n 3 -c 32 -Z 9M", 3, 6 << 20),
        ("-l 10 -n 5 -p o2 -c 64", 5, "-n 3 -Z 16000K", 3, (11 << 20) - (128 << 10)),
        // No room behind the data: what they move by is left unused.
        ("-l 4 -n 4 -c 64 -e 1.1", 4, "-n 3 -Z 20M", 3, (11 << 20) - (128 << 10)),
        ("-l 5 -n 5 -c 64 -p ra -b internal", 5, "-n 4 -p ls -Z 20M", 4, (11 << 20) - (192 << 10)),
    ] {
        let (folder, names, content) = made(options, count, 12);
        let path = folder.path();
        let told = json(path, &format!("grow --json {change}{names}"));
        let reshape = &told["reshape"];
        assert_eq!((&reshape["is_done"], &reshape["percent"]), (&true.into(), &100.0.into()), "{told}");
        assert_eq!(reshape["is_recovery_due"], false, "{told}");
        let is_copies = options.contains("-l 10");
        let kept = match &options[..4] {
            _ if is_copies => used * left / 2,
            "-l 6" => used * (left - 2),
            _ => used * (left - 1),
        };
        assert_eq!(reshape["array_bytes"], serde_json::json!([content.len(), kept]), "{told}");
        assert_eq!(reshape["used_bytes"][1], used, "{told}");
        let names_of: Vec<&str> = names.split_whitespace().collect();
        assert_eq!(reshape["freed"], serde_json::json!(names_of[left..]), "{told}");
        let read = ok(path, &format!("read{names}"), b"");
        assert!(read == content[..kept], "{options} {change}: bytes differ");
        ok(path, &format!("check{names}"), b"");
        let one_less = names_of[1..left].join(" ");
        assert!(ok(path, &format!("read --run {one_less}"), b"") == read, "{change}: without a member");
        let detail = json(path, &format!("detail --json{names}"));
        assert_eq!(
            (&detail["raid_devices"], &detail["spare_devices"]),
            (&left.into(), &(count - left).into())
        );
        if options.contains("-e 1.0") {
            continue; // there is too little room before the data
        }
        // And back: the spares are members again.
        ok(path, &format!("grow -n {count}{names}"), b"");
        let read = ok(path, &format!("read{names}"), b"");
        let is_new_zeroes = is_copies || read[kept..].iter().all(|byte| *byte == 0);
        assert!(read[..kept] == content[..kept] && is_new_zeroes, "{change}: back");
        ok(path, &format!("assemble{names}"), b"");
        ok(path, &format!("check{names}"), b"");
    }
}

#[test]
fn without_a_member_fewer_are_had_and_one_that_was_freed_takes_its_slot() {
    for (level, size, lost, is_due) in [
        ("5", 12, "1.img", true),
        ("5", 12, "3.img", false),
        ("10", 9, "0.img", true),
        ("10", 9, "3.img", false),
    ] {
        let (folder, names, content) = made(&format!("-l {level} -n 4 -c 64 -z 6M"), 4, 12);
        let path = folder.path();
        let rest = names.replace(&format!(" {lost}"), "");
        let refused = fails(path, &format!("grow -n 3 -Z {size}M{rest}"), b"", 2);
        assert!(refused.contains("--run"), "{refused}");
        let told = json(path, &format!("grow --json --run -n 3 -Z {size}M{rest}"));
        assert_eq!(told["reshape"]["is_recovery_due"], is_due, "{told}");
        ok(path, &format!("assemble{rest}"), b"");
        ok(path, &format!("check{rest}"), b"");
        assert!(ok(path, &format!("read{rest}"), b"") == content[..size << 20], "{level} {lost}");
    }
}

#[test]
fn copies_are_where_they_were_in_an_array_of_another_shape() {
    for (options, count, change, said) in [
        ("-l 10 -n 4 -x 1 -c 64 -b internal", 5, "-n 5", "the array now has 5 raid devices instead of 4"),
        ("-l 10 -n 3 -c 64 -z 6M", 3, "-c 128", "the array now has a chunk of 128K instead of 64K"),
        ("-l 10 -n 4 -c 64 -e 1.1", 4, "-p o2 -c 32", "the layout o2 instead of n2"),
    ] {
        let (folder, names, content) = made(options, count, 12);
        let path = folder.path();
        let told = json(path, &format!("grow --json {change}{names}"));
        assert!(told["said"][0].as_str().unwrap().contains(said), "{told}");
        let reshape = &told["reshape"];
        assert_eq!((&reshape["is_done"], &reshape["percent"]), (&true.into(), &100.0.into()));
        let grows = change.contains("-n");
        assert_eq!(reshape["array_bytes"][0], content.len());
        assert_eq!(reshape["array_bytes"][1], content.len() * if grows { 5 } else { 4 } / 4);
        assert_eq!(reshape["is_resync_due"], grows, "{told}");
        ok(path, &format!("assemble{names}"), b"");
        ok(path, &format!("check{names}"), b"");
        let one_less = names.trim_start().split_once(' ').unwrap().1;
        for read in [format!("read{names}"), format!("read --run {one_less}")] {
            let read = ok(path, &read, b"");
            assert!(read[..content.len()] == content, "{options} {change}: bytes differ");
        }
    }
}

/// The rest of it is in `tests/interop/reshaped.py`, beside Linux.
#[test]
fn an_array_of_another_level_holds_what_it_held_and_survives_what_the_level_survives() {
    for (options, count, change, levels, lost) in [
        ("-l 5 -n 3 -x 1 -c 64 -b internal", 4, "-l 6", ["raid5", "raid6"], 2),
        ("-l 5 -n 3 -x 1 -c 64", 4, "-l 6 -p preserve", ["raid5", "raid6"], 2),
        ("-l 5 -n 3 -x 2 -c 64", 5, "-l 6 -n 5 -c 32 -p ra", ["raid5", "raid6"], 2),
        ("-l 4 -n 3 -c 16", 3, "-l 5", ["raid4", "raid5"], 1),
        ("-l 4 -n 3 -x 1 -c 16", 4, "-l 5 -n 4 -p ls", ["raid4", "raid5"], 1),
        ("-l 1 -n 2 -b internal", 2, "-l 5", ["raid1", "raid5"], 1),
        ("-l 5 -n 2 -c 64", 2, "-l 1", ["raid5", "raid1"], 1),
        ("-l 5 -n 3 -c 64 -p parity-last", 3, "-l 4", ["raid5", "raid4"], 1),
        ("-l 6 -n 4 -c 64 -p left-symmetric-6", 4, "-l 5", ["raid6", "raid5"], 1),
    ] {
        let (folder, names, content) = made(options, count, 12);
        let path = folder.path();
        let told = json(path, &format!("grow --json {change}{names}"));
        assert_eq!(told["reshape"]["level"], serde_json::json!(levels), "{told}");
        assert_eq!(told["level"], levels[1]);
        assert_eq!(told["reshape"]["is_done"], true, "{told}");
        let is_due = told["reshape"]["is_recovery_due"] == true;
        assert_eq!(is_due, change.contains("preserve"), "{told}");
        if is_due {
            ok(path, &format!("assemble{names}"), b"");
        }
        ok(path, &format!("check{names}"), b"");
        let left: Vec<&str> = names.split_whitespace().skip(lost).collect();
        for read in [format!("read{names}"), format!("read --run {}", left.join(" "))] {
            let read = ok(path, &read, b"");
            assert!(read[..content.len()] == content, "{options} {change}: bytes differ");
        }
        let again = fails(path, &format!("grow {change}{names}"), b"", 2);
        assert!(again.contains("the array is so already"), "{again}");
    }
}

#[test]
fn what_cannot_be_reshaped_is_refused_and_stays_as_it_is() {
    let five = "-l 5 -n 3 -x 1 -c 64";
    for (options, count, words, said) in [
        ("-l 5 -n 3 -c 64", 3, "-n 4", "need as many spares, and there are 0; `stripewise add-spare`"),
        (five, 4, "-n 2", "holds 30720K on 3 raid devices, and with 2 all beyond 15296K would be lost"),
        (five, 4, "-n 2 --array-size 16M", "16384K are to be kept, and 2 raid devices hold 15296K"),
        (five, 4, "-n 2 --array-size 15360K", "a part of each member is left unused"),
        (five, 4, "-n 1 --array-size 1M", "a raid5 array has 2 raid devices or more; 1 are too few"),
        (five, 4, "-n 4 --array-size 1M", "this one has 3, and 4 hold all of it"),
        (five, 4, "-c 32 --array-size 1M", "--array-size needs --raid-devices"),
        ("-l 6 -n 5 -c 64", 5, "-n 3 --array-size 1M", "a raid6 array has 4 raid devices or more"),
        ("-l 5 -n 4 -c 64 -e 0.90", 4, "-n 3 --array-size 1M", "`mdadm --grow --backup-file`"),
        ("-l 5 -n 4 -c 64 -k ppl", 4, "-n 3 --array-size 1M", "with --consistency-policy resync"),
        ("-l 1 -n 2", 2, "-n 1 --array-size 1M", "this array holds all it held with any number"),
        (five, 4, "-n 3", "the array is so already"),
        (five, 4, "-n 4 --force", "a reshape needs a spare"),
        (five, 4, "-c 6K", "it is a power of two"),
        (five, 4, "-c 8M", "which is no multiple of the chunk of 8192K"),
        (five, 4, "-p ddf-N-continue", "ddf-N-continue"),
        (five, 4, "-n 4 -b none", "one change at a time"),
        (five, 4, "--continue -c 32", "one change at a time"),
        ("-l 4 -n 3 -c 64", 3, "-p ls", "no layouts"),
        ("-l 10 -n 4 -c 64", 4, "-n 5", "need as many spares, and there are 0"),
        ("-l 10 -n 4 -c 64", 4, "-n 3", "--array-size SIZE, 22912K or less"),
        ("-l 10 -n 4 -c 64", 4, "-n 1 --array-size 1M", "raid10 array has 2 raid devices or more"),
        ("-l 10 -n 4 -c 64 -p n3", 4, "-n 2 --array-size 1M", "copies"),
        ("-l 10 -n 4 -c 64", 4, "-p n2", "the array is so already"),
        ("-l 10 -n 4 -c 64", 4, "-p f2", "copies that lie far away (fN) are not moved"),
        ("-l 10 -n 4 -c 64 -p f2", 4, "-c 32", "copies that lie far away (fN) are not moved"),
        ("-l 10 -n 4 -c 64", 4, "-p n3", "each block has 2 copies, and 3 are asked for"),
        (
            "-l 10 -n 3 -c 64 -z 640K",
            3,
            "-c 128",
            "holds 960K, and in whole rows of that chunk and layout its members hold 896K",
        ),
        ("-l 10 -n 4 -c 64 -z 640K", 4, "-c 256", "which is no multiple of the chunk of 256K"),
        ("-l 10 -n 4 -x 1 -c 64 -e 1.0", 5, "-n 5", "0 are free before; Linux has no other way"),
        ("-l 10 -n 4 -x 1 -c 64 -e 0.90", 5, "-n 5", "neither Linux nor stripewise reshapes a raid10 array"),
        ("-l 10 -n 4 -c 64", 4, "-l 5", "from raid10 to raid5 is Linux's work"),
        ("-l 1 -n 2", 2, "-c 32", "a raid1 array is Linux's work"),
        ("-l 5 -n 3 -x 1 -c 64 -e 0.90", 4, "-n 4", "`mdadm --grow --backup-file`"),
        ("-l 5 -n 3 -x 1 -c 64 -k ppl", 4, "-n 4", "with --consistency-policy resync"),
        ("-l 5 -n 3 -x 1 -c 64 -e 1.0", 4, "-n 4", "128 sectors must be free before them; 0 are free before"),
        ("-l 5 -n 3 -c 64 --data-offset 128K", 3, "-c 128", "must be free before or behind them"),
        ("-l 5 -n 3 -c 64", 3, "-l 6", "1 more raid devices need as many spares, and there are 0"),
        (five, 4, "-l 6 -n 3", "as raid6 the array takes 4 raid devices; 3 would hold less"),
        (five, 4, "-l 6 -b none", "one change at a time"),
        (five, 4, "-l 6 -p parity-middle", "parity-middle"),
        (five, 4, "-l 4", "`stripewise grow --layout parity-last` it first"),
        (five, 4, "-l 5", "the array is so already"),
        ("-l 5 -n 3 -c 64 -p parity-last", 3, "-l 4 -c 32", "change the level alone first"),
        ("-l 5 -n 3 -x 1 -c 64 -e 0.90", 4, "-l 6", "metadata 0.90"),
        ("-l 5 -n 3 -x 1 -c 64 -k ppl", 4, "-l 6", "with --consistency-policy resync"),
        ("-l 5 -n 3 -x 1 -c 64 -e 1.0", 4, "-l 6", "`mdadm --grow --backup-file`"),
        ("-l 5 -n 2 -x 1 -c 64", 3, "-l 6", "3 to 253 raid devices can become raid6; this one has 2"),
        ("-l 6 -n 4 -c 64", 4, "-l 5", "`stripewise grow --layout left-symmetric-6` it first"),
        ("-l 1 -n 3", 3, "-l 5", "a raid1 array of 2 raid devices"),
    ] {
        let (folder, names, _) = made(options, count, 16);
        let before = all(folder.path(), &names);
        let refused = fails(folder.path(), &format!("grow {words}{names}"), b"", 2);
        assert!(refused.contains(said), "{options} {words}: {refused}");
        assert!(all(folder.path(), &names) == before, "{options} {words}: written");
    }
}

#[test]
fn what_is_due_is_done_before_a_reshape() {
    let (folder, ..) = made("-l 5 -n 3 -x 1 -c 64", 4, 12);
    let path = folder.path();
    let without = " 0.img 1.img 3.img";
    let refused = fails(path, &format!("grow --run -n 4{without}"), b"", 2);
    assert!(refused.contains("spares, and there are 1") || refused.contains("lacks a member"), "{refused}");
    let refused = fails(path, &format!("grow -c 32{without}"), b"", 2);
    assert!(refused.contains("--run"), "{refused}");
    let dirty = TempDir::new().unwrap();
    for name in ["0.img", "1.img", "2.img"] {
        fs::write(dirty.path().join(name), vec![7; 12 << 20]).unwrap();
    }
    ok(dirty.path(), "create -l 5 -n 3 -c 64 --force 0.img 1.img 2.img", b"");
    let refused = fails(dirty.path(), "grow -c 32 0.img 1.img 2.img", b"", 2);
    assert!(refused.contains("a resync or recovery is due"), "{refused}");
    let (folder, names, content) = made("-l 5 -n 3 -c 64", 3, 12);
    let path = folder.path();
    // Without one from the start: the rest is reshaped.
    ok(path, "grow --run -c 32 0.img 2.img", b"");
    let read = ok(path, "read --run 0.img 2.img", b"");
    assert!(read == content);
    let stale = ok(path, &format!("read --run{names}"), b"");
    assert!(stale == content, "the one that was away is out of date");
}

/// Runs until some of it is recorded, and then sends a signal.
fn cut(folder: &Path, words: &str, signal: &str, is_far: impl Fn(u64) -> bool) -> (Option<i32>, String) {
    let child = command(folder, words).spawn().unwrap();
    let began = Instant::now();
    while !position(folder).is_some_and(&is_far) && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let sent = std::process::Command::new("kill").arg(signal).arg(child.id().to_string()).status();
    assert!(sent.unwrap().success());
    let output = finish(child, b"");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output))
}

#[test]
fn what_was_cut_off_is_refused_until_it_is_continued() {
    for (options, count, signal, code) in [
        ("-l 5 -n 3 -c 64", 3, "-INT", Some(130)),
        ("-l 5 -n 3 -c 64", 3, "-KILL", None),
        ("-l 10 -n 4 -c 64", 4, "-KILL", None),
    ] {
        let (folder, names, content) = made(options, count, 96);
        let one_less = names.rsplit_once(' ').unwrap().0;
        let path = folder.path();
        let (ended, said) = cut(path, &format!("grow -c 32{names}"), signal, |position| position >= 1000);
        assert_eq!(ended, code, "{said}");
        if code.is_some() {
            assert!(
                said.contains("% of the reshape is done; `stripewise grow --continue` goes on"),
                "{said}"
            );
        }
        for word in ["read", "assemble", "detail", "check", "grow -c 128"] {
            let refused = fails(path, &format!("{word}{names}"), b"", 2);
            assert!(refused.contains("being reshaped, and "), "{word}: {refused}");
            assert!(refused.contains("% is done; `stripewise grow --continue`"), "{word}: {refused}");
        }
        let shown = String::from_utf8(ok(path, "examine 0.img", b"")).unwrap();
        assert!(shown.contains("Reshape pos'n : "), "{shown}");
        if code.is_some() {
            let told = json(path, &format!("grow --continue --json{names}"));
            assert_eq!(told["reshape"]["chunk_bytes"], serde_json::json!([65536, 32768]));
            assert!(ok(path, &format!("read{names}"), b"") == content);
            ok(path, &format!("check{names}"), b"");
        } else {
            let refused = fails(path, &format!("grow --continue{one_less}"), b"", 2);
            assert!(refused.contains("--run"), "{refused}");
            ok(path, &format!("grow --continue --run{one_less}"), b"");
            assert!(ok(path, &format!("read --run{one_less}"), b"") == content);
            // It is out of date, and is had back as a new one.
            assert!(ok(path, &format!("read --run{names}"), b"") == content);
        }
    }
}

fn events(folder: &Path, name: &str) -> u64 {
    let image = fs::read(folder.join(name)).unwrap();
    u64::from_le_bytes(image[4096 + 200..][..8].try_into().unwrap())
}

/// Sets a superblock's events, and its sum.
fn put_events(folder: &Path, name: &str, events: u64) {
    let mut image = fs::read(folder.join(name)).unwrap();
    let block = &mut image[4096..8192];
    block[200..208].copy_from_slice(&events.to_le_bytes());
    block[216..220].fill(0);
    let word = |at: usize| u64::from(u32::from_le_bytes(block[at..at + 4].try_into().unwrap()));
    let words = 64 + word(220) as usize / 2;
    let sum: u64 = (0..words).map(|index| word(4 * index)).sum();
    let sum = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    block[216..220].copy_from_slice(&sum.to_le_bytes());
    fs::write(folder.join(name), image).unwrap();
}

/// A RAID-5 of three that is becoming one of four, and was interrupted.
fn half_grown() -> (TempDir, String, Vec<u8>) {
    let (folder, names, content) = made("-l 5 -n 3 -x 1 -c 64", 4, 96);
    let grow = format!("grow -n 4{names}");
    let (ended, said) = cut(folder.path(), &grow, "-INT", |position| position >= 1000);
    assert_eq!(ended, Some(130), "{said}");
    (folder, names, content)
}

/// Two members dropped out of a RAID-5, one after the other, and the array stopped with the second.
#[test]
fn what_too_many_members_dropped_out_of_goes_on_by_force() {
    let (folder, names, content) = half_grown();
    let path = folder.path();
    let then = events(path, "1.img");
    for (name, later) in [("2.img", 8), ("0.img", 12), ("3.img", 12)] {
        put_events(path, name, then + later);
    }
    let refused = fails(path, &format!("grow --continue{names}"), b"", 2);
    assert!(
        refused.contains("out of date: 1.img, 2.img (`stripewise grow --continue --force` uses"),
        "{refused}"
    );
    let unheard = fails(path, &format!("assemble --force{names}"), b"", 2);
    assert!(unheard.contains("`stripewise grow --continue` ends the reshape"), "{unheard}");
    ok(path, &format!("grow --continue --force{names}"), b"");
    assert!(ok(path, &format!("read --run{names}"), b"")[..content.len()] == content);
    let left_out = stderr(&run(path, &format!("assemble --run{names}"), b""));
    assert!(left_out.contains("1.img is left out"), "{left_out}");
}

/// The reshape went on without one, and then another was lost, too.
#[test]
fn a_member_of_before_the_reshape_went_on_is_not_taken_by_force() {
    for ends in [false, true] {
        let (folder, _, _) = half_grown();
        let path = folder.path();
        fs::copy(path.join("1.img"), path.join("of-then")).unwrap();
        let go_on = "grow --continue --run 0.img 2.img 3.img";
        if ends {
            ok(path, go_on, b"");
        } else {
            let then = position(path).unwrap();
            let (ended, said) = cut(path, go_on, "-INT", |position| position > then + 5000);
            assert_eq!(ended, Some(130), "{said}");
        }
        fs::rename(path.join("of-then"), path.join("1.img")).unwrap();
        let before = events(path, "1.img");
        let refused = fails(path, "grow --continue --force 0.img 1.img 3.img", b"", 2);
        let why = if ends { "not being reshaped" } else { "1.img: the reshape went on after it dropped out" };
        assert!(refused.contains(why), "{refused}");
        assert_eq!(events(path, "1.img"), before);
    }
}

#[test]
fn a_member_that_was_not_filled_so_far_is_not_taken_by_force() {
    let (folder, names, _) = half_grown();
    let path = folder.path();
    let then = events(path, "1.img");
    // 3.img is new, and says how far it is filled.
    let mut image = fs::read(path.join("3.img")).unwrap();
    image[4096 + 152..4096 + 160].copy_from_slice(&64_u64.to_le_bytes());
    image[4096 + 8] |= 2;
    fs::write(path.join("3.img"), image).unwrap();
    for (name, later) in [("3.img", 8), ("0.img", 12), ("2.img", 12)] {
        put_events(path, name, then + later);
    }
    let refused = fails(path, &format!("grow --continue --force{names}"), b"", 2);
    assert!(refused.contains("3.img: it dropped out when it had been filled up to sector 64"), "{refused}");
}

#[test]
fn what_was_cut_off_with_fewer_members_needs_those_that_go_until_it_is_continued() {
    let kept = 160 << 20;
    for lost in [None, Some("3.img"), Some("0.img")] {
        let (folder, names, content) = made("-l 5 -n 4 -c 64 -z 90M", 4, 96);
        let path = folder.path();
        let whole = 2 * (90 << 11);
        let is_far = |position| position < whole - 1000;
        let (ended, said) = cut(path, &format!("grow -n 3 -Z 160M{names}"), "-KILL", is_far);
        assert_eq!(ended, None, "{said}");
        let refused = fails(path, &format!("read{names}"), b"", 2);
        assert!(refused.contains("being reshaped, and "), "{refused}");
        let refused = fails(path, "grow --continue --run 0.img 1.img", b"", 2);
        let needed = "2 of the 4 members that the reshape began with are missing";
        assert!(refused.contains(needed) || refused.contains("not enough"), "{refused}");
        let Some(lost) = lost else {
            // Power may fail when a member whose slot goes alone says how far it came.
            let events = names.split_whitespace().map(|name| events(path, name)).max().unwrap();
            for name in names.split_whitespace() {
                put_events(path, name, events + u64::from(name == "3.img"));
            }
            let told = json(path, &format!("grow --continue --json{names}"));
            assert_eq!(told["reshape"]["freed"], serde_json::json!(["3.img"]), "{told}");
            assert!(ok(path, &format!("read{names}"), b"")[..kept] == content[..kept]);
            ok(path, &format!("check{names}"), b"");
            continue;
        };
        let rest = names.replace(&format!(" {lost}"), "");
        let refused = fails(path, &format!("grow --continue{rest}"), b"", 2);
        assert!(refused.contains("--run"), "{refused}");
        let told = json(path, &format!("grow --continue --run --json{rest}"));
        assert_eq!(told["reshape"]["is_recovery_due"], lost == "0.img", "{told}");
        assert!(ok(path, &format!("read --run{rest}"), b"")[..kept] == content[..kept], "{lost}");
        ok(path, &format!("assemble{rest}"), b"");
        ok(path, &format!("check{rest}"), b"");
        assert!(ok(path, &format!("read{rest}"), b"")[..kept] == content[..kept], "{lost} recovered");
    }
}
