//! What differs between kernels, as data. The engine has no `if era`: it reads these fields.
//!
//! md's `preread_bypass_threshold` has no field here: it orders the work that waits for raid5d's turn on the CPU,
//! and the engine keeps no such backlog (a full stripe starts the moment it is complete).
//! The figures are facts about md of the named kernels (md's raid5.c and md.c of 2.6.18, 2.6.27, 3.2, 6.1).

use crate::level::Level;
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

impl RmwLevel {
    /// Whether RMW is to be done where it takes so many reads and RCW so many.
    pub const fn prefers_rmw(self, rmw_reads: usize, rcw_reads: usize) -> bool {
        match self {
            Self::Never => false,
            Self::Cheaper => rmw_reads < rcw_reads,
            Self::Prefer => rmw_reads <= rcw_reads && rcw_reads > 0,
        }
    }
}

/// How reads of a degraded array go past the stripe cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DegradedReads {
    /// Not at all (md since 4.1).
    ThroughCache,
    /// Chunk by chunk, but for those of missing members (md from 2.6.23 to 4.0).
    PerChunk,
    /// As by chunk, but for requests of several chunks that want one of a missing member: what is read to rebuild it is
    /// mostly what else they want.
    Merged,
}

/// What is read of a row that has lost something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DegradedRows {
    /// What is needed.
    Needed,
    /// All that is left where something is rebuilt. It is where what is lost is written in part, and where two are lost and one
    /// of them is parity or is written (md of 6.1; it makes a difference to RAID-6 alone).
    WholeToRebuild,
    /// And where a row of RAID-6 is written at all, though it be written whole (md of 3.2 and before).
    WholeToWrite,
}

impl DegradedRows {
    /// Whether a write to a degraded row reads all that is left of it, whatever it covers.
    pub(crate) const fn are_read_for_any_write(self, has_q: bool) -> bool {
        has_q && matches!(self, Self::WholeToWrite)
    }
}

/// When the members count as left alone by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleTest {
    /// Sectors of others, since a member was last found busy, that make it busy again. As in md, which counts its own when they
    /// begin and all when they end, what the sync itself has under way is taken from them on both occasions.
    pub sectors: i64,
    /// As many sectors fewer make it busy, too (an unsigned comparison in md).
    pub either_way: bool,
}

/// Whether requests and the array's own work take turns on levels of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// They do not.
    None,
    /// On RAID-10: no request is let in while any of the array's own work is under way, which begins when all have ended (md's
    /// `raise_barrier`).
    Raid10,
    /// On RAID-1 as well. (Since 4.11 md's barrier there is of 64 MiB, where requests seldom are.)
    All,
}

/// How resync, recovery and checks keep out of the way of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncPolicy {
    /// Sectors between two looks at the speed.
    pub window_sectors: u64,
    /// Length of a pause.
    pub pause: Nanos,
    /// Above the least speed beside others it waits until what it has under way has ended, and goes on, rather than pause until
    /// the average has fallen (md since 4.1).
    pub drains_beside_others: bool,
    /// The speed is averaged over so many marks …
    pub marks: usize,
    /// … this long apart.
    pub mark_interval: Nanos,
    /// When the members count as idle.
    pub idle: IdleTest,
    /// Quarters of the stripe cache that the array's own work has at most (md: all of it),
    pub cache_quarters: u32,
    /// and sectors of each member.
    pub rows_sectors_max: u64,
    /// Sectors of each member that it has under way on RAID-1 (md: 32 requests, raid1.c's `RESYNC_DEPTH`, of
    /// `RESYNC_BLOCK_SIZE`, 64 KiB),
    pub copies_sectors: u64,
    /// and on RAID-10 (md: raid10.c's `RESYNC_DEPTH` is of 32 MiB).
    pub raid10_sectors: u64,
    /// Whether requests and the array's own work take turns on levels of copies.
    pub barrier: Barrier,
    /// Above the least speed it pauses so long when requests wait for their turn (md before 4.1); none: it
    /// [rests](Self::full_rest) at any speed.
    pub waiters_pause: Option<Nanos>,
    /// How long it rests when the stripe cache was full and has room again. md sleeps a jiffy, which takes half of one on
    /// average before Linux 4.8, whose timers take one more; a jiffy is 4 ms on distributions' kernels (HZ=250).
    pub full_rest: Nanos,
}

/// How the array behaves where Linux versions differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent habits, each with a kernel that has it and one that has not"
)]
pub struct Policy {
    /// Name, as written in plans.
    pub name: &'static str,
    /// Reads within a chunk go straight to the member, past the stripe cache (since 2.6.23).
    pub aligned_reads_bypass_cache: bool,
    /// What of that holds on degraded arrays.
    pub degraded_reads: DegradedReads,
    /// What is read of rows that have lost something.
    pub degraded_rows: DegradedRows,
    /// A write whose stripe has lost parity reads what RCW would need (md does, to no use).
    pub lost_parity_is_read_for: bool,
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
    /// What stripes that are written whole, and the array's own work, bring into the stripe cache stays readable there, as
    /// in md. Otherwise such entries are the next to be used: few take turns, whose pages stay in the CPU's caches.
    pub whole_stripes_fill_cache: bool,
    /// Sectors of a request that are taken at a time, row after row of each stripe; none: the whole request, chunk after
    /// chunk. (md takes the rows of a request in turn since 6.0, and requests of `RAID5_MAX_REQ_STRIPES` pages.)
    pub rows_in_turn: Option<u64>,
    /// Requesters that found the cache full start again when active entries fall below this share of it,
    /// in quarters (md: 3).
    pub cache_wake_quarters: u32,
    /// Superblocks and bitmap are written behind a flush of the member (md's `md_super_write`: `REQ_PREFLUSH`, earlier a barrier).
    /// The simulator's loop does it.
    pub metadata_writes_flush: bool,
    /// While bitmap pages are written no stripe goes on, and copies are not written: md's thread writes the pages, and waits
    /// (`md_bitmap_unplug`). The simulator's loop does it.
    pub bitmap_holds_writes: bool,
    /// How the array's own work keeps out of the way.
    pub sync: SyncPolicy,
}

