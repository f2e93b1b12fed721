//! Time slices: which process a member's queue serves, as CFQ does.
//!
//! # Contract
//! A process whose reads go on near each other has the drive to itself for a slice: other requests wait, even while it has
//! none queued, for it is likely to send the next soon (idling). Its turn ends with the slice, when it has sent nothing for
//! `idle_ns`, or when it is known to think longer than that; or when, with nothing queued, another such process's read is close
//! to where it was: they share one stream. All other requests together (writes, reads from here
//! and there, md's own) have turns of `others_ns`, without idling. When no such reader has requests queued, there are no
//! turns, and the order is the queue's own.
//! CFQ's queues of processes that read from here and there, its priorities and its preference of reads are not modelled.

use crate::models::SliceModel;

/// Who sent a request.
pub(crate) type Process = u16;

/// Nobody who is told apart.
pub(crate) const NOBODY: Process = Process::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    /// The sector after its last read.
    next: u64,
    /// Of its last 32 reads, a bit each: whether it was far from the one before.
    seeks: u32,
    /// Reads queued, and with the drive.
    queued: u32,
    outstanding: u32,
    /// When the last read ended with none left.
    ended_ns: u64,
    /// How long it takes from one read's end to the next, a moving mean.
    thinks_ns: u64,
}

impl Reader {
    /// Its last read, and all but a few of the last 32, were near the ones before.
    const fn has_turns(&self) -> bool {
        self.seeks & 1 == 0 && self.seeks.count_ones() <= 4
    }

    const fn waits(&self) -> bool {
        self.queued > 0 && self.has_turns()
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nobody's.
    Free,
    /// A reader's, until a time.
    Of(Process, u64),
    /// That of all without turns of their own, until a time.
    Others(u64),
}

#[derive(Debug)]
pub(crate) struct Slices {
    model: SliceModel,
    readers: Vec<Reader>,
    /// How many with turns of their own have reads queued.
    waiting: usize,
    turn: Turn,
    /// Who had the last turn; [`NOBODY`] for the others.
    last: Process,
}

impl Slices {
    pub(crate) fn new(model: SliceModel) -> Self {
        Self { model, readers: Vec::new(), waiting: 0, turn: Turn::Free, last: NOBODY }
    }

    pub(crate) const fn turn(&self) -> Turn {
        self.turn
    }

    /// Whether a process, or the others among whom it is, had the last turn.
    pub(crate) fn had_turn(&self, process: Process) -> bool {
        self.last == if self.has_turns(process) { process } else { NOBODY }
    }

    /// Whose a read is that no process is known to have sent: the reader's that was just before it, if there is one.
    pub(crate) fn whose(&self, start: u64) -> Process {
        let near = |r: &Reader| start >= r.next && start - r.next <= self.model.near_sectors && r.next > 0;
        self.readers.iter().position(near).map_or(NOBODY, |process| process as Process)
    }

    /// A process asks for a read.
    pub(crate) fn asked(&mut self, now_ns: u64, process: Process, start: u64, end: u64) {
        if self.readers.len() <= usize::from(process) {
            self.readers.resize(usize::from(process) + 1, Reader::default());
        }
        let SliceModel { near_sectors, idle_ns, .. } = self.model;
        self.change(process, |reader| {
            let is_far = reader.next > 0 && start.abs_diff(reader.next) > near_sectors;
            reader.seeks = reader.seeks << 1 | u32::from(is_far);
            if reader.next > 0 && reader.queued + reader.outstanding == 0 {
                let thought_ns = (now_ns - reader.ended_ns).min(2 * idle_ns);
                reader.thinks_ns = (7 * reader.thinks_ns + thought_ns) / 8;
            }
            reader.next = end;
        });
    }

    pub(crate) fn queued(&mut self, process: Process) {
        self.change(process, |reader| reader.queued += 1);
    }

    pub(crate) fn sent(&mut self, process: Process) {
        self.change(process, |reader| {
            reader.queued -= 1;
            reader.outstanding += 1;
        });
    }

    pub(crate) fn ended(&mut self, now_ns: u64, process: Process) {
        let reader = &mut self.readers[usize::from(process)];
        reader.outstanding -= 1;
        reader.ended_ns = now_ns;
    }

