//! Files of claims.

use serde::Deserialize;

use super::test::{Found, Test};
use super::{ClaimResult, Verdict};
use crate::plan::PlanError;
use crate::results::StudyResults;

/// The claims of a built-in study.
#[derive(Clone, Copy, Debug)]
pub struct ClaimFile {
    /// The study.
    pub study: &'static str,
    /// The TOML.
    pub text: &'static str,
}

macro_rules! claim_files {
    ($($name:literal),* $(,)?) => {
        &[$(ClaimFile {
            study: $name,
            text: include_str!(concat!("../../../../studies/claims/", $name, ".toml")),
        }),*]
    };
}

/// Every built-in file.
pub static CLAIMS: &[ClaimFile] =
    claim_files!["cache-size", "chunk-size", "monkey-house", "stride", "ssd-cached"];

/// A file of claims.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Where they were published, for people.
    pub source: String,
    /// The claims.
    pub claim: Vec<Claim>,
}

/// A claim.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name.
    pub id: String,
    /// What was published.
    pub published: String,
    /// How it is checked, in words.
    pub check: String,
    /// The check.
    pub test: Test,
    /// The likely reason where it does not hold.
    #[serde(default)]
    pub otherwise: Option<String>,
}

impl Claims {
    /// The claims of a built-in study, if there are any.
    pub fn of(study: &str) -> Result<Option<Self>, PlanError> {
        let Some(file) = CLAIMS.iter().find(|file| file.study == study) else { return Ok(None) };
        Self::parse(&format!("claims/{study}.toml (built in)"), file.text).map(Some)
    }

    /// Reads claims from TOML; `file` is named in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, PlanError> {
        let claims: Self = toml::from_str(text).map_err(|e| PlanError {
            file: file.to_owned(),
            line: e.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1),
            message: e.message().trim().replace('\n', "; "),
        })?;
        for (index, claim) in claims.claim.iter().enumerate() {
            if claims.claim[..index].iter().any(|c| c.id == claim.id) {
                let message = format!("two claims are named '{}'; a name is used once", claim.id);
                return Err(PlanError { file: file.to_owned(), line: None, message });
            }
        }
        Ok(claims)
    }
}

impl Claim {
    /// Judges it by a study's cells.
    pub fn judge(&self, results: &StudyResults) -> ClaimResult {
        let (verdict, here, reason) = match self.test.run(&results.cells) {
            _ if results.quick && matches!(self.test, Test::Count { .. }) => {
                let reason = "the shortened plan has fewer cells than the published matrix".to_owned();
                (Verdict::NotCheckable, "-".to_owned(), Some(reason))
            }
            Found::Holds(here) => (Verdict::Reproduced, here, None),
            Found::Not(here) => (Verdict::NotReproduced, here, self.otherwise.clone()),
            Found::Unknown(reason) => (Verdict::NotCheckable, "-".to_owned(), Some(reason)),
        };
        ClaimResult {
            id: self.id.clone(),
            published: self.published.clone(),
            check: self.check.clone(),
            here,
            verdict,
            basis: self.test.basis(),
            reason,
        }
    }
}
