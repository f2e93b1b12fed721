//! Reshapes an idle array of a level with parity (`mdadm --grow --raid-devices`, `--chunk`, `--layout`), or goes on with a reshape
//! that was cut off, here or in Linux.
//!
//! # Contract
//! *Ownership.* All members are locked before anything is written, until the end, and must be as they were when they were found.
//! *Ordering.* As `run` says: at every moment this or Linux can go on from what the superblocks say. The first and the last of them
//! go to one member after the other; where power fails in between, Linux refuses the array and [`resume`] brings it to its end.

mod course;
mod moving;
mod run;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use stripewise_engine::assembly::{Assembly, Options, SlotState};
use stripewise_format::create::Area;
use stripewise_format::grow::{
    Beginning, Changed, ReshapeError, Target, Update, check_reshape, follow_reshape, plan_course,
    reshape_layout, reshape_room,
};
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, Role, Superblock1};
use stripewise_format::time::Timestamp;

use super::super::assemble::{Assembled, Found, look};
use super::super::create::Candidate;
use super::super::probe;
use super::{GrowProblem, cut_off, members, require_quiet, require_same, write_all};
use moving::Devices;
use run::{Ended, Member, Reshape, RunError, check_supported};

/// What an array is to have from now on; what is none stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Slots.
    pub raid_disks: Option<u32>,
    /// The chunk.
    pub chunk_sectors: Option<u32>,
    /// The layout's name.
    pub layout: Option<String>,
}

/// How far a reshape came.
#[derive(Clone, Debug)]
pub struct Reshaped {
    /// The array as it is when the reshape has ended.
    pub assembled: Assembled,
    /// What it was before, and is made.
    pub change: ReshapeChange,
    /// Whether it has ended; else it was told to stop, and goes on from where it is.
    pub is_done: bool,
    /// Sectors of each member that are done.
    pub done_sectors: u64,
    /// A resync is due now, as it was before.
    pub is_resync_due: bool,
}

/// What a reshape changes, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeChange {
    /// Slots.
    pub raid_disks: (u32, u32),
    /// Sectors of a chunk.
    pub chunk_sectors: (u32, u32),
    /// The layouts' numbers.
    pub layout: (u32, u32),
    /// Sectors of the array.
    pub array_sectors: (u64, u64),
    /// Sectors used of each member.
    pub size_sectors: u64,
}

impl ReshapeChange {
    fn of(array: &Superblock1) -> Self {
        let (before, after) = (array.slots_before_reshape(), array.reshaped());
        let parity = u32::from(array.level.parity_count());
        let sectors = |slots: u32| array.size_sectors * u64::from(slots.saturating_sub(parity));
        Self {
            raid_disks: (before, after.raid_disks),
            chunk_sectors: (array.chunk_sectors, after.chunk_sectors),
            layout: (array.layout, after.layout),
            array_sectors: (sectors(before), sectors(after.raid_disks)),
            size_sectors: array.size_sectors,
        }
    }
}

/// What runs a reshape: the time, and what is told how many sectors of how many of each member are done and says whether to go on.
pub struct Watch<'a> {
    /// The time.
    pub clock: &'a mut dyn FnMut() -> Timestamp,
    /// Whether to go on.
    pub progress: &'a mut dyn FnMut(u64, u64) -> bool,
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

