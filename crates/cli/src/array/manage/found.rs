//! What a check or repair found, and where.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stripewise_engine::array::sync::{MISMATCHES_KEPT, Mismatch, SyncStatus};
use stripewise_engine::io::{SyncAction, Verdict};
use stripewise_engine::units::SectorRange;

const SECTOR_BYTES: u64 = 512;

/// A place where redundancy disagrees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The array's bytes: of the block that is located, else of all that share the redundancy.
    array_start_bytes: u64,
    array_length_bytes: u64,
    /// The same on the members, from the start of their data.
    member_start_bytes: u64,
    member_length_bytes: u64,
    /// The slot whose block is wrong, if that can be told.
    slot: Option<u16>,
    what: What,
}

/// What is wrong at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum What {
    Data,
    P,
    Q,
    /// It cannot be told.
    Unlocated,
    /// Too few members could be read.
    Unread,
}

/// The places that are kept, neighbours put together.
pub(crate) fn places(mismatches: &[Mismatch]) -> Vec<Place> {
    let mut sorted = mismatches.to_vec();
    sorted.sort_by_key(|m| (m.slot, m.member.start));
    let mut joined: Vec<Mismatch> = Vec::new();
    for mismatch in sorted {
        match joined.last_mut() {
            Some(last) if is_next(last, &mismatch) => {
                last.member.count += mismatch.member.count;
                let end = last.array.end().max(mismatch.array.end());
                last.array = SectorRange::new(last.array.start, end - last.array.start);
            }
            _ => joined.push(mismatch),
        }
    }
    joined.sort_by_key(|m| m.member.start);
    joined.iter().map(place).collect()
}

/// Whether a mismatch goes on where one ends: of one member in array order, or of one stripe.
fn is_next(last: &Mismatch, next: &Mismatch) -> bool {
    let same = (last.slot, what(last)) == (next.slot, what(next));
    let array = last.array == next.array || last.array.end() == next.array.start;
    same && array && last.member.end() == next.member.start
}

fn place(mismatch: &Mismatch) -> Place {
    let Mismatch { array, member, slot, .. } = mismatch;
    Place {
        array_start_bytes: array.start * SECTOR_BYTES,
        array_length_bytes: array.count * SECTOR_BYTES,
        member_start_bytes: member.start * SECTOR_BYTES,
        member_length_bytes: member.count * SECTOR_BYTES,
        slot: slot.map(|slot| slot.0),
        what: what(mismatch),
    }
}

const fn what(mismatch: &Mismatch) -> What {
    match mismatch.verdict {
        _ if mismatch.is_unread => What::Unread,
        Verdict::P => What::P,
        Verdict::Q => What::Q,
        Verdict::Data(_) => What::Data,
        _ => What::Unlocated,
    }
}

/// Whether there are more places than are kept.
pub(crate) fn is_cut(status: &SyncStatus) -> bool {
    status.mismatches.len() >= MISMATCHES_KEPT
}

/// What a check or repair found, as a server tells it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Findings {
    mismatch_sectors: u64,
    unread_sectors: u64,
    mismatches: Vec<Place>,
    is_cut: bool,
}

impl Findings {
    /// What one of this process found.
    pub(super) fn of(status: &SyncStatus) -> Self {
        Self {
            mismatch_sectors: status.mismatch_sectors,
            unread_sectors: status.unread_sectors,
            mismatches: places(&status.mismatches),
            is_cut: is_cut(status),
        }
    }
}

/// A check or repair that has ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    schema: &'static str,
    action: &'static str,
    mismatch_sectors: u64,
    /// Of these, what too few members gave.
    unread_sectors: u64,
    mismatches: Vec<Place>,
    /// There are more places than are listed.
    is_cut: bool,
    interrupted: bool,
}

impl Outcome {
    pub(crate) fn new(action: SyncAction, findings: Findings, interrupted: bool) -> Self {
        let Findings { mismatch_sectors, unread_sectors, mismatches, is_cut } = findings;
        Self {
            schema: "stripewise.check/1",
            action: if action == SyncAction::Check { "check" } else { "repair" },
            mismatch_sectors,
            unread_sectors,
            mismatches,
            is_cut,
            interrupted,
        }
    }

    /// Whether something disagrees still, or could not be compared.
    pub(super) fn is_left(&self, action: SyncAction) -> bool {
        let is_unrepaired = match action {
            SyncAction::Check => self.mismatch_sectors > 0,
            SyncAction::RepairLocated => self.mismatches.iter().any(|place| place.slot.is_none()),
            _ => false,
        };
        is_unrepaired || self.unread_sectors > 0
    }

    pub(crate) fn to_text(&self, path_of: impl Fn(u16) -> Option<String>) -> String {
        let ended = if self.interrupted { " was interrupted;" } else { " is done:" };
        let mut text = format!("stripewise: {}{ended} ", self.action);
        if self.mismatch_sectors == 0 {
            text.push_str("nothing disagrees\n");
            return text;
        }
        let verb = if self.action == "check" { "disagree" } else { "disagreed" };
        let unread = match self.unread_sectors {
            0 => String::new(),
            sectors => {
                format!(", of which {sectors} cannot be read from enough members to compare or repair them")
            }
        };
        let _ = writeln!(text, "{} sectors {verb} (mismatch_cnt){unread}", self.mismatch_sectors);
        for place in &self.mismatches {
            let path = place.slot.and_then(&path_of).map_or_else(String::new, |path| format!(" ({path})"));
            let culprit = match (place.what, place.slot) {
                (What::Data, Some(slot)) => format!("the data of slot {slot}{path} are wrong"),
                (What::P, Some(slot)) => format!("P in slot {slot}{path} is wrong"),
                (What::Q, Some(slot)) => format!("Q in slot {slot}{path} is wrong"),
                (What::Unread, _) => "too few members can be read".to_owned(),
                _ => "the wrong block cannot be located".to_owned(),
            };
            let _ = writeln!(
                text,
                "  array bytes {} to {}, member bytes {} to {}: {culprit}",
                place.array_start_bytes,
                place.array_start_bytes + place.array_length_bytes,
                place.member_start_bytes,
                place.member_start_bytes + place.member_length_bytes,
            );
        }
        if self.is_cut {
            text.push_str("  and more: only the first places are listed\n");
        }
        text
    }
}

/// Sectors as the bytes of a range.
pub(crate) fn range_json(range: SectorRange) -> Value {
    serde_json::json!({
        "start_bytes": range.start * SECTOR_BYTES,
        "length_bytes": range.count * SECTOR_BYTES,
    })
}
