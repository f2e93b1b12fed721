//! The internal write-intent bitmap: a superblock of 256 bytes (`bitmap_super_t`), then a bit for each chunk of the
//! sync range, least significant first.

mod bits;

use std::fmt;

use crate::bytes::{array_at, put, u32_at, u64_at};
use crate::error::{FieldError, require, structure_error};
use crate::uuid::Uuid;
pub use bits::Bits;

/// `BITMAP_MAGIC`: "bitm".
pub const MAGIC: u32 = 0x6d74_6962;
/// Bytes before the bits.
pub const SUPERBLOCK_BYTES: usize = 256;

const CHUNK_BYTES_MIN: u32 = 512;
/// The kernel refuses more (`COUNTER_MAX`).
const WRITE_BEHIND_MAX: u32 = (1 << 14) - 1;
const PAD: usize = 136;

structure_error! {
    /// Why a bitmap is refused.
    BitmapError, "bitmap",
    /// Version 5: one bitmap for each node of a cluster.
    Clustered => "version is 5 (clustered), which is not supported; 3 and 4 are",
    /// Version 6: the lockless bitmap of newer kernels.
    Lockless => "version is 6 (lockless), which is not supported; 3 and 4 are",
    /// Fewer bits than the superblock says there are.
    BitsCutOff { found: u64, right: u64 } => "there are bytes for {found} bits; its chunks are {right}"
}

/// Which bitmap it is (`bitmap_super_t.version`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitmapVersion {
    /// 3: bits in the writer's byte order; on little-endian machines the same as 4.
    HostEndian = 3,
    /// 4: what mdadm makes.
    LittleEndian = 4,
}

/// The bitmap's superblock. Offsets in brackets are bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapSuperblock {
    /// `version` \[4\].
    pub version: BitmapVersion,
    /// `uuid` \[8\]: the array's, as its bytes lie in memory (for 0.90, [`Uuid::with_words_reversed`]).
    pub uuid: Uuid,
    /// `events` \[24\]: the array's events when the bitmap was written.
    pub events: u64,
    /// `events_cleared` \[32\]: the array's events when bits were last cleared.
    pub events_cleared: u64,
    /// `sync_size` \[40\]: sectors that the bits stand for.
    pub sync_size_sectors: u64,
    /// `state` \[48\]: flags.
    pub state: u32,
    /// `chunksize` \[52\]: bytes that a bit stands for.
    pub chunk_bytes: u32,
    /// `daemon_sleep` \[56\]: seconds between clearing bits.
    pub daemon_sleep_seconds: u32,
    /// `write_behind` \[60\]: outstanding writes to write-mostly members; 0 is none.
    pub write_behind: u32,
    /// `sectors_reserved` \[64\]: sectors kept for the bitmap, 0 if not said.
    pub sectors_reserved: u32,
    /// `nodes` \[68\] and `cluster_name` \[72\], of no meaning in these versions, and the padding up to 256.
    rest: [u8; SUPERBLOCK_BYTES - 68],
}

impl BitmapSuperblock {
    /// `state`: the bitmap is out of date (`BITMAP_STALE`).
    pub const STATE_STALE: u32 = 1 << 1;
    /// `state`: writing the bitmap failed (`BITMAP_WRITE_ERROR`).
    pub const STATE_WRITE_ERROR: u32 = 1 << 2;

    /// A bitmap of version 4 as mdadm makes it.
    pub fn new(uuid: Uuid, sync_size_sectors: u64, chunk_bytes: u32) -> Self {
        Self {
            version: BitmapVersion::LittleEndian,
            uuid,
            events: 0,
            events_cleared: 0,
            sync_size_sectors,
            state: 0,
            chunk_bytes,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            sectors_reserved: 0,
            rest: [0; SUPERBLOCK_BYTES - 68],
        }
    }

