//! `mdp_superblock_1.feature_map`: what a reader must understand before it touches the array.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of features (`MD_FEATURE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u32);

impl Features {
    /// `bitmap_offset` holds: there is an internal bitmap.
    pub const BITMAP_OFFSET: Self = Self(1);
    /// `recovery_offset` holds: this member is partly recovered.
    pub const RECOVERY_OFFSET: Self = Self(2);
    /// The reshape fields hold.
    pub const RESHAPE_ACTIVE: Self = Self(4);
    /// The bad-block log is not empty.
    pub const BAD_BLOCKS: Self = Self(8);
    /// This member replaces another of the same slot.
    pub const REPLACEMENT: Self = Self(16);
    /// The reshape runs from the end to the start though no slots go.
    pub const RESHAPE_BACKWARDS: Self = Self(32);
    /// `new_offset` holds.
    pub const NEW_OFFSET: Self = Self(64);
    /// The recovery follows the bitmap.
    pub const RECOVERY_BITMAP: Self = Self(128);
    /// The bitmap's version is to be checked strictly.
    pub const BITMAP_VERSIONED: Self = Self(256);
    /// The array has a write journal device.
    pub const JOURNAL: Self = Self(512);
    /// The members hold a partial parity log of one header.
    pub const PPL: Self = Self(1024);
    /// The members hold partial parity logs, one after the other.
    pub const MULTIPLE_PPLS: Self = Self(2048);
    /// `layout` holds for RAID-0.
    pub const RAID0_LAYOUT: Self = Self(4096);

    const NAMES: [(Self, &'static str); 13] = [
        (Self::BITMAP_OFFSET, "bitmap"),
        (Self::RECOVERY_OFFSET, "recovery offset"),
        (Self::RESHAPE_ACTIVE, "reshape"),
        (Self::BAD_BLOCKS, "bad blocks"),
        (Self::REPLACEMENT, "replacement"),
        (Self::RESHAPE_BACKWARDS, "reshape backwards"),
        (Self::NEW_OFFSET, "new offset"),
        (Self::RECOVERY_BITMAP, "recovery bitmap"),
        (Self::BITMAP_VERSIONED, "bitmap versioned"),
        (Self::JOURNAL, "journal"),
        (Self::PPL, "PPL"),
        (Self::MULTIPLE_PPLS, "multiple PPLs"),
        (Self::RAID0_LAYOUT, "RAID-0 layout"),
    ];

    /// The features of the number on disk, or the bits that mean nothing here.
    pub fn from_number(number: u32) -> Result<Self, u32> {
        let known = Self::NAMES.iter().fold(0, |bits, (feature, _)| bits | feature.0);
        if number & !known == 0 { Ok(Self(number)) } else { Err(number & !known) }
    }

    /// The number on disk.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Whether all of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether one of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// These in common with `other`.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Features {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Features {
    /// The names, with commas between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(feature, _)| self.contains(*feature)).map(|(_, name)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}
