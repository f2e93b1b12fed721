//! Writing a trace while an array is served.
//!
//! Records go to a buffer in memory that a thread of its own empties into the file: a thread that serves takes a lock and
//! copies 56 bytes. The buffer has a limit. When the file does not keep up, requests wait for it, so that none is lost; when it
//! cannot be written at all, the array is served on, the trace stays without its end line, and the recorder says so.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stripewise_engine::units::SECTOR_BYTES;
use stripewise_host::{Observed, Observer};

use super::{Problem, TraceError, letter};

/// Records kept in memory before requests wait: 14 MiB.
const BUFFERED_MAX: usize = 1 << 18;
/// The writer is woken when there are so many, and looks by itself every [`LOOK`].
const WAKE_AT: usize = BUFFERED_MAX / 4;
/// How long a record stays in memory at most while the file keeps up.
const LOOK: Duration = Duration::from_millis(50);

/// What a recording came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Records in the file.
    pub records: u64,
}

#[derive(Debug, Default)]
struct Buffer {
    records: Vec<Observed>,
    /// No more will come.
    is_closed: bool,
    /// The file cannot be written: what comes is dropped.
    is_broken: bool,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    buffer: Mutex<Buffer>,
    /// Told when there is something to write.
    filled: Condvar,
    /// Told when there is room again.
    emptied: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who fills the buffer.
    pub(super) fn observer(self: &Arc<Self>) -> Arc<dyn Observer> {
        Arc::new(Tap(Arc::clone(self)))
    }
}

/// What is given to the server.
struct Tap(Arc<Shared>);

impl Observer for Tap {
    fn observe(&self, observed: &Observed) {
        let mut buffer = self.0.lock();
        while buffer.records.len() >= BUFFERED_MAX && !buffer.is_broken {
            self.0.filled.notify_one();
            buffer = self.0.emptied.wait(buffer).unwrap_or_else(PoisonError::into_inner);
        }
        if buffer.is_broken {
            return;
        }
        buffer.records.push(*observed);
        if buffer.records.len() == WAKE_AT {
            self.0.filled.notify_one();
        }
    }
}

/// A trace being written.
#[derive(Debug)]
pub struct Recorder {
    file: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<u64>>>,
}

impl Recorder {
    /// Writes records to something that has the head already.
    pub(super) fn onto(
        file: String,
        shared: Arc<Shared>,
        to: impl Write + Send + 'static,
        tell: impl FnOnce(&TraceError) + Send + 'static,
    ) -> Self {
        let (theirs, name) = (Arc::clone(&shared), file.clone());
        let thread = std::thread::spawn(move || {
            let written = write_all(&theirs, to);
            if let Err(error) = &written {
                tell(&cannot_write(&name, error));
                theirs.lock().is_broken = true;
                theirs.emptied.notify_all();
            }
            written
        });
        Self { file, shared, thread: Some(thread) }
    }

    /// What the server is to tell of its requests.
    pub fn observer(&self) -> Arc<dyn Observer> {
        self.shared.observer()
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// It could not be written in full.
    pub fn finish(mut self) -> Result<Written, TraceError> {
        match self.close() {
            Ok(records) => Ok(Written { records }),
            Err(error) => Err(cannot_write(&self.file, &error)),
        }
    }

    fn close(&mut self) -> io::Result<u64> {
        self.shared.lock().is_closed = true;
        self.shared.filled.notify_one();
        let thread = self.thread.take().expect("a recorder is closed once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Given up with the server, whose error is told.
            let _ = self.close();
        }
    }
}

fn cannot_write(file: &str, error: &io::Error) -> TraceError {
    Problem::System(format!(
        "cannot write the trace: {error}; the array is served on, and the trace is cut short"
    ))
    .of(file)
}

/// Writes what comes until there is no more, then the end line; answers how many.
fn write_all(shared: &Shared, to: impl Write) -> io::Result<u64> {
    let mut to = BufWriter::with_capacity(1 << 16, to);
    let (mut batch, mut line, mut count) = (Vec::new(), String::new(), 0);
    loop {
        let mut buffer = shared.lock();
        while buffer.records.is_empty() && !buffer.is_closed {
            // Between two looks nobody is woken for a single record.
            buffer = shared.filled.wait_timeout(buffer, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_last = buffer.is_closed;
        std::mem::swap(&mut buffer.records, &mut batch);
        drop(buffer);
        shared.emptied.notify_all();
        for observed in batch.drain(..) {
            line.clear();
            print(&mut line, &observed);
            to.write_all(line.as_bytes())?;
            count += 1;
        }
        if is_last {
            writeln!(to, "end {count}")?;
            to.flush()?;
            return Ok(count);
        }
        to.flush()?;
    }
}

/// Appends a record's line.
fn print(line: &mut String, observed: &Observed) {
    let Observed { arrived, latency, op, range, fua, stream, is_ok } = observed;
    let flags = match (fua, is_ok) {
        (false, true) => "-",
        (true, true) => "f",
        (false, false) => "e",
        (true, false) => "fe",
    };
    // Writing to a string does not fail.
    let _ = writeln!(
        line,
        "{} {} {} {} {flags} {stream} {}",
        arrived.0,
        letter(*op),
        range.start * SECTOR_BYTES,
        range.count * SECTOR_BYTES,
        latency.0
    );
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
