//! Where ext3 and ext4 put what they keep.
//!
//! Blocks of 4 KiB, groups of 32768 blocks, superblock copies in groups 0, 1 and powers of 3, 5 and 7. The facts are
//! mke2fs's (e2fsprogs): inodes of a group fill whole blocks of its table; a last group too small for its own tables is
//! left out; with a stride, the two bitmaps of group g lie `stride × g` blocks behind where its inode table could end,
//! modulo what is left of the group. Flexible groups keep the bitmaps and tables of 16 groups in the first of them, all
//! block bitmaps first, then all inode bitmaps, then the tables; a stride then shifts nothing.

use std::ops::Range;

use super::{BLOCK_BYTES, MkfsYear};

/// Blocks of a group: as many as a bitmap of one block counts.
pub(super) const BLOCKS_PER_GROUP: u64 = BLOCK_BYTES * 8;
/// Groups whose bitmaps and tables lie together, where groups are flexible.
const FLEXIBLE_GROUPS: u64 = 16;
/// Blocks beside its tables that a last group must have to be made.
const LAST_GROUP_SPARE: u64 = 50;
/// Descriptors are reserved for growth by this factor …
const GROWTH: u64 = 1024;
/// … in at most so many blocks: those one block can point to.
const RESERVED_MAX: u64 = BLOCK_BYTES / 4;
/// The first inodes are reserved.
pub(super) const INODES_RESERVED: u64 = 11;

/// What mke2fs is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtSpec {
    /// Blocks of the device.
    pub blocks: u64,
    /// Bytes of the device for each inode (`-i`).
    pub inode_ratio: u64,
    /// Inodes in all (`-N`), instead of by ratio.
    pub inodes: Option<u64>,
    /// Bytes of an inode (`-I`).
    pub inode_size: u64,
    /// `-E stride`, in blocks; 0 for none.
    pub stride: u64,
    /// Files by extents (ext4) rather than indirect blocks (ext3).
    pub has_extents: bool,
    /// Whose defaults hold.
    pub year: MkfsYear,
}

impl ExtSpec {
    /// Whether groups are flexible, descriptors have 64 bytes, and tables are left to the kernel to be cleared.
    const fn is_flexible(&self) -> bool {
        self.has_extents && matches!(self.year, MkfsYear::Y2023)
    }
}

/// The layout of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ext {
    stride: u64,
    /// Files by extents.
    pub has_extents: bool,
    /// Whose defaults hold.
    pub year: MkfsYear,
    /// Groups whose bitmaps and tables lie together; 1 where groups are not flexible.
    pub flexible: u64,
    /// Blocks used.
    pub blocks: u64,
    /// Groups.
    pub groups: u64,
    /// Inodes of each group.
    pub inodes_per_group: u64,
    /// Blocks of each inode table.
    pub table_blocks: u64,
    /// Blocks of group descriptors.
    pub descriptor_blocks: u64,
    /// Blocks reserved for more of them.
    pub reserved_blocks: u64,
}

/// What a group keeps for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Superblock, descriptors and reserved descriptors; empty without a copy.
    pub copy: Range<u64>,
    /// Block bitmap.
    pub block_bitmap: u64,
    /// Inode bitmap.
    pub inode_bitmap: u64,
    /// Inode table.
    pub table: Range<u64>,
    /// One past its last block.
    pub end: u64,
}

impl Ext {
    /// Lays out a file system; nothing if the device is too small for one group.
    pub fn new(spec: &ExtSpec) -> Option<Self> {
        let inodes = spec.inodes.unwrap_or(spec.blocks * BLOCK_BYTES / spec.inode_ratio);
        let is_flexible = spec.is_flexible();
        let descriptors_per_block = BLOCK_BYTES / if is_flexible { 64 } else { 32 };
        let mut blocks = spec.blocks;
        loop {
            let groups = blocks.div_ceil(BLOCKS_PER_GROUP);
            if groups == 0 {
                return None;
            }
            let per_group = inodes.div_ceil(groups).max((INODES_RESERVED + 1).div_ceil(groups));
            let table_blocks = (per_group * spec.inode_size).div_ceil(BLOCK_BYTES);
            let inodes_per_group = table_blocks * BLOCK_BYTES / spec.inode_size / 8 * 8;
            let descriptor_blocks = groups.div_ceil(descriptors_per_block);
            let grown = (blocks * GROWTH).min(u64::from(u32::MAX)).div_ceil(BLOCKS_PER_GROUP);
            let reserved_blocks =
                grown.div_ceil(descriptors_per_block).saturating_sub(descriptor_blocks).min(RESERVED_MAX);
            let layout = Self {
                stride: spec.stride,
                has_extents: spec.has_extents,
                year: spec.year,
                flexible: if is_flexible { FLEXIBLE_GROUPS } else { 1 },
                blocks,
                groups,
                inodes_per_group,
                table_blocks,
                descriptor_blocks,
                reserved_blocks,
            };
            let rest = blocks % BLOCKS_PER_GROUP;
            let copy = if has_copy(groups - 1) { layout.copy_blocks() } else { 0 };
            if rest == 0 || rest >= copy + 2 + table_blocks + LAST_GROUP_SPARE {
                return layout.has_room().then_some(layout);
            }
            blocks -= rest;
        }
    }

    const fn copy_blocks(&self) -> u64 {
        1 + self.descriptor_blocks + self.reserved_blocks
    }

