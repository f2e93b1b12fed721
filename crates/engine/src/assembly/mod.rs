//! Choosing the members of an existing array: which device is which slot's member, which are spare, which are out of
//! date, and whether the array may start.
//!
//! Pure: superblocks in, an [`Assembly`] or an [`AssemblyError`] out. The rules are those of mdadm 4.2's assembly and
//! of the kernel's `super_1_validate`, `super_90_validate` and `raid5_run`:
//! - the members with the most events are the freshest; one event fewer is still current, fewer is stale;
//! - what a device is to the array is read from a freshest member's table, so that one which it calls faulty stays out
//!   however close its events are;
//! - a member to which a freshest one is faulty or missing has gone its own way and stays out as well; if it has as many events,
//!   nobody can say which of the two is the array, and that is an error;
//! - current members that disagree about the array are an error, never a vote.
//!
//! Nothing here is sized by a number read from a superblock but by the number of slots, which is checked first.

mod candidate;
mod choose;
mod collect;
mod compare;
mod cut_off;
mod error;
mod new;
mod start;
mod take_back;

pub use candidate::{Candidate, Offered, Wanted, offered, wanted};
pub use compare::{Difference, difference};
pub use cut_off::freshest;
pub use error::AssemblyError;
pub use new::assemble_new;

use stripewise_format::placement::Metadata;
use stripewise_format::uuid::Uuid;

use crate::geometry::GeometrySpec;
use crate::level::Raid0Layout;
use crate::units::Slot;

/// What the user asks for beyond the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one for each permission of the caller's")]
pub struct Options {
    /// Start although members are missing that the superblocks expect (mdadm's `--run`).
    pub run: bool,
    /// Take stale members where there are too few others, and a dirty degraded array as clean; start although members or the write
    /// journal are missing (mdadm's `--force`).
    pub force: bool,
    /// Nothing will be written: a bitmap that does not read is not in the way, nor is a dirty degraded array or a missing journal.
    pub readonly: bool,
    /// Nothing is to be started, but the bitmap to be taken away: one that does not read is not in the way, nor is a dirty degraded
    /// array.
    pub forgets_bitmap: bool,
    /// The layout of a RAID-0 whose superblock does not say it.
    pub raid0_layout: Option<Raid0Layout>,
}

/// What is in a slot. Candidates are named by their index in the list that was assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// A member whose data are right.
    InSync {
        /// Which.
        candidate: usize,
    },
    /// A member that was being recovered.
    Recovering {
        /// Which.
        candidate: usize,
        /// Sectors of its data that are recovered.
        offset_sectors: u64,
    },
    /// No member.
    Missing,
}

impl SlotState {
    /// The member, in sync or not.
    pub const fn candidate(self) -> Option<usize> {
        match self {
            Self::InSync { candidate } | Self::Recovering { candidate, .. } => Some(candidate),
            Self::Missing => None,
        }
    }

    /// Whether the slot's data can be read from its member.
    pub const fn is_in_sync(self) -> bool {
        matches!(self, Self::InSync { .. })
    }
}

/// A member that takes another's place while that one still serves (mdadm's `--replace`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The slot of both.
    pub slot: Slot,
    /// Which.
    pub candidate: usize,
    /// Sectors of its data that are copied; `u64::MAX` when all are.
    pub offset_sectors: u64,
}

/// A candidate of the array that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Which.
    pub candidate: usize,
    /// Why.
    pub why: StaleReason,
    /// The slot it held, when nobody has it now and the bitmap knows every change since: it can be added again without a full
    /// recovery.
    pub re_addable: Option<Slot>,
}

/// Why a candidate of the array is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// Its superblock is older than the freshest by more than one event.
    Events {
        /// Its events.
        found: u64,
        /// Those of the freshest.
        freshest: u64,
    },
    /// The freshest superblock calls it faulty.
    Faulty,
    /// It has nobody in a freshest member's slot, so it was used without that one.
    Disagrees,
    /// The freshest superblock gives it a slot that its own superblock does not.
    NotItsSlot,
    /// Its own superblock gives it a slot, and the freshest knows it in none: the array was used without it, as after a start by
    /// force. It is no spare until somebody adds it as one.
    LetGo,
    /// It was the array's write journal, and the latest superblock knows of none.
    FormerJournal,
    /// It has more events than every member that holds data: a spare that strayed.
    StraySpare,
    /// A spare with less room than the array uses of each member.
    SmallSpare {
        /// Sectors that it has for data.
        sectors: u64,
        /// Sectors that the array uses.
        needed: u64,
    },
    /// A spare that has no place for what the array keeps on each member.
    UnlikeSpare,
    /// A reshape's last superblocks did not reach it.
    ReshapeEnded,
}