    /// Changes a reader, and counts it among those that wait if it does.
    fn change(&mut self, process: Process, how: impl FnOnce(&mut Reader)) {
        let reader = &mut self.readers[usize::from(process)];
        self.waiting -= usize::from(reader.waits());
        how(reader);
        self.waiting += usize::from(reader.waits());
    }

    /// Whether a process has turns of its own.
    pub(crate) fn has_turns(&self, process: Process) -> bool {
        self.readers.get(usize::from(process)).is_some_and(Reader::has_turns)
    }

    /// How many with turns of their own have reads queued.
    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) fn has_queued(&self, process: Process) -> bool {
        self.readers[usize::from(process)].queued > 0
    }

    /// Whether a process with turns of its own reads so near the place where another was that it goes on in its stead.
    pub(crate) fn is_close(&self, process: Process, distance: u64) -> bool {
        distance < self.model.close_sectors && self.has_turns(process)
    }

    /// Until when the drive is kept for a process that has nothing queued; `u64::MAX` while the drive is at work for it.
    pub(crate) fn idles_until(&self, process: Process) -> Option<u64> {
        let reader = &self.readers[usize::from(process)];
        if !self.has_turns(process) || reader.thinks_ns > self.model.idle_ns {
            return None;
        }
        Some(if reader.outstanding > 0 { u64::MAX } else { reader.ended_ns + self.model.idle_ns })
    }

    /// Begins a turn: a process's, shorter if many wait, or that of the others.
    pub(crate) fn begin(&mut self, now_ns: u64, process: Process) {
        self.last = if self.has_turns(process) { process } else { NOBODY };
        self.turn = if self.last == NOBODY {
            Turn::Others(now_ns + self.model.others_ns)
        } else {
            let fair_ns = self.model.target_ns / self.waiting().max(1) as u64;
            let shortest_ns = (2 * self.model.idle_ns).min(self.model.slice_ns);
            let slice_ns = match self.model.target_ns {
                0 => self.model.slice_ns,
                _ => fair_ns.clamp(shortest_ns, self.model.slice_ns),
            };
            Turn::Of(process, now_ns + slice_ns)
        };
    }

    pub(crate) const fn end(&mut self) {
        self.turn = Turn::Free;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockQueue, Fanout, QueueLimits};
    use crate::drive::CommandOp;
    use stripewise_engine::io::Tag;

    const MS: u64 = 1_000_000;
    const CFQ: SliceModel = SliceModel {
        slice_ns: 100 * MS,
        target_ns: 0,
        idle_ns: 8 * MS,
        others_ns: 40 * MS,
        near_sectors: 8192,
        close_sectors: 0,
    };

    const LIMITS: QueueLimits = QueueLimits {
        request_sectors_max: 256,
        nr_requests: 128,
        expire_ns: [125 * MS, 250 * MS],
        batch: 8,
        write_back: true,
        fua: true,
    };

    /// What happens next in [`served`].
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Next {
        Asks(Process),
        Ends(u8, Process),
        Looks,
    }

    /// Whom a drive serves that takes a millisecond a read, in order, with the times: readers that ask for the next read a while
    /// after the one before, each `stride` sectors on.
    fn served(
        slices: Option<SliceModel>,
        readers: Process,
        thinks_ns: u64,
        stride: u64,
    ) -> Vec<(u64, Process)> {
        let mut queue = BlockQueue::new(LIMITS, slices.map(Slices::new), 1);
        let (mut fanout, mut done, mut served) = (Fanout::default(), Vec::new(), Vec::new());
        let mut at: Vec<u64> = (0..u64::from(readers)).map(|n| 8 + n * 100_000_000).collect();
        let mut next: Vec<_> = (0..readers).map(|n| (u64::from(n), Next::Asks(n))).collect();
        while served.len() < 4000 {
            next.sort_unstable();
            let (now_ns, event) = next.remove(0);
            match event {
                Next::Asks(process) => {
                    let start = at[usize::from(process)];
                    at[usize::from(process)] += stride;
                    queue.add(now_ns, CommandOp::Read, (start, 8), Tag(0), Some(process), &mut fanout);
                }
                Next::Ends(tag, process) => {
                    queue.complete(now_ns, tag, &mut fanout, &mut done);
                    next.push((now_ns + thinks_ns, Next::Asks(process)));
                }
                Next::Looks => {}
            }
            while let Some((tag, _, start, _)) = queue.next(now_ns, &mut fanout) {
                let process = (start / 100_000_000) as Process;
                served.push((now_ns, process));
                next.push((now_ns + MS, Next::Ends(tag, process)));
            }
            next.extend(queue.take_wake().map(|wake_ns| (wake_ns, Next::Looks)));
        }
        served
    }

