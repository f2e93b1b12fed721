//! From a passphrase to the key of a keyslot's area, within limits.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use stripewise_format::error::FieldError;
use stripewise_format::luks::{Argon2 as Costs, Kdf};

use crate::hash::Hash;
use crate::key::Secret;

/// What a header may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of Argon2.
    pub argon2_memory_kib: u32,
    /// Passes of Argon2.
    pub argon2_time: u32,
}

impl Default for Limits {
    /// 4 GiB: the most cryptsetup itself accepts (`MAX_ARGON2_MEMORY`, luks2 specification). It chooses at most 1 GiB
    /// when it formats. A thousand passes over that would take hours.
    fn default() -> Self {
        Self { argon2_memory_kib: 4 << 20, argon2_time: 1000 }
    }
}

/// Why no key is derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KdfError {
    /// A value of the header.
    Field(FieldError),
    /// This machine has not got the memory that the keyslot asks for.
    OutOfMemory {
        /// What it asks for.
        memory_kib: u32,
    },
}

impl fmt::Display for KdfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(error) => error.fmt(f),
            Self::OutOfMemory { memory_kib } => {
                write!(f, "kdf.memory is {memory_kib} KiB; this machine has not got as much free")
            }
        }
    }
}

impl std::error::Error for KdfError {}

impl From<FieldError> for KdfError {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

fn refuse(field: &'static str, found: impl fmt::Display, right: impl Into<String>) -> KdfError {
    KdfError::Field(FieldError { field: field.into(), found: found.to_string(), right: right.into() })
}

/// Derives `key_bytes` from a passphrase.
pub fn derive(kdf: &Kdf, passphrase: &[u8], key_bytes: usize, limits: Limits) -> Result<Secret, KdfError> {
    let mut key = Secret::zeroed(key_bytes);
    match kdf {
        Kdf::Pbkdf2 { hash, iterations, salt } => {
            if *iterations == 0 {
                return Err(refuse("kdf.iterations", 0, "there is at least one"));
            }
            Hash::parse(hash)?.pbkdf2(passphrase, &salt.0, *iterations, key.bytes_mut());
        }
        Kdf::Argon2i(costs) => argon2(Algorithm::Argon2i, costs, passphrase, &mut key, limits)?,
        Kdf::Argon2id(costs) => argon2(Algorithm::Argon2id, costs, passphrase, &mut key, limits)?,
    }
    Ok(key)
}

fn argon2(
    algorithm: Algorithm,
    costs: &Costs,
    passphrase: &[u8],
    key: &mut Secret,
    limits: Limits,
) -> Result<(), KdfError> {
    let Costs { time, memory, cpus, salt } = costs;
    if *memory > limits.argon2_memory_kib {
        return Err(refuse(
            "kdf.memory",
            memory,
            format!("at most {} KiB are allowed", limits.argon2_memory_kib),
        ));
    }
    if *time > limits.argon2_time {
        return Err(refuse("kdf.time", time, format!("at most {} passes are allowed", limits.argon2_time)));
    }
    let params = Params::new(*memory, *time, *cpus, Some(key.bytes().len())).map_err(|error| {
        let found = format!("time {time}, memory {memory}, cpus {cpus}");
        refuse("kdf", found, format!("Argon2 has no such costs: {error}"))
    })?;
    let argon2 = Argon2::new(algorithm, Version::V0x13, params);
    argon2.hash_password_into(passphrase, &salt.0, key.bytes_mut()).map_err(|error| match error {
        argon2::Error::OutOfMemory => KdfError::OutOfMemory { memory_kib: *memory },
        error => refuse("kdf.salt", format_args!("{} bytes", salt.0.len()), error.to_string()),
    })
}
