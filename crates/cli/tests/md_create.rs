//! `create` and `examine`, beside mdadm where it is installed.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const MEMBER_BYTES: usize = 8 << 20;

fn stripewise(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stripewise"));
    command.current_dir(folder).args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)))
}

/// Members a, b, c, … of alien bytes, which no reader takes for anything.
fn members(count: usize) -> (TempDir, Vec<String>) {
    let folder = TempDir::new().unwrap();
    let names: Vec<String> = (0..count).map(|n| format!("{n}.img")).collect();
    for name in &names {
        std::fs::write(folder.path().join(name), vec![0xa5; MEMBER_BYTES]).unwrap();
    }
    (folder, names)
}

fn create(folder: &Path, options: &str, names: &[String]) -> Output {
    let mut args: Vec<&str> = std::iter::once("create").chain(options.split_whitespace()).collect();
    args.extend(names.iter().map(String::as_str));
    stripewise(folder, &args)
}

/// Every level, version and layout of note.
const ARRAYS: [(&str, usize); 18] = [
    ("-l linear -n 2", 2),
    ("-l 0 -n 2 -c 64", 2),
    ("-l 1 -n 2", 2),
    ("-l 1 -n 2 -b internal --bitmap-chunk 64K -x 1", 3),
    ("-l 4 -n 3 -c 64", 3),
    ("-l 4 -n 3 -c 64 --assume-clean", 3),
    ("-l 5 -n 3 -c 64", 3),
    ("-l 5 -n 3 -c 64 -b internal", 3),
    ("-l 5 -n 3 -c 64 --force -p right-asymmetric", 3),
    ("-l 5 -n 4 -c 4 -p parity-first -x 1", 5),
    ("-l 6 -n 4 -c 64", 4),
    ("-l 6 -n 5 -c 16 -p ddf-N-continue", 5),
    ("-l 6 -n 5 -c 16 -p left-symmetric-6", 5),
    ("-l 10 -n 4 -c 64", 4),
    ("-l 10 -n 3 -c 64 -p f2", 3),
    ("-l 10 -n 5 -c 64 -p o2", 5),
    ("-l 10 -n 4 -c 64 -b internal", 4),
    ("-l 5 -n 10 -c 64 -z 4M", 10),
];

#[test]
fn mdadm_accepts_and_describes_every_superblock_as_examine_does() {
    if Command::new("mdadm").arg("--version").output().is_err() {
        eprintln!("mdadm is not installed: nothing to compare with");
        return;
    }
    for version in ["0.90", "1.0", "1.1", "1.2"] {
        for (options, count) in ARRAYS {
            let (folder, names) = members(count);
            let made = create(folder.path(), &format!("-e {version} {options}"), &names);
            assert!(made.status.success(), "{version} {options}: {}", stderr(&made));
            for name in &names {
                let ours = stripewise(folder.path(), &["examine", name]);
                let mut mdadm = Command::new("mdadm");
                mdadm.current_dir(folder.path()).env("TZ", "UTC").args(["-E", name]);
                let theirs = mdadm.output().unwrap();
                assert!(theirs.status.success(), "{version} {options}: {}", stderr(&theirs));
                // mdadm marks a 0.90 array of this host, and names devices of 0:0, by what this machine has.
                let fields = |text: &str| -> Vec<String> {
                    let lines = text.lines().filter(|line| line.contains(" : "));
                    lines.map(|line| line.split(" (local to").next().unwrap().to_owned()).collect()
                };
                assert_eq!(fields(&stdout(&ours)), fields(&stdout(&theirs)), "{version} {options} {name}");
            }
        }
    }
}

#[test]
fn a_flag_is_of_the_devices_after_it_and_mdadm_reads_it() {
    const FLAGS: [&[&str]; 4] = [&[], &["write-mostly"], &["write-mostly", "failfast"], &["failfast"]];
    let has_mdadm = Command::new("mdadm").arg("--version").output().is_ok();
    for version in ["0.90", "1.0", "1.1", "1.2"] {
        let (folder, names) = members(4);
        let command = "create -l 1 -n 3 -x 1 --json 0.img --write-mostly 1.img --failfast 2.img -w 3.img -e";
        let arguments: Vec<&str> = command.split(' ').chain([version]).collect();
        let made = json(&stripewise(folder.path(), &arguments));
        assert_eq!(made["warnings"].as_array().unwrap().len(), 0, "{made}");
        for (member, (name, flags)) in names.iter().zip(FLAGS).enumerate() {
            let is = |flag: &str| flags.contains(&flag);
            let found = json(&stripewise(folder.path(), &["examine", "--json", name]));
            for value in [&made["members"][member], &found["devices"][0]["superblocks"][0]] {
                assert_eq!(value["write_mostly"], is("write-mostly"), "{version} {name}: {value}");
                assert_eq!(value["failfast"], is("failfast"), "{version} {name}: {value}");
            }
            // The line of the flags, or with 0.90 the device's row without what this machine calls it.
            let said = |text: &str| -> Vec<String> {
                let wanted = |line: &&str| line.starts_with("this") || line.contains("Flags : ");
                let words = |line: &str| line.split(" /").next().unwrap().trim_end().to_owned();
                text.lines().filter(wanted).map(words).collect()
            };
            let ours = said(&stdout(&stripewise(folder.path(), &["examine", name])));
            assert!(flags.iter().all(|flag| ours.iter().any(|line| line.contains(flag))), "{ours:?}");
            if has_mdadm {
                let theirs =
                    Command::new("mdadm").current_dir(folder.path()).args(["-E", name]).output().unwrap();
                assert_eq!(ours, said(&stdout(&theirs)), "{version} {name}");
            }
        }
        let rows = stdout(&stripewise(folder.path(), &["detail", "0.img", "1.img", "2.img", "3.img"]));
        let states = [
            "active sync ",
            "active sync writemostly ",
            "active sync writemostly failfast ",
            "spare failfast ",
        ];
        for (name, state) in names.iter().zip(states) {
            assert!(rows.contains(&format!("{state}  {name}\n")), "{version} {name}: {rows}");
        }
    }
    let (folder, names) = members(3);
    let made = json(&create(folder.path(), "-l 5 -n 3 -c 64 --json -W", &names));
    assert!(made["warnings"][0].as_str().unwrap().contains("only raid1"), "{made}");
}

