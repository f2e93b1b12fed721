//! Two ways of taking a request that are not the common one.
//!
//! A page that is written alone starts as it comes. Where the policy says so the rows of a request are taken in turn, as
//! md does since Linux 6.0: each row gets all the request has for it before the next
//! row takes a stripe-cache entry, so that a cache that runs out leaves whole rows behind and not whole chunks.

use super::Parity;
use super::single::Of;
use super::window::{NO_ENTRY, Piece};
use crate::array::core::{Core, RequestKey};
use crate::io::{ActionQueue, Buf, Request};
use crate::units::{PAGE_SECTORS, SectorRange};

impl Parity {
    /// Whether a write is of one page and need not be gathered with others: it may start as it comes.
    #[inline]
    pub(crate) fn is_lone_page(&self, core: &Core, request: &Request) -> bool {
        let range = request.range;
        range.count == PAGE_SECTORS
            && range.start.is_multiple_of(PAGE_SECTORS)
            && !request.flags.more
            && self.plug.is_none()
            && self.has_none_waiting()
            && !core.policy.writes_fill_cache
            && self.preread_active < core.policy.preread_active_max
    }

    /// Starts such a write, whose range is held for it, if its row is free and nothing else stands in the way. Answers
    /// whether it did; nothing more is kept of the request.
    #[inline]
    pub(crate) fn start_lone_page(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        request: &Request,
    ) -> bool {
        let (number, piece) = self.first_piece(0, request, request.range);
        let index = self.windows.open(number);
        let row = piece.rows().0;
        let number_of_row = number * self.windows.rows + u64::from(row);
        let window = self.windows.get(index);
        let is_free = window.entries[row as usize] == NO_ENTRY && !window.by_rows && !window.delayed;
        let entry = if is_free { self.cache.acquire(number_of_row) } else { None };
        let Some(entry) = entry else {
            self.windows.close_if_free(index);
            return false;
        };
        window.entries[row as usize] = entry;
        let map = self.stripe_map(index);
        let of = (Buf::Request { id: request.id, offset: 0 }, Of::Caller(request.id));
        let has_started = self.start_page(core, out, index, &map, &piece, of);
        if !has_started {
            self.windows.get(index).release_rows(piece.rows(), &mut self.cache);
            self.windows.close_if_free(index);
        }
        has_started
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
            let (number, piece) = self.first_piece(key, request, rest);
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
