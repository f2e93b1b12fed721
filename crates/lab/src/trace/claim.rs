//! The file of a trace, before the trace begins.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stripewise_host::Observer;

use super::record::{Recorder, Shared};
use super::{COLUMNS, MAGIC, Problem, TraceError, VERSION};

/// A file that is taken for a trace: nobody else records in it. It holds what it held until the trace begins; if none begins, one
/// that was made for it is removed.
#[derive(Debug)]
pub struct Claim {
    name: String,
    /// Dropped before the file is: whoever waits for it finds that it is gone.
    made: Made,
    file: File,
    shared: Arc<Shared>,
}

/// A file that was made, unless it is kept.
#[derive(Debug)]
struct Made(Option<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        // Somebody else may have removed it.
        let _gone = self.0.take().map(std::fs::remove_file);
    }
}

impl Claim {
    /// Takes a file that is a trace or empty, or makes one. Pipes, which wait for a reader, are refused.
    ///
    /// # Errors
    /// The file cannot be made, is something else than a trace, or is being recorded in.
    pub fn new(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let kind = path.metadata().map(|metadata| metadata.file_type());
        if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_char_device()) {
            return Err(Problem::Exists.of(&name));
        }
        let (file, is_new) = open(path).map_err(|e| cannot_make(&name, &e))?;
        let made = Made(is_new.then(|| path.to_owned()));
        let claim = Self { name, made, file, shared: Arc::default() };
        claim.take(path)?;
        Ok(claim)
    }

    /// Looks what the file is, and locks it. What is no file, such as /dev/null, may have many writers.
    fn take(&self, path: &Path) -> Result<(), TraceError> {
        let cannot = |e: io::Error| cannot_make(&self.name, &e);
        let mut start = [0; MAGIC.len()];
        let read = (&self.file).read(&mut start).map_err(cannot)?;
        if read > 0 && start != MAGIC.as_bytes() {
            return Err(Problem::Exists.of(&self.name));
        }
        let own = self.file.metadata().map_err(cannot)?;
        if !own.is_file() {
            return Ok(());
        }
        match stripewise_host::claim(&self.file) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => Err(Problem::Recording.of(&self.name)),
            Err(e) => Err(cannot(e)),
            // Whoever had made it may have given it up, and removed it.
            Ok(()) if !is_at(path, &own) => Err(Problem::Recording.of(&self.name)),
            Ok(()) => Ok(()),
        }
    }

    /// What a server is to tell of its requests, once the trace has begun.
    pub fn observer(&self) -> Arc<dyn Observer> {
        self.shared.observer()
    }

    /// Begins a trace of a device of so many bytes, in place of what the file held. `tell` is called at once, on the recorder's
    /// thread, if the file can no longer be written.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(
        self,
        device_bytes: u64,
        tell: impl FnOnce(&TraceError) + Send + 'static,
    ) -> Result<Recorder, TraceError> {
        let Self { name, mut made, mut file, shared } = self;
        begin(&mut file, device_bytes).map_err(|e| cannot_make(&name, &e))?;
        made.0 = None;
        Ok(Recorder::onto(name, shared, file, tell))
    }
}

/// Whether a path leads to this file.
fn is_at(path: &Path, own: &Metadata) -> bool {
    path.metadata().is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()))
}

/// Opens a file as it is, and says whether it was made.
fn open(path: &Path) -> io::Result<(File, bool)> {
    let mut options = File::options();
    options.read(true).write(true);
    match options.clone().create_new(true).open(path) {
        // A link may lead to where no file is yet.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            Ok((options.create(true).truncate(false).open(path)?, false))
        }
        made => Ok((made?, true)),
    }
}

/// Empties the file and writes the head.
fn begin(file: &mut File, device_bytes: u64) -> io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
        file.rewind()?;
    }
    write!(file, "{MAGIC} {VERSION}\ndevice_bytes {device_bytes}\n{COLUMNS}\n")
}

fn cannot_make(name: &str, error: &io::Error) -> TraceError {
    Problem::opening("make the trace", error).of(name)
}
