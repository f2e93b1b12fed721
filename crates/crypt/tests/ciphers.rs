//! The sector ciphers beside the crates `xts-mode` and `cbc`.

use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeEncrypt, BlockSizeUser, InnerIvInit, KeyInit,
};
use aes::{Aes128, Aes256, Block};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use stripewise_crypt::cipher::{CipherError, SectorCipher};
use stripewise_format::luks::Encryption;
use xts_mode::{Xts128, get_tweak_default};

fn xts<C>(key: &[u8], sector_bytes: usize, first: u64, data: &mut [u8])
where
    C: KeyInit + BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let (data_key, tweak_key) = key.split_at(key.len() / 2);
    let xts = Xts128::new(C::new_from_slice(data_key).unwrap(), C::new_from_slice(tweak_key).unwrap());
    for (index, sector) in data.chunks_mut(sector_bytes).enumerate() {
        let number = u128::from(first) + (index * sector_bytes / 512) as u128;
        xts.encrypt_sector(sector, get_tweak_default(number));
    }
}

fn cbc_essiv<C>(key: &[u8], sector_bytes: usize, first: u64, data: &mut [u8])
where
    C: KeyInit + BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    let cipher = C::new_from_slice(key).unwrap();
    let salt = Aes256::new_from_slice(&Sha256::digest(key)).unwrap();
    for (index, sector) in data.chunks_mut(sector_bytes).enumerate() {
        let mut vector = Block::default();
        vector[..8].copy_from_slice(&(first + (index * sector_bytes / 512) as u64).to_le_bytes());
        salt.encrypt_block(&mut vector);
        let (blocks, _) = Block::slice_as_chunks_mut(sector);
        cbc::Encryptor::inner_iv_init(&cipher, &vector).encrypt_blocks(blocks);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_run_of_sectors_is_what_the_peer_makes_of_each_block(
        which in 0_usize..4, size in 0_u32..4, sectors in 1_usize..150, first in 0_u64..1 << 40, offset in any::<u32>(),
        seed in any::<u8>(),
    ) {
        let sector_bytes = 512_usize << size;
        let encryption = Encryption::ALL[which / 2];
        let key: Vec<u8> = (0..encryption.key_bytes()[which % 2]).map(|i| i as u8 ^ seed).collect();
        let plain: Vec<u8> = (0..sectors * sector_bytes).map(|i| (i * 31 + (i >> 8)) as u8 ^ seed).collect();
        let first = first << size;
        let cipher = SectorCipher::new(encryption, &key, sector_bytes as u32, u64::from(offset)).unwrap();
        let mut expected = plain.clone();
        let number = first + u64::from(offset);
        match which {
            0 => xts::<Aes128>(&key, sector_bytes, number, &mut expected),
            1 => xts::<Aes256>(&key, sector_bytes, number, &mut expected),
            2 => cbc_essiv::<Aes128>(&key, sector_bytes, number, &mut expected),
            _ => cbc_essiv::<Aes256>(&key, sector_bytes, number, &mut expected),
        }
        let mut target = vec![0; plain.len()];
        cipher.encrypt(first, &plain, &mut target);
        prop_assert!(target == expected, "source to target");
        let mut in_place = plain.clone();
        cipher.encrypt_in_place(first, &mut in_place);
        prop_assert!(in_place == expected, "in place");
        cipher.decrypt(first, &expected, &mut target);
        prop_assert!(target == plain, "back, source to target");
        cipher.decrypt_in_place(first, &mut in_place);
        prop_assert!(in_place == plain, "back, in place");
    }
}

#[test]
fn keys_and_sectors_that_are_none_are_refused() {
    let new = |encryption, key: &[u8], sector| SectorCipher::new(encryption, key, sector, 0).unwrap_err();
    for (encryption, length) in [(Encryption::AesXtsPlain64, 48), (Encryption::AesCbcEssivSha256, 24)] {
        let key: Vec<u8> = (0..length).collect();
        let found_bytes = key.len();
        assert_eq!(new(encryption, &key, 512), CipherError::KeyBytes { encryption, found_bytes });
        assert_eq!(new(encryption, &[], 512), CipherError::KeyBytes { encryption, found_bytes: 0 });
    }
    assert_eq!(new(Encryption::AesXtsPlain64, &[7; 64], 512), CipherError::EqualHalves);
    assert_eq!(new(Encryption::AesCbcEssivSha256, &[7; 32], 8192), CipherError::SectorBytes(8192));
}
