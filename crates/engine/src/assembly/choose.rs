//! Who is current, and in which slot.

use std::cmp::Ordering;

use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::Role;

use super::candidate::{Candidate, slot_of};
use super::compare::created;
use super::{AssemblyError, Forced, Stale, StaleReason};
use crate::units::{MEMBERS_MAX, Slot};

/// A member's events may be so many fewer than the freshest's: a crash between two superblocks leaves them so.
const EVENTS_MARGIN: u64 = 1;

/// The members by what they are to the array; nothing is checked against each other yet.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) freshest: usize,
    pub(super) events: u64,
    /// The member and the replacement of each slot.
    pub(super) slots: Vec<(Option<usize>, Option<usize>)>,
    pub(super) spares: Vec<usize>,
    /// The write journal's device.
    pub(super) journal: Option<usize>,
    pub(super) stale: Vec<Stale>,
    pub(super) forced: Vec<Forced>,
}

impl Chosen {
    /// Everyone who is part of the array.
    pub(super) fn current(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().flat_map(|(member, replacement)| [*member, *replacement]).flatten()
    }

    /// Sectors from which on redundancy may be wrong, as the members in the slots say that are as fresh as any; `u64::MAX` if all
    /// of them say that it is right. They say different things after a start by force that power cut short: what the array was
    /// called then has as many events as what it was.
    pub(super) fn resync_offset_sectors(&self, candidates: &[Candidate]) -> u64 {
        let members = self.slots.iter().filter_map(|(member, _)| *member).chain([self.freshest]);
        let freshest =
            members.map(|member| &candidates[member].superblock).filter(|s| s.events() == self.events);
        freshest.map(Superblock::resync_offset_sectors).min().unwrap_or(u64::MAX)
    }

    /// Takes stale members into empty slots, the freshest first and those of the same events together, as long as
    /// that is needed.
    pub(super) fn force(&mut self, candidates: &[Candidate]) -> Result<(), AssemblyError> {
        while !super::start::has_enough(candidates, self)? {
            let missing = |slot: u16| self.slots.get(usize::from(slot)).is_some_and(|s| s.0.is_none());
            let can_serve = |stale: &&Stale| {
                let candidate = &candidates[stale.candidate];
                candidate.recovered_sectors().is_none()
                    && !candidate.is_replacement()
                    && candidate.own_slot().is_some_and(missing)
                    && stale.why != StaleReason::StraySpare
            };
            let events = |stale: &Stale| candidates[stale.candidate].superblock.events();
            let Some(newest) = self.stale.iter().filter(can_serve).map(events).max() else { return Ok(()) };
            let vintage: Vec<usize> = self
                .stale
                .iter()
                .filter(can_serve)
                .filter(|s| events(s) == newest)
                .map(|s| s.candidate)
                .collect();
            for index in vintage {
                self.take_stale(candidates, index)?;
            }
        }
        Ok(())
    }

    fn take_stale(&mut self, candidates: &[Candidate], index: usize) -> Result<(), AssemblyError> {
        let Some(slot) = candidates[index].own_slot() else { return Ok(()) };
        let place = &mut self.slots[usize::from(slot)].0;
        if let Some(other) = *place {
            return Err(AssemblyError::SlotTwice {
                slot: Slot(slot),
                first: candidates[other].label.clone(),
                second: candidates[index].label.clone(),
            });
        }
        check_supported(&candidates[index])?;
        super::compare::check_pair(&candidates[self.freshest], &candidates[index])?;
        *place = Some(index);
        self.stale.retain(|stale| stale.candidate != index);
        let events = candidates[index].superblock.events();
        self.forced.push(Forced { candidate: index, slot: Slot(slot), events });
        Ok(())
    }
}

/// Sorts the candidates by what they are to the array.
pub(super) fn choose(candidates: &[Candidate]) -> Result<Chosen, AssemblyError> {
    check_created_once(candidates)?;
    let freshest = freshest(candidates).ok_or(AssemblyError::NoMembers)?;
    check_supported(&candidates[freshest])?;
    let superblock = &candidates[freshest].superblock;
    let raid_disks = superblock.raid_disks() as usize;
    if raid_disks > MEMBERS_MAX {
        return Err(AssemblyError::TooManySlots {
            label: candidates[freshest].label.clone(),
            raid_disks: superblock.raid_disks(),
        });
    }
    let mut chosen = Chosen {
        freshest,
        events: superblock.events(),
        slots: vec![(None, None); raid_disks],
        spares: Vec::new(),
        journal: None,
        stale: Vec::new(),
        forced: Vec::new(),
    };
    for index in 0..candidates.len() {
        place(candidates, index, &mut chosen)?;
    }
    for index in chosen.current() {
        check_supported(&candidates[index])?;
    }
    for index in &chosen.spares {
        check_features(&candidates[*index])?;
    }
    Ok(chosen)
}

