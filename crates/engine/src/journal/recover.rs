//! Recovery from a write journal, before the array is started. A straight function over a small storage trait, as that from
//! partial parity logs is. It may be cut short and begun again at any point: a log is left behind only when the members have
//! durably what it says.

use std::collections::BTreeMap;

use stripewise_format::journal::{BLOCK_SECTORS, MetaBlock, Payload, SEQUENCE_GAP};
use stripewise_format::uuid::Uuid;

use super::log::{Log, Row};
use super::rows::{Blocks, DataOnly, Rows};
use super::{Head, JournalPlace, JournalReport, JournalStart, JournalStorage, RowMember, array_sector};
use crate::geometry::Geometry;
use crate::io::{IoError, IoResult};
use crate::units::Slot;

/// Brings to the members what the log has, and empties it. `members` are those that are there.
///
/// Rows with parity are written as they are. Those with data alone (md's write-back mode) get their parity computed; where that needs
/// the old parity, because a member is missing, data and parity begin a new log first, as the kernel's
/// `r5c_recovery_rewrite_data_only_stripes` has the data do.
///
/// # Errors
/// A device's error, or [`IoError::NoSpace`] if the journal has no room for the new log; it can be begun again.
///
/// # Panics
/// If the array is not of a level with parity.
pub fn recover(
    geometry: &Geometry,
    set_uuid: &Uuid,
    journal: &JournalPlace,
    members: &[RowMember],
    storage: &mut impl JournalStorage,
) -> Result<JournalReport, IoError> {
    let mut report = JournalReport::default();
    let mut journal = *journal;
    loop {
        let place = journal;
        let log = Log::new(geometry, set_uuid, &place);
        let rows = Rows { log, members, raid_disks: geometry.raid_disks() };
        let Some(first) = log.start(storage)? else {
            return Ok(JournalReport { is_damaged: true, ..report });
        };
        let (end, by_log) = replay(&rows, first, storage, &mut report)?;
        let new = Head { sequence: end.sequence.wrapping_add(SEQUENCE_GAP), ..end };
        if log.add(first.position_sectors, BLOCK_SECTORS) == end.position_sectors {
            let place = JournalPlace { tail_sectors: first.position_sectors, ..journal };
            return Ok(JournalReport { start: Some(JournalStart { place, next: end }), ..report });
        }
        for member in members {
            storage.flush(member.member)?;
        }
        let empty = MetaBlock { payloads: Vec::new(), ..meta(new) };
        if by_log.is_empty() {
            log.write(storage, new.position_sectors, &empty.to_bytes(log.seed))?;
        } else {
            begin_anew(&rows, first, new, &by_log, storage)?;
        }
        log.flush(storage)?;
        storage.move_tail(new.position_sectors)?;
        journal.tail_sectors = new.position_sectors;
        if by_log.is_empty() {
            let next = after(&log, new, &empty);
            return Ok(JournalReport { start: Some(JournalStart { place: journal, next }), ..report });
        }
    }
}

/// How many rows the log has otherwise than the members do; none if there is no log at all. Nothing is written.
///
/// # Errors
/// A device's error.
///
/// # Panics
/// If the array is not of a level with parity.
pub fn pending(
    geometry: &Geometry,
    set_uuid: &Uuid,
    journal: &JournalPlace,
    members: &[RowMember],
    storage: &mut impl JournalStorage,
) -> Result<Option<u64>, IoError> {
    let log = Log::new(geometry, set_uuid, journal);
    let rows = Rows { log, members, raid_disks: geometry.raid_disks() };
    let Some(first) = log.start(storage)? else { return Ok(None) };
    let mut known: BTreeMap<u64, Row> = BTreeMap::new();
    let mut older: BTreeMap<u64, Row> = BTreeMap::new();
    let mut head = first;
    while let Some(block) = log.next(storage, head)? {
        log.follow(&mut known, &block, |sector, row| {
            older.entry(sector).or_default().data.extend(&row.data);
            Ok(())
        })?;
        head = after(&log, head, &block);
    }
    let mut count = 0;
    for (sector, row) in known.iter().filter(|(_, row)| !row.data.is_empty()) {
        let mut all = older.remove(sector).unwrap_or_default();
        all.data.extend(&row.data);
        all.parity.clone_from(&row.parity);
        let blocks = rows.blocks(storage, *sector, &all)?;
        count += u64::from(!row.is_complete() || !rows.are_there(storage, *sector, &blocks)?);
    }
    Ok(Some(count))
}

