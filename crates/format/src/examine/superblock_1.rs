//! `mdadm -E` of a version-1 superblock.

use super::{Context, Line, ReshapeView, array_bytes, chunk_line, human_size, layout_name, reshape_lines};
use crate::level::Level;
use crate::superblock_1::{Features, MAGIC, Role, Superblock1};

/// Describes a superblock.
pub fn superblock_1(superblock: &Superblock1, context: &Context) -> Vec<Line> {
    let mut lines = Vec::new();
    array(superblock, context, &mut lines);
    lines.push(Line::Blank);
    sizes(superblock, context, &mut lines);
    state(superblock, &mut lines);
    lines.push(Line::Blank);
    logs(superblock, &mut lines);
    reshape(superblock, &mut lines);
    device(superblock, context, &mut lines);
    lines.push(Line::Blank);
    if superblock.level != Level::Raid0 || superblock.features.contains(Features::RAID0_LAYOUT) {
        lines
            .extend(layout_name(superblock.level, superblock.layout).map(|name| Line::Field("Layout", name)));
    }
    lines.extend(chunk_line(superblock.level, u64::from(superblock.chunk_sectors) * 512));
    lines.push(Line::Blank);
    lines.push(Line::Field("Device Role", role(superblock)));
    array_state(superblock, &mut lines);
    lines
}

fn array(superblock: &Superblock1, context: &Context, lines: &mut Vec<Line>) {
    let name = superblock.name();
    let local =
        context.homehost.filter(|host| name.strip_prefix(host).is_some_and(|rest| rest.starts_with(':')));
    let shown = local.map_or_else(|| name.clone(), |host| format!("{name}  (local to host {host})"));
    lines.extend([
        Line::Field("Magic", format!("{MAGIC:08x}")),
        Line::Field("Version", format!("1.{}", superblock.minor() as u8)),
        Line::Field("Feature Map", format!("{:#x}", superblock.features.number())),
        Line::Field("Array UUID", superblock.set_uuid.to_string()),
        Line::Field("Name", shown),
        Line::Field("Creation Time", superblock.ctime.calendar(context.utc_offset_seconds)),
        Line::Field("Raid Level", superblock.level.to_string()),
        Line::Field("Raid Devices", superblock.raid_disks.to_string()),
    ]);
}

fn sectors(count: u64) -> String {
    format!("{count} sectors{}", human_size(count.saturating_mul(512)))
}

fn sizes(superblock: &Superblock1, context: &Context, lines: &mut Vec<Line>) {
    lines.push(Line::Field("Avail Dev Size", sectors(superblock.data_size_sectors)));
    let member_bytes = u128::from(superblock.size_sectors) * 512;
    if let Some(bytes) = array_bytes(superblock.level, superblock.layout, superblock.raid_disks, member_bytes)
    {
        let shown = u64::try_from(bytes).map_or_else(|_| String::new(), human_size);
        lines.push(Line::Field("Array Size", format!("{} KiB{shown}", bytes / 1024)));
    }
    // mdadm compares the level unsigned, so that linear (-1) shows its size of none here and RAID-0 does not.
    if superblock.level != Level::Raid0 && superblock.size_sectors != superblock.data_size_sectors {
        lines.push(Line::Field("Used Dev Size", sectors(superblock.size_sectors)));
    }
    if superblock.data_offset_sectors != 0 {
        lines.push(Line::Field("Data Offset", format!("{} sectors", superblock.data_offset_sectors)));
    }
    let has_new_offset = superblock.features.contains(Features::NEW_OFFSET);
    if has_new_offset && superblock.new_offset_sectors != 0 {
        let offset = i128::from(superblock.data_offset_sectors) + i128::from(superblock.new_offset_sectors);
        lines.push(Line::Field("New Offset", format!("{offset} sectors")));
    }
    lines.push(Line::Field("Super Offset", format!("{} sectors", superblock.super_offset_sectors)));
    if superblock.features.contains(Features::RECOVERY_OFFSET) {
        let recovered = superblock.recovery_offset_sectors;
        lines.push(Line::Field("Recovery Offset", format!("{recovered} sectors")));
    }
    let (before, after) = unused(superblock, context);
    let has_unused = (before, after) != (0, 0) || superblock.role() == Role::Journal;
    if !has_new_offset && has_unused {
        lines.push(Line::Field("Unused Space", format!("before={before} sectors, after={after} sectors")));
    }
}

