//! What members in memory make possible, unseen by the engine: reads that are carried out together, pages that are lent a
//! member's bytes, parity that is computed while its blocks are copied.

use std::sync::Arc;

use stripewise_engine::cache::Cache;
use stripewise_engine::io::{ActionQueue, Area, Buf, Compute, Input, Kernel, MemberIo, Op, Operand, Seg};
use stripewise_engine::units::SECTOR_BYTES;

use super::fused::Lent;
use super::{Context, Shard};
use crate::copy_ahead::ask_for;
use crate::delayed::{DelayedRead, DelayedReads};
use crate::members::Member;

/// How many requests ahead the page cache's places are fetched: a miss takes about as long as two hits.
const LOOK_AHEAD: usize = 6;

/// How deep the queues of actions may nest where a computation waits for its writes: those of an input, and of the answers
/// that are handled at once.
const FUSING_DEPTH_MAX: u32 = 2;

impl Shard {
    /// Carries out the reads that were put off, before what they read or read into goes.
    pub(super) fn finish_delayed(&mut self) {
        // SAFETY: until they are answered both ends belong to them.
        while let Some(answer) = unsafe { self.delayed.run_next() } {
            self.completions.push_back(answer);
        }
    }

    /// Fetches what the page cache will look at for requests that come soon.
    pub(super) fn look_ahead(&self) {
        let Some(cache) = self.stack.cache() else { return };
        let place = |ahead: usize, look: fn(&Cache, u64) -> Option<*const u8>| {
            self.requests.get(ahead).and_then(|request| look(cache, request.range.start))
        };
        let places = [place(LOOK_AHEAD, Cache::first_look), place(LOOK_AHEAD / 2, Cache::second_look)];
        places.into_iter().flatten().for_each(ask_for);
    }

    /// Makes pages their own that are about to be written to.
    pub(super) fn reclaim(&mut self, segs: &[Seg], is_kept: bool) {
        let Some(arena) = &mut self.buffers.arena else { return };
        for seg in segs {
            if let Buf::Page { entry, slot, offset } = seg.buf {
                // SAFETY: what is lent is a member's, which is there or took its bytes back.
                unsafe { arena.reclaim(entry, slot, offset, seg.bytes, is_kept) };
            }
        }
    }

    /// Answers a read into pages by lending them the bytes of a member in memory: a page that is up to date holds what its
    /// member holds. Answers whether that can be done.
    pub(super) fn lend(&mut self, io: &MemberIo, queue: &ActionQueue) -> bool {
        let Self { buffers, is_in_memory: true, members, .. } = self else { return false };
        let Some(arena) = &mut buffers.arena else { return false };
        let Member::Memory(memory) = &*members[io.member.index()] else { return false };
        let Ok(from) = memory.address(io.range) else { return false };
        let segs = queue.segs(io.segs);
        if !segs.iter().all(|seg| matches!(seg.buf, Buf::Page { offset: 0, .. })) {
            return false;
        }
        let mut at = from;
        for seg in segs {
            if let Buf::Page { entry, slot, .. } = seg.buf {
                arena.lend(entry, slot, seg.bytes, at);
            }
            at = at.wrapping_add(seg.bytes as usize);
        }
        let answer = Input::IoDone { tag: io.tag, result: Ok(()) };
        if is_delayed(io) {
            self.delayed.push(DelayedRead {
                answer,
                from,
                to: None,
                bytes: (io.range.count * SECTOR_BYTES) as usize,
            });
        } else {
            self.completions.push_back(answer);
        }
        true
    }

    /// Looks whether every member is in memory: nothing is then under way that the engine has not been told the end of, but
    /// for what this shard puts off itself.
    pub(super) fn look_at_members(&mut self) {
        let is_immediate = |member: &Arc<Member>| matches!(**member, Member::Memory(_) | Member::Missing);
        self.is_in_memory = self.members.iter().all(is_immediate);
        if !self.is_in_memory {
            (0..self.members.len()).for_each(|index| self.take_back(index));
        }
    }

    /// Gives the pages their bytes that a member in memory lends them: it may go, or be written from by others.
    pub(super) fn take_back(&mut self, member: usize) {
        if let (Some(arena), Member::Memory(memory)) = (&mut self.buffers.arena, &*self.members[member]) {
            // SAFETY: the member is there still.
            unsafe { arena.reclaim_from(memory.addresses()) };
        }
    }

    /// Whether a computation may wait for the writes that follow it: they are copies within memory, and none waits yet.
    pub(super) fn is_fusing(&self) -> bool {
        self.depth <= FUSING_DEPTH_MAX && self.is_in_memory && !self.fused.is_pending()
    }

    /// Takes up a write of the stripe whose computation waits.
    pub(super) fn fuse(&mut self, io: &MemberIo, queue: &ActionQueue, context: &Context<'_>) -> bool {
        match &*self.members[io.member.index()] {
            Member::Memory(memory) if io.op == Op::Write && io.area == Area::Data => {
                let bytes = self.buffers.named(queue, context);
                let place = memory.address(io.range);
                place.is_ok_and(|to| self.fused.take(io.tag, to, bytes.runs(queue.segs(io.segs))))
            }
            _ => false,
        }
    }

    /// Carries out the computation that waits, with the writes that were named.
    pub(super) fn finish_fused(&mut self) {
        let Self { fused, completions, buffers, .. } = self;
        let answer = |tag| completions.push_back(Input::IoDone { tag, result: Ok(()) });
        let lend = |Lent { entry, slot, bytes, from }| {
            let arena = buffers.arena.as_mut().expect("only an engine with a stripe cache names its pages");
            arena.lend(entry, slot, bytes, from);
        };
        // SAFETY: what could touch the blocks or the members' sectors is carried out after this; nothing waits between inputs.
        unsafe { fused.finish(lend, answer) };
    }
}

/// Whether an I/O to memory is a short read into one run of bytes.
pub(super) fn is_delayed(io: &MemberIo) -> bool {
    io.op == Op::Read && io.segs.count == 1 && io.range.count * SECTOR_BYTES <= DelayedReads::BYTES_MAX as u64
}

/// The two ends of a computation that is a short copy of one run of the page cache to a caller.
pub(super) fn cache_hit(compute: &Compute, queue: &ActionQueue) -> Option<(Buf, Buf)> {
    if compute.kernel != Kernel::Copy || compute.bytes > DelayedReads::BYTES_MAX as u64 {
        return None;
    }
    let one = |operands| match *queue.operands(operands) {
        [Operand { segs, .. }] => match *queue.segs(segs) {
            [seg] => Some(seg.buf),
            _ => None,
        },
        _ => None,
    };
    let (from, to) = (one(compute.sources)?, one(compute.targets)?);
    matches!((from, to), (Buf::CachePage { .. }, Buf::Request { .. })).then_some((from, to))
}
