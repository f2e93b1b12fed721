//! The chain of meta blocks from the log's tail on, and what it says of each row.

use std::collections::BTreeMap;

use stripewise_format::journal::{BLOCK_BYTES, BLOCK_SECTORS, MetaBlock, Payload, Seed};
use stripewise_format::uuid::Uuid;

use super::{Head, JournalPlace};
use crate::geometry::{Geometry, ParityShape, Shape};
use crate::io::{IoError, IoResult};
use crate::ppl::MemberStorage;
use crate::units::{SECTOR_BYTES, Slot};

/// What the log has of a row: for each block its place in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Data by their slots.
    pub(super) data: BTreeMap<Slot, u64>,
    /// P, then Q. They are those of the data above, and of what else the members have.
    pub(super) parity: Vec<u64>,
}

impl Row {
    pub(super) fn is_complete(&self) -> bool {
        !self.parity.is_empty()
    }
}

/// The log of an array's journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) shape: &'a ParityShape,
    pub(super) seed: Seed,
    place: &'a JournalPlace,
    sectors: u64,
}

impl<'a> Log<'a> {
    pub(super) fn new(geometry: &'a Geometry, set_uuid: &Uuid, place: &'a JournalPlace) -> Self {
        let Shape::Parity(shape) = geometry.shape() else {
            panic!("only levels with parity have a write journal")
        };
        let sectors = place.ring_sectors();
        Self { geometry, shape, seed: Seed::of(set_uuid), place, sectors }
    }

    /// Sectors of the ring.
    pub(super) const fn sectors(&self) -> u64 {
        self.sectors
    }

    /// So many sectors further on in the ring.
    pub(super) const fn add(&self, position: u64, sectors: u64) -> u64 {
        (position + sectors) % self.sectors
    }

    /// The log's first block, from the superblock's tail on; one that cannot be stands for the device's beginning, as in the
    /// kernel's `r5l_load_log`. None if there is no log.
    pub(super) fn start(&self, storage: &mut impl MemberStorage) -> Result<Option<Head>, IoError> {
        let tail = self.place.tail_sectors;
        let can_be = tail < self.sectors && tail.is_multiple_of(BLOCK_SECTORS);
        let position_sectors = if can_be { tail } else { 0 };
        if self.sectors == 0 {
            return Ok(None);
        }
        let block = MetaBlock::parse(&self.read(storage, position_sectors)?, self.seed).ok();
        let first = block.filter(|block| block.position_sectors == position_sectors);
        Ok(first.map(|block| Head { position_sectors, sequence: block.sequence }))
    }

    /// The block that must be here, if it is whole and all that it lists is: what the kernel's `r5l_recovery_read_meta_block` and
    /// `r5l_recovery_verify_data_checksum_for_mb` ask. What speaks of places that the array has not ends the log as well.
    pub(super) fn next(
        &self,
        storage: &mut impl MemberStorage,
        head: Head,
    ) -> Result<Option<MetaBlock>, IoError> {
        let Ok(block) = MetaBlock::parse(&self.read(storage, head.position_sectors)?, self.seed) else {
            return Ok(None);
        };
        let is_next = block.position_sectors == head.position_sectors && block.sequence == head.sequence;
        let fits = block.log_sectors() <= self.sectors && block.payloads.iter().all(|p| self.is_possible(p));
        if !is_next || !fits {
            return Ok(None);
        }
        let mut at = head.position_sectors;
        for payload in &block.payloads {
            let (Payload::Data { checksums, .. } | Payload::Parity { checksums, .. }) = payload else {
                continue;
            };
            for checksum in checksums {
                at = self.add(at, BLOCK_SECTORS);
                if self.seed.checksum(&self.read(storage, at)?) != *checksum {
                    return Ok(None);
                }
            }
        }
        Ok(Some(block))
    }

    fn is_possible(&self, payload: &Payload) -> bool {
        let is_within = |sector: u64, end: u64| {
            sector.is_multiple_of(BLOCK_SECTORS) && sector < end && end - sector >= BLOCK_SECTORS
        };
        match payload {
            // The kernel writes, and reads, one block in each.
            Payload::Data { array_sector, checksums } => {
                checksums.len() == 1 && is_within(*array_sector, self.geometry.array_sectors())
            }
            Payload::Parity { row_sector, checksums } => {
                checksums.len() == usize::from(self.shape.parity_disks())
                    && is_within(*row_sector, self.geometry.used_sectors(Slot(0)))
            }
            Payload::Flush { .. } => true,
        }
    }

    /// Takes a block into what is known of the rows. Data that come after a row's parity begin it anew: `finished` gets what the
    /// log had of it until then, which belongs on the members before.
    pub(super) fn follow(
        &self,
        rows: &mut BTreeMap<u64, Row>,
        block: &MetaBlock,
        mut finished: impl FnMut(u64, &Row) -> IoResult,
    ) -> IoResult {
        let mut at = self.add(block.position_sectors, BLOCK_SECTORS);
        for payload in &block.payloads {
            match payload {
                Payload::Flush { row_sectors } => {
                    for sector in row_sectors {
                        rows.remove(sector);
                    }
                }
                Payload::Data { array_sector, .. } => {
                    let place = self.geometry.place(*array_sector, 0);
                    let row = rows.entry(place.sector).or_default();
                    if row.is_complete() {
                        finished(place.sector, row)?;
                        *row = Row::default();
                    }
                    row.data.insert(place.slot, at);
                }
                Payload::Parity { row_sector, checksums } => {
                    let positions = (0..checksums.len() as u64).map(|n| self.add(at, n * BLOCK_SECTORS));
                    rows.entry(*row_sector).or_default().parity = positions.collect();
                }
            }
            at = self.add(at, payload.blocks() as u64 * BLOCK_SECTORS);
        }
        Ok(())
    }

    /// A block of the log.
    pub(super) fn read(&self, storage: &mut impl MemberStorage, position: u64) -> Result<Vec<u8>, IoError> {
        let mut bytes = vec![0; BLOCK_BYTES];
        storage.read(self.place.member, self.place.data_offset_sectors + position, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a block of the log.
    pub(super) fn write(&self, storage: &mut impl MemberStorage, position: u64, bytes: &[u8]) -> IoResult {
        debug_assert_eq!(bytes.len() as u64, BLOCK_SECTORS * SECTOR_BYTES);
        storage.write(self.place.member, self.place.data_offset_sectors + position, bytes)
    }

    /// Makes the log durable.
    pub(super) fn flush(&self, storage: &mut impl MemberStorage) -> IoResult {
        storage.flush(self.place.member)
    }
}
