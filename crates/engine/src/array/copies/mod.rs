//! Levels that keep whole copies of a block: linear and RAID-0 (one copy), RAID-1 and RAID-10.
//!
//! A read goes to one copy and on to another if that fails; a write goes to all and is acknowledged when the
//! last working one has it.

mod balance;
mod job;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::array::core::{Core, IoRecord, Owner, RequestKey};
use crate::array::slab::Slab;
use crate::array::slots::SlotSet;
use crate::array::sync::{JOB_SECTORS_MAX, TURN_SECTORS, takes_turns};
use crate::geometry::{Geometry, Place};
use crate::io::{ActionQueue, IoError, IoResult, Op, Request, SegList};
use crate::policy::Policy;
use crate::units::{PAGE_SECTORS, SectorRange};

use balance::Balance;
use job::{CopyJob, PAGES};

/// Sectors of a part at most: members' I/Os have their bytes as 32 bits.
const PART_SECTORS_MAX: u64 = 1 << 22;

/// The machine of these levels.
#[derive(Debug)]
pub(crate) struct Copies {
    /// Each block is on more than one member.
    is_mirrored: bool,
    /// Which copy is read.
    balance: Balance,
    /// Where each member's last read ended: a sequential reader stays on its member.
    last_end: Vec<u64>,
    /// Copies that reads were refused by.
    tried: Slab<Tried>,
    /// Empty while it is being worked on.
    jobs: Slab<Option<Box<CopyJob>>>,
    /// Sectors of a member that one job works on at most.
    job_sectors: u64,
    /// First pages for jobs.
    buffers: Vec<u32>,
    /// Jobs that wait for pages.
    waiting: VecDeque<RequestKey>,
    /// Rewrites that are under way or wait.
    rewrites: usize,
}

/// Copies that a read was refused by.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    slots: SlotSet,
    /// How often slots had come to another member by then: what others have by now is not what was tried.
    moves: u64,
}

impl Copies {
    /// The machine of an array; of members that have heads if they are `rotational`.
    pub(crate) fn new(geometry: &Geometry, policy: &Policy, rotational: bool) -> Self {
        let is_mirrored = geometry.copies() > 1;
        let job_sectors = if takes_turns(geometry, policy) { TURN_SECTORS } else { JOB_SECTORS_MAX };
        let job_pages = job_sectors / PAGE_SECTORS;
        Self {
            is_mirrored,
            balance: Balance::of(geometry, rotational),
            last_end: vec![0; geometry.raid_disks().into()],
            tried: Slab::new(),
            jobs: Slab::new(),
            job_sectors,
            buffers: (0..Self::entries(is_mirrored)).step_by(job_pages as usize).collect(),
            waiting: VecDeque::new(),
            rewrites: 0,
        }
    }

