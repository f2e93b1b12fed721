//! What `create` says when it is done.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;
use stripewise_format::create::{Label, NewArray, Request, Start};
use stripewise_format::examine::human_size;
use stripewise_format::placement::Consistency;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::Role;

use super::CreateArgs;
use crate::output::{print as print_text, print_json};

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    uuid: String,
    name: Option<String>,
    metadata: &'static str,
    level: &'static str,
    layout: Option<String>,
    raid_devices: u32,
    spare_devices: usize,
    chunk_bytes: Option<u64>,
    member_size_bytes: Option<u64>,
    array_size_bytes: u64,
    consistency_policy: &'static str,
    bitmap_chunk_bytes: Option<u32>,
    start: &'static str,
    members: Vec<Member>,
    overlay: Option<String>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Member {
    path: String,
    number: u32,
    slot: Option<u16>,
    role: &'static str,
    device_uuid: Option<String>,
    superblock_offset_bytes: u64,
    data_offset_bytes: u64,
    data_size_bytes: u64,
    write_mostly: bool,
    failfast: bool,
}

pub(super) fn print(args: &CreateArgs, request: &Request, array: &NewArray) -> Result<()> {
    let document = document(args, request, array);
    if args.json {
        return print_json(&document);
    }
    for warning in &document.warnings {
        say!("stripewise: {warning}");
    }
    print_text(&text(&document, array.start))
}

fn document(args: &CreateArgs, request: &Request, array: &NewArray) -> Document {
    let plan = &array.plan;
    let member = |label: &Label| member(args, label);
    let name = array.labels.first().and_then(|label| match &label.superblock {
        Superblock::V0(_) => None,
        Superblock::V1(superblock) => Some(superblock.name()),
    });
    Document {
        schema: "stripewise.create/1",
        uuid: request.set_uuid.to_string(),
        name,
        metadata: plan.metadata.name(),
        level: plan.level.name(),
        layout: array
            .labels
            .first()
            .and_then(|label| label.superblock.layout())
            .map(|layout| layout.to_string())
            .filter(|name| name != "none"),
        raid_devices: plan.raid_disks,
        spare_devices: array.labels.iter().filter(|label| role(label) == "spare").count(),
        chunk_bytes: Some(u64::from(plan.chunk_sectors) * 512).filter(|bytes| *bytes > 0),
        member_size_bytes: Some(array.size_sectors * 512).filter(|bytes| *bytes > 0),
        array_size_bytes: array.array_bytes(),
        consistency_policy: match plan.consistency {
            Consistency::Bitmap { .. } => "bitmap",
            Consistency::Ppl => "ppl",
            Consistency::Resync if request.journal.is_some() => "journal",
            Consistency::Resync if plan.level.parity_count() == 0 && array.size_sectors == 0 => "none",
            Consistency::Resync => "resync",
        },
        bitmap_chunk_bytes: array.bitmap_chunk_bytes,
        start: array.start.name(),
        members: array.labels.iter().map(member).collect(),
        overlay: args.overlay.as_ref().map(|path| path.display().to_string()),
        warnings: args.warnings(array),
    }
}

fn member(args: &CreateArgs, label: &Label) -> Member {
    let superblock = &label.superblock;
    let at_sector = label.superblock_area.at_sector;
    let flags = superblock.device_flags();
    Member {
        path: args.path(label.member).display().to_string(),
        number: superblock.dev_number(),
        slot: label.slot,
        role: role(label),
        device_uuid: match superblock {
            Superblock::V0(_) => None,
            Superblock::V1(superblock) => Some(superblock.device_uuid.to_string()),
        },
        superblock_offset_bytes: at_sector * 512,
        data_offset_bytes: superblock.data_offset_sectors() * 512,
        data_size_bytes: superblock.data_size_sectors(at_sector) * 512,
        write_mostly: flags.is_write_mostly,
        failfast: flags.is_failfast,
    }
}

/// What a device is to the array.
fn role(label: &Label) -> &'static str {
    match (label.slot, label.superblock.role()) {
        (Some(_), _) => "active",
        (None, Role::Journal) => "journal",
        (None, _) => "spare",
    }
}

fn text(document: &Document, start: Start) -> String {
    let mut text = format!("created a {} array of {} raid devices", document.level, document.raid_devices);
    if document.spare_devices > 0 && start != Start::Recovery {
        let _ = write!(text, " and {} spares", document.spare_devices);
    }
    let kib = document.array_size_bytes / 1024;
    let _ = writeln!(text, ": {kib}K{}", human_size(document.array_size_bytes));
    let _ = writeln!(text, "    UUID : {}", document.uuid);
    if let Some(name) = &document.name {
        let _ = writeln!(text, "    Name : {name}");
    }
    let next = match start {
        Start::Clean => "nothing; the array is taken as in sync",
        Start::Resync => "a resync when it is assembled",
        Start::Recovery => "a recovery onto a spare when it is assembled",
        Start::Degraded => "members for the missing slots",
    };
    let _ = writeln!(text, "    Due  : {next}");
    if let Some(overlay) = &document.overlay {
        let _ = writeln!(text, " Overlay : {overlay}; no member is changed");
    }
    text
}
