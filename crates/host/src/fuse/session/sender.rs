//! A second thread that sends long answers, so that two CPUs copy to whoever asked.
//!
//! *Bound.* [`WAITING_MAX`] answers wait for it; the session sends others itself. *Order.* None: the kernel waits for each answer
//! alone.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::super::abi::out_header;
use crate::loans::Loans;
use crate::nbd::{Buffer, moved};

/// More would wait longer than the session takes to send one itself.
const WAITING_MAX: usize = 1;

/// What a read is answered with: bytes of a buffer.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) unique: u64,
    pub(super) buffer: Buffer,
    pub(super) skip: usize,
    pub(super) bytes: usize,
}

impl Read {
    /// Where the bytes are, but for what was lent.
    pub(super) fn place(&self) -> Range<*mut u8> {
        let start = self.buffer.base().wrapping_add(self.skip);
        start..start.wrapping_add(self.bytes)
    }

    /// Sends the answer, and ends the loans it is of. The device never makes one wait; of a request that nobody waits for any
    /// more it takes none.
    pub(super) fn send(&self, device: &OwnedFd, loans: &mut Loans) {
        let header = out_header(self.unique, 0, self.bytes);
        let runs = loans.sent_as(&header, self.place());
        let (first, count) = (runs.as_ptr(), runs.len() as i32);
        // SAFETY: the buffer holds what was not lent, and nothing writes to it. What was lent the kernel looks at itself; if
        // somebody has cut it off since, it tells who asked of an error.
        let _nobody_waits = moved(&[], || unsafe { libc::writev(device.as_raw_fd(), first, count) });
        loans.end(self.place());
    }
}

/// See the module's description. What it was given is sent before it is dropped.
#[derive(Debug)]
pub(super) struct Sender {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Read, Loans)>,
    /// What is free again.
    sent: Vec<(Read, Loans)>,
    is_over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Starts the thread; nothing if the system has none, or no CPU for it.
    pub(super) fn new(device: &Arc<OwnedFd>) -> Option<Self> {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            return None;
        }
        let shared = Arc::new(Shared::default());
        let (device, own) = (Arc::clone(device), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("answers".to_owned()).spawn(move || run(&device, &own));
        Some(Self { shared, thread: Some(thread.ok()?) })
    }

    /// Whether it can [`take`](Self::take) an answer.
    pub(super) fn has_room(&self) -> bool {
        self.shared.lock().waiting.len() < WAITING_MAX
    }

    /// Takes an answer with what was lent to it.
    pub(super) fn take(&self, read: Read, loans: Loans) {
        self.shared.lock().waiting.push_back((read, loans));
        self.shared.news.notify_one();
    }

    /// An answer that was sent, for what it was sent from to be used again.
    pub(super) fn sent(&self) -> Option<(Read, Loans)> {
        self.shared.lock().sent.pop()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.news.notify_one();
        if let Some(thread) = self.thread.take() {
            let _only_sends = thread.join();
        }
    }
}

fn run(device: &OwnedFd, shared: &Shared) {
    let mut state = shared.lock();
    loop {
        if let Some((read, mut loans)) = state.waiting.pop_front() {
            drop(state);
            read.send(device, &mut loans);
            state = shared.lock();
            state.sent.push((read, loans));
        } else if state.is_over {
            return;
        } else {
            state = shared.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
