//! `mdadm -E` of a version-0.90 superblock.

use super::{Context, Line, ReshapeView, array_bytes, chunk_line, human_size, layout_name, reshape_lines};
use crate::level::Level;
use crate::superblock_0::{DISKS, Disk, Superblock0};
use crate::superblock_1::{MAGIC, MAX_SECTOR};
use crate::time::Timestamp;

/// Describes a superblock.
pub fn superblock_0(superblock: &Superblock0, context: &Context) -> Vec<Line> {
    let mut lines = Vec::new();
    array(superblock, context, &mut lines);
    lines.push(Line::Blank);
    reshape(superblock, &mut lines);
    state(superblock, context, &mut lines);
    lines.push(Line::Blank);
    if superblock.level != Level::Raid0 {
        lines
            .extend(layout_name(superblock.level, superblock.layout).map(|name| Line::Field("Layout", name)));
    }
    lines.extend(chunk_line(superblock.level, u64::from(superblock.chunk_bytes)));
    lines.push(Line::Blank);
    disks(superblock, context, &mut lines);
    lines
}

fn array(superblock: &Superblock0, context: &Context, lines: &mut Vec<Line>) {
    let minor = if superblock.reshape.is_some() { 91 } else { 90 };
    let created = Timestamp::from_seconds(u64::from(superblock.ctime_seconds));
    lines.extend([
        Line::Field("Magic", format!("{MAGIC:08x}")),
        Line::Field("Version", format!("0.{minor}.{:02}", superblock.patch_version)),
        Line::Field("UUID", superblock.set_uuid.to_string()),
        Line::Field("Creation Time", created.calendar(context.utc_offset_seconds)),
        Line::Field("Raid Level", superblock.level.to_string()),
    ]);
    let member_bytes = u128::from(superblock.size_kib) * 1024;
    if let Some(bytes) = array_bytes(superblock.level, superblock.layout, superblock.raid_disks, member_bytes)
    {
        let kib = |bytes: u128| {
            format!("{}{}", bytes / 1024, u64::try_from(bytes).map_or_else(|_| String::new(), human_size))
        };
        lines.push(Line::Field("Used Dev Size", kib(member_bytes)));
        lines.push(Line::Field("Array Size", kib(bytes)));
    }
    lines.extend([
        Line::Field("Raid Devices", superblock.raid_disks.to_string()),
        Line::Field("Total Devices", superblock.nr_disks.to_string()),
        Line::Field("Preferred Minor", superblock.md_minor.to_string()),
    ]);
}

fn reshape(superblock: &Superblock0, lines: &mut Vec<Line>) {
    let Some(reshape) = superblock.reshape.filter(|reshape| reshape.position_sectors != MAX_SECTOR) else {
        return;
    };
    lines.extend(reshape_lines(&ReshapeView {
        level: superblock.level,
        layout: superblock.layout,
        raid_disks: superblock.raid_disks,
        position_sectors: reshape.position_sectors,
        delta_disks: reshape.delta_disks,
        new_level: reshape.new_level,
        new_layout: reshape.new_layout,
    }));
    if reshape.new_chunk_bytes != superblock.chunk_bytes {
        lines.push(Line::Field("New Chunksize", reshape.new_chunk_bytes.to_string()));
    }
    lines.push(Line::Blank);
}

fn state(superblock: &Superblock0, context: &Context, lines: &mut Vec<Line>) {
    let updated = Timestamp::from_seconds(u64::from(superblock.utime_seconds));
    let word = if superblock.is_clean() { "clean" } else { "active" };
    lines.push(Line::Field("Update Time", updated.calendar(context.utc_offset_seconds)));
    lines.push(Line::Field("State", word.to_owned()));
    if superblock.has_bitmap() {
        lines.push(Line::Field("Internal Bitmap", "present".to_owned()));
    }
    lines.extend([
        Line::Field("Active Devices", superblock.active_disks.to_string()),
        Line::Field("Working Devices", superblock.working_disks.to_string()),
        Line::Field("Failed Devices", superblock.failed_disks.to_string()),
        Line::Field("Spare Devices", superblock.spare_disks.to_string()),
        Line::Field("Checksum", format!("{:x} - correct", superblock.checksum())),
        Line::Field("Events", superblock.events.to_string()),
    ]);
}

fn disks(superblock: &Superblock0, context: &Context, lines: &mut Vec<Line>) {
    let shrinking = superblock.reshape.map_or(0, |reshape| reshape.delta_disks.min(0).unsigned_abs());
    let rows = u64::from(superblock.raid_disks) + u64::from(shrinking) + u64::from(superblock.spare_disks);
    lines.push(Line::Text("      Number   Major   Minor   RaidDevice State".to_owned()));
    lines.push(Line::Text(row("this", &superblock.this_disk, context)));
    lines.push(Line::Blank);
    for (number, disk) in superblock.disks.iter().enumerate().take(rows.min(DISKS as u64) as usize) {
        lines.push(Line::Text(row(&format!("{number:4}"), disk, context)));
    }
}

fn row(name: &str, disk: &Disk, context: &Context) -> String {
    const STATES: [(u32, &str); 4] = [
        (Disk::FAULTY, "faulty"),
        (Disk::ACTIVE, "active"),
        (Disk::SYNC, "sync"),
        (Disk::REMOVED, "removed"),
    ];
    let states = STATES.iter().filter(|(bit, _)| disk.state & bit != 0).map(|(_, name)| *name);
    let spare = (disk.state & !Disk::DEVICE_FLAGS == 0).then_some("spare");
    let states: String =
        states.chain(disk.device_flags().names()).chain(spare).flat_map(|name| [" ", name]).collect();
    let path = context.device_path.and_then(|path| path(disk.major, disk.minor));
    let path = path.map_or_else(String::new, |path| format!("   {path}"));
    format!(
        "{name} {:5}   {:5}    {:5}    {:5}     {states}{path}",
        disk.number, disk.major, disk.minor, disk.raid_disk
    )
}
