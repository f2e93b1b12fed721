//! What is written of a row, and its parity where the log has none.

use stripewise_format::journal::{BLOCK_BYTES, BLOCK_SECTORS};

use super::log::{Log, Row};
use super::{JournalStorage, RowBlock, RowMember};
use crate::geometry::StripeRole;
use crate::io::{IoError, IoResult};
use crate::units::Slot;

/// A row's blocks by their slots.
pub(super) type Blocks = Vec<(Slot, Vec<u8>)>;

/// What is made of a row of which the log has data alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DataOnly {
    /// Data, and parity (if a member of it is there) computed of all data of the row: none of what they are computed of is written, so
    /// this may be cut short and done again.
    Direct(Blocks),
    /// Data, and parity that needs the parity which it is to replace. It must be in the log before anything is written.
    ByLog(Blocks),
    /// Data alone: too much of the row is listed as bad to have its parity.
    WithoutParity(Blocks),
}

/// The rows of an array.
pub(super) struct Rows<'a> {
    pub(super) log: Log<'a>,
    pub(super) members: &'a [RowMember],
    pub(super) raid_disks: u16,
}

impl Rows<'_> {
    /// Writes what the log has of a complete row to the members that are there. A row of which it has parity alone is on the
    /// members already, as the kernel's `r5l_recovery_replay_one_stripe` takes it; answers whether there was something to write.
    pub(super) fn replay(
        &self,
        storage: &mut impl JournalStorage,
        sector: u64,
        row: &Row,
    ) -> Result<bool, IoError> {
        if row.data.is_empty() {
            return Ok(false);
        }
        let blocks = self.blocks(storage, sector, row)?;
        self.write(storage, sector, &blocks)?;
        Ok(true)
    }

    /// All that the log has of a row.
    pub(super) fn blocks(
        &self,
        storage: &mut impl JournalStorage,
        sector: u64,
        row: &Row,
    ) -> Result<Blocks, IoError> {
        let map = self.log.shape.stripe_at(sector);
        let parity = [Some(map.p), map.q].into_iter().flatten().zip(row.parity.iter().copied());
        let data = row.data.iter().map(|(slot, position)| (*slot, *position));
        data.chain(parity).map(|(slot, position)| Ok((slot, self.log.read(storage, position)?))).collect()
    }

    /// Writes blocks of a row to every member of their slots. One may refuse what it is listed not to hold: the array goes
    /// by what the others hold.
    pub(super) fn write(&self, storage: &mut impl JournalStorage, sector: u64, blocks: &Blocks) -> IoResult {
        for (slot, bytes) in blocks {
            for member in self.members.iter().filter(|member| member.slot == *slot) {
                let at = member.data_offset_sectors + sector;
                match storage.write(member.member, at, bytes) {
                    Err(IoError::Media) if member.lists(at) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    /// Whether every member there has these blocks of a row.
    pub(super) fn are_there(
        &self,
        storage: &mut impl JournalStorage,
        sector: u64,
        blocks: &Blocks,
    ) -> Result<bool, IoError> {
        for (slot, bytes) in blocks {
            if self.read(storage, sector, *slot)?.is_some_and(|found| found != *bytes) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What to write of a row of which the log has data alone.
    pub(super) fn data_only(
        &self,
        storage: &mut impl JournalStorage,
        sector: u64,
        row: &Row,
    ) -> Result<DataOnly, IoError> {
        let mut blocks = self.blocks(storage, sector, row)?;
        let map = self.log.shape.stripe_at(sector);
        let has_member = |slot: Slot| self.members.iter().any(|member| member.slot == slot);
        if ![Some(map.p), map.q].into_iter().flatten().any(has_member) {
            return Ok(DataOnly::Direct(blocks));
        }
        let slots: Vec<Slot> = (0..self.raid_disks).map(Slot).collect();
        let mut old = Vec::new();
        for slot in &slots {
            old.push(self.read(storage, sector, *slot)?);
        }
        let is_data = |slot: Slot| matches!(map.role(slot), StripeRole::Data(_));
        let needs_old =
            |slot: &Slot| is_data(*slot) && !row.data.contains_key(slot) && old[slot.index()].is_none();
        let by_log = slots.iter().any(needs_old);
        if by_log {
            if old.iter().filter(|bytes| bytes.is_none()).count() > usize::from(self.log.shape.parity_disks())
            {
                return Ok(DataOnly::WithoutParity(blocks));
            }
            old = self.solved(storage, sector, old);
        }
        for slot in slots.iter().filter(|slot| !is_data(**slot)) {
            old[slot.index()] = None;
        }
        for (slot, bytes) in &blocks {
            old[slot.index()] = Some(bytes.clone());
        }
        let mut new = self.solved(storage, sector, old);
        for slot in [Some(map.p), map.q].into_iter().flatten() {
            blocks.push((slot, new[slot.index()].take().expect("a solved row has all blocks")));
        }
        Ok(if by_log { DataOnly::ByLog(blocks) } else { DataOnly::Direct(blocks) })
    }

    /// The blocks of a row by slot, with those filled in that are not there.
    fn solved(
        &self,
        storage: &mut impl JournalStorage,
        sector: u64,
        blocks: Vec<Option<Vec<u8>>>,
    ) -> Vec<Option<Vec<u8>>> {
        let map = self.log.shape.stripe_at(sector);
        let named = (0..).map(Slot).zip(blocks);
        let mut row: Vec<RowBlock> =
            named.map(|(slot, bytes)| RowBlock { role: map.operand_role(slot), bytes }).collect();
        storage.solve(&mut row);
        row.into_iter().map(|block| block.bytes).collect()
    }

    /// What a slot holds in a row, if a member holds it.
    fn read(
        &self,
        storage: &mut impl JournalStorage,
        sector: u64,
        slot: Slot,
    ) -> Result<Option<Vec<u8>>, IoError> {
        let holds = |member: &&RowMember| {
            let at = member.data_offset_sectors + sector;
            member.slot == slot && sector + BLOCK_SECTORS <= member.valid_sectors && !member.lists(at)
        };
        let Some(member) = self.members.iter().find(holds) else { return Ok(None) };
        let mut bytes = vec![0; BLOCK_BYTES];
        storage.read(member.member, member.data_offset_sectors + sector, &mut bytes)?;
        Ok(Some(bytes))
    }
}
