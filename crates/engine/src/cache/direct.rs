//! Requests past the cache, and flushes: write back what is dirty in the range, then ask the array.

use super::frames::Holds;
use super::{Below, Cache, RequestKey, State, Step};
use crate::io::{ActionQueue, IoResult, Op};
use crate::units::PAGE_SECTORS;

impl Cache {
    /// Whether a write past the cache has taken the page.
    pub(super) fn is_barred(&self, page: u64) -> bool {
        self.barriers.iter().any(|&(first, end)| (first..end).contains(&page))
    }

    /// The dirty pages of a request's range are written back, or some could not be.
    pub(super) fn synced(&mut self, key: RequestKey, result: IoResult, out: &mut ActionQueue) {
        let state = self.state(key);
        state.result = result;
        let request = state.request;
        let is_copied = request.flags.buffered && request.op == Op::Write;
        if is_copied && !request.flags.fua {
            // Written through: the array has it, which is all that was promised.
            return self.flush_ended(key, Ok(()), out);
        }
        if request.op == Op::Flush || is_copied {
            if self.policy.flush_reaches_array {
                self.state(key).step = Step::Below;
                return self.ask(Below::Flush { request: key }, Op::Flush, request.range, request.flags);
            }
            return self.flush_ended(key, Ok(()), out);
        }
        if result.is_err() {
            return self.past_ended(key, result, out);
        }
        if request.op.is_write() {
            self.state(key).step = Step::Invalidate;
            return self.runnable.push_back(key);
        }
        self.go_past(key);
    }

    /// Drops the pages of a range; waits for those in use.
    pub(super) fn invalidate(&mut self, key: RequestKey) {
        let State { cursor, request, .. } = *self.state(key);
        let end = request.range.end().div_ceil(PAGE_SECTORS);
        let mut from = cursor;
        while let Some((page, frame)) = self.index.next_present(from, end) {
            let at = self.frames.get(frame);
            if at.holds != Holds::Clean || at.readers > 0 {
                self.state(key).cursor = page;
                return self.wait_for_page(frame, key);
            }
            self.index.remove(page);
            self.frames.release(frame);
            from = page + 1;
        }
        self.go_past(key);
    }

    fn go_past(&mut self, key: RequestKey) {
        let state = self.state(key);
        state.step = Step::Below;
        let request = state.request;
        self.ask(Below::Past { request: key, id: request.id }, request.op, request.range, request.flags);
    }

    /// A request past the cache has ended.
    pub(super) fn past_ended(&mut self, key: RequestKey, result: IoResult, out: &mut ActionQueue) {
        let State { request, .. } = *self.state(key);
        if request.op.is_write() {
            let taken = (request.range.start / PAGE_SECTORS, request.range.end().div_ceil(PAGE_SECTORS));
            let place = self.barriers.iter().position(|b| *b == taken).expect("a write holds its pages");
            self.barriers.swap_remove(place);
            self.runnable.append(&mut self.barrier_waiters);
        }
        self.complete(key, result, out);
    }

    /// The array was flushed for a request: it ends, with the error of a write-back it waited for or was not
    /// told of.
    pub(super) fn flush_ended(&mut self, key: RequestKey, result: IoResult, out: &mut ActionQueue) {
        let State { request, result: waited_for, .. } = *self.state(key);
        let untold = self.error_for(request.flags.stream);
        self.complete(key, result.and(waited_for).and(untold), out);
    }
}
