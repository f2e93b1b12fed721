//! `stripewise grow --level`, `--raid-devices`, `--chunk`, `--layout` and `--continue`: all data of an array move, or it has another
//! level where they are.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use stripewise_engine::assembly::{Options, SlotState};
use stripewise_format::level::{Layout, Level};
use stripewise_format::time::Timestamp;
use stripewise_host::md::assemble::Found;
use stripewise_host::md::grow::{Asked, ReshapeChange, Reshaped, Watch, reshape, resume};

use super::super::select::{impossible, tell};
use super::super::signals::{is_watched, stop_flag};
use super::super::size::Size;
use super::{Array, Document, GrowArgs, now, problem};
use crate::exit::Exit;
use crate::output::{print, print_json};
use crate::progress::clock;

/// What `--json` says of a reshape: each value before and after.
#[derive(Serialize)]
pub(super) struct Told {
    level: [&'static str; 2],
    raid_devices: [u32; 2],
    chunk_bytes: [u64; 2],
    layout: [Option<String>; 2],
    array_bytes: [u64; 2],
    done_bytes: u64,
    total_bytes: u64,
    percent: f64,
    is_done: bool,
    is_recovery_due: bool,
    is_resync_due: bool,
    empty_slots: u32,
    used_bytes: [u64; 2],
    freed: Vec<String>,
    dropped: Vec<String>,
}

/// Whether that is what is asked for. Of a level that does not reshape `--raid-devices` is something else.
pub(super) fn is_meant(args: &GrowArgs, found: &Found) -> bool {
    let level = found.candidates.first().map(|candidate| candidate.superblock.level());
    let moves =
        matches!(level, Some(Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10));
    let is_said = args.resume
        || !args.add.is_empty()
        || args.level.is_some()
        || args.chunk.is_some()
        || args.layout.is_some();
    is_said || (args.raid_devices.is_some() && moves)
}

pub(super) fn run(args: &GrowArgs, found: Found, options: Options) -> Result<Exit> {
    let asked = asked(args)?;
    let stop = stop_flag()?;
    let mut progress = Progress::default();
    // A clock that stands before 1970 is an error at the start, and then stands still.
    let mut time = now()?;
    let mut clock = || -> Timestamp {
        time = now().unwrap_or(time);
        time
    };
    let mut shown = |done, of| {
        progress.show(done, of);
        !stop.load(Ordering::Relaxed)
    };
    let watch = Watch { clock: &mut clock, progress: &mut shown };
    let result = match &asked {
        None => resume(found, options, &args.destroy, watch),
        Some(asked) => reshape(found, options, asked, &args.destroy, watch),
    };
    progress.finish();
    let reshaped = result.map_err(problem)?;
    tell(&reshaped.assembled);
    let said = said(&reshaped);
    if args.json {
        let assembly = &reshaped.assembled.assembly;
        let members = assembly.slots.iter().filter(|slot| slot.candidate().is_some()).count();
        let level = reshaped.change.level.1;
        let array = Array::of(&reshaped.assembled, level, members + assembly.spares.len());
        let said = said.lines().map(str::to_owned).collect();
        print_json(&Document { array, said, reshape: Some(told(&reshaped)) })?;
    } else {
        print(&said)?;
    }
    Ok(if reshaped.is_done { Exit::Done } else { Exit::Interrupted })
}

/// None to go on with what began.
fn asked(args: &GrowArgs) -> Result<Option<Asked>> {
    if args.resume {
        return Ok(None);
    }
    if args.force && args.add.is_empty() {
        return Err(impossible(
            "--force leaves slots of a raid1 array empty, or overwrites what is on the devices of --add; a reshape needs a spare for each \
             slot that is added",
        ));
    }
    let chunk_sectors = args.chunk.map(|chunk| u32::try_from(chunk.sectors())).transpose();
    Ok(Some(Asked {
        level: args.level,
        raid_disks: args.raid_devices,
        array_sectors: args.array_size.map(Size::sectors),
        chunk_sectors: chunk_sectors.map_err(|_| impossible("the chunk is at most 1G"))?,
        layout: args.layout.clone(),
        add: args.add.clone(),
        force: args.force,
    }))
}

fn percent(reshaped: &Reshaped) -> f64 {
    let total = reshaped.change.size_sectors.1.max(1);
    (reshaped.done_sectors as f64 / total as f64 * 1000.0).floor() / 10.0
}

fn layouts(reshaped: &Reshaped) -> [Option<String>; 2] {
    let name = |level: Level, number: u32| {
        let layout = Layout::from_number(level, number as i32);
        let has_layouts = matches!(level, Level::Raid5 | Level::Raid6 | Level::Raid10);
        layout.filter(|_| has_layouts).map(|layout| layout.to_string())
    };
    let ReshapeChange { level, layout, .. } = &reshaped.change;
    [name(level.0, layout.0), name(level.1, layout.1)]
}

/// What is another than before.
fn changes(reshaped: &Reshaped) -> Vec<String> {
    let change = &reshaped.change;
    let mut changes = Vec::new();
    if change.level.0 != change.level.1 {
        changes.push(format!("the level {} instead of {}", change.level.1, change.level.0));
    }
    if change.raid_disks.0 != change.raid_disks.1 {
        changes.push(format!("{} raid devices instead of {}", change.raid_disks.1, change.raid_disks.0));
    }
    let (before, now) = (change.chunk_sectors.0 / 2, change.chunk_sectors.1 / 2);
    if before == 0 && now > 0 {
        changes.push(format!("a chunk of {now}K"));
    } else if before != now && now > 0 {
        changes.push(format!("a chunk of {now}K instead of {before}K"));
    }
    match layouts(reshaped) {
        [Some(before), Some(now)] if before != now => {
            changes.push(format!("the layout {now} instead of {before}"));
        }
        [None, Some(now)] => changes.push(format!("the layout {now}")),
        _ => {}
    }
    changes
}

fn said(reshaped: &Reshaped) -> String {
    let change = &reshaped.change;
    let changes = changes(reshaped);
    if !reshaped.is_done {
        return format!(
            "interrupted: {:.1} % of the reshape is done; `stripewise grow --continue` goes on, and so does Linux (`mdadm --assemble`)\n",
            percent(reshaped)
        );
    }
    let mut text = if changes.is_empty() && !reshaped.dropped.is_empty() {
        String::new()
    } else if changes.is_empty() {
        "the change had ended, and all members say so now\n".to_owned()
    } else {
        format!("the array now has {}\n", changes.join("; "))
    };
    let (before, now) = change.array_sectors;
    if before > now {
        let _ = writeln!(text, "it now holds {}K instead of {}K", now / 2, before / 2);
    }
    if before < now {
        let (before, now) = (before / 2, now / 2);
        let new = if change.is_new_resynced() {
            "resynced when the array is next assembled or served, and reads as anything until it is written"
        } else {
            "zeroes"
        };
        let _ = writeln!(text, "it now holds {now}K instead of {before}K; what is new is {new}");
    }
    let (before, now) = change.size_sectors;
    if before > now {
        let _ = writeln!(
            text,
            "{}K of each member are used now instead of {}K, since data had to move and there was no room",
            now / 2,
            before / 2
        );
    }
    for path in &reshaped.freed {
        let _ = writeln!(text, "{}: is a spare now", path.display());
    }
    if reshaped.is_recovery_due && change.raid_disks.1 < change.raid_disks.0 {
        text += "a spare takes the empty slot when the array is next assembled or served\n";
    } else if reshaped.is_recovery_due {
        text += "a spare is recovered for what was added when the array is next assembled or served\n";
    }
    if reshaped.empty_slots > 0 {
        let count = reshaped.empty_slots;
        let slots = if count == 1 { "slot is empty" } else { "slots are empty" };
        let them = if count == 1 { "it" } else { "them" };
        let _ = writeln!(text, "{count} {slots}; `stripewise add` fills {them}");
    }
    let last = reshaped.assembled.assembly.slots.last();
    if change.level == (Level::Raid4, Level::Raid4) && last == Some(&SlotState::Missing) {
        text += "it has no parity: `stripewise grow --level 0` makes a raid0 of it, and `stripewise add` gives it parity\n";
    }
    for path in &reshaped.dropped {
        let _ = writeln!(text, "{}: is no member any more, and has no superblock", path.display());
    }
    if reshaped.is_resync_due && !change.is_new_resynced() {
        text += "a resync is due, as it was before; it is made when the array is next assembled or served\n";
    }
    text
}

fn paths(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}

fn told(reshaped: &Reshaped) -> Told {
    let change = &reshaped.change;
    let bytes = |sectors: u32| u64::from(sectors) * 512;
    Told {
        level: [change.level.0.name(), change.level.1.name()],
        raid_devices: [change.raid_disks.0, change.raid_disks.1],
        chunk_bytes: [bytes(change.chunk_sectors.0), bytes(change.chunk_sectors.1)],
        layout: layouts(reshaped),
        array_bytes: [change.array_sectors.0 * 512, change.array_sectors.1 * 512],
        done_bytes: reshaped.done_sectors * 512,
        total_bytes: change.size_sectors.1 * 512,
        percent: percent(reshaped),
        is_done: reshaped.is_done,
        is_recovery_due: reshaped.is_recovery_due,
        is_resync_due: reshaped.is_resync_due,
        empty_slots: reshaped.empty_slots,
        used_bytes: [change.size_sectors.0 * 512, change.size_sectors.1 * 512],
        freed: paths(&reshaped.freed),
        dropped: paths(&reshaped.dropped),
    }
}

/// How far the reshape is, on a terminal.
#[derive(Default)]
struct Progress {
    bar: Option<(ProgressBar, Instant, u64)>,
}

impl Progress {
    fn show(&mut self, done: u64, of: u64) {
        if !is_watched() {
            return;
        }
        let (bar, began, from) = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("reshape {bar:28} {percent}%  {msg}");
            let bar = ProgressBar::new(of);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            (bar, Instant::now(), done)
        });
        let seconds = began.elapsed().as_secs_f64();
        let speed_kib = if seconds > 0.0 { ((done - *from) as f64 / 2.0 / seconds) as u64 } else { 0 };
        let left_kib = of.saturating_sub(done) / 2;
        let eta = left_kib.checked_div(speed_kib).map_or_else(String::new, clock);
        bar.set_position(done);
        bar.set_message(format!("{speed_kib} KiB/s  ETA {eta}"));
    }

    fn finish(&mut self) {
        if let Some((bar, ..)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
