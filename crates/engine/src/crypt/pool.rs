//! The pages that writes are encrypted into.

/// A run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) count: u32,
}

/// Pages by number. A run is taken where the first gap is long enough, so that the same pages are used again while
/// they are in the CPU's caches.
#[derive(Debug)]
pub(super) struct Pool {
    /// Gaps in order, none next to another.
    gaps: Vec<Run>,
    pages: u32,
    taken: u32,
}

impl Pool {
    pub(super) fn new(pages: u32) -> Self {
        Self { gaps: vec![Run { first: 0, count: pages }], pages, taken: 0 }
    }

    /// A run of so many pages, if there is one.
    pub(super) fn take(&mut self, count: u32) -> Option<Run> {
        let place = self.gaps.iter().position(|gap| gap.count >= count)?;
        let gap = &mut self.gaps[place];
        let run = Run { first: gap.first, count };
        gap.first += count;
        gap.count -= count;
        if gap.count == 0 {
            self.gaps.remove(place);
        }
        self.taken += count;
        Some(run)
    }

    /// Takes a run back.
    pub(super) fn give(&mut self, run: Run) {
        self.taken -= run.count;
        let place = self.gaps.partition_point(|gap| gap.first < run.first);
        let end = run.first + run.count;
        let joins_next = self.gaps.get(place).is_some_and(|next| next.first == end);
        let before = place.checked_sub(1);
        let joins_before = before.filter(|at| self.gaps[*at].first + self.gaps[*at].count == run.first);
        match (joins_before, joins_next) {
            (Some(before), true) => {
                let next = self.gaps.remove(place);
                self.gaps[before].count += run.count + next.count;
            }
            (Some(before), false) => self.gaps[before].count += run.count,
            (None, true) => {
                let next = &mut self.gaps[place];
                *next = Run { first: run.first, count: run.count + next.count };
            }
            (None, false) => self.gaps.insert(place, run),
        }
    }

    pub(super) const fn taken(&self) -> u32 {
        self.taken
    }

    pub(super) fn check_invariants(&self) {
        let free: u32 = self.gaps.iter().map(|gap| gap.count).sum();
        assert_eq!(free + self.taken, self.pages, "a page is taken or in a gap");
        let is_apart = |w: &[Run]| w[0].first + w[0].count < w[1].first;
        assert!(self.gaps.windows(2).all(is_apart), "gaps are in order and joined");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_joined_whatever_the_order_runs_come_back_in() {
        for order in [[0, 1, 2], [2, 1, 0], [0, 2, 1], [1, 0, 2]] {
            let mut pool = Pool::new(8);
            let runs = [3, 2, 3].map(|count| pool.take(count).unwrap());
            assert_eq!(pool.take(1), None);
            for index in order {
                pool.give(runs[index]);
                pool.check_invariants();
            }
            assert_eq!(pool.take(8), Some(Run { first: 0, count: 8 }));
        }
    }
}
