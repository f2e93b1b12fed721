//! Moves the copies of a RAID-10: each chunk is read once, from the first member that has it, and written to all its new places.
//!
//! # Contract
//! *Failure.* What a member does not read is had from another copy, page by page. Sectors beyond the array that was are zeroes.
//! Nothing but the copies of the sectors that are to move is written to. As for the rest see `moving`.

use std::io;
use std::ops::Range;

use stripewise_engine::geometry::Raid10Shape;
use stripewise_engine::units::SECTOR_BYTES;

use super::moving::{
    Buffers, Devices, Loaded, MoveError, PAGE_BYTES, Piece, Unread, at_once, copy_of, read_all,
};

const PAGE_SECTORS: u64 = PAGE_BYTES as u64 / SECTOR_BYTES;

/// Where an array's copies lie.
#[derive(Clone, Debug)]
pub(super) struct CopySide {
    pub(super) shape: Raid10Shape,
    pub(super) chunk: u64,
    /// Each slot's device, and the sector where its data begin. None is a member that is missing.
    pub(super) slots: Vec<Option<(usize, u64)>>,
}

impl CopySide {
    /// Parts of a range of the array that lie in one chunk each.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let chunk = self.chunk;
        let mut at = range.start;
        std::iter::from_fn(move || {
            let end = range.end.min((at / chunk + 1) * chunk);
            let part = at..end;
            at = end;
            (!part.is_empty()).then_some(part)
        })
    }

    /// Where a block would lie, in the first rows, all of whose copies are on members that are missing. Rows are all alike.
    pub(super) fn lost(&self) -> Option<u64> {
        let mut chunks = (0..self.slots.len() as u64).map(|chunk| chunk * self.chunk);
        chunks.find(|sector| self.places(*sector).next().is_none())
    }

    /// Where the copies of a sector lie whose slots have a member: slot, and sector of its data.
    fn places(&self, sector: u64) -> impl Iterator<Item = (usize, u64)> {
        (0..self.shape.layout().copies()).filter_map(move |copy| {
            let place = self.shape.place(sector, copy);
            self.slots[place.slot.index()].map(|_| (place.slot.index(), place.sector))
        })
    }
}

/// Moves copies.
#[derive(Debug)]
pub(super) struct CopyRows {
    pub(super) old: CopySide,
    pub(super) new: CopySide,
    /// Sectors of the array that was.
    pub(super) old_sectors: u64,
}

/// What was read of a slot.
#[derive(Debug, Default)]
struct Read {
    /// Sectors of its data.
    sectors: Range<u64>,
    bytes: Vec<u8>,
    unread: Vec<Unread>,
}

impl CopyRows {
    pub(super) fn load(
        &self,
        devices: &impl Devices,
        range: &Range<u64>,
        buffers: &Buffers,
    ) -> Result<Loaded, MoveError> {
        let held = range.start.min(self.old_sectors)..range.end.min(self.old_sectors);
        let reads = self.read(devices, &held, buffers);
        let mut data = buffers.take(((range.end - range.start) * SECTOR_BYTES) as usize);
        let (old, beyond) = data.split_at_mut(((held.end - held.start) * SECTOR_BYTES) as usize);
        beyond.fill(0);
        let gathered = self.gather(devices, &held, &reads, old);
        buffers.give_back(reads.into_iter().map(|read| read.bytes));
        let pieces = gathered.map(|()| self.deal(range, &data, buffers));
        buffers.give_back([data]);
        pieces.map(Loaded)
    }

