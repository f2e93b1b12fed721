//! Recovery over members in memory that lose what was not flushed when power is cut.

use stripewise_format::journal::{BLOCK_BYTES, BLOCK_SECTORS, MetaBlock, Payload, SEQUENCE_GAP, Seed};
use stripewise_format::level::{Layout, Level};
use stripewise_format::uuid::Uuid;

use super::*;
use crate::draws::draws;
use crate::geometry::{Geometry, GeometrySpec, Shape};
use crate::io::IoError;
use crate::units::SECTOR_BYTES;

const CHUNK: u64 = 16;
const DATA: u64 = 64;
const MEMBER: u64 = 128;
const LOG: u64 = 512;
const UUID: Uuid = Uuid([3; 16]);
const MEMBERS: u16 = 4;
const JOURNAL: MemberIndex = MemberIndex(MEMBERS);

/// Members, then the journal. What is written is volatile until it is flushed.
#[derive(Clone)]
struct Bytes {
    durable: Vec<Option<Vec<u8>>>,
    volatile: Vec<Option<Vec<u8>>>,
    /// Writes since the last flush of each.
    pending: Vec<Vec<(usize, Vec<u8>)>>,
    tail: u64,
    /// Writes, flushes and tails until power is cut.
    left: Option<u64>,
    /// A block that takes no writes.
    refused: Option<(MemberIndex, u64)>,
}

