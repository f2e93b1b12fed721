//! What a run did.

use crate::block::MemberStats;
use stripewise_engine::units::Instant;

/// A member's part in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberReport {
    /// What went through its queue.
    pub stats: MemberStats,
    /// Writes of what the array keeps beside its data, which are among those: superblocks and bitmap.
    pub metadata_writes: u64,
    /// Their sectors.
    pub metadata_sectors: u64,
    /// Share of the time its drive's mechanics were at work for a command or dirty data.
    pub busy_share: f64,
}

/// What a run did. All of it is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct SimReport {
    /// Hash over every event, command and completion.
    pub trace_hash: u64,
    /// Virtual time at the end.
    pub end: Instant,
    /// Requests completed.
    pub requests: u64,
    /// I/Os the array did to its members.
    pub member_ios: u64,
    /// Events simulated.
    pub events: u64,
    /// Members by slot.
    pub members: Vec<MemberReport>,
    /// Share of the time each controller's bus was taken.
    pub bus_busy_share: Vec<f64>,
    /// Bytes each controller's bus moved.
    pub bus_bytes: Vec<u64>,
    /// Share of the time each bus that controllers share was taken.
    pub shared_bus_busy_share: Vec<f64>,
    /// Bytes each of those moved.
    pub shared_bus_bytes: Vec<u64>,
    /// Share of the time the array's thread computed parity, or data from it.
    pub parity_busy_share: f64,
    /// Share of the time of all cores together.
    pub cpu_busy_share: f64,
}
