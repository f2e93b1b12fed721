//! What goes wrong with members, and what storage promises all the same.
//!
//! # The fault model
//! *A sector is atomic.* It holds, at every moment, what one write put there or what it held at the start. All else
//! may tear: a write of several sectors may leave any of them behind. Superblocks of version 0.90 are taken for atomic, as
//! md takes them: they are 4 KiB with one checksum, and a torn one is no superblock.
//! *The cache is volatile.* A write that was answered lies in the member's cache. It is durable once a flush was
//! answered that was asked for **after** the write was answered, or at once if it asked for forced unit access. A
//! power cut leaves of the other writes any selection, in any order, and so it does of writes that were asked for and
//! not answered. Members keep or lose each on its own.
//! *What was durable stays,* unless a fault below says otherwise.
//! *Answers come in any order.* A flush, too, may be answered before the writes that were asked for with it.
//!
//! # The faults
//! | fault | what the array sees | for how long |
//! |---|---|---|
//! | power cut | the run ends; see above | the members start anew with what survived |
//! | death | every command is answered `Gone`; of those in flight each may have been carried out | for ever, or until the next start |
//! | latent sector error | reads of the sector are answered `Media` | until the sector is written |
//! | stuck sector | reads and writes of the sector are answered `Media`; writes end there | until a write was refused, once or more often, or the member is replugged |
//! | flaky | some reads are answered `Media`, and succeed when asked again | while it lasts |
//! | failing writes | writes are answered `Media`, after some sectors were written or none | while it lasts |
//! | slow | answers come last | while it lasts |
//! | bit flip at rest | nothing: reads return wrong bytes | until the sector is written |
//! | misdirected write | nothing: the bytes land in another place of the member | until that is written |
//!
//! The two silent faults cannot be survived by an array that trusts its members; what can be asked is that a check
//! finds them and a repair mends what redundancy can tell.

mod storage;

pub use storage::{CommandWrite, MemberStorage, Survival};

/// A fault, and when it strikes: faults are steps of a scenario, between requests. Devices are named by their number,
/// the slots' first members and then the spares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Power fails when so many more writes were answered by members.
    PowerCut {
        /// How many.
        after_writes: u32,
        /// What survives.
        survival: Survival,
    },
    /// The device dies; with `comes_back`, it answers again after the next start, with what it held.
    Death {
        /// Which.
        device: u16,
        /// Whether it comes back.
        comes_back: bool,
    },
    /// A run of sectors of the device's data becomes unreadable, cut to their end.
    Latent {
        /// Which.
        device: u16,
        /// From which sector of its data.
        sector: u64,
        /// How many.
        count: u64,
    },
    /// A run of sectors of the device's data can be neither read nor written, cut to their end, until so many of the
    /// writes were refused.
    Stuck {
        /// Which.
        device: u16,
        /// From which sector of its data.
        sector: u64,
        /// How many.
        count: u64,
    },
    /// The device answers some of its reads with errors.
    Flaky {
        /// Which.
        device: u16,
        /// How many in a hundred; 0 mends it.
        percent: u8,
    },
    /// The device answers some of its writes with errors.
    FailingWrites {
        /// Which.
        device: u16,
        /// How many in a hundred; 0 mends it.
        percent: u8,
    },
    /// The device answers last.
    Slow {
        /// Which.
        device: u16,
        /// Whether it is slow from now on, or no longer.
        slow: bool,
    },
}
