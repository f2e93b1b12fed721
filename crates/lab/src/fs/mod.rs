//! File systems as the block requests they become: where a large file lies, and what mkfs writes.
//!
//! # Contract
//! *Scope.* A file that fills a new file system and is used with `O_DIRECT`; its own metadata are in memory. mkfs writes
//! through the page cache and flushes at the end. Whole pages are counted, as a page cache writes them; that a device is
//! discarded first is left out. *Truth.* The tests run the real mkfs on a served array and compare its trace with this.

mod ext;
mod ext_file;
mod ext_mkfs;
mod file;
mod mkfs;
mod xfs;

pub use ext::{Ext, ExtSpec, Group};
pub use ext_file::ExtFile;
pub use file::InFile;
pub use mkfs::Mkfs;
pub use xfs::{Xfs, XfsSpec};

/// Bytes of a block of every file system here.
pub const BLOCK_BYTES: u64 = 4096;
/// Sectors of a block.
pub const BLOCK_SECTORS: u64 = BLOCK_BYTES / 512;

/// Blocks one after another on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block.
    pub start: u64,
    /// Blocks.
    pub count: u64,
}

/// Whose defaults and habits mkfs has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MkfsYear {
    /// e2fsprogs 1.39 and xfsprogs 2.8.
    Y2006,
    /// e2fsprogs 1.47 and xfsprogs 6.1.
    Y2023,
}

impl MkfsYear {
    /// Every year.
    pub const ALL: [Self; 2] = [Self::Y2006, Self::Y2023];

    /// The word used in plans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Y2006 => "2006",
            Self::Y2023 => "2023",
        }
    }
}

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsKind {
    /// ext3: indirect blocks.
    Ext3,
    /// ext4: extents; by 2006's habits without flexible groups.
    Ext4,
    /// XFS.
    Xfs,
}

impl FsKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Ext3, Self::Ext4, Self::Xfs];

    /// The name in mkfs's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod traced;
