//! The devices of a run: what ails them, and what they are to the array.

use std::collections::BTreeSet;

use stripewise_engine::array::slots::SlotSet;
use stripewise_engine::array::survives;
use stripewise_engine::io::{AdminCommand, AdminReply};
use stripewise_engine::units::{MemberIndex, SectorRange, Slot};

use super::{Driver, Pending};
use crate::checker::failure::Failure;
use crate::faults::{Fault, MemberStorage, Survival};
use crate::random::Random;

/// A device, and what ails it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an ailment of its own")]
pub(in crate::checker) struct Device {
    pub(super) storage: MemberStorage,
    pub(super) gone: bool,
    pub(super) comes_back: bool,
    pub(super) flaky_percent: u8,
    pub(super) failing_percent: u8,
    /// Sectors that take no writes.
    pub(super) stuck: BTreeSet<u64>,
    pub(super) slow: bool,
    /// Something was wrong with it once, or somebody said so: the array may do without it.
    pub(super) blamed: bool,
    /// The slot it held when it left the array.
    pub(super) left: Option<(Slot, MemberIndex)>,
}

impl Device {
    pub(super) fn new(storage: MemberStorage) -> Self {
        Self {
            storage,
            gone: false,
            comes_back: false,
            flaky_percent: 0,
            failing_percent: 0,
            stuck: BTreeSet::new(),
            slow: false,
            blamed: false,
            left: None,
        }
    }

    /// Whether it is not to be relied on.
    pub(super) fn ails(&self) -> bool {
        let is_damaged = self.storage.is_spoilt() || !self.stuck.is_empty();
        self.gone || self.flaky_percent > 0 || self.failing_percent > 0 || is_damaged
    }

    /// How many sectors of a write come before one that takes none, if there is one. Another time it may take it.
    pub(super) fn stuck_at(&mut self, range: SectorRange, random: &mut Random) -> Option<u64> {
        let sector = self.stuck.range(range.start..range.end()).next().copied()?;
        if random.chance(50) {
            self.stuck.retain(|stuck| *stuck < range.start || *stuck >= range.end());
        }
        Some(sector - range.start)
    }
}

impl Driver {
    /// The device that is the member of a slot.
    pub(super) fn device_of(&self, slot: Slot) -> Option<&Device> {
        let device = (*self.member_devices.get(self.volume.member_of(slot)?.index())?)?;
        Some(&self.devices[device])
    }

    /// # Panics
    /// If the engine names a member that the array has not: a bug of the engine.
    pub(super) fn device_index(&self, member: MemberIndex) -> usize {
        self.member_devices[member.index()].expect("the engine names members that are there")
    }

    /// Whether a slot has no member that is to be relied on for all of its content: it is gone or ails, or is listed not to hold
    /// some of it.
    pub(super) fn ails(&self, slot: Slot) -> bool {
        self.device_of(slot).is_none_or(Device::ails) || self.has_listed(slot)
    }

    /// Notes who holds which slot, and who has left one.
    pub(super) fn note_slots(&mut self) {
        let device = |member: MemberIndex| self.member_devices.get(member.index()).copied().flatten();
        let now: Vec<Option<usize>> =
            self.slots().map(|slot| self.volume.member_of(slot).and_then(device)).collect();
        for (slot, before) in self.slots().zip(&self.slot_devices) {
            let Some(before) = before.filter(|b| now[slot.index()] != Some(*b)) else { continue };
            let member = self.member_devices.iter().position(|d| *d == Some(before));
            self.devices[before].left = member.map(|member| (slot, MemberIndex(member as u16)));
        }
        self.slot_devices = now;
    }

    /// Whether the volume holds a slot's content to be on its member up to a sector.
    pub(super) fn holds(&self, slot: Slot, end: u64) -> bool {
        self.volume.member_of(slot).is_some()
            && self.volume.recovered_sectors(slot).is_none_or(|sectors| end <= sectors)
    }

    /// Whether every slot has a member that holds all of its content, and none of them ails.
    pub fn is_complete(&self) -> bool {
        self.slots().all(|slot| self.holds(slot, u64::MAX) && self.device_of(slot).is_some_and(|d| !d.ails()))
    }

    /// Slots that lack some of their content, or whose member ails.
    pub(super) fn unreliable(&self) -> SlotSet {
        // Until it is recorded that a device was replaced a power cut brings it back, and until it is that one was recovered
        // none of the superblocks that are left may know it.
        let is_recorded = self.volume.is_recorded();
        let left = |device: &Device| device.left.filter(|_| !is_recorded).map(|(slot, _)| slot);
        let is_unreliable = |slot: &Slot| {
            self.volume.recovered_sectors(*slot).is_some()
                || !is_recorded && self.recovered.contains(*slot)
                || self.ails(*slot)
                || self.devices.iter().any(|d| left(d) == Some(*slot) && d.ails())
        };
        self.slots().filter(is_unreliable).collect()
    }

