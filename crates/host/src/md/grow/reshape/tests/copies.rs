//! The same of a RAID-10.

use stripewise_format::superblock_1::MAX_SECTOR;

use super::*;

const N2: u32 = 0x102;
const O2: u32 = 0x1_0201;
const N3: u32 = 0x103;
const O3: u32 = 0x1_0301;

#[derive(Clone, Copy, Debug)]
struct Copies {
    disks: (u32, u32),
    /// In sectors.
    chunk: (u32, u32),
    layout: (u32, u32),
    /// Sectors of each member.
    size: u64,
    /// Room behind the data, so that they move there.
    behind: u64,
}

impl Copies {
    fn superblocks(&self) -> Vec<Superblock1> {
        let roles: Vec<Role> = (0..self.devices())
            .map(|n| if n < self.disks.0 { Role::Slot(n as u16) } else { Role::Spare })
            .collect();
        let one = |number: u32| {
            let mut one = Superblock1::new(Level::Raid10, self.disks.0, 0, Uuid([7; 16]));
            (one.super_offset_sectors, one.dev_number, one.events) = (AT_SECTOR, number, 10);
            (one.chunk_sectors, one.layout, one.resync_offset_sectors) =
                (self.chunk.0, self.layout.0, MAX_SECTOR);
            one.data_offset_sectors = 176 + 8 * u64::from(number % 2);
            (one.size_sectors, one.data_size_sectors) = (self.size, self.size + self.behind);
            one.dev_roles.clone_from(&roles);
            one
        };
        (0..self.devices()).map(one).collect()
    }

    fn geometry(array: &Superblock1) -> Geometry {
        let spec = GeometrySpec {
            level: Level::Raid10,
            layout: array.layout().unwrap(),
            chunk_sectors: array.chunk_sectors.into(),
            member_sectors: vec![array.size_sectors; array.raid_disks as usize],
        };
        Geometry::new(&spec).unwrap()
    }
}

impl Trial for Copies {
    fn devices(&self) -> u32 {
        self.disks.0.max(self.disks.1)
    }

    fn target(&self) -> Target {
        Target { raid_disks: self.disks.1, chunk_sectors: self.chunk.1, layout: self.layout.1 }
    }

    fn behind(&self) -> u64 {
        self.behind
    }

    fn taken(&self) -> Vec<Superblock1> {
        self.superblocks()
    }

    fn model(&self) -> Model {
        let superblocks = self.superblocks();
        let mut images: Vec<Vec<u8>> = superblocks
            .iter()
            .map(|one| vec![0xa5; (one.data_offset_sectors + one.data_size_sectors) as usize * 512])
            .collect();
        for (image, superblock) in images.iter_mut().zip(&superblocks) {
            let block = superblock.to_bytes();
            image[AT_SECTOR as usize * 512..][..block.len()].copy_from_slice(&block);
        }
        let geometry = Self::geometry(&superblocks[0]);
        for sector in 0..superblocks[0].held_sectors() {
            for copy in 0..geometry.copies() {
                let place = geometry.place(sector, copy);
                let at = superblocks[place.slot.index()].data_offset_sectors + place.sector;
                images[place.slot.index()][at as usize * 512..][..512].copy_from_slice(&content(sector));
            }
        }
        let disk =
            |bytes: Vec<u8>| Mutex::new(Disk { durable: bytes.clone(), now: bytes, pending: Vec::new() });
        Model {
            disks: images.into_iter().map(disk).collect(),
            left: AtomicI64::new(i64::MAX),
            unreadable: Vec::new(),
        }
    }

    /// All copies of all that was there are where they should be.
    fn check(&self, model: &Model, present: &[usize], what: &str) {
        let before = &self.superblocks()[0];
        let superblocks: Vec<Superblock1> = present.iter().map(|n| model.superblock(*n)).collect();
        let array = &superblocks[0];
        let geometry = Self::geometry(array);
        for one in &superblocks {
            assert_eq!((one.reshape(), one.chunk_sectors), (None, self.chunk.1), "{self:?} {what}");
            assert_eq!((one.layout, one.raid_disks), (self.layout.1, self.disks.1), "{self:?} {what}");
            let due = if array.held_sectors() > before.held_sectors() && self.behind == 0 {
                before.held_sectors()
            } else {
                MAX_SECTOR
            };
            assert_eq!(one.resync_offset_sectors, due, "{self:?} {what}");
        }
        for sector in 0..before.held_sectors().min(array.held_sectors()) {
            for copy in 0..geometry.copies() {
                let place = geometry.place(sector, copy);
                let Some(member) = present.iter().position(|n| *n == place.slot.index()) else { continue };
                let at = superblocks[member].data_offset_sectors + place.sector;
                let held = model.bytes(present[member], at, 1);
                assert!(held == content(sector), "{self:?} {what}: copy {copy} of {sector} differs");
            }
        }
    }
}

