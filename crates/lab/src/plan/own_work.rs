//! What an array does by itself, and what it can do without: the checks of `work`, `failed` and the speed limits.

use stripewise_engine::array::slots::SlotSet;
use stripewise_engine::array::survives;
use stripewise_engine::geometry::{Geometry, GeometryError, GeometrySpec};
use stripewise_engine::units::{Nanos, PAGE_SECTORS, Slot};

use super::parameter::{ArraySpec, CellTarget, Fault, Parameters, Work};

/// Chunks of a member: more than any layout of copies takes to repeat.
const CHUNKS: u64 = 1 << 20;

impl Parameters {
    /// The members that have failed: the first that the layout survives the loss of together. On levels with parity these are
    /// slot 0 and those after it; of two copies side by side one of each.
    ///
    /// # Errors
    /// The array does not survive the loss of so many.
    pub fn failed_slots(&self) -> Result<Vec<Slot>, Fault> {
        let (members, ArraySpec { level, failed, .. }) = (self.members(), &self.array);
        if self.target != CellTarget::Array || *failed == 0 {
            return Ok(Vec::new());
        }
        let most = self.expendable()?;
        if most.len() >= usize::from(*failed) {
            return Ok(most.iter().take((*failed).into()).collect());
        }
        let layout = self.layout().map_err(|e| Fault::of("layout", e))?;
        let message = format!(
            "{level} ({layout}) on {members} members survives the loss of {}, but failed is {failed}; lower it",
            most.len()
        );
        Err(Fault::of("failed", message))
    }

    /// As many members as the array can do without, the first of those that can be lost together.
    fn expendable(&self) -> Result<SlotSet, Fault> {
        let geometry = self.geometry()?;
        let mut lost = SlotSet::EMPTY;
        for slot in (0..self.members()).map(Slot) {
            let with_it = lost.union(SlotSet::one(slot));
            if survives(&geometry, with_it) {
                lost = with_it;
            }
        }
        Ok(lost)
    }

    /// The array's geometry as far as slots go, with any chunk and size.
    ///
    /// # Errors
    /// No array is laid out so: too many members for the level, or a layout that these members have no place for.
    pub(super) fn geometry(&self) -> Result<Geometry, Fault> {
        let level = self.array.level;
        let spec = GeometrySpec {
            level,
            layout: self.layout().map_err(|e| Fault::of("layout", e))?,
            chunk_sectors: if level.has_chunks() { PAGE_SECTORS } else { 0 },
            member_sectors: vec![CHUNKS * PAGE_SECTORS; self.members().into()],
        };
        Geometry::new(&spec).map_err(|e| {
            let of_members =
                matches!(e, GeometryError::TooFewMembers { .. } | GeometryError::TooManyMembers { .. });
            Fault::of(if of_members { "raid_devices" } else { "layout" }, e.to_string())
        })
    }

    /// Refuses work of its own that the array does not have, and members lost that it does not survive.
    pub(super) fn check_sync(&self) -> Result<(), Fault> {
        let ArraySpec { failed, speed_limit_min, speed_limit_max, .. } = self.array;
        if speed_limit_min > speed_limit_max {
            let message = format!(
                "speed_limit_min of {speed_limit_min} KiB/s is above speed_limit_max of {speed_limit_max}; \
                 lower it"
            );
            return Err(Fault::of("speed_limit_min", message));
        }
        let is_array = self.target == CellTarget::Array;
        if self.work.syncs() && (!is_array || self.expendable()?.is_empty()) {
            let message = format!(
                "work {} needs an array with redundancy: level 1 on two or more members, 4, 5, 6 or 10",
                self.work.name()
            );
            return Err(Fault::of("work", message));
        }
        if self.work.recovers() && failed == 0 {
            let message = format!("work {} needs failed members; set failed to 1 or more", self.work.name());
            return Err(Fault::of("failed", message));
        }
        self.failed_slots()?;
        let runs_for_a_time = matches!(self.work, Work::Rebuild | Work::Resync | Work::Recover);
        if runs_for_a_time && self.job.runtime == Nanos(0) {
            let message =
                format!("work {} is measured over a time; set runtime to 1s or more", self.work.name());
            return Err(Fault::of("runtime", message));
        }
        if self.work == Work::Rebuild && !self.job.time_based {
            let message = "with work rebuild the job runs for its runtime; set time_based to 1";
            return Err(Fault::of("time_based", message));
        }
        Ok(())
    }
}
