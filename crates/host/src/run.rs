//! Drives shards with workloads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stripewise_engine::io::{IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, Nanos, SECTOR_BYTES};
use stripewise_engine::workload::{Next, Workload};

use crate::buffers::RequestPool;
use crate::mailbox::{Mailbox, PartBuffer};
use crate::patience::Patience;
use crate::route::Router;
use crate::shard::{Context, Shard};

/// What is in the buffers of a workload's requests, for workloads to which it matters.
pub trait Payload {
    /// Writes the bytes of a write that is about to start.
    fn fill(&mut self, request: &Request, bytes: &mut [u8]);
    /// Looks at the bytes of a read that has succeeded.
    fn check(&mut self, request: &Request, bytes: &[u8]);
}

/// A workload to which bytes do not matter: its writes are of pseudo-random bytes.
#[derive(Debug)]
pub(crate) struct AnyBytes<W>(pub(crate) W);

impl<W> Payload for AnyBytes<W> {
    fn fill(&mut self, _: &Request, _: &mut [u8]) {}
    fn check(&mut self, _: &Request, _: &[u8]) {}
}

impl<W: Workload> Workload for AnyBytes<W> {
    fn in_flight_max(&self) -> u32 {
        self.0.in_flight_max()
    }
    fn request_bytes_max(&self) -> u64 {
        self.0.request_bytes_max()
    }
    fn next(&mut self, now: Instant) -> Next {
        self.0.next(now)
    }
    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        self.0.complete(now, id, result);
    }
}

/// How the shards of a run end together: each goes on serving the others until no workload runs.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    workloads: AtomicUsize,
    aborted: AtomicBool,
    stop: &'a AtomicBool,
}

impl<'a> Running<'a> {
    pub(crate) fn new(workloads: usize, stop: &'a AtomicBool) -> Self {
        Self { workloads: AtomicUsize::new(workloads), aborted: AtomicBool::new(false), stop }
    }

    pub(crate) fn abort(&self, context: &Context<'_>) {
        self.aborted.store(true, Ordering::SeqCst);
        self.wake_all(context);
    }

    pub(crate) fn workload_ended(&self, context: &Context<'_>) {
        if self.workloads.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake_all(context);
        }
    }

    #[expect(clippy::unused_self, reason = "only a run wakes its shards")]
    fn wake_all(&self, context: &Context<'_>) {
        for mailbox in context.mailboxes {
            mailbox.wake_if_asleep();
        }
    }

    /// Whether a shard gave up, so that others may have been left without answers.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.workloads.load(Ordering::SeqCst) == 0 || self.is_aborted()
    }
}

/// Tells the other shards to give up if this one's thread panics, so that they do not wait for it.
pub(crate) struct AbortOnPanic<'a>(pub(crate) &'a Running<'a>, pub(crate) &'a Context<'a>);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abort(self.1);
        }
    }
}

/// Requests that may have ended before the workload hears of them: looking at the clock for each costs a tenth of a
/// short read.
const ENDED_MAX: usize = 8;

/// What a workload said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Ready,
    Waiting,
    Until(Instant),
    Finished,
    /// Finished, drained, and the other shards know.
    Over,
}

/// A request of the workload in flight.
#[derive(Clone, Copy, Debug)]
struct Whole {
    request: Request,
    parts_left: u32,
    result: IoResult,
}

/// One shard with its workload.
pub(crate) struct Driver<'a, W> {
    shard: &'a mut Shard,
    workload: Option<W>,
    pool: &'a RequestPool,
    router: Router,
    wholes: Vec<Option<Whole>>,
    in_flight: u32,
    mood: Mood,
    /// The last round passed the ring over, so that freed places were taken first.
    has_passed: bool,
    patience: Patience,
}

impl<'a, W: Workload + Payload> Driver<'a, W> {
    pub(crate) fn new(
        shard: &'a mut Shard,
        workload: Option<W>,
        pool: &'a RequestPool,
        router: Router,
    ) -> Self {
        let wholes = vec![None; workload.as_ref().map_or(0, Workload::in_flight_max) as usize];
        let mood = if workload.is_some() { Mood::Ready } else { Mood::Over };
        let patience = Patience::default();
        Self { shard, workload, pool, router, wholes, in_flight: 0, mood, has_passed: false, patience }
    }

    /// Runs until all workloads of the run are finished and this shard is drained.
    pub(crate) fn run(mut self, running: &Running<'_>, context: &Context<'_>) -> Option<W> {
        let _guard = AbortOnPanic(running, context);
        loop {
            let now = context.clock.now();
            self.shard.take_messages(now, context);
            self.wake(now, running);
            self.issue(now);
            // The other shards begin with their parts while this one is at its own.
            self.shard.send_messages(context);
            let is_settled = self.settle(context);
            self.shard.send_messages(context);
            self.end(running, context);
            if running.is_over() && self.shard.comes_to_rest(now, context) {
                return self.workload;
            }
            // A request that ended makes place for one that the members could have already: a call of the kernel in between
            // would be idle time of theirs, and in nobody's latency. Members that answer at once always make place.
            self.has_passed = self.mood == Mood::Ready && is_settled && !self.has_passed;
            if self.mood == Mood::Ready || !is_settled {
                if !self.has_passed {
                    self.shard.poll();
                }
            } else {
                self.sleep(running, context);
            }
        }
    }

