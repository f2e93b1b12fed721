//! What both versions are made of. The names of fields are those of LUKS2's JSON.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Encryption;
use crate::error::{FieldError, require};

/// The anti-forensic stripes of a key; both specifications fix them.
pub const STRIPES: u32 = 4000;
/// The longest key there is room for here; XTS with AES-256 has 64 bytes.
pub const KEY_BYTES_MAX: u32 = 512;
/// Salts and digests are not longer than this.
const BINARY_BYTES_MAX: usize = 512;

/// A number that JSON holds as a text, as 64 bits do not fit its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal(pub u64);

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let number = text.parse();
        number
            .map(Self)
            .map_err(|_| de::Error::custom(format_args!("'{text}' is no decimal number of 64 bits")))
    }
}

/// Bytes that JSON holds in Base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base64(pub Vec<u8>);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text.as_bytes());
        let bytes = bytes.map_err(|error| de::Error::custom(format_args!("no Base64: {error}")))?;
        if bytes.len() > BINARY_BYTES_MAX {
            let found = bytes.len();
            return Err(de::Error::custom(format_args!(
                "{found} bytes; at most {BINARY_BYTES_MAX} are right"
            )));
        }
        Ok(Self(bytes))
    }
}

/// How a passphrase becomes the key of a keyslot's area.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Kdf {
    /// PBKDF2 with HMAC.
    Pbkdf2 {
        /// The hash: sha1, sha256, sha512.
        hash: String,
        /// Rounds.
        iterations: u32,
        /// Salt.
        salt: Base64,
    },
    /// Argon2i.
    Argon2i(Argon2),
    /// Argon2id.
    Argon2id(Argon2),
}

/// Argon2's costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argon2 {
    /// Passes.
    pub time: u32,
    /// Memory in KiB.
    pub memory: u32,
    /// Lanes.
    pub cpus: u32,
    /// Salt.
    pub salt: Base64,
}

/// Which keyslots are tried before which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Priority {
    /// Only when it is asked for by number.
    Ignore,
    /// After those of high priority.
    #[default]
    Normal,
    /// First.
    High,
}

impl From<Priority> for u8 {
    fn from(priority: Priority) -> Self {
        priority as Self
    }
}

impl TryFrom<u8> for Priority {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        match number {
            0 => Ok(Self::Ignore),
            1 => Ok(Self::Normal),
            2 => Ok(Self::High),
            _ => Err(format!("priority is {number}; 0, 1 and 2 are right")),
        }
    }
}

