//! Carrying out what the engine asks for.

use stripewise_engine::io::{
    Action, ActionQueue, Area, ArrayEvent, Buf, Compute, Input, IoError, Kernel, MemberIo, Op, Seg, Verdict,
};
use stripewise_engine::units::{Instant, MemberIndex, SECTOR_BYTES};

use super::bytes::Entry;
use super::memory::{cache_hit, is_delayed};
use super::{Context, Shard, TURN_SECTORS};
use crate::delayed::{DelayedRead, DelayedReads};
use crate::mailbox::Message;
use crate::members::Member;
use crate::report::{MemberCounts, MemberError, TimedEvent};

/// Inputs handled in the middle of a queue of actions: the answers of a stripe's members, not those of a recovery that
/// goes on and on.
const AT_ONCE_MAX: usize = 64;

impl Shard {
    /// Handles one input, if there is one.
    pub(crate) fn step(&mut self, now: Instant, context: &Context<'_>) -> bool {
        let input = if let Some(completion) = self.completions.pop_front() {
            completion
        } else if let Some(mut request) = self.requests.pop_front() {
            request.flags.more |= !self.requests.is_empty();
            self.look_ahead();
            Input::Request(request)
        // SAFETY: what a read is asked for belongs to it until it is answered, which is now.
        } else if let Some(answer) = unsafe { self.delayed.run_next() } {
            answer
        } else if self.stack.next_deadline().is_some_and(|deadline| deadline <= now) {
            Input::Timer
        } else {
            return false;
        };
        self.turn -= 1;
        self.handle(input, now, context);
        true
    }

    /// Whether [`Self::step`] would do nothing.
    pub(crate) fn has_nothing_to_handle(&self, now: Instant) -> bool {
        self.completions.is_empty()
            && self.requests.is_empty()
            && self.delayed.is_empty()
            && self.stack.next_deadline().is_none_or(|deadline| deadline > now)
    }

    pub(super) fn handle(&mut self, input: Input, now: Instant, context: &Context<'_>) {
        let mut queue = self.queues.pop().unwrap_or_default();
        let cause = match input {
            Input::IoDone { tag, result: Err(_) } => self.heed(tag),
            _ => None,
        };
        self.stack.handle(now, input, &mut queue);
        self.depth += 1;
        for action in &queue.actions {
            match action {
                Action::Io(io) => {
                    self.start_io(io, &queue, context);
                    if io.op == Op::Read && io.range.count > DelayedReads::BYTES_MAX as u64 / SECTOR_BYTES {
                        self.go_on_at_once(now, context);
                    }
                }
                Action::Compute(compute) => self.compute(compute, &queue, now, context),
                Action::Complete { id, result } => {
                    // Whoever asked may look at what is computed.
                    self.finish_fused();
                    let (Entry { origin, .. }, result) = self.complete(*id, *result);
                    self.answer(origin, result);
                }
                Action::Replied { reply, .. } => self.reply = Some(*reply),
                Action::Event(event) => self.note(*event, cause, now),
            }
        }
        self.depth -= 1;
        queue.clear();
        self.queues.push(queue);
    }

    pub(super) fn compute(
        &mut self,
        compute: &Compute,
        queue: &ActionQueue,
        now: Instant,
        context: &Context<'_>,
    ) {
        let is_joining = self.fused.is_pending()
            && self.fused.is_joined_by(compute, queue, &self.buffers.named(queue, context));
        if !is_joining {
            // It could read what the one that waits computes.
            self.finish_fused();
        }
        self.take_operands_own(compute, queue);
        // Parity that is brought up to date may be so in its member: it is written there next, by the same operation.
        if compute.kernel != Kernel::Update {
            let is_kept = compute.kernel == Kernel::Copy;
            for target in queue.operands(compute.targets) {
                self.reclaim(queue.segs(target.segs), is_kept);
            }
        }
        let answer = |verdict| Input::Computed { tag: compute.tag, verdict };
        let is_fusing = self.is_fusing();
        let bytes = self.buffers.named(queue, context);
        if is_joining {
            self.fused.join(compute, queue, &bytes);
            return self.handle(answer(Verdict::Consistent), now, context);
        }
        if let Some((from, to)) = cache_hit(compute, queue) {
            let length = compute.bytes as u32;
            return self.delayed.push(DelayedRead {
                answer: answer(Verdict::Consistent),
                from: bytes.address(from, 0, length),
                to: Some(bytes.address(to, 0, length)),
                bytes: length as usize,
            });
        }
        if is_fusing && self.fused.begin(compute, queue, &bytes) {
            self.handle(answer(Verdict::Consistent), now, context);
            self.finish_fused();
        } else {
            if compute.kernel == Kernel::Update && self.is_in_memory {
                let old = queue.operands(compute.sources).first().map(|old| queue.segs(old.segs));
                self.caches.updated(bytes.runs(old.unwrap_or_default()));
            }
            let verdict = self.computer.run(compute, queue, &bytes);
            self.completions.push_back(answer(verdict));
        }
        self.go_on_at_once(now, context);
    }

