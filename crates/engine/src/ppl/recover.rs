//! Recovery from the logs, before the array is started. A straight function over a small storage trait rather than a
//! machine: nothing else happens at that time. It may be cut short and begun again at any point: the logs are emptied
//! after every parity they speak of is durable.

use std::ops::Range;

use stripewise_format::bad_blocks::BadRange;
use stripewise_format::ppl::{HEADER_BYTES, PplEntry, PplHeader, signature};
use stripewise_format::superblock::Superblock;
use stripewise_format::uuid::Uuid;

use crate::assembly::{Assembly, Candidate, SlotState};
use crate::geometry::{Geometry, ParityShape, Shape};
use crate::io::{IoError, IoResult};
use crate::units::{MemberIndex, PAGE_BYTES, SECTOR_BYTES, Slot};

const HEADER_SECTORS: u64 = HEADER_BYTES as u64 / SECTOR_BYTES;
const ZEROED_AT_ONCE_SECTORS: u64 = 256;

/// The members' bytes, by member and sector of the device. The first members are those of the slots.
pub trait MemberStorage {
    /// Reads whole sectors.
    fn read(&mut self, member: MemberIndex, sector: u64, bytes: &mut [u8]) -> IoResult;
    /// Writes whole sectors.
    fn write(&mut self, member: MemberIndex, sector: u64, bytes: &[u8]) -> IoResult;
    /// Makes what was written durable.
    fn flush(&mut self, member: MemberIndex) -> IoResult;
}

/// Where a member keeps its log and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    /// The device's sector where the log's area begins.
    pub log_sector: u64,
    /// The area's length.
    pub log_sectors: u64,
    /// The device's sector where the data begin.
    pub data_offset_sectors: u64,
    /// Sectors of the data that hold; all for a member in sync.
    pub valid_sectors: u64,
    /// Sectors of the device that it is listed not to hold.
    pub bad: Vec<BadRange>,
}

impl LogPlace {
    /// Where a candidate keeps its log, as its superblock says; nothing if it has none. `state` is that of the slot it was chosen
    /// for, if it was.
    pub fn of(candidate: &Candidate, state: Option<&SlotState>, bad: Vec<BadRange>) -> Option<Self> {
        let Superblock::V1(superblock) = &candidate.superblock else { return None };
        let area = superblock.ppl()?;
        let log_sector = candidate.at_sector.checked_add_signed(area.offset_sectors.into())?;
        let valid_sectors = match state {
            Some(SlotState::Recovering { offset_sectors, .. }) => *offset_sectors,
            Some(SlotState::InSync { .. } | SlotState::Missing) | None => u64::MAX,
        };
        Some(Self {
            log_sector,
            log_sectors: area.size_sectors.into(),
            data_offset_sectors: superblock.data_offset_sectors,
            valid_sectors,
            bad,
        })
    }
}

/// What a recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PplReport {
    /// Entries whose stripes' parity was made right.
    pub entries: u64,
    /// Entries that could not be used: their partial parity is torn, or they speak of what the array does not have.
    pub unusable: u64,
    /// Members of slots without a log of the array in the first place: what was being written is not known of them.
    pub damaged: u64,
    /// Rows of a page whose parity was written.
    pub rows: u64,
}

impl PplReport {
    /// Whether parity is right everywhere though the array was not stopped cleanly. As the kernel's `ppl_init_log`, only
    /// logs that were of use throughout say so: an array that never was in sync has nothing in them, and of a member whose own is
    /// damaged nothing is known. While a member is missing there is nothing left to compare parity with, but what one has that
    /// is being filled is compared as far as that has come.
    pub fn made_parity_right(&self, assembly: &Assembly) -> bool {
        let is_said = self.entries > 0 && self.unusable == 0 && self.damaged == 0;
        let lacks_all = |state: &SlotState| {
            matches!(state, SlotState::Missing | SlotState::Recovering { offset_sectors: 0, .. })
        };
        assembly.slots.iter().any(lacks_all) || assembly.resync_offset_sectors == 0 && is_said
    }
}