/// A key, spread over its area and encrypted under a passphrase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyslot {
    #[serde(rename = "type")]
    pub(crate) kind: KeyslotKind,
    /// Length of the key in bytes.
    pub key_size: u32,
    /// How it is spread.
    pub af: Af,
    /// Where it is and how it is encrypted.
    pub area: Area,
    /// How the passphrase becomes the area's key.
    pub kdf: Kdf,
    /// When it is tried.
    #[serde(default, skip_serializing_if = "is_normal")]
    pub priority: Priority,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_normal(priority: &Priority) -> bool {
    *priority == Priority::Normal
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyslotKind {
    Luks2,
}

/// The anti-forensic splitter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "luks1")]
pub struct Af {
    /// Stripes.
    pub stripes: u32,
    /// The hash that diffuses them.
    pub hash: String,
}

/// A keyslot's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "raw")]
pub struct Area {
    /// First byte, from the header's start.
    pub offset: Decimal,
    /// Bytes.
    pub size: Decimal,
    /// Cipher.
    pub encryption: String,
    /// Length of the cipher's key in bytes.
    pub key_size: u32,
}

impl Keyslot {
    /// A keyslot as LUKS2 writes it.
    pub fn new(key_size: u32, af: Af, area: Area, kdf: Kdf) -> Self {
        Self { kind: KeyslotKind::Luks2, key_size, af, area, kdf, priority: Priority::Normal }
    }

    /// Bytes of the area that the spread key takes: whole 512-byte sectors.
    pub fn spread_bytes(&self) -> usize {
        (self.key_size as usize * self.af.stripes as usize).next_multiple_of(super::SECTOR_BYTES as usize)
    }

    /// The area's cipher.
    pub fn encryption(&self) -> Result<Encryption, FieldError> {
        let encryption = Encryption::parse("keyslot area's encryption", &self.area.encryption)?;
        encryption.check_key_bytes("keyslot area's key_size", self.area.key_size as usize)?;
        Ok(encryption)
    }

    /// Refuses sizes that cannot be; what is allocated for a keyslot is bounded after this. `name` is the keyslot's
    /// path, `first_byte` where areas can begin.
    pub(crate) fn check(&self, name: &str, first_byte: u64) -> Result<(), FieldError> {
        let keys = || format!("keys have 1 to {KEY_BYTES_MAX} bytes");
        let field = |path: &str| format!("{name}.{path}");
        require((1..=KEY_BYTES_MAX).contains(&self.key_size), field("key_size"), self.key_size, keys)?;
        require(
            (1..=KEY_BYTES_MAX).contains(&self.area.key_size),
            field("area.key_size"),
            self.area.key_size,
            keys,
        )?;
        require(self.af.stripes == STRIPES, field("af.stripes"), self.af.stripes, || {
            format!("there are {STRIPES} stripes")
        })?;
        let (offset, size) = (self.area.offset.0, self.area.size.0);
        require(offset >= first_byte, field("area.offset"), offset, || {
            format!("areas begin behind the headers, at {first_byte} or later")
        })?;
        require(offset.is_multiple_of(super::SECTOR_BYTES), field("area.offset"), offset, || {
            "areas begin at whole sectors".to_owned()
        })?;
        require(
            offset.checked_add(size).is_some_and(|end| i64::try_from(end).is_ok()),
            field("area.size"),
            size,
            || format!("with area.offset {offset} it ends past the last byte there can be"),
        )?;
        let needed = self.spread_bytes() as u64;
        require(size >= needed, field("area.size"), size, || {
            format!("a key of {} bytes in {STRIPES} stripes takes {needed}", self.key_size)
        })
    }
}

/// What tells the right key from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "pbkdf2")]
pub struct Digest {
    /// The keyslots that hold the key, by number.
    pub keyslots: Vec<String>,
    /// The segments it encrypts, by number.
    pub segments: Vec<String>,
    /// PBKDF2's hash.
    pub hash: String,
    /// PBKDF2's rounds.
    pub iterations: u32,
    /// PBKDF2's salt.
    pub salt: Base64,
    /// PBKDF2 of the key.
    pub digest: Base64,
}

/// A stretch of encrypted sectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Who encrypts: `crypt` for dm-crypt; others have a drive do it, and are not supported.
    #[serde(rename = "type")]
    pub kind: String,
    /// First byte.
    pub offset: Decimal,
    /// Its length.
    pub size: SegmentSize,
    /// Added to sector numbers, in 512-byte sectors.
    pub iv_tweak: Decimal,
    /// Cipher.
    pub encryption: String,
    /// Size of the encrypted sectors in bytes.
    pub sector_size: u32,
    /// How sectors are authenticated, if they are: dm-integrity then has the stretch, with its own superblock and journal,
    /// and part of the key. Not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<serde_json::Value>,
}

impl Segment {
    /// A stretch that dm-crypt encrypts, by the name of its kind.
    pub const CRYPT: &'static str = "crypt";

    /// The cipher, if it is one of those supported.
    pub fn encryption(&self) -> Result<Encryption, FieldError> {
        Encryption::parse("payload's encryption", &self.encryption)
    }

    /// The name of the authentication: `hmac(sha256)`, `aead`.
    pub fn integrity_name(&self) -> Option<&str> {
        let integrity = self.integrity.as_ref()?;
        Some(integrity.get("type").and_then(|name| name.as_str()).unwrap_or("unknown"))
    }
}

/// How long a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentSize {
    /// To the device's end.
    Dynamic,
    /// This many bytes.
    Bytes(u64),
}

impl fmt::Display for SegmentSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dynamic => f.write_str("dynamic"),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

impl Serialize for SegmentSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SegmentSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        if text == "dynamic" {
            return Ok(Self::Dynamic);
        }
        let error = |_| de::Error::custom(format_args!("'{text}' is neither 'dynamic' nor a number"));
        text.parse().map(Self::Bytes).map_err(error)
    }
}
