//! `stripewise grow --control`: a server changes its array.

use std::path::Path;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use stripewise_engine::units::SECTOR_BYTES;
use stripewise_format::level::Level;
use stripewise_host::md::grow::{BitmapChange, Change, Policy};

use super::super::manage::{ask, detail};
use super::super::select::impossible;
use super::{Array, Document, GrowArgs};
use crate::exit::Exit;
use crate::output::{print, print_json};

pub(super) fn run(args: &GrowArgs, socket: &Path, change: Change) -> Result<Exit> {
    let named = !args.members.is_empty()
        || args.scan.is_some()
        || args.uuid.is_some()
        || args.name.is_some()
        || args.run
        || !args.destroy.is_empty();
    if named {
        return Err(impossible(
            "--control: the server has its members; leave out MEMBER, --scan, --uuid, --name, --run and --destroy",
        ));
    }
    let reshapes = args.resume
        || args.chunk.is_some()
        || args.layout.is_some()
        || args.level.is_some()
        || args.array_size.is_some()
        || !args.add.is_empty();
    if reshapes {
        return Err(impossible(
            "--control: a served array has --bitmap, --size, --consistency-policy and, as a raid1, --raid-devices changed; stop the \
             server for any other change",
        ));
    }
    let answer = ask(socket, &line(change))?;
    let done = answer["done"].as_str().ok_or_else(|| anyhow!("unexpected answer of the server: {answer}"))?;
    if args.json {
        let detail = detail(socket)?;
        let text = |field: &str| detail[field].as_str().unwrap_or_default().to_owned();
        let level = text("level").parse::<Level>().map_or("", Level::name);
        let members = detail["devices"].as_array().into_iter().flatten();
        let members = members.filter(|device| device["path"].is_string()).count();
        let array = Array::named(text("uuid"), text("name"), level, members);
        print_json(&Document { array, said: done.lines().map(str::to_owned).collect(), reshape: None })?;
    } else {
        print(&format!("{done}\n"))?;
    }
    Ok(Exit::Done)
}

fn line(change: Change) -> Value {
    match change {
        Change::Bitmap(BitmapChange::None) => json!({ "command": "grow", "bitmap": "none" }),
        Change::Bitmap(BitmapChange::Internal { chunk_bytes }) => {
            json!({ "command": "grow", "bitmap": "internal", "bitmap_chunk_bytes": chunk_bytes })
        }
        Change::Size { asked_sectors, assume_clean } => {
            let bytes = asked_sectors.map_or_else(|| json!("max"), |sectors| json!(sectors * SECTOR_BYTES));
            json!({ "command": "grow", "size_bytes": bytes, "assume_clean": assume_clean })
        }
        Change::RaidDevices { asked, force } => {
            json!({ "command": "grow", "raid_devices": asked, "force": force })
        }
        Change::Policy(policy) => {
            let policy = match policy {
                Policy::Resync => "resync",
                Policy::Ppl => "ppl",
            };
            json!({ "command": "grow", "consistency_policy": policy })
        }
    }
}