/// Reshapes an array that nobody uses.
///
/// # Errors
/// Why it is left as it is, or as far as it came.
pub fn reshape(
    mut found: Found,
    options: Options,
    asked: &Asked,
    destroy: &[PathBuf],
    watch: Watch<'_>,
) -> Result<Reshaped, GrowProblem> {
    let on_members = found.candidates.clone();
    let left_behind = cut_off::follow_all(&mut found.candidates);
    let assembled = found.assemble(options)?;
    let members = members(&assembled.assembly);
    let superblocks = begin(&assembled, &members, asked, (watch.clock)())?;
    let opened = open(&assembled, &members, destroy, &on_members)?;
    let finishing = cut_off::finish(&assembled, &members, &left_behind)?;
    write_all(finishing.iter().map(|(place, changed)| (&opened[*place], changed)))?;
    let changes: Vec<Changed> = superblocks.iter().map(changed).collect();
    write_all(opened.iter().zip(&changes))?;
    let (array, assembly) = (&superblocks[0], &assembled.assembly);
    let slots: Vec<Option<usize>> = (0..array.raid_disks as usize)
        .map(|slot| superblocks.iter().position(|one| one.role() == Role::Slot(slot as u16)))
        .collect();
    let is_resync_due = !assembly.is_clean;
    run(assembled, &members, superblocks, &opened, (&slots, &slots), is_resync_due, watch)
}

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
    for (candidate, superblock) in found.candidates.iter_mut().zip(&before) {
        candidate.superblock = Superblock::V1(Box::new(superblock.reshaped()));
    }
    let assembled = found.assemble(options)?;
    let (assembly, members) = (&assembled.assembly, members(&assembled.assembly));
    let array = before[assembly.freshest].clone();
    let is_ended = array.reshape().is_none();
    let is_resync_due = !assembly.is_clean;
    let (read, written) =
        if is_ended { (Vec::new(), Vec::new()) } else { slots(assembly, &members, &array)? };
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
        if is_resync_due {
            // Rows are others now.
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
        let changes: Vec<Changed> =
            superblocks.iter().map(|one| changed(&with_update(one, update))).collect();
        write_all(opened.iter().zip(&changes))?;
        let change = ReshapeChange::of(&array);
        let done_sectors = array.size_sectors;
        return Ok(Reshaped { assembled, change, is_done: true, done_sectors, is_resync_due });
    }
    run(assembled, &members, superblocks, &opened, (&read, &written), is_resync_due, watch)
}

