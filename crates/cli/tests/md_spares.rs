//! Spares beside a change of the array: each takes a place of its own, and what a change did not reach becomes as the others are.

mod common;

use std::path::Path;

use common::{blanks, json, made, ok, refused};

/// The names in front of others.
fn with(names: &str, more: &str) -> String {
    format!("{names} {more}")
}

/// Adds spares of which none knows of the others: none is named when the next comes.
fn add_apart(path: &Path, names: &str, spares: &[&str]) {
    blanks(path, spares, 8 << 20);
    for spare in spares {
        ok(path, &format!("add-spare {spare} --array{names}"), b"");
    }
}

#[test]
fn spares_that_do_not_know_of_each_other_get_slots_of_their_own() {
    let spares = ["s1.img", "s2.img"];
    for (options, count, words, slots) in [
        ("-l 5 -n 3 -c 64 -z 2M", 3, "--raid-devices 4", 4),
        ("-l 5 -n 3 -c 64 -z 2M", 3, "--raid-devices 5", 5),
        ("-l 6 -n 4 -c 64 -z 2M", 4, "--raid-devices 6", 6),
        ("-l 5 -n 3 -c 64 -z 2M", 3, "--level 6", 4),
        ("-l 5 -n 3 -c 64 -z 2M", 3, "--level 6 --layout preserve", 4),
        ("-l 5 -n 3 -c 64 -z 2M", 3, "--level 6 --raid-devices 5", 5),
        ("-l 10 -n 4 -c 64 -z 2M", 4, "--raid-devices 6", 6),
        ("-l 1 -n 2 -z 2M", 2, "--raid-devices 3", 3),
    ] {
        let (folder, names, content) = made(options, count, 8);
        let path = folder.path();
        add_apart(path, &names, &spares);
        let all = with(&names, &spares.join(" "));
        ok(path, &format!("grow {words}{all}"), b"");
        ok(path, &format!("assemble{all}"), b"");
        let detail = json(path, &format!("detail --json{all}"));
        let told = format!("{options}, {words}: {detail}");
        assert_eq!(detail["raid_devices"], slots, "{told}");
        assert_eq!(detail["active_devices"], slots, "{told}");
        let here = count + spares.len();
        assert_eq!(detail["spare_devices"].as_u64(), Some(here as u64 - slots), "{told}");
        assert!(ok(path, &format!("read{all}"), b"")[..content.len()] == content, "{told}");
        ok(path, &format!("check{all}"), b"");
    }
}

/// Arrays, and changes by superblocks alone.
const CHANGES: [(&str, usize, &str); 9] = [
    ("-l 1 -n 2 -z 2M -b internal", 2, "--bitmap none"),
    ("-l 5 -n 3 -c 64 -z 2M", 3, "--bitmap internal"),
    ("-l 5 -n 3 -c 64 -z 2M", 3, "--size 4M --assume-clean"),
    ("-l 5 -n 3 -c 64 -z 2M -k ppl", 3, "--consistency-policy resync"),
    ("-l 1 -n 2 -z 2M", 2, "--raid-devices 3"),
    ("-l 4 -n 3 -c 64 -z 2M", 3, "--level 5"),
    ("-l 1 -n 2 -z 2M", 2, "--level 5"),
    ("-l 5 -n 3 -c 64 -z 2M -p parity-last", 3, "--level 4"),
    ("-l 5 -n 3 -c 64 -z 2M", 3, "--level 6 --layout preserve"),
];

/// Power failed before a change had come to the spare, which is then told what the members say, by whoever comes next.
#[test]
fn a_spare_that_a_change_did_not_reach_becomes_one_of_the_array_as_it_is() {
    for (options, count, words) in CHANGES {
        let (folder, names, content) = made(options, count, 8);
        let path = folder.path();
        add_apart(path, &names, &["s.img"]);
        let (all, told) = (with(&names, "s.img"), format!("{options}, {words}"));
        let before = std::fs::read(path.join("s.img")).unwrap();
        ok(path, &format!("grow {words}{all}"), b"");
        std::fs::write(path.join("s.img"), &before).unwrap();
        let cut_off: Vec<Vec<u8>> = common::all(path, &all);
        ok(path, &format!("grow {words}{all}"), b"");
        ok(path, &format!("assemble{all}"), b"");
        for (name, bytes) in all.split_whitespace().zip(cut_off) {
            std::fs::write(path.join(name), bytes).unwrap();
        }
        ok(path, &format!("assemble{all}"), b"");
        ok(path, &format!("fail 0.img --array{all}"), b"");
        let rest = all.replace(" 0.img", "");
        for _ in 0..2 {
            ok(path, &format!("assemble{rest}"), b"");
            ok(path, &format!("check{rest}"), b"");
            let detail = json(path, &format!("detail --json{rest}"));
            assert!(detail.to_string().contains("\"path\":\"s.img\""), "{told}: {detail}");
            assert_eq!(detail["left_out"].as_array().map(Vec::len), Some(0), "{told}: {detail}");
        }
        assert!(ok(path, &format!("read{rest}"), b"")[..content.len()] == content, "{told}");
    }
}

/// Power failed when a member had the change and the others had not.
#[test]
fn a_change_that_was_cut_off_among_the_members_is_finished_as_the_refusal_says() {
    for (options, count, words) in CHANGES {
        let (folder, names, content) = made(options, count, 8);
        let path = folder.path();
        add_apart(path, &names, &["s.img"]);
        let (all, told) = (with(&names, "s.img"), format!("{options}, {words}"));
        let before = common::all(path, &all);
        ok(path, &format!("grow {words}{all}"), b"");
        for (name, bytes) in all.split_whitespace().zip(before).skip(1) {
            std::fs::write(path.join(name), bytes).unwrap();
        }
        for word in ["assemble", "assemble --force", "read"] {
            let refused = refused(path, &format!("{word}{all}"));
            let said = refused.split('`').nth(3).unwrap_or_default();
            assert!(said.starts_with("stripewise grow --"), "{told}: {refused}");
            assert!(!refused.contains("--run") && !refused.contains("--force"), "{told}: {refused}");
            if word == "read" {
                ok(path, &format!("{}{all}", said.trim_start_matches("stripewise ")), b"");
            }
        }
        ok(path, &format!("assemble{all}"), b"");
        ok(path, &format!("check{all}"), b"");
        assert!(ok(path, &format!("read{all}"), b"")[..content.len()] == content, "{told}");
    }
}