    /// Reads of each slot, in one go, all that lies between the first and the last part it is chosen for.
    fn read(&self, devices: &impl Devices, range: &Range<u64>, buffers: &Buffers) -> Vec<Read> {
        let mut spans: Vec<Range<u64>> = vec![0..0; self.old.slots.len()];
        for part in self.old.parts(range.clone()) {
            let Some((slot, sector)) = self.old.places(part.start).next() else { continue };
            let (span, end) = (&mut spans[slot], sector + (part.end - part.start));
            *span = if span.is_empty() { sector..end } else { span.start.min(sector)..span.end.max(end) };
        }
        at_once(spans.iter().enumerate(), |(slot, span)| {
            let Some((device, data)) = self.old.slots[slot].filter(|_| !span.is_empty()) else {
                return Read::default();
            };
            let mut bytes = buffers.take(((span.end - span.start) * SECTOR_BYTES) as usize);
            let unread = read_all(devices, device, data + span.start, &mut bytes, slot);
            Read { sectors: span.clone(), bytes, unread }
        })
    }

    /// The array's bytes, of what was read.
    fn gather(
        &self,
        devices: &impl Devices,
        range: &Range<u64>,
        reads: &[Read],
        mut data: &mut [u8],
    ) -> Result<(), MoveError> {
        for part in self.old.parts(range.clone()) {
            let (target, rest) = data.split_at_mut(((part.end - part.start) * SECTOR_BYTES) as usize);
            data = rest;
            let Some((slot, sector)) = self.old.places(part.start).next() else {
                let sector = self.old.shape.place(part.start, 0).sector;
                return Err(MoveError::Read { device: None, sector, error: None });
            };
            let read = &reads[slot];
            let start = ((sector - read.sectors.start) * SECTOR_BYTES) as usize;
            target.copy_from_slice(&read.bytes[start..start + target.len()]);
            if read.unread.is_empty() {
                continue;
            }
            for (index, page) in target.chunks_mut(PAGE_BYTES).enumerate() {
                let at = start + index * PAGE_BYTES;
                let is_in = |unread: &&Unread| unread.page.start < at + page.len() && at < unread.page.end;
                let Some(unread) = read.unread.iter().find(is_in) else { continue };
                let sector = part.start + index as u64 * PAGE_SECTORS;
                self.read_other(devices, sector, page, &unread.error)?;
            }
        }
        Ok(())
    }

    /// A page of the array, of the first copy that reads.
    fn read_other(
        &self,
        devices: &impl Devices,
        sector: u64,
        page: &mut [u8],
        error: &io::Error,
    ) -> Result<(), MoveError> {
        for (slot, sector) in self.old.places(sector) {
            let Some((device, data)) = self.old.slots[slot] else { continue };
            if devices.read(device, data + sector, page).is_ok() {
                return Ok(());
            }
        }
        let first = self.old.places(sector).next();
        Err(MoveError::Read {
            device: first.and_then(|(slot, _)| self.old.slots[slot]).map(|(device, _)| device),
            sector: first.map_or(0, |(_, sector)| sector),
            error: Some(copy_of(error)),
        })
    }

    /// The array's bytes where they are to lie. What is in one piece on a member is written in one piece.
    fn deal(&self, range: &Range<u64>, data: &[u8], buffers: &Buffers) -> Vec<Piece> {
        let mut parts: Vec<Vec<(u64, &[u8])>> = vec![Vec::new(); self.new.slots.len()];
        for part in self.new.parts(range.clone()) {
            let start = ((part.start - range.start) * SECTOR_BYTES) as usize;
            let end = ((part.end - range.start) * SECTOR_BYTES) as usize;
            for (slot, sector) in self.new.places(part.start) {
                parts[slot].push((sector, &data[start..end]));
            }
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for (place, mut parts) in self.new.slots.iter().zip(parts) {
            let Some((device, first)) = *place else { continue };
            parts.sort_unstable_by_key(|(sector, _)| *sector);
            let mut end = None;
            for (sector, bytes) in parts {
                if end != Some(sector) {
                    let mut empty = buffers.take(0);
                    empty.clear();
                    pieces.push(Piece { device, sector: first + sector, bytes: empty });
                }
                if let Some(piece) = pieces.last_mut() {
                    piece.bytes.extend_from_slice(bytes);
                }
                end = Some(sector + bytes.len() as u64 / SECTOR_BYTES);
            }
        }
        pieces
    }
}
