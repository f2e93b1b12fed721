//! The write-intent bitmap: which parts of the sync range may differ between members.
//!
//! | a bit is | in `bits` | in `durable` | |
//! |---|---|---|---|
//! | clear | no | no | writes must set it first |
//! | being set | yes | no | its page is dirty or being written; writes wait |
//! | set | yes | yes | writes go on |
//! | settled | yes | yes | nothing was written for a while; cleared at the next chance |
//! | needed | yes | yes | a resync must pass before it may be cleared |
//!
//! # Contract
//! *Ordering.* A bit is on every member's medium before a write it stands for begins, and is cleared there only
//! after the members were flushed. *Units.* Sectors of the sync range: of a member, for RAID-10 of the array.

use std::collections::BTreeMap;

use stripewise_format::bitmap::{BitmapSuperblock, Bits, SUPERBLOCK_BYTES};

use crate::units::{PAGE_BYTES, SECTOR_BYTES, SectorRange};

/// Rounds of the daemon without a write after which a bit is settled, as md's two.
const QUIET_ROUNDS: u8 = 2;

/// A bitmap as it was found on the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapConfig {
    /// Its superblock.
    pub superblock: BitmapSuperblock,
    /// Its bits.
    pub bits: Bits,
}

/// Writes that a bit stands for.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    writers: u32,
    quiet_rounds: u8,
}

/// A page of the bitmap on its way to the members.
#[derive(Debug)]
pub(crate) struct BitmapPage {
    /// Its number; page 0 begins with the superblock.
    pub(crate) number: u32,
    /// Its bytes, whole sectors. The last page ends with the bitmap: what comes next on the member may be something else.
    pub(crate) bytes: Vec<u8>,
}

/// See the module's description.
#[derive(Debug)]
pub struct WriteIntent {
    header: BitmapSuperblock,
    bits: Bits,
    durable: Bits,
    needed: Bits,
    settled: Bits,
    settled_count: u64,
    /// Bits written to lately.
    uses: BTreeMap<u64, Use>,
    dirty_pages: Vec<bool>,
    dirty_count: usize,
    in_flight: Vec<BitmapPage>,
}

impl WriteIntent {
    /// Takes up the bitmap that was found, of an array of so many sectors and events. If `is_dirty`, what its bits stand for must
    /// be resynced. One of fewer events, that is called stale, or that does not stand for all sectors, says nothing: whoever wrote
    /// last did not keep it. All bits are taken as set, and are to be so on the members, too; until they are it is called stale.
    pub(crate) fn new(config: BitmapConfig, sync_sectors: u64, events: u64, is_dirty: bool) -> Self {
        let BitmapConfig { mut superblock, mut bits } = config;
        let is_of_use = !superblock.is_stale()
            && superblock.events >= events
            && superblock.sync_size_sectors >= sync_sectors;
        if !is_of_use {
            // The page with these words may reach a member before those with the bits.
            superblock.state |= BitmapSuperblock::STATE_STALE;
            superblock.sync_size_sectors = sync_sectors;
            // Nobody who left before comes back by what it names from now on.
            superblock.events_cleared = events;
            bits = Bits::clear(superblock.bits());
            bits.set(0..superblock.bits());
        }
        let count = bits.count();
        let pages = (count.div_ceil(8) as usize + SUPERBLOCK_BYTES).div_ceil(PAGE_BYTES as usize);
        let none = Bits::clear(count);
        let (needed, settled) = if is_dirty { (bits.clone(), none) } else { (none, bits.clone()) };
        let mut new = Self {
            header: superblock,
            durable: bits.clone(),
            settled_count: settled.dirty_count(),
            needed,
            settled,
            bits,
            uses: BTreeMap::new(),
            dirty_pages: vec![false; pages],
            dirty_count: 0,
            in_flight: Vec::new(),
        };
        if !is_of_use {
            new.dirty_all();
        }
        new
    }

    fn chunk_sectors(&self) -> u64 {
        u64::from(self.header.chunk_bytes) / SECTOR_BYTES
    }

