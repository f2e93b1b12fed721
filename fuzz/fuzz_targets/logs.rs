//! Bitmaps, bad-block logs and PPL headers of any bytes; the first byte chooses which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stripewise_format::bad_blocks;
use stripewise_format::bitmap::{BitmapSuperblock, Bits, SUPERBLOCK_BYTES};
use stripewise_format::ppl::{PplError, PplHeader};

fuzz_target!(|input: &[u8]| {
    let Some((choice, block)) = input.split_first() else { return };
    match choice % 3 {
        0 => bitmap(block),
        1 => {
            let _ = bad_blocks::parse(block, *choice);
        }
        _ => ppl(block.to_vec()),
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
