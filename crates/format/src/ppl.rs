//! The partial parity log (PPL) of a RAID-5 member: a header of 4 KiB with up to 148 entries, then the partial
//! parity of each. `struct ppl_header`, `struct ppl_header_entry`; little-endian, sums are CRC-32C.

use crate::bytes::{put, u32_at, u64_at};
use crate::error::{FieldError, require, structure_error};
use crate::superblock_1::PplArea;
use crate::uuid::Uuid;

/// `PPL_HEADER_SIZE`.
pub const HEADER_BYTES: usize = 4096;
/// `PPL_HDR_MAX_ENTRIES`.
pub const ENTRIES_MAX: usize = 148;
/// The area that mdadm keeps for logs on a version-1 member (`MULTIPLE_PPL_AREA_SIZE_SUPER1`).
pub const AREA_SECTORS: u16 = 2048;

const RESERVED_BYTES: usize = 512;
const CHECKSUM: usize = 532;
const ENTRIES: usize = 536;
const ENTRY_BYTES: usize = 24;

structure_error! {
    /// Why a PPL header is refused. A kernel that finds one so takes the log as empty.
    PplError, "PPL header",
    /// The checksum is not that of the bytes.
    Checksum { found: u32, right: u32 } => "checksum is {found:08x}; the bytes have {right:08x}",
    /// The log is another array's.
    Signature { found: u32, right: u32 } => "signature is {found:08x}; this array's is {right:08x}"
}

/// A logged write: data of one stripe's members, and the parity of what it leaves alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PplEntry {
    /// `data_sector`: the array's first sector written, in units of the array's logical block.
    pub data_sector: u64,
    /// `pp_size`: bytes of partial parity; none for a write of the whole stripe.
    pub partial_parity_bytes: u32,
    /// `data_size`: bytes of data.
    pub data_bytes: u32,
    /// `parity_disk`: the slot with the stripe's parity, which is the member that holds this log.
    pub parity_disk: u32,
    /// `checksum`: of the partial parity.
    pub checksum: u32,
}

impl PplEntry {
    /// Whether these bytes are the entry's partial parity.
    pub fn matches(&self, partial_parity: &[u8]) -> bool {
        partial_parity.len() == self.partial_parity_bytes as usize
            && parity_checksum(partial_parity) == self.checksum
    }
}

/// The checksum of an entry with this partial parity (CRC-32C).
pub fn parity_checksum(partial_parity: &[u8]) -> u32 {
    crc32c::crc32c(partial_parity)
}

/// A PPL header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PplHeader {
    /// `signature`: says which array this is; see [`signature`].
    pub signature: u32,
    /// `generation`: grows with every header written.
    pub generation: u64,
    /// `entries`, `entries_count` of them.
    pub entries: Vec<PplEntry>,
}

/// The bytes of a log of nothing, over all of its area: an older log of this array further on would be taken for newer.
pub fn empty_log(set_uuid: &Uuid, area: PplArea) -> Vec<u8> {
    let mut bytes = PplHeader { signature: signature(set_uuid), ..PplHeader::default() }.to_bytes();
    bytes.resize(usize::from(area.size_sectors) * 512, 0);
    bytes
}

/// The signature of an array's logs: the sum of its UUID.
pub fn signature(set_uuid: &Uuid) -> u32 {
    crc32c::crc32c(&set_uuid.0)
}

impl PplHeader {
    /// Reads the header at the start of `block`, which must bear the array's signature.
    pub fn parse(block: &[u8], array_signature: u32) -> Result<Self, PplError> {
        let Some(block) = block.get(..HEADER_BYTES) else {
            return Err(PplError::Truncated { found_bytes: block.len(), needed_bytes: HEADER_BYTES });
        };
        let (found, right) = (u32_at(block, CHECKSUM), checksum(block));
        if found != right {
            return Err(PplError::Checksum { found, right });
        }
        let found = u32_at(block, RESERVED_BYTES);
        if found != array_signature {
            return Err(PplError::Signature { found, right: array_signature });
        }
        let reserved = &block[..RESERVED_BYTES];
        require(reserved.iter().all(|b| *b == 0xff), "reserved", "not all ones", || {
            "it is all ones in every known format".to_owned()
        })?;
        let padding = u32_at(block, RESERVED_BYTES + 4);
        require(padding == 0, "padding", padding, || "it is 0 in every known format".to_owned())?;
        let count = u32_at(block, 528) as usize;
        require(count <= ENTRIES_MAX, "entries_count", count, || {
            format!("a header has room for {ENTRIES_MAX}")
        })?;
        let (entries, rest) = block[ENTRIES..].split_at(count * ENTRY_BYTES);
        require(rest.iter().all(|b| *b == 0), "entries", "not zero past the last", || {
            format!("entries_count is {count}")
        })?;
        let header = Self {
            signature: found,
            generation: u64_at(block, 520),
            entries: entries.chunks_exact(ENTRY_BYTES).map(entry).collect(),
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), FieldError> {
        for entry in &self.entries {
            let (data, parity) = (entry.data_bytes, entry.partial_parity_bytes);
            require(data > 0 && data.is_multiple_of(512), "data_size", data, || {
                "it is whole sectors, one or more".to_owned()
            })?;
            require(parity.is_multiple_of(512), "pp_size", parity, || "it is whole sectors".to_owned())?;
            require(parity <= data, "pp_size", parity, || format!("it is at most data_size, {data}"))?;
        }
        Ok(())
    }

    /// The 4096 bytes to write, checksum computed.
    pub fn to_bytes(&self) -> Vec<u8> {
        assert!(self.entries.len() <= ENTRIES_MAX, "{} entries do not fit a PPL header", self.entries.len());
        let mut block = vec![0; HEADER_BYTES];
        block[..RESERVED_BYTES].fill(0xff);
        put(&mut block, RESERVED_BYTES, self.signature.to_le_bytes());
        put(&mut block, 520, self.generation.to_le_bytes());
        put(&mut block, 528, (self.entries.len() as u32).to_le_bytes());
        for (place, entry) in block[ENTRIES..].chunks_exact_mut(ENTRY_BYTES).zip(&self.entries) {
            put(place, 0, entry.data_sector.to_le_bytes());
            put(place, 8, entry.partial_parity_bytes.to_le_bytes());
            put(place, 12, entry.data_bytes.to_le_bytes());
            put(place, 16, entry.parity_disk.to_le_bytes());
            put(place, 20, entry.checksum.to_le_bytes());
        }
        let sum = checksum(&block);
        put(&mut block, CHECKSUM, sum.to_le_bytes());
        block
    }

    /// Bytes from this header to the end of its partial parity, where the next log of the area begins.
    pub fn log_bytes(&self) -> u64 {
        let parity = self.entries.iter().map(|entry| u64::from(entry.partial_parity_bytes));
        HEADER_BYTES as u64 + parity.sum::<u64>()
    }
}

fn entry(bytes: &[u8]) -> PplEntry {
    PplEntry {
        data_sector: u64_at(bytes, 0),
        partial_parity_bytes: u32_at(bytes, 8),
        data_bytes: u32_at(bytes, 12),
        parity_disk: u32_at(bytes, 16),
        checksum: u32_at(bytes, 20),
    }
}

/// CRC-32C of the header with its checksum taken as zero.
fn checksum(header: &[u8]) -> u32 {
    let before = crc32c::crc32c(&header[..CHECKSUM]);
    let blanked = crc32c::crc32c_append(before, &[0; 4]);
    crc32c::crc32c_append(blanked, &header[CHECKSUM + 4..HEADER_BYTES])
}
