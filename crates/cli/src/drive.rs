//! `stripewise drive`: a modelled drive in real time.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use stripewise_engine::units::Instant;
use stripewise_host::{DriveCommand as Asked, DriveExport, DriveServer, TimedDrive, VhostDriveServer};
use stripewise_lab::load_model;
use stripewise_sim::models::{ControllerModel, DriveModel, Model, ModelKind, Value};
use stripewise_sim::{LoneDrive, LoneRequest};

use crate::array::signals::stop_flag;
use crate::array::size::{Size, UNITS};
use crate::exit::{Exit, Impossible};
use crate::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum DriveCommand {
    /// Serve a drive model over NBD, or as a virtual machine's disk, with its delays in real time.
    ///
    /// Commands take the time and complete in the order that the model gives, as many at once as its queue holds. Only data
    /// near both ends are stored (see --keep), where superblocks and partition tables lie; everything else reads as zeroes.
    /// Ctrl-C or SIGTERM ends the server.
    Serve(ServeArgs),
}

#[derive(Debug, Args)]
#[command(after_help = UNITS)]
pub(crate) struct ServeArgs {
    /// Built-in drive model (see `models list`) or path of a model file.
    model: String,
    #[command(flatten)]
    at: At,
    /// Capacity to offer, at most the model's [default: the model's].
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Set a parameter of the model, in its unit (see `models show`); may be repeated.
    #[arg(long = "parameter", value_name = "KEY=VALUE")]
    parameters: Vec<String>,
    /// Controller model that the drive is attached to.
    #[arg(long, value_name = "MODEL", default_value = "nvme-pcie4-x4")]
    controller: String,
    /// Size of the stored area at each end of the drive.
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    keep: Size,
    /// Random seed of the initial positions of platters and arm.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Where to listen: as what.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct At {
    /// Listen for NBD clients at this unix socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen for a virtual machine at this unix socket (vhost-user-blk: QEMU, user-mode Linux).
    #[arg(long, value_name = "PATH")]
    vhost_user: Option<PathBuf>,
}

pub(crate) fn run(command: &DriveCommand) -> Result<Exit> {
    match command {
        DriveCommand::Serve(args) => serve(args),
    }
}

/// The model with the values given.
fn model(args: &ServeArgs) -> Result<Model> {
    let mut model = load_model(&args.model)?;
    for given in &args.parameters {
        let wrong = |why: String| Impossible(format!("--parameter {given}: {why}"));
        let Some((name, text)) = given.split_once('=') else {
            return Err(wrong("write KEY=VALUE, as in latency=8000".to_owned()).into());
        };
        let numbers = text.split(',').map(|part| part.trim().parse::<f64>());
        let numbers = numbers.collect::<Result<Vec<_>, _>>().map_err(|_| {
            wrong(format!("'{text}' is not a number; write one, or several separated by commas"))
        })?;
        let value = match numbers[..] {
            [number] if !name.starts_with("zone_") => Value::Number(number),
            _ => Value::List(numbers),
        };
        model = model.with_value(name, &value)?;
    }
    Ok(model)
}

fn serve(args: &ServeArgs) -> Result<Exit> {
    let model = model(args)?;
    if !matches!(model.kind, ModelKind::Hdd | ModelKind::Ssd | ModelKind::Constant) {
        let kind = model.kind.name();
        return Err(
            Impossible(format!("{} is a model of kind \"{kind}\", not of a drive", model.name)).into()
        );
    }
    let drive = DriveModel::new(&model)?;
    let controller = ControllerModel::new(&load_model(&args.controller)?)?;
    let capacity = drive.capacity_sectors();
    let sectors = args.size.map_or(capacity, Size::sectors);
    if sectors == 0 || sectors > capacity {
        return Err(Impossible(format!(
            "--size of {sectors} sectors: {} has {capacity}; use a smaller size, or a larger --parameter capacity",
            model.name
        ))
        .into());
    }
    let mut served = Served(LoneDrive::new(&drive, &controller, args.seed));
    let stop = stop_flag()?;
    let export = DriveExport {
        name: &model.name,
        description: &model.title,
        sectors,
        kept_bytes: [args.keep.0, args.keep.0],
        volatile_cache: drive.has_volatile_cache(),
        physical_bytes: drive.physical_bytes(),
    };
    let ready = |drive: &Served, at: &Path| {
        let depth = drive.0.queue_depth();
        let title = &model.title;
        let at = at.display();
        // That nobody reads it is no reason not to serve.
        let _unread = print(&format!(
            "stripewise: {title} of {sectors} sectors, {depth} commands at a time. Ready at {at}\n"
        ));
    };
    let report = match (&args.at.vhost_user, &args.at.socket) {
        (Some(path), _) => {
            let server = VhostDriveServer::bind(path)?;
            ready(&served, path);
            server.serve(&export, &mut served, &stop)
        }
        (None, Some(path)) => {
            let server = DriveServer::bind(path)?;
            ready(&served, path);
            server.serve(export, &mut served, &stop)
        }
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let [late_100, late_1000] = report.late;
    print(&format!(
        "stripewise: {} commands; late by more than 0.1 ms {late_100} times, by more than 1 ms {late_1000} times\n",
        report.commands
    ))?;
    Ok(Exit::Done)
}

/// The simulator's drive as the server wants it.
#[derive(Debug)]
struct Served(LoneDrive);

impl TimedDrive for Served {
    fn submit(&mut self, now: Instant, command: Asked) {
        let Asked { id, op, range, fua } = command;
        self.0.submit(now, LoneRequest { id, op, range, fua });
    }

    fn next_time(&self) -> Option<Instant> {
        self.0.next_time()
    }

    fn advance(&mut self, now: Instant, ended: &mut Vec<u32>) {
        self.0.advance(now, ended);
    }
}
