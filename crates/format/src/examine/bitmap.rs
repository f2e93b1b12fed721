//! `mdadm -X`.

use super::{Line, human_size};
use crate::bitmap::{BitmapSuperblock, Bits, MAGIC};
use crate::uuid::Uuid;

/// Describes a bitmap. `array_uuid` is the array's name in mdadm's order, which the bitmap's bytes alone do not say;
/// without `bits` their count is left out.
pub fn bitmap(superblock: &BitmapSuperblock, array_uuid: &Uuid, bits: Option<&Bits>) -> Vec<Line> {
    let state = match superblock.state {
        0 => "OK",
        BitmapSuperblock::STATE_STALE => "Out of date",
        _ => "Unknown",
    };
    let write_mode = match superblock.write_behind {
        0 => "Normal".to_owned(),
        most => format!("Allow write behind, max {most}"),
    };
    let sync_size = superblock.sync_size_sectors;
    let mut lines = vec![
        Line::Field("Magic", format!("{MAGIC:08x}")),
        Line::Field("Version", superblock.version.to_string()),
        Line::Field("UUID", array_uuid.to_string()),
        Line::Field("Events", superblock.events.to_string()),
        Line::Field("Events Cleared", superblock.events_cleared.to_string()),
        Line::Field("State", state.to_owned()),
        Line::Field("Chunksize", chunk_size(superblock.chunk_bytes)),
        Line::Field("Daemon", format!("{}s flush period", superblock.daemon_sleep_seconds)),
        Line::Field("Write Mode", write_mode),
        Line::Field("Sync Size", format!("{}{}", sync_size / 2, human_size(sync_size.saturating_mul(512)))),
    ];
    if let Some(bits) = bits {
        let (count, dirty) = (bits.count(), bits.dirty_count());
        let percent = 100.0 * dirty as f64 / count.max(1) as f64;
        lines.push(Line::Field("Bitmap", format!("{count} bits (chunks), {dirty} dirty ({percent:.1}%)")));
    }
    lines
}

fn chunk_size(bytes: u32) -> String {
    let power = bytes.max(1).ilog2() / 10;
    format!("{} {}", bytes >> (10 * power), ["B", "KB", "MB", "GB"][power as usize])
}