#[test]
fn the_last_member_of_a_raid5_is_a_spare_to_recover_onto() {
    let (folder, names) = members(3);
    let made = json(&create(folder.path(), "-l 5 -n 3 -c 64 --json --name a --homehost h", &names));
    assert_eq!(made["schema"], "stripewise.create/1");
    assert_eq!((made["start"].as_str(), made["name"].as_str()), (Some("recovery"), Some("h:a")));
    assert_eq!(made["members"][2]["number"], 3);
    assert!(made["members"][2]["slot"].is_null());
    assert_eq!(made["array_size_bytes"], 2 * made["member_size_bytes"].as_u64().unwrap());
}

#[test]
fn what_is_asked_for_and_cannot_be_is_refused_and_nothing_is_written() {
    for (options, count, says) in [
        ("-l 5 -n 3 -c 48", 3, "power of two"),
        ("-l 5 -n 3 -c 2", 3, "4K"),
        ("-l 1 -n 2 -c 64", 2, "no chunk"),
        ("-l 5 -n 3 -z 1T", 3, "less than the size"),
        ("-l 5 -n 3 -c 64 -z 4", 3, "least"),
        ("-l 0 -n 2 -z 1M", 2, "--size"),
        ("-l 6 -n 3", 3, "at least 4"),
        ("-l 10 -n 2 -p n3", 2, "3 raid devices"),
        ("-l 5 -n 3 -p ddf-zero-restart", 3, "left-symmetric"),
        ("-l 5 -n 4", 3, "missing"),
        ("-l 0 -n 2 -x 1", 3, "spares"),
        ("-l 0 -n 2 -b internal", 2, "no redundancy"),
        ("-l 1 -n 2 -b internal --bitmap-chunk 5K", 2, "power of two"),
        ("-l 1 -n 2 --bitmap-chunk 64K", 2, "--bitmap internal"),
        ("-l 6 -n 4 -k ppl", 4, "raid5"),
        ("-l 5 -n 3 -k ppl -e 0.90", 3, "0.90"),
        ("-l 5 -n 3 -k ppl -b internal", 3, "--bitmap internal"),
        ("-l 1 -n 2 -e 0.90 --data-offset 1M", 2, "data offset"),
        ("-l 1 -n 2 --data-offset 2K", 2, "too small"),
        ("-l 1 -n 1", 1, "--force"),
        ("-l 0 -n 2 -c 64 -p alternate -e 0.90", 2, "0.90"),
    ] {
        let (folder, names) = members(count);
        let refused = create(folder.path(), options, &names);
        assert_eq!(refused.status.code(), Some(2), "{options}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(says), "{options}: {}", stderr(&refused));
        for name in &names {
            let bytes = std::fs::read(folder.path().join(name)).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0xa5), "{options}: {name} was written to");
        }
    }
}

#[test]
fn slots_that_leave_no_data_are_refused() {
    for (options, list) in [
        ("-l 5 -n 3", "0.img missing missing"),
        ("-l 1 -n 2", "missing missing"),
        ("-l 10 -n 4", "missing missing 0.img 1.img"),
        ("-l 0 -n 2", "0.img missing"),
        ("-l 1 -n 1 -x 1 --force", "0.img missing"),
    ] {
        let (folder, _) = members(2);
        let list: Vec<String> = list.split(' ').map(str::to_owned).collect();
        let refused = create(folder.path(), options, &list);
        assert_eq!(refused.status.code(), Some(2), "{options}: {}", stderr(&refused));
    }
    let (folder, _) = members(2);
    let list = ["missing", "0.img", "1.img", "missing"].map(str::to_owned);
    let made = create(folder.path(), "-l 10 -n 4 -c 64", &list);
    assert!(made.status.success(), "copies of every block are left: {}", stderr(&made));
}

