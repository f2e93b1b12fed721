//! LUKS1's header (`struct luks_phdr`): 592 bytes, big-endian.

use super::parts::{Af, Area, Base64, Decimal, Digest, Kdf, Keyslot, STRIPES, Segment, SegmentSize};
use super::{KEY_BYTES_MAX, LuksError, MAGIC, SECTOR_BYTES, text_at};
use crate::bytes::{array_at, put};
use crate::error::{FieldError, require};

/// The keyslots of a LUKS1 header.
pub const KEYSLOTS: usize = 8;

const HEADER_BYTES: usize = 592;
const KEYSLOTS_AT: usize = 208;
const KEYSLOT_BYTES: usize = 48;
const ACTIVE: u32 = 0x00ac_71f3;
const INACTIVE: u32 = 0x0000_dead;
const SALT_BYTES: usize = 32;
const DIGEST_BYTES: usize = 20;

/// A LUKS1 header. Comments name `luks_phdr`'s fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Luks1 {
    /// `cipherName`: aes.
    pub cipher_name: String,
    /// `cipherMode`: xts-plain64, cbc-essiv:sha256.
    pub cipher_mode: String,
    /// `hashSpec`: the hash of PBKDF2 and of the stripes.
    pub hash_spec: String,
    /// `payloadOffset`.
    pub payload_offset_sectors: u32,
    /// `keyBytes`.
    pub key_bytes: u32,
    /// `mkDigest`.
    pub mk_digest: [u8; DIGEST_BYTES],
    /// `mkDigestSalt`.
    pub mk_digest_salt: [u8; SALT_BYTES],
    /// `mkDigestIterations`.
    pub mk_digest_iterations: u32,
    /// `uuid`.
    pub uuid: String,
    /// `keyblock`.
    pub keyslots: [Luks1Keyslot; KEYSLOTS],
}

/// A keyslot of a LUKS1 header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Luks1Keyslot {
    /// `active`.
    pub is_active: bool,
    /// `passwordIterations`.
    pub iterations: u32,
    /// `passwordSalt`.
    pub salt: [u8; SALT_BYTES],
    /// `keyMaterialOffset`.
    pub area_sector: u32,
    /// `stripes`.
    pub stripes: u32,
}

fn u32_at(block: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(array_at(block, offset))
}

impl Luks1 {
    /// Reads a header from a container's first bytes.
    pub fn parse(start: &[u8]) -> Result<Self, LuksError> {
        let found_bytes = start.len();
        let truncated =
            LuksError::Truncated { what: "LUKS1 header", found_bytes, needed_bytes: HEADER_BYTES };
        let block = start.get(..HEADER_BYTES).ok_or(truncated)?;
        let mut keyslots = [Luks1Keyslot::default(); KEYSLOTS];
        for (number, slot) in keyslots.iter_mut().enumerate() {
            let at = KEYSLOTS_AT + number * KEYSLOT_BYTES;
            let active = u32_at(block, at);
            require(
                [ACTIVE, INACTIVE].contains(&active),
                format!("keyblock[{number}].active"),
                active,
                || format!("{ACTIVE:#x} is a keyslot in use, {INACTIVE:#x} a free one"),
            )?;
            *slot = Luks1Keyslot {
                is_active: active == ACTIVE,
                iterations: u32_at(block, at + 4),
                salt: array_at(block, at + 8),
                area_sector: u32_at(block, at + 40),
                stripes: u32_at(block, at + 44),
            };
        }
        let header = Self {
            cipher_name: text_at("cipherName", block, 8..40)?,
            cipher_mode: text_at("cipherMode", block, 40..72)?,
            hash_spec: text_at("hashSpec", block, 72..104)?,
            payload_offset_sectors: u32_at(block, 104),
            key_bytes: u32_at(block, 108),
            mk_digest: array_at(block, 112),
            mk_digest_salt: array_at(block, 132),
            mk_digest_iterations: u32_at(block, 164),
            uuid: text_at("uuid", block, 168..208)?,
            keyslots,
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), FieldError> {
        require((1..=KEY_BYTES_MAX).contains(&self.key_bytes), "keyBytes", self.key_bytes, || {
            format!("keys have 1 to {KEY_BYTES_MAX} bytes")
        })?;
        require(self.mk_digest_iterations > 0, "mkDigestIterations", self.mk_digest_iterations, || {
            "there is at least one".to_owned()
        })?;
        self.keyslots().map(drop)
    }

    /// The header as it is written.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut block = vec![0; HEADER_BYTES];
        put(&mut block, 0, MAGIC);
        put(&mut block, 6, 1_u16.to_be_bytes());
        let texts = [
            (8, &self.cipher_name, 32),
            (40, &self.cipher_mode, 32),
            (72, &self.hash_spec, 32),
            (168, &self.uuid, 40),
        ];
        for (at, text, place_bytes) in texts {
            assert!(text.len() < place_bytes, "'{text}' is longer than its place");
            put(&mut block, at, text);
        }
        put(&mut block, 104, self.payload_offset_sectors.to_be_bytes());
        put(&mut block, 108, self.key_bytes.to_be_bytes());
        put(&mut block, 112, self.mk_digest);
        put(&mut block, 132, self.mk_digest_salt);
        put(&mut block, 164, self.mk_digest_iterations.to_be_bytes());
        for (number, slot) in self.keyslots.iter().enumerate() {
            let at = KEYSLOTS_AT + number * KEYSLOT_BYTES;
            put(&mut block, at, if slot.is_active { ACTIVE } else { INACTIVE }.to_be_bytes());
            put(&mut block, at + 4, slot.iterations.to_be_bytes());
            put(&mut block, at + 8, slot.salt);
            put(&mut block, at + 40, slot.area_sector.to_be_bytes());
            put(&mut block, at + 44, slot.stripes.to_be_bytes());
        }
        block
    }

