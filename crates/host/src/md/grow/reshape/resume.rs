//! Goes on with a reshape that was cut off, here or in Linux.

use std::path::PathBuf;

use stripewise_engine::assembly::{Assembly, AssemblyError, Options, SlotState};
use stripewise_format::grow::{Changed, ReshapeError, Update, follow_reshape};
use stripewise_format::level::Level;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Role, Superblock1};

use super::super::super::assemble::{AssembleError, Assembled, Found};
use super::super::{GrowProblem, members, write_all};
use super::run::check_supported;
use super::{ReshapeChange, Reshaped, Slots, Watch, changed, ended, fewer, open, raid10, require_room, run};

/// Goes on with a reshape that was cut off.
///
/// # Errors
/// Why it is left as it is, or as far as it came.
pub fn resume(
    mut found: Found,
    options: Options,
    destroy: &[PathBuf],
    watch: Watch<'_>,
) -> Result<Reshaped, GrowProblem> {
    let on_members = found.candidates.clone();
    let mut before = follow(&mut found)?;
    // What the members make is decided as if the reshape had ended: it has all slots then.
    for (candidate, superblock) in found.candidates.iter_mut().zip(as_if_ended(&before)) {
        candidate.superblock = Superblock::V1(Box::new(superblock));
    }
    let mut assembled = found.assemble(options).map_err(by_continuing)?;
    // Those that left during the reshape lack more than a bitmap names.
    assembled.assembly.stale.iter_mut().for_each(|stale| stale.re_addable = None);
    let forced: Vec<usize> = assembled.assembly.forced.iter().map(|forced| forced.candidate).collect();
    let (assembly, members) = (&assembled.assembly, members(&assembled.assembly));
    let up_to_date = members.iter().filter(|index| !forced.contains(index));
    let array = up_to_date.map(|index| &before[*index]).max_by_key(|one| one.events);
    let array = array.unwrap_or(&before[assembly.freshest]).clone();
    require_alike(&assembled, &before, &array)?;
    let is_ended = array.reshape().is_none();
    let is_resync_due = !assembly.is_clean;
    let (read, written) =
        if is_ended { (Vec::new(), Vec::new()) } else { slots(assembly, &members, &array, &before)? };
    fewer::require_going(&array, &read, options)?;
    let numbers: Vec<usize> = members.iter().map(|index| before[*index].dev_number as usize).collect();
    let mut roles = vec![Role::Spare; array.dev_roles.len()];
    for (slot, member) in written.iter().enumerate() {
        let Some(member) = member else { continue };
        roles[numbers[*member]] = Role::Slot(slot as u16);
    }
    for index in &members {
        let member = &mut before[*index];
        if !is_ended {
            member.dev_roles.clone_from(&roles);
        }
        if is_resync_due && array.level != Level::Raid10 {
            // Rows are others now; a RAID-10's resync counts the array's sectors.
            member.resync_offset_sectors = 0;
        }
    }
    let superblocks: Vec<Superblock1> = members.iter().map(|index| before[*index].clone()).collect();
    if let Some((index, error)) = members
        .iter()
        .zip(&superblocks)
        .find_map(|(index, superblock)| Some((*index, superblock.check_reshaped().err()?)))
    {
        let label = &assembled.found.candidates[index].label;
        return Err(GrowProblem::Refused(format!("{label}: {error}")));
    }
    if !is_ended {
        require_room(&array, &superblocks, &read, &written)?;
    }
    let opened = open(&assembled, &members, destroy, &on_members)?;
    if is_ended {
        let update = Update { events: assembly.events, utime: (watch.clock)() };
        let changes: Vec<Changed> = superblocks.iter().map(|one| changed(&one.with_update(update))).collect();
        write_all(opened.iter().zip(&changes))?;
        let change = ReshapeChange::of(&array);
        return Ok(Reshaped { is_resync_due, ..ended(assembled, change) });
    }
    let change = ReshapeChange::of(&array);
    run(assembled, &members, (superblocks, change), &opened, &(read, written), is_resync_due, watch)
}

/// Refuses whom force took though the reshape had gone on since it dropped out: what it holds moved, or was written over, without
/// it. As mdadm's `force_array`, which says that it may cause disaster. One that is being filled says how far by itself.
fn require_alike(
    assembled: &Assembled,
    before: &[Superblock1],
    array: &Superblock1,
) -> Result<(), GrowProblem> {
    let position = |one: &Superblock1| one.reshape().map(|reshape| reshape.position_sectors);
    for forced in &assembled.assembly.forced {
        let own = &before[forced.candidate];
        let why = match (array.reshape(), own.recovered_sectors()) {
            (Some(reshape), Some(filled)) if !reshape.backwards && filled < come_to(array) => format!(
                "it dropped out when it had been filled up to sector {filled} of it, and the reshape went on up to sector {} of each \
                 member",
                come_to(array)
            ),
            (None, _) | (_, None) if position(own) != position(array) => {
                "the reshape went on after it dropped out, so that it does not hold what the others think"
                    .to_owned()
            }
            _ => continue,
        };
        return Err(GrowProblem::Refused(format!(
            "{}: {why}; it cannot be used. Name the others that dropped out, without it",
            assembled.found.candidates[forced.candidate].label
        )));
    }
    Ok(())
}

