//! The words of `mdadm -D`, from the document that `detail` prints as JSON.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;
use stripewise_format::examine::{Line, exported_name, human_size, render};
use stripewise_format::time::Timestamp;

/// The longest label, `Consistency Policy`.
const LABEL_WIDTH: usize = 18;

#[derive(Debug, Deserialize)]
struct Detail {
    name: String,
    uuid: String,
    metadata: String,
    level: String,
    layout: Option<String>,
    chunk_bytes: Option<u64>,
    rounding_bytes: Option<u64>,
    preferred_minor: Option<u32>,
    array_bytes: u64,
    used_device_bytes: Option<u64>,
    creation_time_unix_seconds: u64,
    update_time_unix_seconds: u64,
    events: u64,
    consistency_policy: String,
    state: Vec<String>,
    sync: Option<Sync>,
    raid_devices: u64,
    total_devices: u64,
    active_devices: u64,
    working_devices: u64,
    failed_devices: u64,
    spare_devices: u64,
    devices: Vec<Device>,
    left_out: Vec<LeftOut>,
    /// Of a server only.
    #[serde(default)]
    lost: Vec<Lost>,
}

#[derive(Debug, Deserialize)]
struct Sync {
    action: String,
    percent: Option<f64>,
    /// Of a server only.
    #[serde(default)]
    mismatch_sectors: u64,
    #[serde(default)]
    unread_sectors: u64,
}

#[derive(Debug, Deserialize)]
struct Device {
    number: Option<u32>,
    slot: Option<u16>,
    path: Option<String>,
    state: String,
    #[serde(default)]
    write_mostly: bool,
    #[serde(default)]
    failfast: bool,
    replacement: bool,
}

