//! What a drive that only takes time keeps of what is written: the places where superblocks, bitmaps and partition tables
//! lie. Everything else reads as zeroes.

use std::collections::BTreeMap;

const PAGE: usize = 4096;

/// Pages written in the kept places.
#[derive(Debug)]
pub(crate) struct Kept {
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
    /// Bytes from the start that are kept.
    head: u64,
    /// Where the kept bytes at the end begin.
    tail: u64,
}

impl Kept {
    /// Keeps so many bytes at the start of a drive and at its end, to whole pages.
    pub(crate) fn new(drive_bytes: u64, head: u64, tail: u64) -> Self {
        let page = PAGE as u64;
        let tail = drive_bytes.saturating_sub(tail) / page * page;
        Self { pages: BTreeMap::new(), head: head.next_multiple_of(page), tail }
    }

    fn is_kept(&self, at: u64) -> bool {
        at < self.head || at >= self.tail
    }

    /// Whether anything of a range is kept.
    pub(crate) fn keeps(&self, at: u64, bytes: u64) -> bool {
        at < self.head || at + bytes > self.tail
    }

    /// Parts of a range within one page each: where it begins, in the page and in the range's bytes, and its length.
    fn parts(at: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let here = at + done as u64;
            let within = (here % PAGE as u64) as usize;
            let count = (PAGE - within).min(bytes - done);
            let part = (here / PAGE as u64, within, done, count);
            done += count;
            (count > 0).then_some(part)
        })
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        for (page, within, from, count) in Self::parts(at, bytes.len()) {
            if self.is_kept(page * PAGE as u64) {
                let kept = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE]));
                kept[within..within + count].copy_from_slice(&bytes[from..from + count]);
            }
        }
    }

    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        if self.pages.is_empty() || (at >= self.head && at + bytes.len() as u64 <= self.tail) {
            return;
        }
        for (page, within, from, count) in Self::parts(at, bytes.len()) {
            if let Some(kept) = self.pages.get(&page) {
                bytes[from..from + count].copy_from_slice(&kept[within..within + count]);
            }
        }
    }

    /// Makes a range read as zeroes.
    pub(crate) fn forget(&mut self, at: u64, bytes: u64) {
        let (first, last) = (at / PAGE as u64, (at + bytes).div_ceil(PAGE as u64));
        for (&page, kept) in self.pages.range_mut(first..last) {
            let start = at.saturating_sub(page * PAGE as u64).min(PAGE as u64) as usize;
            let end = (at + bytes - page * PAGE as u64).min(PAGE as u64) as usize;
            kept[start..end].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_kept_and_the_middle_reads_as_zeroes() {
        let mut kept = Kept::new(1 << 20, 8192, 4096);
        kept.write(512, &[1; 1024]);
        kept.write(8000, &[2; 400]);
        kept.write((1 << 20) - 512, &[3; 512]);
        kept.write(100_000, &[4; 512]);
        let read = |at, bytes: usize| {
            let mut read = vec![9; bytes];
            kept.read(at, &mut read);
            read
        };
        assert_eq!(read(0, 512), [0; 512]);
        assert_eq!(read(1024, 1024), [[1; 512], [0; 512]].concat());
        assert_eq!(read(8000, 400), [vec![2; 192], vec![0; 208]].concat(), "kept to the end of the head");
        assert_eq!(read((1 << 20) - 512, 512), [3; 512]);
        assert_eq!(read(100_000, 512), [0; 512]);
    }

    #[test]
    fn what_is_forgotten_reads_as_zeroes_to_the_byte() {
        let mut kept = Kept::new(1 << 20, 16384, 0);
        kept.write(0, &[1; 12288]);
        kept.forget(1000, 8000);
        let mut read = vec![9; 12288];
        kept.read(0, &mut read);
        assert!(read[..1000].iter().all(|b| *b == 1) && read[9000..].iter().all(|b| *b == 1));
        assert!(read[1000..9000].iter().all(|b| *b == 0));
    }
}
