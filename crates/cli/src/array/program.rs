//! The program that is told what happens to a served array, by the names that `mdadm --monitor` has for it.
//!
//! *Limits.* It is run for one event after the other, by a thread of its own: who serves never waits for it. [`WAITING_MAX`]
//! events wait; more are dropped, and that is said.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use stripewise_engine::io::{ArrayEvent, SyncAction};
use stripewise_host::ServeEvent;

use super::select::impossible;
use super::voice::Voice;

/// Events that wait.
const WAITING_MAX: usize = 256;
/// How long the program may take for the last ones, once the array is closed.
const LAST_MAX: Duration = Duration::from_secs(10);
/// The event in words, in the program's environment.
const MESSAGE: &str = "STRIPEWISE_MESSAGE";

/// What the program is run for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Alert {
    /// Its first argument; the second is the array's name.
    event: &'static str,
    /// Its third: the member, or what is to be known beside.
    about: Option<String>,
    message: String,
}

impl Alert {
    /// What it is told of an event; nothing of those that do not concern the array.
    pub(crate) fn of(happened: &ServeEvent) -> Option<Self> {
        let (event, member, mismatch_sectors) = match happened {
            ServeEvent::Array { event, member, mismatch_sectors, .. } => (event, member, mismatch_sectors),
            ServeEvent::MemberError { member, .. } => {
                let about = member.as_ref().map(|path| path.display().to_string());
                return Some(Self { event: "MemberError", about, message: happened.to_string() });
            }
            ServeEvent::MountInUse { .. } => return None,
        };
        let path = || member.as_ref().map(|path| path.display().to_string());
        let (event, about) = match event {
            ArrayEvent::MemberFailed { .. } => ("Fail", path()),
            ArrayEvent::ReplacementFailed { .. } => ("FailSpare", path()),
            ArrayEvent::MemberInSync { .. } => ("SpareActive", path()),
            ArrayEvent::SyncStarted(SyncAction::Idle | SyncAction::Frozen) => return None,
            ArrayEvent::SyncStarted(_) => ("RebuildStarted", None),
            ArrayEvent::SyncDone(_) if *mismatch_sectors > 0 => {
                ("RebuildFinished", Some(format!("mismatches found: {mismatch_sectors}")))
            }
            ArrayEvent::SyncDone(_) | ArrayEvent::SyncInterrupted(_) | ArrayEvent::SyncFailed { .. } => {
                ("RebuildFinished", None)
            }
            ArrayEvent::ArrayFailed => ("ArrayFailed", None),
            ArrayEvent::JournalFailed => ("JournalFailed", None),
            ArrayEvent::LastCopyKept { .. } => ("LastCopyKept", path()),
            ArrayEvent::ReadErrorCorrected { .. } => ("ReadErrorCorrected", path()),
        };
        Some(Self { event, about, message: happened.to_string() })
    }

    /// The array lacks members when it is first seen.
    pub(crate) const fn degraded(message: String) -> Self {
        Self { event: "DegradedArray", about: None, message }
    }
}

/// Where alerts go; its copies send them there, too.
#[derive(Clone, Debug)]
pub(crate) struct Alerts {
    waiting: SyncSender<Alert>,
    voice: Voice,
}

/// The thread that runs the program.
#[derive(Debug)]
pub(crate) struct Runner {
    /// Never sends; disconnected when the last run has ended.
    ended: Receiver<()>,
    voice: Voice,
}

/// Fails unless the program can be run, by its path or by the folders of `PATH`.
pub(crate) fn check(program: &Path) -> Result<()> {
    let is_program = |path: PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let is_there = if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        is_program(program.to_owned())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| is_program(folder.join(program)))
    };
    if is_there {
        return Ok(());
    }
    Err(impossible(format!(
        "--program {}: no such file that can be executed; name a program by its path, or one in a folder of PATH",
        program.display()
    )))
}

impl Alerts {
    /// Has a thread run `program` for the alerts of the array of this name, until this and its copies are gone.
    pub(crate) fn new(program: &Path, array: &str, voice: Voice) -> io::Result<(Self, Runner)> {
        let (alerts, waiting) = sync_channel(WAITING_MAX);
        let (tell_end, ended) = sync_channel(0);
        let (program, array, said) = (program.to_owned(), array.to_owned(), voice.clone());
        thread::Builder::new().name("program".to_owned()).spawn(move || {
            for alert in waiting {
                run(&program, &array, &alert, &said);
            }
            drop(tell_end);
        })?;
        Ok((Self { waiting: alerts, voice: voice.clone() }, Runner { ended, voice }))
    }