#[derive(Debug, Deserialize)]
struct LeftOut {
    path: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Lost {
    start_bytes: u64,
    length_bytes: u64,
}

fn read(detail: Value) -> Result<Detail> {
    serde_json::from_value(detail)
        .context("the server's answer is not understood; it is of another version of stripewise")
}

/// `mdadm -D`. mdadm's name of the array's device would stand first; the array's own name does.
pub(super) fn text(detail: Value) -> Result<String> {
    let detail = read(detail)?;
    let title = if detail.name.is_empty() { &detail.uuid } else { &detail.name };
    let mut lines = heading(&detail);
    lines.extend(counts(&detail));
    lines.extend(shape(&detail));
    lines.push(Line::Field("Consistency Policy", detail.consistency_policy.clone()));
    lines.push(Line::Blank);
    lines.extend(progress(&detail));
    lines.extend(identity(&detail));
    let mut text = format!("{title}:\n{}", render(&lines, LABEL_WIDTH));
    text.push_str("    Number   Major   Minor   RaidDevice State\n");
    let (slots, others): (Vec<&Device>, Vec<&Device>) =
        detail.devices.iter().partition(|device| device.slot.is_some());
    text.extend(slots.into_iter().map(device_row));
    if !others.is_empty() {
        text.push('\n');
        text.extend(others.into_iter().map(device_row));
    }
    for left in &detail.left_out {
        let _ = write!(text, "\n    {} is left out: {}", left.path, left.reason);
    }
    for lost in &detail.lost {
        let end = lost.start_bytes + lost.length_bytes;
        let _ = write!(text, "\n    array bytes {} to {end} are lost", lost.start_bytes);
    }
    if !detail.left_out.is_empty() || !detail.lost.is_empty() {
        text.push('\n');
    }
    Ok(text)
}

fn size(bytes: u64) -> String {
    format!("{}{}", bytes / 1024, human_size(bytes))
}

fn calendar(seconds: u64) -> String {
    Timestamp::from_seconds(seconds).calendar(0)
}

fn heading(detail: &Detail) -> Vec<Line> {
    let mut lines = vec![
        Line::Field("Version", detail.metadata.clone()),
        Line::Field("Creation Time", calendar(detail.creation_time_unix_seconds)),
        Line::Field("Raid Level", detail.level.clone()),
        Line::Field("Array Size", size(detail.array_bytes)),
    ];
    lines.extend(detail.used_device_bytes.map(|bytes| Line::Field("Used Dev Size", size(bytes))));
    lines.push(Line::Field("Raid Devices", detail.raid_devices.to_string()));
    lines.push(Line::Field("Total Devices", detail.total_devices.to_string()));
    lines.extend(detail.preferred_minor.map(|minor| Line::Field("Preferred Minor", minor.to_string())));
    lines.push(Line::Field("Persistence", "Superblock is persistent".to_owned()));
    lines.push(Line::Blank);
    if detail.consistency_policy == "bitmap" {
        lines.push(Line::Field("Intent Bitmap", "Internal".to_owned()));
        lines.push(Line::Blank);
    }
    lines
}

fn counts(detail: &Detail) -> Vec<Line> {
    let mut state = detail.state.clone();
    if detail.sync.as_ref().is_some_and(|sync| matches!(sync.action.as_str(), "check" | "repair")) {
        state.push("checking".to_owned());
    }
    vec![
        Line::Field("Update Time", calendar(detail.update_time_unix_seconds)),
        Line::Field("State", format!("{} ", state.join(", "))),
        Line::Field("Active Devices", detail.active_devices.to_string()),
        Line::Field("Working Devices", detail.working_devices.to_string()),
        Line::Field("Failed Devices", detail.failed_devices.to_string()),
        Line::Field("Spare Devices", detail.spare_devices.to_string()),
        Line::Blank,
    ]
}

fn shape(detail: &Detail) -> Vec<Line> {
    let mut lines = Vec::new();
    let shown = matches!(detail.level.as_str(), "raid0" | "raid5" | "raid6" | "raid10");
    let layout = detail.layout.as_deref().filter(|_| shown);
    lines.extend(layout.map(|layout| Line::Field("Layout", layout_in_words(&detail.level, layout))));
    lines.extend(detail.rounding_bytes.map(|bytes| Line::Field("Rounding", format!("{}K", bytes / 1024))));
    let chunk = detail.chunk_bytes.filter(|_| detail.rounding_bytes.is_none());
    lines.extend(chunk.map(|bytes| Line::Field("Chunk Size", format!("{}K", bytes / 1024))));
    if detail.level != "raid1" {
        lines.push(Line::Blank);
    }
    lines
}

/// `near=2` for RAID-10's `n2`; other levels' layouts are words.
fn layout_in_words(level: &str, layout: &str) -> String {
    if level != "raid10" {
        return layout.to_owned();
    }
    let copies = layout.replace('n', ", near=").replace('f', ", far=").replace('o', ", offset=");
    match copies.trim_start_matches(", ") {
        "near=1" => "NO REDUNDANCY".to_owned(),
        copies => copies.to_owned(),
    }
}

fn progress(detail: &Detail) -> Vec<Line> {
    let Some(sync) = &detail.sync else { return Vec::new() };
    let mut lines = Vec::new();
    let label = match sync.action.as_str() {
        "recover" => "Rebuild Status",
        "check" | "repair" => "Check Status",
        _ => "Resync Status",
    };
    lines.extend(sync.percent.map(|percent| Line::Field(label, format!("{}% complete", percent.floor()))));
    if sync.mismatch_sectors > 0 {
        let unread = match sync.unread_sectors {
            0 => String::new(),
            unread => format!(" ({unread} of them cannot be read)"),
        };
        lines.push(Line::Field("Mismatch Count", format!("{}{unread}", sync.mismatch_sectors)));
    }
    if !lines.is_empty() {
        lines.push(Line::Blank);
    }
    lines
}

fn identity(detail: &Detail) -> Vec<Line> {
    let mut lines = Vec::new();
    if detail.metadata == "0.90" {
        let (high, low) = (detail.events >> 32, detail.events & 0xffff_ffff);
        lines.push(Line::Field("UUID", detail.uuid.clone()));
        lines.push(Line::Field("Events", format!("{high}.{low}")));
    } else {
        let local = super::super::hostname()
            .filter(|host| detail.name.strip_prefix(host).is_some_and(|rest| rest.starts_with(':')))
            .map_or_else(String::new, |host| format!("  (local to host {host})"));
        lines.push(Line::Field("Name", format!("{}{local}", detail.name)));
        lines.push(Line::Field("UUID", detail.uuid.clone()));
        lines.push(Line::Field("Events", detail.events.to_string()));
    }
    lines.push(Line::Blank);
    lines
}

fn device_row(device: &Device) -> String {
    let number = device.number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let slot = device.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string());
    let (major, minor) = device.path.as_deref().map_or((0, 0), |path| device_numbers(Path::new(path)));
    let mut state = device.state.clone();
    for (is_so, word) in [
        (device.write_mostly, " writemostly"),
        (device.failfast, " failfast"),
        (device.replacement, " replacement"),
    ] {
        state.push_str(if is_so { word } else { "" });
    }
    let path = device.path.as_deref().map_or_else(String::new, |path| format!("   {path}"));
    format!("   {number:>5}   {major:>5}    {minor:>5}    {slot:>5}      {state}{path}\n")
}

/// The numbers of a block device; a regular file has none.
fn device_numbers(path: &Path) -> (u64, u64) {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => {
            let number = metadata.rdev();
            ((number >> 8 & 0xfff) | (number >> 32 & !0xfff), (number & 0xff) | (number >> 12 & 0xff_ff00))
        }
        _ => (0, 0),
    }
}

/// `mdadm -D --export`.
pub(super) fn export(detail: Value) -> Result<String> {
    let detail = read(detail)?;
    let mut text = format!(
        "MD_LEVEL={}\nMD_DEVICES={}\nMD_METADATA={}\nMD_UUID={}\n",
        detail.level, detail.raid_devices, detail.metadata, detail.uuid
    );
    if let Some(name) = exported_name(&detail.name) {
        let _ = writeln!(text, "MD_NAME={name}");
    }
    for device in &detail.devices {
        let Some(path) = &device.path else { continue };
        let word: String = path
            .trim_start_matches('/')
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let role = device.slot.map_or_else(|| "spare".to_owned(), |slot| slot.to_string());
        let _ = write!(text, "MD_DEVICE_{word}_ROLE={role}\nMD_DEVICE_{word}_DEV={path}\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_of_raid10_are_spelt_out() {
        let spelt = |layout| layout_in_words("raid10", layout);
        assert_eq!(
            ["n2", "f2", "o3", "n2f2", "n1"].map(spelt),
            ["near=2", "far=2", "offset=3", "near=2, far=2", "NO REDUNDANCY"]
        );
        assert_eq!(layout_in_words("raid5", "left-symmetric"), "left-symmetric");
    }
}
