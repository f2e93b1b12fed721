//! The slots of a RAID-1, more or fewer as by `mdadm --grow --raid-devices` (4.2, Linux 6.1): every member has all data, so that
//! nothing moves. Members keep their order and move up to the first slots.

use std::fmt;

use super::{Changed, Update, superblock_area};
use crate::create::{SLOTS_MAX_V0, SLOTS_MAX_V1};
use crate::level::Level;
use crate::superblock::Superblock;
use crate::superblock_0::{DISKS, Disk, Superblock0};
use crate::superblock_1::{Role, Superblock1};

/// Why an array has no other number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsError {
    /// At other levels data would have to move.
    Level(Level),
    /// One slot is more often a mistake than meant.
    OneSlot,
    /// More members hold slots than there are to be.
    InUse {
        /// Members in slots.
        used: u32,
        /// Slots asked for.
        asked: u32,
    },
    /// Fewer spares than slots that are added.
    Spares {
        /// Slots that are added.
        added: u32,
        /// Spares.
        spares: u32,
    },
    /// More slots and spares than a superblock lists.
    TooMany {
        /// The most.
        most: u32,
        /// Those needed.
        needed: u32,
    },
}

impl fmt::Display for SlotsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(Level::Linear) => f.write_str(
                "only raid1 takes another number of raid devices as it is; more of a linear array is Linux's work (`mdadm --grow --add`)",
            ),
            Self::Level(level) => write!(
                f,
                "only raid1 takes another number of raid devices as it is; a {level} array is reshaped, for which it must be idle: stop \
                 its server first"
            ),
            Self::OneSlot => f.write_str("an array of 1 raid device is unusual; --force makes one"),
            Self::InUse { used, asked } => write!(
                f,
                "{used} raid devices are in use, more than {asked}; `stripewise fail` and `remove` those that are to go"
            ),
            Self::Spares { added, spares } => write!(
                f,
                "{added} more raid devices need as many spares, and there are {spares}; `stripewise add-spare` them first and \
                 name them, or leave slots empty with --force"
            ),
            Self::TooMany { most, needed } => {
                write!(f, "{needed} raid and spare devices are too many; this metadata lists {most} at most")
            }
        }
    }
}

impl std::error::Error for SlotsError {}

/// Whether an array can have so many slots; `force` for one alone, or more than there are members for.
///
/// # Errors
/// It cannot.
pub fn check_slots(array: &Superblock, asked: u32, spares: u32, force: bool) -> Result<(), SlotsError> {
    if array.level() != Level::Raid1 {
        return Err(SlotsError::Level(array.level()));
    }
    let used = occupied(array).len() as u32;
    if used > asked {
        return Err(SlotsError::InUse { used, asked });
    }
    if asked == 1 && !force {
        return Err(SlotsError::OneSlot);
    }
    let added = asked.saturating_sub(array.raid_disks());
    if added > spares && !force {
        return Err(SlotsError::Spares { added, spares });
    }
    let (most, needed) = match array {
        Superblock::V0(_) => (SLOTS_MAX_V0, asked.saturating_add(spares)),
        Superblock::V1(_) => (SLOTS_MAX_V1, asked),
    };
    if needed > most { Err(SlotsError::TooMany { most, needed }) } else { Ok(()) }
}

/// The numbers of the devices that hold slots, by slot.
pub fn occupied(array: &Superblock) -> Vec<u32> {
    let slot_of = |row| match array.role_of(row) {
        Role::Slot(slot) => Some((slot, row)),
        Role::Spare | Role::Faulty | Role::Journal => None,
    };
    let mut slots: Vec<_> = (0..array.device_rows()).filter_map(slot_of).collect();
    slots.sort_unstable();
    slots.into_iter().map(|(_, row)| row).collect()
}

