//! Where a sector of the array lies on its members, and back: pure maps, one file per family of levels.
//!
//! Sectors of a member are counted from the start of its data (md's `data_offset` is added by the member).

mod divisor;
mod error;
mod linear;
mod parity;
mod raid0;
mod raid10;

pub use divisor::Divisor;
pub use error::GeometryError;
pub use linear::LinearShape;
pub use parity::{ParityShape, StripeMap, StripeRole};
pub use raid0::Raid0Shape;
pub use raid10::Raid10Shape;

use crate::level::{Layout, Level};
use crate::units::{MEMBERS_MAX, PAGE_SECTORS, SECTOR_BYTES, Slot};

/// What an array is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeometrySpec {
    /// Level.
    pub level: Level,
    /// Layout; must be one of the level's.
    pub layout: Layout,
    /// Chunk in sectors; ignored for RAID-1, a rounding of member sizes for linear (0: none).
    pub chunk_sectors: u64,
    /// Data size of each member in sectors, by slot; the number of members is its length.
    pub member_sectors: Vec<u64>,
}

/// A place on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The member.
    pub slot: Slot,
    /// The member's sector.
    pub sector: u64,
}

/// What a member's sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// This sector of the array (one of its copies).
    Data(u64),
    /// Parity.
    Parity,
    /// Nothing: rounding at the end of the member.
    Nothing,
}

/// The layout of an array by family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One after the other.
    Linear(LinearShape),
    /// Striped in zones.
    Raid0(Raid0Shape),
    /// All members alike.
    Mirror,
    /// RAID-4, 5 and 6.
    Parity(ParityShape),
    /// RAID-10.
    Raid10(Raid10Shape),
}

/// A checked geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    level: Level,
    layout: Layout,
    raid_disks: u16,
    chunk_sectors: u64,
    array_sectors: u64,
    used_sectors: Vec<u64>,
    shape: Shape,
}

impl Geometry {
    /// Checks a specification and works out the map.
    ///
    /// # Errors
    /// What is impossible about it, and what would be right.
    pub fn new(spec: &GeometrySpec) -> Result<Self, GeometryError> {
        check(spec)?;
        let n = spec.member_sectors.len() as u16;
        let chunk = spec.chunk_sectors;
        let smallest = *spec.member_sectors.iter().min().expect("checked: at least one member");
        let (shape, array_sectors, used_sectors) = match (spec.level, spec.layout) {
            (Level::Linear, _) => {
                let shape = LinearShape::new(&spec.member_sectors, chunk);
                let (total, used) = (shape.array_sectors(), shape.used_sectors());
                (Shape::Linear(shape), total, used)
            }
            (Level::Raid0, Layout::Raid0(layout)) => {
                let shape = Raid0Shape::new(&spec.member_sectors, chunk, layout);
                let used = spec.member_sectors.iter().map(|s| s / chunk * chunk).collect();
                (Shape::Raid0(shape.clone()), shape.array_sectors(), used)
            }
            (Level::Raid1, _) => (Shape::Mirror, smallest, vec![smallest; n.into()]),
            (Level::Raid4 | Level::Raid5 | Level::Raid6, Layout::Parity(layout))
                if Layout::from_number(spec.level, spec.layout.number()) == Some(spec.layout) =>
            {
                let shape = ParityShape::new(spec.level, layout, n, chunk);
                let used = smallest / chunk * chunk;
                let total = used * u64::from(shape.data_disks());
                (Shape::Parity(shape), total, vec![used; n.into()])
            }
            (Level::Raid10, Layout::Raid10(layout)) => {
                let shape = Raid10Shape::new(layout, n, chunk, smallest);
                let (total, used) = (shape.array_sectors(), shape.used_sectors());
                (Shape::Raid10(shape), total, vec![used; n.into()])
            }
            _ => return Err(GeometryError::LayoutOfAnotherLevel { level: spec.level, layout: spec.layout }),
        };
        if array_sectors == 0 {
            return Err(GeometryError::TooSmall { sectors: smallest, needed: needed_sectors(spec) });
        }
        if array_sectors > ARRAY_SECTORS_MAX {
            return Err(GeometryError::ArrayTooLarge { sectors: array_sectors });
        }
        Ok(Self {
            level: spec.level,
            layout: spec.layout,
            raid_disks: n,
            chunk_sectors: chunk,
            array_sectors,
            used_sectors,
            shape,
        })
    }

    /// The level.
    pub const fn level(&self) -> Level {
        self.level
    }

    /// The layout.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Number of members.
    pub const fn raid_disks(&self) -> u16 {
        self.raid_disks
    }

    /// Members' worth of data: all but parity and copies (rounded down for RAID-10).
    pub fn data_disks(&self) -> u16 {
        match &self.shape {
            Shape::Linear(_) | Shape::Raid0(_) => self.raid_disks,
            Shape::Mirror => 1,
            Shape::Parity(p) => p.data_disks(),
            Shape::Raid10(r) => (self.raid_disks / r.layout().copies()).max(1),
        }
    }

    /// Chunk in sectors.
    pub const fn chunk_sectors(&self) -> u64 {
        self.chunk_sectors
    }

    /// Size of the array in sectors.
    pub const fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    /// Sectors of a member that the array uses.
    ///
    /// # Panics
    /// If the array has no such slot.
    pub fn used_sectors(&self, slot: Slot) -> u64 {
        self.used_sectors[slot.index()]
    }

