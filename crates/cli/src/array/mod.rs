//! Commands on md arrays, in mdadm's words.

pub(crate) mod assemble;
mod bytes;
pub(crate) mod create;
mod describe;
pub(crate) mod detail;
pub(crate) mod examine;
mod flags;
mod fresh;
pub(crate) mod grow;
mod journaled;
mod layers;
pub(crate) mod manage;
mod name;
mod program;
mod select;
pub(crate) mod serve;
pub(crate) mod signals;
pub(crate) mod size;
mod stream;
pub(crate) mod transfer;
mod voice;
mod watch;
pub(crate) mod zero;

use stripewise_host::{HostError, MemberProblem};

use crate::exit::Impossible;

pub(crate) use size::Size;

/// The error of a member as the command's: the caller's to mend (exit code 2), or the machine's (1).
pub(crate) fn host_error(error: HostError) -> anyhow::Error {
    let is_machine = !matches!(&error, HostError::Member { problem, .. } if is_callers(problem));
    if is_machine { error.into() } else { Impossible(error.to_string()).into() }
}

const fn is_callers(problem: &MemberProblem) -> bool {
    !matches!(problem, MemberProblem::System { .. } | MemberProblem::NoRoom { .. })
}

/// This machine's name, as mdadm puts it before an array's.
pub(crate) fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim_end();
    (!name.is_empty() && name != "(none)").then(|| name.to_owned())
}
