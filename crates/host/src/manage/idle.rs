//! Managing an array that nobody else drives.

use stripewise_engine::units::Slot;

use super::{ArrayStatus, Manage, ManageError, Managed};
use crate::array::Array;

impl Array {
    /// Carries out a command; answers when the members say what it did. What the array begins by itself goes on in
    /// [`Array::sync`], or while it is used.
    ///
    /// # Errors
    /// Why it is refused; then nothing has changed.
    pub fn manage(&mut self, command: &Manage) -> Result<Managed, ManageError> {
        self.on_first_shard(|shard, context| {
            shard.resume(context.clock.now(), context);
            let managed = shard.manage(command, context.clock.now(), context)?;
            shard.record(context);
            Ok(managed)
        })?
    }

    /// How many sectors of a slot's member hold their content while it is recovered; none when it holds all, or when
    /// the slot is empty.
    pub fn recovered_sectors(&self, slot: Slot) -> Option<u64> {
        self.first().volume().recovered_sectors(slot)
    }

    /// The array as it stands.
    pub fn status(&self) -> ArrayStatus {
        self.first().status()
    }
}
