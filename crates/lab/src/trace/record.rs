//! Writing a trace while an array is served.
//!
//! Records go to a buffer in memory that a thread of its own empties into the file: a thread that serves takes a lock and
//! copies 56 bytes. The buffer has a limit. When the file does not keep up, requests wait for it, so that none is lost; when it
//! cannot be written at all, the array is served on, the trace stays without its end line, and the recorder says so.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stripewise_engine::units::SECTOR_BYTES;
use stripewise_host::{Observed, Observer};

use super::{COLUMNS, MAGIC, Problem, TraceError, VERSION, letter};

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
struct Shared {
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
    /// Starts a trace of a device of so many bytes. A file there is replaced if it is a trace or empty; pipes, which wait for
    /// a reader, are refused. `tell` is called
    /// at once, on the recorder's thread, if the file can no longer be written.
    ///
    /// # Errors
    /// The file cannot be made, or is something else than a trace.
    pub fn create(
        path: &Path,
        device_bytes: u64,
        tell: impl FnOnce(&TraceError) + Send + 'static,
    ) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let system = |e: io::Error| Problem::opening("make the trace", &e).of(&name);
        let kind = path.metadata().map(|metadata| metadata.file_type());
        if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_char_device()) {
            return Err(Problem::Exists.of(&name));
        }
        match File::open(path) {
            Ok(mut there) => {
                let mut start = [0; MAGIC.len()];
                let read = there.read(&mut start).map_err(system)?;
                if read > 0 && start != MAGIC.as_bytes() {
                    return Err(Problem::Exists.of(&name));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(system(e)),
        }
        let mut file = File::create(path).map_err(system)?;
        write!(file, "{MAGIC} {VERSION}\ndevice_bytes {device_bytes}\n{COLUMNS}\n").map_err(system)?;
        Ok(Self::onto(name, file, tell))
    }

    /// Writes records to something that has the head already.
    fn onto(
        file: String,
        to: impl Write + Send + 'static,
        tell: impl FnOnce(&TraceError) + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::default());
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
        Arc::new(Tap(Arc::clone(&self.shared)))
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
