//! How much verdicts lean on parameters: each parameter of the models is moved up and down, and the claims judged anew.
//!
//! A claim whose verdict flips when an assumed parameter moves by a fifth agrees, or disagrees, by luck.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use serde::Serialize;

use crate::claims::{ClaimResult, Claims, Test, Verdict};
use crate::plan::{Choices, Plan};
use crate::recommend::Weights;
use crate::results::{Provenance, StudyResults};
use crate::store::Store;
use crate::study::{Study, results};
use crate::targets::{Change, changed};

/// A claim whose verdict changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flip {
    /// The claim.
    pub id: String,
    /// Its verdict with the parameter as it is.
    pub before: Verdict,
    /// Its verdict with the parameter moved.
    pub after: Verdict,
    /// What was found then.
    pub here: String,
}

/// What a moved parameter changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    /// The model.
    pub model: String,
    /// The parameter.
    pub parameter: String,
    /// Whether it is quoted, measured, derived or assumed.
    pub provenance: String,
    /// What it was multiplied by.
    pub factor: f64,
    /// Verdicts that changed.
    pub flips: Vec<Flip>,
    /// Why it cannot be moved so, if it cannot.
    pub error: Option<String>,
}

/// Moves those parameters of a plan's models that are `wanted` by `step` (0.2 is a fifth) either way and tells of each;
/// the results are kept in `folder`, so that a run that was ended goes on from there, cells whose rig does not have the model
/// are run once, and cells that no claim looks at never.
pub fn run(
    plan: &Plan,
    choices: Choices,
    step: f64,
    wanted: impl Fn(&Provenance) -> bool,
    folder: &Path,
    cancel: &Arc<AtomicBool>,
    mut told: impl FnMut(usize, usize, &Moved),
) -> Result<Vec<Moved>> {
    let mut store = Store::open(folder)?;
    let claims = Claims::of(plan.name())?;
    let tests: Vec<&Test> = claims.iter().flat_map(|c| &c.claim).map(|claim| &claim.test).collect();
    let study = Study::simulated(plan.clone(), choices)?;
    let before = judged(study, &tests, &mut store, cancel)?;
    let parameters: Vec<&Provenance> = before.environment.provenance.iter().filter(|p| wanted(p)).collect();
    let total = parameters.len() * 2;
    let mut all = Vec::with_capacity(total);
    for provenance in parameters {
        for factor in [1.0 - step, 1.0 + step] {
            if cancel.load(Ordering::Relaxed) {
                return Ok(all);
            }
            let Provenance { model, parameter, .. } = provenance.clone();
            let target = changed(Change { model, parameter, factor });
            let outcome = Study::with_target(plan.clone(), choices, target)
                .and_then(|study| judged(study, &tests, &mut store, cancel));
            // What was cut short tells nothing of this parameter.
            if cancel.load(Ordering::Relaxed) {
                return Ok(all);
            }
            let (flips, error) = match outcome {
                Ok(after) => (flips(&before.claims, &after.claims), None),
                Err(error) => (Vec::new(), Some(format!("{error:#}"))),
            };
            let Provenance { model, parameter, kind, .. } = provenance.clone();
            all.push(Moved { model, parameter, provenance: kind, factor, flips, error });
            if let Some(last) = all.last() {
                told(all.len(), total, last);
            }
        }
    }
    Ok(all)
}

/// Judges the claims by the cells that any of them looks at.
fn judged(
    mut study: Study,
    tests: &[&Test],
    store: &mut Store,
    cancel: &Arc<AtomicBool>,
) -> Result<StudyResults> {
    study.keep(|cell| tests.iter().any(|test| test.looks_at(&cell.factors, cell.target())));
    let outcome = study.run(store, cancel, |_| ())?;
    results(store, outcome.run, &Weights::default())
}

fn flips(before: &[ClaimResult], after: &[ClaimResult]) -> Vec<Flip> {
    let pairs = before.iter().zip(after).filter(|(b, a)| b.verdict != a.verdict);
    let flip = |(b, a): (&ClaimResult, &ClaimResult)| Flip {
        id: b.id.clone(),
        before: b.verdict,
        after: a.verdict,
        here: a.here.clone(),
    };
    pairs.map(flip).collect()
}
