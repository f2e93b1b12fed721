//! An array as it stands while it runs.

use std::path::PathBuf;

use stripewise_engine::array::members::Standing;
use stripewise_engine::array::sync::{LostRanges, SpeedLimits, SyncStatus};
use stripewise_engine::io::SyncAction;
use stripewise_engine::metadata::MemberMetadata;
use stripewise_engine::units::{MemberIndex, Slot};

use crate::layers::CacheStatus;
use crate::members::Member;
use crate::report::MemberError;
use crate::shard::Shard;

/// A member as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Where it is; none for memory.
    pub path: Option<PathBuf>,
    /// What it is to the array.
    pub standing: Standing,
    /// Sectors of its slot's content that it holds, when not all are there.
    pub filled_sectors: Option<u64>,
    /// What its superblock says; as it was left, of a failed one. None for arrays that keep none.
    pub metadata: Option<MemberMetadata>,
    /// The error for which it is out of use; none where it is in use, or failed by command.
    pub error: Option<MemberError>,
}

/// An array as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayStatus {
    /// In the order of member indexes, without empty slots and those let go of: a place in this list is no index. What a member is
    /// to the array, and in which slot, is its [standing](MemberStatus::standing).
    pub members: Vec<MemberStatus>,
    /// Slots without a member.
    pub failed: Vec<Slot>,
    /// It takes no more writes, for errors or members lost.
    pub is_broken: bool,
    /// It does so because its write journal failed, which is [`Standing::Journal`] all the same.
    pub has_journal_failed: bool,
    /// Its own work; none for levels without redundancy.
    pub sync: Option<SyncStatus>,
    /// Bounds of its speed.
    pub speed: Option<SpeedLimits>,
    /// What cannot be had any more.
    pub lost: LostRanges,
    /// The page cache above it.
    pub cache: Option<CacheStatus>,
}

impl ArrayStatus {
    /// Whether the array works by itself now.
    pub fn is_syncing(&self) -> bool {
        self.sync.as_ref().is_some_and(|s| !matches!(s.action, SyncAction::Idle | SyncAction::Frozen))
    }
}

impl Shard {
    /// The array as it stands.
    pub(crate) fn status(&self) -> ArrayStatus {
        let volume = self.volume();
        let mut superblocks = volume.superblocks();
        superblocks.resize(self.members().len().max(superblocks.len()), None);
        let members = self.members().iter().zip(superblocks).enumerate().filter_map(|(index, place)| {
            let (member, metadata) = place;
            let index = MemberIndex(index as u16);
            let standing = volume.standing(index);
            let filled_sectors = match standing {
                Standing::InSlot(slot) => volume.recovered_sectors(slot),
                Standing::Replacement(slot) => volume.replaced_sectors(slot),
                _ => None,
            };
            let is_out = match standing {
                Standing::Failed => true,
                Standing::Journal => volume.has_journal_failed(),
                _ => false,
            };
            let error = self.reason(index).filter(|_| is_out);
            let path = member.path().map(std::borrow::ToOwned::to_owned);
            let is_there = !matches!(**member, Member::Missing) && standing != Standing::Absent;
            is_there.then_some(MemberStatus { path, standing, filled_sectors, metadata, error })
        });
        ArrayStatus {
            members: members.collect(),
            failed: self.failed_slots(),
            is_broken: self.is_array_failed(),
            has_journal_failed: volume.has_journal_failed(),
            sync: volume.sync_status(),
            speed: Some(volume.speed_limits()),
            lost: volume.lost_ranges(),
            cache: self.cache_status(),
        }
    }
}
