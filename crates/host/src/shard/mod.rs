//! One shard: an engine with its queues, its part of the stripe cache and its ring.
//!
//! *Ordering.* Completions are handled before new requests, so that what has begun ends soon and its
//! buffers are used again while they are in the caches. Memory members complete at once; their completions
//! are queued and never handled from within the action they answer.

mod actions;
mod bytes;
mod errors;
mod fused;
#[cfg(test)]
mod fused_tests;
mod lending;
#[cfg(test)]
mod lending_tests;
mod memory;

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;

use stripewise_engine::array::members::Standing;
use stripewise_engine::array::sync::SyncStatus;
use stripewise_engine::io::{
    ActionQueue, AdminCommand, AdminReply, Flags, Input, IoError, IoResult, Op, Request, SyncAction,
};
use stripewise_engine::metadata::MemberMetadata;
use stripewise_engine::stack::Stack;
use stripewise_engine::units::{Instant, MemberIndex, Nanos, SECTOR_BYTES, SectorRange, Slot};
use stripewise_engine::volume::{Volume, VolumeConfig};

pub(crate) use bytes::Bytes;
use bytes::{Buffers, Entry, Origin};
use errors::MemberErrors;
use fused::Fused;

use crate::buffers::{Arena, Mapping, Pages, Zeroes};
use crate::compute::Computer;
use crate::delayed::DelayedReads;
use crate::error::HostError;
use crate::layers::{Layers, RaisedLayers};
use crate::loans::Loans;
use crate::mailbox::{Mailbox, Message, PartBuffer};
use crate::members::{Caches, Member};
use crate::report::{MemberCounts, TimedEvent};
use crate::ring::Ring;
use crate::route::Router;

/// Longest sleep: the stop flag is looked at this often.
const SLEEP_MAX: Nanos = Nanos::from_millis(100);

/// Inputs that a shard handles before it hears anybody.
const TURN: i64 = 4096;
/// The same where other shards may wait for its answers, which are there at once: all members are in memory.
const TURN_OF_SEVERAL: i64 = 128;
/// Sectors of members, copied or asked for, that take about the time of an input.
const TURN_SECTORS: u64 = 4;

/// What the shards of an array share while they are driven.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) zeroes: &'a Zeroes,
    pub(crate) mailboxes: &'a [Mailbox],
    pub(crate) clock: crate::clock::Clock,
}

/// A whole request or a part that ended: the issuer's handle and the result.
pub(crate) type Ended = (u32, IoResult);

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Shard {
    index: u32,
    // Declared before the buffers: a ring waits for its I/O when it is dropped, while the buffers still exist.
    ring: Option<Ring>,
    stack: Stack,
    /// Queues of actions that are not being carried out.
    queues: Vec<ActionQueue>,
    /// How many are.
    depth: u32,
    /// What is left of this turn, in inputs.
    turn: i64,
    completions: VecDeque<Input>,
    requests: VecDeque<Request>,
    delayed: DelayedReads,
    caches: Caches,
    fused: Fused,
    buffers: Buffers,
    computer: Computer,
    /// By member index; dropped after the ring, whose I/O goes to them.
    members: Vec<Arc<Member>>,
    /// Whether all of them are in memory.
    is_in_memory: bool,
    /// Members let go of while the ring still has I/O of theirs.
    closing: Vec<MemberIndex>,
    outboxes: Vec<Vec<Message>>,
    inbox: Vec<Message>,
    failed: Vec<bool>,
    /// The array's own work waits for the next run.
    is_paused: bool,
    reply: Option<AdminReply>,
    ended: VecDeque<Ended>,
    /// Of requests that ended, until who asked has looked.
    pub(crate) loans: Loans,
    pub(crate) counts: Vec<MemberCounts>,
    errors: MemberErrors,
    pub(crate) events: Vec<TimedEvent>,
}

