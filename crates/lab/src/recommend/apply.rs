//! The commands that apply a recommendation. A subject that can be applied is a line in [`OF_CREATION`], or one function and one
//! line in [`SETTINGS`].

use std::collections::BTreeMap;

use stripewise_engine::level::{Layout, Level};

type Values = BTreeMap<String, String>;
type Commands = fn(&Values) -> Vec<String>;

/// Subjects without a value of which no array is made: one has to be chosen, whatever the evidence.
const OF_CREATION: [&str; 4] = ["chunk", "level", "layout", "raid_devices"];

/// The commands by subject of what arrays have a default for. Each function takes all of the array's parameters, the subject's
/// value among them.
static SETTINGS: &[(&str, Commands)] = &[
    ("stripe_cache_size", stripe_cache_size),
    ("group_thread_cnt", group_thread_cnt),
    ("readahead", readahead),
    ("dirty_ratio", |values| dirty_limit(values, "dirty_ratio")),
    ("dirty_background_ratio", |values| dirty_limit(values, "dirty_background_ratio")),
    ("bitmap", bitmap),
    ("bitmap_chunk", other_bitmap),
    ("bitmap_delay", other_bitmap),
    ("speed_limit_min", |values| sync_speed(values, "min")),
    ("speed_limit_max", |values| sync_speed(values, "max")),
];

/// Subjects whose default does not depend on the array.
const DEFAULTS: [(&str, &str); 7] = [
    ("stripe_cache_size", "256"),
    ("group_thread_cnt", "0"),
    ("readahead", "default"),
    ("dirty_ratio", "default"),
    ("dirty_background_ratio", "default"),
    ("bitmap_chunk", "default"),
    ("bitmap_delay", "5"),
];

/// The commands that set the subject to the value on an array with the fixed parameters; none where no
/// command sets it. A fixed parameter may be a choice, such as `<64K|128K>`.
pub fn commands(subject: &str, value: &str, fixed: &Values) -> Vec<String> {
    let setting = || SETTINGS.iter().find(|(name, _)| *name == subject).map(|(_, command)| *command);
    let command = if must_be_chosen(subject) { Some(create as Commands) } else { setting() };
    let Some(command) = command else { return Vec::new() };
    let mut values = fixed.clone();
    values.insert(subject.to_owned(), value.to_owned());
    command(&values)
}

/// What Linux's arrays have of a subject as long as nobody sets it, as plans write it.
pub(super) fn default_of(subject: &str) -> Option<&'static str> {
    let default = DEFAULTS.iter().find(|(name, _)| *name == subject);
    default.map(|(_, value)| *value)
}

/// Whether an array cannot be made without a value of the subject.
pub(super) fn must_be_chosen(subject: &str) -> bool {
    OF_CREATION.contains(&subject)
}

fn create(values: &Values) -> Vec<String> {
    let Some(level) = values.get("level") else { return Vec::new() };
    let is_open = |value: &str| value.starts_with('<');
    let level_known = level.parse::<Level>().ok();
    if level_known.is_none() && !is_open(level) {
        return Vec::new();
    }
    let mut words = vec![CREATE.to_owned(), format!("--level={}", level.replace("raid", ""))];
    let layout = values.get("layout").and_then(|name| match level_known {
        _ if is_open(name) => Some(name.clone()),
        Some(level) => Layout::parse(level, name)
            .ok()
            .filter(|layout| *layout != Layout::default_of(level))
            .map(|layout| layout.to_string()),
        None => None,
    });
    words.extend(layout.map(|layout| format!("--layout={layout}")));
    if let Some(members) = values.get("raid_devices") {
        words.push(format!("--raid-devices={members}"));
    }
    if let Some(chunk) = values.get("chunk").filter(|_| level_known.is_none_or(Level::has_chunks)) {
        words.push(format!("--chunk={chunk}"));
    }
    if level_known.is_none_or(Level::is_redundant) {
        words.extend(bitmap_of_creation(values));
    }
    words.push("<devices>".to_owned());
    vec![words.join(" ")]
}

