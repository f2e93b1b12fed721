//! `stripewise zero-superblock`: devices that are to be known as members no more.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use stripewise_host::md::zero::{ZeroError, Zeroed, zero_superblocks};

use super::host_error;
use crate::exit::{Exit, Impossible};
use crate::output::{print, print_json};

/// The options of `zero-superblock`, mdadm's where it has them.
#[derive(Debug, Args)]
pub(crate) struct ZeroArgs {
    /// Files and block devices
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// Permit clearing this block device; repeat for each
    #[arg(long, value_name = "DEVICE")]
    destroy: Vec<PathBuf>,
    /// Also clear superblocks that are not valid, and those of several arrays on one device
    #[arg(long, short)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    devices: Vec<Device>,
}

#[derive(Serialize)]
struct Device {
    path: String,
    cleared: Vec<&'static str>,
}

pub(crate) fn run(args: &ZeroArgs) -> Result<Exit> {
    let zeroed = zero_superblocks(&args.devices, &args.destroy, args.force).map_err(|error| match error {
        ZeroError::Host(error) => host_error(error),
        ZeroError::Write(_) => error.into(),
        ZeroError::Absent { .. } | ZeroError::Damaged { .. } | ZeroError::Several { .. } => {
            Impossible(error.to_string()).into()
        }
    })?;
    let names = |zeroed: &Zeroed| zeroed.metadata.iter().map(|m| m.name()).collect::<Vec<_>>();
    if args.json {
        let device =
            |zeroed: &Zeroed| Device { path: zeroed.path.display().to_string(), cleared: names(zeroed) };
        let devices = zeroed.iter().map(device).collect();
        print_json(&Document { schema: "stripewise.zero-superblock/1", devices })?;
        return Ok(Exit::Done);
    }
    let mut text = String::new();
    for device in &zeroed {
        let _ = writeln!(
            text,
            "{}: cleared its superblock of version {}",
            device.path.display(),
            names(device).join(", and of ")
        );
    }
    print(&text)?;
    Ok(Exit::Done)
}
