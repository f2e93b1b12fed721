//! `stripewise grow`: what an array that exists is given or relieved of by its superblocks and logs alone; and reshapes, which move
//! its data.

mod control;
mod reshape;
pub(crate) mod served;

use std::path::PathBuf;

use anyhow::Result;
use clap::{ArgGroup, Args};
use serde::Serialize;
use stripewise_engine::assembly::Options;
use stripewise_format::level::Level;
use stripewise_format::uuid::Uuid;
use stripewise_host::md::assemble::{Assembled, Found};
use stripewise_host::md::create::Candidate;
use stripewise_host::md::grow::{
    BitmapChange, Change, GrowProblem, Grown, Outcome, Policy, grow, rename as give_name,
};
use stripewise_host::{HostError, MemberProblem};

use super::create::{BitmapArg, MaxSize, PolicyArg, bitmap_chunk_bytes, now, size_or_max};
use super::journaled;
use super::select::{SelectArgs, Use, impossible, tell};
use super::signals::stop_flag;
use super::{Size, host_error};
use crate::exit::Exit;
use crate::output::{print, print_json};

/// The options of `grow`, mdadm's.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("change").required(true).multiple(true),
    after_help = "The array must be idle: no server uses it (but with --control), and no recovery is due. Make one change at a time; only --level, --raid-devices, --chunk \
and --layout can be combined. A refused change leaves the array as it was (exit code 2). To finish an interrupted change, repeat the command. A reshape \
moves all data of the array; if it is interrupted (Ctrl-C), --continue or Linux (mdadm --assemble) continues it; repeating the command does not. A bare SIZE is in KiB, as in mdadm."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct GrowArgs {
    /// All members and spares, in any order
    #[arg(value_name = "MEMBER")]
    members: Vec<PathBuf>,
    /// Search the files and devices of this folder for members
    #[arg(long, value_name = "DIR")]
    scan: Option<PathBuf>,
    /// Select the array with this UUID
    #[arg(long, short = 'u', value_name = "UUID", conflicts_with = "name")]
    uuid: Option<Uuid>,
    /// Select the array with this name, with or without its host
    #[arg(long, short = 'N', value_name = "NAME")]
    name: Option<String>,
    /// Change the array of the server with this control socket: its bitmap, size, consistency policy or, of a raid1, slots. Requests wait
    /// meanwhile
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Change the array even if members are missing that it last had; they then need a full recovery to come back
    #[arg(long, short = 'R')]
    run: bool,
    /// Allow writing to this block device; may be repeated
    #[arg(long, value_name = "DEV")]
    destroy: Vec<PathBuf>,
    /// Add or remove the write-intent bitmap
    #[arg(long, short, value_enum, group = "change")]
    bitmap: Option<BitmapArg>,
    /// Size that each bit of the bitmap covers [default: 64M, or the least that fits]
    #[arg(long, value_name = "SIZE")]
    bitmap_chunk: Option<Size>,
    /// New size used of each member, or max; must be larger than now. The new part is resynced when the array is next assembled
    /// or served
    #[arg(long, short = 'z', value_name = "SIZE", value_parser = size_or_max, group = "change")]
    size: Option<MaxSize>,
    /// New number of slots. raid1: more, with a spare for each, or fewer, if the slots are empty. raid4, raid5, raid6 and raid10:
    /// more, with a spare for each, or fewer, with --array-size; this reshapes the array. raid0: more, with an --add for each; this
    /// reshapes it
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..), group = "change")]
    raid_devices: Option<u32>,
    /// With fewer --raid-devices: how much of the array is to be kept. All beyond what it holds then is lost: make the file system on it
    /// smaller first
    #[arg(long, short = 'Z', value_name = "SIZE")]
    array_size: Option<Size>,
    /// A blank device that a raid0 takes in with --raid-devices; may be repeated
    #[arg(long, short, value_name = "DEVICE")]
    add: Vec<PathBuf>,
    /// New chunk size of a raid0, raid4, raid5, raid6 or raid10 array; this reshapes it
    #[arg(long, short, value_name = "SIZE", group = "change")]
    chunk: Option<Size>,
    /// New layout of a raid5, raid6 or raid10 array, in mdadm's names; this reshapes it. With --level 6, preserve leaves all data
    /// in place
    #[arg(long, short = 'p', value_name = "LAYOUT", group = "change")]
    layout: Option<String>,
    /// New level: 6 for a raid5 (takes a spare and reshapes it), 5 for a raid4 or a raid1 of two, and 4 or 1 for a raid5 and 5
    /// for a raid6 whose data can stay in place. A raid0 becomes 4, 5 or 10 with empty slots; a raid4, raid5, raid10 or raid1 becomes
    /// 0 without parity or further copies, which lose their superblocks
    #[arg(long, short, value_name = "LEVEL", group = "change")]
    level: Option<Level>,
    /// Continue an interrupted reshape, begun here or in Linux
    #[arg(long = "continue", group = "change")]
    resume: bool,
    /// How a raid5 array becomes consistent after a crash: ppl (partial parity logs) or resync
    #[arg(long, short = 'k', value_enum, group = "change")]
    consistency_policy: Option<PolicyArg>,
    /// With --raid-devices: leave added slots of a raid1 empty, or go down to 1; with --add: overwrite what is on the devices; with
    /// --continue: use members that are out of date, where it cannot go on without
    #[arg(long, short = 'f')]
    force: bool,
    /// Take the part that --size adds as in sync
    #[arg(long)]
    assume_clean: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl GrowArgs {
    fn change(&self) -> Result<Change> {
        let misplaced = [
            (self.assume_clean && self.size.is_none(), "--assume-clean needs --size"),
            (
                self.force && self.raid_devices.is_none() && !self.resume,
                "--force needs --raid-devices or --continue",
            ),
            (!self.add.is_empty() && self.raid_devices.is_none(), "--add needs --raid-devices"),
            (self.array_size.is_some() && self.raid_devices.is_none(), "--array-size needs --raid-devices"),
            (
                self.array_size.is_some_and(|size| size.sectors() == 0),
                "--array-size is how much of the array is kept, and keeps nothing; say how much",
            ),
            (
                self.bitmap_chunk.is_some() && self.bitmap != Some(BitmapArg::Internal),
                "--bitmap-chunk needs --bitmap internal",
            ),
        ];
        if let Some((_, why)) = misplaced.iter().find(|(is_so, _)| *is_so) {
            return Err(impossible(*why));
        }
        let is_shape = self.chunk.is_some() || self.layout.is_some() || self.level.is_some();
        let is_reshape = self.raid_devices.is_some() || is_shape;
        let changes = [
            self.bitmap.is_some(),
            self.size.is_some(),
            self.consistency_policy.is_some(),
            self.resume,
            is_reshape,
        ];
        if changes.iter().filter(|is_asked| **is_asked).count() > 1 {
            return Err(impossible(
                "one change at a time: --bitmap, --size, --consistency-policy, --continue, or --level with \
                 --raid-devices, --chunk and --layout",
            ));
        }
        if let Some(size) = self.size {
            let asked_sectors = match size {
                MaxSize::Max => None,
                MaxSize::Size(size) => Some(size.sectors()),
            };
            return Ok(Change::Size { asked_sectors, assume_clean: self.assume_clean });
        }
        if let Some(asked) = self.raid_devices {
            return Ok(Change::RaidDevices { asked, force: self.force });
        }
        match self.consistency_policy {
            Some(PolicyArg::Resync) => return Ok(Change::Policy(Policy::Resync)),
            Some(PolicyArg::Ppl) => return Ok(Change::Policy(Policy::Ppl)),
            Some(PolicyArg::Bitmap) => {
                return Err(impossible(
                    "--consistency-policy is resync or ppl here; --bitmap internal gives the array a bitmap",
                ));
            }
            Some(PolicyArg::Journal) => {
                return Err(impossible(
                    "--consistency-policy is resync or ppl here; an array has a write journal from its creation (`create --write-journal`)",
                ));
            }
            None => {}
        }
        let change = if self.bitmap == Some(BitmapArg::Internal) {
            let chunk_bytes = self.bitmap_chunk.map(bitmap_chunk_bytes).transpose().map_err(impossible)?;
            BitmapChange::Internal { chunk_bytes }
        } else {
            BitmapChange::None
        };
        Ok(Change::Bitmap(change))
    }

    fn select(&self) -> SelectArgs {
        SelectArgs {
            members: self.members.clone(),
            scan: self.scan.clone(),
            uuid: self.uuid,
            name: self.name.clone(),
            run: self.run,
            force: self.resume && self.force,
            destroy: self.destroy.clone(),
            ..SelectArgs::default()
        }
    }
}

