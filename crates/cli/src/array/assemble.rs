//! `stripewise assemble`: puts an array together, does what is due and leaves it clean.
//!
//! Due are: parity where partial parity logs say that it was being written, what a write journal has, members that come back by the bitmap,
//! recovery onto spares, replacements, and the resync after a crash.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use stripewise_engine::array::sync::{LostRanges, SpeedLimits, SyncStatus};
use stripewise_engine::io::{ArrayEvent, SyncAction};
use stripewise_host::RunReport;
use stripewise_host::md::assemble::Assembled;

use super::describe::{Description, describe};
use super::grow::rename;
use super::name::whole_name;
use super::select::{SelectArgs, Use, tell};
use super::signals::{is_watched, stop_flag};
use crate::exit::Exit;
use crate::output::{print, print_json};
use crate::progress::clock;

const SCHEMA: &str = "stripewise.assemble/1";

/// `stripewise assemble`.
#[derive(Debug, Args)]
pub(crate) struct AssembleArgs {
    #[command(flatten)]
    select: SelectArgs,
    /// First give the array the name that --name says (mdadm --assemble --update=name)
    #[arg(long, value_name = "WHAT", requires = "name", conflicts_with_all = ["readonly", "overlay"])]
    update: Option<Update>,
    /// Host's name to put before the new one, or `<none>` [default: this machine's]
    #[arg(long, value_name = "HOST", requires = "update")]
    homehost: Option<String>,
    /// Do not run resync and recovery; `stripewise serve` or Linux does so when it next has the array.
    #[arg(long)]
    no_sync: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What of the superblocks is changed before the array is assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Update {
    /// The array's name.
    Name,
}

#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    description: Description,
    message: String,
    forced: Vec<ForcedMember>,
    forced_clean: bool,
    returned_slots: Vec<u16>,
    logs: Option<Logs>,
    journal: Option<JournalDocument>,
    synced: Vec<Synced>,
    interrupted: bool,
    readonly: bool,
}

#[derive(Serialize)]
struct ForcedMember {
    path: String,
    slot: u16,
    events: u64,
}

/// What the partial parity logs were good for.
#[derive(Serialize)]
struct Logs {
    entries: u64,
    unusable: u64,
    damaged: u64,
}

/// What the write journal was good for.
#[derive(Serialize)]
struct JournalDocument {
    rows: u64,
    data_only_rows: u64,
    without_parity: u64,
    given_up: bool,
}

/// A resync or recovery that was carried out.
#[derive(Serialize)]
struct Synced {
    action: &'static str,
    result: &'static str,
}

pub(crate) fn run(args: &AssembleArgs) -> Result<Exit> {
    // A signal does not come between the superblocks of a rename.
    let stop = stop_flag()?;
    let select = match args.update {
        Some(Update::Name) => &renamed(args)?,
        None => &args.select,
    };
    let mut assembled = select.assemble(Use::Start)?;
    if !select.readonly {
        assembled.take_back_named();
    }
    tell(&assembled);
    let mut array = select.open(&mut assembled, Use::Start, |config| {
        config.stop = Arc::clone(&stop);
        // Nothing else goes on that it would have to spare.
        config.volume.sync.speed = SpeedLimits { max_kib: u32::MAX, ..SpeedLimits::DEFAULT };
        config.volume.sync.start = !args.no_sync;
    })?;
    let message = message(&assembled);
    if !args.json {
        print(&format!("stripewise: {message}\n"))?;
    }
    let mut progress = Progress::default();
    let mut report = None;
    if !select.readonly {
        let run = array.sync(|status| progress.show(status));
        progress.finish();
        // How far it came is recorded whatever ended it; the first trouble is the one to tell.
        let closed = array.close();
        report = Some(run?);
        closed?;
    }
    let synced = report.as_ref().map_or_else(Vec::new, synced);
    let interrupted = report.as_ref().is_some_and(|report| report.stopped);
    let lost = report.as_ref().filter(|report| left_out(report)).map(|_| array.status().lost);
    drop(array);
    if args.json {
        print_json(&document(select, assembled, message, synced, interrupted)?)?;
    } else {
        for done in &synced {
            say!("stripewise: {} is {}", done.action, done.result);
        }
    }
    let is_lost = lost.is_some_and(|lost| tell_lost(&lost));
    match report.as_ref().and_then(trouble) {
        Some(trouble) => Err(trouble),
        None if interrupted => Ok(Exit::Interrupted),
        None if is_lost => Ok(Exit::Failed),
        None => Ok(Exit::Done),
    }
}

/// Gives the array its new name, and says of how many devices; answers how it is selected now.
fn renamed(args: &AssembleArgs) -> Result<SelectArgs> {
    let name = whole_name(args.homehost.as_deref(), args.select.name.as_deref().unwrap_or_default())?;
    let (select, count) = rename(&args.select, name)?;
    say!("stripewise: {count} devices have the new name");
    Ok(select)
}

