//! LUKS headers, versions 1 and 2, as values.
//!
//! Contract: bytes in, values out and back; no key is derived here. Both versions give the same [`Keyslot`],
//! [`Digest`] and [`Segment`], so that what unlocks them need not ask for the version. Sources: the LUKS1 On-Disk
//! Format Specification 1.2.3 and the LUKS2 On-Disk Format Specification 1.1.3.

pub mod encryption;
mod luks1;
mod luks2;
mod parts;

use std::fmt;

pub use encryption::Encryption;
pub use luks1::{KEYSLOTS as LUKS1_KEYSLOTS, Luks1, Luks1Keyslot};
pub use luks2::{Config, Copies, HEADER_SIZES_BYTES, Luks2, Requirements, Unusable};
pub use parts::{
    Af, Area, Argon2, Base64, Decimal, Digest, KEY_BYTES_MAX, Kdf, Keyslot, Priority, STRIPES, Segment,
    SegmentSize,
};

use crate::error::FieldError;

/// As many bytes from a container's start as any header can have: two copies of 4 MiB. A shorter device gives what
/// it has.
pub const START_BYTES_MAX: usize = 8 << 20;

/// The magic number of either version and of LUKS2's first copy.
const MAGIC: [u8; 6] = *b"LUKS\xba\xbe";
/// The unit of LUKS1's offsets and of dm-crypt's sector numbers.
const SECTOR_BYTES: u64 = 512;

/// Why a header is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LuksError {
    /// No LUKS magic number: nothing of this kind was written here.
    Magic,
    /// The bytes end before the header does.
    Truncated {
        /// What is cut off.
        what: &'static str,
        /// Bytes there are.
        found_bytes: usize,
        /// Bytes there should be.
        needed_bytes: usize,
    },
    /// A version that does not exist yet.
    Version(u16),
    /// The checksum of a copy of a LUKS2 header is wrong.
    Checksum,
    /// The JSON area of a LUKS2 header cannot be read.
    Json(String),
    /// A field cannot be right.
    Field(FieldError),
    /// Both copies of a LUKS2 header are damaged.
    Both {
        /// What is wrong with the first.
        primary: Box<LuksError>,
        /// What is wrong with the second.
        secondary: Box<LuksError>,
    },
}

impl fmt::Display for LuksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("no LUKS header: the first bytes must be 'LUKS' ba be"),
            Self::Truncated { what, found_bytes, needed_bytes } => {
                write!(f, "{what} is cut off: {found_bytes} bytes of {needed_bytes}")
            }
            Self::Version(found) => write!(f, "LUKS header: version is {found}; 1 and 2 are supported"),
            Self::Checksum => {
                f.write_str("LUKS2 header: csum does not match its bytes; the header is damaged")
            }
            Self::Json(error) => write!(f, "LUKS2 header: JSON area: {error}"),
            Self::Field(error) => write!(f, "LUKS header: {error}"),
            Self::Both { primary, secondary } => {
                write!(
                    f,
                    "both copies of the LUKS2 header are damaged: first: {primary}; second: {secondary}"
                )
            }
        }
    }
}

impl std::error::Error for LuksError {}

impl From<FieldError> for LuksError {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

/// A header of either version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Luks {
    /// Version 1.
    V1(Box<Luks1>),
    /// Version 2, with the state of its two copies.
    V2(Box<Luks2>, Copies),
}

impl Luks {
    /// Reads the header from a container's first bytes: [`START_BYTES_MAX`], or all there are.
    pub fn parse(start: &[u8]) -> Result<Self, LuksError> {
        let version = start.get(6..8).map(|version| u16::from_be_bytes([version[0], version[1]]));
        match version {
            Some(1) if start.starts_with(&MAGIC) => Ok(Self::V1(Box::new(Luks1::parse(start)?))),
            // A version that is damaged leaves the second copy of a LUKS2 header.
            _ => match (Luks2::parse(start), version) {
                (Ok((header, copies)), _) => Ok(Self::V2(Box::new(header), copies)),
                (Err(_), Some(other)) if start.starts_with(&MAGIC) && other != 2 => {
                    Err(LuksError::Version(other))
                }
                (Err(error), _) => Err(error),
            },
        }
    }

    /// The keyslots that hold a key, with their numbers.
    pub fn keyslots(&self) -> Result<Vec<(u32, Keyslot)>, LuksError> {
        match self {
            Self::V1(header) => Ok(header.keyslots()?),
            Self::V2(header, _) => Ok(header.keyslots.iter().map(|(n, slot)| (*n, slot.clone())).collect()),
        }
    }

    /// The digest that tells the key of the payload from others.
    pub fn digest(&self) -> Result<Digest, LuksError> {
        match self {
            Self::V1(header) => Ok(header.digest()),
            Self::V2(header, _) => Ok(header.payload_digest()?.clone()),
        }
    }

    /// The payload.
    pub fn payload(&self) -> Result<Segment, LuksError> {
        match self {
            Self::V1(header) => Ok(header.payload()),
            Self::V2(header, _) => Ok(header.payload()?.clone()),
        }
    }

    /// The container's UUID as text.
    pub fn uuid(&self) -> &str {
        match self {
            Self::V1(header) => &header.uuid,
            Self::V2(header, _) => &header.uuid,
        }
    }
}

/// Reads a text that a zero byte ends, if it is shorter than its place.
fn text_at(field: &'static str, block: &[u8], range: std::ops::Range<usize>) -> Result<String, FieldError> {
    let bytes = &block[range];
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| {
        FieldError::new(field, format_args!("{:02x?}", &bytes[..end]), "it is a text in UTF-8")
    })?;
    Ok(text.to_owned())
}