fn stripe_cache_size(values: &Values) -> Vec<String> {
    let entries = values.get("stripe_cache_size");
    entries.map(|n| format!("echo {n} > /sys/block/md0/md/stripe_cache_size")).into_iter().collect()
}

fn group_thread_cnt(values: &Values) -> Vec<String> {
    let threads = values.get("group_thread_cnt");
    threads.map(|n| format!("echo {n} > /sys/block/md0/md/group_thread_cnt")).into_iter().collect()
}

/// The bitmap that was measured. No command takes one away that mdadm gives by itself: whether to go without is not what was studied.
fn bitmap_of_creation(values: &Values) -> Option<String> {
    let kind = values.get("bitmap").filter(|kind| *kind != "none")?;
    Some(format!("--bitmap={kind}{}", bitmap_options(values)))
}

/// Whether the commands make an array with redundancy and say nothing of a bitmap, which mdadm may then give it.
pub(super) fn leave_bitmap_open(commands: &[String]) -> bool {
    commands.iter().any(|line| {
        line.starts_with(CREATE)
            && ![" --bitmap=", " --level=0 ", " --level=linear "].iter().any(|word| line.contains(word))
    })
}

const CREATE: &str = "mdadm --create /dev/md0";
const NO_BITMAP: &str = "mdadm --grow --bitmap=none /dev/md0";

fn bitmap(values: &Values) -> Vec<String> {
    let is_none = values.get("bitmap").is_some_and(|kind| kind == "none");
    vec![if is_none { NO_BITMAP.to_owned() } else { internal_bitmap(values) }]
}

/// mdadm changes no bitmap: the old one goes first.
fn other_bitmap(values: &Values) -> Vec<String> {
    vec![NO_BITMAP.to_owned(), internal_bitmap(values)]
}

fn internal_bitmap(values: &Values) -> String {
    format!("mdadm --grow --bitmap=internal{} /dev/md0", bitmap_options(values))
}

fn bitmap_options(values: &Values) -> String {
    let option = |name: &str, option: &str| {
        let value = values.get(name).filter(|value| *value != "default");
        value.map_or_else(String::new, |value| format!(" --{option}={value}"))
    };
    let (chunk, delay) = (option("bitmap_chunk", "bitmap-chunk"), option("bitmap_delay", "delay"));
    chunk + &delay
}

fn readahead(values: &Values) -> Vec<String> {
    let sectors = values.get("readahead").filter(|n| *n != "default");
    // Readahead is of the device that is read: a mapping has its own.
    let device = match values.get("crypt").map(String::as_str) {
        None | Some("none") => "/dev/md0",
        Some(choice) if choice.starts_with('<') && choice.contains("none") => "</dev/md0|/dev/mapper/NAME>",
        Some(_) => "/dev/mapper/NAME",
    };
    sectors.map(|n| format!("blockdev --setra {n} {device}")).into_iter().collect()
}

fn dirty_limit(values: &Values, name: &str) -> Vec<String> {
    let percent = values.get(name).filter(|n| *n != "default");
    percent.map(|n| format!("sysctl vm.{name}={n}")).into_iter().collect()
}

