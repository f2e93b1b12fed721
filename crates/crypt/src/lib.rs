//! dm-crypt's sectors and LUKS containers.
//!
//! Contract: what is written here, dm-crypt and cryptsetup read, and the other way round. Ciphers work in place and
//! from a source to a target, over any number of sectors, and allocate nothing. Keys, passphrases and what is derived
//! from them are wiped when they are dropped. No size read from a header decides what is allocated before it was
//! compared with a limit (see [`Limits`](kdf::Limits)).
#![forbid(unsafe_code)]

mod af;
pub mod cipher;
pub mod container;
pub mod create;
pub mod hash;
pub mod kdf;
pub mod key;
pub mod store;