/// Rows whose data and parity are to be in a new log, by their sectors.
type ByLog = Vec<(u64, Blocks)>;

/// Writes what the log has to the members, but for rows that a new log must have first. Answers where the log ends.
fn replay(
    rows: &Rows<'_>,
    first: Head,
    storage: &mut impl JournalStorage,
    report: &mut JournalReport,
) -> Result<(Head, ByLog), IoError> {
    let mut known: BTreeMap<u64, Row> = BTreeMap::new();
    let mut head = first;
    while let Some(block) = rows.log.next(storage, head)? {
        rows.log.follow(&mut known, &block, |sector, row| {
            report.rows += u64::from(rows.replay(storage, sector, row)?);
            Ok(())
        })?;
        head = after(&rows.log, head, &block);
    }
    let mut by_log = Vec::new();
    for (sector, row) in &known {
        if row.is_complete() {
            report.rows += u64::from(rows.replay(storage, *sector, row)?);
            continue;
        }
        report.data_only_rows += 1;
        match rows.data_only(storage, *sector, row)? {
            DataOnly::Direct(blocks) => rows.write(storage, *sector, &blocks)?,
            DataOnly::WithoutParity(blocks) => {
                report.without_parity += 1;
                rows.write(storage, *sector, &blocks)?;
            }
            DataOnly::ByLog(blocks) => by_log.push((*sector, blocks)),
        }
    }
    // Those come with the new log again.
    report.data_only_rows -= by_log.len() as u64;
    Ok((head, by_log))
}

fn after(log: &Log<'_>, head: Head, block: &MetaBlock) -> Head {
    Head {
        position_sectors: log.add(head.position_sectors, block.log_sectors()),
        sequence: head.sequence.wrapping_add(1),
    }
}

const fn meta(head: Head) -> MetaBlock {
    MetaBlock { sequence: head.sequence, position_sectors: head.position_sectors, payloads: Vec::new() }
}

/// Writes a log of these rows behind the one that has their data, which counts until the tail is moved.
fn begin_anew(
    rows: &Rows<'_>,
    old: Head,
    new: Head,
    by_log: &ByLog,
    storage: &mut impl JournalStorage,
) -> IoResult {
    let Rows { log, .. } = rows;
    let used = (new.position_sectors + log.sectors() - old.position_sectors) % log.sectors();
    let needed: u64 = by_log.iter().map(|(_, blocks)| BLOCK_SECTORS * (1 + blocks.len() as u64)).sum();
    // One block is left for what follows.
    if needed + BLOCK_SECTORS > log.sectors() - used {
        return Err(IoError::NoSpace);
    }
    let mut head = new;
    for (sector, blocks) in by_log {
        let block = MetaBlock { payloads: payloads(rows, *sector, blocks), ..meta(head) };
        let mut at = head.position_sectors;
        log.write(storage, at, &block.to_bytes(log.seed))?;
        for (_, bytes) in blocks {
            at = log.add(at, BLOCK_SECTORS);
            log.write(storage, at, bytes)?;
        }
        head = after(log, head, &block);
    }
    Ok(())
}

/// Data by their slots, then parity, as the blocks stand.
fn payloads(rows: &Rows<'_>, sector: u64, blocks: &Blocks) -> Vec<Payload> {
    let map = rows.log.shape.stripe_at(sector);
    let is_parity = |slot: Slot| slot == map.p || Some(slot) == map.q;
    let sum = |bytes: &Vec<u8>| rows.log.seed.checksum(bytes);
    let data = blocks.iter().filter(|(slot, _)| !is_parity(*slot)).map(|(slot, bytes)| Payload::Data {
        array_sector: array_sector(rows.log.geometry, *slot, sector),
        checksums: vec![sum(bytes)],
    });
    let parity = blocks.iter().filter(|(slot, _)| is_parity(*slot)).map(|(_, bytes)| sum(bytes));
    let parity = Payload::Parity { row_sector: sector, checksums: parity.collect() };
    data.chain([parity]).collect()
}
