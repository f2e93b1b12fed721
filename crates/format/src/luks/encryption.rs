//! The ciphers of a container, in dm-crypt's notation.

use std::fmt;
use std::str::FromStr;

use crate::error::FieldError;

/// A cipher with its mode and its initial vectors, as dm-crypt's table and LUKS2's `encryption` name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// `aes-xts-plain64`: the tweak is the sector's number, encrypted with the second half of the key.
    AesXtsPlain64,
    /// `aes-cbc-essiv:sha256`: the initial vector is the sector's number, encrypted with AES-256 under the
    /// SHA-256 of the key.
    AesCbcEssivSha256,
}

impl Encryption {
    /// Every cipher there is.
    pub const ALL: [Self; 2] = [Self::AesXtsPlain64, Self::AesCbcEssivSha256];

    /// The name in dm-crypt's notation.
    pub fn name(self) -> &'static str {
        match self {
            Self::AesXtsPlain64 => "aes-xts-plain64",
            Self::AesCbcEssivSha256 => "aes-cbc-essiv:sha256",
        }
    }

    /// The lengths a key can have: for AES-128 and for AES-256. XTS takes two keys of the cipher.
    pub fn key_bytes(self) -> [usize; 2] {
        match self {
            Self::AesXtsPlain64 => [32, 64],
            Self::AesCbcEssivSha256 => [16, 32],
        }
    }

    /// Refuses a key length that the cipher does not have; `field` is where it stands.
    pub fn check_key_bytes(self, field: &str, key_bytes: usize) -> Result<(), FieldError> {
        let [short, long] = self.key_bytes();
        if [short, long].contains(&key_bytes) {
            return Ok(());
        }
        Err(FieldError::new(
            field.to_owned(),
            key_bytes,
            format!("{self} has keys of {short} or {long} bytes"),
        ))
    }

    /// Reads the name that stands in `field`.
    pub fn parse(field: &str, name: &str) -> Result<Self, FieldError> {
        let known = Self::ALL.map(Self::name).join(" and ");
        let error =
            || FieldError::new(field.to_owned(), format_args!("'{name}'"), format!("{known} are supported"));
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(error)
    }
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Encryption {
    type Err = FieldError;

    fn from_str(name: &str) -> Result<Self, FieldError> {
        Self::parse("cipher", name)
    }
}
