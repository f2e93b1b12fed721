//! New containers, as cryptsetup makes them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use stripewise_format::error::FieldError;
use stripewise_format::luks::{
    Af, Area, Argon2, Base64, Config, Decimal, Digest, Encryption, Kdf, Keyslot, LUKS1_KEYSLOTS, Luks1,
    Luks1Keyslot, Luks2, Requirements, STRIPES, Segment, SegmentSize,
};

use crate::af;
use crate::cipher::{CipherError, SECTOR_BYTES, SectorCipher};
use crate::hash::Hash;
use crate::kdf::{self, KdfError, Limits};
use crate::key::Secret;
use crate::store::Store;

/// Keyslot areas begin and end at this.
const AREA_ALIGN_BYTES: u64 = 4096;
/// Where the payload begins, if nothing else is asked for: cryptsetup's places.
const LUKS2_PAYLOAD_BYTES: u64 = 16 << 20;
const LUKS1_PAYLOAD_BYTES: u64 = 2 << 20;
/// One copy of a new LUKS2 header: cryptsetup's size.
const LUKS2_HEADER_BYTES: u64 = 16 << 10;
/// The rounds of the digest of a key: cryptsetup's least. The key is random, so that they protect nothing.
const DIGEST_ITERATIONS: u32 = 1000;

/// The container's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatVersion {
    /// LUKS1: PBKDF2 and sectors of 512 bytes only.
    Luks1,
    /// LUKS2.
    Luks2,
}

/// The costs of a new keyslot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KdfChoice {
    /// PBKDF2 with the header's hash.
    Pbkdf2 {
        /// Rounds.
        iterations: u32,
    },
    /// Argon2i.
    Argon2i(Argon2Costs),
    /// Argon2id.
    Argon2id(Argon2Costs),
}

/// The costs of Argon2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Costs {
    /// Passes.
    pub time: u32,
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Lanes.
    pub cpus: u32,
}

/// What to make.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The container's version.
    pub version: FormatVersion,
    /// The payload's cipher.
    pub encryption: Encryption,
    /// The length of the volume's key.
    pub key_bytes: usize,
    /// The hash of stripes, digest and PBKDF2.
    pub hash: Hash,
    /// The costs of the first keyslot.
    pub kdf: KdfChoice,
    /// Size of the encrypted sectors.
    pub sector_bytes: u32,
    /// Where the payload begins, in bytes; a multiple of 4096. `None` is cryptsetup's place.
    pub payload_offset_bytes: Option<u64>,
    /// LUKS2's label.
    pub label: String,
}

