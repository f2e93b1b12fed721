//! What every sector of an array may hold.
//!
//! # What must survive
//! - A read returns, of each sector, the last write answered before the read was asked for, or one that was under way
//!   while the read was.
//! - After a power cut each sector holds its last durable write or a later one, answered or not. A write is durable
//!   if it was answered and asked for forced unit access, or if it was answered before a flush was asked for and that
//!   flush was answered without an error.
//! - What was read after a cut stays what is read, until it is written; where copies may still differ and the first
//!   of them may fail to answer, once they agree.
//!
//! # What may be lost
//! - Writes that were not durable, sector by sector, in any order.
//! - A write that was answered with an error leaves old or new sectors.
//! - Discarded sectors hold anything.

use std::collections::BTreeSet;

use stripewise_engine::io::IoResult;
use stripewise_engine::units::{SECTOR_BYTES, SectorRange};

use super::content::{Version, describe};

/// How far a write has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Under way.
    InFlight,
    /// It ended with an error.
    Uncertain,
    /// It may have survived a power cut.
    Survivor,
    /// It survived, and was read at this time.
    Read(u64),
    /// It was answered at this time.
    Answered(u64),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    version: Version,
    issued: u64,
    state: State,
    durable: bool,
}

/// A handle of a request that the oracle watches: when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watch {
    issued: u64,
    version: Version,
}

/// A sector that holds what it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The array's sector.
    pub sector: u64,
    /// What was found.
    pub found: String,
    /// What would be right.
    pub allowed: Vec<Version>,
}

/// The judge.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// By sector, oldest first. The entries of a sector are in the order in which they take effect.
    sectors: Vec<Vec<Entry>>,
    /// Sectors whose copies may differ, with no first one to rely on.
    fickle: BTreeSet<u64>,
    now: u64,
    versions: u32,
}

impl Oracle {
    /// An array of so many sectors of zeroes, durable.
    pub fn new(sectors: u64) -> Self {
        let entry = Entry { version: Version::ZERO, issued: 0, state: State::Answered(0), durable: true };
        Self { sectors: vec![vec![entry]; sectors as usize], fickle: BTreeSet::new(), now: 1, versions: 0 }
    }

    /// A request was asked for that writes nothing.
    pub fn asked(&mut self) -> Watch {
        self.now += 1;
        Watch { issued: self.now, version: Version::ANY }
    }

    /// A version for the next write.
    pub const fn next_version(&mut self) -> Version {
        self.versions += 1;
        Version(self.versions)
    }

    /// A write of this version was asked for.
    pub fn writes(&mut self, range: SectorRange, version: Version) -> Watch {
        self.now += 1;
        let entry = Entry { version, issued: self.now, state: State::InFlight, durable: false };
        for sector in &mut self.sectors[span(range)] {
            sector.push(entry);
        }
        Watch { issued: self.now, version }
    }

    /// A write was answered.
    pub fn wrote(&mut self, range: SectorRange, watch: Watch, result: IoResult, fua: bool) {
        self.now += 1;
        let state = if result.is_ok() { State::Answered(self.now) } else { State::Uncertain };
        for sector in &mut self.sectors[span(range)] {
            let entry = sector.iter_mut().find(|e| e.issued == watch.issued && e.version == watch.version);
            // A later write of the sector may have become durable meanwhile, and this one forgotten.
            if let Some(entry) = entry {
                entry.state = state;
                entry.durable = fua && result.is_ok();
            }
        }
    }

    /// A flush was answered without an error. `oldest` is the oldest request still under way.
    pub fn flushed(&mut self, watch: Watch, oldest: Option<Watch>) {
        self.now += 1;
        let keep_since = oldest.map_or(self.now, |w| w.issued);
        for sector in &mut self.sectors {
            for entry in sector.iter_mut() {
                entry.durable |= matches!(entry.state, State::Answered(at) if at < watch.issued);
            }
            let answered_before = |e: &Entry| matches!(e.state, State::Answered(at) if at < keep_since);
            let last = sector.iter().rposition(|e| e.durable && answered_before(e)).unwrap_or(0);
            sector.drain(..last);
        }
    }

    /// Checks what a read returned.
    ///
    /// # Errors
    /// The first sector that holds what it must not.
    pub fn read(&mut self, range: SectorRange, watch: Watch, bytes: &[u8]) -> Result<(), Wrong> {
        self.now += 1;
        for (sector, bytes) in (range.start..).zip(bytes.chunks_exact(SECTOR_BYTES as usize)) {
            let entries = &mut self.sectors[sector as usize];
            let answered =
                |e: &Entry| matches!(e.state, State::Answered(at) | State::Read(at) if at < watch.issued);
            let first = entries.iter().rposition(answered).unwrap_or(0);
            let Some(found) = entries[first..].iter().rev().find(|e| e.version.is(sector, bytes)) else {
                let allowed = entries[first..].iter().map(|e| e.version).collect();
                return Err(Wrong { sector, found: describe(bytes), allowed });
            };
            let found = *found;
            let untouched = entries.len() > 1 && entries.iter().all(|e| e.state == State::Survivor);
            if untouched && found.version != Version::ANY && !self.fickle.contains(&sector) {
                entries.push(Entry { state: State::Read(self.now), durable: false, ..found });
            }
        }
        Ok(())
    }

