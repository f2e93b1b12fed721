//! Telling what happens to the array.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use stripewise_engine::io::{ArrayEvent, SyncAction};
use stripewise_engine::units::{MemberIndex, Slot};

use super::super::news::ServeEvent;
use super::Service;
use crate::members::Member;
use crate::report::{MemberError, TimedEvent};
use crate::shard::Shard;

/// How the array was when the owner was told of it last.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The members' paths, by slot: one that failed has left its slot.
    paths: Vec<Option<PathBuf>>,
    /// The members, by slot.
    members: Vec<Option<MemberIndex>>,
}

impl Told {
    /// Takes note of who is in which slot.
    pub(crate) fn look(&mut self, shard: &Shard) {
        self.paths = slots(shard).map(|slot| path_of(shard, slot)).collect();
        self.members = slots(shard).map(|slot| shard.volume().member_of(slot)).collect();
    }

    /// What is told of something that has happened since. What it says of the whole array is how that is after all that has.
    pub(crate) fn event(&self, shard: &Shard, happened: &TimedEvent) -> ServeEvent {
        let is_whole = |slot: &Slot| {
            shard.volume().member_of(*slot).is_some() && shard.volume().recovered_sectors(*slot).is_none()
        };
        let event = happened.event;
        let member = match event {
            ArrayEvent::MemberFailed { slot } => self.paths[slot.index()].clone(),
            ArrayEvent::LastCopyKept { slot }
            | ArrayEvent::MemberInSync { slot }
            | ArrayEvent::ReadErrorCorrected { slot, .. } => path_of(shard, slot),
            _ => None,
        };
        let mismatch_sectors = match event {
            ArrayEvent::SyncDone(SyncAction::Check | SyncAction::Repair | SyncAction::RepairLocated) => {
                shard.volume().sync_status().map_or(0, |status| status.mismatch_sectors)
            }
            _ => 0,
        };
        ServeEvent::Array {
            event,
            cause: self.cause(shard, happened),
            member,
            working: slots(shard).filter(is_whole).count(),
            slots: slots(shard).count(),
            is_lost: shard.volume().has_failed(),
            mismatch_sectors,
        }
    }

    /// Why it happened to a member. One with too many errors that were corrected fails for none of them alone: it is the last.
    fn cause(&self, shard: &Shard, happened: &TimedEvent) -> Option<MemberError> {
        match happened.event {
            ArrayEvent::MemberFailed { slot } => {
                happened.cause.or_else(|| shard.last_error(self.members[slot.index()]?))
            }
            ArrayEvent::ReplacementFailed { .. }
            | ArrayEvent::LastCopyKept { .. }
            | ArrayEvent::JournalFailed => happened.cause,
            _ => None,
        }
    }
}

impl Service<'_> {
    /// Tells the owner what has happened since it was told last, and forgets it: a server may run for years.
    pub(super) fn tell(&mut self) {
        let shared = self.shared;
        let Some(tell) = &shared.config.tell else { return };
        for (slot, error) in self.shard.take_first_errors() {
            if self.is_first_with(slot) {
                tell(&ServeEvent::MemberError { slot, member: path_of(self.shard, slot), error });
            }
        }
        if self.shard.events.is_empty() {
            return;
        }
        let shard = &*self.shard;
        for happened in &shard.events {
            if self.shared.dealt.len() == 1 || self.is_first_to_say(happened.event) {
                tell(&self.told.event(shard, happened));
            }
        }
        self.told.look(shard);
        self.shard.events.clear();
    }

    /// Whether no other shard has told of an error of this slot's member.
    fn is_first_with(&self, slot: Slot) -> bool {
        is_new(&self.shared.had_errors, slot)
    }

    /// Whether no other shard has said so. Each hears of a failure; none of them works by itself on all of the array.
    fn is_first_to_say(&self, event: ArrayEvent) -> bool {
        if !matches!(event, ArrayEvent::MemberFailed { .. } | ArrayEvent::ArrayFailed) {
            return false;
        }
        is_new(&self.shared.said, event)
    }
}

/// Whether nobody has come with it before.
fn is_new<T: PartialEq>(known: &Mutex<Vec<T>>, one: T) -> bool {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = !known.contains(&one);
    if is_new {
        known.push(one);
    }
    is_new
}

fn slots(shard: &Shard) -> impl Iterator<Item = Slot> {
    (0..shard.volume().geometry().raid_disks()).map(Slot)
}

fn path_of(shard: &Shard, slot: Slot) -> Option<PathBuf> {
    let member: &Member = &shard.members()[shard.volume().member_of(slot)?.index()];
    member.path().map(Path::to_owned)
}
