//! Extents: what commands write side by side, however they are cut and in whatever order they come.

/// The extents that are expected to grow, the one used last at the end; as many as the drive tells apart.
#[derive(Debug)]
pub(super) struct Extents {
    open: Vec<Extent>,
    open_max: usize,
    /// So much of an extent's end is known to be its: what the drive may still have in its buffer, and can write anew.
    window_sectors: u64,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    start: u64,
    end: u64,
    bytes: u64,
}

impl Extents {
    pub(super) fn new(open_max: usize, window_sectors: u64) -> Self {
        Self { open: Vec::with_capacity(open_max), open_max, window_sectors }
    }

    /// Takes note of a command, and of the bytes that the drive makes of it; answers those of the extent that is given up for it, if
    /// one is.
    pub(super) fn add(&mut self, start: u64, end: u64, bytes: u64) -> Option<u64> {
        let mut grown = Extent { start, end, bytes };
        // One to go on, and one that it now reaches.
        for _ in 0..2 {
            let Some(place) = self.open.iter().rposition(|extent| self.is_beside(extent, &grown)) else {
                break;
            };
            let other = self.open.remove(place);
            grown.start = grown.start.min(other.start);
            grown.end = grown.end.max(other.end);
            grown.bytes += other.bytes;
        }
        let over = (self.open.len() == self.open_max).then(|| self.open.remove(0));
        self.open.push(grown);
        over.map(|extent| extent.bytes)
    }

    /// Whether one begins within the other's last sectors or right behind it.
    fn is_beside(&self, one: &Extent, other: &Extent) -> bool {
        let goes_on = |before: &Extent, after: &Extent| {
            (before.start..=before.end).contains(&after.start)
                && before.end - after.start <= self.window_sectors
        };
        goes_on(one, other) || goes_on(other, one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_told_apart_and_the_oldest_makes_room() {
        let mut extents = Extents::new(2, 16);
        let mut add = |start: u64, end: u64| extents.add(start, end, (end - start).max(8));
        assert_eq!(add(0, 8), None);
        assert_eq!(add(1000, 1008), None);
        assert_eq!(add(8, 9), None);
        assert_eq!(add(1008, 1016), None);
        assert_eq!(add(5000, 5008), Some(16), "the first");
        assert_eq!(add(9, 32), Some(16), "its place was taken, and it takes the second's");
        assert_eq!(add(5008, 5016), None);
    }

    #[test]
    fn an_extent_grows_at_both_ends_and_gaps_close() {
        let mut extents = Extents::new(2, 16);
        let mut add = |start: u64, end: u64| extents.add(start, end, end - start);
        assert_eq!(add(8, 16), None);
        assert_eq!(add(24, 32), None, "ahead of its turn");
        assert_eq!(add(16, 24), None, "the two are one, and there is room for another");
        assert_eq!(add(0, 8), None);
        assert_eq!(add(1000, 1008), None);
        assert_eq!(add(2000, 2008), Some(32), "all four");
    }

    #[test]
    fn what_lies_near_is_not_beside() {
        let mut extents = Extents::new(2, 16);
        let mut add = |start: u64, end: u64| extents.add(start, end, end - start);
        assert_eq!(add(100, 108), None);
        assert_eq!(add(94, 98), None);
        assert_eq!(add(1000, 1008), Some(8), "the first alone");
        assert_eq!(add(2000, 2008), Some(4), "and the second");
    }

    #[test]
    fn what_is_written_anew_soon_after_belongs_to_its_extent() {
        let mut extents = Extents::new(2, 16);
        let mut add = |start: u64, end: u64| extents.add(start, end, end - start);
        assert_eq!(add(0, 32), None);
        assert_eq!(add(20, 24), None, "among the last sectors");
        assert_eq!(add(8, 12), None, "longer ago: an extent of its own");
        assert_eq!(add(1000, 1008), Some(36));
        assert_eq!(add(2000, 2008), Some(4));
    }
}
