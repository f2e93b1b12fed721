//! The wall clock in the engine's terms.

use stripewise_engine::units::Instant;

/// Counts nanoseconds from the array's opening; all shards of an array share the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    pub(crate) fn now(self) -> Instant {
        Instant(self.start.elapsed().as_nanos() as u64)
    }
}
