//! LUKS headers of any bytes; the checksum of LUKS2 is mended, as a fuzzer does not guess it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use stripewise_format::luks::{KEY_BYTES_MAX, Luks, STRIPES};

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let mut start = bytes.to_vec();
    if choice % 2 == 1 {
        // A whole first copy of 16 KiB around the given JSON.
        start = vec![0; 16 << 10];
        start[..6].copy_from_slice(b"LUKS\xba\xbe");
        start[7] = 2;
        start[8..16].copy_from_slice(&(16_u64 << 10).to_be_bytes());
        start[72..78].copy_from_slice(b"sha256");
        let json = &bytes[..bytes.len().min(12 << 10)];
        start[4096..4096 + json.len()].copy_from_slice(json);
        let sum = Sha256::digest(&start);
        start[448..480].copy_from_slice(&sum);
    }
    let Ok(header) = Luks::parse(&start) else { return };
    let _ = (header.payload(), header.digest(), header.uuid());
    for (_, slot) in header.keyslots().expect("what was read is in the common form") {
        assert!(slot.spread_bytes() <= (KEY_BYTES_MAX * STRIPES + 511) as usize);
        let _ = slot.encryption();
    }
});
