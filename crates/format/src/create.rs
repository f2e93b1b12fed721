//! The superblocks and logs of a new array, as `mdadm --create` (4.2) leaves them before a kernel starts the array.
//!
//! Two habits of mdadm show in the bytes. A RAID-4 or RAID-5 of all its members is made without the last, which
//! becomes a spare to be recovered onto: recovery writes one member where a resync would read all. And a RAID-6 that
//! lacks one member is made to lack two, because the kernel does not start a degraded array that is out of sync.

mod check;
mod label;

use std::fmt;

use crate::device_flags::DeviceFlags;
use crate::level::{Layout, Level};
use crate::placement::{PlacementError, Plan};
use crate::superblock::Superblock;
use crate::time::Timestamp;
use crate::uuid::Uuid;

/// mdadm's limit for version 1 (`MAX_DEVS`).
pub const SLOTS_MAX_V1: u32 = 384;
/// Rows of version 0.90's table.
pub const SLOTS_MAX_V0: u32 = crate::superblock_0::DISKS as u32;
/// Slots whose row a meta block of a write journal lists (`r5l_init_log`).
pub const JOURNAL_SLOTS_MAX: u32 = 203;
/// Rows that a write journal has room for at least, each with a meta block.
pub const JOURNAL_ROWS_MIN: u64 = 4;

/// A device that becomes a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMember {
    /// Its length.
    pub device_sectors: u64,
    /// The name it gets; 0.90 has none.
    pub device_uuid: Uuid,
    /// Major and minor number of a block device, which 0.90 records; zeros for a file.
    pub device_number: (u32, u32),
    /// Its flags, which are recorded at every level.
    pub flags: DeviceFlags,
}

/// What is to be made. The layout of a RAID-0 is [`crate::level::Raid0Layout::Original`] unless asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Level, slots, chunk, version, consistency.
    pub plan: Plan,
    /// Whether an array large enough gets a bitmap unasked.
    pub auto_bitmap: bool,
    /// `--size`.
    pub size_sectors: Option<u64>,
    /// `--assume-clean`: the members are taken as in sync.
    pub assume_clean: bool,
    /// `--force`: resync a RAID-4 or RAID-5 rather than recover onto its last member; a single slot.
    pub force: bool,
    /// `--spare-devices`.
    pub spares: u32,
    /// A device, or nothing where it is missing, for each slot; then spares.
    pub members: Vec<Option<NewMember>>,
    /// `--write-journal`: the device that writes are logged on. Its place is behind all of the list.
    pub journal: Option<NewMember>,
    /// The array's UUID.
    pub set_uuid: Uuid,
    /// The array's name; 0.90 has none.
    pub name: String,
    /// The host before it.
    pub homehost: Option<String>,
    /// When.
    pub created: Timestamp,
}

impl Request {
    /// A device of the list, or the journal behind it.
    fn device(&self, member: usize) -> Option<NewMember> {
        self.members.get(member).copied().unwrap_or(self.journal)
    }

    /// The slots whose device is missing.
    fn missing(&self) -> Vec<usize> {
        let slots = self.members.iter().take(self.plan.raid_disks as usize).enumerate();
        slots.filter(|(_, member)| member.is_none()).map(|(slot, _)| slot).collect()
    }

    /// The slot whose device is made a spare, with a number behind all others.
    fn moved(&self) -> Option<usize> {
        // A RAID-6 that lacks one cannot be resynced, whatever is forced: mdadm makes one then that Linux does not start.
        if self.assume_clean || self.force && self.plan.level != Level::Raid6 {
            return None;
        }
        let last = self.plan.raid_disks as usize - 1;
        match (self.plan.level, self.missing().as_slice()) {
            (Level::Raid4 | Level::Raid5, []) => Some(last),
            (Level::Raid6, [one]) => Some(if *one == last { last - 1 } else { last }),
            _ => None,
        }
    }
}

/// What has to happen before the array is in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing.
    Clean,
    /// Every stripe is out of sync.
    Resync,
    /// Slots lack their data; a spare is there for at least one of them.
    Recovery,
    /// Slots lack their data, and there is no spare.
    Degraded,
}

