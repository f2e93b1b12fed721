//! A volume: an array as the layers above see it. Today the array is its only layer.

use crate::array::copies::Copies;
use crate::array::core::{Core, IoRecord, Owner, RequestKey, RequestState};
use crate::array::parity::Parity;
use crate::array::slot_exists;
use crate::geometry::{Geometry, GeometryError, GeometrySpec, Shape};
use crate::io::{Action, ActionQueue, AdminCommand, AdminReply, Input, IoResult, Op, Request};
use crate::policy::Policy;
use crate::units::{Instant, Slot};

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
    /// Members take discards and write-zeroes, and read as zeroes afterwards.
    pub discard: bool,
}

impl VolumeConfig {
    /// A volume with md's defaults and all members present, that keeps nothing about itself on its members.
    pub const fn new(geometry: GeometrySpec, policy: Policy) -> Self {
        Self { geometry, policy, stripe_cache_size: STRIPE_CACHE_DEFAULT, failed: Vec::new(), discard: false }
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
            Machine::Parity(Box::new(Parity::new(shape.clone(), geometry.chunk_sectors(), entries)))
        } else {
            Machine::Copies(Copies::new(geometry.raid_disks()))
        };
        let mut core = Core::new(geometry, config.policy.clone(), config.discard);
        for slot in &config.failed {
            if !slot_exists(&core.geometry, *slot) {
                return Err(VolumeError::NoSuchSlot(*slot));
            }
            core.failed.insert(*slot);
        }
        if !crate::array::survives(&core.geometry, core.failed) {
            return Err(VolumeError::TooManyFailed(core.failed.len()));
        }
        Ok(Self { core, machine })
    }

    /// Takes an input; what is to be done is added to `out`.
    pub fn handle(&mut self, now: Instant, input: Input, out: &mut ActionQueue) {
        match input {
            Input::Request(request) => self.request(now, request, out),
            Input::IoDone { tag, result } => {
                if let Some(record) = self.core.io_ended(tag) {
                    self.io_ended(record, result, out);
                }
            }
            Input::Computed { tag } => {
                if let Machine::Parity(parity) = &mut self.machine {
                    parity.computed(&mut self.core, out, tag);
                }
            }
            Input::Timer => {
                if let Machine::Parity(parity) = &mut self.machine {
                    parity.timer(now);
                }
            }
            Input::Admin { id, command } => {
                let reply = self.admin(command, out);
                out.push(Action::Replied { id, reply });
            }
        }
        self.settle(now, out);
    }

    /// Lets go on what was waiting until nothing more can.
    fn settle(&mut self, now: Instant, out: &mut ActionQueue) {
        loop {
            while let Some(key) = self.core.granted.pop_front() {
                self.admit(now, key, out);
            }
            if let Machine::Parity(parity) = &mut self.machine {
                parity.settle(&mut self.core, out);
            }
            if self.core.granted.is_empty() {
                return;
            }
        }
    }

    fn request(&mut self, now: Instant, request: Request, out: &mut ActionQueue) {
        if let Some(error) = self.core.refuses(&request) {
            return out.push(Action::Complete { id: request.id, result: Err(error) });
        }
        let through_cache = request.op == Op::Read
            && matches!(self.machine, Machine::Parity(_))
            && !self.core.policy.aligned_reads_bypass_cache;
        let locked = request.op.is_write() || through_cache;
        let key = self.core.requests.insert(RequestState {
            request,
            buffer_offset: 0,
            parent: None,
            parts: 1,
            result: Ok(()),
            locked,
            admitted: 0,
            through_cache,
        });
        if !locked || self.core.ranges.lock(request.range, key) {
            self.admit(now, key, out);
        }
    }

    fn admit(&mut self, now: Instant, key: RequestKey, out: &mut ActionQueue) {
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

    fn io_ended(&mut self, record: IoRecord, result: IoResult, out: &mut ActionQueue) {
        if let Owner::Flush { .. } = record.owner {
            return self.core.flushed(out, record, result);
        }
        match &mut self.machine {
            Machine::Copies(copies) => copies.ended(&mut self.core, out, record, result),
            Machine::Parity(parity) => parity.ended(&mut self.core, out, record, result),
        }
    }

    fn admin(&mut self, command: AdminCommand, out: &mut ActionQueue) -> AdminReply {
        match command {
            AdminCommand::Fail(slot) if !slot_exists(&self.core.geometry, slot) => AdminReply::NoSuchSlot,
            AdminCommand::Fail(slot) => {
                if self.core.fail(out, slot) {
                    AdminReply::Done
                } else {
                    AdminReply::AlreadyFailed
                }
            }
        }
    }

    /// When [`Input::Timer`] is due, if ever.
    pub fn next_deadline(&self) -> Option<Instant> {
        match &self.machine {
            Machine::Copies(_) => None,
            Machine::Parity(parity) => parity.next_deadline(),
        }
    }

    /// The array's geometry.
    pub const fn geometry(&self) -> &Geometry {
        &self.core.geometry
    }

    /// Entries of the stripe cache; none for levels without parity.
    pub fn stripe_cache_entries(&self) -> u32 {
        match &self.machine {
            Machine::Copies(_) => 0,
            Machine::Parity(parity) => parity.cache_entries(),
        }
    }

    /// Whether no request is in flight.
    pub fn is_idle(&self) -> bool {
        let machine_idle = match &self.machine {
            Machine::Copies(_) => true,
            Machine::Parity(parity) => parity.is_idle(),
        };
        machine_idle && self.core.requests.len() == 0 && self.core.ios.len() == 0
    }

    /// Panics if the volume contradicts itself. Costs time in proportion to what is in flight and the size of
    /// the stripe cache.
    pub fn check_invariants(&self) {
        if let Machine::Parity(parity) = &self.machine {
            parity.check_invariants();
        }
        let in_flight: u32 = self.core.in_flight.iter().sum();
        assert_eq!(in_flight as usize, self.core.ios.len(), "I/Os in flight are counted by member");
        if self.core.requests.len() == 0 {
            assert!(self.core.ranges.is_idle(), "without requests no range is held");
            assert!(self.core.ios.len() == 0, "without requests no I/O is in flight");
        }
        for state in self.core.requests.iter() {
            assert!(state.admitted <= state.request.range.count, "no more is taken than was asked for");
        }
    }
}
