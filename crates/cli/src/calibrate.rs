//! `stripewise models calibrate`.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use stripewise_format::time::Timestamp;
use stripewise_host::md::paths::is_same;
use stripewise_lab::calibrate::{Circumstances, Compared, Device, Effort, Findings, cpu, fit, toml};
use stripewise_lab::environment::host_cpu;
use stripewise_lab::load_model;
use stripewise_sim::models::{Model, ModelKind};

use crate::exit::{Exit, Impossible};
use crate::output::{Document, Table, check_writable, is_stdout, print, write_file};

/// What an HDD and an SSD are taken to be like unless `--like` says otherwise.
const LIKE_HDD: &str = "st3000dm001";
const LIKE_SSD: &str = "ssd-d7-p5600-6.4tb";

/// `stripewise models calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Drive or file to measure, which is only read [default: this machine's CPU].
    device: Option<PathBuf>,
    /// Output file [default: -, standard output].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name of the model [default: the name of FILE without its extension, else calibrated].
    #[arg(long)]
    name: Option<String>,
    /// Model that gives the values that reads do not show [default: st3000dm001 for an HDD, ssd-d7-p5600-6.4tb for an SSD].
    #[arg(long, value_name = "MODEL", requires = "device")]
    like: Option<String>,
    /// Number of random reads of each kind.
    #[arg(long, value_name = "N", default_value_t = Effort::DEFAULT.reads as u32, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    reads: u32,
    /// Print JSON: the text of the model and its errors.
    #[arg(long)]
    json: bool,
}

impl CalibrateArgs {
    /// Where the model goes, unless to standard output.
    fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| !is_stdout(path))
    }
}

#[derive(Serialize)]
struct Fitted<'a> {
    name: &'a str,
    kind: &'a str,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_median: Option<f64>,
    probes: &'a [Compared],
    notes: &'a [String],
}

pub(crate) fn run(args: &CalibrateArgs) -> Result<Exit> {
    let circumstances = circumstances();
    let name = name(args)?;
    let output = args.file();
    if args.json && args.output.is_some() && output.is_none() {
        return Err(
            Impossible("--output -: --json prints the model, too; leave one of them out".to_owned()).into()
        );
    }
    output.map_or(Ok(()), check_writable)?;
    let Some(path) = &args.device else {
        let model = cpu(&name, &circumstances)?;
        finish(args, &model, None, &[])?;
        return Ok(Exit::Done);
    };
    if args.output.as_deref().is_some_and(|output| is_same(output, path)) {
        let why = format!(
            "--output {}: is the drive to measure, which is only read; name another file",
            path.display()
        );
        return Err(Impossible(why).into());
    }
    let mut device = Device::open(path)?;
    let effort = Effort { reads: args.reads as usize, ..Effort::DEFAULT };
    let found = Findings::of(&mut device, effort).with_context(|| path.display().to_string())?;
    let like = like(args.like.as_deref(), found.is_mechanical())?;
    let here = cpu("here", &circumstances)?;
    let mut fitted = fit(&found, &like, &here, effort, &circumstances)?;
    fitted.model.name = name;
    finish(args, &fitted.model, Some(&fitted.compared), &device.notes())?;
    if !args.json {
        say_on!("{}", how_it_fits(&fitted.compared));
        if let Some(worst) = fitted.worst() {
            say!(
                "The model differs from the drive by {:.1} % (median), at most by {:+.1} %, in: {}",
                fitted.error_median() * 100.0,
                worst.error * 100.0,
                worst.probe
            );
        }
    }
    Ok(Exit::Done)
}

fn circumstances() -> Circumstances {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Circumstances { date: format!("{} UTC", Timestamp::from_seconds(seconds).calendar(0)), cpu: host_cpu() }
}

/// The model's name: letters, digits, dots and dashes, as in plans.
fn name(args: &CalibrateArgs) -> Result<String> {
    let of_file = args.file().and_then(Path::file_stem).map(|s| s.to_string_lossy().into_owned());
    let name = args.name.clone().or(of_file).unwrap_or_else(|| "calibrated".to_owned());
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || !name.chars().all(is_name) {
        bail!(Impossible(format!(
            "--name: '{name}' is not a name; use letters, digits, dots, dashes and underscores"
        )));
    }
    Ok(name)
}

/// The model that gives what is not measured; of the drive's kind.
fn like(name: Option<&str>, is_mechanical: bool) -> Result<Model> {
    let (default, kind) = if is_mechanical { (LIKE_HDD, ModelKind::Hdd) } else { (LIKE_SSD, ModelKind::Ssd) };
    let model = load_model(name.unwrap_or(default))?;
    if model.kind != kind {
        let (found, wanted) = (model.kind.name(), kind.name());
        bail!(Impossible(format!(
            "--like {}: is of kind {found}, but this drive is of kind {wanted}",
            model.name
        )));
    }
    Ok(model)
}

fn finish(
    args: &CalibrateArgs,
    model: &Model,
    compared: Option<&[Compared]>,
    notes: &[String],
) -> Result<()> {
    let text = toml(model);
    let output = args.file();
    if let Some(path) = output {
        write_file(path, &text)?;
    }
    for note in notes {
        say!("stripewise: {note}");
    }
    if args.json {
        let probes = compared.unwrap_or(&[]);
        let mut errors: Vec<f64> = probes.iter().map(|c| c.error.abs()).collect();
        errors.sort_by(f64::total_cmp);
        let error_median = errors.get(errors.len() / 2).copied();
        let (name, kind) = (model.name.as_str(), model.kind.name());
        let fitted = Fitted { name, kind, model: &text, error_median, probes, notes };
        return Document::new("stripewise.calibrate/1", fitted).print();
    }
    match output {
        Some(path) => print(&format!("{}: a model of kind {}\n", path.display(), model.kind.name())),
        None => print(&text),
    }
}

/// Every probe on the drive and on its model.
fn how_it_fits(compared: &[Compared]) -> String {
    let mut table = Table::new(["probe", "unit", "drive", "model", "error"]);
    for row in compared {
        table.row([
            row.probe.clone(),
            row.unit.to_owned(),
            format!("{:.3}", row.measured),
            format!("{:.3}", row.model),
            format!("{:+.1} %", row.error * 100.0),
        ]);
    }
    table.to_string()
}
