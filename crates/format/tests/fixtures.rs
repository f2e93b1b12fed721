//! Superblocks, bitmaps and logs that real mdadm and a real kernel wrote: read, described as `mdadm -E` describes
//! them, and written back byte for byte.

mod common;

use common::{fixture, fixtures};
use stripewise_format::bitmap::{BitmapSuperblock, Bits, SUPERBLOCK_BYTES};
use stripewise_format::device_flags::DeviceFlags;
use stripewise_format::examine::{self, Context, Line};
use stripewise_format::journal::{BLOCK_BYTES, MetaBlock, Payload, Seed};
use stripewise_format::level::{Layout, Level};
use stripewise_format::placement::Metadata;
use stripewise_format::ppl::{self, PplHeader};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_0::{self, Superblock0};
use stripewise_format::superblock_1::{Features, Role, Superblock1};
use stripewise_format::{bad_blocks, superblock_1};

#[test]
fn every_superblock_comes_out_byte_for_byte() {
    for fixture in fixtures() {
        let bytes = fixture.bytes("sb").unwrap();
        assert_eq!(fixture.superblock().to_bytes(), bytes, "{}", fixture.name);
    }
}

#[test]
fn superblocks_lie_where_the_kernel_looks_for_them() {
    for fixture in fixtures() {
        let sector = fixture.metadata().sector(fixture.device_sectors);
        assert_eq!(sector, Some(fixture.sector("sb")), "{}", fixture.name);
        assert_eq!(fixture.superblock().metadata(), fixture.metadata());
    }
}

#[test]
fn every_superblock_fits_its_device_and_no_smaller_one() {
    for fixture in fixtures() {
        let superblock = fixture.superblock();
        assert_eq!(superblock.check_on_device(fixture.device_sectors), Ok(()), "{}", fixture.name);
        let end = superblock.data_offset_sectors() + superblock.size_sectors().max(8);
        let is_unsized = superblock.metadata() == Metadata::V0 && superblock.size_sectors() == 0;
        assert!(is_unsized || superblock.check_on_device(end - 8).is_err(), "{}", fixture.name);
    }
}

#[test]
fn descriptions_are_mdadms_line_by_line() {
    let path =
        |major, minor| (major == 98).then(|| format!("/dev/ubd{}", (b'a' + (minor / 16) as u8) as char));
    for fixture in fixtures() {
        let bitmap = fixture.bytes("bitmap").map(|bytes| BitmapSuperblock::parse(&bytes).unwrap());
        let context = Context {
            device_sectors: fixture.device_sectors,
            homehost: Some("maker"),
            bitmap: bitmap.as_ref(),
            device_path: Some(&path),
            ..Context::default()
        };
        let lines = match fixture.superblock() {
            Superblock::V0(superblock) => examine::superblock_0(&superblock, &context),
            Superblock::V1(superblock) => examine::superblock_1(&superblock, &context),
        };
        let shown = examine::render(&lines, 15);
        // The names of hosts are hashed into 0.90's UUIDs; that is not undone here.
        let local = if fixture.metadata == "0.90" { " (local to host maker)" } else { "\u{0}" };
        let right: Vec<_> =
            fixture.lines("examine")[1..].iter().map(|line| line.replace(local, "")).collect();
        assert_eq!(shown.lines().collect::<Vec<_>>(), right, "{}", fixture.name);
    }
}

#[test]
fn bitmaps_read_as_mdadm_reads_them_and_come_out_byte_for_byte() {
    let mut seen = 0;
    for fixture in fixtures() {
        let Some(bytes) = fixture.bytes("bitmap") else { continue };
        let superblock = BitmapSuperblock::parse(&bytes).unwrap();
        assert_eq!(superblock.to_bytes(), bytes[..SUPERBLOCK_BYTES], "{}", fixture.name);
        let bits = Bits::from_bytes(&bytes[SUPERBLOCK_BYTES..], superblock.bits()).unwrap();
        let array = fixture.superblock();
        assert_eq!(superblock.uuid, array.bitmap_uuid(), "{}", fixture.name);
        assert_eq!(
            array.bitmap_sector(fixture.sector("sb")),
            Some(fixture.sector("bitmap")),
            "{}",
            fixture.name
        );
        let shown = examine::render(&examine::bitmap(&superblock, &array.set_uuid(), Some(&bits)), 16);
        assert_eq!(
            shown.lines().collect::<Vec<_>>(),
            fixture.lines("examine_bitmap")[1..],
            "{}",
            fixture.name
        );
        seen += 1;
    }
    assert!(seen > 20, "{seen} bitmaps");
}

