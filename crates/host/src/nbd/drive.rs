//! A drive that only takes its time, served to NBD clients: what a command moves is not kept, when it ends is exact.
//!
//! # Contract
//! *Time.* A reply is sent when the drive says that the command has ended; a command begins when it has arrived, with its
//! bytes. The server sleeps until shortly before and then looks at the clock. *Bytes.* See [`Kept`]. *Order.* As the drive
//! ends the commands. *Stopping.* Clients are let go at once: there is nothing to be made durable.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stripewise_engine::io::Op;
use stripewise_engine::units::{Instant, Nanos, SECTOR_BYTES};

use super::buffers::Buffers;
use super::connection::{Accepted, Connection, MAKES_ROOM_AFTER};
use super::export::Export;
use super::handshake::BASE_ALLOCATION_ID;
use super::poller::Poller;
use super::socket::Listener;
use super::status;
use super::task::Task;
use super::wire::Head;
use crate::clock::Clock;
use crate::drive::{DriveCommand, DriveExport, DriveReport, Kept, Pace, TimedDrive};
use crate::error::{HostError, ListenProblem};

const CONNECTIONS_MAX: usize = 16;
const DOOR: u64 = u64::MAX;
/// The block size clients should prefer.
const PREFERRED_BYTES: u32 = 4096;

/// A drive's server that listens.
#[derive(Debug)]
pub struct DriveServer {
    door: Listener,
    poller: Poller,
}

impl DriveServer {
    /// Listens at a unix socket. The socket of a server that is gone is replaced.
    ///
    /// # Errors
    /// The socket cannot be had; the message says what would be right.
    pub fn bind(socket: &Path) -> Result<Self, HostError> {
        let failed = |e: std::io::Error| ListenProblem::from_io(&e).at(socket.display());
        let door = Listener::unix(socket)?;
        let poller = Poller::new().map_err(failed)?;
        poller.add(door.fd(), DOOR).map_err(failed)?;
        Ok(Self { door, poller })
    }

    /// Serves a drive until the flag is set.
    pub fn serve(
        self,
        export: DriveExport<'_>,
        drive: &mut dyn TimedDrive,
        stop: &AtomicBool,
    ) -> DriveReport {
        let bytes = export.sectors * SECTOR_BYTES;
        let [head, tail] = export.kept_bytes;
        let mut service = Service {
            door: self.door,
            poller: self.poller,
            export: Export {
                name: export.name.to_owned(),
                description: export.description.to_owned(),
                bytes,
                preferred_bytes: PREFERRED_BYTES,
                read_only: false,
                fast_zero: false,
                buffered: false,
                volatile: export.volatile_cache,
                min_bytes: SECTOR_BYTES as u32,
            },
            kept: Kept::new(bytes, head, tail),
            clients: Vec::new(),
            commands: Vec::new(),
            free: Vec::new(),
            ended: Vec::new(),
            buffers: Buffers::default(),
            report: DriveReport::default(),
            pace: Pace::of_this_thread(),
        };
        let clock = Clock::start();
        while !stop.load(Ordering::Relaxed) {
            service.round(clock, drive);
        }
        service.report
    }
}

/// A command in the drive, of a client that may be gone.
#[derive(Debug)]
struct InDrive {
    client: usize,
    accepted: Accepted,
    op: Op,
}

#[derive(Debug)]
struct Service {
    door: Listener,
    poller: Poller,
    export: Export,
    kept: Kept,
    clients: Vec<Option<Client>>,
    commands: Vec<Option<InDrive>>,
    free: Vec<u32>,
    ended: Vec<u32>,
    buffers: Buffers,
    report: DriveReport,
    pace: Pace,
}

#[derive(Debug)]
struct Client {
    connection: Connection,
    came_at: Instant,
    in_drive: u32,
}

impl Service {
    fn round(&mut self, clock: Clock, drive: &mut dyn TimedDrive) {
        self.report.advance(clock, drive, &mut self.ended);
        for id in std::mem::take(&mut self.ended) {
            self.answer(id);
        }
        self.welcome(clock.now());
        self.take_commands(clock, drive);
        for client in self.clients.iter_mut().flatten() {
            client.connection.send(&mut self.buffers);
        }
        self.sweep();
        self.sleep(clock, drive.next_time());
    }

