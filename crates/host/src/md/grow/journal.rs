//! An array with a write journal that is to go on without it (md's `consistency_policy` set to `resync`).

use std::path::{Path, PathBuf};

use super::super::paths::is_same;
use super::{Assembled, GrowProblem, Grown, Outcome, Policy, members};
use crate::members::Access;

/// Brings the log to the members, and has them say that there is no journal.
pub(super) fn leave(mut assembled: Assembled, destroy: &[PathBuf]) -> Result<Grown, GrowProblem> {
    let is_named = |path: &Path| destroy.iter().any(|named| is_same(named, path));
    let access = |path: &Path| if is_named(path) { Access::Destroy } else { Access::ReadWrite };
    assembled.follow_logs(access).map_err(GrowProblem::Assemble)?;
    assembled.leave_journal(access).map_err(GrowProblem::Assemble)?;
    let members = members(&assembled.assembly).len();
    Ok(Grown { members, assembled, outcome: Outcome::Policy(Policy::Resync) })
}
