//! What a server says of its array while it runs.

use std::path::PathBuf;

use serde_json::{Value, json};
use stripewise_engine::array::members::Standing;
use stripewise_engine::array::sync::SyncStatus;
use stripewise_engine::assembly::{Candidate, Options, SlotState};
use stripewise_engine::io::SyncAction;
use stripewise_engine::units::Slot;
use stripewise_format::device_flags::DeviceFlags;
use stripewise_host::md::assemble::Assembled;
use stripewise_host::{ArrayStatus, MemberStatus, ServeStatus};

use super::checks::Checks;
use super::found::{is_cut, places, range_json};
use crate::array::describe::{FAILED, describe};

/// Where a device's length does not matter: what lies on it was checked when it came in.
const LENGTH_UNKNOWN: u64 = u64::MAX >> 10;

/// The document of an array that was assembled once and has been managed since.
pub(crate) fn document(
    schema: &'static str,
    assembled: &Assembled,
    status: &ServeStatus,
    checks: &Checks,
    readonly: bool,
) -> Value {
    let array = &status.array;
    let now = as_it_is(assembled, array);
    let description = match &now {
        Some(now) => describe(schema, now, &failed_in_slots(now, array)),
        None => describe(schema, assembled, &status.failed),
    };
    let mut value = serde_json::to_value(description).unwrap_or_default();
    if now.is_some() {
        correct(&mut value, array);
    }
    name_errors(&mut value, array);
    value["server"] = serde_json::from_str(&status.to_json()).unwrap_or_default();
    value["cache"] = status.cache_json();
    value["sync"] = array.sync.as_ref().map_or(Value::Null, |sync| sync_json(sync, array));
    value["last_check"] = checks.to_json();
    value["readonly"] = readonly.into();
    value["lost"] = Value::Array(array.lost.ranges.iter().copied().map(range_json).collect());
    value["lost_is_cut"] = array.lost.is_cut.into();
    value
}

/// The array as its superblocks have it now. A member that failed may have none: a replacement that was given up is in no slot.
fn as_it_is(assembled: &Assembled, array: &ArrayStatus) -> Option<Assembled> {
    let mut found = assembled.found.clone();
    found.paths.clear();
    found.candidates.clear();
    for member in &array.members {
        let Some(metadata) = member.metadata.clone() else {
            if member.standing == Standing::Failed {
                continue;
            }
            return None;
        };
        let path: PathBuf = member.path.clone()?;
        found.candidates.push(Candidate {
            label: path.display().to_string(),
            device_sectors: LENGTH_UNKNOWN,
            at_sector: metadata.sector,
            superblock: metadata.superblock,
            bitmap: None,
        });
        found.paths.push(path);
    }
    if found.candidates.is_empty() {
        return None;
    }
    // The journal of an array that is only read is as it was.
    let has_journal = array.members.iter().any(|member| member.standing == Standing::Journal);
    if let Some(candidate) = assembled.assembly.journal_device().filter(|_| !has_journal) {
        found.candidates.push(assembled.found.candidates[candidate].clone());
        found.paths.push(assembled.found.paths[candidate].clone());
    }
    let options = Options { run: true, readonly: true, ..Options::default() };
    found.assemble(options).ok()
}

/// Slots whose member has failed though the superblocks know nothing of it: those of an array that has lost too much are not
/// written any more.
fn failed_in_slots(now: &Assembled, array: &ArrayStatus) -> Vec<Slot> {
    let is_failed = |path: &PathBuf| {
        array.members.iter().any(|m| m.standing == Standing::Failed && m.path.as_ref() == Some(path))
    };
    let has_failed =
        |state: &SlotState| state.candidate().is_some_and(|candidate| is_failed(&now.found.paths[candidate]));
    (0..)
        .map(Slot)
        .zip(&now.assembly.slots)
        .filter(|(_, state)| has_failed(state))
        .map(|(slot, _)| slot)
        .collect()
}

