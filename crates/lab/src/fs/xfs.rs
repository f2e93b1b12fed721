//! What mkfs.xfs writes: the ends of the device, the log, and the headers of each allocation group.
//!
//! Facts of xfsprogs 2.8 (2006): 32 allocation groups from 512 GiB on, 16 below; a log of a 2048th of the device, 10 to
//! 128 MiB; headers of three trees. Of xfsprogs 6.1 (2023): 4 groups, or 8, 16 and 32 by size where a stripe is named;
//! a log of a 2048th, 64 MiB to 2 GiB; headers of five trees. Both: the log in the middle group behind the headers, both ends
//! of the device cleared, the first inodes behind the first group's headers; with a stripe, groups begin on stripe units, and
//! not all on the same disk.

use super::{BLOCK_BYTES, Extent, MkfsYear};

/// Blocks cleared at either end.
const CLEARED_BLOCKS: u64 = 128 * 1024 / BLOCK_BYTES;
/// Blocks of the log cleared at once.
const LOG_WRITE_BLOCKS: u64 = 32;
/// Blocks kept free for the trees of free space to grow, behind the headers.
const FREE_LIST_BLOCKS: u64 = 4;
/// Inodes made at once.
const INODES: u64 = 64;
/// The largest group: a TiB.
const GROUP_BLOCKS_MAX: u64 = (1 << 40) / BLOCK_BYTES;
/// The smallest.
const GROUP_BLOCKS_MIN: u64 = (16 << 20) / BLOCK_BYTES;

const fn mib(count: u64) -> u64 {
    (count << 20) / BLOCK_BYTES
}

/// What mkfs.xfs is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XfsSpec {
    /// Blocks of the device.
    pub blocks: u64,
    /// `-d sunit`, in blocks; 0 for none.
    pub stripe_unit: u64,
    /// `-d swidth`, in blocks; 0 for none.
    pub stripe_width: u64,
    /// `-l size`, in blocks; by the device's size if absent.
    pub log_blocks: Option<u64>,
    /// Whose defaults hold.
    pub year: MkfsYear,
}

/// The layout of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xfs {
    device_blocks: u64,
    /// Allocation groups.
    pub groups: u64,
    /// Blocks of each but the last.
    pub group_blocks: u64,
    /// First block of the log.
    pub log_start: u64,
    /// Blocks of the log.
    pub log_blocks: u64,
    header_blocks: u64,
    inodes_start: u64,
    inode_blocks: u64,
}

impl Xfs {
    /// Lays out a file system; nothing if the device is too small for one.
    pub fn new(spec: &XfsSpec) -> Option<Self> {
        if spec.blocks < mib(300) {
            return None;
        }
        let (groups, group_blocks) = groups(spec);
        let is_new = spec.year == MkfsYear::Y2023;
        // A block of four sectors, then the roots of the trees.
        let header_blocks = if is_new { 6 } else { 4 };
        let (log_min, log_max) = if is_new { (mib(64), mib(2048) - 1) } else { (mib(10), mib(128)) };
        let unit = spec.stripe_unit.max(1);
        let log_unit = if unit > mib(1) / 4 { mib(1) / 32 } else { unit };
        let log_blocks = spec.log_blocks.unwrap_or((spec.blocks / 2048).clamp(log_min, log_max));
        let log_blocks = log_blocks.next_multiple_of(log_unit);
        let log_start = groups / 2 * group_blocks + header_blocks;
        // Inodes begin on a multiple of their cluster; those of 2023 on one of what is made at once.
        let (inode_bytes, cluster) = if is_new { (512, 8) } else { (256, 2) };
        let align = if spec.stripe_unit > 0 { spec.stripe_unit } else { cluster };
        Some(Self {
            device_blocks: spec.blocks,
            groups,
            group_blocks,
            log_start: log_start.next_multiple_of(log_unit),
            log_blocks,
            header_blocks,
            inodes_start: (header_blocks + FREE_LIST_BLOCKS).next_multiple_of(align),
            inode_blocks: INODES * inode_bytes / BLOCK_BYTES,
        })
    }

    /// What mkfs.xfs writes, in order.
    pub fn mkfs(&self) -> Vec<Extent> {
        let mut extents = vec![
            Extent { start: 0, count: CLEARED_BLOCKS },
            Extent { start: self.device_blocks - CLEARED_BLOCKS, count: CLEARED_BLOCKS },
        ];
        let log_end = self.log_start + self.log_blocks;
        for start in (self.log_start..log_end).step_by(LOG_WRITE_BLOCKS as usize) {
            extents.push(Extent { start, count: LOG_WRITE_BLOCKS.min(log_end - start) });
        }
        for group in 0..self.groups {
            let start = group * self.group_blocks;
            extents.extend((0..self.header_blocks).map(|n| Extent { start: start + n, count: 1 }));
        }
        extents.push(Extent { start: self.inodes_start, count: self.inode_blocks });
        // The superblocks are written again once all else is there.
        extents.extend((0..self.groups).map(|group| Extent { start: group * self.group_blocks, count: 1 }));
        extents
    }
}

/// How many allocation groups, and their blocks.
fn groups(spec: &XfsSpec) -> (u64, u64) {
    let blocks = spec.blocks;
    let wanted = match spec.year {
        MkfsYear::Y2006 if blocks >= mib(512 << 10) => 32,
        MkfsYear::Y2006 => 16,
        MkfsYear::Y2023 if spec.stripe_unit == 0 => 4.max(blocks.div_ceil(GROUP_BLOCKS_MAX)),
        MkfsYear::Y2023 if blocks > mib(512 << 10) => 32.max(blocks.div_ceil(GROUP_BLOCKS_MAX)),
        MkfsYear::Y2023 if blocks > mib(8 << 10) => 16,
        MkfsYear::Y2023 => 8,
    };
    let mut size = match spec.year {
        MkfsYear::Y2006 => blocks / wanted,
        MkfsYear::Y2023 => blocks.div_ceil(wanted),
    };
    if spec.stripe_unit > 0 {
        size = size.next_multiple_of(spec.stripe_unit).min(GROUP_BLOCKS_MAX);
        // All groups would begin on the same disk.
        if spec.stripe_width > 0 && size.is_multiple_of(spec.stripe_width) && size < blocks {
            size -= spec.stripe_unit;
        }
    }
    let whole = blocks / size;
    // A last group that is too small is left out.
    let count = whole + u64::from(blocks % size >= GROUP_BLOCKS_MIN);
    (count.max(1), size)
}
