//! `stripewise fail`, `remove`, `add`, `re-add`, `add-spare`, `replace`, `state`, `check`, `repair`, `action`, `speed`, `stop`: an
//! array's members and its own work, in mdadm's words, on a served array by its control socket or on an idle one.

mod checks;
mod found;
mod idle;
pub(crate) mod live;
mod served;
mod wait;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use stripewise_engine::io::SyncAction;
use stripewise_format::device_flags::FlagsChange;
use stripewise_host::md::paths::is_same;
use stripewise_host::{AddHow, Manage};

use super::flags::{DEVICES, FlagArgs};
use super::select::{SelectArgs, impossible};
use crate::exit::Exit;
use crate::output::print;

pub(crate) use checks::Checks;
pub(crate) use served::{ask, detail};

const PLACES: &str = "\
The array is either served (--control SOCKET) or idle (--array MEMBER... or --scan DIR). A refused command changes \
nothing (exit code 2). On an idle array, pending work runs to its end; Ctrl-C stops it and records its progress (exit \
code 130).";

/// mdadm's word for every member that has failed.
const ALL_FAILED: &str = "failed";

/// What a check leaves out.
const DEGRADED: &str = "the array is degraded: data without redundancy are not compared";

/// Where the array is.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Control socket of the server of the array.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["array", "scan"], required_unless_present_any = ["array", "scan"])]
    control: Option<PathBuf>,
    /// Members of an idle array, in any order.
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    array: Vec<PathBuf>,
    /// Search the files and devices of this folder for members of an idle array.
    #[arg(long, value_name = "DIR")]
    scan: Option<PathBuf>,
    /// Select the array with this UUID.
    #[arg(long, short = 'u', value_name = "UUID", conflicts_with = "name")]
    uuid: Option<stripewise_format::uuid::Uuid>,
    /// Select the array with this name, with or without its host.
    #[arg(long, short = 'N', value_name = "NAME")]
    name: Option<String>,
    /// Start degraded even if members are missing that the array last had.
    #[arg(long, short = 'R')]
    run: bool,
    /// Allow writing to this block device; may be repeated.
    #[arg(long, value_name = "DEV")]
    destroy: Vec<PathBuf>,
}

impl PlaceArgs {
    /// The idle array's members, and these that are named as what the command is about.
    fn select(&self, subjects: &[PathBuf]) -> SelectArgs {
        let mut members = self.array.clone();
        if self.scan.is_none() {
            let others = subjects.iter().filter(|subject| !self.array.iter().any(|m| is_same(m, subject)));
            members.extend(others.cloned());
        }
        SelectArgs {
            members,
            scan: self.scan.clone(),
            uuid: self.uuid,
            name: self.name.clone(),
            run: self.run,
            destroy: self.destroy.clone(),
            ..SelectArgs::default()
        }
    }

    fn may_destroy(&self, path: &Path) -> bool {
        self.destroy.iter().any(|named| is_same(named, path))
    }
}

/// `stripewise fail` and `stripewise remove`.
#[derive(Debug, Args)]
#[command(after_help = PLACES)]
pub(crate) struct MembersArgs {
    /// Members of the array; `remove` also takes `failed`, all failed members of a served array (a file of that name is
    /// ./failed).
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// `stripewise add`, `re-add` and `add-spare`.
#[derive(Debug, Args)]
#[command(after_help = PLACES)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    flags: FlagArgs,
    /// Files or devices to add.
    #[arg(id = DEVICES, required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Add a device even if it holds another array's superblock, a file system or a partition table.
    #[arg(long, short = 'f')]
    force: bool,
}

/// `stripewise state`.
#[derive(Debug, Args)]
#[command(after_help = PLACES)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    flags: FlagArgs,
    /// Members and spares of the array, after the options that apply to them.
    #[arg(id = DEVICES, required = true, value_name = "MEMBER")]
    members: Vec<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// `stripewise replace`.
