//! From chosen members to an array.

use stripewise_format::bitmap;
use stripewise_format::grow::spare_of;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::Role;

use super::candidate::Candidate;
use super::choose::Chosen;
use super::compare::difference;
use super::start::{decide, sized_spec, slot_states};
use super::{Assembly, AssemblyError, Consistency, Journal, Options, SlotState, Stale, StaleReason};
use crate::geometry::{Geometry, GeometrySpec};
use crate::level::{Layout, Level, Raid0Layout};
use crate::units::Slot;

pub(super) fn collect(
    candidates: &[Candidate],
    chosen: Chosen,
    options: Options,
) -> Result<Assembly, AssemblyError> {
    let freshest = &candidates[chosen.freshest];
    let superblock = &freshest.superblock;
    let mut chosen = chosen;
    leave_out_small_spares(candidates, &mut chosen);
    leave_out_unlike_spares(candidates, &mut chosen);
    let (slots, mut replacements) = slot_states(candidates, &chosen);
    // What another member has taken is not to be had back.
    let is_free = |slot: &Slot| slots.get(slot.index()) == Some(&SlotState::Missing);
    chosen.stale.iter_mut().for_each(|stale| stale.re_addable = stale.re_addable.filter(is_free));
    let consistency = consistency(superblock);
    let forced_clean = decide(candidates, &chosen, &slots, consistency, options)?;
    if forced_clean {
        // What was under way may be on a member and not on its replacement, or the other way round.
        for replacement in &mut replacements {
            replacement.offset_sectors = 0;
        }
    }
    let journal = journal(candidates, &chosen, options)?;
    let geometry = spec(candidates, &chosen, &slots, options)?;
    let checked = Geometry::new(&geometry)?;
    let bitmap_damage = match consistency {
        Consistency::Bitmap => bitmap_damage(candidates, &slots, &checked),
        _ => None,
    };
    let is_left_unused = options.readonly || options.forgets_bitmap;
    if let (Some((label, problem)), false) = (&bitmap_damage, is_left_unused) {
        return Err(AssemblyError::Bitmap { label: label.clone(), problem: problem.clone() });
    }
    let redundant = !matches!(superblock.level(), Level::Linear | Level::Raid0);
    let is_taken_as_right = forced_clean && has_nothing_to_compare(superblock.level(), &slots);
    let resync_offset_sectors =
        if redundant && !is_taken_as_right { chosen.resync_offset_sectors(candidates) } else { u64::MAX };
    let mut assembly = Assembly {
        metadata: superblock.metadata(),
        uuid: superblock.set_uuid(),
        name: freshest.name(),
        geometry,
        slots,
        returned: Vec::new(),
        replacements,
        freshest: chosen.freshest,
        events: chosen.events,
        resync_offset_sectors,
        is_clean: resync_offset_sectors == u64::MAX,
        forced_clean,
        consistency,
        journal,
        bitmap_damage: bitmap_damage.map(|(label, problem)| format!("{label}: {problem}")),
        spares: chosen.spares,
        stale: chosen.stale,
        forced: chosen.forced,
    };
    assembly.resume_by_bitmap(candidates);
    Ok(assembly)
}

/// The write journal of an array that should have one. mdadm starts none without it unless it is forced to.
fn journal(
    candidates: &[Candidate],
    chosen: &Chosen,
    options: Options,
) -> Result<Option<Journal>, AssemblyError> {
    if !candidates[chosen.freshest].superblock.has_journal() {
        return Ok(None);
    }
    if let Some(candidate) = chosen.journal {
        return Ok(Some(Journal::Device { candidate }));
    }
    if options.readonly || options.force {
        return Ok(Some(Journal::Lost));
    }
    let journals = chosen.stale.iter().map(|stale| &candidates[stale.candidate]);
    let journals = journals.filter(|candidate| candidate.superblock.role() == Role::Journal);
    Err(AssemblyError::JournalLost { stale: journals.map(|candidate| candidate.label.clone()).collect() })
}

/// Whether what is there of a level with parity agrees with all that is made of it, for it has no more than it needs.
fn has_nothing_to_compare(level: Level, slots: &[SlotState]) -> bool {
    let is_made_anew = |state: &&SlotState| {
        matches!(state, SlotState::Missing | SlotState::Recovering { offset_sectors: 0, .. })
    };
    slots.iter().filter(is_made_anew).count() >= usize::from(level.parity_count())
}

fn leave_out_small_spares(candidates: &[Candidate], chosen: &mut Chosen) {
    let needed = candidates[chosen.freshest].superblock.size_sectors();
    let Chosen { spares, stale, .. } = chosen;
    spares.retain(|spare| {
        let sectors = candidates[*spare].room_sectors();
        if sectors < needed {
            let why = StaleReason::SmallSpare { sectors, needed };
            stale.push(Stale { candidate: *spare, why, re_addable: None });
        }
        sectors >= needed
    });
}

/// Leaves out spares that cannot say of the array what its members say. All others do when they are next written.
fn leave_out_unlike_spares(candidates: &[Candidate], chosen: &mut Chosen) {
    let array = &candidates[chosen.freshest].superblock;
    let Chosen { spares, stale, .. } = chosen;
    spares.retain(|spare| {
        let Candidate { superblock, at_sector, device_sectors, .. } = &candidates[*spare];
        let is_fit = |own: Superblock| {
            let read = Superblock::parse(own.metadata(), &own.to_bytes(), *at_sector);
            read.is_ok_and(|own| own.check_on_device(*device_sectors).is_ok())
        };
        let is_taken =
            difference(array, superblock).is_none() || spare_of(superblock, array).is_some_and(is_fit);
        if !is_taken {
            stale.push(Stale { candidate: *spare, why: StaleReason::UnlikeSpare, re_addable: None });
        }
        is_taken
    });
}

