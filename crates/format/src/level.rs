//! Levels and layouts, with md's numbers (the superblock's `level` and `layout`) and mdadm's names.

use std::fmt;
use std::str::FromStr;

/// A RAID level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Members one after the other.
    Linear,
    /// Striped, no redundancy.
    Raid0,
    /// Mirrored.
    Raid1,
    /// Striped, parity on the last member.
    Raid4,
    /// Striped, one rotating parity.
    Raid5,
    /// Striped, two rotating parities (P and Q).
    Raid6,
    /// Striped over copies: near, far or offset.
    Raid10,
}

impl Level {
    /// Every level.
    pub const ALL: [Self; 7] =
        [Self::Linear, Self::Raid0, Self::Raid1, Self::Raid4, Self::Raid5, Self::Raid6, Self::Raid10];

    /// md's number (`mdp_superblock_1.level`).
    pub const fn number(self) -> i32 {
        match self {
            Self::Linear => -1,
            Self::Raid0 => 0,
            Self::Raid1 => 1,
            Self::Raid4 => 4,
            Self::Raid5 => 5,
            Self::Raid6 => 6,
            Self::Raid10 => 10,
        }
    }

    /// The level of md's number.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|l| l.number() == number)
    }

    /// mdadm's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid4 => "raid4",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
            Self::Raid10 => "raid10",
        }
    }

    /// Members that hold parity in a stripe; zero for levels without parity.
    pub const fn parity_count(self) -> u16 {
        match self {
            Self::Raid4 | Self::Raid5 => 1,
            Self::Raid6 => 2,
            _ => 0,
        }
    }

    /// Whether members hold copies of each other, or parity of them.
    pub const fn is_redundant(self) -> bool {
        !matches!(self, Self::Linear | Self::Raid0)
    }

    /// Whether the level is cut into chunks.
    pub const fn has_chunks(self) -> bool {
        !matches!(self, Self::Linear | Self::Raid1)
    }

    /// The fewest members an array of this level may have.
    pub const fn members_min(self) -> u16 {
        match self {
            Self::Linear | Self::Raid0 | Self::Raid1 => 1,
            Self::Raid4 | Self::Raid5 | Self::Raid10 => 2,
            Self::Raid6 => 4,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no level or no layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: String,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a {}; valid: {}", self.name, self.what, self.known)
    }
}

impl std::error::Error for UnknownName {}

impl FromStr for Level {
    type Err = UnknownName;
    /// Takes mdadm's names: `5`, `raid5`, `linear`, `stripe`, `mirror`.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "stripe" => return Ok(Self::Raid0),
            "mirror" => return Ok(Self::Raid1),
            _ => {}
        }
        Self::ALL
            .into_iter()
            .find(|l| l.name() == lower || l.name().strip_prefix("raid").is_some_and(|n| n == lower))
            .ok_or_else(|| UnknownName {
                what: "RAID level",
                name: name.to_owned(),
                known: "linear, 0, 1, 4, 5, 6, 10".to_owned(),
            })
    }
}

/// Where parity lies, for RAID-4, RAID-5 and RAID-6 (`ALGORITHM_*` in the kernel's raid5.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are md's own")]
pub enum ParityLayout {
    LeftAsymmetric = 0,
    RightAsymmetric = 1,
    LeftSymmetric = 2,
    RightSymmetric = 3,
    ParityFirst = 4,
    ParityLast = 5,
    DdfZeroRestart = 8,
    DdfNRestart = 9,
    DdfNContinue = 10,
    LeftAsymmetric6 = 16,
    RightAsymmetric6 = 17,
    LeftSymmetric6 = 18,
    RightSymmetric6 = 19,
    ParityFirst6 = 20,
}

impl ParityLayout {
    /// Every layout; the first six are RAID-5's, all are RAID-6's.
    pub const ALL: [Self; 14] = [
        Self::LeftAsymmetric,
        Self::RightAsymmetric,
        Self::LeftSymmetric,
        Self::RightSymmetric,
        Self::ParityFirst,
        Self::ParityLast,
        Self::DdfZeroRestart,
        Self::DdfNRestart,
        Self::DdfNContinue,
        Self::LeftAsymmetric6,
        Self::RightAsymmetric6,
        Self::LeftSymmetric6,
        Self::RightSymmetric6,
        Self::ParityFirst6,
    ];

