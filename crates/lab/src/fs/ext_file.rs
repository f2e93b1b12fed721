//! A file of ext3 or ext4.

use super::{BLOCK_BYTES, Ext, Extent};

/// Data blocks an indirect block of ext3 points to.
pub(super) const POINTERS: u64 = BLOCK_BYTES / 4;

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
    pub fn new(layout: Ext) -> Self {
        let mut before = Vec::with_capacity(layout.groups as usize + 1);
        let mut sum = 0;
        before.push(0);
        for group in 0..layout.groups {
            sum += layout.data(group).iter().map(|r| r.end - r.start).sum::<u64>();
            before.push(sum);
        }
        let indirect = (!layout.has_extents).then_some(POINTERS);
        Self { layout, before, indirect }
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
    use super::super::{ExtSpec, MkfsYear};
    use super::*;

    #[test]
    fn a_file_visits_every_data_block_once_in_order() {
        for has_extents in [false, true] {
            let layout = Ext::new(&ExtSpec {
                blocks: (1 << 30) / BLOCK_BYTES,
                inode_ratio: 16_384,
                inodes: None,
                inode_size: 256,
                stride: 32,
                has_extents,
                year: MkfsYear::Y2006,
            })
            .unwrap();
            let file = ExtFile::new(layout);
            let (mut block, mut last) = (0, None);
            while block < file.blocks() {
                let place = file.place(block);
                assert!(last.is_none_or(|last| place.start > last), "block {block}");
                last = Some(place.start + place.count - 1);
                block += place.count;
            }
        }
    }
}