impl Start {
    /// One word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Resync => "resync",
            Self::Recovery => "recovery",
            Self::Degraded => "degraded",
        }
    }
}

/// Bytes for a place on a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// The place.
    pub at_sector: u64,
    /// The bytes, whole sectors.
    pub bytes: Vec<u8>,
}

/// A member to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its place in the request's list; that of the journal is behind all.
    pub member: usize,
    /// The slot it holds; none for a spare and the journal.
    pub slot: Option<u16>,
    /// The superblock.
    pub superblock: Superblock,
    /// Bitmap and logs, to be written before the superblock.
    pub logs: Vec<Area>,
    /// The superblock's bytes and place.
    pub superblock_area: Area,
}

/// A new array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewArray {
    /// The plan that was followed, with the bitmap it may have got unasked.
    pub plan: Plan,
    /// Sectors used of each member; 0 for linear and RAID-0.
    pub size_sectors: u64,
    /// Bytes that a bit of the bitmap stands for, if there is one.
    pub bitmap_chunk_bytes: Option<u32>,
    /// What has to happen.
    pub start: Start,
    /// The members, in the order of their numbers in the array.
    pub labels: Vec<Label>,
    /// The largest member's place in the list and the sectors it could give, when that is more than a hundredth
    /// above what is used.
    pub largest_unused: Option<(usize, u64)>,
}

impl NewArray {
    /// Bytes of the array; `u64::MAX` where they are more than that.
    pub fn array_bytes(&self) -> u64 {
        let data_sectors = |label: &Label| {
            let sectors = label.superblock.data_size_sectors(label.superblock_area.at_sector);
            sectors - sectors % u64::from(self.plan.chunk_sectors).max(1)
        };
        let disks = u64::from(self.plan.raid_disks);
        let sectors: u64 = match (self.plan.level, self.plan.layout) {
            (Level::Linear | Level::Raid0, _) => {
                self.labels.iter().map(data_sectors).fold(0, u64::saturating_add)
            }
            (Level::Raid1, _) => self.size_sectors,
            (Level::Raid10, Layout::Raid10(layout)) => {
                let chunk = u64::from(self.plan.chunk_sectors);
                let (near, far) = (u64::from(layout.near), u64::from(layout.far));
                // The kernel's raid10_size: whole chunks of a far part, then of all members, then of data.
                let far_chunks = self.size_sectors / chunk / far;
                (far_chunks.saturating_mul(disks) / near).saturating_mul(chunk)
            }
            (level, _) => self.size_sectors.saturating_mul(disks - u64::from(level.parity_count())),
        };
        sectors.saturating_mul(512)
    }
}

