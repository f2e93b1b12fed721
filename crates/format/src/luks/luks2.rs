//! LUKS2's header: two copies of a binary header (`struct luks2_hdr_disk`) with a JSON area.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::parts::{Decimal, Digest, Keyslot, Segment, SegmentSize};
use super::{LuksError, MAGIC, text_at};
use crate::bytes::{array_at, put};
use crate::error::{FieldError, require};

/// The sizes a copy of the header can have, its JSON area among them.
pub const HEADER_SIZES_BYTES: [u64; 9] =
    [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];

const SECONDARY_MAGIC: [u8; 6] = *b"SKUL\xba\xbe";
const BINARY_BYTES: usize = 4096;
const CHECKSUM_AT: usize = 448;
const CHECKSUM_PLACE_BYTES: usize = 64;
const SALT_BYTES: usize = 64;

/// A LUKS2 header. Comments name `luks2_hdr_disk`'s fields and those of the JSON area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Luks2 {
    /// `hdr_size`: bytes of one copy.
    pub header_bytes: u64,
    /// `seqid`: counts changes; the higher copy is the newer.
    pub seqid: u64,
    /// `label`.
    pub label: String,
    /// `subsystem`.
    pub subsystem: String,
    /// `uuid`.
    pub uuid: String,
    /// `salt` of the first and of the second copy: makes their checksums unlike.
    pub salts: [[u8; SALT_BYTES]; 2],
    /// `keyslots` of the kind that holds a key and that can be used.
    pub keyslots: BTreeMap<u32, Keyslot>,
    /// `keyslots` that cannot be used here, and why.
    pub unusable: Vec<Unusable>,
    /// `digests`.
    pub digests: BTreeMap<u32, Digest>,
    /// `segments`.
    pub segments: BTreeMap<u32, Segment>,
    /// `config`.
    pub config: Config,
}

/// A keyslot that cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Its number.
    pub keyslot: u32,
    /// Why not.
    pub reason: String,
}

/// What the JSON area says of the header as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Bytes of the JSON area.
    pub json_size: Decimal,
    /// Bytes of all keyslots' areas.
    pub keyslots_size: Decimal,
    /// What a program must understand to use the container.
    #[serde(default, skip_serializing_if = "Requirements::is_empty")]
    pub requirements: Requirements,
}

/// What a program must understand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirements {
    /// By name: a program that does not know one leaves the container alone.
    #[serde(default)]
    pub mandatory: Vec<String>,
}

impl Requirements {
    fn is_empty(&self) -> bool {
        self.mandatory.is_empty()
    }
}

/// The JSON area, before its keyslots are looked at one by one.
#[derive(Serialize, Deserialize)]
struct Document {
    keyslots: BTreeMap<String, Value>,
    #[serde(default)]
    tokens: BTreeMap<String, Value>,
    segments: BTreeMap<u32, Segment>,
    digests: BTreeMap<u32, Digest>,
    config: Config,
}

/// The state of the two copies of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Both are whole and of one sequence number.
    Both,
    /// The first was used: the second is damaged.
    SecondaryDamaged(LuksError),
    /// The second was used: the first is damaged.
    PrimaryDamaged(LuksError),
    /// The newer was used: a change was interrupted between the two.
    Unequal {
        /// Sequence number of the first.
        primary_seqid: u64,
        /// Sequence number of the second.
        secondary_seqid: u64,
    },
}

impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Both => f.write_str("both copies are whole"),
            Self::SecondaryDamaged(error) => write!(f, "the second copy is damaged: {error}"),
            Self::PrimaryDamaged(error) => {
                write!(f, "the first copy is damaged, the second is used: {error}")
            }
            Self::Unequal { primary_seqid, secondary_seqid } => {
                write!(
                    f,
                    "the copies differ (seqid {primary_seqid} and {secondary_seqid}); the newer is used"
                )
            }
        }
    }
}

