//! What is said while an array is served, by a thread of its own: who serves never waits for who listens.
//!
//! *Limits.* [`WAITING_MAX`] lines wait to be written; more are dropped, counted, and their number is said once the others
//! are out.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

/// Lines that wait.
const WAITING_MAX: usize = 256;
/// How long the last lines may take.
const LAST_MAX: Duration = Duration::from_secs(1);

/// Says lines; its copies do so, too.
#[derive(Clone, Debug)]
pub(crate) struct Voice {
    lines: SyncSender<String>,
    dropped: Arc<AtomicU64>,
}

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct Speaker {
    /// Never sends; disconnected when all is written.
    ended: Receiver<()>,
}

impl Voice {
    /// A voice whose lines are written to `out`, until it and its copies are gone.
    pub(crate) fn new(out: impl Write + Send + 'static) -> std::io::Result<(Self, Speaker)> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let (tell_end, ended) = sync_channel(0);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        thread::Builder::new().name("voice".to_owned()).spawn(move || {
            speak(out, &waiting, &counted);
            drop(tell_end);
        })?;
        Ok((Self { lines, dropped }, Speaker { ended }))
    }

    /// Says a line. Nothing is waited for.
    pub(crate) fn say(&self, line: String) {
        if self.lines.try_send(line).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Speaker {
    /// Waits until all is written, but not for long: nobody may be reading. All voices are gone.
    pub(crate) fn finish(self) {
        let _written_or_not = self.ended.recv_timeout(LAST_MAX);
    }
}

fn speak(mut out: impl Write, waiting: &Receiver<String>, dropped: &AtomicU64) {
    // That nobody can be told is no reason to end.
    let mut write = |line: &str| drop(writeln!(out, "stripewise: {line}"));
    loop {
        let line = match waiting.try_recv() {
            Ok(line) => Ok(line),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                let count = dropped.swap(0, Ordering::Relaxed);
                if count > 0 {
                    write(&format!("{count} messages were dropped: nobody read them"));
                }
                waiting.recv()
            }
        };
        let Ok(line) = line else { return };
        write(&line);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_holds_nobody_up_and_what_was_dropped_is_counted() {
        const LINES: u64 = 5000;
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (voice, speaker) = Voice::new(writer).unwrap();
        let begun = Instant::now();
        for number in 0..LINES {
            voice.say(format!("{number:4000}"));
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
        drop(voice);
        let reading = thread::spawn(move || {
            let mut said = String::new();
            reader.read_to_string(&mut said).unwrap();
            said
        });
        speaker.finish();
        let said = reading.join().unwrap();
        let (last, lines) = (said.lines().last().unwrap(), said.lines().count() as u64 - 1);
        assert_eq!(last, format!("stripewise: {} messages were dropped: nobody read them", LINES - lines));
        assert!(lines >= WAITING_MAX as u64);
    }

    #[test]
    fn the_end_is_not_waited_for_without_end() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let (voice, speaker) = Voice::new(writer).unwrap();
        voice.say(" ".repeat(1 << 20));
        drop(voice);
        speaker.finish();
    }
}