/// Members of another array that was given the same UUID, as when one is created anew to rescue it, cannot be told apart by their
/// events: each array counts its own. As mdadm, which aborts then, by force, too.
fn check_created_once(candidates: &[Candidate]) -> Result<(), AssemblyError> {
    let mut in_slots = candidates.iter().filter(|candidate| candidate.own_slot().is_some());
    let Some(first) = in_slots.next() else { return Ok(()) };
    let first_time = created(&first.superblock);
    let other = in_slots.find(|other| created(&other.superblock).seconds() != first_time.seconds());
    other.map_or(Ok(()), |second| {
        Err(AssemblyError::CreatedTwice {
            first: first.label.clone(),
            first_time,
            second: second.label.clone(),
            second_time: created(&second.superblock),
        })
    })
}

/// Features that are not served here are refused by name, on whichever member they appear that is not out of date: what those
/// say may be over, as a reshape that went on without them. Nor has a reshape begun that a spare alone tells of: it has none of what
/// would have moved.
fn check_supported(candidate: &Candidate) -> Result<(), AssemblyError> {
    let label = || candidate.label.clone();
    check_features(candidate)?;
    if !candidate.superblock.is_reshaped() {
        return Ok(());
    }
    let done_percent = match &candidate.superblock {
        Superblock::V0(_) => None,
        Superblock::V1(superblock) => superblock.reshaped_percent(),
    };
    let is_linuxs = matches!(candidate.superblock, Superblock::V0(_));
    Err(AssemblyError::Reshape { label: label(), done_percent, is_linuxs })
}

fn check_features(candidate: &Candidate) -> Result<(), AssemblyError> {
    match candidate.superblock.unsupported() {
        Some(reason) => Err(AssemblyError::Unsupported { label: candidate.label.clone(), reason }),
        None => Ok(()),
    }
}

/// The member with the most events among those that hold all their data; one that holds a part, if it is far newer; among
/// all where none holds any. The event that made a member hold a slot may have reached it alone, and the others are not
/// out of date for that.
fn freshest(candidates: &[Candidate]) -> Option<usize> {
    let newest = |is_wanted: &dyn Fn(&Candidate) -> bool| {
        let indexes = (0..candidates.len()).filter(|i| is_wanted(&candidates[*i]));
        // The first of several, so that the answer follows the events and then the order given.
        indexes.rev().max_by_key(|i| candidates[*i].superblock.events())
    };
    let events = |index: usize| candidates[index].superblock.events();
    let in_slot = newest(&|c| c.own_slot().is_some());
    let whole = newest(&|c| c.own_slot().is_some() && c.recovered_sectors().is_none());
    match (whole, in_slot) {
        (Some(whole), Some(any)) if events(whole).saturating_add(EVENTS_MARGIN) >= events(any) => Some(whole),
        (_, Some(any)) => Some(any),
        _ => newest(&|_| true),
    }
}

fn place(candidates: &[Candidate], index: usize, chosen: &mut Chosen) -> Result<(), AssemblyError> {
    let candidate = &candidates[index];
    let freshest = &candidates[chosen.freshest].superblock;
    let role = freshest.role_of(candidate.superblock.dev_number());
    // In 1.x a member that was missing at a start is told apart from a faulty one; it was left behind all the same.
    let is_out = role == Role::Faulty || (role == Role::Spare && candidate.own_slot().is_some());
    let parted = is_out && disagrees(candidate, &candidates[chosen.freshest]);
    if parted && candidate.superblock.events() == chosen.events {
        return Err(AssemblyError::SplitBrain {
            first: candidates[chosen.freshest].label.clone(),
            second: candidate.label.clone(),
        });
    }
    if let Some(why) = why_stale(candidate, role, &candidates[chosen.freshest], chosen.events) {
        let re_addable = re_addable(candidate, &candidates[chosen.freshest], why);
        chosen.stale.push(Stale { candidate: index, why, re_addable });
        return Ok(());
    }
    match role {
        Role::Spare => chosen.spares.push(index),
        Role::Journal => place_journal(candidates, index, chosen)?,
        Role::Faulty => unreachable!("faulty ones are stale"),
        Role::Slot(slot) => {
            let count = chosen.slots.len();
            let Some(place) = chosen.slots.get_mut(usize::from(slot)) else {
                let label = candidate.label.clone();
                return Err(AssemblyError::RoleBeyondSlots { label, role: slot, raid_disks: count as u32 });
            };
            let place = if candidate.is_replacement() { &mut place.1 } else { &mut place.0 };
            let Some(other) = place.replace(index) else { return Ok(()) };
            let Some((newer, older)) = newer_first(candidates, other, index) else {
                return Err(AssemblyError::SlotTwice {
                    slot: Slot(slot),
                    first: candidates[other].label.clone(),
                    second: candidate.label.clone(),
                });
            };
            // In 0.90 a member that replaced another has the other's number: the older one has been replaced.
            *place = Some(newer);
            chosen.stale.push(outdone(candidates, older, chosen.events));
        }
    }
    Ok(())
}

