//! The hashes that headers name.

use std::fmt;

use pbkdf2::pbkdf2_hmac;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use stripewise_format::error::FieldError;

/// A hash of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// LUKS1's until 2017.
    Sha1,
    /// cryptsetup's choice since.
    Sha256,
    /// `--hash sha512`.
    Sha512,
}

impl Hash {
    const ALL: [Self; 3] = [Self::Sha1, Self::Sha256, Self::Sha512];

    /// The name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Reads a header's name.
    pub fn parse(name: &str) -> Result<Self, FieldError> {
        Self::ALL.into_iter().find(|hash| hash.name() == name).ok_or_else(|| FieldError {
            field: "hash".into(),
            found: format!("'{name}'"),
            right: "sha1, sha256 and sha512 are supported".to_owned(),
        })
    }

    /// Bytes of a digest.
    pub fn digest_bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// PBKDF2 with HMAC.
    pub fn pbkdf2(self, password: &[u8], salt: &[u8], iterations: u32, out: &mut [u8]) {
        match self {
            Self::Sha1 => pbkdf2_hmac::<Sha1>(password, salt, iterations, out),
            Self::Sha256 => pbkdf2_hmac::<Sha256>(password, salt, iterations, out),
            Self::Sha512 => pbkdf2_hmac::<Sha512>(password, salt, iterations, out),
        }
    }

    /// Replaces each digest-long piece of `block` by the start of the hash of its number and itself: the diffusion
    /// of the anti-forensic splitter.
    pub(crate) fn diffuse(self, block: &mut [u8]) {
        match self {
            Self::Sha1 => diffuse::<Sha1>(block),
            Self::Sha256 => diffuse::<Sha256>(block),
            Self::Sha512 => diffuse::<Sha512>(block),
        }
    }
}

fn diffuse<D: Digest>(block: &mut [u8]) {
    for (number, piece) in (0_u32..).zip(block.chunks_mut(<D as Digest>::output_size())) {
        let digest = D::new().chain_update(number.to_be_bytes()).chain_update(&*piece).finalize();
        piece.copy_from_slice(&digest[..piece.len()]);
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
