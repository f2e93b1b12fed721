//! What a volume does with each input: to whom it goes, and what may go on after it.

use super::{Machine, Volume};
use crate::array::core::{IoRecord, Owner, RequestKey, RequestState};
use crate::array::plain_read::PlainRead;
use crate::io::{
    Action, ActionQueue, AdminCommand, AdminReply, Input, IoError, IoResult, Op, Request, RequestId, Tag,
    Verdict,
};
use crate::units::Instant;

impl Volume {
    /// Takes an input; what is to be done is added to `out`.
    #[expect(clippy::inline_always, reason = "it only chooses, most often by what its caller has just made")]
    #[inline(always)]
    pub fn handle(&mut self, now: Instant, input: Input, out: &mut ActionQueue) {
        self.core.now = now;
        // Most inputs of a loaded array, and all they need.
        let may_go_on = match input {
            Input::Request(request) if request.op == Op::Read => return self.read(now, &request, out),
            Input::Request(request) => return self.take(now, &request, out),
            Input::IoDone { tag, result } if tag.is_of_read() => {
                return self.plain_read_ended(now, tag, result, out);
            }
            Input::IoDone { tag, result } if tag.is_of_single() => match &mut self.machine {
                Machine::Parity(parity) => parity.single_answered(&mut self.core, out, tag, result),
                Machine::Copies(_) => false,
            },
            Input::IoDone { tag, result } => return self.io_done(now, tag, result, out),
            Input::Computed { tag, .. } if tag.is_of_single() => match &mut self.machine {
                Machine::Parity(parity) => parity.single_computed(&mut self.core, out, tag),
                Machine::Copies(_) => false,
            },
            Input::Computed { tag, verdict } => return self.computed(now, tag, verdict, out),
            Input::Timer => return self.timer(now, out),
            Input::Admin { id, command } => return self.admin(now, id, command, out),
        };
        if may_go_on {
            self.settle(now, out);
        }
    }

    /// Looks at what the answer to an I/O will need. A loop that has several at hand asks for some before their turn: the
    /// waits for memory pass at the same time.
    #[inline]
    pub fn look_at(&self, tag: Tag) {
        if tag.is_of_read() {
            self.core.plain_reads.look_at(tag.0);
        } else if !tag.is_of_single() {
            self.core.ios.look_at(tag.0);
        }
    }

    /// Takes a read. One that one member can answer needs no state of its own.
    #[inline(never)]
    fn read(&mut self, now: Instant, request: &Request, out: &mut ActionQueue) {
        let core = &mut self.core;
        let is_sent = !core.is_barred
            && core.refuses(request).is_none()
            && match &mut self.machine {
                Machine::Parity(parity) => parity.read_whole(core, out, request),
                Machine::Copies(copies) => copies.read_whole(core, out, request),
            };
        if !is_sent {
            self.take(now, request, out);
        }
    }

    /// Takes any request, and lets go on what may for it.
    #[inline(never)]
    fn take(&mut self, now: Instant, request: &Request, out: &mut ActionQueue) {
        if self.request(now, request, out) {
            self.settle(now, out);
        }
    }

    /// A read that took a member's bytes as they are ended.
    #[inline(never)]
    fn plain_read_ended(&mut self, now: Instant, tag: Tag, result: IoResult, out: &mut ActionQueue) {
        let Some(read) = self.core.plain_read_ended(tag) else { return };
        if result.is_err() {
            self.plain_read_refused(tag.is_of_part(), &read, result, out);
        } else if tag.is_of_part() {
            let key = self.core.request_of(&read);
            self.core.part_ends(out, key, result);
        } else {
            out.push(Action::Complete { id: RequestId(read.whose), result });
        }
        self.settle(now, out);
    }

    #[cold]
    fn plain_read_refused(
        &mut self,
        is_part: bool,
        read: &PlainRead,
        result: IoResult,
        out: &mut ActionQueue,
    ) {
        let has_copies = matches!(self.machine, Machine::Copies(_));
        let record = self.core.refused_read(is_part, read, has_copies);
        self.io_ended(&record, result, out);
    }

