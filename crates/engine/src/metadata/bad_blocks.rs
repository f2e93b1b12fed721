//! Sectors of a member that are known not to hold their content.
//!
//! As md does, sectors are listed that a member did not take, and those of a member being recovered whose content could
//! not be had; the member stays, reads go to the redundancy, and a write that is taken strikes them from the list. The log
//! on the member names them until a flush has made that write durable: a power cut may take it.

use stripewise_format::bad_blocks::{BadBlocksError, BadRange, ENTRY_BYTES, LENGTH_MAX, to_bytes};
use stripewise_format::superblock::Superblock;

use super::MemberMetadata;
use crate::units::{SECTOR_BYTES, SectorRange};

/// A member's list, and where its log lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadBlocks {
    /// In ascending order and apart from each other, in sectors of the device.
    ranges: Vec<SectorRange>,
    /// What the log is to say: those, and what was struck from them and is not yet durable.
    logged: Vec<SectorRange>,
    /// What was struck and is not yet durable, oldest first.
    struck: Vec<SectorRange>,
    /// How many of these were there when the flush under way was asked for.
    flushing: usize,
    data_offset_sectors: u64,
    log_sector: u64,
    log_sectors: u16,
    shift: u8,
    /// The log on the member says something else.
    pub(crate) is_changed: bool,
}

impl BadBlocks {
    /// The list of a member whose superblock names a log.
    pub(crate) fn new(metadata: &MemberMetadata) -> Option<Self> {
        let Superblock::V1(superblock) = &metadata.superblock else { return None };
        let listed = metadata.bad_blocks.as_ref()?;
        let mut new = Self {
            ranges: Vec::new(),
            logged: Vec::new(),
            struck: Vec::new(),
            flushing: 0,
            data_offset_sectors: superblock.data_offset_sectors,
            log_sector: metadata.sector.checked_add_signed(superblock.bblog_offset_sectors.into())?,
            log_sectors: superblock.bblog_size_sectors,
            shift: superblock.bblog_shift,
            is_changed: false,
        };
        for range in listed {
            join(&mut new.ranges, SectorRange::new(range.start_sector, range.length_sectors));
        }
        new.logged.clone_from(&new.ranges);
        Some(new)
    }

    fn on_device(&self, data: SectorRange) -> SectorRange {
        SectorRange::new(data.start + self.data_offset_sectors, data.count)
    }

    /// Whether nothing is listed.
    pub(crate) const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the log is to be empty.
    pub(crate) const fn is_log_empty(&self) -> bool {
        self.logged.is_empty()
    }

    /// Whether one of these sectors of the data is listed.
    pub(crate) fn has(&self, data: SectorRange) -> bool {
        let range = self.on_device(data);
        let first = self.ranges.partition_point(|r| r.end() <= range.start);
        self.ranges.get(first).is_some_and(|r| r.start < range.end())
    }

    /// Whether all of these sectors of the data are listed.
    pub(crate) fn has_all(&self, data: SectorRange) -> bool {
        let range = self.on_device(data);
        let first = self.ranges.partition_point(|r| r.end() <= range.start);
        self.ranges.get(first).is_some_and(|r| r.start <= range.start && r.end() >= range.end())
    }

    /// The first sector of the data after `sector` where listed ones begin or end.
    pub(crate) fn next_edge(&self, sector: u64) -> Option<u64> {
        let at = sector + self.data_offset_sectors;
        let first = self.ranges.partition_point(|r| r.end() <= at);
        let range = self.ranges.get(first)?;
        Some(if range.start > at { range.start } else { range.end() } - self.data_offset_sectors)
    }

    /// Lists sectors of the data. Answers whether the log has room for them; if not, nothing changes.
    pub(crate) fn add(&mut self, data: SectorRange) -> bool {
        let unit = 1 << self.shift;
        let range = self.on_device(data);
        let start = range.start / unit * unit;
        let blocks = SectorRange::new(start, range.end().next_multiple_of(unit) - start);
        let mut logged = self.logged.clone();
        join(&mut logged, blocks);
        if !self.fits(&logged) {
            return false;
        }
        self.logged = logged;
        join(&mut self.ranges, blocks);
        self.is_changed = true;
        true
    }

