//! Reads of members in memory, carried out a little later than asked for.
//!
//! What a read of memory costs is mostly the wait for its first bytes. So the copies are put off until the requests at
//! hand are handled, and memory is told at once what is going to be read: the waits of the reads at hand pass together,
//! beside the engine's work.

use std::collections::VecDeque;

use stripewise_engine::io::Tag;

/// The first lines of a page. Once these are read, the CPU fetches the others by itself.
const LINES_ASKED_FOR: usize = 4;
const LINE_BYTES: usize = 64;

/// A copy that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayedRead {
    pub(crate) tag: Tag,
    pub(crate) from: *const u8,
    pub(crate) to: *mut u8,
    pub(crate) bytes: usize,
}

/// Copies that wait, oldest first.
#[derive(Debug, Default)]
pub(crate) struct DelayedReads(VecDeque<DelayedRead>);

// SAFETY: the addresses are only followed by `run_next`, whose caller answers for them; the list may move to another
// thread with the shard that owns it.
unsafe impl Send for DelayedReads {}

impl DelayedReads {
    /// Longer reads are not put off: their first wait is a small part of them.
    pub(crate) const BYTES_MAX: usize = 16 << 10;

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a copy off and asks for its first bytes.
    pub(crate) fn push(&mut self, read: DelayedRead) {
        for line in 0..LINES_ASKED_FOR.min(read.bytes / LINE_BYTES) {
            ask_for(read.from.wrapping_add(line * LINE_BYTES));
        }
        self.0.push_back(read);
    }

    /// Carries out the oldest copy, and answers its tag.
    ///
    /// # Safety
    /// What was pushed is readable, and writable by nobody else, until it is answered.
    pub(crate) unsafe fn run_next(&mut self) -> Option<Tag> {
        let DelayedRead { tag, from, to, bytes } = self.0.pop_front()?;
        // SAFETY: upheld by the caller.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
        Some(tag)
    }
}

/// Has the CPU fetch a line; a hint, which may name any address.
#[inline]
fn ask_for(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_carried_out_in_order() {
        let sources: Vec<Vec<u8>> = (0..3).map(|i| vec![i; 4096]).collect();
        let mut targets = vec![vec![9; 4096]; 3];
        let mut delayed = DelayedReads::default();
        for (i, (source, target)) in sources.iter().zip(&mut targets).enumerate() {
            let (from, to) = (source.as_ptr(), target.as_mut_ptr());
            delayed.push(DelayedRead { tag: Tag(i as u64), from, to, bytes: 4096 });
        }
        // SAFETY: the vectors live on and nothing else uses them.
        let tags: Vec<Tag> = std::iter::from_fn(|| unsafe { delayed.run_next() }).collect();
        assert_eq!(tags, [Tag(0), Tag(1), Tag(2)]);
        assert_eq!(targets, sources);
        assert!(delayed.is_empty());
    }
}
