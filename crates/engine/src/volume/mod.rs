//! A volume: an array as the layers above see it.

mod inputs;
#[cfg(test)]
mod tests;

use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::uuid::Uuid;

use crate::array::copies::Copies;
use crate::array::core::{Core, RequestKey};
use crate::array::members::{Replacement, Standing};
use crate::array::parity::{JournalTail, LogPlaces, Parity, is_long_enough};
use crate::array::slots::SlotSet;
use crate::array::sync::{self, LostRanges, Room, SpeedLimits, Sync, SyncConfig, SyncStatus};
use crate::array::{slot_exists, survives};
use crate::geometry::{Geometry, GeometryError, GeometrySpec, ParityShape, Shape};
use crate::io::SyncAction;
use crate::journal::JournalStart;
use crate::metadata::{BadBlocks, Keeper, MemberMetadata, MetadataConfig, WriteIntent, keeps_state};
use crate::policy::Policy;
use crate::units::{Instant, MemberIndex, SectorRange, Slot};

/// Fewest stripe-cache entries, as in md's `stripe_cache_size`.
pub const STRIPE_CACHE_MIN: u32 = 17;
/// Most stripe-cache entries, as in md's `stripe_cache_size`.
pub const STRIPE_CACHE_MAX: u32 = 32_768;
/// md's default.
pub const STRIPE_CACHE_DEFAULT: u32 = 256;

/// What a volume is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeConfig {
    /// The array.
    pub geometry: GeometrySpec,
    /// How it behaves where Linux versions differ.
    pub policy: Policy,
    /// Stripe-cache entries of one page per member, for levels with parity.
    pub stripe_cache_size: u32,
    /// Members missing from the start.
    pub failed: Vec<Slot>,
    /// Members present of which only the sectors before an offset are valid.
    pub recovering: Vec<(Slot, u64)>,
    /// Those of `recovering` that lack only what the write-intent bitmap names.
    pub returned: Vec<Slot>,
    /// Members behind those of the slots, in the loop's table, that are spares.
    pub spares: u16,
    /// Members that are being filled to replace a slot's, and how far they are.
    pub replacements: Vec<(Slot, MemberIndex, u64)>,
    /// Sectors before it are in sync (of a member; of the array for RAID-10); none: all are.
    pub resync_from: Option<u64>,
    /// How the array works by itself.
    pub sync: SyncConfig,
    /// Members take discards and write-zeroes, and read as zeroes afterwards.
    pub discard: bool,
    /// All members have heads that move (`queue/rotational`), so that of copies the nearest is read; else that of the least busy.
    pub rotational: bool,
    /// Take no writes, and write nothing.
    pub read_only: bool,
    /// What the members hold about the array, to be kept up to date; nothing for arrays that live only as long as
    /// the loop does.
    pub metadata: Option<MetadataConfig>,
}

impl VolumeConfig {
    /// A volume with md's defaults and all members present, that keeps nothing about itself on its members.
    pub const fn new(geometry: GeometrySpec, policy: Policy) -> Self {
        Self {
            geometry,
            policy,
            stripe_cache_size: STRIPE_CACHE_DEFAULT,
            failed: Vec::new(),
            recovering: Vec::new(),
            returned: Vec::new(),
            spares: 0,
            replacements: Vec::new(),
            resync_from: None,
            sync: SyncConfig::DEFAULT,
            discard: false,
            rotational: false,
            read_only: false,
            metadata: None,
        }
    }

    /// The write journal that writes go through, and the array's UUID.
    fn journal(&self) -> Option<(&JournalStart, Uuid)> {
        let metadata = self.metadata.as_ref().filter(|_| !self.read_only)?;
        let uuid = metadata.members.iter().flatten().next()?.superblock.set_uuid();
        Some((metadata.journal.as_ref()?, uuid))
    }

    /// Where the members' data begin, which is the same on all.
    pub fn data_offset_sectors(&self) -> u64 {
        let mut members = self.metadata.iter().flat_map(|metadata| metadata.members.iter().flatten());
        members.next().map_or(0, |member| member.superblock.data_offset_sectors())
    }
}