pub(crate) fn run(args: &GrowArgs) -> Result<Exit> {
    let change = args.change()?;
    if let Some(socket) = &args.control {
        return control::run(args, socket, change);
    }
    let select = args.select();
    let found = select.find(Use::Write)?;
    let (paths, options) = (found.paths.clone(), select.options(Use::Write));
    let result = if reshape::is_meant(args, &found) {
        reshape::run(args, found, options)
    } else if args.array_size.is_some() {
        Err(impossible(
            "--array-size says how much a reshape to fewer raid devices keeps; this array holds all it held with any number",
        ))
    } else {
        grow_in_place(args, found, options, change)
    };
    result.map_err(|error| in_use(&paths, &args.destroy).unwrap_or(error))
}

/// Gives an idle array that can be assembled a name, whatever its name is now; answers how it is selected from then on, and how many
/// devices had another.
pub(super) fn rename(select: &SelectArgs, name: [u8; 32]) -> Result<(SelectArgs, usize)> {
    let any_name = SelectArgs { name: None, ..select.clone() };
    let found = any_name.find(Use::Start)?;
    // What is refused has changed nothing.
    found.clone().assemble(any_name.options(Use::Start))?;
    let renamed = give_name(&found, name, &select.destroy);
    let renamed =
        renamed.map_err(|error| in_use(&found.paths, &select.destroy).unwrap_or_else(|| problem(error)))?;
    let uuid = found.candidates.first().map(|candidate| candidate.superblock.set_uuid());
    Ok((SelectArgs { uuid, ..any_name }, renamed))
}