    /// Lets clients in. The door is asked in every round: that costs little beside the sleep. When all places are taken and
    /// one more comes, the one that has not chosen an export for the longest is let go, if it has had the time to.
    fn welcome(&mut self, now: Instant) {
        loop {
            let is_full = self.clients.iter().flatten().count() >= CONNECTIONS_MAX;
            let is_silent = |client: &Client| {
                let is_late = now.since(client.came_at) >= MAKES_ROOM_AFTER;
                is_late && client.connection.is_in_handshake() && client.in_drive == 0
            };
            let silent = self.clients.iter_mut().filter(|place| place.as_ref().is_some_and(is_silent));
            let oldest = silent.min_by_key(|place| place.as_ref().map(|client| client.came_at));
            if is_full && oldest.is_none() {
                return;
            }
            let Ok(Some(socket)) = self.door.accept() else { return };
            if let (true, Some(oldest)) = (is_full, oldest) {
                *oldest = None;
            }
            let place = self.clients.iter().position(Option::is_none).unwrap_or_else(|| {
                self.clients.push(None);
                self.clients.len() - 1
            });
            let connection = Connection::new(socket);
            if self.poller.add(connection.fd(), place as u64).is_ok() {
                self.clients[place] = Some(Client { connection, came_at: now, in_drive: 0 });
            }
        }
    }

    fn take_commands(&mut self, clock: Clock, drive: &mut dyn TimedDrive) {
        // So few clients have no common bound.
        self.buffers.begin_round(0);
        for place in 0..self.clients.len() {
            while let Some(client) = &mut self.clients[place] {
                let Some(accepted) = client.connection.next(&self.export, &mut self.buffers) else { break };
                let (op, range, fua) = match accepted.task {
                    Task::Array { op, range, fua } => (op, range, fua),
                    Task::BlockStatus { bytes, .. } => {
                        let extents = status::extents(bytes);
                        let head = Head::block_status(accepted.cookie, BASE_ALLOCATION_ID, extents.len() / 8);
                        client.connection.reply(head, extents, None, 0);
                        continue;
                    }
                    Task::Disconnect => {
                        client.connection.drain();
                        continue;
                    }
                };
                client.in_drive += 1;
                let id = self.free.pop().unwrap_or_else(|| {
                    self.commands.push(None);
                    self.commands.len() as u32 - 1
                });
                self.commands[id as usize] = Some(InDrive { client: place, accepted, op });
                self.report.commands += 1;
                drive.submit(clock.now(), DriveCommand { id, op, range, fua });
            }
        }
    }

    fn answer(&mut self, id: u32) {
        let InDrive { client, accepted, op } =
            self.commands[id as usize].take().expect("a command of the drive ends once");
        self.free.push(id);
        let Accepted { cookie, offset, bytes, buffer, .. } = accepted;
        let held = if buffer.is_some() { u64::from(bytes) } else { 0 };
        let slice = buffer.as_ref().map(|buffer| {
            // SAFETY: the buffer is at least `bytes` long and nobody else's until it is given away below.
            unsafe { std::slice::from_raw_parts_mut(buffer.base(), bytes as usize) }
        });
        match (op, slice) {
            (Op::Read, Some(slice)) => self.kept.read(offset, slice),
            (Op::Write, Some(slice)) => self.kept.write(offset, slice),
            (Op::WriteZeroes | Op::Discard, _) => self.kept.forget(offset, u64::from(bytes)),
            _ => {}
        }
        let client = self.clients[client].as_mut().expect("a client stays while the drive has its commands");
        client.in_drive -= 1;
        let head = if op == Op::Read && client.connection.agreed().structured {
            Head::offset_data(cookie, offset, bytes)
        } else {
            Head::simple(cookie, None)
        };
        let body = match buffer {
            Some(buffer) if op == Op::Read => Some((buffer, bytes as usize)),
            Some(buffer) => {
                self.buffers.give(buffer);
                None
            }
            None => None,
        };
        client.connection.reply(head, Vec::new(), body, held);
    }

    fn sweep(&mut self) {
        for place in &mut self.clients {
            if place.as_ref().is_some_and(|c| c.connection.is_over() && c.in_drive == 0) {
                *place = None;
            }
        }
    }

    /// Waits for news of sockets, or until it is time.
    fn sleep(&mut self, clock: Clock, due: Option<Instant>) {
        self.pace.wait(clock, due, &[self.poller.fd()]);
        let clients = &mut self.clients;
        self.poller.wait(Nanos(0), |news| {
            if let Some(Some(client)) = clients.get_mut(news.token as usize) {
                client.connection.tell(news);
            }
        });
    }
}
