//! Members that do not take or give some sectors: they stay, their bad-block logs say which sectors are not there, and
//! what the redundancy can give is right, also after a restart from what the members hold.

use std::collections::BTreeSet;

use stripewise_engine::geometry::{GeometrySpec, Holds, Place};
use stripewise_engine::io::{
    Action, ActionQueue, AdminCommand, AdminReply, Area, ArrayEvent, Compute, Flags, Input, IoError,
    IoResult, MemberIo, Op, Request, RequestId, SyncAction,
};
use stripewise_engine::metadata::{MemberMetadata, MetadataConfig, SAFE_MODE_DELAY};
use stripewise_engine::policy::Policy;
use stripewise_engine::units::{Instant, MemberIndex, SECTOR_BYTES, SectorRange, Slot};
use stripewise_engine::volume::{Volume, VolumeConfig};
use stripewise_format::bad_blocks::parse;
use stripewise_format::level::{Layout, Level};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, Role, Superblock1};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;
use stripewise_sim::Data;
use stripewise_sim::bytes::BytesStore;
use stripewise_sim::random::Random;

const MEMBERS: u16 = 4;
const CHUNK: u64 = 32;
const MEMBER_SECTORS: u64 = 16 * CHUNK;
const SUPERBLOCK: u64 = 8;
const LOG: u64 = 16;
const LOG_SECTORS: u16 = 8;
const DATA_OFFSET: u64 = 64;

fn geometry(level: Level) -> GeometrySpec {
    GeometrySpec {
        level,
        layout: Layout::default_of(level),
        chunk_sectors: if level == Level::Raid1 { 0 } else { CHUNK },
        member_sectors: vec![MEMBER_SECTORS; MEMBERS.into()],
    }
}

fn first_superblock(level: Level, member: u16) -> Vec<u8> {
    let mut superblock = Superblock1::new(level, MEMBERS.into(), 0, Uuid([9; 16]));
    superblock.layout = Layout::default_of(level).number() as u32;
    superblock.chunk_sectors = if level == Level::Raid1 { 0 } else { CHUNK as u32 };
    superblock.size_sectors = MEMBER_SECTORS;
    superblock.data_offset_sectors = DATA_OFFSET;
    superblock.data_size_sectors = MEMBER_SECTORS;
    superblock.super_offset_sectors = SUPERBLOCK;
    superblock.dev_number = member.into();
    superblock.bblog_offset_sectors = (LOG - SUPERBLOCK) as i32;
    superblock.bblog_size_sectors = LOG_SECTORS;
    (0..MEMBERS).for_each(|slot| superblock.dev_roles[usize::from(slot)] = Role::Slot(slot));
    superblock.to_bytes()
}

enum Pending {
    Io(MemberIo, ActionQueue),
    Compute(Compute, ActionQueue),
}

/// What a member does with a sector of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// Cannot be read until it is written.
    Latent,
    /// Cannot be read or written.
    Stuck,
}

struct Bench {
    level: Level,
    volume: Volume,
    bytes: BytesStore,
    pending: Vec<Pending>,
    requests: Vec<Option<Request>>,
    results: Vec<IoResult>,
    model: Vec<u8>,
    faults: BTreeSet<(MemberIndex, u64, Fault)>,
    events: Vec<ArrayEvent>,
    replies: Vec<AdminReply>,
    random: Random,
    now: Instant,
}

/// What the members say of themselves.
fn found(bytes: &mut BytesStore) -> Vec<Option<MemberMetadata>> {
    let read = |member: u16| {
        let image = bytes.member(MemberIndex(member)).clone();
        let at = |sector: u64, sectors: u64| {
            &image[(sector * SECTOR_BYTES) as usize..((sector + sectors) * SECTOR_BYTES) as usize]
        };
        let superblock = Superblock1::parse(at(SUPERBLOCK, 8), SUPERBLOCK);
        let superblock = superblock.unwrap();
        let is_listed = superblock.features.contains(Features::BAD_BLOCKS);
        let listed = parse(at(LOG, LOG_SECTORS.into()), 0).unwrap();
        assert_eq!(is_listed, !listed.is_empty(), "the feature says whether anything is listed");
        Some(MemberMetadata {
            superblock: Superblock::V1(Box::new(superblock)),
            sector: SUPERBLOCK,
            bad_blocks: Some(listed),
        })
    };
    (0..MEMBERS).map(read).collect()
}