    /// Whether bitmaps and tables of flexible groups fit in the first of them, as is assumed here.
    fn has_room(&self) -> bool {
        (0..self.groups).step_by(self.flexible as usize).all(|first| {
            let last = (first + self.flexible).min(self.groups) - 1;
            self.group(last).table.end <= self.end(first)
        })
    }

    /// One past the last block of a group.
    fn end(&self, group: u64) -> u64 {
        ((group + 1) * BLOCKS_PER_GROUP).min(self.blocks)
    }

    /// Blocks of the copy of the superblock, the descriptors and those reserved, in a group.
    fn copy(&self, group: u64) -> Range<u64> {
        let first = group * BLOCKS_PER_GROUP;
        first..first + if has_copy(group) { self.copy_blocks() } else { 0 }
    }

    /// What a group keeps, in itself or in the first of its flexible groups.
    pub fn group(&self, group: u64) -> Group {
        let (copy, end) = (self.copy(group), self.end(group));
        if self.flexible > 1 {
            let first = group / self.flexible * self.flexible;
            let (nth, count) = (group - first, self.flexible.min(self.groups - first));
            // One group left over keeps the distances of a full set.
            let apart = if count == 1 { self.flexible } else { count };
            let block_bitmap = self.copy(first).end + nth;
            let table = self.copy(first).end + 2 * apart + nth * self.table_blocks;
            let inode_bitmap = block_bitmap + apart;
            return Group { copy, block_bitmap, inode_bitmap, table: table..table + self.table_blocks, end };
        }
        let free = copy.end;
        let mut bitmap = free;
        if self.stride > 0 {
            let shifted = free + self.table_blocks;
            let shifted = shifted + self.stride * group % (end - shifted);
            // The last block has no room for both.
            bitmap = if shifted >= end - 1 { free } else { shifted };
        }
        let table = if bitmap == free { free + 2 } else { free };
        Group {
            copy,
            block_bitmap: bitmap,
            inode_bitmap: bitmap + 1,
            table: table..table + self.table_blocks,
            end,
        }
    }

    /// Blocks of a group that files may use, in order.
    pub fn data(&self, group: u64) -> [Range<u64>; 2] {
        let kept = self.group(group);
        if self.flexible > 1 {
            let last = (group + self.flexible).min(self.groups) - 1;
            let is_first = group.is_multiple_of(self.flexible);
            let start = if is_first { self.group(last).table.end } else { kept.copy.end };
            // A set of one group leaves a gap between its bitmaps and after them, which is not used here.
            return [start..kept.end, kept.end..kept.end];
        }
        let after_bitmaps = kept.inode_bitmap + 1;
        if kept.block_bitmap < kept.table.start {
            [kept.table.end..kept.end, kept.end..kept.end]
        } else {
            [kept.table.end..kept.block_bitmap, after_bitmaps..kept.end]
        }
    }
}

/// Whether a group holds a copy of the superblock.
pub(super) fn has_copy(group: u64) -> bool {
    let is_power_of = |base: u64| {
        let mut power = base;
        while power < group {
            power *= base;
        }
        power == group
    };
    group <= 1 || [3, 5, 7].into_iter().any(is_power_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB_BLOCKS: u64 = (1 << 30) / BLOCK_BYTES;

    fn spec() -> ExtSpec {
        ExtSpec {
            blocks: 16 * GIB_BLOCKS,
            inode_ratio: 16_384,
            inodes: None,
            inode_size: 256,
            stride: 0,
            has_extents: false,
            year: MkfsYear::Y2006,
        }
    }

    #[test]
    fn copies_lie_in_the_first_two_groups_and_powers_of_3_5_and_7() {
        let copies: Vec<u64> = (0..130).filter(|g| has_copy(*g)).collect();
        assert_eq!(copies, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    }

    #[test]
    fn nothing_overlaps_and_everything_is_somewhere() {
        for stride in [0, 1, 16, 32, 128] {
            let layout = Ext::new(&ExtSpec { stride, ..spec() }).unwrap();
            for group in 0..layout.groups {
                let kept = layout.group(group);
                let mut used = vec![false; BLOCKS_PER_GROUP as usize];
                let [low, high] = layout.data(group);
                let bitmaps = kept.block_bitmap..kept.inode_bitmap + 1;
                for block in kept.copy.clone().chain(bitmaps).chain(kept.table.clone()).chain(low).chain(high)
                {
                    let at = &mut used[(block - group * BLOCKS_PER_GROUP) as usize];
                    assert!(!*at, "stride {stride} group {group} block {block} twice");
                    *at = true;
                }
                let size = (kept.end - group * BLOCKS_PER_GROUP) as usize;
                assert!(used[..size].iter().all(|u| *u), "stride {stride} group {group}");
            }
        }
    }

    #[test]
    fn the_published_file_systems_have_their_inodes() {
        // 840 GiB and a little: with the default ratio the last group is too small and left out.
        let blocks = 6707 * BLOCKS_PER_GROUP + 300;
        let old = ExtSpec { blocks, inode_ratio: 8192, inode_size: 128, ..spec() };
        let default = Ext::new(&old).unwrap();
        assert_eq!((default.groups, default.inodes_per_group, default.table_blocks), (6707, 16_416, 513));
        let few = Ext::new(&ExtSpec { inodes: Some(100), ..old }).unwrap();
        assert_eq!((few.groups, few.inodes_per_group), (6708, 32));
    }
}
