//! The partial parity log (PPL) of RAID-5: what makes parity right after a crash even when a member is missing.
//!
//! Before a stripe is written in part, the xor of the data that the write leaves alone goes to a log on the member
//! that holds the stripe's parity. After a crash, that xor and whatever reached the written members give a parity
//! under which the data left alone can still be rebuilt. A whole stripe is logged without partial parity.
//! The format is the kernel's (raid5-ppl.c): one log at the start of each member's area.

mod recover;

pub use recover::{LogPlace, MemberStorage, PplReport, recover};