fn config(level: Level, members: Vec<Option<MemberMetadata>>, policy: Policy) -> VolumeConfig {
    let metadata = MetadataConfig {
        members,
        bitmap: None,
        journal: None,
        clock_start: Timestamp::default(),
        safe_mode_delay: SAFE_MODE_DELAY,
    };
    VolumeConfig { metadata: Some(metadata), ..VolumeConfig::new(geometry(level), policy) }
}

impl Bench {
    fn new(level: Level, seed: u64) -> Self {
        // One more, that may come in later.
        let sectors = vec![DATA_OFFSET + MEMBER_SECTORS; usize::from(MEMBERS) + 1];
        let mut bytes = BytesStore::new(&sectors, 1024).with_data_offsets(&vec![DATA_OFFSET; sectors.len()]);
        for member in 0..MEMBERS {
            let image = bytes.member(MemberIndex(member));
            let superblock = first_superblock(level, member);
            let at = (SUPERBLOCK * SECTOR_BYTES) as usize;
            image[at..at + superblock.len()].copy_from_slice(&superblock);
            let log = (LOG * SECTOR_BYTES) as usize;
            image[log..log + usize::from(LOG_SECTORS) * 512].fill(0xff);
        }
        let policy = if seed.is_multiple_of(2) { Policy::stripewise() } else { Policy::linux_6_1() };
        let volume = Volume::new(&config(level, found(&mut bytes), policy)).unwrap();
        let model = vec![0; (volume.geometry().array_sectors() * SECTOR_BYTES) as usize];
        Self {
            level,
            volume,
            bytes,
            pending: Vec::new(),
            requests: vec![None; 4],
            results: vec![Ok(()); 4],
            model,
            faults: BTreeSet::new(),
            events: Vec::new(),
            replies: Vec::new(),
            random: Random::new(seed),
            now: Instant::ZERO,
        }
    }

    fn restart(&mut self) {
        self.input(Input::Admin { id: 0, command: AdminCommand::Stop });
        self.settle();
        let members = found(&mut self.bytes);
        let policy = Policy::stripewise();
        self.volume = Volume::new(&config(self.level, members, policy)).unwrap();
    }

    fn input(&mut self, input: Input) {
        let mut out = ActionQueue::default();
        self.volume.handle(self.now, input, &mut out);
        self.volume.check_invariants();
        for action in out.actions.clone() {
            match action {
                Action::Io(io) => self.pending.push(Pending::Io(io, out.clone())),
                Action::Compute(compute) => self.pending.push(Pending::Compute(compute, out.clone())),
                Action::Complete { id, result } => {
                    self.requests[id.0 as usize] = None;
                    self.results[id.0 as usize] = result;
                }
                Action::Replied { reply, .. } => self.replies.push(reply),
                Action::Event(event) => self.events.push(event),
            }
        }
    }

    fn answer(&mut self) {
        if self.pending.is_empty() {
            self.now = self.now.max(self.volume.next_deadline().expect("something is awaited"));
            return self.input(Input::Timer);
        }
        let index = self.random.below(self.pending.len() as u64) as usize;
        match self.pending.swap_remove(index) {
            Pending::Io(io, out) => {
                let result = self.storage(&io, &out);
                self.input(Input::IoDone { tag: io.tag, result });
            }
            Pending::Compute(compute, out) => {
                let verdict = self.bytes.compute(&compute, &out);
                self.input(Input::Computed { tag: compute.tag, verdict });
            }
        }
    }

    fn storage(&mut self, io: &MemberIo, out: &ActionQueue) -> IoResult {
        if io.area == Area::Data && matches!(io.op, Op::Read | Op::Write) {
            let is_hit = |(member, sector, fault): &(MemberIndex, u64, Fault)| {
                let in_range = io.range.overlaps(SectorRange::new(*sector, 1));
                *member == io.member && in_range && (io.op == Op::Read || *fault == Fault::Stuck)
            };
            if self.faults.iter().any(is_hit) {
                return Err(IoError::Media);
            }
            if io.op == Op::Write {
                self.faults.retain(|f| f.0 != io.member || !io.range.overlaps(SectorRange::new(f.1, 1)));
            }
        }
        self.bytes.io(io, out);
        Ok(())
    }

    /// Until nothing is under way.
    fn settle(&mut self) {
        while !self.pending.is_empty() || self.requests.iter().any(Option::is_some) {
            self.answer();
        }
    }

