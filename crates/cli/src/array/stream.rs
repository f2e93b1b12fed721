//! A stream of array bytes: several MiB in flight, in order at the pipe's end.
//!
//! Threads of their own read and write pipes, so that one that does not move keeps neither the array's loop nor
//! Ctrl-C waiting.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::ProgressBar;
use stripewise_engine::io::{Flags, IoError, IoResult, Op, Request, RequestId};
use stripewise_engine::units::{Instant, Nanos, PAGE_BYTES, SectorRange};
use stripewise_engine::workload::{Next, Workload};
use stripewise_host::Payload;

/// Requests in flight.
const DEPTH: usize = 8;
/// Bytes of each; pieces end at multiples of it, so that full stripes are written whole.
pub(super) const PIECE_BYTES: u64 = 1 << 20;
const SECTOR_BYTES: u64 = 512;
/// How often a pipe that does not move is looked at again.
const PIPE_WAIT: Duration = Duration::from_millis(20);

/// Why a stream ended early.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The array's answer to a request that begins at this byte; of a read, the first page that it does not give.
    Array { offset: u64, error: IoError },
    /// The pipe's or file's.
    Pipe(io::Error),
}

/// The end of the piece that begins at a byte.
fn piece_end(start: u64, end: u64) -> u64 {
    multiple_after(start, PIECE_BYTES).min(end)
}

/// The first multiple of `step` after a byte.
const fn multiple_after(byte: u64, step: u64) -> u64 {
    (byte / step + 1) * step
}

fn sectors(bytes: &Range<u64>) -> SectorRange {
    let first = bytes.start / SECTOR_BYTES;
    SectorRange::new(first, bytes.end.div_ceil(SECTOR_BYTES) - first)
}

fn request(id: usize, op: Op, bytes: &Range<u64>) -> Request {
    Request { id: RequestId(id as u32), op, range: sectors(bytes), flags: Flags::default() }
}

/// Array bytes on their way to a writer.
pub(super) struct Reading {
    next: u64,
    end: u64,
    /// The pieces in flight and those read before their turn, oldest first; the oldest's number is `first`.
    pieces: VecDeque<(Range<u64>, Option<Vec<u8>>)>,
    first: usize,
    in_flight: usize,
    /// The first piece that the array did not give, to be read page by page once no other is in flight.
    refused: Option<Range<u64>>,
    /// Up to here it is read page by page.
    pages_to: u64,
    sender: Option<SyncSender<Vec<u8>>>,
    writer: Option<JoinHandle<io::Result<()>>>,
    bar: Option<ProgressBar>,
    trouble: Option<Trouble>,
}

impl Reading {
    pub(super) fn new(
        range: Range<u64>,
        mut to: impl Write + Send + 'static,
        bar: Option<ProgressBar>,
    ) -> Self {
        let (sender, receiver) = sync_channel::<Vec<u8>>(DEPTH);
        let writer = std::thread::spawn(move || {
            for bytes in receiver {
                to.write_all(&bytes)?;
            }
            to.flush()
        });
        Self {
            next: range.start,
            end: range.end,
            pieces: VecDeque::new(),
            first: 0,
            in_flight: 0,
            refused: None,
            pages_to: 0,
            sender: Some(sender),
            writer: Some(writer),
            bar,
            trouble: None,
        }
    }

    /// Hands the pieces whose turn has come to the writer; answers whether it takes them.
    fn deliver(&mut self) -> bool {
        while let Some((_, Some(_))) = self.pieces.front() {
            let (range, bytes) = self.pieces.pop_front().expect("there is a first");
            self.first += 1;
            let Some(sender) = &self.sender else { continue };
            match sender.try_send(bytes.unwrap_or_default()) {
                Ok(()) => {
                    if let Some(bar) = &self.bar {
                        bar.inc(range.end - range.start);
                    }
                }
                Err(TrySendError::Full(bytes)) => {
                    self.pieces.push_front((range, Some(bytes)));
                    self.first -= 1;
                    return false;
                }
                Err(TrySendError::Disconnected(_)) => {
                    self.sender = None;
                    self.end = self.next;
                }
            }
        }
        true
    }