/// That another has a member, if so. What the superblocks of such an array say, as that a resync is due, is its own.
fn in_use(paths: &[PathBuf], destroy: &[PathBuf]) -> Option<anyhow::Error> {
    let error = Candidate::open_all(paths, destroy).err()?;
    let is_locked = matches!(error, HostError::Member { problem: MemberProblem::Locked, .. });
    is_locked.then(|| host_error(error))
}

fn grow_in_place(args: &GrowArgs, found: Found, options: Options, change: Change) -> Result<Exit> {
    // A signal comes too late for what is a few superblocks long: all members have the change, or none.
    let _stop = stop_flag()?;
    let grown = grow(found, options, change, now()?, &args.destroy).map_err(problem)?;
    tell(&grown.assembled);
    journaled::tell(&grown.assembled);
    let said = said(&grown, false);
    if args.json {
        let level = grown.assembled.assembly.geometry.level;
        let array = Array::of(&grown.assembled, level, grown.members);
        print_json(&Document { array, said: said.lines().map(str::to_owned).collect(), reshape: None })?;
    } else {
        print(&said)?;
    }
    Ok(Exit::Done)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    array: Array,
    /// What is said without `--json`.
    said: Vec<String>,
    reshape: Option<reshape::Told>,
}

/// Which array it was.
#[derive(Serialize)]
struct Array {
    schema: &'static str,
    uuid: String,
    name: String,
    level: &'static str,
    members: usize,
}

impl Array {
    fn of(assembled: &Assembled, level: Level, members: usize) -> Self {
        let assembly = &assembled.assembly;
        Self::named(assembly.uuid.to_string(), assembly.name.clone(), level.name(), members)
    }

    fn named(uuid: String, name: String, level: &'static str, members: usize) -> Self {
        Self { schema: "stripewise.grow/1", uuid, name, level, members }
    }
}

fn problem(problem: GrowProblem) -> anyhow::Error {
    match problem {
        GrowProblem::Assemble(stripewise_host::md::assemble::AssembleError::Host(error)) => host_error(error),
        GrowProblem::Assemble(error) => error.into(),
        GrowProblem::Write(error) => error.into(),
        other @ GrowProblem::Reshaping(..) => anyhow::Error::new(other),
        other @ (GrowProblem::Refused(_)
        | GrowProblem::Bitmap(_)
        | GrowProblem::Member(..)
        | GrowProblem::Size(_)
        | GrowProblem::MemberSize(..)
        | GrowProblem::Slots(_)
        | GrowProblem::Level(_)
        | GrowProblem::Reshape(_)
        | GrowProblem::MemberReshape(..)) => impossible(other.to_string()),
    }
}

/// What is said of a change, of an array that is open again or one that is not.
fn said(grown: &Grown, is_open: bool) -> String {
    let count = grown.members;
    match grown.outcome {
        Outcome::Finished => {
            format!("{count} members have now what a change that was cut off gave to some\n")
        }
        Outcome::Bitmap(Some(place)) => {
            let chunk = place.chunk_bytes >> 10;
            format!("{count} members have an internal bitmap now, of {chunk}K a bit\n")
        }
        Outcome::Bitmap(None) => format!("{count} members have no bitmap any more\n"),
        Outcome::Size { before_sectors, now_sectors, is_resync_due, bitmap_chunk_bytes } => {
            let (before, now) = (before_sectors / 2, now_sectors / 2);
            let chunk = bitmap_chunk_bytes.map_or_else(String::new, |chunk| {
                format!("a bit of the bitmap stands for {}K now, so that it fits\n", chunk >> 10)
            });
            let due = match (is_resync_due, is_open) {
                (false, _) => "",
                (true, false) => "what is new is resynced when the array is next assembled or served\n",
                (true, true) => "what is new is resynced now\n",
            };
            format!("{now}K of each of {count} members are used now instead of {before}K\n{chunk}{due}")
        }
        Outcome::RaidDevices { before, now, filled, empty } => {
            let mut text = format!("the array now has {now} raid devices instead of {before}\n");
            if filled > 0 {
                text += if is_open {
                    "spares are recovered now\n"
                } else {
                    "spares are recovered when it is next assembled or served\n"
                };
            }
            if empty > 0 {
                text += "slots are empty; `stripewise add` fills them\n";
            }
            text
        }
        Outcome::Policy(Policy::Ppl) => format!("{count} members have a partial parity log now\n"),
        Outcome::Policy(Policy::Resync) if grown.assembled.has_given_up_journal => {
            format!("{count} members have no write journal any more\n")
        }
        Outcome::Policy(Policy::Resync) => format!("{count} members have no partial parity log any more\n"),
    }
}
