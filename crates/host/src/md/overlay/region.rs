//! One member's part of an overlay: presence bits and data.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::file::OverlayFile;

/// What a presence bit stands for.
pub(super) const BLOCK_BYTES: u64 = 4096;
const BLOCKS_PER_PAGE: u64 = BLOCK_BYTES * 8;

/// A page of presence bits.
#[derive(Debug)]
struct Page {
    bits: Box<[u8; BLOCK_BYTES as usize]>,
    is_dirty: bool,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Region {
    start_bytes: u64,
    size_bytes: u64,
    pages: BTreeMap<u64, Page>,
    has_unflushed: bool,
    /// Its place in the file is nobody's, or another's.
    is_gone: bool,
}

/// Bytes of the presence bits of a member, padded.
fn bits_bytes(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(BLOCK_BYTES).div_ceil(8).next_multiple_of(BLOCK_BYTES)
}

/// Bytes of the region of a member.
pub(super) fn length(size_bytes: u64) -> Option<u64> {
    size_bytes.checked_next_multiple_of(BLOCK_BYTES)?.checked_add(bits_bytes(size_bytes))
}

impl Region {
    pub(super) fn new(start_bytes: u64, size_bytes: u64) -> Self {
        Self { start_bytes, size_bytes, pages: BTreeMap::new(), has_unflushed: false, is_gone: false }
    }

    /// Gives up its place.
    pub(super) fn forget(&mut self) {
        self.pages.clear();
        self.is_gone = true;
    }

    fn require_place(&self) -> io::Result<()> {
        if self.is_gone { Err(io::Error::from_raw_os_error(libc::ESTALE)) } else { Ok(()) }
    }

    /// Where in the overlay's file a byte of the member lies.
    fn place(&self, offset: u64) -> u64 {
        self.start_bytes + bits_bytes(self.size_bytes) + offset
    }

    fn page(&mut self, file: &File, block: u64) -> io::Result<&mut Page> {
        let index = block / BLOCKS_PER_PAGE;
        match self.pages.entry(index) {
            std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let mut bits = Box::new([0; BLOCK_BYTES as usize]);
                file.read_exact_at(&mut bits[..], self.start_bytes + index * BLOCK_BYTES)?;
                Ok(entry.insert(Page { bits, is_dirty: false }))
            }
        }
    }

    fn is_present(&mut self, file: &File, block: u64) -> io::Result<bool> {
        let bit = (block % BLOCKS_PER_PAGE) as usize;
        Ok(self.page(file, block)?.bits[bit / 8] & 1 << (bit % 8) != 0)
    }

    fn set_present(&mut self, file: &File, block: u64) -> io::Result<()> {
        let bit = (block % BLOCKS_PER_PAGE) as usize;
        let page = self.page(file, block)?;
        page.bits[bit / 8] |= 1 << (bit % 8);
        page.is_dirty = true;
        Ok(())
    }

    /// Whether a block is present that begins at a byte that is `wanted`. Pages that are not in use yet are read one
    /// after the other and not kept: there may be many.
    pub(super) fn any_present(&self, file: &File, wanted: impl Fn(u64) -> bool) -> io::Result<bool> {
        self.require_place()?;
        let mut page = [0; BLOCK_BYTES as usize];
        for index in 0..bits_bytes(self.size_bytes) / BLOCK_BYTES {
            match self.pages.get(&index) {
                Some(known) => page = *known.bits,
                None => file.read_exact_at(&mut page, self.start_bytes + index * BLOCK_BYTES)?,
            }
            for (at, byte) in (0..).zip(page).filter(|(_, byte)| *byte != 0) {
                let is_wanted = |bit: u64| {
                    byte & 1 << bit != 0 && wanted((index * BLOCKS_PER_PAGE + at * 8 + bit) * BLOCK_BYTES)
                };
                if (0..8).any(is_wanted) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The longest run of blocks from the one of `offset` on that are all present or all absent, cut off at `end`:
    /// where it ends, and which.
    fn run(&mut self, file: &File, offset: u64, end: u64) -> io::Result<(u64, bool)> {
        let first = offset / BLOCK_BYTES;
        let present = self.is_present(file, first)?;
        let mut block = first + 1;
        while block * BLOCK_BYTES < end && self.is_present(file, block)? == present {
            block += 1;
        }
        Ok(((block * BLOCK_BYTES).min(end), present))
    }

    pub(super) fn read(&mut self, file: &File, base: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.require_place()?;
        let end = offset + bytes.len() as u64;
        let (mut at, mut rest) = (offset, bytes);
        while at < end {
            let (run_end, present) = self.run(file, at, end)?;
            let (piece, after) = rest.split_at_mut((run_end - at) as usize);
            if present {
                file.read_exact_at(piece, self.place(at))?;
            } else {
                base.read_exact_at(piece, at)?;
            }
            (at, rest) = (run_end, after);
        }
        Ok(())
    }

    pub(super) fn write(&mut self, file: &File, base: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.require_place()?;
        let end = offset + bytes.len() as u64;
        if offset == end {
            return Ok(());
        }
        // Blocks that are written in part are completed with what the member holds.
        for edge in [offset, end] {
            if !edge.is_multiple_of(BLOCK_BYTES) && !self.is_present(file, edge / BLOCK_BYTES)? {
                self.complete(file, base, edge / BLOCK_BYTES)?;
            }
        }
        self.has_unflushed = true;
        file.write_all_at(bytes, self.place(offset))?;
        for block in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            self.set_present(file, block)?;
        }
        Ok(())
    }

    /// Copies a block of the member; it is present only once its bit is set.
    fn complete(&self, file: &File, base: &File, block: u64) -> io::Result<()> {
        let start = block * BLOCK_BYTES;
        let mut bytes = [0; BLOCK_BYTES as usize];
        let length = (self.size_bytes - start).min(BLOCK_BYTES) as usize;
        base.read_exact_at(&mut bytes[..length], start)?;
        file.write_all_at(&bytes[..length], self.place(start))
    }

    pub(super) fn flush(&mut self, file: &OverlayFile) -> io::Result<()> {
        self.require_place()?;
        if !self.has_unflushed {
            return Ok(());
        }
        file.sync()?;
        for (index, page) in &mut self.pages {
            if page.is_dirty {
                file.write_all_at(&page.bits[..], self.start_bytes + index * BLOCK_BYTES)?;
            }
        }
        file.sync()?;
        self.pages.values_mut().for_each(|page| page.is_dirty = false);
        self.has_unflushed = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_sync_that_failed_nothing_is_said_to_be_there() {
        let [file, base] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let file = OverlayFile::lost(file);
        file.set_len(4 * BLOCK_BYTES).unwrap();
        base.set_len(BLOCK_BYTES).unwrap();
        let mut regions = [0, 2].map(|block| Region::new(block * BLOCK_BYTES, BLOCK_BYTES));
        for region in &mut regions {
            region.write(&file, &base, 0, &[7; 512]).unwrap();
        }
        let added = super::super::table::add(&file, &[], "a".into(), (BLOCK_BYTES, 1));
        assert!(added.is_err(), "nor is a member added");
        for region in &mut regions {
            assert!(region.flush(&file).is_err(), "and again");
            assert!(region.flush(&file).is_err());
            let mut anew = Region::new(region.start_bytes, BLOCK_BYTES);
            let mut bytes = [1; 512];
            anew.read(&file, &base, 0, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 512], "the member's");
        }
    }
}