    /// Begins to read what was refused page by page, once what comes before it is delivered; answers whether it has.
    fn read_pages(&mut self) -> bool {
        let is_its_turn = |range: &Range<u64>| self.pieces.front().is_some_and(|(first, _)| first == range);
        let Some(range) = self.refused.take_if(|range| self.in_flight == 0 && is_its_turn(range)) else {
            return false;
        };
        self.pieces.clear();
        (self.next, self.pages_to) = (range.start, range.end);
        true
    }

    /// Ends the stream: everything read in order is written, unless `stop` is set while the pipe does not move.
    ///
    /// # Errors
    /// What stopped the stream.
    pub(super) fn finish(mut self, stop: &AtomicBool) -> Result<(), Trouble> {
        while !self.deliver() && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(PIPE_WAIT);
        }
        drop(self.sender.take());
        let writer = self.writer.take().expect("it is joined once");
        while !writer.is_finished() {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match self.trouble {
            Some(trouble) => Err(trouble),
            None => written.map_err(Trouble::Pipe),
        }
    }

    fn place(&self, id: RequestId) -> usize {
        (id.0 as usize + DEPTH - self.first % DEPTH) % DEPTH
    }
}

impl Workload for Reading {
    fn in_flight_max(&self) -> u32 {
        DEPTH as u32
    }

    fn request_bytes_max(&self) -> u64 {
        PIECE_BYTES
    }

    fn next(&mut self, now: Instant) -> Next {
        if self.trouble.is_some() {
            return Next::Finished;
        }
        let moves = self.deliver();
        let is_held_up = self.refused.is_some() && !self.read_pages();
        if self.next >= self.end && !is_held_up {
            // What is in flight may be refused.
            return if self.in_flight > 0 { Next::Wait } else { Next::Finished };
        }
        if self.pieces.len() == DEPTH || is_held_up {
            let wait = Nanos(PIPE_WAIT.as_nanos() as u64);
            return if moves { Next::Wait } else { Next::WaitUntil(now + wait) };
        }
        let end = if self.next < self.pages_to {
            multiple_after(self.next, PAGE_BYTES).min(self.pages_to)
        } else {
            piece_end(self.next, self.end)
        };
        let range = self.next..end;
        self.next = range.end;
        self.in_flight += 1;
        let id = (self.first + self.pieces.len()) % DEPTH;
        self.pieces.push_back((range.clone(), None));
        Next::Issue(request(id, Op::Read, &range))
    }

    fn complete(&mut self, _: Instant, id: RequestId, result: IoResult) {
        self.in_flight -= 1;
        if let Err(error) = result {
            let range = self.pieces[self.place(id)].0.clone();
            let offset = range.start;
            if offset >= self.pages_to {
                if self.refused.as_ref().is_none_or(|refused| offset < refused.start) {
                    self.refused = Some(range);
                }
            } else if !matches!(&self.trouble, Some(Trouble::Array { offset: first, .. }) if *first < offset)
            {
                self.trouble = Some(Trouble::Array { offset, error });
            }
        }
        self.deliver();
    }
}

impl Payload for Reading {
    fn fill(&mut self, _: &Request, _: &mut [u8]) {}

    fn check(&mut self, request: &Request, bytes: &[u8]) {
        let place = self.place(request.id);
        let (range, piece) = &mut self.pieces[place];
        let skip = (range.start - request.range.start * SECTOR_BYTES) as usize;
        let length = (range.end - range.start) as usize;
        *piece = Some(bytes[skip..skip + length].to_vec());
    }
}

/// Bytes of a reader as they come.
pub(super) struct Source {
    receiver: Receiver<io::Result<Vec<u8>>>,
    rest: Vec<u8>,
    is_over: bool,
}

