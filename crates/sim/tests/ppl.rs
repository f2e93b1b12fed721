//! Power cuts on a RAID-5 with partial parity logs that loses a member at the same moment: what was acknowledged, and
//! not being written to, is still there. Without the logs the same runs lose data, which shows that the test can fail.

mod power_cut;

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

use stripewise_engine::geometry::{Geometry, GeometrySpec};
use stripewise_engine::io::{AdminCommand, Area, ArrayEvent, Input, IoResult, Op};
use stripewise_engine::metadata::{MemberMetadata, MetadataConfig, SAFE_MODE_DELAY};
use stripewise_engine::policy::Policy;
use stripewise_engine::ppl::{LogPlace, MemberStorage, PplReport, recover};
use stripewise_engine::units::{MemberIndex, PAGE_BYTES, SECTOR_BYTES, SectorRange, Slot};
use stripewise_engine::volume::{Volume, VolumeConfig};
use stripewise_format::bad_blocks;
use stripewise_format::level::{Layout, Level};
use stripewise_format::ppl::{PplEntry, PplHeader, parity_checksum, signature};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{PplArea, Role, Superblock1};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;
use stripewise_sim::Data;
use stripewise_sim::bytes::BytesStore;
use stripewise_sim::random::Random;

use power_cut::{Load, Pending, content, put};

const MEMBERS: u16 = 4;
/// Waits for a slot.
const SPARE: MemberIndex = MemberIndex(MEMBERS);
const CHUNK: u64 = 32;
const MEMBER_SECTORS: u64 = 8 * CHUNK;
const SUPERBLOCK: u64 = 8;
const LOG: u64 = 16;
/// Areas: of a header and one page, of three, and with room for several writes.
const LOG_SECTORS: [u64; 3] = [16, 32, 200];
const BAD_LOG: u64 = 240;
const BAD_LOG_SECTORS: u16 = 8;
const DATA_OFFSET: u64 = 256;
const UUID: Uuid = Uuid([9; 16]);

fn superblock(member: u16, log_sectors: Option<u64>, has_bad_log: bool) -> MemberMetadata {
    let mut superblock = Superblock1::new(Level::Raid5, MEMBERS.into(), 0, UUID);
    superblock.layout = Layout::default_of(Level::Raid5).number() as u32;
    superblock.chunk_sectors = CHUNK as u32;
    superblock.size_sectors = MEMBER_SECTORS;
    superblock.data_offset_sectors = DATA_OFFSET;
    superblock.data_size_sectors = MEMBER_SECTORS;
    superblock.super_offset_sectors = SUPERBLOCK;
    superblock.dev_number = member.into();
    (0..MEMBERS).for_each(|slot| superblock.dev_roles[usize::from(slot)] = Role::Slot(slot));
    if let Some(sectors) = log_sectors {
        superblock.set_ppl(PplArea {
            offset_sectors: (LOG - SUPERBLOCK) as i16,
            size_sectors: sectors as u16,
            multiple: false,
        });
    }
    if has_bad_log {
        superblock.bblog_offset_sectors = (BAD_LOG - SUPERBLOCK) as i32;
        superblock.bblog_size_sectors = BAD_LOG_SECTORS;
    }
    let superblock = Superblock::V1(Box::new(superblock));
    MemberMetadata { superblock, sector: SUPERBLOCK, bad_blocks: has_bad_log.then(Vec::new) }
}

struct Run {
    load: Load,
    log_sectors: u64,
}

impl Deref for Run {
    type Target = Load;

    fn deref(&self) -> &Load {
        &self.load
    }
}

impl DerefMut for Run {
    fn deref_mut(&mut self) -> &mut Load {
        &mut self.load
    }
}

impl Run {
    fn new(seed: u64, has_log: bool) -> Self {
        Self::with(seed, has_log, None)
    }

    fn with(seed: u64, has_log: bool, resync_from: Option<u64>) -> Self {
        let log_sectors = LOG_SECTORS[seed as usize / 6 % LOG_SECTORS.len()];
        Self::of(seed, has_log.then_some(log_sectors), resync_from, 0, false)
    }