    fn bits_of(&self, range: SectorRange) -> std::ops::Range<u64> {
        let chunk = self.chunk_sectors();
        range.start / chunk..range.end().div_ceil(chunk).min(self.bits.count())
    }

    const fn page_of(bit: u64) -> usize {
        (bit as usize / 8 + SUPERBLOCK_BYTES) / PAGE_BYTES as usize
    }

    fn dirty(&mut self, page: usize) {
        if !std::mem::replace(&mut self.dirty_pages[page], true) {
            self.dirty_count += 1;
        }
    }

    /// Seconds between rounds of the daemon.
    pub(crate) const fn daemon_sleep_seconds(&self) -> u32 {
        self.header.daemon_sleep_seconds
    }

    /// Counts a write, and sets the bits it needs. Answers whether they are all durable.
    pub(crate) fn begin_write(&mut self, range: SectorRange) -> bool {
        let mut is_durable = true;
        for bit in self.bits_of(range) {
            let uses = self.uses.entry(bit).or_default();
            uses.writers += 1;
            uses.quiet_rounds = 0;
            if self.settled.is_set(bit) {
                self.settled.unset(bit..bit + 1);
                self.settled_count -= 1;
            }
            if !self.bits.is_set(bit) {
                self.bits.set(bit..bit + 1);
                self.dirty(Self::page_of(bit));
            }
            is_durable &= self.durable.is_set(bit);
        }
        is_durable
    }

    /// Whether the bits of a range are on every member's medium.
    pub(crate) fn is_durable(&self, range: SectorRange) -> bool {
        self.bits_of(range).all(|bit| self.durable.is_set(bit))
    }

    /// Counts a write that has ended.
    pub(crate) fn end_write(&mut self, range: SectorRange) {
        for bit in self.bits_of(range) {
            if let Some(uses) = self.uses.get_mut(&bit) {
                uses.writers = uses.writers.saturating_sub(1);
            }
        }
    }

    /// A round of the daemon: bits without writers for two rounds are settled; at a stop (`at_once`), all without
    /// writers.
    pub(crate) fn age(&mut self, at_once: bool) {
        let (needed, settled, count) = (&self.needed, &mut self.settled, &mut self.settled_count);
        self.uses.retain(|bit, uses| {
            if uses.writers > 0 {
                return true;
            }
            uses.quiet_rounds += 1;
            let stays = !at_once && uses.quiet_rounds < QUIET_ROUNDS;
            if !stays && !needed.is_set(*bit) && !settled.is_set(*bit) {
                settled.set(*bit..*bit + 1);
                *count += 1;
            }
            stays
        });
    }

    /// Whether bits wait to be cleared, or to become so.
    pub(crate) fn is_busy(&self) -> bool {
        self.settled_count > 0 || !self.uses.is_empty()
    }

    /// Whether bits may be cleared.
    pub(crate) const fn has_settled(&self) -> bool {
        self.settled_count > 0
    }

    /// The bits that are settled now; to be called before the members are flushed.
    pub(crate) fn clearable(&self) -> Bits {
        self.settled.clone()
    }

    /// Clears the bits that were settled before the members were flushed and still are.
    pub(crate) fn clear(&mut self, before: &Bits) {
        for bit in before.dirty_ranges().flatten() {
            if self.settled.is_set(bit) {
                self.bits.unset(bit..bit + 1);
                self.durable.unset(bit..bit + 1);
                self.settled.unset(bit..bit + 1);
                self.settled_count -= 1;
                self.dirty(Self::page_of(bit));
            }
        }
    }

    /// Whether pages wait to be written.
    pub(crate) const fn has_dirty_pages(&self) -> bool {
        self.dirty_count > 0
    }

    /// Every page is to be written, for a member that has none of them.
    pub(crate) fn dirty_all(&mut self) {
        self.dirty_pages.fill(true);
        self.dirty_count = self.dirty_pages.len();
    }

    /// The bitmap's own superblock.
    pub(crate) const fn header(&self) -> &BitmapSuperblock {
        &self.header
    }

