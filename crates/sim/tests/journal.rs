//! Power cuts on arrays that are written through a write journal, with members lost before, meanwhile and at the same moment: what
//! was acknowledged is there, what was being written is there or not, and parity agrees. The log is followed and written on, again
//! and again. Without the log the same runs lose data, which shows that the test can fail.

mod power_cut;

use std::ops::{Deref, DerefMut};

use stripewise_engine::array::slots::SlotSet;
use stripewise_engine::geometry::{Geometry, GeometrySpec, Shape};
use stripewise_engine::io::{AdminCommand, ArrayEvent, Flags, Input, IoResult, Op, Request, RequestId, Role};
use stripewise_engine::journal::{
    Head, JournalPlace, JournalStart, JournalStorage, RowBlock, RowMember, recover,
};
use stripewise_engine::metadata::{MemberMetadata, MetadataConfig, SAFE_MODE_DELAY};
use stripewise_engine::policy::Policy;
use stripewise_engine::ppl::MemberStorage;
use stripewise_engine::units::{Instant, MemberIndex, Nanos, SectorRange, Slot};
use stripewise_engine::volume::{Volume, VolumeConfig};
use stripewise_format::journal::{MetaBlock, Seed};
use stripewise_format::level::{Layout, Level};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{self, Features, Superblock1};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;
use stripewise_parity::{Lost, Stripe, kernels};
use stripewise_sim::Data;
use stripewise_sim::bytes::BytesStore;
use stripewise_sim::random::Random;

use power_cut::{Load, Pending, content, put};

const CHUNK: u64 = 32;
const MEMBER_SECTORS: u64 = 8 * CHUNK;
const SUPERBLOCK: u64 = 8;
const DATA_OFFSET: u64 = 64;
/// Blocks of the log: as short as it may be, and longer.
const LOG_BLOCKS: [u64; 3] = [28, 64, 400];
const UUID: Uuid = Uuid([9; 16]);

/// An array: its level and members.
#[derive(Clone, Copy)]
struct Kind {
    level: Level,
    slots: u16,
    log_sectors: u64,
}

impl Kind {
    fn of(seed: u64) -> Self {
        let (level, slots) =
            [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid4, 3), (Level::Raid6, 6)][(seed % 4) as usize];
        Self { level, slots, log_sectors: LOG_BLOCKS[(seed / 4 % 3) as usize] * 8 }
    }

    fn parity(self) -> usize {
        self.level.parity_count().into()
    }

    fn journal(self) -> MemberIndex {
        MemberIndex(self.slots)
    }

    fn geometry(self) -> GeometrySpec {
        GeometrySpec {
            level: self.level,
            layout: Layout::default_of(self.level),
            chunk_sectors: CHUNK,
            member_sectors: vec![MEMBER_SECTORS; self.slots.into()],
        }
    }

    fn superblock(self, member: u16) -> Superblock1 {
        let is_journal = MemberIndex(member) == self.journal();
        let mut superblock = Superblock1::new(self.level, self.slots.into(), 0, UUID);
        superblock.layout = Layout::default_of(self.level).number() as u32;
        superblock.chunk_sectors = CHUNK as u32;
        superblock.size_sectors = MEMBER_SECTORS;
        superblock.data_offset_sectors = DATA_OFFSET;
        superblock.data_size_sectors = if is_journal { self.log_sectors } else { MEMBER_SECTORS };
        superblock.super_offset_sectors = SUPERBLOCK;
        superblock.features |= Features::JOURNAL;
        superblock.dev_number = member.into();
        superblock.dev_roles.resize(usize::from(self.slots) + 1, superblock_1::Role::Spare);
        for slot in 0..self.slots {
            superblock.dev_roles[usize::from(slot)] = superblock_1::Role::Slot(slot);
        }
        superblock.dev_roles[usize::from(self.slots)] = superblock_1::Role::Journal;
        superblock
    }
}

