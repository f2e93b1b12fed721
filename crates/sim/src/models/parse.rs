//! From TOML text to a [`Model`] whose every parameter is known, in its unit and within bounds.

use super::error::{ModelError, Problem};
use super::schema::{self, Shape, Spec};
use super::{Companions, Model, ModelKind, Parameter, Provenance, Value};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    model: Spanned<String>,
    title: String,
    rig: Option<Spanned<Companions>>,
    #[serde(default)]
    parameter: BTreeMap<String, Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    value: Spanned<Value>,
    unit: Spanned<String>,
    kind: Provenance,
    source: Spanned<String>,
    note: Option<String>,
}

pub(super) fn model(file: &str, text: &str) -> Result<Model, ModelError> {
    let line = |offset: usize| Some(1 + text[..offset.min(text.len())].matches('\n').count());
    let mut parsed: File = toml::from_str(text).map_err(|e| {
        let at = e.span().and_then(|s| line(s.start));
        ModelError {
            file: file.to_owned(),
            line: at,
            parameter: e.span().and_then(|s| parameter_at(text, s.start)),
            problem: Problem::Syntax(e.message().to_owned()),
        }
    })?;
    let kind = ModelKind::ALL.into_iter().find(|k| k.name() == parsed.model.get_ref()).ok_or_else(|| {
        ModelError {
            file: file.to_owned(),
            line: line(parsed.model.span().start),
            parameter: None,
            problem: Problem::UnknownModelKind(parsed.model.get_ref().clone()),
        }
    })?;
    if let Some(rig) = parsed.rig.as_ref().filter(|_| !kind.is_drive()) {
        return Err(ModelError {
            file: file.to_owned(),
            line: line(rig.span().start),
            parameter: None,
            problem: Problem::RigOfNoDrive(kind.name()),
        });
    }
    let specs = schema::of(kind);
    let mut parameters = Vec::with_capacity(specs.len());
    for spec in specs {
        let entry = parsed.parameter.remove(spec.name).ok_or_else(|| {
            let problem = Problem::MissingParameter { about: spec.about, unit: spec.unit };
            ModelError::at(file, line(parsed.model.span().start), spec.name, problem)
        })?;
        let whole_entry = entry.span().start;
        let at = line(entry.get_ref().value.span().start).unwrap_or(1);
        parameters.push(parameter(spec, at, entry.into_inner()).map_err(|(offset, problem)| {
            ModelError::at(file, line(offset.unwrap_or(whole_entry)), spec.name, problem)
        })?);
    }
    if let Some((name, entry)) = parsed.parameter.first_key_value() {
        let known = specs.iter().map(|s| s.name).collect();
        return Err(ModelError::at(
            file,
            line(entry.span().start),
            name,
            Problem::UnknownParameter { known },
        ));
    }
    let rig = parsed.rig.map(Spanned::into_inner);
    Ok(Model { name: parsed.name, kind, title: parsed.title, file: file.to_owned(), rig, parameters })
}

/// The parameter whose table a place in the text is in.
fn parameter_at(text: &str, offset: usize) -> Option<String> {
    let line_end = text.get(offset..)?.find('\n').map_or(text.len(), |at| offset + at);
    let header = text[..line_end].lines().rfind(|line| line.starts_with('['))?;
    Some(header.trim().strip_prefix("[parameter.")?.strip_suffix(']')?.to_owned())
}

/// Checks one parameter. An error carries the offset of the offending value, where there is one.
fn parameter(spec: &Spec, line: usize, entry: Entry) -> Result<Parameter, (Option<usize>, Problem)> {
    if entry.unit.get_ref() != spec.unit {
        let problem = Problem::WrongUnit { found: entry.unit.get_ref().clone(), wanted: spec.unit };
        return Err((Some(entry.unit.span().start), problem));
    }
    if entry.source.get_ref().trim().is_empty() {
        return Err((Some(entry.source.span().start), Problem::NoSource));
    }
    let at = Some(entry.value.span().start);
    let value = entry.value.into_inner();
    check(spec, &value).map_err(|problem| (at, problem))?;
    Ok(Parameter {
        name: spec.name,
        about: spec.about,
        value,
        unit: spec.unit,
        kind: entry.kind,
        source: entry.source.into_inner(),
        note: entry.note,
        line,
    })
}

/// Checks a value's shape and bounds.
pub(super) fn check(spec: &Spec, value: &Value) -> Result<(), Problem> {
    match (value, spec.shape) {
        (Value::Number(_), Shape::WholeList) => {
            return Err(Problem::WrongShape { wanted: "a list with one number per zone" });
        }
        (Value::List(_), Shape::Number | Shape::Whole) => {
            return Err(Problem::WrongShape { wanted: "one number" });
        }
        (Value::List(list), _) if list.is_empty() || list.len() > 1000 => {
            return Err(Problem::WrongShape { wanted: "a list of 1 to 1000 numbers" });
        }
        _ => {}
    }
    let whole = spec.shape != Shape::Number;
    let bad = |n: f64| !(spec.min..=spec.max).contains(&n) || (whole && n.fract() != 0.0);
    if let Some(&found) = value.numbers().iter().find(|n| bad(**n)) {
        return Err(Problem::OutOfBounds { found, min: spec.min, max: spec.max, whole });
    }
    Ok(())
}
