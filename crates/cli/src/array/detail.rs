//! `stripewise detail`: what `mdadm -D` says of an array, without starting it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use stripewise_engine::level::Level;
use stripewise_format::examine::{Line, human_size, render};
use stripewise_format::placement::Metadata;
use stripewise_format::superblock::Superblock;
use stripewise_format::time::Timestamp;
use stripewise_host::md::assemble::Assembled;

use super::describe::{Description, Device, describe, level_of};
use super::manage::detail as server_detail;
use super::select::{SelectArgs, Use, impossible};
use super::signals::stop_flag;
use super::watch::watch;
use crate::exit::Exit;
use crate::output::{print, print_json};

pub(crate) const SCHEMA: &str = "stripewise.detail/1";
/// The longest label, `Consistency Policy`.
const LABEL_WIDTH: usize = 18;

/// `stripewise detail`.
#[derive(Debug, Args)]
pub(crate) struct DetailArgs {
    #[command(flatten)]
    select: SelectArgs,
    /// Ask the server at this control socket instead of looking at members.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["members", "scan"])]
    control: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print NAME=value lines for scripts.
    #[arg(long, conflicts_with = "json")]
    export: bool,
    /// Print a line about resync, recovery or check each second until it ends; over the last one on a terminal.
    #[arg(long, conflicts_with_all = ["json", "export"])]
    watch: bool,
}

pub(crate) fn run(args: &DetailArgs) -> Result<Exit> {
    if args.watch {
        let look = || {
            if let Some(socket) = &args.control {
                return server_detail(socket);
            }
            let assembled = args.select.assemble(Use::Look)?;
            Ok(serde_json::to_value(describe(SCHEMA, &assembled, &[]))?)
        };
        return watch(look, &*stop_flag()?);
    }
    if let Some(socket) = &args.control {
        if args.export {
            return Err(impossible("--export needs members; a server answers JSON"));
        }
        print_json(&server_detail(socket)?)?;
        return Ok(Exit::Done);
    }
    let assembled = args.select.assemble(Use::Look)?;
    let description = describe(SCHEMA, &assembled, &[]);
    if args.json {
        print_json(&description)?;
    } else if args.export {
        print(&export(&description))?;
    } else {
        print(&text(&assembled, &description))?;
    }
    Ok(Exit::Done)
}

/// mdadm's name of the array's device would stand first; the array's own name does.
fn text(assembled: &Assembled, description: &Description) -> String {
    let title = if description.name.is_empty() { &description.uuid } else { &description.name };
    let mut lines = heading(assembled, description);
    lines.extend(counts(description));
    lines.extend(shape(assembled, description));
    lines.push(Line::Field("Consistency Policy", description.consistency_policy.to_owned()));
    lines.push(Line::Blank);
    if let Some(sync) = &description.sync {
        let label = if sync.action == "recover" { "Rebuild Status" } else { "Resync Status" };
        lines.push(Line::Field(label, format!("{}% complete", sync.percent)));
        lines.push(Line::Blank);
    }
    lines.extend(identity(assembled, description));
    let mut text = format!("{title}:\n{}", render(&lines, LABEL_WIDTH));
    text.push_str("    Number   Major   Minor   RaidDevice State\n");
    let (slots, others): (Vec<&Device>, Vec<&Device>) =
        description.devices.iter().partition(|device| device.slot.is_some());
    text.extend(slots.into_iter().map(device_row));
    if !others.is_empty() {
        text.push('\n');
        text.extend(others.into_iter().map(device_row));
    }
    for left in &description.left_out {
        let _ = write!(text, "\n    {} is left out: {}", left.path, left.reason);
    }
    if !description.left_out.is_empty() {
        text.push('\n');
    }
    text
}

fn size(bytes: u64) -> String {
    format!("{}{}", bytes / 1024, human_size(bytes))
}

fn calendar(seconds: u64) -> String {
    Timestamp::from_seconds(seconds).calendar(0)
}

fn heading(assembled: &Assembled, description: &Description) -> Vec<Line> {
    let mut lines = vec![
        Line::Field("Version", description.metadata.to_owned()),
        Line::Field("Creation Time", calendar(description.creation_time_unix_seconds)),
        Line::Field("Raid Level", description.level.to_owned()),
        Line::Field("Array Size", size(description.array_bytes)),
    ];
    lines.extend(description.used_device_bytes.map(|bytes| Line::Field("Used Dev Size", size(bytes))));
    lines.push(Line::Field("Raid Devices", description.raid_devices.to_string()));
    lines.push(Line::Field("Total Devices", description.total_devices.to_string()));
    if let Superblock::V0(superblock) = &assembled.found.candidates[assembled.assembly.freshest].superblock {
        lines.push(Line::Field("Preferred Minor", superblock.md_minor.to_string()));
    }
    lines.push(Line::Field("Persistence", "Superblock is persistent".to_owned()));
    lines.push(Line::Blank);
    if description.consistency_policy == "bitmap" {
        lines.push(Line::Field("Intent Bitmap", "Internal".to_owned()));
        lines.push(Line::Blank);
    }
    lines
}