#[test]
fn members_that_hold_something_are_named_unless_forced() {
    let (folder, names) = members(2);
    let path = folder.path().join(&names[1]);
    let mut luks = vec![0; MEMBER_BYTES];
    luks[..6].copy_from_slice(b"LUKS\xba\xbe");
    std::fs::write(&path, &luks).unwrap();
    let refused = create(folder.path(), "-l 1 -n 2", &names);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("1.img: holds a LUKS header"), "{}", stderr(&refused));
    assert_eq!(std::fs::read(&path).unwrap(), luks);

    assert!(create(folder.path(), "-l 1 -n 2 -e 1.0 --force", &names).status.success());
    let refused = create(folder.path(), "-l 1 -n 2", &names);
    assert!(stderr(&refused).contains("0.img: holds an md superblock"), "{}", stderr(&refused));
    assert!(create(folder.path(), "-l 1 -n 2 --force", &names).status.success());
    let found = json(&stripewise(folder.path(), &["examine", "--json", &names[0]]));
    let versions: Vec<_> = found["devices"][0]["superblocks"].as_array().unwrap().iter().collect();
    assert_eq!(versions.len(), 1, "the superblock of the array before is gone");
    assert_eq!(versions[0]["metadata"], "1.2");
}

#[test]
fn files_that_are_not_there_or_are_given_twice_are_refused() {
    let (folder, names) = members(1);
    let list = [names[0].clone(), "absent.img".to_owned()];
    let refused = create(folder.path(), "-l 1 -n 2", &list);
    assert!(stderr(&refused).contains("truncate -s 1G absent.img"), "{}", stderr(&refused));
    let list = [names[0].clone(), format!("./{}", names[0])];
    let refused = create(folder.path(), "-l 1 -n 2", &list);
    assert!(stderr(&refused).contains("twice"), "{}", stderr(&refused));
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn examine_of_a_device_without_a_superblock_says_what_it_holds() {
    let (folder, names) = members(1);
    let blank = stripewise(folder.path(), &["examine", &names[0]]);
    assert_eq!(blank.status.code(), Some(2));
    assert!(stderr(&blank).contains("0.img: holds no md superblock"), "{}", stderr(&blank));
}

#[test]
fn mdadm_exports_the_same_lines() {
    if Command::new("mdadm").arg("--version").output().is_err() {
        eprintln!("mdadm is not installed: nothing to compare with");
        return;
    }
    for (version, level) in [("0.90", "5"), ("1.0", "1"), ("1.2", "6")] {
        let (folder, names) = members(4);
        let made = create(
            folder.path(),
            &format!("-e {version} -l {level} -n 4 -c 64").replace("-l 1 -n 4 -c 64", "-l 1 -n 4"),
            &names,
        );
        assert!(made.status.success(), "{}", stderr(&made));
        let ours = stripewise(folder.path(), &["examine", "--export", &names[3]]);
        let mut mdadm = Command::new("mdadm");
        let theirs = mdadm.current_dir(folder.path()).args(["-E", "--export", &names[3]]).output().unwrap();
        assert_eq!(stdout(&ours), stdout(&theirs), "{version}");
    }
}

#[test]
fn what_assembly_would_refuse_is_not_created() {
    let (folder, names) = members(4);
    let refused = create(folder.path(), "-l 10 -n 4 -c 1024 -p o4 -z 1024", &names);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("at least 8192 (4096 KiB), one chunk of each copy"),
        "{}",
        stderr(&refused)
    );
    for name in &names {
        assert!(std::fs::read(folder.path().join(name)).unwrap().iter().all(|byte| *byte == 0xa5), "{name}");
    }
    let list = ["0.img", "1.img", "2.img", "missing"].map(str::to_owned);
    let made = create(folder.path(), "-l 6 -n 4 -c 16 --force", &list);
    assert!(made.status.success(), "{}", stderr(&made));
    let opened = stripewise(folder.path(), &["detail", "0.img", "1.img", "2.img"]);
    assert!(opened.status.success(), "{}", stderr(&opened));
}

#[test]
fn a_large_array_lists_every_slot() {
    let (folder, names) = members(40);
    let made = create(folder.path(), "-l 6 -n 40 -c 64", &names);
    assert!(made.status.success(), "{}", stderr(&made));
    let refused = create(folder.path(), "-l 6 -n 40 -c 64 -e 0.90 --force", &names);
    assert!(stderr(&refused).contains("27 at most"), "{}", stderr(&refused));
    let found = json(&stripewise(folder.path(), &["examine", "--json", &names[39]]));
    let superblock = &found["devices"][0]["superblocks"][0];
    assert_eq!((superblock["slot"].as_u64(), superblock["raid_devices"].as_u64()), (Some(39), Some(40)));
    assert_eq!(superblock["roles"].as_array().unwrap().len(), 40);
}
