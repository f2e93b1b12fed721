//! The dirty ranges of a write cache: sorted, never touching, counted.

use super::geometry::{Geometry, Place};

/// A dirty range, with the place of its first sector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) place: Place,
    /// How many ranges had been written when it came, or when its front was last written.
    pub(crate) since: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Extents {
    sorted: Vec<Extent>,
    sectors: u64,
}

impl Extents {
    pub(crate) fn with_capacity(extents: usize) -> Self {
        Self { sorted: Vec::with_capacity(extents), sectors: 0 }
    }

    pub(crate) const fn sectors(&self) -> u64 {
        self.sectors
    }

    pub(crate) const fn len(&self) -> usize {
        self.sorted.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub(crate) fn get(&self, index: usize) -> &Extent {
        &self.sorted[index]
    }

    /// Index of the first extent that starts after `sector`.
    pub(crate) fn after(&self, sector: u64) -> usize {
        self.sorted.partition_point(|e| e.start <= sector)
    }

    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        let after = self.after(start);
        after > 0 && self.sorted[after - 1].end >= end
    }

    /// Whether a range would join an extent rather than make a new one.
    pub(crate) fn joins(&self, start: u64, end: u64) -> bool {
        let after = self.after(end);
        after > 0 && self.sorted[after - 1].end >= start
    }

    /// Index of the extent that has waited longest.
    pub(crate) fn oldest(&self) -> Option<usize> {
        (0..self.sorted.len()).min_by_key(|&index| self.sorted[index].since)
    }

    /// Adds a range that comes when so many have been written, joined with what it touches or overlaps, which may have waited longer.
    pub(crate) fn insert(&mut self, start: u64, end: u64, written: u64, geometry: &Geometry) {
        let last = self.after(end);
        let mut first = last;
        while first > 0 && self.sorted[first - 1].end >= start {
            first -= 1;
        }
        if first == last {
            self.sectors += end - start;
            let place = geometry.place(start);
            self.sorted.insert(first, Extent { start, end, place, since: written });
            return;
        }
        let held: u64 = self.sorted[first..last].iter().map(|e| e.end - e.start).sum();
        let since = self.sorted[first..last].iter().fold(written, |since, e| since.min(e.since));
        let joined_end = end.max(self.sorted[last - 1].end);
        let joined = &mut self.sorted[first];
        joined.end = joined_end;
        joined.since = since;
        if start < joined.start {
            joined.start = start;
            joined.place = geometry.place(start);
        }
        self.sectors += joined.end - joined.start - held;
        self.sorted.drain(first + 1..last);
    }

    /// Takes at most `sectors_max` sectors off the front of an extent, cut between physical sectors; returns the range.
    pub(crate) fn take(
        &mut self,
        index: usize,
        sectors_max: u64,
        physical_sectors: u64,
        written: u64,
        geometry: &Geometry,
    ) -> (u64, u64) {
        let extent = &mut self.sorted[index];
        let start = extent.start;
        let cut = (start + sectors_max) & !(physical_sectors - 1);
        let end = extent.end.min(if cut > start { cut } else { start + sectors_max });
        self.sectors -= end - start;
        if end == extent.end {
            self.sorted.remove(index);
        } else {
            extent.start = end;
            extent.since = written;
            extent.place = geometry.place(end);
        }
        (start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{HddModel, Model};

    fn ranges(extents: &Extents) -> Vec<(u64, u64)> {
        extents.sorted.iter().map(|e| (e.start, e.end)).collect()
    }

    #[test]
    fn ranges_join_what_they_touch_or_overlap() {
        let model = HddModel::new(&Model::load("st31000333as").unwrap()).unwrap();
        let geometry = Geometry::new(&model);
        let mut extents = Extents::default();
        for (start, end) in [(100, 108), (200, 208), (108, 116), (92, 100), (104, 112)] {
            extents.insert(start, end, 0, &geometry);
        }
        assert_eq!(ranges(&extents), [(92, 116), (200, 208)]);
        assert_eq!(extents.sectors(), 32);
        assert!(extents.covers(96, 116) && !extents.covers(96, 117));
        assert!(extents.joins(208, 210) && !extents.joins(209, 210));
        extents.insert(110, 300, 0, &geometry);
        assert_eq!(ranges(&extents), [(92, 300)]);
        assert_eq!(extents.take(0, 64, 1, 0, &geometry), (92, 156));
        assert_eq!((ranges(&extents), extents.sectors()), (vec![(156, 300)], 144));
        assert_eq!(extents.take(0, 64, 8, 0, &geometry), (156, 216), "cut between physical sectors of eight");
        assert_eq!(extents.take(0, 64, 8, 0, &geometry), (216, 280));
    }

    #[test]
    fn the_oldest_is_what_has_waited_longest_though_more_has_joined_it() {
        let model = HddModel::new(&Model::load("st31000333as").unwrap()).unwrap();
        let geometry = Geometry::new(&model);
        let mut extents = Extents::default();
        assert_eq!(extents.oldest(), None);
        for (written, start) in [(1, 900), (2, 100), (3, 500), (4, 908)] {
            extents.insert(start, start + 8, written, &geometry);
        }
        assert_eq!(extents.oldest(), Some(2));
        assert_eq!(extents.take(2, 8, 1, 5, &geometry), (900, 908));
        assert_eq!(extents.oldest(), Some(0), "of the one at 900 the front has been written since");
    }
}
