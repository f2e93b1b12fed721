//! One shard with its clients: the loop that serves them.

mod client;
mod commands;
mod doors;
mod guests;
mod near;
mod news;
mod shared;

use std::sync::atomic::Ordering;

use stripewise_engine::io::{IoError, IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, Nanos, SectorRange};

use super::buffers::Buffer;
use super::change::AskedChange;
use super::connection::Accepted;
use super::news::ServeEvent;
use super::observer::Observed;
use super::task::{Task, engine_flags, stream_of};
use crate::clock::Clock;
use crate::error::HostError;
use crate::mailbox::PartBuffer;
use crate::patience::Patience;
use crate::run::{AbortOnPanic, Running};
use crate::shard::{Context, Shard};

use client::{Client, Link};
pub(crate) use doors::Doors;
pub(crate) use guests::Guests;
pub(crate) use news::Told;
pub(crate) use shared::Shared;

/// Bytes started for a client before the others have their turn.
const TURN_BYTES: u64 = 256 << 10;
/// Sectors zeroed or discarded at once, so that others have their turn.
const PIECE_SECTORS: u64 = 32 << 10;
/// How long a client may take to choose an export.
const HANDSHAKE_MAX: Nanos = Nanos::from_millis(30_000);
/// How long a client may move nothing, though it is its turn, while others wait for the memory of its requests.
const OWES_MAX: Nanos = Nanos::from_millis(10_000);
/// How long clients have to take their last replies.
const DRAIN_MAX: Nanos = Nanos::from_millis(5_000);
/// Rounds without sleep after which sockets are asked for news all the same.
const ROUNDS_MAX: u32 = 4;

/// Tokens of the poller: the kind in the upper half, an index in the lower.
mod token {
    pub(super) const CLIENT: u64 = 0;
    pub(super) const CONTROL: u64 = 1;
    pub(super) const DOOR: u64 = 2;
    pub(super) const CONTROL_DOOR: u64 = 3;
    pub(super) const WAKE: u64 = 4;

    pub(super) fn new(kind: u64, index: usize) -> u64 {
        kind << 32 | index as u64
    }
}

/// A request in the engine.
#[derive(Debug)]
struct Whole {
    client: usize,
    accepted: Accepted,
    /// When it came; zero unless somebody observes.
    arrived: Instant,
    op: Op,
    /// What is left of the range after the piece under way.
    rest: SectorRange,
    /// A flush is due before the answer.
    flush_due: bool,
    is_alone: bool,
    parts_left: u32,
    result: IoResult,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Service<'a> {
    shard: &'a mut Shard,
    shared: &'a Shared,
    guests: &'a mut Guests,
    patience: Patience,
    told: Told,
    /// Set when stopping: until when clients may take their replies.
    drain_until: Option<Instant>,
    /// What the array is to be changed to: requests wait for it.
    asked: Option<AskedChange>,
    has_ended: bool,
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        // Members' I/O into the buffers ends before the buffers do.
        self.shard.release();
        if self.guests.wholes.iter().flatten().any(|whole| whole.parts_left > 0) {
            // Only when a run is given up: another shard may still move bytes of these requests.
            std::mem::forget(std::mem::take(&mut self.guests.wholes));
        }
    }
}

impl<'a> Service<'a> {
    /// Makes the shard ready to serve its guests: those of before, if there were any, go on with it.
    pub(crate) fn new(
        shard: &'a mut Shard,
        guests: &'a mut Guests,
        shared: &'a Shared,
        context: &Context<'_>,
    ) -> Result<Self, HostError> {
        if context.mailboxes.len() > 1 {
            let failed =
                |e: std::io::Error| HostError::Wake { errno: e.raw_os_error().unwrap_or(libc::EMFILE) };
            let wake = context.mailboxes[shard.index() as usize].wake_fd();
            guests.poller.add(wake, token::new(token::WAKE, 0)).map_err(failed)?;
        }
        shard.prepare(context, None, Some(guests.poller.fd()))?;
        let now = context.clock.now();
        for (place, client) in guests.clients.iter_mut().enumerate() {
            if let Some(client) = client {
                shard.open_stream(stream_of(place));
                // Another array has another clock.
                (client.came_at, client.owes_since) = (now, None);
            }
        }
        let mount = guests.doors.as_mut().and_then(|doors| doors.mount.take());
        let mut service = Self {
            shard,
            shared,
            guests,
            patience: Patience::default(),
            told: Told::default(),
            drain_until: None,
            asked: None,
            has_ended: false,
        };
        service.told.look(service.shard);
        if let Some(session) = mount {
            let number = service.count_client();
            service.admit(Link::Fuse(Box::new(session)), number, now);
        }
        service.go_on_with_all();
        Ok(service)
    }