impl Policy {
    /// RMW or RCW for a level with parity.
    pub fn rmw_level_of(&self, level: Level) -> RmwLevel {
        if level == Level::Raid6 { self.raid6_rmw_level } else { self.rmw_level }
    }

    /// Linux 2.6.18 (RHEL 5, Debian 4): no bypass of the stripe cache for reads.
    pub const fn linux_2_6_18() -> Self {
        Self {
            name: "linux-2.6.18",
            aligned_reads_bypass_cache: false,
            degraded_reads: DegradedReads::ThroughCache,
            degraded_rows: DegradedRows::WholeToWrite,
            lost_parity_is_read_for: true,
            preread_active_max: 1,
            unplug_requests: 4,
            unplug_delay: Nanos::from_millis(3),
            sync_writes_skip_delay: false,
            rmw_level: RmwLevel::Cheaper,
            raid6_rmw_level: RmwLevel::Never,
            writes_fill_cache: true,
            whole_stripes_fill_cache: true,
            rows_in_turn: None,
            cache_wake_quarters: 3,
            metadata_writes_flush: true,
            bitmap_holds_writes: true,
            sync: SyncPolicy {
                window_sectors: 256,
                pause: Nanos::from_millis(500),
                drains_beside_others: false,
                marks: 10,
                mark_interval: Nanos::from_millis(3000),
                idle: IdleTest { sectors: 4096, either_way: true },
                cache_quarters: 4,
                rows_sectors_max: u64::MAX,
                copies_sectors: 32 * 128,
                raid10_sectors: 512 * 128,
                barrier: Barrier::All,
                waiters_pause: Some(Nanos::from_millis(1000)),
                full_rest: Nanos::from_millis(2),
            },
        }
    }

    /// Linux 2.6.27 (Ubuntu 8.10).
    pub const fn linux_2_6_27() -> Self {
        let before = Self::linux_2_6_18();
        let idle = IdleTest { sectors: 4096, either_way: false };
        Self {
            name: "linux-2.6.27",
            aligned_reads_bypass_cache: true,
            degraded_reads: DegradedReads::PerChunk,
            sync: SyncPolicy { idle, ..before.sync },
            ..before
        }
    }

    /// Linux 3.2 (Debian 7, Ubuntu 12.04).
    pub const fn linux_3_2() -> Self {
        let before = Self::linux_2_6_27();
        let idle = IdleTest { sectors: 64, either_way: false };
        Self {
            name: "linux-3.2",
            sync_writes_skip_delay: true,
            sync: SyncPolicy { idle, ..before.sync },
            ..before
        }
    }

    /// Linux 6.1 (Debian 12).
    pub const fn linux_6_1() -> Self {
        let before = Self::linux_3_2();
        Self {
            name: "linux-6.1",
            degraded_reads: DegradedReads::ThroughCache,
            degraded_rows: DegradedRows::WholeToRebuild,
            raid6_rmw_level: RmwLevel::Cheaper,
            rows_in_turn: Some(2048),
            sync: SyncPolicy {
                full_rest: Nanos::from_millis(6),
                drains_beside_others: true,
                barrier: Barrier::Raid10,
                waiters_pause: None,
                ..before.sync
            },
            ..before
        }
    }

    /// This engine's own choice: gathers while a batch is submitted, never waits on other stripes' reads,
    /// writes straight from the caller's buffers.
    pub const fn stripewise() -> Self {
        Self {
            name: "stripewise",
            degraded_reads: DegradedReads::Merged,
            degraded_rows: DegradedRows::Needed,
            lost_parity_is_read_for: false,
            preread_active_max: u32::MAX,
            unplug_requests: 64,
            unplug_delay: Nanos::from_millis(1),
            // As many reads, of members that are written anyway: the others are left to others.
            rmw_level: RmwLevel::Prefer,
            raid6_rmw_level: RmwLevel::Prefer,
            writes_fill_cache: false,
            whole_stripes_fill_cache: false,
            rows_in_turn: None,
            // Short pauses and a short average: the least speed is kept evenly, and full speed comes back at once.
            sync: SyncPolicy {
                window_sectors: 1024,
                pause: Nanos::from_millis(20),
                drains_beside_others: false,
                marks: 10,
                mark_interval: Nanos::from_millis(500),
                idle: IdleTest { sectors: 64, either_way: false },
                // Requests have a part of the cache for themselves.
                cache_quarters: 3,
                rows_sectors_max: 2048,
                copies_sectors: 2048,
                raid10_sectors: 2048,
                barrier: Barrier::None,
                waiters_pause: None,
                full_rest: Nanos(0),
            },
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
