//! A partial parity log that an existing RAID-5 is given, as by `mdadm --grow --consistency-policy ppl` (4.2). It is taken away as a
//! bitmap is.

use super::{Changed, GrowError, Update, plan_of, superblock_area};
use crate::create::Area;
use crate::placement::{Consistency, PlacementError};
use crate::ppl::{AREA_SECTORS, empty_log};
use crate::superblock::Superblock;
use crate::superblock_1::{Minor, PplArea, Superblock1};

/// A header and a page of partial parity, less than which logs nothing.
const LEAST_SECTORS: u64 = 16;
/// Beside the header, where there is not room for all that mdadm keeps: a chunk, or as much as 128 KiB.
const CHUNK_SECTORS_MIN: u64 = 256;
const HEADER_SECTORS: u64 = 8;

/// Whether the array can have logs at all.
///
/// # Errors
/// Its level, its metadata or the number of its members has none.
pub fn check_ppl(array: &Superblock) -> Result<(), GrowError> {
    plan_of(array, Consistency::Ppl).check().map_err(GrowError::Placement)
}

/// A member with an empty log; its superblock lies at a sector.
///
/// # Errors
/// There is no room for one.
pub fn with_ppl(member: &Superblock, at_sector: u64, update: Update) -> Result<Changed, GrowError> {
    check_ppl(member)?;
    let Superblock::V1(before) = member else { return Err(GrowError::Placement(PlacementError::NoPplInV0)) };
    let mut own = before.clone();
    own.set_ppl(ppl_area(before)?);
    let member = Superblock::V1(own);
    let log = ppl_log(&member, at_sector);
    Ok(Changed { logs: log.into_iter().collect(), superblock: superblock_area(member, at_sector, update) })
}

/// The empty log of a member that has a place for it.
fn ppl_log(member: &Superblock, at_sector: u64) -> Option<Area> {
    let area = member.ppl()?;
    let at_sector = at_sector.checked_add_signed(area.offset_sectors.into())?;
    Some(Area { at_sector, bytes: empty_log(&member.set_uuid(), area) })
}

