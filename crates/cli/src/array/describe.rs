//! What is said of an array: one document for `detail`, `assemble` and a server's control socket.

use serde::Serialize;
use stripewise_engine::assembly::{Consistency, SlotState};
use stripewise_engine::geometry::Geometry;
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::units::Slot;
use stripewise_format::superblock::Superblock;
use stripewise_host::md::assemble::Assembled;

/// An array as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Description {
    pub(crate) schema: &'static str,
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) metadata: &'static str,
    pub(crate) level: &'static str,
    pub(crate) layout: Option<String>,
    pub(crate) chunk_bytes: Option<u64>,
    pub(crate) rounding_bytes: Option<u64>,
    pub(crate) preferred_minor: Option<u32>,
    pub(crate) array_bytes: u64,
    pub(crate) used_device_bytes: Option<u64>,
    pub(crate) creation_time_unix_seconds: u64,
    pub(crate) update_time_unix_seconds: u64,
    pub(crate) events: u64,
    pub(crate) consistency_policy: &'static str,
    pub(crate) is_clean: bool,
    pub(crate) resync_offset_bytes: Option<u64>,
    /// `clean` or `active`, then `degraded` or `FAILED`, then `recovering` or `resyncing`.
    pub(crate) state: Vec<&'static str>,
    pub(crate) sync: Option<SyncDue>,
    pub(crate) raid_devices: usize,
    pub(crate) total_devices: usize,
    pub(crate) active_devices: usize,
    pub(crate) working_devices: usize,
    pub(crate) failed_devices: usize,
    pub(crate) spare_devices: usize,
    pub(crate) devices: Vec<Device>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// A recovery or resync that is not at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SyncDue {
    /// md's `sync_action`.
    pub(crate) action: &'static str,
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) percent: u64,
}

/// A row of the table of devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Device {
    pub(crate) number: Option<u32>,
    pub(crate) slot: Option<u16>,
    pub(crate) path: Option<String>,
    /// `active sync`, `spare rebuilding`, `spare`, `journal`, `removed`, `faulty`.
    pub(crate) state: &'static str,
    /// Reads go to others as long as they can.
    pub(crate) write_mostly: bool,
    pub(crate) failfast: bool,
    pub(crate) replacement: bool,
    pub(crate) recovered_bytes: Option<u64>,
    pub(crate) events: Option<u64>,
}

/// A device of the array that is not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) path: String,
    pub(crate) reason: String,
    pub(crate) re_addable_slot: Option<u16>,
}

/// Of an array that has lost more than it survives; nothing works on it.
pub(super) const FAILED: &str = "FAILED";

/// Describes an array of which some slots have failed since it was opened.
pub(crate) fn describe(schema: &'static str, assembled: &Assembled, failed: &[Slot]) -> Description {
    let Assembled { found, assembly, .. } = assembled;
    let superblock = &found.candidates[assembly.freshest].superblock;
    let geometry = Geometry::new(&assembly.geometry).expect("an assembly's geometry is possible");
    let level = geometry.level();
    let mut devices: Vec<Device> = (0..)
        .map(Slot)
        .zip(&assembly.slots)
        .map(|(slot, state)| slot_row(assembled, slot, *state, failed.contains(&slot)))
        .collect();
    for replacement in &assembly.replacements {
        let state = if replacement.offset_sectors == u64::MAX { "active sync" } else { "spare rebuilding" };
        let row = row(assembled, replacement.candidate, Some(replacement.slot), state);
        devices.push(Device { replacement: true, ..row });
    }
    devices.extend(assembly.spares.iter().map(|spare| row(assembled, *spare, None, "spare")));
    devices.extend(assembly.journal_device().map(|journal| row(assembled, journal, None, "journal")));
    let count = |state: &str| devices.iter().filter(|d| d.state == state && !d.replacement).count();
    let (active, rebuilding) = (count("active sync"), count("spare rebuilding"));
    let failed_count = count("faulty");
    let extra = devices.iter().filter(|d| d.replacement).count();
    let spare = count("spare") + rebuilding + extra;
    let working = active + spare + count("journal");
    let mut state = states(assembled, &geometry, &devices);
    let sync = if state.contains(&FAILED) { None } else { sync_due(assembled, &geometry) };
    state.extend(sync.as_ref().map(|sync| if sync.action == "recover" { "recovering" } else { "resyncing" }));
    Description {
        schema,
        name: assembly.name.clone(),
        uuid: assembly.uuid.to_string(),
        metadata: assembly.metadata.name(),
        level: level.name(),
        layout: (geometry.layout() != Layout::None).then(|| geometry.layout().to_string()),
        chunk_bytes: level.has_chunks().then(|| geometry.chunk_sectors() * 512),
        rounding_bytes: (level == Level::Linear).then(|| assembly.geometry.chunk_sectors * 512),
        preferred_minor: match superblock {
            Superblock::V0(superblock) => Some(superblock.md_minor),
            Superblock::V1(_) => None,
        },
        array_bytes: geometry.array_sectors() * 512,
        // One that Linux took over from another level has its size yet, which says nothing any more.
        used_device_bytes: (superblock.size_sectors() > 0 && !matches!(level, Level::Raid0 | Level::Linear))
            .then(|| superblock.size_sectors() * 512),
        creation_time_unix_seconds: times(superblock).0,
        update_time_unix_seconds: times(superblock).1,
        events: assembly.events,
        consistency_policy: policy(assembly.consistency),
        is_clean: assembly.is_clean,
        resync_offset_bytes: (!assembly.is_clean).then(|| assembly.resync_offset_sectors.saturating_mul(512)),
        state,
        sync,
        raid_devices: assembly.slots.len(),
        total_devices: working + failed_count,
        active_devices: active,
        working_devices: working,
        failed_devices: failed_count,
        spare_devices: spare,
        devices,
        left_out: left_out(assembled),
    }
}

