//! Damaged bytes: refused or visible in the value, and never a panic.

mod common;

use common::{big_endian, fixture, fixtures};
use stripewise_format::bad_blocks;
use stripewise_format::bitmap::{BitmapError, BitmapSuperblock, Bits, SUPERBLOCK_BYTES};
use stripewise_format::examine::{self, Context};
use stripewise_format::level::{Layout, Level};
use stripewise_format::placement::Metadata;
use stripewise_format::ppl::{self, PplHeader};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_0::Superblock0;
use stripewise_format::superblock_1::{Features, MAX_SECTOR, Role, Superblock1, Superblock1Error};
use stripewise_format::uuid::Uuid;

/// Writes the right checksum into a damaged superblock, so that the fields' own checks are reached.
fn mend(metadata: Metadata, block: &mut [u8]) {
    let (at, words) = match metadata {
        Metadata::V0 => (38 * 4, block.len() / 4),
        Metadata::V1(_) => {
            let max_dev = u32::from_le_bytes(block[220..224].try_into().unwrap()) as usize;
            (216, (256 + max_dev.min(1920) * 2).min(block.len()) / 4)
        }
    };
    block[at..at + 4].fill(0);
    let sum: u64 =
        block.chunks_exact(4).take(words).map(|w| u64::from(u32::from_le_bytes(w.try_into().unwrap()))).sum();
    block[at..at + 4].copy_from_slice(&((sum as u32).wrapping_add((sum >> 32) as u32)).to_le_bytes());
}

/// Does with a superblock all that can be done.
fn use_all(superblock: &Superblock) {
    let bytes = superblock.to_bytes();
    let again = match superblock {
        Superblock::V0(s) => {
            examine::superblock_0(s, &Context::default()).len()
                + usize::from(Superblock0::parse(&bytes).is_ok())
        }
        Superblock::V1(s) => {
            assert_eq!(Superblock1::parse(&bytes, s.super_offset_sectors).as_ref(), Ok(&**s));
            examine::superblock_1(s, &Context::default()).len()
        }
    };
    assert!(again > 0);
    superblock.role();
    superblock.layout();
    superblock.bitmap_sector(8);
    for device_sectors in [0, 24, 1 << 20, u64::MAX] {
        let _ = superblock.check_on_device(device_sectors);
    }
}

/// One bit of each byte, another one in the next fixture.
fn a_bit_of_each_byte(bytes: &[u8], fixture: usize) -> impl Iterator<Item = usize> {
    (0..bytes.len()).map(move |byte| byte * 8 + (byte + fixture) % 8)
}

#[test]
fn a_flipped_bit_in_any_byte_of_a_superblock_is_refused() {
    for (number, fixture) in fixtures().into_iter().enumerate() {
        let bytes = fixture.bytes("sb").unwrap();
        for bit in a_bit_of_each_byte(&bytes, number) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let parsed = Superblock::parse(fixture.metadata(), &damaged, fixture.sector("sb"));
            assert!(parsed.is_err(), "{} bit {bit}", fixture.name);
        }
    }
}

#[test]
fn a_flipped_bit_under_a_mended_checksum_is_refused_or_seen() {
    for (number, fixture) in fixtures().into_iter().enumerate() {
        let bytes = fixture.bytes("sb").unwrap();
        let whole = fixture.superblock();
        let checksum = if fixture.metadata() == Metadata::V0 { 152..156 } else { 216..220 };
        for bit in a_bit_of_each_byte(&bytes, number).filter(|bit| !checksum.contains(&(bit / 8))) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            mend(fixture.metadata(), &mut damaged);
            if let Ok(seen) = Superblock::parse(fixture.metadata(), &damaged, fixture.sector("sb")) {
                assert_ne!(seen, whole, "{} bit {bit}", fixture.name);
                use_all(&seen);
            }
        }
    }
}