/// Why no container is made. Nothing was written, unless it is an error of the store.
#[derive(Debug)]
pub enum FormatError {
    /// The store.
    Io(io::Error),
    /// No random numbers.
    Random(getrandom::Error),
    /// What was asked for is not possible.
    Field(FieldError),
    /// The cipher has no such key or sectors.
    Cipher(CipherError),
    /// The keyslot's costs.
    Kdf(KdfError),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Random(error) => write!(f, "no random numbers: {error}"),
            Self::Field(error) => error.fmt(f),
            Self::Cipher(error) => error.fmt(f),
            Self::Kdf(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FormatError {}

macro_rules! from_errors {
    ($($variant:ident($error:ty)),*) => {$(
        impl From<$error> for FormatError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}
from_errors!(Io(io::Error), Random(getrandom::Error), Field(FieldError), Cipher(CipherError), Kdf(KdfError));

fn refuse(field: &'static str, found: impl fmt::Display, right: impl Into<String>) -> FormatError {
    FormatError::Field(FieldError { field: field.into(), found: found.to_string(), right: right.into() })
}

/// Makes a container with one keyslot and returns the volume's key. What may be there of an old header is cleared, then the
/// keyslot's area is written, then the header, each durable before the next, so that an interrupted format leaves no header that
/// cannot be opened. The payload is not touched.
///
/// # Errors
/// What is impossible about the options or the passphrase's costs, a store too small, or the store's error.
pub fn format(store: &impl Store, options: &FormatOptions, passphrase: &[u8]) -> Result<Secret, FormatError> {
    let (encryption, found_bytes) = (options.encryption, options.key_bytes);
    if !encryption.key_bytes().contains(&found_bytes) {
        return Err(CipherError::KeyBytes { encryption, found_bytes }.into());
    }
    let key = Secret::random(found_bytes)?;
    SectorCipher::new(options.encryption, key.bytes(), options.sector_bytes, 0)?;
    let mut salt = [0; 32];
    getrandom::fill(&mut salt)?;
    let digest = digest(options, &key, salt);
    let (header, slot) = match options.version {
        FormatVersion::Luks1 => luks1(options, &digest)?,
        FormatVersion::Luks2 => luks2(options, digest)?,
    };
    let needed = payload_offset(options)? + u64::from(options.sector_bytes);
    let found = store.len_bytes()?;
    if found < needed {
        return Err(refuse("device size", found, format!("header and one sector take {needed} bytes")));
    }
    let area_key = kdf::derive(&slot.kdf, passphrase, slot.area.key_size as usize, Limits::default())?;
    let mut spread = Secret::random(slot.spread_bytes())?;
    let stripes_bytes = slot.key_size as usize * slot.af.stripes as usize;
    af::split(key.bytes(), &mut spread.bytes_mut()[..stripes_bytes], options.hash);
    SectorCipher::new(slot.encryption()?, area_key.bytes(), SECTOR_BYTES as u32, 0)?
        .encrypt_in_place(0, spread.bytes_mut());
    // The old header goes first, with LUKS2's second copy: its keyslots are about to be overwritten.
    store.write_at(0, &vec![0; header.len().max(2 * LUKS2_HEADER_BYTES as usize)])?;
    store.flush()?;
    store.write_at(slot.area.offset.0, spread.bytes())?;
    store.flush()?;
    store.write_at(0, &header)?;
    store.flush()?;
    Ok(key)
}

fn payload_offset(options: &FormatOptions) -> Result<u64, FormatError> {
    let (least, usual) = match options.version {
        FormatVersion::Luks1 => (luks1_area(options, LUKS1_KEYSLOTS as u64), LUKS1_PAYLOAD_BYTES),
        FormatVersion::Luks2 => (2 * LUKS2_HEADER_BYTES + area_bytes(options), LUKS2_PAYLOAD_BYTES),
    };
    let offset = options.payload_offset_bytes.unwrap_or(usual.max(least.next_multiple_of(1 << 20)));
    if offset < least || !offset.is_multiple_of(AREA_ALIGN_BYTES) || offset > 1 << 40 {
        let right = format!("a multiple of {AREA_ALIGN_BYTES} from {least} to 2^40 is right");
        return Err(refuse("payload offset", offset, right));
    }
    Ok(offset)
}

fn area_bytes(options: &FormatOptions) -> u64 {
    (options.key_bytes as u64 * u64::from(STRIPES)).next_multiple_of(AREA_ALIGN_BYTES)
}

/// Where LUKS1's area of a keyslot begins.
fn luks1_area(options: &FormatOptions, number: u64) -> u64 {
    AREA_ALIGN_BYTES + number * area_bytes(options)
}

fn digest(options: &FormatOptions, key: &Secret, salt: [u8; 32]) -> Digest {
    let len = match options.version {
        FormatVersion::Luks1 => 20,
        FormatVersion::Luks2 => options.hash.digest_bytes(),
    };
    let mut digest = vec![0; len];
    options.hash.pbkdf2(key.bytes(), &salt, DIGEST_ITERATIONS, &mut digest);
    Digest {
        keyslots: vec!["0".to_owned()],
        segments: vec!["0".to_owned()],
        hash: options.hash.name().to_owned(),
        iterations: DIGEST_ITERATIONS,
        salt: Base64(salt.to_vec()),
        digest: Base64(digest),
    }
}

fn new_kdf(options: &FormatOptions) -> Result<Kdf, FormatError> {
    let mut salt = vec![0; 32];
    getrandom::fill(&mut salt)?;
    let salt = Base64(salt);
    let argon2 = |costs: Argon2Costs, salt| Argon2 {
        time: costs.time,
        memory: costs.memory_kib,
        cpus: costs.cpus,
        salt,
    };
    Ok(match options.kdf {
        KdfChoice::Pbkdf2 { iterations } => {
            Kdf::Pbkdf2 { hash: options.hash.name().to_owned(), iterations, salt }
        }
        KdfChoice::Argon2i(costs) => Kdf::Argon2i(argon2(costs, salt)),
        KdfChoice::Argon2id(costs) => Kdf::Argon2id(argon2(costs, salt)),
    })
}

fn luks1(options: &FormatOptions, digest: &Digest) -> Result<(Vec<u8>, Keyslot), FormatError> {
    let Kdf::Pbkdf2 { iterations, salt, .. } = new_kdf(options)? else {
        return Err(refuse("kdf", "Argon2", "LUKS1 has PBKDF2 only"));
    };
    if options.sector_bytes as usize != SECTOR_BYTES {
        return Err(refuse("sector size", options.sector_bytes, "LUKS1 has sectors of 512 bytes only"));
    }
    if !options.label.is_empty() {
        return Err(refuse("label", &options.label, "LUKS1 has no label"));
    }
    let sectors = |bytes: u64| {
        u32::try_from(bytes / SECTOR_BYTES as u64)
            .map_err(|_| refuse("payload offset", bytes, "LUKS1 has room for 2^32 sectors"))
    };
    let mut keyslots = [Luks1Keyslot::default(); LUKS1_KEYSLOTS];
    for (number, slot) in (0..).zip(&mut keyslots) {
        *slot = Luks1Keyslot {
            area_sector: sectors(luks1_area(options, number))?,
            stripes: STRIPES,
            ..Luks1Keyslot::default()
        };
    }
    keyslots[0].is_active = true;
    keyslots[0].iterations = iterations;
    keyslots[0].salt.copy_from_slice(&salt.0);
    let (cipher_name, cipher_mode) =
        options.encryption.name().split_once('-').expect("a cipher's name has a mode");
    let header = Luks1 {
        cipher_name: cipher_name.to_owned(),
        cipher_mode: cipher_mode.to_owned(),
        hash_spec: options.hash.name().to_owned(),
        payload_offset_sectors: sectors(payload_offset(options)?)?,
        key_bytes: options.key_bytes as u32,
        mk_digest: digest.digest.0[..].try_into().expect("20 bytes"),
        mk_digest_salt: digest.salt.0[..].try_into().expect("32 bytes"),
        mk_digest_iterations: digest.iterations,
        uuid: uuid()?,
        keyslots,
    };
    let slot = header.keyslot(&header.keyslots[0]);
    Ok((header.to_bytes(), slot))
}

fn luks2(options: &FormatOptions, digest: Digest) -> Result<(Vec<u8>, Keyslot), FormatError> {
    if options.label.len() > 47 {
        return Err(refuse("label", &options.label, "a label has at most 47 bytes"));
    }
    let offset = payload_offset(options)?;
    let first_area = 2 * LUKS2_HEADER_BYTES;
    let key_size = options.key_bytes as u32;
    let slot = Keyslot::new(
        key_size,
        Af { stripes: STRIPES, hash: options.hash.name().to_owned() },
        Area {
            offset: Decimal(first_area),
            size: Decimal(area_bytes(options)),
            encryption: options.encryption.name().to_owned(),
            key_size,
        },
        new_kdf(options)?,
    );
    let segment = Segment {
        kind: Segment::CRYPT.to_owned(),
        offset: Decimal(offset),
        size: SegmentSize::Dynamic,
        iv_tweak: Decimal(0),
        encryption: options.encryption.name().to_owned(),
        sector_size: options.sector_bytes,
        integrity: None,
    };
    let mut salts = [[0; 64]; 2];
    salts.iter_mut().try_for_each(|salt| getrandom::fill(salt))?;
    let header = Luks2 {
        header_bytes: LUKS2_HEADER_BYTES,
        seqid: 1,
        label: options.label.clone(),
        subsystem: String::new(),
        uuid: uuid()?,
        salts,
        keyslots: BTreeMap::from([(0, slot.clone())]),
        unusable: Vec::new(),
        digests: BTreeMap::from([(0, digest)]),
        segments: BTreeMap::from([(0, segment)]),
        config: Config {
            json_size: Decimal(LUKS2_HEADER_BYTES - 4096),
            // cryptsetup's most is 128 MiB, whatever lies between header and payload.
            keyslots_size: Decimal((offset - first_area).min(128 << 20)),
            requirements: Requirements::default(),
        },
    };
    Ok((header.to_bytes(), slot))
}

/// A random UUID (RFC 9562, version 4).
fn uuid() -> Result<String, FormatError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    let mut number = u128::from_be_bytes(bytes);
    number = number & !(0xf << 76) | 0x4 << 76;
    number = number & !(0x3 << 62) | 0x2 << 62;
    let hex = format!("{number:032x}");
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}