/// Why there can be no such volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// The geometry is impossible.
    Geometry(GeometryError),
    /// The stripe cache is smaller or larger than md allows.
    StripeCacheSize(u32),
    /// A slot is named that the array does not have, or whose member is missing.
    NoSuchSlot(Slot),
    /// A slot's replacement is none of the members behind those of the slots, or the slot or the replacement is named twice.
    Replacement {
        /// The slot.
        slot: Slot,
        /// What is to replace its member.
        member: MemberIndex,
        /// The members behind those of the slots: the first, and the first behind them.
        behind: (u16, u16),
    },
    /// More members are missing than the level survives.
    TooManyFailed(usize),
    /// The write journal has no room for some rows.
    ShortJournal,
}

impl std::fmt::Display for VolumeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Geometry(error) => error.fmt(f),
            Self::StripeCacheSize(size) => write!(
                f,
                "stripe_cache_size of {size} entries: it must be {STRIPE_CACHE_MIN} to {STRIPE_CACHE_MAX}"
            ),
            Self::NoSuchSlot(slot) => write!(f, "the array has no slot {slot} that could be missing"),
            Self::Replacement { slot, member, behind: (first, end) } => write!(
                f,
                "member {member} cannot replace slot {slot}'s: each slot has at most one replacement, of its own, and the \
                 members that are none of a slot's are {first} to {}",
                end - 1
            ),
            Self::TooManyFailed(count) => {
                write!(f, "{count} members are missing, more than the level survives")
            }
            Self::ShortJournal => f.write_str(
                "the write journal is too short, or the array has more than 203 members: the journal must have room for four rows of \
                 the array's stripes, a block of 4K for each member and one more",
            ),
        }
    }
}

impl std::error::Error for VolumeError {}

/// Refuses replacements that are other than members of their own, behind those of the slots and as many as there are.
fn check_replacements(slots: u16, config: &VolumeConfig) -> Result<(), VolumeError> {
    let count = u16::try_from(config.replacements.len()).unwrap_or(u16::MAX);
    let end = slots.saturating_add(config.spares).saturating_add(count);
    for (at, &(slot, member, _)) in config.replacements.iter().enumerate() {
        let is_behind = (slots..end).contains(&member.0);
        if !is_behind || config.replacements[..at].iter().any(|r| r.0 == slot || r.1 == member) {
            return Err(VolumeError::Replacement { slot, member, behind: (slots, end) });
        }
    }
    Ok(())
}

/// Takes up what recoveries and replacements have come to.
fn take_up(core: &mut Core, config: &VolumeConfig) -> Result<(), VolumeError> {
    let slots = config.recovering.iter().map(|r| r.0).chain(config.replacements.iter().map(|r| r.0));
    for slot in slots {
        if !slot_exists(&core.geometry, slot) || core.failed.contains(slot) {
            return Err(VolumeError::NoSuchSlot(slot));
        }
    }
    if let Some(slot) = config.returned.iter().find(|slot| !slot_exists(&core.geometry, **slot)) {
        return Err(VolumeError::NoSuchSlot(*slot));
    }
    check_replacements(core.geometry.raid_disks(), config)?;
    for &(slot, from) in &config.recovering {
        core.take_slot(slot, core.member_of[slot.index()], from);
    }
    for &(slot, member, filled) in &config.replacements {
        sync::take_up_replacement(core, slot, Replacement { member, filled });
    }
    core.resync_from = config.resync_from.unwrap_or(u64::MAX);
    core.is_sync_recorded = config.resync_from.is_none();
    core.changes.clear();
    let has_work = config.spares > 0 && !core.failed.is_empty() || config.resync_from.is_some();
    core.standing_changed |= has_work && !config.read_only;
    Ok(())
}

