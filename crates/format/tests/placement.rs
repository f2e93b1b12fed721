//! Where mdadm put things, row by row of what it was seen to do.

mod common;

use serde_json::Value;
use stripewise_format::level::{Layout, Level};
use stripewise_format::placement::{Consistency, Metadata, Placement, PlacementError, Plan};

/// A row of `placement.json`.
struct Row(Value);

impl Row {
    fn number(&self, key: &str) -> Option<u64> {
        self.0.get(key).and_then(Value::as_u64)
    }

    fn option(&self, name: &str) -> Option<String> {
        let options = self.0["options"].as_array().unwrap();
        options
            .iter()
            .find_map(|o| o.as_str().unwrap().strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    }

    fn plan(&self) -> Plan {
        let level: Level = self.0["level"].as_str().unwrap().parse().unwrap();
        let chunk_kib = self.option("--chunk").map_or(512, |kib| kib.parse().unwrap());
        let bitmap_chunk = self.option("--bitmap-chunk").map(|size| bytes(&size) as u32);
        let consistency =
            match (self.option("--bitmap").as_deref(), self.option("--consistency-policy").as_deref()) {
                (Some("internal"), _) => Consistency::Bitmap { chunk_bytes: bitmap_chunk },
                (_, Some("ppl")) => Consistency::Ppl,
                _ => Consistency::Resync,
            };
        Plan {
            level,
            layout: Layout::default_of(level),
            raid_disks: match level {
                Level::Raid6 => 4,
                Level::Raid4 | Level::Raid5 => 3,
                _ => 2,
            },
            chunk_sectors: if level.has_chunks() { chunk_kib * 2 } else { 0 },
            metadata: Metadata::parse(self.0["metadata"].as_str().unwrap()).unwrap(),
            consistency,
            data_offset_sectors: self.option("--data-offset").map(|size| bytes(&size) / 512),
        }
    }

    /// mdadm 4.2 does not subtract the data offset of 1.0 from the room, so that data can run over the superblock;
    /// here it is subtracted.
    fn forgets_its_data_offset(&self) -> bool {
        self.0["metadata"] == "1.0" && self.number("data_offset").is_some_and(|offset| offset > 0)
    }

    /// The size and the places, as a program that makes an array would find them.
    fn placed(&self) -> Result<(u64, Placement), PlacementError> {
        let plan = self.plan();
        plan.check()?;
        let device = self.number("device_sectors").unwrap();
        let data_offset = plan.data_offset_sectors(device);
        let usable = plan.usable_sectors(device, data_offset)?;
        let size = plan.size_sectors(usable, self.option("--size").map(|size| bytes(&size) / 512));
        let plan = if self.option("--bitmap").as_deref() == Some("none") {
            plan
        } else {
            plan.with_auto_bitmap(size)
        };
        Ok((size, plan.place(device, data_offset, size)?))
    }
}

fn bytes(size: &str) -> u64 {
    let (number, unit) = size.split_at(size.len() - 1);
    number.parse::<u64>().unwrap() << if unit == "K" { 10 } else { 20 }
}

#[test]
fn things_lie_where_mdadm_put_them() {
    let mut wrong = Vec::new();
    for row in common::json("placement.json").into_iter().map(Row) {
        if row.number("size").is_none() || row.forgets_its_data_offset() {
            continue;
        }
        let shown = row.0.to_string();
        match row.placed() {
            Err(error) => wrong.push(format!("{error}: {shown}")),
            Ok((size, place)) => {
                if let Some(difference) = difference(&row, size, &place) {
                    wrong.push(format!("{difference}: {shown}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

fn difference(row: &Row, size: u64, place: &Placement) -> Option<String> {
    let (bblog_offset, bblog_size) = place.bad_block_log.unwrap_or_default();
    let ppl = place.ppl.map(|area| (i64::from(area.offset_sectors), u64::from(area.size_sectors)));
    let ours = [
        ("size", Some(size as i64)),
        ("data_offset", Some(place.data_offset_sectors as i64)),
        ("data_size", Some(place.data_size_sectors as i64)),
        ("super_offset", Some(place.super_offset_sectors as i64)),
        ("bblog_size", Some(i64::from(bblog_size))),
        ("bblog_offset", Some(i64::from(bblog_offset))),
        (
            "bitmap_sector",
            place.bitmap.map(|b| place.super_offset_sectors as i64 + i64::from(b.offset_sectors)),
        ),
        ("bitmap_chunk_bytes", place.bitmap.map(|b| i64::from(b.chunk_bytes))),
        ("bitmap_sync_size", place.bitmap.map(|b| b.sync_size_sectors as i64)),
        ("ppl_offset", ppl.map(|(offset, _)| offset)),
        ("ppl_size", ppl.map(|(_, size)| size as i64)),
    ];
    let is_v0 = row.0["metadata"] == "0.90";
    let recorded = |key: &str| !is_v0 || key == "size" || key.starts_with("bitmap");
    ours.into_iter()
        .filter(|(key, _)| recorded(key))
        .find(|(key, ours)| row.0.get(*key).and_then(Value::as_i64) != *ours)
        .map(|(key, ours)| format!("{key} {ours:?}"))
}

#[test]
fn data_offsets_of_1_0_leave_the_superblock_alone() {
    let rows: Vec<_> =
        common::json("placement.json").into_iter().map(Row).filter(Row::forgets_its_data_offset).collect();
    assert!(!rows.is_empty());
    for row in rows {
        let (_, place) = row.placed().unwrap();
        let data_end = place.data_offset_sectors + place.data_size_sectors;
        let bitmap = place.bitmap.map_or(0, |bitmap| bitmap.offset_sectors);
        assert!(
            data_end as i64 <= place.super_offset_sectors as i64 + i64::from(bitmap.min(-8)),
            "{}",
            row.0
        );
    }
}

#[test]
fn what_mdadm_refuses_is_refused() {
    let mut wrong = Vec::new();
    for row in common::json("placement.json").into_iter().map(Row) {
        let Some(refused) = row.0.get("refused") else { continue };
        let own_default = refused[0].as_str().unwrap().contains("does not support layouts for RAID0");
        if !own_default && row.placed().is_ok() {
            wrong.push(row.0.to_string());
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

/// Linux keeps a bit for each member whose cache is to be flushed before a log is written again, in one word.
#[test]
fn more_members_than_linux_runs_with_partial_parity_logs_are_refused() {
    let refusal = |raid_disks: u32, consistency| {
        let plan = Plan {
            level: Level::Raid5,
            layout: Layout::default_of(Level::Raid5),
            raid_disks,
            chunk_sectors: 128,
            metadata: Metadata::parse("1.2").unwrap(),
            consistency,
            data_offset_sectors: None,
        };
        plan.check().err().map(|error| error.to_string())
    };
    assert_eq!(refusal(64, Consistency::Ppl), None);
    assert_eq!(refusal(65, Consistency::Resync), None);
    let text = refusal(65, Consistency::Ppl).unwrap();
    assert!(text.contains("65") && text.contains("64 members at most"), "{text}");
}
