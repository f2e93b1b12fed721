//! The members' superblocks as they should be, and the bytes to write.
//!
//! What a kernel's `super_1_sync` and `super_90_sync` make of the array's state, field by field.

use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_0::{DISKS, Disk, Superblock0};
use stripewise_format::superblock_1::{Features, MAX_SECTOR, Role, Superblock1};
use stripewise_format::time::Timestamp;

use super::MemberMetadata;
use crate::units::{MemberIndex, Slot};

/// What a member is to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Holds its slot's content.
    InSync(Slot),
    /// Will hold its slot's content; the sectors before this one are there.
    Recovering(Slot, u64),
    /// Becomes the member of a slot that still has one; the sectors before this one are there.
    Replacing(Slot, u64),
    /// Waits.
    Spare,
    /// Failed, and still part of the array.
    Faulty,
    /// The write journal.
    Journal,
}

impl Standing {
    /// It is a slot's member, or becomes so.
    pub(crate) const fn has_slot(self) -> bool {
        !matches!(self, Self::Spare | Self::Faulty | Self::Journal)
    }
}

/// What all superblocks say of the array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayState {
    /// Count of changes.
    pub(crate) events: u64,
    /// No write is under way.
    pub(crate) is_clean: bool,
    /// Sectors before it are in sync; [`MAX_SECTOR`] when all are.
    pub(crate) resync_offset_sectors: u64,
    /// Wall-clock time.
    pub(crate) utime: Timestamp,
    /// Where the write journal's log begins, if the array is written through one.
    pub(crate) journal_tail_sectors: Option<u64>,
}

/// A member with what is known of it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) metadata: MemberMetadata,
    pub(crate) standing: Standing,
    /// Its bad-block log lists something.
    pub(crate) has_bad_blocks: bool,
    /// Its superblock is of another time.
    pub(crate) is_behind: bool,
    /// It took its slot from another, which the members were not told yet.
    pub(crate) is_joining: bool,
}

impl Known {
    /// Whether the bitmap names all that the member lacks, while it is recovered.
    fn recovers_by_bitmap(&self) -> bool {
        match &self.metadata.superblock {
            Superblock::V1(superblock) => superblock.features.contains(Features::RECOVERY_BITMAP),
            Superblock::V0(_) => false,
        }
    }

    /// The member begins anew: the bitmap does not name all that it lacks.
    pub(crate) fn forget_bitmap_recovery(&mut self) {
        if let Superblock::V1(superblock) = &mut self.metadata.superblock {
            superblock.features = superblock.features.without(Features::RECOVERY_BITMAP);
        }
    }
}

/// The superblock of a member as it should be.
pub(crate) fn render(
    members: &[Option<Known>],
    member: MemberIndex,
    state: &ArrayState,
) -> Option<Superblock> {
    let known = members.get(member.index())?.as_ref()?;
    Some(match &known.metadata.superblock {
        Superblock::V1(superblock) => Superblock::V1(Box::new(render_1(members, known, superblock, state))),
        Superblock::V0(superblock) => Superblock::V0(Box::new(render_0(members, member, superblock, state))),
    })
}

