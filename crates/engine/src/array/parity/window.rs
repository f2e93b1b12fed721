//! Windows: the rows of one stripe that writes are gathered in, at most [`WINDOW_ROWS_MAX`] of them.
//!
//! A window owns the active stripe-cache entries of its rows, the pieces of requests that wait for their
//! rows, and the intervals of rows that an operation works on.

use super::cache::StripeCache;
use crate::array::chains::Chains;
use crate::array::core::RequestKey;
use crate::units::{PAGE_SECTORS, Slot};

/// The most rows in a window: 1 MiB of each member.
pub(crate) const WINDOW_ROWS_MAX: u64 = 256;

/// No stripe-cache entry.
pub(crate) const NO_ENTRY: u32 = u32::MAX;

/// Rows of a window: from, to (not included).
pub(crate) type Rows = (u32, u32);

/// Whether two intervals of rows share one.
pub(crate) const fn share(a: Rows, b: Rows) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// A part of a request in one data chunk of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
pub(crate) struct Piece {
    pub(crate) request: RequestKey,
    /// A read, or a job.
    pub(crate) read: bool,
    /// A job of the array's own, on all slots: alone with its rows.
    pub(crate) job: bool,
    /// Its submitter waits for it.
    pub(crate) sync: bool,
    /// Forced unit access.
    pub(crate) fua: bool,
    /// Data chunk in the stripe.
    pub(crate) data: u16,
    /// First sector, from the start of the window.
    pub(crate) start: u32,
    pub(crate) count: u32,
    /// The array's sector.
    pub(crate) sector: u64,
}

impl Piece {
    pub(crate) const fn end(&self) -> u32 {
        self.start + self.count
    }

    /// Whether it fills its pages.
    pub(crate) const fn is_whole_pages(&self) -> bool {
        (self.start | self.count).is_multiple_of(PAGE_SECTORS as u32)
    }

    /// Rows it touches.
    pub(crate) const fn rows(&self) -> Rows {
        (self.start / PAGE_SECTORS as u32, self.end().div_ceil(PAGE_SECTORS as u32))
    }

    /// The part of it in these rows.
    pub(crate) fn clip(&self, rows: Rows) -> Option<Self> {
        let start = self.start.max(rows.0 * PAGE_SECTORS as u32);
        let end = self.end().min(rows.1 * PAGE_SECTORS as u32);
        (start < end).then(|| Self {
            start,
            count: end - start,
            sector: self.sector + u64::from(start - self.start),
            ..*self
        })
    }
}

/// Rows an operation works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) rows: Rows,
    /// The slot of an operation that only reads it and leaves the rest of its rows to others that do so;
    /// none if the rows are its alone.
    pub(crate) shared: Option<Slot>,
}

impl Owned {
    /// Whether two operations cannot work at the same time.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        let beside = self.shared.is_some() && other.shared.is_some() && self.shared != other.shared;
        share(self.rows, other.rows) && !beside
    }
}

/// A window in use.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Its number: first row divided by the rows in a window.
    pub(crate) number: u64,
    /// Stripe-cache entry of each row, or [`NO_ENTRY`].
    pub(crate) entries: Vec<u32>,
    pub(crate) queue: Vec<Piece>,
    /// Rows that operations work on.
    pub(crate) active: Vec<Owned>,
    /// It is on the list of those to look at when the plug is pulled.
    pub(crate) gathering: bool,
    /// It is on the list of those that wait for others' reads.
    pub(crate) delayed: bool,
    /// More is lost than can be rebuilt when its rows are taken together: they are worked on one by one.
    pub(crate) by_rows: bool,
}

