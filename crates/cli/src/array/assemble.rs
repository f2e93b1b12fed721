//! `stripewise assemble`: checks that an array's members make an array, and says so in mdadm's words.

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use stripewise_host::md::assemble::Assembled;

use super::describe::{Description, describe};
use super::select::{SelectArgs, Use, tell};
use crate::exit::Exit;
use crate::output::{print, print_json};

const SCHEMA: &str = "stripewise.assemble/1";

/// `stripewise assemble`.
#[derive(Debug, Args)]
pub(crate) struct AssembleArgs {
    #[command(flatten)]
    select: SelectArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    description: Description,
    message: String,
    forced: Vec<ForcedMember>,
    forced_clean: bool,
    readonly: bool,
}

#[derive(Serialize)]
struct ForcedMember {
    path: String,
    slot: u16,
    events: u64,
}

pub(crate) fn run(args: &AssembleArgs) -> Result<Exit> {
    let assembled = args.select.assemble(Use::Write)?;
    tell(&assembled);
    let mut array = args.select.open(&assembled, Use::Write, |_| {})?;
    if !args.select.readonly {
        array.close()?;
    }
    let message = message(&assembled);
    if args.json {
        let forced = assembled.assembly.forced.iter().map(|forced| ForcedMember {
            path: assembled.found.paths[forced.candidate].display().to_string(),
            slot: forced.slot.0,
            events: forced.events,
        });
        print_json(&Document {
            description: describe(SCHEMA, &assembled, &[]),
            message,
            forced: forced.collect(),
            forced_clean: assembled.assembly.forced_clean,
            readonly: args.select.readonly,
        })?;
    } else {
        print(&format!("stripewise: {message}\n"))?;
    }
    Ok(Exit::Done)
}

/// mdadm's sentence.
pub(crate) fn message(assembled: &Assembled) -> String {
    let assembly = &assembled.assembly;
    let name = if assembly.name.is_empty() { assembly.uuid.to_string() } else { assembly.name.clone() };
    let in_sync = assembly.in_sync_count();
    let plural = if in_sync == 1 { "" } else { "s" };
    let out_of = match assembly.slots.len() {
        slots if in_sync < slots => format!(" (out of {slots})"),
        _ => String::new(),
    };
    let rebuilding = assembly.slots.iter().filter(|s| !s.is_in_sync() && s.candidate().is_some()).count();
    let spares = match assembly.spares.len() {
        1 => "1 spare".to_owned(),
        spares => format!("{spares} spares"),
    };
    let others = match (rebuilding, assembly.spares.is_empty()) {
        (0, true) => String::new(),
        (0, false) => format!(" and {spares}"),
        (rebuilding, true) => format!(" and {rebuilding} rebuilding"),
        (rebuilding, false) => format!(", {rebuilding} rebuilding and {spares}"),
    };
    format!("{name} has been assembled with {in_sync} drive{plural}{out_of}{others}.")
}
