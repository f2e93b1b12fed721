//! Progress on a terminal, and Ctrl-C.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use stripewise_lab::study::{Filling, Progress};

use stripewise_lab::targets::remove_made_files;

use crate::array::signals::flag;

/// A bar on a terminal; a line every tenth of the way elsewhere, so that logs stay short.
pub(crate) struct Bar {
    drawn: Option<ProgressBar>,
    told_tenths: usize,
    /// Of the filling of members, which goes before.
    told_fill_tenths: u64,
}

/// Filling that is over within this needs no line in a log.
const SOON: Duration = Duration::from_secs(2);

impl Bar {
    pub(crate) fn new() -> Self {
        Self {
            drawn: std::io::stderr().is_terminal().then(ProgressBar::hidden),
            told_tenths: 0,
            told_fill_tenths: 0,
        }
    }

    /// How far the filling of members is that began then.
    pub(crate) fn show_filling(&mut self, filling: Filling, started: Instant) {
        self.filling(filling, started.elapsed());
    }

    fn filling(&mut self, filling: Filling, elapsed: Duration) {
        let Filling { done_bytes, total_bytes } = filling;
        let tenths = done_bytes * 10 / total_bytes.max(1);
        let told = format!("filling the members: {} of {} MiB", done_bytes >> 20, total_bytes >> 20);
        match &self.drawn {
            Some(bar) => {
                if bar.is_hidden() {
                    bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
                }
                bar.set_style(filling_style());
                bar.set_length(total_bytes);
                bar.set_position(done_bytes);
                bar.set_message(told);
            }
            None if tenths > self.told_fill_tenths && elapsed > SOON => {
                self.told_fill_tenths = tenths;
                say!("{told}");
            }
            None => {}
        }
    }

    pub(crate) fn show(&mut self, progress: &Progress) {
        if let Some(filling) = progress.filling {
            self.filling(filling, progress.elapsed);
            return;
        }
        if let Some(error) = &progress.error {
            let line = format!("{}: {error}", progress.label);
            match &self.drawn {
                Some(bar) => bar.suspend(|| say!("{line}")),
                None => say!("{line}"),
            }
        }
        let Progress { done, total, .. } = *progress;
        match &self.drawn {
            Some(bar) => {
                if bar.is_hidden() {
                    bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
                }
                bar.set_style(style());
                bar.set_length(total as u64);
                bar.set_position(done as u64);
                let eta = progress.eta.map_or_else(String::new, |e| format!("ETA {}", clock(e.as_secs())));
                bar.set_prefix(eta);
                bar.set_message(progress.label.clone());
            }
            None if done * 10 / total.max(1) > self.told_tenths => {
                self.told_tenths = done * 10 / total.max(1);
                let eta = progress.eta.map_or_else(String::new, |e| format!(", ETA {}", clock(e.as_secs())));
                say!("{done} of {total} cells{eta}");
            }
            None => {}
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.drawn {
            bar.finish_and_clear();
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:28} {pos}/{len} cells  {prefix}  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn filling_style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:28} ETA {eta}  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Seconds as m:ss or h:mm:ss.
pub(crate) fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// What a study keeps when it is stopped.
pub(crate) const CELLS_KEPT: &str = "the cells measured so far are kept";

/// A flag that Ctrl-C or SIGTERM sets; it is then told what is kept. A second one ends the process at once, without the files that
/// were made for it.
pub(crate) fn cancel_flag(kept: &'static str) -> Result<Arc<AtomicBool>> {
    flag(move || say!("\nstopping; {kept} (again to stop at once)"), remove_made_files)
}
