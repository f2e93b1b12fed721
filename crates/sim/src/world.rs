//! The world: an array on its rig, driven by a workload in virtual time.
//!
//! # Contract
//! *Ordering.* Events by time, then by scheduling; an engine deadline that has come goes before events of
//! the same time. All inputs of one event are handled before the actions they caused are carried out.
//! *Time.* A request reaches the engine when the CPU has prepared it; the workload learns of its end when
//! the CPU has completed it. A member I/O reaches its drive when the CPU has issued the command.
//! *Memory.* Nothing is allocated for an I/O once the vectors have grown.

use crate::block::{BlockQueue, Fanout, QueueLimits};
use crate::bus::{Bus, Buses};
use crate::clock::{Event, Schedule};
use crate::cpu::{Cpu, Thread};
use crate::crypt::{Crypt, CryptConfig};
use crate::data::{Data, Phantom};
use crate::drive::{Command, CommandOp, Drive, Surroundings};
use crate::random::Random;
use crate::report::{MemberReport, SimReport};
use crate::rig::{Rig, RigError};
use crate::slices::{NOBODY, Process, Slices};
use crate::trace::TraceHash;
use std::collections::VecDeque;
use std::fmt;
use stripewise_engine::cache::{Cache, CacheConfig, CacheError};
use stripewise_engine::crypt::{Crypt as CryptLayer, CryptError};
use stripewise_engine::geometry::Shape;
use stripewise_engine::io::{
    Action, ActionQueue, AdminCommand, Area, Compute, Flags, Input, IoError, IoResult, Kernel, MemberIo, Op,
    Request, RequestId, Tag, Verdict,
};
use stripewise_engine::stack::{Stack, StackError};
use stripewise_engine::units::{Instant, PAGE_SECTORS, SECTOR_BYTES, SectorRange};
use stripewise_engine::volume::{Volume, VolumeConfig, VolumeError};
use stripewise_engine::workload::{Next, Workload};

/// What to simulate.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The array.
    pub volume: VolumeConfig,
    /// What it runs on.
    pub rig: Rig,
    /// Decides where platters and arms are at the start.
    pub seed: u64,
}

/// Why a simulation could not be run.
#[derive(Debug, PartialEq)]
pub enum SimError {
    /// The array is not possible.
    Volume(VolumeError),
    /// The page cache is not possible.
    Cache(CacheError),
    /// The encrypted container is not possible.
    Crypt(CryptError),
    /// The rig does not fit the array.
    Rig(RigError),
    /// The array has spares, replacements or a write journal. Only members with a slot are modelled.
    MembersBehindSlots {
        /// Slots, each of which has a modelled member.
        slots: usize,
    },
    /// The workload keeps more requests in flight than the simulator numbers.
    TooManyInFlight {
        /// What it asks for.
        found: u32,
        /// The most there can be.
        max: u32,
    },
    /// Nothing is left to happen, yet the workload waits: a fault of workload or engine.
    Stalled {
        /// Virtual time.
        at: Instant,
        /// Requests that never completed.
        in_flight: u32,
    },
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(error) => write!(f, "{error}"),
            Self::Cache(error) => write!(f, "{error}"),
            Self::Crypt(error) => write!(f, "{error}"),
            Self::Rig(error) => write!(f, "{error}"),
            Self::MembersBehindSlots { slots } => write!(
                f,
                "the simulator models the members of an array's {slots} slots, no spares, replacements or write journal; leave those out"
            ),
            Self::TooManyInFlight { found, max } => {
                write!(f, "{found} requests in flight; the simulator takes at most {max}")
            }
            Self::Stalled { at, in_flight } => write!(
                f,
                "nothing is left to happen at {:.6} s of virtual time, but {in_flight} requests have not completed",
                at.0 as f64 / 1e9
            ),
        }
    }
}

impl std::error::Error for SimError {}

impl From<StackError> for SimError {
    fn from(error: StackError) -> Self {
        match error {
            StackError::Volume(error) => Self::Volume(error),
            StackError::Cache(error) => Self::Cache(error),
            StackError::Crypt(error) => Self::Crypt(error),
        }
    }
}

