//! What `mdadm -E` and `mdadm -X` say of a superblock and a bitmap, in their terms and order, as values.

mod bitmap;
mod export;
mod superblock_0;
mod superblock_1;

pub use bitmap::bitmap;
pub use export::{brief, counts_as_spare, export, exported_name};
pub use superblock_0::superblock_0;
pub use superblock_1::superblock_1;

use crate::level::{Layout, Level};

/// A line of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// `label : value`.
    Field(&'static str, String),
    /// A row of a table, or a sentence.
    Text(String),
    /// A blank line between groups.
    Blank,
}

/// What a description needs to know that the bytes do not say.
#[derive(Clone, Copy, Default)]
pub struct Context<'a> {
    /// The device's length.
    pub device_sectors: u64,
    /// This machine's name, as mdadm puts it before an array's.
    pub homehost: Option<&'a str>,
    /// Local time's distance from UTC, eastward.
    pub utc_offset_seconds: i32,
    /// The device's bitmap superblock, if it has one that reads.
    pub bitmap: Option<&'a crate::bitmap::BitmapSuperblock>,
    /// The path of the device of a major and minor number.
    pub device_path: Option<&'a dyn Fn(u32, u32) -> Option<String>>,
}

/// The lines as text, labels right-aligned to `label_width`: 15 for superblocks, 16 for bitmaps. Two labels stand
/// one column further left in mdadm's text, and so here.
pub fn render(lines: &[Line], label_width: usize) -> String {
    let line = |line: &Line| match line {
        Line::Field(label @ ("Device Role" | "Array State"), value) => {
            format!("{label:>width$} : {value}\n", width = label_width - 1)
        }
        Line::Field(label, value) => format!("{label:>label_width$} : {value}\n"),
        Line::Text(text) => format!("{text}\n"),
        Line::Blank => "\n".to_owned(),
    };
    lines.iter().map(line).collect()
}

/// A size in binary and decimal units with two decimals, ` (63.00 MiB 66.06 MB)`; empty below 5000 KiB, as mdadm
/// shows sizes.
pub fn human_size(bytes: u64) -> String {
    const UNITS: [(u64, u32, u64, &str, &str); 3] = [
        (2 << 30, 20, 1_000_000, "MiB", "MB"),
        (2 << 40, 30, 1_000_000_000, "GiB", "GB"),
        (u64::MAX, 40, 1_000_000_000_000, "TiB", "TB"),
    ];
    if bytes < 5000 * 1024 {
        return String::new();
    }
    let (_, shift, decimal, binary_name, decimal_name) =
        UNITS.into_iter().find(|(below, ..)| bytes < *below).unwrap_or(UNITS[2]);
    let binary_hundredths = ((u128::from(bytes) * 200) >> shift).div_ceil(2);
    let decimal_hundredths = u128::from(bytes / (decimal / 200)).div_ceil(2);
    format!(
        " ({}.{:02} {binary_name} {}.{:02} {decimal_name})",
        binary_hundredths / 100,
        binary_hundredths % 100,
        decimal_hundredths / 100,
        decimal_hundredths % 100
    )
}

/// Bytes that an array of this shape holds; none where members need not be alike (linear, RAID-0).
pub(crate) fn array_bytes(level: Level, layout: u32, raid_disks: u32, member_bytes: u128) -> Option<u128> {
    let (times, by) = match level {
        Level::Linear | Level::Raid0 => return None,
        Level::Raid1 => (1, 1),
        Level::Raid4 | Level::Raid5 | Level::Raid6 => {
            (raid_disks.checked_sub(u32::from(level.parity_count()))?, 1)
        }
        Level::Raid10 => (raid_disks, (layout & 255) * (layout >> 8 & 255)),
    };
    (member_bytes * u128::from(times)).checked_div(u128::from(by))
}

/// mdadm's word for the level of a number.
fn level_name(number: i32) -> String {
    Level::from_number(number).map_or_else(|| "-unknown-".to_owned(), |level| level.to_string())
}

/// The layout line of a level that shows one.
fn layout_name(level: Level, number: u32) -> Option<String> {
    let unknown = || "-unknown-".to_owned();
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => None,
        Level::Raid0 | Level::Raid5 | Level::Raid6 => {
            Some(Layout::from_number(level, number as i32).map_or_else(unknown, |layout| layout.to_string()))
        }
        Level::Raid10 => Some(raid10_layout(number)),
    }
}

fn raid10_layout(number: u32) -> String {
    let (near, far) = (number & 255, number >> 8 & 255);
    let far_word = if number & 1 << 16 != 0 { "offset" } else { "far" };
    match (near, far) {
        (1, 1) => "NO REDUNDANCY".to_owned(),
        (_, 1) => format!("near={near}"),
        (1, _) => format!("{far_word}={far}"),
        _ => format!("near={near}, {far_word}={far}"),
    }
}

/// The chunk line's label and value of a level that shows one.
fn chunk_line(level: Level, chunk_bytes: u64) -> Option<Line> {
    let label = match level {
        Level::Linear => "Rounding",
        Level::Raid1 => return None,
        _ => "Chunk Size",
    };
    Some(Line::Field(label, format!("{}K", chunk_bytes / 1024)))
}

/// What both versions say of a reshape, but for the chunk, which they print in different units.
struct ReshapeView {
    level: Level,
    layout: u32,
    raid_disks: u32,
    position_sectors: u64,
    delta_disks: i32,
    new_level: i32,
    new_layout: u32,
}

fn reshape_lines(reshape: &ReshapeView) -> Vec<Line> {
    let position = reshape.position_sectors;
    let shown = human_size(position.saturating_mul(512));
    let mut lines = vec![Line::Field("Reshape pos'n", format!("{}{shown}", position / 2))];
    if reshape.delta_disks != 0 {
        let after = i64::from(reshape.raid_disks);
        let before = after - i64::from(reshape.delta_disks);
        lines.push(Line::Field("Delta Devices", format!("{} ({before}->{after})", reshape.delta_disks)));
    }
    if reshape.new_level != reshape.level.number() {
        lines.push(Line::Field("New Level", level_name(reshape.new_level)));
    }
    if reshape.new_layout != reshape.layout && reshape.level != Level::Raid0 {
        let name = layout_name(reshape.level, reshape.new_layout);
        lines.extend(name.map(|name| Line::Field("New Layout", name)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_mdadm_shows_them() {
        for (bytes, text) in [
            (5000 * 1024 - 1, ""),
            (129_024 * 512, " (63.00 MiB 66.06 MB)"),
            (46_976 * 512, " (22.94 MiB 24.05 MB)"),
            (3 << 30, " (3.00 GiB 3.22 GB)"),
            (5 << 40, " (5.00 TiB 5.50 TB)"),
        ] {
            assert_eq!(human_size(bytes), text, "{bytes}");
        }
    }
}
