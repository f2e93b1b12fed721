//! The log of a write journal device (raid5-cache): meta blocks of 4 KiB, each followed by the blocks of data and parity that
//! it lists, in a ring over the device's data. `struct r5l_meta_block`, `struct r5l_payload_data_parity`,
//! `struct r5l_payload_flush`; little-endian, sums are CRC-32C.

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::error::{FieldError, require, structure_error};
use crate::uuid::Uuid;

/// What the log is written in, whatever the device's own blocks are (`BLOCK_SECTORS` of raid5-cache.c).
pub const BLOCK_BYTES: usize = 4096;
/// The same in sectors.
pub const BLOCK_SECTORS: u64 = 8;
/// `R5LOG_MAGIC`.
pub const MAGIC: u32 = 0x6433_c509;
/// `R5LOG_VERSION`.
pub const VERSION: u8 = 1;
/// What Linux adds to the sequence number of a log that begins anew (`r5l_recovery_log`), so that nothing of the old log
/// that lies further on is taken for its continuation.
pub const SEQUENCE_GAP: u64 = 10_000;

const HEAD_BYTES: usize = 32;
const CHECKSUM: usize = 4;
const DATA: u16 = 0;
const PARITY: u16 = 1;
const FLUSH: u16 = 2;
const BLOCKS_HEAD_BYTES: usize = 16;
const FLUSH_HEAD_BYTES: usize = 8;

structure_error! {
    /// Why a meta block is refused. A kernel that finds one so takes the log to end before it.
    MetaBlockError, "journal's meta block",
    /// The checksum is not that of the bytes.
    Checksum { found: u32, right: u32 } => "checksum is {found:08x}; the bytes of this array's journal have {right:08x}"
}

/// What the checksums of an array's journal begin with: its UUID (`r5l_log.uuid_checksum`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u32);

impl Seed {
    /// That of an array.
    pub fn of(set_uuid: &Uuid) -> Self {
        Self(crc32c::crc32c(&set_uuid.0))
    }

    /// The checksum of a block. The kernel's `crc32c_le` does not invert its result, on which it goes on.
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        !crc32c::crc32c_append(self.0, bytes)
    }
}

/// Makes an array's checksums of blocks whose CRC-32C is known: both are linear, and differ by what they begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSums(u32);

impl BlockSums {
    /// Those of an array.
    pub fn of(seed: Seed) -> Self {
        let zeroes = [0; BLOCK_BYTES];
        Self(seed.checksum(&zeroes) ^ crc32c::crc32c(&zeroes))
    }

    /// The checksum of the block of 4 KiB that has this CRC-32C.
    pub const fn checksum(self, crc32c: u32) -> u32 {
        self.0 ^ crc32c
    }
}

/// What a meta block lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// `R5LOG_PAYLOAD_DATA`: blocks of the array's data, which follow in the log.
    Data {
        /// `location`: the array's sector.
        array_sector: u64,
        /// `checksum`: of each block.
        checksums: Vec<u32>,
    },
    /// `R5LOG_PAYLOAD_PARITY`: a row's parity, P and then Q, which follow in the log.
    Parity {
        /// `location`: the sector of the row within the members' data.
        row_sector: u64,
        /// `checksum`: of each block.
        checksums: Vec<u32>,
    },
    /// `R5LOG_PAYLOAD_FLUSH`: what the log has of these rows so far is on the members.
    Flush {
        /// `flush_stripes`: the rows' sectors within the members' data.
        row_sectors: Vec<u64>,
    },
}

impl Payload {
    /// Blocks that follow in the log.
    pub fn blocks(&self) -> usize {
        match self {
            Self::Data { checksums, .. } | Self::Parity { checksums, .. } => checksums.len(),
            Self::Flush { .. } => 0,
        }
    }

    /// Bytes of the meta block that it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Data { checksums, .. } | Self::Parity { checksums, .. } => {
                BLOCKS_HEAD_BYTES + 4 * checksums.len()
            }
            Self::Flush { row_sectors } => FLUSH_HEAD_BYTES + 8 * row_sectors.len(),
        }
    }

    fn write(&self, place: &mut [u8]) {
        let (kind, location, checksums) = match self {
            Self::Data { array_sector, checksums } => (DATA, array_sector, checksums),
            Self::Parity { row_sector, checksums } => (PARITY, row_sector, checksums),
            Self::Flush { row_sectors } => {
                put(place, 0, FLUSH.to_le_bytes());
                put(place, 4, (8 * row_sectors.len() as u32).to_le_bytes());
                for (number, sector) in row_sectors.iter().enumerate() {
                    put(place, FLUSH_HEAD_BYTES + 8 * number, sector.to_le_bytes());
                }
                return;
            }
        };
        put(place, 0, kind.to_le_bytes());
        put(place, 4, (checksums.len() as u32 * BLOCK_SECTORS as u32).to_le_bytes());
        put(place, 8, location.to_le_bytes());
        for (number, checksum) in checksums.iter().enumerate() {
            put(place, BLOCKS_HEAD_BYTES + 4 * number, checksum.to_le_bytes());
        }
    }
}

