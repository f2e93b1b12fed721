//! Those who are told of every request that was carried out.

use stripewise_engine::io::Op;
use stripewise_engine::units::{Instant, Nanos, SectorRange};

/// A request of a client that was carried out and is about to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// When it had arrived, its bytes included; counted from the array's opening.
    pub arrived: Instant,
    /// From then until its answer.
    pub latency: Nanos,
    /// What was asked.
    pub op: Op,
    /// Where; empty for a flush.
    pub range: SectorRange,
    /// Whether it was to be durable before its answer.
    pub fua: bool,
    /// The client's number, from 0 in the order in which clients came.
    pub stream: u32,
    /// Whether it was carried out without an error.
    pub is_ok: bool,
}

/// Told of every request of every client that reached the array, in the order of their answers.
///
/// # Contract
/// It is called on the threads that serve: what it takes, requests wait for. Requests refused before they reached the array
/// (out of range, malformed) are not told of, nor are questions about what a range holds.
pub trait Observer: Send + Sync {
    /// Takes note of a request.
    fn observe(&self, observed: &Observed);
}
