//! The closed loop: `numjobs` × `iodepth` requests, each started again when it completes.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use stripewise_engine::io::{Flags, IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, Nanos, SECTOR_BYTES, SectorRange};
use stripewise_engine::workload::{Next, Workload};

use super::cancel::Cancel;
use super::measure::{Counters, Measured};
use super::random::Random;
use super::{Job, JobError, Region};

/// A runner that met this many errors ends: a target that fails every request at once would let no time pass.
const ERRORS_MAX: u64 = 1000;

/// Runs a [`Job`] on a target of a known size.
#[derive(Clone, Debug)]
pub struct JobRunner {
    block_bytes: u64,
    block_sectors: u64,
    read_percent: u64,
    is_random: bool,
    fsync: u32,
    run_blocks: u64,
    run_fsync: bool,
    buffered: bool,
    ramp_time: Nanos,
    runtime: Option<Nanos>,
    jobs: Vec<JobState>,
    requests: Vec<RequestState>,
    /// Requests to start, in order; as long as there are requests, so that it never grows.
    ready: VecDeque<u32>,
    clock: Option<Clock>,
    /// That of runners dealt from one, which measure the same time: the first to ask starts it.
    common_clock: Option<Arc<OnceLock<Clock>>>,
    last_completion: Instant,
    read: Counters,
    write: Counters,
    flush: Counters,
    completed: u64,
    cancel: Cancel,
}

#[derive(Clone, Debug)]
struct JobState {
    random: Random,
    region: Region,
    next_read_block: u64,
    next_write_block: u64,
    blocks_left: u64,
    writes_unflushed: u32,
    /// The run under way: its next block, and how many are left.
    run: (u64, u64),
    /// The run wrote and is to be flushed.
    run_dirty: bool,
}

#[derive(Clone, Copy, Debug)]
struct RequestState {
    job: u32,
    op: Op,
    issued: Instant,
}

/// When the measure starts and ends; known once the loop has asked for the first request.
#[derive(Clone, Copy, Debug)]
struct Clock {
    measure_start: Instant,
    end: Instant,
}

impl JobRunner {
    /// Prepares the job on a target of that many sectors.
    pub fn new(job: &Job, target_sectors: u64) -> Result<Self, JobError> {
        job.check()?;
        let regions = job.regions(target_sectors * SECTOR_BYTES)?;
        let jobs = regions.into_iter().zip(0..).map(|(region, number)| JobState {
            random: Random::new(job.randseed, number),
            region,
            next_read_block: 0,
            next_write_block: 0,
            blocks_left: if job.time_based { u64::MAX } else { region.blocks },
            writes_unflushed: 0,
            run: (0, 0),
            run_dirty: false,
        });
        let in_flight = job.numjobs * job.iodepth;
        let idle = |id| RequestState { job: id % job.numjobs, op: Op::Read, issued: Instant::ZERO };
        Ok(Self {
            block_bytes: job.block(),
            block_sectors: job.block() / SECTOR_BYTES,
            read_percent: u64::from(job.read_percent()),
            is_random: job.rw.is_random(),
            fsync: job.fsync,
            run_blocks: job.run_bytes().map_or(1, |run| run / job.block()),
            run_fsync: job.run_fsync && job.run_bytes().is_some(),
            buffered: !job.direct,
            ramp_time: job.ramp_time,
            runtime: (job.runtime > Nanos(0)).then_some(job.runtime),
            jobs: jobs.collect(),
            requests: (0..in_flight).map(idle).collect(),
            ready: (0..in_flight).collect(),
            clock: None,
            common_clock: None,
            last_completion: Instant::ZERO,
            read: Counters::new(),
            write: Counters::new(),
            flush: Counters::new(),
            completed: 0,
            cancel: Cancel::default(),
        })
    }

    /// Stops issuing once the flag is set.
    #[must_use]
    pub fn with_cancel(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Cancel::by(flag);
        self
    }

