//! `stripewise grow`: the write-intent bitmap of an array that exists.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use stripewise_format::uuid::Uuid;
use stripewise_host::md::grow::{BitmapChange, GrowProblem, Grown, grow_bitmap};

use super::create::{BitmapArg, bitmap_chunk_bytes, now};
use super::select::{SelectArgs, Use, impossible, tell};
use super::{Size, host_error};
use crate::exit::Exit;
use crate::output::print;

/// The options of `grow`, mdadm's.
#[derive(Debug, Args)]
#[command(
    after_help = "The array is idle: no server has it, and no resync or recovery is due. What is refused changes nothing (exit code 2). \
A change that was cut off is finished by the same command."
)]
pub(crate) struct GrowArgs {
    /// All members, in any order; spares too.
    #[arg(value_name = "MEMBER")]
    members: Vec<PathBuf>,
    /// Look for members among the files and devices of a folder.
    #[arg(long, value_name = "DIR")]
    scan: Option<PathBuf>,
    /// The array of this UUID.
    #[arg(long, short = 'u', value_name = "UUID", conflicts_with = "name")]
    uuid: Option<Uuid>,
    /// The array of this name, with or without its host.
    #[arg(long, short = 'N', value_name = "NAME")]
    name: Option<String>,
    /// Although members are missing that the array last had; they cannot come back without a whole recovery.
    #[arg(long, short = 'R')]
    run: bool,
    /// A block device that may be written to.
    #[arg(long, value_name = "DEV")]
    destroy: Vec<PathBuf>,
    /// The write-intent bitmap from now on.
    #[arg(long, short, value_enum)]
    bitmap: BitmapArg,
    /// What a bit of the bitmap stands for [default: 64M or the least that fits]
    #[arg(long, value_name = "SIZE")]
    bitmap_chunk: Option<Size>,
}

impl GrowArgs {
    fn change(&self) -> Result<BitmapChange> {
        match (self.bitmap, self.bitmap_chunk) {
            (BitmapArg::Internal, chunk) => {
                let chunk_bytes = chunk.map(bitmap_chunk_bytes).transpose().map_err(impossible)?;
                Ok(BitmapChange::Internal { chunk_bytes })
            }
            (BitmapArg::None, None) => Ok(BitmapChange::None),
            (BitmapArg::None, Some(_)) => Err(impossible("--bitmap-chunk needs --bitmap internal")),
        }
    }

    fn select(&self) -> SelectArgs {
        SelectArgs {
            members: self.members.clone(),
            scan: self.scan.clone(),
            uuid: self.uuid,
            name: self.name.clone(),
            run: self.run,
            destroy: self.destroy.clone(),
            ..SelectArgs::default()
        }
    }
}

pub(crate) fn run(args: &GrowArgs) -> Result<Exit> {
    let change = args.change()?;
    let select = args.select();
    let found = select.find(Use::Write)?;
    let options = select.options(Use::Write);
    let grown = grow_bitmap(found, options, change, now()?, &args.destroy).map_err(problem)?;
    tell(&grown.assembled);
    print(&said(&grown))?;
    Ok(Exit::Done)
}

fn problem(problem: GrowProblem) -> anyhow::Error {
    match problem {
        GrowProblem::Assemble(stripewise_host::md::assemble::AssembleError::Host(error)) => host_error(error),
        GrowProblem::Assemble(error) => error.into(),
        GrowProblem::Write(error) => error.into(),
        other @ (GrowProblem::Refused(_) | GrowProblem::Bitmap(_) | GrowProblem::Member(..)) => {
            impossible(other.to_string())
        }
    }
}

fn said(grown: &Grown) -> String {
    let count = grown.members;
    match &grown.place {
        Some(place) => {
            let chunk = place.chunk_bytes >> 10;
            format!("{count} members have an internal bitmap now, of {chunk}K a bit\n")
        }
        None => format!("{count} members have no bitmap any more\n"),
    }
}
