//! Reads of files in memory that are lent to their request instead of copied; see [`crate::loans`].

use std::sync::Arc;

use stripewise_engine::io::{
    ActionQueue, Buf, Compute, Input, IoError, IoResult, MemberIo, Op, RequestId, Seg,
};
use stripewise_engine::units::SECTOR_BYTES;

use super::Shard;
use super::bytes::Entry;
use crate::loans::Loan;

impl Shard {
    /// Answers a read by lending the bytes of a file in memory, if they go to requests that take loans as they are. Answers
    /// whether it did.
    pub(super) fn lend_file(&mut self, io: &MemberIo, queue: &ActionQueue) -> bool {
        let Self { members, buffers, loans, .. } = self;
        let member = &members[io.member.index()];
        let Some(file) = member.file() else { return false };
        let segs = queue.segs(io.segs);
        let takes_loans = |seg: &Seg| match seg.buf {
            Buf::Request { id, .. } => buffers.entries.get(id).buffer.takes_loans,
            _ => false,
        };
        // What is read encrypted is decrypted in its place.
        if io.op != Op::Read || buffers.crypt_pages.is_some() || !segs.iter().all(takes_loans) {
            return false;
        }
        let Some((mut from, mut sector)) = file.lent(io) else { return false };
        for seg in segs {
            let Buf::Request { id, offset } = seg.buf else { continue };
            let to = buffers.entries.get(id).buffer.base.wrapping_add(offset as usize);
            let bytes = seg.bytes as usize;
            loans.push(Loan { to, bytes, from, member: Arc::clone(member), sector });
            from = from.wrapping_add(bytes);
            sector += u64::from(seg.bytes) / SECTOR_BYTES;
        }
        self.completions.push_back(Input::IoDone { tag: io.tag, result: Ok(()) });
        true
    }

    /// Gives what is about to be read, computed or written the bytes that were lent to it.
    pub(super) fn take_own(&mut self, segs: &[Seg]) {
        if self.loans.is_empty() {
            return;
        }
        for seg in segs {
            let Buf::Request { id, offset } = seg.buf else { continue };
            let start = self.buffers.entries.get(id).buffer.base.wrapping_add(offset as usize);
            // SAFETY: the request's buffer is the engine's until the request is answered.
            if !unsafe { self.loans.fetch(start..start.wrapping_add(seg.bytes as usize)) } {
                self.buffers.entries.spoil(id);
            }
        }
    }

    /// As [`take_own`](Self::take_own), of a computation.
    pub(super) fn take_operands_own(&mut self, compute: &Compute, queue: &ActionQueue) {
        if self.loans.is_empty() {
            return;
        }
        for operands in [compute.sources, compute.targets] {
            queue.operands(operands).iter().for_each(|operand| self.take_own(queue.segs(operand.segs)));
        }
    }

    /// Takes a request's entry, and answers with what is to be said of it.
    pub(super) fn complete(&mut self, id: RequestId, result: IoResult) -> (Entry, IoResult) {
        let entry = self.buffers.entries.remove(id);
        let result = if entry.is_spoilt { result.and(Err(IoError::Gone)) } else { result };
        if result.is_err() && !self.loans.is_empty() {
            let base = entry.buffer.base;
            self.loans.end(base..base.wrapping_add(entry.buffer.bytes as usize));
        }
        (entry, result)
    }
}
