//! `mdadm -E --export` and `mdadm -E --brief`.

use super::{array_bytes, human_size};
use crate::superblock::Superblock;
use crate::superblock_0::Superblock0;
use crate::superblock_1::Superblock1;

/// Names and values of a superblock for programs.
pub fn export(superblock: &Superblock) -> Vec<(&'static str, String)> {
    match superblock {
        Superblock::V0(superblock) => export_0(superblock),
        Superblock::V1(superblock) => export_1(superblock),
    }
}

fn export_0(superblock: &Superblock0) -> Vec<(&'static str, String)> {
    vec![
        ("MD_LEVEL", superblock.level.to_string()),
        ("MD_DEVICES", superblock.raid_disks.to_string()),
        ("MD_UUID", superblock.set_uuid.to_string()),
        ("MD_UPDATE_TIME", superblock.utime_seconds.to_string()),
        ("MD_EVENTS", superblock.events.to_string()),
    ]
}

fn export_1(superblock: &Superblock1) -> Vec<(&'static str, String)> {
    let mut pairs = vec![
        ("MD_LEVEL", superblock.level.to_string()),
        ("MD_DEVICES", superblock.raid_disks.to_string()),
        ("MD_NAME", superblock.name()),
    ];
    let member_bytes = u128::from(superblock.size_sectors) * 512;
    let array = array_bytes(superblock.level, superblock.layout, superblock.raid_disks, member_bytes);
    // Of less than 5000 KiB mdadm prints the name with nothing after it.
    if let Some(bytes) = array.and_then(|bytes| u64::try_from(bytes).ok()) {
        pairs.push(("MD_ARRAY_SIZE", decimal_size(bytes)));
    }
    pairs.extend([
        ("MD_UUID", superblock.set_uuid.to_string()),
        ("MD_UPDATE_TIME", superblock.utime.seconds().to_string()),
        ("MD_DEV_UUID", superblock.device_uuid.to_string()),
        ("MD_EVENTS", superblock.events.to_string()),
    ]);
    pairs
}

/// `14.68MB`: the decimal half of [`human_size`].
fn decimal_size(bytes: u64) -> String {
    let both = human_size(bytes);
    let words: Vec<&str> = both.trim_matches([' ', '(', ')']).split(' ').collect();
    if let [_, _, number, unit] = words[..] { format!("{number}{unit}") } else { String::new() }
}

/// The line of mdadm.conf that names the array.
pub fn brief(superblock: &Superblock) -> String {
    match superblock {
        Superblock::V0(superblock) => {
            format!("ARRAY /dev/md{} UUID={}", superblock.md_minor, superblock.set_uuid)
        }
        Superblock::V1(superblock) => {
            let name = superblock.name();
            let short = name.split_once(':').map_or(name.as_str(), |(_, short)| short);
            let minor = superblock.minor() as u8;
            let uuid = superblock.set_uuid;
            format!("ARRAY /dev/md/{short}  metadata=1.{minor} UUID={uuid} name={name}")
        }
    }
}
