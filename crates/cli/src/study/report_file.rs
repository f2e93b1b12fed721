//! The report in a results folder.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::exit::Impossible;

/// What stands in the head of every report, within so many bytes.
const GENERATOR: &[u8] = b"<meta name=\"generator\" content=\"stripewise ";
const HEAD_BYTES: u64 = 4096;

/// The path of a folder's report; refused if a file is there that is none. `other` says what else to name.
pub(super) fn report_file(folder: &Path, other: &str) -> Result<PathBuf> {
    let path = folder.join("report.html");
    if is_foreign(&path) {
        let why = "is no report of a study, and the report would replace it";
        return Err(Impossible(format!("{}: {why}; move it away, or {other}", path.display())).into());
    }
    Ok(path)
}

/// Whether a file with something else than a report is there. What cannot be read is left to whoever writes it.
fn is_foreign(path: &Path) -> bool {
    let mut head = Vec::new();
    let is_read = path.is_file()
        && File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head)).is_ok();
    is_read && !head.is_empty() && !head.windows(GENERATOR.len()).any(|bytes| bytes == GENERATOR)
}
