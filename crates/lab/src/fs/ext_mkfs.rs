//! What making an ext3 or ext4 writes.
//!
//! The facts are mke2fs's: old RAID superblocks at the end are cleared; root and `lost+found` take the first data blocks,
//! then the block that leads to the reserved descriptors; a journal of indirect blocks (ext3) follows them, one of extents
//! (ext4) begins in the middle, in the emptiest of three groups. Tables are cleared in full, unless that is left to the
//! kernel; then the bitmaps of groups nobody has touched are not written either.

use std::ops::Range;

use super::ext::{INODES_RESERVED, has_copy};
use super::ext_file::POINTERS;
use super::{BLOCK_BYTES, Ext, Extent, MkfsYear};

/// Blocks zeroed at once where inode tables are cleared.
const ZERO_BLOCKS: u64 = 8;
/// Blocks at the end where a RAID superblock of version 0.90 may lie, and what they are a multiple of.
const TAIL_BLOCKS: u64 = (64 << 10) / BLOCK_BYTES;
/// Blocks of the root directory and of `lost+found`.
const DIRECTORY_BLOCKS: u64 = 1 + (16 << 10) / BLOCK_BYTES;
/// Blocks an inode of ext3 points to itself.
const DIRECT: u64 = 12;

impl Ext {
    /// Blocks of the journal that mke2fs makes by default.
    pub const fn journal_blocks(&self) -> u64 {
        match (self.blocks, self.year) {
            (0..2_048, _) => 0,
            (2_048..32_768, _) => 1 << 10,
            (32_768..262_144, _) => 4 << 10,
            (262_144..524_288, _) => 8 << 10,
            (524_288..1_048_576, _) | (1_048_576..4_194_304, MkfsYear::Y2023) => 16 << 10,
            (_, MkfsYear::Y2006) | (4_194_304..8_388_608, _) => 32 << 10,
            (8_388_608..16_777_216, _) => 64 << 10,
            (16_777_216..33_554_432, _) => 128 << 10,
            _ => 256 << 10,
        }
    }

    /// What mke2fs writes, in order: the end, the inode tables, directories and reserved descriptors, the journal, then
    /// superblocks, descriptors and bitmaps.
    pub fn mkfs(&self) -> Vec<Extent> {
        let tail = (self.blocks / TAIL_BLOCKS * TAIL_BLOCKS).saturating_sub(TAIL_BLOCKS);
        let mut extents = vec![Extent { start: tail, count: self.blocks - tail }];
        self.clear_tables(&mut extents);
        let [low, high] = self.data(0);
        let first = low.chain(high).take(self.first_files() as usize);
        extents.extend(first.map(|start| Extent { start, count: 1 }));
        // Reserved descriptors of the first group point to their copies.
        let reserved = 1 + self.descriptor_blocks;
        extents.extend((0..self.reserved_blocks).map(|n| Extent { start: reserved + n, count: 1 }));
        let journal = self.journal();
        extents.extend(journal.iter().flat_map(|r| r.clone().map(|start| Extent { start, count: 1 })));
        for group in 0..self.groups {
            let kept = self.group(group);
            if has_copy(group) {
                extents.push(Extent { start: kept.copy.start, count: 1 + self.descriptor_blocks });
            }
            if self.is_touched(group, &journal) {
                extents.push(Extent { start: kept.block_bitmap, count: 1 });
            }
            if !self.is_lazy() || group == 0 {
                extents.push(Extent { start: kept.inode_bitmap, count: 1 });
            }
        }
        extents
    }

    const fn is_lazy(&self) -> bool {
        self.flexible > 1
    }

    fn clear_tables(&self, extents: &mut Vec<Extent>) {
        if self.is_lazy() {
            // Only what the first inodes are in.
            let table = self.group(0).table;
            let per_block = (self.inodes_per_group / self.table_blocks).max(1);
            extents.push(Extent { start: table.start, count: INODES_RESERVED.div_ceil(per_block) });
            return;
        }
        for group in 0..self.groups {
            let table = self.group(group).table;
            for start in table.clone().step_by(ZERO_BLOCKS as usize) {
                extents.push(Extent { start, count: ZERO_BLOCKS.min(table.end - start) });
            }
        }
    }

    /// Data blocks of the first group that directories take, and the block that leads to the reserved descriptors.
    fn first_files(&self) -> u64 {
        DIRECTORY_BLOCKS + u64::from(self.reserved_blocks > 0)
    }

    /// Data blocks from a group on that are free once directories are made.
    fn free(&self, from: u64) -> impl Iterator<Item = Range<u64>> {
        (from..self.groups).flat_map(move |group| {
            let mut taken = if group == 0 { self.first_files() } else { 0 };
            self.data(group).map(|range| {
                let start = (range.start + taken).min(range.end);
                taken -= start - range.start;
                start..range.end
            })
        })
    }

    fn free_blocks(&self, group: u64) -> u64 {
        self.free(group).take(2).map(|r| r.end - r.start).sum()
    }

    /// The group a journal of extents begins in.
    fn middle(&self) -> u64 {
        let half = self.blocks / 2 / super::ext::BLOCKS_PER_GROUP;
        let mut start = half.saturating_sub(1);
        let mut end = (half + 1).min(self.groups - 1);
        if self.flexible > 1 && half > self.flexible {
            start = half / self.flexible * self.flexible;
            end = (start + 1).min(self.groups - 1);
        }
        // The first of the emptiest.
        (start..=end).rev().max_by_key(|group| self.free_blocks(*group)).unwrap_or(start)
    }

    /// Where the journal lies, its indirect blocks included.
    fn journal(&self) -> Vec<Range<u64>> {
        let blocks = self.journal_blocks();
        let beyond = blocks.saturating_sub(DIRECT);
        let indirect = match beyond.div_ceil(POINTERS) {
            _ if self.has_extents => 0,
            // The second and all further ones hang on a doubly indirect block.
            count @ 0..=1 => count,
            count => count + 1,
        };
        let from = if self.has_extents { self.middle() } else { 0 };
        let mut left = blocks + indirect;
        let mut ranges = Vec::new();
        for range in self.free(from) {
            let count = left.min(range.end - range.start);
            if count > 0 {
                ranges.push(range.start..range.start + count);
            }
            left -= count;
        }
        ranges
    }

    /// Whether a group's block bitmap is written.
    fn is_touched(&self, group: u64, journal: &[Range<u64>]) -> bool {
        let first = group * super::ext::BLOCKS_PER_GROUP;
        let end = first + super::ext::BLOCKS_PER_GROUP;
        !self.is_lazy()
            || group.is_multiple_of(self.flexible)
            || group == self.groups - 1
            || journal.iter().any(|range| range.start < end && range.end > first)
    }
}
