//! Places in memory that were used lately: whether the caches may still have them.
//!
//! *Bound.* One row for each of a fixed number of places; those that share a row forget each other, and one place in 65,536 is
//! taken for another. Either is only copied the slower way. *Cost.* A product and a line of the table.

use std::ops::Range;

use crate::buffers::PAGE;

/// A page is taken to be in the caches still if less than this was written after it: a common last-level cache. Copied through
/// the caches in vain a page costs half as much again, past them in vain twice as much.
const KEPT_BYTES: u64 = 32 << 20;

/// Pages of members in memory that were written lately, or read where they lie for what is written next. A shard's own.
#[derive(Debug)]
pub(super) struct RecentPages {
    written: Recent<PAGE, 16384>,
    /// The addresses of the last that were updated from. A table of these would be looked up while the CPU waits for as many
    /// lines as it can.
    updated: Range<usize>,
}

impl RecentPages {
    /// Those of one of so many shards: what the others write passes through the same cache.
    pub(super) fn new(shards: u32) -> Self {
        Self { written: Recent::new(KEPT_BYTES / u64::from(shards)), updated: 0..0 }
    }

    /// Notes where the old content lies that parity is updated from, which is what is written next: the first of these runs,
    /// with those that follow it in memory.
    pub(super) fn updated(&mut self, from: impl Iterator<Item = (*mut u8, usize)>) {
        self.updated = 0..0;
        for (address, bytes) in from {
            let start = address.addr();
            if self.updated.is_empty() {
                self.updated = start..start;
            }
            if self.updated.end == start {
                self.updated.end += bytes;
            }
        }
    }

    /// Notes a write of pages, and answers whether the caches may have their place.
    pub(super) fn write(&mut self, to: *const u8, bytes: usize) -> bool {
        self.updated.contains(&to.addr()) || self.written.note(to, bytes)
    }
}

/// The last use of one of the places that share the row.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// Which of them.
    tag: u16,
    /// When, in ticks.
    used: u16,
}

/// Places in units of so many bytes, in a table of so many rows (a power of two).
#[derive(Debug)]
pub(super) struct Recent<const UNIT: usize, const ROWS: usize> {
    /// Bytes that were used.
    used: u64,
    /// A tick is so many bytes' use, as a power of two.
    tick_shift: u32,
    rows: Box<[Row; ROWS]>,
}

/// A place is recent for so many ticks.
const TICKS: u16 = 128;

impl<const UNIT: usize, const ROWS: usize> Recent<UNIT, ROWS> {
    /// Places are recent until about so many bytes were used after them.
    pub(super) fn new(kept_bytes: u64) -> Self {
        let tick_shift = (kept_bytes / u64::from(TICKS)).max(1).ilog2();
        Self { used: 0, tick_shift, rows: Box::new([Row::default(); ROWS]) }
    }

    /// Notes that so many bytes from a place on are used, and answers whether they were lately. What is used now in one piece
    /// and now in another is known by its start alone.
    #[inline]
    pub(super) fn note(&mut self, at: *const u8, bytes: usize) -> bool {
        // Buffers lie at multiples of powers of two: the upper bits of a product tell them apart.
        let product = ((at.addr() / UNIT) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let row = &mut self.rows[(product >> (u64::BITS - ROWS.ilog2())) as usize];
        let (tag, now) = ((product >> 32) as u16, (self.used >> self.tick_shift) as u16);
        let is_recent = row.tag == tag && now.wrapping_sub(row.used) < TICKS;
        self.used += bytes as u64;
        *row = Row { tag, used: (self.used >> self.tick_shift) as u16 };
        is_recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(bytes: usize) -> impl Iterator<Item = *const u8> {
        (0..bytes / PAGE).map(|page| std::ptr::without_provenance((1 << 30) + page * PAGE))
    }

    /// How many of the pages of so many bytes are recent, written in turn for the third time.
    fn recent(bytes: usize, shards: u32) -> usize {
        let mut recent = RecentPages::new(shards);
        let mut round = || pages(bytes).filter(|page| recent.write(*page, PAGE)).count();
        round();
        round();
        round()
    }

    #[test]
    fn pages_written_again_soon_are_recent_and_others_are_not() {
        for (mib, shards) in [(1, 1), (4, 1), (4, 2)] {
            let all = (mib << 20) / PAGE;
            assert!(recent(mib << 20, shards) > all * 3 / 4, "{mib} MiB of {shards}");
        }
        for (mib, shards) in [(64, 1), (256, 1), (24, 2)] {
            assert!(recent(mib << 20, shards) < 16, "{mib} MiB of {shards}");
        }
    }

    #[test]
    fn long_after_its_write_a_page_is_not_recent_though_the_ticks_begin_anew() {
        let mut recent = Recent::<PAGE, 8192>::new(KEPT_BYTES);
        let page = std::ptr::without_provenance(1 << 30);
        assert!(!recent.note(page, PAGE) && recent.note(page, PAGE));
        for gib in [1, 2, 5, 9] {
            recent.note(std::ptr::without_provenance(1 << 31), gib << 30);
            assert!(!recent.note(page, PAGE), "{gib} GiB");
        }
    }

    #[test]
    fn what_was_just_read_to_be_updated_is_in_the_caches() {
        let mut recent = RecentPages::new(1);
        let run = |page: usize, count: usize| {
            (std::ptr::without_provenance_mut((1 << 30) + page * PAGE), count * PAGE)
        };
        recent.updated([run(3, 1), run(4, 2), run(9, 1)].into_iter());
        let mut is_recent = |page: usize| recent.write(run(page, 1).0, PAGE);
        assert_eq!([2, 3, 4, 5, 6, 9].map(&mut is_recent), [false, true, true, true, false, false]);
        recent.updated(std::iter::empty());
        assert!(!recent.write(run(3, 1).0, PAGE));
    }
}
