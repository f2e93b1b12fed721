//! Buffered reads within one page that is there: most of what a cache is asked for. Such a read is one copy, and what is
//! kept of it is what the copy's end needs; nothing else has to be looked at.

use super::{Cache, Copying};
use crate::io::{Action, ActionQueue, Buf, Op, Request, RequestId, Seg};
use crate::units::{PAGE_SECTORS, SECTOR_BYTES};

/// Such a read in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    page: u64,
    frame: u32,
    id: RequestId,
    stream: u16,
}

impl Cache {
    /// Takes a request if it is such a read; answers whether it did.
    pub(super) fn hit(&mut self, request: &Request, out: &mut ActionQueue) -> bool {
        let Some((page, frame)) = self.find_hit(request) else { return false };
        self.stats.hits += 1;
        self.touch_once(frame, page, request);
        self.frames.change(frame, |f| f.readers += 1);
        let offset = ((request.range.start - page * PAGE_SECTORS) * SECTOR_BYTES) as u32;
        let bytes = request.range.count * SECTOR_BYTES;
        let mut named = |buf| out.add_seg(Seg { buf, bytes: bytes as u32 });
        let source = named(Buf::CachePage { frame, offset });
        let target = named(Buf::Request { id: request.id, offset: 0 });
        let hit = Hit { page, frame, id: request.id, stream: request.flags.stream };
        self.ask_copy(Copying::Hit(hit), source, target, bytes, out);
        true
    }

    /// The page that a read is all within, and its frame, if it can be read at once.
    fn find_hit(&self, request: &Request) -> Option<(u64, u32)> {
        let Request { op: Op::Read, range, flags, .. } = *request else { return None };
        let page = range.start / PAGE_SECTORS;
        let room = self.end_sector.saturating_sub(range.start).min(PAGE_SECTORS - range.start % PAGE_SECTORS);
        if !flags.buffered || range.count == 0 || range.count > room || !self.barriers.is_empty() {
            return None;
        }
        let frame = self.index.get(page)?;
        let at = self.frames.get(frame);
        (at.is_readable() && !at.is_marked).then_some((page, frame))
    }

    /// The copy has ended. Answers as [`computed`](Self::computed).
    pub(super) fn hit_ended(&mut self, hit: &Hit, out: &mut ActionQueue) -> bool {
        self.frames.change(hit.frame, |f| f.readers -= 1);
        self.wake_page(hit.frame);
        self.stream(hit.stream).readahead.read(hit.page);
        out.push(Action::Complete { id: hit.id, result: Ok(()) });
        !self.runnable.is_empty() || !self.frame_waiters.is_empty()
    }
}
