//! The part of each member that an array uses, made larger as by `mdadm --grow --size` (4.2, Linux 6.1).
//!
//! What is new is out of sync until it was resynced. A bitmap goes on standing for all of the array: with the chunk it has if its
//! place holds the bits, else with one that is doubled until it does, as Linux chooses it.

use std::fmt;

use super::{Changed, Update, V0_ROOM_SECTORS, superblock_area};
use crate::bitmap::{BitmapSuperblock, Bits, written_bytes};
use crate::create::Area;
use crate::level::{Layout, Level};
use crate::placement::{Metadata, V0_SIZE_SECTORS_MAX};
use crate::superblock::Superblock;
use crate::superblock_1::{Minor, Superblock1};

/// Why an array uses no other part of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// Linear and RAID-0 use all of each member.
    Level(Level),
    /// Copies far away would have to move.
    FarCopies,
    /// Beside a partial parity log Linux changes no size.
    Ppl,
    /// The array would lose its end.
    Smaller {
        /// Sectors used of each member.
        now_sectors: u64,
        /// Sectors asked for.
        asked_sectors: u64,
    },
    /// A member has too little room.
    Room {
        /// Which, in the order given.
        member: usize,
        /// Sectors asked for.
        asked_sectors: u64,
        /// Sectors that it has for data.
        room_sectors: u64,
        /// Whether its superblock lies behind the data, so that a device made larger has no more room by that.
        is_before_superblock: bool,
    },
    /// 0.90 is kept below 4 TiB a member.
    TooLargeForV0 {
        /// Sectors asked for.
        asked_sectors: u64,
    },
    /// No chunk is large enough for the bitmap's bits to fit their place.
    Bitmap,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => write!(f, "a {level} array uses all of each member; it has no --size"),
            Self::FarCopies => f.write_str(
                "a raid10 array with far copies would have to move them, which md does not; only near and offset layouts grow",
            ),
            Self::Ppl => f.write_str(
                "beside a partial parity log md changes no size; take it away first, with --consistency-policy resync",
            ),
            Self::Smaller { now_sectors, asked_sectors } => write!(
                f,
                "{}K of each member are used, and {}K would cut off the array's end; Linux makes arrays smaller, with `mdadm --grow \
                 --array-size` and then `--size`",
                now_sectors / 2,
                asked_sectors / 2
            ),
            Self::Room { asked_sectors, room_sectors, is_before_superblock, .. } => {
                write!(f, "has {}K for data, less than the {}K asked for", room_sectors / 2, asked_sectors / 2)?;
                if *is_before_superblock {
                    f.write_str(
                        "; its superblock lies behind them, where this version keeps it: replace it by a larger member \
                         (`stripewise replace`)",
                    )?;
                }
                Ok(())
            }
            Self::TooLargeForV0 { asked_sectors } => write!(
                f,
                "metadata 0.90 holds less than 4 TiB a member, not {}K",
                asked_sectors / 2
            ),
            Self::Bitmap => f.write_str(
                "its place does not hold a bitmap of the larger array; take it away first, with --bitmap none",
            ),
        }
    }
}

impl std::error::Error for SizeError {}

/// What all members are to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Sectors used of each member.
    pub size_sectors: u64,
    /// Sectors before it are in sync.
    pub resync_offset_sectors: u64,
    /// The bitmap, if the array has one.
    pub bitmap: Option<(BitmapSuperblock, Bits)>,
}

/// Sectors that a member on a device of so many sectors has for data. What lies behind them stays where it is.
pub fn room_sectors(member: &Superblock, at_sector: u64, device_sectors: u64) -> u64 {
    let Superblock::V1(superblock) = member else { return at_sector };
    let start = superblock.data_offset_sectors;
    let end = match superblock.minor() {
        Minor::Start | Minor::Start4K => device_sectors,
        // Sectors between the data and the superblock are kept for logs, whether there are any or not.
        Minor::End => start.saturating_add(superblock.data_size_sectors).min(at_sector),
    };
    areas(superblock)
        .into_iter()
        .flatten()
        .filter(|area| *area >= start)
        .fold(end, u64::min)
        .saturating_sub(start)
}

