//! Changes of an array that exists which are made of its superblocks and logs alone, as by `mdadm --grow` (4.2): the write-intent
//! bitmap here, the rest in a file each.
//!
//! As there, a new bitmap has every bit set and vouches for nothing that happened before: whoever drives the array clears
//! the bits of what is in sync.

mod follow;
mod level;
mod ppl;
mod reshape;
mod size;
mod slots;
mod spare;

use std::fmt;

use crate::bitmap::BitmapSuperblock;
use crate::create::Area;
use crate::level::Layout;
use crate::placement::{BitmapPlace, Consistency, PlacementError, Plan};
use crate::superblock::Superblock;
use crate::superblock_1::{Minor, Superblock1};
use crate::time::Timestamp;

pub use follow::{follow, is_dropped, is_left_behind};
pub use level::{LevelError, Takeover, check_one_zone, level_layout, take_over};
pub use ppl::{check_ppl, with_ppl};
pub use reshape::{
    Beginning, Course, END_EVENTS, Place, ReshapeError, Room, Target, check_kept, check_reshape,
    follow_reshape, plan_course, reshape_room, shrunk_size_sectors,
};
pub use size::{
    Resized, SizeError, bitmap_area, bitmap_room_sectors, resize_bitmap, room_sectors, settle_size, with_size,
};
pub use slots::{SlotsError, check_slots, occupied, with_slots};
pub use spare::spare_of;

/// Sectors between a 0.90 superblock and the end of what is kept for it.
const V0_ROOM_SECTORS: u64 = 120;
/// Sectors of a superblock, and of the bad-block log before one at the end.
const BLOCK_SECTORS: u64 = 8;

/// Why a member gets no bitmap, or no partial parity log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrowError {
    /// The array cannot have one.
    Placement(PlacementError),
    /// What lies around its place leaves too little room.
    Room {
        /// Sectors that the bitmap takes.
        needed_sectors: u64,
        /// Sectors that are free.
        free_sectors: u64,
    },
    /// What lies around the partial parity log's place leaves too little room.
    PplRoom {
        /// Sectors that the least log takes.
        needed_sectors: u64,
        /// Sectors that are free.
        free_sectors: u64,
    },
}

impl fmt::Display for GrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placement(error) => error.fmt(f),
            Self::Room { needed_sectors, free_sectors } => write!(
                f,
                "the bitmap takes {needed_sectors} sectors and {free_sectors} are free at its place; take a larger --bitmap-chunk"
            ),
            Self::PplRoom { needed_sectors, free_sectors } => write!(
                f,
                "a partial parity log takes {needed_sectors} sectors or more and {free_sectors} are free at its place; an array that \
                 is made with --consistency-policy ppl has room for one"
            ),
        }
    }
}

impl std::error::Error for GrowError {}

/// What every change of the superblocks says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// The members' events from now on.
    pub events: u64,
    /// When.
    pub utime: Timestamp,
}

/// A member as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Bitmap and logs, to be written before the superblock.
    pub logs: Vec<Area>,
    /// The superblock.
    pub superblock: Area,
}

/// Where the bitmap of an existing array goes, and what its bits stand for: the chunk given, or mdadm's choice.
///
/// # Errors
/// The level has none, the chunk is no power of two, or it is too small for what mdadm keeps for bitmaps.
pub fn place_bitmap(array: &Superblock, chunk_bytes: Option<u32>) -> Result<BitmapPlace, GrowError> {
    let plan = plan_of(array, Consistency::Bitmap { chunk_bytes });
    plan.place_bitmap(array.size_sectors(), chunk_bytes).map_err(GrowError::Placement)
}

/// What an array would be made by.
fn plan_of(array: &Superblock, consistency: Consistency) -> Plan {
    let level = array.level();
    Plan {
        level,
        layout: array.layout().unwrap_or_else(|| Layout::default_of(level)),
        raid_disks: array.raid_disks(),
        chunk_sectors: array.chunk_sectors(),
        metadata: array.metadata(),
        consistency,
        data_offset_sectors: None,
    }
}