    /// Records the array's events; `events_cleared` follows while no member is missing.
    pub(crate) fn set_events(&mut self, events: u64, is_degraded: bool) {
        self.header.events = events;
        if !is_degraded {
            self.header.events_cleared = events;
        }
        self.dirty(0);
    }

    /// Takes the pages to write. What they clear is not durable any more, what they set not yet.
    pub(crate) fn take_dirty_pages(&mut self) -> &[BitmapPage] {
        let page_bytes = PAGE_BYTES as usize;
        self.in_flight.clear();
        for number in 0..self.dirty_pages.len() {
            if !std::mem::replace(&mut self.dirty_pages[number], false) {
                continue;
            }
            let mut bytes = vec![0; page_bytes];
            let skip = if number == 0 { SUPERBLOCK_BYTES } else { 0 };
            if number == 0 {
                bytes[..SUPERBLOCK_BYTES].copy_from_slice(&self.header.to_bytes());
            }
            let from = (number * page_bytes + skip - SUPERBLOCK_BYTES).min(self.bits.as_bytes().len());
            let to = (from + page_bytes - skip).min(self.bits.as_bytes().len());
            bytes[skip..skip + to - from].copy_from_slice(&self.bits.as_bytes()[from..to]);
            bytes.truncate((skip + to - from).next_multiple_of(SECTOR_BYTES as usize));
            self.in_flight.push(BitmapPage { number: number as u32, bytes });
        }
        self.dirty_count = 0;
        &self.in_flight
    }

    /// The pages taken are on the members' media. Of a stale bitmap these are all.
    pub(crate) fn written(&mut self) {
        if self.header.is_stale() && !self.in_flight.is_empty() {
            self.header.state &= !BitmapSuperblock::STATE_STALE;
            self.dirty(0);
        }
        for page in std::mem::take(&mut self.in_flight) {
            let page_bytes = PAGE_BYTES as usize;
            let skip = if page.number == 0 { SUPERBLOCK_BYTES } else { 0 };
            let first = (page.number as usize * page_bytes + skip - SUPERBLOCK_BYTES) as u64 * 8;
            for (index, byte) in page.bytes[skip..].iter().enumerate().filter(|(_, b)| **b != 0) {
                let start = first + index as u64 * 8;
                for bit in (start..start + 8).filter(|bit| byte >> (bit - start) & 1 == 1) {
                    if bit < self.bits.count() && self.bits.is_set(bit) {
                        self.durable.set(bit..bit + 1);
                    }
                }
            }
        }
    }

    /// The first sector that a set bit stands for.
    pub(crate) fn first_set(&self) -> Option<u64> {
        self.bits.next(0, true).map(|bit| bit * self.chunk_sectors())
    }

    /// The next range from `sector` on that must be resynced or recovered.
    pub fn next_needed(&self, sector: u64) -> Option<SectorRange> {
        let chunk = self.chunk_sectors();
        let first = self.needed.next(sector / chunk, true)?;
        let end = self.needed.next(first, false).unwrap_or(self.needed.count());
        let start = sector.max(first * chunk);
        let end = (end * chunk).min(self.header.sync_size_sectors);
        (start < end).then(|| SectorRange::new(start, end - start))
    }

    /// A resync has passed a range; ranges come in ascending order, each beginning where needed sectors were left
    /// by the one before. A bit is done when the end of its chunk is passed.
    pub fn synced(&mut self, range: SectorRange) {
        let chunk = self.chunk_sectors();
        let sync_end = self.header.sync_size_sectors;
        for bit in self.bits_of(range) {
            let is_passed = ((bit + 1) * chunk).min(sync_end) <= range.end();
            if is_passed && self.needed.is_set(bit) {
                self.needed.unset(bit..bit + 1);
                self.uses.entry(bit).or_default();
            }
        }
    }

    /// Whether every bit that another bitmap has set is set; a stale one may lack bits.
    pub(crate) fn covers(&self, other: &BitmapSuperblock, bits: &Bits) -> bool {
        !other.is_stale()
            && other.chunk_bytes == self.header.chunk_bytes
            && bits.count() == self.bits.count()
            && bits.dirty_ranges().flatten().all(|bit| self.bits.is_set(bit))
    }

