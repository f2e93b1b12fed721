//! The anti-forensic splitter: a key spread over so many bytes that losing any few of them loses the key.
//! Source: LUKS1 On-Disk Format Specification, "Anti-forensic splitter" (after TKS1).

use crate::hash::Hash;
use crate::key::Secret;

/// Puts the key together again from its stripes.
pub(crate) fn merge(spread: &[u8], key_bytes: usize, hash: Hash) -> Secret {
    let mut sum = Secret::zeroed(key_bytes);
    let mut stripes = spread.chunks_exact(key_bytes).peekable();
    while let Some(stripe) = stripes.next() {
        xor(sum.bytes_mut(), stripe);
        if stripes.peek().is_some() {
            hash.diffuse(sum.bytes_mut());
        }
    }
    sum
}

/// Spreads a key: `spread` holds random stripes, of which the last is replaced.
pub(crate) fn split(key: &[u8], spread: &mut [u8], hash: Hash) {
    let (random, last) = spread.split_at_mut(spread.len() - key.len());
    let mut sum = Secret::zeroed(key.len());
    for stripe in random.chunks_exact(key.len()) {
        xor(sum.bytes_mut(), stripe);
        hash.diffuse(sum.bytes_mut());
    }
    last.copy_from_slice(key);
    xor(last, sum.bytes());
}

fn xor(target: &mut [u8], with: &[u8]) {
    for (target, with) in target.iter_mut().zip(with) {
        *target ^= with;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_being_spread_and_a_flipped_bit_loses_it() {
        for hash in [Hash::Sha1, Hash::Sha256, Hash::Sha512] {
            for key_bytes in [16, 32, 64] {
                let key: Vec<u8> = (0..key_bytes).map(|i| i as u8 ^ 0x5a).collect();
                let mut spread: Vec<u8> = (0..key_bytes * 50).map(|i| (i * 7) as u8).collect();
                split(&key, &mut spread, hash);
                assert_eq!(merge(&spread, key_bytes, hash).bytes(), key);
                spread[3] ^= 1;
                assert_ne!(merge(&spread, key_bytes, hash).bytes(), key);
            }
        }
    }
}