    fn turns(served: &[(u64, Process)]) -> usize {
        served.windows(2).filter(|pair| pair[0].1 != pair[1].1).count()
    }

    #[test]
    fn a_reader_keeps_the_drive_for_its_slice() {
        let alternating = served(None, 2, MS / 2, 8);
        assert!(turns(&alternating) > 3900, "without slices they alternate");
        let served = served(Some(CFQ), 2, MS / 2, 8);
        let (ms, turns) = (served[3999].0 / MS, turns(&served) as u64);
        assert!(turns.abs_diff(ms / 100) <= 2, "{turns} turns in {ms} ms");
        let first = served.iter().filter(|(_, process)| *process == 0).count();
        assert!((1800..2200).contains(&first), "the first has {first} of 4000");
    }

    #[test]
    fn many_readers_have_shorter_slices_where_there_is_a_goal() {
        let served = served(Some(SliceModel { target_ns: 300 * MS, ..CFQ }), 10, MS / 2, 8);
        // Ten share 300 ms, or nine while the last one thinks.
        let each_ms = served[3999].0 as f64 / 1e6 / turns(&served) as f64;
        assert!((29.0..36.0).contains(&each_ms), "{each_ms} ms each");
    }

    #[test]
    fn the_drive_is_not_kept_for_one_that_thinks_longer_or_reads_from_here_and_there() {
        for (thinks_ns, stride) in [(9 * MS, 8), (MS / 2, 9000)] {
            let with = served(Some(CFQ), 20, thinks_ns, stride);
            let without = served(None, 20, thinks_ns, stride);
            // By the second half it is known.
            let [with, without] = [with, without].map(|served| served[3999].0 - served[2000].0);
            assert!(with < without + without / 20, "{with} ns, {without} without slices");
        }
    }

    #[test]
    fn readers_of_one_stream_follow_each_other() {
        let together = |close_sectors| {
            let mut queue =
                BlockQueue::new(LIMITS, Some(Slices::new(SliceModel { close_sectors, ..CFQ })), 1);
            let (mut fanout, mut done, mut sent_ms) = (Fanout::default(), Vec::new(), Vec::new());
            for (n, process) in [0, 1, 0, 1].into_iter().enumerate() {
                queue.add(0, CommandOp::Read, (8 + 8 * n as u64, 8), Tag(0), Some(process), &mut fanout);
            }
            for ms in 0..40 {
                while let Some((tag, ..)) = queue.next(ms * MS, &mut fanout) {
                    sent_ms.push(ms);
                    queue.complete(ms * MS + MS / 2, tag, &mut fanout, &mut done);
                }
            }
            *sent_ms.last().unwrap()
        };
        assert!(together(0) >= 8, "without, the drive is kept for the first");
        assert!(together(8192) < 2, "the second's reads do not wait");
    }

    #[test]
    fn writes_have_their_turns() {
        let mut queue = BlockQueue::new(LIMITS, Some(Slices::new(CFQ)), 1);
        let (mut fanout, mut done) = (Fanout::default(), Vec::new());
        let (mut written_ms, mut at) = (None, 8);
        queue.add(0, CommandOp::Write, (50_000_000, 8), Tag(1), None, &mut fanout);
        for ms in 0..1000 {
            queue.add(ms * MS, CommandOp::Read, (at, 8), Tag(0), Some(0), &mut fanout);
            at += 8;
            while let Some((tag, op, ..)) = queue.next(ms * MS, &mut fanout) {
                written_ms = written_ms.or((op == CommandOp::Write).then_some(ms));
                queue.complete(ms * MS + MS / 2, tag, &mut fanout, &mut done);
            }
        }
        assert!(written_ms.is_some_and(|ms| ms <= 101), "the write went after {written_ms:?} ms");
    }
}
