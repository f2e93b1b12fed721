//! Reshapes an idle array of a level with parity, a RAID-10 or a RAID-0 (`mdadm --grow --raid-devices`, `--chunk`, `--layout`), gives it
//! another level (`--level`), or goes on with a reshape that was cut off, here or in Linux.
//!
//! # Contract
//! *Ownership.* All members are locked before anything is written, until the end, and must be as they were when they were found.
//! *Ordering.* As `run` says: at every moment this or Linux can go on from what the superblocks say. The first and the last of them
//! go to one member after the other; where power fails in between, Linux refuses the array and [`resume`] brings it to its end.

mod apart;
mod copies;
mod course;
mod fewer;
mod level;
mod moving;
mod raid10;
mod resume;
mod run;
mod stripes;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use stripewise_engine::assembly::{Assembly, Options};
use stripewise_format::create::Area;
use stripewise_format::grow::{
    Beginning, Changed, LevelError, ReshapeError, Room, Update, check_reshape, plan_course, reshape_room,
};
use stripewise_format::level::Level;
use stripewise_format::superblock::Superblock;
use stripewise_format::superblock_1::{Features, Role, Superblock1, number_anew};
use stripewise_format::time::Timestamp;

use super::super::assemble::{Assembled, Found, look};
use super::super::create::Candidate;
use super::super::probe;
use super::{GrowProblem, cut_off, members, require_quiet, require_same, write_all};
use moving::Devices;
pub use resume::resume;
use run::{Ended, Member, Reshape, RunError};

/// What an array is to have from now on; what is none stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The level.
    pub level: Option<Level>,
    /// Slots.
    pub raid_disks: Option<u32>,
    /// Sectors of the array that are to be kept with fewer slots.
    pub array_sectors: Option<u64>,
    /// The chunk.
    pub chunk_sectors: Option<u32>,
    /// The layout's name, or mdadm's words for where it is and where it usually is.
    pub layout: Option<String>,
    /// Devices that are no members yet, for the slots that a RAID-0 gets.
    pub add: Vec<PathBuf>,
    /// Take these whatever they hold.
    pub force: bool,
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
    /// A spare is to be recovered for a slot that the level added.
    pub is_recovery_due: bool,
    /// A resync is due now, as it was before, or of what is new.
    pub is_resync_due: bool,
    /// Slots that the level added and nobody is there for.
    pub empty_slots: u32,
    /// Members whose slots went, and which are spares now, or will be when it has ended.
    pub freed: Vec<PathBuf>,
    /// What is of the array no more, and has no superblock now: a RAID-0 has no place for parity, further copies and spares.
    pub dropped: Vec<PathBuf>,
}

/// What a reshape or another level changes, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeChange {
    /// The levels.
    pub level: (Level, Level),
    /// Slots.
    pub raid_disks: (u32, u32),
    /// Sectors of a chunk.
    pub chunk_sectors: (u32, u32),
    /// The layouts' numbers.
    pub layout: (u32, u32),
    /// Sectors of the array.
    pub array_sectors: (u64, u64),
    /// Sectors used of each member.
    pub size_sectors: (u64, u64),
}

impl ReshapeChange {
    /// Of a reshape that is under way.
    fn of(array: &Superblock1) -> Self {
        let before = Superblock1 { raid_disks: array.slots_before_reshape(), ..array.clone() };
        Self::between(&before, array)
    }

    /// Whether what the array holds more is made alike on its members by a resync, and is not zeroes.
    pub fn is_new_resynced(&self) -> bool {
        self.level.1 == Level::Raid10 && self.array_sectors.1 > self.array_sectors.0
    }

