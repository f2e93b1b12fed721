//! What is printed: tables for people, JSON for programs.

/// A line on standard error. That nobody can be told is no reason to end.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($words)*)));
    }};
}

/// The same without a line end.
macro_rules! say_on {
    ($($words:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!($($words)*));
    }};
}

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::exit::{Exit, cannot_open};

/// Prints text to standard output; a closed pipe is an error the caller passes on.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| unwritten(e, "standard output"))
}

/// Prints what the parser of the arguments has to say: help to standard output, a complaint to standard error.
pub(crate) fn print_said(said: &clap::Error) -> Result<Exit> {
    let place = if said.use_stderr() { "standard error" } else { "standard output" };
    said.print().and_then(|()| std::io::stdout().flush()).map_err(|error| unwritten(error, place))?;
    Ok(if said.exit_code() == 0 { Exit::Done } else { Exit::Impossible })
}

/// Whoever read what this command prints has gone.
#[derive(Debug)]
pub(crate) struct ReaderLeft;

impl std::fmt::Display for ReaderLeft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody reads the output any more")
    }
}

impl std::error::Error for ReaderLeft {}

/// Why an output was not written, with its name.
pub(crate) fn unwritten(error: std::io::Error, place: &str) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => ReaderLeft.into(),
        _ => anyhow::Error::new(error).context(place.to_owned()),
    }
}

/// Whether an output that was named is standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes a file that was named; one of that name is replaced when all has been written. `-` is standard output.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<()> {
    if is_stdout(path) {
        return print(text);
    }
    replace(path, |file| file.write_all(text.as_bytes()))
}

/// Writes a file beside the one of that name, and puts it in its place. What is no file (a pipe, a link, a device), or stands where
/// no other can be made, is written itself.
fn replace(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let old = path.symlink_metadata().ok();
    let beside = old.as_ref().is_none_or(std::fs::Metadata::is_file).then(|| beside(path)).flatten();
    if old.is_some() && beside.is_some() {
        // Whoever may not write it may not replace it either.
        OpenOptions::new().write(true).open(path).map_err(|error| cannot_open(path, error))?;
    }
    let made = beside
        .and_then(|name| Some((OpenOptions::new().write(true).create_new(true).open(&name).ok()?, name)));
    let Some((mut file, name)) = made else {
        let mut file = File::create(path).map_err(|error| cannot_open(path, error))?;
        return write(&mut file).with_context(failed);
    };
    let kept = old.map_or(Ok(()), |old| file.set_permissions(old.permissions()));
    let written = kept.and_then(|()| write(&mut file)).and_then(|()| std::fs::rename(&name, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&name);
    }
    written.with_context(failed)
}

/// The name under which a file is written before it is whole.
fn beside(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}", std::process::id()));
    Some(path.with_file_name(name))
}

/// Looks whether a file can be written, before the work whose outcome goes there. Leaves everything as it is.
pub(crate) fn check_writable(path: &Path) -> Result<()> {
    let is_new = path.symlink_metadata().is_err();
    if path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        // A reader of a pipe would take it for the end.
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| cannot_open(path, error))?;
    if is_new {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Prints a document that names its schema itself as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// A value with the name of its schema before its fields; see docs/json.md.
#[derive(Serialize)]
pub(crate) struct Document<T> {
    schema: &'static str,
    #[serde(flatten)]
    content: T,
}

impl<T: Serialize> Document<T> {
    /// The value as a document.
    pub(crate) const fn new(schema: &'static str, content: T) -> Self {
        Self { schema, content }
    }

    /// As JSON, with a line end.
    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    /// Prints it as JSON.
    pub(crate) fn print(&self) -> Result<()> {
        print(&self.to_json()?)
    }
}

/// A table in columns: the first to the left, the others to the right.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// All columns to the left.
    is_text: bool,
}

impl Table {
    /// A table of numbers with these headings.
    pub(crate) fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Self {
        let mut table = Self::default();
        table.row(headings);
        table
    }

    /// A table of words with these headings.
    pub(crate) fn of_text<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Self {
        Self { is_text: true, ..Self::new(headings) }
    }

    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (cell, width) in row.iter().zip(&widths) {
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) = if self.is_text || line.len() == 1 {
                    ("", padding.as_str())
                } else {
                    (padding.as_str(), "")
                };
                let _ = write!(line, " {before}{cell}{after} ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_whole_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        write_file(&path, "old").unwrap();
        let full = |file: &mut File| {
            file.write_all(b"ne")?;
            Err(std::io::ErrorKind::StorageFull.into())
        };
        let error = replace(&path, full).unwrap_err();
        assert!(format!("{error:#}").contains("report.html: "), "{error:#}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        write_file(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_file(&link, "by the link").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "by the link");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["bs", "64K", "128K"]);
        table.row(["4k", "1.25", "300"]);
        assert_eq!(table.to_string(), "  bs   64K  128K\n  4k  1.25   300\n");
    }
}
