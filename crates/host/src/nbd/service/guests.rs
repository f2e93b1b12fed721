//! The clients of a shard and where they come in: what stays while the array beneath is changed and opened anew.

use super::super::buffers::Buffers;
use super::super::change::Said;
use super::super::control::ControlConnection;
use super::super::poller::Poller;
use super::commands::answer;
use super::{Client, Doors, Whole, token};
use crate::error::HostError;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Guests {
    pub(super) doors: Option<Doors>,
    /// Somebody may be at a door.
    pub(super) is_knocking: bool,
    pub(super) next_shard: usize,
    pub(super) poller: Poller,
    pub(super) clients: Vec<Option<Client>>,
    /// The place that is asked first for requests.
    pub(super) first_turn: usize,
    pub(super) controls: Vec<Option<ControlConnection>>,
    /// How often a client of the control socket came or asked.
    pub(super) heard: u64,
    /// Requests by the engine's number for them.
    pub(super) wholes: Vec<Option<Whole>>,
    pub(super) free: Vec<u32>,
    pub(super) buffers: Buffers,
}

impl Guests {
    /// One shard of a server has the doors.
    ///
    /// # Errors
    /// The system has no poller.
    pub(crate) fn new(doors: Option<Doors>) -> Result<Self, HostError> {
        let failed = |e: std::io::Error| HostError::Wake { errno: e.raw_os_error().unwrap_or(libc::EMFILE) };
        let poller = Poller::new().map_err(failed)?;
        if let Some(doors) = &doors {
            for door in &doors.clients {
                poller.add(door.fd(), token::new(token::DOOR, 0)).map_err(failed)?;
            }
            if let Some(door) = &doors.control {
                poller.add(door.fd(), token::new(token::CONTROL_DOOR, 0)).map_err(failed)?;
            }
        }
        Ok(Self {
            doors,
            is_knocking: true,
            next_shard: 0,
            poller,
            clients: Vec::new(),
            first_turn: 0,
            controls: Vec::new(),
            heard: 0,
            wholes: Vec::new(),
            free: Vec::new(),
            buffers: Buffers::default(),
        })
    }

    /// The array has another size: who looked at a mounted file is told to look again.
    pub(crate) fn look_again(&self) {
        for client in self.clients.iter().flatten() {
            client.link.look_again();
        }
    }

    /// Answers the client of the control socket at this place, if it is still there.
    pub(crate) fn answer(&mut self, place: usize, said: &Said) {
        let (name, what) = match said {
            Said::Done(what) => ("done", what),
            Said::Refused(why) => ("error", why),
            Said::Failed(why) => ("failed", why),
        };
        if let Some(Some(control)) = self.controls.get_mut(place) {
            control.answer(&answer(name, what));
        }
    }
}
