//! Reshapes of members in memory whose power is cut at every write, byte for byte: what a device keeps of what it was not told to
//! flush is any part of it, and a member may be lost with the power.

mod copies;

use std::io;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use stripewise_engine::geometry::{Geometry, GeometrySpec, Shape};
use stripewise_engine::io::Role as Operand;
use stripewise_engine::units::Slot;
use stripewise_format::bitmap::BitmapSuperblock;
use stripewise_format::grow::{
    Beginning, Target, Update, check_reshape, follow_reshape, plan_course, reshape_room, take_over,
};
use stripewise_format::level::Level;
use stripewise_format::superblock_1::{Role, Superblock1};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;
use stripewise_parity::kernels;

use super::moving::{Devices, MoveError};
use super::run::{Ended, Member, Reshape, RunError};

const AT_SECTOR: u64 = 8;

#[derive(Clone)]
struct Disk {
    durable: Vec<u8>,
    now: Vec<u8>,
    /// Writes since the last flush: where, and what.
    pending: Vec<(usize, Vec<u8>)>,
}

struct Model {
    disks: Vec<Mutex<Disk>>,
    /// Writes until the power is cut.
    left: AtomicI64,
    /// Sectors that a disk does not read.
    unreadable: Vec<(usize, Range<u64>)>,
}

impl Devices for &Model {
    fn read(&self, device: usize, sector: u64, bytes: &mut [u8]) -> io::Result<()> {
        let end = sector + bytes.len() as u64 / 512;
        let is_bad =
            |(disk, range): &(usize, Range<u64>)| *disk == device && range.start < end && sector < range.end;
        if self.unreadable.iter().any(is_bad) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let disk = self.disks[device].lock().unwrap();
        let at = sector as usize * 512;
        bytes.copy_from_slice(&disk.now[at..at + bytes.len()]);
        Ok(())
    }

    fn write(&self, device: usize, sector: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.disks[device].lock().unwrap();
        let at = sector as usize * 512;
        if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        disk.now[at..at + bytes.len()].copy_from_slice(bytes);
        disk.pending.push((at, bytes.to_vec()));
        Ok(())
    }

    fn flush(&self, device: usize) -> io::Result<()> {
        if self.left.load(Ordering::Relaxed) <= 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut disk = self.disks[device].lock().unwrap();
        disk.durable = disk.now.clone();
        disk.pending.clear();
        Ok(())
    }
}

impl Model {
    /// What is there when the power is back.
    fn after_power_cut(&self, random: &mut Random) {
        for disk in &self.disks {
            let mut disk = disk.lock().unwrap();
            let pending = std::mem::take(&mut disk.pending);
            for (at, bytes) in pending {
                for (index, sector) in bytes.chunks(512).enumerate() {
                    if random.below(2) == 0 {
                        disk.durable[at + index * 512..][..sector.len()].copy_from_slice(sector);
                    }
                }
            }
            disk.now = disk.durable.clone();
        }
    }

    fn superblock(&self, device: usize) -> Superblock1 {
        let disk = self.disks[device].lock().unwrap();
        Superblock1::parse(&disk.now[AT_SECTOR as usize * 512..], AT_SECTOR).unwrap()
    }

    fn bytes(&self, device: usize, sector: u64, sectors: u64) -> Vec<u8> {
        let disk = self.disks[device].lock().unwrap();
        disk.now[sector as usize * 512..][..sectors as usize * 512].to_vec()
    }
}

struct Random(u64);

impl Random {
    const fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// A reshape that is tried on a model.
trait Trial {
    /// Members and spares.
    fn devices(&self) -> u32;
    fn target(&self) -> Target;
    /// Room behind the data, so that they move there.
    fn behind(&self) -> u64;
    /// The spare takes the slot of Q.
    fn fills(&self) -> bool {
        false
    }
    /// One may be lost meanwhile.
    fn has_redundancy(&self) -> bool {
        true
    }
    /// The superblocks before it, of the level that is reshaped.
    fn taken(&self) -> Vec<Superblock1>;
    fn model(&self) -> Model;
    /// All that is there is as it should be when the reshape has ended.
    fn check(&self, model: &Model, present: &[usize], what: &str);

