//! A member's bytes behind a volatile write cache.

use std::collections::BTreeSet;

use stripewise_engine::io::IoError;
use stripewise_engine::units::{SECTOR_BYTES, SectorRange};

use crate::random::Random;

const SECTOR: usize = SECTOR_BYTES as usize;

/// A write: where, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandWrite {
    /// First sector of the device.
    pub sector: u64,
    /// Whole sectors.
    pub bytes: Vec<u8>,
}

/// A write in the cache.
#[derive(Clone, Debug)]
struct Cached {
    /// How many were answered before it.
    number: u64,
    write: CommandWrite,
}

/// What a power cut leaves of writes that were not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// All of them.
    All,
    /// None of them.
    None,
    /// Those whose bit is set, counted over all members in order of member and time; beyond 64, none.
    Subset(u64),
    /// As the seed says, each whole, torn or not at all.
    Seeded(u64),
}

/// A device: the bytes on its medium, and what its cache holds beyond them.
#[derive(Clone, Debug)]
pub struct MemberStorage {
    /// What a read returns.
    volatile: Vec<u8>,
    /// What a power cut cannot take.
    media: Vec<u8>,
    cached: Vec<Cached>,
    answered: u64,
    unreadable: BTreeSet<u64>,
    /// Writes from this sector on are done whole or not at all.
    untorn: Option<u64>,
}

impl MemberStorage {
    /// A device of so many sectors of zeroes.
    pub fn new(sectors: u64) -> Self {
        let bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
        Self {
            volatile: bytes.clone(),
            media: bytes,
            cached: Vec::new(),
            answered: 0,
            unreadable: BTreeSet::new(),
            untorn: None,
        }
    }

    /// Sectors of the device.
    pub fn sectors(&self) -> u64 {
        self.media.len() as u64 / SECTOR_BYTES
    }

    /// What reads return now, faults aside.
    pub fn bytes(&self, range: SectorRange) -> &[u8] {
        &self.volatile[span(range)]
    }

    /// Puts bytes on the medium as if they had always been there.
    pub fn put(&mut self, sector: u64, bytes: &[u8]) {
        let range = SectorRange::new(sector, bytes.len() as u64 / SECTOR_BYTES);
        self.volatile[span(range)].copy_from_slice(bytes);
        self.media[span(range)].copy_from_slice(bytes);
    }

    /// Has writes that begin at a sector done whole or not at all.
    pub const fn keep_whole(&mut self, sector: u64) {
        self.untorn = Some(sector);
    }

    /// Reads.
    ///
    /// # Errors
    /// [`IoError::Media`] where a sector is unreadable.
    pub fn read(&self, range: SectorRange) -> Result<&[u8], IoError> {
        if self.unreadable.range(range.start..range.end()).next().is_some() {
            return Err(IoError::Media);
        }
        Ok(self.bytes(range))
    }

    /// Takes a write into the cache, or through it to the medium.
    pub fn write(&mut self, write: CommandWrite, fua: bool) {
        let range = write.range();
        self.volatile[span(range)].copy_from_slice(&write.bytes);
        for sector in range.start..range.end() {
            self.unreadable.remove(&sector);
        }
        if fua {
            // What older writes of these sectors the cache holds is of no account any more: the newest bytes of a
            // sector are durable, and a cut must not bring older ones back.
            self.media[span(range)].copy_from_slice(&write.bytes);
            for older in &mut self.cached {
                older.write.forget(range, &self.media);
            }
        } else {
            self.cached.push(Cached { number: self.answered, write });
        }
        self.answered += 1;
    }

    /// The point in time that a flush asked for now makes durable.
    pub const fn flush_point(&self) -> u64 {
        self.answered
    }

    /// Makes durable what was answered before a flush was asked for.
    pub fn flush(&mut self, point: u64) {
        let cached = std::mem::take(&mut self.cached);
        for entry in cached {
            if entry.number < point {
                self.media[span(entry.write.range())].copy_from_slice(&entry.write.bytes);
            } else {
                self.cached.push(entry);
            }
        }
    }

    /// Writes that a power cut may take.
    pub fn unflushed(&self) -> impl Iterator<Item = &CommandWrite> {
        self.cached.iter().map(|c| &c.write)
    }

    /// Makes sectors unreadable until they are written.
    pub fn spoil(&mut self, range: SectorRange) {
        self.unreadable.extend(range.start..range.end().min(self.sectors()));
    }

    /// Makes every sector readable again, with what it held.
    pub fn mend(&mut self) {
        self.unreadable.clear();
    }

    /// Whether a read of the range fails.
    pub fn is_unreadable(&self, range: SectorRange) -> bool {
        self.unreadable.range(range.start..range.end()).next().is_some()
    }

    /// Whether a sector is unreadable.
    pub fn is_spoilt(&self) -> bool {
        !self.unreadable.is_empty()
    }

    /// Flips a bit, on the medium and in the cache.
    pub fn flip(&mut self, sector: u64, bit: u64) {
        let (byte, mask) = ((sector * SECTOR_BYTES + bit / 8 % SECTOR_BYTES) as usize, 1 << (bit % 8));
        self.volatile[byte] ^= mask;
        self.media[byte] ^= mask;
        for Cached { write, .. } in &mut self.cached {
            if write.range().overlaps(SectorRange::new(sector, 1)) {
                write.bytes[byte - write.sector as usize * SECTOR] ^= mask;
            }
        }
    }

