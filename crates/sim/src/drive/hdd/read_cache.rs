//! Read segments and read-ahead.
//!
//! Each read of the medium begins a run that goes on by itself after the command's last sector, until the
//! arm is needed elsewhere or the segment is full of sectors nobody has asked for yet. The filling is never
//! simulated by events: how far it is follows from the time ([`ReadCache::fill`] looks). A run that stopped because its
//! segment was full goes on when half of the segment has been read, for which the sector must come round again.
//!
//! A read that goes on where a segment ends, or in it, is the segment's reader back: it goes on in that segment, and the medium is
//! read from where the segment ends. For such a reader, whose next read is likely to come, the drive reads a least
//! amount ahead even though commands for other places wait (SCSI's minimum prefetch): else two
//! readers that take turns would find nothing read ahead, each time.
//!
//! Segments are adaptive: one whose reader goes on in sequence may take the room of all that hold no such stream,
//! least recently used first. With fixed segments smaller than a track a reader that pauses would lose a revolution
//! for each half segment, which drives do not.

use super::arm::Arm;
use super::geometry::{Geometry, Run};
use stripewise_engine::geometry::Divisor;

#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
    /// Where the last command served from it ended.
    asked: u64,
    /// How many segments' room it takes.
    shares: u64,
    /// Its reader came back for what follows.
    sequential: bool,
}

impl Segment {
    const EMPTY: Self = Self { start: 0, end: 0, asked: 0, shares: 0, sequential: false };

    /// Whether a read at `start` goes on in it or where it ends. What the last command asked for has been read; where the run
    /// was then is exact to a sector.
    fn leads_to(&self, start: u64) -> bool {
        self.start <= start && start <= self.end.max(self.asked) && self.start < self.end
    }
}

/// The run under way.
#[derive(Clone, Copy, Debug)]
struct Stream {
    run: Run,
    segment: usize,
    /// Where it stops.
    limit: u64,
    /// How far it goes though other commands wait.
    least: u64,
    /// The sector it had reached when it was last looked at, as if nothing stopped it.
    reached: u64,
}

/// Where a read finds what it can in the cache, and what it must have from the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Miss {
    /// The segment that it carries on.
    segment: Option<usize>,
    /// The first sector that must come from the medium.
    pub(super) from: u64,
}

/// What a read finds when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// All of it.
    All,
    /// A segment whose reader it is likely to be.
    Reader,
    /// Neither.
    Nothing,
}

#[derive(Debug)]
pub(super) struct ReadCache {
    segments: Vec<Segment>,
    /// Sectors of a segment when all are used.
    share: Divisor,
    /// Sectors read ahead for a stream though other commands wait.
    least_sectors: u64,
    /// How many segments' room all take.
    shares: u64,
    stream: Option<Stream>,
    /// Segments by last use, latest first.
    by_use: Vec<u16>,
    /// Segments whose reader goes on in sequence.
    streams: usize,
}

impl ReadCache {
    pub(super) fn new(segments: usize, segment_sectors: u64, least_sectors: u64) -> Self {
        let by_use = (0..segments as u16).collect();
        Self {
            segments: vec![Segment::EMPTY; segments],
            share: Divisor::new(segment_sectors),
            least_sectors,
            shares: 0,
            stream: None,
            by_use,
            streams: 0,
        }
    }

    /// The sector under the head when it was last looked at, if a run is under way or stopped by a full
    /// segment.
    pub(super) fn head_sector(&self) -> Option<u64> {
        self.stream.map(|s| s.reached.min(s.limit - 1))
    }

    /// When the run under way has read what its reader can be expected to want, if it has not yet: a segment's share
    /// beyond what was asked for. Dirty data wait as long.
    pub(super) fn full_ns(&self, now_ns: u64, geometry: &Geometry) -> Option<u64> {
        let stream = self.stream?;
        let wanted = self.segments[stream.segment].asked + self.share.get();
        let full_ns = stream.run.end_ns(geometry, stream.limit.min(wanted));
        (full_ns > now_ns).then_some(full_ns)
    }

    /// When the run under way has read the least that is read ahead for its reader, if it has not yet. Other commands wait as long.
    pub(super) fn least_ns(&self, now_ns: u64, geometry: &Geometry) -> Option<u64> {
        let stream = self.stream?;
        if stream.reached >= stream.least {
            return None;
        }
        let least_ns = stream.run.end_ns(geometry, stream.least);
        (least_ns > now_ns).then_some(least_ns)
    }

    /// Whether a segment holds the whole range by now; if so it counts as read.
    pub(super) fn find(
        &mut self,
        (start, end): (u64, u64),
        now_ns: u64,
        geometry: &Geometry,
        arm: &Arm,
    ) -> Found {
        self.fill(now_ns, geometry);
        let mut found = Found::Nothing;
        for index in 0..self.segments.len() {
            let segment = &self.segments[index];
            if !segment.leads_to(start) {
                continue;
            }
            if start >= segment.start && end <= segment.end {
                self.used(index, end);
                if arm.is_free() && self.stream.is_some_and(|s| s.segment == index) {
                    self.read_on(end, now_ns, geometry, arm);
                }
                return Found::All;
            }
            found = Found::Reader;
        }
        found
    }

    /// When the run under way comes to a sector ahead of it, if it does so before it stops; a time in the
    /// past if the segment has the sector.
    pub(super) fn on_the_way(&self, start: u64, now_ns: u64, geometry: &Geometry) -> Option<u64> {
        let stream = self.stream.filter(|_| self.is_on_the_way(start))?;
        let is_read = start < self.segments[stream.segment].end;
        Some(if is_read { now_ns } else { stream.run.end_ns(geometry, start + 1) })
    }

