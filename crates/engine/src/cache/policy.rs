//! What differs between kernels' page caches, as data.
//!
//! The figures are facts about Linux: `mm/page-writeback.c`, `mm/readahead.c`, `mm/vmscan.c`, `fs/block_dev.c`
//! and `Documentation/admin-guide/sysctl/vm.rst` of the named versions.

use crate::units::Nanos;

/// From how many dirty pages on a writer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleAt {
    /// The dirty limit itself: the writer writes back until it is under the limit (before 3.2).
    Limit,
    /// Where the I/O-less throttle of 3.2 holds the dirty pages: halfway from the middle of background and
    /// limit up to the limit.
    Setpoint,
}

/// When the active list is too long beside the inactive one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InactiveLow {
    /// As soon as it is longer (file pages before 4.7).
    ShorterThanActive,
    /// When it is longer by the factor √(10 × memory in GiB) (since 4.7 for file pages as well).
    BelowSquareRoot,
}

/// Who is told of a write-back that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorReport {
    /// The first flush after it (`AS_EIO`, before 4.13).
    FirstFlush,
    /// The first flush of every stream (`errseq_t`, since 4.13).
    EachStream,
}

/// How the page cache behaves where Linux versions differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about a kernel of its own")]
pub struct CachePolicy {
    /// Name, that of the array's policy of the same kernel.
    pub name: &'static str,
    /// Default of `vm.dirty_ratio`: 40 up to 2.6.21, then 10, and 20 since 2.6.30.
    pub dirty_ratio: u8,
    /// Default of `vm.dirty_background_ratio`: 10, 5 from 2.6.22 to 2.6.29.
    pub dirty_background_ratio: u8,
    /// Age at which dirty pages are written back whatever their number (`vm.dirty_expire_centisecs`).
    pub dirty_expire: Nanos,
    /// How often ages are looked at (`vm.dirty_writeback_centisecs`).
    pub dirty_writeback: Nanos,
    /// From how many dirty pages on a writer waits.
    pub throttle_at: ThrottleAt,
    /// A read that follows cached pages counts as sequential though its stream says otherwise (since 2.6.31).
    pub context_readahead: bool,
    /// A read longer than the readahead goes out whole, up to the largest request (since 4.10).
    pub large_reads_whole: bool,
    /// When the active list is too long.
    pub inactive_low: InactiveLow,
    /// A flush reaches the array once the dirty pages are written (since 2.6.33; before, `fsync` of a block
    /// device did not empty the drives' caches).
    pub flush_reaches_array: bool,
    /// Who is told of a failed write-back.
    pub error_report: ErrorReport,
    /// A thread may have several buffered requests in flight. Linux's asynchronous I/O does not queue them: the call
    /// that submits one returns when it is done (fio's manual, at `iodepth`).
    pub queues_buffered: bool,
    /// Pages in a request to the array at most (`BIO_MAX_PAGES`, 256).
    pub request_pages_max: u32,
    /// Write-backs, and as many reads ahead of need, in flight at most (`nr_requests`, 128).
    pub in_flight_max: u32,
}

impl CachePolicy {
    /// Linux 2.6.18. Its readahead was not yet the on-demand one of 2.6.23, but grew its window by the same
    /// rules; it is modelled as that.
    pub const fn linux_2_6_18() -> Self {
        Self {
            name: "linux-2.6.18",
            dirty_ratio: 40,
            dirty_background_ratio: 10,
            dirty_expire: Nanos::from_millis(30_000),
            dirty_writeback: Nanos::from_millis(5_000),
            throttle_at: ThrottleAt::Limit,
            context_readahead: false,
            large_reads_whole: false,
            inactive_low: InactiveLow::ShorterThanActive,
            flush_reaches_array: false,
            error_report: ErrorReport::FirstFlush,
            queues_buffered: false,
            request_pages_max: 256,
            in_flight_max: 128,
        }
    }

    /// Linux 2.6.27.
    pub const fn linux_2_6_27() -> Self {
        Self { name: "linux-2.6.27", dirty_ratio: 10, dirty_background_ratio: 5, ..Self::linux_2_6_18() }
    }

    /// Linux 3.2.
    pub const fn linux_3_2() -> Self {
        Self {
            name: "linux-3.2",
            dirty_ratio: 20,
            dirty_background_ratio: 10,
            throttle_at: ThrottleAt::Setpoint,
            context_readahead: true,
            flush_reaches_array: true,
            ..Self::linux_2_6_27()
        }
    }

    /// Linux 6.1.
    pub const fn linux_6_1() -> Self {
        Self {
            name: "linux-6.1",
            large_reads_whole: true,
            inactive_low: InactiveLow::BelowSquareRoot,
            error_report: ErrorReport::EachStream,
            ..Self::linux_3_2()
        }
    }

    /// This engine's own choice: that of the newest kernel, but with as many requests in flight as come.
    pub const fn stripewise() -> Self {
        Self { name: "stripewise", queues_buffered: true, ..Self::linux_6_1() }
    }

    /// All policies, oldest kernel first.
    pub const ALL: [Self; 5] = [
        Self::linux_2_6_18(),
        Self::linux_2_6_27(),
        Self::linux_3_2(),
        Self::linux_6_1(),
        Self::stripewise(),
    ];

    /// The policy of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn every_array_policy_has_its_page_cache() {
        let names = |p: &Policy| p.name;
        assert_eq!(Policy::ALL.each_ref().map(names), CachePolicy::ALL.each_ref().map(|p| p.name));
    }
}