#[derive(Debug, Args)]
#[command(after_help = PLACES)]
pub(crate) struct ReplaceArgs {
    /// Member to replace; it stays in use until the copy is complete.
    #[arg(value_name = "MEMBER")]
    member: PathBuf,
    /// Spare that takes its slot [default: any].
    #[arg(long, value_name = "SPARE")]
    with: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
}

/// `stripewise check` and `stripewise repair`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 no mismatches, or all are repaired; 1 a part of the array is lost, whatever else was found, \
or with --readonly reads failed or members list bad blocks; 4 mismatches remain, or too few members could be read to compare or repair a place; 130 interrupted. \
With --control, 0 means that the work has begun; add --wait to get these codes. 1 then also means that the server interrupted the work, or ended."
)]
pub(crate) struct SyncArgs {
    /// Control socket of the server of the array; the work starts there, and the command returns at once unless --wait is
    /// given.
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["members", "scan"])]
    control: Option<PathBuf>,
    /// Wait until the server has ended the work, and print what it found. Work on an idle array is always waited for.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    select: SelectArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `stripewise repair`.
#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    sync: SyncArgs,
    /// On RAID-6, rewrite only the block that P and Q show to be wrong, and leave mismatches that they do not locate.
    /// Without this option, parity is recomputed from the data, and copies are made from the first one.
    #[arg(long)]
    locate: bool,
}

/// `stripewise action`.
#[derive(Debug, Args)]
pub(crate) struct ActionArgs {
    /// Sync action of the array from now on (md's `sync_action`).
    action: Action,
    /// Control socket of the server of the array.
    #[arg(long, value_name = "SOCKET")]
    control: PathBuf,
    /// Wait until the check or repair has ended, and print what it found; exit codes are those of `stripewise check`.
    #[arg(long)]
    wait: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Action {
    /// Stop the current action; pending resync or recovery starts again.
    Idle,
    /// Stop the current action and start nothing.
    Frozen,
    /// Compare all copies and parity and count mismatches.
    Check,
    /// Compare all copies and parity and correct mismatches.
    Repair,
}

/// `stripewise speed`.
#[derive(Debug, Args)]
pub(crate) struct SpeedArgs {
    /// Control socket of the server of the array.
    #[arg(long, value_name = "SOCKET")]
    control: PathBuf,
    /// Speed in KiB/s per member below which resync, recovery and checks do not give way to other I/O (md's
    /// `sync_speed_min`) [default: unchanged, at first 1000].
    #[arg(long, value_name = "KIB", required_unless_present = "max")]
    min: Option<u32>,
    /// Maximum speed of resync, recovery and checks in KiB/s per member (md's `sync_speed_max`) [default: unchanged, at first
    /// 200000].
    #[arg(long, value_name = "KIB")]
    max: Option<u32>,
}

/// `stripewise stop`.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Control socket of the server of the array.
    #[arg(long, value_name = "SOCKET")]
    control: PathBuf,
    /// Stop even if a program or a loop device has the mounted file open; it gets errors from then on.
    #[arg(long)]
    force: bool,
}

/// A command that was refused after others of the same call had been carried out, which stand: something was done, so that
/// it is no refusal of the call.
fn half_done(error: &anyhow::Error, left: usize) -> anyhow::Error {
    anyhow::anyhow!("{error:#}; the devices before it are done, and {left} are unchanged")
}

fn manage(place: &PlaceArgs, commands: &[Manage], subjects: &[PathBuf]) -> Result<Exit> {
    match &place.control {
        Some(socket) => served::manage(socket, commands),
        None => idle::manage(&place.select(subjects), commands),
    }
}

pub(crate) fn fail(args: &MembersArgs) -> Result<Exit> {
    let commands: Vec<Manage> = args.members.iter().cloned().map(Manage::Fail).collect();
    manage(&args.place, &commands, &args.members)
}

