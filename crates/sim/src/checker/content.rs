//! What a sector holds says who wrote it.

use stripewise_engine::units::SECTOR_BYTES;

use crate::random::Random;

/// A state of a sector: the number of the request that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl Version {
    /// Zeroes.
    pub const ZERO: Self = Self(0);
    /// Content that nobody promises: discarded, or lost.
    pub const ANY: Self = Self(u32::MAX);

    /// The 512 bytes of this version of a sector.
    pub fn bytes(self, sector: u64) -> [u8; SECTOR_BYTES as usize] {
        let mut bytes = [0; SECTOR_BYTES as usize];
        if self == Self::ZERO {
            return bytes;
        }
        let mut random = Random::new(sector << 32 | u64::from(self.0));
        for word in bytes.chunks_exact_mut(8).skip(1) {
            word.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        bytes[..4].copy_from_slice(&self.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&(sector as u32).to_le_bytes());
        bytes
    }

    /// Whether these are the bytes of this version.
    pub fn is(self, sector: u64, bytes: &[u8]) -> bool {
        self == Self::ANY || self.bytes(sector) == bytes
    }
}

/// Says in words what bytes are, for a report.
pub(super) fn describe(bytes: &[u8]) -> String {
    if bytes.iter().all(|b| *b == 0) {
        return "zeroes".into();
    }
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (version, sector) = (Version(word(0)), u64::from(word(4)));
    if version != Version::ANY && version.is(sector, bytes) {
        format!("version {} of sector {sector}", version.0)
    } else {
        "bytes that nobody wrote".into()
    }
}
