//! From a plan to its cells.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;

use super::{Factors, Overrides, Parameter, Parameters, Plan, PlanError, Scalar, Section, Table, find};
use crate::cell::Cell;

/// The most cells a study may have, replicates included.
pub const CELLS_MAX: usize = 1_000_000;

/// Which variant of a plan is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// The shortened plan.
    pub quick: bool,
    /// Real storage in real time.
    pub real: bool,
    /// Instead of the plan's seed.
    pub seed: Option<u64>,
    /// Instead of the plan's number of replicates.
    pub replicates: Option<u32>,
}

/// A plan with every override applied and every value read.
#[derive(Clone, Debug)]
pub struct ResolvedPlan {
    /// The seed all cells' seeds derive from.
    pub seed: u64,
    /// Runs of each combination.
    pub replicates: u32,
    /// The factor whose best value is sought.
    pub subject: &'static str,
    /// Its values as printed, in the plan's order.
    pub subject_values: Vec<String>,
    base: Parameters,
    factors: Vec<Factor>,
}

#[derive(Clone, Debug)]
struct Factor {
    parameter: &'static Parameter,
    values: Vec<String>,
}

impl std::fmt::Debug for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A plan's cells.
#[derive(Clone, Debug)]
pub struct Expansion {
    /// The cells: all combinations of one replicate, then those of the next.
    pub cells: Vec<Cell>,
    /// Factors with more than one value that no cell uses, by name.
    pub unused: Vec<&'static str>,
}

impl Plan {
    /// Applies a variant's overrides and reads every value.
    pub fn resolve(&self, choices: Choices) -> Result<ResolvedPlan, PlanError> {
        let document = &self.document;
        let mut base = Parameters::default();
        for (section, table) in
            [(Section::Rig, &document.rig), (Section::Array, &document.array), (Section::Job, &document.job)]
        {
            self.fix(&mut base, section, table)?;
        }
        let mut lists = document.factors.clone();
        let mut replicates = document.replicates.clone();
        let real_overrides = Overrides {
            replicates: document.real.replicates.clone(),
            runtime: document.real.runtime.clone(),
            ramp_time: document.real.ramp_time.clone(),
            policy: document.real.policy.clone(),
            factors: document.real.factors.clone(),
        };
        let variants = [
            (choices.quick, &document.quick),
            (choices.real, &real_overrides),
            (choices.quick && choices.real, &document.real.quick),
        ];
        for (_, overrides) in variants.into_iter().filter(|(chosen, _)| *chosen) {
            self.override_with(&mut base, &mut lists, &mut replicates, overrides)?;
        }
        let replicates = self.replicates(&replicates, choices.replicates)?;
        let factors = self.factors(&base, &lists)?;
        let subject = document.subject.get_ref();
        let Some(factor) = factors.iter().find(|f| f.parameter.name == subject && subject != "target") else {
            let known: Vec<&str> = factors.iter().map(|f| f.parameter.name).collect();
            let message = format!("subject '{subject}' is not among the factors: {}", known.join(", "));
            return Err(self.error(Some(document.subject.span()), message));
        };
        Ok(ResolvedPlan {
            seed: choices.seed.unwrap_or(document.seed),
            replicates,
            subject: factor.parameter.name,
            subject_values: factor.values.clone(),
            base,
            factors,
        })
    }

    fn error(&self, span: Option<Range<usize>>, message: impl Into<String>) -> PlanError {
        self.source_text().error(span, message)
    }

    fn fix(&self, base: &mut Parameters, section: Section, table: &Table) -> Result<(), PlanError> {
        for (name, value) in table {
            let parameter = find(name).ok().filter(|p| p.section == section).ok_or_else(|| {
                let known: Vec<&str> =
                    super::PARAMETERS.iter().filter(|p| p.section == section).map(|p| p.name).collect();
                let section = format!("{section:?}").to_lowercase();
                let message = format!("unknown key '{name}' in [{section}]; known are {}", known.join(", "));
                self.error(Some(value.span()), message)
            })?;
            self.set(base, parameter, value)?;
        }
        Ok(())
    }

    fn set(
        &self,
        base: &mut Parameters,
        parameter: &Parameter,
        value: &Spanned<Scalar>,
    ) -> Result<(), PlanError> {
        (parameter.set)(base, &value.get_ref().0)
            .map_err(|e| self.error(Some(value.span()), format!("{}: {e}", parameter.name)))
    }

