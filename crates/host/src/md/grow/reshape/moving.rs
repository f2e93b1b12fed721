//! Moves rows to their new places: what is old is read, what is lost of it worked out, parity made, and all of it written. Rows of
//! copies are `copies`'.
//!
//! # Contract
//! *Failure.* What a member does not read is had from the others, page by page, as long as the level allows. A member that does
//! not write is an error. *Ordering.* Nothing is flushed here, and nothing read is written to: [`Mover::load`] of what comes later
//! may run beside [`Mover::store`].

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Mutex;
use std::thread;

use stripewise_engine::geometry::{ParityShape, StripeMap};
use stripewise_engine::io::Role;
use stripewise_engine::units::{SECTOR_BYTES, Slot};
use stripewise_parity::{Kernels, Lost, Stripe, kernels};

use super::copies::CopyRows;
use crate::compute::parity_role;

/// What is read by itself where a long read fails.
pub(super) const PAGE_BYTES: usize = 4096;

/// What holds the members, by index; sectors count from the start of each.
pub(super) trait Devices: Sync {
    fn read(&self, device: usize, sector: u64, bytes: &mut [u8]) -> io::Result<()>;
    fn write(&self, device: usize, sector: u64, bytes: &[u8]) -> io::Result<()>;
    /// What was written stays.
    fn flush(&self, device: usize) -> io::Result<()>;
}

/// Where an array's rows lie.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) shape: ParityShape,
    pub(super) chunk: u64,
    /// Each slot's device, and the sector where its data begin. None is a member that is missing.
    pub(super) slots: Vec<Option<(usize, u64)>>,
}

impl Side {
    fn stripe_sectors(&self) -> u64 {
        self.shape.stripe_sectors()
    }
}

/// Why rows were not moved.
#[derive(Debug)]
pub(super) enum MoveError {
    /// Too little of a row can be read.
    Read {
        /// A device that failed, if one did.
        device: Option<usize>,
        /// The sector of each member's data.
        sector: u64,
        error: Option<io::Error>,
    },
    /// A device does not take what is written.
    Write { device: usize, error: io::Error },
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { sector, error, .. } => {
                write!(f, "sector {sector} of the members' data cannot be had")?;
                error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
            }
            Self::Write { error, .. } => error.fmt(f),
        }
    }
}

/// What is to be written.
#[derive(Debug)]
pub(super) struct Loaded(pub(super) Vec<Piece>);

/// What is to be written to a device, from a sector on.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) device: usize,
    pub(super) sector: u64,
    pub(super) bytes: Vec<u8>,
}

/// Rows as they were read.
struct Old {
    first_row: u64,
    slots: Vec<Vec<u8>>,
}

/// Pages that a member did not read, by their place in what was read of it.
#[derive(Debug)]
pub(super) struct Unread {
    slot: usize,
    pub(super) page: Range<usize>,
    pub(super) error: io::Error,
}

/// Memory that was used and will be again: what is new to the process costs more than what is read into it.
#[derive(Debug, Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer of so many bytes, with anything in them.
    pub(super) fn take(&self, length: usize) -> Vec<u8> {
        let mut bytes = self.0.lock().expect("no panic").pop().unwrap_or_default();
        bytes.resize(length, 0);
        bytes
    }

    pub(super) fn give_back(&self, buffers: impl IntoIterator<Item = Vec<u8>>) {
        self.0.lock().expect("no panic").extend(buffers);
    }
}

/// How an array's data move.
#[derive(Debug)]
pub(super) struct Mover {
    pub(super) rows: Rows,
    pub(super) buffers: Buffers,
}

/// Rows of the kind that the level has.
#[derive(Debug)]
pub(super) enum Rows {
    Parity(ParityRows),
    Copies(CopyRows),
}

impl Mover {
    /// What the sectors of the array become: of a level with parity whole new stripes.
    pub(super) fn load(&self, devices: &impl Devices, range: &Range<u64>) -> Result<Loaded, MoveError> {
        match &self.rows {
            Rows::Parity(rows) => rows.load(devices, range, &self.buffers),
            Rows::Copies(rows) => rows.load(devices, range, &self.buffers),
        }
    }

    /// Writes it, to all members at the same time.
    pub(super) fn store(&self, devices: &impl Devices, Loaded(pieces): Loaded) -> Result<(), MoveError> {
        let ends = at_once(pieces.iter(), |&Piece { device, sector, ref bytes }| {
            let written = devices.write(device, sector, bytes);
            written.map_err(|error| MoveError::Write { device, error })
        });
        self.buffers.give_back(pieces.into_iter().map(|piece| piece.bytes));
        ends.into_iter().collect()
    }
}

/// Moves rows with parity.
#[derive(Debug)]
pub(super) struct ParityRows {
    pub(super) old: Side,
    pub(super) new: Side,
    /// Sectors of the array that was; beyond them it is zeroes.
    pub(super) old_sectors: u64,
}

