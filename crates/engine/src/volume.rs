//! A volume: an array as the layers above see it. Today the array is its only layer.

use stripewise_format::bitmap::BitmapSuperblock;

use crate::array::copies::Copies;
use crate::array::core::{Core, IoRecord, Owner, RequestKey, RequestState};
use crate::array::lone_read::LoneRead;
use crate::array::members::{Replacement, Standing};
use crate::array::parity::Parity;
use crate::array::slots::SlotSet;
use crate::array::sync::{self, LostRanges, SpeedLimits, Sync, SyncConfig, SyncStatus};
use crate::array::{slot_exists, survives};
use crate::geometry::{Geometry, GeometryError, GeometrySpec, Shape};
use crate::io::{Action, ActionQueue, AdminCommand, AdminReply, Input, IoError, IoResult, Op, Request, Tag};
use crate::metadata::{BadBlocks, Keeper, MemberMetadata, MetadataConfig, WriteIntent, keeps_state};
use crate::policy::Policy;
use crate::units::{Instant, MemberIndex, Slot};

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
            read_only: false,
            metadata: None,
        }
    }
}

/// Why there can be no such volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeError {
    /// The geometry is impossible.
    Geometry(GeometryError),
    /// The stripe cache is smaller or larger than md allows.
    StripeCacheSize(u32),
    /// A failed member is named that the array does not have.
    NoSuchSlot(Slot),
    /// More members are missing than the level survives.
    TooManyFailed(usize),
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
            Self::TooManyFailed(count) => {
                write!(f, "{count} members are missing, more than the level survives")
            }
        }
    }
}

impl std::error::Error for VolumeError {}

