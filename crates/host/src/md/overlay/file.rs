//! An overlay's file, and whether what was written to it can still be made durable.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

/// The overlay's file, made durable until that fails once. The system tells of what it lost one time, whichever region asks
/// and whosever it was: after that nothing more is known of any of them, and no bit may say that something is there.
#[derive(Debug)]
pub(super) struct OverlayFile {
    file: File,
    has_failed: Mutex<bool>,
}

impl OverlayFile {
    pub(super) fn new(file: File) -> Self {
        Self { file, has_failed: Mutex::new(false) }
    }

    /// # Errors
    /// The system's, and `EIO` ever after.
    pub(super) fn sync(&self) -> io::Result<()> {
        let mut has_failed = self.has_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *has_failed {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.file.sync_data().inspect_err(|_| *has_failed = true)
    }

    /// One of which a sync has failed.
    #[cfg(test)]
    pub(super) fn lost(file: File) -> Self {
        Self { has_failed: Mutex::new(true), ..Self::new(file) }
    }
}

impl Deref for OverlayFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_that_failed_fails_ever_after() {
        // A pipe cannot be made durable.
        let (pipe, _other) = io::pipe().unwrap();
        let file = OverlayFile::new(File::from(std::os::fd::OwnedFd::from(pipe)));
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(libc::EIO), "the system is not asked again");
    }
}