    /// Whether the log has room for ranges.
    fn fits(&self, ranges: &[SectorRange]) -> bool {
        let entries: u64 = ranges.iter().map(|r| (r.count >> self.shift).div_ceil(LENGTH_MAX)).sum();
        entries <= u64::from(self.log_sectors) * SECTOR_BYTES / ENTRY_BYTES as u64
    }

    /// Strikes sectors of the data from the list, as far as they fill the log's blocks. Answers whether any were in it.
    pub(crate) fn remove(&mut self, data: SectorRange) -> bool {
        let unit = 1_u64 << self.shift;
        let range = self.on_device(data);
        let (start, end) = (range.start.next_multiple_of(unit), range.end() / unit * unit);
        let struck_of = |r: &SectorRange| {
            let (start, end) = (r.start.max(start), r.end().min(end));
            (start < end).then(|| SectorRange::new(start, end - start))
        };
        let before = self.struck.len();
        self.struck.extend(self.ranges.iter().filter_map(struck_of));
        if self.struck.len() == before {
            return false;
        }
        let pieces = self.ranges.iter().flat_map(|r| {
            let before = SectorRange::new(r.start, r.end().min(start).saturating_sub(r.start));
            let after = r.start.max(end);
            [before, SectorRange::new(after, r.end().saturating_sub(after))]
        });
        self.ranges = pieces.filter(|r| r.count > 0).collect();
        true
    }

    /// A flush was asked for, of all that the member took until now.
    pub(crate) const fn flush_begins(&mut self) {
        self.flushing = self.struck.len();
    }

    /// It is done: what was struck before it goes from the log as well, if the log has room for what is left: a range that is
    /// struck in its middle is two.
    pub(crate) fn flush_ends(&mut self) {
        let flushed = std::mem::take(&mut self.flushing);
        if flushed == 0 {
            return;
        }
        self.struck.drain(..flushed);
        let mut logged = self.ranges.clone();
        self.struck.iter().for_each(|range| join(&mut logged, *range));
        if self.fits(&logged) {
            self.logged = logged;
            self.is_changed = true;
        }
    }

    /// What is listed of the data, in its sectors.
    pub(crate) fn listed(&self) -> impl Iterator<Item = SectorRange> {
        let offset = self.data_offset_sectors;
        self.ranges.iter().filter(move |r| r.end() > offset).map(move |r| {
            let start = r.start.max(offset);
            SectorRange::new(start - offset, r.end() - start)
        })
    }

    /// Where the log lies, and its bytes.
    pub(crate) fn log(&self) -> Result<(SectorRange, Vec<u8>), BadBlocksError> {
        let ranges: Vec<BadRange> =
            self.logged.iter().map(|r| BadRange { start_sector: r.start, length_sectors: r.count }).collect();
        let bytes = to_bytes(&ranges, self.shift, self.log_sectors)?;
        Ok((SectorRange::new(self.log_sector, u64::from(self.log_sectors)), bytes))
    }
}

