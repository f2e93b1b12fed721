//! What is offered for assembly, and picking one array among several.

use stripewise_format::bitmap::BitmapSuperblock;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, Role};
use stripewise_format::uuid::Uuid;

use super::AssemblyError;
use crate::level::Level;

/// A device with a superblock that reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What messages call it: its path.
    pub label: String,
    /// The device's length.
    pub device_sectors: u64,
    /// Where its superblock lies.
    pub at_sector: u64,
    /// Its superblock.
    pub superblock: Superblock,
    /// Its internal bitmap where the superblock says there is one, or what is wrong with it.
    pub bitmap: Option<Result<BitmapSuperblock, String>>,
}

impl Candidate {
    /// The array's name, without what 0.90 has not.
    pub fn name(&self) -> String {
        match &self.superblock {
            Superblock::V0(_) => String::new(),
            Superblock::V1(superblock) => superblock.name(),
        }
    }

    /// The slot its own superblock gives it.
    pub(super) fn own_slot(&self) -> Option<u16> {
        slot_of(self.superblock.role())
    }

    /// Sectors of its data that are recovered, when not all are.
    pub(super) fn recovered_sectors(&self) -> Option<u64> {
        match &self.superblock {
            Superblock::V0(_) => None,
            Superblock::V1(superblock) => superblock.recovered_sectors(),
        }
    }

    /// Whether the bitmap names all that it lacks, while it is recovered.
    pub fn recovers_by_bitmap(&self) -> bool {
        match &self.superblock {
            Superblock::V0(_) => false,
            Superblock::V1(superblock) => superblock.features.contains(Features::RECOVERY_BITMAP),
        }
    }

    /// Sectors that it has for data.
    pub(super) fn room_sectors(&self) -> u64 {
        let behind = self.device_sectors.saturating_sub(self.superblock.data_offset_sectors());
        self.superblock.data_size_sectors(self.at_sector).min(behind)
    }

    pub(super) fn is_replacement(&self) -> bool {
        match &self.superblock {
            Superblock::V0(_) => false,
            Superblock::V1(superblock) => superblock.features.contains(Features::REPLACEMENT),
        }
    }

    /// Sectors of it that the array uses.
    pub(super) fn used_sectors(&self) -> u64 {
        match self.superblock.level() {
            Level::Linear | Level::Raid0 => self.superblock.data_size_sectors(self.at_sector),
            _ => self.superblock.size_sectors(),
        }
    }
}

pub(super) const fn slot_of(role: Role) -> Option<u16> {
    match role {
        Role::Slot(slot) => Some(slot),
        Role::Spare | Role::Faulty | Role::Journal => None,
    }
}

/// Which array of several is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The only one there is.
    Only,
    /// The one of this UUID.
    Uuid(Uuid),
    /// The one of this name, with or without its host.
    Name(String),
}

/// An array among the candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its level.
    pub level: Level,
    /// Its slots.
    pub raid_disks: u32,
    /// Its candidates.
    pub candidates: Vec<usize>,
}

/// The arrays that the candidates belong to, in the order of their first members. The name is the freshest member's: one that was not
/// there when the array was renamed has the old one.
pub fn offered(candidates: &[Candidate]) -> Vec<Offered> {
    let mut arrays: Vec<Offered> = Vec::new();
    let events = |index: usize| candidates[index].superblock.events();
    for (index, candidate) in candidates.iter().enumerate() {
        let uuid = candidate.superblock.set_uuid();
        if let Some(array) = arrays.iter_mut().find(|array| array.uuid == uuid) {
            if array.candidates.iter().all(|other| events(*other) < events(index)) {
                array.name = candidate.name();
            }
            array.candidates.push(index);
        } else {
            arrays.push(Offered {
                uuid,
                name: candidate.name(),
                level: candidate.superblock.level(),
                raid_disks: candidate.superblock.raid_disks(),
                candidates: vec![index],
            });
        }
    }
    arrays
}

/// Picks one array's candidates.
///
/// # Errors
/// None, or more than one, is meant; the error lists what there is.
pub fn wanted(candidates: &[Candidate], wanted: &Wanted) -> Result<Vec<usize>, AssemblyError> {
    let mut arrays = offered(candidates);
    let is_wanted = |array: &Offered| match wanted {
        Wanted::Only => true,
        Wanted::Uuid(uuid) => array.uuid == *uuid,
        Wanted::Name(name) => is_named(&array.name, name),
    };
    let mut found: Vec<usize> = (0..arrays.len()).filter(|index| is_wanted(&arrays[*index])).collect();
    match (found.pop(), found.is_empty()) {
        (Some(index), true) => Ok(arrays.swap_remove(index).candidates),
        (None, _) => Err(AssemblyError::NoSuchArray { wanted: wanted.clone(), offered: arrays }),
        (Some(_), false) => {
            arrays.retain(is_wanted);
            Err(AssemblyError::SeveralArrays { offered: arrays })
        }
    }
}

/// Whether an array of this name is meant by what the user wrote: all of it, or what follows the host.
fn is_named(name: &str, written: &str) -> bool {
    !written.is_empty()
        && (name == written || name.split_once(':').is_some_and(|(_, after_host)| after_host == written))
}