    /// Any other I/O ended.
    #[inline(never)]
    fn io_done(&mut self, now: Instant, tag: Tag, result: IoResult, out: &mut ActionQueue) {
        let is_plain = result.is_ok() && !self.core.has_bad_blocks();
        // What most answers need is read where it lies.
        let plain = self.core.ios.get(tag.0).filter(|_| is_plain).map(|r| (r.slot, r.op, r.owner));
        match (plain, &mut self.machine) {
            (Some((slot, _, Owner::Part { request, .. })), _) => {
                self.core.data_io_ends(tag, slot);
                self.core.part_ends(out, request, result);
            }
            (Some((slot, of, Owner::Stripe { op })), Machine::Parity(parity)) => {
                self.core.data_io_ends(tag, slot);
                parity.op_answered(&mut self.core, out, op, (slot, of));
            }
            _ => {
                if let Some(record) = self.core.io_ended(tag) {
                    self.io_ended(&record, result, out);
                }
            }
        }
        self.settle(now, out);
    }

    /// Any other computation ended.
    #[inline(never)]
    fn computed(&mut self, now: Instant, tag: Tag, verdict: Verdict, out: &mut ActionQueue) {
        match &mut self.machine {
            Machine::Parity(parity) => parity.computed(&mut self.core, out, tag, verdict),
            Machine::Copies(copies) => copies.computed(&mut self.core, out, tag, verdict),
        }
        self.settle(now, out);
    }

    #[inline(never)]
    fn timer(&mut self, now: Instant, out: &mut ActionQueue) {
        if let Machine::Parity(parity) = &mut self.machine {
            parity.timer(now);
        }
        self.settle(now, out);
    }

    #[inline(never)]
    fn admin(&mut self, now: Instant, id: u32, command: AdminCommand, out: &mut ActionQueue) {
        if command == AdminCommand::Stop {
            self.is_stopped = true;
            self.sync.stop();
            self.stopping = Some(id);
            if let Some(keeper) = &mut self.keeper {
                keeper.stop();
            }
        } else {
            let reply = self.sync.admin(&mut self.core, out, command);
            out.push(Action::Replied { id, reply });
        }
        self.settle(now, out);
    }

    /// Whether nothing waits to go on.
    #[inline]
    fn is_settled(&self) -> bool {
        let is_machine_settled = match &self.machine {
            Machine::Copies(_) => true,
            Machine::Parity(parity) => parity.is_settled(&self.core),
        };
        is_machine_settled
            && self.core.granted.is_empty()
            && self.keeper.is_none()
            && self.stopping.is_none()
            && self.sync.is_settled(&self.core)
    }

    /// Lets go on what was waiting until nothing more can.
    fn settle(&mut self, now: Instant, out: &mut ActionQueue) {
        if !self.is_settled() {
            self.settle_all(now, out);
        }
    }

    #[inline(never)]
    fn settle_all(&mut self, now: Instant, out: &mut ActionQueue) {
        loop {
            while let Some(key) = self.core.granted.pop_front() {
                self.admit(now, key, out);
            }
            self.keep(now, out);
            if let Machine::Parity(parity) = &mut self.machine {
                parity.settle(&mut self.core, out);
            }
            let began = self.sync.settle(&mut self.core, out) || self.let_in(now, out);
            let core = &self.core;
            if core.granted.is_empty() && core.changes.is_empty() && core.writes_ended.is_empty() && !began {
                break;
            }
        }
        let is_said = self.keeper.as_ref().is_none_or(|keeper| keeper.is_stopped(&self.core));
        if is_said && let Some(id) = self.stopping.take() {
            out.push(Action::Replied { id, reply: AdminReply::Done });
        }
    }

    /// Lets in the requests that waited for their turn, if it is theirs. Answers whether there were any.
    fn let_in(&mut self, now: Instant, out: &mut ActionQueue) -> bool {
        if self.core.is_barred || self.core.barred.is_empty() {
            return false;
        }
        while let Some(request) = self.core.barred.pop_front() {
            self.request(now, &request, out);
        }
        true
    }

    /// Lets the keeper go on, and the writes that it lets start.
    fn keep(&mut self, now: Instant, out: &mut ActionQueue) {
        while let Some(keeper) = &mut self.keeper {
            let is_asked_again = keeper.settle(&mut self.core, out, now, &mut self.released);
            for key in std::mem::take(&mut self.released) {
                if self.core.read_only {
                    self.core.part_ends(out, key, Err(IoError::ReadOnly));
                } else {
                    self.admit_now(now, key, out);
                }
            }
            if !is_asked_again {
                break;
            }
        }
    }