#[test]
fn dirty_chunks_are_those_that_were_written() {
    for name in ["0.90-dirty.m0", "1.2-dirty.m0"] {
        let fixture = fixture(name);
        let bytes = fixture.bytes("bitmap").unwrap();
        let superblock = BitmapSuperblock::parse(&bytes).unwrap();
        let bits = Bits::from_bytes(&bytes[SUPERBLOCK_BYTES..], superblock.bits()).unwrap();
        // Sectors 0 and 20000 of an array of two data members with 64 KiB chunks, a bit for each 64 KiB.
        assert_eq!(bits.dirty_ranges().collect::<Vec<_>>(), [0..1, 78..79], "{name}");
    }
}

#[test]
fn logs_of_partial_parity_bear_their_array_and_their_sums() {
    let mut entries = 0;
    for fixture in fixtures() {
        let Some(bytes) = fixture.bytes("ppl") else { continue };
        let superblock = fixture.superblock_1();
        let signature = ppl::signature(&superblock.set_uuid);
        let header = PplHeader::parse(&bytes, signature).unwrap_or_else(|e| panic!("{}: {e}", fixture.name));
        assert_eq!(header.to_bytes(), bytes[..ppl::HEADER_BYTES], "{}", fixture.name);
        assert_eq!(header.log_bytes(), bytes.len() as u64);
        assert!(PplHeader::parse(&bytes, !signature).is_err());
        let mut parity = &bytes[ppl::HEADER_BYTES..];
        for entry in &header.entries {
            let (own, rest) = parity.split_at(entry.partial_parity_bytes as usize);
            assert!(entry.matches(own), "{}", fixture.name);
            assert_eq!(Role::Slot(entry.parity_disk as u16), superblock.role());
            parity = rest;
            entries += 1;
        }
    }
    assert!(entries > 0);
}

#[test]
fn bad_blocks_are_those_that_mdadm_lists() {
    let fixture = fixture("1.2-bad-blocks.m0");
    let superblock = fixture.superblock_1();
    let bytes = fixture.bytes("bblog").unwrap();
    let ranges = bad_blocks::parse(&bytes, superblock.bblog_shift).unwrap();
    let shown: Vec<_> =
        ranges.iter().map(|r| format!("{:20} for {} sectors", r.start_sector, r.length_sectors)).collect();
    assert_eq!(shown, fixture.lines("examine_bad_blocks")[1..]);
    assert_eq!(
        bad_blocks::to_bytes(&ranges, superblock.bblog_shift, superblock.bblog_size_sectors).unwrap(),
        bytes
    );
}

#[test]
fn a_journal_and_its_array_are_told_by_their_superblocks() {
    let superblock = |name: &str| fixture(name).superblock_1();
    let (member, journal) = (superblock("1.2-journal.m0"), superblock("1.2-journal.m3"));
    assert!(member.has_journal() && journal.has_journal() && !superblock("1.2-raid5.m0").has_journal());
    assert_eq!((member.role(), journal.role()), (Role::Slot(0), Role::Journal));
    assert_eq!((member.journal_tail_sectors(), journal.journal_tail_sectors()), (None, Some(8)));
    let mut mirror = superblock("1.2-write-mostly.m1");
    mirror.features |= Features::JOURNAL;
    let refused = Superblock1::parse(&mirror.to_bytes(), 8).unwrap_err().to_string();
    assert!(refused.contains("only RAID-4, 5 and 6 have a write journal"), "{refused}");
}

/// Linux: `super_1_load` answers EINVAL.
#[test]
fn the_feature_of_raid_0_is_refused_of_other_levels() {
    let mut member = fixture("1.2-raid5.m0").superblock_1();
    member.features |= Features::RAID0_LAYOUT;
    let refused = Superblock1::parse(&member.to_bytes(), 8).unwrap_err().to_string();
    assert!(refused.contains("only RAID-0 has the feature RAID-0 layout"), "{refused}");
}