    /// Has the program run. Nothing is waited for.
    pub(crate) fn send(&self, alert: Alert) {
        let event = alert.event;
        if self.waiting.try_send(alert).is_err() {
            self.voice.say(format!("--program: still busy with earlier events; it is not told of {event}"));
        }
    }
}

impl Runner {
    /// Waits for the last runs, but not for long. All senders are gone.
    pub(crate) fn finish(self) {
        use std::sync::mpsc::RecvTimeoutError::Timeout;
        if self.ended.recv_timeout(LAST_MAX) == Err(Timeout) {
            let seconds = LAST_MAX.as_secs();
            self.voice
                .say(format!("--program: not done {seconds} s after the array was closed; left to itself"));
        }
    }
}

fn run(program: &Path, array: &str, alert: &Alert, voice: &Voice) {
    let Alert { event, about, message } = alert;
    let mut command = Command::new(program);
    command.args([*event, array]).args(about.as_deref()).env(MESSAGE, message);
    // What it says is not to be taken for what this program prints, and Ctrl-C is not meant for it.
    command.stdin(Stdio::null()).stdout(io::stderr()).process_group(0);
    let program = program.display();
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => voice.say(format!("--program {program} {event}: {status}")),
        Err(error) => voice.say(format!("--program {program} {event}: cannot be run: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use stripewise_engine::io::{IoError, Op};
    use stripewise_engine::units::{SectorRange, Slot};
    use stripewise_host::MemberError;

    use super::*;

    fn told(
        event: ArrayEvent,
        member: Option<&str>,
        mismatch_sectors: u64,
    ) -> Option<(&'static str, String)> {
        let member = member.map(PathBuf::from);
        let alert = Alert::of(&ServeEvent::Array {
            event,
            cause: None,
            member,
            working: 2,
            slots: 3,
            is_lost: false,
            mismatch_sectors,
        })?;
        assert!(!alert.message.is_empty());
        Some((alert.event, alert.about.unwrap_or_default()))
    }

    #[test]
    fn events_have_the_names_that_mdadm_has_for_them() {
        let slot = Slot(1);
        let range = SectorRange::new(0, 8);
        for (event, mismatches, name, about) in [
            (ArrayEvent::MemberFailed { slot }, 0, "Fail", "b.img"),
            (ArrayEvent::ReplacementFailed { slot }, 0, "FailSpare", "b.img"),
            (ArrayEvent::MemberInSync { slot }, 0, "SpareActive", "b.img"),
            (ArrayEvent::SyncStarted(SyncAction::Check), 0, "RebuildStarted", ""),
            (ArrayEvent::SyncDone(SyncAction::Recover), 0, "RebuildFinished", ""),
            (ArrayEvent::SyncDone(SyncAction::Check), 8, "RebuildFinished", "mismatches found: 8"),
            (ArrayEvent::SyncInterrupted(SyncAction::Check), 8, "RebuildFinished", ""),
            (ArrayEvent::SyncFailed { action: SyncAction::Recover, range }, 0, "RebuildFinished", ""),
            (ArrayEvent::ArrayFailed, 0, "ArrayFailed", ""),
            (ArrayEvent::LastCopyKept { slot }, 0, "LastCopyKept", "b.img"),
            (ArrayEvent::ReadErrorCorrected { slot, range }, 0, "ReadErrorCorrected", "b.img"),
        ] {
            assert_eq!(told(event, Some("b.img"), mismatches), Some((name, about.to_owned())));
        }
        assert_eq!(told(ArrayEvent::SyncStarted(SyncAction::Idle), None, 0), None);
        let error = MemberError { op: Op::Write, sector: Some(8), error: IoError::NoSpace };
        let first = ServeEvent::MemberError { slot, member: Some("b.img".into()), error };
        let alert = Alert::of(&first).unwrap();
        assert_eq!((alert.event, alert.about.as_deref()), ("MemberError", Some("b.img")));
        assert!(
            alert.message.starts_with("b.img had an error") && alert.message.contains(&error.to_string())
        );
        assert_eq!(Alert::of(&ServeEvent::MountInUse { folder: PathBuf::from("m") }), None);
    }

    #[test]
    fn a_program_is_found_by_its_path_or_in_a_folder_of_path() {
        check(Path::new("/bin/sh")).unwrap();
        check(Path::new("sh")).unwrap();
        for wrong in ["/bin", "/etc/passwd", "no-such-program", "./sh"] {
            let said = check(Path::new(wrong)).unwrap_err().to_string();
            assert!(said.contains(wrong) && said.contains("PATH"), "{said}");
        }
    }
}