    /// Whether no job is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.len() == 0 && self.waiting.is_empty()
    }

    /// Sends a request's parts.
    pub(crate) fn admit(&mut self, core: &mut Core, out: &mut ActionQueue, key: RequestKey) {
        let state = core.request(key);
        if state.job.is_some() {
            return self.admit_job(core, out, key);
        }
        let request = state.request;
        let mut sector = request.range.start;
        while sector < request.range.end() {
            let mut count =
                core.geometry.contiguous(sector).min(request.range.end() - sector).min(PART_SECTORS_MAX);
            if request.op == Op::Read && core.has_bad_blocks() {
                count = count.min(to_bad_edge(core, sector));
            }
            match request.op {
                Op::Read => self.read(core, out, key, SectorRange::new(sector, count), SlotSet::EMPTY),
                Op::Flush => unreachable!("flushes are sent to the members, not to the map"),
                op => write(core, out, key, op, SectorRange::new(sector, count)),
            }
            sector += count;
        }
        core.request(key).admitted = request.range.count;
    }

    /// Sends a read that one member can answer, without a state of its own. Answers whether it is one.
    pub(crate) fn read_whole(&mut self, core: &mut Core, out: &mut ActionQueue, request: &Request) -> bool {
        let range = request.range;
        let (place, contiguous) = core.geometry.locate(range.start);
        if core.has_bad_blocks() || range.count > contiguous {
            return false;
        }
        let chosen = if self.is_mirrored {
            self.choose_copy(core, range, SlotSet::EMPTY)
        } else {
            Some(place).filter(|only| core.can_read_at(*only, range.count))
        };
        let Some(place) = chosen else { return false };
        if self.is_mirrored {
            self.last_end[place.slot.index()] = place.sector + range.count;
        }
        core.read_whole(out, request, place);
        true
    }

    /// Reads a part from the best copy not tried yet.
    fn read(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        key: RequestKey,
        part: SectorRange,
        tried: SlotSet,
    ) {
        let chosen = self.choose(core, part, tried);
        if let Some(place) = chosen {
            self.last_end[place.slot.index()] = place.sector + part.count;
            if tried.is_empty() {
                return core.read_part(out, key, part, place);
            }
        }
        core.part_begins(key);
        let Some(Place { slot, sector }) = chosen else {
            if part.count > PAGE_SECTORS && !tried.is_empty() {
                // No copy can be read as a whole; every page may be on one.
                self.read_pages(core, out, key, part);
                return core.part_ends(out, key, Ok(()));
            }
            let is_lost = tried.is_empty() && !core.has_bad_blocks();
            let error = if is_lost { IoError::Lost } else { IoError::Media };
            return core.part_ends(out, key, Err(error));
        };
        let tried = self.tried.insert(Tried { slots: tried, moves: core.members.moves });
        let range = SectorRange::new(sector, part.count);
        let seg = core.request_seg(key, part.start, part.count);
        let segs = out.add_seg(seg);
        let owner = Owner::CopyRead { request: key, sector: part.start, tried };
        let record = core.record(slot, Op::Read, range, owner);
        core.io(out, record, false, segs);
    }

    fn read_pages(&mut self, core: &mut Core, out: &mut ActionQueue, key: RequestKey, part: SectorRange) {
        let mut sector = part.start;
        while sector < part.end() {
            let count = (PAGE_SECTORS - sector % PAGE_SECTORS).min(part.end() - sector);
            self.read(core, out, key, SectorRange::new(sector, count), SlotSet::EMPTY);
            sector += count;
        }
    }

    /// The copy to read: the one whose member just read up to here, else the least busy member's, else the
    /// one nearest to where its member read last.
    /// Copies that may not agree are always read from the first, so that no reader sees two of them.
    /// Of members that reads are to spare the first is read where all others are out of the question.
    #[inline]
    fn choose(&self, core: &Core, part: SectorRange, tried: SlotSet) -> Option<Place> {
        if !self.is_mirrored {
            let only = core.geometry.place(part.start, 0);
            let may_be = core.can_read_at(only, part.count) && !tried.contains(only.slot);
            return may_be.then_some(only);
        }
        self.choose_copy(core, part, tried)
    }

    fn choose_copy(&self, core: &Core, part: SectorRange, tried: SlotSet) -> Option<Place> {
        if core.has_write_mostly() {
            return self.choose_sparing(core, part, &tried);
        }
        let mut copies = (0..core.geometry.copies())
            .map(|copy| core.geometry.place(part.start, copy))
            .filter(|p| core.can_read_at(*p, part.count) && !tried.contains(p.slot));
        if !core.is_redundant(part.end()) {
            return copies.next();
        }
        copies.min_by_key(|p| self.rank(core, *p))
    }

    /// The same where members are to be spared; by itself, so that arrays without such pay for one comparison.
    #[cold]
    fn choose_sparing(&self, core: &Core, part: SectorRange, tried: &SlotSet) -> Option<Place> {
        let copies = || {
            (0..core.geometry.copies())
                .map(|copy| core.geometry.place(part.start, copy))
                .filter(|p| core.can_read_at(*p, part.count) && !tried.contains(p.slot))
        };
        let mut others = copies().filter(|p| !core.is_write_mostly(p.slot));
        let best = if core.is_redundant(part.end()) {
            others.min_by_key(|p| self.rank(core, *p))
        } else {
            others.next()
        };
        best.or_else(|| copies().next())
    }

    /// The copy of the least rank is read, the first of several.
    #[inline]
    fn rank(&self, core: &Core, place: Place) -> u64 {
        let slot = place.slot.index();
        let distance = self.last_end[slot].abs_diff(place.sector);
        self.balance.rank(core.in_flight[slot].into(), distance, place.sector)
    }

    /// Stripe-cache entries that jobs use as buffers.
    pub(crate) const fn entries(is_mirrored: bool) -> u32 {
        if is_mirrored { PAGES } else { 0 }
    }

    /// A member answered.
    pub(crate) fn ended(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        record: &IoRecord,
        result: IoResult,
    ) {
        match record.owner {
            Owner::CopyRead { request, sector, tried } => match result {
                Ok(()) => {
                    self.tried.remove(tried);
                    core.part_ends(out, request, Ok(()));
                }
                Err(error) => {
                    let Tried { slots, moves } = self.tried.remove(tried).unwrap_or_default();
                    let mut tried = if moves == core.members.moves { slots } else { SlotSet::EMPTY };
                    if error == IoError::Gone {
                        core.fail_member_of(out, record);
                    }
                    if !self.is_mirrored {
                        return core.part_ends(out, request, Err(error));
                    }
                    let part = SectorRange::new(sector, record.range.count);
                    if core.has_another_source(out, record) {
                        self.read(core, out, request, part, tried);
                    } else {
                        tried.insert(record.slot);
                        self.read(core, out, request, part, tried);
                        self.begin_rewrites(core, record.slot, part);
                    }
                    core.part_ends(out, request, Ok(()));
                }
            },
            Owner::Part { request, sector } => {
                let is_narrowed = result.is_err_and(|error| narrow(core, out, record, error));
                let result = match result {
                    Err(error) if !is_narrowed => written(core, out, record, sector, error),
                    _ => Ok(()),
                };
                core.part_ends(out, request, result);
            }
            Owner::CopyJob { job } => self.job_ended(core, out, job, record, result),
            _ => unreachable!("not of these levels' machine"),
        }
    }
}