    /// The first superblocks, one after the other.
    fn begin(&self, model: &Model) -> io::Result<()> {
        let superblocks = self.taken();
        let members: Vec<_> = superblocks.iter().map(|one| (one, reshape_room(one, None))).collect();
        let spares = superblocks.iter().filter(|one| one.role() == Role::Spare).count();
        check_reshape(&superblocks[0], self.target(), spares as u32).unwrap();
        let course = plan_course(&superblocks[0], self.target(), &members).unwrap();
        assert_eq!(course.backwards, self.behind() > 0);
        let slots = superblocks[0].raid_disks.max(self.target().raid_disks);
        let roles =
            (0..self.devices()).map(|n| if n < slots { Role::Slot(n as u16) } else { Role::Spare }).collect();
        let beginning = Beginning { target: self.target(), backwards: course.backwards, roles };
        let update = Update { events: 11, utime: Timestamp::from_seconds(1) };
        for (index, one) in superblocks.iter().enumerate() {
            let begun = one.with_reshape(&beginning, course.new_offsets[index], update);
            (&model).write(index, AT_SECTOR, &begun.to_bytes())?;
            (&model).flush(index)?;
        }
        Ok(())
    }

    /// Goes on from what the members that are left say, as `resume` does.
    fn resume(&self, model: &Model, present: &[usize]) -> Result<(), RunError> {
        let mut superblocks: Vec<Superblock1> = present.iter().map(|n| model.superblock(*n)).collect();
        follow_reshape(&mut superblocks);
        let array = superblocks.iter().max_by_key(|one| one.events).unwrap().clone();
        assert!(superblocks.iter().all(|one| one.events + 1 >= array.events), "one is out of date");
        let (before, target) = (&self.taken()[0], self.target());
        if array.reshape().is_none() {
            let is_begun = array.level == before.level
                && array.layout == target.layout
                && array.chunk_sectors == target.chunk_sectors
                && array.raid_disks == target.raid_disks;
            if !is_begun {
                return self
                    .begin(model)
                    .map_err(|error| RunError::Record { device: 0, error })
                    .and_then(|()| self.resume(model, present));
            }
            for (device, one) in present.iter().zip(&superblocks) {
                let written = (&model)
                    .write(*device, AT_SECTOR, &one.to_bytes())
                    .and_then(|()| (&model).flush(*device));
                written.map_err(|error| RunError::Record { device: *device, error })?;
            }
            return Ok(());
        }
        let slot_of = |slot: u32| superblocks.iter().position(|one| one.role() == Role::Slot(slot as u16));
        let slots = array.raid_disks.max(array.slots_before_reshape());
        let written: Vec<Option<usize>> = (0..slots).map(slot_of).collect();
        let is_whole = |place: &usize| superblocks[*place].recovered_sectors().is_none();
        let read: Vec<Option<usize>> = written.iter().map(|place| place.filter(is_whole)).collect();
        assert!(self.fills() || read == written, "nobody is filled");
        let members = superblocks.iter().map(|one| Member { superblock: one.clone(), bitmap: None });
        let part = Part { model, present };
        let mut reshape = Reshape::new(part, members.collect(), &array, &read, &written).unwrap();
        reshape.set_piece_sectors(u64::from(before.chunk_sectors.max(target.chunk_sectors)));
        assert_eq!(reshape.run(Timestamp::default, |_, _| true)?, Ended::Done);
        Ok(())
    }

    /// Tries it whole.
    fn ends(&self) {
        let model = self.model();
        self.begin(&model).unwrap();
        let all: Vec<usize> = (0..self.devices() as usize).collect();
        self.resume(&model, &all).unwrap();
        self.check(&model, &all, "uncut");
    }