impl Luks2 {
    /// Reads the better of the two copies from a container's first bytes.
    pub fn parse(start: &[u8]) -> Result<(Self, Copies), LuksError> {
        let primary = Self::parse_copy(start, 0);
        // A first copy that is whole says where the second is; else all its places are looked at.
        let places = match &primary {
            Ok(header) => vec![header.header_bytes],
            Err(_) => HEADER_SIZES_BYTES.to_vec(),
        };
        let mut secondary = Err(LuksError::Magic);
        for place in places {
            let found = Self::parse_copy(start, place);
            if found.is_ok() || matches!(secondary, Err(LuksError::Magic)) {
                secondary = found;
            }
            if secondary.is_ok() {
                break;
            }
        }
        match (primary, secondary) {
            (Ok(mut first), Ok(mut second)) => {
                let salts = [first.salts[0], second.salts[1]];
                (first.salts, second.salts) = (salts, salts);
                let (primary_seqid, secondary_seqid) = (first.seqid, second.seqid);
                let used = if secondary_seqid > primary_seqid { second } else { first };
                if primary_seqid == secondary_seqid {
                    return Ok((used, Copies::Both));
                }
                Ok((used, Copies::Unequal { primary_seqid, secondary_seqid }))
            }
            (Ok(first), Err(error)) => Ok((first, Copies::SecondaryDamaged(error))),
            (Err(error), Ok(second)) => Ok((second, Copies::PrimaryDamaged(error))),
            (Err(LuksError::Magic), Err(LuksError::Magic)) => Err(LuksError::Magic),
            (Err(primary), Err(secondary)) => {
                Err(LuksError::Both { primary: Box::new(primary), secondary: Box::new(secondary) })
            }
        }
    }

    /// Reads the copy at `offset`: 0 is the first.
    fn parse_copy(start: &[u8], offset: u64) -> Result<Self, LuksError> {
        let what = if offset == 0 { "first LUKS2 header" } else { "second LUKS2 header" };
        let found = start.get(offset as usize..).unwrap_or_default();
        let truncated = |needed_bytes| LuksError::Truncated { what, found_bytes: found.len(), needed_bytes };
        let magic = if offset == 0 { MAGIC } else { SECONDARY_MAGIC };
        if !found.starts_with(&magic) {
            return Err(LuksError::Magic);
        }
        let block = found.get(..BINARY_BYTES).ok_or_else(|| truncated(BINARY_BYTES))?;
        let version = u16::from_be_bytes(array_at(block, 6));
        if version != 2 {
            return Err(LuksError::Version(version));
        }
        let header_bytes = u64::from_be_bytes(array_at(block, 8));
        require(HEADER_SIZES_BYTES.contains(&header_bytes), "hdr_size", header_bytes, || {
            "it is a power of two from 16384 to 4194304".to_owned()
        })?;
        let hdr_offset = u64::from_be_bytes(array_at(block, 256));
        require(hdr_offset == offset, "hdr_offset", hdr_offset, || format!("this copy is at {offset}"))?;
        require(offset == 0 || offset == header_bytes, "hdr_size", header_bytes, || {
            format!("the second copy is at {offset}, behind the first, which is as long")
        })?;
        let copy = found.get(..header_bytes as usize).ok_or_else(|| truncated(header_bytes as usize))?;
        let algorithm = text_at("csum_alg", block, 72..104)?;
        require(algorithm == "sha256", "csum_alg", &algorithm, || "sha256 is supported".to_owned())?;
        if checksum(copy)[..] != block[CHECKSUM_AT..CHECKSUM_AT + 32] {
            return Err(LuksError::Checksum);
        }
        let mut header = Self {
            header_bytes,
            seqid: u64::from_be_bytes(array_at(block, 16)),
            label: text_at("label", block, 24..72)?,
            subsystem: text_at("subsystem", block, 208..256)?,
            uuid: text_at("uuid", block, 168..208)?,
            salts: [array_at(block, 104); 2],
            keyslots: BTreeMap::new(),
            unusable: Vec::new(),
            digests: BTreeMap::new(),
            segments: BTreeMap::new(),
            config: Config {
                json_size: Decimal(0),
                keyslots_size: Decimal(0),
                requirements: Requirements::default(),
            },
        };
        header.read_json(&copy[BINARY_BYTES..])?;
        Ok(header)
    }

    fn read_json(&mut self, area: &[u8]) -> Result<(), LuksError> {
        let end = area.iter().position(|byte| *byte == 0).unwrap_or(area.len());
        let document: Document =
            serde_json::from_slice(&area[..end]).map_err(|error| LuksError::Json(error.to_string()))?;
        require(
            document.config.json_size.0 == area.len() as u64,
            "config.json_size",
            document.config.json_size.0,
            || format!("the JSON area has {} bytes", area.len()),
        )?;
        for (number, value) in document.keyslots {
            let name = format!("keyslots.{number}");
            let number = number.parse().map_err(|_| {
                FieldError::new(name.clone(), format_args!("'{number}'"), "keyslots have numbers for names")
            })?;
            match serde_json::from_value::<Keyslot>(value) {
                Ok(keyslot) => {
                    keyslot.check(&name, 2 * self.header_bytes)?;
                    self.keyslots.insert(number, keyslot);
                }
                Err(error) => self.unusable.push(Unusable { keyslot: number, reason: error.to_string() }),
            }
        }
        for (number, segment) in &document.segments {
            let field = |path: &str| format!("segments.{number}.{path}");
            let right = || "encrypted sectors have 512, 1024, 2048 or 4096 bytes".to_owned();
            let size = segment.sector_size;
            require([512, 1024, 2048, 4096].contains(&size), field("sector_size"), size, right)?;
            let offset = segment.offset.0;
            require(offset.is_multiple_of(512), field("offset"), offset, || {
                "it is in whole sectors".to_owned()
            })?;
            require(i64::try_from(offset).is_ok(), field("offset"), offset, || {
                "it is not past the last byte there can be".to_owned()
            })?;
            let bytes = if let SegmentSize::Bytes(bytes) = segment.size { bytes } else { 0 };
            let fits = offset.checked_add(bytes).is_some_and(|end| i64::try_from(end).is_ok());
            require(fits && bytes.is_multiple_of(u64::from(size)), field("size"), bytes, || {
                format!("it is in whole sectors, from {offset} to the last byte there can be")
            })?;
        }
        (self.digests, self.segments, self.config) = (document.digests, document.segments, document.config);
        Ok(())
    }