/// The superblocks of before the end, of members that all know of the reshape.
fn follow(found: &mut Found) -> Result<Vec<Superblock1>, GrowProblem> {
    let of_version_1 = |candidate: &stripewise_engine::assembly::Candidate| match &candidate.superblock {
        Superblock::V1(superblock) => Ok((**superblock).clone()),
        Superblock::V0(_) => Err(GrowProblem::Reshape(ReshapeError::Metadata)),
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

/// The members of the slots that are read, and that are written to, by their places among `members`.
type Slots = (Vec<Option<usize>>, Vec<Option<usize>>);

fn slots(assembly: &Assembly, members: &[usize], array: &Superblock1) -> Result<Slots, GrowProblem> {
    if !assembly.replacements.is_empty() {
        return Err(GrowProblem::refused(
            "a member is being replaced beside the reshape; that is Linux's work (`mdadm --assemble`)",
        ));
    }
    let data = u64::from(array.raid_disks) - u64::from(array.level.parity_count());
    let come_to = array.reshape_position_sectors / data;
    let is_backwards = array.reshape().is_some_and(|reshape| reshape.backwards);
    let place = |candidate: usize| members.iter().position(|index| *index == candidate);
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for state in &assembly.slots {
        written.push(state.candidate().and_then(place));
        read.push(state.is_in_sync().then(|| state.candidate().and_then(place)).flatten());
        if let SlotState::Recovering { offset_sectors, .. } = state
            && (is_backwards || *offset_sectors > come_to)
        {
            return Err(GrowProblem::refused(
                "a member is being recovered beside the reshape; that is Linux's work (`mdadm --assemble`)",
            ));
        }
    }
    Ok((read, written))
}

/// Refuses a reshape that has no room to go on, before anything is written.
fn require_room(
    array: &Superblock1,
    superblocks: &[Superblock1],
    read: &[Option<usize>],
    written: &[Option<usize>],
) -> Result<(), GrowProblem> {
    let members: Vec<Member> =
        superblocks.iter().map(|one| Member { superblock: one.clone(), bitmap: None }).collect();
    let nothing: &[Candidate] = &[];
    Reshape::new(nothing, members, array, read, written)
        .map(|_| ())
        .map_err(|error| GrowProblem::Refused(error.to_string()))
}

/// The superblocks that a reshape begins with.
fn begin(
    assembled: &Assembled,
    members: &[usize],
    asked: &Asked,
    utime: Timestamp,
) -> Result<Vec<Superblock1>, GrowProblem> {
    let (assembly, candidates) = (&assembled.assembly, &assembled.found.candidates);
    let Superblock::V1(array) = &candidates[assembly.freshest].superblock else {
        return Err(GrowProblem::Reshape(ReshapeError::Metadata));
    };
    let layout = match &asked.layout {
        Some(name) => reshape_layout(array.level, name).map_err(GrowProblem::Refused)?,
        None => array.layout,
    };
    let target = Target {
        raid_disks: asked.raid_disks.unwrap_or(array.raid_disks),
        chunk_sectors: asked.chunk_sectors.unwrap_or(array.chunk_sectors),
        layout,
    };
    check_reshape(array, target, assembly.spares.len() as u32).map_err(GrowProblem::Reshape)?;
    let grows = target.raid_disks > array.raid_disks;
    if assembly.is_degraded() && (grows || !assembly.spares.is_empty()) {
        return Err(GrowProblem::refused(
            "the array lacks a member, which a spare is for first; let `stripewise assemble` recover it",
        ));
    }
    require_quiet(assembly, "the array")?;
    let superblocks: Vec<&Superblock1> = members
        .iter()
        .map(|index| match &candidates[*index].superblock {
            Superblock::V1(superblock) => &**superblock,
            Superblock::V0(_) => unreachable!("members are of one version"),
        })
        .collect();
    if let Some(place) = superblocks.iter().position(|one| one.features.contains(Features::BAD_BLOCKS)) {
        let label = &candidates[members[place]].label;
        return Err(GrowProblem::Refused(format!(
            "{label}: its bad-block log lists sectors, which would move; `stripewise repair` strikes those that it can write, and \
             `replace` has another member take its place"
        )));
    }
    let rooms: Vec<_> = superblocks
        .iter()
        .zip(members)
        .map(|(superblock, index)| {
            let bitmap = candidates[*index].bitmap.as_ref().and_then(|bitmap| bitmap.as_ref().ok());
            (*superblock, reshape_room(superblock, bitmap))
        })
        .collect();
    let course = plan_course(array, target, &rooms).map_err(|error| match error {
        ReshapeError::Room { member, .. } => {
            GrowProblem::MemberReshape(assembled.found.paths[members[member]].clone(), error)
        }
        other => GrowProblem::Reshape(other),
    })?;
    let roles = roles(assembly, array, &superblocks, members, target.raid_disks);
    let beginning = Beginning { target, backwards: course.backwards, roles };
    let update = Update { events: assembly.events + 1, utime };
    let begun = superblocks.iter().zip(&course.new_offsets);
    Ok(begun.map(|(superblock, offset)| superblock.with_reshape(&beginning, *offset, update)).collect())
}

/// The roles when the reshape has begun. The last of the spares takes the first slot, as in md, whose list of devices begins with
/// the one that was added last.
fn roles(
    assembly: &Assembly,
    array: &Superblock1,
    superblocks: &[&Superblock1],
    members: &[usize],
    raid_disks: u32,
) -> Vec<Role> {
    let number = |index: usize| {
        let place = members.iter().position(|member| *member == index).expect("it is a member");
        superblocks[place].dev_number as usize
    };
    let count = superblocks.iter().map(|one| one.dev_number as usize + 1).max().unwrap_or(0);
    let mut roles = vec![Role::Spare; array.dev_roles.len().max(count)];
    for (slot, state) in assembly.slots.iter().enumerate() {
        if let Some(candidate) = state.candidate() {
            roles[number(candidate)] = Role::Slot(slot as u16);
        }
    }
    let mut spares: Vec<usize> = assembly.spares.iter().map(|index| number(*index)).collect();
    spares.sort_unstable_by(|a, b| b.cmp(a));
    for (slot, number) in (array.raid_disks..raid_disks).zip(spares) {
        roles[number] = Role::Slot(slot as u16);
    }
    roles
}

/// Opens and locks the members, which are as they were found.
fn open(
    assembled: &Assembled,
    members: &[usize],
    destroy: &[PathBuf],
    on_members: &[stripewise_engine::assembly::Candidate],
) -> Result<Vec<Candidate>, GrowProblem> {
    let paths: Vec<PathBuf> = members.iter().map(|index| assembled.found.paths[*index].clone()).collect();
    let opened = Candidate::open_all(&paths, destroy)?;
    for (index, opened) in members.iter().zip(&opened) {
        require_same(opened, &on_members[*index].superblock)?;
    }
    Ok(opened)
}

fn with_update(superblock: &Superblock1, update: Update) -> Superblock1 {
    Superblock1 { events: update.events, utime: update.utime, ..superblock.clone() }
}

fn changed(superblock: &Superblock1) -> Changed {
    let superblock = Area { at_sector: superblock.super_offset_sectors, bytes: superblock.to_bytes() };
    Changed { logs: Vec::new(), superblock }
}

fn run(
    assembled: Assembled,
    members: &[usize],
    superblocks: Vec<Superblock1>,
    opened: &[Candidate],
    (read, written): (&[Option<usize>], &[Option<usize>]),
    is_resync_due: bool,
    Watch { clock, progress }: Watch<'_>,
) -> Result<Reshaped, GrowProblem> {
    let found = &assembled.found;
    let array = superblocks.iter().max_by_key(|one| one.events).expect("there are members").clone();
    let table = members.iter().zip(superblocks).map(|(index, superblock)| {
        let bitmap = match &found.candidates[*index].bitmap {
            Some(_) if superblock.bitmap_offset_sectors().is_some() => bitmap_head(&assembled, *index)?,
            _ => None,
        };
        Ok(Member { superblock, bitmap })
    });
    let table: Vec<Member> = table.collect::<Result<_, GrowProblem>>()?;
    let change = ReshapeChange::of(&array);
    let told = |error: RunError| match error.device() {
        Some(device) => GrowProblem::Reshaping(Some(found.paths[members[device]].clone()), error.to_string()),
        None => GrowProblem::Reshaping(None, error.to_string()),
    };
    let mut reshape = Reshape::new(opened, table, &array, read, written).map_err(told)?;
    let mut done_sectors = 0;
    let ended = reshape
        .run(clock, |done, of| {
            done_sectors = done;
            progress(done, of)
        })
        .map_err(told)?;
    Ok(Reshaped { change, is_done: ended == Ended::Done, done_sectors, is_resync_due, assembled })
}

/// The bitmap's head as it is on a member now.
fn bitmap_head(
    assembled: &Assembled,
    index: usize,
) -> Result<Option<stripewise_format::bitmap::BitmapSuperblock>, GrowProblem> {
    let (found, member) = (&assembled.found, &assembled.found.candidates[index]);
    let (_, source) = look(&found.paths[index], None)?;
    // One that does not read is left as it is: assembly takes another member's.
    let bitmap = probe::read_bitmap(&*source, member.device_sectors, &member.superblock, member.at_sector);
    Ok(bitmap.ok().flatten().map(|(head, _)| head))
}

impl Devices for &[Candidate] {
    fn read(&self, device: usize, sector: u64, bytes: &mut [u8]) -> io::Result<()> {
        self[device].read(bytes, sector * 512)
    }

    fn write(&self, device: usize, sector: u64, bytes: &[u8]) -> io::Result<()> {
        self[device].write(bytes, sector * 512)
    }

    fn flush(&self, device: usize) -> io::Result<()> {
        self[device].flush()
    }
}
