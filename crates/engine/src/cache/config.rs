//! What a page cache is given, and what is refused.

use super::policy::{CachePolicy, ThrottleAt};
use crate::geometry::Geometry;
use crate::units::{PAGE_BYTES, PAGE_SECTORS};

/// The least memory: room for the smallest readahead beside dirty pages.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// The most memory: frames are numbered in 32 bits.
pub const MEMORY_BYTES_MAX: u64 = 1 << 43;
/// md's floor for the readahead of an array, in sectors (128 KiB, the kernel's default for any device).
pub const READAHEAD_SECTORS_FLOOR: u64 = 256;

/// A limit on dirty memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyLimit {
    /// Percent of the cache's memory.
    Ratio(u8),
    /// Bytes.
    Bytes(u64),
}

impl DirtyLimit {
    fn pages(self, memory_bytes: u64) -> u64 {
        match self {
            Self::Ratio(percent) => memory_bytes / PAGE_BYTES * u64::from(percent) / 100,
            Self::Bytes(bytes) => bytes / PAGE_BYTES,
        }
    }
}

impl std::fmt::Display for DirtyLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ratio(percent) => write!(f, "{percent} %"),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
        }
    }
}

/// When a buffered write is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// When it is in the cache.
    #[default]
    Back,
    /// When it is on the array, too.
    Through,
}

/// A page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// How it behaves where Linux versions differ.
    pub policy: CachePolicy,
    /// Bytes of all its pages together.
    pub memory_bytes: u64,
    /// Readahead in sectors (`blockdev --setra`); that of md if absent: see [`readahead_default`].
    pub readahead_sectors: Option<u64>,
    /// Dirty memory at which writers wait (`vm.dirty_ratio`, `vm.dirty_bytes`); the policy's if absent.
    pub dirty: Option<DirtyLimit>,
    /// Dirty memory above which it is written back (`vm.dirty_background_ratio`); the policy's if absent.
    pub dirty_background: Option<DirtyLimit>,
    /// When a buffered write is answered.
    pub mode: WriteMode,
}

impl CacheConfig {
    /// A cache of so much memory with the policy's defaults.
    pub const fn new(policy: CachePolicy, memory_bytes: u64) -> Self {
        Self {
            policy,
            memory_bytes,
            readahead_sectors: None,
            dirty: None,
            dirty_background: None,
            mode: WriteMode::Back,
        }
    }

    /// Refuses what cannot work.
    ///
    /// # Errors
    /// The value and what would be right.
    pub fn check(&self) -> Result<(), CacheError> {
        let memory = self.memory_bytes;
        if !(MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&memory) {
            return Err(CacheError::Memory(memory));
        }
        let most = memory / 2 / crate::units::SECTOR_BYTES;
        if let Some(sectors) = self.readahead_sectors
            && !(PAGE_SECTORS..=most).contains(&sectors)
        {
            return Err(CacheError::Readahead { sectors, most });
        }
        let (dirty, background) = self.dirty_limits();
        for limit in [dirty, background] {
            if limit.pages(memory) > memory / PAGE_BYTES {
                return Err(CacheError::DirtyAboveMemory { limit, memory });
            }
        }
        if dirty.pages(memory) == 0 {
            return Err(CacheError::NothingDirty(dirty));
        }
        // As the kernel, a background limit that is not below the other is taken as half of it, unless it
        // was asked for.
        if self.dirty_background.is_some() && background.pages(memory) >= dirty.pages(memory) {
            return Err(CacheError::BackgroundAboveDirty { background, dirty });
        }
        Ok(())
    }

    fn dirty_limits(&self) -> (DirtyLimit, DirtyLimit) {
        let dirty = self.dirty.unwrap_or(DirtyLimit::Ratio(self.policy.dirty_ratio));
        let background =
            self.dirty_background.unwrap_or(DirtyLimit::Ratio(self.policy.dirty_background_ratio));
        (dirty, background)
    }

