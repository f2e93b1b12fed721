//! Flushes of one member in one shard: one at a time, and no failure lost.
//!
//! Linux tells a failed write-back to each open file once: of two `fsync` calls on one descriptor at the same
//! time, one may fail and the other succeed although it covers the lost write. So each shard flushes through
//! a descriptor of its own, one call at a time. Flushes that come meanwhile wait and share the next call,
//! which begins after they came and so covers all they must; after a failure none succeeds any more.

use stripewise_engine::io::{IoError, IoResult};

/// What is to be done about a flush that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Call the system for it.
    Call,
    /// It waits.
    Wait,
    /// It fails, as one before has.
    Fail(IoError),
}

/// The flushes of a member; each is known by a number.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    is_called: bool,
    /// Covered by the call under way, besides the one it was made for.
    sharing: Vec<u32>,
    waiting: Vec<u32>,
    failed: Option<IoError>,
}

impl Flushes {
    /// Takes a flush.
    pub(crate) fn came(&mut self, flush: u32) -> Turn {
        if let Some(error) = self.failed {
            return Turn::Fail(error);
        }
        if self.is_called {
            self.waiting.push(flush);
            return Turn::Wait;
        }
        self.is_called = true;
        Turn::Call
    }

    /// The call has ended: `answered` gets the flushes it answers besides the one it was made for; answers
    /// the one to call for next.
    pub(crate) fn called(&mut self, result: IoResult, answered: &mut Vec<u32>) -> Option<u32> {
        answered.append(&mut self.sharing);
        if let Err(error) = result {
            self.failed = Some(error);
            answered.append(&mut self.waiting);
        }
        std::mem::swap(&mut self.sharing, &mut self.waiting);
        let next = self.sharing.pop();
        self.is_called = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_that_come_during_a_call_share_the_next_one() {
        let mut flushes = Flushes::default();
        let mut answered = Vec::new();
        assert_eq!(flushes.came(1), Turn::Call);
        assert_eq!([flushes.came(2), flushes.came(3), flushes.came(4)], [Turn::Wait; 3]);
        assert_eq!(flushes.called(Ok(()), &mut answered), Some(4));
        assert_eq!(answered, [] as [u32; 0], "the first call began before they came");
        assert_eq!(flushes.came(5), Turn::Wait);
        assert_eq!(flushes.called(Ok(()), &mut answered), Some(5));
        assert_eq!(std::mem::take(&mut answered), [2, 3]);
        assert_eq!(flushes.called(Ok(()), &mut answered), None);
        assert_eq!(answered, [] as [u32; 0]);
        assert_eq!(flushes.came(6), Turn::Call);
    }

    #[test]
    fn a_failed_call_fails_those_that_wait_and_all_later_ones() {
        let mut flushes = Flushes::default();
        let mut answered = Vec::new();
        assert_eq!(flushes.came(1), Turn::Call);
        assert_eq!(flushes.came(2), Turn::Wait);
        assert_eq!(flushes.called(Err(IoError::Media), &mut answered), None);
        assert_eq!(answered, [2]);
        assert_eq!(flushes.came(3), Turn::Fail(IoError::Media));
    }
}