    /// An array as it is created: its logs are empty.
    fn of(
        seed: u64,
        log_sectors: Option<u64>,
        resync_from: Option<u64>,
        spares: u16,
        has_bad_logs: bool,
    ) -> Self {
        let members = MEMBERS + spares;
        let geometry = GeometrySpec {
            level: Level::Raid5,
            layout: Layout::default_of(Level::Raid5),
            chunk_sectors: CHUNK,
            member_sectors: vec![MEMBER_SECTORS; MEMBERS.into()],
        };
        let policy = if seed.is_multiple_of(2) { Policy::stripewise() } else { Policy::linux_6_1() };
        let metadata = MetadataConfig {
            members: (0..members).map(|m| Some(superblock(m, log_sectors, has_bad_logs))).collect(),
            bitmap: None,
            journal: None,
            clock_start: Timestamp::default(),
            safe_mode_delay: SAFE_MODE_DELAY,
        };
        let config = VolumeConfig {
            metadata: Some(metadata),
            discard: seed.is_multiple_of(3),
            resync_from,
            spares,
            ..VolumeConfig::new(geometry, policy)
        };
        let volume = Volume::new(&config).unwrap();
        let mut bytes = BytesStore::new(&vec![DATA_OFFSET + MEMBER_SECTORS; members.into()], 256)
            .with_data_offsets(&vec![DATA_OFFSET; members.into()]);
        for member in (0..members).map(MemberIndex).filter(|_| log_sectors.is_some()) {
            put(&mut bytes, member, LOG, &log(0, Vec::new()));
        }
        let load = Load::new(volume, bytes, Random::new(seed));
        Self { load, log_sectors: log_sectors.unwrap_or_default() }
    }

    /// Goes on for some steps, up to so many, and begins a write in one of so many.
    fn work(&mut self, steps_max: u64, one_in: u64) {
        let steps = 50 + self.random.below(steps_max);
        for _ in 0..steps {
            if self.in_flight.len() < 6 && self.random.below(one_in) == 0 {
                self.write();
            }
            self.answer();
        }
    }

    /// Cuts the power: of what is under way some reaches the members.
    fn cut(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            if let Pending::Io(io, out) = pending
                && io.op == Op::Write
                && !self.is_worn(&io)
                && self.random.below(2) == 0
            {
                // A log may be torn: only its header arrives, or all but its header.
                if io.area == Area::Device && self.random.below(3) == 0 {
                    continue;
                }
                self.bytes.io(&io, &out);
            }
        }
    }

    /// Where the log of each slot's member is.
    fn places(&self) -> Vec<Option<LogPlace>> {
        let place = LogPlace {
            log_sector: LOG,
            log_sectors: self.log_sectors,
            data_offset_sectors: DATA_OFFSET,
            valid_sectors: MEMBER_SECTORS,
            bad: Vec::new(),
        };
        vec![Some(place); MEMBERS.into()]
    }

    /// The rows whose parity disagrees with the data.
    fn wrong_rows(&mut self) -> Vec<u64> {
        let members = self.members();
        let disagrees = |row: &u64| {
            let mut sum = [0; 512];
            for member in &members {
                let block = on_member(&mut self.bytes, *member, *row);
                sum.iter_mut().zip(block).for_each(|(a, b)| *a ^= b);
            }
            sum != [0; 512]
        };
        (0..MEMBER_SECTORS).filter(disagrees).collect()
    }

    /// The members of the slots.
    fn members(&self) -> Vec<MemberIndex> {
        (0..MEMBERS).map(|slot| self.volume.member_of(Slot(slot)).unwrap_or(MemberIndex(slot))).collect()
    }

    /// What a start does about the logs at these places: those of the slots' members, then that of the spare. Nobody is asked
    /// about slot `lost`.
    fn start(&mut self, places: &[Option<LogPlace>], is_clean: bool, lost: Option<Slot>) -> PplReport {
        let geometry = self.volume.geometry().clone();
        let mut table = self.members();
        table.push(SPARE);
        let mut members = Members { bytes: &mut self.bytes, table, lost };
        recover(&geometry, &UUID, places, is_clean, &mut members).unwrap()
    }

    /// Sectors whose content is wrong after a member was lost and the logs were followed.
    fn wrong_after_loss(mut self, has_log: bool) -> Vec<u64> {
        let geometry = self.volume.geometry().clone();
        let lost = Slot(self.random.below(MEMBERS.into()) as u16);
        if has_log {
            let mut places = self.places();
            places[lost.index()] = None;
            self.start(&places, false, Some(lost));
        }
        let mut wrong = Vec::new();
        for sector in 0..geometry.array_sectors() {
            if self.in_flight.values().any(|range| range.overlaps(SectorRange::new(sector, 1))) {
                continue;
            }
            let found = read_without(&mut self.bytes, &geometry, sector, lost);
            if found != content(sector, self.acknowledged[sector as usize]) {
                wrong.push(sector);
            }
        }
        wrong
    }
}