    /// The cipher in dm-crypt's notation.
    pub fn encryption(&self) -> String {
        format!("{}-{}", self.cipher_name, self.cipher_mode)
    }

    /// The keyslots in use, in the common form.
    pub fn keyslots(&self) -> Result<Vec<(u32, Keyslot)>, FieldError> {
        let used = (0_u32..).zip(&self.keyslots).filter(|(_, slot)| slot.is_active);
        let common = used.map(|(number, slot)| {
            let keyslot = self.keyslot(slot);
            keyslot.check(&format!("keyblock[{number}]"), 2 * SECTOR_BYTES)?;
            Ok((number, keyslot))
        });
        common.collect()
    }

    /// One keyslot in the common form: the area has the payload's cipher, and a key as long.
    pub fn keyslot(&self, slot: &Luks1Keyslot) -> Keyslot {
        let spread = u64::from(self.key_bytes) * u64::from(STRIPES);
        Keyslot::new(
            self.key_bytes,
            Af { stripes: slot.stripes, hash: self.hash_spec.clone() },
            Area {
                offset: Decimal(u64::from(slot.area_sector) * SECTOR_BYTES),
                size: Decimal(spread.next_multiple_of(SECTOR_BYTES)),
                encryption: self.encryption(),
                key_size: self.key_bytes,
            },
            Kdf::Pbkdf2 {
                hash: self.hash_spec.clone(),
                iterations: slot.iterations,
                salt: Base64(slot.salt.to_vec()),
            },
        )
    }

    /// What tells the right key from others, in the common form.
    pub fn digest(&self) -> Digest {
        Digest {
            keyslots: (0..KEYSLOTS).filter(|n| self.keyslots[*n].is_active).map(|n| n.to_string()).collect(),
            segments: vec!["0".to_owned()],
            hash: self.hash_spec.clone(),
            iterations: self.mk_digest_iterations,
            salt: Base64(self.mk_digest_salt.to_vec()),
            digest: Base64(self.mk_digest.to_vec()),
        }
    }

    /// The payload in the common form.
    pub fn payload(&self) -> Segment {
        Segment {
            kind: Segment::CRYPT.to_owned(),
            offset: Decimal(u64::from(self.payload_offset_sectors) * SECTOR_BYTES),
            size: SegmentSize::Dynamic,
            iv_tweak: Decimal(0),
            encryption: self.encryption(),
            sector_size: SECTOR_BYTES as u32,
            integrity: None,
        }
    }
}
