//! The parameters of a cell. Each is named once, in [`PARAMETERS`](super::PARAMETERS): plans may fix it, vary it as a factor or override
//! it, and `bench` takes most as options.

use std::collections::BTreeMap;
use std::sync::Arc;

use stripewise_engine::cache::{CacheConfig, CacheError, CachePolicy, DirtyLimit};
use stripewise_engine::level::{Layout, Level};
use stripewise_engine::policy::Policy;
use stripewise_sim::{Cipher, CryptConfig};

use super::Rig;
use super::table::PARAMETERS;
use crate::fs::{BLOCK_BYTES, BLOCK_SECTORS, ExtSpec, FsKind, MkfsYear, XfsSpec};
use crate::trace::{Speed, Trace};
use crate::workload::{Job, print_chunk};

/// mdadm's `--delay`, in seconds.
const BITMAP_DELAY: u32 = 5;

/// What a cell measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellTarget {
    /// The array.
    Array,
    /// One member by itself, for reference.
    Drive,
}

/// What a cell does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Runs the job.
    Job,
    /// Leaves the array alone while it resyncs.
    Resync,
    /// Leaves the array alone while it recovers the members that failed onto spares.
    Recover,
    /// Runs the job while the array recovers the members that failed onto spares.
    Rebuild,
    /// Makes the file system.
    Mkfs,
    /// Replays a trace.
    Trace,
}

impl Work {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Job, Self::Resync, Self::Recover, Self::Rebuild, Self::Mkfs, Self::Trace];

    /// The word used in plans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Resync => "resync",
            Self::Recover => "recover",
            Self::Rebuild => "rebuild",
            Self::Mkfs => "mkfs",
            Self::Trace => "trace",
        }
    }

    /// Whether it runs the job.
    pub const fn runs_job(self) -> bool {
        matches!(self, Self::Job | Self::Rebuild)
    }

    /// Whether the array fills members that failed.
    pub const fn recovers(self) -> bool {
        matches!(self, Self::Recover | Self::Rebuild)
    }

    /// Whether the array has work of its own, which the speed limits bound.
    pub const fn syncs(self) -> bool {
        matches!(self, Self::Resync | Self::Recover | Self::Rebuild)
    }
}

/// The layers above the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSpec {
    /// Bytes of the page cache.
    pub memory: u64,
    /// Readahead in sectors; md's default if absent.
    pub readahead: Option<u64>,
    /// Percent of the page cache that may be dirty; the kernel's default if absent.
    pub dirty_ratio: Option<u8>,
    /// Percent of it above which dirty pages are written back; the kernel's default if absent.
    pub dirty_background_ratio: Option<u8>,
    /// The cipher of an encrypted container on the array.
    pub crypt: Option<Cipher>,
    /// Bytes of the array before its payload.
    pub crypt_offset: u64,
    /// The file system on top; a job then uses a file that fills it.
    pub fs: Option<FsKind>,
    /// Whose mkfs makes it.
    pub mkfs: MkfsYear,
    /// `-E stride` of ext3 and ext4, in bytes.
    pub stride: u64,
    /// Bytes for each inode of ext3 and ext4.
    pub inode_ratio: u64,
    /// Inodes in all, instead of by ratio.
    pub inodes: Option<u64>,
    /// Bytes of an inode.
    pub inode_size: u64,
}

