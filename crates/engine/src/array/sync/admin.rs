//! Administrators' commands. A command that is refused changes nothing.

use stripewise_format::device_flags::DeviceFlags;

use super::{SpeedLimits, Sync, has_redundancy, may_begin};
use crate::array::core::Core;
use crate::array::members::Standing;
use crate::array::slot_exists;
use crate::io::{ActionQueue, AdminCommand, AdminReply, SyncAction};
use crate::metadata::StateChange;
use crate::mutation::{self, Mutation};
use crate::units::{MEMBERS_MAX, MemberIndex, Slot};

impl Sync {
    /// Carries out a command, or says why not.
    pub(crate) fn admin(
        &mut self,
        core: &mut Core,
        out: &mut ActionQueue,
        command: AdminCommand,
    ) -> AdminReply {
        let result = match command {
            AdminCommand::Stop => unreachable!("answered when the members say so"),
            AdminCommand::Fail(slot) => fail(core, out, slot),
            AdminCommand::Remove(member) => remove(core, member),
            AdminCommand::AddSpare(member) => add_spare(core, member),
            AdminCommand::ReAdd { slot, member } => self.re_add(core, slot, member),
            AdminCommand::Replace { slot, with } => replace(core, slot, with),
            AdminCommand::CancelReplacement(slot) => cancel_replacement(core, out, slot),
            AdminCommand::SetFlags { member, flags } => set_flags(core, member, flags),
            AdminCommand::Sync(action) => self.ask(core, action),
            AdminCommand::SetSpeed { min_kib, max_kib } => {
                if min_kib == 0 || min_kib > max_kib {
                    Err(AdminReply::BadSpeed)
                } else {
                    self.speed.limits = SpeedLimits { min_kib, max_kib };
                    Ok(())
                }
            }
        };
        result.err().unwrap_or(AdminReply::Done)
    }

    fn ask(&mut self, core: &Core, action: SyncAction) -> Result<(), AdminReply> {
        if !has_redundancy(core) {
            return Err(AdminReply::NoRedundancy);
        }
        match action {
            SyncAction::Idle | SyncAction::Frozen => {
                self.frozen = action == SyncAction::Frozen;
                // What was given up begins again, as in Linux.
                self.gave_up &= self.frozen;
                self.asked = None;
                self.interrupt();
                Ok(())
            }
            _ if !may_begin(core, action) => Err(AdminReply::ArrayFailed),
            _ if self.run.is_some() || self.asked.is_some() => Err(AdminReply::Busy),
            // These begin by themselves; asking ends what kept them from it.
            SyncAction::Recover | SyncAction::Resync => {
                self.frozen = false;
                self.gave_up = false;
                self.interrupt();
                Ok(())
            }
            SyncAction::Check | SyncAction::Repair | SyncAction::RepairLocated => {
                self.asked = Some(action);
                Ok(())
            }
        }
    }

    fn re_add(&mut self, core: &mut Core, slot: Slot, member: MemberIndex) -> Result<(), AdminReply> {
        slot_in(core, slot)?;
        addable(core, member)?;
        if !core.failed.contains(slot) {
            return Err(AdminReply::InUse);
        }
        if core.read_only {
            return Err(AdminReply::ArrayFailed);
        }
        core.take_slot(slot, member, 0);
        if let Some(intent) = &mut core.intent {
            if !mutation::is(Mutation::ReAddWithoutBitmap) {
                intent.need_all_set();
            }
            self.returned.insert(slot);
        }
        Ok(())
    }
}

fn slot_in(core: &Core, slot: Slot) -> Result<(), AdminReply> {
    if slot_exists(&core.geometry, slot) { Ok(()) } else { Err(AdminReply::NoSuchSlot) }
}

fn fail(core: &mut Core, out: &mut ActionQueue, slot: Slot) -> Result<(), AdminReply> {
    slot_in(core, slot)?;
    if core.fail(out, slot) { Ok(()) } else { Err(AdminReply::AlreadyFailed) }
}

fn remove(core: &mut Core, member: MemberIndex) -> Result<(), AdminReply> {
    match core.members.standing(member) {
        Standing::Absent => Err(AdminReply::NoSuchMember),
        Standing::InSlot(_) | Standing::Replacement(_) | Standing::Journal => Err(AdminReply::InUse),
        Standing::Spare | Standing::Failed => {
            core.members.set_standing(member, Standing::Absent);
            core.changed(StateChange::MemberRemoved(member));
            Ok(())
        }
    }
}

/// Whether a member of the loop's table may come into the array.
fn addable(core: &Core, member: MemberIndex) -> Result<(), AdminReply> {
    if !has_redundancy(core) {
        return Err(AdminReply::NoRedundancy);
    }
    if core.read_only {
        return Err(AdminReply::ArrayFailed);
    }
    if member.index() >= 2 * MEMBERS_MAX {
        return Err(AdminReply::NoSuchMember);
    }
    match core.members.standing(member) {
        // Until its failure is recorded a crash would bring it back with its old content.
        Standing::Failed if core.held.is_holding => Err(AdminReply::Busy),
        Standing::Absent | Standing::Failed => Ok(()),
        _ => Err(AdminReply::InUse),
    }
}

fn add_spare(core: &mut Core, member: MemberIndex) -> Result<(), AdminReply> {
    addable(core, member)?;
    core.members.set_standing(member, Standing::Spare);
    core.changed(StateChange::SpareAdded(member));
    // What runs goes on unless the spare is needed.
    core.standing_changed |= !core.failed.is_empty();
    Ok(())
}

fn cancel_replacement(core: &mut Core, out: &mut ActionQueue, slot: Slot) -> Result<(), AdminReply> {
    slot_in(core, slot)?;
    let replacement = core.members.replacement(slot).ok_or(AdminReply::NoSuchMember)?;
    core.drop_replacement(out, slot, replacement.member);
    Ok(())
}

fn set_flags(core: &mut Core, member: MemberIndex, flags: DeviceFlags) -> Result<(), AdminReply> {
    if !has_redundancy(core) {
        return Err(AdminReply::NoRedundancy);
    }
    if core.read_only {
        return Err(AdminReply::ArrayFailed);
    }
    match core.members.standing(member) {
        Standing::Absent => Err(AdminReply::NoSuchMember),
        // Its superblock stays as it was left.
        Standing::Failed => Err(AdminReply::AlreadyFailed),
        Standing::Journal => Err(AdminReply::InUse),
        Standing::InSlot(_) | Standing::Replacement(_) | Standing::Spare => {
            core.set_write_mostly(member, flags.is_write_mostly);
            core.changed(StateChange::Flags(member, flags));
            Ok(())
        }
    }
}

fn replace(core: &mut Core, slot: Slot, with: Option<MemberIndex>) -> Result<(), AdminReply> {
    if !has_redundancy(core) {
        return Err(AdminReply::NoRedundancy);
    }
    slot_in(core, slot)?;
    if core.read_only {
        return Err(AdminReply::ArrayFailed);
    }
    if core.failed.contains(slot) {
        return Err(AdminReply::AlreadyFailed);
    }
    if core.members.replacing.contains(slot) || core.members.recovering.contains(slot) {
        return Err(AdminReply::Busy);
    }
    let member = match with {
        None => core.members.first_spare().ok_or(AdminReply::NoSpare)?,
        Some(member) => match core.members.standing(member) {
            Standing::Spare => member,
            Standing::Absent => return Err(AdminReply::NoSuchMember),
            _ => return Err(AdminReply::InUse),
        },
    };
    core.begin_replacement(slot, member, 0);
    Ok(())
}
