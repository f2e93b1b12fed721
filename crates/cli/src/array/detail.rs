//! `stripewise detail`: what `mdadm -D` says of an array, without starting it, or of one that is served.

mod text;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::describe::describe;
use super::manage::detail as server_detail;
use super::select::{SelectArgs, Use};
use super::signals::stop_flag;
use super::watch::watch;
use crate::exit::Exit;
use crate::output::{print, print_json};

pub(crate) const SCHEMA: &str = "stripewise.detail/1";

/// `stripewise detail`.
#[derive(Debug, Args)]
pub(crate) struct DetailArgs {
    #[command(flatten)]
    select: SelectArgs,
    /// Ask the server at this control socket instead of reading members.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["members", "scan"])]
    control: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print NAME=value lines for scripts.
    #[arg(long, conflicts_with = "json")]
    export: bool,
    /// Print the progress of resync, recovery or check every second until it ends, on a terminal in place.
    #[arg(long, conflicts_with_all = ["json", "export"])]
    watch: bool,
}

pub(crate) fn run(args: &DetailArgs) -> Result<Exit> {
    if args.watch {
        return watch(|| look(args), &*stop_flag()?);
    }
    let detail = look(args)?;
    if args.json {
        print_json(&detail)?;
    } else if args.export {
        print(&text::export(detail)?)?;
    } else {
        print(&text::text(detail)?)?;
    }
    Ok(Exit::Done)
}

/// What the server, or the members, say.
fn look(args: &DetailArgs) -> Result<Value> {
    if let Some(socket) = &args.control {
        return server_detail(socket);
    }
    let assembled = args.select.assemble(Use::Look)?;
    Ok(serde_json::to_value(describe(SCHEMA, &assembled, &[]))?)
}
