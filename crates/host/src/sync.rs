//! An array's own work for its own sake: resync, recovery and replacement to their ends, with nothing else to do.

use std::sync::atomic::Ordering;

use stripewise_engine::array::sync::SyncStatus;
use stripewise_engine::io::SyncAction;

use crate::array::Array;
use crate::error::HostError;
use crate::report::RunReport;

/// Inputs handled before the caller is told how far it is.
const STEPS_MAX: u32 = 256;

impl Array {
    /// Does what is due until nothing is left, or the stop flag is set; [`Array::close`] then records how far it came.
    /// `watch` is told about it several times a second. What ended, and how, is in the report's events, with what ended since
    /// the last report: what is due may begin when a command is carried out, and be done before this is called. Only an array
    /// of one shard has anything due.
    ///
    /// # Errors
    /// No `io_uring`.
    pub fn sync(&mut self, mut watch: impl FnMut(&SyncStatus)) -> Result<RunReport, HostError> {
        let start = self.begin_counts();
        let stop = self.stop_flag();
        self.on_first_shard(|shard, context| {
            shard.resume(context.clock.now(), context);
            loop {
                // Members in memory answer at once: the caller is heard all the same.
                for _ in 0..STEPS_MAX {
                    if !shard.step(context.clock.now(), context) {
                        break;
                    }
                }
                let status = shard.volume().sync_status();
                let Some(status) =
                    status.filter(|s| !matches!(s.action, SyncAction::Idle | SyncAction::Frozen))
                else {
                    return;
                };
                watch(&status);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                if shard.has_nothing_to_handle(context.clock.now()) {
                    shard.sleep(None, context);
                }
            }
        })?;
        Ok(self.report(start))
    }
}