    /// Reads the superblock at the start of `block`.
    pub fn parse(block: &[u8]) -> Result<Self, BitmapError> {
        let Some(block) = block.get(..SUPERBLOCK_BYTES) else {
            return Err(BitmapError::Truncated { found_bytes: block.len(), needed_bytes: SUPERBLOCK_BYTES });
        };
        let magic = u32_at(block, 0);
        if magic != MAGIC {
            return Err(BitmapError::Magic { found: magic, right: MAGIC });
        }
        let superblock = Self {
            version: version(u32_at(block, 4))?,
            uuid: Uuid(array_at(block, 8)),
            events: u64_at(block, 24),
            events_cleared: u64_at(block, 32),
            sync_size_sectors: u64_at(block, 40),
            state: u32_at(block, 48),
            chunk_bytes: u32_at(block, 52),
            daemon_sleep_seconds: u32_at(block, 56),
            write_behind: u32_at(block, 60),
            sectors_reserved: u32_at(block, 64),
            rest: array_at(block, 68),
        };
        superblock.check(&block[PAD..])?;
        Ok(superblock)
    }

    fn check(&self, padding: &[u8]) -> Result<(), FieldError> {
        let chunk = self.chunk_bytes;
        require(chunk >= CHUNK_BYTES_MIN && chunk.is_power_of_two(), "chunksize", chunk, || {
            format!("it is at least {CHUNK_BYTES_MIN} bytes, a power of two")
        })?;
        let sleep = self.daemon_sleep_seconds;
        require((1..=i32::MAX as u32).contains(&sleep), "daemon_sleep", sleep, || {
            "it is at least 1 second".to_owned()
        })?;
        let behind = self.write_behind;
        require(behind <= WRITE_BEHIND_MAX, "write_behind", behind, || {
            format!("it is at most {WRITE_BEHIND_MAX}")
        })?;
        require(self.sync_size_sectors > 0, "sync_size", 0, || "it is at least 1 sector".to_owned())?;
        require(padding.iter().all(|b| *b == 0), "pad", "not zero", || {
            "it is zero in every known format".to_owned()
        })
    }

    /// The 256 bytes to write.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut block = vec![0; SUPERBLOCK_BYTES];
        put(&mut block, 0, MAGIC.to_le_bytes());
        put(&mut block, 4, (self.version as u32).to_le_bytes());
        put(&mut block, 8, self.uuid.0);
        put(&mut block, 24, self.events.to_le_bytes());
        put(&mut block, 32, self.events_cleared.to_le_bytes());
        put(&mut block, 40, self.sync_size_sectors.to_le_bytes());
        put(&mut block, 48, self.state.to_le_bytes());
        put(&mut block, 52, self.chunk_bytes.to_le_bytes());
        put(&mut block, 56, self.daemon_sleep_seconds.to_le_bytes());
        put(&mut block, 60, self.write_behind.to_le_bytes());
        put(&mut block, 64, self.sectors_reserved.to_le_bytes());
        put(&mut block, 68, self.rest);
        block
    }

    /// Whether it is said to be out of date: bits may be missing from it.
    pub const fn is_stale(&self) -> bool {
        self.state & Self::STATE_STALE != 0
    }

    /// How many chunks, and so bits, the sync range has.
    pub const fn bits(&self) -> u64 {
        bits(self.sync_size_sectors, self.chunk_bytes)
    }

    /// Bytes of superblock and bits, rounded up to 4 KiB as mdadm writes them.
    pub const fn area_bytes(&self) -> u64 {
        area_bytes(self.sync_size_sectors, self.chunk_bytes)
    }
}

/// Bits of a bitmap over so many sectors.
pub const fn bits(sync_size_sectors: u64, chunk_bytes: u32) -> u64 {
    sync_size_sectors.div_ceil(chunk_bytes as u64 / 512)
}

/// Bytes of so many bits with their superblock, whole sectors: what is written of a bitmap.
pub const fn written_bytes(bits: u64) -> u64 {
    (bits.div_ceil(8) + SUPERBLOCK_BYTES as u64).next_multiple_of(512)
}

/// Bytes of such a bitmap with its superblock, rounded up to 4 KiB.
pub const fn area_bytes(sync_size_sectors: u64, chunk_bytes: u32) -> u64 {
    (bits(sync_size_sectors, chunk_bytes).div_ceil(8) + SUPERBLOCK_BYTES as u64).next_multiple_of(4096)
}

fn version(number: u32) -> Result<BitmapVersion, BitmapError> {
    match number {
        3 => Ok(BitmapVersion::HostEndian),
        4 => Ok(BitmapVersion::LittleEndian),
        5 => Err(BitmapError::Clustered),
        6 => Err(BitmapError::Lockless),
        _ => Err(FieldError::new("version", number, "it is 3 or 4").into()),
    }
}

impl fmt::Display for BitmapVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", *self as u32)
    }
}
