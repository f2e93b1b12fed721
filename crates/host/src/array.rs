//! An open array: its members, its shards, and the two ways to use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stripewise_engine::geometry::Geometry;
use stripewise_engine::io::{AdminReply, Flags, IoError, IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, SECTOR_BYTES, SectorRange, Slot};
use stripewise_engine::volume::VolumeConfig;
use stripewise_engine::workload::{Next, Workload};

use crate::buffers::{RequestPool, Zeroes};
use crate::clock::Clock;
use crate::error::HostError;
use crate::layers::Layers;
use crate::mailbox::Mailbox;
use crate::manage::ManageError;
use crate::members::{self, MemberSpec};
use crate::report::{MemberCounts, Note, RunReport};
use crate::route::Router;
use crate::run::{AbortOnPanic, AnyBytes, Driver, Payload, Running};
use crate::shard::{Context, Shard};

/// The most shards an array has; each is a thread.
pub const SHARDS_MAX: u32 = 64;
/// The fewest stripe-cache entries a shard has, which is md's minimum for an array.
const CACHE_ENTRIES_MIN: u32 = 17;
/// Bytes moved at once by [`Array::read_at`] and [`Array::write_at`].
const PIECE_BYTES: u64 = 1 << 20;

/// What an array is opened with.
#[derive(Clone, Debug)]
pub struct ArrayConfig {
    /// The engine's part. `stripe_cache_size` is that of the whole array: shards divide it.
    pub volume: VolumeConfig,
    /// What each slot is made of.
    pub members: Vec<MemberSpec>,
    /// Threads that [`Array::run`] uses, each with stripes of its own. An array whose members change, or that works by
    /// itself, has one; members may be failed on several.
    pub shards: u32,
    /// When set, [`Array::run`] starts no more requests, drains and returns.
    pub stop: Arc<AtomicBool>,
}

impl ArrayConfig {
    /// An array on one thread, without a way to stop it.
    pub fn new(volume: VolumeConfig, members: Vec<MemberSpec>) -> Self {
        Self { volume, members, shards: 1, stop: Arc::new(AtomicBool::new(false)) }
    }
}

/// An open array.
///
/// If code of the caller's that it calls panics (a workload, a payload, an observer, a `watch`), what was under way is
/// waited for as the panic goes on, and the array can only be dropped: all that would use it answers
/// [`HostError::Panicked`].
#[derive(Debug)]
pub struct Array {
    // Fields are dropped in this order: rings wait for their I/O while its buffers and files still exist.
    shards: Vec<Shard>,
    zeroes: Zeroes,
    mailboxes: Vec<Mailbox>,
    pool: Option<RequestPool>,
    router: Router,
    clock: Clock,
    zeroes_fast: bool,
    stop: Arc<AtomicBool>,
    /// Set while shards are driven; a panic leaves it so.
    pub(crate) is_at_work: bool,
}

impl Array {
    /// Opens the members and starts the engine. Nothing is written.
    ///
    /// Only one shard can keep superblocks, have spares or replacements, or recover or resync: each has a volume of its
    /// own, and tells the others of failed members alone.
    ///
    /// # Errors
    /// An impossible geometry, too few members, a member that cannot be used, or several shards for what needs one; the
    /// message says what would be right.
    pub fn open(config: ArrayConfig) -> Result<Self, HostError> {
        let ArrayConfig { mut volume, members, shards, stop } = config;
        if shards == 0 || shards > SHARDS_MAX {
            return Err(HostError::Shards { given: shards, most: SHARDS_MAX });
        }
        if shards > 1 && volume.metadata.is_some() {
            // The keeper of superblocks and bitmap gates every write, so it is where the writes are.
            return Err(HostError::ShardsWithMetadata { given: shards });
        }
        if shards > 1 && has_own_work(&volume) {
            // Each shard would choose a spare, and say how far it is filled, by itself.
            return Err(HostError::ShardsWithOwnWork { given: shards });
        }
        let geometry = Geometry::new(&volume.geometry)?;
        let needed = members_needed(&volume);
        if members.len() < needed {
            return Err(HostError::MemberCount { given: members.len(), needed });
        }
        for (slot, member) in members.iter().enumerate().take(volume.geometry.member_sectors.len()) {
            let slot = Slot(slot as u16);
            if *member == MemberSpec::Missing && !volume.failed.contains(&slot) {
                volume.failed.push(slot);
            }
        }
        if shards > 1 {
            volume.stripe_cache_size = (volume.stripe_cache_size / shards).max(CACHE_ENTRIES_MIN);
        }
        let journal = volume.metadata.as_ref().and_then(|metadata| metadata.journal);
        let journal = journal.map(|start| start.place.member.index());
        let sectors = members::sizes_to_journal(&volume.geometry.member_sectors, journal);
        let members = members::open_all(&members, &sectors, shards)?;
        volume.rotational = members::are_rotational(&members[..journal.unwrap_or(members.len())]);
        let members = members.into_iter().map(Arc::new).collect::<Vec<_>>();
        Ok(Self {
            shards: (0..shards)
                .map(|i| Shard::new(i, shards, &volume, &members))
                .collect::<Result<_, _>>()?,
            zeroes: Zeroes::new()?,
            mailboxes: (0..shards).map(|_| Mailbox::new()).collect::<Result<_, _>>()?,
            pool: None,
            router: Router::new(&geometry, shards),
            clock: Clock::start(),
            zeroes_fast: volume.discard,
            stop,
            is_at_work: false,
        })
    }

