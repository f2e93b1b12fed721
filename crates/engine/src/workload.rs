//! The seam between a loop and what keeps it busy. Both loops, the real and the virtual one, drive a
//! [`Workload`]; the lab implements it in fio's vocabulary.

use crate::io::{IoResult, Request, RequestId};
use crate::units::Instant;

/// What a workload wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Start this request now. Its id is below [`Workload::in_flight_max`].
    Issue(Request),
    /// Nothing until a request completes.
    Wait,
    /// Nothing until then, or until a request completes.
    WaitUntil(Instant),
    /// Nothing ever again; requests in flight are still completed.
    Finished,
}

/// A source of requests.
///
/// # Contract
/// The loop calls [`next`](Self::next) until it answers anything but [`Next::Issue`], then again after each
/// completion or when the time named has come. An id is free for use again once its completion was told.
pub trait Workload {
    /// One more than the largest request id it uses.
    fn in_flight_max(&self) -> u32;
    /// The most bytes a request moves.
    fn request_bytes_max(&self) -> u64;
    /// Names the next request.
    fn next(&mut self, now: Instant) -> Next;
    /// Takes note that a request ended.
    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult);
}