/// The array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// Level.
    pub level: Level,
    /// Layout by mdadm's name; the level's default if absent.
    pub layout: Option<String>,
    /// Members; all drives of the rig if absent.
    pub raid_devices: Option<u16>,
    /// Chunk in bytes.
    pub chunk: u64,
    /// Stripe cache entries.
    pub stripe_cache_size: u32,
    /// Worker threads of a modelled Linux beside md's own.
    pub group_thread_cnt: usize,
    /// Threads that serve a real array, each with stripes of its own.
    pub shards: u32,
    /// Members that have failed: the first that the layout survives the loss of together.
    pub failed: u16,
    /// Whether it keeps an internal write-intent bitmap.
    pub has_bitmap: bool,
    /// Bytes that a bit of the bitmap stands for; mdadm's choice if absent.
    pub bitmap_chunk: Option<u32>,
    /// Seconds between two looks at which bits may be cleared.
    pub bitmap_delay: u32,
    /// md's `sync_speed_min` in KiB/s.
    pub speed_limit_min: u32,
    /// md's `sync_speed_max` in KiB/s.
    pub speed_limit_max: u32,
}

/// Everything that decides what a cell does, apart from the storage under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The part of the plan it belongs to; empty where a plan has no parts.
    pub part: String,
    /// What is measured.
    pub target: CellTarget,
    /// What it does.
    pub work: Work,
    /// Rig.
    pub rig: Rig,
    /// Array.
    pub array: ArraySpec,
    /// Layers above it.
    pub stack: StackSpec,
    /// Workload. Its `randseed` is the cell's seed.
    pub job: Job,
    /// The trace that is replayed, with work trace.
    pub trace: Option<Arc<Trace>>,
    /// How fast.
    pub speed: Speed,
}

impl Default for Parameters {
    /// A RAID-5 as mdadm makes it on five drives; the models must be named.
    fn default() -> Self {
        let speed = stripewise_engine::array::sync::SpeedLimits::DEFAULT;
        Self {
            part: String::new(),
            target: CellTarget::Array,
            work: Work::Job,
            rig: Rig {
                drive: String::new(),
                count: 5,
                controller: String::new(),
                cpu: String::new(),
                block: String::new(),
                policy: Policy::stripewise().name.to_owned(),
            },
            array: ArraySpec {
                level: Level::Raid5,
                layout: None,
                raid_devices: None,
                chunk: 512 * 1024,
                stripe_cache_size: 256,
                group_thread_cnt: 0,
                shards: 1,
                failed: 0,
                has_bitmap: false,
                bitmap_chunk: None,
                bitmap_delay: BITMAP_DELAY,
                speed_limit_min: speed.min_kib,
                speed_limit_max: speed.max_kib,
            },
            stack: StackSpec {
                memory: 1 << 30,
                readahead: None,
                dirty_ratio: None,
                dirty_background_ratio: None,
                crypt: None,
                crypt_offset: 0,
                fs: None,
                mkfs: MkfsYear::Y2006,
                stride: 0,
                inode_ratio: 16_384,
                inodes: None,
                inode_size: 256,
            },
            job: Job::default(),
            trace: None,
            speed: Speed::Asap,
        }
    }
}

impl Parameters {
    /// Members of the array.
    pub fn members(&self) -> u16 {
        match self.target {
            CellTarget::Array => self.array.raid_devices.unwrap_or(self.rig.count),
            CellTarget::Drive => 1,
        }
    }

    /// The array's layout.
    pub fn layout(&self) -> Result<Layout, String> {
        match &self.array.layout {
            None => Ok(Layout::default_of(self.array.level)),
            Some(name) => Layout::parse(self.array.level, name).map_err(|e| e.to_string()),
        }
    }

    /// The policy.
    pub fn policy(&self) -> Result<Policy, String> {
        super::table::policy(&self.rig.policy)
    }

    /// Whether it is of an array with parity.
    pub(super) fn has_parity(&self) -> bool {
        self.target == CellTarget::Array && self.array.level.parity_count() > 0
    }

    /// Whether md can have worker threads beside its own: for stripes, since Linux 3.12.
    pub(super) fn has_workers(&self) -> bool {
        self.has_parity() && self.policy().is_ok_and(|policy| policy == Policy::linux_6_1())
    }

    /// Those threads, none where md has none.
    pub fn group_thread_cnt(&self) -> usize {
        if self.has_workers() { self.array.group_thread_cnt } else { 0 }
    }

