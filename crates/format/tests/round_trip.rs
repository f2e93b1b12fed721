//! Any value that can be written is read back as it was.

use proptest::prelude::*;
use stripewise_format::bad_blocks::{self, BadRange};
use stripewise_format::bitmap::{BitmapSuperblock, Bits};
use stripewise_format::level::{Layout, Level};
use stripewise_format::placement::{Consistency, Metadata, Plan};
use stripewise_format::ppl::{self, PplEntry, PplHeader};
use stripewise_format::superblock_0::Superblock0;
use stripewise_format::superblock_1::{Minor, Role, Superblock1};
use stripewise_format::time::Timestamp;
use stripewise_format::uuid::Uuid;

fn level() -> impl Strategy<Value = Level> {
    prop::sample::select(Level::ALL.to_vec())
}

fn minor() -> impl Strategy<Value = Minor> {
    prop::sample::select(Minor::ALL.to_vec())
}

fn consistency() -> impl Strategy<Value = Consistency> {
    prop_oneof![
        Just(Consistency::Resync),
        Just(Consistency::Bitmap { chunk_bytes: None }),
        Just(Consistency::Bitmap { chunk_bytes: Some(1 << 27) }),
        Just(Consistency::Ppl),
    ]
}

/// A superblock such as a program that makes arrays would write, or nothing where no array can be made.
fn made(plan: &Plan, device_sectors: u64, slot: u16, uuid: [u8; 16], events: u64) -> Option<Superblock1> {
    let data_offset = plan.data_offset_sectors(device_sectors);
    let size = plan.size_sectors(plan.usable_sectors(device_sectors, data_offset).ok()?, None);
    let place = plan.place(device_sectors, data_offset, size).ok()?;
    let mut superblock = Superblock1::new(plan.level, plan.raid_disks, 1, Uuid(uuid));
    superblock.set_name(Some("host"), "array");
    superblock.ctime = Timestamp::from_seconds(events);
    superblock.layout = plan.layout.number() as u32;
    superblock.chunk_sectors = plan.chunk_sectors;
    superblock.size_sectors = size;
    superblock.data_offset_sectors = place.data_offset_sectors;
    superblock.data_size_sectors = place.data_size_sectors;
    superblock.super_offset_sectors = place.super_offset_sectors;
    (superblock.bblog_offset_sectors, superblock.bblog_size_sectors) =
        place.bad_block_log.unwrap_or_default();
    if let Some(bitmap) = place.bitmap {
        superblock.set_bitmap(bitmap.offset_sectors);
    }
    if let Some(area) = place.ppl {
        superblock.set_ppl(area);
    }
    superblock.events = events;
    superblock.dev_number = u32::from(slot);
    superblock.dev_roles[usize::from(slot)] = Role::Slot(slot);
    Some(superblock)
}

