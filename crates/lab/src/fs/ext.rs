//! Where ext3 and ext4 put what they keep, and what making one writes.
//!
//! Blocks of 4 KiB, groups of 32768 blocks, superblock copies in groups 0, 1 and powers of 3, 5 and 7, no flexible
//! groups. The facts are mke2fs's (e2fsprogs): inodes of a group fill whole blocks of its table; a last group too
//! small for its own tables is left out; with a stride, the two bitmaps of group g lie `stride × g` blocks behind where
//! its inode table could end, modulo what is left of the group.

use std::ops::Range;

use super::{BLOCK_BYTES, Extent};

/// Blocks of a group: as many as a bitmap of one block counts.
const BLOCKS_PER_GROUP: u64 = BLOCK_BYTES * 8;
/// Group descriptors in a block, 32 bytes each.
const DESCRIPTORS_PER_BLOCK: u64 = BLOCK_BYTES / 32;
/// Blocks beside its tables that a last group must have to be made.
const LAST_GROUP_SPARE: u64 = 50;
/// Descriptors are reserved for growth by this factor …
const GROWTH: u64 = 1024;
/// … in at most so many blocks: those one block can point to.
const RESERVED_MAX: u64 = BLOCK_BYTES / 4;
/// Data blocks an indirect block of ext3 points to.
const POINTERS: u64 = BLOCK_BYTES / 4;
/// Blocks zeroed at once where inode tables are cleared.
const ZERO_BLOCKS: u64 = 8;
/// The first inodes are reserved.
const INODES_RESERVED: u64 = 11;

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
}

/// The layout of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ext {
    stride: u64,
    /// Blocks used.
    pub blocks: u64,
    /// Groups.
    pub groups: u64,
    /// Inodes of each group.
    pub inodes_per_group: u64,
    /// Blocks of each inode table.
    pub table_blocks: u64,
    descriptor_blocks: u64,
    reserved_blocks: u64,
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
        let mut blocks = spec.blocks;
        loop {
            let groups = blocks.div_ceil(BLOCKS_PER_GROUP);
            if groups == 0 {
                return None;
            }
            let per_group = inodes.div_ceil(groups).max((INODES_RESERVED + 1).div_ceil(groups));
            let table_blocks = (per_group * spec.inode_size).div_ceil(BLOCK_BYTES);
            let inodes_per_group = table_blocks * BLOCK_BYTES / spec.inode_size / 8 * 8;
            let descriptor_blocks = groups.div_ceil(DESCRIPTORS_PER_BLOCK);
            let grown = (blocks * GROWTH).min(u64::from(u32::MAX)).div_ceil(BLOCKS_PER_GROUP);
            let reserved =
                grown.div_ceil(DESCRIPTORS_PER_BLOCK).saturating_sub(descriptor_blocks).min(RESERVED_MAX);
            let reserved_blocks = reserved;
            let layout = Self {
                stride: spec.stride,
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
                return Some(layout);
            }
            blocks -= rest;
        }
    }

    const fn copy_blocks(&self) -> u64 {
        1 + self.descriptor_blocks + self.reserved_blocks
    }

    /// What a group keeps for itself.
    pub fn group(&self, group: u64) -> Group {
        let first = group * BLOCKS_PER_GROUP;
        let end = (first + BLOCKS_PER_GROUP).min(self.blocks);
        let free = first + if has_copy(group) { self.copy_blocks() } else { 0 };
        let mut bitmap = free;
        if self.stride > 0 {
            let shifted = free + self.table_blocks;
            let shifted = shifted + self.stride * group % (end - shifted);
            // The last block has no room for both.
            bitmap = if shifted >= end - 1 { free } else { shifted };
        }
        let table = if bitmap == free { free + 2 } else { free };
        Group {
            copy: first..free,
            block_bitmap: bitmap,
            inode_bitmap: bitmap + 1,
            table: table..table + self.table_blocks,
            end,
        }
    }

    /// Blocks of a group that files may use, in order.
    pub fn data(&self, group: u64) -> [Range<u64>; 2] {
        let kept = self.group(group);
        let after_bitmaps = kept.inode_bitmap + 1;
        if kept.block_bitmap < kept.table.start {
            [kept.table.end..kept.end, kept.end..kept.end]
        } else {
            [kept.table.end..kept.block_bitmap, after_bitmaps..kept.end]
        }
    }

    /// Blocks of the journal that mke2fs makes by default.
    pub const fn journal_blocks(&self) -> u64 {
        match self.blocks {
            0..2_048 => 0,
            2_048..32_768 => 1_024,
            32_768..262_144 => 4_096,
            262_144..524_288 => 8_192,
            524_288..1_048_576 => 16_384,
            _ => 32_768,
        }
    }

    /// What mke2fs writes, in order: the inode tables, the journal, then superblocks, descriptors and bitmaps.
    pub fn mkfs(&self) -> Vec<Extent> {
        let mut extents = Vec::new();
        for group in 0..self.groups {
            let table = self.group(group).table;
            for start in table.clone().step_by(ZERO_BLOCKS as usize) {
                extents.push(Extent { start, count: ZERO_BLOCKS.min(table.end - start) });
            }
        }
        // Reserved descriptors of the first group point to their copies.
        let reserved = 1 + self.descriptor_blocks;
        extents.extend((0..self.reserved_blocks).map(|n| Extent { start: reserved + n, count: 1 }));
        let mut left = self.journal_blocks() + self.journal_blocks() / POINTERS;
        let data = (0..self.groups).flat_map(|group| self.data(group)).flatten();
        for start in data {
            if left == 0 {
                break;
            }
            extents.push(Extent { start, count: 1 });
            left -= 1;
        }
        for group in 0..self.groups {
            let kept = self.group(group);
            if has_copy(group) {
                extents.push(Extent { start: kept.copy.start, count: 1 + self.descriptor_blocks });
            }
            extents.push(Extent { start: kept.block_bitmap, count: 1 });
            extents.push(Extent { start: kept.inode_bitmap, count: 1 });
        }
        extents
    }
}

