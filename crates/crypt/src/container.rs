//! A LUKS container: its header read, unlocked, its payload read and written.

use std::fmt;
use std::io;

use stripewise_format::error::FieldError;
use stripewise_format::luks::{Digest, Keyslot, Luks, LuksError, Priority, START_BYTES_MAX, SegmentSize};

use crate::af;
use crate::cipher::{CipherError, SECTOR_BYTES, SectorCipher};
use crate::hash::Hash;
use crate::kdf::{self, KdfError, Limits};
use crate::key::Secret;
use crate::store::Store;

/// Why a container is not opened.
#[derive(Debug)]
pub enum OpenError {
    /// The store.
    Io(io::Error),
    /// The header.
    Header(LuksError),
    /// The key that was found does not fit the payload's cipher.
    Cipher(CipherError),
    /// No keyslot opened.
    NoKeyslot {
        /// The keyslots that the passphrase does not open.
        tried: Vec<u32>,
        /// The keyslots that could not be tried, and why.
        skipped: Vec<(u32, String)>,
    },
    /// The only keyslot to be tried is none of the header's.
    NoSuchKeyslot {
        /// Its number.
        asked: u32,
        /// Those that there are.
        there: Vec<u32>,
    },
    /// The store ends before the payload does.
    Cut {
        /// What the header says.
        needed_bytes: u64,
        /// What there is.
        found_bytes: u64,
    },
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Header(error) => error.fmt(f),
            Self::Cipher(error) => write!(f, "the volume's key: {error}"),
            Self::NoSuchKeyslot { asked, there } if there.is_empty() => {
                write!(f, "there is no keyslot {asked}, nor any other")
            }
            Self::NoSuchKeyslot { asked, there } => {
                write!(f, "there is no keyslot {asked}; there are {}", list(there))
            }
            Self::NoKeyslot { tried, skipped } => {
                match tried.as_slice() {
                    [] => f.write_str("no keyslot could be tried")?,
                    tried => write!(
                        f,
                        "no key with this passphrase or key file (keyslots tried: {})",
                        list(tried)
                    )?,
                }
                skipped
                    .iter()
                    .try_for_each(|(keyslot, why)| write!(f, "; keyslot {keyslot} not tried: {why}"))
            }
            Self::Cut { needed_bytes, found_bytes } => {
                write!(f, "cut off: {found_bytes} bytes; header and payload take {needed_bytes}")
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<LuksError> for OpenError {
    fn from(error: LuksError) -> Self {
        Self::Header(error)
    }
}

impl From<FieldError> for OpenError {
    fn from(error: FieldError) -> Self {
        Self::Header(error.into())
    }
}

/// Reads a container's header.
pub fn read_header(store: &impl Store) -> Result<Luks, OpenError> {
    let len = store.len_bytes()?.min(START_BYTES_MAX as u64) as usize;
    let mut start = vec![0; len];
    store.read_at(0, &mut start)?;
    Ok(Luks::parse(&start)?)
}

/// An opened container.
#[derive(Debug)]
pub struct Unlocked {
    /// The keyslot that opened.
    pub keyslot: u32,
    /// The volume's key.
    pub key: Secret,
    /// The payload.
    pub payload: Payload,
}

/// The payload of an opened container: where it is and its cipher.
#[derive(Debug)]
pub struct Payload {
    /// First byte on the store.
    pub offset_bytes: u64,
    /// Whole encrypted sectors.
    pub len_bytes: u64,
    /// The cipher, over sectors from the payload's start.
    pub cipher: SectorCipher,
}

/// Opens a container with a passphrase or a key file's bytes: keyslots of high priority first, then by number. With
/// `only`, that keyslot alone, whatever its priority.
pub fn unlock(
    store: &impl Store,
    header: &Luks,
    passphrase: &[u8],
    only: Option<u32>,
    limits: Limits,
) -> Result<Unlocked, OpenError> {
    let digest = header.digest()?;
    check_digest(&digest, limits)?;
    let mut keyslots = header.keyslots()?;
    let mut there: Vec<u32> = keyslots.iter().map(|(number, _)| *number).collect();
    keyslots.retain(|(number, slot)| match only {
        Some(only) => only == *number,
        None => slot.priority != Priority::Ignore && digest.keyslots.contains(&number.to_string()),
    });
    keyslots.sort_by_key(|(number, slot)| (std::cmp::Reverse(slot.priority), *number));
    let (mut tried, mut skipped) = (Vec::new(), Vec::new());
    if let Luks::V2(header, _) = header {
        let unusable = header.unusable.iter().map(|unusable| (unusable.keyslot, unusable.reason.clone()));
        there.extend(header.unusable.iter().map(|unusable| unusable.keyslot));
        skipped.extend(unusable.filter(|(number, _)| only.is_none_or(|only| only == *number)));
    }
    if let Some(asked) = only.filter(|only| !there.contains(only)) {
        there.sort_unstable();
        return Err(OpenError::NoSuchKeyslot { asked, there });
    }
    for (number, slot) in keyslots {
        match open_keyslot(store, &slot, &digest, passphrase, limits) {
            Ok(Some(key)) => {
                let payload = payload(store, header, &key)?;
                return Ok(Unlocked { keyslot: number, key, payload });
            }
            Ok(None) => tried.push(number),
            Err(SlotError::Io(error)) => return Err(OpenError::Io(error)),
            Err(SlotError::Unusable(why)) => skipped.push((number, why)),
        }
    }
    Err(OpenError::NoKeyslot { tried, skipped })
}

enum SlotError {
    Io(io::Error),
    Unusable(String),
}

macro_rules! unusable {
    ($($error:ty),*) => {$(
        impl From<$error> for SlotError {
            fn from(error: $error) -> Self {
                Self::Unusable(error.to_string())
            }
        }
    )*};
}
unusable!(FieldError, KdfError, CipherError);

/// The key in a keyslot, if the passphrase opens it.
fn open_keyslot(
    store: &impl Store,
    slot: &Keyslot,
    digest: &Digest,
    passphrase: &[u8],
    limits: Limits,
) -> Result<Option<Secret>, SlotError> {
    let hash = Hash::parse(&slot.af.hash)?;
    let encryption = slot.encryption()?;
    let mut spread = Secret::zeroed(slot.spread_bytes());
    let (start, found) = (slot.area.offset.0, store.len_bytes().map_err(SlotError::Io)?);
    if start.checked_add(spread.bytes().len() as u64).is_none_or(|end| end > found) {
        let why = format!("its area from byte {start} on is behind the end, at {found}");
        return Err(SlotError::Unusable(why));
    }
    store.read_at(slot.area.offset.0, spread.bytes_mut()).map_err(SlotError::Io)?;
    let area_key = kdf::derive(&slot.kdf, passphrase, slot.area.key_size as usize, limits)?;
    SectorCipher::new(encryption, area_key.bytes(), SECTOR_BYTES as u32, 0)?
        .decrypt_in_place(0, spread.bytes_mut());
    let stripes_bytes = slot.key_size as usize * slot.af.stripes as usize;
    let key = af::merge(&spread.bytes()[..stripes_bytes], slot.key_size as usize, hash);
    Ok(is_right(digest, &key)?.then_some(key))
}

/// Refuses a digest that no key can be told by, or not in time.
fn check_digest(digest: &Digest, limits: Limits) -> Result<(), OpenError> {
    let found = digest.digest.0.len();
    // An empty digest would be that of any key.
    if found < 20 {
        let right = "a digest has at least 20 bytes".to_owned();
        return Err(FieldError { field: "digest".into(), found: format!("{found} bytes"), right }.into());
    }
    match kdf::check_iterations("digest.iterations", digest.iterations, limits) {
        Err(KdfError::Field(error)) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether the digest is that of the key.
fn is_right(digest: &Digest, key: &Secret) -> Result<bool, FieldError> {
    let mut found = Secret::zeroed(digest.digest.0.len());
    Hash::parse(&digest.hash)?.pbkdf2(key.bytes(), &digest.salt.0, digest.iterations, found.bytes_mut());
    Ok(found.bytes() == digest.digest.0)
}

/// Where a payload on the header's own store can begin.
fn first_payload_byte(header: &Luks) -> Result<u64, OpenError> {
    let end = match header {
        Luks::V1(_) => 2 * SECTOR_BYTES as u64,
        Luks::V2(header, _) => 2 * header.header_bytes,
    };
    let areas = header.keyslots()?.into_iter();
    Ok(areas.map(|(_, slot)| slot.area.offset.0 + slot.spread_bytes() as u64).fold(end, u64::max))
}

fn payload(store: &impl Store, header: &Luks, key: &Secret) -> Result<Payload, OpenError> {
    let segment = header.payload()?;
    let encryption = segment.encryption()?;
    let cipher = SectorCipher::new(encryption, key.bytes(), segment.sector_size, segment.iv_tweak.0)
        .map_err(OpenError::Cipher)?;
    let offset_bytes = segment.offset.0;
    let first = first_payload_byte(header)?;
    if offset_bytes < first {
        let right = format!("header and keyslots take the bytes before {first}, which writes would destroy");
        return Err(
            FieldError { field: "payload offset".into(), found: offset_bytes.to_string(), right }.into()
        );
    }
    let found_bytes = store.len_bytes()?;
    let sector_bytes = u64::from(segment.sector_size);
    let len_bytes = match segment.size {
        SegmentSize::Bytes(bytes) => bytes,
        // A payload needs one sector to be one.
        SegmentSize::Dynamic => found_bytes.saturating_sub(offset_bytes) / sector_bytes * sector_bytes,
    };
    let needed_bytes = offset_bytes.saturating_add(len_bytes.max(sector_bytes));
    if needed_bytes > found_bytes {
        return Err(OpenError::Cut { needed_bytes, found_bytes });
    }
    Ok(Payload { offset_bytes, len_bytes, cipher })
}

impl Payload {
    /// Reads and decrypts whole sectors; offsets count from the payload's start.
    pub fn read_at(&self, store: &impl Store, offset_bytes: u64, target: &mut [u8]) -> io::Result<()> {
        self.check(offset_bytes, target.len())?;
        store.read_at(self.offset_bytes + offset_bytes, target)?;
        self.cipher.decrypt_in_place(offset_bytes / SECTOR_BYTES as u64, target);
        Ok(())
    }

    /// Encrypts into `bounce`, which is as long as `source`, and writes that. The source is not changed.
    pub fn write_at(
        &self,
        store: &impl Store,
        offset_bytes: u64,
        source: &[u8],
        bounce: &mut [u8],
    ) -> io::Result<()> {
        self.check(offset_bytes, source.len())?;
        self.cipher.encrypt(offset_bytes / SECTOR_BYTES as u64, source, bounce);
        store.write_at(self.offset_bytes + offset_bytes, bounce)
    }

    fn check(&self, offset_bytes: u64, len: usize) -> io::Result<()> {
        let sector_bytes = u64::from(self.cipher.sector_bytes());
        let len = len as u64;
        let is_whole = offset_bytes.is_multiple_of(sector_bytes) && len.is_multiple_of(sector_bytes);
        if is_whole && offset_bytes.checked_add(len).is_some_and(|end| end <= self.len_bytes) {
            return Ok(());
        }
        let message = format!(
            "{len} bytes at {offset_bytes}: the payload has {} bytes in sectors of {sector_bytes}",
            self.len_bytes
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}
