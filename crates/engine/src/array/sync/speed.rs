//! How fast the array works by itself: full speed when idle, the least speed under load, never above the greatest.
//!
//! As md (md.c, `md_do_sync`): after every window of sectors the average speed is compared with the bounds, and if it
//! is above the greatest, or above the least while others use the members, the work pauses. Since 4.1 ("allow resync to go faster
//! when there is competing IO") md only waits, in the second case, until what it has under way has ended.

use std::collections::VecDeque;

use crate::array::core::Core;
use crate::policy::{IdleTest, SyncPolicy};
use crate::units::Instant;

/// md's `sync_speed_min` and `sync_speed_max`, in KiB/s of each member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeedLimits {
    /// Not slowed below this.
    pub min_kib: u32,
    /// Never faster.
    pub max_kib: u32,
}

impl SpeedLimits {
    /// md's defaults.
    pub const DEFAULT: Self = Self { min_kib: 1000, max_kib: 200_000 };
}

/// The brake.
#[derive(Debug)]
pub(crate) struct Speed {
    pub(crate) limits: SpeedLimits,
    /// Sectors done at past times, oldest first.
    marks: VecDeque<(Instant, u64)>,
    /// Sectors begun when the speed was last looked at.
    looked_at: u64,
    pause: Option<Instant>,
    /// What is under way must end first.
    is_draining: bool,
    /// What was counted of each member when it was last found busy: others' sectors, less its own under way.
    counted: Vec<i64>,
}

impl Speed {
    pub(crate) fn new(limits: SpeedLimits) -> Self {
        Self {
            limits,
            marks: VecDeque::new(),
            looked_at: 0,
            pause: None,
            is_draining: false,
            counted: Vec::new(),
        }
    }

    /// Begins anew.
    pub(crate) fn start(&mut self, core: &Core) {
        self.marks.clear();
        self.marks.push_back((core.now, 0));
        self.looked_at = 0;
        self.pause = None;
        self.is_draining = false;
        self.counted.clear();
        self.counted.extend(core.foreground_sectors.iter().map(|&sectors| sectors as i64));
    }

    /// Average of the last marks in KiB/s, as md computes it: a second more than has passed, so that it starts low.
    pub(crate) fn kib_per_second(&self, now: Instant, done: u64) -> u64 {
        let Some(&(at, sectors)) = self.marks.front() else { return 0 };
        done.saturating_sub(sectors) / 2 / (now.since(at).0 / 1_000_000_000 + 1) + 1
    }

    /// Requests wait for their turn: it pauses for a while, if it is to.
    pub(crate) fn wait_for_others(&mut self, core: &Core, done: u64) {
        let policy = &core.policy.sync;
        let pause = match policy.waiters_pause {
            Some(_) if self.kib_per_second(core.now, done) < u64::from(self.limits.min_kib) => return,
            Some(pause) => pause,
            None => policy.full_rest,
        };
        self.pause = Some(core.now + pause);
    }

    /// When the pause ends.
    pub(crate) const fn paused_until(&self) -> Option<Instant> {
        self.pause
    }

    /// Whether the next sectors may begin; `begun` and `done` are counted from the start. `own_counts`: what it has under way is
    /// taken from what others did.
    pub(crate) fn may_begin(&mut self, core: &Core, begun: u64, done: u64, own_counts: bool) -> bool {
        let policy = &core.policy.sync;
        if self.pause.is_some_and(|until| core.now < until) {
            return false;
        }
        if self.is_draining && begun > done {
            return false;
        }
        self.is_draining = false;
        let was_paused = self.pause.take().is_some();
        if !was_paused && begun - self.looked_at < policy.window_sectors {
            return true;
        }
        self.looked_at = begun;
        self.mark(policy, core.now, done);
        let speed = self.kib_per_second(core.now, done);
        let is_idle = self.is_idle(core, policy.idle, own_counts);
        if speed <= u64::from(self.limits.min_kib) {
            return true;
        }
        let is_too_fast = speed > u64::from(self.limits.max_kib);
        if is_too_fast || !is_idle && !policy.drains_beside_others {
            self.pause = Some(core.now + policy.pause);
            return false;
        }
        self.is_draining = !is_idle && begun > done;
        !self.is_draining
    }

    fn mark(&mut self, policy: &SyncPolicy, now: Instant, done: u64) {
        if self.marks.back().is_some_and(|(at, _)| now.since(*at) >= policy.mark_interval) {
            self.marks.push_back((now, done));
            if self.marks.len() > policy.marks {
                self.marks.pop_front();
            }
        }
    }

    /// Whether others left all members alone since they were last found busy.
    fn is_idle(&mut self, core: &Core, test: IdleTest, own_counts: bool) -> bool {
        let mut is_idle = true;
        let counts = core.foreground_sectors.iter().zip(&core.own_sectors);
        for (seen, (&others, &own)) in self.counted.iter_mut().zip(counts) {
            let now = others as i64 - if own_counts { own as i64 } else { 0 };
            let difference = now - *seen;
            if difference > test.sectors || test.either_way && difference < -test.sectors {
                *seen = now;
                is_idle = false;
            }
        }
        is_idle
    }
}
