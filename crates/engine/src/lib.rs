//! The sans-IO array engine: an input comes in, actions go out, nothing waits inside.
//!
//! The crate owns what an array *decides*: where a sector lies ([`geometry`]), what a write must read,
//! compute and write ([`mod@array`]), in which order, and what a failure means. It does no I/O, reads no clock,
//! starts no thread, draws no random number and has no `unsafe`; the two loops (the crates `host` and `sim`)
//! do that around it.
#![forbid(unsafe_code)]

pub mod array;
pub mod assembly;
pub mod cache;
pub mod crypt;
#[cfg(test)]
mod draws;
pub mod geometry;
pub mod io;
pub mod journal;
pub mod metadata;
pub mod mutation;
pub mod policy;
pub mod ppl;
pub mod stack;
pub mod units;
pub mod volume;
pub mod workload;

pub use stripewise_format::level;