    /// Every set bit must be resynced: a member comes back that missed what they stand for.
    pub fn need_all_set(&mut self) {
        self.needed = self.bits.clone();
        self.settled = Bits::clear(self.bits.count());
        self.settled_count = 0;
    }

    /// No member misses anything any more: bits that nothing writes under may be cleared.
    pub fn redundant(&mut self) {
        self.needed = Bits::clear(self.bits.count());
        for bit in self.bits.dirty_ranges().flatten() {
            let is_quiet = !self.uses.contains_key(&bit) && !self.settled.is_set(bit);
            if is_quiet {
                self.settled.set(bit..bit + 1);
                self.settled_count += 1;
            }
        }
    }

    /// Panics if the bitmap contradicts itself.
    pub(crate) fn check(&self) {
        for bit in 0..self.bits.count() {
            let is_set = self.bits.is_set(bit);
            assert!(is_set || !self.durable.is_set(bit), "bit {bit}: durable bits are set");
            assert!(is_set || !self.needed.is_set(bit), "bit {bit}: needed bits are set");
            assert!(is_set || !self.settled.is_set(bit), "bit {bit}: settled bits are set");
            let is_written = self.uses.get(&bit).is_some_and(|uses| uses.writers > 0);
            assert!(is_set || !is_written, "bit {bit}: writes go on under a clear bit");
        }
        assert_eq!(self.settled.dirty_count(), self.settled_count, "settled bits are counted");
    }
}

#[cfg(test)]
mod tests {
    use stripewise_format::uuid::Uuid;

    use super::*;

    fn intent(chunks: u64, set: std::ops::Range<u64>, is_dirty: bool) -> WriteIntent {
        let superblock = BitmapSuperblock::new(Uuid::default(), chunks * 8 - 3, 4096);
        let mut bits = Bits::clear(chunks);
        bits.set(set);
        WriteIntent::new(BitmapConfig { superblock, bits }, chunks * 8 - 3, 0, is_dirty)
    }

    #[test]
    fn a_bitmap_that_is_older_stale_or_of_a_smaller_array_counts_as_set_and_is_written() {
        const STALE: u32 = BitmapSuperblock::STATE_STALE;
        const WRITE_ERROR: u32 = BitmapSuperblock::STATE_WRITE_ERROR;
        let found = |sectors: u64, events, state| {
            let mut superblock = BitmapSuperblock::new(Uuid::default(), sectors, 4096);
            (superblock.events, superblock.state) = (events, state);
            BitmapConfig { bits: Bits::clear(superblock.bits()), superblock }
        };
        for (sectors, events, state, is_of_use) in [
            (800_000, 7, 0, true),
            (800_800, 8, 0, true),
            (800_000, 7, WRITE_ERROR, true),
            (799_999, 7, 0, false),
            (400_000, 7, 0, false),
            (800_000, 6, 0, false),
            (800_000, 7, STALE, false),
            (800_800, 8, STALE, false),
        ] {
            let what = format!("{sectors} {events} {state}");
            let mut intent = WriteIntent::new(found(sectors, events, state), 800_000, 7, true);
            let whole = SectorRange::new(0, 800_000);
            assert_eq!(intent.next_needed(0), (!is_of_use).then_some(whole), "{what}");
            let pages = intent.take_dirty_pages();
            assert_eq!(pages.len(), if is_of_use { 0 } else { 4 }, "{what}");
            // The first page may reach a member alone: until all have, it says that the others are not to be believed.
            let said = pages.first().map(|page| BitmapSuperblock::parse(&page.bytes).unwrap().state);
            assert_eq!(said, (!is_of_use).then_some(STALE), "{what}");
            intent.written();
            let header = intent.header();
            assert!(header.sync_size_sectors >= 800_000, "{what}");
            assert_eq!(header.events_cleared, if is_of_use { 0 } else { 7 }, "{what}");
            assert_eq!(header.state & STALE, 0, "{what}");
            let pages: Vec<u32> = intent.take_dirty_pages().iter().map(|page| page.number).collect();
            assert_eq!(pages, if is_of_use { &[][..] } else { &[0] }, "{what}");
            intent.check();
        }
    }

