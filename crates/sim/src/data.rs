//! The seam between the virtual loop and bytes.

use stripewise_engine::io::{ActionQueue, Compute, IoResult, MemberIo, Request, Verdict};

/// What holds the bytes of members and buffers, if anything does.
///
/// # Contract
/// Called when the engine asks for an action, before its time is charged: the engine orders what overlaps, so
/// the bytes may move at once.
pub trait Data {
    /// Whether it looks at what the actions name.
    const HAS_BYTES: bool = true;
    /// A request is about to reach the engine: its buffer is made, and filled if it writes.
    fn begin(&mut self, _request: &Request) {}
    /// A request has ended: its buffer is done with, and holds what was read.
    fn end(&mut self, _request: &Request, _result: IoResult) {}
    /// Moves the bytes of a member I/O; `out` holds its segments.
    fn io(&mut self, io: &MemberIo, out: &ActionQueue);
    /// Computes; `out` holds the operands. Answers what a comparison found.
    fn compute(&mut self, compute: &Compute, out: &ActionQueue) -> Verdict;
}

/// Buffers that have a length and no bytes: only time is simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phantom;

impl Data for Phantom {
    const HAS_BYTES: bool = false;
    fn io(&mut self, _io: &MemberIo, _out: &ActionQueue) {}
    fn compute(&mut self, _compute: &Compute, _out: &ActionQueue) -> Verdict {
        Verdict::Consistent
    }
}

impl<D: Data> Data for &mut D {
    const HAS_BYTES: bool = D::HAS_BYTES;
    fn begin(&mut self, request: &Request) {
        (**self).begin(request);
    }
    fn end(&mut self, request: &Request, result: IoResult) {
        (**self).end(request, result);
    }
    fn io(&mut self, io: &MemberIo, out: &ActionQueue) {
        (**self).io(io, out);
    }
    fn compute(&mut self, compute: &Compute, out: &ActionQueue) -> Verdict {
        (**self).compute(compute, out)
    }
}
