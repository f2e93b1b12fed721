//! From a plan to its cells.

use std::collections::BTreeSet;
use std::ops::Range;

use stripewise_engine::level::Layout;
use toml::Spanned;

use super::{Factors, Overrides, Parameter, Parameters, Part, Plan, PlanError, Scalar, Section, Table, find};
use crate::cell::Cell;

/// The most cells a study may have, replicates included.
pub const CELLS_MAX: usize = 1_000_000;

/// Runs of each cell where nobody says.
const REPLICATES_DEFAULT: u32 = 1;

/// Factors that say what the workload is: throughputs of different workloads have no order.
const WORKLOAD: [&str; 4] = ["rw", "rwmixread", "trace", "speed"];

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
    /// The factor whose best value is sought.
    pub subject: &'static str,
    /// Its values as printed, in the plan's order.
    pub subject_values: Vec<String>,
    parts: Vec<ResolvedPart>,
}

/// What combines with each other.
#[derive(Clone, Debug)]
struct ResolvedPart {
    replicates: u32,
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
    /// Whether a shortened plan is another than the whole one.
    pub(crate) fn shortens(&self, choices: Choices) -> bool {
        let document = &self.document;
        let of_parts = document.part.iter().map(|part| &part.quick);
        let of_real = choices.real.then_some(&document.real.quick);
        of_parts.chain([&document.quick]).chain(of_real).any(|overrides| !overrides.is_empty())
    }

    /// Applies a variant's overrides and reads every value.
    pub fn resolve(&self, choices: Choices) -> Result<ResolvedPlan, PlanError> {
        let document = &self.document;
        let parts = if document.part.is_empty() {
            vec![self.resolve_part(None, choices)?]
        } else {
            let parts = document.part.iter().map(|part| self.resolve_part(Some(part), choices));
            parts.collect::<Result<_, _>>()?
        };
        let subject = document.subject.get_ref();
        if WORKLOAD.contains(&subject.as_str()) {
            let message = format!(
                "subject '{subject}' is the workload itself, of which no value is best; leave '{subject}' among the \
                 factors and make the subject what is chosen for it, such as chunk or level"
            );
            return Err(self.error(Some(document.subject.span()), message));
        }
        let mut subject_values: Vec<String> = Vec::new();
        let mut found = None;
        for factor in parts.iter().flat_map(|part| &part.factors) {
            if factor.parameter.name == subject {
                found = Some(factor.parameter.name);
                let new = factor.values.iter().filter(|v| !subject_values.contains(v)).cloned();
                let new: Vec<String> = new.collect();
                subject_values.extend(new);
            }
        }
        if subject == "target" {
            let message = "subject 'target': a single drive is for reference and is not ranked; make the subject what is \
                           chosen for the array, such as chunk or level";
            return Err(self.error(Some(document.subject.span()), message));
        }
        let Some(found) = found else {
            let mut known: Vec<&str> = Vec::new();
            for factor in parts.iter().flat_map(|part| &part.factors) {
                if !known.contains(&factor.parameter.name) {
                    known.push(factor.parameter.name);
                }
            }
            let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
            let message = format!("subject '{subject}' is not among the factors: {known}");
            return Err(self.error(Some(document.subject.span()), message));
        };
        let seed = choices.seed.unwrap_or(document.seed);
        Ok(ResolvedPlan { seed, subject: found, subject_values, parts })
    }