    /// The map of the array's sectors.
    pub fn geometry(&self) -> &Geometry {
        self.shards[0].volume().geometry()
    }

    /// What is done otherwise than asked, so far.
    pub fn notes(&self) -> Vec<Note> {
        self.shards[0].members().iter().filter_map(|m| m.file()?.note()).collect()
    }

    /// Runs one workload per shard until all are finished (or the stop flag is set) and everything is
    /// drained. Times passed to workloads count from the array's opening. Workloads are given back.
    ///
    /// # Errors
    /// More workloads than shards; no memory for their buffers; no `io_uring`.
    pub fn run<W: Workload + Send>(&mut self, workloads: Vec<W>) -> Result<(RunReport, Vec<W>), HostError> {
        let (report, workloads) = self.run_with_payload(workloads.into_iter().map(AnyBytes).collect())?;
        Ok((report, workloads.into_iter().map(|w| w.0).collect()))
    }

    /// As [`run`](Self::run), for workloads that say what they write and look at what they read.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with_payload<W: Workload + Payload + Send>(
        &mut self,
        workloads: Vec<W>,
    ) -> Result<(RunReport, Vec<W>), HostError> {
        if workloads.len() > self.shards.len() {
            return Err(HostError::Workloads { given: workloads.len(), shards: self.shards.len() });
        }
        let start = self.begin_counting();
        let pools = (0..self.shards.len())
            .map(|i| match workloads.get(i) {
                Some(w) => RequestPool::new(w.in_flight_max(), w.request_bytes_max(), i as u64 + 1),
                None => RequestPool::new(0, 0, 1),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let workloads = self.run_shards(workloads, &pools)?;
        Ok((self.report(start), workloads))
    }

    fn run_shards<W: Workload + Payload + Send>(
        &mut self,
        workloads: Vec<W>,
        pools: &[RequestPool],
    ) -> Result<Vec<W>, HostError> {
        let router = self.router;
        let stop = Arc::clone(&self.stop);
        let running = Running::new(workloads.len(), &stop);
        let mut workloads = workloads.into_iter();
        let jobs = pools.iter().map(|pool| (pool, workloads.next())).collect();
        let ended = self.on_shards(&running, jobs, |shard, (pool, workload), context| {
            shard.prepare(context, Some(pool.mapping()), None)?;
            Ok(Driver::new(shard, workload, pool, router).run(&running, context))
        })?;
        Ok(ended.into_iter().flatten().collect())
    }

    /// Does one job on each shard, each on a thread of its own, the first on the calling one.
    pub(crate) fn on_shards<J: Send, T: Send>(
        &mut self,
        running: &Running<'_>,
        jobs: Vec<J>,
        work: impl Fn(&mut Shard, J, &Context<'_>) -> Result<T, HostError> + Sync,
    ) -> Result<Vec<T>, HostError> {
        self.guarded(|array| array.each_on_a_thread(running, jobs, work))
    }

    fn each_on_a_thread<J: Send, T: Send>(
        &mut self,
        running: &Running<'_>,
        jobs: Vec<J>,
        work: impl Fn(&mut Shard, J, &Context<'_>) -> Result<T, HostError> + Sync,
    ) -> Result<Vec<T>, HostError> {
        let context = Context { zeroes: &self.zeroes, mailboxes: &self.mailboxes, clock: self.clock };
        let mut jobs = self.shards.iter_mut().zip(jobs);
        let work_one = |(shard, job): (&mut Shard, J)| {
            let result = shard.guarded(|shard| work(shard, job, &context));
            if result.is_err() {
                running.abort(&context);
            }
            shard.release();
            result
        };
        let work_one = &work_one;
        let Some(first) = jobs.next() else { return Ok(Vec::new()) };
        let results = std::thread::scope(|scope| {
            // A thread may not be had.
            let _guard = AbortOnPanic(running, &context);
            let threads: Vec<_> = jobs.map(|job| scope.spawn(move || work_one(job))).collect();
            let mut results = vec![work_one(first)];
            results.extend(threads.into_iter().map(|t| match t.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
            results
        });
        if running.is_aborted() {
            self.mailboxes.iter().for_each(Mailbox::clear);
            self.shards.iter_mut().for_each(Shard::forget_messages);
        }
        results.into_iter().collect()
    }

    /// Forgets what was counted, and what happened; answers the time.
    pub(crate) fn begin_counting(&mut self) -> Instant {
        for shard in &mut self.shards {
            shard.events.clear();
        }
        self.begin_counts()
    }

    /// Forgets what was counted; answers the time.
    pub(crate) fn begin_counts(&mut self) -> Instant {
        for shard in &mut self.shards {
            shard.counts.fill(MemberCounts::default());
        }
        self.clock.now()
    }

    /// [`Array::raise`] in every shard, or in none.
    pub(crate) fn raise_shards(&mut self, layers: &Layers) -> Result<(), HostError> {
        if self.first().stack().has_layers() {
            return Err(HostError::Raised);
        }
        self.guarded(|array| {
            let made: Vec<_> =
                array.shards.iter().map(|shard| shard.layers(layers)).collect::<Result<_, _>>()?;
            array.shards.iter_mut().zip(made).for_each(|(shard, layers)| shard.raise(layers));
            if let Some(crypt) = &layers.crypt {
                array.router = array.router.starting_at(crypt.start_sector);
            }
            Ok(())
        })
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn router(&self) -> Router {
        self.router
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Slots without a member, as any shard knows.
    pub fn failed_slots(&self) -> Vec<Slot> {
        let mut failed: Vec<_> = self.shards.iter().flat_map(Shard::failed_slots).collect();
        failed.sort_unstable();
        failed.dedup();
        failed
    }

    /// Whether members are told to zero ranges instead of being written zeroes.
    pub(crate) fn zeroes_fast(&self) -> bool {
        self.zeroes_fast && self.first().stack().crypt().is_none()
    }

    /// What was counted, and what happened that no report has told.
    pub(crate) fn report(&mut self, start: Instant) -> RunReport {
        let mut members = vec![MemberCounts::default(); self.shards[0].members().len()];
        for shard in &self.shards {
            for (sum, counts) in members.iter_mut().zip(&shard.counts) {
                sum.add(counts);
            }
        }
        let mut events: Vec<_> = self.shards.iter_mut().flat_map(|s| std::mem::take(&mut s.events)).collect();
        events.sort_by_key(|e| e.at);
        RunReport {
            members,
            events,
            notes: self.notes(),
            elapsed: self.clock.now().since(start),
            stopped: self.stop.load(Ordering::Relaxed),
        }
    }

    /// Reads from a sector on; returns when the bytes are there.
    ///
    /// # Errors
    /// A length that is not a whole number of sectors, sectors that the array does not have, or the array's answer. The
    /// first two are seen before anything is done.
    pub fn read_at(&mut self, sector: u64, bytes: &mut [u8]) -> Result<(), HostError> {
        self.check_range(SectorRange::new(sector, whole_sectors(bytes.len())?))?;
        let mut sector = sector;
        for piece in bytes.chunks_mut(PIECE_BYTES as usize) {
            let range = SectorRange::new(sector, piece.len() as u64 / SECTOR_BYTES);
            self.one(Op::Read, range, Flags::default(), Lent::Read(piece))?;
            sector = range.end();
        }
        Ok(())
    }

    /// Writes from a sector on; returns when the array has acknowledged it.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn write_at(&mut self, sector: u64, bytes: &[u8]) -> Result<(), HostError> {
        self.check_range(SectorRange::new(sector, whole_sectors(bytes.len())?))?;
        let mut sector = sector;
        for piece in bytes.chunks(PIECE_BYTES as usize) {
            let range = SectorRange::new(sector, piece.len() as u64 / SECTOR_BYTES);
            self.one(Op::Write, range, Flags { sync: true, ..Flags::default() }, Lent::Write(piece))?;
            sector = range.end();
        }
        Ok(())
    }

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// Sectors that the array does not have, which is seen before anything is done, or the array's answer.
    pub fn write_zeroes(&mut self, range: SectorRange) -> Result<(), HostError> {
        self.check_range(range)?;
        self.one(Op::WriteZeroes, range, Flags { sync: true, ..Flags::default() }, Lent::Nothing)
    }

    /// Makes acknowledged writes durable.
    ///
    /// # Errors
    /// The array's answer.
    pub fn flush(&mut self) -> Result<(), HostError> {
        self.one(Op::Flush, SectorRange::new(0, 0), Flags::default(), Lent::Nothing)
    }

    /// Leaves the array clean: what was written is durable, and its superblocks say that nothing is under way. The
    /// array takes no more writes.
    ///
    /// # Errors
    /// No `io_uring`, the last flush failed, more members failed than the level survives, or the write journal did.
    pub fn close(&mut self) -> Result<(), HostError> {
        self.flush()?;
        let mut trouble = None;
        for index in 0..self.shards.len() {
            let found = self.on_shard(index, |shard, context| {
                shard.stop(context.clock.now(), context);
                loop {
                    while shard.step(context.clock.now(), context) {}
                    if shard.take_reply().is_some() {
                        break;
                    }
                    shard.sleep(None, context);
                }
                shard.release();
                shard.trouble()
            })?;
            trouble = trouble.or(found);
        }
        trouble.map_or(Ok(()), |error| Err(HostError::Io(error)))
    }

    /// Does something with the first shard, on the calling thread and without requests.
    pub(crate) fn on_first_shard<T>(
        &mut self,
        work: impl FnOnce(&mut Shard, &Context<'_>) -> T,
    ) -> Result<T, HostError> {
        self.on_shard(0, work)
    }

    fn on_shard<T>(
        &mut self,
        index: usize,
        work: impl FnOnce(&mut Shard, &Context<'_>) -> T,
    ) -> Result<T, HostError> {
        self.guarded(|array| {
            let Self { zeroes, mailboxes, clock, pool, shards, .. } = array;
            let context = Context { zeroes, mailboxes, clock: *clock };
            shards[index].guarded(|shard| {
                if !shard.is_prepared() {
                    shard.prepare(&context, pool.as_ref().map(RequestPool::mapping), None)?;
                }
                let result = work(shard, &context);
                shard.await_ring();
                Ok(result)
            })
        })
    }

    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// The shard that keeps the superblocks, where any are kept.
    pub(crate) fn first(&self) -> &Shard {
        &self.shards[0]
    }

    /// Fails a member by command, whatever is lost with it: beyond what the level survives the array fails. It then takes
    /// no more writes, and what it has lost cannot be read.
    ///
    /// # Errors
    /// There is no such slot, it is empty already, or no `io_uring`.
    pub fn fail(&mut self, slot: Slot) -> Result<(), ManageError> {
        let reply = self.on_first_shard(|shard, context| {
            let reply = shard.fail(slot, context.clock.now(), context);
            shard.send_messages(context);
            reply
        })?;
        if reply == AdminReply::Done { Ok(()) } else { Err(ManageError::Array(reply)) }
    }

    /// Refuses sectors that are not all there: parts of a request that were carried out cannot be taken back.
    fn check_range(&self, range: SectorRange) -> Result<(), HostError> {
        if self.first().takes(range) { Ok(()) } else { Err(HostError::Io(IoError::Range)) }
    }

    /// Carries out one request on the calling thread, shard after shard.
    fn one(&mut self, op: Op, range: SectorRange, flags: Flags, lent: Lent<'_>) -> Result<(), HostError> {
        let mut lent = lent;
        if self.pool.is_none() {
            self.pool = Some(RequestPool::new(1, PIECE_BYTES, 1)?);
        }
        let mut rest = range;
        loop {
            let (shard, part) = if op == Op::Flush { (0, rest) } else { self.router.first_part(rest) };
            let request = Request { id: RequestId(0), op, range: part, flags };
            let skip = ((part.start - range.start).saturating_mul(SECTOR_BYTES)) as usize;
            self.one_part(shard, Once { request, result: None, issued: false, skip, lent: &mut lent })?;
            if part.count >= rest.count {
                return Ok(());
            }
            rest = SectorRange::new(part.end(), rest.count - part.count);
        }
    }

    fn one_part(&mut self, shard: u32, once: Once<'_, '_>) -> Result<(), HostError> {
        self.guarded(|array| {
            let Self { zeroes, mailboxes, clock, pool, shards, .. } = array;
            let context = Context { zeroes, mailboxes, clock: *clock };
            let Some(pool) = pool else { unreachable!("made by `one`") };
            shards[shard as usize].guarded(|driven| {
                if !driven.is_prepared() {
                    driven.prepare(&context, Some(pool.mapping()), None)?;
                }
                let never = AtomicBool::new(false);
                let running = Running::new(1, &never);
                let once =
                    Driver::new(driven, Some(once), pool, Router::pinned(shard)).run(&running, &context);
                once.and_then(|o| o.result).unwrap_or(Err(IoError::Lost)).map_err(HostError::Io)
            })
        })
    }
}

/// How many sectors so many bytes are.
fn whole_sectors(bytes: usize) -> Result<u64, HostError> {
    if !bytes.is_multiple_of(SECTOR_BYTES as usize) {
        return Err(HostError::Unaligned { bytes });
    }
    Ok(bytes as u64 / SECTOR_BYTES)
}

/// Whether an array has something to do by itself, or will have when a member fails.
fn has_own_work(volume: &VolumeConfig) -> bool {
    volume.spares > 0
        || !volume.recovering.is_empty()
        || !volume.returned.is_empty()
        || !volume.replacements.is_empty()
        || volume.resync_from.is_some()
}

/// How many members the table has at least: those of the slots, and whichever the configuration names beyond them.
fn members_needed(volume: &VolumeConfig) -> usize {
    let slots = volume.geometry.member_sectors.len() + usize::from(volume.spares);
    let replacements = volume.replacements.iter().map(|(_, member, _)| member.index());
    let journal = volume.metadata.as_ref().and_then(|metadata| metadata.journal.as_ref());
    let named = replacements.chain(journal.map(|start| start.place.member.index()));
    named.map(|index| index + 1).fold(slots, usize::max)
}

/// The bytes a caller lends for one request.
enum Lent<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    Nothing,
}

/// A workload of one request, the part of a caller's from byte `skip` on.
struct Once<'a, 'b> {
    request: Request,
    issued: bool,
    result: Option<IoResult>,
    skip: usize,
    lent: &'a mut Lent<'b>,
}

impl Workload for Once<'_, '_> {
    fn in_flight_max(&self) -> u32 {
        1
    }
    fn request_bytes_max(&self) -> u64 {
        PIECE_BYTES
    }
    fn next(&mut self, _: Instant) -> Next {
        if std::mem::replace(&mut self.issued, true) { Next::Finished } else { Next::Issue(self.request) }
    }
    fn complete(&mut self, _: Instant, _: RequestId, result: IoResult) {
        self.result = Some(result);
    }
}

impl Payload for Once<'_, '_> {
    fn fill(&mut self, _: &Request, bytes: &mut [u8]) {
        if let Lent::Write(lent) = self.lent {
            bytes.copy_from_slice(&lent[self.skip..self.skip + bytes.len()]);
        }
    }
    fn check(&mut self, _: &Request, bytes: &[u8]) {
        if let Lent::Read(lent) = self.lent {
            lent[self.skip..self.skip + bytes.len()].copy_from_slice(bytes);
        }
    }
}