/// Where mdadm puts the log of a member without bitmap: between superblock and bad-block log or data, or between data and bad-block
/// log or superblock.
///
/// # Errors
/// There is too little room.
pub(super) fn ppl_area(member: &Superblock1) -> Result<PplArea, GrowError> {
    let superblock = member.super_offset_sectors;
    let log = member.bad_block_log_sector();
    let (start, end) = match member.minor() {
        Minor::Start | Minor::Start4K => {
            let start = superblock + HEADER_SECTORS;
            let log = log.filter(|log| *log >= start);
            (start, log.unwrap_or(u64::MAX).min(member.data_offset_sectors))
        }
        Minor::End => {
            let data_end = member.data_offset_sectors.saturating_add(member.data_size_sectors);
            let reach = superblock.saturating_sub(u64::from(i16::MIN.unsigned_abs()));
            let start = data_end.max(reach);
            (start, log.filter(|log| *log >= start).unwrap_or(u64::MAX).min(superblock))
        }
    };
    let room = end.saturating_sub(start);
    let chunk = u64::from(member.chunk_sectors).max(CHUNK_SECTORS_MIN);
    let wanted = if room >= AREA_SECTORS.into() { AREA_SECTORS.into() } else { HEADER_SECTORS + chunk };
    let size = room.min(wanted);
    let place =
        i16::try_from(start.cast_signed() - superblock.cast_signed()).ok().zip(u16::try_from(size).ok());
    match place {
        Some((offset_sectors, size_sectors)) if size >= LEAST_SECTORS => {
            Ok(PplArea { offset_sectors, size_sectors, multiple: false })
        }
        _ => Err(GrowError::PplRoom { needed_sectors: LEAST_SECTORS, free_sectors: room }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{follow, is_left_behind, without_bitmap};
    use super::*;
    use crate::level::Level;
    use crate::ppl::{PplHeader, signature};
    use crate::superblock_0::Superblock0;
    use crate::time::Timestamp;
    use crate::uuid::Uuid;

    const UPDATE: Update = Update { events: 5, utime: Timestamp::from_seconds(5) };

    fn array(
        super_offset_sectors: u64,
        data_offset_sectors: u64,
        size_sectors: u64,
        log: i32,
    ) -> Superblock1 {
        let mut array = Superblock1::new(Level::Raid5, 3, 0, Uuid([7; 16]));
        (array.super_offset_sectors, array.data_offset_sectors) = (super_offset_sectors, data_offset_sectors);
        (array.size_sectors, array.data_size_sectors, array.events) = (size_sectors, size_sectors, 4);
        (array.chunk_sectors, array.layout) = (128, 2);
        (array.bblog_offset_sectors, array.bblog_size_sectors) = (log, if log == 0 { 0 } else { 8 });
        array
    }

    fn area(offset_sectors: i16, size_sectors: u16) -> PplArea {
        PplArea { offset_sectors, size_sectors, multiple: false }
    }

    /// What mdadm 4.2 did: `PPL : 2048 sectors at offset 8` where a log had been, at -2056 with 1.0; 264 sectors before
    /// data at 2048 without a bad-block log; `Not enough space to add ppl` with a bad-block log at 16, or 1.0 with 8 sectors to spare.
    #[test]
    fn the_log_is_where_mdadm_puts_it() {
        assert_eq!(ppl_area(&array(8, 4096, 40960, 2056)), Ok(area(8, 2048)));
        assert_eq!(ppl_area(&array(131_056, 0, 129_000, -8)), Ok(area(-2056, 2048)));
        assert_eq!(ppl_area(&array(8, 2048, 40960, 0)), Ok(area(8, 264)));
        let mut large = array(8, 2048, 40960, 0);
        large.chunk_sectors = 1024;
        assert_eq!(ppl_area(&large), Ok(area(8, 1032)));
        let refused = |free_sectors| Err(GrowError::PplRoom { needed_sectors: 16, free_sectors });
        assert_eq!(ppl_area(&array(8, 6144, 40960, 16)), refused(8));
        assert_eq!(ppl_area(&array(131_056, 0, 131_040, -8)), refused(8));
        assert_eq!(ppl_area(&array(8, 24, 40960, 0)), refused(8));
    }

    #[test]
    fn a_member_gets_an_empty_log_and_loses_it_again() {
        let before = Superblock::V1(Box::new(array(8, 4096, 40960, 2056)));
        let changed = with_ppl(&before, 8, UPDATE).unwrap();
        let with = Superblock::parse(before.metadata(), &changed.superblock.bytes, 8).unwrap();
        assert_eq!((with.ppl(), with.events()), (Some(area(8, 2048)), 5));
        assert_eq!((changed.logs[0].at_sector, changed.logs[0].bytes.len()), (16, 2048 * 512));
        let header = PplHeader::parse(&changed.logs[0].bytes, signature(&before.set_uuid())).unwrap();
        assert_eq!(header.entries, []);
        assert!(is_left_behind(&before, &with));
        assert_eq!(follow(&before, 8, 1 << 20, &with), Some(with.clone()));
        let update = Update { events: 4, utime: Timestamp::from_seconds(0) };
        let without = without_bitmap(&with, 8, update);
        let read = Superblock::parse(before.metadata(), &without.superblock.bytes, 8).unwrap();
        assert_eq!(read, before);
    }

    #[test]
    fn other_arrays_have_none() {
        let mut other = array(8, 4096, 40960, 2056);
        other.level = Level::Raid4;
        let refused = |error| Err(GrowError::Placement(error));
        let other = Superblock::V1(Box::new(other));
        assert_eq!(with_ppl(&other, 8, UPDATE), refused(PlacementError::NoPplAtLevel(Level::Raid4)));
        let old = Superblock::V0(Box::new(Superblock0::new(Level::Raid5, 3, Uuid([7; 16]))));
        assert_eq!(with_ppl(&old, 8, UPDATE), refused(PlacementError::NoPplInV0));
    }
}