#[test]
fn every_length_but_the_whole_is_cut_off() {
    for fixture in fixtures() {
        let metadata = fixture.metadata();
        let bytes = fixture.bytes("sb").unwrap();
        for length in 0..bytes.len() {
            assert!(
                Superblock::parse(metadata, &bytes[..length], fixture.sector("sb")).is_err(),
                "{} {length}",
                fixture.name
            );
        }
        if let Some(bitmap) = fixture.bytes("bitmap") {
            assert!((0..SUPERBLOCK_BYTES).all(|length| BitmapSuperblock::parse(&bitmap[..length]).is_err()));
            let superblock = BitmapSuperblock::parse(&bitmap).unwrap();
            let needed = superblock.bits().div_ceil(8) as usize;
            assert!(
                (0..needed).all(|length| Bits::from_bytes(&bitmap[..length], superblock.bits()).is_err())
            );
        }
        if let Some(log) = fixture.bytes("ppl") {
            let signature = ppl::signature(&fixture.superblock().set_uuid());
            assert!(
                (0..ppl::HEADER_BYTES).all(|length| PplHeader::parse(&log[..length], signature).is_err())
            );
        }
    }
}

#[test]
fn every_flipped_bit_of_a_ppl_header_or_its_parity_is_found() {
    let fixture = fixture("1.2-ppl-written.m1");
    let bytes = fixture.bytes("ppl").unwrap();
    let signature = ppl::signature(&fixture.superblock().set_uuid());
    for bit in 0..ppl::HEADER_BYTES * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(PplHeader::parse(&damaged, signature).is_err(), "bit {bit}");
    }
}

#[test]
fn a_flipped_bit_of_a_bitmaps_superblock_is_refused_or_seen() {
    let bytes = fixture("1.2-dirty.m0").bytes("bitmap").unwrap();
    let whole = BitmapSuperblock::parse(&bytes).unwrap();
    for bit in 0..SUPERBLOCK_BYTES * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(BitmapSuperblock::parse(&damaged).as_ref(), Ok(&whole), "bit {bit}");
    }
}

#[test]
fn bitmaps_of_other_kinds_are_refused_by_name() {
    let mut bytes = fixture("1.2-dirty.m0").bytes("bitmap").unwrap();
    bytes[4] = 5;
    assert_eq!(BitmapSuperblock::parse(&bytes), Err(BitmapError::Clustered));
    bytes[4] = 6;
    let lockless = BitmapSuperblock::parse(&bytes).unwrap_err();
    assert_eq!(lockless.to_string(), "bitmap: version is 6 (lockless), which is not supported; 3 and 4 are");
}

#[test]
fn unlikely_fields_are_refused_with_what_would_be_right() {
    let cases: [(usize, &[u8], &str); 10] = [
        (88, &[0; 4], "chunksize is 0; a raid5 array has a chunk of at least 8 sectors, a power of two"),
        (92, &[0; 4], "raid_disks is 0; a raid5 array has 2 to 1920 slots"),
        (80, &[0xff; 8], "size is 18446744073709551615; this member has 47104 data sectors"),
        (
            128,
            &[0xff; 8],
            "data_offset is 18446744073709551615; with data_size 47104 it ends past the last sector there can be",
        ),
        (
            128,
            &[8, 0, 0, 0, 0, 0, 0, 0],
            "data_offset is 8; data of 47104 sectors there cover the superblock at sector 8",
        ),
        (76, &[77, 0, 0, 0], "layout is 77; no layout of raid5 has this number"),
        (72, &[0xfc, 0xff, 0xff, 0xff], "level is -4 (multipath); it is -1 (linear), 0, 1, 4, 5, 6 or 10"),
        (224, &[1], "pad3 is not zero; it is zero in every known format"),
        (256, &[9, 0], "dev_roles[dev_number] is 9; the array has 3 slots"),
        (256, &[0x01, 0xff], "dev_roles is 0xff01; a role is a slot up to 0xff00, 0xfffd, 0xfffe or 0xffff"),
    ];
    let bytes = fixture("1.2-raid5.m0").bytes("sb").unwrap();
    for (at, value, right) in cases {
        let mut damaged = bytes.clone();
        damaged[at..at + value.len()].copy_from_slice(value);
        mend(Metadata::DEFAULT, &mut damaged);
        let error = Superblock1::parse(&damaged, 8).unwrap_err().to_string();
        assert_eq!(error, format!("version-1 superblock: {right}"));
    }
}