/// Makes parity right for every stripe that the logs speak of, then empties the logs. `places` are by member, those of the slots
/// first, then spares and replacements; none for members that are missing. If `is_clean`, the logs are old: they are emptied
/// without being followed. So are those of members that have no slot: one of them may take a slot later, which Linux empties its
/// log for then (`ppl_modify_log`). While it waits nothing is logged there, so that it is done once, at the start.
///
/// # Errors
/// A member's error; the logs are as they were, and the recovery can be begun again.
///
/// # Panics
/// If the array is not RAID-5.
pub fn recover(
    geometry: &Geometry,
    set_uuid: &Uuid,
    places: &[Option<LogPlace>],
    is_clean: bool,
    storage: &mut impl MemberStorage,
) -> Result<PplReport, IoError> {
    let Shape::Parity(shape) = geometry.shape() else { panic!("only RAID-5 has partial parity logs") };
    let mut recovery = Recovery { geometry, shape, places, storage, report: PplReport::default() };
    let signature = signature(set_uuid);
    let mut generations = vec![0; places.len()];
    let (slots, others): (Vec<_>, Vec<_>) =
        members(places).partition(|(member, _)| member.0 < geometry.raid_disks());
    for &(member, place) in &slots {
        let Some((sector, header)) = recovery.newest(member, place, signature)? else {
            recovery.report.damaged += u64::from(!is_clean);
            continue;
        };
        generations[member.index()] = header.generation;
        if !is_clean {
            recovery.follow(Slot(member.0), place, sector, &header)?;
        }
    }
    for (member, _) in &slots {
        recovery.storage.flush(*member)?;
    }
    // Those without a slot first: if one cannot be written, the logs of slots still say what was under way.
    for (member, place) in others.into_iter().chain(slots) {
        let generation = generations[member.index()].wrapping_add(1);
        // Older headers further on would be taken for newer than an empty one.
        recovery.zero(member, place)?;
        let empty = PplHeader { signature, generation, entries: Vec::new() };
        recovery.storage.write(member, place.log_sector, &empty.to_bytes())?;
        recovery.storage.flush(member)?;
    }
    Ok(recovery.report)
}

fn members(places: &[Option<LogPlace>]) -> impl Iterator<Item = (MemberIndex, &LogPlace)> {
    places
        .iter()
        .enumerate()
        .filter_map(|(member, place)| Some((MemberIndex(member as u16), place.as_ref()?)))
}

/// The member of a slot.
const fn of_slot(slot: Slot) -> MemberIndex {
    MemberIndex(slot.0)
}

/// A strip of rows that an entry speaks of: from a data chunk on, over so many chunks of the stripe.
struct Strip {
    first_sector: u64,
    data_disks: u64,
    sectors: u64,
}

struct Recovery<'a, S> {
    geometry: &'a Geometry,
    shape: &'a ParityShape,
    places: &'a [Option<LogPlace>],
    storage: &'a mut S,
    report: PplReport,
}