impl std::fmt::Display for StaleReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Events { found, freshest } => {
                write!(f, "it is out of date: its events are {found}, the latest are {freshest}")
            }
            Self::Faulty => f.write_str("the latest superblock calls it faulty"),
            Self::Disagrees => {
                f.write_str("its superblock calls the latest member faulty or missing, so it was used without that member")
            }
            Self::NotItsSlot => {
                f.write_str("the latest superblock gives it a slot that its own superblock does not")
            }
            Self::LetGo => f.write_str(
                "the latest superblock gives it no slot, although it held one; add it as a new member, which overwrites it",
            ),
            Self::FormerJournal => {
                f.write_str("it was the array's write journal, and the latest superblock says that there is none")
            }
            Self::StraySpare => f.write_str("it has more events than every member that holds data"),
            Self::SmallSpare { sectors, needed } => {
                write!(
                    f,
                    "it is a spare with room for {sectors} sectors; the array uses {needed} of each member"
                )
            }
            Self::ReshapeEnded => f.write_str(
                "the array's reshape has ended, which its superblock does not say yet; `stripewise grow --continue` writes it",
            ),
            Self::UnlikeSpare => f.write_str(
                "it is a spare without a place for what the array keeps on each member; add it as a new member",
            ),
        }
    }
}

/// A stale member that `force` took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forced {
    /// Which.
    pub candidate: usize,
    /// Its slot.
    pub slot: Slot,
    /// The events its superblock has.
    pub events: u64,
}

/// What makes the array whole again after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Nothing: the level has no redundancy.
    None,
    /// A resync of everything from `resync_offset` on.
    Resync,
    /// The internal write-intent bitmap.
    Bitmap,
    /// The partial parity log.
    Ppl,
    /// The log on a write journal device, which has what the members may lack.
    Journal,
}

/// The write journal of an array that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// The device is there.
    Device {
        /// Which.
        candidate: usize,
    },
    /// It is missing or out of date, and with it what the members may lack. The array is only read, or the journal given up.
    Lost,
}

/// An array that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The superblocks' version.
    pub metadata: Metadata,
    /// The array's UUID.
    pub uuid: Uuid,
    /// The array's name; empty with 0.90.
    pub name: String,
    /// What it is made of.
    pub geometry: GeometrySpec,
    /// What is in each slot.
    pub slots: Vec<SlotState>,
    /// Slots whose recovering member lacks only what the write-intent bitmap names.
    pub returned: Vec<Slot>,
    /// Members that take others' places.
    pub replacements: Vec<Replacement>,
    /// Members that hold nothing yet.
    pub spares: Vec<usize>,
    /// Members left out.
    pub stale: Vec<Stale>,
    /// Stale members taken all the same.
    pub forced: Vec<Forced>,
    /// The member whose superblock the array is described by.
    pub freshest: usize,
    /// Its events.
    pub events: u64,
    /// Sectors before it are in sync; `u64::MAX` when all are.
    pub resync_offset_sectors: u64,
    /// Whether all writes that were begun have ended; always for levels without redundancy.
    pub is_clean: bool,
    /// Whether `force` took the parity of a dirty degraded array for what is missing, though it may be wrong where writes were
    /// under way. Such an array is clean unless it has more than it needs, which a resync is to make agree.
    pub forced_clean: bool,
    /// What follows a crash.
    pub consistency: Consistency,
    /// The write journal, where there should be one.
    pub journal: Option<Journal>,
    /// Why the bitmap is not used though there should be one; only for reading.
    pub bitmap_damage: Option<String>,
}

impl Assembly {
    /// Slots without data that can be read: missing and recovering ones.
    pub fn out_of_sync(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..).map(Slot).zip(&self.slots).filter(|(_, state)| !state.is_in_sync()).map(|(slot, _)| slot)
    }

    /// How many slots have data that can be read.
    pub fn in_sync_count(&self) -> usize {
        self.slots.iter().filter(|state| state.is_in_sync()).count()
    }

    /// The write journal's device, if it is there.
    pub const fn journal_device(&self) -> Option<usize> {
        match self.journal {
            Some(Journal::Device { candidate }) => Some(candidate),
            Some(Journal::Lost) | None => None,
        }
    }

    /// Whether some slot's data must be worked out from the others.
    pub fn is_degraded(&self) -> bool {
        self.in_sync_count() < self.slots.len()
    }
}

/// Chooses the members of one array and decides whether it may start. Every candidate is of the same array, as
/// [`wanted`] picks them; their order means nothing.
///
/// # Errors
/// What is wrong with which candidate, or what is missing.
pub fn assemble(candidates: &[Candidate], options: Options) -> Result<Assembly, AssemblyError> {
    let mut assembly =
        put_together(candidates, options).map_err(|error| cut_off::explain(candidates, error))?;
    cut_off::name_untold(candidates, &mut assembly);
    Ok(assembly)
}

fn put_together(candidates: &[Candidate], options: Options) -> Result<Assembly, AssemblyError> {
    let mut chosen = choose::choose(candidates)?;
    compare::check_alike(candidates, &chosen)?;
    if options.force {
        chosen.force(candidates)?;
    }
    collect::collect(candidates, chosen, options)
}

#[cfg(test)]
mod journal_tests;
#[cfg(test)]
mod tests;