/// Takes up what recoveries and replacements have come to.
fn take_up(core: &mut Core, config: &VolumeConfig) -> Result<(), VolumeError> {
    let slots = config.recovering.iter().map(|r| r.0).chain(config.replacements.iter().map(|r| r.0));
    for slot in slots {
        if !slot_exists(&core.geometry, slot) || core.failed.contains(slot) {
            return Err(VolumeError::NoSuchSlot(slot));
        }
    }
    for &(slot, from) in &config.recovering {
        core.take_slot(slot, core.member_of[slot.index()], from);
    }
    for &(slot, member, filled) in &config.replacements {
        sync::take_up_replacement(core, slot, Replacement { member, filled });
    }
    core.resync_from = config.resync_from.unwrap_or(u64::MAX);
    core.changes.clear();
    let has_work = config.spares > 0 && !core.failed.is_empty() || config.resync_from.is_some();
    core.standing_changed |= has_work;
    Ok(())
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
        let machine = if let Shape::Parity(shape) = geometry.shape() {
            let entries = config.stripe_cache_size;
            if !(STRIPE_CACHE_MIN..=STRIPE_CACHE_MAX).contains(&entries) {
                return Err(VolumeError::StripeCacheSize(entries));
            }
            let logs = config.metadata.as_ref().filter(|_| !config.read_only).and_then(MetadataConfig::logs);
            Machine::Parity(Box::new(Parity::new(
                shape.clone(),
                geometry.chunk_sectors(),
                entries,
                &config.policy,
                logs,
            )))
        } else {
            Machine::Copies(Copies::new(geometry.raid_disks(), geometry.copies() > 1))
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
        if let Some(metadata) = config.metadata.as_ref().filter(|_| keeps_state(core.geometry.level())) {
            for (index, member) in metadata.members.iter().enumerate() {
                let list = member.as_ref().and_then(BadBlocks::new);
                core.set_bad_blocks(MemberIndex(index as u16), list);
            }
        }
        let keeper =
            config.metadata.as_ref().filter(|_| !config.read_only && keeps_state(core.geometry.level())).map(
                |metadata| {
                    let keeper = Keeper::new(metadata, &core.geometry, core.resync_from);
                    let needs_resync = keeper.is_dirty() && core.resync_from != u64::MAX;
                    core.intent = metadata.bitmap.clone().map(|b| WriteIntent::new(b, needs_resync));
                    core.is_kept = true;
                    keeper
                },
            );
        let returned =
            if core.intent.is_some() { config.returned.iter().copied().collect() } else { SlotSet::EMPTY };
        if let Some(intent) = core.intent.as_mut().filter(|_| !returned.is_empty()) {
            intent.need_all_set();
            intent.dirty_all();
        }
        let sync = Sync::new(config.sync, returned);
        Ok(Self { core, machine, keeper, released: Vec::new(), stopping: None, is_stopped: false, sync })
    }

    /// Takes an input; what is to be done is added to `out`.
    #[expect(clippy::inline_always, reason = "it only chooses, most often by what its caller has just made")]
    #[inline(always)]
    pub fn handle(&mut self, now: Instant, input: Input, out: &mut ActionQueue) {
        self.core.now = now;
        // Most inputs of a loaded array, and all they need.
        let may_go_on = match input {
            Input::Request(request) if request.op == Op::Read => return self.read(now, &request, out),
            Input::Request(request) => return self.take(now, &request, out),
            Input::IoDone { tag, result } if tag.is_of_read() => {
                return self.lone_read_ended(now, tag, result, out);
            }
            Input::IoDone { tag, result } if tag.is_of_single() => match &mut self.machine {
                Machine::Parity(parity) => parity.single_answered(&mut self.core, out, tag, result),
                Machine::Copies(_) => false,
            },
            Input::IoDone { tag, result } => return self.io_done(now, tag, result, out),
            Input::Computed { tag, .. } if tag.is_of_single() => match &mut self.machine {
                Machine::Parity(parity) => parity.single_computed(&mut self.core, out, tag),
                Machine::Copies(_) => false,
            },
            _ => return self.handle_other(now, &input, out),
        };
        if may_go_on {
            self.settle(now, out);
        }
    }

    /// Takes a read. One that one member can answer needs no state of its own.
    #[inline(never)]
    fn read(&mut self, now: Instant, request: &Request, out: &mut ActionQueue) {
        let core = &mut self.core;
        let is_sent = core.refuses(request).is_none()
            && match &mut self.machine {
                Machine::Parity(parity) => parity.read_whole(core, out, request),
                Machine::Copies(copies) => copies.read_whole(core, out, request),
            };
        if !is_sent {
            self.take(now, request, out);
        }
    }

    /// Takes any request, and lets go on what may for it.
    #[inline(never)]
    fn take(&mut self, now: Instant, request: &Request, out: &mut ActionQueue) {
        if self.request(now, request, out) {
            self.settle(now, out);
        }
    }

    /// A read that one member answers ended.
    #[inline(never)]
    fn lone_read_ended(&mut self, now: Instant, tag: Tag, result: IoResult, out: &mut ActionQueue) {
        let Some(&read) = self.core.lone_read(tag) else { return };
        self.core.lone_read_ends(tag, read.slot);
        if result.is_err() {
            return self.lone_read_refused(now, &read, result, out);
        }
        out.push(Action::Complete { id: read.id, result });
        self.settle(now, out);
    }

    #[cold]
    fn lone_read_refused(&mut self, now: Instant, read: &LoneRead, result: IoResult, out: &mut ActionQueue) {
        let LoneRead { slot, member, sector, .. } = *read;
        let request = self.core.read_goes_on(read);
        let owner = match self.machine {
            Machine::Parity(_) => Owner::Part { request, sector },
            Machine::Copies(_) => Owner::CopyRead { request, sector, tried: 0 },
        };
        let record = IoRecord { slot, member, op: Op::Read, range: read.range(), owner };
        self.io_ended(&record, result, out);
        self.settle(now, out);
    }

    /// Any other I/O ended.
    #[inline(never)]
    fn io_done(&mut self, now: Instant, tag: Tag, result: IoResult, out: &mut ActionQueue) {
        let is_plain = result.is_ok() && !self.core.has_bad_blocks();
        if let Some(record) = self.core.io_ended(tag) {
            match (record.owner, &mut self.machine) {
                (Owner::Part { request, .. }, _) if is_plain => self.core.part_ends(out, request, result),
                (Owner::Stripe { op }, Machine::Parity(parity)) if is_plain => {
                    parity.op_answered(&mut self.core, out, op, (record.slot, record.op));
                }
                _ => self.io_ended(&record, result, out),
            }
        }
        self.settle(now, out);
    }

    fn handle_other(&mut self, now: Instant, input: &Input, out: &mut ActionQueue) {
        match *input {
            Input::Request(request) => return self.take(now, &request, out),
            Input::IoDone { tag, result } => return self.io_done(now, tag, result, out),
            Input::Computed { tag, verdict } => match &mut self.machine {
                Machine::Parity(parity) => parity.computed(&mut self.core, out, tag, verdict),
                Machine::Copies(copies) => copies.computed(&mut self.core, out, tag, verdict),
            },
            Input::Timer => {
                if let Machine::Parity(parity) = &mut self.machine {
                    parity.timer(now);
                }
            }
            Input::Admin { id, command: AdminCommand::Stop } => {
                self.is_stopped = true;
                self.sync.stop();
                self.stopping = Some(id);
                if let Some(keeper) = &mut self.keeper {
                    keeper.stop();
                }
            }
            Input::Admin { id, command } => {
                let reply = self.sync.admin(&mut self.core, out, command);
                out.push(Action::Replied { id, reply });
            }
        }
        self.settle(now, out);
    }

    /// Whether nothing waits to go on.
    #[inline]
    fn is_settled(&self) -> bool {
        let is_machine_settled = match &self.machine {
            Machine::Copies(_) => true,
            Machine::Parity(parity) => parity.is_settled(&self.core),
        };
        is_machine_settled
            && self.core.granted.is_empty()
            && self.keeper.is_none()
            && self.stopping.is_none()
            && self.sync.is_settled(&self.core)
    }

    /// Lets go on what was waiting until nothing more can.
    fn settle(&mut self, now: Instant, out: &mut ActionQueue) {
        if !self.is_settled() {
            self.settle_all(now, out);
        }
    }

    #[inline(never)]
    fn settle_all(&mut self, now: Instant, out: &mut ActionQueue) {
        loop {
            while let Some(key) = self.core.granted.pop_front() {
                self.admit(now, key, out);
            }
            self.keep(now, out);
            if let Machine::Parity(parity) = &mut self.machine {
                parity.settle(&mut self.core, out);
            }
            let began = self.sync.settle(&mut self.core, out);
            let core = &self.core;
            if core.granted.is_empty() && core.changes.is_empty() && core.writes_ended.is_empty() && !began {
                break;
            }
        }
        let is_said = self.keeper.as_ref().is_none_or(|keeper| keeper.is_stopped(&self.core));
        if is_said && let Some(id) = self.stopping.take() {
            out.push(Action::Replied { id, reply: AdminReply::Done });
        }
    }

    /// Lets the keeper go on, and the writes that it lets start.
    fn keep(&mut self, now: Instant, out: &mut ActionQueue) {
        let Some(keeper) = &mut self.keeper else { return };
        keeper.settle(&mut self.core, out, now, &mut self.released);
        for key in std::mem::take(&mut self.released) {
            if self.core.read_only {
                self.core.part_ends(out, key, Err(IoError::ReadOnly));
            } else {
                self.admit_now(now, key, out);
            }
        }
    }

    /// Takes a request. Answers whether anything else may go on for it.
    fn request(&mut self, now: Instant, request: &Request, out: &mut ActionQueue) -> bool {
        let refusal = self.core.refuses(request);
        let refusal = refusal.or((self.is_stopped && request.op.is_write()).then_some(IoError::ReadOnly));
        if let Some(error) = refusal {
            out.push(Action::Complete { id: request.id, result: Err(error) });
            return false;
        }
        if request.op == Op::Write
            && let Some(may_go_on) = self.write_lone_page(now, request, out)
        {
            return may_go_on;
        }
        let through_cache = request.op == Op::Read
            && matches!(self.machine, Machine::Parity(_))
            && !self.core.policy.aligned_reads_bypass_cache;
        let locked = request.op.is_write() || through_cache;
        let key =
            self.core.requests.insert(RequestState { locked, through_cache, ..RequestState::new(*request) });
        if !locked || self.core.ranges.lock(request.range, key) {
            self.admit(now, key, out);
        }
        true
    }

    /// Takes a request that writes one page, without a state of its own where it may start at once. Answers, if it took it,
    /// whether anything else may go on for it.
    #[inline]
    fn write_lone_page(&mut self, now: Instant, request: &Request, out: &mut ActionQueue) -> Option<bool> {
        let Machine::Parity(parity) = &mut self.machine else { return None };
        let core = &mut self.core;
        if !parity.is_lone_page(core, request) || !core.ranges.try_lock(request.range) {
            return None;
        }
        let keeper = self.keeper.as_mut();
        let is_kept = keeper.is_some();
        let is_admitted = keeper.is_none_or(|keeper| keeper.admits(core, request.range));
        if is_admitted && parity.start_lone_page(core, out, request) {
            return Some(is_kept);
        }
        let key = core.requests.insert(RequestState { locked: true, ..RequestState::new(*request) });
        match &mut self.keeper {
            Some(keeper) if !is_admitted => keeper.keep_waiting(key),
            _ => self.admit_now(now, key, out),
        }
        Some(true)
    }

    fn admit(&mut self, now: Instant, key: RequestKey, out: &mut ActionQueue) {
        let state = self.core.request(key);
        let range = state.request.range;
        // Parts of a write that was let start have its leave.
        let is_write = state.request.op.is_write() && state.parent.is_none();
        if let Some(keeper) = self.keeper.as_mut().filter(|_| is_write)
            && !keeper.admits(&mut self.core, range)
        {
            return keeper.keep_waiting(key);
        }
        self.admit_now(now, key, out);
    }

    fn admit_now(&mut self, now: Instant, key: RequestKey, out: &mut ActionQueue) {
        if self.core.request(key).request.op == Op::Flush {
            self.core.flush(out, key);
        } else {
            match &mut self.machine {
                Machine::Copies(copies) => copies.admit(&mut self.core, out, key),
                Machine::Parity(parity) => parity.admit(&mut self.core, out, now, key),
            }
        }
        // The part that kept the request alive while its parts were made.
        self.core.part_ends(out, key, Ok(()));
    }

    #[inline]
    fn io_ended(&mut self, record: &IoRecord, result: IoResult, out: &mut ActionQueue) {
        let is_data = !matches!(record.owner, Owner::Metadata { .. } | Owner::Log { .. });
        if is_data && result.is_ok() && matches!(record.op, Op::Write | Op::WriteZeroes) {
            self.core.written(record);
        }
        match (record.owner, &mut self.keeper) {
            (Owner::Flush { .. }, _) => return self.core.flushed(out, record, result),
            (Owner::Metadata { member }, Some(keeper)) => {
                return keeper.ended(&mut self.core, out, member, result);
            }
            _ => {}
        }
        if let Owner::Twin { twin } = record.owner {
            if let Some((record, result)) = self.core.twin_ended(out, twin, record.member, result) {
                self.io_ended(&record, result, out);
            }
            return;
        }
        match &mut self.machine {
            Machine::Copies(copies) => copies.ended(&mut self.core, out, record, result),
            Machine::Parity(parity) => parity.ended(&mut self.core, out, record, result),
        }
    }

    /// When [`Input::Timer`] is due, if ever.
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

    /// Names the superblock of a member that the next command adds. Nothing is written by it.
    pub fn introduce(&mut self, member: MemberIndex, metadata: MemberMetadata) {
        if let Machine::Parity(parity) = &mut self.machine {
            parity.introduce(member, metadata.log_area());
        }
        self.core.set_bad_blocks(member, BadBlocks::new(&metadata));
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

    /// Where a member of the loop's table stands.
    pub fn standing(&self, member: MemberIndex) -> Standing {
        self.core.members.standing(member)
    }

    /// How many sectors of a slot's replacement are filled; none when there is none.
    pub fn replaced_sectors(&self, slot: Slot) -> Option<u64> {
        self.core.members.replacement(slot).map(|replacement| replacement.filled)
    }

    /// Whether every byte could still be had without a slot's member.
    pub fn survives_without(&self, slot: Slot) -> bool {
        survives(&self.core.geometry, self.core.incomplete().union(SlotSet::one(slot)))
    }

    /// Whether the array takes writes.
    pub const fn is_writable(&self) -> bool {
        !self.core.read_only
    }

    /// The member in a slot, unless the slot is empty.
    pub fn member_of(&self, slot: Slot) -> Option<MemberIndex> {
        (!self.core.failed.contains(slot)).then(|| self.core.member_of[slot.index()])
    }

    /// How many sectors of a slot's member hold their content while it is recovered; none when it holds all, or when
    /// the slot is empty.
    pub fn recovered_sectors(&self, slot: Slot) -> Option<u64> {
        let is_recovering = self.core.members.recovering.contains(slot);
        is_recovering.then(|| self.core.members.filled(slot))
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
        let reads = self.core.lone_reads.len();
        let known = self.core.ios.len() + of_singles + reads;
        assert_eq!(counted, known, "I/Os in flight are counted by slot, or as the keeper's");
        if let Some(keeper) = &self.keeper {
            keeper.check_invariants(&self.core);
        }
        if self.core.requests.len() + singles == 0 {
            assert!(self.core.ranges.is_idle(), "without requests no range is held");
            assert_eq!(in_flight as usize, reads, "without requests only reads of one member are in flight");
        }
        for state in self.core.requests.iter() {
            assert!(state.admitted <= state.request.range.count, "no more is taken than was asked for");
        }
    }
}