impl Bytes {
    fn step(&mut self) -> IoResult {
        match &mut self.left {
            Some(0) => Err(IoError::Gone),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Power is back: of what was not flushed, any part is there.
    fn revive(&mut self, mut keeps: impl FnMut() -> bool) {
        self.left = None;
        for (durable, pending) in self.durable.iter_mut().zip(&mut self.pending) {
            for (start, bytes) in pending.drain(..) {
                let Some(durable) = durable.as_mut().filter(|_| keeps()) else { continue };
                durable[start..start + bytes.len()].copy_from_slice(&bytes);
            }
        }
        self.volatile.clone_from(&self.durable);
    }

    /// As if it had always been there.
    fn put(&mut self, member: MemberIndex, sector: u64, bytes: &[u8]) {
        self.write(member, sector, bytes).unwrap();
        self.flush(member).unwrap();
    }
}

impl MemberStorage for Bytes {
    fn read(&mut self, member: MemberIndex, sector: u64, bytes: &mut [u8]) -> IoResult {
        let member = self.volatile[member.index()].as_ref().ok_or(IoError::Gone)?;
        let start = (sector * SECTOR_BYTES) as usize;
        bytes.copy_from_slice(&member[start..start + bytes.len()]);
        Ok(())
    }

    fn write(&mut self, member: MemberIndex, sector: u64, bytes: &[u8]) -> IoResult {
        self.step()?;
        if self.refused == Some((member, sector)) {
            return Err(IoError::Media);
        }
        let index = member.index();
        let start = (sector * SECTOR_BYTES) as usize;
        let volatile = self.volatile[index].as_mut().ok_or(IoError::Gone)?;
        volatile[start..start + bytes.len()].copy_from_slice(bytes);
        self.pending[index].push((start, bytes.to_vec()));
        Ok(())
    }

    fn flush(&mut self, member: MemberIndex) -> IoResult {
        self.step()?;
        let index = member.index();
        self.pending[index].clear();
        self.durable[index].clone_from(&self.volatile[index]);
        Ok(())
    }
}

impl JournalStorage for Bytes {
    fn move_tail(&mut self, tail_sectors: u64) -> IoResult {
        self.step()?;
        self.tail = tail_sectors;
        Ok(())
    }

    fn solve(&mut self, row: &mut [RowBlock]) {
        let unknown: Vec<usize> = (0..row.len()).filter(|n| row[*n].bytes.is_none()).collect();
        let [unknown] = unknown[..] else { panic!("{} blocks are not known", unknown.len()) };
        let mut sum = vec![0; BLOCK_BYTES];
        row.iter().filter_map(|block| block.bytes.as_ref()).for_each(|bytes| xor(&mut sum, bytes));
        row[unknown].bytes = Some(sum);
    }
}

fn xor(into: &mut [u8], with: &[u8]) {
    into.iter_mut().zip(with).for_each(|(a, b)| *a ^= b);
}

fn geometry() -> Geometry {
    let spec = GeometrySpec {
        level: Level::Raid5,
        layout: Layout::default_of(Level::Raid5),
        chunk_sectors: CHUNK,
        member_sectors: vec![MEMBER; MEMBERS.into()],
    };
    Geometry::new(&spec).unwrap()
}

fn pattern(seed: u64) -> Vec<u8> {
    let mut draw = draws(seed);
    (0..BLOCK_BYTES).map(|_| draw(256) as u8).collect()
}

/// An array whose data and parity agree, and what is in the journal of it.
struct World {
    geometry: Geometry,
    bytes: Bytes,
    /// The array's content as it must be, by blocks.
    content: Vec<Vec<u8>>,
    /// Where the next meta block goes.
    head: (u64, u64),
}

impl World {
    fn new() -> Self {
        let geometry = geometry();
        let sectors = |sectors: u64| Some(vec![0; (sectors * SECTOR_BYTES) as usize]);
        let mut devices = vec![sectors(DATA + MEMBER); MEMBERS.into()];
        devices.push(sectors(LOG));
        let bytes = Bytes {
            volatile: devices.clone(),
            pending: vec![Vec::new(); devices.len()],
            durable: devices,
            tail: 0,
            left: None,
            refused: None,
        };
        let count = geometry.array_sectors() / BLOCK_SECTORS;
        let content: Vec<_> = (0..count).map(pattern).collect();
        let mut world = Self { geometry, bytes, content, head: (LOG - 24, 41) };
        for block in 0..count {
            let place = world.geometry.place(block * BLOCK_SECTORS, 0);
            let bytes = world.content[block as usize].clone();
            world.bytes.put(MemberIndex(place.slot.0), DATA + place.sector, &bytes);
        }
        for row in (0..MEMBER).step_by(8) {
            let parity = world.parity(row);
            let p = world.p(row);
            world.bytes.put(MemberIndex(p.0), DATA + row, &parity);
        }
        world.bytes.tail = world.head.0;
        world.meta(Vec::new(), &[]);
        world
    }

    fn p(&self, row: u64) -> Slot {
        let Shape::Parity(shape) = self.geometry.shape() else { panic!() };
        shape.stripe_at(row).p
    }

    /// What the content makes of a row's parity.
    fn parity(&self, row: u64) -> Vec<u8> {
        let mut sum = vec![0; BLOCK_BYTES];
        for (block, bytes) in self.content.iter().enumerate() {
            if self.geometry.place(block as u64 * BLOCK_SECTORS, 0).sector == row {
                xor(&mut sum, bytes);
            }
        }
        sum
    }

    fn row_of(&self, block: u64) -> u64 {
        self.geometry.place(block * BLOCK_SECTORS, 0).sector
    }

    fn meta(&mut self, payloads: Vec<Payload>, blocks: &[Vec<u8>]) {
        let (position, sequence) = self.head;
        let meta = MetaBlock { sequence, position_sectors: position, payloads };
        self.bytes.put(JOURNAL, position, &meta.to_bytes(Seed::of(&UUID)));
        let mut at = position;
        for bytes in blocks {
            at = (at + 8) % LOG;
            self.bytes.put(JOURNAL, at, bytes);
        }
        self.head = ((at + 8) % LOG, sequence + 1);
    }

    /// Logs new data of blocks of the array of one row, and its parity if `with_parity`; the content is the new one.
    fn log(&mut self, written: &[u64], with_parity: bool, seed: u64) {
        let sum = |bytes: &[u8]| vec![Seed::of(&UUID).checksum(bytes)];
        let (mut payloads, mut blocks) = (Vec::new(), Vec::new());
        for block in written {
            let bytes = pattern(1000 + seed * 100 + block);
            payloads.push(Payload::Data { array_sector: block * 8, checksums: sum(&bytes) });
            self.content[*block as usize].clone_from(&bytes);
            blocks.push(bytes);
        }
        if with_parity {
            let row_sector = self.row_of(written[0]);
            let bytes = self.parity(row_sector);
            payloads.push(Payload::Parity { row_sector, checksums: sum(&bytes) });
            blocks.push(bytes);
        }
        self.meta(payloads, &blocks);
    }

    fn places(&self) -> Vec<RowMember> {
        let place = |member: u16| RowMember {
            member: MemberIndex(member),
            slot: Slot(member),
            data_offset_sectors: DATA,
            valid_sectors: u64::MAX,
            bad: Vec::new(),
        };
        let is_there = |member: &u16| self.bytes.durable[usize::from(*member)].is_some();
        (0..MEMBERS).filter(is_there).map(place).collect()
    }

    fn journal(&self) -> JournalPlace {
        JournalPlace {
            member: JOURNAL,
            data_offset_sectors: 0,
            data_sectors: LOG + 5,
            tail_sectors: self.bytes.tail,
        }
    }

    fn recover(&mut self) -> Result<JournalReport, IoError> {
        recover(&self.geometry, &UUID, &self.journal(), &self.places(), &mut self.bytes)
    }

    fn pending(&mut self) -> Option<u64> {
        pending(&self.geometry, &UUID, &self.journal(), &self.places(), &mut self.bytes).unwrap()
    }

    fn lose(&mut self, member: Slot) {
        self.bytes.durable[member.index()] = None;
        self.bytes.volatile[member.index()] = None;
    }

    /// The array holds its content: that of a missing member by the others.
    fn assert_whole(&mut self, what: &str) {
        for block in 0..self.content.len() as u64 {
            let place = self.geometry.place(block * 8, 0);
            let mut bytes = vec![0; BLOCK_BYTES];
            let found = self.bytes.read(MemberIndex(place.slot.0), DATA + place.sector, &mut bytes);
            if found.is_err() {
                for other in (0..MEMBERS).map(Slot).filter(|slot| *slot != place.slot) {
                    let mut of_other = vec![0; BLOCK_BYTES];
                    self.bytes.read(MemberIndex(other.0), DATA + place.sector, &mut of_other).unwrap();
                    xor(&mut bytes, &of_other);
                }
            }
            assert!(bytes == self.content[block as usize], "{what}: block {block} of the array");
        }
        for row in (0..MEMBER).step_by(8) {
            let mut bytes = vec![0; BLOCK_BYTES];
            let p = self.p(row);
            if self.bytes.read(MemberIndex(p.0), DATA + row, &mut bytes).is_ok() {
                assert!(bytes == self.parity(row), "{what}: parity of row {row}");
            }
        }
    }

    /// Blocks 0 and 2 of row 0 with parity, then block 0 alone; block 7 of row 8 alone; row 32 twice, and written out.
    fn written() -> Self {
        let mut world = Self::new();
        world.log(&[0, 2], true, 1);
        world.log(&[0], false, 2);
        world.log(&[1], false, 3);
        world.log(&[12], false, 4);
        world.log(&[12, 14], true, 5);
        world
    }
}

#[test]
fn rows_with_and_without_parity_are_brought_to_the_members_and_the_log_is_empty() {
    let mut world = World::written();
    assert_eq!(world.pending(), Some(3));
    let report = world.recover().unwrap();
    assert_eq!((report.rows, report.data_only_rows, report.without_parity), (2, 2, 0));
    world.assert_whole("recovered");
    assert_eq!(world.pending(), Some(0));
    assert_eq!(world.bytes.tail, world.head.0, "the tail is behind the log");
    let empty = MetaBlock::parse(&world.block(world.head.0), Seed::of(&UUID)).unwrap();
    assert_eq!((empty.sequence, empty.payloads), (world.head.1 + SEQUENCE_GAP, Vec::new()));
    let before = world.bytes.durable.clone();
    assert_eq!(world.recover(), Ok(world.nothing()));
    assert_eq!(world.nothing().start, report.start, "the log goes on behind the empty block");
    assert!(world.bytes.durable == before, "there is nothing left to do");
}

#[test]
fn whichever_member_is_missing_its_data_are_right_by_the_others() {
    for lost in (0..MEMBERS).map(Slot) {
        let mut world = World::written();
        world.lose(lost);
        world.recover().unwrap();
        world.assert_whole(&format!("without slot {lost}"));
    }
}

#[test]
fn power_may_be_cut_at_every_write_of_the_recovery() {
    for lost in [None, Some(Slot(0)), Some(Slot(1)), Some(Slot(2)), Some(Slot(3))] {
        for cut in 0.. {
            let mut draw = draws(cut);
            let mut world = World::written();
            if let Some(lost) = lost {
                world.lose(lost);
            }
            world.bytes.left = Some(cut);
            let ended = world.recover().is_ok();
            for second in [7, 3] {
                world.bytes.revive(|| draw(2) == 0);
                world.bytes.left = Some(draw(second));
                let _cut_again = world.recover();
            }
            world.bytes.revive(|| draw(2) == 0);
            world.recover().unwrap();
            world.assert_whole(&format!("without {lost:?}, cut at {cut}"));
            if ended {
                assert!(cut > 10, "there is something to cut");
                break;
            }
        }
    }
}

#[test]
fn a_flush_drops_what_the_log_had_of_its_rows() {
    let mut world = World::new();
    let before = world.content.clone();
    world.log(&[0], true, 1);
    world.log(&[12], true, 2);
    world.meta(vec![Payload::Flush { row_sectors: vec![0] }], &[]);
    let report = world.recover().unwrap();
    assert_eq!((report.rows, report.data_only_rows), (1, 0));
    // Nobody had brought it there, though the log says so.
    world.content[0].clone_from(&before[0]);
    world.assert_whole("the other row is written");
}

#[test]
fn the_log_ends_at_what_is_torn_or_is_not_the_next() {
    type Damage = fn(&mut World, u64);
    let damages: [(&str, Damage); 6] = [
        ("a torn meta block", |world, at| world.damage(at, 17)),
        ("a torn block of data", |world, at| world.damage(at + 8, 4095)),
        ("a torn block of parity", |world, at| world.damage(at + 16, 0)),
        ("another sequence number", |world, at| world.forge(at, |meta| meta.sequence += 1)),
        ("another position", |world, at| world.forge(at, |meta| meta.position_sectors += 8)),
        ("data beyond the array", |world, at| {
            world.forge(at, |meta| {
                let Payload::Data { array_sector, .. } = &mut meta.payloads[0] else { panic!() };
                *array_sector = MEMBER * 3;
            });
        }),
    ];
    for (what, damage) in damages {
        let mut world = World::new();
        world.log(&[1], true, 1);
        let (whole, at) = (world.content.clone(), world.head.0);
        world.log(&[0], true, 2);
        world.log(&[12], true, 3);
        damage(&mut world, at);
        let report = world.recover().unwrap();
        assert_eq!((report.rows, report.data_only_rows, report.is_damaged), (1, 0, false), "{what}");
        world.content = whole;
        world.assert_whole(what);
        assert_eq!(world.bytes.tail, at, "{what}: the new log begins there");
        assert_eq!(world.recover(), Ok(world.nothing()), "{what}: what lies behind is over");
    }
}

#[test]
fn without_a_log_at_the_tail_nothing_is_written() {
    let mut world = World::written();
    world.damage(world.bytes.tail, 40);
    let before = world.bytes.durable.clone();
    assert_eq!(world.recover(), Ok(JournalReport { is_damaged: true, ..JournalReport::default() }));
    assert_eq!(world.pending(), None);
    assert!(world.bytes.durable == before);
}

#[test]
fn a_tail_that_cannot_be_is_the_devices_beginning() {
    let mut world = World::new();
    world.head.0 = 0;
    world.meta(Vec::new(), &[]);
    world.log(&[3], true, 1);
    for tail in [LOG, LOG + 8, u64::MAX, 4] {
        world.bytes.tail = tail;
        assert_eq!(world.pending(), Some(1), "tail {tail}");
    }
}

#[test]
fn parity_is_made_of_what_a_recovering_or_bad_member_has_not() {
    type Lack = fn(&mut RowMember);
    let lacks: [(&str, Lack); 2] = [
        ("recovering", |member| member.valid_sectors = 4),
        ("listed as bad", |member| member.bad = vec![BadRange { start_sector: DATA + 7, length_sectors: 1 }]),
    ];
    for (what, lack) in lacks {
        let mut world = World::new();
        let neighbour = world.geometry.place(16, 0);
        world.log(&[0], false, 1);
        let mut garbage = world.places();
        lack(&mut garbage[neighbour.slot.index()]);
        world.bytes.put(MemberIndex(neighbour.slot.0), DATA + neighbour.sector, &[0x55; BLOCK_BYTES]);
        recover(&world.geometry, &UUID, &world.journal(), &garbage, &mut world.bytes).unwrap();
        world.lose(neighbour.slot);
        world.assert_whole(what);
    }
}

/// The array had gone on when the member refused what it lists since.
#[test]
fn a_log_is_followed_past_a_listed_block_that_takes_no_writes() {
    for (has_parity, is_listed) in [(true, true), (false, true), (true, false)] {
        let mut world = World::new();
        world.log(&[3], has_parity, 1);
        let place = world.geometry.place(3 * 8, 0);
        let member = MemberIndex(place.slot.0);
        world.bytes.refused = Some((member, DATA + place.sector));
        let mut members = world.places();
        if is_listed {
            members[member.index()].bad =
                vec![BadRange { start_sector: DATA + place.sector, length_sectors: 8 }];
        }
        let report = recover(&world.geometry, &UUID, &world.journal(), &members, &mut world.bytes);
        if is_listed {
            assert!(report.is_ok(), "{report:?}");
            world.lose(place.slot);
            world.assert_whole("its block is in parity");
        } else {
            assert_eq!(report, Err(IoError::Media));
        }
    }
}

#[test]
fn a_journal_without_room_for_the_parity_is_left_as_it_is() {
    let mut world = World::new();
    let lost = world.geometry.place(16, 0).slot;
    // Each write takes two blocks; five are needed at the end.
    let writes = LOG / 16 - 2;
    for number in 0..writes {
        world.log(&[0], false, number);
    }
    world.lose(lost);
    let before = world.bytes.durable.clone();
    assert_eq!(world.recover(), Err(IoError::NoSpace));
    assert!(world.bytes.durable == before);
}

impl World {
    /// What is answered where nothing is to be done: the log has an empty block at its tail, and goes on behind it.
    fn nothing(&mut self) -> JournalReport {
        let tail_sectors = self.bytes.tail;
        let empty = MetaBlock::parse(&self.block(tail_sectors), Seed::of(&UUID)).unwrap();
        let position_sectors = (tail_sectors + BLOCK_SECTORS) % LOG;
        let next = Head { position_sectors, sequence: empty.sequence + 1 };
        let place = JournalPlace { tail_sectors, ..self.journal() };
        JournalReport { start: Some(JournalStart { place, next }), ..JournalReport::default() }
    }

    fn block(&mut self, position: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        self.bytes.read(JOURNAL, position, &mut bytes).unwrap();
        bytes
    }

    fn damage(&mut self, position: u64, byte: usize) {
        let position = position % LOG;
        let mut bytes = self.block(position);
        bytes[byte] ^= 4;
        self.bytes.put(JOURNAL, position, &bytes);
    }

    fn forge(&mut self, position: u64, change: impl FnOnce(&mut MetaBlock)) {
        let mut meta = MetaBlock::parse(&self.block(position), Seed::of(&UUID)).unwrap();
        change(&mut meta);
        self.bytes.put(JOURNAL, position, &meta.to_bytes(Seed::of(&UUID)));
    }
}