impl ParityRows {
    fn load(
        &self,
        devices: &impl Devices,
        range: &Range<u64>,
        buffers: &Buffers,
    ) -> Result<Loaded, MoveError> {
        let old = self.read(devices, range.start..range.end.min(self.old_sectors), buffers)?;
        let loaded = self.rearrange(&old, range, buffers);
        buffers.give_back(old.slots);
        Ok(loaded)
    }

    /// The old rows of some sectors, whole, all data in them.
    fn read(&self, devices: &impl Devices, range: Range<u64>, buffers: &Buffers) -> Result<Old, MoveError> {
        let side = &self.old;
        let stripe = side.stripe_sectors();
        let rows = if range.is_empty() { 0..0 } else { range.start / stripe..range.end.div_ceil(stripe) };
        let length = ((rows.end - rows.start) * side.chunk * SECTOR_BYTES) as usize;
        let first = rows.start * side.chunk;
        let reads = at_once(side.slots.iter().enumerate(), |(slot, place)| {
            let mut bytes = buffers.take(length);
            let unread = place.map_or_else(Vec::new, |(device, data)| {
                read_all(devices, device, data + first, &mut bytes, slot)
            });
            (bytes, unread)
        });
        let (slots, unread): (Vec<_>, Vec<_>) = reads.into_iter().unzip();
        let mut old = Old { first_row: rows.start, slots };
        self.work_out(&mut old, unread.into_iter().flatten().collect())?;
        Ok(old)
    }

    /// Works out what is missing.
    fn work_out(&self, old: &mut Old, mut unread: Vec<Unread>) -> Result<(), MoveError> {
        let missing: Vec<usize> =
            (0..self.old.slots.len()).filter(|s| self.old.slots[*s].is_none()).collect();
        let chunk = (self.old.chunk * SECTOR_BYTES) as usize;
        let count = old.slots.first().map_or(0, Vec::len) / chunk;
        unread.sort_by_key(|unread| unread.page.start);
        for row in 0..count {
            let map = self.old.shape.stripe(old.first_row + row as u64);
            let bytes = row * chunk..(row + 1) * chunk;
            let pages = unread.iter().filter(|unread| bytes.contains(&unread.page.start));
            let pages: Vec<&Unread> = pages.collect();
            let solve = |old: &mut Old, part: &Range<usize>, lost: &[usize], error: Option<&Unread>| {
                solve(&map, old, part, lost).map_err(|()| MoveError::Read {
                    device: error.and_then(|error| self.old.slots[error.slot]).map(|(device, _)| device),
                    sector: old.first_row * self.old.chunk + part.start as u64 / SECTOR_BYTES,
                    error: error.map(|unread| copy_of(&unread.error)),
                })
            };
            if pages.is_empty() {
                solve(old, &bytes, &missing, None)?;
                continue;
            }
            for at in bytes.clone().step_by(PAGE_BYTES) {
                let part = at..(at + PAGE_BYTES).min(bytes.end);
                let bad = || pages.iter().filter(|unread| part.contains(&unread.page.start));
                let lost: Vec<usize> =
                    missing.iter().copied().chain(bad().map(|unread| unread.slot)).collect();
                solve(old, &part, &lost, bad().next().copied())?;
            }
        }
        Ok(())
    }

    /// The new rows of old ones.
    fn rearrange(&self, old: &Old, range: &Range<u64>, buffers: &Buffers) -> Loaded {
        let side = &self.new;
        let stripe = side.stripe_sectors();
        let rows = range.start / stripe..range.end / stripe;
        let chunk = (side.chunk * SECTOR_BYTES) as usize;
        let length = (rows.end - rows.start) as usize * chunk;
        let mut slots: Vec<Vec<u8>> = side.slots.iter().map(|_| buffers.take(length)).collect();
        for (place, row) in rows.clone().enumerate() {
            let map = side.shape.stripe(row);
            let bytes = place * chunk..(place + 1) * chunk;
            for data in 0..side.shape.data_disks() {
                let sector = row * stripe + u64::from(data) * side.chunk;
                self.fill(old, sector, &mut slots[map.data_slot(data).index()][bytes.clone()]);
            }
            make_parity(&map, &mut slots, bytes);
        }
        let sector = rows.start * side.chunk;
        let mut pieces = Vec::with_capacity(slots.len());
        for (place, bytes) in side.slots.iter().zip(slots) {
            match *place {
                Some((device, data)) => pieces.push(Piece { device, sector: data + sector, bytes }),
                None => buffers.give_back([bytes]),
            }
        }
        Loaded(pieces)
    }

