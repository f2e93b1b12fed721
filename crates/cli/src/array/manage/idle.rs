//! Managing an array that nobody serves: it is opened, the command is carried out, what is due runs to its end, and the
//! array is left clean.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use stripewise_engine::array::members::Standing;
use stripewise_engine::array::sync::SpeedLimits;
use stripewise_engine::io::{AdminReply, SyncAction};
use stripewise_engine::units::Slot;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::Features;
use stripewise_host::md::assemble::{AssembleError, Assembled};
use stripewise_host::md::paths::is_same;
use stripewise_host::{Array, Manage, ManageError, Managed, RunReport};

use super::found::{Findings, Outcome};

use super::{DEGRADED, half_done};
use crate::array::assemble::{Progress, left_out, tell_lost, trouble};
use crate::array::select::{SelectArgs, Use, impossible, tell};
use crate::array::signals::stop_flag;
use crate::exit::Exit;
use crate::output::{print, print_json};

/// An idle array, opened.
struct Opened {
    array: Array,
    assembled: Assembled,
    stop: Arc<AtomicBool>,
    /// Parity may not be right yet, and a member's data cannot be worked out by it.
    is_parity_due: bool,
}

impl Opened {
    /// Opens the array. It begins nothing by itself.
    fn new(select: &SelectArgs) -> Result<Self> {
        let mut assembled = select.assemble(Use::Write)?;
        tell(&assembled);
        let stop = stop_flag()?;
        let mut is_parity_due = false;
        let array = select.open(&mut assembled, Use::Write, |config| {
            let has_parity = config.volume.geometry.level.parity_count() > 0;
            is_parity_due = has_parity && config.volume.resync_from.is_some();
            config.stop = Arc::clone(&stop);
            config.volume.sync.speed = SpeedLimits { max_kib: u32::MAX, ..SpeedLimits::DEFAULT };
            config.volume.sync.start = false;
        })?;
        Ok(Self { array, assembled, stop, is_parity_due })
    }