struct Run {
    kind: Kind,
    load: Load,
    has_log: bool,
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
    /// An array as it is created, with the log that mdadm makes: an empty block.
    fn new(seed: u64, has_log: bool) -> Self {
        let kind = Kind::of(seed);
        let sectors = (0..=kind.slots)
            .map(|m| DATA_OFFSET + if m == kind.slots { kind.log_sectors } else { MEMBER_SECTORS });
        let members = usize::from(kind.slots) + 1;
        let mut bytes =
            BytesStore::new(&sectors.collect::<Vec<_>>(), 256).with_data_offsets(&vec![DATA_OFFSET; members]);
        for member in 0..=kind.slots {
            put(&mut bytes, MemberIndex(member), SUPERBLOCK, &kind.superblock(member).to_bytes());
        }
        let first = MetaBlock { sequence: 77, position_sectors: 0, payloads: Vec::new() };
        put(&mut bytes, kind.journal(), DATA_OFFSET, &first.to_bytes(Seed::of(&UUID)));
        let next = Head { position_sectors: 8, sequence: 78 };
        let mut random = Random::new(seed);
        let lost = if random.below(3) == 0 { kind.lost(&mut random, SlotSet::EMPTY) } else { SlotSet::EMPTY };
        kind.tell(&mut bytes, lost);
        let volume = start(kind, &mut bytes, lost, Some(next).filter(|_| has_log), seed);
        Self { kind, load: Load::new(volume, bytes, random), has_log }
    }

    /// Goes on for some steps; in one of so many a member fails, while the level survives it, or one that failed comes back.
    fn work(&mut self, steps_max: u64, fails_in: u64) {
        let steps = 50 + self.random.below(steps_max);
        for _ in 0..steps {
            if self.in_flight.len() < 6 && self.random.below(6) == 0 && self.broken.is_none() {
                self.write();
            }
            if self.random.below(fails_in) == 0 {
                let slot = Slot(self.load.random.below(self.kind.slots.into()) as u16);
                if self.volume.member_of(slot).is_none() {
                    self.take_back(slot);
                } else if self.volume.survives_without(slot) {
                    self.input(Input::Admin { id: 0, command: AdminCommand::Fail(slot) });
                }
            }
            // Time passes: an array that rests becomes clean.
            if self.random.below(100) == 0 && self.volume.next_deadline().is_some() {
                self.now = self.now + Nanos::from_millis(300);
                self.input(Input::Timer);
            }
            self.answer();
        }
    }

    /// Takes back the member of a slot, which is filled then.
    fn take_back(&mut self, slot: Slot) {
        let member = MemberIndex(slot.0);
        let metadata = MemberMetadata {
            superblock: Superblock::V1(Box::new(superblock(&mut self.bytes, member))),
            sector: SUPERBLOCK,
            bad_blocks: None,
        };
        self.input(Input::Admin { id: 0, command: AdminCommand::Remove(member) });
        self.volume.introduce(member, metadata);
        self.input(Input::Admin { id: 0, command: AdminCommand::ReAdd { slot, member } });
    }