    /// The family's own map.
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Sectors from `sector` that lie in one piece on one member (up to the end of the chunk).
    ///
    /// # Panics
    /// If the sector is beyond the array's, for some levels.
    pub fn contiguous(&self, sector: u64) -> u64 {
        match &self.shape {
            Shape::Linear(l) => l.contiguous(sector),
            Shape::Mirror => self.array_sectors - sector,
            Shape::Parity(_) | Shape::Raid10(_) => self.chunk_sectors - (sector & (self.chunk_sectors - 1)),
            Shape::Raid0(r) => r.locate(sector).1,
        }
    }

    /// Where the first copy of an array sector lies, and how many sectors from it on lie there in one piece.
    #[inline]
    pub(crate) fn locate(&self, sector: u64) -> (Place, u64) {
        match &self.shape {
            Shape::Raid0(r) => r.locate(sector),
            Shape::Parity(p) => p.locate(sector),
            _ => (self.place(sector, 0), self.contiguous(sector)),
        }
    }

    /// Copies of each sector: one without mirroring.
    pub fn copies(&self) -> u16 {
        match &self.shape {
            Shape::Mirror => self.raid_disks,
            Shape::Raid10(r) => r.layout().copies(),
            _ => 1,
        }
    }

    /// Where copy number `copy` of an array sector lies.
    ///
    /// # Panics
    /// If the sector or the copy is beyond the array's.
    pub fn place(&self, sector: u64, copy: u16) -> Place {
        assert!(sector < self.array_sectors && copy < self.copies(), "sector or copy beyond the array");
        // Each shape's is a function of its own, which leaves this one without registers to save, and mirrors quick.
        match &self.shape {
            Shape::Linear(l) => l.place(sector),
            Shape::Raid0(r) => r.place(sector),
            Shape::Mirror => Place { slot: Slot(copy), sector },
            Shape::Parity(p) => p.place(sector),
            Shape::Raid10(r) => r.place(sector, copy),
        }
    }

    /// What a member's sector holds.
    pub fn holds(&self, place: Place) -> Holds {
        if place.slot.0 >= self.raid_disks || place.sector >= self.used_sectors(place.slot) {
            return Holds::Nothing;
        }
        let holds = match &self.shape {
            Shape::Linear(l) => Holds::Data(l.array_sector(place)),
            Shape::Raid0(r) => Holds::Data(r.array_sector(place)),
            Shape::Mirror => Holds::Data(place.sector),
            Shape::Parity(p) => p.holds(place),
            Shape::Raid10(r) => Holds::Data(r.array_sector(place)),
        };
        match holds {
            Holds::Data(sector) if sector >= self.array_sectors => Holds::Nothing,
            other => other,
        }
    }
}

fn needed_sectors(spec: &GeometrySpec) -> u64 {
    match spec.layout {
        Layout::Raid10(l) => spec.chunk_sectors.max(1) * u64::from(l.far),
        _ => spec.chunk_sectors.max(1),
    }
}

fn check(spec: &GeometrySpec) -> Result<(), GeometryError> {
    let members = spec.member_sectors.len();
    let level = spec.level;
    if members < usize::from(level.members_min()) {
        return Err(GeometryError::TooFewMembers { level, members, needed: level.members_min() });
    }
    if members > MEMBERS_MAX {
        return Err(GeometryError::TooManyMembers { level, members, allowed: MEMBERS_MAX });
    }
    if level == Level::Raid6 && members > parity::RAID6_MEMBERS_MAX {
        return Err(GeometryError::TooManyMembers { level, members, allowed: parity::RAID6_MEMBERS_MAX });
    }
    if let Layout::Raid10(layout) = spec.layout {
        if layout.copies() < 2 {
            return Err(GeometryError::OneCopy { layout });
        }
        if usize::from(layout.copies()) > members {
            return Err(GeometryError::TooManyCopies { layout, members });
        }
        if !raid10::keeps_copies_apart(layout, members) {
            return Err(GeometryError::CopiesMeet { layout, members });
        }
        if !raid10::keeps_blocks_apart(layout, members) {
            return Err(GeometryError::BlocksMeet { layout, members });
        }
    }
    let chunk = spec.chunk_sectors;
    let power_of_two_needed = matches!(level, Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10);
    if level.has_chunks() && (chunk == 0 || !chunk.is_multiple_of(PAGE_SECTORS)) {
        return Err(GeometryError::ChunkNotPages { chunk_sectors: chunk });
    }
    if power_of_two_needed && !chunk.is_power_of_two() {
        return Err(GeometryError::ChunkNotPowerOfTwo { level, chunk_sectors: chunk });
    }
    // md keeps a chunk in a 32-bit count of sectors and sizes in 64 bits; products here must not overflow.
    if chunk > 1 << 31 {
        return Err(GeometryError::ChunkTooLarge { chunk_sectors: chunk });
    }
    if let Some(&sectors) = spec.member_sectors.iter().find(|s| **s > MEMBER_SECTORS_MAX) {
        return Err(GeometryError::MemberTooLarge { sectors });
    }
    Ok(())
}

/// The largest array, in sectors: its bytes are a signed number to NBD, files and Linux.
pub const ARRAY_SECTORS_MAX: u64 = i64::MAX as u64 / SECTOR_BYTES;

/// The largest member, in sectors: far above any storage, low enough that no product overflows.
pub const MEMBER_SECTORS_MAX: u64 = 1 << 50;

#[cfg(test)]
mod tests;
