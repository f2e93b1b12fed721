//! The seam between the virtual loop and bytes.

use stripewise_engine::io::{ActionQueue, Compute, MemberIo};

/// What holds the bytes of members and buffers, if anything does.
///
/// # Contract
/// Called when the engine asks for an action, before its time is charged: the engine orders what overlaps, so
/// the bytes may move at once.
pub trait Data {
    /// Moves the bytes of a member I/O; `out` holds its segments.
    fn io(&mut self, io: &MemberIo, out: &ActionQueue);
    /// Computes; `out` holds the operands.
    fn compute(&mut self, compute: &Compute, out: &ActionQueue);
}

/// Buffers that have a length and no bytes: only time is simulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phantom;

impl Data for Phantom {
    fn io(&mut self, _io: &MemberIo, _out: &ActionQueue) {}
    fn compute(&mut self, _compute: &Compute, _out: &ActionQueue) {}
}

impl<D: Data> Data for &mut D {
    fn io(&mut self, io: &MemberIo, out: &ActionQueue) {
        (**self).io(io, out);
    }
    fn compute(&mut self, compute: &Compute, out: &ActionQueue) {
        (**self).compute(compute, out);
    }
}