    /// Serves until stopped and drained, and until the other shards are; or until the array is to be changed, and nothing is under
    /// way.
    pub(crate) fn run(
        mut self,
        running: &Running<'_>,
        context: &Context<'_>,
    ) -> Result<Option<AskedChange>, HostError> {
        let _guard = AbortOnPanic(running, context);
        let mut rounds = 0;
        loop {
            let now = context.clock.now();
            self.shard.take_messages(now, context);
            self.look_at_stop(now);
            self.welcome(now, context);
            let more = self.take_requests(context.clock);
            self.shard.send_messages(context);
            let more = self.settle(context) || more;
            let moved = self.send();
            let more = self.serve_controls(context) || more;
            self.shard.send_messages(context);
            self.tell();
            let more = self.sweep(now) || more;
            self.end(running, context);
            if running.is_over() && self.shard.comes_to_rest(now, context) {
                self.tell();
                return Ok(self.asked.take());
            }
            rounds = if more || moved { rounds + 1 } else { 0 };
            if rounds == 0 {
                self.sleep(running, context);
            } else {
                self.shard.poll();
                if rounds % ROUNDS_MAX == 0 {
                    self.hear(Nanos(0));
                    self.look_at_near();
                }
            }
        }
    }

    fn look_at_stop(&mut self, now: Instant) {
        if self.drain_until.is_none() && self.shared.config.stop.load(Ordering::Relaxed) {
            self.drain_until = Some(now + DRAIN_MAX);
            self.guests.doors = None;
            self.guests.clients.iter_mut().flatten().for_each(|c| c.link.drain());
        }
        if self.drain_until.is_some_and(|until| until <= now) {
            self.guests.clients.iter_mut().flatten().for_each(|c| c.link.kill());
        }
    }

    /// Starts what clients ask for, each for its turn; answers whether a client has more.
    fn take_requests(&mut self, clock: Clock) -> bool {
        let mut more = false;
        if self.asked.is_some() {
            return more;
        }
        self.guests
            .buffers
            .begin_round(self.guests.clients.iter().flatten().map(|client| client.link.held_bytes()).sum());
        // Another is first in each round: who waits for memory has it in its turn.
        self.guests.first_turn = if self.guests.first_turn + 1 < self.guests.clients.len() {
            self.guests.first_turn + 1
        } else {
            0
        };
        let first = self.guests.first_turn;
        for place in (first..self.guests.clients.len()).chain(0..first) {
            let mut bytes = 0;
            let mut requests = 0;
            while let Some(client) = &mut self.guests.clients[place] {
                if bytes >= TURN_BYTES || requests >= 64 {
                    more = true;
                    break;
                }
                let Some(accepted) = client.link.next(&self.shared.export, &mut self.guests.buffers) else {
                    break;
                };
                requests += 1;
                bytes += accepted.buffer.as_ref().map_or(0, |_| u64::from(accepted.bytes));
                self.start(place, accepted, clock);
            }
            if requests > 0 {
                if let Some(client) = &mut self.guests.clients[place] {
                    client.has_asked = true;
                }
                self.shared.requests.fetch_add(requests, Ordering::Relaxed);
            }
        }
        more
    }

    fn start(&mut self, place: usize, accepted: Accepted, clock: Clock) {
        let Some(client) = &mut self.guests.clients[place] else { return };
        let (op, range, fua) = match accepted.task {
            Task::Array { op, range, fua } => (op, range, fua),
            Task::BlockStatus { bytes, .. } => {
                if let Link::Nbd(connection) = &mut client.link {
                    connection.answer_status(accepted.cookie, bytes);
                }
                return;
            }
            Task::Disconnect => return client.link.drain(),
        };
        client.in_engine += 1;
        let is_alone = client.link.requests() == 1;
        let id = self.guests.free.pop().unwrap_or_else(|| {
            self.guests.wholes.push(None);
            self.guests.wholes.len() as u32 - 1
        });
        let flush_due = fua && matches!(op, Op::Discard | Op::WriteZeroes);
        let arrived = self.shared.config.observer.as_ref().map_or(Instant::ZERO, |_| self.shared.time(clock));
        let (parts_left, result) = (0, Ok(()));
        let whole = Whole {
            client: place,
            accepted,
            arrived,
            op,
            rest: range,
            flush_due,
            is_alone,
            parts_left,
            result,
        };
        self.guests.wholes[id as usize] = Some(whole);
        self.go_on(id);
    }