    /// Has what was just read computed, and what was computed written, before the next is: its bytes are still in the CPU's
    /// caches. Only from the outermost queue of actions, so that what goes on from there does not nest without end.
    pub(super) fn go_on_at_once(&mut self, now: Instant, context: &Context<'_>) {
        if self.depth > 1 {
            return;
        }
        for _ in 0..AT_ONCE_MAX {
            let Some(completion) = self.completions.pop_front() else { return };
            self.handle(completion, now, context);
        }
    }

    pub(super) fn start_io(&mut self, io: &MemberIo, queue: &ActionQueue, context: &Context<'_>) {
        count(&mut self.counts[io.member.index()], io);
        self.turn -= (io.range.count / TURN_SECTORS) as i64;
        if self.fused.is_pending() {
            if self.fuse(io, queue, context) {
                return;
            }
            self.finish_fused();
        }
        self.take_own(queue.segs(io.segs));
        if io.op == Op::Read {
            if self.lend(io, queue) || !self.is_in_memory && self.lend_file(io, queue) {
                return;
            }
            self.reclaim(queue.segs(io.segs), true);
        }
        // What is decrypted, computed with or copied next belongs into the caches.
        let is_of_caller = |seg: &Seg| matches!(seg.buf, Buf::Request { .. });
        let is_for_caller =
            self.buffers.crypt_pages.is_none() && queue.segs(io.segs).first().is_some_and(is_of_caller);
        let bytes = self.buffers.named(queue, context);
        let mut runs = bytes.runs(queue.segs(io.segs));
        let result = match &*self.members[io.member.index()] {
            Member::Missing => Err(IoError::Gone),
            // Memory that is gone with the array bears no metadata.
            Member::Memory(_) if io.area == Area::Device => Err(IoError::Range),
            Member::Memory(memory) if is_delayed(io) => match (memory.address(io.range), runs.next()) {
                (Ok(from), Some((to, bytes))) => {
                    let answer = Input::IoDone { tag: io.tag, result: Ok(()) };
                    return self.delayed.push(DelayedRead { answer, from, to: Some(to), bytes });
                }
                (from, _) => from.map(drop),
            },
            // SAFETY: the engine's buffers are as long as the range and belong to the I/O until it is answered; pages that a
            // member lends are elsewhere than the range, or the very same.
            Member::Memory(memory) => unsafe {
                match io.op {
                    Op::Read => memory.read(io.range, runs, is_for_caller.then_some(&mut self.caches)),
                    Op::Write => memory.write(io.range, runs, &mut self.caches),
                    Op::Flush => Ok(()),
                    Op::Discard | Op::WriteZeroes => memory.zero(io.range),
                }
            },
            // SAFETY: as above.
            Member::Overlay(overlay) => unsafe {
                let base = overlay.start_bytes(io.area);
                match io.op {
                    Op::Read => overlay.read(base, io.range, runs),
                    Op::Write if io.fua => overlay.write(base, io.range, runs).and_then(|()| overlay.flush()),
                    Op::Write => overlay.write(base, io.range, runs),
                    Op::Flush => overlay.flush(),
                    Op::Discard | Op::WriteZeroes => overlay.zero(base, io.range),
                }
            },
            // SAFETY: as above.
            Member::File(file) if file.is_at_once(io) => unsafe { file.at_once(io, runs) },
            Member::File(_) => {
                let ring = self.ring.as_mut().expect("a shard with file members has a ring");
                // SAFETY: as above.
                unsafe { ring.start(&self.members, io, runs) };
                return;
            }
        };
        if let Err(error) = result {
            let data_sector = self.members[io.member.index()].data_sector();
            self.errors.came(io.tag, io.member, MemberError::of(io, data_sector, error));
        }
        self.counts[io.member.index()].end(result);
        self.completions.push_back(Input::IoDone { tag: io.tag, result });
    }

    pub(super) fn note(
        &mut self,
        event: ArrayEvent,
        cause: Option<(MemberIndex, MemberError)>,
        now: Instant,
    ) {
        let takes_out = matches!(
            event,
            ArrayEvent::MemberFailed { .. }
                | ArrayEvent::ReplacementFailed { .. }
                | ArrayEvent::JournalFailed
        );
        if let Some((member, error)) = cause.filter(|_| takes_out) {
            self.errors.is_out(member, error);
        }
        let cause = cause.map(|(_, error)| error);
        if let ArrayEvent::MemberFailed { slot } = event {
            // A failure heard of from another shard has been noted there.
            let is_known = std::mem::replace(&mut self.failed[slot.index()], true);
            if is_known && self.outboxes.len() > 1 {
                return;
            }
            let own = self.index as usize;
            for (_, outbox) in self.outboxes.iter_mut().enumerate().filter(|(shard, _)| *shard != own) {
                outbox.push(Message::Failed(slot, cause));
            }
        }
        self.events.push(TimedEvent { at: now, event, cause });
    }
}

fn count(counts: &mut MemberCounts, io: &MemberIo) {
    match io.op {
        Op::Read => {
            counts.reads += 1;
            counts.read_sectors += io.range.count;
        }
        Op::Write => {
            counts.writes += 1;
            counts.write_sectors += io.range.count;
        }
        Op::Flush => counts.flushes += 1,
        Op::Discard | Op::WriteZeroes => {
            counts.discards += 1;
            counts.discard_sectors += io.range.count;
        }
    }
}
