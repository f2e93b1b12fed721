//! dm-crypt's sector ciphers.
//!
//! A run of sectors is one call into the block cipher, so that its widest instructions (AES-NI eight blocks at a time,
//! VAES 30 or 64) work across the bounds of sectors. The initial vectors of up to 64 sectors are made in one go. CBC
//! cannot encrypt two blocks of one sector at a time, so it encrypts as many sectors side by side as the instructions
//! take.
//!
//! The block cipher and its choice of instructions are those of the crate `aes`, CBC's decryption that of `cbc`. The
//! other modes are here: `xts-mode` goes block by block, and `cbc` encrypts one block of one sector at a time. The
//! tests compare with both; the benchmark `crypt` measures both.
#![expect(
    clippy::inline_always,
    reason = "outside the caller that may use the instructions they cannot be used"
)]

mod cbc;
mod xts;

use std::fmt;

use aes::cipher::array::{Array, ArraySize};
use aes::cipher::consts::U16;
use aes::cipher::inout::InOutBuf;
use aes::cipher::{BlockCipherDecBackend, BlockCipherEncBackend, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes256, Block};
use sha2::{Digest, Sha256};
use stripewise_format::luks::Encryption;
use zeroize::Zeroizing;

use cbc::Cbc;
use xts::Xts;

/// dm-crypt's unit of sector numbers, whatever the size of the encrypted sectors.
pub const SECTOR_BYTES: usize = 512;

const BLOCK_BYTES: usize = 16;
/// How many sectors' initial vectors are made at once: as many blocks as the widest instructions take.
const SECTORS_AT_ONCE: usize = 64;

/// Why there is no cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherError {
    /// The cipher has no keys of this length.
    KeyBytes {
        /// The cipher.
        encryption: Encryption,
        /// The key's length.
        found_bytes: usize,
    },
    /// dm-crypt has no sectors of this size.
    SectorBytes(u32),
    /// XTS with two equal keys gives its data away; cryptsetup and the kernel refuse such a key too.
    EqualHalves,
}

impl fmt::Display for CipherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyBytes { encryption, found_bytes } => {
                let [short, long] = encryption.key_bytes();
                write!(f, "a key of {found_bytes} bytes; {encryption} has keys of {short} or {long} bytes")
            }
            Self::SectorBytes(found) => {
                write!(f, "a sector size of {found}; encrypted sectors have 512, 1024, 2048 or 4096 bytes")
            }
            Self::EqualHalves => f.write_str("the two halves of the XTS key are equal; they must differ"),
        }
    }
}

impl std::error::Error for CipherError {}

enum Cipher {
    Xts128(Xts<Aes128>),
    Xts256(Xts<Aes256>),
    Cbc128(Cbc<Aes128>),
    Cbc256(Cbc<Aes256>),
}

/// A cipher with its key, as a dm-crypt mapping has it. Its key schedules are wiped when it is dropped.
pub struct SectorCipher {
    // Boxed: key schedules are moved with the value otherwise, and moves leave copies that nobody wipes.
    cipher: Box<Cipher>,
    encryption: Encryption,
    sector_bytes: u32,
    iv_offset: u64,
}

/// What to do with a run of sectors.
#[derive(Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

impl SectorCipher {
    /// A cipher over sectors of `sector_bytes`. `iv_offset` (in 512-byte sectors) is added to each sector's number, as
    /// dm-crypt's table has it.
    pub fn new(
        encryption: Encryption,
        key: &[u8],
        sector_bytes: u32,
        iv_offset: u64,
    ) -> Result<Self, CipherError> {
        if ![512, 1024, 2048, 4096].contains(&sector_bytes) {
            return Err(CipherError::SectorBytes(sector_bytes));
        }
        let wrong_key = CipherError::KeyBytes { encryption, found_bytes: key.len() };
        let cipher = match encryption {
            Encryption::AesXtsPlain64 => {
                let (data_key, tweak_key) = key.split_at(key.len() / 2);
                if !key.is_empty() && data_key == tweak_key {
                    return Err(CipherError::EqualHalves);
                }
                match key.len() {
                    32 => Cipher::Xts128(Xts::new(aes128(data_key), aes128(tweak_key))),
                    64 => Cipher::Xts256(Xts::new(aes256(data_key), aes256(tweak_key))),
                    _ => return Err(wrong_key),
                }
            }
            Encryption::AesCbcEssivSha256 => {
                let salt = Zeroizing::new(<[u8; 32]>::from(Sha256::digest(key)));
                match key.len() {
                    16 => Cipher::Cbc128(Cbc::new(aes128(key), aes256(&*salt))),
                    32 => Cipher::Cbc256(Cbc::new(aes256(key), aes256(&*salt))),
                    _ => return Err(wrong_key),
                }
            }
        };
        Ok(Self { cipher: Box::new(cipher), encryption, sector_bytes, iv_offset })
    }

    /// The cipher's name.
    pub fn encryption(&self) -> Encryption {
        self.encryption
    }

    /// The size of the encrypted sectors: reads and writes are multiples of it.
    pub fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// Encrypts whole sectors in place. `first_sector` counts 512-byte sectors from the start of the mapping.
    ///
    /// # Panics
    /// If `data` is no whole number of encrypted sectors, or `first_sector` lies inside one.
    pub fn encrypt_in_place(&self, first_sector: u64, data: &mut [u8]) {
        self.run(Direction::Encrypt, first_sector, data.into());
    }

    /// Decrypts whole sectors in place.
    ///
    /// # Panics
    /// If `data` is no whole number of encrypted sectors, or `first_sector` lies inside one.
    pub fn decrypt_in_place(&self, first_sector: u64, data: &mut [u8]) {
        self.run(Direction::Decrypt, first_sector, data.into());
    }

