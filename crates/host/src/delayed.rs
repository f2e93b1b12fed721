//! Reads of memory, a member's or the page cache's, carried out a little later than asked for.
//!
//! What they cost is mostly the wait for its bytes. So the copies are put off until the requests at hand
//! are handled, and memory is told what is going to be read: of every read the first lines at once, which come beside the
//! engine's work, and of what is copied every line while a copy before it runs.

use std::collections::VecDeque;
use std::ops::Range;

use stripewise_engine::io::Input;

use crate::copy_ahead::{Fetching, LINE_BYTES, Later, ask_for};

/// The first lines of bytes that are used where they are, asked for at once; there are two such reads a request or three.
const LINES_USED: usize = 4;
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
#[derive(Debug)]
pub(crate) struct DelayedReads {
    waiting: VecDeque<DelayedRead>,
    fetching: Fetching,
}

impl Default for DelayedReads {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), fetching: Fetching::of_cpu() }
    }
}

// SAFETY: the addresses are only followed by `run_next`, whose caller answers for them; the list may move to another
// thread with the shard that owns it.
unsafe impl Send for DelayedReads {}

impl DelayedReads {
    /// Longer reads are not put off: their first wait is a small part of them.
    pub(crate) const BYTES_MAX: usize = 16 << 10;

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts a copy off and asks for its first bytes.
    pub(crate) fn push(&mut self, read: DelayedRead) {
        read.ask_for_lines(0..if read.to.is_some() { self.fetching.first_lines() } else { LINES_USED });
        self.waiting.push_back(read);
    }

    /// Carries out the oldest copy, and says what the engine is told.
    ///
    /// # Safety
    /// What was pushed is readable, and writable by nobody else, until it is answered.
    pub(crate) unsafe fn run_next(&mut self) -> Option<Input> {
        let DelayedRead { answer, from, to, bytes } = self.waiting.pop_front()?;
        let Some(to) = to else {
            // What is computed next takes about as long as one of these.
            self.waiting
                .get(USED_AHEAD)
                .into_iter()
                .for_each(|later| later.ask_for_lines(LINES_USED..usize::MAX));
            return Some(answer);
        };
        let later = self.waiting.get(self.fetching.between()).or(self.waiting.front());
        let later = later.map(|read| Later { from: read.from, bytes: read.bytes });
        // SAFETY: upheld by the caller.
        unsafe { self.fetching.copy(from, to, bytes, later) };
        Some(answer)
    }
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