impl<S: MemberStorage> Recovery<'_, S> {
    /// The last log that was written, and where it begins: in an area with room for several, one follows the other
    /// until the area is full, and the next is written at its beginning again. As the kernel's `ppl_load_distributed`,
    /// the chain ends at what is no header, torn or foreign, and before one of an earlier generation.
    fn newest(
        &mut self,
        member: MemberIndex,
        place: &LogPlace,
        signature: u32,
    ) -> Result<Option<(u64, PplHeader)>, IoError> {
        let mut newest: Option<(u64, PplHeader)> = None;
        let mut at = 0;
        while at + HEADER_SECTORS <= place.log_sectors {
            let mut block = vec![0; HEADER_BYTES];
            self.storage.read(member, place.log_sector + at, &mut block)?;
            let Ok(header) = PplHeader::parse(&block, signature) else { break };
            if newest.as_ref().is_some_and(|(_, before)| before.generation > header.generation) {
                break;
            }
            let parities = header.entries.iter().map(|e| u64::from(e.partial_parity_bytes) / SECTOR_BYTES);
            let length = HEADER_SECTORS + parities.sum::<u64>();
            newest = Some((place.log_sector + at, header));
            at += length;
        }
        Ok(newest)
    }

    fn zero(&mut self, member: MemberIndex, place: &LogPlace) -> IoResult {
        let zeroes = vec![0; ZEROED_AT_ONCE_SECTORS.min(place.log_sectors) as usize * SECTOR_BYTES as usize];
        let mut at = 0;
        while at < place.log_sectors {
            let count = ZEROED_AT_ONCE_SECTORS.min(place.log_sectors - at);
            let bytes = &zeroes[..(count * SECTOR_BYTES) as usize];
            self.storage.write(member, place.log_sector + at, bytes)?;
            at += count;
        }
        Ok(())
    }

    fn follow(&mut self, slot: Slot, place: &LogPlace, header_sector: u64, header: &PplHeader) -> IoResult {
        let mut sector = header_sector + HEADER_SECTORS;
        let log_end = place.log_sector + place.log_sectors;
        for entry in &header.entries {
            let parity_sectors = u64::from(entry.partial_parity_bytes) / SECTOR_BYTES;
            let at = sector;
            sector += parity_sectors;
            let strip = self.strip(slot, entry).filter(|_| sector <= log_end);
            let Some(strip) = strip else {
                self.report.unusable += 1;
                continue;
            };
            let mut partial_parity = vec![0; entry.partial_parity_bytes as usize];
            if !partial_parity.is_empty() {
                self.storage.read(of_slot(slot), at, &mut partial_parity)?;
                if !entry.matches(&partial_parity) {
                    self.report.unusable += 1;
                    continue;
                }
            }
            self.make_right(slot, place, &strip, &partial_parity)?;
            self.report.entries += 1;
        }
        Ok(())
    }

    /// What an entry speaks of, as the kernel's `ppl_recover_entry` takes it; nothing if the array has no such place.
    fn strip(&self, slot: Slot, entry: &PplEntry) -> Option<Strip> {
        let chunk = self.geometry.chunk_sectors();
        let (data, parity) = (u64::from(entry.data_bytes), u64::from(entry.partial_parity_bytes));
        let all = u64::from(self.shape.data_disks());
        let (data_disks, bytes) = match data.checked_div(parity) {
            Some(data_disks) => (data_disks, parity),
            None => (all, data / all),
        };
        let sectors = bytes / SECTOR_BYTES;
        let first_sector = entry.data_sector;
        let end = first_sector.checked_add((data_disks.max(1) - 1) * chunk)?.checked_add(sectors)?;
        if data_disks == 0 || sectors == 0 || end > self.geometry.array_sectors() {
            return None;
        }
        let (stripe, index, offset) = self.shape.split(first_sector);
        let fits = u64::from(index) + data_disks <= all && offset + sectors <= chunk;
        let is_own = entry.parity_disk == u32::from(slot.0) && self.shape.stripe(stripe).p == slot;
        (fits && is_own).then_some(Strip { first_sector, data_disks, sectors })
    }

    /// Writes the parity of a strip: its partial parity and what its members hold now. Where one of them holds nothing, for it is
    /// missing, is not filled yet, or lists or answers that it does not have it, the parity is left alone: what it makes of
    /// the others is that member's content by definition.
    fn make_right(&mut self, slot: Slot, place: &LogPlace, strip: &Strip, partial_parity: &[u8]) -> IoResult {
        let chunk = self.geometry.chunk_sectors();
        let mut sectors = strip.sectors;
        let mut sources = Vec::new();
        for disk in 0..strip.data_disks {
            let at = self.geometry.place(strip.first_sector + disk * chunk, 0);
            let Some(Some(from)) = self.places.get(at.slot.index()) else { return Ok(()) };
            sectors = sectors.min(from.valid_sectors.saturating_sub(at.sector));
            sources.push((at.slot, from.data_offset_sectors + at.sector));
        }
        if sectors == 0 {
            return Ok(());
        }
        let row = place.data_offset_sectors + self.geometry.place(strip.first_sector, 0).sector;
        let is_listed =
            |run: &Range<u64>| [(slot, row)].iter().chain(&sources).any(|place| self.lists(*place, run));
        let whole = 0..sectors;
        let pages: Vec<_> = pages_of(whole.clone()).filter(|page| !is_listed(page)).collect();
        if !is_listed(&whole) && self.make_run_right((slot, row), &sources, whole, partial_parity)? {
            return Ok(());
        }
        for page in pages {
            self.make_run_right((slot, row), &sources, page, partial_parity)?;
        }
        Ok(())
    }

    /// Writes the parity of some of a strip's sectors; answers whether all its members could be read there.
    fn make_run_right(
        &mut self,
        (slot, row): (Slot, u64),
        sources: &[(Slot, u64)],
        run: Range<u64>,
        partial_parity: &[u8],
    ) -> Result<bool, IoError> {
        let bytes = |sectors: u64| (sectors * SECTOR_BYTES) as usize;
        let mut parity = vec![0; bytes(run.end - run.start)];
        if !partial_parity.is_empty() {
            parity.copy_from_slice(&partial_parity[bytes(run.start)..bytes(run.end)]);
        }
        let mut block = vec![0; parity.len()];
        for &(slot, sector) in sources {
            match self.storage.read(of_slot(slot), sector + run.start, &mut block) {
                Err(IoError::Media) => return Ok(false),
                read => read?,
            }
            xor(&mut parity, &block);
        }
        self.storage.write(of_slot(slot), row + run.start, &parity)?;
        self.report.rows += (parity.len() as u64).div_ceil(PAGE_BYTES);
        Ok(true)
    }

    /// Whether a slot's member is listed not to hold one of these sectors, counted from one of its device.
    fn lists(&self, (slot, sector): (Slot, u64), run: &Range<u64>) -> bool {
        let place = self.places.get(slot.index()).and_then(Option::as_ref);
        place.is_some_and(|place| {
            place.bad.iter().any(|bad| bad.overlaps(sector + run.start, run.end - run.start))
        })
    }
}