    /// Encrypts whole sectors from `source` to `target`, which is as long. The source is not changed.
    ///
    /// # Panics
    /// If `source` and `target` differ in length or are no whole number of encrypted sectors, or `first_sector` lies inside one.
    pub fn encrypt(&self, first_sector: u64, source: &[u8], target: &mut [u8]) {
        let data = InOutBuf::new(source, target).expect("source and target are of one length");
        self.run(Direction::Encrypt, first_sector, data);
    }

    /// Decrypts whole sectors from `source` to `target`, which is as long.
    ///
    /// # Panics
    /// If `source` and `target` differ in length or are no whole number of encrypted sectors, or `first_sector` lies inside one.
    pub fn decrypt(&self, first_sector: u64, source: &[u8], target: &mut [u8]) {
        let data = InOutBuf::new(source, target).expect("source and target are of one length");
        self.run(Direction::Decrypt, first_sector, data);
    }

    fn run(&self, direction: Direction, first_sector: u64, data: InOutBuf<'_, '_, u8>) {
        let sector_bytes = self.sector_bytes as usize;
        assert!(data.len().is_multiple_of(sector_bytes), "{} bytes are no whole sectors", data.len());
        let sectors_each = (sector_bytes / SECTOR_BYTES) as u64;
        assert!(
            first_sector.is_multiple_of(sectors_each),
            "sector {first_sector} is inside an encrypted sector"
        );
        let (mut blocks, _) = data.into_chunks();
        let mut sector = first_sector.wrapping_add(self.iv_offset);
        let blocks_each = sector_bytes / BLOCK_BYTES;
        while !blocks.is_empty() {
            let count = SECTORS_AT_ONCE.min(blocks.len() / blocks_each);
            let (now, later) = blocks.split_at(count * blocks_each);
            let mut vectors = [Block::default(); SECTORS_AT_ONCE];
            let vectors = &mut vectors[..count];
            for vector in vectors.iter_mut() {
                vector[..8].copy_from_slice(&sector.to_le_bytes());
                sector = sector.wrapping_add(sectors_each);
            }
            let run = Run { blocks: now, vectors, blocks_each };
            match &*self.cipher {
                Cipher::Xts128(cipher) => cipher.run(direction, run),
                Cipher::Xts256(cipher) => cipher.run(direction, run),
                Cipher::Cbc128(cipher) => cipher.run(direction, run),
                Cipher::Cbc256(cipher) => cipher.run(direction, run),
            }
            blocks = later;
        }
    }
}

impl fmt::Debug for SectorCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SectorCipher({}, {} B)", self.encryption, self.sector_bytes)
    }
}

/// Sectors to be done in one call of the block cipher.
struct Run<'a, 'v> {
    blocks: InOutBuf<'a, 'a, Block>,
    /// One for each sector: its number, little-endian, until the mode encrypts it.
    vectors: &'v mut [Block],
    blocks_each: usize,
}

impl Run<'_, '_> {
    /// Encrypts the sectors' numbers: XTS's tweaks, ESSIV's initial vectors.
    fn encrypt_vectors(&mut self, cipher: &impl BlockCipherEncrypt<BlockSize = U16>) {
        cipher.encrypt_blocks(self.vectors);
    }
}

/// One direction of a block cipher's instructions. A closure would do, but the compiler may leave closures outside the
/// function that may use the instructions.
trait Instructions<N: ArraySize> {
    /// Ciphers as many blocks as the instructions take, each by itself.
    fn apply(&self, blocks: &mut Array<Block, N>);
}

struct Encrypting<'b, B>(&'b B);
struct Decrypting<'b, B>(&'b B);

impl<B: BlockCipherEncBackend<BlockSize = U16>> Instructions<B::ParBlocksSize> for Encrypting<'_, B> {
    #[inline(always)]
    fn apply(&self, blocks: &mut Array<Block, B::ParBlocksSize>) {
        self.0.encrypt_par_blocks(blocks.into());
    }
}

impl<B: BlockCipherDecBackend<BlockSize = U16>> Instructions<B::ParBlocksSize> for Decrypting<'_, B> {
    #[inline(always)]
    fn apply(&self, blocks: &mut Array<Block, B::ParBlocksSize>) {
        self.0.decrypt_par_blocks(blocks.into());
    }
}

/// Adds as many blocks as the instructions take. The length is known when it is compiled, so that it becomes whole
/// vector instructions; through 64-bit registers the cipher would wait for every block's halves to reach the cache.
#[inline(always)]
fn xor<N: ArraySize>(target: &mut Array<Block, N>, with: &Array<Block, N>) {
    for (target, with) in target.iter_mut().zip(with) {
        for (target, with) in target.iter_mut().zip(with) {
            *target ^= with;
        }
    }
}

fn aes128(key: &[u8]) -> Aes128 {
    Aes128::new_from_slice(key).expect("16 bytes")
}

fn aes256(key: &[u8]) -> Aes256 {
    Aes256::new_from_slice(key).expect("32 bytes")
}

/// The name of the instructions used for AES on this machine, for benchmarks and reports.
pub fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        let vaes = std::arch::is_x86_feature_detected!("vaes");
        match (std::arch::is_x86_feature_detected!("avx512f"), vaes) {
            (true, true) => return "VAES, 512 bits",
            (false, true) => return "VAES, 256 bits",
            _ => {}
        }
    }
    if aes::hardware_accelerated() { "AES instructions, 128 bits" } else { "no AES instructions" }
}
