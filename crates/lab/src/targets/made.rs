//! Files that are made for a target and go with it, also if the process ends at once.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Those of all targets of this process.
static ALL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A target's files, which are removed with it.
#[derive(Debug, Default)]
pub(super) struct Made(Mutex<Vec<PathBuf>>);

impl Made {
    /// Has a file made, and takes note of it.
    pub(super) fn make<E>(&self, path: &Path, make: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
        let mut all = lock(&ALL);
        make(path)?;
        all.insert(path.to_owned());
        lock(&self.0).push(path.to_owned());
        Ok(())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let mut all = lock(&ALL);
        for path in lock(&self.0).drain(..) {
            remove(&path);
            all.remove(&path);
        }
    }
}

/// Removes the files of all targets, for a process that ends at once: whoever wants to make another waits for that end.
pub fn remove_made_files() {
    let all = lock(&ALL);
    all.iter().for_each(|path| remove(path));
    std::mem::forget(all);
}

fn remove(path: &Path) {
    // A file that someone else removed is what is wanted; there is no one to tell of another fault.
    let _ = fs::remove_file(path);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
