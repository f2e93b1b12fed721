//! Reads of memory, a member's or the page cache's, carried out a little later than asked for.
//!
//! What they cost is mostly the wait for its bytes. So the copies are put off until the requests at hand
//! are handled, and memory is told what is going to be read: of every read the first lines at once, which come beside the
//! engine's work, and of what is copied every line while the copy before it runs.

use std::collections::VecDeque;
use std::ops::Range;

use stripewise_engine::io::Input;

/// The first lines of what is copied, which are asked for at once: about as many as memory brings while the engine handles
/// a request.
const LINES_COPIED: usize = 16;
/// The same of bytes that are used where they are, of which there are two a request or three.
const LINES_USED: usize = 4;
const LINE_BYTES: usize = 64;
/// Of bytes that are used where they are, those of this many reads later are fetched: the next write's.
const USED_AHEAD: usize = 2;

/// A copy that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayedRead {
    /// What the engine is told afterwards.
    pub(crate) answer: Input,
    pub(crate) from: *const u8,
    /// Nowhere if the bytes are used where they are.
    pub(crate) to: Option<*mut u8>,
    pub(crate) bytes: usize,
}

impl DelayedRead {
    fn ask_for_lines(&self, lines: Range<usize>) {
        for line in lines.start..lines.end.min(self.bytes / LINE_BYTES) {
            ask_for(self.from.wrapping_add(line * LINE_BYTES));
        }
    }
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
        read.ask_for_lines(0..if read.to.is_some() { LINES_COPIED } else { LINES_USED });
        self.0.push_back(read);
    }

    /// Carries out the oldest copy, and says what the engine is told.
    ///
    /// # Safety
    /// What was pushed is readable, and writable by nobody else, until it is answered.
    pub(crate) unsafe fn run_next(&mut self) -> Option<Input> {
        let DelayedRead { answer, from, to, bytes } = self.0.pop_front()?;
        let Some(to) = to else {
            // What is computed next takes about as long as one of these.
            self.0.get(USED_AHEAD).into_iter().for_each(|later| later.ask_for_lines(LINES_USED..usize::MAX));
            return Some(answer);
        };
        // SAFETY: upheld by the caller.
        unsafe {
            match self.0.front() {
                Some(next) => copy_asking_for(from, to, bytes, next.from, next.bytes),
                None => to.copy_from_nonoverlapping(from, bytes),
            }
        }
        Some(answer)
    }
}

/// Copies, and asks for the lines of what is copied next on the way.
///
/// # Safety
/// `from` is `bytes` readable and `to` as many writable bytes, apart from each other.
unsafe fn copy_asking_for(from: *const u8, to: *mut u8, bytes: usize, next: *const u8, next_bytes: usize) {
    type Line = [u64; LINE_BYTES / 8];
    let lines = bytes / LINE_BYTES;
    for line in 0..lines {
        let at = line * LINE_BYTES;
        if at < next_bytes {
            ask_for(next.wrapping_add(at));
        }
        // SAFETY: upheld by the caller; the line lies within.
        unsafe { to.add(at).cast::<Line>().write_unaligned(from.add(at).cast::<Line>().read_unaligned()) };
    }
    let done = lines * LINE_BYTES;
    // SAFETY: as above.
    unsafe { to.add(done).copy_from_nonoverlapping(from.add(done), bytes - done) };
}

/// Has the CPU fetch a line; a hint, which may name any address.
#[inline]
pub(crate) fn ask_for(address: *const u8) {
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
    use stripewise_engine::io::Tag;

    use super::*;

    #[test]
    fn copies_are_carried_out_in_order() {
        let sources: Vec<Vec<u8>> = (0..3).map(|i| vec![i; 4096]).collect();
        let mut targets = vec![vec![9; 4096]; 3];
        let mut delayed = DelayedReads::default();
        for (i, (source, target)) in sources.iter().zip(&mut targets).enumerate() {
            let (from, to) = (source.as_ptr(), target.as_mut_ptr());
            let answer = Input::IoDone { tag: Tag(i as u64), result: Ok(()) };
            delayed.push(DelayedRead { answer, from, to: Some(to), bytes: 4096 });
        }
        // SAFETY: the vectors live on and nothing else uses them.
        let answers: Vec<Input> = std::iter::from_fn(|| unsafe { delayed.run_next() }).collect();
        let is_answer = |i: usize| matches!(answers[i], Input::IoDone { tag, .. } if tag == Tag(i as u64));
        assert!(answers.len() == 3 && (0..3).all(is_answer), "{answers:?}");
        assert_eq!(targets, sources);
        assert!(delayed.is_empty());
    }
}