/// A meta block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaBlock {
    /// `seq`: one more than that of the block before.
    pub sequence: u64,
    /// `position`: where it lies, in sectors from the start of the device's data.
    pub position_sectors: u64,
    /// `payloads`, `meta_size` bytes of them with the head.
    pub payloads: Vec<Payload>,
}

impl MetaBlock {
    /// Reads the meta block at the start of `block`. Whether it is the one that must come next is for the caller to see.
    ///
    /// # Errors
    /// It is none, or of another array.
    pub fn parse(block: &[u8], seed: Seed) -> Result<Self, MetaBlockError> {
        let Some(block) = block.get(..BLOCK_BYTES) else {
            return Err(MetaBlockError::Truncated { found_bytes: block.len(), needed_bytes: BLOCK_BYTES });
        };
        let found = u32_at(block, 0);
        if found != MAGIC {
            return Err(MetaBlockError::Magic { found, right: MAGIC });
        }
        require(block[8] == VERSION, "version", block[8], || format!("{VERSION} is the only one there is"))?;
        let (found, right) = (u32_at(block, CHECKSUM), sum(block, seed));
        if found != right {
            return Err(MetaBlockError::Checksum { found, right });
        }
        let size = u32_at(block, 12) as usize;
        require((HEAD_BYTES..=BLOCK_BYTES).contains(&size), "meta_size", size, || {
            format!("it is {HEAD_BYTES} to {BLOCK_BYTES} bytes")
        })?;
        let mut payloads = Vec::new();
        let mut rest = &block[HEAD_BYTES..size];
        while !rest.is_empty() {
            let payload = payload(rest)?;
            rest = &rest[payload.bytes()..];
            payloads.push(payload);
        }
        Ok(Self { sequence: u64_at(block, 16), position_sectors: u64_at(block, 24), payloads })
    }

    /// The 4096 bytes to write, checksum computed.
    ///
    /// # Panics
    /// If the payloads do not fit.
    pub fn to_bytes(&self, seed: Seed) -> Vec<u8> {
        assert!(self.size() <= BLOCK_BYTES, "{} bytes do not fit a journal's meta block", self.size());
        let mut block = vec![0; BLOCK_BYTES];
        put(&mut block, 0, MAGIC.to_le_bytes());
        block[8] = VERSION;
        put(&mut block, 12, (self.size() as u32).to_le_bytes());
        put(&mut block, 16, self.sequence.to_le_bytes());
        put(&mut block, 24, self.position_sectors.to_le_bytes());
        let mut at = HEAD_BYTES;
        for payload in &self.payloads {
            payload.write(&mut block[at..]);
            at += payload.bytes();
        }
        let sum = sum(&block, seed);
        put(&mut block, CHECKSUM, sum.to_le_bytes());
        block
    }

    /// Sectors of the log that the block and what follows it take.
    pub fn log_sectors(&self) -> u64 {
        let blocks: usize = self.payloads.iter().map(Payload::blocks).sum();
        BLOCK_SECTORS * (1 + blocks as u64)
    }

    /// Its bytes, `meta_size`: [`BLOCK_BYTES`] at most.
    pub fn size(&self) -> usize {
        HEAD_BYTES + self.payloads.iter().map(Payload::bytes).sum::<usize>()
    }
}

/// The payload that `bytes` begin with.
fn payload(bytes: &[u8]) -> Result<Payload, FieldError> {
    let left = bytes.len();
    let cut_off = |needed: usize| {
        require(needed <= left, "meta_size", format_args!("{left} bytes past a payload's start"), || {
            format!("the payload has {needed} bytes")
        })
    };
    cut_off(FLUSH_HEAD_BYTES)?;
    let (kind, size) = (u16_at(bytes, 0), u32_at(bytes, 4) as usize);
    if kind == FLUSH {
        require(size.is_multiple_of(8), "size", size, || "a flush lists sectors of 8 bytes each".to_owned())?;
        cut_off(FLUSH_HEAD_BYTES.saturating_add(size))?;
        let listed = bytes[FLUSH_HEAD_BYTES..FLUSH_HEAD_BYTES + size].chunks_exact(8);
        return Ok(Payload::Flush { row_sectors: listed.map(|sector| u64_at(sector, 0)).collect() });
    }
    require(matches!(kind, DATA | PARITY), "type", kind, || {
        format!("it is {DATA} (data), {PARITY} (parity) or {FLUSH} (flush)")
    })?;
    let block_sectors = BLOCK_SECTORS as usize;
    require(size > 0 && size.is_multiple_of(block_sectors), "size", size, || {
        format!("it is whole blocks of {block_sectors} sectors, one or more")
    })?;
    let sums_bytes = 4 * (size / block_sectors);
    cut_off(BLOCKS_HEAD_BYTES + sums_bytes)?;
    let sums = bytes[BLOCKS_HEAD_BYTES..BLOCKS_HEAD_BYTES + sums_bytes].chunks_exact(4);
    let checksums = sums.map(|sum| u32_at(sum, 0)).collect();
    let location = u64_at(bytes, 8);
    Ok(match kind {
        DATA => Payload::Data { array_sector: location, checksums },
        _ => Payload::Parity { row_sector: location, checksums },
    })
}

