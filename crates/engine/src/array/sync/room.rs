//! How much of each member the array's own work has under way at once.
//!
//! On levels with parity that is a share of the stripe cache, as in md, whose own work takes entries as requests do: when it
//! finds none free it waits until the active ones are few enough, and then [rests](crate::policy::SyncPolicy::full_rest). On
//! levels of copies it is a number of sectors, without a rest.

use super::job::{JOB_SECTORS_MAX, JOBS_MAX};
use crate::geometry::{Geometry, Shape};
use crate::policy::Policy;
use crate::units::{Instant, Nanos, PAGE_SECTORS};

/// The room.
#[derive(Debug)]
pub(crate) struct Room {
    /// Sectors of each member under way at most.
    sectors: u64,
    /// It was full: nothing begins until no more than this is under way.
    wake_sectors: u64,
    /// How long it rests then.
    rest: Nanos,
    is_full: bool,
    rests_until: Option<Instant>,
}

impl Room {
    /// The room on an array with so many stripe-cache entries.
    pub(crate) fn new(geometry: &Geometry, policy: &Policy, entries: u32) -> Self {
        let sync = &policy.sync;
        let (sectors, wake_sectors, rest) = match geometry.shape() {
            Shape::Parity(_) => {
                let rows = u64::from(entries) * PAGE_SECTORS;
                let sectors = (rows * u64::from(sync.cache_quarters) / 4).min(sync.rows_sectors_max);
                (sectors, sectors * u64::from(policy.cache_wake_quarters) / 4, sync.full_rest)
            }
            Shape::Raid10(_) => (sync.raid10_sectors, u64::MAX, Nanos(0)),
            _ => (sync.copies_sectors, u64::MAX, Nanos(0)),
        };
        Self { sectors, wake_sectors, rest, is_full: false, rests_until: None }
    }

    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        self.is_full = false;
        self.rests_until = None;
    }

    /// When it has rested.
    pub(crate) const fn rests_until(&self) -> Option<Instant> {
        self.rests_until
    }

    /// Sectors of a job at most: one that takes more than all of the room would begin anew without a rest.
    pub(crate) fn job_sectors(&self) -> u64 {
        let pages = self.sectors - self.sectors % PAGE_SECTORS;
        pages.clamp(PAGE_SECTORS, JOB_SECTORS_MAX)
    }

    /// Whether another job may begin while so many, with so many sectors, are under way.
    pub(crate) fn may_begin(&mut self, now: Instant, jobs: usize, sectors: u64) -> bool {
        if self.is_full {
            if sectors > self.wake_sectors {
                return false;
            }
            self.is_full = false;
            if self.rest > Nanos(0) {
                self.rests_until = Some(now + self.rest);
            }
        }
        if self.rests_until.is_some_and(|until| now < until) {
            return false;
        }
        self.rests_until = None;
        self.is_full = sectors >= self.sectors;
        jobs == 0 || jobs < JOBS_MAX && !self.is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::GeometrySpec;
    use crate::level::{Layout, Level};

    fn room(sectors: u64, wake_sectors: u64, rest: Nanos) -> Room {
        Room { sectors, wake_sectors, rest, is_full: false, rests_until: None }
    }

    #[test]
    fn a_full_room_wakes_at_its_share_and_rests_first() {
        let mut room = room(2048, 1536, Nanos::from_millis(6));
        assert!(room.may_begin(Instant(0), 7, 1792));
        assert!(!room.may_begin(Instant(0), 8, 2048));
        assert!(!room.may_begin(Instant(1), 7, 1792), "not before the share is reached");
        assert!(!room.may_begin(Instant(2), 6, 1536));
        assert_eq!(room.rests_until(), Some(Instant(2) + Nanos::from_millis(6)));
        assert!(!room.may_begin(Instant(3), 4, 1024), "it rests");
        assert!(room.may_begin(Instant(6_000_002), 4, 1024));
        assert!(room.may_begin(Instant(6_000_002), 7, 1792), "and fills the room again");
    }

    #[test]
    fn as_many_jobs_as_there_can_be_are_no_full_room() {
        let mut room = room(8192, 6144, Nanos::from_millis(6));
        assert!(!room.may_begin(Instant(0), JOBS_MAX, 4096));
        assert!(room.may_begin(Instant(1), JOBS_MAX - 1, 4088), "without a rest");
    }

    /// A stripe cache of 32 entries, which one job fills.
    #[test]
    fn a_room_that_one_job_fills_rests_too() {
        let mut room = room(256, 192, Nanos::from_millis(6));
        assert!(room.may_begin(Instant(0), 0, 0));
        assert!(!room.may_begin(Instant(0), 1, 256));
        assert!(!room.may_begin(Instant(2), 0, 0), "it was full");
        assert_eq!(room.rests_until(), Some(Instant(2) + Nanos::from_millis(6)));
        assert!(room.may_begin(Instant(6_000_002), 0, 0));
    }

    #[test]
    fn a_job_is_no_larger_than_the_room() {
        let of = |sectors| room(sectors, 0, Nanos(0)).job_sectors();
        assert_eq!([8, 102, 136, 256, 2048].map(of), [8, 96, 136, 256, 256]);
        assert_eq!(of(6), 8, "a page is the least there is");
    }

    #[test]
    fn copies_need_no_more_than_room() {
        let mut room = room(4096, u64::MAX, Nanos(0));
        assert!(!room.may_begin(Instant(0), 16, 4096));
        assert!(room.may_begin(Instant(0), 15, 3840));
        assert_eq!(room.rests_until(), None);
    }

    /// md's `RESYNC_DEPTH`s, in sectors.
    #[test]
    fn raid10_has_a_window_of_its_own() {
        let sectors = |level| {
            let spec = GeometrySpec {
                level,
                layout: Layout::default_of(level),
                chunk_sectors: if level == Level::Raid1 { 0 } else { 128 },
                member_sectors: vec![1 << 20; 4],
            };
            Room::new(&Geometry::new(&spec).unwrap(), &Policy::linux_6_1(), 256).sectors
        };
        assert_eq!((sectors(Level::Raid1), sectors(Level::Raid10)), (2 << 11, 32 << 11));
    }

    #[test]
    fn one_job_has_room_always() {
        assert!(room(8, 0, Nanos(0)).may_begin(Instant(0), 0, 0));
    }
}