/// Whether a group holds a copy of the superblock.
fn has_copy(group: u64) -> bool {
    let is_power_of = |base: u64| {
        let mut power = base;
        while power < group {
            power *= base;
        }
        power == group
    };
    group <= 1 || [3, 5, 7].into_iter().any(is_power_of)
}

/// A file that fills a file system from its first free block on.
#[derive(Clone, Debug)]
pub struct ExtFile {
    layout: Ext,
    /// Blocks for files before each group, and in all.
    before: Vec<u64>,
    /// Data blocks between indirect blocks; none for extents.
    indirect: Option<u64>,
}

impl ExtFile {
    /// A file of ext3, with indirect blocks among its data, or of ext4, with extents.
    pub fn new(layout: Ext, has_extents: bool) -> Self {
        let mut before = Vec::with_capacity(layout.groups as usize + 1);
        let mut sum = 0;
        before.push(0);
        for group in 0..layout.groups {
            sum += layout.data(group).iter().map(|r| r.end - r.start).sum::<u64>();
            before.push(sum);
        }
        Self { layout, before, indirect: (!has_extents).then_some(POINTERS) }
    }

    /// Its blocks.
    pub fn blocks(&self) -> u64 {
        let all = self.before[self.before.len() - 1];
        self.indirect.map_or(all, |pointers| all / (pointers + 1) * pointers)
    }

    /// Where a block of the file lies, and how many follow it without a gap.
    pub fn place(&self, block: u64) -> Extent {
        // An indirect block lies before the data it points to.
        let (index, run) = match self.indirect {
            Some(pointers) => (block + block / pointers + 1, pointers - block % pointers),
            None => (block, u64::MAX),
        };
        let group = self.before.partition_point(|b| *b <= index) as u64 - 1;
        let mut within = index - self.before[group as usize];
        let [low, high] = self.layout.data(group);
        let range = if within < low.end - low.start {
            low
        } else {
            within -= low.end - low.start;
            high
        };
        let start = range.start + within;
        Extent { start, count: run.min(range.end - start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB_BLOCKS: u64 = (1 << 30) / BLOCK_BYTES;

    fn spec() -> ExtSpec {
        ExtSpec { blocks: 16 * GIB_BLOCKS, inode_ratio: 16_384, inodes: None, inode_size: 256, stride: 0 }
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
    fn a_file_visits_every_data_block_once_in_order() {
        for has_extents in [false, true] {
            let layout = Ext::new(&ExtSpec { stride: 32, blocks: GIB_BLOCKS, ..spec() }).unwrap();
            let file = ExtFile::new(layout, has_extents);
            let (mut block, mut last) = (0, None);
            while block < file.blocks() {
                let place = file.place(block);
                assert!(last.is_none_or(|last| place.start > last), "block {block}");
                last = Some(place.start + place.count - 1);
                block += place.count;
            }
        }
    }

    #[test]
    fn the_published_file_systems_have_their_inodes() {
        // 840 GiB and a little: with the default ratio the last group is too small and left out.
        let blocks = 6707 * BLOCKS_PER_GROUP + 300;
        let old = ExtSpec { blocks, inode_ratio: 8192, inodes: None, inode_size: 128, stride: 0 };
        let default = Ext::new(&old).unwrap();
        assert_eq!((default.groups, default.inodes_per_group, default.table_blocks), (6707, 16_416, 513));
        let few = Ext::new(&ExtSpec { inodes: Some(100), ..old }).unwrap();
        assert_eq!((few.groups, few.inodes_per_group), (6708, 32));
    }
}