    /// Cuts the power: of what is under way some reaches the members, of a long write some blocks.
    fn cut(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            if let Pending::Io(io, out) = pending
                && io.op == Op::Write
                && self.random.below(2) == 0
                && self.broken != Some(io.member)
            {
                let is_log = io.member == self.kind.journal() && io.range.count > 8;
                if !is_log {
                    self.bytes.io(&io, &out);
                    continue;
                }
                let bytes = self.bytes.gather(io.segs, &out);
                for (number, block) in (0..).zip(bytes.chunks(4096)) {
                    if self.random.below(4) > 0 {
                        put(&mut self.bytes, io.member, io.range.start + 8 * number, block);
                    }
                }
            }
        }
    }

    /// Power comes back: the log is followed, without the members that are lost by then, and the array is used again.
    fn start_again(&mut self, seed: u64) {
        let kind = self.kind;
        let absent = kind.absent(&mut self.bytes);
        let journal = superblock(&mut self.bytes, kind.journal());
        let is_right = journal.resync_offset_sectors == superblock_1::MAX_SECTOR;
        assert!(is_right || !self.has_log, "the log keeps parity right");
        let lacking = kind.lacking(&mut self.bytes).union(absent);
        let lost = if self.random.below(2) == 0 { kind.lost(&mut self.random, lacking) } else { lacking };
        // One that was being filled is there or not.
        let lost = lost.minus(lacking).union(absent);
        kind.tell(&mut self.bytes, lost);
        let geometry = Geometry::new(&kind.geometry()).unwrap();
        let start = self.has_log.then(|| {
            let tail = superblock(&mut self.bytes, kind.journal()).journal_tail_sectors().unwrap();
            let place = JournalPlace {
                member: kind.journal(),
                data_offset_sectors: DATA_OFFSET,
                data_sectors: kind.log_sectors,
                tail_sectors: tail,
            };
            let here = SlotSet::first(kind.slots).minus(lost).iter();
            let members: Vec<RowMember> = here.map(|slot| row_member(&mut self.bytes, slot)).collect();
            let mut devices = Devices { bytes: &mut self.bytes, lost, journal: kind.journal() };
            let report = recover(&geometry, &UUID, &place, &members, &mut devices).unwrap();
            assert!(!report.is_damaged, "at the tail there is always a block");
            assert_eq!(report.data_only_rows, 0, "every row has its parity");
            report.start.unwrap().next
        });
        self.volume = self::start(kind, &mut self.bytes, lost, start, seed);
        self.now = Instant::ZERO;
        self.broken = None;
    }

    /// What is wrong; of what was being written it is noted what is there.
    fn wrong(&mut self) -> Vec<String> {
        let kind = self.kind;
        let is_whole = |slot: Slot| {
            self.volume.member_of(slot).is_some() && self.volume.recovered_sectors(slot).is_none()
        };
        let lost: SlotSet = SlotSet::first(kind.slots).iter().filter(|slot| !is_whole(*slot)).collect();
        let geometry = self.volume.geometry().clone();
        let rows: Vec<Vec<Vec<u8>>> =
            (0..MEMBER_SECTORS / 8).map(|row| kind.row(&mut self.bytes, &geometry, row * 8, lost)).collect();
        let mut wrong = Vec::new();
        for sector in 0..geometry.array_sectors() {
            let place = geometry.place(sector, 0);
            let block = &rows[(place.sector / 8) as usize][place.slot.index()];
            let found = &block[(place.sector % 8) as usize * 512..][..512];
            let before = self.acknowledged[sector as usize];
            let writing = self.in_flight.iter().filter(|(_, r)| r.overlaps(SectorRange::new(sector, 1)));
            let mut can_be = writing.map(|(id, _)| *id).chain([before]);
            match can_be.find(|write| found == content(sector, *write)) {
                Some(write) => self.acknowledged[sector as usize] = write,
                None => wrong.push(format!("sector {sector} of write {before}")),
            }
        }
        self.in_flight.clear();
        if lost.is_empty() {
            for row in 0..MEMBER_SECTORS / 8 {
                let stripe = geometry_parity(&geometry, row * 8);
                let computed = kind.row(&mut self.bytes, &geometry, row * 8, stripe);
                if computed != rows[row as usize] {
                    wrong.push(format!("parity of row {row}"));
                }
            }
        }
        wrong
    }
}

/// The parity slots of a row.
fn geometry_parity(geometry: &Geometry, sector: u64) -> SlotSet {
    let Shape::Parity(shape) = geometry.shape() else { unreachable!() };
    let map = shape.stripe_at(sector);
    [Some(map.p), map.q].into_iter().flatten().collect()
}

fn row_member(bytes: &mut BytesStore, slot: Slot) -> RowMember {
    let member = MemberIndex(slot.0);
    RowMember {
        member,
        slot,
        data_offset_sectors: DATA_OFFSET,
        valid_sectors: superblock(bytes, member).recovered_sectors().unwrap_or(u64::MAX),
        bad: Vec::new(),
    }
}

impl Kind {
    /// These slots and more, as many as can be lost, or fewer.
    fn lost(self, random: &mut Random, already: SlotSet) -> SlotSet {
        let mut lost = already;
        while lost.len() < self.parity() && random.below(3) > 0 {
            lost.insert(Slot(random.below(self.slots.into()) as u16));
        }
        lost
    }

    /// Slots that have no member, as the freshest superblock says.
    fn absent(self, bytes: &mut BytesStore) -> SlotSet {
        let all: Vec<Superblock1> = (0..=self.slots).map(|m| superblock(bytes, MemberIndex(m))).collect();
        let freshest = all.iter().max_by_key(|superblock| superblock.events).unwrap();
        let absent = (0..self.slots).map(Slot).filter(|slot| {
            freshest.dev_roles[slot.index()] != superblock_1::Role::Slot(slot.0)
                || all[slot.index()].events + 1 < freshest.events
        });
        absent.collect()
    }