fn log(generation: u64, entries: Vec<PplEntry>) -> Vec<u8> {
    PplHeader { signature: signature(&UUID), generation, entries }.to_bytes()
}

fn on_member(bytes: &mut BytesStore, member: MemberIndex, sector: u64) -> [u8; 512] {
    let start = ((DATA_OFFSET + sector) * 512) as usize;
    bytes.member(member)[start..start + 512].try_into().unwrap()
}

fn read_without(bytes: &mut BytesStore, geometry: &Geometry, sector: u64, lost: Slot) -> [u8; 512] {
    let place = geometry.place(sector, 0);
    if place.slot != lost {
        return on_member(bytes, MemberIndex(place.slot.0), place.sector);
    }
    let mut sum = [0; 512];
    for slot in (0..MEMBERS).map(Slot).filter(|slot| *slot != lost) {
        let block = on_member(bytes, MemberIndex(slot.0), place.sector);
        sum.iter_mut().zip(block).for_each(|(a, b)| *a ^= b);
    }
    sum
}

struct Members<'a> {
    bytes: &'a mut BytesStore,
    table: Vec<MemberIndex>,
    lost: Option<Slot>,
}

impl Members<'_> {
    fn bytes(&mut self, member: MemberIndex) -> &mut [u8] {
        assert_ne!(Some(Slot(member.0)), self.lost, "the lost member is left alone");
        self.bytes.member(self.table[member.index()])
    }
}

impl MemberStorage for Members<'_> {
    fn read(&mut self, member: MemberIndex, sector: u64, bytes: &mut [u8]) -> IoResult {
        let start = (sector * 512) as usize;
        let length = bytes.len();
        bytes.copy_from_slice(&self.bytes(member)[start..start + length]);
        Ok(())
    }

    fn write(&mut self, member: MemberIndex, sector: u64, bytes: &[u8]) -> IoResult {
        let start = (sector * 512) as usize;
        self.bytes(member)[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self, _: MemberIndex) -> IoResult {
        Ok(())
    }
}

fn wrong(seed: u64, has_log: bool) -> Vec<u64> {
    let mut run = Run::new(seed, has_log);
    run.work(600, 4);
    run.cut();
    run.wrong_after_loss(has_log)
}

#[test]
fn a_power_cut_and_a_lost_member_together_lose_nothing_acknowledged() {
    for seed in 0..600 {
        assert_eq!(wrong(seed, true), [] as [u64; 0], "seed {seed}");
    }
}

#[test]
fn without_logs_the_same_runs_lose_data() {
    assert!((0..100).any(|seed| !wrong(seed, false).is_empty()));
}

#[test]
fn a_logged_array_ends_with_parity_that_agrees() {
    for seed in 0..50 {
        let mut run = Run::new(seed, true);
        for _ in 0..40 {
            run.write();
            run.answer();
        }
        while !run.in_flight.is_empty() {
            run.answer();
        }
        assert_eq!(run.wrong_rows(), [] as [u64; 0], "seed {seed}");
    }
}

#[test]
fn entries_say_that_parity_is_right_only_where_a_resync_has_made_it_so() {
    let mut has_said = 0;
    for seed in 0..1_000 {
        let mut run = Run::with(seed, true, Some(0));
        for member in 0..MEMBERS {
            let start = (DATA_OFFSET * 512) as usize;
            let Load { bytes, random, .. } = &mut run.load;
            bytes.member(MemberIndex(member))[start..].fill_with(|| random.below(256) as u8);
        }
        run.work(2_000, 8);
        run.cut();
        let start = (SUPERBLOCK * 512) as usize;
        let superblock = Superblock1::parse(&run.bytes.member(MemberIndex(0))[start..], SUPERBLOCK).unwrap();
        let places = run.places();
        let report = run.start(&places, false, None);
        assert_eq!(report.damaged, 0, "seed {seed}");
        // As the next start, and Linux, takes it.
        if superblock.resync_offset_sectors == 0 && report.entries > 0 && report.unusable == 0 {
            has_said += 1;
            assert_eq!(run.wrong_rows(), [] as [u64; 0], "seed {seed}");
        }
    }
    assert!(has_said > 100, "{has_said}");
}

