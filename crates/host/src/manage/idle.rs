//! Managing an array that nobody else drives.

use stripewise_engine::units::Slot;

use super::{ArrayStatus, Manage, ManageError, Managed};
use crate::array::Array;
use crate::error::HostError;

impl Array {
    /// Carries out a command; answers when the members say what it did. What the array begins by itself goes on in
    /// [`Array::sync`], or while it is used. Only an array of one shard can be managed.
    ///
    /// # Errors
    /// Why it is refused; then nothing has changed.
    pub fn manage(&mut self, command: &Manage) -> Result<Managed, ManageError> {
        if self.shard_count() > 1 {
            return Err(HostError::ShardsWithOwnWork { given: self.shard_count() as u32 }.into());
        }
        self.on_first_shard(|shard, context| {
            shard.resume(context.clock.now(), context);
            let managed = shard.manage(command, context.clock.now(), context)?;
            shard.record(context);
            Ok(managed)
        })?
    }

    /// How many sectors of a slot's member hold their content while it is recovered; none when it holds all, or when
    /// the slot is empty, or there is no such slot.
    pub fn recovered_sectors(&self, slot: Slot) -> Option<u64> {
        self.first().volume().recovered_sectors(slot)
    }

    /// The array as it stands.
    pub fn status(&self) -> ArrayStatus {
        self.first().status()
    }
}
