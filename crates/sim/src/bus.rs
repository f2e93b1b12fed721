//! A controller's bus: bandwidth shared by its drives, each at the first time it is free for it; and the bus that controllers
//! share, if there is one.
//!
//! A command holds the bus for its cost and its bytes; the link of its drive limits it too: a drive that waits for its link leaves
//! the bus to others. A reservation may name an arrival in the past (a transfer that began while the drive still read). Data pass a
//! shared bus while they pass the controller's, not after: the slower of the two decides.

use crate::models::{BusModel, ControllerModel};
use crate::reserved::Reserved;
use crate::rig::Rig;

/// The bus and its counters.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    byte_ps: u64,
    command_ns: u64,
    reserved: Reserved,
}

impl Bus {
    pub(crate) fn new(model: &ControllerModel) -> Self {
        Self::with(model.byte_ps, model.command_ns)
    }

    fn shared(model: &BusModel) -> Self {
        Self::with(model.byte_ps, model.command_ns)
    }

    fn with(byte_ps: u64, command_ns: u64) -> Self {
        Self { byte_ps, command_ns, reserved: Reserved::default() }
    }

    /// Nanoseconds a command of so many bytes holds the bus.
    pub(crate) const fn holding_ns(&self, bytes: u64) -> u64 {
        self.command_ns + bytes * self.byte_ps / 1000
    }

    /// Takes the bus for a command as soon after `start_ns` as it is free; returns begin and end.
    fn take(&mut self, now_ns: u64, start_ns: u64, bytes: u64) -> (u64, u64) {
        self.reserved.take(now_ns, start_ns, self.holding_ns(bytes), bytes)
    }

    /// How long it was held until then.
    pub(crate) fn busy_until_ns(&self, now_ns: u64) -> u64 {
        self.reserved.ns_until(now_ns)
    }

    /// Bytes that had passed it by then.
    pub(crate) fn bytes_until(&self, now_ns: u64) -> u64 {
        self.reserved.amount_until(now_ns)
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

    /// Nanoseconds so many bytes take.
    pub(crate) const fn ns(&self, bytes: u64) -> u64 {
        bytes * self.byte_ps / 1000
    }
}

/// The buses of a rig.
#[derive(Debug)]
pub(crate) struct Buses {
    controllers: Vec<Bus>,
    shared: Vec<Bus>,
    /// The shared bus of each controller.
    above: Vec<Option<usize>>,
}

impl Buses {
    pub(crate) fn new(rig: &Rig) -> Self {
        Self {
            controllers: rig.controllers.iter().map(|c| Bus::new(&c.model)).collect(),
            shared: rig.buses.iter().map(Bus::shared).collect(),
            above: rig.controllers.iter().map(|c| c.bus).collect(),
        }
    }

    /// What data of a controller's drives pass.
    pub(crate) fn path(&mut self, controller: usize) -> BusPath<'_> {
        let shared = self.above[controller].map(|bus| &mut self.shared[bus]);
        BusPath { controller: &mut self.controllers[controller], shared }
    }

    pub(crate) fn controllers(&self) -> &[Bus] {
        &self.controllers
    }

    pub(crate) fn shared(&self) -> &[Bus] {
        &self.shared
    }
}

/// What data of a drive pass: its controller's bus, and the one above it.
#[derive(Debug)]
pub(crate) struct BusPath<'a> {
    controller: &'a mut Bus,
    shared: Option<&'a mut Bus>,
}

impl<'a> BusPath<'a> {
    /// A bus that no other is above.
    pub(crate) const fn alone(controller: &'a mut Bus) -> Self {
        Self { controller, shared: None }
    }

    /// Nanoseconds a command of so many bytes takes when nothing is in its way.
    pub(crate) fn holding_ns(&self, bytes: u64) -> u64 {
        let shared_ns = self.shared.as_ref().map_or(0, |bus| bus.holding_ns(bytes));
        self.controller.holding_ns(bytes).max(shared_ns)
    }

    /// Moves a command's bytes as soon after `arrival_ns` as buses and link allow; returns the end.
    pub(crate) fn transfer(&mut self, now_ns: u64, arrival_ns: u64, bytes: u64, link: &mut Link) -> u64 {
        let start = arrival_ns.max(link.free_ns);
        let (mut begin, mut end) = self.controller.take(now_ns, start, bytes);
        if let Some(shared) = &mut self.shared {
            let passed = shared.take(now_ns, begin, bytes);
            begin = passed.0;
            end = end.max(passed.1);
        }
        let link_end = begin + link.ns(bytes);
        link.free_ns = link_end;
        end.max(link_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of a tenth of the bus: what one drive's link has not got to yet keeps no other drive waiting.
    #[test]
    fn a_drive_that_waits_for_its_link_leaves_the_bus_to_others() {
        let mut bus = Bus::with(1000, 0);
        let mut path = BusPath::alone(&mut bus);
        let [mut first, mut second] = [Link::new(10_000); 2];
        let of_first: Vec<u64> = (0..3).map(|_| path.transfer(0, 0, 100, &mut first)).collect();
        let of_second: Vec<u64> = (0..3).map(|_| path.transfer(0, 0, 100, &mut second)).collect();
        assert_eq!(of_first, [1000, 2000, 3000]);
        assert_eq!(of_second, [1100, 2100, 3100]);
        assert_eq!((bus.busy_until_ns(150), bus.bytes_until(150)), (150, 150));
        assert_eq!((bus.busy_until_ns(3100), bus.bytes_until(3100)), (600, 600));
    }
}