/// A member with a bitmap; its superblock lies at a sector.
///
/// # Errors
/// Something else lies where the bitmap would.
pub fn with_bitmap(
    member: &Superblock,
    at_sector: u64,
    place: &BitmapPlace,
    update: Update,
) -> Result<Changed, GrowError> {
    let (needed_sectors, free_sectors) = (place.area_sectors(), free_sectors(member, at_sector, place));
    if needed_sectors > free_sectors {
        return Err(GrowError::Room { needed_sectors, free_sectors });
    }
    let mut member = member.clone();
    member.set_bitmap(Some(place.offset_sectors));
    let mut head = BitmapSuperblock::new(member.bitmap_uuid(), place.sync_size_sectors, place.chunk_bytes);
    head.events = update.events;
    let bytes = place.to_bytes(&head, member.metadata());
    let bitmap = member.bitmap_sector(at_sector).map(|at_sector| Area { at_sector, bytes });
    Ok(Changed { logs: bitmap.into_iter().collect(), superblock: superblock_area(member, at_sector, update) })
}

/// A member as it is, but that a recovery that went by the bitmap begins anew; its superblock lies at a sector.
pub fn without_recovery_by_bitmap(member: &Superblock, at_sector: u64, update: Update) -> Changed {
    let mut member = member.clone();
    if let Superblock::V1(superblock) = &mut member {
        superblock.forget_recovery_by_bitmap();
    }
    Changed { logs: Vec::new(), superblock: superblock_area(member, at_sector, update) }
}

/// A member without a bitmap, or without a partial parity log; its superblock lies at a sector.
pub fn without_bitmap(member: &Superblock, at_sector: u64, update: Update) -> Changed {
    let mut member = member.clone();
    member.set_bitmap(None);
    Changed { logs: Vec::new(), superblock: superblock_area(member, at_sector, update) }
}

fn superblock_area(mut member: Superblock, at_sector: u64, update: Update) -> Area {
    member.set_events(update.events, update.utime);
    Area { at_sector, bytes: member.to_bytes() }
}

/// Sectors from the bitmap's place to the next that is taken, or before it where it ends at the superblock.
fn free_sectors(member: &Superblock, at_sector: u64, place: &BitmapPlace) -> u64 {
    let Superblock::V1(superblock) = member else { return V0_ROOM_SECTORS };
    match superblock.minor() {
        Minor::Start | Minor::Start4K => before_data(superblock).saturating_sub(at_sector + BLOCK_SECTORS),
        Minor::End => {
            let data_end = superblock.data_offset_sectors.saturating_add(superblock.size_sectors);
            let bitmap_end = at_sector
                .saturating_add_signed(place.offset_sectors.into())
                .saturating_add(place.area_sectors());
            let is_in_log = superblock.bad_block_log_sector().is_some_and(|log| log < bitmap_end);
            if is_in_log { 0 } else { bitmap_end.saturating_sub(data_end) }
        }
    }
}