/// Only members with a slot have a drive on the rig.
fn require_slots_only(volume: &VolumeConfig) -> Result<(), SimError> {
    let has_journal = volume.metadata.as_ref().is_some_and(|metadata| metadata.journal.is_some());
    if volume.spares > 0 || !volume.replacements.is_empty() || has_journal {
        return Err(SimError::MembersBehindSlots { slots: volume.geometry.member_sectors.len() });
    }
    Ok(())
}

/// Simulates a workload on phantom buffers until it has finished and all its requests have completed.
pub fn run(config: &SimConfig, workload: &mut impl Workload) -> Result<SimReport, SimError> {
    World::new(config, Phantom)?.run(workload, None)
}

/// How many answers ahead the engine looks at what it needs for them.
const LOOK_AHEAD: usize = 8;

/// A member: the queue above its drive, and the drive.
#[derive(Debug)]
struct Member {
    queue: BlockQueue,
    drive: Drive,
    controller: usize,
    /// Has new I/Os to send to the drive.
    touched: bool,
    /// Writes of what lies beside the data, and their sectors.
    beside: [u64; 2],
    /// Some of them pass the stripe cache.
    has_stripes: bool,
}

/// An array on its rig.
pub struct World<D: Data> {
    stack: Stack,
    data: D,
    out: ActionQueue,
    members: Vec<Member>,
    buses: Buses,
    cpu: Cpu,
    /// The array has a stripe cache.
    has_stripes: bool,
    crypt: Option<Crypt>,
    schedule: Schedule,
    fanout: Fanout,
    /// Where the members' data begin.
    data_offset_sectors: u64,
    /// What lies beside the data is written behind a flush.
    has_flushes_beside: bool,
    /// While the bitmap is written md's thread waits for it, and what md's thread does waits for it.
    bitmap_holds_writes: bool,
    /// Writes beside the data that are under way, by tag.
    beside: Vec<Tag>,
    /// What md's thread is to do when they have ended.
    held: Vec<Held>,
    way_ns: u64,
    computing: VecDeque<(Tag, Verdict)>,
    /// Computations under way of the layers above the array, with the thread that goes on when they end, by number, and the
    /// numbers free.
    layers: Vec<(Tag, Option<Thread>)>,
    layers_free: Vec<u32>,
    requests: Vec<Request>,
    /// By request: bytes that the page cache did not have when it was asked. Their submitter sleeps until they come.
    awaited: Vec<u64>,
    /// The request being submitted.
    submitting: Option<u32>,
    in_flight: u32,
    errors: Vec<Option<IoError>>,
    deadline: Option<Instant>,
    now_ns: u64,
    trace: TraceHash,
    counts: Counts,
    /// Scratch: members with new I/Os, completed commands, completed I/Os.
    touched: Vec<u32>,
    done_commands: Vec<u8>,
    done_ios: Vec<Tag>,
}

/// What has come for md's thread while it waits.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// An I/O of a stripe has ended.
    Ended(Tag),
    /// A computation has.
    Computed(Tag, Verdict),
    /// An I/O to send to a member's queue.
    Io(u32, QueuedIo),
}

/// An I/O on its way to a member's queue.
#[derive(Clone, Copy, Debug)]
struct QueuedIo {
    op: CommandOp,
    sectors: (u64, u64),
    tag: Tag,
    process: Option<Process>,
}

/// I/Os to members that the engine asked for at once.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// On the thread that asked for them, or in an interrupt.
    directly: u64,
    /// On md's thread: they pass the stripe cache.
    by_array: u64,
    /// Pages of the latter.
    pages: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    member_ios: u64,
    events: u64,
}

impl<D: Data> World<D> {
    /// Builds an array on its rig.
    pub fn new(config: &SimConfig, data: D) -> Result<Self, SimError> {
        Self::cached(config, None, data)
    }

    /// Builds an array on its rig, with a page cache above it if one is given.
    pub fn cached(config: &SimConfig, cache: Option<&CacheConfig>, data: D) -> Result<Self, SimError> {
        Self::layered(config, None, cache, data)
    }

