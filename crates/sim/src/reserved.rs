//! What one user after another has: when it is taken from now on. Users come to it at times unlike the order in which they ask,
//! so each takes the first gap it fits in.

use std::collections::VecDeque;

/// A time it is taken without a gap, and how much passes in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    begin_ns: u64,
    end_ns: u64,
    amount: u64,
}

impl Taken {
    /// What passes from a moment on: its share of the time.
    const fn amount_from(&self, now_ns: u64) -> u64 {
        if self.end_ns <= now_ns {
            0
        } else if self.begin_ns >= now_ns {
            self.amount
        } else {
            let (length, rest) = ((self.end_ns - self.begin_ns) as u128, self.rest_ns(now_ns) as u128);
            (self.amount as u128 * rest / length) as u64
        }
    }

    /// How much of it lies beyond a moment.
    const fn rest_ns(&self, now_ns: u64) -> u64 {
        let begin_ns = if self.begin_ns > now_ns { self.begin_ns } else { now_ns };
        self.end_ns.saturating_sub(begin_ns)
    }
}

/// See the module's description. *Cost.* A reservation looks at the gaps there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reserved {
    taken: VecDeque<Taken>,
    /// The end of what is over: what lies before it is not given away any more.
    floor_ns: u64,
    total_ns: u64,
    total: u64,
}

impl Reserved {
    /// Takes it as soon after `from_ns` as it is free that long, for an amount that passes; returns begin and end. `from_ns` may
    /// lie before now: time that nobody took can still be given away.
    pub(crate) fn take(&mut self, now_ns: u64, from_ns: u64, length_ns: u64, amount: u64) -> (u64, u64) {
        while let Some(over) = self.taken.front().filter(|taken| taken.end_ns <= now_ns) {
            self.floor_ns = over.end_ns;
            self.taken.pop_front();
        }
        (self.total_ns, self.total) = (self.total_ns + length_ns, self.total + amount);
        let begin_ns = from_ns.max(self.floor_ns);
        if self.taken.back().is_none_or(|last| last.end_ns < begin_ns) {
            // By far the most come after all others.
            self.taken.push_back(Taken { begin_ns, end_ns: begin_ns + length_ns, amount });
            return (begin_ns, begin_ns + length_ns);
        }
        self.fit(begin_ns, length_ns, amount)
    }

    /// Takes the first gap it fits in.
    fn fit(&mut self, mut begin_ns: u64, length_ns: u64, amount: u64) -> (u64, u64) {
        let mut place = 0_usize;
        for taken in &self.taken {
            if begin_ns + length_ns <= taken.begin_ns {
                break;
            }
            begin_ns = begin_ns.max(taken.end_ns);
            place += 1;
        }
        let new = Taken { begin_ns, end_ns: begin_ns + length_ns, amount };
        match place.checked_sub(1).and_then(|before| self.taken.get_mut(before)) {
            Some(before) if before.end_ns == begin_ns => {
                (before.end_ns, before.amount) = (new.end_ns, before.amount + amount);
            }
            _ => self.taken.insert(place, new),
        }
        (begin_ns, new.end_ns)
    }

    /// How long it was taken until then.
    pub(crate) fn ns_until(&self, now_ns: u64) -> u64 {
        self.total_ns - self.taken.iter().map(|taken| taken.rest_ns(now_ns)).sum::<u64>()
    }

    /// How much had passed by then.
    pub(crate) fn amount_until(&self, now_ns: u64) -> u64 {
        self.total - self.taken.iter().map(|taken| taken.amount_from(now_ns)).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_takes_the_first_gap_it_fits_in() {
        let mut reserved = Reserved::default();
        let mut end_of = |now_ns, from_ns, length_ns| reserved.take(now_ns, from_ns, length_ns, 0).1;
        assert_eq!(end_of(0, 100, 10), 110);
        assert_eq!(end_of(0, 200, 10), 210);
        assert_eq!(end_of(0, 0, 50), 50);
        assert_eq!(end_of(0, 95, 20), 130);
        assert_eq!(end_of(0, 95, 5), 100);
        assert_eq!(end_of(0, 120, 100), 310);
        assert_eq!(end_of(140, 140, 60), 200);
        let pairs = reserved.taken.iter().zip(reserved.taken.iter().skip(1));
        assert!(pairs.clone().count() > 0 && pairs.into_iter().all(|(a, b)| a.end_ns <= b.begin_ns));
    }

    /// A run that ends at 15 has seen half of what is held from 10 to 20, and nothing of what begins at 30.
    #[test]
    fn what_is_taken_beyond_now_has_not_happened() {
        let mut reserved = Reserved::default();
        assert_eq!(reserved.take(0, 0, 10, 100), (0, 10));
        assert_eq!(reserved.take(0, 10, 10, 300), (10, 20));
        assert_eq!(reserved.take(0, 30, 10, 1000), (30, 40));
        let seen = |now_ns| (reserved.ns_until(now_ns), reserved.amount_until(now_ns));
        assert_eq!([15, 25, 35, 40].map(seen), [(15, 300), (20, 400), (25, 900), (30, 1400)]);
        // What takes no time passes at once.
        assert_eq!(reserved.take(0, 50, 0, 7), (50, 50));
        let seen = |now_ns| (reserved.ns_until(now_ns), reserved.amount_until(now_ns));
        assert_eq!([45, 50].map(seen), [(30, 1400), (30, 1407)]);
    }

    #[test]
    fn time_before_now_is_given_away_once() {
        let mut reserved = Reserved::default();
        assert_eq!(reserved.take(0, 0, 10, 0), (0, 10));
        assert_eq!(reserved.take(50, 5, 10, 0), (10, 20));
        assert_eq!(reserved.take(50, 12, 10, 0), (20, 30));
        assert_eq!(reserved.take(50, 40, 30, 0), (40, 70));
        assert_eq!(reserved.take(50, 45, 10, 0), (70, 80));
    }
}
