//! A drive model fitted to what was found.
//!
//! A first guess by formula is put right in rounds: the same probes run on the guessed model in virtual time, and what
//! differs is corrected. So what the machine itself costs, which its CPU model has, is not taken for the drive's.

use stripewise_sim::models::Model;

use super::flash::Flash;
use super::hdd::Mechanical;
use super::{CalibrateError, Circumstances, Effort, Findings, Modelled};

/// Rounds of correction.
const ROUNDS: usize = 8;
/// Of them the last, among which the best counts: before, what is seen exactly has not settled.
const SETTLED: usize = 3;
/// The seed of the simulated probes.
const SEED: u64 = 7;

/// A probe of the device beside the same on the fitted model.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Compared {
    /// The probe.
    pub probe: String,
    /// Unit of both.
    pub unit: &'static str,
    /// On the device.
    pub measured: f64,
    /// On the model.
    pub model: f64,
    /// (model − measured) / measured.
    pub error: f64,
}

/// A fitted model and how well it fits.
#[derive(Clone, Debug)]
pub struct FittedDrive {
    /// The model.
    pub model: Model,
    /// Every probe.
    pub compared: Vec<Compared>,
}

impl FittedDrive {
    /// The median of the errors without their signs.
    pub fn error_median(&self) -> f64 {
        let mut errors: Vec<f64> = self.compared.iter().map(|c| c.error.abs()).collect();
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied().unwrap_or(0.0)
    }

    /// The probe that fits worst.
    pub fn worst(&self) -> Option<&Compared> {
        self.compared.iter().max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()))
    }
}

/// What is fitted of a kind of drive.
pub(super) trait Guess {
    /// The model of the guess.
    fn model(&self, circumstances: &Circumstances) -> Result<Model, CalibrateError>;
    /// Corrects the guess by what the probes found of the drive and of the guess's model.
    fn correct(&mut self, drive: &Findings, model: &Findings);
}

/// Fits a model to what was found of a drive; what is not seen by reading is that of the model `like`, which is one of an
/// HDD or of an SSD.
///
/// # Errors
/// The findings make no model.
pub fn fit(
    found: &Findings,
    like: &Model,
    cpu: &Model,
    effort: Effort,
    circumstances: &Circumstances,
) -> Result<FittedDrive, CalibrateError> {
    if found.is_mechanical() {
        refine(Mechanical::first(found, like), found, cpu, effort, circumstances)
    } else {
        refine(Flash::first(found, like), found, cpu, effort, circumstances)
    }
}

fn refine(
    mut guess: impl Guess,
    found: &Findings,
    cpu: &Model,
    effort: Effort,
    circumstances: &Circumstances,
) -> Result<FittedDrive, CalibrateError> {
    let mut best: Option<FittedDrive> = None;
    for round in 0..ROUNDS {
        let model = guess.model(circumstances)?;
        let of_model = Findings::of(&mut Modelled::new(&model, cpu, SEED)?, effort)?;
        let fitted = FittedDrive { model, compared: compare(found, &of_model) };
        let sum = |fitted: &FittedDrive| fitted.compared.iter().map(|c| c.error.abs()).sum::<f64>();
        let is_settled = round + SETTLED >= ROUNDS;
        if is_settled && best.as_ref().is_none_or(|best| sum(&fitted) < sum(best)) {
            best = Some(fitted);
        }
        guess.correct(found, &of_model);
    }
    Ok(best.expect("there are settled rounds"))
}

fn compare(drive: &Findings, model: &Findings) -> Vec<Compared> {
    let rows = drive.rows().into_iter().zip(model.rows());
    rows.map(|((probe, measured, unit), (_, model, _))| {
        let error = (model - measured) / measured.max(1e-9);
        Compared { probe, unit, measured, model, error }
    })
    .collect()
}