    /// Starts the next piece of a request. Reads and writes are one piece, bounded by their buffer. Before a change of the array
    /// what is left of a long one waits.
    fn go_on(&mut self, id: u32) {
        if self.asked.is_some() {
            return;
        }
        let Some(whole) = &mut self.guests.wholes[id as usize] else { return };
        let mut range = whole.rest;
        if matches!(whole.op, Op::Discard | Op::WriteZeroes) && range.count > PIECE_SECTORS {
            range.count = self.shared.router.piece(range, PIECE_SECTORS);
        }
        whole.rest = SectorRange::new(range.end(), whole.rest.count - range.count);
        let fua = matches!(whole.accepted.task, Task::Array { fua: true, .. });
        let flags = engine_flags(fua, whole.is_alone, &self.shared.export, whole.client);
        let request = Request { id: RequestId(id), op: whole.op, range, flags };
        let buffer = whole.accepted.buffer.as_ref();
        let buffer = PartBuffer {
            base: buffer.map_or(std::ptr::null_mut(), Buffer::base),
            bytes: buffer.map_or(0, |b| b.bytes() as u64),
            // Other shards' loans would be theirs.
            takes_loans: whole.accepted.takes_loans && self.shared.is_one_shard(),
        };
        whole.parts_left = self.shard.start_whole(&self.shared.router, request, buffer);
    }

    /// Starts the next pieces of requests that waited for a change of the array.
    fn go_on_with_all(&mut self) {
        for id in 0..self.guests.wholes.len() {
            if self.guests.wholes[id].is_some() {
                self.go_on(id as u32);
            }
        }
    }

    /// Handles inputs of the engine until there are none, or for so long that clients must be heard in between: the array's
    /// own work on members in memory always has a next one. Answers whether there may be more.
    fn settle(&mut self, context: &Context<'_>) -> bool {
        let mut now = context.clock.now();
        self.shard.begin_turn(context);
        while !self.shard.is_turn_over() {
            let stepped = self.shard.step(now, context);
            if let Some((id, result)) = self.shard.take_ended() {
                self.part_ended(id, result, context.clock);
            } else if !stepped {
                return false;
            } else {
                continue;
            }
            if self.shard.ended() == 0 {
                now = context.clock.now();
            }
        }
        true
    }

    fn part_ended(&mut self, id: u32, result: IoResult, clock: Clock) {
        let whole = self.guests.wholes[id as usize].as_mut().expect("a part ends once");
        whole.parts_left -= 1;
        whole.result = whole.result.and(result);
        if whole.parts_left > 0 {
            return;
        }
        if whole.rest.count > 0 && whole.result.is_ok() {
            // What may take hours ends with the server, and with who asked for it.
            let is_dead =
                self.guests.clients[whole.client].as_ref().is_none_or(|client| client.link.is_dead());
            if self.drain_until.is_some() || is_dead {
                whole.result = Err(IoError::Gone);
            }
        }
        if whole.result.is_ok() && (whole.rest.count > 0 || whole.flush_due) {
            if whole.rest.count == 0 {
                whole.flush_due = false;
                whole.op = Op::Flush;
            }
            return self.go_on(id);
        }
        let Some(whole) = self.guests.wholes[id as usize].take() else { return };
        self.guests.free.push(id);
        self.observe(&whole, clock);
        self.answer(whole);
    }

    fn observe(&self, whole: &Whole, clock: Clock) {
        let Some(observer) = &self.shared.config.observer else { return };
        let (Task::Array { op, range, fua }, Some(client)) =
            (whole.accepted.task, &self.guests.clients[whole.client])
        else {
            return;
        };
        observer.observe(&Observed {
            arrived: whole.arrived,
            latency: self.shared.time(clock).since(whole.arrived),
            op,
            range,
            fua,
            stream: client.number,
            is_ok: whole.result.is_ok(),
        });
    }