    /// Every parameter that applies, as printed.
    pub fn printed(&self) -> BTreeMap<String, String> {
        PARAMETERS
            .iter()
            .filter(|p| (p.applies)(self))
            .map(|p| (p.name.to_owned(), (p.print)(self)))
            .collect()
    }

    /// Sets a parameter by name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        (find(name)?.set)(self, value)
    }

    /// The job as far as its kernel's page cache lets a thread have several requests in flight.
    pub fn kernel_job(&self) -> Job {
        let mut job = self.job.clone();
        if self.cache().is_some_and(|cache| !cache.policy.queues_buffered) {
            job.iodepth = 1;
        }
        job
    }

    /// The page cache, if the job goes through one.
    pub fn cache(&self) -> Option<CacheConfig> {
        if self.job.direct {
            return None;
        }
        let policy = CachePolicy::by_name(&self.rig.policy).unwrap_or_else(CachePolicy::stripewise);
        let limit = |percent: Option<u8>| percent.map(DirtyLimit::Ratio);
        Some(CacheConfig {
            readahead_sectors: self.stack.readahead,
            dirty: limit(self.stack.dirty_ratio),
            dirty_background: limit(self.stack.dirty_background_ratio),
            ..CacheConfig::new(policy, self.stack.memory)
        })
    }

    /// The encrypted container, if there is one.
    pub fn crypt(&self) -> Option<CryptConfig> {
        let payload_sectors = self.stack.crypt_offset / stripewise_engine::units::SECTOR_BYTES;
        self.stack.crypt.map(|cipher| CryptConfig { cipher, payload_sectors })
    }

    /// What mke2fs is asked for on a device of so many sectors.
    pub fn ext(&self, sectors: u64) -> ExtSpec {
        ExtSpec {
            blocks: sectors / BLOCK_SECTORS,
            inode_ratio: self.stack.inode_ratio,
            inodes: self.stack.inodes,
            inode_size: self.stack.inode_size,
            stride: self.stack.stride / BLOCK_BYTES,
            has_extents: self.stack.fs == Some(FsKind::Ext4),
            year: self.stack.mkfs,
        }
    }

    /// What mkfs.xfs is asked for on a device of so many sectors: no stripe.
    pub fn xfs(&self, sectors: u64) -> XfsSpec {
        let blocks = sectors / BLOCK_SECTORS;
        XfsSpec { blocks, stripe_unit: 0, stripe_width: 0, log_blocks: None, year: self.stack.mkfs }
    }

    /// Refuses arrays and jobs that no storage can hold.
    pub fn check(&self) -> Result<(), Fault> {
        let (members, level) = (self.members(), self.array.level);
        if self.target == CellTarget::Array {
            if members < level.members_min() {
                let least = level.members_min();
                let message = format!("{level} on {members} members: {level} needs at least {least}");
                return Err(Fault::of("raid_devices", message));
            }
            if members > self.rig.count {
                let count = self.rig.count;
                let message = format!("raid_devices is {members}, but the rig's count of drives is {count}");
                return Err(Fault::of("raid_devices", message));
            }
            self.geometry()?;
            self.check_chunk()?;
        }
        self.policy()?;
        self.check_bitmap()?;
        self.check_sync()?;
        self.check_stack()?;
        self.check_trace()?;
        self.job.check().map_err(|e| Fault::from(e.to_string()))
    }

    /// Only a raid0's need not be a power of two, in md as here.
    fn check_chunk(&self) -> Result<(), Fault> {
        let (level, chunk) = (self.array.level, self.array.chunk);
        if !level.has_chunks() || level == Level::Raid0 || chunk.is_power_of_two() {
            return Ok(());
        }
        let above = chunk.next_power_of_two();
        let message = format!(
            "chunk {}: {level} needs a power of two, such as {} or {}; only raid0 takes other multiples of 4K",
            print_chunk(chunk),
            print_chunk(above / 2),
            print_chunk(above)
        );
        Err(Fault::of("chunk", message))
    }

    fn check_bitmap(&self) -> Result<(), Fault> {
        let level = self.array.level;
        if !self.array.has_bitmap || self.target == CellTarget::Drive {
            return Ok(());
        }
        if !level.is_redundant() {
            let message = format!(
                "bitmap internal: a {level} array has no redundancy to restore, and so no bitmap; use none"
            );
            return Err(Fault::of("bitmap", message));
        }
        if self.work.syncs() {
            let message = format!(
                "bitmap internal: work {} is measured without a bitmap, which is of requests that write; take none",
                self.work.name()
            );
            return Err(Fault::of("bitmap", message));
        }
        Ok(())
    }

    fn check_trace(&self) -> Result<(), Fault> {
        match (self.work, &self.trace) {
            (Work::Trace, None) => {
                Err(Fault::of("work", "work trace needs a trace; name its file with trace"))
            }
            (Work::Trace, Some(trace)) if trace.records.is_empty() => {
                Err(Fault::of("trace", format!("{}: the trace has no records to replay", trace.file)))
            }
            (Work::Trace, _) if self.stack.fs.is_some() => {
                Err(Fault::of("fs", "a trace is of a device; leave fs out"))
            }
            _ => Ok(()),
        }
    }

    fn check_stack(&self) -> Result<(), Fault> {
        let StackSpec { fs, .. } = self.stack;
        if self.work == Work::Mkfs && (fs.is_none() || self.job.direct) {
            return Err(Fault::of(
                "work",
                "work mkfs needs a file system and the page cache; set fs, and direct=0",
            ));
        }
        if self.work.runs_job() && fs == Some(FsKind::Xfs) {
            return Err(Fault::of("fs", "files on xfs are not modelled; use ext3, ext4 or none"));
        }
        if let Some(cache) = self.cache() {
            cache.check().map_err(|e| Fault::of(cache_key(&e), e.to_string()))?;
        }
        Ok(())
    }
}