/// What was begun and is to be gone on with; a spare that has not begun yet is a spare.
fn sync_due(assembled: &Assembled, geometry: &Geometry) -> Option<SyncDue> {
    let assembly = &assembled.assembly;
    let filled = |state: &SlotState| match *state {
        SlotState::Recovering { offset_sectors, .. } => Some(offset_sectors),
        SlotState::InSync { .. } | SlotState::Missing => None,
    };
    let replaced = assembly.replacements.iter().map(|replacement| replacement.offset_sectors);
    let recovered = assembly.slots.iter().filter_map(filled).chain(replaced).min();
    let member_sectors = geometry.used_sectors(Slot(0));
    let (action, done, total) = match recovered {
        Some(done) => ("recover", done, member_sectors),
        None if assembly.resync_offset_sectors == u64::MAX => return None,
        None if geometry.level() == Level::Raid10 => {
            ("resync", assembly.resync_offset_sectors, geometry.array_sectors())
        }
        None => ("resync", assembly.resync_offset_sectors, member_sectors),
    };
    let done = done.min(total);
    let percent = (u128::from(done) * 100).checked_div(total.into()).unwrap_or(0) as u64;
    Some(SyncDue { action, done_bytes: done * 512, total_bytes: total * 512, percent })
}

fn states(assembled: &Assembled, geometry: &Geometry, devices: &[Device]) -> Vec<&'static str> {
    use stripewise_engine::array::{slots::SlotSet, survives};
    let lost: SlotSet = devices
        .iter()
        .filter(|d| !d.replacement && d.state != "active sync")
        .filter_map(|d| d.slot.map(Slot))
        .collect();
    let mut states = vec![if assembled.assembly.is_clean { "clean" } else { "active" }];
    if !survives(geometry, lost) {
        states.push(FAILED);
    } else if !lost.is_empty() {
        states.push("degraded");
    }
    states
}

fn slot_row(assembled: &Assembled, slot: Slot, state: SlotState, has_failed: bool) -> Device {
    match state {
        SlotState::Missing => Device {
            number: None,
            slot: Some(slot.0),
            path: None,
            state: "removed",
            write_mostly: false,
            failfast: false,
            replacement: false,
            recovered_bytes: None,
            events: None,
        },
        SlotState::InSync { candidate } | SlotState::Recovering { candidate, .. } if has_failed => {
            row(assembled, candidate, Some(slot), "faulty")
        }
        SlotState::InSync { candidate } => row(assembled, candidate, Some(slot), "active sync"),
        SlotState::Recovering { candidate, .. } => row(assembled, candidate, Some(slot), "spare rebuilding"),
    }
}

fn row(assembled: &Assembled, candidate: usize, slot: Option<Slot>, state: &'static str) -> Device {
    let superblock = &assembled.found.candidates[candidate].superblock;
    let recovered = match superblock {
        Superblock::V0(_) => None,
        Superblock::V1(superblock) => superblock.recovered_sectors(),
    };
    let flags = superblock.device_flags();
    Device {
        number: Some(superblock.dev_number()),
        slot: slot.map(|slot| slot.0),
        path: Some(assembled.found.paths[candidate].display().to_string()),
        state,
        write_mostly: flags.is_write_mostly,
        failfast: flags.is_failfast,
        replacement: false,
        recovered_bytes: recovered.map(|sectors| sectors.saturating_mul(512)),
        events: Some(superblock.events()),
    }
}

fn left_out(assembled: &Assembled) -> Vec<LeftOut> {
    let stale = assembled.assembly.stale.iter().map(|stale| LeftOut {
        path: assembled.found.paths[stale.candidate].display().to_string(),
        reason: stale.why.to_string(),
        re_addable_slot: stale.re_addable.map(|slot| slot.0),
    });
    let skipped = assembled.found.skipped.iter().map(|skipped| LeftOut {
        path: skipped.path.display().to_string(),
        reason: skipped.why.clone(),
        re_addable_slot: None,
    });
    stale.chain(skipped).collect()
}

/// When the array was created and when its superblocks were last written.
fn times(superblock: &Superblock) -> (u64, u64) {
    match superblock {
        Superblock::V0(superblock) => (superblock.ctime_seconds.into(), superblock.utime_seconds.into()),
        Superblock::V1(superblock) => (superblock.ctime.seconds(), superblock.utime.seconds()),
    }
}

/// md's word for what follows a crash.
fn policy(consistency: Consistency) -> &'static str {
    match consistency {
        Consistency::None => "none",
        Consistency::Resync => "resync",
        Consistency::Bitmap => "bitmap",
        Consistency::Ppl => "ppl",
        Consistency::Journal => "journal",
    }
}