/// The checksum of a meta block with its own taken as zero.
fn sum(block: &[u8], seed: Seed) -> u32 {
    let before = crc32c::crc32c_append(seed.0, &block[..CHECKSUM]);
    let blanked = crc32c::crc32c_append(before, &[0; 4]);
    !crc32c::crc32c_append(blanked, &block[CHECKSUM + 4..BLOCK_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: Uuid = Uuid([9; 16]);

    fn block() -> MetaBlock {
        MetaBlock {
            sequence: 41,
            position_sectors: 64,
            payloads: vec![
                Payload::Flush { row_sectors: vec![8, 1 << 40] },
                Payload::Data { array_sector: 24, checksums: vec![1] },
                Payload::Parity { row_sector: 8, checksums: vec![2, 3] },
            ],
        }
    }

    fn mended(mut bytes: Vec<u8>) -> Vec<u8> {
        let right = sum(&bytes, Seed::of(&UUID));
        put(&mut bytes, CHECKSUM, right.to_le_bytes());
        bytes
    }

    #[test]
    fn a_block_is_read_as_it_was_written() {
        let seed = Seed::of(&UUID);
        assert_eq!(MetaBlock::parse(&block().to_bytes(seed), seed), Ok(block()));
        assert_eq!(block().log_sectors(), 4 * BLOCK_SECTORS);
        let empty = MetaBlock { payloads: Vec::new(), ..block() };
        assert_eq!(MetaBlock::parse(&empty.to_bytes(seed), seed), Ok(empty));
    }

    #[test]
    fn checksums_are_made_of_those_of_any_seed() {
        let seed = Seed::of(&UUID);
        for number in 0..20 {
            let block: Vec<u8> = (0..BLOCK_BYTES).map(|i| (i * i / 7 + number * i) as u8).collect();
            assert_eq!(BlockSums::of(seed).checksum(crc32c::crc32c(&block)), seed.checksum(&block));
        }
    }

    #[test]
    fn a_block_of_another_array_or_with_any_bit_changed_is_refused() {
        let seed = Seed::of(&UUID);
        let bytes = block().to_bytes(seed);
        let other = MetaBlock::parse(&bytes, Seed::of(&Uuid([8; 16])));
        assert!(matches!(other, Err(MetaBlockError::Checksum { .. })), "{other:?}");
        for bit in 0..BLOCK_BYTES * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(MetaBlock::parse(&changed, seed).is_err(), "bit {bit}");
        }
        assert!(matches!(
            MetaBlock::parse(&bytes[..BLOCK_BYTES - 1], seed),
            Err(MetaBlockError::Truncated { .. })
        ));
    }

    #[test]
    fn lengths_that_lead_out_of_the_block_are_refused() {
        let seed = Seed::of(&UUID);
        let with = |at: usize, value: u32| {
            let mut bytes = block().to_bytes(seed);
            put(&mut bytes, at, value.to_le_bytes());
            MetaBlock::parse(&mended(bytes), seed)
        };
        let data = HEAD_BYTES + FLUSH_HEAD_BYTES + 16;
        for (what, at, value) in [
            ("meta_size beyond the block", 12, 4097),
            ("meta_size within the head", 12, 31),
            ("meta_size within a payload", 12, HEAD_BYTES as u32 + 4),
            ("a flush longer than the block", HEAD_BYTES + 4, u32::MAX - 7),
            ("a flush of half a sector's number", HEAD_BYTES + 4, 12),
            ("data longer than the block", data + 4, u32::MAX - 7),
            ("no data", data + 4, 0),
            ("half a block", data + 4, 4),
            ("an unknown type", HEAD_BYTES, 3),
        ] {
            let refused = with(at, value);
            assert!(matches!(refused, Err(MetaBlockError::Field(_))), "{what}: {refused:?}");
        }
    }
}
