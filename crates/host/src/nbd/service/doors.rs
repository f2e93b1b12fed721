//! Where clients come in.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use stripewise_engine::units::Instant;

use super::super::connection::{Connection, MAKES_ROOM_AFTER};
use super::super::control::ControlConnection;
use super::super::socket::Listener;
use super::super::task::stream_of;
use super::near::Ease;
use super::shared::Dealt;
use super::{Client, Link, Service, token};
use crate::fuse::Session;
use crate::shard::Context;

/// Clients connected at once; more wait in the listening socket's queue, unless one has chosen no export yet: the one that
/// came first of these is let go.
const CONNECTIONS_MAX: usize = 128;
/// Clients of the control socket at once. When one more comes, the one that has asked for nothing the longest is let go.
const CONTROLS_MAX: usize = 128;

/// Where clients come in.
#[derive(Debug)]
pub(crate) struct Doors {
    pub(crate) clients: Vec<Listener>,
    pub(crate) control: Option<Listener>,
    /// The mount, which is there from the start.
    pub(crate) mount: Option<Session>,
}

impl Service<'_> {
    /// Lets clients in: at the doors, and those another shard dealt to this one.
    pub(super) fn welcome(&mut self, now: Instant, context: &Context<'_>) {
        let own = self.shard.index() as usize;
        if self.drain_until.is_some() {
            return;
        }
        if self.shared.dealt.len() > 1 {
            for dealt in self.shared.take_dealt(own) {
                self.admit_dealt(dealt, now);
            }
        }
        if !std::mem::take(&mut self.guests.is_knocking) {
            return;
        }
        while let Some(dealt) = self.next_at_door(now) {
            let shard = self.guests.next_shard % self.shared.dealt.len();
            self.guests.next_shard += 1;
            if shard == own {
                self.admit_dealt(dealt, now);
            } else {
                self.shared.dealt[shard].lock().unwrap_or_else(PoisonError::into_inner).push(dealt);
                context.mailboxes[shard].wake_if_asleep();
            }
        }
        self.welcome_controls();
    }

    /// The next client at a door. While all places are taken, or descriptors, clients wait and the doors are
    /// looked at in every round; but one that has chosen no export yet makes room for the next.
    fn next_at_door(&mut self, now: Instant) -> Option<Dealt> {
        let is_full = self.shared.connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX;
        let silent = if is_full { self.longest_silent(now) } else { None };
        if is_full && silent.is_none() {
            self.guests.is_knocking = true;
            return None;
        }
        for door in &self.guests.doors.as_ref()?.clients {
            match door.accept() {
                Ok(Some(socket)) => {
                    if let Some(place) = silent {
                        self.guests.clients[place] = None;
                        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
                    }
                    return Some((socket, self.count_client()));
                }
                Ok(None) => {}
                Err(_) => self.guests.is_knocking = true,
            }
        }
        None
    }

    /// The client of this shard that has not chosen an export for the longest, and has had the time to.
    fn longest_silent(&self, now: Instant) -> Option<usize> {
        let clients = self.guests.clients.iter().enumerate();
        let silent = clients.filter_map(|(place, client)| client.as_ref().map(|client| (place, client)));
        let silent = silent.filter(|(_, client)| client.link.is_in_handshake() && client.in_engine == 0);
        let silent = silent.filter(|(_, client)| now.since(client.came_at) >= MAKES_ROOM_AFTER);
        silent.min_by_key(|(_, client)| client.number).map(|(place, _)| place)
    }

    /// Counts a client that has come; answers how many came before.
    pub(super) fn count_client(&self) -> u32 {
        self.shared.connections.fetch_add(1, Ordering::Relaxed);
        self.shared.connections_total.fetch_add(1, Ordering::Relaxed) as u32
    }

    fn admit_dealt(&mut self, (socket, number): Dealt, now: Instant) {
        self.admit(Link::Nbd(Box::new(Connection::new(socket))), number, now);
    }

    pub(super) fn admit(&mut self, link: Link, number: u32, now: Instant) {
        let place = self.guests.clients.iter().position(Option::is_none).unwrap_or_else(|| {
            self.guests.clients.push(None);
            self.guests.clients.len() - 1
        });
        if self.guests.poller.add(link.fd(), token::new(token::CLIENT, place)).is_ok() {
            self.guests.clients[place] = Some(Client {
                link,
                number,
                in_engine: 0,
                came_at: now,
                has_asked: false,
                is_near: false,
                ease: Ease::default(),
                owes_since: None,
            });
            self.shard.open_stream(stream_of(place));
        } else {
            self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn welcome_controls(&mut self) {
        let Some(door) = self.guests.doors.as_ref().and_then(|d| d.control.as_ref()) else { return };
        loop {
            let socket = match door.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(_) => {
                    self.guests.is_knocking = true;
                    return;
                }
            };
            if self.guests.controls.iter().flatten().count() >= CONTROLS_MAX {
                let silent = self
                    .guests
                    .controls
                    .iter_mut()
                    .filter(|control| control.as_ref().is_some_and(|control| !control.is_waiting()));
                if let Some(silent) = silent.min_by_key(|control| control.as_ref().map(|c| c.heard)) {
                    *silent = None;
                }
            }
            let place = self.guests.controls.iter().position(Option::is_none).unwrap_or_else(|| {
                self.guests.controls.push(None);
                self.guests.controls.len() - 1
            });
            self.guests.heard += 1;
            let control = ControlConnection::new(socket, self.guests.heard);
            if self.guests.poller.add(control.fd(), token::new(token::CONTROL, place)).is_ok() {
                self.guests.controls[place] = Some(control);
            }
        }
    }
}
