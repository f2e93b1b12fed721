//! `mdadm -E --export` and `mdadm -E --brief`.

use super::{array_bytes, human_size};
use crate::superblock::Superblock;
use crate::superblock_0::Superblock0;
use crate::superblock_1::{Role, Superblock1};

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
    let mut pairs =
        vec![("MD_LEVEL", superblock.level.to_string()), ("MD_DEVICES", superblock.raid_disks.to_string())];
    if let Some(name) = exported_name(&superblock.name()) {
        pairs.push(("MD_NAME", name.to_owned()));
    }
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

/// A name as the value of `MD_NAME`, if any is left: it ends with its line, as mdadm has it. What comes behind a line's end in a name
/// would be read as a variable of its own.
pub fn exported_name(name: &str) -> Option<&str> {
    name.split('\n').next().filter(|first| !first.is_empty())
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
            // Without a name mdadm leaves out both the path and the name.
            if name.is_empty() {
                return format!("ARRAY  metadata=1.{minor} UUID={uuid}");
            }
            let (path, name) = (device_name(short), quoted(&name));
            format!("ARRAY /dev/md/{path}  metadata=1.{minor} UUID={uuid} name={name}")
        }
    }
}

/// An array's name as that of a file in `/dev/md`, and as one word.
fn device_name(name: &str) -> String {
    let in_path = |letter| match letter {
        '/' => '-',
        ' ' | '\t' => '_',
        other => other,
    };
    name.chars().map(in_path).collect()
}

/// A name as one word of mdadm.conf, whose reader knows quotes within words and no escapes: of a name with blanks or quotes, each
/// part is within the quotes that do not occur in it, first in those that its first quote is not.
fn quoted(name: &str) -> String {
    if !name.contains([' ', '\t', '"', '\'']) {
        return name.to_owned();
    }
    let other = |quote| if quote == '"' { '\'' } else { '"' };
    let mut around = name.chars().find(|letter| matches!(letter, '"' | '\'')).map_or('"', other);
    let mut word = String::from(around);
    for letter in name.chars() {
        if letter == around {
            word.push(around);
            around = other(around);
            word.push(around);
        }
        word.push(letter);
    }
    word.push(around);
    word
}

/// Whether `--brief` counts a device among the spares of its array: all that hold no slot. mdadm counts a write journal and what is
/// faulty as well.
pub fn counts_as_spare(superblock: &Superblock) -> bool {
    !matches!(superblock.role(), Role::Slot(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Level;
    use crate::uuid::Uuid;

    fn named(name: &str) -> Superblock {
        let mut superblock = Superblock1::new(Level::Raid1, 2, 0, Uuid([7; 16]));
        superblock.super_offset_sectors = 8;
        superblock.set_name(None, name);
        Superblock::V1(Box::new(superblock))
    }

    #[test]
    fn a_name_is_no_variable_of_its_own() {
        // As mdadm 4.2 does.
        for (name, exported) in
            [("host:a\nMD_LEVEL=raid0", Some("host:a")), ("\nb", None), ("", None), ("a b", Some("a b"))]
        {
            let pairs = export(&named(name));
            let values: Vec<&str> =
                pairs.iter().filter(|pair| pair.0 == "MD_NAME").map(|pair| pair.1.as_str()).collect();
            assert_eq!(values, exported.into_iter().collect::<Vec<_>>(), "{name:?}");
        }
    }

    /// What mdadm 4.2 printed for superblocks of these names.
    #[test]
    fn names_are_quoted_where_a_reader_of_words_would_cut_them() {
        for (name, path, quoted) in [
            ("plain", "/dev/md/plain ", " name=plain"),
            ("host:a:b", "/dev/md/a:b ", " name=host:a:b"),
            ("has space", "/dev/md/has_space ", " name=\"has space\""),
            ("a\tb", "/dev/md/a_b ", " name=\"a\tb\""),
            ("a\\b", "/dev/md/a\\b ", " name=a\\b"),
            ("x/y", "/dev/md/x-y ", " name=x/y"),
            ("h o:x", "/dev/md/x ", " name=\"h o:x\""),
            ("quote's", "/dev/md/quote's ", " name=\"quote's\""),
            ("dq\"x", "/dev/md/dq\"x ", " name='dq\"x'"),
            ("both'\"q", "/dev/md/both'\"q ", " name=\"both'\"'\"q'"),
            ("\"a'b\"c'd", "/dev/md/\"a'b\"c'd ", " name='\"a'\"'b\"'\"c'\"'d\""),
            ("a '\"", "/dev/md/a_'\" ", " name=\"a '\"'\"'"),
            ("host:", "/dev/md/ ", " name=host:"),
            ("", "", ""),
        ] {
            let expected = format!("ARRAY {path} metadata=1.2 UUID={}{quoted}", Uuid([7; 16]));
            assert_eq!(brief(&named(name)), expected, "{name:?}");
        }
    }

    #[test]
    fn what_holds_no_slot_counts_as_a_spare() {
        for (role, counts) in
            [(Role::Slot(0), false), (Role::Spare, true), (Role::Journal, true), (Role::Faulty, true)]
        {
            let Superblock::V1(mut superblock) = named("x") else { panic!("made of version 1") };
            superblock.dev_roles[0] = role;
            assert_eq!(counts_as_spare(&Superblock::V1(superblock)), counts, "{role:?}");
        }
    }
}