impl Window {
    /// Gives back the entries of rows that nothing waits for any more.
    pub(crate) fn release_rows(&mut self, rows: Rows, cache: &mut StripeCache) {
        let Self { queue, active, entries, .. } = self;
        let is_released = |row: u32| {
            let is_it = |rows| share(rows, (row, row + 1));
            !queue.iter().any(|p| is_it(p.rows())) && !active.iter().any(|o| is_it(o.rows))
        };
        for row in rows.0..rows.1 {
            let entry = &mut entries[row as usize];
            if *entry != NO_ENTRY && !cache.is_next(*entry) && is_released(row) {
                cache.release(std::mem::replace(entry, NO_ENTRY));
            }
        }
        // Those that are next come in the same order as they went.
        for row in (rows.0..rows.1).rev() {
            let entry = &mut entries[row as usize];
            if *entry != NO_ENTRY && is_released(row) {
                cache.release(std::mem::replace(entry, NO_ENTRY));
            }
        }
    }

    fn is_free(&self) -> bool {
        self.queue.is_empty() && self.active.is_empty()
    }
}

/// The windows in use, by number. Memory is kept for the next ones.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Rows in a window.
    pub(crate) rows: u64,
    slab: Vec<Window>,
    free: Vec<u32>,
    by_number: Chains,
}

impl Windows {
    pub(crate) fn new(chunk_sectors: u64) -> Self {
        let rows = (chunk_sectors / PAGE_SECTORS).min(WINDOW_ROWS_MAX);
        assert!(rows.is_power_of_two(), "chunks of levels with parity are powers of two");
        Self { rows, slab: Vec::new(), free: Vec::new(), by_number: Chains::new(0) }
    }

    /// Sectors of each member in a window.
    #[inline]
    pub(crate) const fn sectors(&self) -> u64 {
        self.rows * PAGE_SECTORS
    }

    /// The number of the window that has a member's sector, and the sector from its start on.
    #[inline]
    pub(crate) const fn split(&self, sector: u64) -> (u64, u64) {
        (sector >> self.sectors().trailing_zeros(), sector & (self.sectors() - 1))
    }

    /// The window of a number, made if it is not in use.
    pub(crate) fn open(&mut self, number: u64) -> u32 {
        let Self { slab, by_number, .. } = self;
        if let Some(index) = by_number.find(number, |index| slab[index as usize].number == number) {
            return index;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            let entries = vec![NO_ENTRY; self.rows as usize];
            slab.push(Window { entries, ..Window::default() });
            (slab.len() - 1) as u32
        });
        slab[index as usize].number = number;
        slab[index as usize].by_rows = false;
        by_number.insert(number, index, |index| slab[index as usize].number);
        index
    }

    pub(crate) fn get(&mut self, index: u32) -> &mut Window {
        &mut self.slab[index as usize]
    }

    /// The number of a window.
    pub(crate) fn number(&self, index: u32) -> u64 {
        self.slab[index as usize].number
    }

    /// Frees the window if nothing uses it.
    pub(crate) fn close_if_free(&mut self, index: u32) {
        let window = &mut self.slab[index as usize];
        if window.is_free()
            && !window.gathering
            && !window.delayed
            && self.by_number.remove(window.number, index)
        {
            debug_assert!(window.entries.iter().all(|e| *e == NO_ENTRY), "a free window holds no entry");
            self.free.push(index);
        }
    }

    /// Has an operation leave its row, if it has but one and nothing else uses the window, which is free then: what is left
    /// by most. Answers whether it is so.
    #[inline]
    pub(crate) fn close_after(&mut self, index: u32, owned: &Owned, cache: &mut StripeCache) -> bool {
        let window = &mut self.slab[index as usize];
        let (row, end) = owned.rows;
        let is_last = window.active.len() == 1 && window.queue.is_empty();
        if end - row != 1 || !is_last || window.gathering || window.delayed {
            return false;
        }
        debug_assert_eq!(window.active[0], *owned, "it owned its row");
        window.active.clear();
        cache.release(std::mem::replace(&mut window.entries[row as usize], NO_ENTRY));
        debug_assert!(window.entries.iter().all(|e| *e == NO_ENTRY), "a free window holds no entry");
        self.by_number.remove(window.number, index);
        self.free.push(index);
        true
    }

    /// Windows in use.
    pub(crate) const fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Window> {
        self.slab.iter()
    }
}
