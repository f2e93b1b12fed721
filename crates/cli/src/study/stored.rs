//! Studies that were run: `study show`, `study report`, `study export`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use stripewise_lab::export::export_csv;
use stripewise_lab::report::render;
use stripewise_lab::results::StudyResults;
use stripewise_lab::store::Store;
use stripewise_lab::study::results;

use super::{tables, weights};
use crate::args::{ExportArgs, ExportFormat, ReportArgs, StoredArgs, WeightArgs};
use crate::exit::{Exit, Impossible};
use crate::output::{Document, is_stdout, print, write_file};

/// The schema of a study's results.
pub(super) const RESULTS: &str = "stripewise.study/1";

/// Where the results of a study go unless a folder is named.
pub(crate) fn default_folder(study: &str) -> PathBuf {
    Path::new("stripewise-results").join(study)
}

/// The results of the latest run in a folder, or in the default folder of a study.
fn load(study: &str, weight_args: &WeightArgs) -> Result<(PathBuf, StudyResults)> {
    let weights = weights(weight_args)?;
    let default = default_folder(study);
    let folder = if default.is_dir() { default } else { PathBuf::from(study) };
    if !folder.is_dir() {
        let message = format!(
            "no results of '{study}': there is neither {} nor a folder of that name; run `stripewise study run` first",
            default_folder(study).display()
        );
        return Err(Impossible(message).into());
    }
    let store = Store::open_existing(&folder)?;
    let run = store.latest_run(None)?;
    let results = results(&store, run, &weights)?;
    Ok((folder, results))
}

pub(crate) fn show(args: &StoredArgs) -> Result<Exit> {
    let (_, results) = load(&args.study, &args.weights)?;
    if args.json {
        Document::new(RESULTS, &results).print()?;
    } else {
        print(&tables::study(&results))?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Written {
    report: PathBuf,
}

pub(crate) fn report(args: &ReportArgs) -> Result<Exit> {
    let (folder, results) = load(&args.study, &args.weights)?;
    let path = args.output.clone().unwrap_or_else(|| folder.join("report.html"));
    if args.json && is_stdout(&path) {
        return Err(Impossible(
            "--output -: --json prints to standard output, too; leave one of them out".to_owned(),
        )
        .into());
    }
    write_file(&path, &render(&results)?)?;
    if is_stdout(&path) {
        return Ok(Exit::Done);
    }
    if args.json {
        Document::new("stripewise.study-report/1", Written { report: path }).print()?;
    } else {
        print(&format!("{}\n", path.display()))?;
    }
    Ok(Exit::Done)
}

pub(crate) fn export(args: &ExportArgs) -> Result<Exit> {
    let (_, results) = load(&args.study, &args.weights)?;
    let text = if args.json || args.format == ExportFormat::Json {
        Document::new(RESULTS, &results).to_json()?
    } else {
        export_csv(&results)
    };
    match &args.output {
        Some(path) => write_file(path, &text)?,
        None => print(&text)?,
    }
    Ok(Exit::Done)
}