    /// Whether the run under way comes to a sector before it stops, or its segment has it.
    pub(super) fn is_on_the_way(&self, start: u64) -> bool {
        self.stream.is_some_and(|stream| {
            let from = self.segments[stream.segment].start;
            from <= start && start <= stream.limit && stream.reached <= stream.limit
        })
    }

    /// Carries the run under way on for a command that ends at `end`; returns when it gets there.
    pub(super) fn carry_on(&mut self, end: u64, geometry: &Geometry) -> u64 {
        let index = self.stream.as_ref().expect("a run is under way").segment;
        self.used(index, end);
        let limit = end + self.room(index);
        let stream = self.stream.as_mut().expect("a run is under way");
        stream.limit = stream.limit.max(limit);
        stream.run.end_ns(geometry, end)
    }

    /// What a read at `start` that is not on the way finds; `may_carry_on` says whether it is worth looking.
    pub(super) fn miss(&self, start: u64, may_carry_on: bool) -> Miss {
        let found = may_carry_on.then(|| self.segments.iter().position(|s| s.leads_to(start))).flatten();
        match found {
            Some(index) => Miss { segment: Some(index), from: self.segments[index].end.max(start) },
            None => Miss { segment: None, from: start },
        }
    }

    /// Begins a run for a command at `start` that ends at `end`, with the first sector that it misses, which comes under the head at
    /// `media_ns`; returns when it gets to the end.
    pub(super) fn begin(
        &mut self,
        miss: Miss,
        (start, end): (u64, u64),
        media_ns: u64,
        geometry: &Geometry,
    ) -> u64 {
        let run = Run::new(geometry, miss.from, media_ns);
        let (segment, least) = if let Some(segment) = miss.segment {
            self.used(segment, end);
            (segment, end + self.least_sectors)
        } else {
            let segment = self.by_use[self.by_use.len() - 1] as usize;
            self.streams -= usize::from(self.segments[segment].sequential);
            self.resize(segment, start, start);
            self.segments[segment].asked = end;
            self.segments[segment].sequential = false;
            self.used(segment, end);
            (segment, end)
        };
        let limit = end + self.room(segment);
        let least = least.min(limit);
        self.stream = Some(Stream { run, segment, limit, least, reached: miss.from });
        run.end_ns(geometry, end)
    }

    /// Ends the run under way, because the arm is needed elsewhere. What it has read so far must have been
    /// looked at.
    pub(super) fn stop(&mut self) {
        self.stream = None;
    }

    /// Brings the segment of the run under way up to now; what no longer fits is dropped from its start.
    pub(super) fn fill(&mut self, now_ns: u64, geometry: &Geometry) {
        let Some(stream) = &mut self.stream else { return };
        stream.reached = stream.run.sector_at(geometry, now_ns);
        let (index, reached) = (stream.segment, stream.reached.min(stream.limit));
        let room = self.room(index);
        let segment = &self.segments[index];
        let end = segment.end.max(reached);
        let start = segment.start.max(end.saturating_sub(room));
        self.resize(index, start, end);
        if self.segments[index].shares > 1 {
            self.take_from_others(index);
        }
    }

    /// What a segment holds from now on.
    fn resize(&mut self, index: usize, start: u64, end: u64) {
        let segment = &mut self.segments[index];
        let (whole, rest) = self.share.div_rem(end - start);
        let shares = whole + u64::from(rest > 0);
        self.shares = self.shares + shares - segment.shares;
        (segment.start, segment.end, segment.shares) = (start, end, shares);
        debug_assert_eq!(self.shares, self.segments.iter().map(|s| s.shares).sum::<u64>(), "room is counted");
    }

    /// Sectors a segment may hold: its share, or for a stream all that no other stream has a share in.
    fn room(&self, index: usize) -> u64 {
        if !self.segments[index].sequential {
            return self.share.get();
        }
        self.share.get() * (self.segments.len() + 1 - self.streams) as u64
    }

    /// Makes room for a segment that has grown beyond its share.
    fn take_from_others(&mut self, index: usize) {
        let mut over = self.shares.saturating_sub(self.segments.len() as u64);
        for place in (0..self.by_use.len()).rev() {
            if over == 0 {
                return;
            }
            let other = usize::from(self.by_use[place]);
            if other != index {
                let &Segment { start, end, shares, .. } = &self.segments[other];
                let taken = shares.min(over);
                self.resize(other, end.min(start + taken * self.share.get()), end);
                over -= taken;
            }
        }
    }

    /// The reader has come to `end`: the run may go on as far as the segment then has room.
    fn read_on(&mut self, end: u64, now_ns: u64, geometry: &Geometry, arm: &Arm) {
        let Some(index) = self.stream.map(|s| s.segment) else { return };
        let room = self.room(index);
        let Some(stream) = &mut self.stream else { return };
        let limit = end + room;
        if stream.reached < stream.limit {
            stream.limit = stream.limit.max(limit);
        } else if limit >= stream.limit + room / 2 {
            let media_ns = arm.rotated_ns(now_ns, geometry.place(stream.limit));
            stream.run = Run::new(geometry, stream.limit, media_ns);
            stream.reached = stream.limit;
            stream.limit = limit;
        }
    }

    /// A command that ends at `end` was served from a segment. One that goes on shows a stream.
    fn used(&mut self, segment: usize, end: u64) {
        let at = &mut self.segments[segment];
        if end > at.asked && !at.sequential {
            at.sequential = true;
            self.streams += 1;
        }
        at.asked = at.asked.max(end);
        if self.by_use[0] as usize != segment {
            let place = self.by_use.iter().position(|&s| s as usize == segment);
            let place = place.expect("every segment is in the order of use");
            self.by_use.copy_within(..place, 1);
            self.by_use[0] = segment as u16;
        }
    }
}
