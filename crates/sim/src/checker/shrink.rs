//! Cuts scenarios that fail down to what is needed to fail.

use super::run::run;
use super::scenario::{Scenario, Step};

/// Cuts a failing scenario down: fewer steps, a plainer array, as long as it still fails in the same way. `tries` bounds the runs.
pub fn shrink(scenario: &Scenario, tries: u32) -> Scenario {
    let mut best = scenario.clone();
    let mut left = tries;
    let kind = |scenario: &Scenario| run(scenario, false).failure.as_ref().map(std::mem::discriminant);
    let wanted = kind(&best);
    let mut fails = |candidate: &Scenario| {
        left = left.saturating_sub(1);
        left > 0 && wanted.is_some() && kind(candidate) == wanted
    };
    let mut width = best.steps.len().div_ceil(2);
    while width > 0 {
        let mut at = 0;
        while at < best.steps.len() {
            let mut fewer = best.clone();
            fewer.steps.drain(at..(at + width).min(best.steps.len()));
            if fails(&fewer) {
                best = fewer;
            } else {
                at += width;
            }
        }
        width = if width == 1 { 0 } else { width.div_ceil(2) };
    }
    for plainer in PLAINER {
        let mut candidate = best.clone();
        plainer(&mut candidate);
        if candidate != best && candidate.array.geometry().is_ok() && fails(&candidate) {
            best = candidate;
        }
    }
    for seed in 0..64 {
        let mut calmer = Scenario { seed, ..best.clone() };
        for step in &mut calmer.steps {
            if let Step::Request { answers, .. } = step {
                *answers = if seed % 2 == 0 { 0 } else { *answers / 2 };
            }
        }
        if fails(&calmer) {
            best = calmer;
            break;
        }
    }
    best
}

/// Ways to make an array plainer.
const PLAINER: [fn(&mut Scenario); 13] = [
    |s| s.array.members = s.array.level.members_min(),
    |s| s.array.members = s.array.members.min(s.array.level.members_min() + 1),
    |s| s.array.chunk_sectors = s.array.chunk_sectors.min(8),
    |s| s.array.data_sectors = s.array.chunk_sectors.max(8) * 2,
    |s| s.array.spares = 0,
    |s| s.array.spares = s.array.spares.min(1),
    |s| s.array.metadata = stripewise_format::placement::Metadata::DEFAULT,
    |s| s.array.sync = stripewise_engine::array::sync::SyncConfig::DEFAULT,
    |s| s.array.discard = false,
    |s| s.array.bad_block_log = false,
    |s| s.array.ppl_sectors = None,
    |s| s.array.rotational = false,
    |s| s.array.policy = stripewise_engine::policy::Policy::stripewise(),
];
