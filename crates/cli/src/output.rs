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

mod file;

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use serde::Serialize;

pub(crate) use file::{check_writable, is_stdout, write_file};

use crate::exit::Exit;

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
    fn columns_line_up() {
        let mut table = Table::new(["bs", "64K", "128K"]);
        table.row(["4k", "1.25", "300"]);
        assert_eq!(table.to_string(), "  bs   64K  128K\n  4k  1.25   300\n");
    }
}