    /// Carries out commands one after the other. If one is refused, those before it stand.
    fn carry_out(&mut self, commands: &[Manage]) -> Result<()> {
        for (index, command) in commands.iter().enumerate() {
            match self.one(command) {
                Ok(done) => print(&format!("stripewise: {done}\n"))?,
                Err(error) => {
                    if index == 0 {
                        return Err(error);
                    }
                    self.array.close()?;
                    return Err(half_done(&error, commands.len() - index));
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, command: &Manage) -> Result<String> {
        let out = |path: &PathBuf| {
            let Assembled { found, assembly, .. } = &self.assembled;
            assembly.stale.iter().any(|stale| is_same(&found.paths[stale.candidate], path))
        };
        match command {
            Manage::Fail(path) if out(path) => {
                return Err(impossible(format!("{}: is already out of the array", path.display())));
            }
            Manage::Remove(path) if out(path) => {
                return Ok(format!("{} is already out of the array", path.display()));
            }
            // It was interrupted, and goes on where that left it.
            Manage::Replace { member, with } if self.is_being_replaced(member, with.as_deref()) => {
                return Ok(format!("{} is already being replaced", member.display()));
            }
            _ => {}
        }
        self.array.manage(command).map(|done: Managed| done.to_string()).map_err(refusal)
    }

    /// Whether a member has a replacement already, and that one if one is named.
    fn is_being_replaced(&self, member: &Path, with: Option<&Path>) -> bool {
        let members = self.array.status().members;
        let is_at = |path: Option<&PathBuf>, wanted: &Path| path.is_some_and(|path| is_same(path, wanted));
        let slot = members.iter().find_map(|known| match known.standing {
            Standing::InSlot(slot) if is_at(known.path.as_ref(), member) => Some(slot),
            _ => None,
        });
        let by = |slot| members.iter().find(|known| known.standing == Standing::Replacement(slot));
        slot.and_then(by).is_some_and(|by| with.is_none_or(|with| is_at(by.path.as_ref(), with)))
    }

    /// Asks for an action, or with Idle for what is due, and lets it run to its end.
    fn run(&mut self, action: SyncAction) -> Result<RunReport> {
        self.array.manage(&Manage::Sync(action)).map_err(refusal)?;
        let mut progress = Progress::default();
        let run = self.array.sync(|status| progress.show(status));
        progress.finish();
        Ok(run?)
    }

    /// Lets what is due run to its end, and leaves the array clean.
    fn finish(mut self) -> Result<Exit> {
        let run = self.run(SyncAction::Idle);
        let status = self.array.status();
        let is_degraded = !status.failed.is_empty();
        // How far it came is recorded whatever ended it; the first trouble is the one to tell.
        let closed = self.array.close();
        let report = run?;
        closed?;
        if let Some(trouble) = trouble(&report) {
            return Err(trouble);
        }
        if self.stop.load(Ordering::Relaxed) {
            say!("stripewise: interrupted; progress is recorded, `stripewise assemble` continues from there");
            return Ok(Exit::Interrupted);
        }
        if is_degraded {
            say!("stripewise: the array is still degraded");
        }
        let is_lost = tell_lost(&status.lost);
        Ok(if is_lost && left_out(&report) { Exit::Failed } else { Exit::Done })
    }
}

fn refusal(error: ManageError) -> anyhow::Error {
    match error {
        ManageError::Array(AdminReply::Busy) | ManageError::Member(_, AdminReply::Busy) => {
            impossible("a resync or recovery is due first; `stripewise assemble` does it")
        }
        ManageError::Host(error) => crate::array::host_error(error),
        error => impossible(error.to_string()),
    }
}

/// Carries out what is said of members.
pub(super) fn manage(select: &SelectArgs, commands: &[Manage]) -> Result<Exit> {
    let mut opened = Opened::new(select)?;
    if opened.is_parity_due && commands.iter().any(|command| matches!(command, Manage::Fail(_))) {
        say!(
            "stripewise: a resync is due, without which no data of the member could be worked out: it is done first"
        );
        let run = opened.run(SyncAction::Idle);
        let is_stopped = opened.stop.load(Ordering::Relaxed);
        match run.map(|report| trouble(&report)) {
            Ok(None) if !is_stopped => {}
            // What it came to is recorded.
            Ok(None) => return opened.finish(),
            Ok(Some(error)) | Err(error) => {
                opened.array.close()?;
                return Err(error);
            }
        }
    }
    opened.carry_out(commands)?;
    if commands.iter().any(|command| matches!(command, Manage::Replace { .. })) {
        return opened.finish();
    }
    opened.array.close()?;
    Ok(Exit::Done)
}

/// Replaces a member, by a spare that may be named. One that has no superblock is a spare of nothing.
pub(super) fn replace(select: &SelectArgs, command: Manage, with: Option<&Path>) -> Result<Exit> {
    manage(select, &[command]).map_err(|error| match error.downcast_ref() {
        Some(AssembleError::NoSuperblock(path) | AssembleError::Holds(path, _))
            if with.is_some_and(|with| is_same(with, path)) =>
        {
            refusal(ManageError::NoSuchSpare(path.clone()))
        }
        _ => error,
    })
}

/// Adds devices, which may be among those that were named as the array's.
pub(super) fn add(select: &SelectArgs, commands: &[Manage], devices: &[PathBuf]) -> Result<Exit> {
    if let Some(named) = select.members.iter().find(|member| devices.iter().any(|d| is_same(d, member))) {
        return Err(impossible(format!(
            "{}: is to be added and is named after --array, too; name only the array's other members there",
            named.display()
        )));
    }
    let mut opened = Opened::new(select)?;
    opened.carry_out(commands)?;
    opened.finish()
}

/// Checks or repairs, after what is due: members that are not recovered have nothing to compare.
pub(super) fn sync(select: &SelectArgs, action: SyncAction, json: bool) -> Result<Exit> {
    let mut opened = Opened::new(select)?;
    let run = opened.run(SyncAction::Idle).and_then(|due| match trouble(&due) {
        None if !opened.stop.load(Ordering::Relaxed) => opened.run(action),
        _ => Ok(due),
    });
    let status = opened.array.status();
    let closed = opened.array.close();
    let report = run?;
    closed?;
    if let Some(trouble) = trouble(&report) {
        return Err(trouble);
    }
    if !status.failed.is_empty() {
        say!("stripewise: {DEGRADED}");
    }
    let interrupted = opened.stop.load(Ordering::Relaxed);
    let Some(found) = &status.sync else { return Err(impossible("the level has no redundancy to check")) };
    let outcome = Outcome::new(action, Findings::of(found), interrupted);
    if json {
        print_json(&outcome)?;
    } else {
        let path_of = |slot: u16| {
            let holds = |standing| standing == Standing::InSlot(Slot(slot));
            let member = status.members.iter().find(|member| holds(member.standing))?;
            Some(member.path.as_ref()?.display().to_string())
        };
        print(&outcome.to_text(path_of))?;
    }
    let is_left = outcome.is_left(action);
    let is_unread = select.readonly && (tell_unread(&report) | tell_listed(&opened.assembled));
    let is_lost = tell_lost(&status.lost);
    Ok(match (is_left, is_unread) {
        _ if interrupted => Exit::Interrupted,
        // It cannot be compared either, and is the worse news.
        _ if is_lost => Exit::Failed,
        (true, _) => Exit::Mismatches,
        (false, true) => Exit::Failed,
        (false, false) => Exit::Done,
    })
}

/// Says which members list bad blocks, and answers whether any does. Other checks write them again.
fn tell_listed(assembled: &Assembled) -> bool {
    let in_slots = assembled.assembly.slots.iter().filter_map(|slot| slot.candidate());
    let lists_bad = |candidate: &usize| match &assembled.found.candidates[*candidate].superblock {
        Superblock::V1(superblock) => superblock.features.contains(Features::BAD_BLOCKS),
        Superblock::V0(_) => false,
    };
    let listing: Vec<usize> = in_slots.filter(lists_bad).collect();
    for candidate in &listing {
        let path = assembled.found.paths[*candidate].display();
        say!("stripewise: {path} lists bad blocks; with --readonly they are neither rewritten nor compared");
    }
    !listing.is_empty()
}

/// Says that members did not give what was asked for, and answers whether it is so. Other checks write it again.
fn tell_unread(report: &RunReport) -> bool {
    let errors: u64 = report.members.iter().map(|member| member.errors).sum();
    if errors > 0 {
        say!(
            "stripewise: {errors} reads failed; with --readonly these places are neither rewritten nor compared"
        );
    }
    errors > 0
}
