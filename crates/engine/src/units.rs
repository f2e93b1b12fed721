//! Units that cross public boundaries: sectors, slots, instants. One type each, so that a byte count is
//! never taken for a sector count.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in a sector, the unit of every address here as in the kernel's block layer.
pub const SECTOR_BYTES: u64 = 512;
/// Bytes in a page: the height of a row, and of a stripe-cache entry on one member.
pub const PAGE_BYTES: u64 = 4096;
/// Sectors in a page.
pub const PAGE_SECTORS: u64 = PAGE_BYTES / SECTOR_BYTES;
/// The most members an array may have; md's limit for version-1 superblocks.
pub const MEMBERS_MAX: usize = 384;

/// A member's place in the array (md's raid disk number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A storage device in the table that the loop keeps of an array's members. At the start the members of the slots
/// come first, in order of slots, then spares; a slot's member changes when a spare takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberIndex(pub u16);

impl MemberIndex {
    /// The member as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for MemberIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A point in time: nanoseconds since the loop that runs the engine started its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// Nanoseconds from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// A length of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// A length of whole microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// A length of seconds, rounded to nanoseconds; negative or not finite counts as zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e9).round().max(0.0) as u64)
    }

    /// The length in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    fn add(self, rhs: Nanos) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

/// A run of sectors of the array or of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SectorRange {
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub count: u64,
}

impl SectorRange {
    /// The range of `count` sectors from `start`.
    pub const fn new(start: u64, count: u64) -> Self {
        Self { start, count }
    }

    /// One past the last sector.
    pub const fn end(self) -> u64 {
        self.start + self.count
    }

    /// Whether it begins and ends with units of so many sectors.
    pub const fn has_whole(self, unit_sectors: u64) -> bool {
        (self.start | self.count).is_multiple_of(unit_sectors)
    }

    /// Whether the two ranges share a sector.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}
