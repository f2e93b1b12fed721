//! `stripewise study`.

mod claims;
mod figures;
mod report_file;
mod run;
mod stored;
mod tables;
mod validate;

use std::collections::BTreeSet;

use anyhow::Result;
use serde::Serialize;
use stripewise_lab::plan::PRESETS;
use stripewise_lab::recommend::Weights;

use crate::args::{JsonArgs, StudyCommand, WeightArgs};
use crate::exit::{Exit, Impossible};
use crate::output::{Document, Table, print};

pub(crate) fn run(command: &StudyCommand) -> Result<Exit> {
    match command {
        StudyCommand::List(args) => list(args),
        StudyCommand::Run(args) => run::run(args),
        StudyCommand::Show(args) => stored::show(args),
        StudyCommand::Report(args) => stored::report(args),
        StudyCommand::Export(args) => stored::export(args),
        StudyCommand::Verify(args) => claims::verify(args),
        StudyCommand::Validate(args) => validate::run(args),
        StudyCommand::Sensitivity(args) => claims::sensitivity(args),
    }
}

#[derive(Serialize)]
struct StudyLine {
    name: String,
    title: String,
    question: String,
    source: String,
}

#[derive(Serialize)]
struct List {
    studies: Vec<StudyLine>,
}

fn list(args: &JsonArgs) -> Result<Exit> {
    let plans = PRESETS.iter().map(stripewise_lab::plan::Preset::plan).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        let lines = plans.iter().map(|p| StudyLine {
            name: p.name().to_owned(),
            title: p.title().to_owned(),
            question: p.question().to_owned(),
            source: p.source().to_owned(),
        });
        let studies = lines.collect();
        Document::new("stripewise.studies/1", List { studies }).print()?;
        return Ok(Exit::Done);
    }
    let mut table = Table::of_text(["NAME", "QUESTION"]);
    for plan in &plans {
        table.row([plan.name(), plan.question()]);
    }
    print(&table.to_string())?;
    Ok(Exit::Done)
}

/// The weights given on the command line.
fn weights(args: &WeightArgs) -> Result<Weights> {
    Weights::parse(args.weights.iter().map(String::as_str))
        .map_err(|e| Impossible(format!("--weight: {e:#}")).into())
}

/// Refuses weights of families that the study has none of.
fn check_weights(args: &WeightArgs, present: &BTreeSet<&str>) -> Result<()> {
    Weights::check(args.weights.iter().map(String::as_str), present)
        .map_err(|e| Impossible(format!("--weight: {e:#}")).into())
}