/// Why there can be no such array. Members are named by their place in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// No device can make the plan right.
    Plan(PlacementError),
    /// A device does not fit.
    Member {
        /// Which.
        member: usize,
        /// Why.
        error: PlacementError,
    },
    /// Fewer or more devices than slots and spares.
    Count {
        /// Devices and `missing` given.
        given: usize,
        /// Slots.
        raid_disks: u32,
        /// Spares.
        spares: u32,
    },
    /// Fewer slots than the level has.
    TooFewSlots {
        /// The level.
        level: Level,
        /// The fewest.
        least: u32,
        /// Slots asked for.
        raid_disks: u32,
    },
    /// A single slot, which is more often a mistake than meant.
    OneSlot,
    /// More slots and spares than a superblock lists.
    TooManySlots {
        /// The most.
        most: u32,
        /// Those needed.
        needed: u32,
    },
    /// The layout is another level's, or one that no superblock records.
    Layout {
        /// The level.
        level: Level,
        /// The layout asked for.
        layout: Layout,
    },
    /// The layout has one copy, which Linux does not run.
    OneCopy,
    /// The layout has more copies than there are slots.
    Copies {
        /// Copies.
        copies: u32,
        /// Slots.
        raid_disks: u32,
    },
    /// The level does without chunks.
    ChunkAtLevel(Level),
    /// A chunk that cannot be.
    Chunk {
        /// The chunk asked for.
        chunk_bytes: u64,
        /// The level.
        level: Level,
    },
    /// The level has no room for missing members.
    MissingAtLevel(Level),
    /// The level has no spares.
    SparesAtLevel(Level),
    /// A spare is given as missing.
    MissingSpare,
    /// So many are missing that there are no data.
    NoData {
        /// The level.
        level: Level,
        /// Missing slots.
        missing: usize,
    },
    /// Linear and RAID-0 use all of each member.
    SizeAtLevel(Level),
    /// A size of less than a chunk.
    SizeTooSmall {
        /// The size asked for.
        size_sectors: u64,
        /// The least.
        least_sectors: u64,
    },
    /// A member is smaller than the size asked for.
    SizeTooLarge {
        /// Which.
        member: usize,
        /// What it can give.
        usable_sectors: u64,
        /// The size asked for.
        size_sectors: u64,
    },
    /// 0.90 cannot record the layout of a RAID-0 of unequal members.
    UnequalRaid0InV0,
    /// 0.90 has no layout of RAID-0.
    Raid0LayoutInV0,
    /// There can be no such write journal.
    Journal(JournalError),
}

