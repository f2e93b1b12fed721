//! What can be wrong with a model file, said so that it can be put right.

use super::{BUILT_IN, ModelKind};
use std::fmt;

/// An error in a model file: where, and what.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelError {
    /// The file.
    pub file: String,
    /// Line in the file, where known.
    pub line: Option<usize>,
    /// The parameter, where there is one.
    pub parameter: Option<String>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a model file.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// The file cannot be read; the system's words.
    Unreadable(String),
    /// No built-in model has this name.
    NoSuchModel,
    /// Not TOML, or not of the form of a model file; the parser's words.
    Syntax(String),
    /// The `model` key names no kind of model.
    UnknownModelKind(String),
    /// A `[rig]` in a model that is no drive; its kind.
    RigOfNoDrive(&'static str),
    /// A model of another kind was needed.
    WrongKind {
        /// What the file is.
        found: &'static str,
        /// What was needed.
        wanted: &'static str,
    },
    /// A parameter this kind does not have.
    UnknownParameter {
        /// The parameters there are.
        known: Vec<&'static str>,
    },
    /// A parameter is missing.
    MissingParameter {
        /// What it means.
        about: &'static str,
        /// Its unit.
        unit: &'static str,
    },
    /// The unit is not the one the simulator counts in.
    WrongUnit {
        /// The unit in the file.
        found: String,
        /// The unit that would be right.
        wanted: &'static str,
    },
    /// The source is empty.
    NoSource,
    /// A list where one number belongs, or an empty list.
    WrongShape {
        /// What would be right.
        wanted: &'static str,
    },
    /// The value is outside what is physically sensible, or not whole.
    OutOfBounds {
        /// The value in the file.
        found: f64,
        /// Least sensible value.
        min: f64,
        /// Greatest sensible value.
        max: f64,
        /// Whether it must be whole.
        whole: bool,
    },
    /// Two parameters contradict each other.
    Contradiction(String),
}

impl ModelError {
    pub(crate) fn whole_file(file: &str, problem: Problem) -> Self {
        Self { file: file.to_owned(), line: None, parameter: None, problem }
    }

    pub(crate) fn at(file: &str, line: Option<usize>, parameter: &str, problem: Problem) -> Self {
        Self { file: file.to_owned(), line, parameter: Some(parameter.to_owned()), problem }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(parameter) = &self.parameter {
            write!(f, ": {parameter}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for ModelError {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::NoSuchModel => {
                let names: Vec<_> = BUILT_IN.iter().map(|b| b.name).collect();
                write!(f, "no such model; there are {} (or give the path of a .toml file)", names.join(", "))
            }
            Self::Syntax(why) => write!(f, "{}", why.trim_end()),
            Self::UnknownModelKind(found) => {
                let names: Vec<_> = ModelKind::ALL.iter().map(|k| k.name()).collect();
                write!(f, "model = \"{found}\" is not a kind of model; use one of {}", names.join(", "))
            }
            Self::RigOfNoDrive(kind) => {
                write!(
                    f,
                    "[rig] says what a drive is used with, but this is a model of kind \"{kind}\"; leave it out"
                )
            }
            Self::WrongKind { found, wanted } => {
                write!(f, "this is a model of kind \"{found}\"; one of kind \"{wanted}\" is needed here")
            }
            Self::UnknownParameter { known } => {
                write!(f, "no such parameter; this kind of model has {}", known.join(", "))
            }
            Self::MissingParameter { about, unit } => write!(f, "missing: {about}, in {unit}"),
            Self::WrongUnit { found, wanted } => {
                write!(f, "the unit is \"{found}\"; give the value in \"{wanted}\"")
            }
            Self::NoSource => f.write_str("the source is empty; say where the value comes from"),
            Self::WrongShape { wanted } => write!(f, "the value must be {wanted}"),
            Self::OutOfBounds { found, min, max, whole } => {
                let what = if *whole { "a whole number" } else { "a number" };
                // Hundreds of digits tell less than the exponent.
                if found.abs() < 1e15 { write!(f, "{found}") } else { write!(f, "{found:e}") }?;
                write!(f, " is not possible; give {what} from {min} to {max}")
            }
            Self::Contradiction(what) => f.write_str(what),
        }
    }
}
