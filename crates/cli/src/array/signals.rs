//! Ctrl-C and SIGTERM, and progress on a terminal.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use stripewise_host::IgnoredHangup;

/// A flag that Ctrl-C, SIGHUP or SIGTERM sets. A second one ends the process at once.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    flag(|| {}, || {})
}

/// Such a flag; what is said when it is set, and what is done before the process ends at once. A SIGHUP that the parent had ignored (`nohup`) is ignored still.
pub(crate) fn flag(
    say: impl Fn() + Send + 'static,
    at_once: impl Fn() + Send + 'static,
) -> Result<Arc<AtomicBool>> {
    let ignored = IgnoredHangup::look();
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    ctrlc::set_handler(move || {
        if set.swap(true, Ordering::Relaxed) {
            at_once();
            std::process::exit(130);
        }
        say();
    })?;
    ignored.keep();
    Ok(flag)
}

/// Whether progress has somebody to see it.
pub(crate) fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// A bar of bytes on a terminal, nothing elsewhere. `total` of none is a stream whose end is not known.
pub(crate) fn byte_bar(total: Option<u64>) -> Option<ProgressBar> {
    if !is_watched() {
        return None;
    }
    let template = match total {
        Some(_) => "{bar:28} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  ETA {eta}",
        None => "{spinner} {binary_bytes}  {binary_bytes_per_sec}",
    };
    let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    Some(bar)
}
