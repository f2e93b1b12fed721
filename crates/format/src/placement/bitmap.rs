//! How large a bitmap's chunk is and where the bitmap lies.

use super::{Metadata, PlacementError};
use crate::bitmap::{BitmapSuperblock, SUPERBLOCK_BYTES, area_bytes, bits};
use crate::superblock_1::Minor;

pub(super) const CHUNK_BYTES_MIN: u32 = 4096;
const CHUNK_BYTES_DEFAULT: u64 = 64 << 20;
/// The most that mdadm fills when it chooses the chunk.
const CHOSEN_ROOM_SECTORS: u64 = 256;
/// What follows a 0.90 superblock within its 64 KiB.
const V0_ROOM_BYTES: u64 = 60 << 10;

/// An internal bitmap's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapPlace {
    /// `bitmap_offset`: from the superblock. 0.90 does not record it.
    pub offset_sectors: i32,
    /// Bytes that a bit stands for.
    pub chunk_bytes: u32,
    /// `sync_size`: sectors that the bits stand for.
    pub sync_size_sectors: u64,
}

impl BitmapPlace {
    /// Sectors of the bitmap, whole 4 KiB.
    pub const fn area_sectors(&self) -> u64 {
        area_bytes(self.sync_size_sectors, self.chunk_bytes) / 512
    }

    /// The bytes of a new bitmap, with every bit set: nothing is known to be in sync.
    pub(crate) fn to_bytes(self, head: &BitmapSuperblock, metadata: Metadata) -> Vec<u8> {
        let length = match metadata {
            // All of which mdadm makes bits.
            Metadata::V0 => V0_ROOM_BYTES,
            Metadata::V1(_) => self.area_sectors() * 512,
        };
        let mut bytes = head.to_bytes();
        bytes.resize(length as usize, 0xff);
        bytes
    }
}

/// Sectors that mdadm keeps for a bitmap on a device (or for an array's size) of so many sectors, whether there is one
/// or not (`choose_bm_space`).
pub(super) const fn kept_sectors(size_sectors: u64) -> u64 {
    const GIB: u64 = 2 << 20;
    match size_sectors {
        0..128 => 0,
        size if size - 128 >= 200 * GIB => 256,
        size if size - 8 > 8 * GIB => 128,
        _ => 8,
    }
}

/// Places the bitmap of an array that uses `size_sectors` of each member, with bits for `sync_size_sectors`.
pub(super) fn place(
    metadata: Metadata,
    size_sectors: u64,
    sync_size_sectors: u64,
    chunk_bytes: Option<u32>,
) -> Result<BitmapPlace, PlacementError> {
    let room_bytes = match metadata {
        Metadata::V0 => V0_ROOM_BYTES,
        Metadata::V1(_) => {
            512 * kept_sectors(size_sectors).min(if chunk_bytes.is_none() {
                CHOSEN_ROOM_SECTORS
            } else {
                u64::MAX
            })
        }
    };
    if room_bytes <= 512 {
        return Err(PlacementError::NoRoomForBitmap);
    }
    let least_bytes = least_chunk(room_bytes, sync_size_sectors);
    let chunk = match chunk_bytes {
        Some(chunk_bytes) if u64::from(chunk_bytes) < least_bytes => {
            return Err(PlacementError::BitmapChunkTooSmall { chunk_bytes, least_bytes });
        }
        Some(chunk_bytes) => chunk_bytes,
        None => u32::try_from(least_bytes.max(CHUNK_BYTES_DEFAULT))
            .map_err(|_| PlacementError::NoRoomForBitmap)?,
    };
    let offset_sectors = match metadata {
        Metadata::V0 | Metadata::V1(Minor::Start | Minor::Start4K) => 8,
        Metadata::V1(Minor::End) => -(before_superblock(sync_size_sectors, chunk) + 8),
    };
    Ok(BitmapPlace { offset_sectors, chunk_bytes: chunk, sync_size_sectors })
}

/// The least chunk, doubling from 4 KiB, whose bits fit.
fn least_chunk(room_bytes: u64, sync_size_sectors: u64) -> u64 {
    let bits_max = (room_bytes - SUPERBLOCK_BYTES as u64) * 8;
    let mut chunk = u64::from(CHUNK_BYTES_MIN);
    let mut bits = sync_size_sectors / (chunk / 512) + 1;
    while bits > bits_max {
        chunk *= 2;
        bits = bits.div_ceil(2);
    }
    chunk
}

/// Sectors of a bitmap before a 1.0 superblock and its bad-block log; mdadm reckons with a bit to spare.
fn before_superblock(sync_size_sectors: u64, chunk_bytes: u32) -> i32 {
    let bits = (sync_size_sectors / (u64::from(chunk_bytes) / 512))
        .max(bits(sync_size_sectors, chunk_bytes) - 1)
        + 1;
    let bytes = (bits.div_ceil(8) + SUPERBLOCK_BYTES as u64).next_multiple_of(4096);
    i32::try_from(bytes / 512).unwrap_or(i32::MAX - 8)
}