    fn wake(&mut self, now: Instant, running: &Running<'_>) {
        if running.stop.load(Ordering::Relaxed) && self.mood != Mood::Over {
            self.mood = Mood::Finished;
        }
        if matches!(self.mood, Mood::Until(time) if time <= now) {
            self.mood = Mood::Ready;
        }
    }

    /// Starts requests until the workload wants no more, all at one time: they are handled as a batch, so
    /// the later ones' waiting counts as theirs.
    fn issue(&mut self, now: Instant) {
        while self.mood == Mood::Ready {
            let Some(workload) = &mut self.workload else { return };
            match workload.next(now) {
                Next::Issue(request) => self.start(request),
                Next::Wait => self.mood = Mood::Waiting,
                Next::WaitUntil(time) => self.mood = Mood::Until(time),
                Next::Finished => self.mood = Mood::Finished,
            }
        }
    }

    fn start(&mut self, request: Request) {
        let base = self.pool.buffer(request.id.0);
        let place = &mut self.wholes[request.id.0 as usize];
        assert!(place.is_none(), "a workload uses an id again before its completion");
        self.in_flight += 1;
        if request.op == Op::Write
            && let Some(workload) = &mut self.workload
        {
            let bytes = request.range.count.saturating_mul(SECTOR_BYTES).min(self.pool.bytes()) as usize;
            // SAFETY: the buffer is that long and belongs to this id, which is not in flight.
            workload.fill(&request, unsafe { std::slice::from_raw_parts_mut(base, bytes) });
        }
        let buffer = PartBuffer { base, bytes: self.pool.bytes(), takes_loans: false };
        let parts = self.shard.start_whole(&self.router, request, buffer);
        *place = Some(Whole { request, parts_left: parts, result: Ok(()) });
    }

    /// Handles inputs until there are none, or for so long that the workload must be heard in between: a recovery of
    /// members in memory always has a next one. Answers whether there are none.
    fn settle(&mut self, context: &Context<'_>) -> bool {
        let mut now = context.clock.now();
        self.shard.begin_turn(context);
        while !self.shard.is_turn_over() {
            let stepped = self.shard.step(now, context);
            if self.shard.ended() >= ENDED_MAX || !stepped && self.shard.ended() > 0 {
                now = context.clock.now();
                self.take_ended(now);
            } else if !stepped {
                return true;
            }
        }
        if self.shard.ended() > 0 {
            self.take_ended(context.clock.now());
        }
        false
    }

    /// Tells the workload what ended, the earliest first.
    fn take_ended(&mut self, now: Instant) {
        while let Some((id, result)) = self.shard.take_ended() {
            let place = &mut self.wholes[id as usize];
            let whole = place.as_mut().expect("a part ends once");
            whole.parts_left -= 1;
            whole.result = whole.result.and(result);
            if whole.parts_left > 0 {
                continue;
            }
            let Whole { request, result, .. } = *whole;
            *place = None;
            self.in_flight -= 1;
            let Some(workload) = &mut self.workload else { continue };
            if request.op == Op::Read && result.is_ok() {
                let bytes = (request.range.count * SECTOR_BYTES) as usize;
                // SAFETY: the read has ended, so the buffer is this thread's again; it was long enough.
                workload.check(&request, unsafe { std::slice::from_raw_parts(self.pool.buffer(id), bytes) });
            }
            workload.complete(now, request.id, result);
            if matches!(self.mood, Mood::Waiting | Mood::Until(_)) {
                self.mood = Mood::Ready;
            }
        }
    }

    fn end(&mut self, running: &Running<'_>, context: &Context<'_>) {
        if self.mood == Mood::Finished && self.in_flight == 0 {
            self.mood = Mood::Over;
            running.workload_ended(context);
        }
    }

    fn sleep(&mut self, running: &Running<'_>, context: &Context<'_>) {
        let until = if let Mood::Until(time) = self.mood { Some(time) } else { None };
        if context.mailboxes.len() == 1 {
            self.shard.sleep(until, context);
            return;
        }
        let mailbox = &context.mailboxes[self.shard.index() as usize];
        let start = context.clock.now();
        if !self.shard.has_ring() {
            let most = self.patience.time().min(self.shard.sleep_time(until, context));
            if look(mailbox, most, context) {
                self.patience.learn(context.clock.now().since(start));
                return;
            }
        }
        if mailbox.fall_asleep() {
            // The end of the run is announced like a message: either seen here, or it wakes this shard.
            if running.is_over() && self.shard.is_idle() {
                mailbox.awake();
                return;
            }
            self.shard.sleep(until, context);
            mailbox.awake();
            let has_news = mailbox.is_filled();
            self.patience.learn(if has_news { context.clock.now().since(start) } else { Nanos(u64::MAX) });
        } else {
            self.shard.poll();
        }
    }
}

/// Looks for messages of other shards for a while, and lets other threads run; answers whether there are any.
fn look(mailbox: &Mailbox, most: Nanos, context: &Context<'_>) -> bool {
    let start = context.clock.now();
    while !mailbox.is_filled() {
        if context.clock.now().since(start) >= most {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