#[test]
fn unknown_and_contradictory_features_are_refused_by_name() {
    let bytes = fixture("1.2-raid5-bitmap.m0").bytes("sb").unwrap();
    let with = |features: u32| {
        let mut damaged = bytes.clone();
        damaged[8..12].copy_from_slice(&features.to_le_bytes());
        mend(Metadata::DEFAULT, &mut damaged);
        Superblock1::parse(&damaged, 8).unwrap_err()
    };
    assert_eq!(with(0x6001), Superblock1Error::UnknownFeatures { bits: 0x6000 & !0x1000 });
    let error = with(0x401).to_string();
    assert_eq!(error, "version-1 superblock: feature_map has bitmap, PPL, of which an array has one at most");
}

#[test]
fn a_bitmap_in_the_data_is_refused() {
    let mut bytes = fixture("1.2-raid5-bitmap.m0").bytes("sb").unwrap();
    bytes[96..100].copy_from_slice(&1_000_000_i32.to_le_bytes());
    mend(Metadata::DEFAULT, &mut bytes);
    let error = Superblock1::parse(&bytes, 8).map(|s| s.check_on_device(49152)).unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "version-1 superblock: bitmap_offset is 1000008; its 1 sectors end within the device's 49152"
    );
    bytes[96..100].copy_from_slice(&4096_i32.to_le_bytes());
    mend(Metadata::DEFAULT, &mut bytes);
    let error = Superblock1::parse(&bytes, 8).unwrap_err().to_string();
    assert!(error.contains("bitmap_offset is 4104; it keeps clear of the data"), "{error}");
    let log: [u8; 4] = bytes[188..192].try_into().unwrap();
    bytes[96..100].copy_from_slice(&log);
    mend(Metadata::DEFAULT, &mut bytes);
    let error = Superblock1::parse(&bytes, 8).unwrap_err().to_string();
    assert!(error.contains("it keeps clear of bblog_offset's area, 8 sectors from"), "{error}");
}

#[test]
fn a_log_within_the_data_is_refused_where_it_may_be_written() {
    // As `mdadm --grow --add` leaves a linear array of version 1.0.
    let grown = |level, features| {
        let mut superblock = Superblock1::new(level, 3, 0, Uuid([5; 16]));
        superblock.layout = Layout::default_of(level).number() as u32;
        superblock.size_sectors = if level == Level::Linear { 0 } else { 18_416 };
        superblock.features = features;
        (superblock.data_size_sectors, superblock.super_offset_sectors) = (18_416, 18_416);
        (superblock.bblog_offset_sectors, superblock.bblog_size_sectors) = (-8, 8);
        (0..3).for_each(|slot| superblock.dev_roles[usize::from(slot)] = Role::Slot(slot));
        Superblock1::parse(&superblock.to_bytes(), 18_416)
    };
    assert!(grown(Level::Linear, Features::default()).is_ok());
    for (level, features) in [(Level::Linear, Features::BAD_BLOCKS), (Level::Raid1, Features::default())] {
        let error = grown(level, features).unwrap_err().to_string();
        assert!(error.contains("bblog_offset is 18408; it keeps clear of the data"), "{level}: {error}");
    }
}

