//! What becomes of an array when a caller's code panics in the middle of its work.
//!
//! Requests that are queued or under way name buffers that go while the panic unwinds. So the shard's ring is waited for
//! first, on the thread that it was made for, and the array takes nothing more: it can only be dropped.

use crate::array::Array;
use crate::error::HostError;
use crate::shard::Shard;

struct Guard<'a> {
    shard: &'a mut Shard,
    has_ended: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.shard.give_up();
        }
    }
}

impl Shard {
    /// Does something with the shard, which is given up if that panics.
    pub(crate) fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let mut guard = Guard { shard: self, has_ended: false };
        let result = work(guard.shard);
        guard.has_ended = true;
        result
    }
}

impl Array {
    /// Does something with the shards, which are used no more if it panics.
    pub(crate) fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        if std::mem::replace(&mut self.is_at_work, true) {
            return Err(HostError::Panicked);
        }
        let result = work(self);
        self.is_at_work = false;
        result
    }
}