    /// Until the superblocks say all.
    fn rest(&mut self) {
        self.settle();
        while self.volume.next_deadline().is_some() {
            self.answer();
            self.settle();
        }
    }

    fn submit(&mut self, index: usize, op: Op, range: SectorRange) {
        let id = RequestId(index as u32);
        let request = Request { id, op, range, flags: Flags::default() };
        let length = (range.count * SECTOR_BYTES) as usize;
        *self.bytes.request(id) = (0..length).map(|_| self.random.below(256) as u8).collect();
        if op == Op::Write {
            let at = (range.start * SECTOR_BYTES) as usize;
            self.model[at..at + length].copy_from_slice(self.bytes.request(id));
        }
        self.requests[index] = Some(request);
        self.input(Input::Request(request));
    }

    fn read(&mut self, range: SectorRange) -> Result<Vec<u8>, IoError> {
        self.submit(0, Op::Read, range);
        self.settle();
        self.results[0].map(|()| self.bytes.request(RequestId(0)).clone())
    }

    fn expected(&self, range: SectorRange) -> &[u8] {
        &self.model[(range.start * SECTOR_BYTES) as usize..(range.end() * SECTOR_BYTES) as usize]
    }

    /// Four requests at once that do not overlap, of which none may fail or read something wrong.
    fn round(&mut self) {
        let sectors = self.volume.geometry().array_sectors();
        let mut taken: Vec<(Op, SectorRange)> = Vec::new();
        for index in 0..4 {
            let count = [1, 3, 8, 24, 96][self.random.below(5) as usize];
            let range = SectorRange::new(self.random.below(sectors - count), count);
            let op = if self.random.below(2) == 0 { Op::Read } else { Op::Write };
            if taken.iter().all(|(_, other)| !other.overlaps(range)) {
                taken.push((op, range));
                self.submit(index, op, range);
                if self.random.below(2) == 0 {
                    self.answer();
                }
            } else {
                taken.push((Op::Flush, range));
            }
        }
        self.settle();
        for (index, (op, range)) in taken.into_iter().enumerate().filter(|(_, t)| t.0 != Op::Flush) {
            assert_eq!(self.results[index], Ok(()), "{op:?} of {range:?}");
            if op == Op::Read {
                let got = self.bytes.request(RequestId(index as u32)).clone();
                assert!(got == self.expected(range), "{range:?} read something else");
            }
        }
    }

    fn check_all(&mut self) {
        let all = SectorRange::new(0, self.volume.geometry().array_sectors());
        assert!(self.read(all).unwrap() == self.expected(all));
    }

    fn listed(&mut self) -> u64 {
        let members = found(&mut self.bytes);
        let lists = members.iter().flatten().flat_map(|m| m.bad_blocks.iter().flatten());
        lists.map(|range| range.length_sectors).sum()
    }

    fn run_action(&mut self, action: SyncAction) {
        self.input(Input::Admin { id: 1, command: AdminCommand::Sync(action) });
        assert_eq!(self.replies.last(), Some(&AdminReply::Done));
        while !self.events.contains(&ArrayEvent::SyncDone(action)) {
            self.answer();
        }
        self.rest();
    }
}

/// As many members of a row as the level does without get faults there.
fn spoil(bench: &mut Bench, fault: Fault) {
    let most = match bench.level {
        Level::Raid6 => 2,
        _ => 1,
    };
    for _ in 0..6 {
        let row = bench.random.below(MEMBER_SECTORS / 8);
        // Writes of parity are listed as a whole, and none is larger than a chunk of every member.
        let part = if matches!(bench.level, Level::Raid1 | Level::Raid10) { 8 } else { CHUNK };
        let first = bench.random.below(MEMBERS.into());
        let is_free = |f: &(MemberIndex, u64, Fault)| f.1 / part != row * 8 / part;
        if !bench.faults.iter().all(is_free) {
            continue;
        }
        for index in 0..most {
            let member = MemberIndex(((first + index) % u64::from(MEMBERS)) as u16);
            let sector = row * 8 + bench.random.below(8);
            bench.faults.insert((member, sector, fault));
        }
    }
}

const LEVELS: [Level; 4] = [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];