fn sync_speed(values: &Values, bound: &str) -> Vec<String> {
    let kib = values.get(&format!("speed_limit_{bound}"));
    kib.map(|n| format!("echo {n} > /sys/block/md0/md/sync_speed_{bound}")).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn commands_in_the_words_of_mdadm_and_sysfs() {
        let raid5 = fixed(&[("level", "raid5"), ("layout", "left-symmetric"), ("raid_devices", "5")]);
        assert_eq!(
            commands("chunk", "128K", &raid5),
            ["mdadm --create /dev/md0 --level=5 --raid-devices=5 --chunk=128K <devices>"]
        );
        let raid10 =
            fixed(&[("level", "raid10"), ("layout", "n2"), ("raid_devices", "4"), ("chunk", "512K")]);
        assert_eq!(
            commands("layout", "f2", &raid10),
            ["mdadm --create /dev/md0 --level=10 --layout=f2 --raid-devices=4 --chunk=512K <devices>"]
        );
        let open = fixed(&[("level", "<raid6|raid10>"), ("layout", "<f2|o2>"), ("raid_devices", "<3|4>")]);
        assert_eq!(
            commands("chunk", "64K", &open),
            [
                "mdadm --create /dev/md0 --level=<6|10> --layout=<f2|o2> --raid-devices=<3|4> --chunk=64K <devices>"
            ]
        );
        assert_eq!(
            commands("stripe_cache_size", "4096", &raid5),
            ["echo 4096 > /sys/block/md0/md/stripe_cache_size"]
        );
        assert_eq!(
            commands("bitmap_chunk", "262144K", &raid5),
            [
                "mdadm --grow --bitmap=none /dev/md0",
                "mdadm --grow --bitmap=internal --bitmap-chunk=262144K /dev/md0"
            ]
        );
        assert_eq!(
            commands("bitmap_chunk", "default", &raid5)[1..],
            ["mdadm --grow --bitmap=internal /dev/md0"]
        );
        assert_eq!(commands("bitmap", "none", &raid5), ["mdadm --grow --bitmap=none /dev/md0"]);
        assert_eq!(commands("dirty_ratio", "5", &raid5), ["sysctl vm.dirty_ratio=5"]);
        assert!(commands("dirty_background_ratio", "default", &raid5).is_empty());
        assert!(commands("iodepth", "32", &raid5).is_empty());
    }

    #[test]
    fn an_array_is_made_with_the_bitmap_that_was_measured() {
        let create = |level: &str, bitmap: &[(&str, &str)]| {
            let array = fixed(&[("level", level), ("raid_devices", "4")]);
            let values = array.into_iter().chain(fixed(bitmap)).collect();
            commands("chunk", "64K", &values).remove(0)
        };
        let start = |level| format!("mdadm --create /dev/md0 --level={level} --raid-devices=4 --chunk=64K");
        let without = create("raid5", &[("bitmap", "none"), ("bitmap_chunk", "default")]);
        assert_eq!(without, format!("{} <devices>", start("5")));
        let with =
            create("raid6", &[("bitmap", "internal"), ("bitmap_chunk", "262144K"), ("bitmap_delay", "5")]);
        assert_eq!(
            with,
            format!("{} --bitmap=internal --bitmap-chunk=262144K --delay=5 <devices>", start("6"))
        );
        let open = create("<raid5|raid6>", &[("bitmap", "<none|internal>")]);
        assert_eq!(open, format!("{} --bitmap=<none|internal> <devices>", start("<5|6>")));
        assert!(!create("raid0", &[("bitmap", "internal")]).contains("bitmap"));
    }

    #[test]
    fn a_bitmap_that_mdadm_may_add_to_what_was_studied_is_told() {
        let told = |command: &str| leave_bitmap_open(&[command.to_owned()]);
        let create = |words: &str| told(&format!("{CREATE} {words} <devices>"));
        assert!(create("--level=5") && create("--level=<5|0>") && create("--level=10"));
        assert!(!create("--level=5 --bitmap=internal") && !create("--level=0") && !create("--level=linear"));
        assert!(!told(NO_BITMAP) && !leave_bitmap_open(&[]));
    }

    #[test]
    fn readahead_is_set_where_it_is_read() {
        let on = |crypt: &str| commands("readahead", "4096", &fixed(&[("crypt", crypt)]));
        assert_eq!(on("none"), ["blockdev --setra 4096 /dev/md0"]);
        assert_eq!(on("aes-xts-plain64"), ["blockdev --setra 4096 /dev/mapper/NAME"]);
        assert_eq!(on("<none|aes-xts-plain64>"), ["blockdev --setra 4096 </dev/md0|/dev/mapper/NAME>"]);
    }
}