/// Why an array cannot have a write journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// Only levels with parity have one.
    Level(Level),
    /// 0.90 has none.
    InV0,
    /// It does without bitmap and PPL.
    Beside,
    /// A meta block does not list rows of so many slots.
    Slots(u32),
    /// The device is too short.
    Short {
        /// Its length.
        device_sectors: u64,
        /// The least.
        least_sectors: u64,
    },
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => {
                write!(f, "a {level} array has no write journal; only raid4, raid5 and raid6 have one")
            }
            Self::InV0 => f.write_str("metadata 0.90 has no write journal; use 1.x"),
            Self::Beside => f.write_str("an array with a write journal has neither bitmap nor PPL"),
            Self::Slots(slots) => write!(
                f,
                "an array with a write journal has {JOURNAL_SLOTS_MAX} raid devices at most, not {slots}"
            ),
            Self::Short { device_sectors, least_sectors } => write!(
                f,
                "has {}K, too little for the write journal: {}K are the least",
                device_sectors / 2,
                least_sectors.div_ceil(2)
            ),
        }
    }
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) | Self::Member { error, .. } => error.fmt(f),
            Self::Count { given, raid_disks, spares } => write!(
                f,
                "{given} members are given for {raid_disks} raid devices and {spares} spare devices; name each, or \
                 write `missing` for a raid device that is not there"
            ),
            Self::TooFewSlots { level, least, raid_disks } => {
                write!(f, "a {level} array has at least {least} raid devices, not {raid_disks}")
            }
            Self::OneSlot => f.write_str("an array of 1 raid device is unusual; --force creates one"),
            Self::TooManySlots { most, needed } => {
                write!(f, "{needed} raid and spare devices are too many; this metadata lists {most} at most")
            }
            Self::Layout { level, layout } => {
                write!(f, "a {level} array has no layout {layout}; its layouts are {}", Layout::known(*level))
            }
            Self::OneCopy => {
                f.write_str("Linux does not run a layout of one copy; use two, such as n2, or raid0")
            }
            Self::Copies { copies, raid_disks } => {
                write!(f, "a layout of {copies} copies needs {copies} raid devices, not {raid_disks}")
            }
            Self::ChunkAtLevel(level) => write!(f, "a {level} array has no chunk; leave --chunk out"),
            Self::Chunk { chunk_bytes, level: level @ (Level::Raid0 | Level::Linear) } => {
                write!(f, "a chunk of {chunk_bytes} bytes is not possible; {level}'s is a multiple of 4K")
            }
            Self::Chunk { chunk_bytes, level } => {
                write!(
                    f,
                    "a chunk of {chunk_bytes} bytes is not possible; {level}'s is a power of two, 4K to 1G"
                )
            }
            Self::MissingAtLevel(level) => {
                write!(f, "a {level} array has no redundancy; no member can be missing")
            }
            Self::SparesAtLevel(level) => write!(f, "a {level} array has no redundancy and so no spares"),
            Self::MissingSpare => f.write_str("only raid devices can be `missing`, spare devices cannot"),
            Self::NoData { level, missing } => {
                write!(
                    f,
                    "with {missing} members missing this {level} array would hold no data; give more members"
                )
            }
            Self::SizeAtLevel(level) => {
                write!(f, "a {level} array uses all of each member; leave --size out")
            }
            Self::SizeTooSmall { size_sectors, least_sectors } => write!(
                f,
                "a size of {}K is too small; at least {}K is needed",
                size_sectors / 2,
                least_sectors.div_ceil(2)
            ),
            Self::SizeTooLarge { usable_sectors, size_sectors, .. } => write!(
                f,
                "has {}K for data, less than the size of {}K asked for",
                usable_sectors / 2,
                size_sectors / 2
            ),
            Self::UnequalRaid0InV0 => f.write_str(
                "metadata 0.90 does not record how a raid0 array lays out members of unequal size; use 1.x",
            ),
            Self::Raid0LayoutInV0 => f.write_str("metadata 0.90 records no layout of raid0; use 1.x"),
            Self::Journal(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CreateError {}

/// Plans a new array down to its bytes.
///
/// # Errors
/// What is impossible about the request, and what would be right.
pub fn create(request: &Request) -> Result<NewArray, CreateError> {
    check::shape(request)?;
    let sizes = check::sizes(request)?;
    let numbering = Numbering::of(request);
    let places = label::places(request, &sizes, &numbering)?;
    let labels = label::labels(request, &sizes, &numbering, &places);
    Ok(NewArray {
        plan: sizes.plan,
        size_sectors: sizes.size_sectors,
        bitmap_chunk_bytes: places.iter().find_map(|place| Some(place.bitmap?.chunk_bytes)),
        start: numbering.start,
        labels,
        largest_unused: sizes.largest_unused,
    })
}

/// Sizes that the array settles on.
struct Sizes {
    plan: Plan,
    data_offset_sectors: u64,
    size_sectors: u64,
    largest_unused: Option<(usize, u64)>,
}

/// A member's place in the list and its number in the array.
#[derive(Clone, Copy)]
struct Numbered {
    member: usize,
    number: u32,
}

/// Which device gets which number, and what that leaves to be done.
struct Numbering {
    start: Start,
    /// In the order of numbers. Numbers below the slots' count hold the slot of that number.
    devices: Vec<Numbered>,
}

impl Numbering {
    fn of(request: &Request) -> Self {
        let level = request.plan.level;
        let slots = request.plan.raid_disks as usize;
        let missing = request.missing();
        let moved = request.moved();
        let last = request.members.len();
        let present = (0..last).filter(|n| request.members[*n].is_some());
        let mut devices: Vec<_> = present
            .map(|member| Numbered {
                member,
                number: if Some(member) == moved { last } else { member } as u32,
            })
            .collect();
        devices.sort_by_key(|device| device.number);
        let is_degraded = !missing.is_empty() || moved.is_some();
        let has_spare = devices.iter().any(|device| device.number as usize >= slots);
        let number = (last + usize::from(moved.is_some())) as u32;
        devices.extend(request.journal.map(|_| Numbered { member: last, number }));
        let is_in_sync = request.assume_clean
            || match level {
                Level::Linear | Level::Raid0 => true,
                Level::Raid4 | Level::Raid5 => is_degraded,
                Level::Raid6 => moved.is_some() || missing.len() > 1,
                Level::Raid1 | Level::Raid10 => false,
            };
        let start = match (is_in_sync, is_degraded, has_spare) {
            (false, ..) => Start::Resync,
            (true, true, true) => Start::Recovery,
            (true, true, false) => Start::Degraded,
            (true, false, _) => Start::Clean,
        };
        Self { start, devices }
    }
}
