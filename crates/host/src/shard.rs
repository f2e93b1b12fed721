//! One shard: an engine with its queues, its part of the stripe cache and its ring.
//!
//! *Ordering.* Completions are handled before new requests, so that what has begun ends soon and its
//! buffers are used again while they are in the caches. Memory members complete at once; their completions
//! are queued and never handled from within the action they answer.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;

use stripewise_engine::array::members::Standing;
use stripewise_engine::array::sync::SyncStatus;
use stripewise_engine::cache::Cache;
use stripewise_engine::io::{
    Action, ActionQueue, AdminCommand, AdminReply, Area, ArrayEvent, Buf, Compute, Flags, Input, IoError,
    IoResult, Kernel, MemberIo, Op, Operand, Request, RequestId, Seg, SyncAction, Verdict,
};
use stripewise_engine::metadata::MemberMetadata;
use stripewise_engine::stack::Stack;
use stripewise_engine::units::{Instant, MemberIndex, Nanos, SECTOR_BYTES, SectorRange, Slot};
use stripewise_engine::volume::{Volume, VolumeConfig};

use crate::buffers::{Arena, Mapping, Pages, ZEROES_BYTES, Zeroes};
use crate::compute::Computer;
use crate::delayed::{DelayedRead, DelayedReads, ask_for};
use crate::error::HostError;
use crate::fused::Fused;
use crate::layers::Layers;
use crate::mailbox::{Mailbox, Message, PartBuffer};
use crate::members::Member;
use crate::report::{MemberCounts, TimedEvent};
use crate::ring::Ring;
use crate::route::Router;

/// Longest sleep: the stop flag is looked at this often.
const SLEEP_MAX: Nanos = Nanos::from_millis(100);

/// Inputs handled in the middle of a queue of actions: the answers of a stripe's members, not those of a recovery that
/// goes on and on.
const AT_ONCE_MAX: usize = 64;

/// How many requests ahead the page cache's places are fetched: a miss takes about as long as two hits.
const LOOK_AHEAD: usize = 6;

/// Who is told when a request of the engine ends.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Own { whole: u32 },
    Other { shard: u32, whole: u32 },
}

/// A request of the engine in flight, by its id.
#[derive(Clone, Copy, Debug)]
struct Entry {
    op: Op,
    buffer: PartBuffer,
    origin: Origin,
}

/// The requests of an engine in flight, with ids as small as possible.
#[derive(Debug, Default)]
struct Entries {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl Entries {
    fn insert(&mut self, entry: Entry) -> RequestId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.entries[id as usize] = Some(entry);
        RequestId(id)
    }

    fn get(&self, id: RequestId) -> Entry {
        self.entries[id.0 as usize].expect("the engine names requests in flight")
    }

    fn remove(&mut self, id: RequestId) -> Entry {
        let entry = self.entries[id.0 as usize].take().expect("the engine answers a request once");
        self.free.push(id.0);
        entry
    }
}

/// Finds the bytes the engine names.
#[derive(Debug)]
pub(crate) struct Bytes<'a> {
    arena: Option<&'a Arena>,
    frames: Option<&'a Pages>,
    crypt_pages: Option<&'a Pages>,
    entries: &'a Entries,
    zeroes: &'a Zeroes,
    metadata: &'a [u8],
}

