//! Extents: what commands write one behind the other, however they are cut.

/// The extents that are expected to go on, the one used last at the end; as many as the drive tells apart.
#[derive(Debug)]
pub(super) struct Extents {
    open: Vec<Extent>,
    open_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    end: u64,
    bytes: u64,
}

impl Extents {
    pub(super) fn new(open_max: usize) -> Self {
        Self { open: Vec::with_capacity(open_max), open_max }
    }

    /// Takes note of a command, and of the bytes that the drive makes of it; answers those of the extent that is given up for it, if
    /// one is.
    pub(super) fn add(&mut self, start: u64, end: u64, bytes: u64) -> Option<u64> {
        if let Some(place) = self.open.iter().rposition(|extent| extent.end == start) {
            let extent = self.open.remove(place);
            self.open.push(Extent { end, bytes: extent.bytes + bytes });
            return None;
        }
        let over = (self.open.len() == self.open_max).then(|| self.open.remove(0));
        self.open.push(Extent { end, bytes });
        over.map(|extent| extent.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_told_apart_and_the_oldest_makes_room() {
        let mut extents = Extents::new(2);
        let mut add = |start: u64, end: u64| extents.add(start, end, (end - start).max(8));
        assert_eq!(add(0, 8), None);
        assert_eq!(add(1000, 1008), None);
        assert_eq!(add(8, 9), None);
        assert_eq!(add(1008, 1016), None);
        assert_eq!(add(5000, 5008), Some(16), "the first");
        assert_eq!(add(9, 32), Some(16), "its place was taken, and it takes the second's");
        assert_eq!(add(5008, 5016), None);
    }
}
