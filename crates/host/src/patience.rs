//! How long a thread that serves looks for news before it falls asleep: as long as that was worth it lately.
//!
//! To be woken costs more than most requests (45 µs between virtual CPUs), so that one who is about to be asked again had
//! better stay awake; one who is not leaves the CPU to others.

use stripewise_engine::units::Nanos;

/// The longest look.
const MOST: Nanos = Nanos::from_micros(50);
/// A look that is worth beginning.
const LEAST: Nanos = Nanos::from_micros(5);
/// News that came within this time would have been seen, as what passed holds the time to be woken.
const SOON: Nanos = Nanos::from_micros(150);

/// How long to look for news.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    time: Nanos,
}

impl Patience {
    /// How long to look before falling asleep; zero for not at all.
    pub(crate) const fn time(&self) -> Nanos {
        self.time
    }

    /// Whether news have come soon for some time.
    pub(crate) fn is_full(&self) -> bool {
        self.time == MOST
    }

    /// News came after this long, looked for or slept for.
    pub(crate) fn learn(&mut self, waited: Nanos) {
        self.time = if waited <= SOON {
            Nanos((self.time.0 * 2).clamp(LEAST.0, MOST.0))
        } else if self.time <= LEAST {
            Nanos::default()
        } else {
            Nanos(self.time.0 / 2)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_while_news_comes_soon_and_ends_when_it_does_not() {
        let mut patience = Patience::default();
        assert_eq!(patience.time(), Nanos(0), "at first it sleeps at once");
        for _ in 0..10 {
            patience.learn(Nanos::from_micros(20));
        }
        assert_eq!(patience.time(), MOST);
        let mut looks = 0;
        while patience.time() > Nanos(0) {
            patience.learn(Nanos::from_millis(10));
            looks += 1;
        }
        assert!(looks < 6, "an idle server soon looks no more: {looks}");
    }
}