    /// From what the array was to what becomes of it.
    fn between(before: &Superblock1, array: &Superblock1) -> Self {
        let after = array.reshaped();
        Self {
            level: (before.level, after.level),
            raid_disks: (before.raid_disks, after.raid_disks),
            chunk_sectors: (before.chunk_sectors, after.chunk_sectors),
            layout: (before.layout, after.layout),
            array_sectors: (before.held_sectors(), after.held_sectors()),
            size_sectors: (before.size_sectors, after.size_sectors),
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

/// What a change begins with.
enum Begun {
    /// The superblocks of a reshape.
    Reshape(Vec<Superblock1>),
    /// Those of an array of another level; nothing moves.
    Taken(Vec<Superblock1>),
    /// The array is so already.
    Already,
}

/// Reshapes an array that nobody uses, or gives it another level, or both.
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
    let dropped = cut_off::take_out_dropped(&mut found);
    let on_members = found.candidates.clone();
    let left_behind = cut_off::follow_all(&mut found.candidates);
    let mut assembled = found.assemble(options)?;
    if assembled.assembly.consistency == stripewise_engine::assembly::Consistency::Journal {
        return Err(super::has_journal());
    }
    let array = version_1(&assembled.found.candidates[assembled.assembly.freshest])
        .ok_or(match asked.level {
            Some(_) => GrowProblem::Level(LevelError::Metadata),
            None => GrowProblem::Reshape(ReshapeError::Metadata(assembled.assembly.geometry.level)),
        })?
        .clone();
    let is_widened = stripes::is_meant(&array, asked);
    let logs = if is_widened { stripes::offer(&mut assembled, &array, asked, destroy)? } else { Vec::new() };
    let members = members(&assembled.assembly);
    let begun = begin(&assembled, &members, &array, asked, (watch.clock)())?;
    if matches!(begun, Begun::Already) && left_behind.is_empty() && dropped.is_empty() {
        return Err(GrowProblem::Reshape(ReshapeError::Same));
    }
    let opened = open(&assembled, &members, destroy, &on_members)?;
    for (index, opened) in members.iter().zip(&opened).filter(|(index, _)| **index >= on_members.len()) {
        stripes::require_free(&assembled.found.paths[*index], opened, &array, asked)?;
    }
    let finishing = cut_off::finish(&assembled, &members, &left_behind, true)?;
    let dropped_before = open_dropped(&dropped, destroy)?;
    let cleared = dropped.iter().map(|(_, one)| level::cleared(one.at_sector));
    let cleared: Vec<Changed> = cleared.collect();
    let finishing = finishing.iter().map(|(place, changed)| (&opened[*place], changed));
    write_all(finishing.chain(dropped_before.iter().zip(&cleared)))?;
    let mut dropped: Vec<PathBuf> = dropped.into_iter().map(|(path, _)| path).collect();
    let (superblocks, changes) = match begun {
        Begun::Already => {
            return Ok(Reshaped { dropped, ..ended(assembled, ReshapeChange::of(&array)) });
        }
        Begun::Taken(superblocks) => {
            let changes = level::take(&assembled, &members, &superblocks)?;
            write_all(level::in_order(&opened, &superblocks, &changes).into_iter())?;
            dropped.extend(level::dropped(&assembled, &members, &superblocks));
            return Ok(Reshaped {
                dropped,
                ..ended(assembled, ReshapeChange::between(&array, &superblocks[0]))
            });
        }
        Begun::Reshape(superblocks) => {
            let mut changes: Vec<Changed> = superblocks.iter().map(changed).collect();
            let first_added = changes.len() - logs.len();
            changes[first_added..].iter_mut().zip(logs).for_each(|(change, logs)| change.logs = logs);
            (superblocks, changes)
        }
    };
    let held = assembled.assembly.slots.iter().filter(|slot| slot.candidate().is_some()).count();
    write_all(in_order(&superblocks, held).into_iter().map(|place| (&opened[place], &changes[place])))?;
    let change = ReshapeChange::between(&array, &superblocks[0]);
    let slots = slots_of(&superblocks);
    let is_resync_due = !assembled.assembly.is_clean;
    let paths: Vec<PathBuf> = members.iter().map(|index| assembled.found.paths[*index].clone()).collect();
    let Watch { clock, progress } = watch;
    let part = Watch { clock: &mut *clock, progress: &mut *progress };
    let reshaped = run(assembled, &members, (superblocks, change), &opened, &slots, is_resync_due, part)?;
    if !is_widened || !reshaped.is_done {
        return Ok(reshaped);
    }
    drop(opened);
    stripes::back(reshaped, paths, options, destroy, Watch { clock, progress })
}

/// The places of a reshape's first superblocks in the order in which they are written, where the first members `held` slots before.
/// What takes a slot first: who says that there is a reshape needs it. Spares that stay so last: what they alone say is heard by nobody.
fn in_order(superblocks: &[Superblock1], held: usize) -> Vec<usize> {
    let turn = |place: &usize| match superblocks[*place].role() {
        Role::Slot(_) if *place >= held => 0,
        _ if *place < held => 1,
        _ => 2,
    };
    let mut places: Vec<usize> = (0..superblocks.len()).rev().collect();
    places.sort_by_key(turn);
    places
}

/// A change by superblocks alone.
fn ended(assembled: Assembled, change: ReshapeChange) -> Reshaped {
    let done_sectors = change.size_sectors.1;
    let added = change.raid_disks.1.saturating_sub(change.raid_disks.0);
    let empty_slots = if change.level.0 == Level::Raid0 { added } else { 0 };
    let is_recovery_due = added > empty_slots;
    let (is_done, is_resync_due, freed, dropped) = (true, false, Vec::new(), Vec::new());
    Reshaped {
        assembled,
        change,
        is_done,
        done_sectors,
        is_recovery_due,
        is_resync_due,
        empty_slots,
        freed,
        dropped,
    }
}

/// Opens and locks what a change that was cut off had left no place, which is as it was found.
fn open_dropped(
    dropped: &[(PathBuf, stripewise_engine::assembly::Candidate)],
    destroy: &[PathBuf],
) -> Result<Vec<Candidate>, GrowProblem> {
    let paths: Vec<PathBuf> = dropped.iter().map(|(path, _)| path.clone()).collect();
    let opened = Candidate::open_all(&paths, destroy)?;
    for ((_, offered), opened) in dropped.iter().zip(&opened) {
        require_same(opened, &offered.superblock)?;
    }
    Ok(opened)
}

fn version_1(candidate: &stripewise_engine::assembly::Candidate) -> Option<&Superblock1> {
    match &candidate.superblock {
        Superblock::V1(superblock) => Some(superblock),
        Superblock::V0(_) => None,
    }
}

/// The members of the slots of a reshape that begins, those that go included.
fn slots_of(superblocks: &[Superblock1]) -> Slots {
    let array = &superblocks[0];
    let written: Vec<Option<usize>> = (0..array.raid_disks.max(array.slots_before_reshape()))
        .map(|slot| superblocks.iter().position(|one| one.role() == Role::Slot(slot as u16)))
        .collect();
    let is_whole = |place: &usize| superblocks[*place].recovered_sectors().is_none();
    (written.iter().map(|place| place.filter(is_whole)).collect(), written)
}

/// The members of the slots that are read, and that are written to, by their places among `members`. Slots that go are in both.
type Slots = (Vec<Option<usize>>, Vec<Option<usize>>);

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

/// The superblocks that a reshape, or another level, begins with.
fn begin(
    assembled: &Assembled,
    members: &[usize],
    array: &Superblock1,
    asked: &Asked,
    utime: Timestamp,
) -> Result<Begun, GrowProblem> {
    let (assembly, candidates) = (&assembled.assembly, &assembled.found.candidates);
    let wanted = level::settle(array, asked)?;
    if wanted.is_nothing() {
        return Ok(Begun::Already);
    }
    let target = wanted.target;
    if wanted.takeover.is_some() {
        level::require_members(assembly, array, &wanted)?;
    }
    let taken = wanted.taken(assembled, array);
    if wanted.moves {
        let spares = assembly.spares.len() as u32;
        check_reshape(&taken, target, spares).map_err(|error| stripes::refusal(array.level, error))?;
    }
    let grows = target.raid_disks > array.raid_disks;
    if assembly.is_degraded() && (grows || !assembly.spares.is_empty()) {
        return Err(GrowProblem::refused(
            "the array lacks a member, which a spare is for first; let `stripewise assemble` recover it",
        ));
    }
    require_quiet(assembly, "the array")?;
    let of_version_1 = |index: &usize| version_1(&candidates[*index]).expect("members are of one version");
    let mut now: Vec<Superblock1> = members.iter().map(|index| of_version_1(index).clone()).collect();
    let renumbered = number_anew(&mut now.iter_mut().collect::<Vec<_>>(), array.raid_disks);
    let mut superblocks: Vec<Superblock1> = now.iter().map(|one| wanted.taken(assembled, one)).collect();
    if wanted.takeover.is_some() {
        let now: Vec<&Superblock1> = now.iter().collect();
        level::check_taken(assembled, members, &now, &superblocks)?;
    }
    require_no_bad_blocks(&superblocks, |place| &candidates[members[place]].label)?;
    let now = rooms(assembled, members, &superblocks);
    fewer::settle_kept(&taken, target, asked.array_sectors, &now, &mut superblocks)?;
    let update = Update { events: assembly.events + 1, utime };
    if !wanted.moves {
        return Ok(Begun::Taken(superblocks.iter().map(|one| one.with_update(update)).collect()));
    }
    let rooms = rooms(assembled, members, &superblocks);
    let rooms: Vec<_> = superblocks.iter().zip(rooms).collect();
    let course = plan_course(&taken, target, &rooms).map_err(|error| match error {
        ReshapeError::Room { member, .. } => {
            GrowProblem::MemberReshape(assembled.found.paths[members[member]].clone(), error)
        }
        other => GrowProblem::Reshape(other),
    })?;
    let roles = roles(assembly, array, &superblocks, members, &renumbered, target.raid_disks);
    let beginning = Beginning { target, backwards: course.backwards, roles };
    let begun = superblocks.iter().zip(&course.new_offsets);
    let begun = begun.map(|(superblock, offset)| superblock.with_reshape(&beginning, *offset, update));
    let begun: Vec<Superblock1> = begun.collect();
    raid10::require_shape(&begun[0].reshaped())?;
    raid10::larger_bitmap(assembled, members, &begun)?;
    let (read, written) = slots_of(&begun);
    require_room(&begun[0], &begun, &read, &written)?;
    Ok(Begun::Reshape(begun))
}

fn require_no_bad_blocks<'a>(
    superblocks: &[Superblock1],
    label: impl Fn(usize) -> &'a String,
) -> Result<(), GrowProblem> {
    match superblocks.iter().position(|one| one.features.contains(Features::BAD_BLOCKS)) {
        None => Ok(()),
        Some(place) => Err(GrowProblem::Refused(format!(
            "{}: its bad-block log lists sectors, which would move; `stripewise repair` strikes those that it can write, and \
             `replace` has another member take its place",
            label(place)
        ))),
    }
}

/// What the members have free.
fn rooms(assembled: &Assembled, members: &[usize], superblocks: &[Superblock1]) -> Vec<Room> {
    let candidates = &assembled.found.candidates;
    let bitmap = |index: usize| candidates[index].bitmap.as_ref().and_then(|bitmap| bitmap.as_ref().ok());
    superblocks.iter().zip(members).map(|(one, index)| reshape_room(one, bitmap(*index))).collect()
}

/// The roles when the reshape has begun. The last of the spares takes the first slot, as in md, whose list of devices begins with
/// the one that was added last. Those that got another number come before all others: they are told of it before the members hear of the
/// reshape. A spare that stays one may not be told, and its old number is then no slot's.
fn roles(
    assembly: &Assembly,
    array: &Superblock1,
    superblocks: &[Superblock1],
    members: &[usize],
    renumbered: &[usize],
    raid_disks: u32,
) -> Vec<Role> {
    let place = |index: usize| members.iter().position(|member| *member == index).expect("it is a member");
    let number = |index: usize| superblocks[place(index)].dev_number as usize;
    let count = superblocks.iter().map(|one| one.dev_number as usize + 1).max().unwrap_or(0);
    let mut roles = vec![Role::Spare; array.dev_roles.len().max(count)];
    for (slot, state) in assembly.slots.iter().enumerate() {
        if let Some(candidate) = state.candidate() {
            roles[number(candidate)] = Role::Slot(slot as u16);
        }
    }
    let by = |index: &usize| (renumbered.contains(&place(*index)), number(*index));
    let mut spares: Vec<(bool, usize)> = assembly.spares.iter().map(by).collect();
    spares.sort_unstable_by(|a, b| b.cmp(a));
    for (slot, (_, number)) in (array.raid_disks..raid_disks).zip(spares) {
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
        // What is added has none.
        if let Some(offered) = on_members.get(*index) {
            require_same(opened, &offered.superblock)?;
        }
    }
    Ok(opened)
}

fn changed(superblock: &Superblock1) -> Changed {
    let superblock = Area { at_sector: superblock.super_offset_sectors, bytes: superblock.to_bytes() };
    Changed { logs: Vec::new(), superblock }
}

fn run(
    assembled: Assembled,
    members: &[usize],
    (superblocks, change): (Vec<Superblock1>, ReshapeChange),
    opened: &[Candidate],
    (read, written): &Slots,
    is_resync_due: bool,
    Watch { clock, progress }: Watch<'_>,
) -> Result<Reshaped, GrowProblem> {
    let found = &assembled.found;
    let array = superblocks.iter().max_by_key(|one| one.events).expect("there are members").clone();
    let larger_bitmap = raid10::larger_bitmap(&assembled, members, &superblocks)?;
    let table = members.iter().zip(superblocks).map(|(index, superblock)| {
        let bitmap = match &found.candidates[*index].bitmap {
            Some(_) if superblock.bitmap_offset_sectors().is_some() => bitmap_head(&assembled, *index)?,
            _ => None,
        };
        let bitmap = bitmap.map(|head| fewer::bitmap_of(&superblock, head));
        Ok(Member { superblock, bitmap })
    });
    let table: Vec<Member> = table.collect::<Result<_, GrowProblem>>()?;
    let told = |error: RunError| match error.device() {
        Some(device) => GrowProblem::Reshaping(Some(found.paths[members[device]].clone()), error.to_string()),
        None => GrowProblem::Reshaping(None, error.to_string()),
    };
    let mut reshape = Reshape::new(opened, table, &array, read, written).map_err(told)?;
    if let Some(bitmap) = larger_bitmap {
        reshape.set_larger_bitmap(bitmap);
    }
    let mut done_sectors = 0;
    let end = reshape
        .run(clock, |done, of| {
            done_sectors = done;
            progress(done, of)
        })
        .map_err(told)?;
    let is_done = end == Ended::Done;
    let is_new_due = is_done && change.is_new_resynced();
    let is_resync_due = is_resync_due || is_new_due;
    let is_recovery_due = is_done && fewer::is_recovery_due(&array, read, members.len());
    let freed = fewer::freed(&array, read, |place| found.paths[members[place]].clone());
    let whole = ended(assembled, change);
    let empty_slots = if is_done { whole.empty_slots } else { 0 };
    Ok(Reshaped { is_done, done_sectors, is_recovery_due, is_resync_due, empty_slots, freed, ..whole })
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
