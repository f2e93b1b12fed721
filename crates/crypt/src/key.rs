//! Bytes that must not stay in memory.

use std::fmt;

use zeroize::Zeroizing;

/// Secret bytes: a volume's key, a passphrase. Wiped when dropped, never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// As many zero bytes, to be written into.
    pub fn zeroed(len_bytes: usize) -> Self {
        Self(Zeroizing::new(vec![0; len_bytes]))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// A new key from the system's source of random numbers.
    pub fn random(len_bytes: usize) -> Result<Self, getrandom::Error> {
        let mut secret = Self::zeroed(len_bytes);
        getrandom::fill(secret.bytes_mut())?;
        Ok(secret)
    }
}

impl From<Vec<u8>> for Secret {
    /// Takes over the bytes; no copy is left behind.
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}