    /// Builds an array on its rig, with an encrypted container on it if one is given, and a page cache above both.
    /// Requests are counted from the start of the container's payload.
    pub fn layered(
        config: &SimConfig,
        crypt: Option<CryptConfig>,
        cache: Option<&CacheConfig>,
        data: D,
    ) -> Result<Self, SimError> {
        require_slots_only(&config.volume)?;
        let rig = &config.rig;
        let mut stack = Stack::new(&config.volume, None)?;
        let has_stripes = matches!(stack.volume().geometry().shape(), Shape::Parity(_));
        let payload = crypt.map(|c| c.payload(stack.volume().geometry().array_sectors(), &rig.block));
        stack.raise(payload.as_ref(), cache)?;
        let data_offset_sectors = config.volume.data_offset_sectors();
        let used = config.volume.geometry.member_sectors.iter().map(|sectors| data_offset_sectors + sectors);
        let attached = rig.attach(&used.collect::<Vec<_>>()).map_err(SimError::Rig)?;
        let mut members = Vec::with_capacity(attached.len());
        let mut seeds = Random::new(config.seed);
        for &controller in &attached {
            let drive = Drive::new(&rig.drive, seeds.next_u64());
            let model = &rig.controllers[controller].model;
            let request_sectors = rig.block.request_sectors_max.min(model.command_sectors_max);
            let depth = model.queue_depth.min(drive.queue_depth());
            let limits = QueueLimits {
                request_sectors_max: request_sectors,
                nr_requests: rig.block.nr_requests,
                expire_ns: [rig.block.read_expire_ns, rig.block.write_expire_ns],
                batch: rig.block.expire_batch,
                write_back: rig.drive.has_volatile_cache(),
                fua: rig.block.fua,
            };
            let slices = rig.block.slices.filter(|_| rig.drive.is_rotational()).map(Slices::new);
            let queue = BlockQueue::new(limits, slices, depth);
            members.push(Member {
                queue,
                drive,
                controller,
                touched: false,
                beside: [0; 2],
                has_stripes: false,
            });
        }
        let deadline = stack.next_deadline();
        Ok(Self {
            stack,
            data,
            out: ActionQueue { is_phantom: !D::HAS_BYTES, ..ActionQueue::default() },
            members,
            buses: Buses::new(rig),
            cpu: Cpu::new(&rig.cpu, rig.group_thread_cnt),
            has_stripes,
            crypt: crypt.map(|c| Crypt::new(c, &rig.cpu, &rig.block)),
            schedule: Schedule::default(),
            fanout: Fanout::default(),
            data_offset_sectors,
            has_flushes_beside: config.volume.policy.metadata_writes_flush,
            bitmap_holds_writes: config.volume.policy.bitmap_holds_writes,
            beside: Vec::new(),
            held: Vec::new(),
            way_ns: rig.way_ns,
            computing: VecDeque::new(),
            layers: Vec::new(),
            layers_free: Vec::new(),
            requests: Vec::new(),
            awaited: Vec::new(),
            submitting: None,
            in_flight: 0,
            errors: Vec::new(),
            deadline,
            now_ns: 0,
            trace: TraceHash::new(),
            counts: Counts::default(),
            touched: Vec::new(),
            done_commands: Vec::new(),
            done_ios: Vec::new(),
        })
    }

    /// The array.
    pub fn volume(&self) -> &Volume {
        self.stack.volume()
    }

    /// The page cache, if there is one.
    pub fn cache(&self) -> Option<&Cache> {
        self.stack.cache()
    }

    /// The bytes.
    pub fn data(&mut self) -> &mut D {
        &mut self.data
    }

    /// Gives the array an administrator's command now; what it answers is not told.
    pub fn admin(&mut self, command: AdminCommand) {
        self.handle(Input::Admin { id: 0, command });
        self.act();
    }