    /// Has the superblocks of the others say that these members are gone, as a start does before it follows the log.
    fn tell(self, bytes: &mut BytesStore, lost: SlotSet) {
        let here = || (0..=self.slots).map(MemberIndex).filter(|member| !lost.contains(Slot(member.0)));
        let events = here().map(|member| superblock(bytes, member).events).max().unwrap() + 2;
        for member in here() {
            let mut superblock = superblock(bytes, member);
            superblock.events = events;
            for slot in lost.iter() {
                superblock.dev_roles[slot.index()] = superblock_1::Role::Faulty;
            }
            put(bytes, member, SUPERBLOCK, &superblock.to_bytes());
        }
    }

    /// Slots whose members were being filled.
    fn lacking(self, bytes: &mut BytesStore) -> SlotSet {
        let slots = SlotSet::first(self.slots).iter();
        slots.filter(|slot| superblock(bytes, MemberIndex(slot.0)).recovered_sectors().is_some()).collect()
    }

    /// A row's blocks by slot, those of lost members rebuilt.
    fn row(self, bytes: &mut BytesStore, geometry: &Geometry, sector: u64, lost: SlotSet) -> Vec<Vec<u8>> {
        let Shape::Parity(shape) = geometry.shape() else { unreachable!() };
        let map = shape.stripe_at(sector);
        let mut blocks: Vec<RowBlock> = (0..self.slots)
            .map(Slot)
            .map(|slot| RowBlock {
                role: map.operand_role(slot),
                bytes: (!lost.contains(slot)).then(|| block(bytes, MemberIndex(slot.0), sector)),
            })
            .collect();
        if !lost.is_empty() {
            solve(&mut blocks);
        }
        blocks.into_iter().map(|block| block.bytes.unwrap()).collect()
    }
}

fn block(bytes: &mut BytesStore, member: MemberIndex, sector: u64) -> Vec<u8> {
    bytes.member(member)[((DATA_OFFSET + sector) * 512) as usize..][..4096].to_vec()
}

fn superblock(bytes: &mut BytesStore, member: MemberIndex) -> Superblock1 {
    Superblock1::parse(&bytes.member(member)[(SUPERBLOCK * 512) as usize..], SUPERBLOCK).unwrap()
}

/// The array without these members, its log written on from here.
fn start(kind: Kind, bytes: &mut BytesStore, lost: SlotSet, next: Option<Head>, seed: u64) -> Volume {
    let member = |m: u16| {
        let superblock = Superblock::V1(Box::new(superblock(bytes, MemberIndex(m))));
        (!lost.contains(Slot(m))).then_some(MemberMetadata {
            superblock,
            sector: SUPERBLOCK,
            bad_blocks: None,
        })
    };
    let members: Vec<_> = (0..=kind.slots).map(member).collect();
    let tail = superblock(bytes, kind.journal()).journal_tail_sectors().unwrap();
    let place = JournalPlace {
        member: kind.journal(),
        data_offset_sectors: DATA_OFFSET,
        data_sectors: kind.log_sectors,
        tail_sectors: tail,
    };
    let metadata = MetadataConfig {
        members,
        bitmap: None,
        journal: next.map(|next| JournalStart { place, next }),
        clock_start: Timestamp::default(),
        safe_mode_delay: SAFE_MODE_DELAY,
    };
    let recovering = SlotSet::first(kind.slots).minus(lost).iter().filter_map(|slot| {
        let superblock = superblock(bytes, MemberIndex(slot.0));
        Some((slot, superblock.recovered_sectors()?))
    });
    let recovering = recovering.collect();
    let policy = if seed.is_multiple_of(2) { Policy::stripewise() } else { Policy::linux_6_1() };
    let config = VolumeConfig {
        metadata: Some(metadata),
        discard: seed.is_multiple_of(3),
        failed: lost.iter().collect(),
        recovering,
        ..VolumeConfig::new(kind.geometry(), policy)
    };
    Volume::new(&config).unwrap()
}

struct Devices<'a> {
    bytes: &'a mut BytesStore,
    lost: SlotSet,
    journal: MemberIndex,
}

impl Devices<'_> {
    fn bytes(&mut self, member: MemberIndex) -> &mut [u8] {
        assert!(!self.lost.contains(Slot(member.0)), "the lost members are left alone");
        self.bytes.member(member)
    }
}

impl MemberStorage for Devices<'_> {
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