/// Entries stand for all that may be out of sync: what was written beside them, while a resync was to come, is durable by then.
#[test]
fn there_are_no_entries_before_what_has_none_is_durable() {
    let (mut with_writes, signature) = (0, signature(&UUID));
    for seed in 0..200 {
        let mut run = Run::with(seed, true, Some(0));
        let has_entries = |run: &mut Run| {
            let header = |member| {
                let start = (LOG * 512) as usize;
                PplHeader::parse(&run.bytes.member(MemberIndex(member))[start..start + 4096], signature)
            };
            (0..MEMBERS).map(header).any(|header| header.is_ok_and(|header| !header.entries.is_empty()))
        };
        for _ in 0..20_000 {
            if run.in_flight.len() < 6 && run.random.below(4) == 0 {
                run.write();
            }
            with_writes += u64::from(!run.unflushed.is_empty());
            run.answer();
            if has_entries(&mut run) {
                assert!(run.unflushed.is_empty(), "seed {seed}: {:?}", run.unflushed);
                break;
            }
        }
        assert!(has_entries(&mut run), "seed {seed}");
    }
    assert!(with_writes > 1_000);
}

/// What was asked for of an area and not answered.
fn writes_under_way(run: &Run, area: Area) -> BTreeSet<u64> {
    let is_asked = |pending: &Pending| match pending {
        Pending::Io(io, _) if io.op == Op::Write && io.area == area => {
            (area == Area::Data || io.range.start == LOG).then_some(io.tag.0)
        }
        _ => None,
    };
    run.pending.iter().filter_map(is_asked).collect()
}

/// A member refuses all from now on. Goes on until that is recorded; once it has failed, calls with the writes that each step began.
fn break_member(run: &mut Run, member: u16, area: Area, mut looked: impl FnMut(&Run, &BTreeSet<u64>)) {
    run.broken = Some(MemberIndex(member));
    let before = run.events.len();
    let has_failed =
        |run: &Run| run.events[before..].iter().any(|e| matches!(e, ArrayEvent::MemberFailed { .. }));
    for _ in 0..20_000 {
        if run.in_flight.len() < 6 && run.random.below(4) == 0 && run.volume.is_writable() {
            run.write();
        }
        let before = writes_under_way(run, area);
        run.answer();
        if has_failed(run) {
            looked(run, &(&writes_under_way(run, area) - &before));
            if run.volume.is_recorded() {
                return;
            }
        }
    }
    panic!("the member that refuses does not fail");
}

/// The member that failed comes back if power fails before that is recorded: what a log named may be on it alone, and the log with
/// the entry of a write that went on without it is on another.
#[test]
fn nothing_is_logged_or_written_before_it_is_recorded_that_a_member_failed() {
    let mut looks = 0;
    for seed in 0..300 {
        let area = if seed % 2 == 0 { Area::Device } else { Area::Data };
        let mut run = Run::new(seed, true);
        run.work(300, 4);
        break_member(&mut run, (seed / 2 % 4) as u16, area, |run, writes| {
            let is_recorded = run.volume.is_recorded();
            assert!(is_recorded || writes.is_empty(), "seed {seed}");
            looks += u32::from(!is_recorded);
        });
    }
    assert!(looks > 1_000, "{looks}");
}

/// Nothing says ever that the last of them failed: what is written without a log would be doubtful once it is back.
#[test]
fn an_array_that_failed_writes_nothing_more() {
    let mut looks = 0;
    for seed in 0..300 {
        let mut run = Run::new(seed, true);
        let first = (seed % 4) as u16;
        break_member(&mut run, first, Area::Data, |_, _| {});
        run.work(100, 4);
        break_member(&mut run, (first + 1) % MEMBERS, Area::Data, |_, writes| {
            assert!(writes.is_empty(), "seed {seed}");
            looks += 1;
        });
    }
    assert!(looks >= 300, "{looks}");
}