/// Of several journals the one with the most events counts.
fn place_journal(candidates: &[Candidate], index: usize, chosen: &mut Chosen) -> Result<(), AssemblyError> {
    let Some(other) = chosen.journal.replace(index) else { return Ok(()) };
    let Some((newer, older)) = newer_first(candidates, other, index) else {
        return Err(AssemblyError::JournalTwice {
            first: candidates[other].label.clone(),
            second: candidates[index].label.clone(),
        });
    };
    chosen.journal = Some(newer);
    chosen.stale.push(outdone(candidates, older, candidates[newer].superblock.events()));
    Ok(())
}

/// Two devices of one place, that of more events first; none if neither has more.
fn newer_first(candidates: &[Candidate], a: usize, b: usize) -> Option<(usize, usize)> {
    let events = |index: usize| candidates[index].superblock.events();
    match events(a).cmp(&events(b)) {
        Ordering::Less => Some((b, a)),
        Ordering::Greater => Some((a, b)),
        Ordering::Equal => None,
    }
}

/// A device whose place one of more events has.
fn outdone(candidates: &[Candidate], older: usize, freshest: u64) -> Stale {
    let why = StaleReason::Events { found: candidates[older].superblock.events(), freshest };
    Stale { candidate: older, why, re_addable: None }
}

fn why_stale(candidate: &Candidate, role: Role, freshest: &Candidate, newest: u64) -> Option<StaleReason> {
    let events = candidate.superblock.events();
    let own_role = candidate.superblock.role();
    let is_journal = role == Role::Journal && own_role == Role::Journal;
    if own_role == Role::Journal && (role == Role::Spare || !freshest.superblock.has_journal()) {
        Some(StaleReason::FormerJournal)
    } else if events > newest && !(is_journal && events - newest <= EVENTS_MARGIN) {
        // A journal may have its superblock before the members have theirs.
        Some(StaleReason::StraySpare)
    } else if slot_of(own_role).is_some()
        && disagrees(candidate, freshest)
        && !is_round_behind(candidate, role, newest)
    {
        // However old: what it was written without the others is in no bitmap of theirs.
        Some(StaleReason::Disagrees)
    } else if role == Role::Faulty {
        Some(StaleReason::Faulty)
    } else if events.saturating_add(EVENTS_MARGIN) < newest {
        Some(StaleReason::Events { found: events, freshest: newest })
    } else if matches!(role, Role::Slot(_) | Role::Journal) && own_role != role {
        Some(StaleReason::NotItsSlot)
    } else if role == Role::Spare && candidate.own_slot().is_some() && candidate.recovered_sectors().is_none()
    {
        Some(StaleReason::LetGo)
    } else {
        None
    }
}

/// Whether the candidate's superblock has nobody in the freshest member's slot.
fn disagrees(candidate: &Candidate, freshest: &Candidate) -> bool {
    let Some(slot) = freshest.own_slot() else { return false };
    (0..candidate.superblock.device_rows())
        .all(|row| slot_of(candidate.superblock.role_of(row)) != Some(slot))
}

/// Whether the candidate is a member to the freshest, and knows it as the spare that it was a round before: 0.90 names a spare
/// in its slot when it is recovered, and power may fail when it alone says so.
fn is_round_behind(candidate: &Candidate, role: Role, newest: u64) -> bool {
    let (Superblock::V0(_), Role::Slot(_)) = (&candidate.superblock, role) else { return false };
    let events = candidate.superblock.events();
    let knows_spare =
        (0..candidate.superblock.device_rows()).any(|row| candidate.superblock.role_of(row) == Role::Spare);
    knows_spare && events < newest && events.saturating_add(EVENTS_MARGIN) >= newest
}

/// The slot to which a stale member can come back: the bitmap has every change since it left, if the array is what it was.
fn re_addable(candidate: &Candidate, freshest: &Candidate, why: StaleReason) -> Option<Slot> {
    let left = matches!(why, StaleReason::Events { .. } | StaleReason::Faulty);
    let bitmap = freshest.bitmap.as_ref()?.as_ref().ok()?;
    let complete = !bitmap.is_stale() && candidate.superblock.events() >= bitmap.events_cleared;
    let whole = candidate.recovered_sectors().is_none();
    // What take_back() asks too: a slot that is promised is had.
    let is_alike =
        check_supported(candidate).is_ok() && super::compare::check_pair(freshest, candidate).is_ok();
    (left && complete && whole && is_alike).then(|| candidate.own_slot().map(Slot)).flatten()
}
