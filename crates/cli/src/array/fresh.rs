//! Files that a command makes before it knows whether it can do what it is asked.

use std::path::{Path, PathBuf};

/// Files that were not there; unless they are kept, they are removed.
#[derive(Debug)]
pub(crate) struct Fresh(Vec<PathBuf>);

impl Fresh {
    /// Takes note of which of these files are not there yet.
    pub(crate) fn among<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let is_new = |path: &&Path| path.symlink_metadata().is_err();
        Self(paths.into_iter().filter(is_new).map(Path::to_owned).collect())
    }

    /// Leaves them where they are.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        for path in &self.0 {
            // It may not have come to be.
            let _none_there = std::fs::remove_file(path);
        }
    }
}