fn cases() -> Vec<Copies> {
    let case = |disks, chunk, layout, size, behind| Copies { disks, chunk, layout, size, behind };
    vec![
        case((4, 5), (8, 8), (N2, N2), 96, 0),
        case((3, 4), (8, 8), (N2, N2), 88, 0),
        case((5, 4), (8, 8), (N2, N2), 96, 16),
        case((4, 6), (8, 16), (N2, N2), 96, 0),
        case((3, 3), (16, 8), (N2, N2), 96, 0),
        case((4, 4), (8, 8), (N2, O2), 96, 0),
        case((3, 3), (8, 8), (O2, N2), 96, 0),
        case((4, 4), (8, 16), (N2, N2), 96, 136),
        case((3, 3), (16, 8), (O2, O2), 96, 136),
        case((5, 5), (8, 16), (N2, O2), 96, 136),
        case((4, 5), (8, 8), (O2, O2), 96, 0),
        case((3, 5), (16, 8), (O2, N2), 96, 0),
        case((4, 4), (16, 8), (N3, O3), 96, 0),
        case((4, 3), (8, 16), (N2, N2), 96, 24),
        case((5, 4), (8, 8), (O2, O2), 96, 24),
        case((6, 4), (16, 8), (N3, O3), 96, 56),
        case((4, 4), (8, 16), (O3, N3), 96, 160),
        // Smaller chunks make use of what was left of the last row.
        case((3, 3), (16, 8), (N2, N2), 80, 136),
        case((3, 3), (16, 8), (N2, N2), 80, 0),
    ]
}

#[test]
fn every_copy_is_where_an_array_that_was_made_so_has_it() {
    cases().iter().for_each(Copies::ends);
}

/// Power is cut at every write of the first cases, and at every third of the others.
#[test]
fn no_copy_is_lost_wherever_power_is_cut_and_whoever_is_lost_with_it() {
    for (number, case) in cases().iter().enumerate() {
        let (first, step) = if number < 6 { (1, 1) } else { (1 + number as i64 % 3, 3) };
        case.survives(number as u64, (first..).step_by(step));
    }
}

#[test]
fn what_a_member_does_not_read_is_had_from_another_copy() {
    for case in cases() {
        let mut model = case.model();
        case.begin(&model).unwrap();
        model.unreadable = vec![(0, 200..217), (2, 232..233)];
        let all: Vec<usize> = (0..case.devices() as usize).collect();
        match case.resume(&model, &all) {
            Ok(()) => {}
            // The two may hold the same block.
            Err(RunError::Move(MoveError::Read { .. })) => {
                model.unreadable.pop();
                case.resume(&model, &all).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
        case.check(&model, &all, "unreadable");
    }
}

#[test]
fn a_reshape_does_not_begin_where_a_block_would_have_no_copy() {
    let case = Copies { disks: (5, 5), chunk: (8, 8), layout: (N3, O3), size: 96, behind: 160 };
    let model = case.model();
    case.begin(&model).unwrap();
    let present = [0, 1];
    let members: Vec<Member> =
        present.iter().map(|n| Member { superblock: model.superblock(*n), bitmap: None }).collect();
    let array = members[0].superblock.clone();
    let slots = [Some(0), Some(1), None, None, None];
    let part = Part { model: &model, present: &present };
    let refused = Reshape::new(part, members, &array, &slots, &slots).err().unwrap();
    assert!(matches!(refused, RunError::Move(MoveError::Read { device: None, .. })), "{refused}");
}

#[test]
fn a_larger_array_gets_a_larger_bitmap_at_the_end() {
    let case = cases()[0];
    let model = case.model();
    case.begin(&model).unwrap();
    let present = [0, 1, 2, 3, 4];
    let head = BitmapSuperblock::new(Uuid([7; 16]), 192, 4096);
    let members = present.map(|n| {
        let mut superblock = model.superblock(n);
        superblock.set_bitmap(40);
        Member { superblock, bitmap: Some(head.clone()) }
    });
    let array = members[0].superblock.clone();
    let slots: Vec<Option<usize>> = present.into_iter().map(Some).collect();
    let part = Part { model: &model, present: &present };
    let mut reshape = Reshape::new(part, members.to_vec(), &array, &slots, &slots).unwrap();
    let mut larger = head;
    larger.sync_size_sectors = 240;
    let mut bits = stripewise_format::bitmap::Bits::clear(30);
    bits.set(24..30);
    reshape.set_larger_bitmap((larger, bits));
    reshape.run(Timestamp::default, |_, _| true).unwrap();
    for n in present {
        let written = model.bytes(n, AT_SECTOR + 40, 1);
        let head = BitmapSuperblock::parse(&written).unwrap();
        assert_eq!((head.sync_size_sectors, head.events), (240, model.superblock(n).events));
        assert_eq!(written[256..260], [0, 0, 0, 0x3f]);
    }
}
