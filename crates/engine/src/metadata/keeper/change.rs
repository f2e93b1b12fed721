//! Changes: what happened to the array, as its superblocks will say it.

use super::Keeper;
use crate::array::core::Core;
use crate::array::slots::SlotSet;
use crate::metadata::StateChange;
use crate::metadata::superblocks::{Known, Standing};
use crate::mutation::{self, Mutation};
use crate::units::{MemberIndex, Slot};

/// What the round says that the next must not build upon before it is on the members.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    /// Slots that members were put into, to be filled.
    started: SlotSet,
    /// Slots that were filled.
    filled: SlotSet,
}

impl Said {
    pub(super) fn note(&mut self, change: StateChange) {
        match change {
            StateChange::SpareStarted { slot, .. } | StateChange::ReplacementStarted { slot, .. } => {
                self.started.insert(slot);
            }
            StateChange::MemberInSync(slot) => self.filled.insert(slot),
            _ => {}
        }
    }

    /// Whether a change must wait until the members were told what this round says: nobody holds a slot that the others
    /// do not give it, and no slot is lost while another's member may not know yet that it is whole.
    pub(super) fn forbids(&self, change: &StateChange) -> bool {
        match *change {
            StateChange::MemberInSync(slot) | StateChange::ReplacementDone { slot, .. } => {
                self.started.contains(slot)
            }
            StateChange::MemberFailed(slot) => !self.filled.is_empty() && !self.filled.contains(slot),
            _ => false,
        }
    }
}

impl Keeper {
    /// Takes note of a change.
    pub(super) fn change(&mut self, core: &mut Core, change: StateChange) {
        if mutation::is(Mutation::SkipSuperblockOnFailure) {
            return;
        }
        self.is_superblock_due = true;
        self.said.note(change);
        self.welcome(core, change);
        self.is_flush_due |= speaks_of_data(change) && !mutation::is(Mutation::RecordWithoutFlush);
        match change {
            StateChange::MemberFailed(slot) => {
                if let Some(member) = of_slot(&self.members, slot) {
                    stand(&mut self.members, member, Standing::Faulty);
                }
            }
            StateChange::SpareStarted { slot, member } => {
                stand(&mut self.members, member, Standing::Recovering(slot, 0));
                if let Some(Some(known)) = self.members.get_mut(member.index()) {
                    known.forget_bitmap_recovery();
                }
            }
            StateChange::RecoveryOffset { slot, sectors } => {
                for known in self.members.iter_mut().flatten() {
                    match &mut known.standing {
                        Standing::Recovering(s, at) | Standing::Replacing(s, at) if *s == slot => {
                            *at = sectors;
                        }
                        _ => {}
                    }
                }
            }
            StateChange::MemberInSync(slot) => {
                if let Some(member) = of_slot(&self.members, slot) {
                    stand(&mut self.members, member, Standing::InSync(slot));
                }
            }
            StateChange::ReplacementStarted { slot, member } => {
                stand(&mut self.members, member, Standing::Replacing(slot, 0));
            }
            StateChange::ReplacementDone { slot, member } => {
                if let Some(old) = of_slot(&self.members, slot) {
                    stand(&mut self.members, old, Standing::Faulty);
                }
                stand(&mut self.members, member, Standing::InSync(slot));
                if let Some(Some(known)) = self.members.get_mut(member.index()) {
                    known.is_joining = true;
                }
            }
            StateChange::ResyncOffset(sectors) => self.state.resync_offset_sectors = sectors,
            StateChange::MemberRemoved(member) => {
                if let Some(place) = self.members.get_mut(member.index()) {
                    *place = None;
                }
            }
            StateChange::SpareAdded(member) => stand(&mut self.members, member, Standing::Spare),
            StateChange::Flags(member, flags) => {
                if let Some(Some(known)) = self.members.get_mut(member.index()) {
                    known.metadata.superblock.set_device_flags(flags);
                }
            }
            // The lists are the core's, and every flush lets the tail move.
            StateChange::BadBlocksListed | StateChange::BadBlocksStruck | StateChange::JournalTail => {}
        }
    }

    /// Makes ready for a member that comes in.
    fn welcome(&mut self, core: &mut Core, change: StateChange) {
        let (member, takes_slot) = match change {
            StateChange::SpareAdded(member) => (member, false),
            StateChange::SpareStarted { member, .. } | StateChange::ReplacementStarted { member, .. } => {
                (member, true)
            }
            _ => return,
        };
        if let Some(intent) = core.intent.as_mut().filter(|_| takes_slot) {
            // Its bitmap is of another time, or none.
            intent.dirty_all();
        }
        let Some(place) = self.introduced.iter().position(|(introduced, _)| *introduced == member) else {
            return;
        };
        let (_, metadata) = self.introduced.swap_remove(place);
        if self.members.len() <= member.index() {
            self.members.resize_with(member.index() + 1, || None);
        }
        let has_bad_blocks = metadata.bad_blocks.as_ref().is_some_and(|list| !list.is_empty());
        self.members[member.index()] = Some(Known {
            metadata,
            standing: Standing::Spare,
            has_bad_blocks,
            is_behind: false,
            is_joining: false,
        });
    }
}

fn stand(members: &mut [Option<Known>], member: MemberIndex, standing: Standing) {
    if let Some(Some(known)) = members.get_mut(member.index()) {
        known.standing = standing;
    }
}

/// The member of a slot, recovered or not.
fn of_slot(members: &[Option<Known>], slot: Slot) -> Option<MemberIndex> {
    let holds = |known: &Known| matches!(known.standing, Standing::InSync(s) | Standing::Recovering(s, _) if s == slot);
    let index = members.iter().position(|known| known.as_ref().is_some_and(holds))?;
    Some(MemberIndex(index as u16))
}

/// Whether a change says that a member is out of use.
pub(super) const fn is_failure(change: &StateChange) -> bool {
    matches!(change, StateChange::MemberFailed(_) | StateChange::MemberRemoved(_))
}

/// Whether a change says that a member is out of use, or that another has taken its slot.
pub(super) const fn leaves_behind(change: &StateChange) -> bool {
    is_failure(change) || matches!(change, StateChange::ReplacementDone { .. })
}

/// Whether a change says that members hold content.
const fn speaks_of_data(change: StateChange) -> bool {
    matches!(
        change,
        StateChange::RecoveryOffset { .. }
            | StateChange::MemberInSync(_)
            | StateChange::ReplacementDone { .. }
            | StateChange::ResyncOffset(_)
            | StateChange::BadBlocksStruck
            | StateChange::JournalTail
    )
}