fn consistency(superblock: &Superblock) -> Consistency {
    let has_ppl = match superblock {
        Superblock::V0(_) => false,
        Superblock::V1(superblock) => superblock.ppl().is_some(),
    };
    let has_bitmap = match superblock {
        Superblock::V0(superblock) => superblock.has_bitmap(),
        Superblock::V1(superblock) => superblock.bitmap_offset_sectors().is_some(),
    };
    let has_journal = superblock.has_journal();
    match superblock.level() {
        Level::Linear | Level::Raid0 => Consistency::None,
        _ if has_journal => Consistency::Journal,
        _ if has_ppl => Consistency::Ppl,
        _ if has_bitmap => Consistency::Bitmap,
        _ => Consistency::Resync,
    }
}

fn spec(
    candidates: &[Candidate],
    chosen: &Chosen,
    slots: &[SlotState],
    options: Options,
) -> Result<GeometrySpec, AssemblyError> {
    let freshest = &candidates[chosen.freshest];
    let level = freshest.superblock.level();
    let recorded = freshest.superblock.layout();
    let no_layout = || AssemblyError::NoLayout { label: freshest.label.clone() };
    if !matches!(level, Level::Linear | Level::Raid0) {
        return Ok(sized_spec(freshest, recorded.ok_or_else(no_layout)?));
    }
    let used = |state: &SlotState| state.candidate().map_or(0, |index| candidates[index].used_sectors());
    let member_sectors: Vec<u64> = slots.iter().map(used).collect();
    let chunk_sectors = u64::from(freshest.superblock.chunk_sectors());
    let layout = match (level, recorded, options.raid0_layout) {
        (Level::Linear, ..) => Layout::None,
        (_, Some(Layout::Raid0(recorded)), Some(asked)) if recorded != asked => {
            return Err(AssemblyError::Raid0LayoutRecorded { label: freshest.label.clone(), recorded });
        }
        (_, Some(recorded), _) => recorded,
        (_, None, Some(asked)) => Layout::Raid0(asked),
        (_, None, None) if is_layout_irrelevant(&member_sectors, chunk_sectors) => {
            Layout::Raid0(Raid0Layout::Original)
        }
        (_, None, None) => return Err(AssemblyError::Raid0LayoutUnknown { label: freshest.label.clone() }),
    };
    Ok(GeometrySpec { level, layout, chunk_sectors, member_sectors })
}

/// Whether the members make one zone, or two of which the second is on one member: both layouts are the same then.
fn is_layout_irrelevant(member_sectors: &[u64], chunk_sectors: u64) -> bool {
    let chunks = |sectors: &u64| sectors.checked_div(chunk_sectors).unwrap_or(0);
    let Some(least) = member_sectors.iter().map(chunks).min() else { return true };
    member_sectors.iter().filter(|sectors| chunks(sectors) > least).count() <= 1
}

/// What is wrong with the bitmap, when no member in sync has one that can be used: whose it is, and the reason.
fn bitmap_damage(
    candidates: &[Candidate],
    slots: &[SlotState],
    geometry: &Geometry,
) -> Option<(String, String)> {
    let mut first = None;
    for state in slots.iter().filter(|state| state.is_in_sync()) {
        let candidate = &candidates[state.candidate()?];
        match check_bitmap(candidate, geometry) {
            Ok(()) => return None,
            Err(problem) => first = first.or(Some((candidate.label.clone(), problem))),
        }
    }
    first
}

fn check_bitmap(candidate: &Candidate, geometry: &Geometry) -> Result<(), String> {
    let superblock = match &candidate.bitmap {
        Some(Ok(superblock)) => superblock,
        Some(Err(problem)) => return Err(problem.clone()),
        None => return Err("bitmap: it cannot be read".to_owned()),
    };
    let uuid = candidate.superblock.bitmap_uuid();
    if superblock.uuid != uuid {
        return Err(format!("bitmap: uuid is {}; the array's is {uuid}", superblock.uuid));
    }
    let sync_sectors = match geometry.level() {
        Level::Raid10 => geometry.array_sectors(),
        _ => candidate.superblock.size_sectors(),
    };
    let bytes = u128::from(bitmap::written_bytes(bitmap::bits(sync_sectors, superblock.chunk_bytes)));
    let start = u128::from(candidate.superblock.bitmap_sector(candidate.at_sector).unwrap_or(0)) * 512;
    let data = candidate.superblock.data_offset_sectors();
    let bad_blocks = candidate.superblock.bad_block_log_sector().unwrap_or(data);
    let next = [data, bad_blocks, candidate.at_sector, candidate.device_sectors];
    let device = u128::from(candidate.device_sectors) * 512;
    let limits = next.map(|sector| u128::from(sector) * 512).into_iter();
    let limit = limits.filter(|limit| *limit > start).min().unwrap_or(device);
    if start + bytes > limit {
        return Err(format!(
            "bitmap: chunksize is {}; the {bytes} bytes it makes of {sync_sectors} sectors do not fit the {} there are",
            superblock.chunk_bytes,
            limit.saturating_sub(start)
        ));
    }
    Ok(())
}
