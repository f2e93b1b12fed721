//! Reads of memory, a member's or the page cache's, carried out a little later than asked for.
//!
//! What they cost is mostly the wait for its bytes. So the copies are put off until the requests at hand
//! are handled, and memory is told what is going to be read: of every read the first lines before its turn, and of what is
//! copied every line while a copy before it runs.

use std::collections::VecDeque;
use std::ops::Range;
use std::ptr;

use stripewise_engine::io::Input;

use crate::copy_ahead::{Ends, Fetching, LINE_BYTES, Later, SIDE_BY_SIDE_MAX, ask_for};

/// The first lines of bytes that are used where they are; there are two such reads a request or three.
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
    /// So many of the oldest have been asked for, if they are asked for together.
    asked: usize,
    /// So many of the oldest are copied, and not answered yet.
    copied: usize,
    fetching: Fetching,
}

impl Default for DelayedReads {
    fn default() -> Self {
        Self::fetched(Fetching::of_cpu())
    }
}

// SAFETY: the addresses are only followed by `run_next`, whose caller answers for them; the list may move to another
// thread with the shard that owns it.
unsafe impl Send for DelayedReads {}

impl DelayedReads {
    fn fetched(fetching: Fetching) -> Self {
        Self { waiting: VecDeque::new(), asked: 0, copied: 0, fetching }
    }

    /// Longer reads are not put off: their first wait is a small part of them.
    pub(crate) const BYTES_MAX: usize = 16 << 10;

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Puts a copy off.
    pub(crate) fn push(&mut self, read: DelayedRead) {
        if self.fetching.together == 1 {
            self.ask_for(&read);
        }
        self.waiting.push_back(read);
    }

    fn ask_for(&self, read: &DelayedRead) {
        read.ask_for_lines(0..if read.to.is_some() { self.fetching.first_lines } else { LINES_USED });
    }

    /// Asks for the first lines of the reads after those asked for, before their turn comes.
    fn ask_together(&mut self) {
        let together = self.fetching.together;
        if together == 1 || self.asked >= together {
            return;
        }
        let end = self.waiting.len().min(self.asked + together);
        for read in self.waiting.range(self.asked..end) {
            self.ask_for(read);
        }
        self.asked = end;
    }

    /// Carries out the oldest copies side by side, if that is done here and they are of as many bytes. Answers how many.
    ///
    /// # Safety
    /// As [`Self::run_next`].
    unsafe fn copy_side_by_side(&self) -> usize {
        let max = self.fetching.side_by_side;
        if max == 1 {
            return 0;
        }
        let mut copies = [Ends { from: ptr::null(), to: ptr::null_mut() }; SIDE_BY_SIDE_MAX];
        let bytes = self.waiting.front().map_or(0, |oldest| oldest.bytes);
        let mut count = 0;
        for (read, copy) in self.waiting.iter().zip(&mut copies[..max]) {
            let Some(to) = read.to.filter(|_| read.bytes == bytes) else { break };
            *copy = Ends { from: read.from, to };
            count += 1;
        }
        if count < 2 {
            return 0;
        }
        // The addresses of the next ones are looked up meanwhile.
        let next = self.waiting.range(count..self.waiting.len().min(count + max));
        next.for_each(|read| ask_for(read.from));
        // SAFETY: upheld by the caller.
        unsafe { self.fetching.copy_side_by_side(&copies[..count], bytes) };
        count
    }

    /// Carries out the oldest copy, and says what the engine is told.
    ///
    /// # Safety
    /// What was pushed is readable, and writable by nobody else, until it is answered.
    pub(crate) unsafe fn run_next(&mut self) -> Option<Input> {
        if self.copied == 0 {
            // SAFETY: upheld by the caller.
            self.copied = unsafe { self.copy_side_by_side() };
        }
        if self.copied > 0 {
            self.copied -= 1;
            return self.waiting.pop_front().map(|read| read.answer);
        }
        self.ask_together();
        let DelayedRead { answer, from, to, bytes } = self.waiting.pop_front()?;
        self.asked = self.asked.saturating_sub(1);
        let Some(to) = to else {
            // What is computed next takes about as long as one of these.
            self.waiting
                .get(USED_AHEAD)
                .into_iter()
                .for_each(|later| later.ask_for_lines(LINES_USED..usize::MAX));
            return Some(answer);
        };
        let later = self.waiting.get(self.fetching.between).or(self.waiting.front());
        let later = later.map(|read| Later { from: read.from, bytes: read.bytes });
        // SAFETY: upheld by the caller.
        unsafe { self.fetching.copy(from, to, bytes, later) };
        Some(answer)
    }
}

