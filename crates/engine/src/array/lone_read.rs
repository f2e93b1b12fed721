//! Reads that one member answers: the most common request, kept as short as it can be.
//!
//! Such a read has no [state](super::core::RequestState) and no [record](super::core::IoRecord). Where its member refuses,
//! it is given both and goes on as the part of a request it then is.

use super::core::{Core, RequestKey, RequestState};
use crate::io::{ActionQueue, Area, Buf, Flags, MemberIo, Op, Request, RequestId, Seg, Tag};
use crate::units::{MemberIndex, SectorRange, Slot};

/// A read on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoneRead {
    pub(crate) id: RequestId,
    pub(crate) slot: Slot,
    pub(crate) member: MemberIndex,
    sectors: u32,
    /// The array's sector.
    pub(crate) sector: u64,
    /// The member's.
    of_member: u64,
}

impl LoneRead {
    /// The member's sectors.
    pub(crate) const fn range(&self) -> SectorRange {
        SectorRange::new(self.of_member, self.sectors as u64)
    }
}

impl Core {
    /// Asks a slot's member for all a read wants, from this sector of it on.
    #[inline]
    pub(crate) fn read_whole(&mut self, out: &mut ActionQueue, request: &Request, slot: Slot, sector: u64) {
        let &Request { id, range, .. } = request;
        let member = self.member_of[slot.index()];
        // No request is longer than its bytes are counted in 32 bits.
        let sectors = range.count as u32;
        let read = LoneRead { id, slot, member, sectors, sector: range.start, of_member: sector };
        let tag = Tag(self.lone_reads.insert(read) | Tag::OF_READ);
        let segs = out.add_seg(Seg { buf: Buf::Request { id, offset: 0 }, bytes: sectors * 512 });
        let range = SectorRange::new(sector, range.count);
        let (area, op) = (Area::Data, Op::Read);
        self.ask(out, slot, MemberIo { tag, member, area, op, range, fua: false, segs });
    }

    /// The read of a tag.
    #[inline]
    pub(crate) fn lone_read(&self, tag: Tag) -> Option<&LoneRead> {
        self.lone_reads.get(tag.0 & !Tag::OF_READ)
    }

    /// Lets go of a read that was answered, by the member in this slot.
    #[inline]
    pub(crate) fn lone_read_ends(&mut self, tag: Tag, slot: Slot) {
        self.lone_reads.discard(tag.0 & !Tag::OF_READ);
        self.in_flight[slot.index()] -= 1;
    }

    /// Gives a read that its member refused the state of a request, which goes on as a part of it.
    #[cold]
    pub(crate) fn read_goes_on(&mut self, read: &LoneRead) -> RequestKey {
        let range = SectorRange::new(read.sector, u64::from(read.sectors));
        let request = Request { id: read.id, op: Op::Read, range, flags: Flags::default() };
        self.requests.insert(RequestState { admitted: range.count, ..RequestState::new(request) })
    }
}