/// What the superblocks do not say: how far a recovery is at this moment, and which members have failed.
fn correct(value: &mut Value, array: &ArrayStatus) {
    if let Some(states) = value["state"].as_array_mut() {
        // An array that is written to is not clean, and would be resynced if it were found so.
        states.retain(|state| state != "resyncing" && state != "recovering");
        let is_failed = states.contains(&FAILED.into());
        let at_work = match array.sync.as_ref().map(|sync| sync.action) {
            _ if is_failed => None,
            _ if array.is_broken => Some("broken"),
            Some(SyncAction::Resync) => Some("resyncing"),
            Some(SyncAction::Recover) => Some("recovering"),
            _ => None,
        };
        states.extend(at_work.map(Value::from));
    }
    let mut failed = 0;
    for member in &array.members {
        let Some(path) = member.path.as_ref().map(|path| path.display().to_string()) else { continue };
        let Some(devices) = value["devices"].as_array_mut() else { return };
        if let (Some(filled), Some(row)) =
            (member.filled_sectors, devices.iter_mut().find(|row| row["path"] == path))
        {
            row["recovered_bytes"] = filled.saturating_mul(512).into();
        }
        if let Standing::InSlot(slot) = member.standing {
            seat(devices, &path, slot);
        }
        if member.standing == Standing::Failed && !devices.iter().any(|row| row["path"] == path) {
            let known = member.metadata.as_ref().map(|known| known.superblock.dev_number());
            let number = known.filter(|number| !is_taken(devices, *number));
            let events = member.metadata.as_ref().map(|known| known.superblock.events());
            let flags = member.metadata.as_ref().map(|known| known.superblock.device_flags());
            let DeviceFlags { is_write_mostly, is_failfast } = flags.unwrap_or_default();
            devices.push(json!({
                "number": number, "slot": null, "path": path, "state": "faulty",
                "write_mostly": is_write_mostly, "failfast": is_failfast, "replacement": false,
                "recovered_bytes": null, "events": events,
            }));
            failed += 1;
            if let Some(left_out) = value["left_out"].as_array_mut() {
                left_out.retain(|row| row["path"] != path);
            }
        }
    }
    let count = |field: &str| value[field].as_u64().unwrap_or(0);
    let (total, before) = (count("total_devices"), count("failed_devices"));
    value["failed_devices"] = (before + failed).into();
    value["total_devices"] = (total + failed).into();
    if array.has_journal_failed {
        fail_journal(value);
    }
}

/// The superblocks go on naming a journal that failed.
fn fail_journal(value: &mut Value) {
    let devices = value["devices"].as_array_mut();
    let Some(row) = devices.and_then(|rows| rows.iter_mut().find(|row| row["state"] == "journal")) else {
        return;
    };
    row["state"] = "faulty journal".into();
    let count = |field: &str| value[field].as_u64().unwrap_or(0);
    let (working, failed) = (count("working_devices"), count("failed_devices"));
    value["working_devices"] = working.saturating_sub(1).into();
    value["failed_devices"] = (failed + 1).into();
}

/// Says of each device for which error it is out of use.
fn name_errors(value: &mut Value, array: &ArrayStatus) {
    for row in value["devices"].as_array_mut().into_iter().flatten() {
        let of_row = |member: &&MemberStatus| {
            member.path.as_ref().is_some_and(|path| row["path"] == path.display().to_string())
        };
        let error = array.members.iter().find(of_row).and_then(|member| member.error);
        row["error"] = error.map_or(Value::Null, |error| error.to_string().into());
    }
}

/// Whether another device has a number: with 0.90 it is the slot's, and goes to the member that takes the slot.
fn is_taken(devices: &[Value], number: u32) -> bool {
    devices.iter().any(|row| row["number"] == number)
}

/// Shows a member in the slot that it is filled for. Superblocks of 0.90 call it a spare until that is done.
fn seat(devices: &mut Vec<Value>, path: &str, slot: Slot) {
    let Some(at) = devices.iter().position(|row| row["path"] == path && row["state"] == "spare") else {
        return;
    };
    let mut row = devices.remove(at);
    (row["slot"], row["state"]) = (slot.0.into(), "spare rebuilding".into());
    match devices.iter_mut().find(|row| row["slot"] == slot.0 && row["state"] == "removed") {
        Some(place) => *place = row,
        None => devices.push(row),
    }
}

