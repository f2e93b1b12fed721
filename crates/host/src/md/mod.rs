//! Linux md's members on this machine: what lies on files and block devices, read and written whole.
//!
//! # Contract
//! Probing opens read-only and writes nothing. What is found on a member is never trusted: it is checked by
//! `stripewise-format`, and nothing is allocated by a size that it states.

pub mod assemble;
pub mod create;
pub mod grow;
pub mod journal;
mod logs;
mod open;
pub mod overlay;
pub mod paths;
pub mod probe;
pub mod signature;
pub mod zero;
