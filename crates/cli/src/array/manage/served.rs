//! Asking a server by its control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Value, json};
use stripewise_engine::io::SyncAction;
use stripewise_format::device_flags::FlagsChange;
use stripewise_host::{AddHow, Manage};

use super::half_done;
use crate::array::select::impossible;
use crate::exit::Exit;
use crate::output::print;

/// Sends a server one command; its refusal is an error.
pub(crate) fn ask(socket: &Path, command: &Value) -> Result<Value> {
    let what = || format!("{}: no server answers", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(what)?;
    stream.write_all(format!("{command}\n").as_bytes()).with_context(what)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).with_context(what)?;
    if line.is_empty() {
        bail!(
            "{}: the server closed the connection without an answer; see whether it still runs, and ask again",
            socket.display()
        );
    }
    let answer: Value = serde_json::from_str(&line).with_context(what)?;
    if let Some(why) = answer.get("failed").and_then(Value::as_str) {
        bail!("{}: the server has closed the array, and ends: {why}", socket.display());
    }
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(impossible(error)),
        None => Ok(answer),
    }
}

/// What a server has to say of its array.
pub(crate) fn detail(socket: &Path) -> Result<Value> {
    Ok(ask(socket, &json!({ "command": "detail" }))?["detail"].take())
}

/// The members that have failed and are not removed.
pub(super) fn failed(socket: &Path) -> Result<Vec<PathBuf>> {
    let detail = detail(socket)?;
    let devices = detail["devices"].as_array().into_iter().flatten();
    let failed = devices.filter(|device| device["state"] == "faulty");
    Ok(failed.filter_map(|device| device["path"].as_str().map(PathBuf::from)).collect())
}

/// Sends commands one after the other, and prints what each did.
pub(super) fn manage(socket: &Path, commands: &[Manage]) -> Result<Exit> {
    for (index, command) in commands.iter().enumerate() {
        let answer = ask(socket, &line(command)?).map_err(|error| match index {
            0 => error,
            _ => half_done(&error, commands.len() - index),
        })?;
        let done =
            answer["done"].as_str().ok_or_else(|| anyhow!("unexpected answer of the server: {answer}"))?;
        print(&format!("stripewise: {done}\n"))?;
    }
    Ok(Exit::Done)
}

/// Has a server begin a check or repair.
pub(super) fn begin(socket: &Path, action: SyncAction) -> Result<()> {
    ask(socket, &line(&Manage::Sync(action))?).map(drop)
}

fn line(command: &Manage) -> Result<Value> {
    Ok(match command {
        Manage::Fail(member) => json!({ "command": "fail", "member": absolute(member)? }),
        Manage::Remove(member) => json!({ "command": "remove", "member": absolute(member)? }),
        Manage::Add { member, how, force, destroy, flags } => {
            let command = match how {
                AddHow::Any => "add",
                AddHow::ReAdd => "re-add",
                AddHow::Spare => "add-spare",
            };
            let line = json!({ "command": command, "member": absolute(member)?, "force": force, "destroy": destroy });
            with_flags(line, *flags)
        }
        Manage::Replace { member, with } => {
            let with = with.as_deref().map(absolute).transpose()?;
            json!({ "command": "replace", "member": absolute(member)?, "with": with })
        }
        Manage::SetFlags { member, change } => {
            with_flags(json!({ "command": "state", "member": absolute(member)? }), *change)
        }
        Manage::Sync(action) => match action {
            SyncAction::Check => json!({ "command": "check" }),
            SyncAction::Repair => json!({ "command": "repair" }),
            SyncAction::RepairLocated => json!({ "command": "repair", "locate": true }),
            SyncAction::Frozen => json!({ "command": "frozen" }),
            SyncAction::Idle | SyncAction::Resync | SyncAction::Recover => json!({ "command": "idle" }),
        },
        Manage::SetSpeed { min_kib, max_kib } => {
            json!({ "command": "speed", "min_kib": min_kib, "max_kib": max_kib })
        }
    })
}

/// The line with what is asked for of flags.
fn with_flags(mut line: Value, flags: FlagsChange) -> Value {
    for (name, asked) in [("write_mostly", flags.write_mostly), ("failfast", flags.failfast)] {
        if let Some(asked) = asked {
            line[name] = asked.into();
        }
    }
    line
}

/// The server may be in another folder.
fn absolute(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path).with_context(|| path.display().to_string())?;
    let name = absolute.to_str().map(str::to_owned);
    name.ok_or_else(|| impossible(format!("{}: the path is not UTF-8", path.display())))
}