/// The copies of short reads of members in memory that are under way together, with nothing decided: to measure arrays
/// beside them.
#[derive(Clone, Copy, Debug)]
pub struct MemoryReads(Fetching);

impl Default for MemoryReads {
    fn default() -> Self {
        Self(Fetching::of_cpu())
    }
}

impl MemoryReads {
    /// Copies each source to its target.
    ///
    /// # Panics
    /// A source and its target differ in length.
    pub fn copy<'a>(self, copies: impl Iterator<Item = (&'a [u8], &'a mut [u8])>) {
        let mut delayed = DelayedReads::fetched(self.0);
        for (source, target) in copies {
            assert_eq!(source.len(), target.len(), "a copy is as long as its source");
            let (from, to, bytes) = (source.as_ptr(), Some(target.as_mut_ptr()), source.len());
            delayed.push(DelayedRead { answer: Input::Timer, from, to, bytes });
        }
        // SAFETY: what was pushed is borrowed until the end of this call.
        while unsafe { delayed.run_next() }.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use stripewise_engine::io::Tag;

    use super::*;
    use crate::copy_ahead::tests::all_kinds;

    #[test]
    fn copies_are_carried_out_in_order() {
        for fetching in all_kinds() {
            copied_in_order(fetching);
        }
    }

    #[test]
    fn reads_that_stand_for_an_arrays_copy_all() {
        let sources: Vec<Vec<u8>> = (1..=9).map(|byte| vec![byte; 512]).collect();
        let mut targets = vec![vec![0; 512]; sources.len()];
        let pairs = sources.iter().map(Vec::as_slice).zip(targets.iter_mut().map(Vec::as_mut_slice));
        MemoryReads::default().copy(pairs);
        assert_eq!(targets, sources);
    }

    fn copied_in_order(fetching: Fetching) {
        const READS: usize = 40;
        let sources: Vec<Vec<u8>> = (0..READS).map(|i| vec![i as u8 + 1; 4096]).collect();
        let mut targets = vec![vec![0; 4096]; READS];
        // Some are shorter.
        let bytes = |i: usize| if i % 7 < 2 { 1000 } else { 4096 };
        let mut delayed = DelayedReads::fetched(fetching);
        let mut started = 0;
        let mut answered = 0;
        // Some come while others are carried out; every ninth is used where it is.
        for coming in [1, 20, 0, 9, 10].into_iter().cycle() {
            let coming = started..READS.min(started + coming);
            started = coming.end;
            for i in coming {
                let answer = Input::IoDone { tag: Tag(i as u64), result: Ok(()) };
                let to = (i % 9 != 2).then_some(targets[i].as_mut_ptr());
                delayed.push(DelayedRead { answer, from: sources[i].as_ptr(), to, bytes: bytes(i) });
            }
            for _ in 0..7 {
                // SAFETY: the vectors live on and nothing else uses them.
                let Some(answer) = (unsafe { delayed.run_next() }) else { break };
                let is_next = matches!(answer, Input::IoDone { tag, .. } if tag == Tag(answered));
                assert!(is_next, "{answer:?} after {answered}");
                let i = answered as usize;
                let byte = if i % 9 == 2 { 0 } else { i as u8 + 1 };
                let (read, rest) = targets[i].split_at(bytes(i));
                assert!(read.iter().all(|found| *found == byte), "{fetching:?}: read {i} is answered");
                assert!(rest.iter().all(|found| *found == 0), "{fetching:?}: read {i} is too long");
                answered += 1;
            }
            if answered == READS as u64 {
                break;
            }
        }
        assert!(delayed.is_empty());
    }
}