    /// Runs a workload until it has finished and everything in flight has completed, or until the first
    /// event after `until`.
    pub fn run(
        &mut self,
        workload: &mut impl Workload,
        until: Option<Instant>,
    ) -> Result<SimReport, SimError> {
        let in_flight_max = workload.in_flight_max();
        if in_flight_max > Event::INDEX_MAX {
            return Err(SimError::TooManyInFlight { found: in_flight_max, max: Event::INDEX_MAX });
        }
        let none = Request {
            id: RequestId(0),
            op: Op::Flush,
            range: SectorRange::new(0, 0),
            flags: Flags::default(),
        };
        self.requests.resize(in_flight_max as usize, none);
        self.errors.resize(in_flight_max as usize, None);
        self.awaited.resize(in_flight_max as usize, 0);
        let mut finished = self.pull(workload);
        loop {
            if finished && self.in_flight == 0 && self.members.iter().all(|m| m.queue.is_idle()) {
                return Ok(self.report());
            }
            let event_ns = self.schedule.next_time();
            let deadline_ns = self.deadline.map(|d| d.0.max(self.now_ns));
            let next_ns = match (event_ns, deadline_ns) {
                (Some(event), Some(deadline)) => event.min(deadline),
                (Some(only), None) | (None, Some(only)) => only,
                (None, None) => return Err(self.stalled()),
            };
            if until.is_some_and(|u| next_ns > u.0) {
                return Ok(self.report());
            }
            self.now_ns = next_ns;
            if deadline_ns == Some(next_ns) {
                self.trace(7, next_ns);
                self.handle(Input::Timer);
                self.act();
            } else if let Some((_, event)) = self.schedule.pop() {
                finished = self.happen(event, finished, workload);
            }
            #[cfg(debug_assertions)]
            self.stack.volume().check_invariants();
        }
    }

    fn stalled(&self) -> SimError {
        SimError::Stalled { at: Instant(self.now_ns), in_flight: self.in_flight }
    }

    /// Carries out an event; returns whether the workload has finished.
    fn happen(&mut self, event: Event, finished: bool, workload: &mut impl Workload) -> bool {
        self.counts.events += 1;
        match event {
            Event::Submit(id) => {
                self.trace(0, u64::from(id));
                let request = self.requests[id as usize];
                self.data.begin(&request);
                self.handle(Input::Request(request));
                self.cpu.enter(Some(Thread::Stream(request.flags.stream)));
                self.awaited[id as usize] = request.range.count.saturating_mul(SECTOR_BYTES);
                self.submitting = Some(id);
                self.act();
                self.submitting = None;
                self.cpu.enter(None);
            }
            Event::Complete(id) => {
                self.complete(id, Ok(()), workload);
                return finished || self.pull(workload);
            }
            Event::CompleteError(id) => {
                let error = self.errors[id as usize].take().expect("a failed request has an error");
                self.complete(id, Err(error), workload);
                return finished || self.pull(workload);
            }
            Event::Wake => return finished || self.pull(workload),
            Event::Computed => {
                let (tag, verdict) = self.computing.pop_front().expect("a computation that ends was begun");
                if self.is_holding() {
                    self.held.push(Held::Computed(tag, verdict));
                    return finished;
                }
                self.trace(4, tag.0);
                self.handle(Input::Computed { tag, verdict });
                self.act();
            }
            Event::Copied(number) => {
                let (tag, thread) = self.layers[number as usize];
                self.layers_free.push(number);
                self.trace(9, tag.0);
                self.handle(Input::Computed { tag, verdict: Verdict::Consistent });
                self.cpu.enter(thread);
                self.act();
                self.cpu.enter(None);
            }
            Event::Arm(member) => self.drive(member, Drive::arm),
            Event::ReadAheadFull(member) => self.drive(member, Drive::read_ahead_full),
            Event::Queue(member) => {
                while let Some(tag) = self.members[member as usize].queue.answered().pop() {
                    self.answered(tag);
                }
                touch(&mut self.members[member as usize], member, &mut self.touched);
                self.act();
            }
            Event::Transferred(member, tag) => {
                self.drive(member, |drive, around| drive.transferred(tag, around));
            }
        }
        finished
    }

    /// Takes requests from the workload until it waits; returns whether it has finished.
    fn pull(&mut self, workload: &mut impl Workload) -> bool {
        loop {
            match workload.next(Instant(self.now_ns)) {
                Next::Issue(request) => {
                    let RequestId(id) = request.id;
                    self.requests[id as usize] = request;
                    self.in_flight += 1;
                    let ready_ns = self.cpu.submit(self.now_ns, &request, self.stack.sectors());
                    self.trace(8 | (request.op as u64) << 4, request.range.start);
                    self.schedule.at(ready_ns, Event::Submit(id));
                }
                Next::Wait => return false,
                Next::WaitUntil(at) => {
                    self.schedule.at(at.0.max(self.now_ns), Event::Wake);
                    return false;
                }
                Next::Finished => return true,
            }
        }
    }