/// A member of an array of so many slots; its superblock lies at a sector.
pub fn with_slots(member: &Superblock, at_sector: u64, raid_disks: u32, update: Update) -> Changed {
    let mut member = member.clone();
    renumber(&mut member, raid_disks);
    Changed { logs: Vec::new(), superblock: superblock_area(member, at_sector, update) }
}

/// Gives the devices that hold slots the first ones.
pub(super) fn renumber(member: &mut Superblock, raid_disks: u32) {
    let occupied = occupied(member);
    match member {
        Superblock::V0(superblock) => renumber_0(superblock, &occupied, raid_disks),
        Superblock::V1(superblock) => renumber_1(superblock, &occupied, raid_disks),
    }
}

fn renumber_1(superblock: &mut Superblock1, occupied: &[u32], raid_disks: u32) {
    superblock.raid_disks = raid_disks;
    for (slot, number) in (0..).zip(occupied) {
        superblock.dev_roles[*number as usize] = Role::Slot(slot);
    }
}

/// In 0.90 a device's number is its slot, and spares follow behind the slots.
fn renumber_0(superblock: &mut Superblock0, occupied: &[u32], raid_disks: u32) {
    let before = superblock.disks;
    let is_spare = |row: &u32| {
        let disk = before[*row as usize];
        *row >= superblock.raid_disks
            && disk.number == *row
            && disk.state & (Disk::FAULTY | Disk::REMOVED) == 0
    };
    let spares: Vec<u32> = (0..DISKS as u32).filter(is_spare).collect();
    let own = superblock.this_disk.number;
    superblock.raid_disks = raid_disks;
    superblock.disks = [Disk::default(); DISKS];
    let numbered = (0..).zip(occupied).chain((raid_disks..).zip(&spares));
    for (number, row) in numbered.filter(|(number, _)| (*number as usize) < DISKS) {
        let disk = Disk { number, raid_disk: number, ..before[*row as usize] };
        superblock.disks[number as usize] = disk;
        if *row == own {
            superblock.this_disk = disk;
        }
    }
    let used = occupied.len() as u32;
    for slot in used..raid_disks.min(DISKS as u32) {
        let state = Disk::REMOVED | Disk::FAULTY;
        superblock.disks[slot as usize] = Disk { number: slot, raid_disk: slot, state, ..Disk::default() };
    }
    superblock.active_disks = used;
    superblock.spare_disks = spares.len() as u32;
    superblock.failed_disks = raid_disks.saturating_sub(used);
    superblock.working_disks = superblock.active_disks + superblock.spare_disks;
    superblock.nr_disks = superblock.working_disks + superblock.failed_disks;
}

#[cfg(test)]
mod tests {
    use super::super::{follow, is_left_behind};
    use super::*;
    use crate::time::Timestamp;
    use crate::uuid::Uuid;

    const UPDATE: Update = Update { events: 5, utime: Timestamp::from_seconds(5) };
    const DEVICE_SECTORS: u64 = 1 << 20;

    /// Devices of the numbers given: two that hold slots, and a spare.
    fn new(own: u32) -> Superblock {
        let mut array = Superblock1::new(Level::Raid1, 3, 0, Uuid([7; 16]));
        (array.super_offset_sectors, array.data_offset_sectors, array.events) = (8, 2048, 4);
        (array.size_sectors, array.data_size_sectors) = (1 << 16, 1 << 16);
        (array.dev_roles[4], array.dev_roles[2]) = (Role::Slot(0), Role::Slot(2));
        array.dev_number = own;
        Superblock::V1(Box::new(array))
    }

    /// Members in slots 0 and 2, and a spare behind them.
    fn old(own: u32) -> Superblock {
        let mut array = Superblock0::new(Level::Raid1, 3, Uuid([7; 16]));
        (array.size_kib, array.state, array.events) = (1 << 15, Superblock0::CLEAN, 4);
        for (number, state) in [(0, 6), (1, Disk::REMOVED | Disk::FAULTY), (2, 6), (3, 0)] {
            array.disks[number as usize] = Disk { number, raid_disk: number, state, major: 7, minor: number };
        }
        array.this_disk = array.disks[own as usize];
        Superblock::V0(Box::new(array))
    }