    /// The limits in pages over an array of that geometry. Only for a configuration that [`check`](Self::check)
    /// takes.
    pub(super) fn limits(&self, geometry: &Geometry) -> Limits {
        let memory_pages = self.memory_bytes / PAGE_BYTES;
        let (dirty, background) = self.dirty_limits();
        let dirty = dirty.pages(self.memory_bytes);
        let asked = background.pages(self.memory_bytes);
        let background = if asked < dirty { asked } else { dirty / 2 };
        let throttle = match self.policy.throttle_at {
            ThrottleAt::Limit => dirty,
            ThrottleAt::Setpoint => (background + 3 * dirty) / 4,
        };
        let readahead = self.readahead_sectors.unwrap_or_else(|| readahead_default(geometry));
        Limits {
            memory: memory_pages as u32,
            background,
            throttle: throttle.max(1),
            readahead: (readahead / PAGE_SECTORS).clamp(1, memory_pages / 2),
        }
    }
}

/// md's default readahead of an array, in sectors: two stripes' worth of data, at least 128 KiB.
pub fn readahead_default(geometry: &Geometry) -> u64 {
    (2 * u64::from(geometry.data_disks()) * geometry.chunk_sectors()).max(READAHEAD_SECTORS_FLOOR)
}

/// The limits in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Pages there are.
    pub(super) memory: u32,
    /// Write-back runs while more are dirty.
    pub(super) background: u64,
    /// Writers wait while as many are dirty or being written back.
    pub(super) throttle: u64,
    /// Longest readahead window.
    pub(super) readahead: u64,
}

/// Why there can be no such page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheError {
    /// Too little memory, or more than can be numbered.
    Memory(u64),
    /// A readahead of nothing, or of more than half the memory.
    Readahead {
        /// What was asked for.
        sectors: u64,
        /// The most there can be.
        most: u64,
    },
    /// More may be dirty than there is.
    DirtyAboveMemory {
        /// What was asked for.
        limit: DirtyLimit,
        /// The cache's bytes.
        memory: u64,
    },
    /// Not one page may be dirty.
    NothingDirty(DirtyLimit),
    /// Write-back would begin only when writers wait already.
    BackgroundAboveDirty {
        /// The background limit.
        background: DirtyLimit,
        /// The dirty limit.
        dirty: DirtyLimit,
    },
}

impl std::fmt::Display for CacheError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(bytes) => write!(
                f,
                "memory of {bytes} bytes for the page cache: it must be {MEMORY_BYTES_MIN} to {MEMORY_BYTES_MAX}"
            ),
            Self::Readahead { sectors, most } => write!(
                f,
                "readahead of {sectors} sectors: it must be {PAGE_SECTORS} (one page) to {most} (half of the \
                 cache's memory)"
            ),
            Self::DirtyAboveMemory { limit, memory } => write!(
                f,
                "a dirty limit of {limit} is more than the page cache's memory of {memory} bytes; lower it or \
                 give more memory"
            ),
            Self::NothingDirty(limit) => {
                write!(
                    f,
                    "a dirty limit of {limit} leaves no page to write to; it must be {PAGE_BYTES} bytes or more"
                )
            }
            Self::BackgroundAboveDirty { background, dirty } => write!(
                f,
                "the background dirty limit of {background} is not below the dirty limit of {dirty}; lower it"
            ),
        }
    }
}

impl std::error::Error for CacheError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut CacheConfig)) -> String {
        let mut config = CacheConfig::new(CachePolicy::linux_6_1(), 64 << 20);
        change(&mut config);
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn impossible_caches_are_refused_with_the_value_and_what_would_be_right() {
        assert!(refused(|c| c.memory_bytes = 0).contains("it must be 1048576"));
        assert!(refused(|c| c.readahead_sectors = Some(0)).contains("8 (one page) to 65536"));
        assert!(
            refused(|c| c.readahead_sectors = Some(1 << 40)).contains("readahead of 1099511627776 sectors")
        );
        assert!(refused(|c| c.dirty = Some(DirtyLimit::Ratio(101))).contains("101 % is more than"));
        assert!(
            refused(|c| c.dirty = Some(DirtyLimit::Bytes(65 << 20))).contains("more than the page cache's")
        );
        assert!(refused(|c| c.dirty = Some(DirtyLimit::Bytes(100))).contains("leaves no page"));
        assert!(refused(|c| c.dirty_background = Some(DirtyLimit::Ratio(30))).contains("not below"));
    }
}