/// The sectors where bitmap, partial parity log and bad-block log begin.
fn areas(superblock: &Superblock1) -> [Option<u64>; 3] {
    let at = |offset: i32| superblock.super_offset_sectors.checked_add_signed(offset.into());
    let ppl = superblock.ppl().and_then(|area| at(area.offset_sectors.into()));
    [superblock.bitmap_offset_sectors().and_then(at), ppl, superblock.bad_block_log_sector()]
}

/// What an array of members with so much room each uses of them: all that every one has, or what is asked for, in whole chunks.
/// It may be what it uses now.
///
/// # Errors
/// It cannot use that.
pub fn settle_size(array: &Superblock, rooms: &[u64], asked_sectors: Option<u64>) -> Result<u64, SizeError> {
    let far = match (array.level(), array.layout()) {
        (level @ (Level::Linear | Level::Raid0), _) => return Err(SizeError::Level(level)),
        (_, Some(Layout::Raid10(layout))) if layout.far > 1 && !layout.offset => {
            return Err(SizeError::FarCopies);
        }
        (_, Some(Layout::Raid10(layout))) => u64::from(layout.far),
        _ => 1,
    };
    if array.ppl().is_some() {
        return Err(SizeError::Ppl);
    }
    let least = rooms.iter().copied().min().unwrap_or(0);
    let most = if array.metadata() == Metadata::V0 { V0_SIZE_SECTORS_MAX - 2 } else { u64::MAX };
    // Levels without a chunk count in KiB.
    let unit = u64::from(array.chunk_sectors()).max(2) * far;
    let whole = |sectors: u64| sectors - sectors % unit;
    let now_sectors = array.size_sectors();
    let Some(asked_sectors) = asked_sectors else { return Ok(whole(least.min(most)).max(now_sectors)) };
    let size_sectors = whole(asked_sectors);
    if size_sectors < now_sectors && asked_sectors != now_sectors {
        return Err(SizeError::Smaller { now_sectors, asked_sectors });
    }
    if asked_sectors > most {
        return Err(SizeError::TooLargeForV0 { asked_sectors });
    }
    if let Some(member) = rooms.iter().position(|room| *room < asked_sectors) {
        let is_before_superblock = matches!(array.metadata(), Metadata::V0 | Metadata::V1(Minor::End));
        let room_sectors = rooms[member];
        return Err(SizeError::Room { member, asked_sectors, room_sectors, is_before_superblock });
    }
    Ok(size_sectors.max(now_sectors))
}

/// Sectors that the bitmap of a member on a device of so many sectors may take; none if it has no bitmap.
pub fn bitmap_room_sectors(member: &Superblock, at_sector: u64, device_sectors: u64) -> Option<u64> {
    let start = member.bitmap_sector(at_sector)?;
    let Superblock::V1(superblock) = member else { return Some(V0_ROOM_SECTORS) };
    let next = [superblock.bad_block_log_sector(), Some(at_sector), Some(superblock.data_offset_sectors)];
    let next = next.into_iter().flatten().filter(|next| *next > start).fold(device_sectors, u64::min);
    Some(next.saturating_sub(start))
}

