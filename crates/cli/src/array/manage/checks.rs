//! How the checks of a served array end: its status alone only says that nothing runs any more.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stripewise_engine::io::{ArrayEvent, SyncAction};
use stripewise_host::ServeEvent;

/// How a check or repair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ending {
    #[serde(rename = "done")]
    Done,
    #[serde(rename = "interrupted")]
    Interrupted,
    #[serde(rename = "given up")]
    GivenUp,
}

/// The check or repair that began last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastCheck {
    /// The first one of a server is number 1.
    pub(super) number: u64,
    /// Nothing while it runs.
    pub(super) result: Option<Ending>,
}

/// The checks and repairs of a server. Its copies know the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks(Arc<Mutex<Option<LastCheck>>>);

impl Checks {
    /// Takes note of what happened.
    pub(crate) fn hear(&self, happened: &ServeEvent) {
        let ServeEvent::Array { event, .. } = happened else { return };
        let (action, result) = match *event {
            ArrayEvent::SyncStarted(action) => (action, None),
            ArrayEvent::SyncDone(action) => (action, Some(Ending::Done)),
            ArrayEvent::SyncInterrupted(action) => (action, Some(Ending::Interrupted)),
            ArrayEvent::SyncFailed { action, .. } => (action, Some(Ending::GivenUp)),
            _ => return,
        };
        if !matches!(action, SyncAction::Check | SyncAction::Repair | SyncAction::RepairLocated) {
            return;
        }
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = last.map_or(0, |last| last.number) + u64::from(result.is_none());
        *last = Some(LastCheck { number, result });
    }

    /// What they found is no longer known.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The last one; null before the first.
    pub(super) fn to_json(&self) -> Value {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_value(*last).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_check_has_a_number_and_an_end_and_other_work_is_none() {
        let checks = Checks::default();
        assert_eq!(checks.to_json(), Value::Null);
        let hear = |event| {
            checks.hear(&ServeEvent::Array {
                event,
                cause: None,
                member: None,
                working: 2,
                slots: 2,
                is_lost: false,
                mismatch_sectors: 0,
            });
            checks.to_json()
        };
        assert_eq!(hear(ArrayEvent::SyncStarted(SyncAction::Recover)), Value::Null);
        let running = json!({ "number": 1, "result": null });
        assert_eq!(hear(ArrayEvent::SyncStarted(SyncAction::Check)), running);
        assert_eq!(hear(ArrayEvent::SyncDone(SyncAction::Resync)), running);
        let interrupted = json!({ "number": 1, "result": "interrupted" });
        assert_eq!(hear(ArrayEvent::SyncInterrupted(SyncAction::Check)), interrupted);
        hear(ArrayEvent::SyncStarted(SyncAction::RepairLocated));
        let done = json!({ "number": 2, "result": "done" });
        assert_eq!(hear(ArrayEvent::SyncDone(SyncAction::RepairLocated)), done);
    }
}
