//! Models as they are made and written.

use std::fmt::Write;

use stripewise_sim::models::{Companions, Model, ModelError, Provenance, Value};

/// Gives a parameter a value and its source. The parameter is one of the model's kind.
pub(super) fn set(model: &mut Model, name: &str, value: impl Into<f64>, kind: Provenance, source: &str) {
    set_value(model, name, Value::Number(value.into()), kind, source);
}

/// As [`set`], for any value.
pub(super) fn set_value(model: &mut Model, name: &str, value: Value, kind: Provenance, source: &str) {
    let parameter = model.parameters.iter_mut().find(|p| p.name == name);
    let parameter = parameter.expect("the kind has the parameter");
    parameter.value = value;
    parameter.kind = kind;
    source.clone_into(&mut parameter.source);
    parameter.note = None;
}

/// The first number of a parameter of the model's kind.
pub(super) fn number(model: &Model, name: &str) -> f64 {
    let parameter = model.parameters.iter().find(|p| p.name == name);
    parameter.expect("the kind has the parameter").value.numbers()[0]
}

/// Every value not set is one of a model it was not measured for.
pub(super) fn all_assumed(model: &mut Model, why: &str) {
    for parameter in &mut model.parameters {
        parameter.kind = Provenance::Assumed;
        why.clone_into(&mut parameter.source);
        parameter.note = None;
    }
}

/// What a drive that is measured here is used with: what machines of today have, and that controller.
pub(super) fn of_today(controller: &str) -> Companions {
    let [controller, cpu, block] = [controller, "epyc-7313", "linux-block-6.1"].map(str::to_owned);
    Companions { controller, cpu, block }
}

/// The model as it is once written and read back, so that it is checked in full.
pub(super) fn checked(model: &Model) -> Result<Model, ModelError> {
    Model::parse(&model.file, &toml(model))
}

/// The text of a model's file.
pub fn toml(model: &Model) -> String {
    let Model { name, kind, title, rig, parameters, .. } = model;
    let mut text = format!(
        "# Made by `stripewise models calibrate`. Every value has a unit, a kind (measured, derived or assumed) and a \
         source.\nname = {name:?}\nmodel = \"{}\"\ntitle = {title:?}\n",
        kind.name()
    );
    if let Some(Companions { controller, cpu, block }) = rig {
        // Writing to a string does not fail.
        let _ = write!(text, "\n[rig]\ncontroller = {controller:?}\ncpu = {cpu:?}\nblock = {block:?}\n");
    }
    for parameter in parameters {
        let value = match &parameter.value {
            Value::Number(number) => number.to_string(),
            Value::List(list) => {
                let numbers: Vec<String> = list.iter().map(ToString::to_string).collect();
                let lines: Vec<String> = numbers.chunks(8).map(|line| line.join(", ")).collect();
                format!("[\n  {},\n]", lines.join(",\n  "))
            }
        };
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n[parameter.{}]\nvalue = {value}\nunit = {:?}\nkind = \"{}\"\nsource = {:?}\n",
            parameter.name,
            parameter.unit,
            parameter.kind.name(),
            parameter.source
        );
        if let Some(note) = &parameter.note {
            let _ = writeln!(text, "note = {note:?}");
        }
    }
    text
}
