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
    /// Memory of Argon2 times its passes.
    pub argon2_work_kib: u64,
    /// Rounds of PBKDF2, of a keyslot or of a digest.
    pub pbkdf2_iterations: u32,
}

impl Default for Limits {
    /// 4 GiB: the most cryptsetup itself accepts (`MAX_ARGON2_MEMORY`, luks2 specification). It chooses at most 1 GiB
    /// when it formats, and costs that take two seconds. The others are a hundred times as much: minutes instead of
    /// the hours or years that a damaged header may ask for.
    fn default() -> Self {
        Self { argon2_memory_kib: 4 << 20, argon2_work_kib: 1 << 28, pbkdf2_iterations: 1 << 28 }
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
            check_iterations("kdf.iterations", *iterations, limits)?;
            Hash::parse(hash)?.pbkdf2(passphrase, &salt.0, *iterations, key.bytes_mut());
        }
        Kdf::Argon2i(costs) => argon2(Algorithm::Argon2i, costs, passphrase, &mut key, limits)?,
        Kdf::Argon2id(costs) => argon2(Algorithm::Argon2id, costs, passphrase, &mut key, limits)?,
    }
    Ok(key)
}

/// Refuses rounds that are none, or that would take too long.
pub(crate) fn check_iterations(field: &'static str, found: u32, limits: Limits) -> Result<(), KdfError> {
    let most = limits.pbkdf2_iterations;
    if (1..=most).contains(&found) {
        return Ok(());
    }
    Err(refuse(field, found, format!("1 to {most} iterations are allowed")))
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
    let most = limits.argon2_work_kib / u64::from(*memory).max(1);
    if u64::from(*time) > most {
        let right = format!("at most {most} passes over kdf.memory {memory} KiB are allowed");
        return Err(refuse("kdf.time", time, right));
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