proptest! {
    #[test]
    fn what_is_placed_is_written_and_read(
        level in level(), minor in minor(), consistency in consistency(), device_sectors in 0_u64..1 << 44,
        shift in 3_u32..12, more in 0_u32..300, uuid: [u8; 16], events: u64, offset in prop::option::of(0_u64..1 << 20),
    ) {
        let raid_disks = u32::from(level.members_min()) + more;
        let plan = Plan {
            level,
            layout: Layout::default_of(level),
            raid_disks,
            chunk_sectors: if level.has_chunks() { 1 << shift } else { 0 },
            metadata: Metadata::V1(minor),
            consistency,
            data_offset_sectors: offset,
        };
        if let Some(superblock) = made(&plan, device_sectors, (raid_disks - 1) as u16, uuid, events) {
            let bytes = superblock.to_bytes();
            let read = Superblock1::parse(&bytes, superblock.super_offset_sectors);
            prop_assert_eq!(read.as_ref(), Ok(&superblock));
            prop_assert_eq!(superblock.check_on_device(device_sectors), Ok(()));
            prop_assert!(superblock.check_on_device(device_sectors.saturating_sub(8192)).is_err());
        }
    }

    #[test]
    fn superblocks_of_0_90(raid_disks in 4_u32..28, uuid: [u8; 16], events: u64, states: [u32; 27], size_kib in 1_u32..) {
        let mut superblock = Superblock0::new(Level::Raid6, raid_disks, Uuid(uuid));
        superblock.chunk_bytes = 65536;
        superblock.size_kib = size_kib;
        superblock.events = events;
        superblock.checkpoint_events = !events;
        for (number, (disk, state)) in superblock.disks.iter_mut().zip(states).enumerate() {
            disk.number = number as u32;
            disk.state = state;
        }
        let bytes = superblock.to_bytes();
        let read = Superblock0::parse(&bytes).unwrap();
        prop_assert_eq!(read.to_bytes(), bytes);
        prop_assert_eq!((read.events, read.checkpoint_events, read.set_uuid), (events, !events, Uuid(uuid)));
        prop_assert_eq!(read.disks, superblock.disks);
    }

    #[test]
    fn bitmaps(sync_size_sectors in 1_u64.., shift in 9_u32..31, uuid: [u8; 16], events: u64, state: u32) {
        let mut superblock = BitmapSuperblock::new(Uuid(uuid), sync_size_sectors, 1 << shift);
        superblock.events = events;
        superblock.state = state;
        prop_assert_eq!(BitmapSuperblock::parse(&superblock.to_bytes()).unwrap(), superblock.clone());
        let chunk_sectors = u64::from(superblock.chunk_bytes) / 512;
        prop_assert!(superblock.bits().checked_mul(chunk_sectors).is_none_or(|sectors| sectors >= sync_size_sectors));
        prop_assert!((superblock.bits() - 1) * chunk_sectors < sync_size_sectors);
    }

    #[test]
    fn bits_are_what_a_set_of_numbers_would_be(
        count in 1_u64..300, ranges in prop::collection::vec((0_u64..300, 0_u64..300, any::<bool>()), 0..8)
    ) {
        let mut bits = Bits::clear(count);
        let mut right = vec![false; count as usize];
        for (a, b, set) in ranges {
            let (start, end) = (a.min(b).min(count), a.max(b).min(count));
            if set { bits.set(start..end) } else { bits.unset(start..end) }
            right[start as usize..end as usize].fill(set);
        }
        prop_assert_eq!(bits.dirty_count(), right.iter().filter(|bit| **bit).count() as u64);
        let listed: Vec<u64> = bits.dirty_ranges().flatten().collect();
        let expected: Vec<u64> = (0..count).filter(|bit| right[*bit as usize]).collect();
        prop_assert_eq!(listed, expected);
        prop_assert_eq!(Bits::from_bytes(bits.as_bytes(), count), Ok(bits));
    }

    #[test]
    fn ppl_headers(
        generation: u64,
        entries in prop::collection::vec((any::<u64>(), 1_u32..1 << 20, any::<u32>(), any::<u32>()), 0..=ppl::ENTRIES_MAX),
    ) {
        let entry = |(data_sector, sectors, parity_disk, checksum)| PplEntry {
            data_sector, partial_parity_bytes: sectors / 2 * 512, data_bytes: sectors * 512, parity_disk, checksum,
        };
        let header = PplHeader { signature: 7, generation, entries: entries.into_iter().map(entry).collect() };
        prop_assert_eq!(PplHeader::parse(&header.to_bytes(), 7), Ok(header));
    }

    #[test]
    fn bad_block_logs(ranges in prop::collection::vec((0_u64..1 << 50, 1_u64..=512), 0..512)) {
        let range = |(start_sector, length_sectors)| BadRange { start_sector, length_sectors };
        let ranges: Vec<_> = ranges.into_iter().map(range).collect();
        let bytes = bad_blocks::to_bytes(&ranges, 0, 8).unwrap();
        prop_assert_eq!(bad_blocks::parse(&bytes, 0), Ok(ranges));
    }
}

#[test]
fn a_bad_range_too_long_for_an_entry_is_split_and_one_too_many_refused() {
    let long = BadRange { start_sector: 4096, length_sectors: 600 };
    let bytes = bad_blocks::to_bytes(&[long], 0, 8).unwrap();
    let lengths: Vec<_> = bad_blocks::parse(&bytes, 0).unwrap().iter().map(|r| r.length_sectors).collect();
    assert_eq!(lengths, [512, 88]);
    let endless = BadRange { start_sector: 0, length_sectors: u64::MAX >> 12 };
    let error = bad_blocks::to_bytes(&[endless], 0, 8).unwrap_err().to_string();
    assert_eq!(error, "bad-block log: 1 ranges do not fit the 512 entries there is room for");
}
