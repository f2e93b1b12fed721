//! What Linux md writes on its members, as values: superblocks 0.90 and 1.x, the internal write-intent bitmap, the
//! bad-block log, the partial parity log (PPL), the log of a write journal, and where mdadm puts each of them.
//!
//! Contract: bytes in, values out and back. Nothing here reads a device, asks the time or draws a random number.
//! Every number read is checked before it is used; a structure that cannot be right is refused with an error that
//! names the field, the value found and what would be right. What is allocated is bounded by the structure's own
//! place on the device (4 KiB for all but the bitmap's bits, whose bytes the caller has already read).
#![forbid(unsafe_code)]

pub mod add;
pub mod bad_blocks;
pub mod bitmap;
mod bytes;
pub mod create;
pub mod device_flags;
pub mod error;
pub mod examine;
pub mod grow;
pub mod journal;
pub mod level;
pub mod luks;
pub mod placement;
pub mod ppl;
pub mod superblock;
pub mod superblock_0;
pub mod superblock_1;
pub mod time;
pub mod uuid;
