//! Two ways of taking a request that are not the common one.
//!
//! A page that is written alone starts as it comes. Where the policy says so the rows of a request are taken in turn, as
//! md does since Linux 6.0: each row gets all the request has for it before the next
//! row takes a stripe-cache entry, so that a cache that runs out leaves whole rows behind and not whole chunks.

use super::Parity;
use super::window::{NO_ENTRY, Piece};
use crate::array::core::{Core, RequestKey};
use crate::io::{ActionQueue, Request};
use crate::units::{PAGE_SECTORS, SectorRange};

impl Parity {
    /// Whether a write is one page that need not be gathered with others: it may start as it comes.
    #[inline]
    pub(super) fn admits_page(&self, core: &Core, request: &Request) -> bool {
        let range = request.range;
        range.count == PAGE_SECTORS
            && range.start.is_multiple_of(PAGE_SECTORS)
            && !request.flags.more
            && self.plug.is_none()
            && self.is_settled()
            && !core.policy.writes_fill_cache
            && self.preread_active < core.policy.preread_active_max
    }

    /// Takes such a write: at once if its row is free, else it is queued for it, or waits for a stripe-cache entry.
    pub(super) fn admit_page(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: RequestKey,
        request: &Request,
    ) {
        let (number, piece) = self.first_piece(core, key, request, request.range);
        let index = self.windows.open(number);
        let (row, first_row) = (piece.rows().0, number * self.windows.rows);
        let window = self.windows.get(index);
        let entry = &mut window.entries[row as usize];
        let is_first = *entry == NO_ENTRY;
        if is_first {
            let Some(acquired) = self.cache.acquire(first_row + u64::from(row)) else {
                self.windows.close_if_free(index);
                core.part_begins(key);
                self.waiting.push_back(key);
                return;
            };
            *entry = acquired;
        }
        let state = core.request(key);
        state.parts += 1;
        state.admitted = PAGE_SECTORS;
        let is_free = is_first && !window.by_rows && !window.delayed;
        let map = self.shape.stripe(first_row * PAGE_SECTORS / core.geometry.chunk_sectors());
        if !is_free || !self.start_single(core, out, index, map, piece) {
            self.windows.get(index).queue.push(piece);
            self.gather(index);
        }
    }

    /// Cuts a request into pieces as far as stripe-cache entries go, `most` sectors at a time. Answers whether it is all
    /// taken; else it goes on from `next_row` of the part that begins where it is `admitted` to.
    pub(super) fn take_rows_in_turn(
        &mut self,
        core: &mut Core,
        key: RequestKey,
        request: Request,
        most: u64,
    ) -> bool {
        loop {
            let admitted = core.request(key).admitted;
            let left = request.range.count - admitted;
            if left == 0 {
                return true;
            }
            let part = SectorRange::new(request.range.start + admitted, left.min(most));
            if !self.take_part(core, key, &request, part) {
                return false;
            }
            self.next_row = 0;
            core.request(key).admitted += part.count;
        }
    }

    /// Takes a part of a request, stripe after stripe, from `next_row` on. Answers whether all of it was taken.
    fn take_part(&mut self, core: &mut Core, key: RequestKey, request: &Request, part: SectorRange) -> bool {
        let mut pieces = Vec::new();
        let mut sector = part.start;
        while sector < part.end() {
            let rest = SectorRange::new(sector, part.end() - sector);
            let (number, piece) = self.first_piece(core, key, request, rest);
            sector += u64::from(piece.count);
            pieces.push((number, piece));
        }
        pieces.sort_by_key(|(number, _)| *number);
        pieces.chunk_by(|a, b| a.0 == b.0).all(|of_window| self.take_window(core, of_window))
    }

    /// Takes pieces of one window row after row. Answers whether all were taken.
    fn take_window(&mut self, core: &mut Core, pieces: &[(u64, Piece)]) -> bool {
        let number = pieces[0].0;
        let first_row = number * self.windows.rows;
        let from = self.next_row.saturating_sub(first_row).min(self.windows.rows) as u32;
        let rows = || pieces.iter().map(|(_, piece)| piece.rows());
        let begin = rows().map(|r| r.0).min().unwrap_or(0).max(from);
        let end = rows().map(|r| r.1).max().unwrap_or(0);
        if begin >= end {
            return true;
        }
        let index = self.windows.open(number);
        let window = self.windows.get(index);
        let mut taken = end;
        for row in begin..end {
            let entry = &mut window.entries[row as usize];
            if *entry != NO_ENTRY || !rows().any(|r| r.0 <= row && row < r.1) {
                continue;
            }
            let Some(acquired) = self.cache.acquire(first_row + u64::from(row)) else {
                taken = row;
                break;
            };
            *entry = acquired;
        }
        for piece in pieces.iter().filter_map(|(_, piece)| piece.clip((begin, taken))) {
            window.queue.push(piece);
            core.part_begins(piece.request);
        }
        if taken == begin {
            self.windows.close_if_free(index);
        } else {
            self.gather(index);
        }
        if taken < end {
            self.next_row = first_row + u64::from(taken);
        }
        taken == end
    }
}
