//! RAID-4, 5 and 6: which slot holds P, Q and each data chunk of a stripe, and the order of Q's coefficients
//! (md's raid5.c, `raid5_compute_sector` and `raid6_idx_to_slot`).

use super::divisor::Divisor;
use super::{Holds, Place};
use crate::io::Role;
use crate::level::{Level, ParityLayout};
use crate::units::Slot;

/// Q has 255 distinct coefficients; the DDF layouts number all members with them.
pub(super) const RAID6_MEMBERS_MAX: usize = 255;

/// What a slot holds in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeRole {
    /// The data chunk of this index, counted in array order.
    Data(u16),
    /// P.
    P,
    /// Q.
    Q,
}

/// The map of a level with parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityShape {
    layout: ParityLayout,
    raid_disks: u16,
    parity_disks: u16,
    chunk_sectors: u64,
    chunk_shift: u32,
    /// Chunks of a stripe by kind: of data, of all, and of all but one.
    data: Divisor,
    all: Divisor,
    all_but_one: Divisor,
}

/// The order of data chunks in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataOrder {
    /// Ascending slots, leaving out P and Q.
    Ascending,
    /// From this slot on, around the first so many slots.
    From(u16, u16),
}

/// Which slot holds what in one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeMap {
    /// Slot of P.
    pub p: Slot,
    /// Slot of Q, for RAID-6.
    pub q: Option<Slot>,
    order: DataOrder,
    raid_disks: u16,
    ddf: bool,
}

impl ParityShape {
    pub(super) fn new(level: Level, layout: ParityLayout, raid_disks: u16, chunk_sectors: u64) -> Self {
        Self {
            layout,
            raid_disks,
            parity_disks: level.parity_count(),
            chunk_sectors,
            chunk_shift: chunk_sectors.trailing_zeros(),
            data: Divisor::new(u64::from(raid_disks - level.parity_count())),
            all: Divisor::new(raid_disks.into()),
            all_but_one: Divisor::new(u64::from(raid_disks) - 1),
        }
    }

    /// Data chunks in a stripe.
    pub const fn data_disks(&self) -> u16 {
        self.raid_disks - self.parity_disks
    }

    /// Parity chunks in a stripe: 1 or 2.
    pub const fn parity_disks(&self) -> u16 {
        self.parity_disks
    }

    /// Data sectors in a stripe.
    pub const fn stripe_sectors(&self) -> u64 {
        self.chunk_sectors * self.data_disks() as u64
    }

    /// The map of a stripe (the row of chunks `stripe` chunks into each member).
    #[inline]
    pub fn stripe(&self, stripe: u64) -> StripeMap {
        let order = if self.parity_disks == 2 { self.raid6(stripe) } else { self.raid5(stripe) };
        StripeMap { raid_disks: self.raid_disks, ddf: self.layout.is_ddf(), ..order }
    }

    #[inline]
    fn raid5(&self, stripe: u64) -> StripeMap {
        let n = self.raid_disks;
        let turn = self.all.div_rem(stripe).1 as u16;
        let (p, symmetric) = match self.layout {
            ParityLayout::LeftAsymmetric => (n - 1 - turn, false),
            ParityLayout::RightAsymmetric => (turn, false),
            ParityLayout::RightSymmetric => (turn, true),
            ParityLayout::ParityFirst => (0, false),
            ParityLayout::ParityLast => (n - 1, false),
            _ => (n - 1 - turn, true),
        };
        let order = if symmetric { DataOrder::From(wrapped(p + 1, n), n) } else { DataOrder::Ascending };
        StripeMap { p: Slot(p), q: None, order, raid_disks: n, ddf: false }
    }

    fn raid6(&self, stripe: u64) -> StripeMap {
        use ParityLayout as L;
        let n = self.raid_disks;
        let turn = self.all.div_rem(stripe).1 as u16;
        // The *-6 layouts rotate P over all slots but the last, which holds Q.
        let turn_6 = self.all_but_one.div_rem(stripe).1 as u16;
        let (p, q, order) = match self.layout {
            L::LeftAsymmetric => (n - 1 - turn, n - turn, DataOrder::Ascending),
            L::RightAsymmetric | L::DdfZeroRestart => (turn, turn + 1, DataOrder::Ascending),
            L::LeftSymmetric => (n - 1 - turn, n - turn, DataOrder::From((n + 1 - turn) % n, n)),
            L::RightSymmetric => (turn, turn + 1, DataOrder::From((turn + 2) % n, n)),
            L::ParityFirst => (0, 1, DataOrder::Ascending),
            L::ParityLast => (n - 2, n - 1, DataOrder::Ascending),
            L::DdfNRestart => {
                let turn = (turn + 1) % n;
                (n - 1 - turn, n - turn, DataOrder::Ascending)
            }
            L::DdfNContinue => (n - 1 - turn, n - 1 - turn + n - 1, DataOrder::From((n - turn) % n, n)),
            L::LeftAsymmetric6 => (n - 2 - turn_6, n - 1, DataOrder::Ascending),
            L::RightAsymmetric6 => (turn_6, n - 1, DataOrder::Ascending),
            L::LeftSymmetric6 => (n - 2 - turn_6, n - 1, DataOrder::From((n - 1 - turn_6) % (n - 1), n - 1)),
            L::RightSymmetric6 => (turn_6, n - 1, DataOrder::From((turn_6 + 1) % (n - 1), n - 1)),
            L::ParityFirst6 => (0, n - 1, DataOrder::Ascending),
        };
        StripeMap { p: Slot(p), q: Some(Slot(q % n)), order, raid_disks: n, ddf: false }
    }