/// The machine of levels with parity, with its logs.
fn parity(
    config: &VolumeConfig,
    geometry: &Geometry,
    shape: &ParityShape,
    logs: Option<LogPlaces>,
) -> Result<Parity, VolumeError> {
    let entries = config.stripe_cache_size;
    if !(STRIPE_CACHE_MIN..=STRIPE_CACHE_MAX).contains(&entries) {
        return Err(VolumeError::StripeCacheSize(entries));
    }
    let mut parity = Parity::new(shape.clone(), geometry.chunk_sectors(), entries, &config.policy, logs);
    if let Some((start, set_uuid)) = config.journal() {
        if !is_long_enough(start.place.data_sectors, geometry.raid_disks()) {
            return Err(VolumeError::ShortJournal);
        }
        parity.journal(start, &set_uuid);
    }
    Ok(parity)
}

/// The level's machine.
#[derive(Debug)]
enum Machine {
    Copies(Copies),
    Parity(Box<Parity>),
}

/// A volume.
#[derive(Debug)]
pub struct Volume {
    core: Core,
    machine: Machine,
    keeper: Option<Keeper>,
    /// Writes that the keeper lets start.
    released: Vec<RequestKey>,
    /// The command to stop, to be answered.
    stopping: Option<u32>,
    is_stopped: bool,
    sync: Sync,
}

impl Volume {
    /// Makes a volume. Nothing is read or written.
    ///
    /// # Errors
    /// What is impossible about the configuration.
    pub fn new(config: &VolumeConfig) -> Result<Self, VolumeError> {
        let geometry = Geometry::new(&config.geometry).map_err(VolumeError::Geometry)?;
        let metadata = config.metadata.as_ref();
        let metadata = metadata.map(|metadata| metadata.with_spares_alike(geometry.raid_disks()));
        let machine = if let Shape::Parity(shape) = geometry.shape() {
            let logs = metadata.as_ref().filter(|_| !config.read_only).and_then(MetadataConfig::logs);
            Machine::Parity(Box::new(parity(config, &geometry, shape, logs)?))
        } else {
            Machine::Copies(Copies::new(&geometry, &config.policy, config.rotational))
        };
        let mut core = Core::new(geometry, config.policy.clone(), config.discard, config.spares);
        for slot in &config.failed {
            if !slot_exists(&core.geometry, *slot) {
                return Err(VolumeError::NoSuchSlot(*slot));
            }
            core.failed.insert(*slot);
        }
        take_up(&mut core, config)?;
        if !survives(&core.geometry, core.incomplete()) {
            return Err(VolumeError::TooManyFailed(core.incomplete().len()));
        }
        core.read_only = config.read_only;
        core.journal = config.journal().map(|(start, _)| JournalTail::new(start));
        if let Some(journal) = &core.journal {
            core.members.set_standing(journal.member, Standing::Journal);
        }
        if let Some(metadata) = metadata.as_ref().filter(|_| keeps_state(core.geometry.level())) {
            for (index, member) in metadata.members.iter().enumerate() {
                let (index, list) = (MemberIndex(index as u16), member.as_ref().and_then(BadBlocks::new));
                core.set_bad_blocks(index, list);
                if let Some(member) = member {
                    core.take_flags(index, member);
                }
            }
        }
        let mut keeper = metadata
            .as_ref()
            .filter(|_| !config.read_only && keeps_state(core.geometry.level()))
            .map(|metadata| {
                let keeper = Keeper::new(metadata, &core.geometry, core.resync_from, &config.recovering);
                let needs_resync = core.resync_from != u64::MAX;
                let sectors = sync::sync_sectors(&core, SyncAction::Resync);
                let events = keeper.events();
                core.intent =
                    metadata.bitmap.clone().map(|b| WriteIntent::new(b, sectors, events, needs_resync));
                core.is_kept = true;
                keeper
            });
        if let Some(keeper) = &mut keeper {
            if !keeper.is_clean() {
                core.doubt_replacements();
            }
            keeper.correct(&mut core);
        }
        let returned =
            if core.intent.is_some() { config.returned.iter().copied().collect() } else { SlotSet::EMPTY };
        if let Some(intent) = core.intent.as_mut().filter(|_| !returned.is_empty()) {
            intent.need_all_set();
            intent.dirty_all();
        }
        let room = Room::new(&core.geometry, &core.policy, config.stripe_cache_size);
        let sync = Sync::new(config.sync, returned, room, &core);
        Ok(Self { core, machine, keeper, released: Vec::new(), stopping: None, is_stopped: false, sync })
    }