impl Shard {
    pub(crate) fn new(
        index: u32,
        shards: u32,
        config: &VolumeConfig,
        members: &[Arc<Member>],
    ) -> Result<Self, HostError> {
        let volume = Volume::new(config)?;
        let slots = config.geometry.member_sectors.len();
        let entries = volume.stripe_cache_entries();
        let arena = if entries > 0 { Some(Arena::new(slots as u16, entries)?) } else { None };
        let mut failed = vec![false; slots];
        for slot in &config.failed {
            failed[slot.index()] = true;
        }
        let mut shard = Self {
            index,
            ring: None,
            stack: Stack::of(volume),
            queues: Vec::new(),
            turn: 0,
            depth: 0,
            completions: VecDeque::new(),
            requests: VecDeque::new(),
            delayed: DelayedReads::default(),
            caches: Caches::new(shards),
            fused: Fused::default(),
            buffers: Buffers { arena, ..Buffers::default() },
            computer: Computer::new(),
            members: members.to_vec(),
            is_in_memory: false,
            closing: Vec::new(),
            outboxes: vec![Vec::new(); shards as usize],
            inbox: Vec::new(),
            failed,
            is_paused: false,
            reply: None,
            ended: VecDeque::new(),
            loans: Loans::default(),
            counts: vec![MemberCounts::default(); members.len()],
            errors: MemberErrors::default(),
            events: Vec::new(),
        };
        shard.look_at_members();
        Ok(shard)
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn volume(&self) -> &Volume {
        self.stack.volume()
    }

    /// The array with the layers above it.
    pub(crate) fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Makes layers for above the array, with the memory they need.
    pub(crate) fn layers(&self, layers: &Layers) -> Result<RaisedLayers, HostError> {
        let crypt = layers.crypt.as_ref().map(crate::layers::CryptLayer::config);
        let engine = self.stack.layers(crypt.as_ref(), layers.cache.as_ref())?;
        let frames = engine.cache_frames().map(|frames| Pages::new(frames, "the page cache"));
        let crypt_pages = crypt.map(|c| Pages::new(c.pages(), "encrypted writes"));
        Ok(RaisedLayers {
            engine,
            frames: frames.transpose()?,
            crypt_pages: crypt_pages.transpose()?,
            cipher: layers.crypt.as_ref().map(|c| Arc::clone(&c.cipher)),
        })
    }

    /// Puts layers above the array, which has none. No request is in flight.
    pub(crate) fn raise(&mut self, layers: RaisedLayers) {
        let RaisedLayers { engine, frames, crypt_pages, cipher } = layers;
        self.stack.put(engine);
        (self.buffers.frames, self.buffers.crypt_pages) = (frames, crypt_pages);
        self.computer.cipher = cipher;
    }

    /// A client comes whose requests bear this stream number.
    pub(crate) fn open_stream(&mut self, number: u16) {
        if let Some(cache) = self.stack.cache_mut() {
            cache.open_stream(number);
        }
    }

    /// Makes the ring ready for the calling thread, if a member needs one. `pool` is the memory of the
    /// requests to come, if it is known; a sleep ends when `wake_fd` becomes readable, which stands for the
    /// mailbox where it is given.
    pub(crate) fn prepare(
        &mut self,
        context: &Context<'_>,
        pool: Option<&Mapping>,
        wake_fd: Option<RawFd>,
    ) -> Result<(), HostError> {
        while self.is_prepared() && !self.comes_to_rest(context.clock.now(), context) {
            // The old ring's answers are for the engine.
            while self.step(context.clock.now(), context) {}
            self.sleep(None, context);
        }
        self.ring = None;
        if self.members.iter().all(|m| m.file().is_none()) {
            self.resume(context.clock.now(), context);
            return Ok(());
        }
        let own = || (context.mailboxes.len() > 1).then(|| context.mailboxes[self.index as usize].wake_fd());
        let wake_fd = wake_fd.or_else(own);
        let mappings: Vec<_> = pool
            .into_iter()
            .chain(self.buffers.arena.as_ref().map(Arena::mapping))
            .chain(self.buffers.crypt_pages.as_ref().map(Pages::mapping))
            .collect();
        self.ring = Some(Ring::new(
            self.index as usize,
            &self.members,
            &mappings,
            context.zeroes.address(),
            wake_fd,
        )?);
        self.resume(context.clock.now(), context);
        Ok(())
    }

    /// Drops what was to be told or handled about a run that another shard gave up.
    pub(crate) fn forget_messages(&mut self) {
        self.outboxes.iter_mut().for_each(Vec::clear);
        self.ended.clear();
    }

    /// Waits for the I/O that is under way; its answers are handled later. Then another thread may have the shard: a ring
    /// answers only the one it was made for.
    pub(crate) fn await_ring(&mut self) {
        while self.ring.as_ref().is_some_and(Ring::is_busy) {
            self.ring.as_mut().into_iter().for_each(|ring| ring.wait(None));
            self.reap();
        }
    }

    /// Waits for the I/O that is under way, and forgets the rest: the buffers it names are about to go.
    pub(crate) fn give_up(&mut self) {
        self.ring = None;
        self.delayed = DelayedReads::default();
        self.completions.clear();
        self.requests.clear();
        self.inbox.clear();
        self.loans = Loans::default();
        self.forget_messages();
    }

    /// Gives up the ring: its pinned buffers are about to go.
    pub(crate) fn release(&mut self) {
        self.finish_delayed();
        self.loans = Loans::default();
        self.ring = None;
    }

    /// Whether the ring, if one is needed, was made for the calling thread.
    pub(crate) fn is_prepared(&self) -> bool {
        self.ring.as_ref().is_some_and(Ring::is_own)
    }

    /// Whether requests may ask for all of these sectors, whatever shards they are of.
    pub(crate) fn takes(&self, range: SectorRange) -> bool {
        let is_inside = range.start.checked_add(range.count).is_some_and(|end| end <= self.stack.sectors());
        // A page cache takes parts of encrypted sectors.
        let crypt = self.stack.crypt().filter(|_| self.stack.cache().is_none());
        is_inside && crypt.is_none_or(|crypt| range.has_whole(crypt.config().unit_sectors))
    }

    /// Takes one of this shard's own requests and deals its parts to the shards they belong to; answers how
    /// many there are. Each is answered in `ended`. A request that is refused is one part, so that none of it is carried out.
    pub(crate) fn start_whole(&mut self, router: &Router, request: Request, buffer: PartBuffer) -> u32 {
        let is_refused = !self.takes(request.range) || !fits(request.op, request.range, buffer);
        let mut parts = 0;
        let mut rest = request.range;
        loop {
            // A flush concerns members, not sectors: the shard that has it tells them all.
            let own =
                !matches!(request.op, Op::Read | Op::Write | Op::Discard | Op::WriteZeroes) || is_refused;
            let (shard, range) = if own { (self.index, rest) } else { router.first_part(rest) };
            let skip = (range.start - request.range.start).saturating_mul(SECTOR_BYTES);
            let buffer = PartBuffer {
                base: buffer.base.wrapping_add(skip as usize),
                bytes: buffer.bytes.saturating_sub(skip),
                ..buffer
            };
            self.start(shard, Request { range, ..request }, buffer);
            parts += 1;
            if range.count >= rest.count {
                return parts;
            }
            rest = SectorRange::new(range.end(), rest.count - range.count);
        }
    }

    /// Takes a part of one of this shard's own requests, for any shard; answered in `ended`.
    fn start(&mut self, shard: u32, request: Request, buffer: PartBuffer) {
        let whole = request.id.0;
        if shard == self.index {
            self.accept(request.op, request.range, request.flags, buffer, Origin::Own { whole });
        } else {
            self.outboxes[shard as usize].push(Message::Part {
                op: request.op,
                range: request.range,
                flags: request.flags,
                buffer,
                from: self.index,
                whole,
            });
        }
    }

    fn accept(&mut self, op: Op, range: SectorRange, flags: Flags, buffer: PartBuffer, origin: Origin) {
        if fits(op, range, buffer) {
            let id = self.buffers.entries.insert(Entry { buffer, origin, is_spoilt: false });
            self.requests.push_back(Request { id, op, range, flags });
        } else {
            self.answer(origin, Err(IoError::Range));
        }
    }

    fn answer(&mut self, origin: Origin, result: IoResult) {
        match origin {
            Origin::Own { whole } => self.ended.push_back((whole, result)),
            Origin::Other { shard, whole } => {
                self.outboxes[shard as usize].push(Message::PartDone { whole, result });
            }
        }
    }

    /// How many of this shard's own requests, or their parts, ended and are not told yet.
    pub(crate) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// The first of them, to be told.
    pub(crate) fn take_ended(&mut self) -> Option<Ended> {
        self.caches.publish();
        self.ended.pop_front()
    }

    /// Fails a member by command, here and in the other shards.
    pub(crate) fn fail(&mut self, slot: Slot, now: Instant, context: &Context<'_>) -> AdminReply {
        self.admin(AdminCommand::Fail(slot), now, context)
    }

    /// Carries out an administrator's command that is answered at once.
    pub(crate) fn admin(&mut self, command: AdminCommand, now: Instant, context: &Context<'_>) -> AdminReply {
        self.heed_command(&command);
        self.handle(Input::Admin { id: 0, command }, now, context);
        self.reply.take().unwrap_or(AdminReply::Done)
    }

    /// Names the superblock of a member that the next command adds.
    pub(crate) fn introduce(&mut self, member: MemberIndex, metadata: MemberMetadata) {
        self.stack.introduce(member, metadata);
    }

    /// The members, by index.
    pub(crate) fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// Gives a member a place in the table.
    pub(crate) fn admit(&mut self, member: Member) -> MemberIndex {
        let is_free = |index: usize| {
            let place = MemberIndex(index as u16);
            matches!(*self.members[index], Member::Missing)
                && self.volume().standing(place) == Standing::Absent
                && self.completions.is_empty()
        };
        let index = (0..self.members.len()).find(|index| is_free(*index)).unwrap_or(self.members.len());
        if index == self.members.len() {
            self.members.push(Arc::new(Member::Missing));
            self.counts.push(MemberCounts::default());
        }
        self.members[index] = Arc::new(member);
        self.look_at_members();
        let place = MemberIndex(index as u16);
        self.errors.forget(place);
        if let Some(ring) = &mut self.ring {
            ring.admit(place);
        }
        place
    }

    /// Closes a member that is none of the array's any more, once its last I/O is answered.
    pub(crate) fn let_go(&mut self, member: MemberIndex) {
        self.finish_delayed();
        self.take_back(member.index());
        self.closing.push(member);
        self.close_members();
    }

    fn close_members(&mut self) {
        let Self { ring, members, closing, .. } = self;
        closing.retain(|member| {
            let is_used = ring.as_ref().is_some_and(|ring| ring.has_in_flight(*member));
            if !is_used {
                if let Some(ring) = ring {
                    ring.forget(*member);
                }
                members[member.index()] = Arc::new(Member::Missing);
            }
            is_used
        });
    }

    /// Tells the engine to leave the array clean; [`Self::take_reply`] has the answer.
    pub(crate) fn stop(&mut self, now: Instant, context: &Context<'_>) {
        self.handle(Input::Admin { id: 0, command: AdminCommand::Stop }, now, context);
    }

    /// The answer to an administrator's command, once.
    pub(crate) fn take_reply(&mut self) -> Option<AdminReply> {
        self.reply.take()
    }

    /// Whether it takes no more writes, for errors or members lost.
    pub(crate) fn is_array_failed(&self) -> bool {
        self.volume().has_failed() || self.volume().has_journal_failed()
    }

    /// Why the array cannot be left as one that is whole, if it cannot.
    pub(crate) fn trouble(&self) -> Option<IoError> {
        let journal = self.volume().has_journal_failed().then_some(IoError::ReadOnly);
        if self.volume().has_failed() { Some(IoError::Lost) } else { journal }
    }

    /// Takes the messages of the other shards.
    pub(crate) fn take_messages(&mut self, now: Instant, context: &Context<'_>) {
        if context.mailboxes.len() == 1 {
            return;
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        context.mailboxes[self.index as usize].take(&mut inbox);
        for message in inbox.drain(..) {
            match message {
                Message::Part { op, range, flags, buffer, from, whole } => {
                    self.accept(op, range, flags, buffer, Origin::Other { shard: from, whole });
                }
                Message::PartDone { whole, result } => self.ended.push_back((whole, result)),
                Message::Failed(slot, cause) => {
                    let member = self.volume().member_of(slot);
                    if !std::mem::replace(&mut self.failed[slot.index()], true) {
                        self.fail(slot, now, context);
                    }
                    if let (Some(member), Some(cause)) = (member, cause) {
                        self.errors.is_out(member, cause);
                    }
                }
            }
        }
        self.inbox = inbox;
    }

    /// Delivers what this shard has to tell the others.
    pub(crate) fn send_messages(&mut self, context: &Context<'_>) {
        self.caches.publish();
        for (outbox, mailbox) in self.outboxes.iter_mut().zip(context.mailboxes) {
            if !outbox.is_empty() {
                mailbox.deliver(outbox);
            }
        }
    }

    /// Begins a turn: when it is over, those who ask, and the other shards, are to be heard again.
    pub(crate) fn begin_turn(&mut self, context: &Context<'_>) {
        self.turn = if context.mailboxes.len() > 1 && self.ring.is_none() { TURN_OF_SEVERAL } else { TURN };
    }

    /// Whether the turn is over.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.turn <= 0
    }

    /// Whether nothing is under way. The array's own work, which may take hours, is paused for that, until
    /// [`Self::resume`].
    pub(crate) fn comes_to_rest(&mut self, now: Instant, context: &Context<'_>) -> bool {
        let at_work = |status: SyncStatus| !matches!(status.action, SyncAction::Idle | SyncAction::Frozen);
        if !self.is_paused && self.volume().sync_status().is_some_and(at_work) {
            self.is_paused = true;
            self.admin(AdminCommand::Sync(SyncAction::Frozen), now, context);
        }
        self.is_idle()
    }

    /// Lets the array's own work go on.
    pub(crate) fn resume(&mut self, now: Instant, context: &Context<'_>) {
        if std::mem::take(&mut self.is_paused) {
            self.admin(AdminCommand::Sync(SyncAction::Idle), now, context);
        }
    }

    /// Whether nothing is under way in the engine or with a member.
    pub(crate) fn is_idle(&self) -> bool {
        self.completions.is_empty()
            && self.requests.is_empty()
            && self.delayed.is_empty()
            && self.ended.is_empty()
            && self.stack.is_idle()
            && self.ring.as_ref().is_none_or(|r| !r.is_busy())
    }

    /// Gives the kernel what is queued and takes completions, without sleeping.
    pub(crate) fn poll(&mut self) {
        if let Some(ring) = self.ring.as_mut().filter(|r| r.is_busy()) {
            ring.submit();
            self.reap();
        }
    }

    /// How long the shard may sleep.
    pub(crate) fn sleep_time(&self, until: Option<Instant>, context: &Context<'_>) -> Nanos {
        let now = context.clock.now();
        let deadline = [until, self.stack.next_deadline()].into_iter().flatten().min();
        deadline.map_or(SLEEP_MAX, |d| Nanos(d.since(now).0.min(SLEEP_MAX.0)))
    }

    /// Whether sleeping is the ring's part.
    pub(crate) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Members out of use, as this shard knows.
    pub(crate) fn failed_slots(&self) -> Vec<Slot> {
        (0..self.failed.len() as u16).map(Slot).filter(|s| self.volume().member_of(*s).is_none()).collect()
    }

    /// Gives the kernel what is queued and sleeps until something happens: a completion, a message, the
    /// engine's deadline, or `until`.
    pub(crate) fn sleep(&mut self, until: Option<Instant>, context: &Context<'_>) {
        let timeout = self.sleep_time(until, context);
        match &mut self.ring {
            Some(ring) => {
                ring.wait(Some(timeout));
                self.reap();
            }
            None => context.mailboxes[self.index as usize].sleep(timeout),
        }
    }

    fn reap(&mut self) {
        let Self { ring: Some(ring), members, completions, counts, errors, .. } = self else { return };
        ring.reap(members, |member, tag, result| {
            if let Err(error) = result {
                errors.came(tag, member, error);
            }
            let result = result.map_err(|error| error.error);
            counts[member.index()].end(result);
            completions.push_back(Input::IoDone { tag, result });
        });
        if !self.closing.is_empty() {
            self.close_members();
        }
    }
}

/// Whether a buffer is long enough for what is read or written.
fn fits(op: Op, range: SectorRange, buffer: PartBuffer) -> bool {
    let moves_bytes = matches!(op, Op::Read | Op::Write);
    !moves_bytes || range.count.checked_mul(SECTOR_BYTES).is_some_and(|bytes| bytes <= buffer.bytes)
}