    /// The array's bytes from a sector on; zeroes beyond its old end.
    fn fill(&self, old: &Old, sector: u64, mut target: &mut [u8]) {
        let chunk = self.old.chunk;
        let mut at = sector;
        while !target.is_empty() && at < self.old_sectors {
            let (row, data, offset) = self.old.shape.split(at);
            let slot = self.old.shape.stripe(row).data_slot(data);
            let start = ((row - old.first_row) * chunk + offset) * SECTOR_BYTES;
            let count = ((chunk - offset) * SECTOR_BYTES).min(target.len() as u64) as usize;
            let (now, rest) = target.split_at_mut(count);
            now.copy_from_slice(&old.slots[slot.index()][start as usize..start as usize + count]);
            target = rest;
            at += count as u64 / SECTOR_BYTES;
        }
        target.fill(0);
    }
}

/// Does something to all of several at the same time, or one after the other where no threads can be had.
pub(super) fn at_once<T: Copy + Send, R: Send>(
    all: impl Iterator<Item = T>,
    what: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let what = &what;
    thread::scope(|scope| {
        let begin =
            |one| thread::Builder::new().spawn_scoped(scope, move || what(one)).map_err(|_| what(one));
        let begun: Vec<_> = all.map(begin).collect();
        begun
            .into_iter()
            .map(|one| one.map_or_else(|done| done, |thread| thread.join().expect("no panic")))
            .collect()
    })
}

/// Reads a member's part, page by page where it fails.
pub(super) fn read_all(
    devices: &impl Devices,
    device: usize,
    sector: u64,
    bytes: &mut [u8],
    slot: usize,
) -> Vec<Unread> {
    if bytes.is_empty() || devices.read(device, sector, bytes).is_ok() {
        return Vec::new();
    }
    let mut unread = Vec::new();
    for (index, page) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
        let start = index * PAGE_BYTES;
        let length = page.len();
        if let Err(error) = devices.read(device, sector + start as u64 / SECTOR_BYTES, page) {
            unread.push(Unread { slot, page: start..start + length, error });
        }
    }
    unread
}

/// Works out what some slots lost of a part of a row.
fn solve(map: &StripeMap, old: &mut Old, part: &Range<usize>, lost: &[usize]) -> Result<(), ()> {
    let role = |slot: usize| parity_role(map.operand_role(Slot(slot as u16)));
    if lost.iter().all(|slot| !matches!(role(*slot), stripewise_parity::Role::Data(_))) {
        return Ok(());
    }
    let mut targets: Vec<Vec<u8>> = lost.iter().map(|_| vec![0; part.len()]).collect();
    let mut data: Vec<Option<&[u8]>> = vec![None; old.slots.len()];
    let (mut p, mut q) = (None, None);
    for (slot, bytes) in old.slots.iter().enumerate().filter(|(slot, _)| !lost.contains(slot)) {
        let bytes = &bytes[part.clone()];
        match role(slot) {
            stripewise_parity::Role::Data(index) => data[usize::from(index)] = Some(bytes),
            stripewise_parity::Role::P => p = Some(bytes),
            stripewise_parity::Role::Q => q = Some(bytes),
        }
    }
    let mut wanted: Vec<Lost<'_>> =
        lost.iter().zip(&mut targets).map(|(slot, target)| Lost::wanted(role(*slot), target)).collect();
    let result = kernels().recover(&Stripe { data: &data, p, q }, &mut wanted);
    drop(wanted);
    result.map_err(|_| ())?;
    for (slot, target) in lost.iter().zip(&targets) {
        old.slots[*slot][part.clone()].copy_from_slice(target);
    }
    Ok(())
}

/// Makes the parity of a row.
fn make_parity(map: &StripeMap, slots: &mut [Vec<u8>], bytes: Range<usize>) {
    let kernels: &Kernels = kernels();
    let mut p = std::mem::take(&mut slots[map.p.index()]);
    let mut q = map.q.map(|q| std::mem::take(&mut slots[q.index()]));
    let is_data = |slot: &usize| matches!(map.operand_role(Slot(*slot as u16)), Role::Data(_));
    if let Some(q) = &mut q {
        let mut data: Vec<Option<&[u8]>> = vec![None; slots.len()];
        for (slot, block) in slots.iter().enumerate().filter(|(slot, _)| is_data(slot)) {
            if let Role::Data(index) = map.operand_role(Slot(slot as u16)) {
                data[usize::from(index)] = Some(&block[bytes.clone()]);
            }
        }
        kernels.pq(&mut p[bytes.clone()], &mut q[bytes], &data);
    } else {
        let data = slots.iter().enumerate().filter(|(slot, _)| is_data(slot));
        let data: Vec<&[u8]> = data.map(|(_, block)| &block[bytes.clone()]).collect();
        kernels.xor(&mut p[bytes], &data);
    }
    slots[map.p.index()] = p;
    if let (Some(slot), Some(q)) = (map.q, q) {
        slots[slot.index()] = q;
    }
}

/// The same error once more.
pub(super) fn copy_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}