    /// mdadm's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeftAsymmetric => "left-asymmetric",
            Self::RightAsymmetric => "right-asymmetric",
            Self::LeftSymmetric => "left-symmetric",
            Self::RightSymmetric => "right-symmetric",
            Self::ParityFirst => "parity-first",
            Self::ParityLast => "parity-last",
            Self::DdfZeroRestart => "ddf-zero-restart",
            Self::DdfNRestart => "ddf-N-restart",
            Self::DdfNContinue => "ddf-N-continue",
            Self::LeftAsymmetric6 => "left-asymmetric-6",
            Self::RightAsymmetric6 => "right-asymmetric-6",
            Self::LeftSymmetric6 => "left-symmetric-6",
            Self::RightSymmetric6 => "right-symmetric-6",
            Self::ParityFirst6 => "parity-first-6",
        }
    }

    /// Whether only RAID-6 has this layout.
    pub const fn is_raid6_only(self) -> bool {
        self as i32 >= 8
    }

    /// Whether Q is computed in order of the members, zero blocks standing in for P and Q (DDF).
    pub const fn is_ddf(self) -> bool {
        matches!(self, Self::DdfZeroRestart | Self::DdfNRestart | Self::DdfNContinue)
    }

    fn parse(name: &str) -> Option<Self> {
        let lower = name.to_ascii_lowercase();
        let long = match lower.as_str() {
            "ls" | "default" => "left-symmetric",
            "la" => "left-asymmetric",
            "rs" => "right-symmetric",
            "ra" => "right-asymmetric",
            other => other,
        };
        Self::ALL.into_iter().find(|l| l.name().eq_ignore_ascii_case(long))
    }
}

/// Where copies lie, for RAID-10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Raid10Layout {
    /// Copies in neighbouring slots.
    pub near: u16,
    /// Copies further down the members (far) or in the next stripe (offset).
    pub far: u16,
    /// The far copies are offset copies: one chunk further on the next member.
    pub offset: bool,
    /// Far copies rotate within sets of members rather than over all (bit 17 or 18 of md's number).
    pub far_sets: FarSets,
}

/// How RAID-10's far copies are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FarSets {
    /// Over all members: what mdadm makes.
    Original,
    /// As many sets as far copies (bit 17).
    ByFarCopies,
    /// Sets as large as all copies (bit 18).
    ByCopies,
}

impl Raid10Layout {
    /// mdadm's default: two near copies.
    pub const DEFAULT: Self = Self { near: 2, far: 1, offset: false, far_sets: FarSets::Original };

    /// All copies of a block; no more than fit, of factors that no array has.
    pub const fn copies(self) -> u16 {
        self.near.saturating_mul(self.far)
    }

    fn number(self) -> i32 {
        let sets = match self.far_sets {
            FarSets::Original => 0,
            FarSets::ByFarCopies => 1 << 17,
            FarSets::ByCopies => 1 << 18,
        };
        i32::from(self.near) | i32::from(self.far) << 8 | i32::from(self.offset) << 16 | sets
    }

    fn from_number(number: i32) -> Option<Self> {
        let far_sets = match number >> 17 {
            0 => FarSets::Original,
            1 => FarSets::ByFarCopies,
            2 => FarSets::ByCopies,
            _ => return None,
        };
        let layout = Self {
            near: (number & 0xff) as u16,
            far: (number >> 8 & 0xff) as u16,
            offset: number & 1 << 16 != 0,
            far_sets,
        };
        (layout.near > 0 && layout.far > 0).then_some(layout)
    }

    fn parse(name: &str) -> Option<Self> {
        if name == "default" {
            return Some(Self::DEFAULT);
        }
        let copies = name.get(1..)?.parse::<u16>().ok().filter(|n| (1..=255).contains(n))?;
        match name.as_bytes().first()? {
            b'n' => Some(Self { near: copies, ..Self::DEFAULT }),
            b'f' => Some(Self { near: 1, far: copies, ..Self::DEFAULT }),
            b'o' => Some(Self { near: 1, far: copies, offset: true, ..Self::DEFAULT }),
            _ => None,
        }
    }
}

/// How RAID-0 lays out the zones of members of unequal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Raid0Layout {
    /// The order of kernels up to 3.13.
    Original = 1,
    /// The order of kernels since 3.14.
    Alternate = 2,
}

/// The layout of an array, whatever its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Linear and RAID-1 have none.
    None,
    /// RAID-0's zones.
    Raid0(Raid0Layout),
    /// RAID-4, 5 and 6.
    Parity(ParityLayout),
    /// RAID-10.
    Raid10(Raid10Layout),
}

impl Layout {
    /// What mdadm takes when none is named.
    pub const fn default_of(level: Level) -> Self {
        match level {
            Level::Linear | Level::Raid1 => Self::None,
            Level::Raid0 => Self::Raid0(Raid0Layout::Alternate),
            Level::Raid4 => Self::Parity(ParityLayout::ParityLast),
            Level::Raid5 | Level::Raid6 => Self::Parity(ParityLayout::LeftSymmetric),
            Level::Raid10 => Self::Raid10(Raid10Layout::DEFAULT),
        }
    }

    /// Reads mdadm's `--layout` for a level: `left-symmetric`, `ls`, `n2`, `f2`, `o3`, `original`.
    pub fn parse(level: Level, name: &str) -> Result<Self, UnknownName> {
        let found = match level {
            Level::Linear | Level::Raid1 => (name == "none" || name == "default").then_some(Self::None),
            Level::Raid0 => match name {
                "original" => Some(Self::Raid0(Raid0Layout::Original)),
                "alternate" | "default" => Some(Self::Raid0(Raid0Layout::Alternate)),
                _ => None,
            },
            Level::Raid4 => {
                let is_known =
                    name == "default" || ParityLayout::parse(name) == Some(ParityLayout::ParityLast);
                is_known.then(|| Self::default_of(level))
            }
            Level::Raid5 => ParityLayout::parse(name).filter(|l| !l.is_raid6_only()).map(Self::Parity),
            Level::Raid6 => ParityLayout::parse(name).map(Self::Parity),
            Level::Raid10 => Raid10Layout::parse(name).map(Self::Raid10),
        };
        found.ok_or_else(|| UnknownName {
            what: "layout of this level",
            name: name.to_owned(),
            known: Self::known(level),
        })
    }

