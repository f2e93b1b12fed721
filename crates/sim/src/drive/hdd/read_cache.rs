//! Read segments and read-ahead.
//!
//! Each read of the medium begins a run that goes on by itself after the command's last sector, until the
//! arm is needed elsewhere or the segment is full of sectors nobody has asked for yet. The filling is never
//! simulated by events: how far it is follows from the time. A run that stopped because its segment was full
//! goes on when half of the segment has been read, for which the sector must come round again.

use super::arm::Arm;
use super::geometry::{Geometry, Run};

#[derive(Clone, Copy, Debug)]
struct Segment {
    start: u64,
    end: u64,
    used: u64,
}

/// The run under way.
#[derive(Clone, Copy, Debug)]
struct Stream {
    run: Run,
    segment: usize,
    /// Where it stops.
    limit: u64,
}

#[derive(Debug)]
pub(super) struct ReadCache {
    segments: Vec<Segment>,
    segment_sectors: u64,
    stream: Option<Stream>,
    uses: u64,
}

impl ReadCache {
    pub(super) fn new(segments: usize, segment_sectors: u64) -> Self {
        let empty = Segment { start: 0, end: 0, used: 0 };
        Self { segments: vec![empty; segments], segment_sectors, stream: None, uses: 0 }
    }

    /// The sector under the head, if a run is under way or stopped by a full segment.
    pub(super) fn head_sector(&self, now_ns: u64, geometry: &Geometry) -> Option<u64> {
        self.stream.map(|s| s.run.sector_at(geometry, now_ns).min(s.limit - 1))
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
        self.uses += 1;
        self.segments[index].used = self.uses;
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
        if start < segment.start || start > stream.limit {
            return None;
        }
        if stream.run.sector_at(geometry, now_ns) > stream.limit {
            return None;
        }
        Some(if start < segment.end { now_ns } else { stream.run.end_ns(geometry, start + 1) })
    }

    /// Carries the run under way on for a command that ends at `end`; returns when it gets there.
    pub(super) fn carry_on(&mut self, end: u64, geometry: &Geometry) -> u64 {
        let stream = self.stream.as_mut().expect("a run is under way");
        stream.limit = stream.limit.max(end + self.segment_sectors);
        let end_ns = stream.run.end_ns(geometry, end);
        self.uses += 1;
        self.segments[stream.segment].used = self.uses;
        end_ns
    }

    /// Begins a run at `start`, whose first sector comes under the head at `media_ns`, for a command that
    /// ends at `end`; returns when it gets there.
    pub(super) fn begin(
        &mut self,
        start: u64,
        end: u64,
        now_ns: u64,
        media_ns: u64,
        geometry: &Geometry,
    ) -> u64 {
        self.stop(now_ns, geometry);
        let mut oldest = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            if segment.used < self.segments[oldest].used {
                oldest = index;
            }
        }
        self.uses += 1;
        self.segments[oldest] = Segment { start, end: start, used: self.uses };
        let run = Run::new(geometry, start, media_ns);
        self.stream = Some(Stream { run, segment: oldest, limit: end + self.segment_sectors });
        run.end_ns(geometry, end)
    }

    /// Ends the run under way, because the arm is needed elsewhere.
    pub(super) fn stop(&mut self, now_ns: u64, geometry: &Geometry) {
        self.fill(now_ns, geometry);
        self.stream = None;
    }

    /// Brings the segment of the run under way up to now; what no longer fits is dropped from its start.
    fn fill(&mut self, now_ns: u64, geometry: &Geometry) {
        if let Some(stream) = &mut self.stream {
            let segment = &mut self.segments[stream.segment];
            let reached = stream.run.sector_at(geometry, now_ns).min(stream.limit);
            segment.end = segment.end.max(reached);
            segment.start = segment.start.max(segment.end.saturating_sub(self.segment_sectors));
        }
    }

    /// The reader has come to `end`: the run may go on as far as the segment then has room.
    fn read_on(&mut self, end: u64, now_ns: u64, geometry: &Geometry, arm: &Arm) {
        let Some(stream) = &mut self.stream else { return };
        let limit = end + self.segment_sectors;
        if stream.run.sector_at(geometry, now_ns) < stream.limit {
            stream.limit = stream.limit.max(limit);
        } else if limit >= stream.limit + self.segment_sectors / 2 {
            let media_ns = arm.access_ns(now_ns, geometry.place(stream.limit), false);
            stream.run = Run::new(geometry, stream.limit, media_ns);
            stream.limit = limit;
        }
    }
}
