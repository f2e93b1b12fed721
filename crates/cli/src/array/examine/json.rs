//! `examine --json`.

use std::path::Path;

use serde::Serialize;
use stripewise_format::bad_blocks::BadRange;
use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{MAX_SECTOR, Role, Superblock1};
use stripewise_host::md::probe::{Found, read_bad_blocks, read_bitmap};
use stripewise_host::md::signature;

use super::Device;

#[derive(Serialize)]
pub(super) struct Document {
    schema: &'static str,
    devices: Vec<DeviceDocument>,
}

#[derive(Serialize)]
pub(super) struct DeviceDocument {
    path: String,
    error: Option<String>,
    size_bytes: Option<u64>,
    superblocks: Vec<SuperblockDocument>,
    holds: Vec<&'static str>,
}

#[derive(Default, Serialize)]
struct SuperblockDocument {
    metadata: &'static str,
    offset_bytes: u64,
    error: Option<String>,
    #[serde(flatten)]
    array: Option<ArrayDocument>,
    #[serde(flatten)]
    device: Option<MemberDocument>,
    bitmap: Option<BitmapDocument>,
    bad_blocks: Option<Vec<BadRangeDocument>>,
    unreadable: Vec<String>,
}

#[derive(Serialize)]
struct ArrayDocument {
    uuid: String,
    name: Option<String>,
    created_unix_seconds: u64,
    updated_unix_seconds: u64,
    level: &'static str,
    layout: Option<String>,
    raid_devices: u32,
    chunk_bytes: Option<u64>,
    member_size_bytes: Option<u64>,
    events: u64,
    state: &'static str,
    resync_offset_bytes: Option<u64>,
    roles: Vec<RoleDocument>,
    features: Vec<String>,
    unsupported: Option<String>,
    reshape: Option<ReshapeDocument>,
}

#[derive(Serialize)]
struct MemberDocument {
    device_number: u32,
    role: &'static str,
    slot: Option<u16>,
    device_uuid: Option<String>,
    data_offset_bytes: u64,
    data_size_bytes: u64,
    recovered_bytes: Option<u64>,
    journal_tail_bytes: Option<u64>,
    write_mostly: bool,
    failfast: bool,
    ppl: Option<PplDocument>,
    bad_block_log_entries: Option<u64>,
}

#[derive(Serialize)]
struct RoleDocument {
    device_number: u32,
    role: &'static str,
    slot: Option<u16>,
}

#[derive(Serialize)]
struct ReshapeDocument {
    position_bytes: u64,
    delta_devices: i32,
    new_level: i32,
    new_layout: u32,
    new_chunk_bytes: u64,
}

#[derive(Serialize)]
struct PplDocument {
    offset_sectors: i16,
    size_bytes: u64,
    multiple: bool,
}

#[derive(Serialize)]
struct BitmapDocument {
    version: u32,
    uuid: String,
    events: u64,
    events_cleared: u64,
    chunk_bytes: u32,
    sync_size_bytes: u64,
    daemon_sleep_seconds: u32,
    write_behind: u32,
    chunks: u64,
    dirty_chunks: u64,
}

#[derive(Serialize)]
struct BadRangeDocument {
    start_bytes: u64,
    length_bytes: u64,
}

pub(super) fn document(devices: Vec<DeviceDocument>) -> Document {
    Document { schema: "stripewise.examine/1", devices }
}

pub(super) fn device(device: &Device) -> DeviceDocument {
    let probe = &device.probe;
    DeviceDocument {
        path: probe.path.display().to_string(),
        error: None,
        size_bytes: Some(probe.device_sectors * 512),
        superblocks: probe.found.iter().map(|found| superblock(device, found)).collect(),
        holds: signature::find(&*device.source, probe.device_sectors).unwrap_or_default(),
    }
}

/// A device that could not be opened or read.
pub(super) fn unreadable(path: &Path, error: &anyhow::Error) -> DeviceDocument {
    DeviceDocument {
        path: path.display().to_string(),
        error: Some(error.to_string()),
        size_bytes: None,
        superblocks: Vec::new(),
        holds: Vec::new(),
    }
}

fn superblock(device: &Device, found: &Found) -> SuperblockDocument {
    let mut document = SuperblockDocument {
        metadata: found.metadata.name(),
        offset_bytes: found.at_sector * 512,
        ..SuperblockDocument::default()
    };
    let superblock = match &found.superblock {
        Ok(superblock) => superblock,
        Err(error) => {
            document.error = Some(error.to_string());
            return document;
        }
    };
    document.array = Some(array(superblock));
    document.device = Some(member(superblock, found.at_sector));
    let sectors = device.probe.device_sectors;
    match read_bitmap(&*device.source, sectors, superblock, found.at_sector) {
        Ok(read) => document.bitmap = read.map(|(head, bits)| bitmap(&head, &bits, superblock)),
        Err(error) => document.unreadable.push(error.to_string()),
    }
    match read_bad_blocks(&*device.source, sectors, superblock) {
        Ok(read) => document.bad_blocks = read.map(|ranges| ranges.iter().map(bad_range).collect()),
        Err(error) => document.unreadable.push(error.to_string()),
    }
    document
}

const fn role_name(role: Role) -> (&'static str, Option<u16>) {
    match role {
        Role::Slot(slot) => ("active", Some(slot)),
        Role::Spare => ("spare", None),
        Role::Faulty => ("faulty", None),
        Role::Journal => ("journal", None),
    }
}