    /// The names of a level's layouts.
    pub(crate) fn known(level: Level) -> String {
        match level {
            Level::Linear | Level::Raid1 => "`none` alone".to_owned(),
            Level::Raid0 => "original, alternate".to_owned(),
            Level::Raid4 => "parity-last".to_owned(),
            Level::Raid10 => "nN, fN, oN with N copies".to_owned(),
            Level::Raid5 | Level::Raid6 => ParityLayout::ALL
                .iter()
                .filter(|l| level == Level::Raid6 || !l.is_raid6_only())
                .map(|l| l.name())
                .collect::<Vec<_>>()
                .join(", "),
        }
    }

    /// Whether a superblock of this level can record it.
    pub(crate) fn is_of(self, level: Level) -> bool {
        Self::from_number(level, self.number()) == Some(self)
    }

    /// md's number (`mdp_superblock_1.layout`).
    pub fn number(self) -> i32 {
        match self {
            Self::None => 0,
            Self::Raid0(l) => l as i32,
            Self::Parity(l) => l as i32,
            Self::Raid10(l) => l.number(),
        }
    }

    /// The number that a superblock of a level holds: RAID-4's is 0, as its layout is implied.
    pub fn recorded_number(self, level: Level) -> i32 {
        if level == Level::Raid4 { 0 } else { self.number() }
    }

    /// The layout of md's number for a level. A RAID-0 without a recorded layout (0) has none to return.
    pub fn from_number(level: Level, number: i32) -> Option<Self> {
        match level {
            Level::Linear | Level::Raid1 => Some(Self::None),
            Level::Raid0 => match number {
                1 => Some(Self::Raid0(Raid0Layout::Original)),
                2 => Some(Self::Raid0(Raid0Layout::Alternate)),
                _ => None,
            },
            Level::Raid4 => Some(Self::default_of(level)),
            Level::Raid5 | Level::Raid6 => ParityLayout::ALL
                .into_iter()
                .find(|l| *l as i32 == number && (level == Level::Raid6 || !l.is_raid6_only()))
                .map(Self::Parity),
            Level::Raid10 => Raid10Layout::from_number(number).map(Self::Raid10),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Raid0(Raid0Layout::Original) => f.write_str("original"),
            Self::Raid0(Raid0Layout::Alternate) => f.write_str("alternate"),
            Self::Parity(l) => f.write_str(l.name()),
            Self::Raid10(l) => match (l.far, l.offset) {
                (1, _) => write!(f, "n{}", l.near),
                (far, offset) => {
                    // Both together are md's, though mdadm makes none.
                    if l.near > 1 {
                        write!(f, "n{}", l.near)?;
                    }
                    write!(f, "{}{far}", if offset { 'o' } else { 'f' })
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_survives_its_number_and_its_name() {
        for layout in ParityLayout::ALL {
            let layout = Layout::Parity(layout);
            assert_eq!(Layout::from_number(Level::Raid6, layout.number()), Some(layout));
            assert_eq!(Layout::parse(Level::Raid6, &layout.to_string()), Ok(layout));
        }
        for name in ["n2", "n3", "f2", "o2", "f3"] {
            let layout = Layout::parse(Level::Raid10, name).unwrap();
            assert_eq!(layout.to_string(), name);
            assert_eq!(Layout::from_number(Level::Raid10, layout.number()), Some(layout));
        }
    }

    #[test]
    fn md_numbers_of_raid10_layouts() {
        assert_eq!(Layout::parse(Level::Raid10, "n2").unwrap().number(), 0x102);
        assert_eq!(Layout::parse(Level::Raid10, "f2").unwrap().number(), 0x201);
        assert_eq!(Layout::parse(Level::Raid10, "o2").unwrap().number(), 0x10201);
    }

    #[test]
    fn raid5_refuses_a_raid6_layout_and_names_its_own() {
        let error = Layout::parse(Level::Raid5, "ddf-N-restart").unwrap_err().to_string();
        assert!(error.contains("left-symmetric") && !error.contains("ddf-zero"), "{error}");
    }

    #[test]
    fn a_level_without_layouts_says_so() {
        let error = Layout::parse(Level::Raid1, "f2").unwrap_err().to_string();
        assert_eq!(error, "'f2' is not a layout of this level; valid: `none` alone");
    }

    #[test]
    fn levels_by_mdadm_names() {
        assert_eq!("5".parse(), Ok(Level::Raid5));
        assert_eq!("raid10".parse(), Ok(Level::Raid10));
        assert_eq!("mirror".parse(), Ok(Level::Raid1));
        assert!("7".parse::<Level>().is_err());
        assert_eq!(Level::from_number(-1), Some(Level::Linear));
    }
}