    fn complete(&mut self, id: u32, result: IoResult, workload: &mut impl Workload) {
        self.trace(1, u64::from(id));
        self.in_flight -= 1;
        self.counts.requests += 1;
        workload.complete(Instant(self.now_ns), RequestId(id), result);
    }

    #[inline(never)]
    fn handle(&mut self, input: Input) {
        self.stack.handle(Instant(self.now_ns), input, &mut self.out);
    }

    /// Tells the engine that a member's I/O ended: by far the most common input.
    #[inline(never)]
    fn answered(&mut self, tag: Tag) {
        let input = Input::IoDone { tag, result: Ok(()) };
        self.stack.handle(Instant(self.now_ns), input, &mut self.out);
    }

    /// Whether md's thread waits for the bitmap.
    fn is_holding(&self) -> bool {
        self.bitmap_holds_writes && !self.beside.is_empty()
    }

    /// An I/O has ended while others beside the data are under way. Answers whether that was seen to here: it is held until those
    /// have ended, or was the last of them, with which what was held goes on.
    #[cold]
    fn ended_beside(&mut self, tag: Tag) -> bool {
        if let Some(place) = self.beside.iter().position(|beside| *beside == tag) {
            self.beside.swap_remove(place);
            if self.beside.is_empty() {
                // raid5d handles all stripes before it looks for the next pages.
                for held in std::mem::take(&mut self.held) {
                    match held {
                        Held::Ended(tag) => self.answered(tag),
                        Held::Computed(tag, verdict) => self.handle(Input::Computed { tag, verdict }),
                        Held::Io(slot, io) => self.queue(slot, io),
                    }
                }
            }
            self.answered(tag);
            return true;
        }
        let waits = self.bitmap_holds_writes && self.has_stripes && !tag.is_of_read();
        if waits {
            self.held.push(Held::Ended(tag));
        }
        waits
    }

