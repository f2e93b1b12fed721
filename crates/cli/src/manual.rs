//! `stripewise completions` and `stripewise man`: this command's words, for shells and for man(1).

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Exit, Impossible, cannot_open};
use crate::output::print;

/// `stripewise completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for.
    shell: Shell,
}

/// `stripewise man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages, such as `/usr/local/share/man/man1`; created if missing.
    folder: PathBuf,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stripewise", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

pub(crate) fn pages(args: &ManArgs) -> Result<Exit> {
    let folder = &args.folder;
    if folder.exists() && !folder.is_dir() {
        return Err(Impossible(format!(
            "{}: not a folder; name an existing folder or a new one",
            folder.display()
        ))
        .into());
    }
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), folder))
        .map_err(|error| cannot_open(folder, error))?;
    Ok(Exit::Done)
}
