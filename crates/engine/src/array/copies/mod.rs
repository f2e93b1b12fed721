//! Levels that keep whole copies of a block: linear and RAID-0 (one copy), RAID-1 and RAID-10.
//!
//! A read goes to one copy and on to another if that fails; a write goes to all and is acknowledged when the
//! last working one has it.

mod job;

use std::collections::VecDeque;

use crate::array::core::{Core, IoRecord, Owner, RequestKey};
use crate::array::slab::Slab;
use crate::array::slots::SlotSet;
use crate::io::{ActionQueue, IoError, IoResult, Op, SegList};
use crate::units::{SectorRange, Slot};

use job::{BUFFERS, CopyJob, JOB_PAGES};

/// The machine of these levels.
#[derive(Debug)]
pub(crate) struct Copies {
    /// Where each member's last read ended: a sequential reader stays on its member.
    last_end: Vec<u64>,
    /// Empty while it is being worked on.
    jobs: Slab<Option<Box<CopyJob>>>,
    /// First pages for jobs.
    buffers: Vec<u32>,
    /// Jobs that wait for pages.
    waiting: VecDeque<RequestKey>,
    /// Rewrites that are under way or wait.
    rewrites: usize,
}

impl Copies {
    pub(crate) fn new(members: u16, has_jobs: bool) -> Self {
        let buffers = if has_jobs { BUFFERS } else { 0 };
        Self {
            last_end: vec![0; members.into()],
            jobs: Slab::new(),
            buffers: (0..buffers).map(|b| b * JOB_PAGES).collect(),
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
            let count = core.geometry.contiguous(sector).min(request.range.end() - sector);
            match request.op {
                Op::Read => self.read(core, out, key, SectorRange::new(sector, count), SlotSet::EMPTY),
                Op::Flush => unreachable!("flushes are sent to the members, not to the map"),
                op => write(core, out, key, op, SectorRange::new(sector, count)),
            }
            sector += count;
        }
        core.request(key).admitted = request.range.count;
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
        core.part_begins(key);
        let Some((slot, sector)) = self.choose(core, part, tried) else {
            let error = if tried.is_empty() { IoError::Lost } else { IoError::Media };
            return core.part_ends(out, key, Err(error));
        };
        let mut tried = tried;
        tried.insert(slot);
        let range = SectorRange::new(sector, part.count);
        self.last_end[slot.index()] = range.end();
        let seg = core.request_seg(key, part.start, part.count);
        let segs = out.add_segs([seg]);
        let owner = Owner::CopyRead { request: key, sector: part.start, tried };
        let record = core.record(slot, Op::Read, range, owner);
        core.io(out, record, false, segs);
    }

    /// The copy to read: the one whose member just read up to here, else the least busy member's, else the
    /// one nearest to where its member read last.
    /// Copies that may not agree are always read from the first, so that no reader sees two of them.
    fn choose(&self, core: &Core, part: SectorRange, tried: SlotSet) -> Option<(Slot, u64)> {
        let mut copies = (0..core.geometry.copies())
            .map(|copy| core.geometry.place(part.start, copy))
            .filter(|p| !core.is_lost(p.slot, p.sector + part.count) && !tried.contains(p.slot));
        if !core.is_redundant(part.end()) {
            return copies.next().map(|p| (p.slot, p.sector));
        }
        copies
            .min_by_key(|p| {
                let distance = self.last_end[p.slot.index()].abs_diff(p.sector);
                (distance != 0, core.in_flight[p.slot.index()], distance)
            })
            .map(|p| (p.slot, p.sector))
    }

    /// Stripe-cache entries that jobs use as buffers.
    pub(crate) const fn entries(has_jobs: bool) -> u32 {
        if has_jobs { BUFFERS * JOB_PAGES } else { 0 }
    }

    /// A member answered.
    pub(crate) fn ended(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        record: IoRecord,
        result: IoResult,
    ) {
        match record.owner {
            Owner::CopyRead { request, sector, tried } => match result {
                Ok(()) => core.part_ends(out, request, Ok(())),
                Err(error) => {
                    if error == IoError::Gone {
                        core.fail_member_of(out, &record);
                    }
                    if core.geometry.copies() == 1 {
                        return core.part_ends(out, request, Err(error));
                    }
                    let part = SectorRange::new(sector, record.range.count);
                    self.read(core, out, request, part, tried);
                    self.begin_rewrites(core, record.slot, part);
                    core.part_ends(out, request, Ok(()));
                }
            },
            Owner::Part { request, sector } => {
                let result = result.or_else(|error| written(core, out, &record, sector, error));
                core.part_ends(out, request, result);
            }
            Owner::CopyJob { job } => self.job_ended(core, out, job, &record, result),
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
            out.add_segs([seg])
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

/// A write to one copy failed. The member leaves the array, and the write stands if another copy has it.
fn written(
    core: &mut Core,
    out: &mut ActionQueue,
    record: &IoRecord,
    sector: u64,
    error: IoError,
) -> IoResult {
    if core.geometry.copies() > 1 || error == IoError::Gone {
        core.fail_member_of(out, record);
    }
    let elsewhere = (0..core.geometry.copies()).any(|c| {
        let place = core.geometry.place(sector, c);
        !core.is_lost(place.slot, place.sector + record.range.count)
    });
    if core.geometry.copies() > 1 && elsewhere { Ok(()) } else { Err(error) }
}