/// A generator of numbers that look random: xorshift64*, whose period is long and whose seed is all there is to it.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn damage(&mut self, bytes: &mut [u8]) {
        const TELLING: [u64; 8] = [0, 1, 0xff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 60, u64::MAX];
        for _ in 0..=self.next() % 4 {
            let at = self.next() as usize % bytes.len();
            let value = if self.next().is_multiple_of(2) {
                self.next()
            } else {
                TELLING[self.next() as usize % TELLING.len()]
            };
            let width = (1 << (self.next() % 4)).min(bytes.len() - at);
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }
}

#[test]
fn hundreds_of_thousands_of_damaged_structures_never_panic() {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let (mut refused, mut read) = (0_u32, 0_u32);
    for fixture in fixtures() {
        let metadata = fixture.metadata();
        for kind in ["sb", "bitmap", "ppl", "bblog"] {
            let Some(bytes) = fixture.bytes(kind) else { continue };
            let is_v0 = metadata == Metadata::V0;
            for _ in 0..if kind == "sb" && is_v0 { 1000 } else { 3000 } {
                let mut damaged = bytes.clone();
                // Fields lie at the front; most damage goes there.
                let reach =
                    if noise.next().is_multiple_of(4) { damaged.len() } else { damaged.len().min(512) };
                noise.damage(&mut damaged[..reach]);
                let ok = match kind {
                    "sb" => {
                        mend(metadata, &mut damaged);
                        let parsed = Superblock::parse(metadata, &damaged, fixture.sector("sb"));
                        parsed.as_ref().map(use_all).is_ok()
                    }
                    "bitmap" => read_bitmap(&damaged),
                    "ppl" => PplHeader::parse(&damaged, noise.next() as u32).is_ok(),
                    _ => bad_blocks::parse(&damaged, (noise.next() % 70) as u8).is_ok(),
                };
                *(if ok { &mut read } else { &mut refused }) += 1;
            }
        }
    }
    assert!(refused > 50_000 && read > 50_000, "{refused} refused, {read} read");
}

fn read_bitmap(bytes: &[u8]) -> bool {
    let Ok(superblock) = BitmapSuperblock::parse(bytes) else { return false };
    assert_eq!(BitmapSuperblock::parse(&superblock.to_bytes()).as_ref(), Ok(&superblock));
    let Ok(bits) = Bits::from_bytes(&bytes[SUPERBLOCK_BYTES..], superblock.bits()) else { return false };
    let dirty: u64 = bits.dirty_ranges().map(|range| range.end - range.start).sum();
    assert_eq!(dirty, bits.dirty_count());
    !examine::bitmap(&superblock, &superblock.uuid, Some(&bits)).is_empty()
}

#[test]
fn damaged_big_endian_superblocks_never_panic() {
    let Superblock::V0(whole) = fixture("0.90-reshaping.m0").superblock() else { panic!("it is of 0.90") };
    let bytes = big_endian(&whole);
    for bit in a_bit_of_each_byte(&bytes, 0) {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock0::parse(&damaged).is_err(), "bit {bit}");
    }
}

/// Linux writes the last sector there is when a recovery has ended, before it calls the member in sync.
#[test]
fn a_recovery_that_has_ended_leaves_a_member_whole_and_one_past_the_data_is_refused() {
    let member = |offset: u64| {
        let mut superblock = fixture("1.2-recovering.m2").superblock_1();
        superblock.recovery_offset_sectors = offset;
        superblock
    };
    let data = member(0).data_size_sectors;
    let device = fixture("1.2-recovering.m2").device_sectors;
    for (offset, is_taken, recovered) in [
        (data, true, Some(data)),
        (data + 1, false, Some(data + 1)),
        (MAX_SECTOR - 1, false, Some(MAX_SECTOR - 1)),
        (MAX_SECTOR, true, None),
    ] {
        let superblock = member(offset);
        assert_eq!(superblock.check_on_device(device).is_ok(), is_taken, "{offset}");
        assert_eq!(superblock.recovered_sectors(), recovered, "{offset}");
    }
}
