//! The layouts beside what the real mkfs does, where it is installed.

use std::collections::{BTreeMap, BTreeSet};

use super::traced::{command, written};
use super::{BLOCK_BYTES, Ext, ExtSpec, Extent, MkfsYear, Xfs, XfsSpec};

/// First blocks of a group's parts as dumpe2fs prints them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Printed {
    block_bitmap: u64,
    inode_bitmap: u64,
    table: (u64, u64),
    has_copy: bool,
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = command(program).args(arguments).output().ok()?;
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn number(text: &str) -> u64 {
    text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

/// What dumpe2fs says of each group.
fn groups(text: &str) -> BTreeMap<u64, Printed> {
    let mut groups = BTreeMap::<u64, Printed>::new();
    let mut group = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("Group ") {
            group = Some(number(rest));
        }
        let Some(printed) = group.map(|g| groups.entry(g).or_default()) else { continue };
        printed.has_copy |= line.contains("superblock at");
        for part in line.split(", ") {
            if let Some(rest) = part.strip_prefix("Block bitmap at ") {
                printed.block_bitmap = number(rest);
            } else if let Some(rest) = part.strip_prefix("Inode bitmap at ") {
                printed.inode_bitmap = number(rest);
            } else if let Some(rest) = part.strip_prefix("Inode table at ") {
                let (first, last) = rest.split_once('-').unwrap_or((rest, rest));
                printed.table = (number(first), number(last));
            }
        }
    }
    groups
}

#[test]
fn groups_lie_where_the_real_mke2fs_puts_them() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image").display().to_string();
    for (bytes, stride, inode_size) in [
        (5_u64 << 30, 0_u64, 256_u64),
        (5 << 30, 32, 256),
        (3 << 30, 128, 128),
        ((2 << 30) + (3 << 20), 16, 256),
    ] {
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let (stride_option, size) =
            (format!("stride={},lazy_itable_init=1", stride.max(1)), inode_size.to_string());
        let extended = if stride == 0 { "lazy_itable_init=1".to_owned() } else { stride_option };
        let arguments = [
            "-q",
            "-F",
            "-b",
            "4096",
            "-i",
            "16384",
            "-I",
            &size,
            "-O",
            "^flex_bg,^64bit,^metadata_csum",
            "-E",
            &extended,
            &image,
        ];
        if run("mkfs.ext3", &arguments).is_none() {
            eprintln!("no mkfs.ext3 here: nothing was compared");
            return;
        }
        let dump = run("dumpe2fs", &[&image]).expect("dumpe2fs comes with mkfs.ext3");
        let real = groups(&dump);
        let spec = ExtSpec { inode_size, stride, ..spec(bytes) };
        let layout = Ext::new(&spec).unwrap();
        assert_same_places(&real, &layout, &format!("{bytes} bytes, stride {stride}"));
    }
}

/// Every group of a layout lies where dumpe2fs says.
fn assert_same_places(real: &BTreeMap<u64, Printed>, layout: &Ext, what: &str) {
    assert_eq!(real.len() as u64, layout.groups, "{what}");
    for (group, printed) in real {
        let kept = layout.group(*group);
        let ours = Printed {
            block_bitmap: kept.block_bitmap,
            inode_bitmap: kept.inode_bitmap,
            table: (kept.table.start, kept.table.end - 1),
            has_copy: !kept.copy.is_empty(),
        };
        assert_eq!(&ours, printed, "{what}, group {group}");
    }
}

fn spec(bytes: u64) -> ExtSpec {
    ExtSpec {
        blocks: bytes / BLOCK_BYTES,
        inode_ratio: 16_384,
        inodes: None,
        inode_size: 256,
        stride: 0,
        has_extents: false,
        year: MkfsYear::Y2006,
    }
}

#[test]
fn flexible_groups_lie_where_the_real_mke2fs_puts_them() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image").display().to_string();
    for mib in [100_u64, 1000, 2048 + 3, 2048 + 640, 5 << 10] {
        std::fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        if run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-i", "16384", &image]).is_none() {
            eprintln!("no mkfs.ext4 here: nothing was compared");
            return;
        }
        let real = groups(&run("dumpe2fs", &[&image]).expect("dumpe2fs comes with mkfs.ext4"));
        let layout =
            Ext::new(&ExtSpec { has_extents: true, year: MkfsYear::Y2023, ..spec(mib << 20) }).unwrap();
        assert_same_places(&real, &layout, &format!("{mib} MiB"));
    }
}

/// Runs of blocks one after another, as a page cache's write-back merges them.
fn runs(blocks: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some((start, count)) if *start + *count == block => *count += 1,
            _ => runs.push((block, 1)),
        }
    }
    runs
}

/// Every block the model writes is written by mkfs and the reverse: so the same bytes, in the same number of merged
/// writes, at the same places.
fn compare(what: &str, real: &BTreeSet<u64>, model: &[Extent]) {
    let model: BTreeSet<u64> = model.iter().flat_map(|e| e.start..e.start + e.count).collect();
    let (missing, extra) = (real.difference(&model).copied(), model.difference(real).copied());
    let (missing, extra) = (runs(missing), runs(extra));
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{what}: mkfs writes {} blocks, the model {}; only mkfs (block, count): {missing:?}; only the model: {extra:?}",
        real.len(),
        model.len()
    );
}