    /// The power failed: forgets what is not on the way any more.
    pub fn power_cut(&mut self) {
        self.now += 1;
        for entries in &mut self.sectors {
            let first = entries.iter().rposition(|e| e.durable).unwrap_or(0);
            entries.drain(..first);
            if entries.len() == 1 {
                continue;
            }
            for entry in entries.iter_mut() {
                *entry = Entry { state: State::Survivor, durable: false, ..*entry };
            }
        }
    }

    /// Checks what a copy of a sector may hold after a power cut.
    ///
    /// # Errors
    /// What it must not hold.
    pub fn may_hold(&self, sector: u64, bytes: &[u8]) -> Result<(), Wrong> {
        let entries = &self.sectors[sector as usize];
        if entries.iter().any(|e| e.version.is(sector, bytes)) {
            return Ok(());
        }
        let allowed = entries.iter().map(|e| e.version).collect();
        Err(Wrong { sector, found: describe(bytes), allowed })
    }

    /// These sectors' copies may differ, and each may be read, until [`Self::settled`].
    pub fn unsettle(&mut self, range: SectorRange) {
        for sector in range.start..range.end() {
            let entries = &mut self.sectors[sector as usize];
            entries.retain(|e| !matches!(e.state, State::Read(_)));
            self.fickle.insert(sector);
        }
    }

    /// Copies agree.
    pub fn settled(&mut self) {
        self.fickle.clear();
    }

    /// All that was answered is durable.
    pub fn stopped(&mut self) {
        let watch = self.asked();
        self.flushed(watch, None);
    }

    /// Nothing is promised of these sectors until they are written, if some of them may hold one or another since power failed.
    pub fn undefine_unfinished(&mut self, range: SectorRange) {
        if self.sectors[span(range)].iter().any(|entries| entries.len() > 1) {
            self.undefine(range);
        }
    }

    /// Nothing is promised of these sectors until they are written.
    pub fn undefine(&mut self, range: SectorRange) {
        for entries in &mut self.sectors[span(range)] {
            let issued = entries.last().map_or(0, |e| e.issued);
            entries.push(Entry { version: Version::ANY, issued, state: State::Survivor, durable: false });
        }
    }
}

const fn span(range: SectorRange) -> std::ops::Range<usize> {
    range.start as usize..range.end() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SectorRange = SectorRange::new(3, 1);

    fn written(oracle: &mut Oracle, fua: bool) -> Version {
        let version = oracle.next_version();
        let watch = oracle.writes(ONE, version);
        oracle.wrote(ONE, watch, Ok(()), fua);
        version
    }

    fn reads(oracle: &mut Oracle, version: Version) -> bool {
        let watch = oracle.asked();
        oracle.read(ONE, watch, &version.bytes(3)).is_ok()
    }

    #[test]
    fn a_read_returns_the_last_answered_write() {
        let mut oracle = Oracle::new(8);
        let first = written(&mut oracle, false);
        assert!(reads(&mut oracle, first));
        let second = written(&mut oracle, false);
        assert!(!reads(&mut oracle, first));
        assert!(reads(&mut oracle, second));
    }

    #[test]
    fn a_read_beside_a_write_returns_old_or_new() {
        let mut oracle = Oracle::new(8);
        let first = written(&mut oracle, false);
        let second = oracle.next_version();
        let read = oracle.asked();
        let watch = oracle.writes(ONE, second);
        assert!(oracle.read(ONE, read, &first.bytes(3)).is_ok());
        assert!(oracle.read(ONE, read, &second.bytes(3)).is_ok());
        assert!(oracle.read(ONE, read, &Version::ZERO.bytes(3)).is_err(), "before the first");
        oracle.wrote(ONE, watch, Ok(()), false);
        assert!(oracle.read(ONE, read, &first.bytes(3)).is_ok(), "the read was under way");
    }

    #[test]
    fn a_cut_may_take_what_was_not_flushed() {
        let mut oracle = Oracle::new(8);
        let first = written(&mut oracle, false);
        let flush = oracle.asked();
        let second = written(&mut oracle, false);
        oracle.flushed(flush, None);
        let third = oracle.next_version();
        oracle.writes(ONE, third);
        oracle.power_cut();
        for (version, may) in [(Version::ZERO, false), (first, true), (second, true), (third, true)] {
            assert_eq!(oracle.may_hold(3, &version.bytes(3)).is_ok(), may, "{version:?}");
        }
        assert!(reads(&mut oracle, second));
        assert!(!reads(&mut oracle, third), "what was read stays");
        oracle.power_cut();
        assert!(oracle.may_hold(3, &third.bytes(3)).is_ok(), "until the next cut: it was not flushed");
    }

    #[test]
    fn copies_that_may_differ_are_read_one_way_only_while_the_first_answers() {
        let mut oracle = Oracle::new(8);
        let first = written(&mut oracle, true);
        let second = written(&mut oracle, false);
        oracle.power_cut();
        assert!(reads(&mut oracle, second) && !reads(&mut oracle, first));
        oracle.unsettle(ONE);
        assert!(reads(&mut oracle, first) && reads(&mut oracle, second));
        oracle.settled();
        assert!(reads(&mut oracle, first) && !reads(&mut oracle, second));
    }

    #[test]
    fn forced_unit_access_is_durable_at_once() {
        let mut oracle = Oracle::new(8);
        let first = written(&mut oracle, false);
        let second = written(&mut oracle, true);
        oracle.power_cut();
        assert!(oracle.may_hold(3, &first.bytes(3)).is_err());
        assert!(oracle.may_hold(3, &second.bytes(3)).is_ok());
    }
}