/// A bitmap for a larger array, of `sync_sectors`, in a place of so many sectors. What was set is set; so is all that is new if
/// it `is_new_set`, and everything if the bitmap was out of date.
///
/// # Errors
/// No bitmap fits.
pub fn resize_bitmap(
    head: &BitmapSuperblock,
    bits: &Bits,
    sync_sectors: u64,
    room_sectors: u64,
    is_new_set: bool,
) -> Result<(BitmapSuperblock, Bits), SizeError> {
    let mut new = head.clone();
    new.sync_size_sectors = sync_sectors;
    while new.area_bytes() / 512 > room_sectors {
        new.chunk_bytes =
            new.chunk_bytes.checked_mul(2).filter(|chunk| *chunk < 1 << 31).ok_or(SizeError::Bitmap)?;
    }
    if new.sectors_reserved != 0 {
        new.sectors_reserved = new.sectors_reserved.max((new.area_bytes() / 512) as u32);
    }
    let count = new.bits();
    let mut set = Bits::clear(count);
    let factor = u64::from(new.chunk_bytes / head.chunk_bytes);
    for range in bits.dirty_ranges() {
        set.set((range.start / factor).min(count)..range.end.div_ceil(factor).min(count));
    }
    if head.is_stale() {
        new.state &= !BitmapSuperblock::STATE_STALE;
        set.set(0..count);
    }
    if is_new_set {
        let chunk_sectors = u64::from(new.chunk_bytes) / 512;
        set.set((head.sync_size_sectors / chunk_sectors).min(count)..count);
    }
    Ok((new, set))
}

/// A member of the larger array; its superblock lies at a sector of its device.
pub fn with_size(
    member: &Superblock,
    at_sector: u64,
    device_sectors: u64,
    resized: &Resized,
    update: Update,
) -> Changed {
    let mut member = member.clone();
    member.set_size_sectors(resized.size_sectors, room_sectors(&member, at_sector, device_sectors));
    member.set_events(update.events, update.utime);
    member.set_resync_offset_sectors(resized.resync_offset_sectors);
    let bitmap = resized.bitmap.as_ref().and_then(|(head, bits)| {
        let mut head = head.clone();
        head.events = update.events;
        bitmap_area(&member, at_sector, &head, bits)
    });
    Changed { logs: bitmap.into_iter().collect(), superblock: superblock_area(member, at_sector, update) }
}