    /// Takes a request. Answers whether anything else may go on for it.
    fn request(&mut self, now: Instant, request: &Request, out: &mut ActionQueue) -> bool {
        let refusal = self.core.refuses(request);
        let refusal = refusal.or((self.is_stopped && request.op.is_write()).then_some(IoError::ReadOnly));
        if let Some(error) = refusal {
            out.push(Action::Complete { id: request.id, result: Err(error) });
            return false;
        }
        if self.core.is_barred && request.op != Op::Flush {
            self.core.barred.push_back(*request);
            return false;
        }
        if request.op == Op::Write
            && let Some(may_go_on) = self.write_lone_page(now, request, out)
        {
            return may_go_on;
        }
        let through_cache = match &self.machine {
            Machine::Parity(parity) if request.op == Op::Read => {
                parity.reads_through_cache(&self.core, request.range)
            }
            _ => false,
        };
        let locked = request.op.is_write() || through_cache;
        let key =
            self.core.requests.insert(RequestState { locked, through_cache, ..RequestState::new(*request) });
        if !locked || self.core.ranges.lock(request.range, key) {
            self.admit(now, key, out);
        }
        true
    }

    /// Takes a request that writes one page, without a state of its own where it may start at once. Answers, if it took it,
    /// whether anything else may go on for it.
    #[inline]
    fn write_lone_page(&mut self, now: Instant, request: &Request, out: &mut ActionQueue) -> Option<bool> {
        let Machine::Parity(parity) = &mut self.machine else { return None };
        let core = &mut self.core;
        if !parity.is_lone_page(core, request) || !core.ranges.try_lock(request.range) {
            return None;
        }
        let keeper = self.keeper.as_mut();
        let is_kept = keeper.is_some();
        let is_admitted = keeper.is_none_or(|keeper| keeper.admits(core, request.range));
        if is_admitted && parity.start_lone_page(core, out, request) {
            return Some(is_kept);
        }
        let key = core.requests.insert(RequestState { locked: true, ..RequestState::new(*request) });
        match &mut self.keeper {
            Some(keeper) if !is_admitted => keeper.keep_waiting(key),
            _ => self.admit_now(now, key, out),
        }
        Some(true)
    }

    fn admit(&mut self, now: Instant, key: RequestKey, out: &mut ActionQueue) {
        let state = self.core.request(key);
        let range = state.request.range;
        // Parts of a write that was let start have its leave.
        let is_write = state.request.op.is_write() && state.parent.is_none();
        if let Some(keeper) = self.keeper.as_mut().filter(|_| is_write)
            && !keeper.admits(&mut self.core, range)
        {
            return keeper.keep_waiting(key);
        }
        self.admit_now(now, key, out);
    }

    fn admit_now(&mut self, now: Instant, key: RequestKey, out: &mut ActionQueue) {
        if self.core.request(key).request.op == Op::Flush {
            self.core.flush(out, key);
        } else {
            match &mut self.machine {
                Machine::Copies(copies) => copies.admit(&mut self.core, out, key),
                Machine::Parity(parity) => parity.admit(&mut self.core, out, now, key),
            }
        }
        // The part that kept the request alive while its parts were made.
        self.core.part_ends(out, key, Ok(()));
    }

    #[inline]
    fn io_ended(&mut self, record: &IoRecord, result: IoResult, out: &mut ActionQueue) {
        let is_data = !record.owner.is_beside_data();
        if is_data && result.is_ok() && matches!(record.op, Op::Write | Op::WriteZeroes) {
            self.core.written(record);
        }
        match (record.owner, &mut self.keeper) {
            (Owner::Flush { .. }, _) => return self.core.flushed(out, record, result),
            (Owner::Metadata { member }, Some(keeper)) => {
                return keeper.ended(&mut self.core, out, member, result);
            }
            _ => {}
        }
        if let Owner::Twin { twin } = record.owner {
            if let Some((record, result)) = self.core.twin_ended(out, twin, record.member, result) {
                self.io_ended(&record, result, out);
            }
            return;
        }
        match &mut self.machine {
            Machine::Copies(copies) => copies.ended(&mut self.core, out, record, result),
            Machine::Parity(parity) => parity.ended(&mut self.core, out, record, result),
        }
    }
}