impl Bytes<'_> {
    /// The longest run that is contiguous whatever its name.
    pub(crate) const RUN_BYTES_MAX: u64 = ZEROES_BYTES as u64;

    /// The address of `bytes` from `skip` on. Zeroes must not be asked for in runs longer than
    /// [`RUN_BYTES_MAX`](Self::RUN_BYTES_MAX), nor written to.
    ///
    /// # Panics
    /// If the run is not within the named buffer.
    pub(crate) fn address(&self, buf: Buf, skip: u32, bytes: u32) -> *mut u8 {
        match buf {
            Buf::Request { id, offset } => {
                let PartBuffer { base, bytes: length } = self.entries.get(id).buffer;
                let start = offset + u64::from(skip);
                assert!(start + u64::from(bytes) <= length, "the engine keeps to the request's buffer");
                base.wrapping_add(start as usize)
            }
            Buf::Page { entry, slot, offset } => {
                let arena = self.arena.expect("only an engine with a stripe cache names its pages");
                arena.address(entry, slot, offset + skip, bytes)
            }
            Buf::CachePage { frame, offset } => {
                let frames = self.frames.expect("only a stack with a page cache names its frames");
                frames.address(frame, offset + skip, bytes)
            }
            Buf::CryptPage { page, offset } => {
                let pages = self.crypt_pages.expect("only a stack with a cipher names its pages");
                pages.address(page, offset + skip, bytes)
            }
            Buf::Metadata { offset } => {
                let start = (offset + skip) as usize;
                self.metadata[start..start + bytes as usize].as_ptr().cast_mut()
            }
            Buf::Zero => {
                assert!(bytes as usize <= ZEROES_BYTES, "longer runs of zeroes are cut");
                self.zeroes.address()
            }
        }
    }

    /// How many of `bytes` from `skip` on follow each other in memory.
    pub(crate) fn contiguous(&self, buf: Buf, skip: u32, bytes: u32) -> u32 {
        match buf {
            Buf::Page { entry, slot, offset } => {
                self.arena.map_or(bytes, |arena| arena.contiguous(entry, slot, offset + skip, bytes))
            }
            Buf::Zero => bytes.min(ZEROES_BYTES as u32),
            _ => bytes,
        }
    }

    /// The contiguous runs of a list of segments.
    pub(crate) fn runs<'b>(&'b self, segs: &'b [Seg]) -> impl Iterator<Item = (*mut u8, usize)> + 'b {
        segs.iter().flat_map(move |seg| {
            let mut skip = 0;
            std::iter::from_fn(move || {
                let bytes = self.contiguous(seg.buf, skip, seg.bytes - skip);
                let run = (bytes > 0).then(|| (self.address(seg.buf, skip, bytes), bytes as usize));
                skip += bytes;
                run
            })
        })
    }
}

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
    // Declared before the arena: a ring waits for its I/O when it is dropped, while the buffers still exist.
    ring: Option<Ring>,
    stack: Stack,
    /// Queues of actions that are not being carried out.
    queues: Vec<ActionQueue>,
    /// How many are.
    depth: u32,
    completions: VecDeque<Input>,
    requests: VecDeque<Request>,
    delayed: DelayedReads,
    fused: Fused,
    entries: Entries,
    arena: Option<Arena>,
    /// Of the page cache.
    frames: Option<Pages>,
    /// What writes are encrypted into.
    crypt_pages: Option<Pages>,
    computer: Computer,
    /// By member index; dropped after the ring, whose I/O goes to them.
    members: Vec<Arc<Member>>,
    /// Members let go of while the ring still has I/O of theirs.
    closing: Vec<MemberIndex>,
    outboxes: Vec<Vec<Message>>,
    inbox: Vec<Message>,
    failed: Vec<bool>,
    is_array_failed: bool,
    /// The array's own work waits for the next run.
    is_paused: bool,
    reply: Option<AdminReply>,
    pub(crate) ended: Vec<Ended>,
    pub(crate) counts: Vec<MemberCounts>,
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
        Ok(Self {
            index,
            ring: None,
            stack: Stack::of(volume),
            queues: Vec::new(),
            depth: 0,
            completions: VecDeque::new(),
            requests: VecDeque::new(),
            delayed: DelayedReads::default(),
            fused: Fused::default(),
            entries: Entries::default(),
            arena,
            frames: None,
            crypt_pages: None,
            computer: Computer::new(),
            members: members.to_vec(),
            closing: Vec::new(),
            outboxes: vec![Vec::new(); shards as usize],
            inbox: Vec::new(),
            failed,
            is_array_failed: false,
            is_paused: false,
            reply: None,
            ended: Vec::new(),
            counts: vec![MemberCounts::default(); members.len()],
            events: Vec::new(),
        })
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

    /// Puts layers above the array. No request is in flight.
    pub(crate) fn raise(&mut self, layers: &Layers) -> Result<(), HostError> {
        let crypt = layers.crypt.as_ref().map(crate::layers::CryptLayer::config);
        let crypt_pages = crypt.map(|c| Pages::new(c.pages(), "encrypted writes")).transpose()?;
        self.stack.raise(crypt.as_ref(), layers.cache.as_ref())?;
        let frames = self.stack.cache().map(|c| Pages::new(c.frames_max(), "the page cache"));
        self.frames = frames.transpose()?;
        self.crypt_pages = crypt_pages;
        self.computer.cipher = layers.crypt.as_ref().map(|c| Arc::clone(&c.cipher));
        Ok(())
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
            .chain(self.arena.as_ref().map(Arena::mapping))
            .chain(self.crypt_pages.as_ref().map(Pages::mapping))
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

    /// Gives up the ring: its pinned buffers are about to go.
    pub(crate) fn release(&mut self) {
        self.finish_delayed();
        self.ring = None;
    }

    /// Carries out the reads that were put off, before what they read or read into goes.
    fn finish_delayed(&mut self) {
        // SAFETY: until they are answered both ends belong to them.
        while let Some(answer) = unsafe { self.delayed.run_next() } {
            self.completions.push_back(answer);
        }
    }

    /// Whether the ring, if one is needed, was made for the calling thread.
    pub(crate) fn is_prepared(&self) -> bool {
        self.ring.as_ref().is_some_and(Ring::is_own)
    }

    /// Takes one of this shard's own requests and deals its parts to the shards they belong to; answers how
    /// many there are. Each is answered in `ended`.
    pub(crate) fn start_whole(&mut self, router: &Router, request: Request, buffer: PartBuffer) -> u32 {
        let mut parts = 0;
        let mut rest = request.range;
        loop {
            // A flush concerns members, not sectors: the shard that has it tells them all.
            let own = !matches!(request.op, Op::Read | Op::Write | Op::Discard | Op::WriteZeroes);
            let (shard, range) = if own { (self.index, rest) } else { router.first_part(rest) };
            let skip = (range.start - request.range.start).saturating_mul(SECTOR_BYTES);
            let buffer = PartBuffer {
                base: buffer.base.wrapping_add(skip as usize),
                bytes: buffer.bytes.saturating_sub(skip),
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
        let moves_bytes = matches!(op, Op::Read | Op::Write);
        let fits = !moves_bytes || range.count.checked_mul(SECTOR_BYTES).is_some_and(|b| b <= buffer.bytes);
        if fits {
            let id = self.entries.insert(Entry { op, buffer, origin });
            self.requests.push_back(Request { id, op, range, flags });
        } else {
            self.answer(origin, Err(IoError::Range));
        }
    }

    fn answer(&mut self, origin: Origin, result: IoResult) {
        match origin {
            Origin::Own { whole } => self.ended.push((whole, result)),
            Origin::Other { shard, whole } => {
                self.outboxes[shard as usize].push(Message::PartDone { whole, result });
            }
        }
    }

    /// Fails a member by command, here and in the other shards.
    pub(crate) fn fail(&mut self, slot: Slot, now: Instant, context: &Context<'_>) -> AdminReply {
        self.admin(AdminCommand::Fail(slot), now, context)
    }

    /// Carries out an administrator's command that is answered at once.
    pub(crate) fn admin(&mut self, command: AdminCommand, now: Instant, context: &Context<'_>) -> AdminReply {
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
        let place = MemberIndex(index as u16);
        if let Some(ring) = &mut self.ring {
            ring.admit(place);
        }
        place
    }

    /// Closes a member that is none of the array's any more, once its last I/O is answered.
    pub(crate) fn let_go(&mut self, member: MemberIndex) {
        self.finish_delayed();
        if let (Some(arena), Member::Memory(memory)) = (&mut self.arena, &*self.members[member.index()]) {
            // SAFETY: the member is there still.
            unsafe { arena.reclaim_from(memory.addresses()) };
        }
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

    /// Whether more is lost than the level survives.
    pub(crate) fn is_array_failed(&self) -> bool {
        self.is_array_failed
    }

    /// Handles one input, if there is one.
    pub(crate) fn step(&mut self, now: Instant, context: &Context<'_>) -> bool {
        let input = if let Some(completion) = self.completions.pop_front() {
            completion
        } else if let Some(mut request) = self.requests.pop_front() {
            request.flags.more |= !self.requests.is_empty();
            self.look_ahead();
            Input::Request(request)
        // SAFETY: what a read is asked for belongs to it until it is answered, which is now.
        } else if let Some(answer) = unsafe { self.delayed.run_next() } {
            answer
        } else if self.stack.next_deadline().is_some_and(|deadline| deadline <= now) {
            Input::Timer
        } else {
            return false;
        };
        self.handle(input, now, context);
        true
    }

    /// Fetches what the page cache will look at for requests that come soon.
    fn look_ahead(&self) {
        let Some(cache) = self.stack.cache() else { return };
        let place = |ahead: usize, look: fn(&Cache, u64) -> Option<*const u8>| {
            self.requests.get(ahead).and_then(|request| look(cache, request.range.start))
        };
        let places = [place(LOOK_AHEAD, Cache::first_look), place(LOOK_AHEAD / 2, Cache::second_look)];
        places.into_iter().flatten().for_each(ask_for);
    }

    /// Whether [`Self::step`] would do nothing.
    pub(crate) fn has_nothing_to_handle(&self, now: Instant) -> bool {
        self.completions.is_empty()
            && self.requests.is_empty()
            && self.delayed.is_empty()
            && self.stack.next_deadline().is_none_or(|deadline| deadline > now)
    }

    fn handle(&mut self, input: Input, now: Instant, context: &Context<'_>) {
        let mut queue = self.queues.pop().unwrap_or_default();
        self.stack.handle(now, input, &mut queue);
        self.depth += 1;
        for action in &queue.actions {
            match action {
                Action::Io(io) => {
                    self.start_io(io, &queue, context);
                    if io.op == Op::Read && io.range.count > DelayedReads::BYTES_MAX as u64 / SECTOR_BYTES {
                        self.go_on_at_once(now, context);
                    }
                }
                Action::Compute(compute) => {
                    // It could read what the one that waits computes.
                    self.finish_fused();
                    // Parity that is brought up to date may be so in its member: it is written there next, by the same
                    // operation.
                    if compute.kernel != Kernel::Update {
                        let is_kept = compute.kernel == Kernel::Copy;
                        for target in queue.operands(compute.targets) {
                            self.reclaim(queue.segs(target.segs), is_kept);
                        }
                    }
                    let bytes = Bytes {
                        arena: self.arena.as_ref(),
                        frames: self.frames.as_ref(),
                        crypt_pages: self.crypt_pages.as_ref(),
                        entries: &self.entries,
                        zeroes: context.zeroes,
                        metadata: &queue.metadata,
                    };
                    if let Some((from, to)) = cache_hit(compute, &queue) {
                        let length = compute.bytes as u32;
                        self.delayed.push(DelayedRead {
                            answer: Input::Computed { tag: compute.tag, verdict: Verdict::Consistent },
                            from: bytes.address(from, 0, length),
                            to: Some(bytes.address(to, 0, length)),
                            bytes: length as usize,
                        });
                        continue;
                    }
                    if compute.kernel == Kernel::Generate
                        && self.is_fusing()
                        && self.fused.begin(compute, &queue, &bytes)
                    {
                        self.handle(
                            Input::Computed { tag: compute.tag, verdict: Verdict::Consistent },
                            now,
                            context,
                        );
                        self.finish_fused();
                        self.go_on_at_once(now, context);
                        continue;
                    }
                    let verdict = self.computer.run(compute, &queue, &bytes);
                    self.completions.push_back(Input::Computed { tag: compute.tag, verdict });
                    self.go_on_at_once(now, context);
                }
                Action::Complete { id, result } => {
                    let Entry { op, origin, .. } = self.entries.remove(*id);
                    // The engine flushes the members that work; what was acknowledged may be on the others.
                    let is_lost = op == Op::Flush && self.is_array_failed;
                    self.answer(origin, if is_lost { result.and(Err(IoError::Lost)) } else { *result });
                }
                Action::Replied { reply, .. } => self.reply = Some(*reply),
                Action::Event(event) => self.note(*event, now),
            }
        }
        self.depth -= 1;
        queue.clear();
        self.queues.push(queue);
    }

    /// Makes pages their own that are about to be written to.
    fn reclaim(&mut self, segs: &[Seg], is_kept: bool) {
        let Some(arena) = &mut self.arena else { return };
        for seg in segs {
            if let Buf::Page { entry, slot, offset } = seg.buf {
                // SAFETY: what is lent is a member's, which is there or took its bytes back.
                unsafe { arena.reclaim(entry, slot, offset, seg.bytes, is_kept) };
            }
        }
    }

    /// Answers a read into pages by lending them the bytes of a member in memory: a page that is up to date holds what its
    /// member holds. Answers whether that can be done.
    fn lend(&mut self, io: &MemberIo, queue: &ActionQueue) -> bool {
        let Self { arena: Some(arena), members, .. } = self else { return false };
        let Member::Memory(memory) = &*members[io.member.index()] else { return false };
        let Ok(from) = memory.address(io.range) else { return false };
        let segs = queue.segs(io.segs);
        if !segs.iter().all(|seg| matches!(seg.buf, Buf::Page { offset: 0, .. })) {
            return false;
        }
        let mut at = from;
        for seg in segs {
            if let Buf::Page { entry, slot, .. } = seg.buf {
                arena.lend(entry, slot, seg.bytes, at);
            }
            at = at.wrapping_add(seg.bytes as usize);
        }
        let answer = Input::IoDone { tag: io.tag, result: Ok(()) };
        if is_delayed(io) {
            self.delayed.push(DelayedRead {
                answer,
                from,
                to: None,
                bytes: (io.range.count * SECTOR_BYTES) as usize,
            });
        } else {
            self.completions.push_back(answer);
        }
        true
    }

    /// Whether a computation may wait for the writes that follow it: they are copies within memory, and none waits yet.
    fn is_fusing(&self) -> bool {
        let is_immediate = |member: &Arc<Member>| matches!(**member, Member::Memory(_) | Member::Missing);
        self.depth == 1 && !self.fused.is_pending() && self.members.iter().all(is_immediate)
    }

    /// Takes up a write of the stripe whose computation waits.
    fn fuse(&mut self, io: &MemberIo, queue: &ActionQueue, context: &Context<'_>) -> bool {
        let mut fused = std::mem::take(&mut self.fused);
        let is_fused = match &*self.members[io.member.index()] {
            Member::Memory(memory) if io.op == Op::Write && io.area == Area::Data => {
                let bytes = self.bytes(queue, context);
                let place = memory.address(io.range);
                place.is_ok_and(|to| fused.take(io.tag, to, bytes.runs(queue.segs(io.segs))))
            }
            _ => false,
        };
        self.fused = fused;
        is_fused
    }

    /// Finds the bytes that a queue of actions names.
    fn bytes<'a>(&'a self, queue: &'a ActionQueue, context: &'a Context<'_>) -> Bytes<'a> {
        Bytes {
            arena: self.arena.as_ref(),
            frames: self.frames.as_ref(),
            crypt_pages: self.crypt_pages.as_ref(),
            entries: &self.entries,
            zeroes: context.zeroes,
            metadata: &queue.metadata,
        }
    }

    /// Carries out the computation that waits, with the writes that were named.
    fn finish_fused(&mut self) {
        let Self { fused, completions, .. } = self;
        let answer = |tag| completions.push_back(Input::IoDone { tag, result: Ok(()) });
        // SAFETY: blocks and members' sectors belong to the computation and the writes until these are answered.
        unsafe { fused.finish(answer) };
    }

    /// Has what was just read computed, and what was computed written, before the next is: its bytes are still in the CPU's caches. Only
    /// from the outermost queue of actions, so that what goes on from there does not nest without end.
    fn go_on_at_once(&mut self, now: Instant, context: &Context<'_>) {
        if self.depth > 1 {
            return;
        }
        for _ in 0..AT_ONCE_MAX {
            let Some(completion) = self.completions.pop_front() else { return };
            self.handle(completion, now, context);
        }
    }

    fn start_io(&mut self, io: &MemberIo, queue: &ActionQueue, context: &Context<'_>) {
        count(&mut self.counts[io.member.index()], io);
        if self.fused.is_pending() {
            if self.fuse(io, queue, context) {
                return;
            }
            self.finish_fused();
        }
        if io.op == Op::Read {
            if self.lend(io, queue) {
                return;
            }
            self.reclaim(queue.segs(io.segs), true);
        }
        let bytes = Bytes {
            arena: self.arena.as_ref(),
            frames: self.frames.as_ref(),
            crypt_pages: self.crypt_pages.as_ref(),
            entries: &self.entries,
            zeroes: context.zeroes,
            metadata: &queue.metadata,
        };
        let mut runs = bytes.runs(queue.segs(io.segs));
        let result = match &*self.members[io.member.index()] {
            Member::Missing => Err(IoError::Gone),
            // Memory that is gone with the array bears no metadata.
            Member::Memory(_) if io.area == Area::Device => Err(IoError::Range),
            Member::Memory(memory) if is_delayed(io) => match (memory.address(io.range), runs.next()) {
                (Ok(from), Some((to, bytes))) => {
                    let answer = Input::IoDone { tag: io.tag, result: Ok(()) };
                    return self.delayed.push(DelayedRead { answer, from, to: Some(to), bytes });
                }
                (from, _) => from.map(drop),
            },
            // SAFETY: the engine's buffers are as long as the range, lie outside every member, and belong to
            // the I/O until it is answered.
            Member::Memory(memory) => unsafe {
                match io.op {
                    Op::Read => memory.read(io.range, runs),
                    Op::Write => memory.write(io.range, runs),
                    Op::Flush => Ok(()),
                    Op::Discard | Op::WriteZeroes => memory.zero(io.range),
                }
            },
            // SAFETY: as above.
            Member::Overlay(overlay) => unsafe {
                let base = overlay.start_bytes(io.area);
                match io.op {
                    Op::Read => overlay.read(base, io.range, runs),
                    Op::Write => overlay.write(base, io.range, runs),
                    Op::Flush => overlay.flush(),
                    Op::Discard | Op::WriteZeroes => overlay.zero(base, io.range),
                }
            },
            Member::File(_) => {
                let ring = self.ring.as_mut().expect("a shard with file members has a ring");
                // SAFETY: as above.
                unsafe { ring.start(&self.members, io, runs) };
                return;
            }
        };
        self.counts[io.member.index()].errors += u64::from(result.is_err());
        self.completions.push_back(Input::IoDone { tag: io.tag, result });
    }

    fn note(&mut self, event: ArrayEvent, now: Instant) {
        self.is_array_failed |= event == ArrayEvent::ArrayFailed;
        if let ArrayEvent::MemberFailed { slot } = event {
            // A failure heard of from another shard has been noted there.
            let is_known = std::mem::replace(&mut self.failed[slot.index()], true);
            if is_known && self.outboxes.len() > 1 {
                return;
            }
            let own = self.index as usize;
            for (_, outbox) in self.outboxes.iter_mut().enumerate().filter(|(shard, _)| *shard != own) {
                outbox.push(Message::Failed(slot));
            }
        }
        self.events.push(TimedEvent { at: now, event });
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
                Message::PartDone { whole, result } => self.ended.push((whole, result)),
                Message::Failed(slot) => {
                    if !std::mem::replace(&mut self.failed[slot.index()], true) {
                        self.fail(slot, now, context);
                    }
                }
            }
        }
        self.inbox = inbox;
    }

    /// Delivers what this shard has to tell the others.
    pub(crate) fn send_messages(&mut self, context: &Context<'_>) {
        for (outbox, mailbox) in self.outboxes.iter_mut().zip(context.mailboxes) {
            if !outbox.is_empty() {
                mailbox.deliver(outbox);
            }
        }
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
        let Self { ring: Some(ring), members, completions, counts, .. } = self else { return };
        ring.reap(members, |slot, tag, result| {
            counts[slot.index()].errors += u64::from(result.is_err());
            completions.push_back(Input::IoDone { tag, result });
        });
        if !self.closing.is_empty() {
            self.close_members();
        }
    }
}

/// Whether an I/O to memory is a short read into one run of bytes.
fn is_delayed(io: &MemberIo) -> bool {
    io.op == Op::Read && io.segs.count == 1 && io.range.count * SECTOR_BYTES <= DelayedReads::BYTES_MAX as u64
}

/// The two ends of a computation that is a short copy of one run of the page cache to a caller.
fn cache_hit(compute: &Compute, queue: &ActionQueue) -> Option<(Buf, Buf)> {
    if compute.kernel != Kernel::Copy || compute.bytes > DelayedReads::BYTES_MAX as u64 {
        return None;
    }
    let one = |operands| match *queue.operands(operands) {
        [Operand { segs, .. }] => match *queue.segs(segs) {
            [seg] => Some(seg.buf),
            _ => None,
        },
        _ => None,
    };
    let (from, to) = (one(compute.sources)?, one(compute.targets)?);
    matches!((from, to), (Buf::CachePage { .. }, Buf::Request { .. })).then_some((from, to))
}

fn count(counts: &mut MemberCounts, io: &MemberIo) {
    match io.op {
        Op::Read => {
            counts.reads += 1;
            counts.read_sectors += io.range.count;
        }
        Op::Write => {
            counts.writes += 1;
            counts.write_sectors += io.range.count;
        }
        Op::Flush => counts.flushes += 1,
        Op::Discard | Op::WriteZeroes => {
            counts.discards += 1;
            counts.discard_sectors += io.range.count;
        }
    }
}
