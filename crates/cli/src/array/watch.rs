//! `stripewise detail --watch`: how far the array's own work is, until it ends.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::exit::Exit;
use crate::output::print;
use crate::progress::clock;

/// How often the server is asked.
const EVERY: Duration = Duration::from_secs(1);
/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Prints a line about the array a second, from what `look` says of it: over the last one on a terminal, below it
/// elsewhere.
pub(super) fn watch(mut look: impl FnMut() -> Result<Value>, stop: &AtomicBool) -> Result<Exit> {
    let on_terminal = std::io::stdout().is_terminal();
    loop {
        let (line, is_working) = line(&look()?);
        if on_terminal {
            print(&format!("\r\x1b[K{line}"))?;
        } else {
            print(&format!("{line}\n"))?;
        }
        let mut waited = Duration::ZERO;
        while is_working && waited < EVERY && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
        let interrupted = stop.load(Ordering::Relaxed);
        if !is_working || interrupted {
            if on_terminal {
                print("\n")?;
            }
            return Ok(if interrupted { Exit::Interrupted } else { Exit::Done });
        }
    }
}

/// One line, and whether the array works.
fn line(detail: &Value) -> (String, bool) {
    let words = |value: &Value| {
        let words: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        words.join(", ")
    };
    let name =
        [&detail["name"], &detail["uuid"]].into_iter().filter_map(Value::as_str).find(|n| !n.is_empty());
    let mut line = format!("{}: {}", name.unwrap_or("array"), words(&detail["state"]));
    let sync = &detail["sync"];
    let action = sync["action"].as_str().unwrap_or("idle");
    let mismatches = sync["mismatch_sectors"].as_u64().unwrap_or(0);
    let is_working = !matches!(action, "idle" | "frozen");
    if is_working {
        let percent = sync["percent"].as_f64().unwrap_or(0.0);
        let speed = sync["speed_kib_per_second"].as_u64().map(|speed| format!("  {speed} KiB/s"));
        let eta = sync["eta_seconds"].as_u64().map(|eta| format!("  ETA {}", clock(eta)));
        let (speed, eta) = (speed.unwrap_or_default(), eta.unwrap_or_default());
        let _ = write!(line, "; {action} {percent:.1}%{speed}{eta}");
    } else {
        let _ = write!(line, "; {action}");
    }
    if mismatches > 0 {
        let _ = write!(line, "  mismatch_cnt {mismatches}");
    }
    (line, is_working)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_says_what_runs_and_what_was_found() {
        let sync = json!({ "action": "recover", "percent": 12.34, "speed_kib_per_second": 5000,
            "eta_seconds": 75, "mismatch_sectors": 0 });
        let detail = json!({ "name": "host:a", "state": ["clean", "degraded"], "sync": sync });
        let text = "host:a: clean, degraded; recover 12.3%  5000 KiB/s  ETA 1:15";
        assert_eq!(line(&detail), (text.to_owned(), true));
        let sync = json!({ "action": "idle", "percent": null, "mismatch_sectors": 8 });
        let detail = json!({ "name": "", "uuid": "u", "state": ["active"], "sync": sync });
        assert_eq!(line(&detail), ("u: active; idle  mismatch_cnt 8".to_owned(), false));
        assert_eq!(line(&json!({ "uuid": "u", "state": ["clean"], "sync": null })).0, "u: clean; idle");
        let sync = json!({ "action": "recover", "percent": 25 });
        let idle = json!({ "uuid": "u", "state": ["clean"], "sync": sync });
        assert_eq!(line(&idle), ("u: clean; recover 25.0%".to_owned(), true));
    }
}
