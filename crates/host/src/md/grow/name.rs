//! Gives an array another name.

use stripewise_format::grow::{Changed, Update, with_name};
use stripewise_format::superblock::Superblock;

use super::{Assembled, Decided, Decision, GrowProblem, Outcome, members, require_quiet};

pub(super) fn decide(assembled: &Assembled, name: [u8; 32], update: Update) -> Result<Decision, GrowProblem> {
    let (assembly, candidates) = (&assembled.assembly, &assembled.found.candidates);
    let members = members(assembly);
    let has_it = |index: &usize| match &candidates[*index].superblock {
        Superblock::V1(superblock) => Ok(superblock.set_name == name),
        Superblock::V0(_) => Err(GrowProblem::refused("a superblock of version 0.90 has no name")),
    };
    if members.iter().map(has_it).collect::<Result<Vec<_>, _>>()?.into_iter().all(|has_it| has_it) {
        return Ok(Decision::Already);
    }
    require_quiet(assembly, "the name")?;
    let changed = |index: usize| -> Changed {
        let member = &candidates[index];
        with_name(&member.superblock, member.at_sector, name, update)
    };
    Ok(Decision::Change(Decided {
        outcome: Outcome::Name,
        changes: members.into_iter().map(changed).collect(),
    }))
}
