//! Which pages of a file in memory were found there.
//!
//! Such a page stays until somebody cuts it off or makes a hole: the file's blocks become fewer then, and everything is
//! forgotten. One that was swapped out is still the file's, and is waited for by who reads it, as in any other way. *Memory.*
//! A bit for every page: 32 KiB for 1 GiB of the file.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Blocks are counted once in so many times. A hole that was made since is read as a page of zeroes, which takes that memory.
const COUNTED_ONCE_IN: u32 = 64;

/// See the module's description. Threads share it: the worst that comes of two at once is that a page is looked for again, or
/// that a hole takes memory.
#[derive(Debug)]
pub(super) struct Present {
    count: usize,
    pages: Box<[AtomicU64]>,
    /// The file's blocks when they were last counted.
    blocks: AtomicU64,
    /// How often somebody asked since.
    asked: AtomicU32,
}

impl Present {
    /// Of a file of so many pages, none of which has been found.
    pub(super) fn none(count: usize) -> Self {
        let pages = (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { count, pages, blocks: AtomicU64::new(0), asked: AtomicU32::new(COUNTED_ONCE_IN) }
    }

    /// Whether the file's blocks are to be counted.
    pub(super) fn is_due(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed) + 1;
        self.asked.store(if asked < COUNTED_ONCE_IN { asked } else { 0 }, Ordering::Relaxed);
        asked >= COUNTED_ONCE_IN
    }

    /// Takes note of how many blocks the file has now: if they are fewer than before, pages are gone.
    pub(super) fn has_blocks(&self, blocks: u64) {
        if self.blocks.load(Ordering::Relaxed) != blocks
            && self.blocks.swap(blocks, Ordering::Relaxed) > blocks
        {
            self.forget();
        }
    }

    /// Any page may be gone.
    pub(super) fn forget(&self) {
        self.pages.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Whether all pages of a run were found, which is within the file.
    pub(super) fn has(&self, run: Range<usize>) -> bool {
        words(run).all(|(word, bits)| self.pages[word].load(Ordering::Relaxed) & bits == bits)
    }

    /// These pages of the file were found.
    pub(super) fn note(&self, pages: impl Iterator<Item = usize>) {
        for page in pages {
            self.pages[page / 64].fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
    }

    /// A run and what is near it, to be looked for at once.
    pub(super) fn around(&self, run: Range<usize>) -> Range<usize> {
        run.start / 64 * 64..run.end.next_multiple_of(64).min(self.count)
    }
}

/// The words that hold a run's bits, each with these bits.
fn words(run: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = run;
    (start / 64..end.div_ceil(64)).map(move |word| {
        let (first, last) = (start.saturating_sub(word * 64), (end - word * 64).min(64));
        (word, u64::MAX << first & u64::MAX >> (64 - last))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_there_once_each_of_its_pages_was_found() {
        let present = Present::none(200);
        present.note(3..4);
        present.note(60..131);
        for run in [3..4, 60..131, 63..65, 64..128, 130..131] {
            assert!(present.has(run.clone()), "{run:?}");
        }
        for run in [2..4, 3..5, 59..61, 60..132, 130..132, 0..200, 199..200] {
            assert!(!present.has(run.clone()), "{run:?}");
        }
        present.note(199..200);
        assert!(present.has(199..200) && !present.has(198..200));
        assert_eq!([3..4, 60..131, 199..200].map(|run| present.around(run)), [0..64, 0..192, 192..200]);
    }

    #[test]
    fn nothing_is_known_of_a_file_that_lost_blocks() {
        let present = Present::none(100);
        present.has_blocks(80);
        present.note(0..10);
        present.has_blocks(88);
        present.note(10..11);
        present.has_blocks(88);
        assert!(present.has(0..11));
        present.has_blocks(80);
        assert!((0..100).all(|page| !present.has(page..page + 1)));
    }

    #[test]
    fn blocks_are_counted_at_first_and_then_once_in_a_while() {
        let present = Present::none(1);
        let due: Vec<usize> = (0..200).filter(|_| present.is_due()).collect();
        assert_eq!(due, [0, 64, 128, 192]);
    }
}
