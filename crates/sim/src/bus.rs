//! A controller's bus: bandwidth shared by its drives, first come first served.
//!
//! A command holds the bus for its cost and its bytes; the link of its drive limits it too. A reservation
//! may name an arrival in the past (a transfer that began while the drive still read): the time since the
//! end of the last reservation was idle, so it can still be given away.

use crate::models::ControllerModel;

/// The bus and its counters.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    byte_ps: u64,
    command_ns: u64,
    free_ns: u64,
    busy_ns: u64,
    bytes: u64,
}

impl Bus {
    pub(crate) fn new(model: &ControllerModel) -> Self {
        Self { byte_ps: model.byte_ps, command_ns: model.command_ns, free_ns: 0, busy_ns: 0, bytes: 0 }
    }

    /// Nanoseconds a command of so many bytes holds the bus.
    pub(crate) const fn holding_ns(&self, bytes: u64) -> u64 {
        self.command_ns + bytes * self.byte_ps / 1000
    }

    /// Moves a command's bytes as soon after `arrival_ns` as bus and link allow; returns the end.
    pub(crate) fn transfer(&mut self, arrival_ns: u64, bytes: u64, link: &mut Link) -> u64 {
        let start = arrival_ns.max(link.free_ns);
        let holding = self.holding_ns(bytes);
        let bus_end = self.free_ns.max(start) + holding;
        self.free_ns = bus_end;
        self.busy_ns += holding;
        self.bytes += bytes;
        let link_end = (bus_end - holding).max(start) + bytes * link.byte_ps / 1000;
        link.free_ns = link_end;
        bus_end.max(link_end)
    }

    pub(crate) const fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The link between one drive and its controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) byte_ps: u64,
    pub(crate) free_ns: u64,
}

impl Link {
    pub(crate) const fn new(byte_ps: u64) -> Self {
        Self { byte_ps, free_ns: 0 }
    }
}
