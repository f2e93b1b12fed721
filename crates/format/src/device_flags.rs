//! md's flags of a device, as superblocks of either version keep them. A flag goes with the device, whatever slot it has.

use crate::superblock::Superblock;
use crate::superblock_0::{Disk, Superblock0};
use crate::superblock_1::Superblock1;

/// Bits of `devflags`: `WriteMostly1`, `FailFast1`.
const V1: Bits = Bits { write_mostly: 1, failfast: 1 << 1 };
/// Bits of `mdp_disk_t.state`: `MD_DISK_WRITEMOSTLY`, `MD_DISK_FAILFAST`.
const V0: Bits = Bits { write_mostly: 1 << 9, failfast: 1 << 10 };

/// The flags of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceFlags {
    /// Reads of a RAID-1 go to this device only if no other can answer.
    pub is_write_mostly: bool,
    /// Requests to this device fail fast, rather than after all that a driver can do.
    pub is_failfast: bool,
}

/// What is asked for of a device's flags; nothing leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlagsChange {
    /// mdadm's `--write-mostly`, or `--readwrite`.
    pub write_mostly: Option<bool>,
    /// mdadm's `--failfast`, or `--nofailfast`.
    pub failfast: Option<bool>,
}

impl FlagsChange {
    /// The flags after it.
    #[must_use]
    pub fn apply(self, flags: DeviceFlags) -> DeviceFlags {
        DeviceFlags {
            is_write_mostly: self.write_mostly.unwrap_or(flags.is_write_mostly),
            is_failfast: self.failfast.unwrap_or(flags.is_failfast),
        }
    }

    /// This, and then another.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        Self {
            write_mostly: later.write_mostly.or(self.write_mostly),
            failfast: later.failfast.or(self.failfast),
        }
    }
}

struct Bits {
    write_mostly: u32,
    failfast: u32,
}

impl Bits {
    const fn flags(&self, word: u32) -> DeviceFlags {
        DeviceFlags { is_write_mostly: word & self.write_mostly != 0, is_failfast: word & self.failfast != 0 }
    }

    /// The word with these flags and its other bits.
    const fn put(&self, word: u32, flags: DeviceFlags) -> u32 {
        let write_mostly = if flags.is_write_mostly { self.write_mostly } else { 0 };
        let failfast = if flags.is_failfast { self.failfast } else { 0 };
        word & !(self.write_mostly | self.failfast) | write_mostly | failfast
    }
}

impl DeviceFlags {
    /// mdadm's names of those that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let names = [(self.is_write_mostly, "write-mostly"), (self.is_failfast, "failfast")];
        names.into_iter().filter_map(|(is_set, name)| is_set.then_some(name))
    }
}

impl Disk {
    /// Every bit of [`Disk::state`] that is a device's flag.
    pub const DEVICE_FLAGS: u32 = V0.write_mostly | V0.failfast;

    /// The flags of the row's device.
    pub const fn device_flags(&self) -> DeviceFlags {
        V0.flags(self.state)
    }

    /// Gives the row's device these flags.
    pub const fn set_device_flags(&mut self, flags: DeviceFlags) {
        self.state = V0.put(self.state, flags);
    }
}

impl Superblock0 {
    /// The device's flags: those of its row in the table, as the kernel's `super_90_validate` takes them.
    pub const fn device_flags(&self) -> DeviceFlags {
        self.disks[self.this_disk.number as usize].device_flags()
    }

    /// Gives the device these flags, in both rows that are its own.
    pub const fn set_device_flags(&mut self, flags: DeviceFlags) {
        self.this_disk.set_device_flags(flags);
        self.disks[self.this_disk.number as usize].set_device_flags(flags);
    }
}

impl Superblock1 {
    /// The device's flags.
    pub const fn device_flags(&self) -> DeviceFlags {
        V1.flags(self.devflags as u32)
    }

    /// Gives the device these flags.
    pub const fn set_device_flags(&mut self, flags: DeviceFlags) {
        self.devflags = V1.put(self.devflags as u32, flags) as u8;
    }
}

impl Superblock {
    /// The device's flags.
    pub const fn device_flags(&self) -> DeviceFlags {
        match self {
            Self::V0(superblock) => superblock.device_flags(),
            Self::V1(superblock) => superblock.device_flags(),
        }
    }

    /// Gives the device these flags.
    pub const fn set_device_flags(&mut self, flags: DeviceFlags) {
        match self {
            Self::V0(superblock) => superblock.set_device_flags(flags),
            Self::V1(superblock) => superblock.set_device_flags(flags),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Level;
    use crate::uuid::Uuid;

    #[test]
    fn flags_are_set_and_cleared_among_other_bits_in_either_version() {
        let mut v0 = Superblock0::new(Level::Raid1, 2, Uuid([1; 16]));
        v0.this_disk = Disk { number: 1, state: Disk::ACTIVE | Disk::SYNC, ..Disk::default() };
        v0.disks[1] = v0.this_disk;
        let mut v1 = Superblock1::new(Level::Raid1, 2, 0, Uuid([1; 16]));
        v1.devflags = 1 << 7;
        for (write_mostly, failfast) in [(true, false), (true, true), (false, true), (false, false)] {
            let flags = DeviceFlags { is_write_mostly: write_mostly, is_failfast: failfast };
            let (mut one, mut other) =
                (Superblock::V0(Box::new(v0.clone())), Superblock::V1(Box::new(v1.clone())));
            one.set_device_flags(flags);
            other.set_device_flags(flags);
            assert_eq!((one.device_flags(), other.device_flags()), (flags, flags));
            let (Superblock::V0(one), Superblock::V1(other)) = (one, other) else { unreachable!() };
            let state = 0b110 | u32::from(write_mostly) << 9 | u32::from(failfast) << 10;
            assert_eq!((one.this_disk.state, one.disks[1].state, one.disks[0].state), (state, state, 0));
            assert_eq!(other.devflags, 1 << 7 | u8::from(write_mostly) | u8::from(failfast) << 1);
            (v0, v1) = (*one, *other);
        }
    }
}
