//! Sequential streams and what is read ahead for them.
//!
//! A read that begins where an earlier one ended continues its stream; from then on the drive keeps so many
//! sectors beyond it on their way, and a read that begins among these continues it too, such as one behind a chunk of parity.
//! The stream used longest ago makes room for a new one.

use super::flash::Flash;
use crate::models::SsdModel;
use std::collections::VecDeque;
use stripewise_engine::units::SECTOR_BYTES;

#[derive(Debug, Default)]
struct Stream {
    next: u64,
    /// The page after the last one asked for.
    asked: u64,
    /// When the controller has each of the last pages asked for.
    ready_ns: VecDeque<u64>,
}

#[derive(Debug)]
pub(super) struct ReadAhead {
    /// The one used last at the end.
    streams: Vec<Stream>,
    streams_max: usize,
    ahead_sectors: u64,
    page_sectors: u64,
    mapping_sectors: u64,
    capacity_sectors: u64,
}

impl ReadAhead {
    pub(super) fn new(model: &SsdModel) -> Self {
        Self {
            streams: Vec::with_capacity(model.streams),
            streams_max: model.streams,
            ahead_sectors: model.read_ahead_sectors,
            page_sectors: model.page_sectors,
            mapping_sectors: model.mapping_sectors,
            capacity_sectors: model.capacity_sectors,
        }
    }

    /// Reads a range, not before `from_ns`; returns when the controller has its first and its last page.
    pub(super) fn read(
        &mut self,
        now_ns: u64,
        from_ns: u64,
        start: u64,
        end: u64,
        flash: &mut Flash,
    ) -> (u64, u64) {
        let is_ahead =
            |s: &Stream| !s.ready_ns.is_empty() && s.next < start && start / self.page_sectors < s.asked;
        let found = self.streams.iter().rposition(|s| s.next == start);
        let found = found.or_else(|| self.streams.iter().rposition(is_ahead));
        let Some(place) = found.filter(|_| self.ahead_sectors > 0) else {
            self.begin(end);
            return self.pages(now_ns, from_ns, start, end, flash);
        };
        let mut stream = self.streams.remove(place);
        let times = self.carry_on(&mut stream, now_ns, from_ns, start, end, flash);
        self.streams.push(stream);
        times
    }

    fn begin(&mut self, end: u64) {
        let mut stream =
            if self.streams.len() == self.streams_max { self.streams.remove(0) } else { Stream::default() };
        stream.next = end;
        stream.ready_ns.clear();
        self.streams.push(stream);
    }

    /// Reads the pieces of a range from the flash.
    fn pages(&self, now_ns: u64, from_ns: u64, start: u64, end: u64, flash: &mut Flash) -> (u64, u64) {
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        let mut at = start / self.mapping_sectors * self.mapping_sectors;
        let end = end.next_multiple_of(self.mapping_sectors);
        while at < end {
            let page = at / self.page_sectors;
            let page_end = end.min((page + 1) * self.page_sectors);
            let ready_ns = flash.read(now_ns, from_ns, page, (page_end - at) * SECTOR_BYTES);
            (first_ns, last_ns) = (first_ns.min(ready_ns), last_ns.max(ready_ns));
            at = page_end;
        }
        (first_ns, last_ns)
    }

    /// Serves a read from what was read ahead, and reads on.
    fn carry_on(
        &self,
        stream: &mut Stream,
        now_ns: u64,
        from_ns: u64,
        start: u64,
        end: u64,
        flash: &mut Flash,
    ) -> (u64, u64) {
        let first_page = start / self.page_sectors;
        if stream.ready_ns.is_empty() {
            stream.asked = first_page;
        }
        while stream.asked - (stream.ready_ns.len() as u64) < first_page {
            stream.ready_ns.pop_front();
        }
        let goal = (end + self.ahead_sectors).min(self.capacity_sectors).div_ceil(self.page_sectors);
        while stream.asked < goal {
            let page_bytes = self.page_sectors * SECTOR_BYTES;
            stream.ready_ns.push_back(flash.read(now_ns, from_ns, stream.asked, page_bytes));
            stream.asked += 1;
        }
        stream.next = end;
        let pages = (end.div_ceil(self.page_sectors) - first_page) as usize;
        let times = stream.ready_ns.iter().take(pages);
        let (first_ns, last_ns) =
            times.fold((u64::MAX, 0), |(first, last), &ready| (first.min(ready), last.max(ready)));
        (first_ns.max(from_ns), last_ns.max(from_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Model;

    #[test]
    fn second_read_of_a_stream_waits_for_flash_and_later_ones_do_not() {
        let model = SsdModel::new(&Model::load("ssd-dc-s3700-800gb").unwrap()).unwrap();
        let (mut flash, mut reads) = (Flash::new(&model), ReadAhead::new(&model));
        let mut now_ns = 0;
        for (number, start) in (0..2000).step_by(8).enumerate() {
            let (_, last_ns) = reads.read(now_ns, now_ns, start, start + 8, &mut flash);
            let waited_ns = last_ns - now_ns;
            assert!((waited_ns >= model.read_ns) == (number < 2), "read {number} waited {waited_ns} ns");
            now_ns = last_ns + 100_000;
        }
    }

    #[test]
    fn what_is_skipped_within_what_was_read_ahead_ends_no_stream() {
        let model = SsdModel::new(&Model::load("ssd-dc-s3700-800gb").unwrap()).unwrap();
        let (mut flash, mut reads) = (Flash::new(&model), ReadAhead::new(&model));
        let mut now_ns = 0;
        // A RAID-5's member: four chunks of data, one of parity.
        for number in (0..400).filter(|number| number % 5 != 4) {
            let (_, last_ns) = reads.read(now_ns, now_ns, number * 128, number * 128 + 128, &mut flash);
            let waited_ns = last_ns - now_ns;
            assert!((waited_ns >= model.read_ns) == (number < 2), "read {number} waited {waited_ns} ns");
            now_ns = last_ns + 1_000_000;
        }
        assert_eq!(reads.streams.len(), 1);
        // Farther than that is another.
        reads.read(now_ns, now_ns, 1 << 30, (1 << 30) + 128, &mut flash);
        assert_eq!(reads.streams.len(), 2);
    }

    #[test]
    fn what_is_kept_for_a_stream_is_bounded() {
        let model = SsdModel::new(&Model::load("ssd-dc-s3700-800gb").unwrap()).unwrap();
        let (mut flash, mut reads) = (Flash::new(&model), ReadAhead::new(&model));
        for stream in 0..100 {
            for step in 0..50 {
                let start = stream * 10_000_000 + step * 256;
                reads.read(0, 0, start, start + 256, &mut flash);
            }
        }
        assert!(reads.streams.len() <= model.streams);
        let pages = (model.read_ahead_sectors + 256).div_ceil(model.page_sectors) as usize + 1;
        assert!(reads.streams.iter().all(|s| s.ready_ns.len() <= pages));
    }
}