/// Where what follows the superblock and the bitmap begins: the bad-block log, or the data.
fn before_data(superblock: &Superblock1) -> u64 {
    let log = superblock.bad_block_log_sector().filter(|log| *log > superblock.super_offset_sectors);
    log.unwrap_or(u64::MAX).min(superblock.data_offset_sectors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Level;
    use crate::uuid::Uuid;

    fn array(super_offset_sectors: u64, data_offset_sectors: u64, size_sectors: u64) -> Superblock1 {
        let mut superblock = Superblock1::new(Level::Raid5, 3, 0, Uuid([7; 16]));
        superblock.super_offset_sectors = super_offset_sectors;
        superblock.data_offset_sectors = data_offset_sectors;
        superblock.size_sectors = size_sectors;
        superblock.data_size_sectors = size_sectors;
        superblock.chunk_sectors = 128;
        superblock.layout = 2;
        superblock
    }

    fn update(events: u64) -> Update {
        Update { events, utime: Timestamp::from_seconds(events) }
    }

    fn boxed(superblock: Superblock1) -> Superblock {
        Superblock::V1(Box::new(superblock))
    }

    /// What mdadm 4.2 wrote on members of 12 GiB: `Internal Bitmap : 8 sectors from superblock`, 192 chunks of 64 MiB; with 1.0
    /// at -16; with chunks of 8K `chunksize problem`.
    #[test]
    fn the_bitmap_is_where_mdadm_puts_it() {
        let mut start = array(8, 18432, 12_573_696 * 2);
        (start.bblog_offset_sectors, start.bblog_size_sectors) = (136, 8);
        let start = boxed(start);
        let place = place_bitmap(&start, None).unwrap();
        assert_eq!((place.offset_sectors, place.chunk_bytes), (8, 64 << 20));
        assert_eq!(place.sync_size_sectors, 12_573_696 * 2);
        assert_eq!(place_bitmap(&start, Some(4 << 20)).unwrap().chunk_bytes, 4 << 20);
        assert!(matches!(
            place_bitmap(&start, Some(8 << 10)),
            Err(GrowError::Placement(PlacementError::BitmapChunkTooSmall { least_bytes: 32_768, .. }))
        ));
        let mut end = array(25_165_808, 0, 12_582_784 * 2);
        (end.bblog_offset_sectors, end.bblog_size_sectors) = (-8, 8);
        let end = boxed(end);
        let place = place_bitmap(&end, None).unwrap();
        assert_eq!(place.offset_sectors, -16);
        let changed = with_bitmap(&end, 25_165_808, &place, update(5)).unwrap();
        assert_eq!(changed.logs[0].at_sector, 25_165_792);
    }

    #[test]
    fn a_bitmap_runs_into_nothing_else() {
        let whole = place_bitmap(&boxed(array(8, 18432, 12_573_696 * 2)), Some(1 << 20)).unwrap();
        assert_eq!(whole.area_sectors(), 8);
        let fits = |superblock: Superblock1, place: &BitmapPlace| {
            let at_sector = superblock.super_offset_sectors;
            with_bitmap(&boxed(superblock), at_sector, place, update(1))
        };
        let logged = |log| {
            let mut superblock = array(8, 2048, 81920);
            (superblock.bblog_offset_sectors, superblock.bblog_size_sectors) = (log, 8);
            superblock
        };
        assert!(fits(logged(16), &whole).is_ok());
        assert_eq!(
            fits(logged(8), &whole),
            Err(GrowError::Room { needed_sectors: 8, free_sectors: 0 }),
            "the bad-block log is there"
        );
        assert_eq!(
            fits(array(8, 20, 81920), &whole),
            Err(GrowError::Room { needed_sectors: 8, free_sectors: 4 }),
            "the data begin there"
        );
        let end = BitmapPlace { offset_sectors: -16, ..whole };
        assert!(fits(array(1000, 0, 984), &end).is_ok());
        assert_eq!(
            fits(array(1000, 0, 988), &end),
            Err(GrowError::Room { needed_sectors: 8, free_sectors: 4 }),
            "the data end there"
        );
        let mut in_log = array(1000, 0, 900);
        (in_log.bblog_offset_sectors, in_log.bblog_size_sectors) = (-12, 8);
        assert!(fits(in_log, &end).is_err(), "the bad-block log begins within it");
    }

    #[test]
    fn what_is_taken_away_leaves_the_superblock_of_before() {
        let before = boxed(array(8, 2048, 81920));
        let place = place_bitmap(&before, None).unwrap();
        let with = with_bitmap(&before, 8, &place, update(1)).unwrap();
        let read = Superblock::parse(before.metadata(), &with.superblock.bytes, 8).unwrap();
        assert_eq!(read.bitmap_sector(8), Some(16));
        assert_eq!(read.events(), 1);
        let without = without_bitmap(&read, 8, update(before.events()));
        assert_eq!(Superblock::parse(before.metadata(), &without.superblock.bytes, 8).unwrap(), before);
    }

    #[test]
    fn levels_without_redundancy_have_none() {
        let mut superblock = array(8, 2048, 0);
        superblock.level = Level::Raid0;
        assert_eq!(
            place_bitmap(&boxed(superblock), None),
            Err(GrowError::Placement(PlacementError::NoBitmapAtLevel(Level::Raid0)))
        );
    }
}