    /// Deals the jobs in turn to that many runners, or to fewer where there are fewer jobs.
    /// Each has the requests of its jobs, and measures by itself; [`joined`](Self::joined) sums up.
    #[must_use]
    pub fn dealt(self, runners: usize) -> Vec<Self> {
        let iodepth = self.requests.len() / self.jobs.len();
        let runners = runners.clamp(1, self.jobs.len());
        let clock = Arc::default();
        let of = |first: usize| {
            let jobs: Vec<_> = self.jobs.iter().skip(first).step_by(runners).cloned().collect();
            let (count, in_flight) = (jobs.len() as u32, (jobs.len() * iodepth) as u32);
            let idle = |id| RequestState { job: id % count, op: Op::Read, issued: Instant::ZERO };
            Self {
                jobs,
                requests: (0..in_flight).map(idle).collect(),
                ready: (0..in_flight).collect(),
                common_clock: Some(Arc::clone(&clock)),
                ..self.clone()
            }
        };
        (0..runners).map(of).collect()
    }

    /// What runners that were [`dealt`](Self::dealt) have measured, as one.
    pub fn joined(runners: &[Self]) -> Measured {
        let Some((first, others)) = runners.split_first() else { return Measured::default() };
        let mut sum = first.clone();
        for other in others {
            sum.jobs.extend_from_slice(&other.jobs);
            sum.clock = sum.clock.or(other.clock);
            sum.last_completion = sum.last_completion.max(other.last_completion);
            sum.read.add(&other.read);
            sum.write.add(&other.write);
            sum.flush.add(&other.flush);
            sum.completed += other.completed;
        }
        sum.measured()
    }

    /// What was measured. Complete once the loop that ran it has returned.
    pub fn measured(&self) -> Measured {
        let Some(clock) = self.clock else { return Measured::default() };
        let ended_early = self.jobs.iter().all(|job| job.blocks_left == 0);
        let end = if ended_early { clock.end.min(self.last_completion) } else { clock.end };
        let end = if end.0 == u64::MAX || self.run_fsync { self.last_completion } else { end };
        Measured {
            seconds: end.since(clock.measure_start).as_secs_f64(),
            read: self.read.result(),
            write: self.write.result(),
            flush: self.flush.result(),
            requests: self.completed,
            request_bytes: self.completed * self.block_bytes,
            first_error: self.read.first_error.or(self.write.first_error),
        }
    }

    fn start_clock(&mut self, now: Instant) -> Clock {
        let measure_start = now + self.ramp_time;
        let end = self.runtime.map_or(Instant(u64::MAX), |runtime| measure_start + runtime);
        let own = Clock { measure_start, end };
        let clock = self.common_clock.as_ref().map_or(own, |common| *common.get_or_init(|| own));
        self.clock = Some(clock);
        clock
    }

    fn errors(&self) -> u64 {
        self.read.errors + self.write.errors
    }
}

/// What requests are drawn by.
#[derive(Clone, Copy, Debug)]
struct Draw {
    read_percent: u64,
    is_random: bool,
    fsync: u32,
    run_blocks: u64,
    run_fsync: bool,
}

impl JobState {
    /// Draws the next operation and its block, or a flush that is due.
    #[inline]
    fn draw(&mut self, draw: Draw) -> (Op, u64) {
        if draw.fsync > 0 && self.writes_unflushed >= draw.fsync {
            self.writes_unflushed = 0;
            return (Op::Flush, 0);
        }
        if draw.run_fsync && self.run_dirty && self.is_run_over() {
            self.run_dirty = false;
            return (Op::Flush, 0);
        }
        let reads = match draw.read_percent {
            0 => false,
            100 => true,
            percent => self.random.below(100) < percent,
        };
        self.blocks_left -= 1;
        if !reads {
            self.writes_unflushed += 1;
            self.run_dirty = true;
        }
        let op = if reads { Op::Read } else { Op::Write };
        if draw.is_random {
            return (op, self.block_of_run(draw.run_blocks));
        }
        let position = if reads { &mut self.next_read_block } else { &mut self.next_write_block };
        let block = *position;
        *position = if block + 1 == self.region.blocks { 0 } else { block + 1 };
        (op, block)
    }

