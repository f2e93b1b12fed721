//! The arm: where it is, what it does, and when it could be elsewhere.

use super::geometry::{Geometry, Place};
use super::read_cache::ReadCache;
use super::seek::SeekCurve;
use crate::models::HddModel;
use stripewise_engine::geometry::Divisor;

/// What the arm is committed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Nothing: it rests, or reads ahead.
    None,
    /// A read command.
    Read(u8),
    /// A write past the cache.
    WriteFua(u8),
    /// Dirty data.
    Destage { start: u64, end: u64 },
}

/// Times are rounded to nanoseconds on either side of a comparison; a target missed by less than this has
/// not been missed.
const ROUNDING_NS: u64 = 64;

#[derive(Debug)]
pub(super) struct Arm {
    work: Work,
    last_was_command: bool,
    cylinder: u32,
    head: u16,
    /// The last sector it was at.
    sector: u64,
    revolution_ns: Divisor,
    /// Angle at time zero.
    phase_ns: u64,
    head_switch_ns: u64,
    seek_read: SeekCurve,
    seek_write: SeekCurve,
    pub(super) busy_ns: u64,
}

impl Arm {
    pub(super) fn new(model: &HddModel, geometry: &Geometry, random: u64) -> Self {
        let cylinders = Geometry::cylinders(model);
        let sector = ((u128::from(random >> 32) * u128::from(model.capacity_sectors - 1)) >> 32) as u64;
        let place = geometry.place(sector);
        Self {
            work: Work::None,
            last_was_command: true,
            cylinder: place.cylinder,
            head: place.head,
            sector,
            revolution_ns: Divisor::new(model.revolution_ns),
            phase_ns: ((random & u64::from(u32::MAX)) * model.revolution_ns) >> 32,
            head_switch_ns: model.head_switch_ns,
            seek_read: SeekCurve::new(model.seek_read, cylinders),
            seek_write: SeekCurve::new(model.seek_write, cylinders),
            busy_ns: 0,
        }
    }

    pub(super) const fn work(&self) -> Work {
        self.work
    }

    pub(super) fn is_free(&self) -> bool {
        self.work == Work::None
    }

    pub(super) const fn last_was_command(&self) -> bool {
        self.last_was_command
    }

    pub(super) const fn sector(&self) -> u64 {
        self.sector
    }

    pub(super) const fn destaging_sectors(&self) -> u64 {
        match self.work {
            Work::Destage { start, end } => end - start,
            _ => 0,
        }
    }

    /// When the head, leaving at `from_ns`, is at a place: seek or head switch, then rotation.
    #[inline]
    pub(super) fn access_ns(&self, from_ns: u64, place: Place, write: bool) -> u64 {
        let distance = place.cylinder.abs_diff(self.cylinder);
        let moved_ns = if distance > 0 {
            let curve = if write { &self.seek_write } else { &self.seek_read };
            curve.ns(distance)
        } else if place.head == self.head {
            0
        } else {
            self.head_switch_ns
        };
        self.rotated_ns(from_ns + moved_ns, place)
    }

    /// When a place comes under the head that has been on its track since `from_ns`.
    #[inline]
    pub(super) fn rotated_ns(&self, from_ns: u64, place: Place) -> u64 {
        let revolution_ns = self.revolution_ns.get();
        let (_, angle_ns) = self.revolution_ns.div_rem(from_ns + self.phase_ns);
        let mut wait_ns = u64::from(place.angle_ns) + revolution_ns - angle_ns;
        if wait_ns >= revolution_ns {
            wait_ns -= revolution_ns;
        }
        if wait_ns + ROUNDING_NS >= revolution_ns {
            wait_ns = 0;
        }
        from_ns + wait_ns
    }

    /// Commits the arm until `end_ns`, when it has passed the last sector before `end`. Where a read leaves
    /// it follows from its run ([`Self::follow`]).
    pub(super) fn begin(&mut self, work: Work, now_ns: u64, end_ns: u64, end: u64, geometry: &Geometry) {
        self.last_was_command = !matches!(work, Work::Destage { .. });
        self.work = work;
        self.busy_ns += end_ns - now_ns;
        if !matches!(work, Work::Read(_)) {
            self.put(end - 1, geometry);
        }
    }

    pub(super) fn finish(&mut self) -> Work {
        std::mem::replace(&mut self.work, Work::None)
    }

    /// Brings the arm to where read-ahead has taken it by now.
    pub(super) fn follow(&mut self, reads: &ReadCache, geometry: &Geometry) {
        if let Some(sector) = reads.head_sector() {
            self.put(sector, geometry);
        }
    }

    fn put(&mut self, sector: u64, geometry: &Geometry) {
        let place = geometry.place(sector);
        self.sector = sector;
        self.cylinder = place.cylinder;
        self.head = place.head;
    }
}