/// Writes a part to every working copy.
fn write(core: &mut Core, out: &mut ActionQueue, key: RequestKey, op: Op, part: SectorRange) {
    let native = core.discard && op != Op::Write;
    if op == Op::Discard && !native {
        return;
    }
    let fua = core.request(key).request.flags.fua;
    let mut sent = false;
    for copy in 0..core.geometry.copies() {
        let place = core.geometry.place(part.start, copy);
        if core.failed.contains(place.slot) {
            continue;
        }
        sent = true;
        core.part_begins(key);
        let segs = if native {
            SegList::default()
        } else {
            let seg = core.request_seg(key, part.start, part.count);
            out.add_seg(seg)
        };
        let range = SectorRange::new(place.sector, part.count);
        let owner = Owner::Part { request: key, sector: part.start };
        let op = if native { op } else { Op::Write };
        let record = core.record(place.slot, op, range, owner);
        core.io(out, record, fua, segs);
    }
    if !sent {
        core.part_begins(key);
        core.part_ends(out, key, Err(IoError::Lost));
    }
}

/// Sectors from one on of which each copy is known to be bad, or not, as a whole.
fn to_bad_edge(core: &Core, sector: u64) -> u64 {
    let edges = (0..core.geometry.copies()).filter_map(|copy| {
        let place = core.geometry.place(sector, copy);
        Some(core.next_bad_edge(place.slot, place.sector)? - place.sector)
    });
    edges.min().unwrap_or(u64::MAX)
}

/// A member did not take a write of several pages: it is written page by page where it can be listed which it does not
/// take. Answers whether it is.
fn narrow(core: &mut Core, out: &mut ActionQueue, record: &IoRecord, error: IoError) -> bool {
    let Owner::Part { request, sector } = record.owner else { return false };
    if record.op != Op::Write || core.geometry.copies() < 2 || !core.is_narrowed(out, record, error) {
        return false;
    }
    let fua = core.request(request).request.flags.fua;
    let mut done = 0;
    while done < record.range.count {
        let start = record.range.start + done;
        let count = (PAGE_SECTORS - start % PAGE_SECTORS).min(record.range.count - done);
        core.part_begins(request);
        let seg = core.request_seg(request, sector + done, count);
        let segs = out.add_seg(seg);
        let owner = Owner::Part { request, sector: sector + done };
        let range = SectorRange::new(start, count);
        core.send(out, IoRecord { is_again: true, range, owner, ..*record }, fua, segs);
        done += count;
    }
    true
}

/// A write to one copy failed. The member leaves the array, or has it listed that it lacks this, and the write stands if
/// another copy has it.
fn written(
    core: &mut Core,
    out: &mut ActionQueue,
    record: &IoRecord,
    sector: u64,
    error: IoError,
) -> IoResult {
    if core.geometry.copies() > 1 || error == IoError::Gone {
        core.write_failed(out, record, error);
    }
    if core.has_kept_last_copy && core.can_read(record.slot, record.range) {
        // It would be read from here.
        return Err(error);
    }
    let elsewhere = (0..core.geometry.copies())
        .any(|copy| core.can_read_at(core.geometry.place(sector, copy), record.range.count));
    if core.geometry.copies() > 1 && elsewhere { Ok(()) } else { Err(error) }
}