    fn read(changed: &Changed, like: &Superblock) -> Superblock {
        Superblock::parse(like.metadata(), &changed.superblock.bytes, changed.superblock.at_sector).unwrap()
    }

    #[test]
    fn members_move_up_and_spares_stay_spares() {
        for raid_disks in [2, 4] {
            for (own, role) in [(4, Role::Slot(0)), (2, Role::Slot(1)), (5, Role::Spare)] {
                let member = new(own);
                let array = read(&with_slots(&member, 8, raid_disks, UPDATE), &member);
                assert_eq!((array.raid_disks(), array.role(), array.events()), (raid_disks, role, 5));
            }
            for (own, number, role) in
                [(0, 0, Role::Slot(0)), (2, 1, Role::Slot(1)), (3, raid_disks, Role::Spare)]
            {
                let member = old(own);
                let array = read(&with_slots(&member, 1 << 10, raid_disks, UPDATE), &member);
                assert_eq!((array.raid_disks(), array.role()), (raid_disks, role));
                let Superblock::V0(array) = array else { panic!("it is 0.90") };
                assert_eq!(
                    (array.this_disk.number, array.this_disk.minor),
                    (number, own),
                    "the device is as it was"
                );
                let counts = (array.active_disks, array.spare_disks, array.failed_disks, array.nr_disks);
                assert_eq!(counts, (2, 1, raid_disks - 2, raid_disks + 1));
            }
        }
    }

    /// mdadm: `Need 1 spare to avoid degraded array`, `'1' is an unusual number of drives`; Linux is busy where too many are used.
    #[test]
    fn what_cannot_be_is_refused() {
        for array in [new(4), old(0)] {
            assert_eq!(check_slots(&array, 4, 1, false), Ok(()));
            assert_eq!(check_slots(&array, 4, 0, false), Err(SlotsError::Spares { added: 1, spares: 0 }));
            assert_eq!(check_slots(&array, 6, 1, true), Ok(()));
            assert_eq!(check_slots(&array, 2, 0, false), Ok(()));
            assert_eq!(check_slots(&array, 1, 0, true), Err(SlotsError::InUse { used: 2, asked: 1 }));
            assert!(matches!(check_slots(&array, 100_000, 0, true), Err(SlotsError::TooMany { .. })));
        }
        assert_eq!(check_slots(&old(0), 27, 1, true), Err(SlotsError::TooMany { most: 27, needed: 28 }));
        let Superblock::V1(mut alone) = new(4) else { panic!("it is 1.2") };
        alone.dev_roles[2] = Role::Faulty;
        let alone = Superblock::V1(alone);
        assert_eq!(check_slots(&alone, 1, 0, false), Err(SlotsError::OneSlot));
        assert_eq!(check_slots(&alone, 1, 0, true), Ok(()));
        let striped = Superblock::V1(Box::new(Superblock1::new(Level::Raid5, 3, 0, Uuid([7; 16]))));
        assert_eq!(check_slots(&striped, 4, 1, false), Err(SlotsError::Level(Level::Raid5)));
    }

    #[test]
    fn a_member_that_was_left_behind_follows() {
        for (member, others) in [(new(4), [new(2), new(5)]), (old(0), [old(2), old(3)])] {
            let at_sector = member.metadata().sector(DEVICE_SECTORS).unwrap();
            for raid_disks in [2, 4] {
                let array = read(&with_slots(&member, at_sector, raid_disks, UPDATE), &member);
                for other in &others {
                    assert!(is_left_behind(other, &array));
                    let followed = follow(other, at_sector, DEVICE_SECTORS, &array).unwrap();
                    let wanted = read(&with_slots(other, at_sector, raid_disks, UPDATE), other);
                    assert_eq!(followed.to_bytes(), wanted.to_bytes());
                }
            }
        }
    }
}
