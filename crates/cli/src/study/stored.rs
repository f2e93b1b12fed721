//! Studies that were run: `study show`, `study report`, `study export`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use stripewise_lab::export::export_csv;
use stripewise_lab::plan::Plan;
use stripewise_lab::recommend::families_of;
use stripewise_lab::report::render;
use stripewise_lab::results::StudyResults;
use stripewise_lab::store::Store;
use stripewise_lab::study::results;

use super::report_file::report_file;
use super::{check_weights, tables, weights};
use crate::args::{ExportArgs, ExportFormat, ReportArgs, StoredArgs, WeightArgs};
use crate::exit::{Exit, Impossible};
use crate::output::{Document, is_stdout, print, write_file};

/// The schema of a study's results.
pub(super) const RESULTS: &str = "stripewise.study/1";

/// Where the results of a study go unless a folder is named.
pub(crate) fn default_folder(study: &str) -> PathBuf {
    Path::new("stripewise-results").join(study)
}

/// The folder with the results of a study: its default folder by its name or by the path of its plan, or the folder itself.
fn folder_of(study: &str) -> Result<PathBuf> {
    let default = default_folder(study);
    let folder = [default.clone(), PathBuf::from(study)].into_iter().find(|folder| folder.is_dir());
    if let Some(folder) = folder {
        return Ok(folder);
    }
    if Path::new(study).is_file() {
        let plan = Plan::read(Path::new(study))?;
        let folder = default_folder(plan.name());
        if folder.is_dir() {
            return Ok(folder);
        }
        let message = format!(
            "no results of '{}', the study of {study}: there is no folder {}; run `stripewise study run {study}` first, or name \
             the folder that --results named",
            plan.name(),
            folder.display()
        );
        return Err(Impossible(message).into());
    }
    let message = format!(
        "no results of '{study}': there is neither {} nor a folder of that name; run `stripewise study run` first",
        default.display()
    );
    Err(Impossible(message).into())
}

/// The results of the latest run in the folder of a study.
fn load(study: &str, weight_args: &WeightArgs) -> Result<(PathBuf, StudyResults)> {
    let weights = weights(weight_args)?;
    let folder = folder_of(study)?;
    let store = Store::open_existing(&folder)?;
    let run = store.latest_run(None)?;
    let results = results(&store, run, &weights)?;
    check_weights(weight_args, &families_of(&results.cells))?;
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
    let in_folder = || report_file(&folder, "name another file with --output");
    let path = args.output.clone().map_or_else(in_folder, Ok)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
name = "stored-by-path-of-plan"
title = "t"
question = "?"
subject = "chunk"
[rig]
drive = "st31000333as"
count = 3
[array]
level = "raid5"
raid_devices = 3
[job]
rw = "read"
runtime = "1s"
[factors]
chunk = ["64K"]
"#;

    #[test]
    fn a_plan_is_taken_by_its_path_and_its_name_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my-plan.toml");
        std::fs::write(&path, PLAN).unwrap();
        let error = folder_of(path.to_str().unwrap()).unwrap_err().to_string();
        assert!(error.contains("no results of 'stored-by-path-of-plan'"), "{error}");
        let place = default_folder("stored-by-path-of-plan").display().to_string();
        assert!(error.contains(&place) && error.contains("study run"), "{error}");
        assert_eq!(folder_of(folder.path().to_str().unwrap()).unwrap(), folder.path());
    }
}