    fn answer(&mut self, whole: Whole) {
        let Whole { client, accepted, op, result, .. } = whole;
        let held = accepted.buffer.as_ref().map_or(0, |_| u64::from(accepted.bytes));
        let client =
            self.guests.clients[client].as_mut().expect("a client stays while the engine has its requests");
        client.in_engine -= 1;
        let counter = if op == Op::Read { &self.shared.read_bytes } else { &self.shared.write_bytes };
        counter.fetch_add(held, Ordering::Relaxed);
        client.link.answer(accepted, result, &mut self.shard.loans, &mut self.guests.buffers);
    }

    /// Sends replies; answers whether something moved.
    fn send(&mut self) -> bool {
        let mut moved = false;
        for client in self.guests.clients.iter_mut().flatten() {
            moved |= client.link.send(&mut self.guests.buffers);
        }
        moved
    }

    /// Lets go of clients with which all is done, or that never begin, or that keep others waiting; answers whether somebody
    /// waits for what one of them held.
    fn sweep(&mut self, now: Instant) -> bool {
        let is_short = self.guests.buffers.is_short();
        let mut has_room = false;
        for place in &mut self.guests.clients {
            let Some(client) = place else { continue };
            if client.link.is_in_handshake() && now.since(client.came_at) > HANDSHAKE_MAX {
                client.link.kill();
            }
            if client.is_idle_for_too_long(is_short, now) {
                client.link.kill();
            }
            if client.link.is_over() && client.in_engine == 0 {
                has_room = is_short;
                if client.link.is_mount() && !self.shared.config.has_socket() {
                    // Nobody else can come.
                    self.shared.config.stop.store(true, Ordering::Relaxed);
                }
                let folder_in_use = place.take().and_then(|client| client.link.end());
                self.shared.connections.fetch_sub(1, Ordering::Relaxed);
                if let (Some(folder), Some(tell)) = (folder_in_use, &self.shared.config.tell) {
                    tell(&ServeEvent::MountInUse { folder });
                }
            }
        }
        has_room
    }

    fn end(&mut self, running: &Running<'_>, context: &Context<'_>) {
        let is_drained = self.drain_until.is_some() && self.guests.clients.iter().all(Option::is_none);
        let is_under_way = |whole: &Whole| whole.parts_left > 0;
        let is_quiet = self.asked.is_some() && !self.guests.wholes.iter().flatten().any(is_under_way);
        if (is_drained || is_quiet) && !self.has_ended {
            self.has_ended = true;
            running.workload_ended(context);
        }
    }

    fn sleep(&mut self, running: &Running<'_>, context: &Context<'_>) {
        let own = self.shard.index() as usize;
        let mailbox = (context.mailboxes.len() > 1).then(|| &context.mailboxes[own]);
        if mailbox.is_some_and(|m| !m.fall_asleep()) {
            return self.shard.poll();
        }
        // What was stored before this shard was said to sleep is seen here; what is stored later wakes it.
        let must_wake = (running.is_over() && self.shard.is_idle()) || self.shared.has_dealt(own);
        if !must_wake {
            let time = self.shard.sleep_time(self.drain_until, context);
            if self.shard.has_ring() {
                self.shard.sleep(self.drain_until, context);
                self.hear(Nanos(0));
            } else if mailbox.is_some() {
                self.hear(time);
            } else {
                self.look_and_hear(time, context.clock);
            }
        }
        if let Some(mailbox) = mailbox {
            mailbox.awake();
        }
    }

    /// Hears the news of sockets, waiting for the first at most that long.
    /// Answers whether there were any.
    fn hear(&mut self, timeout: Nanos) -> bool {
        let Guests { poller, clients, controls, is_knocking, .. } = &mut *self.guests;
        let mut has_heard = false;
        poller.wait(timeout, |news| {
            has_heard = true;
            let index = (news.token & u64::from(u32::MAX)) as usize;
            match news.token >> 32 {
                token::CLIENT => {
                    if let Some(Some(client)) = clients.get_mut(index) {
                        client.link.tell(news);
                    }
                }
                token::CONTROL => {
                    if let Some(Some(control)) = controls.get_mut(index) {
                        control.tell(news);
                    }
                }
                token::DOOR | token::CONTROL_DOOR => *is_knocking = true,
                _ => {}
            }
        });
        has_heard
    }
}