    #[test]
    fn a_stale_bitmap_says_nothing_of_what_its_member_was_written() {
        let intent = intent(64, 0..64, false);
        let (mut other, bits) = (BitmapSuperblock::new(Uuid::default(), 509, 4096), Bits::clear(64));
        assert!(intent.covers(&other, &bits));
        other.state = BitmapSuperblock::STATE_STALE;
        assert!(!intent.covers(&other, &bits));
    }

    #[test]
    fn a_write_waits_until_its_bit_is_on_the_members() {
        let mut intent = intent(100_000, 0..0, false);
        let range = SectorRange::new(8 * 40_000, 24);
        assert!(!intent.begin_write(range));
        assert!(intent.has_dirty_pages());
        assert_eq!(intent.take_dirty_pages().iter().map(|p| p.number).collect::<Vec<_>>(), [1]);
        assert!(!intent.is_durable(range));
        intent.written();
        assert!(intent.is_durable(range) && !intent.has_dirty_pages());
        assert!(intent.begin_write(SectorRange::new(8 * 40_001, 1)), "the bit is there already");
        intent.check();
    }

    #[test]
    fn a_bit_is_cleared_when_quiet_unless_it_is_written_to_again() {
        let mut intent = intent(64, 0..0, false);
        let (a, b) = (SectorRange::new(0, 8), SectorRange::new(80, 8));
        intent.begin_write(a);
        intent.begin_write(b);
        intent.take_dirty_pages();
        intent.written();
        intent.age(false);
        intent.age(false);
        assert!(!intent.has_settled(), "both are being written");
        intent.end_write(a);
        intent.end_write(b);
        intent.age(false);
        assert!(!intent.has_settled(), "one quiet round is not enough");
        intent.age(false);
        let before = intent.clearable();
        intent.begin_write(b);
        intent.clear(&before);
        assert!(!intent.is_durable(a) && intent.is_durable(b));
        intent.check();
        assert!(!intent.begin_write(a), "set anew");
    }

    #[test]
    fn a_bit_set_while_its_page_is_written_waits_for_the_next_write() {
        let mut intent = intent(64, 0..0, false);
        intent.begin_write(SectorRange::new(0, 8));
        intent.take_dirty_pages();
        assert!(!intent.begin_write(SectorRange::new(8, 8)));
        intent.written();
        assert!(intent.is_durable(SectorRange::new(0, 8)));
        assert!(!intent.is_durable(SectorRange::new(8, 8)) && intent.has_dirty_pages());
    }

    #[test]
    fn the_last_page_ends_with_the_bitmap() {
        let lengths = |chunks: u64| {
            let mut intent = intent(chunks, 0..0, false);
            intent.dirty_all();
            intent.take_dirty_pages().iter().map(|page| page.bytes.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(64), [512]);
        assert_eq!(lengths(256 * 8), [512], "256 bytes of superblock, and as many of bits");
        assert_eq!(lengths(256 * 8 + 1), [1024]);
        assert_eq!(lengths(3840 * 8), [4096]);
        assert_eq!(lengths(3840 * 8 + 1), [4096, 512]);
    }

    #[test]
    fn needed_bits_are_named_in_order_and_done_at_the_end_of_their_chunk() {
        let mut intent = intent(64, 10..12, true);
        assert_eq!(intent.next_needed(0), Some(SectorRange::new(80, 16)));
        intent.synced(SectorRange::new(80, 4));
        assert_eq!(intent.next_needed(84), Some(SectorRange::new(84, 12)));
        intent.synced(SectorRange::new(84, 4));
        assert_eq!(intent.next_needed(0), Some(SectorRange::new(88, 8)));
        intent.synced(SectorRange::new(88, 8));
        assert_eq!(intent.next_needed(0), None);
        intent.age(true);
        assert!(intent.has_settled());
        let last = self::intent(64, 63..64, true);
        assert_eq!(last.next_needed(0), Some(SectorRange::new(504, 5)), "cut at the end of the sync range");
    }
}
