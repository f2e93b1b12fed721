//! What an array keeps about itself on its members: superblocks and the write-intent bitmap, in md's order.
//!
//! # The rounds
//! A change goes to the members in a round; one round is under way at most, what comes meanwhile waits for the next.
//!
//! | step | asks for | when |
//! |---|---|---|
//! | Flushing | a flush of every member | the array becomes clean, bits are cleared, or a write journal's tail is moved |
//! | `WritingBitmap` | the bitmap's changed pages and bad-block logs that changed (FUA) | bits changed, or superblocks are to follow |
//! | `WritingSuperblocks` | every member's superblock (FUA), events one higher; first of members that take a slot from another | clean or active, a member's standing, a resync's progress |
//!
//! # Contract
//! *Ordering.* A write reaches the members after they say that the array is active and that its part may differ, and that
//! a member failed, if one did. Members whose superblocks are of another time get those of the freshest before a round.
//! A request that saw a member fail is acknowledged after the others say so, twice. The array is said to be clean after
//! `safe_mode_delay` without writes and a flush of everything. *Crash.* A round cut short leaves superblocks one
//! event apart, which either side takes for current (md insists on the freshest events but one). So a member that is out of
//! use is left two events behind, each by a round of its own: mdadm goes by events alone, and takes it back with `--force`.
//! *Failure.* A member that does not take its superblock fails; an array that failed writes nothing any more.

mod bad_blocks;
mod intent;
mod keeper;
mod superblocks;
#[cfg(test)]
mod tests;

use stripewise_format::bad_blocks::BadRange;
use stripewise_format::device_flags::DeviceFlags;
use stripewise_format::grow::spare_of;
use stripewise_format::ppl;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, Role};
use stripewise_format::time::Timestamp;

pub(crate) use bad_blocks::BadBlocks;
pub use intent::{BitmapConfig, WriteIntent};
pub(crate) use keeper::Keeper;

use crate::array::parity::LogPlaces;
use crate::journal::JournalStart;
use crate::level::Level;
use crate::units::{MemberIndex, Nanos, Slot};

/// md's `safe_mode_delay`.
pub const SAFE_MODE_DELAY: Nanos = Nanos::from_millis(200);

/// A member's superblock and where things are on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberMetadata {
    /// As it was found.
    pub superblock: Superblock,
    /// The device's sector where it lies.
    pub sector: u64,
    /// What its bad-block log lists; none if it has no log.
    pub bad_blocks: Option<Vec<BadRange>>,
}

/// Where a member keeps its partial parity log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogArea {
    /// The device's first sector of the area.
    pub sector: u64,
    /// Its length.
    pub sectors: u64,
}

impl MemberMetadata {
    /// Where the member keeps its partial parity log, if its superblock names one.
    pub fn log_area(&self) -> Option<LogArea> {
        let Superblock::V1(superblock) = &self.superblock else { return None };
        let area = superblock.ppl()?;
        let sector = self.sector.checked_add_signed(area.offset_sectors.into())?;
        Some(LogArea { sector, sectors: area.size_sectors.into() })
    }
}

impl MetadataConfig {
    /// The same with spares that say of the array what its members say, as whoever writes their superblocks would have it: a change
    /// of the array that was cut off may not have reached them, or them alone. A spare without room for the array's logs stays as it is;
    /// assembly takes none.
    pub(crate) fn with_spares_alike(&self, raid_disks: u16) -> Self {
        let mut alike = self.clone();
        let (members, others) = alike.members.split_at_mut(self.members.len().min(raid_disks.into()));
        let superblocks = members.iter().flatten().map(|member| &member.superblock);
        // The first of several.
        let Some(array) = superblocks.rev().max_by_key(|superblock| superblock.events()) else {
            return alike;
        };
        for spare in others.iter_mut().flatten().filter(|other| is_spare(&other.superblock)) {
            if let Some(own) = spare_of(&spare.superblock, array) {
                spare.superblock = own;
            }
        }
        alike
    }

    /// The partial parity logs, if the members have any.
    pub(crate) fn logs(&self) -> Option<LogPlaces> {
        let areas: Vec<_> =
            self.members.iter().map(|m| m.as_ref().and_then(MemberMetadata::log_area)).collect();
        let uuid = self.members.iter().flatten().next()?.superblock.set_uuid();
        areas.iter().any(Option::is_some).then(|| LogPlaces { signature: ppl::signature(&uuid), areas })
    }
}

/// Whether a device that is no slot's member is a spare: it replaces none, and is no write journal.
fn is_spare(superblock: &Superblock) -> bool {
    let replaces = match superblock {
        Superblock::V0(_) => false,
        Superblock::V1(own) => own.features.contains(Features::REPLACEMENT),
    };
    !(replaces && matches!(superblock.role(), Role::Slot(_))) && superblock.role() != Role::Journal
}

/// What was found on the members when the array was assembled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataConfig {
    /// By member index; none for what is missing.
    pub members: Vec<Option<MemberMetadata>>,
    /// The write-intent bitmap, if the array has one that can be relied on.
    pub bitmap: Option<BitmapConfig>,
    /// The write journal, if the array is written through one. Its log has been followed.
    pub journal: Option<JournalStart>,
    /// The wall-clock time of the engine's `Instant::ZERO`.
    pub clock_start: Timestamp,
    /// Time without writes after which the array is said to be clean; zero: it stays active until it is stopped, as in md.
    pub safe_mode_delay: Nanos,
}

/// A change of the array's state that its superblocks must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateChange {
    /// The slot's member is out of use.
    MemberFailed(Slot),
    /// A spare becomes the slot's member and is being recovered.
    SpareStarted {
        /// The slot.
        slot: Slot,
        /// The spare.
        member: MemberIndex,
    },
    /// A recovery has come so far.
    RecoveryOffset {
        /// The slot that is recovered.
        slot: Slot,
        /// Sectors before it are there.
        sectors: u64,
    },
    /// The slot's member holds all of its content.
    MemberInSync(Slot),
    /// A member is being filled to replace the slot's.
    ReplacementStarted {
        /// The slot.
        slot: Slot,
        /// The new member.
        member: MemberIndex,
    },
    /// The slot's replacement is its member now; the old one is out.
    ReplacementDone {
        /// The slot.
        slot: Slot,
        /// The new member.
        member: MemberIndex,
    },
    /// A resync has come so far; `u64::MAX` when all is in sync.
    ResyncOffset(u64),
    /// The member is no longer part of the array.
    MemberRemoved(MemberIndex),
    /// The member waits as a spare.
    SpareAdded(MemberIndex),
    /// A member is listed not to hold more than before.
    BadBlocksListed,
    /// A member holds again what it was listed not to hold.
    BadBlocksStruck,
    /// The member's flags are these.
    Flags(MemberIndex, DeviceFlags),
    /// The write journal's log is to begin further on.
    JournalTail,
}

/// Whether arrays of a level keep their superblocks up to date while they run. Those without redundancy have nothing
/// to record: md writes theirs when they are made.
pub(crate) const fn keeps_state(level: Level) -> bool {
    !matches!(level, Level::Linear | Level::Raid0)
}