#[test]
fn sectors_that_members_do_not_take_are_listed_and_read_from_the_redundancy() {
    let mut has_listed = 0;
    for (level, seed) in LEVELS.into_iter().flat_map(|level| (0..40).map(move |seed| (level, seed))) {
        let mut bench = Bench::new(level, seed);
        spoil(&mut bench, Fault::Stuck);
        (0..8).for_each(|_| bench.round());
        bench.rest();
        assert!(
            !bench.events.iter().any(|e| matches!(e, ArrayEvent::MemberFailed { .. })),
            "{level:?} {seed}"
        );
        has_listed += u64::from(bench.listed() > 0);
        // What they hold now is not what they should: it must not be believed because it can be read again.
        bench.faults.clear();
        bench.restart();
        bench.check_all();
        (0..4).for_each(|_| bench.round());
        bench.run_action(SyncAction::Repair);
        assert_eq!(bench.listed(), 0, "{level:?} {seed}: a repair writes what is listed");
        bench.restart();
        bench.check_all();
        bench.run_action(SyncAction::Check);
        assert_eq!(bench.volume.sync_status().unwrap().mismatch_sectors, 0, "{level:?} {seed}");
    }
    assert!(has_listed > 80, "{has_listed} of 160 runs had anything to list");
}

#[test]
fn a_member_is_recovered_past_what_no_other_holds() {
    for (level, seed) in [Level::Raid1, Level::Raid5, Level::Raid10].into_iter().zip([1, 2, 3]) {
        let mut bench = Bench::new(level, seed);
        (0..20).for_each(|_| bench.round());
        // The stripe cache knows nothing then.
        bench.restart();
        let geometry = bench.volume.geometry().clone();
        let (lost, sector) = (Slot(0), 5 * 8 + 3);
        let spoilt: Vec<u16> = if level == Level::Raid10 { vec![1] } else { (1..MEMBERS).collect() };
        bench.input(Input::Admin { id: 2, command: AdminCommand::Fail(lost) });
        bench.rest();
        for member in spoilt {
            bench.faults.insert((MemberIndex(member), sector, Fault::Latent));
        }
        let mut superblock = Superblock1::parse(&first_superblock(level, 0), SUPERBLOCK).unwrap();
        superblock.dev_number = MEMBERS.into();
        let metadata = MemberMetadata {
            superblock: Superblock::V1(Box::new(superblock)),
            sector: SUPERBLOCK,
            bad_blocks: Some(Vec::new()),
        };
        bench.volume.introduce(MemberIndex(MEMBERS), metadata);
        let command = AdminCommand::AddSpare(MemberIndex(MEMBERS));
        bench.input(Input::Admin { id: 3, command });
        while !bench.events.contains(&ArrayEvent::SyncDone(SyncAction::Recover)) {
            bench.answer();
        }
        bench.rest();
        assert_eq!(bench.replies.last(), Some(&AdminReply::Done));
        assert_eq!(bench.volume.member_of(lost), Some(MemberIndex(MEMBERS)), "{level:?}");
        let page = |sector: u64| SectorRange::new(sector / 8 * 8, 8);
        let Holds::Data(gone) = geometry.holds(Place { slot: lost, sector }) else {
            panic!("{level:?}: the sector is data")
        };
        assert_eq!(bench.read(page(gone)).map(|_| ()), Err(IoError::Media), "{level:?}");
        let lost_ranges = bench.volume.lost_ranges();
        if level == Level::Raid5 {
            // The members that could not be read may give it another time.
            assert_eq!(lost_ranges.ranges, []);
            bench.faults.clear();
            assert!(bench.read(page(gone)).unwrap() == bench.expected(page(gone)));
            continue;
        }
        assert!(lost_ranges.ranges.contains(&page(gone)), "{level:?}: {lost_ranges:?}");
        for start in (0..geometry.array_sectors()).step_by(8) {
            let range = SectorRange::new(start, 8);
            if !lost_ranges.ranges.iter().any(|lost| lost.overlaps(range)) {
                assert!(bench.read(range).unwrap() == bench.expected(range), "{level:?} {range:?}");
            }
        }
    }
}

#[test]
fn a_member_with_too_many_errors_fails() {
    let mut bench = Bench::new(Level::Raid5, 4);
    for row in 0..MEMBER_SECTORS / 8 {
        bench.faults.insert((MemberIndex(1), row * 8, Fault::Stuck));
    }
    (0..60).for_each(|_| bench.round());
    assert!(bench.events.contains(&ArrayEvent::MemberFailed { slot: Slot(1) }));
    bench.check_all();
}