fn counts(description: &Description) -> Vec<Line> {
    vec![
        Line::Field("Update Time", calendar(description.update_time_unix_seconds)),
        Line::Field("State", format!("{} ", description.state.join(", "))),
        Line::Field("Active Devices", description.active_devices.to_string()),
        Line::Field("Working Devices", description.working_devices.to_string()),
        Line::Field("Failed Devices", description.failed_devices.to_string()),
        Line::Field("Spare Devices", description.spare_devices.to_string()),
        Line::Blank,
    ]
}

fn shape(assembled: &Assembled, description: &Description) -> Vec<Line> {
    let mut lines = Vec::new();
    let layout = match level_of(assembled) {
        Level::Raid0 | Level::Raid5 | Level::Raid6 => description.layout.clone(),
        Level::Raid10 => raid10_layout(assembled),
        _ => None,
    };
    lines.extend(layout.map(|layout| Line::Field("Layout", layout)));
    let chunk = assembled.assembly.geometry.chunk_sectors / 2;
    match level_of(assembled) {
        Level::Linear => lines.push(Line::Field("Rounding", format!("{chunk}K"))),
        Level::Raid1 => return lines,
        _ => lines.push(Line::Field("Chunk Size", format!("{chunk}K"))),
    }
    lines.push(Line::Blank);
    lines
}

fn raid10_layout(assembled: &Assembled) -> Option<String> {
    let stripewise_engine::level::Layout::Raid10(layout) = assembled.assembly.geometry.layout else {
        return None;
    };
    let far = if layout.offset { "offset" } else { "far" };
    Some(match (layout.near, layout.far) {
        (1, 1) => "NO REDUNDANCY".to_owned(),
        (near, 1) => format!("near={near}"),
        (1, copies) => format!("{far}={copies}"),
        (near, copies) => format!("near={near}, {far}={copies}"),
    })
}

fn identity(assembled: &Assembled, description: &Description) -> Vec<Line> {
    let mut lines = Vec::new();
    if assembled.assembly.metadata == Metadata::V0 {
        let (high, low) = (description.events >> 32, description.events & 0xffff_ffff);
        lines.push(Line::Field("UUID", description.uuid.clone()));
        lines.push(Line::Field("Events", format!("{high}.{low}")));
    } else {
        let local = super::hostname()
            .filter(|host| description.name.strip_prefix(host).is_some_and(|rest| rest.starts_with(':')))
            .map_or_else(String::new, |host| format!("  (local to host {host})"));
        lines.push(Line::Field("Name", format!("{}{local}", description.name)));
        lines.push(Line::Field("UUID", description.uuid.clone()));
        lines.push(Line::Field("Events", description.events.to_string()));
    }
    lines.push(Line::Blank);
    lines
}

fn device_row(device: &Device) -> String {
    let number = device.number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let slot = device.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string());
    let (major, minor) = device.path.as_deref().map_or((0, 0), |path| device_numbers(Path::new(path)));
    let replacement = if device.replacement { " replacement" } else { "" };
    let path = device.path.as_deref().map_or_else(String::new, |path| format!("   {path}"));
    format!(
        "   {number:>5}   {major:>5}    {minor:>5}    {slot:>5}      {}{replacement}{path}\n",
        device.state
    )
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
fn export(description: &Description) -> String {
    let mut text = format!(
        "MD_LEVEL={}\nMD_DEVICES={}\nMD_METADATA={}\nMD_UUID={}\n",
        description.level, description.raid_devices, description.metadata, description.uuid
    );
    if !description.name.is_empty() {
        let _ = writeln!(text, "MD_NAME={}", description.name);
    }
    for device in &description.devices {
        let Some(path) = &device.path else { continue };
        let word: String = path
            .trim_start_matches('/')
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let role = device.slot.map_or_else(|| "spare".to_owned(), |slot| slot.to_string());
        let _ = write!(text, "MD_DEVICE_{word}_ROLE={role}\nMD_DEVICE_{word}_DEV={path}\n");
    }
    text
}