/// Sectors before and after the data that nothing uses, as mdadm's `getinfo_super1` counts them: before the data it
/// keeps 36 KiB from the superblock clear, and takes the bitmap's and PPL's end from the start of the superblock.
fn unused(superblock: &Superblock1, context: &Context) -> (i128, i128) {
    const HEAD_SECTORS: i128 = 72;
    let start = i128::from(superblock.super_offset_sectors);
    let data = i128::from(superblock.data_offset_sectors);
    let whole = matches!(superblock.level, Level::Raid0 | Level::Linear);
    let used = i128::from(if whole { superblock.data_size_sectors } else { superblock.size_sectors });
    let ppl = superblock.ppl();
    let log = superblock.bitmap_offset_sectors().map_or(0, i128::from)
        + ppl.map_or(0, |area| i128::from(area.offset_sectors));
    let bad_blocks =
        superblock.has_bad_block_log().then(|| start + i128::from(superblock.bblog_offset_sectors));
    if data < start {
        let end = bad_blocks.map_or(start, |sector| sector.min(start)).min(start + log);
        let after = if superblock.role() == Role::Journal { (end - data) % 8 } else { end - data - used };
        return (data, after.max(0));
    }
    let log_sectors = match (ppl, context.bitmap) {
        (Some(area), _) => i128::from(area.size_sectors),
        (None, Some(bitmap)) => i128::from(bitmap.area_bytes() / 512),
        (None, None) => 0,
    };
    let mut earliest = start + HEAD_SECTORS;
    if log > 0 {
        earliest = earliest.max(log + log_sectors);
    }
    if let Some(sector) = bad_blocks {
        earliest = earliest.max(sector + i128::from(superblock.bblog_size_sectors));
    }
    let after = if superblock.role() == Role::Journal {
        (i128::from(context.device_sectors) - data) % 8
    } else {
        i128::from(context.device_sectors) - used - data
    };
    ((data - earliest).max(0), after)
}

fn state(superblock: &Superblock1, lines: &mut Vec<Line>) {
    let word = if superblock.is_clean() { "clean" } else { "active" };
    lines.push(Line::Field("State", word.to_owned()));
    lines.push(Line::Field("Device UUID", superblock.device_uuid.to_string()));
}

fn logs(superblock: &Superblock1, lines: &mut Vec<Line>) {
    if let Some(offset) = superblock.bitmap_offset_sectors() {
        lines.push(Line::Field("Internal Bitmap", format!("{offset} sectors from superblock")));
    } else if let Some(area) = superblock.ppl() {
        let (size, offset) = (area.size_sectors, area.offset_sectors);
        lines.push(Line::Field("PPL", format!("{size} sectors at offset {offset} sectors from superblock")));
    }
}

fn reshape(superblock: &Superblock1, lines: &mut Vec<Line>) {
    let Some(reshape) = superblock.reshape() else { return };
    lines.extend(reshape_lines(&ReshapeView {
        level: superblock.level,
        layout: superblock.layout,
        raid_disks: superblock.raid_disks,
        position_sectors: reshape.position_sectors,
        delta_disks: reshape.delta_disks,
        new_level: reshape.new_level,
        new_layout: reshape.new_layout,
    }));
    if reshape.new_chunk_sectors != superblock.chunk_sectors {
        lines.push(Line::Field("New Chunksize", format!("{}K", reshape.new_chunk_sectors / 2)));
    }
    lines.push(Line::Blank);
}

fn device(superblock: &Superblock1, context: &Context, lines: &mut Vec<Line>) {
    if superblock.devflags != 0 {
        let names: Vec<_> = superblock.device_flags().names().collect();
        lines.push(Line::Field("Flags", names.join(" ")));
    }
    lines.push(Line::Field("Update Time", superblock.utime.calendar(context.utc_offset_seconds)));
    if superblock.has_bad_block_log() {
        let entries = u32::from(superblock.bblog_size_sectors) * 512 / 8;
        let offset = superblock.bblog_offset_sectors;
        let present =
            if superblock.features.contains(Features::BAD_BLOCKS) { " - bad blocks present." } else { "" };
        let value = format!("{entries} entries available at offset {offset} sectors{present}");
        lines.push(Line::Field("Bad Block Log", value));
    }
    lines.push(Line::Field("Checksum", format!("{:x} - correct", superblock.checksum())));
    lines.push(Line::Field("Events", superblock.events.to_string()));
}

fn role(superblock: &Superblock1) -> String {
    match superblock.role() {
        Role::Spare | Role::Faulty => "spare".to_owned(),
        Role::Journal => "Journal".to_owned(),
        Role::Slot(slot) if superblock.features.contains(Features::REPLACEMENT) => {
            format!("Replacement device {slot}")
        }
        Role::Slot(slot) => format!("Active device {slot}"),
    }
}

fn array_state(superblock: &Superblock1, lines: &mut Vec<Line>) {
    let shrinking = superblock.reshape().map_or(0, |reshape| reshape.delta_disks.min(0).unsigned_abs());
    let slots = superblock.raid_disks.saturating_add(shrinking);
    let claims = |slot| {
        superblock.dev_roles.iter().filter(move |role| matches!(role, Role::Slot(s) if u32::from(*s) == slot))
    };
    let letter = |slot| match claims(slot).count() {
        0 => '.',
        1 => 'A',
        2 if superblock.level != Level::Raid0 => 'R',
        _ => '?',
    };
    let letters: String = (0..slots).map(letter).collect();
    let legend = "('A' == active, '.' == missing, 'R' == replacing)";
    lines.push(Line::Field("Array State", format!("{letters} {legend}")));
    if letters.contains('?') {
        lines.push(Line::Text("WARNING: more devices claim a slot than it can have".to_owned()));
    }
}
