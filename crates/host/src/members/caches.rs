//! What a shard takes the CPU's caches to have of what it copies, and so where a copy goes.
//!
//! What went past the caches may be on its way still. It is [published](Caches::publish) before anybody else is told of it: one
//! fence for many requests, as one for each page would take as long as half its copy.

use stripewise_parity::kernels;

use super::STREAM_BYTES_MIN;
use super::destinations::Destinations;
use super::recent::RecentPages;
use crate::buffers::PAGE;

/// See the module's description. A shard's own.
#[derive(Debug)]
pub(crate) struct Caches {
    destinations: Destinations,
    recent_pages: RecentPages,
    /// Something went past them since others were last told of what is there.
    is_to_publish: bool,
}

impl Caches {
    /// Those of one of so many shards: what the others copy passes through the same cache.
    pub(crate) fn new(shards: u32) -> Self {
        Self {
            destinations: Destinations::new(shards),
            recent_pages: RecentPages::new(shards),
            is_to_publish: false,
        }
    }

    /// Notes a read of at least [`STREAM_BYTES_MIN`] to somewhere and answers whether it should go past the caches.
    pub(super) fn is_read_past(&mut self, to: *const u8, bytes: usize) -> bool {
        let is_past = self.destinations.is_past(to, bytes);
        self.is_to_publish |= is_past;
        is_past
    }

    /// Notes a write to a member and answers whether it should go past the caches: from pages on, but for those that were used
    /// lately.
    pub(super) fn is_write_past(&mut self, to: *const u8, bytes: usize) -> bool {
        let is_past = bytes >= PAGE && (bytes >= STREAM_BYTES_MIN || !self.recent_pages.write(to, bytes));
        self.is_to_publish |= is_past;
        is_past
    }

    /// Notes where the old content lies that parity is updated from, see [`RecentPages::updated`].
    pub(crate) fn updated(&mut self, from: impl Iterator<Item = (*mut u8, usize)>) {
        self.recent_pages.updated(from);
    }

    /// Has what this thread copied past the caches be there for others, before it tells them.
    pub(crate) fn publish(&mut self) {
        if std::mem::take(&mut self.is_to_publish) {
            kernels().fence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_past_the_caches_is_published_and_nothing_else() {
        let mut caches = Caches::new(1);
        let page = |number: usize| std::ptr::without_provenance((1 << 30) + number * PAGE);
        let published = |caches: &mut Caches| {
            let was = caches.is_to_publish;
            caches.publish();
            assert!(!caches.is_to_publish);
            was
        };
        assert!(caches.is_read_past(page(0), STREAM_BYTES_MIN));
        assert!(!caches.is_read_past(page(0), STREAM_BYTES_MIN));
        assert!(published(&mut caches), "a later copy that stays changes nothing");
        assert!(!caches.is_read_past(page(0), STREAM_BYTES_MIN) && !published(&mut caches));
        assert!(caches.is_write_past(page(9), PAGE) && published(&mut caches));
        assert!(!caches.is_write_past(page(9), PAGE) && !published(&mut caches));
        assert!(!caches.is_write_past(page(11), PAGE - 512) && !published(&mut caches));
        for _ in 0..2 {
            assert!(caches.is_write_past(page(20), STREAM_BYTES_MIN) && published(&mut caches));
        }
    }
}