    /// The stripe, the data chunk in it, and the sector within the chunk, of an array sector.
    #[inline]
    pub fn split(&self, sector: u64) -> (u64, u16, u64) {
        let chunk = sector >> self.chunk_shift;
        let (stripe, data) = self.data.div_rem(chunk);
        (stripe, data as u16, sector & (self.chunk_sectors - 1))
    }

    /// The member's sector at an offset of a stripe's chunks.
    #[inline]
    pub(crate) const fn member_sector(&self, stripe: u64, offset: u64) -> u64 {
        stripe << self.chunk_shift | offset
    }

    /// The map of the stripe that has a member's sector.
    #[inline]
    pub fn stripe_at(&self, member_sector: u64) -> StripeMap {
        self.stripe(member_sector >> self.chunk_shift)
    }

    #[inline(never)]
    pub(super) fn place(&self, sector: u64) -> Place {
        self.locate(sector).0
    }

    /// Where an array sector lies, and how many sectors from it on lie there in one piece (up to the end of the chunk).
    #[expect(clippy::inline_always, reason = "every read asks, and what it makes is taken apart at once")]
    #[inline(always)]
    pub(crate) fn locate(&self, sector: u64) -> (Place, u64) {
        let (stripe, data, offset) = self.split(sector);
        let map = if self.parity_disks == 2 { self.raid6(stripe) } else { self.raid5(stripe) };
        let place = Place { slot: map.data_slot(data), sector: self.member_sector(stripe, offset) };
        (place, self.chunk_sectors - offset)
    }

    pub(super) fn holds(&self, place: Place) -> Holds {
        let stripe = place.sector >> self.chunk_shift;
        match self.stripe(stripe).role(place.slot) {
            StripeRole::Data(data) => Holds::Data(
                (stripe * u64::from(self.data_disks()) + u64::from(data)) * self.chunk_sectors
                    + (place.sector & (self.chunk_sectors - 1)),
            ),
            StripeRole::P | StripeRole::Q => Holds::Parity,
        }
    }
}

/// The remainder of a number below `2 × around`: every block of every stripe asks for one, and a division costs more.
#[inline]
const fn wrapped(number: u16, around: u16) -> u16 {
    if number >= around { number - around } else { number }
}

impl StripeMap {
    /// The map of no stripe.
    pub(crate) const EMPTY: Self =
        Self { p: Slot(0), q: None, order: DataOrder::Ascending, raid_disks: 0, ddf: false };

    /// Slot of a data chunk.
    #[inline]
    pub fn data_slot(&self, data: u16) -> Slot {
        match self.order {
            DataOrder::From(first, around) => Slot(wrapped(first + data, around)),
            DataOrder::Ascending => {
                let (low, high) = self.parity_slots();
                let mut slot = data;
                slot += u16::from(slot >= low);
                slot += u16::from(slot >= high);
                Slot(slot)
            }
        }
    }

    /// P's and Q's slots in ascending order; without Q the second is beyond all slots.
    fn parity_slots(&self) -> (u16, u16) {
        let q = self.q.map_or(u16::MAX, |q| q.0);
        (self.p.0.min(q), self.p.0.max(q))
    }

    /// What a slot holds.
    pub fn role(&self, slot: Slot) -> StripeRole {
        if slot == self.p {
            return StripeRole::P;
        }
        if Some(slot) == self.q {
            return StripeRole::Q;
        }
        StripeRole::Data(match self.order {
            DataOrder::From(first, around) => wrapped(slot.0 + around - first, around),
            DataOrder::Ascending => {
                let (low, high) = self.parity_slots();
                slot.0 - u16::from(slot.0 > low) - u16::from(slot.0 > high)
            }
        })
    }

    /// What part a slot's block plays in the parity computation. Q's coefficients are counted from the slot
    /// after Q around the members, P left out; in DDF layouts they are the slots' own numbers.
    pub fn operand_role(&self, slot: Slot) -> Role {
        match (self.role(slot), self.q) {
            (StripeRole::P, _) => Role::P,
            (StripeRole::Q, _) => Role::Q,
            (StripeRole::Data(data), None) => Role::Data(data),
            (StripeRole::Data(_), Some(_)) if self.ddf => Role::Data(slot.0),
            (StripeRole::Data(_), Some(q)) => {
                let distance = |s: u16| wrapped(s + self.raid_disks - q.0 - 1, self.raid_disks);
                Role::Data(distance(slot.0) - u16::from(distance(self.p.0) < distance(slot.0)))
            }
        }
    }
}
