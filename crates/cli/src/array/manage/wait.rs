//! `check --wait` and `repair --wait`: the work of a server, until it has ended.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::Deserialize;
use stripewise_engine::array::sync::{LostRanges, SyncStatus};
use stripewise_engine::io::SyncAction;
use stripewise_engine::units::SectorRange;

use super::DEGRADED;
use super::checks::{Ending, LastCheck};
use super::found::{Findings, Outcome};
use super::served::{begin, detail};
use crate::array::assemble::{Progress, tell_lost};
use crate::array::describe::FAILED;
use crate::array::select::impossible;
use crate::array::signals::stop_flag;
use crate::exit::Exit;
use crate::output::{print, print_json};

/// How often the server is asked.
const EVERY: Duration = Duration::from_millis(500);
/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// How often the server may be found at rest before what was asked for is known not to have begun: it tells what happened
/// a moment after it did.
const RESTS_MAX: u32 = 4;

/// What a server says of its array, as far as a check goes.
#[derive(Debug, Deserialize)]
struct Seen {
    state: Vec<String>,
    sync: Option<Work>,
    last_check: Option<LastCheck>,
    readonly: bool,
    devices: Vec<Device>,
    lost: Vec<Lost>,
    lost_is_cut: bool,
}

#[derive(Debug, Deserialize)]
struct Work {
    action: String,
    done_bytes: u64,
    total_bytes: u64,
    speed_kib_per_second: u64,
    #[serde(flatten)]
    findings: Findings,
}

#[derive(Debug, Deserialize)]
struct Device {
    slot: Option<u16>,
    path: Option<String>,
    replacement: bool,
}

#[derive(Debug, Deserialize)]
struct Lost {
    start_bytes: u64,
    length_bytes: u64,
}

impl Seen {
    fn is(&self, state: &str) -> bool {
        self.state.iter().any(|known| known == state)
    }

    fn path_of(&self, slot: u16) -> Option<String> {
        let holds = |device: &&Device| device.slot == Some(slot) && !device.replacement;
        self.devices.iter().find(holds)?.path.clone()
    }

    /// What no members have.
    fn lost_ranges(&self) -> LostRanges {
        let range = |lost: &Lost| SectorRange::new(lost.start_bytes / 512, lost.length_bytes / 512);
        LostRanges { ranges: self.lost.iter().map(range).collect(), is_cut: self.lost_is_cut }
    }
}

fn look(socket: &Path) -> Result<Seen> {
    let (said, socket) = (detail(socket)?, socket.display());
    if said.get("last_check").is_none() {
        return Err(impossible(format!(
            "{socket}: the server does not say how a check ends, as it is an older version of stripewise or serves no array; start \
             it anew, or leave --wait out"
        )));
    }
    serde_json::from_value(said).with_context(|| {
        format!("{socket}: the server's answer is not understood; it is of another version of stripewise")
    })
}

/// Has a server check or repair its array, waits for the end, and says what was found.
pub(super) fn sync(socket: &Path, action: SyncAction, json: bool) -> Result<Exit> {
    let name = action.word();
    let stop = stop_flag()?;
    let now = look(socket)?;
    if now.readonly {
        return Err(impossible(format!(
            "{}: the array is served read-only, and its server does not say what could not be read to be compared; run \
             `stripewise check --readonly` on the members, which the server allows",
            socket.display()
        )));
    }
    let before = now.last_check.map_or(0, |last| last.number);
    begin(socket, action)?;
    let mut progress = Progress::default();
    let waited = wait(socket, action, before + 1, &mut progress, &stop);
    progress.finish();
    let waited = waited.with_context(|| format!("the {name} was waited for, and its end is not known"))?;
    let Some((seen, ending)) = waited else {
        say!(
            "stripewise: interrupted; the {name} goes on, and `stripewise detail --watch --control {}` shows it",
            socket.display()
        );
        return Ok(Exit::Interrupted);
    };
    if seen.is("degraded") {
        say!("stripewise: {DEGRADED}");
    }
    let is_lost = tell_lost(&seen.lost_ranges());
    let has_failed = seen.is(FAILED) || seen.is("broken");
    match ending {
        _ if has_failed => say!("stripewise: more of the array is lost than it survives"),
        Ending::Done => {}
        Ending::Interrupted => {
            say!(
                "stripewise: the server interrupted the {name}: a member failed or joined, or it was told to"
            );
        }
        Ending::GivenUp => {
            say!(
                "stripewise: the server gave the {name} up; its messages say which sectors cannot be recovered"
            );
        }
    }
    let path_of = |slot| seen.path_of(slot);
    let work = seen.sync.as_ref().ok_or_else(|| impossible("the level has no redundancy to check"))?;
    let outcome = Outcome::new(action, work.findings.clone(), ending != Ending::Done);
    if json {
        print_json(&outcome)?;
    } else {
        print(&outcome.to_text(path_of))?;
    }
    Ok(match ending {
        Ending::Done if has_failed || is_lost => Exit::Failed,
        Ending::Done if outcome.is_left(action) => Exit::Mismatches,
        Ending::Done => Exit::Done,
        Ending::Interrupted | Ending::GivenUp => Exit::Failed,
    })
}

/// Asks a server until its check of this number has ended; answers nothing after Ctrl-C.
fn wait(
    socket: &Path,
    action: SyncAction,
    number: u64,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<Option<(Seen, Ending)>> {
    let mut rests = 0;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let seen = look(socket)?;
        match seen.last_check {
            Some(last) if last.number > number => {
                bail!("{}: another check or repair has begun since; wait for its end", socket.display());
            }
            Some(LastCheck { number: last, result: Some(ending) }) if last == number => {
                return Ok(Some((seen, ending)));
            }
            _ => {}
        }
        let work = seen.sync.as_ref().ok_or_else(|| anyhow!("{}: it works no more", socket.display()))?;
        if matches!(work.action.as_str(), "idle" | "frozen") {
            rests += 1;
            if rests > RESTS_MAX {
                bail!(
                    "{}: the server was told to do something else before it began; ask again",
                    socket.display()
                );
            }
        } else {
            rests = 0;
        }
        if work.action == action.word() {
            progress.show(&SyncStatus {
                action,
                done_sectors: work.done_bytes / 512,
                total_sectors: work.total_bytes / 512,
                mismatch_sectors: 0,
                unread_sectors: 0,
                mismatches: Vec::new(),
                speed_kib: work.speed_kib_per_second,
            });
        }
        // A recovery that came first is waited for, too.
        let mut waited = Duration::ZERO;
        while waited < EVERY && !stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
            waited += LOOK;
        }
    }
}
