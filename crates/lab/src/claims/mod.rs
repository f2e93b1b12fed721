//! What was published of a study, and whether it is found here as well.
//!
//! A file of claims (`studies/claims/NAME.toml`) lists what the published study says, each with a [`Test`] that is
//! stated in data: which cells, which figure, which bounds. Claims read figures; they set none. No parameter of a
//! model or plan exists for a claim's sake, so a claim that does not hold is told as such, with the likely reason.

mod cells;
mod compare;
mod file;
mod layout;
mod test;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use cells::Where;
pub use file::{CLAIMS, Claim, ClaimFile, Claims};
pub use test::Test;

use crate::results::StudyResults;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Found here as well.
    Reproduced,
    /// Not found here.
    NotReproduced,
    /// Cannot be told: the cells are missing, or nothing modelled decides it.
    NotCheckable,
}

impl Verdict {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::NotReproduced => "not reproduced",
            Self::NotCheckable => "not checkable",
        }
    }
}

/// What a verdict rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Figures of cells that were run.
    #[default]
    Run,
    /// Which cells the plan has.
    Plan,
    /// A parameter of a model, which has the published value as its source.
    Model,
    /// Arithmetic on published figures, or on addresses.
    Arithmetic,
}

impl Basis {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Plan => "plan",
            Self::Model => "model",
            Self::Arithmetic => "arithmetic",
        }
    }
}

/// A claim beside what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimResult {
    /// Its name.
    pub id: String,
    /// What was published.
    pub published: String,
    /// How it is checked, with the bounds.
    pub check: String,
    /// What was found.
    pub here: String,
    /// The verdict.
    pub verdict: Verdict,
    /// What the verdict rests on.
    #[serde(default)]
    pub basis: Basis,
    /// Why it likely does not hold, or cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Judges every claim made of a study by its cells; nothing where no claims are known of it, or where the figures are
/// not of the published rig.
pub fn judge(results: &StudyResults, plan: &str) -> Vec<ClaimResult> {
    let preset = crate::plan::PRESETS.iter().find(|p| p.name == results.study && p.text == plan);
    let Some(preset) = preset.filter(|_| results.simulated) else { return Vec::new() };
    match Claims::of(preset.name) {
        Ok(Some(claims)) => claims.claim.iter().map(|claim| claim.judge(results)).collect(),
        Ok(None) | Err(_) => Vec::new(),
    }
}

/// How many claims have which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Found by runs as well.
    pub reproduced: usize,
    /// Agree without a run: by plan, model or arithmetic.
    pub agreeing: usize,
    /// Not found here.
    pub not_reproduced: usize,
    /// Cannot be told.
    pub not_checkable: usize,
}

impl Counts {
    /// Counts claims.
    pub fn of<'a>(claims: impl IntoIterator<Item = &'a ClaimResult>) -> Self {
        let mut counts = Self::default();
        for claim in claims {
            *match (claim.verdict, claim.basis) {
                (Verdict::Reproduced, Basis::Run) => &mut counts.reproduced,
                (Verdict::Reproduced, _) => &mut counts.agreeing,
                (Verdict::NotReproduced, _) => &mut counts.not_reproduced,
                (Verdict::NotCheckable, _) => &mut counts.not_checkable,
            } += 1;
        }
        counts
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { reproduced, agreeing, not_reproduced, not_checkable } = self;
        let all = reproduced + agreeing + not_reproduced + not_checkable;
        write!(
            f,
            "{all} claims: {reproduced} reproduced by runs, {agreeing} agree by plan, model or arithmetic alone, \
             {not_reproduced} not reproduced, {not_checkable} not checkable"
        )
    }
}
