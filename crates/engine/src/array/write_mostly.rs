//! Members that are read only if no other can answer (md's write-mostly). As in Linux this is so for RAID-1; other levels'
//! members may bear the flag and are read as ever.

use super::core::Core;
use crate::geometry::Shape;
use crate::metadata::MemberMetadata;
use crate::units::{MemberIndex, Slot};

/// The members with the flag. It goes with a member into and out of slots.
#[derive(Debug, Default)]
pub(crate) struct WriteMostly {
    /// By member index, as far as one was ever set.
    members: Vec<bool>,
    is_any: bool,
}

impl Core {
    /// A member came in.
    pub(crate) fn take_flags(&mut self, member: MemberIndex, metadata: &MemberMetadata) {
        self.set_write_mostly(member, metadata.superblock.device_flags().is_write_mostly);
    }

    /// Reads are to spare a member from now on, or no longer.
    pub(crate) fn set_write_mostly(&mut self, member: MemberIndex, is_set: bool) {
        if !matches!(self.geometry.shape(), Shape::Mirror) {
            return;
        }
        let WriteMostly { members, is_any } = &mut self.write_mostly;
        if is_set && members.len() <= member.index() {
            members.resize(member.index() + 1, false);
        }
        if let Some(flag) = members.get_mut(member.index()) {
            *flag = is_set;
        }
        *is_any = members.contains(&true);
    }

    /// Whether any member has the flag, so that each must be looked at.
    #[inline]
    pub(crate) const fn has_write_mostly(&self) -> bool {
        self.write_mostly.is_any
    }

    /// Whether reads are to spare a slot's member.
    pub(crate) fn is_write_mostly(&self, slot: Slot) -> bool {
        let member = self.member_of[slot.index()];
        self.write_mostly.members.get(member.index()) == Some(&true)
    }
}