impl Source {
    pub(super) fn new(mut from: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(DEPTH);
        std::thread::spawn(move || {
            loop {
                let mut bytes = vec![0; PIECE_BYTES as usize];
                let read = match from.read(&mut bytes) {
                    Ok(0) => return,
                    Ok(length) => {
                        bytes.truncate(length);
                        Ok(bytes)
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let is_over = read.is_err();
                if sender.send(read).is_err() || is_over {
                    return;
                }
            }
        });
        Self { receiver, rest: Vec::new(), is_over: false }
    }

    /// Takes what has come until there are `length` bytes or the reader has no more.
    ///
    /// # Errors
    /// The reader's.
    fn poll(&mut self, length: usize) -> io::Result<()> {
        while self.rest.len() < length && !self.is_over {
            match self.receiver.try_recv() {
                Ok(bytes) => self.rest.extend(bytes?),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => self.is_over = true,
            }
        }
        Ok(())
    }

    /// Waits for up to `length` bytes; fewer when the reader has no more or `stop` is set.
    ///
    /// # Errors
    /// The reader's.
    pub(super) fn take(&mut self, length: usize, stop: &AtomicBool) -> io::Result<Vec<u8>> {
        while self.rest.len() < length && !self.is_over && !stop.load(Ordering::Relaxed) {
            match self.receiver.recv_timeout(PIPE_WAIT) {
                Ok(bytes) => self.rest.extend(bytes?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.is_over = true,
            }
        }
        let length = length.min(self.rest.len());
        Ok(self.rest.drain(..length).collect())
    }
}

/// Bytes of a source on their way to the array, from a whole sector on.
pub(super) struct Writing {
    next: u64,
    end: u64,
    source: Source,
    slots: [Option<(u64, Vec<u8>)>; DEPTH],
    stop: Arc<AtomicBool>,
    bar: Option<ProgressBar>,
    trouble: Option<Trouble>,
}

/// What is left when the whole sectors of a stream are written.
pub(super) struct Remainder {
    /// Where the stream stands: a whole sector.
    pub(super) offset: u64,
    /// The beginning of the sector there.
    pub(super) bytes: Vec<u8>,
    /// Where more may come from.
    pub(super) source: Source,
}

impl Writing {
    pub(super) fn new(
        range: Range<u64>,
        source: Source,
        stop: Arc<AtomicBool>,
        bar: Option<ProgressBar>,
    ) -> Self {
        assert!(range.start.is_multiple_of(SECTOR_BYTES), "the first sector is completed before");
        let slots = [const { None }; DEPTH];
        Self { next: range.start, end: range.end, source, slots, stop, bar, trouble: None }
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// What stopped it.
    pub(super) fn finish(self) -> Result<Remainder, Trouble> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let Self { next, end, mut source, trouble, .. } = self;
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        let room = (end - next).min(source.rest.len() as u64) as usize;
        let bytes = source.rest.drain(..room).collect();
        Ok(Remainder { offset: next, bytes, source })
    }
}

impl Workload for Writing {
    fn in_flight_max(&self) -> u32 {
        DEPTH as u32
    }

    fn request_bytes_max(&self) -> u64 {
        PIECE_BYTES
    }

    fn next(&mut self, now: Instant) -> Next {
        let whole_end = self.end / SECTOR_BYTES * SECTOR_BYTES;
        if self.trouble.is_some() || self.next >= whole_end || self.stop.load(Ordering::Relaxed) {
            return Next::Finished;
        }
        let Some(id) = self.slots.iter().position(Option::is_none) else { return Next::Wait };
        let wanted = (piece_end(self.next, whole_end) - self.next) as usize;
        if let Err(error) = self.source.poll(wanted) {
            self.trouble = Some(Trouble::Pipe(error));
            return Next::Finished;
        }
        let have = self.source.rest.len().min(wanted);
        if have < wanted && !self.source.is_over {
            return Next::WaitUntil(now + Nanos::from_millis(1));
        }
        let length = have / SECTOR_BYTES as usize * SECTOR_BYTES as usize;
        if length == 0 {
            return Next::Finished;
        }
        let bytes: Vec<u8> = self.source.rest.drain(..length).collect();
        let range = self.next..self.next + length as u64;
        self.next = range.end;
        self.slots[id] = Some((range.start, bytes));
        Next::Issue(request(id, Op::Write, &range))
    }

    fn complete(&mut self, _: Instant, id: RequestId, result: IoResult) {
        let (offset, bytes) = self.slots[id.0 as usize].take().expect("a request completes once");
        match result {
            Ok(()) => {
                if let Some(bar) = &self.bar {
                    bar.inc(bytes.len() as u64);
                }
            }
            Err(error) => self.trouble = self.trouble.take().or(Some(Trouble::Array { offset, error })),
        }
    }
}

impl Payload for Writing {
    fn fill(&mut self, request: &Request, bytes: &mut [u8]) {
        if let Some((_, from)) = &self.slots[request.id.0 as usize] {
            bytes.copy_from_slice(from);
        }
    }

    fn check(&mut self, _: &Request, _: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_BYTES;

    /// Where what is read goes.
    #[derive(Clone, Default)]
    struct Shared(Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const fn byte_at(offset: u64) -> u8 {
        (offset / 512 % 251) as u8
    }

    /// Reads a range of an array some of whose pages cannot be read, the answers in an order of their own; what was written, and
    /// where it ended.
    fn read(range: Range<u64>, bad: impl Fn(u64, u32) -> bool) -> (Vec<u8>, Option<u64>) {
        let to = Shared::default();
        let mut reading = Reading::new(range, to.clone(), None);
        let (mut in_flight, mut turn, mut asked, mut is_over) = (Vec::new(), 0, 0, false);
        while !is_over || !in_flight.is_empty() {
            let next = if is_over { Next::Finished } else { reading.next(Instant::ZERO) };
            is_over = matches!(next, Next::Finished);
            match next {
                Next::Issue(request) => in_flight.push(request),
                Next::Finished | Next::Wait | Next::WaitUntil(_) if !in_flight.is_empty() => {
                    turn += 1;
                    let request: Request = in_flight.remove(turn * 5 % in_flight.len());
                    let SectorRange { start, count } = request.range;
                    asked += 1;
                    let is_bad = (start / 8..(start + count).div_ceil(8)).any(|page| bad(page, asked));
                    if !is_bad {
                        let bytes: Vec<u8> = (start * 512..(start + count) * 512).map(byte_at).collect();
                        reading.check(&request, &bytes);
                    }
                    let result = if is_bad { Err(IoError::Media) } else { Ok(()) };
                    reading.complete(Instant::ZERO, request.id, result);
                }
                _ => std::thread::yield_now(),
            }
        }
        let ended = match reading.finish(&AtomicBool::new(false)) {
            Ok(()) => None,
            Err(Trouble::Array { offset, .. }) => Some(offset),
            Err(Trouble::Pipe(error)) => panic!("{error}"),
        };
        let bytes = to.0.lock().unwrap().clone();
        (bytes, ended)
    }

    #[test]
    fn all_before_the_first_page_that_cannot_be_read_is_written_and_that_page_named() {
        let end = 40 * PIECE_BYTES + 3 * PAGE + 700;
        for start in [0, 5 * PAGE + 100, PIECE_BYTES - 1] {
            for bad in [6, 255, 256, 300, 20 * 256 + 17, 40 * 256 + 3] {
                for others in [vec![], vec![bad + 1], vec![bad + 256, bad + 900, 40 * 256 + 3]] {
                    let (bytes, ended) = read(start..end, |page, _| page == bad || others.contains(&page));
                    let bad_pages = std::iter::once(bad).chain(others.iter().copied());
                    let first = bad_pages.filter(|page| (page + 1) * PAGE > start).min();
                    let first = first.map(|page| (page * PAGE).max(start));
                    assert_eq!(ended, first, "from {start}, {bad} {others:?}");
                    assert!(
                        bytes == (start..first.unwrap_or(end)).map(byte_at).collect::<Vec<u8>>(),
                        "from {start}, {bad} {others:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_can_be_read_the_second_time_is_no_trouble() {
        let end = 5 * PIECE_BYTES;
        let (bytes, ended) = read(0..end, |page, asked| page == 300 && asked < 9);
        assert_eq!((bytes.len() as u64, ended), (end, None));
    }
}
