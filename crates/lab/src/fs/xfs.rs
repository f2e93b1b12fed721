//! What mkfs.xfs of 2006 writes: the ends of the device, the log, and the headers of each allocation group.
//!
//! Facts of xfsprogs 2.8: 32 allocation groups from 512 GiB on, 16 below; an internal log of a 2048th of the device,
//! 128 MiB at most, in the middle group; both ends of the device cleared.

use super::{BLOCK_BYTES, Extent};

/// Blocks cleared at either end.
const CLEARED_BLOCKS: u64 = 128 * 1024 / BLOCK_BYTES;
/// From so many blocks on there are 32 groups.
const LARGE_BLOCKS: u64 = (512 << 30) / BLOCK_BYTES;
/// Largest log.
const LOG_BLOCKS_MAX: u64 = (128 << 20) / BLOCK_BYTES;
/// Smallest log.
const LOG_BLOCKS_MIN: u64 = (10 << 20) / BLOCK_BYTES;
/// A group's headers (one block of four sectors) and the roots of its three trees.
const HEADER_BLOCKS: u64 = 4;
/// The first inodes, 64 of 256 bytes.
const INODE_BLOCKS: u64 = 64 * 256 / BLOCK_BYTES;
/// Blocks of the log cleared at once.
const LOG_WRITE_BLOCKS: u64 = 32;

/// What mkfs.xfs writes to a device of so many blocks, in order.
pub fn mkfs(blocks: u64) -> Vec<Extent> {
    let groups = if blocks >= LARGE_BLOCKS { 32 } else { 16 };
    let group_blocks = blocks / groups;
    let mut extents = vec![
        Extent { start: 0, count: CLEARED_BLOCKS },
        Extent { start: blocks - CLEARED_BLOCKS, count: CLEARED_BLOCKS },
    ];
    let log = groups / 2 * group_blocks + HEADER_BLOCKS;
    let log_end = log + (blocks / 2048).clamp(LOG_BLOCKS_MIN, LOG_BLOCKS_MAX);
    for start in (log..log_end).step_by(LOG_WRITE_BLOCKS as usize) {
        extents.push(Extent { start, count: LOG_WRITE_BLOCKS.min(log_end - start) });
    }
    for group in 0..groups {
        let start = group * group_blocks;
        extents.extend((0..HEADER_BLOCKS).map(|n| Extent { start: start + n, count: 1 }));
    }
    extents.push(Extent { start: HEADER_BLOCKS + 4, count: INODE_BLOCKS });
    // The superblocks are written again once all else is there.
    extents.extend((0..groups).map(|group| Extent { start: group * group_blocks, count: 1 }));
    extents
}