/// The parameter a cache's fault lies in.
const fn cache_key(error: &CacheError) -> &'static str {
    match error {
        CacheError::Memory(_) => "memory",
        CacheError::Readahead { .. } => "readahead",
        CacheError::DirtyAboveMemory { .. } | CacheError::NothingDirty(_) => "dirty_ratio",
        CacheError::BackgroundAboveDirty { .. } => "dirty_background_ratio",
    }
}

/// What is wrong with a combination of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The parameter at fault, where one is.
    pub key: Option<&'static str>,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Fault {
    pub(super) fn of(key: &'static str, message: impl Into<String>) -> Self {
        Self { key: Some(key), message: message.into() }
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self { key: None, message }
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.message
    }
}

/// The part of a plan a parameter is fixed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[rig]`
    Rig,
    /// `[array]`
    Array,
    /// `[stack]`
    Stack,
    /// `[job]`
    Job,
    /// Only in `[factors]`.
    Factors,
}

/// A named parameter.
pub struct Parameter {
    /// Name in plans, options and results.
    pub name: &'static str,
    /// Where a plan fixes it.
    pub section: Section,
    /// Whether it makes a difference, given the parameters before it in the table.
    pub applies: fn(&Parameters) -> bool,
    /// Reads a value; the error says what would be right.
    pub set: fn(&mut Parameters, &str) -> Result<(), String>,
    /// Prints the value so that equal values print equally.
    pub print: fn(&Parameters) -> String,
}

/// Finds a parameter by name; the error names the known ones.
pub fn find(name: &str) -> Result<&'static Parameter, String> {
    PARAMETERS.iter().find(|p| p.name == name).ok_or_else(|| {
        let known: Vec<&str> = PARAMETERS.iter().map(|p| p.name).collect();
        format!("unknown parameter '{name}'; use one of {}", known.join(", "))
    })
}