    fn override_with(
        &self,
        base: &mut Parameters,
        lists: &mut Factors,
        replicates: &mut Spanned<u32>,
        overrides: &Overrides,
    ) -> Result<(), PlanError> {
        let fixed = [
            ("runtime", &overrides.runtime),
            ("ramp_time", &overrides.ramp_time),
            ("policy", &overrides.policy),
        ];
        for (name, value) in fixed {
            if let (Some(value), Ok(parameter)) = (value, find(name)) {
                self.set(base, parameter, value)?;
            }
        }
        lists.extend(overrides.factors.clone());
        if let Some(number) = &overrides.replicates {
            *replicates = number.clone();
        }
        Ok(())
    }

    fn replicates(&self, written: &Spanned<u32>, chosen: Option<u32>) -> Result<u32, PlanError> {
        let span = chosen.is_none().then(|| written.span());
        match chosen.unwrap_or(*written.get_ref()) {
            0 => Err(self.error(span, "replicates is 0; a study runs each cell at least once")),
            number => Ok(number),
        }
    }

    /// Reads every value of every factor, in the order of the parameter table.
    fn factors(&self, base: &Parameters, lists: &Factors) -> Result<Vec<Factor>, PlanError> {
        let mut factors = Vec::new();
        for (name, list) in lists {
            let parameter =
                find(name).map_err(|e| self.error(Some(list.span()), format!("[factors]: {e}")))?;
            if list.get_ref().is_empty() {
                let message = format!("the factor '{name}' has no values; give at least one");
                return Err(self.error(Some(list.span()), message));
            }
            let mut values = Vec::new();
            for value in list.get_ref() {
                let mut scratch = base.clone();
                self.set(&mut scratch, parameter, value)?;
                let printed = if parameter.name == "layout" {
                    value.get_ref().0.clone()
                } else {
                    (parameter.print)(&scratch)
                };
                if values.contains(&printed) {
                    let message = format!("the factor '{name}' has the value {printed} twice");
                    return Err(self.error(Some(value.span()), message));
                }
                values.push(printed);
            }
            factors.push(Factor { parameter, values });
        }
        let place = |f: &Factor| super::PARAMETERS.iter().position(|p| p.name == f.parameter.name);
        factors.sort_by_key(place);
        Ok(factors)
    }

    /// The cells of a variant.
    pub fn expand(&self, resolved: &ResolvedPlan) -> Result<Expansion, PlanError> {
        let mut combinations = Vec::new();
        let room = CELLS_MAX / resolved.replicates as usize;
        multiply(&resolved.base, &resolved.factors, &mut combinations, room).map_err(|()| {
            let message = format!("more than {CELLS_MAX} cells; give fewer values or replicates");
            self.error(None, message)
        })?;
        let mut used = BTreeSet::new();
        for parameters in &combinations {
            parameters.check().map_err(|e| self.error(None, e))?;
            used.extend(factors_of(parameters, resolved));
        }
        let mut cells = Vec::with_capacity(combinations.len() * resolved.replicates as usize);
        for replicate in 0..resolved.replicates {
            for parameters in &combinations {
                let factors = factors_of(parameters, resolved).collect::<Vec<_>>();
                cells.push(Cell::new(
                    parameters.clone(),
                    &factors,
                    resolved.subject,
                    replicate,
                    resolved.seed,
                ));
            }
        }
        let unused =
            resolved.factors.iter().filter(|f| f.values.len() > 1 && !used.contains(f.parameter.name));
        Ok(Expansion { unused: unused.map(|f| f.parameter.name).collect(), cells })
    }
}

impl ResolvedPlan {
    /// The names of the factors, in the order of the parameter table.
    pub fn factor_names(&self) -> impl Iterator<Item = &'static str> {
        self.factors.iter().map(|f| f.parameter.name)
    }

    /// The parameters that are no factor.
    pub const fn base(&self) -> &Parameters {
        &self.base
    }
}

/// The factors that make a difference to a cell.
fn factors_of(parameters: &Parameters, resolved: &ResolvedPlan) -> impl Iterator<Item = &'static str> {
    resolved.factors.iter().filter(|f| (f.parameter.applies)(parameters)).map(|f| f.parameter.name)
}

/// Appends every combination of the factors' values; a factor that does not apply is left out. Fails if there
/// is no room.
fn multiply(base: &Parameters, factors: &[Factor], out: &mut Vec<Parameters>, room: usize) -> Result<(), ()> {
    let Some((first, rest)) = factors.split_first() else {
        out.push(base.clone());
        return if out.len() > room { Err(()) } else { Ok(()) };
    };
    if !(first.parameter.applies)(base) {
        return multiply(base, rest, out, room);
    }
    for value in &first.values {
        let mut parameters = base.clone();
        (first.parameter.set)(&mut parameters, value).map_err(|_| ())?;
        multiply(&parameters, rest, out, room)?;
    }
    Ok(())
}