    /// Cuts the power: `in_flight` are writes that were asked for and not answered, `first` the number of the
    /// first write for [`Survival::Subset`]. Answers how many writes were in doubt.
    pub fn power_cut(&mut self, in_flight: &[CommandWrite], survival: Survival, first: u64) -> u64 {
        let mut random = match survival {
            Survival::Seeded(seed) => Random::new(seed ^ first.wrapping_mul(0x9E37_79B9)),
            _ => Random::new(0),
        };
        let kept_percent = random.pick(&[5, 30, 50, 70, 95]);
        let cached = std::mem::take(&mut self.cached);
        let in_doubt: Vec<&CommandWrite> = cached.iter().map(|c| &c.write).chain(in_flight).collect();
        for (index, write) in in_doubt.iter().enumerate() {
            let number = first + index as u64;
            let range = match survival {
                Survival::All => write.range(),
                Survival::Subset(bits) if number < 64 && bits >> number & 1 == 1 => write.range(),
                Survival::None | Survival::Subset(_) => continue,
                Survival::Seeded(_) => {
                    if !random.chance(kept_percent) {
                        continue;
                    }
                    let range = torn(write.range(), &mut random);
                    if self.untorn == Some(write.sector) { write.range() } else { range }
                }
            };
            let from = ((range.start - write.sector) * SECTOR_BYTES) as usize;
            self.media[span(range)].copy_from_slice(&write.bytes[from..from + range.count as usize * SECTOR]);
            for sector in range.start..range.end() {
                self.unreadable.remove(&sector);
            }
        }
        let count = in_doubt.len() as u64;
        self.volatile.copy_from_slice(&self.media);
        count
    }
}

impl CommandWrite {
    /// Its sectors.
    pub fn range(&self) -> SectorRange {
        SectorRange::new(self.sector, self.bytes.len() as u64 / SECTOR_BYTES)
    }

    /// Makes the sectors shared with a range equal to the medium.
    fn forget(&mut self, range: SectorRange, media: &[u8]) {
        let own = self.range();
        let (start, end) = (own.start.max(range.start), own.end().min(range.end()));
        if start < end {
            let shared = SectorRange::new(start, end - start);
            let at = ((start - self.sector) * SECTOR_BYTES) as usize;
            self.bytes[at..at + shared.count as usize * SECTOR].copy_from_slice(&media[span(shared)]);
        }
    }
}

/// The whole write, or one piece of it.
fn torn(range: SectorRange, random: &mut Random) -> SectorRange {
    if range.count < 2 || random.chance(60) {
        return range;
    }
    let cut = 1 + random.below(range.count - 1);
    if random.chance(50) {
        SectorRange::new(range.start, cut)
    } else {
        SectorRange::new(range.start + cut, range.count - cut)
    }
}

const fn span(range: SectorRange) -> std::ops::Range<usize> {
    range.start as usize * SECTOR..range.end() as usize * SECTOR
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sector: u64, byte: u8, sectors: usize) -> CommandWrite {
        CommandWrite { sector, bytes: vec![byte; sectors * SECTOR] }
    }

    fn sector(storage: &MemberStorage, sector: u64) -> u8 {
        storage.bytes(SectorRange::new(sector, 1))[0]
    }

    #[test]
    fn a_cut_takes_what_was_not_flushed_and_nothing_else() {
        let mut storage = MemberStorage::new(8);
        storage.write(write(0, 1, 1), false);
        let point = storage.flush_point();
        storage.write(write(1, 2, 1), false);
        storage.flush(point);
        storage.write(write(2, 3, 1), true);
        let in_doubt = storage.power_cut(&[write(3, 4, 1)], Survival::None, 0);
        assert_eq!(in_doubt, 2, "the write after the flush was asked for, and the one in flight");
        assert_eq!([0, 1, 2, 3].map(|s| sector(&storage, s)), [1, 0, 3, 0]);
    }

    #[test]
    fn a_cut_leaves_the_chosen_writes() {
        let mut storage = MemberStorage::new(8);
        storage.write(write(0, 1, 2), false);
        storage.write(write(1, 2, 2), false);
        storage.power_cut(&[write(5, 3, 1)], Survival::Subset(0b1001 << 2), 2);
        assert_eq!([0, 1, 2, 5].map(|s| sector(&storage, s)), [1, 1, 0, 0]);
    }

    #[test]
    fn forced_unit_access_is_not_undone_by_older_writes() {
        for survival in (0..200).map(Survival::Seeded).chain([Survival::All]) {
            let mut storage = MemberStorage::new(8);
            storage.write(write(0, 1, 4), false);
            storage.write(write(1, 2, 2), true);
            storage.power_cut(&[], survival, 0);
            assert_eq!([1, 2].map(|s| sector(&storage, s)), [2, 2]);
        }
    }

    #[test]
    fn seeds_tear_writes_at_every_sector() {
        let mut seen = BTreeSet::new();
        for seed in 0..2_000 {
            let mut storage = MemberStorage::new(4);
            storage.write(write(0, 1, 4), false);
            storage.power_cut(&[], Survival::Seeded(seed), 0);
            seen.insert([0, 1, 2, 3].map(|s| sector(&storage, s)));
        }
        assert_eq!(seen.len(), 8, "none, all, three heads and three tails");
    }

    #[test]
    fn an_unreadable_sector_reads_again_once_written() {
        let mut storage = MemberStorage::new(8);
        storage.spoil(SectorRange::new(3, 1));
        assert_eq!(storage.read(SectorRange::new(0, 8)), Err(IoError::Media));
        assert!(storage.read(SectorRange::new(0, 3)).is_ok());
        storage.write(write(3, 1, 1), false);
        assert!(storage.read(SectorRange::new(0, 8)).is_ok());
    }
}