pub(crate) fn remove(args: &MembersArgs) -> Result<Exit> {
    let mut members = args.members.clone();
    if let Some(place) = members.iter().position(|member| member.as_os_str() == ALL_FAILED) {
        // An idle array has let go of those that were failed.
        let failed = args.place.control.as_deref().map(served::failed).transpose()?.unwrap_or_default();
        members.splice(place..=place, failed);
        if members.is_empty() {
            print("stripewise: no member has failed\n")?;
            return Ok(Exit::Done);
        }
    }
    let commands: Vec<Manage> = members.iter().cloned().map(Manage::Remove).collect();
    manage(&args.place, &commands, &members)
}

pub(crate) fn add(args: &AddArgs, how: AddHow) -> Result<Exit> {
    let one = |(place, device): (usize, &PathBuf)| Manage::Add {
        member: device.clone(),
        how,
        force: args.force,
        destroy: args.place.may_destroy(device),
        flags: args.flags.of(place),
    };
    let commands: Vec<Manage> = args.devices.iter().enumerate().map(one).collect();
    match &args.place.control {
        Some(socket) => served::manage(socket, &commands),
        None => idle::add(&args.place.select(&[]), &commands, &args.devices),
    }
}

pub(crate) fn state(args: &StateArgs) -> Result<Exit> {
    let mut commands = Vec::new();
    for (place, member) in args.members.iter().enumerate() {
        let change = args.flags.of(place);
        if change == FlagsChange::default() {
            let member = member.display();
            return Err(impossible(format!(
                "{member}: no flag is given; put --write-mostly, --readwrite, --failfast or --nofailfast before it"
            )));
        }
        commands.push(Manage::SetFlags { member: member.clone(), change });
    }
    manage(&args.place, &commands, &args.members)
}

pub(crate) fn replace(args: &ReplaceArgs) -> Result<Exit> {
    let subjects: Vec<PathBuf> = std::iter::once(&args.member).chain(&args.with).cloned().collect();
    let command = Manage::Replace { member: args.member.clone(), with: args.with.clone() };
    match &args.place.control {
        Some(socket) => served::manage(socket, &[command]),
        None => idle::replace(&args.place.select(&subjects), command, args.with.as_deref()),
    }
}

pub(crate) fn check(args: &SyncArgs) -> Result<Exit> {
    sync(args, SyncAction::Check)
}

pub(crate) fn repair(args: &RepairArgs) -> Result<Exit> {
    sync(&args.sync, if args.locate { SyncAction::RepairLocated } else { SyncAction::Repair })
}

fn sync(args: &SyncArgs, action: SyncAction) -> Result<Exit> {
    if args.select.readonly && action != SyncAction::Check {
        return Err(impossible("--readonly: a repair has to write; check compares without writing"));
    }
    match &args.control {
        Some(socket) if args.wait => wait::sync(socket, action, args.json),
        Some(_) if args.json => Err(impossible(
            "--json: with --control the work only begins, and nothing is known of it yet; add --wait",
        )),
        Some(socket) => served::manage(socket, &[Manage::Sync(action)]),
        None => idle::sync(&args.select, action, args.json),
    }
}

pub(crate) fn action(args: &ActionArgs) -> Result<Exit> {
    let action = match args.action {
        Action::Idle => SyncAction::Idle,
        Action::Frozen => SyncAction::Frozen,
        Action::Check => SyncAction::Check,
        Action::Repair => SyncAction::Repair,
    };
    match action {
        SyncAction::Check | SyncAction::Repair if args.wait => wait::sync(&args.control, action, false),
        _ if args.wait => {
            Err(impossible("--wait: idle and frozen begin nothing that ends; use it with check or repair"))
        }
        _ => served::manage(&args.control, &[Manage::Sync(action)]),
    }
}

pub(crate) fn speed(args: &SpeedArgs) -> Result<Exit> {
    served::manage(&args.control, &[Manage::SetSpeed { min_kib: args.min, max_kib: args.max }])
}

pub(crate) fn stop(args: &StopArgs) -> Result<Exit> {
    ask(&args.control, &serde_json::json!({ "command": "stop", "force": args.force }))?;
    print("stripewise: the server is stopping\n")?;
    Ok(Exit::Done)
}