    /// Cuts the power at these writes until one is not reached, now and then twice; with it the member is lost that alone may know how
    /// far it came.
    fn survives(&self, number: u64, cuts: impl Iterator<Item = i64>)
    where
        Self: Sized,
    {
        let mut random = Random(0x1234_5678_9abc_def1 + number);
        for cut in cuts {
            let model = self.model();
            let mut present: Vec<usize> = (0..self.devices() as usize).collect();
            model.left.store(cut, Ordering::Relaxed);
            let begun = self.begin(&model);
            if begun.is_ok() && self.resume(&model, &present).is_ok() {
                break;
            }
            model.after_power_cut(&mut random);
            if begun.is_ok() && cut % 2 == 0 && self.has_redundancy() {
                let freshest =
                    present.iter().copied().max_by_key(|n| (model.superblock(*n).events, *n)).unwrap();
                present.retain(|n| *n != freshest);
            }
            for again in [random.below(30) as i64 + 1, i64::MAX] {
                model.left.store(again, Ordering::Relaxed);
                if self.resume(&model, &present).is_ok() {
                    break;
                }
                model.after_power_cut(&mut random);
            }
            self.check(&model, &present, &format!("cut at {cut}"));
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    /// As it is reshaped.
    level: Level,
    /// What takes it over as that, if another.
    from: Level,
    disks: (u32, u32),
    /// In sectors.
    chunk: (u32, u32),
    layout: (u32, u32),
    chunks: u64,
    /// Room behind the data, so that they move there.
    behind: u64,
    spares: u32,
}

impl Case {
    fn size(&self) -> u64 {
        u64::from(self.chunk.0.max(self.chunk.1)) * self.chunks
    }

    fn old_sectors(&self) -> u64 {
        let data =
            if self.from == Level::Raid1 { 1 } else { self.disks.0 - u32::from(self.from.parity_count()) };
        self.size() * u64::from(data)
    }

    fn superblocks(&self) -> Vec<Superblock1> {
        let roles: Vec<Role> = (0..self.devices())
            .map(|n| if n < self.disks.0 { Role::Slot(n as u16) } else { Role::Spare })
            .collect();
        let one = |number: u32| {
            let mut one = Superblock1::new(self.from, self.disks.0, 0, Uuid([7; 16]));
            (one.super_offset_sectors, one.dev_number, one.events) = (AT_SECTOR, number, 10);
            (one.chunk_sectors, one.layout, one.size_sectors) = (self.chunk.0, self.layout.0, self.size());
            if self.from == Level::Raid1 {
                one.chunk_sectors = 0;
            }
            if self.from == Level::Raid0 {
                (one.layout, one.size_sectors) = (0, 0);
            }
            // Not all alike: the one that moves the least sets the pace.
            one.data_offset_sectors = 176 + 8 * u64::from(number % 2);
            one.data_size_sectors = self.size() + self.behind;
            one.dev_roles.clone_from(&roles);
            one
        };
        (0..self.devices()).map(one).collect()
    }
}

impl Trial for Case {
    fn devices(&self) -> u32 {
        let there = if self.has_redundancy() { self.disks.1 } else { self.disks.1 - 1 };
        there.max(self.disks.0) + self.spares
    }

    fn has_redundancy(&self) -> bool {
        self.from != Level::Raid0
    }

    fn fills(&self) -> bool {
        (self.from, self.level) == (Level::Raid5, Level::Raid6) || self.from == Level::Raid0
    }

    fn target(&self) -> Target {
        Target { raid_disks: self.disks.1, chunk_sectors: self.chunk.1, layout: self.layout.1 }
    }

    fn behind(&self) -> u64 {
        self.behind
    }

    fn model(&self) -> Model {
        let superblocks = self.superblocks();
        // A RAID-0 is what it is taken over as, but for the parity.
        let taken = self.taken();
        let (held, slots) = if self.has_redundancy() {
            (&superblocks[0], self.disks.0)
        } else {
            (&taken[0], taken[0].raid_disks)
        };
        let images = images(held, slots as usize, self.old_sectors());
        let disks = superblocks.iter().enumerate().map(|(index, superblock)| {
            let sectors = superblock.data_offset_sectors + superblock.data_size_sectors;
            let mut bytes = vec![0xa5; sectors as usize * 512];
            let block = superblock.to_bytes();
            bytes[AT_SECTOR as usize * 512..][..block.len()].copy_from_slice(&block);
            let is_member = index < self.disks.0 as usize;
            if let Some(image) = images.get(index).filter(|_| is_member) {
                bytes[superblock.data_offset_sectors as usize * 512..][..image.len()].copy_from_slice(image);
            }
            Mutex::new(Disk { durable: bytes.clone(), now: bytes, pending: Vec::new() })
        });
        Model { disks: disks.collect(), left: AtomicI64::new(i64::MAX), unreadable: Vec::new() }
    }

    fn taken(&self) -> Vec<Superblock1> {
        let superblocks = self.superblocks();
        if self.from == self.level {
            return superblocks;
        }
        let takeover = take_over(&superblocks[0], self.level).unwrap();
        superblocks.iter().map(|one| one.taken_over(takeover)).collect()
    }

    fn check(&self, model: &Model, present: &[usize], what: &str) {
        let superblocks: Vec<Superblock1> = present.iter().map(|n| model.superblock(*n)).collect();
        let kept = self.old_sectors().min(superblocks[0].held_sectors());
        let images = images(&superblocks[0], self.disks.1 as usize, kept);
        for (device, superblock) in present.iter().zip(&superblocks) {
            assert_eq!((superblock.reshape(), superblock.level), (None, self.level), "{self:?} {what}");
            assert_eq!(superblock.recovered_sectors(), None, "{self:?} {what}");
            assert_eq!((superblock.chunk_sectors, superblock.layout), (self.chunk.1, self.layout.1));
            let Role::Slot(slot) = superblock.role() else { continue };
            let held = model.bytes(*device, superblock.data_offset_sectors, self.size());
            assert!(held == images[usize::from(slot)], "{self:?} {what}: slot {slot} differs");
        }
    }
}

/// What is in a sector of the array.
fn content(sector: u64) -> [u8; 512] {
    let mut bytes = [0; 512];
    for (index, word) in bytes.chunks_mut(8).enumerate() {
        word.copy_from_slice(
            &(sector * 64 + index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes(),
        );
    }
    bytes
}

/// What the members of an array hold whose first sectors have their content and whose rest is zeroes.
fn images(array: &Superblock1, slots: usize, filled: u64) -> Vec<Vec<u8>> {
    let spec = GeometrySpec {
        level: array.level,
        layout: array.layout().unwrap(),
        chunk_sectors: array.chunk_sectors.into(),
        member_sectors: vec![array.size_sectors; slots],
    };
    if array.level == Level::Raid1 {
        let copy: Vec<u8> = (0..array.size_sectors).flat_map(content).collect();
        return vec![copy; slots];
    }
    let geometry = Geometry::new(&spec).unwrap();
    let mut images = vec![vec![0; array.size_sectors as usize * 512]; slots];
    for sector in 0..filled {
        let place = geometry.place(sector, 0);
        images[place.slot.index()][place.sector as usize * 512..][..512].copy_from_slice(&content(sector));
    }
    let Shape::Parity(shape) = geometry.shape() else { unreachable!() };
    let chunk = array.chunk_sectors as usize * 512;
    for row in 0..array.size_sectors / u64::from(array.chunk_sectors) {
        let map = shape.stripe(row);
        let part = row as usize * chunk..(row as usize + 1) * chunk;
        let (mut p, mut q) = (vec![0; chunk], vec![0; chunk]);
        let mut data: Vec<Option<&[u8]>> = vec![None; slots];
        for (slot, image) in images.iter().enumerate() {
            if let Operand::Data(index) = map.operand_role(Slot(slot as u16)) {
                data[usize::from(index)] = Some(&image[part.clone()]);
            }
        }
        kernels().pq(&mut p, &mut q, &data);
        images[map.p.index()][part.clone()].copy_from_slice(&p);
        if let Some(slot) = map.q {
            images[slot.index()][part].copy_from_slice(&q);
        }
    }
    images
}

/// Some of the devices.
struct Part<'a> {
    model: &'a Model,
    present: &'a [usize],
}

impl Devices for Part<'_> {
    fn read(&self, device: usize, sector: u64, bytes: &mut [u8]) -> io::Result<()> {
        (&self.model).read(self.present[device], sector, bytes)
    }

    fn write(&self, device: usize, sector: u64, bytes: &[u8]) -> io::Result<()> {
        (&self.model).write(self.present[device], sector, bytes)
    }

    fn flush(&self, device: usize) -> io::Result<()> {
        (&self.model).flush(self.present[device])
    }
}

fn cases() -> Vec<Case> {
    let case = |level, disks, chunk, layout, behind| Case {
        level,
        from: level,
        disks,
        chunk,
        layout,
        chunks: 12,
        behind,
        spares: 0,
    };
    let six = |case: Case| Case { from: Level::Raid5, ..case };
    vec![
        case(Level::Raid5, (3, 4), (8, 8), (2, 2), 0),
        Case { spares: 1, ..case(Level::Raid5, (3, 5), (8, 16), (2, 1), 0) },
        case(Level::Raid5, (3, 3), (16, 8), (2, 2), 0),
        case(Level::Raid5, (4, 4), (8, 8), (2, 3), 0),
        case(Level::Raid5, (3, 3), (8, 16), (2, 5), 120),
        case(Level::Raid4, (3, 4), (8, 8), (0, 0), 0),
        case(Level::Raid5, (4, 3), (8, 8), (2, 2), 16),
        case(Level::Raid5, (3, 2), (8, 8), (2, 2), 8),
        Case { spares: 1, ..case(Level::Raid5, (5, 3), (8, 16), (2, 1), 24) },
        case(Level::Raid5, (6, 4), (16, 8), (4, 2), 16),
        case(Level::Raid4, (4, 3), (8, 8), (0, 0), 8),
        case(Level::Raid6, (6, 4), (8, 8), (2, 2), 8),
        case(Level::Raid6, (6, 5), (8, 16), (2, 10), 40),
        case(Level::Raid4, (3, 3), (8, 32), (0, 0), 136),
        case(Level::Raid6, (4, 5), (8, 8), (2, 2), 0),
        case(Level::Raid6, (5, 5), (8, 8), (2, 10), 0),
        case(Level::Raid6, (5, 6), (8, 16), (18, 2), 0),
        case(Level::Raid6, (5, 5), (16, 8), (0, 17), 128),
        six(case(Level::Raid6, (3, 4), (8, 8), (2, 2), 0)),
        six(case(Level::Raid6, (4, 5), (8, 16), (4, 10), 0)),
        six(case(Level::Raid6, (3, 4), (8, 8), (1, 1), 120)),
        six(Case { spares: 1, ..case(Level::Raid6, (3, 5), (8, 8), (5, 5), 0) }),
        Case { from: Level::Raid4, ..case(Level::Raid5, (3, 3), (8, 8), (0, 2), 0) },
        // Of 13 chunks: their number is odd, so that the chunk is no longer.
        Case { from: Level::Raid1, chunks: 13, ..case(Level::Raid5, (2, 3), (8, 8), (0, 2), 0) },
        Case { from: Level::Raid0, ..case(Level::Raid5, (2, 3), (8, 8), (0, 2), 0) },
        Case { from: Level::Raid0, ..case(Level::Raid5, (3, 4), (8, 16), (0, 1), 0) },
        Case { from: Level::Raid0, ..case(Level::Raid4, (2, 4), (8, 8), (0, 5), 0) },
        Case { from: Level::Raid0, ..case(Level::Raid4, (1, 4), (8, 16), (0, 5), 0) },
        Case { from: Level::Raid0, ..case(Level::Raid4, (2, 3), (16, 8), (0, 5), 0) },
    ]
}

#[test]
fn a_reshape_leaves_what_an_array_that_was_made_so_would_hold() {
    cases().iter().for_each(Case::ends);
}

/// Power is cut at every write.
#[test]
fn nothing_is_lost_wherever_power_is_cut_and_whoever_is_lost_with_it() {
    for (number, case) in cases().iter().enumerate() {
        case.survives(number as u64, 1..);
    }
}

#[test]
fn what_a_member_does_not_read_is_had_from_the_others() {
    for case in cases().into_iter().filter(Trial::has_redundancy) {
        let mut model = case.model();
        case.begin(&model).unwrap();
        let parity = usize::from(case.level.parity_count()) - usize::from(case.fills());
        // Pages of members that lie beside each other, and over each other where the level bears it.
        model.unreadable = (0..parity).map(|disk| (disk, 200..217)).collect();
        model.unreadable.push((2, 232..233));
        let all: Vec<usize> = (0..case.devices() as usize).collect();
        case.resume(&model, &all).unwrap();
        case.check(&model, &all, "unreadable");
    }
}

#[test]
fn what_nobody_reads_ends_the_reshape_there_and_loses_nothing() {
    let case = cases()[0];
    let mut model = case.model();
    case.begin(&model).unwrap();
    // Of the same row.
    model.unreadable = vec![(0, 240..241), (1, 248..249)];
    let all = [0, 1, 2, 3];
    let error = case.resume(&model, &all).unwrap_err();
    assert!(matches!(error, RunError::Move(MoveError::Read { .. })), "{error}");
    assert!(model.superblock(0).reshape().unwrap().position_sectors > 0, "how far it came is recorded");
    model.unreadable.clear();
    case.resume(&model, &all).unwrap();
    case.check(&model, &all, "readable again");
}

#[test]
fn a_bitmap_counts_the_events_and_lets_nobody_back_who_was_away() {
    let case = cases()[2];
    let mut head = BitmapSuperblock::new(Uuid([7; 16]), 192, 4096);
    (head.events, head.events_cleared) = (11, 9);
    for (slots, events, cleared) in [([Some(0), Some(1), Some(2)], 12, 9), ([Some(0), Some(1), None], 15, 15)]
    {
        let model = case.model();
        case.begin(&model).unwrap();
        let present = [0, 1, 2];
        let members = present.map(|n| {
            let mut superblock = model.superblock(n);
            superblock.set_bitmap(40);
            Member { superblock, bitmap: Some(head.clone()) }
        });
        let array = members[0].superblock.clone();
        let part = Part { model: &model, present: &present };
        let mut reshape = Reshape::new(part, members.to_vec(), &array, &slots, &slots).unwrap();
        let mut looks = 0;
        let ended = reshape.run(Timestamp::default, |_, _| {
            looks += 1;
            looks < 2
        });
        assert_eq!(ended.unwrap(), Ended::Stopped);
        let written = BitmapSuperblock::parse(&model.bytes(0, AT_SECTOR + 40, 1)).unwrap();
        assert_eq!((written.events, written.events_cleared), (events, cleared));
    }
}

/// A spare that waits on hears last of the reshape: what is cut off before then is on members, whom assembly asks.
#[test]
fn spares_that_stay_spares_are_told_of_a_reshape_behind_the_members() {
    let of = |role: Role| {
        let mut one = Superblock1::new(Level::Raid5, 4, 2, Uuid([7; 16]));
        one.dev_roles[0] = role;
        one
    };
    let roles = [Role::Slot(0), Role::Slot(1), Role::Slot(2), Role::Spare, Role::Slot(3)];
    assert_eq!(super::in_order(&roles.map(of), 3), [4, 2, 1, 0, 3]);
}