    /// Both copies as they are written at the container's start.
    ///
    /// # Panics
    /// When the JSON does not fit its area: the caller chose `header_bytes`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let number = |(number, slot): (&u32, &Keyslot)| {
            (number.to_string(), serde_json::to_value(slot).expect("a keyslot is JSON"))
        };
        let document = Document {
            keyslots: self.keyslots.iter().map(number).collect(),
            tokens: BTreeMap::new(),
            segments: self.segments.clone(),
            digests: self.digests.clone(),
            config: self.config.clone(),
        };
        let json = serde_json::to_vec(&document).expect("the header is JSON");
        let size = self.header_bytes as usize;
        assert!(BINARY_BYTES + json.len() < size, "the JSON area holds {} bytes", size - BINARY_BYTES);
        let mut both = vec![0; 2 * size];
        for (index, copy) in both.chunks_exact_mut(size).enumerate() {
            put(copy, 0, if index == 0 { MAGIC } else { SECONDARY_MAGIC });
            put(copy, 6, 2_u16.to_be_bytes());
            put(copy, 8, self.header_bytes.to_be_bytes());
            put(copy, 16, self.seqid.to_be_bytes());
            put(copy, 24, &self.label);
            put(copy, 72, "sha256");
            put(copy, 104, self.salts[index]);
            put(copy, 168, &self.uuid);
            put(copy, 208, &self.subsystem);
            put(copy, 256, (index as u64 * self.header_bytes).to_be_bytes());
            put(copy, BINARY_BYTES, &json);
            let sum = checksum(copy);
            put(copy, CHECKSUM_AT, sum);
        }
        both
    }

    /// The payload: the only segment, unless the container is being encrypted anew, which is not supported.
    pub fn payload(&self) -> Result<&Segment, FieldError> {
        Ok(self.payload_and_number()?.1)
    }

    fn payload_and_number(&self) -> Result<(u32, &Segment), FieldError> {
        let mandatory = &self.config.requirements.mandatory;
        require(mandatory.is_empty(), "config.requirements.mandatory", mandatory.join(", "), || {
            "none is supported; 'online-reencrypt' is a re-encryption that cryptsetup has to finish"
                .to_owned()
        })?;
        let mut segments = self.segments.iter();
        let (Some((number, segment)), None) = (segments.next(), segments.next()) else {
            return Err(FieldError::new(
                "segments",
                format_args!("a list of {}", self.segments.len()),
                "one payload is supported",
            ));
        };
        let field = |name: &str| format!("segments.{number}.{name}");
        require(segment.kind == Segment::CRYPT, field("type"), &segment.kind, || {
            format!("'{}' is supported; others have a drive encrypt", Segment::CRYPT)
        })?;
        if let Some(integrity) = segment.integrity_name() {
            return Err(FieldError::new(
                field("integrity"),
                integrity,
                "none is supported; authenticated sectors are dm-integrity's, with a journal between them",
            ));
        }
        Ok((*number, segment))
    }

    /// The digest that names the payload.
    pub fn payload_digest(&self) -> Result<&Digest, FieldError> {
        let (number, _) = self.payload_and_number()?;
        let number = number.to_string();
        let digest = self.digests.values().find(|digest| digest.segments.contains(&number));
        digest.ok_or_else(|| {
            FieldError::new(
                "digests",
                format_args!("a list of {}", self.digests.len()),
                format!("one names segment {number}"),
            )
        })
    }
}

/// The checksum over a whole copy, its own place as zeroes.
fn checksum(copy: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(&copy[..CHECKSUM_AT]);
    hash.update([0; CHECKSUM_PLACE_BYTES]);
    hash.update(&copy[CHECKSUM_AT + CHECKSUM_PLACE_BYTES..]);
    hash.finalize().into()
}
