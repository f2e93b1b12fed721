//! What differs between kernels, as data. The engine has no `if era`: it reads these fields.
//!
//! md's `preread_bypass_threshold` has no field here: it orders the work that waits for raid5d's turn on the CPU,
//! and the engine keeps no such backlog (a full stripe starts the moment it is complete).
//! The figures are facts about md of the named kernels (md's raid5.c and md.c of 2.6.18, 2.6.27, 3.2, 6.1).

use crate::units::Nanos;

/// Whether a partial write reads the old data and parity (RMW) or the rest of the stripe (RCW).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmwLevel {
    /// Never RMW where RCW is possible (md's `rmw_level` 0).
    Never,
    /// RMW if it needs strictly fewer reads than RCW (`rmw_level` 1).
    Cheaper,
    /// RMW even where both need as many reads (`rmw_level` 2).
    Prefer,
}

/// How the array behaves where Linux versions differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Name, as written in plans.
    pub name: &'static str,
    /// Reads within a chunk go straight to the member, past the stripe cache (since 2.6.23).
    pub aligned_reads_bypass_cache: bool,
    /// Delayed partial stripes start only while fewer stripes than this are reading (md's `IO_THRESHOLD`).
    pub preread_active_max: u32,
    /// A queue with delayed stripes unplugs after this many requests (`unplug_thresh`).
    pub unplug_requests: u32,
    /// A queue with delayed stripes unplugs after this time.
    pub unplug_delay: Nanos,
    /// A write its submitter waits for is not delayed (since 3.2).
    pub sync_writes_skip_delay: bool,
    /// RMW or RCW for RAID-4 and RAID-5.
    pub rmw_level: RmwLevel,
    /// RMW or RCW for RAID-6 (md could not RMW RAID-6 before 4.1).
    pub raid6_rmw_level: RmwLevel,
    /// Written pages are copied into the stripe cache and stay readable there (off is md's `skip_copy`).
    pub writes_fill_cache: bool,
    /// Requesters that found the cache full start again when active entries fall below this share of it,
    /// in quarters (md: 3).
    pub cache_wake_quarters: u32,
}

impl Policy {
    /// Linux 2.6.18 (RHEL 5, Debian 4): no bypass of the stripe cache for reads.
    pub const fn linux_2_6_18() -> Self {
        Self {
            name: "linux-2.6.18",
            aligned_reads_bypass_cache: false,
            preread_active_max: 1,
            unplug_requests: 4,
            unplug_delay: Nanos::from_millis(3),
            sync_writes_skip_delay: false,
            rmw_level: RmwLevel::Cheaper,
            raid6_rmw_level: RmwLevel::Never,
            writes_fill_cache: true,
            cache_wake_quarters: 3,
        }
    }

    /// Linux 2.6.27 (Ubuntu 8.10).
    pub const fn linux_2_6_27() -> Self {
        Self { name: "linux-2.6.27", aligned_reads_bypass_cache: true, ..Self::linux_2_6_18() }
    }

    /// Linux 3.2 (Debian 7, Ubuntu 12.04).
    pub const fn linux_3_2() -> Self {
        Self { name: "linux-3.2", sync_writes_skip_delay: true, ..Self::linux_2_6_27() }
    }

    /// Linux 6.1 (Debian 12).
    pub const fn linux_6_1() -> Self {
        Self { name: "linux-6.1", raid6_rmw_level: RmwLevel::Cheaper, ..Self::linux_3_2() }
    }

    /// This engine's own choice: gathers while a batch is submitted, never waits on other stripes' reads,
    /// writes straight from the caller's buffers.
    pub const fn stripewise() -> Self {
        Self {
            name: "stripewise",
            preread_active_max: u32::MAX,
            unplug_requests: 64,
            unplug_delay: Nanos::from_millis(1),
            writes_fill_cache: false,
            ..Self::linux_6_1()
        }
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