/// A bitmap as it is written to a member that has a place for it.
pub fn bitmap_area(
    member: &Superblock,
    at_sector: u64,
    head: &BitmapSuperblock,
    bits: &Bits,
) -> Option<Area> {
    let mut bytes = head.to_bytes();
    bytes.extend(bits.as_bytes());
    bytes.resize(written_bytes(bits.count()) as usize, 0);
    member.bitmap_sector(at_sector).map(|at_sector| Area { at_sector, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock_0::Superblock0;
    use crate::superblock_1::{MAX_SECTOR, PplArea, Role};
    use crate::time::Timestamp;
    use crate::uuid::Uuid;

    fn array(level: Level, minor_sector: u64, data_offset_sectors: u64, size_sectors: u64) -> Superblock1 {
        let mut superblock = Superblock1::new(level, 3, 0, Uuid([7; 16]));
        superblock.super_offset_sectors = minor_sector;
        superblock.data_offset_sectors = data_offset_sectors;
        (superblock.size_sectors, superblock.data_size_sectors) = (size_sectors, size_sectors);
        superblock.dev_roles[0] = Role::Slot(0);
        if level.has_chunks() {
            (superblock.chunk_sectors, superblock.layout) =
                (128, if level == Level::Raid10 { 0x102 } else { 2 });
        }
        superblock
    }

    fn boxed(superblock: Superblock1) -> Superblock {
        Superblock::V1(Box::new(superblock))
    }

    /// What mdadm 4.2 with Linux 6.1 made of 20M on devices of 131072 sectors: `component size … 64512K` with 1.2, `65520K` with 1.0
    /// and its bad-block log, `65472K` with 0.90.
    #[test]
    fn a_member_has_the_room_that_linux_finds() {
        let mut start = array(Level::Raid5, 8, 2048, 40960);
        (start.bblog_offset_sectors, start.bblog_size_sectors) = (16, 8);
        assert_eq!(room_sectors(&boxed(start), 8, 131_072), 64512 * 2);
        let mut end = array(Level::Raid1, 131_056, 0, 40960);
        end.data_size_sectors = 131_040;
        (end.bblog_offset_sectors, end.bblog_size_sectors) = (-8, 8);
        assert_eq!(room_sectors(&boxed(end.clone()), 131_056, 131_072), 65520 * 2);
        end.set_bitmap(-1000);
        assert_eq!(room_sectors(&boxed(end), 131_056, 131_072), 130_056, "a bitmap is there");
        let old = Superblock::V0(Box::new(Superblock0::new(Level::Raid1, 2, Uuid([7; 16]))));
        assert_eq!(room_sectors(&old, 130_944, 131_072), 65472 * 2);
    }

    #[test]
    fn all_that_every_member_has_is_used_in_whole_chunks() {
        let settle =
            |level, rooms: &[u64], asked| settle_size(&boxed(array(level, 8, 2048, 1280)), rooms, asked);
        assert_eq!(settle(Level::Raid5, &[9000, 7000, 8000], None), Ok(6912));
        assert_eq!(settle(Level::Raid1, &[9001, 7001], None), Ok(7000), "in KiB");
        assert_eq!(settle(Level::Raid6, &[9000; 4], Some(6000)), Ok(5888));
        assert_eq!(settle(Level::Raid5, &[1300; 3], None), Ok(1280), "as now");
        assert_eq!(settle(Level::Raid5, &[100; 3], None), Ok(1280), "never less than now");
        assert_eq!(settle(Level::Raid5, &[9000; 3], Some(1290)), Ok(1280));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let settle = |superblock, asked| settle_size(&boxed(superblock), &[9000, 7000], asked);
        let raid5 = || array(Level::Raid5, 8, 2048, 1280);
        for level in [Level::Linear, Level::Raid0] {
            assert_eq!(settle(array(level, 8, 2048, 0), None), Err(SizeError::Level(level)));
        }
        let smaller = SizeError::Smaller { now_sectors: 1280, asked_sectors: 1024 };
        assert_eq!(settle(raid5(), Some(1024)), Err(smaller));
        let room = |is_before_superblock| SizeError::Room {
            member: 1,
            asked_sectors: 8000,
            room_sectors: 7000,
            is_before_superblock,
        };
        assert_eq!(settle(raid5(), Some(8000)), Err(room(false)));
        assert_eq!(settle(array(Level::Raid5, 100_000, 0, 1280), Some(8000)), Err(room(true)));
        let mut logged = raid5();
        logged.set_ppl(PplArea { offset_sectors: 8, size_sectors: 2048, multiple: false });
        assert_eq!(settle(logged, None), Err(SizeError::Ppl));
        // Linux: `Invalid argument` for f2, and n2 and o2 grow.
        let mut far = array(Level::Raid10, 8, 2048, 1280);
        far.layout = 0x201;
        assert_eq!(settle(far.clone(), None), Err(SizeError::FarCopies));
        far.layout = 0x1_0201;
        assert_eq!(settle(far, None), Ok(6912), "whole chunks of both copies");
        let mut old = Superblock0::new(Level::Raid1, 2, Uuid([7; 16]));
        old.size_kib = 1 << 20;
        let old = Superblock::V0(Box::new(old));
        assert_eq!(settle_size(&old, &[1 << 34; 2], None), Ok((4 << 31) - 2));
        let asked_sectors = 4 << 31;
        assert_eq!(
            settle_size(&old, &[1 << 34; 2], Some(asked_sectors)),
            Err(SizeError::TooLargeForV0 { asked_sectors })
        );
    }

    #[test]
    fn a_bitmap_goes_on_standing_for_what_it_did() {
        let head = BitmapSuperblock::new(Uuid([7; 16]), 10 * 128, 64 << 10);
        let mut bits = Bits::clear(10);
        bits.set(3..4);
        let dirty =
            |bits: &Bits| bits.dirty_ranges().map(|range| (range.start, range.end)).collect::<Vec<_>>();
        // The last chunk is not whole: what is new begins in it.
        let head = BitmapSuperblock::new(head.uuid, 10 * 128 - 60, 64 << 10);
        let (new, set) = resize_bitmap(&head, &bits, 20 * 128, 8, true).unwrap();
        assert_eq!((new.chunk_bytes, new.sync_size_sectors), (64 << 10, 20 * 128));
        assert_eq!(dirty(&set), [(3, 4), (9, 20)]);
        let (_, set) = resize_bitmap(&head, &bits, 20 * 128, 8, false).unwrap();
        assert_eq!(dirty(&set), [(3, 4)], "what is new is taken as in sync");
        let mut stale = head.clone();
        stale.state |= BitmapSuperblock::STATE_STALE;
        let (new, set) = resize_bitmap(&stale, &bits, 20 * 128, 8, false).unwrap();
        assert_eq!((dirty(&set), new.is_stale()), (vec![(0, 20)], false));
        // 3840 bytes of bits in 4 KiB: the chunk is doubled until they are enough.
        let (new, set) = resize_bitmap(&head, &bits, 100_000 * 128, 8, true).unwrap();
        assert_eq!((new.chunk_bytes, new.bits()), (256 << 10, 25_000));
        assert_eq!(dirty(&set), [(0, 1), (2, 25_000)]);
        assert_eq!(resize_bitmap(&head, &bits, u64::MAX / 2, 8, true).unwrap_err(), SizeError::Bitmap);
    }

    #[test]
    fn a_bitmap_has_the_room_up_to_what_is_next() {
        let mut member = array(Level::Raid5, 8, 2048, 40960);
        member.set_bitmap(8);
        assert_eq!(bitmap_room_sectors(&boxed(member.clone()), 8, 1 << 20), Some(2032));
        (member.bblog_offset_sectors, member.bblog_size_sectors) = (136, 8);
        assert_eq!(bitmap_room_sectors(&boxed(member), 8, 1 << 20), Some(128));
        let mut end = array(Level::Raid5, 100_000, 0, 40960);
        end.set_bitmap(-24);
        assert_eq!(bitmap_room_sectors(&boxed(end.clone()), 100_000, 100_016), Some(24));
        (end.bblog_offset_sectors, end.bblog_size_sectors) = (-8, 8);
        assert_eq!(bitmap_room_sectors(&boxed(end), 100_000, 100_016), Some(16));
        assert_eq!(bitmap_room_sectors(&boxed(array(Level::Raid5, 8, 2048, 40960)), 8, 1 << 20), None);
    }

    #[test]
    fn a_member_says_what_it_uses_and_from_where_on_it_is_out_of_sync() {
        let update = Update { events: 9, utime: Timestamp::from_seconds(9) };
        let resized = Resized { size_sectors: 4096, resync_offset_sectors: 1280, bitmap: None };
        let member = boxed(array(Level::Raid5, 8, 2048, 1280));
        let changed = with_size(&member, 8, 10_240, &resized, update);
        let read = Superblock::parse(member.metadata(), &changed.superblock.bytes, 8).unwrap();
        assert_eq!((read.size_sectors(), read.data_size_sectors(8)), (4096, 8192));
        assert_eq!((read.resync_offset_sectors(), read.events()), (1280, 9));
        let mut old = Superblock0::new(Level::Raid1, 2, Uuid([7; 16]));
        (old.size_kib, old.state) = (640, Superblock0::CLEAN);
        let old = Superblock::V0(Box::new(old));
        for (asked, read_back) in [(1280, 1280), (MAX_SECTOR, MAX_SECTOR), (1 << 32, 0)] {
            let resized = Resized { resync_offset_sectors: asked, ..resized.clone() };
            let changed = with_size(&old, 10_112, 10_240, &resized, update);
            let read = Superblock::parse(old.metadata(), &changed.superblock.bytes, 10_112).unwrap();
            assert_eq!((read.size_sectors(), read.resync_offset_sectors()), (4096, read_back));
        }
    }
}