/// Sectors whose content is wrong after a power cut on an array of which a member has sectors that take no writes. `are_known` says
/// whether those who follow the logs know what the members list.
fn wrong_on_worn(seed: u64, are_known: bool) -> Vec<u64> {
    let mut run = Run::of(seed, Some(LOG_SECTORS[seed as usize % LOG_SECTORS.len()]), None, 0, true);
    let worn = MemberIndex(run.random.below(MEMBERS.into()) as u16);
    for _ in 0..6 {
        let sector = run.random.below(MEMBER_SECTORS);
        run.worn.insert((worn, sector));
    }
    put(&mut run.bytes, worn, BAD_LOG, &[0xff; BAD_LOG_SECTORS as usize * 512]);
    run.work(600, 4);
    run.cut();
    let log = &run.bytes.member(worn)[(BAD_LOG * 512) as usize..][..BAD_LOG_SECTORS as usize * 512];
    let bad = bad_blocks::parse(log, 0).unwrap();
    let mut places = run.places();
    if let Some(place) = places[worn.index()].as_mut().filter(|_| are_known) {
        place.bad.clone_from(&bad);
    }
    run.start(&places, false, None);
    let geometry = run.volume.geometry().clone();
    let page = PAGE_BYTES / SECTOR_BYTES;
    let mut wrong = Vec::new();
    for sector in 0..geometry.array_sectors() {
        // What is acknowledged of a page that is being written besides may be lost with it.
        let around = SectorRange::new(sector / page * page, page);
        if run.in_flight.values().any(|range| range.overlaps(around)) {
            continue;
        }
        let place = geometry.place(sector, 0);
        let is_listed =
            place.slot.0 == worn.0 && bad.iter().any(|bad| bad.overlaps(DATA_OFFSET + place.sector, 1));
        let lost = if is_listed { place.slot } else { Slot(MEMBERS) };
        let found = read_without(&mut run.bytes, &geometry, sector, lost);
        if found != content(sector, run.acknowledged[sector as usize]) {
            wrong.push(sector);
        }
    }
    wrong
}

#[test]
fn what_a_member_took_no_write_of_is_in_parity_after_a_power_cut() {
    for seed in 0..600 {
        assert_eq!(wrong_on_worn(seed, true), [] as [u64; 0], "seed {seed}");
    }
    assert!((0..600).any(|seed| !wrong_on_worn(seed, false).is_empty()), "the lists decide");
}

/// Rows that are wrong after a power cut when a spare took a slot. In the second place of the spare's log area there is an old
/// log of this array, of a higher generation than any since; `is_known` says whether the start knows of the spare.
fn wrong_with_an_old_log(seed: u64, is_known: bool) -> Vec<u64> {
    let mut run = Run::of(seed, Some(200), None, 1, false);
    let slot = Slot(run.random.below(MEMBERS.into()) as u16);
    let partial_parity = vec![seed as u8 | 1; 4096];
    // Parity is on the last member in the first stripe, and one before that in the next.
    let stripe = u64::from(MEMBERS - 1 - slot.0);
    let entry = PplEntry {
        data_sector: stripe * u64::from(MEMBERS - 1) * CHUNK,
        partial_parity_bytes: 4096,
        data_bytes: 4096,
        parity_disk: slot.0.into(),
        checksum: parity_checksum(&partial_parity),
    };
    put(&mut run.bytes, SPARE, LOG + 16, &log(1_000_000, vec![entry]));
    put(&mut run.bytes, SPARE, LOG + 24, &partial_parity);
    let mut places = run.places();
    places.extend(is_known.then(|| places[0].clone()));
    run.start(&places, true, None);
    run.work(100, 4);
    run.input(Input::Admin { id: 0, command: AdminCommand::Fail(slot) });
    let is_filled =
        |volume: &Volume| volume.member_of(slot) == Some(SPARE) && volume.recovered_sectors(slot).is_none();
    while !is_filled(&run.volume) || !run.in_flight.is_empty() {
        run.answer();
    }
    run.work(200, 4);
    run.cut();
    let places = run.places();
    run.start(&places, false, None);
    run.wrong_rows()
}

#[test]
fn a_spare_whose_log_area_has_an_old_log_takes_a_slot_and_no_row_is_wrong() {
    for seed in 0..300 {
        assert_eq!(wrong_with_an_old_log(seed, true), [] as [u64; 0], "seed {seed}");
    }
}

#[test]
fn an_old_log_that_the_start_left_alone_makes_rows_wrong() {
    assert!((0..300).any(|seed| !wrong_with_an_old_log(seed, false).is_empty()));
}
