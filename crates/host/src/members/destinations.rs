//! Where reads of memory have been copied to lately: whether the caches still have those places.
//!
//! A copy to a place that the caches have is fastest left there, where the caller finds it. To a place that they no longer
//! have, each line would be fetched first to be overwritten, and written back when the caches need its room: past the caches it
//! is copied at one and a half times the speed, and copied and then read by the caller at the same (Zen 3, 32 MiB of L3).
//!
//! A copy is known by where it starts: of buffers that are used now in one piece and now in another, some copies go the
//! slower way.

use stripewise_parity::cpu::{is_since_zen_4, is_since_zen_5};

use super::STREAM_BYTES_MIN;
use super::recent::Recent;

/// A place is taken to be in the caches still if less than this was copied after it: a quarter of a common last-level
/// cache, through which what is read passes, too, and which other cores use.
const KEPT_BYTES: u64 = 8 << 20;

/// As much is kept since Zen 5, where the instruction that copies strings reads memory at its full speed, half as fast again
/// as what goes past the caches, while what it writes is in the caches: of 32 MiB that are written in turn, no less.
const KEPT_BYTES_ZEN_5: u64 = 32 << 20;

/// On Zen 4, which does the same less well: four buffers of 4 MiB are kept.
const KEPT_BYTES_ZEN_4: u64 = 20 << 20;

/// Twice as many as the shortest copies that fit in that, so that few of them share a row.
const ROWS: usize = 4096;

/// See the module's description. A shard's own.
#[derive(Debug)]
pub(super) struct Destinations {
    recent: Recent<STREAM_BYTES_MIN, ROWS>,
}

impl Destinations {
    /// Those of one of so many shards: what the others copy passes through the same cache.
    pub(super) fn new(shards: u32) -> Self {
        let kept = if is_since_zen_5() {
            KEPT_BYTES_ZEN_5
        } else if is_since_zen_4() {
            KEPT_BYTES_ZEN_4
        } else {
            KEPT_BYTES
        };
        Self::keeping(kept, shards)
    }

    /// Of caches that keep so many bytes.
    fn keeping(bytes: u64, shards: u32) -> Self {
        Self { recent: Recent::new(bytes / u64::from(shards)) }
    }

    /// Notes a copy of at least [`STREAM_BYTES_MIN`] and answers whether it should go past the caches.
    pub(super) fn is_past(&mut self, to: *const u8, bytes: usize) -> bool {
        !self.recent.note(to, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Whether copies in turn to as many buffers go past the caches, in the last of three rounds.
    fn goes_past(buffers: usize, buffer_bytes: usize, copy_bytes: usize) -> usize {
        let mut destinations = Destinations::keeping(KEPT_BYTES, 1);
        let mut round = || {
            let places = (0..buffers * (buffer_bytes / copy_bytes)).map(|i| (1 << 30) + i * copy_bytes);
            places
                .filter(|place| destinations.is_past(std::ptr::without_provenance(*place), copy_bytes))
                .count()
        };
        round();
        round();
        round()
    }

    #[test]
    fn buffers_used_again_soon_stay_in_the_caches_and_others_do_not() {
        for copy_bytes in [16 << 10, 64 << 10, 128 << 10, 512 << 10] {
            assert_eq!(goes_past(1, MIB, copy_bytes), 0, "{copy_bytes}");
            assert_eq!(goes_past(16, MIB, copy_bytes), 16 * MIB / copy_bytes, "{copy_bytes}");
        }
        // All but those that share a row.
        assert!(goes_past(4, MIB, 16 << 10) < 32);
        assert_eq!(goes_past(4, 4 * MIB, 128 << 10), 128);
    }

    #[test]
    fn caches_that_keep_more_keep_more_buffers() {
        let goes_past = |buffers: usize| {
            let mut destinations = Destinations::keeping(KEPT_BYTES_ZEN_5, 1);
            let mut round = || {
                let places =
                    (0..buffers * 64).map(|i| std::ptr::without_provenance((1 << 30) + i * (MIB / 16)));
                places.filter(|place| destinations.is_past(*place, MIB / 16)).count()
            };
            round();
            round()
        };
        // Of four buffers of 4 MiB all pieces stay but those that share a row; of sixteen none.
        assert!(goes_past(4) < 16);
        assert!(goes_past(16) > 1000);
    }

    #[test]
    fn buffers_at_strides_of_powers_of_two_are_told_apart() {
        let mut destinations = Destinations::keeping(KEPT_BYTES, 1);
        let mut is_past =
            |i: usize| destinations.is_past(std::ptr::without_provenance((i + 1) << 24), MIB / 8);
        assert!((0..32).all(&mut is_past));
        assert!((0..32).filter(|i| is_past(*i)).count() < 4);
    }

    #[test]
    fn shards_share_what_the_caches_keep() {
        // Six buffers of 1 MiB fit for one shard; of two, each reads half of every buffer, but the caches see all of it.
        let half = |shards: u32, buffers: usize| {
            let mut destinations = Destinations::keeping(KEPT_BYTES, shards);
            let mut round = || {
                let place = |i: usize| std::ptr::without_provenance((1 << 30) + i * MIB);
                (0..buffers).filter(|i| destinations.is_past(place(*i), MIB / 2)).count()
            };
            round();
            round()
        };
        assert_eq!((half(2, 6), half(2, 10), half(1, 10)), (0, 10, 0));
    }
}
