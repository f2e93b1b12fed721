//! What a run covered.

/// What came to pass in a run, for reports of what was covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that were answered.
    pub requests: u64,
    /// Writes that members answered.
    pub member_writes: u64,
    /// Starts after power cuts, and after stops.
    pub restarts: u64,
    /// Resyncs that came to their end.
    pub resyncs: u64,
    /// Members, or replacements, that were filled.
    pub recovered: u64,
    /// Recoveries and resyncs that were cut short.
    pub interrupted: u64,
    /// Checks and repairs that came to their end.
    pub checks: u64,
    /// Runs of sectors rewritten after read errors.
    pub corrected: u64,
    /// Members that came back with what they held.
    pub re_added: u64,
    /// Bits flipped at rest, and found.
    pub flips: u64,
    /// Arrays that lost more than they survive, and were audited for it.
    pub array_failures: u64,
    /// Sectors that members were listed not to hold, at starts and at the end.
    pub listed: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.member_writes += other.member_writes;
        self.restarts += other.restarts;
        self.resyncs += other.resyncs;
        self.recovered += other.recovered;
        self.interrupted += other.interrupted;
        self.checks += other.checks;
        self.corrected += other.corrected;
        self.re_added += other.re_added;
        self.flips += other.flips;
        self.array_failures += other.array_failures;
        self.listed += other.listed;
    }
}