pub(crate) fn sync_json(sync: &SyncStatus, array: &ArrayStatus) -> Value {
    let is_working = !matches!(sync.action, SyncAction::Idle | SyncAction::Frozen);
    let left_kib = sync.total_sectors.saturating_sub(sync.done_sectors) / 2;
    let percent = sync.done_sectors as f64 * 100.0 / sync.total_sectors.max(1) as f64;
    json!({
        "action": sync.action.word(),
        "done_bytes": sync.done_sectors * 512,
        "total_bytes": sync.total_sectors * 512,
        "percent": is_working.then_some((percent * 10.0).round() / 10.0),
        "speed_kib_per_second": sync.speed_kib,
        "eta_seconds": if is_working { left_kib.checked_div(sync.speed_kib) } else { None },
        "mismatch_sectors": sync.mismatch_sectors,
        "unread_sectors": sync.unread_sectors,
        "mismatches": places(&sync.mismatches),
        "is_cut": is_cut(sync),
        "speed_min_kib": array.speed.map(|speed| speed.min_kib),
        "speed_max_kib": array.speed.map(|speed| speed.max_kib),
    })
}

#[cfg(test)]
mod tests {
    use stripewise_engine::io::{IoError, Op};
    use stripewise_engine::metadata::MemberMetadata;
    use stripewise_format::level::Level;
    use stripewise_format::superblock::Superblock;
    use stripewise_format::superblock_1::Superblock1;
    use stripewise_format::uuid::Uuid;
    use stripewise_host::MemberError;

    use super::*;

    #[test]
    fn a_member_that_failed_has_no_number_that_another_has() {
        let superblock = |number| {
            let mut superblock = Superblock1::new(Level::Raid1, 2, 0, Uuid([7; 16]));
            superblock.dev_number = number;
            Superblock::V1(Box::new(superblock))
        };
        let failed = |number: u32| MemberStatus {
            path: Some(format!("m{number}").into()),
            standing: Standing::Failed,
            filled_sectors: None,
            metadata: Some(MemberMetadata { superblock: superblock(number), sector: 8, bad_blocks: None }),
            error: None,
        };
        let array = ArrayStatus { members: vec![failed(0), failed(3)], ..ArrayStatus::default() };
        let mut value = json!({"devices": [{"number": 0, "slot": 0, "path": "m5", "state": "active sync"}]});
        correct(&mut value, &array);
        let numbers: Vec<&Value> =
            value["devices"].as_array().unwrap().iter().map(|row| &row["number"]).collect();
        assert_eq!(numbers, [&json!(0), &Value::Null, &json!(3)]);
    }

    #[test]
    fn a_journal_that_failed_is_faulty_and_counted_and_the_array_broken() {
        let error = MemberError { op: Op::Write, sector: Some(8), error: IoError::Gone };
        let journal = MemberStatus {
            path: Some("j".into()),
            standing: Standing::Journal,
            filled_sectors: None,
            metadata: None,
            error: Some(error),
        };
        let array = ArrayStatus {
            members: vec![journal],
            is_broken: true,
            has_journal_failed: true,
            ..ArrayStatus::default()
        };
        let mut value = json!({
            "state": ["clean"], "working_devices": 2, "failed_devices": 0, "total_devices": 2,
            "devices": [{"slot": 0, "path": "a", "state": "active sync"}, {"slot": null, "path": "j", "state": "journal"}],
        });
        correct(&mut value, &array);
        name_errors(&mut value, &array);
        assert_eq!(value["state"], json!(["clean", "broken"]));
        assert_eq!(value["devices"][1]["state"], "faulty journal");
        let errors = [0, 1].map(|row| value["devices"][row]["error"].clone());
        assert_eq!(errors, [Value::Null, error.to_string().into()]);
        let counts = ["working_devices", "failed_devices", "total_devices"].map(|count| value[count].clone());
        assert_eq!(counts, [1, 1, 2].map(Value::from));
    }

    #[test]
    fn a_spare_that_is_filled_is_shown_in_its_slot() {
        let row = |slot: Option<u16>, path: Option<&str>, state: &str| json!({"slot": slot, "path": path, "state": state});
        let mut devices = vec![
            row(Some(0), Some("a"), "active sync"),
            row(Some(1), None, "removed"),
            row(Some(2), Some("c"), "active sync"),
            row(None, Some("d"), "spare"),
            row(None, Some("e"), "spare"),
        ];
        for (path, slot) in [("a", 0), ("c", 2), ("d", 1)] {
            seat(&mut devices, path, Slot(slot));
        }
        assert_eq!(devices[1], row(Some(1), Some("d"), "spare rebuilding"));
        assert_eq!((devices.len(), &devices[3]), (4, &row(None, Some("e"), "spare")));
        assert_eq!(devices[0], row(Some(0), Some("a"), "active sync"));
    }
}
