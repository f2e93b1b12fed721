//! How the command ends.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

use stripewise_host::md::assemble::{AssembleError, Skipped};
use stripewise_host::md::overlay::OverlayProblem;
use stripewise_host::{HostError, ListenProblem, MemberProblem, is_of_path};
use stripewise_lab::calibrate::CalibrateError;
use stripewise_lab::plan::PlanError;
use stripewise_lab::store::StoreError;
use stripewise_lab::targets::NoRoom;
use stripewise_lab::trace::{Problem, TraceError};
use stripewise_sim::models::ModelError;

use crate::output::ReaderLeft;

/// An exit code; see the table in the crate's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    Impossible,
    CellsFailed,
    Mismatches,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Impossible => 2,
            Exit::CellsFailed => 3,
            Exit::Mismatches => 4,
            Exit::Interrupted => 130,
        })
    }
}

/// Something that was asked for is not possible: the arguments are at fault, not the machine.
#[derive(Debug)]
pub(crate) struct Impossible(pub(crate) String);

impl std::fmt::Display for Impossible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Impossible {}

/// A file that was named could not be made or opened.
pub(crate) fn cannot_open(path: &Path, error: io::Error) -> anyhow::Error {
    if !is_of_path(&error) {
        return anyhow::Error::new(error).context(path.display().to_string());
    }
    let advice = match error.kind() {
        ErrorKind::IsADirectory => "name a file",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "name a file that you may use",
        _ => "correct the path",
    };
    Impossible(format!("{}: {error}; {advice}", path.display())).into()
}

/// Says what went wrong on standard error. A reader of a pipe who leaves is nobody's fault.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    if error.is::<ReaderLeft>() {
        return Exit::Done;
    }
    say!("stripewise: {error:#}");
    if let Some(AssembleError::Skipped(_, skipped)) = error.downcast_ref() {
        for Skipped { path, why } in skipped {
            say!("stripewise: {}: is not used: {why}", path.display());
        }
    }
    if is_impossible(error) { Exit::Impossible } else { Exit::Failed }
}

/// Whether an error is the caller's to mend, not the machine's.
pub(crate) fn is_impossible(error: &anyhow::Error) -> bool {
    error.chain().any(|e| {
        e.is::<PlanError>()
            || e.is::<ModelError>()
            || e.is::<Impossible>()
            || e.is::<NoRoom>()
            || matches!(
                e.downcast_ref(),
                Some(
                    CalibrateError::TooSmall { .. }
                        | CalibrateError::Open { .. }
                        | CalibrateError::Holes { .. }
                )
            )
            || e.downcast_ref::<TraceError>().is_some_and(|e| !matches!(e.problem, Problem::System(_)))
            || e.downcast_ref::<StoreError>().is_some_and(is_of_folder)
            || e.downcast_ref::<HostError>().is_some_and(is_asked_wrong)
            || e.downcast_ref::<AssembleError>().is_some_and(|e| match e {
                AssembleError::Host(error) => is_asked_wrong(error),
                _ => true,
            })
    })
}

/// Whether another results folder is to be named.
fn is_of_folder(error: &StoreError) -> bool {
    match error {
        StoreError::Folder(_, error) | StoreError::Unreachable(_, error) => is_of_path(error),
        StoreError::Absent(_)
        | StoreError::Newer(..)
        | StoreError::ReadOnly(_)
        | StoreError::Unfinished(_)
        | StoreError::Running(_)
        | StoreError::NoRun(..) => true,
        StoreError::Damaged(..) | StoreError::Busy(_) | StoreError::Database(..) => false,
    }
}

/// Whether the arguments are at fault, not the storage or the machine.
fn is_asked_wrong(error: &HostError) -> bool {
    match error {
        HostError::Io(_)
        | HostError::IoUring { .. }
        | HostError::Wake { .. }
        | HostError::Reopen { .. }
        | HostError::Panicked => false,
        HostError::Member { problem, .. } => !matches!(problem, MemberProblem::System { .. }),
        HostError::Overlay { problem, .. } => !matches!(problem, OverlayProblem::System { .. }),
        HostError::Listen { problem, .. } => !matches!(problem, ListenProblem::System { .. }),
        _ => true,
    }
}
