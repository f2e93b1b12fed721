//! Bitmaps, bad-block logs, PPL headers and a journal's meta blocks of any bytes; the first byte chooses which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stripewise_format::bad_blocks;
use stripewise_format::bitmap::{BitmapSuperblock, Bits, SUPERBLOCK_BYTES};
use stripewise_format::journal::{MetaBlock, MetaBlockError, Seed};
use stripewise_format::ppl::{PplError, PplHeader};
use stripewise_format::uuid::Uuid;

fuzz_target!(|input: &[u8]| {
    let Some((choice, block)) = input.split_first() else { return };
    match choice % 4 {
        0 => bitmap(block),
        1 => {
            let _ = bad_blocks::parse(block, *choice);
        }
        2 => ppl(block.to_vec()),
        _ => journal(block.to_vec()),
    }
});

fn bitmap(block: &[u8]) {
    let Ok(superblock) = BitmapSuperblock::parse(block) else { return };
    assert_eq!(BitmapSuperblock::parse(&superblock.to_bytes()).as_ref(), Ok(&superblock));
    let Ok(bits) = Bits::from_bytes(&block[SUPERBLOCK_BYTES..], superblock.bits()) else { return };
    let listed: u64 = bits.dirty_ranges().map(|range| range.end - range.start).sum();
    assert_eq!(listed, bits.dirty_count());
}

/// Mends checksum and signature, as a fuzzer does not guess them.
fn ppl(mut block: Vec<u8>) {
    if let Err(PplError::Checksum { right, .. }) = PplHeader::parse(&block, 0) {
        block[532..536].copy_from_slice(&right.to_le_bytes());
    }
    let signature = match PplHeader::parse(&block, 0) {
        Err(PplError::Signature { found, .. }) => found,
        _ => 0,
    };
    let Ok(header) = PplHeader::parse(&block, signature) else { return };
    assert_eq!(header.to_bytes(), block[..4096]);
}

/// Mends the checksum, as a fuzzer does not guess it. Flags and what lies behind the payloads are not kept.
fn journal(mut block: Vec<u8>) {
    let seed = Seed::of(&Uuid([1; 16]));
    if let Err(MetaBlockError::Checksum { right, .. }) = MetaBlock::parse(&block, seed) {
        block[4..8].copy_from_slice(&right.to_le_bytes());
    }
    let Ok(meta) = MetaBlock::parse(&block, seed) else { return };
    assert_eq!(MetaBlock::parse(&meta.to_bytes(seed), seed), Ok(meta));
}