/// The pages of a run of sectors, the last of which may be shorter.
fn pages_of(run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let page = PAGE_BYTES / SECTOR_BYTES;
    run.clone().step_by(page as usize).map(move |start| start..(start + page).min(run.end))
}

fn xor(into: &mut [u8], with: &[u8]) {
    for (a, b) in into.iter_mut().zip(with) {
        *a ^= b;
    }
}

#[cfg(test)]
mod tests {
    use stripewise_format::level::{Layout, Level};
    use stripewise_format::ppl::parity_checksum;

    use super::*;
    use crate::geometry::GeometrySpec;

    const CHUNK: u64 = 16;
    const DATA: u64 = 64;
    const MEMBER: u64 = 128;
    const UUID: Uuid = Uuid([3; 16]);

    /// The members, and a sector of one that does not read.
    struct Bytes(Vec<Option<Vec<u8>>>, Option<(MemberIndex, u64)>);

    impl MemberStorage for Bytes {
        fn read(&mut self, member: MemberIndex, sector: u64, bytes: &mut [u8]) -> IoResult {
            let sectors = sector..sector + bytes.len() as u64 / SECTOR_BYTES;
            if self.1.is_some_and(|(bad, at)| bad == member && sectors.contains(&at)) {
                return Err(IoError::Media);
            }
            let member = self.0[member.index()].as_ref().ok_or(IoError::Gone)?;
            let start = (sector * SECTOR_BYTES) as usize;
            bytes.copy_from_slice(&member[start..start + bytes.len()]);
            Ok(())
        }
        fn write(&mut self, member: MemberIndex, sector: u64, bytes: &[u8]) -> IoResult {
            let member = self.0[member.index()].as_mut().ok_or(IoError::Gone)?;
            let start = (sector * SECTOR_BYTES) as usize;
            member[start..start + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        fn flush(&mut self, _: MemberIndex) -> IoResult {
            Ok(())
        }
    }

    fn geometry() -> Geometry {
        let spec = GeometrySpec {
            level: Level::Raid5,
            layout: Layout::default_of(Level::Raid5),
            chunk_sectors: CHUNK,
            member_sectors: vec![MEMBER; 4],
        };
        Geometry::new(&spec).unwrap()
    }

    /// Four members of which each sector of data holds its own pattern, parity nothing. Their logs are empty.
    fn members() -> Bytes {
        let member = |member: u64| -> Vec<u8> {
            let sectors = 0..(DATA + MEMBER) * SECTOR_BYTES;
            sectors.map(|i| (i / SECTOR_BYTES * 7 + member * 31 + i % 5) as u8).collect()
        };
        let mut bytes = Bytes((0..4).map(|number| Some(member(number))).collect(), None);
        (0..4).for_each(|number| bytes.write(MemberIndex(number), 8, &header(0, Vec::new())).unwrap());
        bytes
    }

    fn header(generation: u64, entries: Vec<PplEntry>) -> Vec<u8> {
        PplHeader { signature: signature(&UUID), generation, entries }.to_bytes()
    }

    fn places() -> Vec<Option<LogPlace>> {
        vec![
            Some(LogPlace {
                log_sector: 8,
                log_sectors: 40,
                data_offset_sectors: DATA,
                valid_sectors: MEMBER,
                bad: Vec::new(),
            });
            4
        ]
    }

    fn log(bytes: &mut Bytes, slot: Slot, entry: PplEntry, parity: &[u8]) {
        bytes.write(of_slot(slot), 8, &header(41, vec![entry])).unwrap();
        bytes.write(of_slot(slot), 16, parity).unwrap();
    }

    fn sector(bytes: &mut Bytes, slot: Slot, row: u64) -> Vec<u8> {
        let mut sector = vec![0; SECTOR_BYTES as usize];
        bytes.read(of_slot(slot), DATA + row, &mut sector).unwrap();
        sector
    }

    /// Whether parity is what it should be in a row.
    fn agrees(bytes: &mut Bytes, row: u64) -> bool {
        let mut sum = vec![0; SECTOR_BYTES as usize];
        for slot in (0..4).map(Slot) {
            xor(&mut sum, &sector(bytes, slot, row));
        }
        sum.iter().all(|b| *b == 0)
    }

    /// The array's sector `data` of stripe 0 with one chunk: parity is on slot 3.
    fn partial(geometry: &Geometry) -> (Slot, PplEntry, Vec<u8>) {
        let Shape::Parity(shape) = geometry.shape() else { panic!() };
        let p = shape.stripe(0).p;
        // Chunks 0 and 1 are written; chunk 2 is left alone and is the partial parity.
        let mut bytes = members();
        let alone = geometry.place(2 * CHUNK, 0);
        let mut parity = vec![0; 8 * 512];
        bytes.read(of_slot(alone.slot), DATA + 8, &mut parity).unwrap();
        let entry = PplEntry {
            data_sector: 8,
            partial_parity_bytes: 8 * 512,
            data_bytes: 16 * 512,
            parity_disk: p.0.into(),
            checksum: parity_checksum(&parity),
        };
        (p, entry, parity)
    }

    #[test]
    fn parity_is_right_for_the_strip_and_the_logs_are_empty() {
        let geometry = geometry();
        let mut bytes = members();
        let (p, entry, parity) = partial(&geometry);
        log(&mut bytes, p, entry, &parity);
        let report = recover(&geometry, &UUID, &places(), false, &mut bytes).unwrap();
        assert_eq!(report, PplReport { entries: 1, rows: 1, ..PplReport::default() });
        for row in 8..16 {
            assert!(agrees(&mut bytes, row), "row {row}");
        }
        assert_eq!(sector(&mut bytes, p, 7), sector(&mut members(), p, 7), "other rows are left alone");
        let again = recover(&geometry, &UUID, &places(), false, &mut bytes).unwrap();
        assert_eq!(again, PplReport::default());
    }

    #[test]
    fn a_log_that_is_torn_foreign_old_or_impossible_is_not_followed() {
        let geometry = geometry();
        let (p, entry, parity) = partial(&geometry);
        let uuid = UUID;
        let unchanged = |entry: PplEntry, parity: &[u8], uuid: &Uuid, is_clean: bool, unusable: u64| {
            let mut bytes = members();
            log(&mut bytes, p, entry, parity);
            let before: Vec<_> = (0..16).map(|row| sector(&mut bytes, p, row)).collect();
            let report = recover(&geometry, uuid, &places(), is_clean, &mut bytes).unwrap();
            let after: Vec<_> = (0..16).map(|row| sector(&mut bytes, p, row)).collect();
            assert!(before == after);
            assert_eq!((report.entries, report.unusable), (0, unusable));
        };
        unchanged(entry, &parity, &uuid, true, 0);
        unchanged(entry, &parity, &Uuid([4; 16]), false, 0);
        let mut torn = parity.clone();
        torn[513] ^= 1;
        unchanged(entry, &torn, &uuid, false, 1);
        unchanged(PplEntry { data_sector: u64::MAX - 3, ..entry }, &parity, &uuid, false, 1);
        unchanged(PplEntry { data_sector: 12, ..entry }, &parity, &uuid, false, 1);
        unchanged(PplEntry { parity_disk: 1, ..entry }, &parity, &uuid, false, 1);
        unchanged(PplEntry { data_bytes: 1 << 31, ..entry }, &parity, &uuid, false, 1);
    }

    #[test]
    fn the_last_of_several_logs_is_followed_and_none_is_left() {
        let geometry = geometry();
        let uuid = UUID;
        let (p, entry, parity) = partial(&geometry);
        let follow = |generation: u64| {
            let mut bytes = members();
            let stale = PplEntry { checksum: !entry.checksum, ..entry };
            log(&mut bytes, p, stale, &parity);
            // Behind the first log's header and its eight sectors of partial parity.
            bytes.write(of_slot(p), 24, &header(generation, vec![entry])).unwrap();
            bytes.write(of_slot(p), 32, &parity).unwrap();
            let report = recover(&geometry, &uuid, &places(), false, &mut bytes).unwrap();
            let again = recover(&geometry, &uuid, &places(), false, &mut bytes).unwrap();
            assert_eq!(again, PplReport::default());
            (report.entries, report.unusable)
        };
        assert_eq!(follow(42), (1, 0));
        assert_eq!(follow(40), (0, 1), "it is older than the first");
    }

    /// As the kernel, which counts a mismatch: what a member was being written is not known without its log.
    #[test]
    fn a_member_of_a_slot_without_a_log_is_counted_and_has_one_afterwards() {
        let geometry = geometry();
        let mut bytes = members();
        let waiting = bytes.0[0].clone();
        bytes.0.push(waiting);
        let mut places = places();
        places.push(places[0].clone());
        let mut damaged = |missing: Option<usize>, is_clean: bool| {
            for member in [1, 4] {
                bytes.write(MemberIndex(member), 8, &[0x55; 512]).unwrap();
            }
            let mut places = places.clone();
            if let Some(member) = missing {
                places[member] = None;
            }
            let report = recover(&geometry, &UUID, &places, is_clean, &mut bytes).unwrap();
            let again = recover(&geometry, &UUID, &places, false, &mut bytes).unwrap();
            assert_eq!(again, PplReport::default());
            report.damaged
        };
        assert_eq!(damaged(None, false), 1, "the other waits for a slot");
        assert_eq!(damaged(Some(1), false), 0, "it is missing");
        assert_eq!(damaged(None, true), 0, "nothing was being written");
    }

    #[test]
    fn what_a_member_without_a_slot_has_logged_is_over() {
        let geometry = geometry();
        let mut bytes = members();
        let (_, entry, parity) = partial(&geometry);
        let before = bytes.0.clone();
        bytes.0.push(before[0].clone());
        let mut places = places();
        places.push(places[0].clone());
        let waiting = Slot(4);
        log(&mut bytes, waiting, PplEntry { parity_disk: 4, ..entry }, &parity);
        bytes.write(of_slot(waiting), 24, &header(1_000, vec![entry])).unwrap();
        assert_eq!(recover(&geometry, &UUID, &places, false, &mut bytes), Ok(PplReport::default()));
        let mut area = vec![0; 40 * SECTOR_BYTES as usize];
        bytes.read(of_slot(waiting), 8, &mut area).unwrap();
        assert_eq!(PplHeader::parse(&area, signature(&UUID)).unwrap().entries, []);
        assert!(area[HEADER_BYTES..].iter().all(|byte| *byte == 0), "nothing is left behind the empty log");
        for (after, before) in bytes.0.iter().zip(&before) {
            let data = (DATA * SECTOR_BYTES) as usize;
            assert!(after.as_ref().unwrap()[data..] == before.as_ref().unwrap()[data..]);
        }
    }

    /// What it was to hold is in parity alone: it was acknowledged when its member had refused it.
    #[test]
    fn where_a_written_member_holds_nothing_parity_is_left_as_it_is() {
        let geometry = geometry();
        let (p, entry, _) = partial(&geometry);
        // Three pages of chunks 0 and 1; chunk 2 holds nothing but zeroes.
        let parity = vec![0; 24 * 512 / 2];
        let entry = PplEntry {
            data_sector: 0,
            partial_parity_bytes: 12 * 512,
            data_bytes: 24 * 512,
            checksum: parity_checksum(&parity),
            ..entry
        };
        let (written, alone) = (geometry.place(0, 0).slot, geometry.place(2 * CHUNK, 0).slot);
        let left = |is_listed: bool, slot: Slot, at: u64| -> Vec<u64> {
            let mut bytes = members();
            bytes.write(of_slot(alone), DATA, &[0; CHUNK as usize * 512]).unwrap();
            log(&mut bytes, p, entry, &parity);
            let before: Vec<_> = (0..12).map(|row| sector(&mut bytes, p, row)).collect();
            let mut places = places();
            if is_listed {
                let bad = BadRange { start_sector: DATA + at, length_sectors: 1 };
                places[slot.index()].as_mut().unwrap().bad = vec![bad];
            } else {
                bytes.1 = Some((of_slot(slot), DATA + at));
            }
            recover(&geometry, &UUID, &places, false, &mut bytes).unwrap();
            bytes.1 = None;
            let mut left = Vec::new();
            for row in 0..12 {
                if !agrees(&mut bytes, row) {
                    assert_eq!(sector(&mut bytes, p, row), before[row as usize]);
                    left.push(row);
                }
            }
            left
        };
        for is_listed in [true, false] {
            assert_eq!(left(is_listed, written, 3), (0..8).collect::<Vec<_>>());
            assert_eq!(left(is_listed, written, 9), (8..12).collect::<Vec<_>>());
        }
        assert_eq!(left(true, p, 8), (8..12).collect::<Vec<_>>(), "nor is what cannot be read of parity");
        assert_eq!(left(true, alone, 3), [0_u64; 0], "it is in the log");
    }

    #[test]
    fn with_a_written_member_missing_parity_is_left_as_it_is() {
        let geometry = geometry();
        let mut bytes = members();
        let (p, entry, parity) = partial(&geometry);
        log(&mut bytes, p, entry, &parity);
        let missing = geometry.place(8, 0).slot;
        let mut places = places();
        places[missing.index()] = None;
        bytes.0[missing.index()] = None;
        let before = sector(&mut bytes, p, 8);
        recover(&geometry, &UUID, &places, false, &mut bytes).unwrap();
        assert_eq!(sector(&mut bytes, p, 8), before);
    }

    #[test]
    fn parity_is_right_as_far_as_a_written_member_is_recovered() {
        let geometry = geometry();
        let mut bytes = members();
        let (p, entry, parity) = partial(&geometry);
        log(&mut bytes, p, entry, &parity);
        let mut places = places();
        let recovering = &mut places[geometry.place(8, 0).slot.index()];
        recovering.as_mut().unwrap().valid_sectors = 11;
        let report = recover(&geometry, &UUID, &places, false, &mut bytes).unwrap();
        assert_eq!(report, PplReport { entries: 1, rows: 1, ..PplReport::default() });
        for row in 8..16 {
            assert_eq!(agrees(&mut bytes, row), row < 11, "row {row}");
        }
        assert_eq!(sector(&mut bytes, p, 11), sector(&mut members(), p, 11), "it is the member's content");
    }
}