    /// When [`Input::Timer`](crate::io::Input::Timer) is due, if ever.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        let machine = match &self.machine {
            Machine::Copies(_) => None,
            Machine::Parity(parity) => parity.next_deadline(),
        };
        let sync = self.sync.next_deadline(&self.core);
        let keeper = self.keeper.as_ref().and_then(|keeper| keeper.next_deadline(&self.core));
        if sync.is_none() && keeper.is_none() {
            return machine;
        }
        [sync, machine, keeper].into_iter().flatten().min()
    }

    /// How far the array's own work has come; none for levels without redundancy.
    pub fn sync_status(&self) -> Option<SyncStatus> {
        self.sync.status(&self.core)
    }

    /// Bounds of the speed of the array's own work.
    pub const fn speed_limits(&self) -> SpeedLimits {
        self.sync.speed_limits()
    }

    /// What cannot be had any more after one failure too many.
    pub fn lost_ranges(&self) -> LostRanges {
        sync::lost_ranges(&self.core)
    }

    /// Whether more was lost, while it could be written, than the level survives ([`ArrayFailed`]).
    ///
    /// [`ArrayFailed`]: crate::io::ArrayEvent::ArrayFailed
    pub const fn has_failed(&self) -> bool {
        self.core.has_failed
    }

    /// Whether the write journal had an error, for which the array takes no more writes ([`JournalFailed`]).
    ///
    /// [`JournalFailed`]: crate::io::ArrayEvent::JournalFailed
    pub fn has_journal_failed(&self) -> bool {
        self.core.journal.as_ref().is_some_and(|journal| journal.has_failed)
    }

    /// Names the superblock of a member that the next command adds. Nothing is written by it.
    pub fn introduce(&mut self, member: MemberIndex, metadata: MemberMetadata) {
        if let Machine::Parity(parity) = &mut self.machine {
            parity.introduce(member, metadata.log_area());
        }
        self.core.set_bad_blocks(member, BadBlocks::new(&metadata));
        self.core.take_flags(member, &metadata);
        if let Some(keeper) = &mut self.keeper {
            keeper.introduce(member, metadata);
        }
    }

    /// What the members' superblocks say when everything is written, by member index; those of failed members as they
    /// were left. Nothing for arrays that keep none.
    pub fn superblocks(&self) -> Vec<Option<MemberMetadata>> {
        self.keeper.as_ref().map_or_else(Vec::new, Keeper::superblocks)
    }

    /// Whether the members' superblocks say what is so.
    pub fn is_recorded(&self) -> bool {
        self.keeper.as_ref().is_none_or(|keeper| keeper.is_recorded(&self.core))
    }

    /// The write-intent bitmap's superblock.
    pub fn bitmap(&self) -> Option<&BitmapSuperblock> {
        self.core.intent.as_ref().map(WriteIntent::header)
    }

    /// Whether the write-intent bitmap has every bit set that another has.
    pub fn bitmap_covers(&self, other: &BitmapSuperblock, bits: &Bits) -> bool {
        self.core.intent.as_ref().is_some_and(|intent| intent.covers(other, bits))
    }

    /// Where a member of the loop's table stands.
    pub fn standing(&self, member: MemberIndex) -> Standing {
        self.core.members.standing(member)
    }

    /// Whether the array has the slot.
    fn has(&self, slot: Slot) -> bool {
        slot.0 < self.core.geometry.raid_disks()
    }

    /// How many sectors of a slot's replacement are filled; none when there is none, or no such slot.
    pub fn replaced_sectors(&self, slot: Slot) -> Option<u64> {
        if !self.has(slot) {
            return None;
        }
        self.core.members.replacement(slot).map(|replacement| replacement.filled)
    }

    /// Whether every byte could still be had without a slot's member.
    ///
    /// # Panics
    /// If no array has as many slots.
    pub fn survives_without(&self, slot: Slot) -> bool {
        survives(&self.core.geometry, self.core.incomplete().union(SlotSet::one(slot)))
    }

    /// Whether the array takes writes.
    pub const fn is_writable(&self) -> bool {
        !self.core.read_only
    }

    /// The member in a slot; none where the slot is empty, or there is no such slot.
    pub fn member_of(&self, slot: Slot) -> Option<MemberIndex> {
        (self.has(slot) && !self.core.failed.contains(slot)).then(|| self.core.member_of[slot.index()])
    }

    /// How many sectors of a slot's member hold their content while it is recovered; none when it holds all, or when
    /// the slot is empty, or there is no such slot.
    pub fn recovered_sectors(&self, slot: Slot) -> Option<u64> {
        let is_recovering = self.has(slot) && self.core.members.recovering.contains(slot);
        is_recovering.then(|| self.core.members.filled(slot))
    }

    /// The first sector, of each member, that a resync has still to make agree; for RAID-10 of the array. None when none
    /// is due.
    pub fn resync_due_from(&self) -> Option<u64> {
        self.sync.resync_due_from(&self.core)
    }

    /// The array's geometry.
    pub const fn geometry(&self) -> &Geometry {
        &self.core.geometry
    }

    /// Entries of the stripe cache; for levels with copies the pages that jobs use; none for those without redundancy.
    pub fn stripe_cache_entries(&self) -> u32 {
        match &self.machine {
            Machine::Copies(_) => Copies::entries(self.core.geometry.copies() > 1),
            Machine::Parity(parity) => parity.cache_entries(),
        }
    }

    /// What a member is listed not to hold, in sectors of its data.
    pub fn listed_bad(&self, member: MemberIndex) -> impl Iterator<Item = SectorRange> {
        self.core.bad_blocks.get(member.index()).into_iter().flatten().flat_map(BadBlocks::listed)
    }

    /// Whether a member is listed not to hold one of these sectors of its data.
    pub fn is_listed_bad(&self, member: MemberIndex, range: SectorRange) -> bool {
        self.core.is_listed_bad(member, range)
    }

    /// Whether no request is in flight, and no job of the array's own.
    pub fn is_idle(&self) -> bool {
        let machine_idle = match &self.machine {
            Machine::Copies(copies) => copies.is_idle(),
            Machine::Parity(parity) => parity.is_idle(),
        };
        let keeper_idle = self.keeper.as_ref().is_none_or(Keeper::is_idle);
        machine_idle && keeper_idle && self.core.is_idle()
    }

    /// Panics if the volume contradicts itself. Costs time in proportion to what is in flight and the size of
    /// the stripe cache.
    pub fn check_invariants(&self) {
        if let Machine::Parity(parity) = &self.machine {
            parity.check_invariants();
        }
        let in_flight: u32 = self.core.in_flight.iter().sum();
        let counted = (in_flight + self.core.metadata_ios) as usize;
        let (singles, of_singles) = match &self.machine {
            Machine::Parity(parity) => (parity.singles(), parity.ios_of_singles()),
            Machine::Copies(_) => (0, 0),
        };
        let reads = self.core.plain_reads.len();
        let known = self.core.ios.len() + of_singles + reads;
        assert_eq!(counted, known, "I/Os in flight are counted by slot, or as the keeper's");
        if let Some(keeper) = &self.keeper {
            keeper.check_invariants(&self.core);
        }
        if self.core.requests.len() + singles == 0 {
            assert!(self.core.ranges.is_idle(), "without requests no range is held");
            assert!(self.core.own_sectors.iter().all(|&own| own == 0), "without jobs none is under way");
            assert_eq!(in_flight as usize, reads, "without requests only reads that are one are in flight");
        }
        for state in self.core.requests.iter() {
            assert!(state.admitted <= state.request.range.count, "no more is taken than was asked for");
        }
    }
}
