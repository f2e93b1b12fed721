//! Reads that take a member's bytes as they are: all of a request, or a part of a larger one. Millions may be in flight, so
//! that what is kept of each is short.
//!
//! A request that is one such read has no [state](super::core::RequestState), and none has a
//! [record](super::core::IoRecord). Where the member refuses, both are made, and it goes on as the part of a request it then is.

use std::num::NonZeroU32;

use super::core::{Core, IoRecord, Owner, RequestKey, RequestState};
use super::slab::Slab;
use crate::geometry::Place;
use crate::io::{ActionQueue, Area, Buf, Flags, MemberIo, Op, Request, RequestId, Seg, SegList, Tag};
use crate::units::{MemberIndex, SectorRange, Slot};

/// A read on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainRead {
    /// The caller's number of the request, or our place of it, as the tag says.
    pub(crate) whose: u32,
    slot: Slot,
    member: MemberIndex,
    sectors: NonZeroU32,
    /// The array's sector.
    sector: u64,
}

/// The reads on their way.
pub(crate) type PlainReads = Slab<PlainRead>;

impl Core {
    /// Asks a slot's member for all a read wants, from this sector of it on.
    #[inline]
    pub(crate) fn read_whole(&mut self, out: &mut ActionQueue, request: &Request, from: Place) {
        let &Request { id, range, .. } = request;
        // No request is longer than its bytes are counted in 32 bits.
        let bytes = range.count as u32 * 512;
        let segs = out.add_seg(Seg { buf: Buf::Request { id, offset: 0 }, bytes });
        self.plain_read(out, id.0, Tag::OF_READ, range, from, segs);
    }

    /// Asks a slot's member for a part of a read, from this sector of it on.
    #[inline]
    pub(crate) fn read_part(
        &mut self,
        out: &mut ActionQueue,
        request: RequestKey,
        part: SectorRange,
        from: Place,
    ) {
        self.part_begins(request);
        let seg = self.request_seg(request, part.start, part.count);
        let segs = out.add_seg(seg);
        self.plain_read(out, request as u32, Tag::OF_READ | Tag::OF_PART, part, from, segs);
    }

    #[inline]
    fn plain_read(
        &mut self,
        out: &mut ActionQueue,
        whose: u32,
        kind: u64,
        range: SectorRange,
        Place { slot, sector }: Place,
        segs: SegList,
    ) {
        let of_member = SectorRange::new(sector, range.count);
        let member = self.source(slot, of_member);
        let sectors = NonZeroU32::new(range.count as u32).expect("a read wants something");
        let read = PlainRead { whose, slot, member, sectors, sector: range.start };
        let tag = Tag(self.plain_reads.insert(read) | kind);
        let range = of_member;
        let (area, op) = (Area::Data, Op::Read);
        self.ask(out, slot, MemberIo { tag, member, area, op, range, fua: false, segs });
    }

    /// Lets go of a read that was answered.
    #[inline]
    pub(crate) fn plain_read_ended(&mut self, tag: Tag) -> Option<PlainRead> {
        let read = self.plain_reads.remove(tag.0 & !(Tag::OF_READ | Tag::OF_PART))?;
        self.in_flight[read.slot.index()] -= 1;
        Some(read)
    }

    /// The request that a read is a part of.
    #[inline]
    pub(crate) fn request_of(&self, read: &PlainRead) -> RequestKey {
        self.requests.key_at(read.whose)
    }

    /// What a read that its member refused goes on as: the part of a request.
    #[cold]
    pub(crate) fn refused_read(&mut self, is_part: bool, read: &PlainRead, has_copies: bool) -> IoRecord {
        let &PlainRead { whose, slot, member, sector, sectors } = read;
        let count = u64::from(sectors.get());
        let request = if is_part {
            self.request_of(read)
        } else {
            let range = SectorRange::new(sector, count);
            let request = Request { id: RequestId(whose), op: Op::Read, range, flags: Flags::default() };
            self.requests.insert(RequestState { admitted: count, ..RequestState::new(request) })
        };
        let mut copies = (0..self.geometry.copies()).map(|copy| self.geometry.place(sector, copy));
        let place = copies.find(|place| place.slot == slot).expect("it was read where it lies");
        let owner = if has_copies {
            Owner::CopyRead { request, sector, tried: 0 }
        } else {
            Owner::Part { request, sector }
        };
        let range = SectorRange::new(place.sector, count);
        IoRecord { slot, member, op: Op::Read, is_again: false, range, owner }
    }
}