/// Adds a range to ranges in ascending order and apart from each other.
fn join(ranges: &mut Vec<SectorRange>, range: SectorRange) {
    let first = ranges.partition_point(|r| r.end() < range.start);
    let last = ranges.partition_point(|r| r.start <= range.end());
    let joined = ranges[first..last].iter().fold(range, |a, b| {
        let start = a.start.min(b.start);
        SectorRange::new(start, a.end().max(b.end()) - start)
    });
    ranges.splice(first..last, [joined]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> BadBlocks {
        BadBlocks {
            ranges: Vec::new(),
            logged: Vec::new(),
            struck: Vec::new(),
            flushing: 0,
            data_offset_sectors: 2048,
            log_sector: 24,
            log_sectors: 1,
            shift: 3,
            is_changed: false,
        }
    }

    fn ranges(list: &BadBlocks) -> Vec<(u64, u64)> {
        list.ranges.iter().map(|r| (r.start, r.count)).collect()
    }

    #[test]
    fn neighbours_are_one_and_blocks_are_whole() {
        let mut list = list();
        assert!(list.add(SectorRange::new(17, 2)));
        assert!(list.add(SectorRange::new(32, 8)));
        assert_eq!(ranges(&list), [(2064, 8), (2080, 8)]);
        assert!(list.add(SectorRange::new(24, 8)));
        assert_eq!(ranges(&list), [(2064, 24)]);
        assert!(list.has(SectorRange::new(0, 17)) && !list.has(SectorRange::new(0, 16)));
        assert!(list.has_all(SectorRange::new(16, 24)) && !list.has_all(SectorRange::new(15, 2)));
        assert!(list.has(SectorRange::new(39, 1)) && !list.has(SectorRange::new(40, 100)));
        assert_eq!([0, 16, 40].map(|s| list.next_edge(s)), [Some(16), Some(40), None]);
    }

    #[test]
    fn only_whole_blocks_are_struck_out() {
        let mut list = list();
        list.add(SectorRange::new(16, 32));
        assert!(!list.remove(SectorRange::new(17, 9)));
        assert!(list.remove(SectorRange::new(24, 12)));
        assert_eq!(ranges(&list), [(2064, 8), (2080, 16)]);
        assert!(list.remove(SectorRange::new(0, 100)) && list.is_empty());
        assert!(!list.remove(SectorRange::new(0, 100)));
    }

    #[test]
    fn what_has_no_room_is_not_listed() {
        let mut list = list();
        assert!((0..64).all(|n| list.add(SectorRange::new(n * 16, 8))));
        let before = list.clone();
        assert!(!list.add(SectorRange::new(2000, 8)));
        assert_eq!(list, before);
        assert!(list.add(SectorRange::new(8, 8)), "it joins two");
    }

    #[test]
    fn the_log_reads_as_it_was_written() {
        let mut list = list();
        list.add(SectorRange::new(16, 8));
        list.add(SectorRange::new(8000, 8 * 600));
        let (place, bytes) = list.log().unwrap();
        assert_eq!((place, bytes.len()), (SectorRange::new(24, 1), 512));
        let read = stripewise_format::bad_blocks::parse(&bytes, 3).unwrap();
        let read: Vec<_> = read.iter().map(|r| (r.start_sector, r.length_sectors)).collect();
        assert_eq!(read, [(2064, 8), (10_048, 4096), (14_144, 704)]);
    }

    #[test]
    fn a_log_without_room_for_what_is_left_names_more_than_that() {
        let mut list = list();
        assert!((0..63).all(|n| list.add(SectorRange::new(n * 64, 32))));
        assert!(list.remove(SectorRange::new(8, 8)), "64 ranges are left");
        assert!(list.add(SectorRange::new(8000, 8)), "the log has 63 of them, and this one");
        list.flush_begins();
        list.flush_ends();
        assert_eq!(list.ranges.len(), 65);
        let (_, bytes) = list.log().unwrap();
        let logged = stripewise_format::bad_blocks::parse(&bytes, 3).unwrap();
        assert_eq!((logged.len(), logged.last().unwrap().start_sector), (64, 10_048));
        assert!(!list.add(SectorRange::new(9000, 8)));
        assert!(list.remove(SectorRange::new(0, 32)));
        list.flush_begins();
        list.flush_ends();
        assert_eq!(list.logged, list.ranges);
    }

    #[test]
    fn the_log_names_what_was_struck_until_it_is_durable() {
        let logged = |list: &BadBlocks| list.logged.iter().map(|r| r.start).collect::<Vec<_>>();
        let mut list = list();
        assert!([16, 48, 80].into_iter().all(|sector| list.add(SectorRange::new(sector, 8))));
        assert!(list.remove(SectorRange::new(16, 8)));
        list.flush_begins();
        assert!(list.remove(SectorRange::new(40, 16)), "after the flush was asked for");
        list.is_changed = false;
        assert_eq!((ranges(&list), logged(&list)), (vec![(2128, 8)], vec![2064, 2096, 2128]));
        list.flush_ends();
        assert_eq!((logged(&list), list.is_changed), (vec![2096, 2128], true));
        list.flush_begins();
        assert!(list.add(SectorRange::new(48, 8)), "it fails again");
        list.flush_ends();
        assert_eq!(logged(&list), [2096, 2128]);
        assert!(list.remove(SectorRange::new(0, 100)) && list.is_empty() && !list.is_log_empty());
    }
}