fn render_1(
    members: &[Option<Known>],
    known: &Known,
    superblock: &Superblock1,
    state: &ArrayState,
) -> Superblock1 {
    let mut new = superblock.clone();
    new.events = state.events;
    new.utime = state.utime;
    // With a journal parity is right whatever is under way, once it is so (the kernel's `MD_JOURNAL_CLEAN`).
    let is_journaled = state.journal_tail_sectors.is_some() && state.resync_offset_sectors == MAX_SECTOR;
    new.resync_offset_sectors = if state.is_clean || is_journaled { state.resync_offset_sectors } else { 0 };
    new.features =
        new.features.without(Features::RECOVERY_OFFSET | Features::RECOVERY_BITMAP | Features::REPLACEMENT);
    new.recovery_offset_sectors = 0;
    if superblock.has_bad_block_log() {
        new.features = new.features.without(Features::BAD_BLOCKS);
        if known.has_bad_blocks {
            new.features |= Features::BAD_BLOCKS;
        }
    }
    let (recovered, replaces) = match known.standing {
        Standing::Recovering(_, sectors) => (Some(sectors), false),
        Standing::Replacing(_, sectors) => (Some(sectors), true),
        Standing::InSync(_) | Standing::Spare | Standing::Faulty | Standing::Journal => (None, false),
    };
    if known.standing == Standing::Journal {
        new.recovery_offset_sectors = state.journal_tail_sectors.unwrap_or(0);
    }
    if let Some(sectors) = recovered {
        new.features |= Features::RECOVERY_OFFSET;
        new.recovery_offset_sectors = sectors;
        if known.recovers_by_bitmap() && !replaces {
            new.features |= Features::RECOVERY_BITMAP;
        }
    }
    if replaces {
        new.features |= Features::REPLACEMENT;
    }
    new.dev_roles.fill(Role::Spare);
    for other in members.iter().flatten() {
        let number = other.metadata.superblock.dev_number() as usize;
        if new.dev_roles.len() <= number {
            new.dev_roles.resize(number + 1, Role::Spare);
        }
        new.dev_roles[number] = match other.standing {
            Standing::InSync(slot) | Standing::Recovering(slot, _) | Standing::Replacing(slot, _) => {
                Role::Slot(slot.0)
            }
            Standing::Spare => Role::Spare,
            Standing::Faulty => Role::Faulty,
            Standing::Journal => Role::Journal,
        };
    }
    new
}

/// 0.90 numbers its devices anew at each writing: those in sync by their slots, the others after them.
fn render_0(
    members: &[Option<Known>],
    member: MemberIndex,
    superblock: &Superblock0,
    state: &ArrayState,
) -> Superblock0 {
    let mut new = superblock.clone();
    new.events = state.events;
    new.utime_seconds = state.utime.seconds() as u32;
    new.state &= !Superblock0::CLEAN;
    new.recovery_checkpoint_sectors = 0;
    if state.is_clean {
        new.checkpoint_events = state.events;
        if state.resync_offset_sectors == MAX_SECTOR {
            new.state |= Superblock0::CLEAN;
        } else {
            new.recovery_checkpoint_sectors = u32::try_from(state.resync_offset_sectors).unwrap_or(0);
        }
    }
    let before = new.disks;
    new.disks = [Disk::default(); DISKS];
    (new.active_disks, new.failed_disks, new.spare_disks) = (0, 0, 0);
    let mut next_spare = new.raid_disks;
    for (index, other) in members.iter().enumerate() {
        let Some(other) = other else { continue };
        let Superblock::V0(theirs) = &other.metadata.superblock else { continue };
        let (number, state, count) = if let Standing::InSync(slot) = other.standing {
            (u32::from(slot.0), Disk::ACTIVE | Disk::SYNC, &mut new.active_disks)
        } else {
            next_spare += 1;
            match other.standing {
                Standing::Faulty => (next_spare - 1, Disk::FAULTY, &mut new.failed_disks),
                _ => (next_spare - 1, 0, &mut new.spare_disks),
            }
        };
        if number as usize >= DISKS {
            continue;
        }
        *count += 1;
        let old = before[theirs.this_disk.number as usize];
        let theirs_before = theirs.disks[theirs.this_disk.number as usize];
        let state = state | theirs_before.state & Disk::DEVICE_FLAGS;
        let row = Disk { number, major: old.major, minor: old.minor, raid_disk: number, state };
        new.disks[number as usize] = row;
        if index == member.index() {
            new.this_disk = row;
        }
    }
    new.working_disks = new.active_disks + new.spare_disks;
    new.nr_disks = new.working_disks + new.failed_disks;
    for slot in 0..new.raid_disks {
        let row = &mut new.disks[slot as usize];
        if row.state == 0 {
            *row = Disk {
                number: slot,
                raid_disk: slot,
                state: Disk::REMOVED | Disk::FAULTY,
                ..Disk::default()
            };
            new.failed_disks += 1;
        }
    }
    new
}
