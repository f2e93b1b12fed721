//! What is wrong with a plan, and where.

use std::fmt;
use std::ops::Range;

/// A plan that cannot be read or run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The file, or the name of a built-in plan.
    pub file: String,
    /// Line from 1, where the fault has one.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for PlanError {}

/// A plan's text with its name, to say where a fault lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// The parser's error with the key in whose line it lies.
    pub(super) fn syntax(self, error: &toml::de::Error) -> PlanError {
        let message = error.message().trim().replace('\n', "; ");
        // What is not there is in no line: that of its table is told, if it has one.
        if message.starts_with("missing field") {
            let at = |start| self.text.get(start..).is_some_and(|text| text.starts_with('['));
            let table = error.span().filter(|span| span.start > 0 && at(span.start));
            return self.error(table, message);
        }
        let line = error.span().and_then(|span| {
            let before = self.text.get(..span.start)?;
            self.text[before.rfind('\n').map_or(0, |at| at + 1)..].lines().next()
        });
        let key = line.and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
        match key.filter(|key| !key.is_empty() && !message.contains(key)) {
            Some(key) => self.error(error.span(), format!("{key}: {message}")),
            None => self.error(error.span(), message),
        }
    }

    /// The error at a place in the text.
    pub(super) fn error(self, span: Option<Range<usize>>, message: impl Into<String>) -> PlanError {
        let line = span.map(|span| {
            let before = span.start.min(self.text.len());
            self.text.get(..before).map_or(0, |text| text.matches('\n').count()) + 1
        });
        PlanError { file: self.file.to_owned(), line, message: message.into() }
    }
}