/// The array as it is left.
fn document(
    select: &SelectArgs,
    assembled: Assembled,
    message: String,
    synced: Vec<Synced>,
    interrupted: bool,
) -> Result<Document> {
    let forced = assembled.assembly.forced.iter().map(|forced| ForcedMember {
        path: assembled.found.paths[forced.candidate].display().to_string(),
        slot: forced.slot.0,
        events: forced.events,
    });
    let (forced, forced_clean) = (forced.collect(), assembled.assembly.forced_clean);
    let returned_slots = assembled.assembly.returned.iter().map(|slot| slot.0).collect();
    let logs = assembled.logs.map(|logs| Logs {
        entries: logs.entries,
        unusable: logs.unusable,
        damaged: logs.damaged,
    });
    let replayed = assembled.replayed.unwrap_or_default();
    let is_followed = assembled.replayed.is_some() || assembled.has_given_up_journal;
    let journal = is_followed.then_some(JournalDocument {
        rows: replayed.rows,
        data_only_rows: replayed.data_only_rows,
        without_parity: replayed.without_parity,
        given_up: assembled.has_given_up_journal,
    });
    let description = if select.readonly {
        describe(SCHEMA, &assembled, &[])
    } else {
        // An overlay in use is found busy.
        drop(assembled);
        describe(SCHEMA, &select.assemble(Use::Look)?, &[])
    };
    let readonly = select.readonly;
    Ok(Document {
        description,
        message,
        forced,
        forced_clean,
        returned_slots,
        logs,
        journal,
        synced,
        interrupted,
        readonly,
    })
}

const fn word(action: SyncAction) -> &'static str {
    match action {
        SyncAction::Recover => "recovery",
        SyncAction::Check => "check",
        SyncAction::Repair | SyncAction::RepairLocated => "repair",
        _ => "resync",
    }
}

fn synced(report: &RunReport) -> Vec<Synced> {
    let one = |event: ArrayEvent| match event {
        ArrayEvent::SyncDone(action) => Some(Synced { action: word(action), result: "done" }),
        ArrayEvent::SyncFailed { action, .. } => Some(Synced { action: word(action), result: "given up" }),
        _ => None,
    };
    let mut synced: Vec<Synced> = report.events.iter().filter_map(|timed| one(timed.event)).collect();
    if report.stopped
        && let Some(action) = report.events.iter().rev().find_map(|timed| match timed.event {
            ArrayEvent::SyncStarted(action) => Some(action),
            _ => None,
        })
        && synced.last().is_none_or(|last| last.action != word(action))
    {
        synced
            .push(Synced { action: word(action), result: "interrupted; `stripewise assemble` continues it" });
    }
    synced
}

/// Says what no members have, by their bad-block lists, and answers whether there is any.
pub(super) fn tell_lost(lost: &LostRanges) -> bool {
    for range in &lost.ranges {
        let (start, end) = (range.start * 512, range.end() * 512);
        say!("stripewise: array bytes {start} to {end} are lost: the members list them as bad");
    }
    if lost.is_cut {
        say!("stripewise: further ranges are lost, too");
    }
    !lost.ranges.is_empty()
}

/// Whether a recovery came to its end, which may have left out what no member gave.
pub(super) fn left_out(report: &RunReport) -> bool {
    report.events.iter().any(|timed| timed.event == ArrayEvent::SyncDone(SyncAction::Recover))
}

/// Why what was due could not be done to its end.
pub(super) fn trouble(report: &RunReport) -> Option<anyhow::Error> {
    let failed: Vec<String> = report
        .events
        .iter()
        .filter_map(|timed| match timed.event {
            ArrayEvent::MemberFailed { slot } => Some(format!("the member of slot {slot} failed")),
            ArrayEvent::LastCopyKept { slot } => Some(format!(
                "the member of slot {slot} failed, but is the last that has some of the array's data"
            )),
            ArrayEvent::ReplacementFailed { slot } => Some(format!("the replacement of slot {slot} failed")),
            ArrayEvent::JournalFailed => Some("the write journal failed".to_owned()),
            ArrayEvent::SyncFailed { action, range } => Some(format!(
                "{} was given up: sectors {} to {} of the members cannot be recovered",
                word(action),
                range.start,
                range.end()
            )),
            _ => None,
        })
        .collect();
    (!failed.is_empty()).then(|| anyhow!("{}", failed.join("; ")))
}

/// How far resync or recovery is, on a terminal.
#[derive(Default)]
pub(super) struct Progress {
    bar: Option<(SyncAction, ProgressBar)>,
}

impl Progress {
    pub(super) fn show(&mut self, status: &SyncStatus) {
        if !is_watched() {
            return;
        }
        if self.bar.as_ref().is_none_or(|(action, _)| *action != status.action) {
            self.finish();
            let bar = ProgressBar::new(status.total_sectors).with_prefix(word(status.action));
            let style = ProgressStyle::with_template("{prefix} {bar:28} {percent}%  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.bar = Some((status.action, bar));
        }
        let Some((_, bar)) = &self.bar else { return };
        let left_kib = status.total_sectors.saturating_sub(status.done_sectors) / 2;
        let eta = left_kib.checked_div(status.speed_kib).map_or_else(String::new, clock);
        bar.set_position(status.done_sectors);
        bar.set_message(format!("{} KiB/s  ETA {eta}", status.speed_kib));
    }

    pub(super) fn finish(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
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
    let journal = if assembly.journal_device().is_some() { " and 1 journal" } else { "" };
    format!("{name} has been assembled with {in_sync} drive{plural}{out_of}{others}{journal}.")
}