    /// Applies the plan's tables, then a part's.
    fn resolve_part(&self, part: Option<&Part>, choices: Choices) -> Result<ResolvedPart, PlanError> {
        let document = &self.document;
        let mut base = Parameters::default();
        let mut lists = document.factors.clone();
        let mut replicates = document.replicates.clone();
        let of_plan = [
            (Section::Rig, &document.rig),
            (Section::Array, &document.array),
            (Section::Stack, &document.stack),
            (Section::Job, &document.job),
        ];
        for (section, table) in of_plan {
            self.fix(&mut base, section, table)?;
            self.refuse_both(section, table, &document.factors)?;
        }
        if let Some(part) = part {
            part.name.get_ref().clone_into(&mut base.part);
            let of_part = [
                (Section::Rig, &part.rig),
                (Section::Array, &part.array),
                (Section::Stack, &part.stack),
                (Section::Job, &part.job),
            ];
            for (section, table) in of_part {
                self.fix(&mut base, section, table)?;
                self.refuse_both(section, table, &part.factors)?;
                lists.retain(|name, _| !table.contains_key(name));
            }
            lists.extend(part.factors.clone());
            replicates = part.replicates.clone().or(replicates);
        }
        let real_overrides = Overrides {
            replicates: document.real.replicates.clone(),
            runtime: document.real.runtime.clone(),
            ramp_time: document.real.ramp_time.clone(),
            policy: document.real.policy.clone(),
            factors: document.real.factors.clone(),
        };
        let none = Overrides::default();
        let variants = [
            (choices.quick, &document.quick),
            (choices.quick, part.map_or(&none, |part| &part.quick)),
            (choices.real, &real_overrides),
            (choices.quick && choices.real, &document.real.quick),
        ];
        for (_, overrides) in variants.into_iter().filter(|(chosen, _)| *chosen) {
            self.override_with(&mut base, &mut lists, &mut replicates, overrides, part.is_some())?;
        }
        let replicates = self.replicates(replicates.as_ref(), choices.replicates)?;
        let factors = self.factors(&base, &lists)?;
        Ok(ResolvedPart { replicates, base, factors })
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
                let message = format!("unknown key '{name}' in [{section}]; use one of {}", known.join(", "));
                self.error(Some(value.span()), message)
            })?;
            self.set(base, parameter, value)?;
        }
        Ok(())
    }

    /// Refuses what is fixed and varied in the same place: one of the two would be without effect.
    fn refuse_both(&self, section: Section, table: &Table, factors: &Factors) -> Result<(), PlanError> {
        let Some((name, value)) = table.iter().find(|(name, _)| factors.contains_key(*name)) else {
            return Ok(());
        };
        let section = format!("{section:?}").to_lowercase();
        let message =
            format!("'{name}' is fixed in [{section}] and varied in [factors]; leave one of them out");
        Err(self.error(Some(value.span()), message))
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
        replicates: &mut Option<Spanned<u32>>,
        overrides: &Overrides,
        in_part: bool,
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
        for (name, values) in &overrides.factors {
            // What a part does not vary, the plan's overrides do not vary there either.
            if !in_part || lists.contains_key(name) {
                lists.insert(name.clone(), values.clone());
            }
        }
        if let Some(number) = &overrides.replicates {
            *replicates = Some(number.clone());
        }
        Ok(())
    }

    fn replicates(&self, written: Option<&Spanned<u32>>, chosen: Option<u32>) -> Result<u32, PlanError> {
        let span = written.filter(|_| chosen.is_none()).map(Spanned::span);
        match chosen.or(written.map(|number| *number.get_ref())).unwrap_or(REPLICATES_DEFAULT) {
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
                    layout_name(base, lists, &value.get_ref().0)
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
        let (mut cells, mut used, mut varied) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for part in &resolved.parts {
            let mut combinations = Vec::new();
            let room = (CELLS_MAX - cells.len()) / part.replicates as usize;
            multiply(&part.base, &part.factors, &mut combinations, room).map_err(|()| {
                let message = format!("more than {CELLS_MAX} cells; give fewer values or replicates");
                self.error(None, message)
            })?;
            for parameters in &mut combinations {
                // What is missing is the modelled target's to tell; others need no rig.
                if let Ok(rig) = parameters.rig.completed() {
                    parameters.rig = rig;
                }
                parameters.check().map_err(|e| self.error(self.place(e.key), e.message))?;
                used.extend(part.factors_of(parameters));
            }
            varied.extend(part.factors.iter().filter(|f| f.values.len() > 1).map(|f| f.parameter.name));
            let following: Vec<_> = combinations.iter().map(|p| resolved.following(p)).collect();
            for replicate in 0..part.replicates {
                for (parameters, following) in combinations.iter().zip(&following) {
                    let mut factors: Vec<&str> = part.factors_of(parameters).collect();
                    factors.push("part");
                    let seed = resolved.seed;
                    cells.push(Cell::new(parameters.clone(), &factors, following, replicate, seed));
                }
            }
        }
        let unused = varied.into_iter().filter(|name| !used.contains(name)).collect();
        Ok(Expansion { cells, unused })
    }

    /// Where a parameter is named first.
    fn place(&self, key: Option<&'static str>) -> Option<Range<usize>> {
        let (key, document) = (key?, &self.document);
        let tables = [&document.rig, &document.array, &document.stack, &document.job].into_iter();
        let of_parts = document.part.iter().flat_map(|p| [&p.rig, &p.array, &p.stack, &p.job]);
        let fixed = tables.chain(of_parts).find_map(|table| table.get(key).map(Spanned::span));
        let factors = std::iter::once(&document.factors).chain(document.part.iter().map(|p| &p.factors));
        fixed.or_else(|| factors.into_iter().find_map(|f| f.get(key).map(Spanned::span)))
    }
}

impl ResolvedPlan {
    /// The names of the factors.
    pub fn factor_names(&self) -> impl Iterator<Item = &'static str> {
        self.parts.iter().flat_map(|part| &part.factors).map(|f| f.parameter.name)
    }

    /// The subject, and the parameters that would apply or print otherwise with another value of it, as the layout
    /// does with another level.
    fn following(&self, parameters: &Parameters) -> Vec<&'static str> {
        let mut following = vec![self.subject];
        for value in &self.subject_values {
            let mut other = parameters.clone();
            if other.set(self.subject, value).is_err() {
                continue;
            }
            let differs = |p: &&Parameter| {
                let applies = (p.applies)(parameters);
                applies != (p.applies)(&other) || applies && (p.print)(parameters) != (p.print)(&other)
            };
            following.extend(super::PARAMETERS.iter().filter(differs).map(|p| p.name));
        }
        following
    }

    /// The parameters that are no factor; of the first part that varies the subject, where there are parts.
    pub fn base(&self) -> &Parameters {
        let varies = |part: &&ResolvedPart| part.factors.iter().any(|f| f.parameter.name == self.subject);
        let part = self.parts.iter().find(varies).or(self.parts.first());
        &part.expect("a plan without parts is one part").base
    }
}

impl ResolvedPart {
    /// The factors that make a difference to a cell.
    fn factors_of(&self, parameters: &Parameters) -> impl Iterator<Item = &'static str> {
        self.factors.iter().filter(|f| (f.parameter.applies)(parameters)).map(|f| f.parameter.name)
    }
}

/// The name in full of a layout, at the first of the plan's levels that knows it; as it is written if none does.
fn layout_name(base: &Parameters, lists: &Factors, written: &str) -> String {
    let listed = lists.get("level").into_iter().flat_map(Spanned::get_ref);
    let levels = listed.filter_map(|level| level.get_ref().0.parse().ok()).chain([base.array.level]);
    let mut layouts = levels.filter_map(|level| Layout::parse(level, written).ok());
    layouts.next().map_or_else(|| written.to_owned(), |layout| layout.to_string())
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