/// How many blocks of data and parity a journal lists, and rows as flushed.
fn followed(name: &str) -> [usize; 3] {
    let fixture = fixture(name);
    let superblock = fixture.superblock_1();
    let (seed, log) = (Seed::of(&superblock.set_uuid), fixture.bytes("journal").unwrap());
    let mut position = fixture.sector("journal") - superblock.data_offset_sectors;
    let (mut rest, mut before, mut counts) = (&log[..], None, [0; 3]);
    while !rest.is_empty() {
        let meta = MetaBlock::parse(rest, seed).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(meta.to_bytes(seed), rest[..BLOCK_BYTES], "{name}");
        assert_eq!(meta.position_sectors, position);
        assert!(before.is_none_or(|before: u64| meta.sequence == before + 1));
        before = Some(meta.sequence);
        let mut blocks = rest[BLOCK_BYTES..].chunks_exact(BLOCK_BYTES);
        for payload in &meta.payloads {
            let (count, checksums) = match payload {
                Payload::Data { checksums, .. } => (&mut counts[0], &checksums[..]),
                Payload::Parity { checksums, .. } => (&mut counts[1], &checksums[..]),
                Payload::Flush { row_sectors } => {
                    counts[2] += row_sectors.len();
                    continue;
                }
            };
            *count += checksums.len();
            for (checksum, block) in checksums.iter().zip(&mut blocks) {
                assert_eq!(seed.checksum(block), *checksum, "{name}");
            }
        }
        position += meta.log_sectors();
        rest = &rest[meta.log_sectors() as usize * 512..];
    }
    counts
}

#[test]
fn logs_of_journals_are_read_block_by_block() {
    // In write-back mode data come first, the parity of each row follows, and one row is told to be on the members.
    assert_eq!(followed("1.2-journal-written-raid5.m3"), [5, 5, 0]);
    assert_eq!(followed("1.2-journal-written-raid6.m4"), [5, 8, 1]);
}

#[test]
fn a_superblock_found_elsewhere_is_refused() {
    let fixture = fixture("1.2-raid5.m0");
    let error = Superblock1::parse(&fixture.bytes("sb").unwrap(), 0).unwrap_err().to_string();
    assert_eq!(error, "version-1 superblock: super_offset is 8; this superblock was found at sector 0");
}

#[test]
fn layouts_and_roles_are_those_of_the_commands() {
    let superblock = |name: &str| fixture(name).superblock_1();
    let layout = |level, name| Some(Layout::parse(level, name).unwrap());
    assert_eq!(superblock("1.2-raid10-o2.m4").layout(), layout(Level::Raid10, "o2"));
    assert_eq!(superblock("1.2-raid6-ddf-N-continue.m2").layout(), layout(Level::Raid6, "ddf-N-continue"));
    assert_eq!(superblock("1.2-raid0-unequal-original.m0").layout(), layout(Level::Raid0, "original"));
    assert_eq!(superblock("1.2-raid0.m0").layout(), None);
    assert_eq!(superblock("1.2-spare.m2").role(), Role::Spare);
    assert_eq!(superblock("1.2-degraded.m2").role(), Role::Slot(2));
    let write_mostly = DeviceFlags { is_write_mostly: true, is_failfast: false };
    assert_eq!(superblock("1.2-write-mostly.m1").device_flags(), write_mostly);
    let reshape = superblock("1.2-reshaping.m0").reshape().unwrap();
    assert_eq!((reshape.delta_disks, reshape.position_sectors > 0), (1, true));
    assert!(
        superblock("1.2-recovering.m2").recovered_sectors().is_some_and(|s| s != superblock_1::MAX_SECTOR)
    );
}

#[test]
fn a_big_endian_superblock_reads_the_same_and_is_written_little_endian() {
    for fixture in fixtures().iter().filter(|f| f.metadata == "0.90") {
        let little = Superblock0::parse(&fixture.bytes("sb").unwrap()).unwrap();
        let big = Superblock0::parse(&common::big_endian(&little)).unwrap();
        assert_eq!(big.to_bytes(), little.to_bytes(), "{}", fixture.name);
        assert_eq!(big.events, little.events);
        assert_eq!(big.byte_order, superblock_0::ByteOrder::Big);
    }
}

#[test]
fn lines_that_are_fields_are_labelled() {
    let fixture = &fixtures()[0];
    let Superblock::V0(superblock) = fixture.superblock() else { panic!("the first fixture is of 0.90") };
    let lines = examine::superblock_0(&superblock, &Context::default());
    assert_eq!(lines[0], Line::Field("Magic", "a92b4efc".to_owned()));
}
