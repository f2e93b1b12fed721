//! File systems as the block requests they become: where a large file lies, and what mkfs writes.
//!
//! # Contract
//! *Scope.* A file that fills a new file system and is used with `O_DIRECT`; its own metadata are in memory. mkfs writes
//! through the page cache and flushes at the end.

mod ext;
mod file;
mod mkfs;
mod xfs;

pub use ext::{Ext, ExtFile, ExtSpec, Group};
pub use file::InFile;
pub use mkfs::Mkfs;
pub use xfs::mkfs as xfs_mkfs;

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

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsKind {
    /// ext3: indirect blocks.
    Ext3,
    /// ext4 without flexible groups: extents.
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
