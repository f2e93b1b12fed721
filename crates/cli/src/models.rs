//! `stripewise models`.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;
use stripewise_lab::load_model;
use stripewise_sim::models::{BUILT_IN, Companions, Model, Parameter, Value};

use crate::args::ModelsCommand;
use crate::calibrate;
use crate::exit::Exit;
use crate::output::{Document, Table, print};

#[derive(Serialize)]
struct ModelLine<'a> {
    name: &'a str,
    kind: &'a str,
    title: &'a str,
    file: &'a str,
}

#[derive(Serialize)]
struct List<'a> {
    models: Vec<ModelLine<'a>>,
}

#[derive(Serialize)]
struct ModelDocument<'a> {
    #[serde(flatten)]
    line: ModelLine<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rig: Option<&'a Companions>,
    parameters: Vec<ParameterDocument<'a>>,
}

#[derive(Serialize)]
struct ParameterDocument<'a> {
    name: &'a str,
    value: serde_json::Value,
    unit: &'a str,
    kind: &'a str,
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    about: &'a str,
}

fn line(model: &Model) -> ModelLine<'_> {
    ModelLine { name: &model.name, kind: model.kind.name(), title: &model.title, file: &model.file }
}

fn document(parameter: &Parameter) -> ParameterDocument<'_> {
    ParameterDocument {
        name: parameter.name,
        value: match &parameter.value {
            Value::Number(number) => (*number).into(),
            Value::List(list) => list.clone().into(),
        },
        unit: parameter.unit,
        kind: parameter.kind.name(),
        source: &parameter.source,
        note: parameter.note.as_deref(),
        about: parameter.about,
    }
}

pub(crate) fn run(command: &ModelsCommand) -> Result<Exit> {
    match command {
        ModelsCommand::List(args) => list(args.json),
        ModelsCommand::Show(args) => show(&args.name, args.json),
        ModelsCommand::Calibrate(args) => calibrate::run(args),
    }
}

fn list(json: bool) -> Result<Exit> {
    let models = BUILT_IN.iter().map(|b| Model::load(b.name)).collect::<Result<Vec<_>, _>>()?;
    if json {
        let models = models.iter().map(line).collect();
        Document::new("stripewise.models/1", List { models }).print()?;
        return Ok(Exit::Done);
    }
    let mut table = Table::of_text(["NAME", "KIND", "TITLE"]);
    for model in &models {
        table.row([model.name.as_str(), model.kind.name(), model.title.as_str()]);
    }
    print(&table.to_string())?;
    Ok(Exit::Done)
}

fn show(name: &str, json: bool) -> Result<Exit> {
    let model = load_model(name)?;
    if json {
        let parameters = model.parameters.iter().map(document).collect();
        let document = ModelDocument { line: line(&model), rig: model.rig.as_ref(), parameters };
        Document::new("stripewise.model/1", document).print()?;
        return Ok(Exit::Done);
    }
    let mut text = format!("{} ({}): {}\n{}\n\n", model.name, model.kind.name(), model.title, model.file);
    for parameter in &model.parameters {
        let _ = write!(
            text,
            "{} = {} {}   [{}]\n    {}\n    source: {}\n",
            parameter.name,
            parameter.value,
            parameter.unit,
            parameter.kind.name(),
            parameter.about,
            parameter.source
        );
        if let Some(note) = &parameter.note {
            let _ = writeln!(text, "    note: {note}");
        }
    }
    if let Some(Companions { controller, cpu, block }) = &model.rig {
        let _ = writeln!(
            text,
            "\nused with, where a rig does not say: controller {controller}, cpu {cpu}, block {block}"
        );
    }
    let count = |kind: &str| model.parameters.iter().filter(|p| p.kind.name() == kind).count();
    let _ = write!(
        text,
        "\n{} parameters: {} quoted, {} measured, {} derived, {} assumed\n",
        model.parameters.len(),
        count("quoted"),
        count("measured"),
        count("derived"),
        count("assumed")
    );
    print(&text)?;
    Ok(Exit::Done)
}
