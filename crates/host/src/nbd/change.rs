//! Changing a served array as an idle one is changed, while requests wait.
//!
//! # Contract
//! *Ordering.* A change begins when nothing is under way with the members; what clients sent meanwhile, and sectors of long requests
//! that are not yet zeroed or discarded, wait and are carried out by the changed array. *Failure.* What is refused is refused while the
//! array is open, and leaves it as it was. What was written is flushed first; if that fails, or the array cannot be opened again of
//! the same files, the server ends: its clients are let go of, and their requests have no answers. A member that fails meanwhile is
//! told of, and the array opened again unchanged. *Size.* Clients that have chosen the export before go on with the size that it
//! had, though they are not refused what is beyond; who comes later, and who looks at a mounted file, sees the new one.

use std::path::PathBuf;

use serde_json::Value;
use stripewise_engine::units::SECTOR_BYTES;

use super::control::flag;
use crate::array::Array;
use crate::manage::ArrayStatus;
use crate::md::grow::{BitmapChange, Change, Policy};
use crate::md::paths::Identity;

/// Who changes a server's array.
pub trait Changer {
    /// Why an open array is not to be changed so. Nothing is done then.
    fn refusal(&mut self, array: &Array, change: Change) -> Option<String>;

    /// Changes the closed array, if that is still asked for, and opens it again; `closed` is how it was closed.
    fn reopen(&mut self, closed: &ArrayStatus, change: Option<Change>) -> Reopened;
}

/// An array that was closed to be changed.
#[derive(Debug)]
pub struct Reopened {
    /// It is open again. None if it cannot be.
    pub array: Option<Array>,
    /// What was done, or why nothing was. If the array cannot be opened again, why.
    pub said: Result<String, String>,
}

/// What who asked is told.
#[derive(Debug)]
pub(crate) enum Said {
    Done(String),
    /// The array is served on as it was.
    Refused(String),
    /// The array is not served on.
    Failed(String),
}

/// The files and devices that an array has open, to be found again where they were.
#[derive(Debug)]
pub(crate) struct Held(Vec<(PathBuf, Option<Identity>)>);

impl Held {
    pub(crate) fn by(array: &Array) -> Self {
        let members = array.first().members().iter().filter_map(|member| member.file());
        Self(members.map(|file| (file.path().to_owned(), Identity::of_file(file.buffered()))).collect())
    }

    /// The first that its path does not lead to.
    pub(crate) fn misplaced(&self) -> Option<String> {
        let is_elsewhere =
            |(path, held): &&(PathBuf, Option<Identity>)| held.is_none() || *held != Identity::at(path);
        self.0.iter().find(is_elsewhere).map(|(path, _)| told(path))
    }

    /// The first that another array has another one of.
    pub(crate) fn other(&self, now: &Self) -> Option<String> {
        let is_other = |(path, held): &&(PathBuf, Option<Identity>)| {
            now.0.iter().any(|(now_path, now)| now_path == path && now != held)
        };
        self.0.iter().find(is_other).map(|(path, _)| told(path))
    }
}

fn told(path: &std::path::Path) -> String {
    format!("{}: the member is not there any more, or another file is; put it back first", path.display())
}

/// A change that a client of the control socket waits for.
#[derive(Debug)]
pub(crate) struct AskedChange {
    pub(crate) change: Change,
    /// The client's place.
    pub(crate) control: usize,
}

/// Reads what is to become of the array.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(value: &Value) -> Result<Change, String> {
    let asked = |name: &str| value.get(name).filter(|value| !value.is_null());
    let changes = ["bitmap", "size_bytes", "raid_devices", "consistency_policy"];
    let count = changes.iter().filter(|name| asked(name).is_some()).count();
    if count != 1 {
        return Err(format!("\"grow\" is one change, with one of {changes:?}; {count} are given"));
    }
    if let Some(bitmap) = asked("bitmap") {
        return Ok(Change::Bitmap(match bitmap.as_str() {
            Some("internal") => {
                BitmapChange::Internal { chunk_bytes: asked("bitmap_chunk_bytes").map(chunk).transpose()? }
            }
            Some("none") => BitmapChange::None,
            _ => return Err("\"bitmap\" is \"internal\" or \"none\"".to_owned()),
        }));
    }
    if let Some(size) = asked("size_bytes") {
        let asked_sectors = size.as_u64().map(|bytes| bytes / SECTOR_BYTES);
        if asked_sectors.is_none() && size.as_str() != Some("max") {
            return Err("\"size_bytes\" is a number of bytes, or \"max\"".to_owned());
        }
        return Ok(Change::Size { asked_sectors, assume_clean: flag(value, "assume_clean")? });
    }
    if let Some(devices) = asked("raid_devices") {
        let devices = devices.as_u64().and_then(|devices| u32::try_from(devices).ok());
        let asked = devices.filter(|devices| *devices > 0).ok_or("\"raid_devices\" is a number from 1 on")?;
        return Ok(Change::RaidDevices { asked, force: flag(value, "force")? });
    }
    Ok(Change::Policy(match value["consistency_policy"].as_str() {
        Some("ppl") => Policy::Ppl,
        Some("resync") => Policy::Resync,
        _ => return Err("\"consistency_policy\" is \"resync\" or \"ppl\"".to_owned()),
    }))
}

/// What a bit may stand for otherwise is known to who places the bitmap.
fn chunk(value: &Value) -> Result<u32, String> {
    let bytes = value.as_u64().and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| "\"bitmap_chunk_bytes\" is a number of bytes below 2^32".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_change_is_read_and_anything_else_is_explained() {
        let internal = |chunk_bytes| Change::Bitmap(BitmapChange::Internal { chunk_bytes });
        let size = |asked_sectors, assume_clean| Change::Size { asked_sectors, assume_clean };
        for (asked, change) in [
            (json!({"bitmap": "internal", "size_bytes": null}), internal(None)),
            (json!({"bitmap": "internal", "bitmap_chunk_bytes": 131_072}), internal(Some(128 << 10))),
            (json!({"bitmap": "none"}), Change::Bitmap(BitmapChange::None)),
            (json!({"size_bytes": "max"}), size(None, false)),
            (json!({"size_bytes": 65_536, "assume_clean": true}), size(Some(128), true)),
            (json!({"raid_devices": 3}), Change::RaidDevices { asked: 3, force: false }),
            (json!({"raid_devices": 1, "force": true}), Change::RaidDevices { asked: 1, force: true }),
            (json!({"consistency_policy": "ppl"}), Change::Policy(Policy::Ppl)),
            (json!({"consistency_policy": "resync"}), Change::Policy(Policy::Resync)),
        ] {
            assert_eq!(parse(&asked), Ok(change), "{asked}");
        }
        for asked in [
            json!({}),
            json!({"bitmap": "none", "raid_devices": 3}),
            json!({"bitmap": "external"}),
            json!({"bitmap": "internal", "bitmap_chunk_bytes": 1_u64 << 32}),
            json!({"size_bytes": -1}),
            json!({"size_bytes": "all"}),
            json!({"size_bytes": 64, "assume_clean": 1}),
            json!({"raid_devices": 0}),
            json!({"raid_devices": 1_u64 << 32}),
            json!({"consistency_policy": "journal"}),
        ] {
            assert!(parse(&asked).is_err_and(|why| !why.is_empty()), "{asked}");
        }
    }
}