    /// Whether the array survives a slot's loss beside those lost and ailing.
    pub fn survives_without(&self, slot: Slot) -> bool {
        survives(&self.geometry, self.unreliable().union(SlotSet::one(slot)))
    }

    /// Lets something go wrong with a device, unless that is more than the array survives.
    pub fn fault(&mut self, fault: Fault) {
        let (number, how): (u16, &dyn Fn(&mut Device)) = match &fault {
            Fault::PowerCut { after_writes, survival } => {
                self.cut = Some((self.tally.member_writes + u64::from(*after_writes) + 1, *survival));
                return;
            }
            Fault::Death { device, comes_back } => (*device, &|d| {
                d.gone = true;
                d.comes_back = *comes_back;
            }),
            Fault::Latent { device, sector, count } => {
                let range = self.data_of(*sector, *count);
                (*device, &move |d| d.storage.spoil(range))
            }
            Fault::Stuck { device, sector, count } => {
                let range = self.data_of(*sector, *count);
                (*device, &move |d| {
                    d.storage.spoil(range);
                    d.stuck.extend(range.start..range.end());
                })
            }
            Fault::Flaky { device, percent } => (*device, &|d| d.flaky_percent = *percent),
            Fault::FailingWrites { device, percent } => (*device, &|d| d.failing_percent = *percent),
            Fault::Slow { device, slow } => (*device, &|d| d.slow = *slow),
        };
        let index = usize::from(number) % self.devices.len();
        let slot = self.slots().find(|slot| self.slot_devices[slot.index()] == Some(index));
        let slot =
            slot.or(self.devices[index].left.map(|(slot, _)| slot).filter(|_| !self.volume.is_recorded()));
        let is_harmless = matches!(fault, Fault::Slow { .. });
        if is_harmless || slot.is_none_or(|slot| self.survives_without(slot)) {
            how(&mut self.devices[index]);
            self.devices[index].blamed |= !is_harmless;
            slot.filter(|_| !is_harmless).into_iter().for_each(|slot| self.doubt(slot));
        }
    }

    /// A run of sectors of a device's data, cut to their end.
    fn data_of(&self, sector: u64, count: u64) -> SectorRange {
        let first = sector % self.plan.data_sectors;
        SectorRange::new(self.data_offset_sectors + first, count.min(self.plan.data_sectors - first))
    }

    /// Lets a slot's member die, though it may be one too many.
    pub fn kill(&mut self, slot: Slot) {
        if let Some(device) = self.slot_devices[slot.index()] {
            self.devices[device].gone = true;
            self.devices[device].blamed = true;
            self.doubt(slot);
        }
    }

    /// Brings back a device that has left the array: with what it held if the bitmap knows what it misses, or there is
    /// none; as a spare otherwise.
    ///
    /// # Errors
    /// A broken promise.
    pub fn bring_back(&mut self, number: u16) -> Result<(), Failure> {
        let out: Vec<usize> =
            (0..self.devices.len()).filter(|index| self.devices[*index].left.is_some()).collect();
        let Some(&index) = out.get(usize::from(number) % out.len().max(1)) else { return Ok(()) };
        let Some((slot, member)) = self.devices[index].left else { return Ok(()) };
        self.replug(index);
        let devices: Vec<Option<&MemberStorage>> =
            self.devices.iter().map(|d| (!d.gone).then_some(&d.storage)).collect();
        let knows = !self.plan.has_bitmap() || self.plan.is_re_addable(&devices, index, slot);
        let has_log = self.plan.empty_log(&mut self.devices[index].storage);
        let re_adds = self.volume.member_of(slot).is_none() && knows && !has_log;
        let command =
            if re_adds { AdminCommand::ReAdd { slot, member } } else { AdminCommand::AddSpare(member) };
        if self.admin(command)? == Some(AdminReply::Done) {
            self.devices[index].left = None;
            self.tally.re_added += u64::from(re_adds);
        }
        Ok(())
    }

    /// Takes a device's power and gives it back: nothing ails it any more.
    fn replug(&mut self, index: usize) {
        let survival = Survival::Seeded(self.random.next_u64());
        for pending in &mut self.pending {
            if let Pending::Io { io, doomed, .. } = pending {
                *doomed |= self.member_devices[io.member.index()] == Some(index);
            }
        }
        let device = &mut self.devices[index];
        device.storage.power_cut(&[], survival, 0);
        device.storage.mend();
        // What was under way to it is answered with errors yet, whatever it is by then.
        device.blamed = true;
        device.gone = false;
        device.flaky_percent = 0;
        device.failing_percent = 0;
        device.stuck.clear();
    }
}
