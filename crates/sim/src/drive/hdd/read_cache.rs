//! Read segments and read-ahead.
//!
//! Each read of the medium begins a run that goes on by itself after the command's last sector, until the
//! arm is needed elsewhere or the segment is full of sectors nobody has asked for yet. The filling is never
//! simulated by events: how far it is follows from the time ([`ReadCache::fill`] looks). A run that stopped because its segment was full
//! goes on when half of the segment has been read, for which the sector must come round again.

use super::arm::Arm;
use super::geometry::{Geometry, Run};

#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
}

/// The run under way.
#[derive(Clone, Copy, Debug)]
struct Stream {
    run: Run,
    segment: usize,
    /// Where it stops.
    limit: u64,
    /// The sector it had reached when it was last looked at, as if nothing stopped it.
    reached: u64,
}

#[derive(Debug)]
pub(super) struct ReadCache {
    segments: Vec<Segment>,
    segment_sectors: u64,
    stream: Option<Stream>,
    /// Segments by last use, latest first.
    by_use: Vec<u16>,
}

impl ReadCache {
    pub(super) fn new(segments: usize, segment_sectors: u64) -> Self {
        let empty = Segment { start: 0, end: 0 };
        let by_use = (0..segments as u16).collect();
        Self { segments: vec![empty; segments], segment_sectors, stream: None, by_use }
    }

    /// The sector under the head when it was last looked at, if a run is under way or stopped by a full
    /// segment.
    pub(super) fn head_sector(&self) -> Option<u64> {
        self.stream.map(|s| s.reached.min(s.limit - 1))
    }

    /// When the run under way stops by itself, if it has not stopped yet.
    pub(super) fn full_ns(&self, now_ns: u64, geometry: &Geometry) -> Option<u64> {
        let stream = self.stream?;
        let full_ns = stream.run.end_ns(geometry, stream.limit);
        (full_ns > now_ns).then_some(full_ns)
    }

    /// Whether a segment holds the whole range by now; if so it counts as read.
    pub(super) fn hit(&mut self, start: u64, end: u64, now_ns: u64, geometry: &Geometry, arm: &Arm) -> bool {
        self.fill(now_ns, geometry);
        let Some(index) = self.segments.iter().position(|s| s.start <= start && end <= s.end) else {
            return false;
        };
        self.used(index);
        if arm.is_free() && self.stream.is_some_and(|s| s.segment == index) {
            self.read_on(end, now_ns, geometry, arm);
        }
        true
    }

    /// When the run under way comes to a sector ahead of it, if it does so before it stops; a time in the
    /// past if the segment has the sector.
    pub(super) fn on_the_way(&self, start: u64, now_ns: u64, geometry: &Geometry) -> Option<u64> {
        let stream = self.stream?;
        let segment = &self.segments[stream.segment];
        if start < segment.start || start > stream.limit || stream.reached > stream.limit {
            return None;
        }
        Some(if start < segment.end { now_ns } else { stream.run.end_ns(geometry, start + 1) })
    }

    /// Carries the run under way on for a command that ends at `end`; returns when it gets there.
    pub(super) fn carry_on(&mut self, end: u64, geometry: &Geometry) -> u64 {
        let stream = self.stream.as_mut().expect("a run is under way");
        stream.limit = stream.limit.max(end + self.segment_sectors);
        let (end_ns, segment) = (stream.run.end_ns(geometry, end), stream.segment);
        self.used(segment);
        end_ns
    }

    /// Begins a run at `start`, whose first sector comes under the head at `media_ns`, for a command that
    /// ends at `end`; returns when it gets there.
    pub(super) fn begin(&mut self, start: u64, end: u64, media_ns: u64, geometry: &Geometry) -> u64 {
        let segment = self.by_use[self.by_use.len() - 1] as usize;
        self.used(segment);
        self.segments[segment] = Segment { start, end: start };
        let run = Run::new(geometry, start, media_ns);
        self.stream = Some(Stream { run, segment, limit: end + self.segment_sectors, reached: start });
        run.end_ns(geometry, end)
    }

    /// Ends the run under way, because the arm is needed elsewhere. What it has read so far must have been
    /// looked at.
    pub(super) fn stop(&mut self) {
        self.stream = None;
    }

    /// Brings the segment of the run under way up to now; what no longer fits is dropped from its start.
    pub(super) fn fill(&mut self, now_ns: u64, geometry: &Geometry) {
        if let Some(stream) = &mut self.stream {
            let segment = &mut self.segments[stream.segment];
            stream.reached = stream.run.sector_at(geometry, now_ns);
            segment.end = segment.end.max(stream.reached.min(stream.limit));
            segment.start = segment.start.max(segment.end.saturating_sub(self.segment_sectors));
        }
    }

    /// The reader has come to `end`: the run may go on as far as the segment then has room.
    fn read_on(&mut self, end: u64, now_ns: u64, geometry: &Geometry, arm: &Arm) {
        let Some(stream) = &mut self.stream else { return };
        let limit = end + self.segment_sectors;
        if stream.reached < stream.limit {
            stream.limit = stream.limit.max(limit);
        } else if limit >= stream.limit + self.segment_sectors / 2 {
            let media_ns = arm.rotated_ns(now_ns, geometry.place(stream.limit));
            stream.run = Run::new(geometry, stream.limit, media_ns);
            stream.reached = stream.limit;
            stream.limit = limit;
        }
    }

    fn used(&mut self, segment: usize) {
        if self.by_use[0] as usize != segment {
            let place = self.by_use.iter().position(|&s| s as usize == segment);
            let place = place.expect("every segment is in the order of use");
            self.by_use.copy_within(..place, 1);
            self.by_use[0] = segment as u16;
        }
    }
}
