//! The layout beside what the real mke2fs does, where it is installed.

use std::collections::BTreeMap;
use std::process::Command;

use super::{BLOCK_BYTES, Ext, ExtSpec};

/// First blocks of a group's parts as dumpe2fs prints them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Printed {
    block_bitmap: u64,
    inode_bitmap: u64,
    table: (u64, u64),
    has_copy: bool,
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let path = format!("{}:/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(arguments).env("PATH", path).output().ok()?;
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
        let spec =
            ExtSpec { blocks: bytes / BLOCK_BYTES, inode_ratio: 16_384, inodes: None, inode_size, stride };
        let layout = Ext::new(&spec).unwrap();
        assert_eq!(real.len() as u64, layout.groups, "{bytes} bytes, stride {stride}");
        for (group, printed) in &real {
            let kept = layout.group(*group);
            let ours = Printed {
                block_bitmap: kept.block_bitmap,
                inode_bitmap: kept.inode_bitmap,
                table: (kept.table.start, kept.table.end - 1),
                has_copy: !kept.copy.is_empty(),
            };
            assert_eq!(&ours, printed, "{bytes} bytes, stride {stride}, group {group}");
        }
    }
}
