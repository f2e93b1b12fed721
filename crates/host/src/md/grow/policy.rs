//! What makes a RAID-5 whole after a crash: a resync, or partial parity logs.

use stripewise_engine::assembly::Consistency;
use stripewise_format::grow::{Update, check_ppl, with_ppl, without_bitmap};

use super::{
    Assembled, Decided, Decision, GrowProblem, Outcome, Policy, has_journal, members, require_quiet,
};

pub(super) fn decide(assembled: &Assembled, policy: Policy, update: Update) -> Result<Decision, GrowProblem> {
    let (assembly, candidates) = (&assembled.assembly, &assembled.found.candidates);
    match (policy, assembly.consistency) {
        (Policy::Resync, Consistency::Resync) | (Policy::Ppl, Consistency::Ppl) => {
            return Ok(Decision::Already);
        }
        (Policy::Resync, Consistency::None) => {
            return Err(GrowProblem::refused(
                "an array without redundancy has no consistency policy: nothing is resynced",
            ));
        }
        // Decided before.
        (_, Consistency::Journal) => return Err(has_journal()),
        (Policy::Resync, Consistency::Bitmap | Consistency::Ppl) => {}
        // What can never be comes before what is in the way.
        (Policy::Ppl, Consistency::None | Consistency::Resync | Consistency::Bitmap) => {
            check_ppl(&candidates[assembly.freshest].superblock).map_err(GrowProblem::Bitmap)?;
        }
    }
    if assembly.consistency == Consistency::Bitmap {
        return Err(GrowProblem::refused("the array has a bitmap; take it away first, with --bitmap none"));
    }
    require_quiet(assembly, "the consistency policy")?;
    let changed = |index: usize| {
        let member = &candidates[index];
        match policy {
            Policy::Resync => Ok(without_bitmap(&member.superblock, member.at_sector, update)),
            Policy::Ppl => with_ppl(&member.superblock, member.at_sector, update)
                .map_err(|error| GrowProblem::Member(assembled.found.paths[index].clone(), error)),
        }
    };
    let changes = members(assembly).into_iter().map(changed).collect::<Result<_, _>>()?;
    Ok(Decision::Change(Decided { outcome: Outcome::Policy(policy), changes }))
}