fn array(superblock: &Superblock) -> ArrayDocument {
    let (created, updated) = match superblock {
        Superblock::V0(superblock) => (superblock.ctime_seconds.into(), superblock.utime_seconds.into()),
        Superblock::V1(superblock) => (superblock.ctime.seconds(), superblock.utime.seconds()),
    };
    let v1 = match superblock {
        Superblock::V0(_) => None,
        Superblock::V1(superblock) => Some(superblock.as_ref()),
    };
    let resync_offset_sectors = superblock.resync_offset_sectors();
    let is_clean = resync_offset_sectors == MAX_SECTOR;
    ArrayDocument {
        uuid: superblock.set_uuid().to_string(),
        name: v1.map(Superblock1::name),
        created_unix_seconds: created,
        updated_unix_seconds: updated,
        level: superblock.level().name(),
        layout: superblock.layout().map(|layout| layout.to_string()).filter(|name| name != "none"),
        raid_devices: superblock.raid_disks(),
        chunk_bytes: Some(u64::from(superblock.chunk_sectors()) * 512).filter(|bytes| *bytes > 0),
        member_size_bytes: bytes(superblock.size_sectors()).filter(|bytes| *bytes > 0),
        events: superblock.events(),
        state: if is_clean { "clean" } else { "active" },
        resync_offset_bytes: if is_clean { None } else { bytes(resync_offset_sectors) },
        roles: roles(superblock),
        features: v1.map_or_else(Vec::new, features),
        unsupported: v1.and_then(Superblock1::unsupported).map(|reason| reason.to_string()),
        reshape: reshape(superblock),
    }
}

/// Sectors as bytes, where they can be counted so.
fn bytes(sectors: u64) -> Option<u64> {
    sectors.checked_mul(512)
}

fn features(superblock: &Superblock1) -> Vec<String> {
    let names = superblock.features.to_string();
    names.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The roles of every device that has one; version 1 lists many more, all spare.
fn roles(superblock: &Superblock) -> Vec<RoleDocument> {
    let count = match superblock {
        Superblock::V0(superblock) => superblock.disks.len(),
        Superblock::V1(superblock) => superblock.dev_roles.len(),
    };
    let document = |device_number| {
        let (role, slot) = role_name(superblock.role_of(device_number));
        let is_own = device_number == superblock.dev_number();
        (role != "spare" || is_own).then_some(RoleDocument { device_number, role, slot })
    };
    (0..count as u32).filter_map(document).collect()
}

fn reshape(superblock: &Superblock) -> Option<ReshapeDocument> {
    match superblock {
        Superblock::V0(superblock) => superblock.reshape.map(|reshape| ReshapeDocument {
            position_bytes: reshape.position_sectors.saturating_mul(512),
            delta_devices: reshape.delta_disks,
            new_level: reshape.new_level,
            new_layout: reshape.new_layout,
            new_chunk_bytes: reshape.new_chunk_bytes.into(),
        }),
        Superblock::V1(superblock) => superblock.reshape().map(|reshape| ReshapeDocument {
            position_bytes: reshape.position_sectors.saturating_mul(512),
            delta_devices: reshape.delta_disks,
            new_level: reshape.new_level,
            new_layout: reshape.new_layout,
            new_chunk_bytes: u64::from(reshape.new_chunk_sectors) * 512,
        }),
    }
}

fn member(superblock: &Superblock, at_sector: u64) -> MemberDocument {
    let (role, slot) = role_name(superblock.role());
    let v1 = match superblock {
        Superblock::V0(_) => None,
        Superblock::V1(superblock) => Some(superblock.as_ref()),
    };
    let flags = superblock.device_flags();
    MemberDocument {
        device_number: superblock.dev_number(),
        role,
        slot,
        device_uuid: v1.map(|v1| v1.device_uuid.to_string()),
        data_offset_bytes: superblock.data_offset_sectors().saturating_mul(512),
        data_size_bytes: superblock.data_size_sectors(at_sector).saturating_mul(512),
        recovered_bytes: v1.and_then(Superblock1::recovered_sectors).and_then(bytes),
        journal_tail_bytes: v1.and_then(Superblock1::journal_tail_sectors).and_then(bytes),
        write_mostly: flags.is_write_mostly,
        failfast: flags.is_failfast,
        ppl: v1.and_then(Superblock1::ppl).map(|area| PplDocument {
            offset_sectors: area.offset_sectors,
            size_bytes: u64::from(area.size_sectors) * 512,
            multiple: area.multiple,
        }),
        bad_block_log_entries: v1
            .filter(|v1| v1.has_bad_block_log())
            .map(|v1| u64::from(v1.bblog_size_sectors) * 512 / 8),
    }
}

fn bitmap(head: &BitmapSuperblock, bits: &Bits, superblock: &Superblock) -> BitmapDocument {
    let uuid = match superblock {
        Superblock::V0(_) => head.uuid.with_words_reversed(),
        Superblock::V1(_) => head.uuid,
    };
    BitmapDocument {
        version: head.version as u32,
        uuid: uuid.to_string(),
        events: head.events,
        events_cleared: head.events_cleared,
        chunk_bytes: head.chunk_bytes,
        sync_size_bytes: head.sync_size_sectors.saturating_mul(512),
        daemon_sleep_seconds: head.daemon_sleep_seconds,
        write_behind: head.write_behind,
        chunks: bits.count(),
        dirty_chunks: bits.dirty_count(),
    }
}

fn bad_range(range: &BadRange) -> BadRangeDocument {
    BadRangeDocument {
        start_bytes: range.start_sector.saturating_mul(512),
        length_bytes: range.length_sectors.saturating_mul(512),
    }
}