/// Options that make today's mke2fs do what that of 2006 did by itself.
const AS_2006: [&str; 8] = [
    "-q",
    "-F",
    "-b",
    "4096",
    "-O",
    "^flex_bg,^64bit,^metadata_csum,^huge_file,^extra_isize",
    "-E",
    "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
];

#[test]
fn ext3_and_ext4_of_2006_are_written_as_the_real_mke2fs_writes_them() {
    // MiB, ratio, inodes, inode size, stride, extents.
    for (mib, inode_ratio, inodes, inode_size, stride, has_extents) in [
        (1024_u64, 8192, None, 128, 0, false),
        (1900, 8192, Some(100), 128, 128, false),
        (1024 + 3, 16_384, None, 256, 32, false),
        (900, 16_384, None, 256, 16, true),
        (200, 8192, None, 128, 1, false),
    ] {
        let year = MkfsYear::Y2006;
        let spec = ExtSpec { inode_ratio, inodes, inode_size, stride, has_extents, year, ..spec(mib << 20) };
        let layout = Ext::new(&spec).unwrap();
        let (program, size) = (if has_extents { "mkfs.ext4" } else { "mkfs.ext3" }, inode_size.to_string());
        let (number, extended) = match inodes {
            Some(inodes) => (["-N".to_owned(), inodes.to_string()], stride),
            None => (["-i".to_owned(), inode_ratio.to_string()], stride),
        };
        let extended =
            if extended > 0 { format!("{},stride={extended}", AS_2006[7]) } else { AS_2006[7].to_owned() };
        // The journal that mke2fs of 2006 makes by default.
        let journal = format!("size={}", layout.journal_blocks() / 256);
        let mut arguments = AS_2006.to_vec();
        arguments[7] = &extended;
        arguments.extend(["-I", &size, &number[0], &number[1], "-J", &journal, "-m", "0"]);
        let Some(real) = written(mib << 20, program, &arguments) else { return };
        compare(&format!("{program} {arguments:?} on {mib} MiB"), &real, &layout.mkfs());
    }
}

#[test]
fn todays_ext3_and_ext4_are_written_as_the_real_mke2fs_writes_them() {
    for (mib, has_extents) in [(1000_u64, true), (5 << 10, true), (2048 + 640, true), (200, false)] {
        let spec = ExtSpec { has_extents, year: MkfsYear::Y2023, ..spec(mib << 20) };
        // Tables that must be cleared are not written to a device whose discarded blocks read as zeroes.
        let (program, discard) =
            if has_extents { ("mkfs.ext4", "discard") } else { ("mkfs.ext3", "nodiscard") };
        let Some(real) =
            written(mib << 20, program, &["-q", "-F", "-b", "4096", "-i", "16384", "-E", discard])
        else {
            return;
        };
        compare(&format!("{program} on {mib} MiB"), &real, &Ext::new(&spec).unwrap().mkfs());
    }
}

/// Compares what mkfs.xfs writes with the model; answers whether it is installed.
fn compare_xfs(spec: &XfsSpec, more: &[&str]) -> bool {
    let layout = Xfs::new(spec).unwrap();
    let mut arguments = vec!["-q", "-f", "-K"];
    arguments.extend(more);
    let Some(real) = written(spec.blocks * BLOCK_BYTES, "mkfs.xfs", &arguments) else { return false };
    compare(&format!("mkfs.xfs {arguments:?} on {} blocks", spec.blocks), &real, &layout.mkfs());
    true
}

#[test]
fn xfs_of_2006_is_written_as_the_real_mkfs_writes_it() {
    // By options: groups as mkfs.xfs 2.8 chose them; logs as small as its own are refused today.
    let log_blocks = Some(64 << 8);
    for mib in [2048_u64, 5 << 10] {
        let year = MkfsYear::Y2006;
        let spec = XfsSpec { blocks: mib << 8, stripe_unit: 0, stripe_width: 0, log_blocks, year };
        let groups = format!("agcount={}", Xfs::new(&spec).unwrap().groups);
        let more = ["-m", "crc=0", "-i", "size=256", "-d", &groups, "-l", "size=64m,version=1"];
        if !compare_xfs(&spec, &more) {
            return;
        }
    }
}

#[test]
fn todays_xfs_is_written_as_the_real_mkfs_writes_it() {
    for (mib, unit, width) in [
        (512_u64, 0_u64, 0_u64),
        (1027, 0, 0),
        (200 << 10, 0, 0),
        (1024, 16, 64),
        (5 << 10, 32, 128),
        (10 << 10, 128, 512),
    ] {
        let year = MkfsYear::Y2023;
        let spec =
            XfsSpec { blocks: mib << 8, stripe_unit: unit, stripe_width: width, log_blocks: None, year };
        let stripe = format!("sunit={},swidth={}", unit * 8, width * 8);
        let more = ["-d", stripe.as_str()];
        if !compare_xfs(&spec, if unit > 0 { &more } else { &[] }) {
            return;
        }
    }
}
