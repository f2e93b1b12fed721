//! Superblocks of any bytes: read, described, placed on devices, written and read again.
//!
//! The first byte chooses the version; checksums are mended, as a fuzzer does not guess them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stripewise_format::examine::{self, Context};
use stripewise_format::placement::Metadata;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock::SuperblockError;
use stripewise_format::superblock_0::Superblock0Error;
use stripewise_format::superblock_1::Superblock1Error;

fuzz_target!(|input: &[u8]| {
    let Some((choice, block)) = input.split_first() else { return };
    let metadata = Metadata::ALL[usize::from(*choice) % Metadata::ALL.len()];
    let sector = metadata.sector(49_152).expect("a device of 24 MiB has room for each");
    let mut block = block.to_vec();
    let parsed = match Superblock::parse(metadata, &block, sector) {
        Err(SuperblockError::V0(Superblock0Error::Checksum { right, .. })) => {
            let is_little = block[0] == 0xfc;
            let sum = if is_little { right.to_le_bytes() } else { right.to_be_bytes() };
            block[152..156].copy_from_slice(&sum);
            Superblock::parse(metadata, &block, sector)
        }
        Err(SuperblockError::V1(Superblock1Error::Checksum { right, .. })) => {
            block[216..220].copy_from_slice(&right.to_le_bytes());
            Superblock::parse(metadata, &block, sector)
        }
        parsed => parsed,
    };
    let Ok(superblock) = parsed else { return };
    let _ = superblock.check_on_device(49_152);
    let context = Context { device_sectors: 49_152, ..Context::default() };
    match &superblock {
        Superblock::V0(superblock) => examine::superblock_0(superblock, &context),
        Superblock::V1(superblock) => examine::superblock_1(superblock, &context),
    };
    let again = Superblock::parse(metadata, &superblock.to_bytes(), sector).expect("what is written is read");
    assert_eq!(again.to_bytes(), superblock.to_bytes());
});