/// Sectors of each member, as it is to be, that are moved.
fn come_to(array: &Superblock1) -> u64 {
    let data = u64::from(array.raid_disks) - u64::from(array.level.parity_count());
    array.reshape_position_sectors / data
}

/// Names the command that goes on by force.
fn by_continuing(mut error: AssembleError) -> AssembleError {
    let inner = match &mut error {
        AssembleError::Assembly(inner) => Some(inner),
        AssembleError::Skipped(inner, _) => Some(&mut **inner),
        _ => None,
    };
    if let Some(AssemblyError::NotEnough { by_force, .. } | AssemblyError::DirtyDegraded { by_force, .. }) =
        inner
    {
        *by_force = "stripewise grow --continue --force";
    }
    error
}

/// The superblocks as if the reshape had ended, but for what it fills. A member that it fills may say alone how far it came, an event
/// ahead of those that hold all their data, and is no stranger for that.
fn as_if_ended(before: &[Superblock1]) -> Vec<Superblock1> {
    let stays =
        |one: &Superblock1| matches!(one.role(), Role::Slot(slot) if u32::from(slot) < one.raid_disks);
    let is_whole = |one: &&Superblock1| one.recovered_sectors().is_none() && stays(one);
    let whole = before.iter().filter(is_whole).map(|one| one.events).max();
    let each = before.iter().map(|one| {
        // The member that a growing array with one parity fills has what was moved; where nothing was, it was not needed.
        let is_growing = one.reshape().is_some_and(|reshape| reshape.delta_disks > 0);
        let has_its_part = is_growing && one.level.parity_count() == 1;
        let mut ended = if has_its_part { one.reshape_ended() } else { one.reshaped() };
        let is_filled = one.reshape().is_some() && one.recovered_sectors().is_some();
        // Nor is one for that whose slot goes.
        let is_going = one.role() != Role::Spare && !stays(one);
        if (is_filled || is_going) && whole.is_some_and(|whole| whole.checked_add(1) == Some(one.events)) {
            ended.events -= 1;
        }
        ended
    });
    each.collect()
}

/// The superblocks of before the end, of members that all know of the reshape.
fn follow(found: &mut Found) -> Result<Vec<Superblock1>, GrowProblem> {
    let of_version_1 = |candidate: &stripewise_engine::assembly::Candidate| match &candidate.superblock {
        Superblock::V1(superblock) => Ok((**superblock).clone()),
        Superblock::V0(_) => Err(GrowProblem::Reshape(ReshapeError::Metadata(candidate.superblock.level()))),
    };
    let mut superblocks: Vec<Superblock1> =
        found.candidates.iter().map(of_version_1).collect::<Result<_, _>>()?;
    let followed = follow_reshape(&mut superblocks);
    let freshest = superblocks.iter().max_by_key(|one| one.events);
    match freshest {
        // Only the last superblocks are missing.
        Some(array) if array.reshape().is_none() && !followed.is_empty() => {}
        Some(array) => check_supported(array).map_err(GrowProblem::Refused)?,
        None => {}
    }
    Ok(superblocks)
}

fn slots(
    assembly: &Assembly,
    members: &[usize],
    array: &Superblock1,
    before: &[Superblock1],
) -> Result<Slots, GrowProblem> {
    if !assembly.replacements.is_empty() {
        return Err(GrowProblem::refused(
            "a member is being replaced beside the reshape; that is Linux's work (`mdadm --assemble`)",
        ));
    }
    if array.level == Level::Raid10 {
        raid10::require_whole(assembly)?;
    }
    let going = fewer::going(array, assembly.slots.len(), before, members);
    let come_to = come_to(array);
    let is_backwards = array.reshape().is_some_and(|reshape| reshape.backwards);
    let place = |candidate: usize| members.iter().position(|index| *index == candidate);
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for state in &assembly.slots {
        let recovered = state.candidate().and_then(|index| before[index].recovered_sectors());
        written.push(state.candidate().and_then(place));
        let is_whole = state.is_in_sync() && recovered.is_none();
        read.push(is_whole.then(|| state.candidate().and_then(place)).flatten());
        let offset_sectors = match state {
            SlotState::Recovering { offset_sectors, .. } => Some(*offset_sectors),
            _ => recovered,
        };
        if offset_sectors.is_some_and(|offset| offset > if is_backwards { 0 } else { come_to }) {
            return Err(GrowProblem::refused(
                "a member is being recovered beside the reshape; that is Linux's work (`mdadm --assemble`)",
            ));
        }
    }
    read.extend(&going);
    written.extend(&going);
    Ok((read, written))
}