    /// The next block of a random job.
    #[inline]
    fn block_of_run(&mut self, run_blocks: u64) -> u64 {
        if run_blocks == 1 {
            return self.random.below(self.region.blocks);
        }
        if self.run.1 == 0 {
            self.run = (self.random.below(self.region.blocks / run_blocks) * run_blocks, run_blocks);
        }
        let block = self.run.0;
        self.run = (block + 1, self.run.1 - 1);
        block
    }

    /// Whether a run has no more blocks, or the job none for it.
    const fn is_run_over(&self) -> bool {
        self.run.1 == 0 || self.blocks_left == 0
    }

    /// Whether nothing of a run is left to be done.
    const fn is_between_runs(&self) -> bool {
        self.is_run_over() && !self.run_dirty
    }

    /// Whether nothing is left to be done at all.
    const fn is_done(&self, run_fsync: bool) -> bool {
        self.blocks_left == 0 && !(run_fsync && self.run_dirty)
    }
}

impl Workload for JobRunner {
    fn in_flight_max(&self) -> u32 {
        self.requests.len() as u32
    }

    fn request_bytes_max(&self) -> u64 {
        self.block_bytes
    }

    #[inline]
    fn next(&mut self, now: Instant) -> Next {
        let clock = self.clock.unwrap_or_else(|| self.start_clock(now));
        if self.errors() >= ERRORS_MAX || self.cancel.is_set() {
            return Next::Finished;
        }
        let is_over = now >= clock.end;
        if is_over && (!self.run_fsync || self.jobs.iter().all(JobState::is_between_runs)) {
            return Next::Finished;
        }
        while let Some(id) = self.ready.pop_front() {
            let request = &mut self.requests[id as usize];
            let job = &mut self.jobs[request.job as usize];
            if job.is_done(self.run_fsync) || is_over && job.is_between_runs() {
                continue;
            }
            let (op, block) = job.draw(Draw {
                read_percent: self.read_percent,
                is_random: self.is_random,
                fsync: self.fsync,
                run_blocks: self.run_blocks,
                run_fsync: self.run_fsync,
            });
            request.op = op;
            request.issued = now;
            let range = if op == Op::Flush {
                SectorRange::new(0, 0)
            } else {
                SectorRange::new(job.region.start_sector + block * self.block_sectors, self.block_sectors)
            };
            // Linux marks the writes of direct I/O as waited for (`REQ_SYNC`).
            let sync = op == Op::Write && !self.buffered;
            let flags =
                Flags { buffered: self.buffered, sync, stream: request.job as u16, ..Flags::default() };
            return Next::Issue(Request { id: RequestId(id), op, range, flags });
        }
        if self.jobs.iter().all(|job| job.is_done(self.run_fsync)) { Next::Finished } else { Next::Wait }
    }

    #[inline]
    fn complete(&mut self, now: Instant, id: RequestId, result: IoResult) {
        self.ready.push_back(id.0);
        let request = self.requests[id.0 as usize];
        let counters = if request.op == Op::Read { &mut self.read } else { &mut self.write };
        if let Err(error) = result {
            counters.fail(error);
            return;
        }
        self.completed += u64::from(request.op != Op::Flush);
        let Some(clock) = self.clock else { return };
        if now < clock.measure_start || now > clock.end && !self.run_fsync {
            return;
        }
        self.last_completion = now;
        if request.op == Op::Flush {
            self.flush.record(now.since(request.issued), 0);
        } else {
            counters.record(now.since(request.issued), self.block_bytes);
        }
    }
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