impl JournalStorage for Devices<'_> {
    fn move_tail(&mut self, tail_sectors: u64) -> IoResult {
        let mut journal = superblock(self.bytes, self.journal);
        journal.recovery_offset_sectors = tail_sectors;
        put(self.bytes, self.journal, SUPERBLOCK, &journal.to_bytes());
        Ok(())
    }

    fn solve(&mut self, row: &mut [RowBlock]) {
        solve(row);
    }
}

fn solve(row: &mut [RowBlock]) {
    let data_count = row.iter().filter(|block| matches!(block.role, Role::Data(_))).count();
    let mut data: Vec<Option<&[u8]>> = vec![None; data_count];
    let (mut p, mut q) = (None, None);
    let (mut lost, mut solved) = (Vec::new(), Vec::new());
    for (number, block) in row.iter().enumerate() {
        let bytes = block.bytes.as_deref();
        match block.role {
            Role::Data(index) => data[usize::from(index)] = bytes,
            Role::P => p = bytes,
            Role::Q => q = bytes,
        }
        if bytes.is_none() {
            solved.push((number, vec![0; 4096]));
        }
    }
    for (number, bytes) in &mut solved {
        let role = match row[*number].role {
            Role::Data(index) => stripewise_parity::Role::Data(index),
            Role::P => stripewise_parity::Role::P,
            Role::Q => stripewise_parity::Role::Q,
        };
        lost.push(Lost::wanted(role, bytes));
    }
    kernels().recover(&Stripe { data: &data, p, q }, &mut lost).unwrap();
    drop(lost);
    for (number, bytes) in solved {
        row[number].bytes = Some(bytes);
    }
}

/// What is wrong after several power cuts.
fn wrong(seed: u64, has_log: bool) -> Vec<String> {
    let mut run = Run::new(seed, has_log);
    for cut in 0..4 {
        run.work(900, 60);
        run.cut();
        run.start_again(seed + cut);
        let wrong = run.wrong();
        if !wrong.is_empty() {
            return wrong;
        }
    }
    Vec::new()
}

#[test]
fn power_cuts_and_lost_members_together_lose_nothing_acknowledged() {
    for seed in 0..400 {
        assert_eq!(wrong(seed, true), [] as [String; 0], "seed {seed}");
    }
}

#[test]
fn without_the_log_the_same_runs_lose_data() {
    assert!((0..40).any(|seed| !wrong(seed, false).is_empty()));
}

#[test]
fn an_array_whose_journal_fails_takes_no_more_writes_and_its_log_is_followed() {
    let mut failures = 0;
    for seed in 0..200 {
        let mut run = Run::new(seed, true);
        run.work(600, 1 << 40);
        run.load.broken = Some(run.kind.journal());
        while !run.pending.is_empty() {
            run.answer();
        }
        let has_failed = run.events.contains(&ArrayEvent::JournalFailed);
        failures += u32::from(has_failed);
        let range = SectorRange::new(0, 8);
        if has_failed {
            let request = Request { id: RequestId(0), op: Op::Write, range, flags: Flags::default() };
            run.input(Input::Request(request));
            assert!(run.pending.is_empty(), "nothing is asked of the members");
        }
        run.cut();
        run.start_again(seed);
        assert_eq!(run.wrong(), [] as [String; 0], "seed {seed}");
    }
    assert!(failures > 50, "{failures}");
}

#[test]
fn writes_end_however_short_the_log_is() {
    for seed in 0..60 {
        let mut run = Run::new(seed, true);
        for _ in 0..60 {
            run.write();
            run.answer();
        }
        let mut steps = 0;
        while !run.in_flight.is_empty() {
            run.answer();
            steps += 1;
            assert!(steps < 200_000, "seed {seed}: {} writes do not end", run.in_flight.len());
        }
        run.input(Input::Admin { id: 0, command: AdminCommand::Stop });
        while !run.pending.is_empty() {
            run.answer();
        }
        assert_eq!(run.wrong(), [] as [String; 0], "seed {seed}");
        let journal = superblock(&mut run.load.bytes, run.kind.journal());
        assert_eq!(journal.resync_offset_sectors, superblock_1::MAX_SECTOR, "seed {seed}");
        let tail = journal.journal_tail_sectors().unwrap();
        let block = block(&mut run.load.bytes, run.kind.journal(), tail);
        let block = MetaBlock::parse(&block, Seed::of(&UUID)).unwrap();
        assert!(block.payloads.is_empty(), "seed {seed}: a clean array's log has nothing to apply");
    }
}