    /// Lets a member's drive handle an event, and the engine what the drive completes.
    fn drive(&mut self, member: u32, event: impl FnOnce(&mut Drive, &mut Surroundings<'_>)) {
        let at = &mut self.members[member as usize];
        let bus = self.buses.path(at.controller);
        let (schedule, done) = (&mut self.schedule, &mut self.done_commands);
        event(&mut at.drive, &mut Surroundings { now_ns: self.now_ns, member, schedule, bus, done });
        if self.done_commands.is_empty() {
            return;
        }
        for tag in self.done_commands.drain(..) {
            at.queue.complete(self.now_ns, tag, &mut self.fanout, &mut self.done_ios);
        }
        touch(at, member, &mut self.touched);
        self.trace(2, u64::from(member));
        for tag in self.done_ios.iter().skip(1).take(LOOK_AHEAD - 1) {
            self.stack.volume().look_at(*tag);
        }
        for index in 0..self.done_ios.len() {
            if let Some(tag) = self.done_ios.get(index + LOOK_AHEAD) {
                self.stack.volume().look_at(*tag);
            }
            let tag = self.done_ios[index];
            if self.beside.is_empty() || !self.ended_beside(tag) {
                self.answered(tag);
            }
        }
        self.done_ios.clear();
        self.act();
    }

    /// Carries out what the engine asked for, then sends commands to the drives that have new ones.
    fn act(&mut self) {
        self.deadline = self.stack.next_deadline();
        let mut sent = Sent::default();
        if !self.out.is_empty() {
            let actions = std::mem::take(&mut self.out.actions);
            for action in &actions {
                match action {
                    Action::Io(io) => {
                        if self.is_of_stripe(io) {
                            sent.by_array += 1;
                            sent.pages += io.range.count.div_ceil(PAGE_SECTORS);
                            self.members[io.member.index()].has_stripes = true;
                        } else {
                            sent.directly += 1;
                        }
                        self.member_io(io);
                    }
                    Action::Compute(compute) => self.compute(compute),
                    Action::Complete { id: RequestId(id), result } => self.ended(*id, *result),
                    Action::Replied { .. } | Action::Event(_) => {}
                }
            }
            self.out.actions = actions;
            self.out.clear();
            self.counts.member_ios += sent.directly + sent.by_array;
        }
        self.send(sent);
    }

    /// Whether an I/O passes the stripe cache: then md's thread sends it.
    fn is_of_stripe(&self, io: &MemberIo) -> bool {
        self.has_stripes && io.area == Area::Data && io.op != Op::Flush && !io.tag.is_of_read()
    }

    /// The engine has ended a request: the CPU completes it.
    fn ended(&mut self, id: u32, result: IoResult) {
        let request = &self.requests[id as usize];
        self.data.end(request, result);
        let was_cached = request.flags.buffered && request.op != Op::Flush && self.awaited[id as usize] == 0;
        let end_ns = if was_cached { self.now_ns } else { self.cpu.complete(self.now_ns) };
        let event = match result {
            Ok(()) => Event::Complete(id),
            Err(error) => {
                self.errors[id as usize] = Some(error);
                Event::CompleteError(id)
            }
        };
        self.schedule.at(end_ns, event);
    }

    /// Starts a computation: a copy of the page cache on the thread that asked, a cipher on its threads, parity on md's.
    fn compute(&mut self, compute: &Compute) {
        let verdict = self.data.compute(compute, &self.out);
        if Cache::owns(compute.tag) {
            if let Some(id) = self.submitting {
                let awaited = &mut self.awaited[id as usize];
                *awaited = awaited.saturating_sub(compute.bytes);
            }
            let end_ns = self.cpu.copy(self.now_ns, compute.bytes);
            self.computed_at(end_ns, compute.tag, None);
        } else if let Some(crypt) = self.crypt.as_mut().filter(|_| CryptLayer::owns(compute.tag)) {
            let end_ns = crypt.compute(&mut self.cpu, self.now_ns, compute);
            let is_write = !matches!(compute.kernel, Kernel::Decrypt { .. });
            self.computed_at(end_ns, compute.tag, is_write.then_some(Thread::CryptWriter));
        } else {
            let end_ns = self.cpu.compute(self.now_ns, compute, &self.out);
            self.computing.push_back((compute.tag, verdict));
            self.schedule.at(end_ns, Event::Computed);
        }
    }

    /// Tells the engine of a computation's end, in whatever order such end; a thread goes on then, if one is named.
    fn computed_at(&mut self, end_ns: u64, tag: Tag, thread: Option<Thread>) {
        let number = self.layers_free.pop().unwrap_or_else(|| {
            self.layers.push((tag, thread));
            self.layers.len() as u32 - 1
        });
        self.layers[number as usize] = (tag, thread);
        self.schedule.at(end_ns, Event::Copied(number));
    }

    /// The process that sends an I/O, if it is known: the one that is submitting a request. What passes the stripe cache is sent
    /// by md's thread.
    fn sender(&self, io: &MemberIo) -> Option<Process> {
        if self.is_of_stripe(io) {
            return Some(NOBODY);
        }
        self.submitting.map(|id| self.requests[id as usize].flags.stream)
    }

    /// Whether md's thread sends an I/O: those of stripes, and the writes of copies.
    fn is_by_thread(&self, io: &MemberIo) -> bool {
        if self.has_stripes { self.is_of_stripe(io) } else { io.area == Area::Data && io.op == Op::Write }
    }

    fn member_io(&mut self, io: &MemberIo) {
        self.data.io(io, &self.out);
        let slot = io.member.index() as u32;
        let before = if io.area == Area::Data { self.data_offset_sectors } else { 0 };
        let queued = QueuedIo {
            op: CommandOp::of(io.op, io.fua),
            sectors: (before + io.range.start, io.range.count),
            tag: io.tag,
            process: self.sender(io),
        };
        if self.is_holding() && self.is_by_thread(io) {
            return self.held.push(Held::Io(slot, queued));
        }
        if io.area == Area::Device && io.op == Op::Write {
            self.beside.push(io.tag);
            let member = &mut self.members[slot as usize];
            member.beside = [member.beside[0] + 1, member.beside[1] + io.range.count];
            if self.has_flushes_beside {
                let QueuedIo { op, sectors, tag, .. } = queued;
                // raid5d sends what it has of stripes when it waits for the pages: behind the flush.
                let passes = self.has_stripes;
                member.queue.add_behind_flush(self.now_ns, op, sectors, tag, passes, &mut self.fanout);
                return touch(member, slot, &mut self.touched);
            }
        }
        self.queue(slot, queued);
    }

    /// Gives an I/O to a member's queue.
    fn queue(&mut self, slot: u32, io: QueuedIo) {
        let member = &mut self.members[slot as usize];
        member.queue.add(self.now_ns, io.op, io.sectors, io.tag, io.process, &mut self.fanout);
        if io.op == CommandOp::Flush && member.queue.answered().len() == 1 {
            self.schedule.at(self.now_ns, Event::Queue(slot));
        }
        touch(member, slot, &mut self.touched);
    }

    /// Sends commands to the drives with new I/Os; those of I/Os that pass the stripe cache on md's thread.
    fn send(&mut self, sent: Sent) {
        let mut ready_ns = self.now_ns;
        if sent.directly > 0 {
            ready_ns = self.cpu.member_ios(ready_ns, sent.directly);
        }
        if sent.by_array > 0 {
            ready_ns = self.cpu.stripe_ios(ready_ns, sent.by_array, sent.pages);
        }
        for index in 0..self.touched.len() {
            let slot = self.touched[index];
            let member = &mut self.members[slot as usize];
            member.touched = false;
            let by_array = std::mem::take(&mut member.has_stripes);
            while let Some((tag, op, start, sectors)) = member.queue.next(self.now_ns, &mut self.fanout) {
                ready_ns = self.cpu.command(ready_ns, by_array);
                self.trace.add(u64::from(slot) << 56 ^ (op as u64) << 48 ^ start);
                self.trace.add(sectors << 48 ^ self.now_ns);
                let (schedule, done) = (&mut self.schedule, &mut self.done_commands);
                let bus = self.buses.path(member.controller);
                let mut around = Surroundings { now_ns: self.now_ns, member: slot, schedule, bus, done };
                let command = Command { op, start, sectors, arrival_ns: ready_ns + self.way_ns };
                member.drive.submit(tag, command, &mut around);
            }
            if let Some(wake_ns) = member.queue.take_wake() {
                self.schedule.at(wake_ns, Event::Queue(slot));
            }
        }
        self.touched.clear();
    }

    #[inline]
    fn trace(&mut self, kind: u64, what: u64) {
        self.trace.add(self.now_ns);
        self.trace.add(kind << 56 ^ what);
    }

    fn report(&self) -> SimReport {
        let elapsed_ns = self.now_ns.max(1) as f64;
        let share = |busy_ns: u64| busy_ns as f64 / elapsed_ns;
        let bus = |b: &Bus| share(b.busy_until_ns(self.now_ns));
        let member = |m: &Member| {
            let [metadata_writes, metadata_sectors] = m.beside;
            let busy_share = share(m.drive.busy_ns());
            MemberReport { stats: m.queue.stats, metadata_writes, metadata_sectors, busy_share }
        };
        let moved = |bus: &Bus| bus.bytes_until(self.now_ns);
        SimReport {
            trace_hash: self.trace.value(),
            end: Instant(self.now_ns),
            requests: self.counts.requests,
            member_ios: self.counts.member_ios,
            events: self.counts.events,
            members: self.members.iter().map(member).collect(),
            bus_busy_share: self.buses.controllers().iter().map(bus).collect(),
            bus_bytes: self.buses.controllers().iter().map(moved).collect(),
            shared_bus_busy_share: self.buses.shared().iter().map(bus).collect(),
            shared_bus_bytes: self.buses.shared().iter().map(moved).collect(),
            parity_busy_share: share(self.cpu.parity_ns()),
            cpu_busy_share: share(self.cpu.busy_ns()) / self.cpu.cores() as f64,
        }
    }
}

fn touch(member: &mut Member, slot: u32, touched: &mut Vec<u32>) {
    if !member.touched {
        member.touched = true;
        touched.push(slot);
    }
}
